//! C. Free memory reported, allocation refused: who holds it.

use gpuoom_trace::record::Kind;

use super::{Rule, failure, leaks, shapes};
use crate::diagnosis::case::{Case, Failure};
use crate::diagnosis::on_card::Alone;
use crate::diagnosis::pooled::KEPT;
use crate::evidence::smi::CardProcess;
use crate::judgement::check::{Basis, Check, Confidence, Holds, Known};
use crate::judgement::role::Role;
use crate::passes::fragmentation::saturate;
use crate::replay::lower::Cause;
use crate::replay::readings::Source;
use crate::replay::tracks::reads::{Read, Stretch};
use crate::thresholds::share;
use crate::words::{clean, percent, size};

pub(super) const RULES: &[Rule] = &[
    failure("phantom-free", phantom_free),
    failure("other-process-on-gpu", other_process_on_gpu),
    failure("zombie-vram", zombie_vram),
    failure("hidden-runtime-memory", hidden_runtime_memory),
];

/// The umbrella: enough was reported free. What resolves it is found by other rules (see `diagnosis::resolve`).
fn phantom_free(case: &Case<'_>, failure: &Failure<'_>, check: &mut Check) {
    // Managed memory may be refused for want of the host's, whatever is free on the card.
    if !check.applies(failure.is_real_of_card()) {
        return;
    }
    let both = failure.request_bytes().zip(failure.runtime_free_bytes());
    check.must(both.is(|(request, free)| failure.thresholds.is_enough(free, request)), || {
        let (request, free) = both.get().unwrap_or((0, 0));
        format!("{} was refused although the runtime reported {} free", size(request), size(free))
    });
    if check.is_over() {
        return;
    }
    if !made_by_nobody(case, failure, check) {
        return;
    }
    // What was free when it was read had come back by then.
    let exceeds = failure.alone().is(|alone| matches!(alone, Alone::Exceeds { .. }));
    check.unless(exceeds, || "the program's own blocks and this request are more than the whole card".to_owned());
    // A pool that the program made may have a limit of its own.
    if failure.oom.kind == Kind::Pool && case.replay.made_pools > 0 {
        check.at_most(Confidence::Possible);
        check.would_settle("the limit of the pool that was asked (maxSize of hipMemPoolProps, cudaMemPoolProps)");
    }
    let by_driver = failure.driver_free_bytes();
    let request = failure.request_bytes().get().unwrap_or(0);
    let too_little = failure.was_free(by_driver, |free| free < request);
    check.unless(case.is_read_of_card(failure).and(too_little), || match by_driver.get() {
        Some(free) if too_little == Holds::Yes => format!("the driver's counters called only {} free", size(free)),
        _ => "the driver's counters called less free than was asked for".to_owned(),
    });
    let largest = failure.oom.read.largest_allocatable_bytes;
    check.note(largest.is_some(), || {
        let largest = size(largest.unwrap_or(0));
        match failure.allocated_beyond_free() {
            Some(_) => format!("a block of {largest} could be allocated then: more than had been read as free"),
            None => format!("the largest block below it that could be allocated then had {largest}"),
        }
    });
}

/// Whether enough was free at the refusal, and not only when it was read a little later. Returns whether that may be.
fn made_by_nobody(case: &Case<'_>, failure: &Failure<'_>, check: &mut Check) -> bool {
    let was_enough = failure.was_enough(failure.runtime_free_bytes());
    if was_enough != Holds::Yes {
        check.at_most(Confidence::Possible);
        check.must(was_enough, String::new);
        return true;
    }
    // Another process may have held it, and have given it back since.
    let both = failure.request_bytes().zip(failure.runtime_free_bytes()).get();
    let is_enough = |(request, free)| case.thresholds.is_enough(failure.moved.free_at_least(free), request);
    if !check.applies(both.is_some_and(is_enough)) {
        return false;
    }
    if others_exceed(failure) {
        check.at_most(Confidence::Possible);
        check.note(true, || {
            "what other compute processes hold and what was called free are together more than the card: they contradict each other".to_owned()
        });
        check.would_settle("readings while other processes hold still");
    }
    let gave = case.others_gave_back_before(failure);
    if gave.get().is_none() {
        check.at_most(Confidence::Probable);
        check.would_settle(gave.reading());
    }
    true
}

/// Another compute process holds the card.
fn other_process_on_gpu(case: &Case<'_>, failure: &Failure<'_>, check: &mut Check) {
    // What a board's counters say is nothing about a slice of it.
    let of_card = case.is_read_of_card(failure);
    if !check.applies(failure.is_real_of_device() && of_card != Holds::No) {
        return;
    }
    let others = others_bytes(failure);
    if others.get().is_none()
        && let Some(told) = others_by_files(case, failure)
    {
        return held_by_told(case, failure, &told, check);
    }
    // Nobody else by the readings, and somebody by a file: they are of two moments, or one of them does not see all.
    let denied = others.get().filter(|others| *others <= failure.thresholds.gap_noise_bytes);
    let told = denied.and_then(|denied| {
        let told = others_by_files(case, failure)?;
        (told.bytes > denied.saturating_add(failure.thresholds.gap_noise_bytes)).then_some((denied, told))
    });
    if let Some((denied, told)) = told {
        check.at_most(Confidence::Possible);
        held_by_told(case, failure, &told, check);
        let by = counted_by(failure);
        check.note(true, || {
            format!("by {by} other processes held {} at this failure: the two contradict each other", size(denied))
        });
        return;
    }
    // The runtime counts the device that it was asked for, whichever card that is.
    let of_runtime = |first: &Read| first.read.wholes().first().is_some_and(|whole| whole.source == Source::Runtime);
    let by_runtime = first_read(case, failure).is_some_and(of_runtime);
    if others.get().is_none() && by_runtime && held_before(case, failure, check) {
        return;
    }
    if let Holds::Unknown(reading) = of_card {
        check.must(Holds::Unknown(reading), String::new);
    }
    if others.get() == Some(0) {
        // Where all that is listed may be this process, nothing is known of others.
        // Nor where the counters may be of another card.
        let can_tell = !is_unlisted(failure) && of_card == Holds::Yes;
        return if can_tell { nobody_else(failure, check) } else { _ = check.applies(false) };
    }
    let total = failure.total_bytes().get().unwrap_or(0);
    explains(failure, others, Basis::Measured, check, |others| {
        format!("other compute processes hold {} ({} of the card)", size(others), percent(share(others, total)))
    });
    let beyond = beyond_all_in_use(failure);
    if failure.oom.read.others_vram_bytes.is_some() && beyond.get().is_none() {
        // Nothing shows that the list is of this moment.
        check.at_most(Confidence::Probable);
        check.would_settle(IN_USE);
    }
    if let Some(more) = beyond.get().filter(|more| *more > 0) {
        // One of the two is not of this moment: a process that has ended may still be listed.
        check.at_most(Confidence::Probable);
        check.note(true, || {
            format!(
                "KFD's numbers of all processes are {} more than the driver counts in use: they contradict each other",
                size(more)
            )
        });
        check.would_settle("the processes that KFD lists, and whether each still lives");
    }
    // Nobody holds more than is in use, or on the card, beside the program's own blocks.
    let in_use = failure.oom.read.vram_used_bytes.or(failure.total_bytes().get());
    let beside = in_use.map(|bytes| bytes.saturating_sub(failure.own_bytes()));
    if let Some(beside) = beside.filter(|beside| failure.shortfall_bytes().is_some_and(|missing| *beside < missing)) {
        check.at_most(Confidence::Possible);
        check.note(true, || {
            format!("beside the program's own blocks there is room for {} of others at most", size(beside))
        });
    }
    if failure.oom.read.others_vram_bytes.is_none() {
        // NVML counts what all others hold together: graphics, too, and what nobody owns.
        check.at_most(Confidence::Probable);
        check.would_settle("the list of processes that hold the card (nvidia-smi)");
    }
    let own = failure.process_or_own_bytes();
    if leaks::fills_the_card(case, failure) && own >= others.get().unwrap_or(0) {
        // What rises without an end meets any card. What others hold is the greater reason only where it is more than all that is its own.
        check.at_most(Confidence::Possible);
    }
    if share(own, total) >= failure.thresholds.capacity_medium_share {
        // Either may be made smaller: which of the two is too much, nobody can tell.
        check.at_most(Confidence::Probable);
        check.note(true, || format!("this process itself holds {} of the card", percent(share(own, total))));
        check.would_settle("which of the two may be made smaller");
    }
    if let Some(told) = others_by_files(case, failure).filter(|told| !told.is_of_failure) {
        check.note_by(told.basis, true, || {
            format!("{}, at a moment that it does not tell: other processes hold {}", told.by, size(told.bytes))
        });
    }
    let first = first_read(case, failure).and_then(|read| read.read.others_vram_bytes);
    check.note(first.is_some_and(|bytes| bytes > 0), || {
        format!("they held {} at the first reading", size(first.unwrap_or(0)))
    });
    enough_in_spite(case, failure, check);
}

/// Whether the memory of other processes contradicts the free memory: with it, and with the program's own, they are more than the card.
fn others_exceed(failure: &Failure<'_>) -> bool {
    let others = failure.oom.read.others_vram_bytes.unwrap_or(0);
    let both = failure.total_bytes().zip(failure.runtime_free_bytes()).get();
    let noise = failure.thresholds.gap_noise_bytes;
    both.is_some_and(|(total, free)| {
        let without = failure.own_bytes().saturating_add(free);
        others > noise && without <= total && without.saturating_add(others) > total.saturating_add(noise)
    })
}

/// What would show whether KFD's list is of this moment.
const IN_USE: &str = "what the driver counts in use (amdgpu's mem_info files), beside KFD's numbers of the processes";

/// By how much KFD's numbers of the processes, added up, exceed what the driver counts in use; 0 where that is noise.
fn beyond_all_in_use(failure: &Failure<'_>) -> Known<u64> {
    let read = &failure.oom.read;
    let listed = read.others_vram_bytes.zip(read.process_vram_bytes).map(|(others, own)| others.saturating_add(own));
    let both = Known::new(listed, IN_USE).zip(Known::new(read.vram_used_bytes, IN_USE));
    let noise = failure.thresholds.gap_noise_bytes;
    both.map(|(listed, used)| Some(listed.saturating_sub(used)).filter(|more| *more > noise).unwrap_or(0))
}

/// What other compute processes hold. Where KFD lists others and not this process, which holds memory, it knows this one by
/// another number, as in a container: then as much of theirs may be its own.
fn others_bytes(failure: &Failure<'_>) -> Known<u64> {
    let others = failure.other_compute_bytes();
    match is_unlisted(failure) {
        true => others.map(|others| others.saturating_sub(failure.own_bytes())),
        false => others,
    }
}

/// Who says what other processes hold.
fn counted_by(failure: &Failure<'_>) -> &'static str {
    if failure.oom.read.others_vram_bytes.is_some() { "KFD's list" } else { "NVML" }
}

/// Whether KFD lists processes, and this one is not among them although it holds memory.
fn is_unlisted(failure: &Failure<'_>) -> bool {
    let read = &failure.oom.read;
    read.others_vram_bytes.is_some() && read.process_vram_bytes.unwrap_or(0) == 0 && failure.own_bytes() > 0
}

/// Others are the reason where the request would have fit without them. Where it would not, they are worth a word at most.
fn explains(
    failure: &Failure<'_>,
    others: Known<u64>,
    basis: Basis,
    check: &mut Check,
    text: impl FnOnce(u64) -> String,
) {
    let both = others.zip(failure.total_bytes());
    let missing = failure.shortfall_bytes();
    let is_enough = |others: u64| missing.is_some_and(|missing| others >= missing);
    let least = failure.thresholds.others_share;
    if both.is(|(others, total)| share(others, total) < least) == Holds::Yes {
        // A little was missing, and it is theirs as much as anybody's: they do not hold the card.
        check.at_most(Confidence::Possible);
        check.plays(Role::Condition);
    }
    check.must_by(basis, both.is(|(others, total)| is_enough(others) || share(others, total) >= least), || {
        text(others.get().unwrap_or(0))
    });
    let Some((others, missing)) = others.get().zip(missing).filter(|(others, missing)| others < missing) else {
        return;
    };
    check.at_most(Confidence::Possible);
    check.plays(Role::Condition);
    check.note(true, || {
        format!(
            "the request was {}: without them it would still not have fit{}",
            failure.short_by(missing),
            if failure.moved.is_none() { format!(" by {}", size(missing - others)) } else { String::new() }
        )
    });
}

fn enough_in_spite(case: &Case<'_>, failure: &Failure<'_>, check: &mut Check) {
    let enough = failure.was_enough(failure.free_bytes());
    let of_card = case.is_read_of_card(failure);
    let enough = if enough == Holds::Yes && others_exceed(failure) { Holds::Unknown(READ_TOGETHER) } else { enough };
    check.unless(if of_card == Holds::Yes { enough } else { enough.and(of_card) }, || {
        "enough was free in spite of them".to_owned()
    });
}

/// What would show which of two contradicting readings is of the refusal.
const READ_TOGETHER: &str = "free memory and what others hold at one moment, while others hold still";

/// What a file says of other processes.
struct Told {
    by: String,
    bytes: u64,
    /// Whether it is of this failure, and not of some moment.
    is_of_failure: bool,
    basis: Basis,
}

/// What others hold by PyTorch's message about this failure, else by a tool's list of the card's processes.
fn others_by_files(case: &Case<'_>, failure: &Failure<'_>) -> Option<Told> {
    let sum = |sizes: &mut dyn Iterator<Item = u64>| sizes.fold(0u64, u64::saturating_add);
    let by_message = case.message(failure).filter(|message| !message.other_processes.is_empty()).map(|message| {
        let bytes = sum(&mut message.other_processes.iter().map(|other| other.in_use.bytes));
        let is_recorded = case.recorded_message(failure).is_some();
        let basis = if is_recorded { Basis::Measured } else { Basis::Given };
        Told { by: "PyTorch's message".to_owned(), bytes, is_of_failure: true, basis }
    });
    let own = u64::from(case.trace.header.pid);
    let by_tool = || {
        let files = case.evidence.smi.iter().filter(|file| !file.content.processes.is_empty());
        let told = files.map(|file| {
            let of_card = |process: &&CardProcess| {
                failure.device.and_then(|device| case.is_told_process(device, &file.content, process)) == Some(true)
            };
            let others = file.content.processes.iter().filter(of_card).filter(|process| process.pid != own);
            let bytes = sum(&mut others.filter_map(|process| process.used_bytes));
            Told { by: clean(&file.path), bytes, is_of_failure: false, basis: Basis::Given }
        });
        told.max_by_key(|told| told.bytes)
    };
    by_message.or_else(by_tool).filter(|told| told.bytes > 0)
}

/// Other processes hold the card, as a file says.
fn held_by_told(case: &Case<'_>, failure: &Failure<'_>, told: &Told, check: &mut Check) {
    let total = failure.total_bytes().get().unwrap_or(0);
    explains(failure, Known::new(Some(told.bytes), ""), told.basis, check, |bytes| {
        let when = if told.is_of_failure { "" } else { ", at a moment that it does not tell" };
        format!(
            "{}{when}: other processes hold {} ({} of the card)",
            told.by,
            size(bytes),
            percent(share(bytes, total))
        )
    });
    if !told.is_of_failure {
        check.at_most(Confidence::Probable);
        check.would_settle("the same list at the moment of the failure, or readings of KFD or NVML in the trace");
    }
    enough_in_spite(case, failure, check);
}

/// Somebody holds much, and no compute process does: that excludes them.
fn nobody_else(failure: &Failure<'_>, check: &mut Check) {
    let both = failure.external_bytes().zip(failure.total_bytes());
    check.must(both.is(|(others, total)| share(others, total) >= failure.thresholds.others_share), || {
        format!("{} of the card is not this process's", size(both.get().unwrap_or((0, 0)).0))
    });
    // What is in use and nobody is listed with may be of a process that KFD listed a moment before or after.
    let missing = failure.shortfall_bytes().unwrap_or(0);
    let unlisted = failure.beyond_compute_bytes().get().unwrap_or(0);
    if missing > 0 && unlisted >= missing {
        check.applies(false);
        return;
    }
    check.unless(true, || format!("by {} no other process holds memory of the card", counted_by(failure)));
}

/// Where nobody counts by process: what was in use beside this process's blocks when the card was first read, if that is as much as was
/// missing. Part of it may be the runtime's own. Answers whether it is.
fn held_before(case: &Case<'_>, failure: &Failure<'_>, check: &mut Check) -> bool {
    let both = shapes::in_use_before(case, failure).zip(failure.total_bytes().get());
    let missing = failure.shortfall_bytes().unwrap_or(u64::MAX);
    let much = failure.thresholds.others_share;
    let Some(((least, most), total)) =
        both.filter(|((least, _), total)| *least >= missing && share(*least, *total) >= much)
    else {
        return false;
    };
    check.at_most(Confidence::Possible);
    check.must(true, || {
        let part = percent(share(least, total));
        let at_least = if least < most { "at least " } else { "" };
        format!(
            "{at_least}{} ({part} of the card) was in use beside this process's blocks when the card was first read",
            size(least)
        )
    });
    check.would_settle("whose memory that was: the list of processes that hold the card (nvidia-smi, amd-smi process, rocm-smi --showpids)");
    enough_in_spite(case, failure, check);
    true
}

/// The first reading of the device that failed.
fn first_read<'a>(case: &Case<'a>, failure: &Failure<'_>) -> Option<&'a Read> {
    let track = case.replay.tracks.device(failure.oom.device?)?;
    track.reads.first.as_ref()
}

/// Memory was in use before this process had any, and nobody is known who holds it.
fn zombie_vram(case: &Case<'_>, failure: &Failure<'_>, check: &mut Check) {
    let Some(first) = first_read(case, failure) else { return };
    if !check.applies(failure.is_real_of_device()) {
        return;
    }
    let read = &first.read;
    let unowned = read.vram_used_bytes.zip(read.others_vram_bytes).map(|(used, others)| {
        // A call that was under way may be in one number and not in the other: what is left is the least.
        let own = read.process_vram_bytes.unwrap_or(0).max(first.most_held_bytes);
        let graphics = read.graphics_vram_bytes.unwrap_or(0);
        used.saturating_sub(own).saturating_sub(others).saturating_sub(graphics)
    });
    let Some(unowned) = unowned else { return };
    let missing = failure.shortfall_bytes();
    let total = failure.total_bytes().get().unwrap_or(0);
    check.must(unowned >= case.thresholds.unowned_bytes, || {
        let at_least = if first.is_disturbed { "at least " } else { "" };
        let own = read.process_vram_bytes.unwrap_or(0).max(first.most_held_bytes);
        let when = match own {
            0 => "before this process took any".to_owned(),
            own => format!("beside the {} of this process when the card was first read", size(own)),
        };
        format!("{at_least}{} was in use {when}, and no known process holds it", size(unowned))
    });
    // It explains the failure only where that memory would have helped.
    check.must(
        missing.is_some_and(|missing| unowned >= missing) || share(unowned, total) >= case.thresholds.others_share,
        || format!("the request was {}", failure.short_by(missing.unwrap_or(0))),
    );
    check.must(Holds::Unknown("who holds it: fuser -v /dev/kfd /dev/dri/renderD*"), String::new);
    if failure.oom.read.others_vram_bytes.is_none() {
        check.would_settle("what living processes hold: KFD's list of them could not be read");
    }
    let shows = failure.device.and_then(|device| case.card(device)).and_then(|card| card.is_boot_display);
    let shows = match shows {
        Some(false) => Holds::No,
        _ => Holds::Unknown("whether graphics clients of other users hold it: the card may drive a display"),
    };
    check.unless(shows, || "a living graphics client holds it".to_owned());
}

/// What would tell whether layers below keep what the program gave back, where that was not counted.
const UNCOUNTED: &str =
    "what layers below hold of what the program gave back: too many blocks lived at too many failures to count them";

/// Runtime and libraries hold memory that the program never asked for.
fn hidden_runtime_memory(case: &Case<'_>, failure: &Failure<'_>, check: &mut Check) {
    if !check.applies(failure.is_real_of_device()) {
        return;
    }
    let kept = case.kept_by_pools(failure);
    let accounted = accounted_otherwise(case, failure, kept.bytes);
    let at_most = accounted_otherwise(case, failure, kept.at_most_bytes);
    let hidden = failure.hidden_bytes().map(|hidden| hidden.saturating_sub(accounted));
    let both = hidden.zip(failure.total_bytes());
    let is_much = |(hidden, total): (u64, u64)| {
        hidden >= failure.thresholds.hidden_bytes && share(hidden, total) >= failure.thresholds.hidden_share
    };
    check.at_most(Confidence::Probable);
    if failure.oom.census.is_none() {
        check.at_most(Confidence::Possible);
        check.would_settle(UNCOUNTED);
    }
    if case.is_free_under_way(failure) {
        check.at_most(Confidence::Possible);
        check.would_settle(
            "whether another thread's free had been done by then: what it gives back is counted until it is",
        );
    }
    let less = both.map(|(hidden, total)| (hidden.saturating_sub(at_most - accounted), total));
    if less.is(is_much) == Holds::No {
        // Pieces in pools that did not fit the next request may be all of it.
        check.at_most(Confidence::Possible);
        check.would_settle(KEPT);
    }
    check.must(both.is(is_much), || {
        let (hidden, total) = both.get().unwrap_or((0, 0));
        format!(
            "the driver counts {} for this process beyond its own blocks ({} of the card)",
            size(hidden),
            percent(share(hidden, total))
        )
    });
    check.note_by(Basis::Estimated, accounted > 0, || {
        format!("{} more may be rounding, and what was given back and did not become free", size(accounted))
    });
    check.note_by(Basis::Estimated, at_most > accounted, || {
        let by_pools = (at_most - accounted).min(hidden.get().unwrap_or(0));
        format!("up to {} of it may be what stream-ordered pools keep", size(by_pools))
    });
    may_be_graphs(case, hidden.zip(failure.total_bytes()), is_much, check);
    let missing = failure.shortfall_bytes();
    if missing.zip(hidden.get()).is_none_or(|(missing, hidden)| hidden < missing) {
        check.at_most(Confidence::Possible);
        check.plays(Role::Condition);
    }
    if let Some((granule, added, Holds::Yes)) = case.observed_rounding(failure) {
        check.at_most(Confidence::Possible);
        check.note_by(Basis::Estimated, true, || {
            format!(
                "the addresses of the blocks are multiples of {}: rounding each up to that adds {}, which may be all of it",
                size(granule),
                size(added)
            )
        });
        check.would_settle("free memory before and after single allocations: what the driver really takes for each");
    }
    for (what, bytes) in runtime_parts(failure) {
        check.note(bytes > 0, || format!("{} was seen to be taken for {what}", size(bytes)));
        let hidden = hidden.get().unwrap_or(u64::MAX);
        if bytes as f64 >= failure.thresholds.explained_share * hidden as f64 {
            parts_of_entry(what).iter().for_each(|part| check.part(part));
            // Which setting gives how much back is known only of what was seen to be taken.
            check.gives_back(0, bytes, Basis::Estimated);
        }
    }
    check.would_settle("free memory before and after the first kernels and the first matrix product (GPUOOM_SAMPLE)");
}

/// Memory nodes of graphs are the program's own, and come when a graph runs: no call tells how much of them is there.
fn may_be_graphs(case: &Case<'_>, both: Known<(u64, u64)>, is_much: impl Fn((u64, u64)) -> bool, check: &mut Check) {
    let in_graphs = saturate(case.replay.graph_bytes());
    if in_graphs == 0 {
        return;
    }
    check.note_by(Basis::Estimated, true, || {
        format!("up to {} of it may be memory nodes of the program's graphs", size(in_graphs))
    });
    let rest = both.map(|(hidden, total)| (hidden.saturating_sub(in_graphs), total));
    if rest.is(is_much) != Holds::Yes {
        check.part("memory nodes");
        check.at_most(Confidence::Possible);
        check.plays(Role::Condition);
        check.would_settle(
            "how much the memory nodes of graphs hold (hipDeviceGetGraphMemAttribute, cudaDeviceGetGraphMemAttribute)",
        );
    }
}

/// What the driver may count beyond the blocks that the program asked for without the runtime's doing: rounding of each, what
/// pools keep of what was given back to them, what was exported and freed, and released handles that did not come back. At most
/// that much.
fn accounted_otherwise(case: &Case<'_>, failure: &Failure<'_>, kept: u64) -> u64 {
    let around = case.around(failure);
    let pending = around.map_or(0, |around| around.pending.bytes);
    let exported = around.and_then(|around| around.exported_freed_bytes).unwrap_or(0);
    let track = failure.oom.device.and_then(|device| case.replay.tracks.device(device));
    let stuck = track.map_or(0, |track| track.reads.releases().map(Stretch::stuck_bytes).sum());
    let below = |kind: Kind| failure.kept_below_bytes(kind);
    let rounding = case.rounding_at_most_bytes(failure);
    // Rounding is in it.
    let kept_below = (below(Kind::Device) + below(Kind::Array)).saturating_sub(rounding);
    let in_pools = kept.max(pending).max(below(Kind::Pool));
    [in_pools, exported, stuck.max(below(Kind::Physical)), kept_below].into_iter().fold(rounding, u64::saturating_add)
}

/// Which of the entry's causes one purpose speaks for, so that only their fixes are told.
fn parts_of_entry(what: &str) -> &'static [&'static str] {
    match what {
        SCRATCH => &["scratch"],
        SET_UP => &["workspace", "context"],
        _ => &[],
    }
}

const SCRATCH: &str = "kernel scratch";
const SET_UP: &str = "contexts and library handles";

/// What lower layers were seen to take that is no block of the program's, by purpose.
fn runtime_parts(failure: &Failure<'_>) -> Vec<(&'static str, u64)> {
    let Some(census) = &failure.oom.census else { return Vec::new() };
    let mut parts = vec![(SCRATCH, 0u64), ("queues", 0), ("code", 0), (SET_UP, 0), ("the runtime itself", 0)];
    for (class, sum) in &census.lower {
        let place = match (class.cause, class.kind) {
            (Cause::Call { own: true, .. }, _) => continue,
            (Cause::Call { kind: Kind::Scratch, .. }, _) | (_, Kind::Scratch) => 0,
            (Cause::Call { kind: Kind::Queue, .. }, _) | (_, Kind::Queue) => 1,
            (Cause::Call { kind: Kind::Code, .. }, _) | (_, Kind::Code) => 2,
            (Cause::SetUp, _) => 3,
            (Cause::Itself, _) => 4,
            _ => continue,
        };
        parts[place].1 = parts[place].1.saturating_add(saturate(sum.bytes));
    }
    parts
}
