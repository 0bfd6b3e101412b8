//! B. Fragmentation of caches: PyTorch's allocator, and others like it.

use gpuoom_trace::record::Kind;

use super::{Rule, device, failure, leaks};
use crate::diagnosis::case::{Case, Failure};
use crate::diagnosis::meanwhile::WHO_ASKED;
use crate::diagnosis::torch_sums::{SEGMENT_BYTES, Told, TorchSums};
use crate::judgement::check::{Basis, Check, Confidence, Holds, Known};
use crate::judgement::role::Role;
use crate::passes::device::DeviceSummary;
use crate::passes::shape::run::{DeviceRun, plateau};
use crate::passes::trend::Course;
use crate::replay::tracks::retries::{Ending, Retry};
use crate::software::Program;
use crate::thresholds::{Unit, share};
use crate::words::{count, percent, size};

pub(super) const RULES: &[Rule] = &[
    failure("caching-fragmentation", caching_fragmentation),
    failure("cache-greed", cache_greed),
    device("reserved-plateau", reserved_plateau),
];

/// What would show whether the pieces are why.
const PACKED: &str = "a run with expandable segments, which leave fewer pieces between blocks (PYTORCH_ALLOC_CONF=expandable_segments:True)";

/// A run without pieces would settle it, where this is not that run.
pub(super) fn would_be_packed(case: &Case<'_>, failure: &Failure<'_>, check: &mut Check) {
    if !case.uses_virtual_memory(failure) {
        check.would_settle(PACKED);
    }
}

/// Free memory is trapped in split segments of a caching allocator.
fn caching_fragmentation(case: &Case<'_>, failure: &Failure<'_>, check: &mut Check) {
    if !check.applies(failure.is_real_of_device()) {
        return;
    }
    let sums = case.torch_sums(failure);
    match &sums {
        Some(sums) => by_numbers(sums, case, failure, check),
        None => {
            check.part("pieces");
            by_shape(case, failure, check);
        }
    }
    let is_expandable = case.uses_virtual_memory(failure);
    match sums.and_then(|sums| sums.pieces).filter(|_| is_expandable) {
        // Pages that no tensor is in can be given back; pieces of pages that are in use can't.
        Some(_) => {
            check.at_most(Confidence::Possible);
            check.note(true, || {
                "expandable segments are active: only pages that are unused as a whole can be given back".to_owned()
            });
        }
        None => check.unless(is_expandable, || {
            "expandable segments are active: physical memory is mapped where it is needed".to_owned()
        }),
    }
    check.unless(case.is_caching_off(), || "caching is disabled".to_owned());
    // Where nobody knows who asked, that is ruled out by nothing.
    let other = case.asked_by_another(failure);
    if case.asked_by_torch(failure.oom.site) != Holds::Unknown(WHO_ASKED) {
        check.unless(other.is_some(), || match other {
            Some(library) => format!("{library} asked for it, which gets nothing out of PyTorch's cache"),
            None => "another library than PyTorch asked for it".to_owned(),
        });
    }
}

/// Another library was refused what PyTorch's cache holds and uses for no tensor: then the cache is the cause.
fn kept_from_another(case: &Case<'_>, failure: &Failure<'_>, check: &mut Check) -> bool {
    let missing = failure.shortfall_bytes().filter(|_| failure.is_real_of_device());
    let asked = missing.zip(case.asked_by_another(failure));
    let Some(((missing, library), sums)) = asked.zip(case.torch_sums(failure)) else { return false };
    if sums.unused.least() < missing {
        return false;
    }
    check.plays(Role::Cause);
    check.part("another library");
    check.at_most(Confidence::Probable);
    check.must(true, || format!("{library} was refused, and the request was {}", failure.short_by(missing)));
    check.must_by(sums.basis(), true, || {
        format!("{}: its cache held {} that no tensor used", sums.told.by(), size(sums.unused.bytes))
    });
    check.would_settle("a run with torch.cuda.empty_cache() before that library is called");
    check.gives_back(0, sums.unused.least(), sums.basis());
    true
}

/// With the numbers of PyTorch's message or snapshot.
fn by_numbers(sums: &TorchSums<'_>, case: &Case<'_>, failure: &Failure<'_>, check: &mut Check) {
    let tried = sums.tried;
    let is_in_small_pieces = sums.pieces.is_some_and(|pieces| pieces.largest_bytes < tried.least());
    // What private pools keep between tensors is in pieces like any other; a whole one is theirs alone.
    let is_between = is_in_small_pieces && sums.pieces.is_some_and(|all| all.whole_bytes == 0);
    let in_pools = sums.idle_private.filter(|idle| idle.bytes > 0 && is_between);
    let unused = in_pools.map_or(sums.unused, |idle| sums.unused.plus(idle));
    let of_reserved = share(unused.bytes, sums.reserved_bytes());
    let by_torch = Known::new(sums.free.map(|free| free.bytes), "free memory at the failure");
    // What PyTorch says is free it counted behind giving that back.
    let free = case.free_for_request(failure).or(by_torch);
    // For a small block a larger segment is asked for.
    let asked_of_driver = failure.request_bytes().get().map_or(tried.bytes, |request| request.max(tried.bytes));
    // What is free and what lies unused may be enough together, where neither is.
    let alone = unused.bytes >= tried.bytes;
    let usable = Case::free_in_pieces(failure, free.get().unwrap_or(0));
    let together = unused.bytes.saturating_add(usable) >= asked_of_driver;
    check.must_by(sums.basis(), alone || together, || {
        let (held, asked) = (size(unused.bytes), size(tried.bytes));
        let with = if alone { "" } else { "; with what was free that is as much" };
        let by = if in_pools.is_some() { Told::Blocks.by() } else { sums.told.by() };
        format!("{by}: it held {held} in unused blocks, and {asked} was asked for{with}")
    });
    if in_pools.is_some() {
        check.at_most(Confidence::Probable);
        check.note(true, || "part of it is in private pools, which keep to themselves what they have".to_owned());
        check.would_settle("the same program without private pools (torch.cuda.MemPool, captured graphs)");
    }
    if !alone {
        check.at_most(Confidence::Probable);
        would_be_packed(case, failure, check);
    }
    if unused.least() < tried.most() || !sums.is_certain() {
        check.at_most(Confidence::Probable);
    }
    if sums.is_of_failure == Holds::No {
        check.at_most(Confidence::Possible);
    }
    let is_much = of_reserved > failure.thresholds.unused_share
        || tried.bytes as f64 <= unused.bytes as f64 * failure.thresholds.request_of_unused_share;
    // A smaller part is what every cache has, and a reason only for this one request.
    if of_reserved <= failure.thresholds.unused_share {
        check.at_most(Confidence::Probable);
        unless_it_had_fitted(sums, case, failure, check);
    }
    let growth = case.tensor_growth_at(failure).filter(|growth| growth.significant);
    let unused_and_free = unused.bytes.saturating_add(free.get().unwrap_or(0));
    if let Some(growth) = growth.filter(|_| free.get().is_some()) {
        check.unless(growth.takes_each_time(unused_and_free), || {
            let rise = growth.each_time_told();
            format!("what lies unused and what was free ({}) is less than {rise}", size(unused_and_free))
        });
    }
    // What rises without an end leaves less and less room between its blocks; here there was room for many more steps.
    let has_room = growth.is_some_and(|growth| growth.has_room_in(unused_and_free, case.thresholds));
    if leaks::fills_the_card(case, failure) && !has_room {
        check.at_most(Confidence::Possible);
    }
    // A rise that is given back now and then leaves such pieces, too: the cause is then what rises.
    if case.tensor_growth_at(failure).is_some_and(|growth| growth.course == Course::GivenBack) {
        check.at_most(Confidence::Probable);
        check.would_settle(
            "whether the program needs what rises from step to step and is given back now and then, or whether it is garbage that waits \
             for Python's collector: a run with gc.collect() before the line that was refused",
        );
    }
    // Where it rises on, pieces are why memory ran out now, and what rises is why it would have run out soon.
    if growth.is_some() {
        check.at_most(Confidence::Probable);
        check.would_settle("whether the program needs what rises from step to step (GROWTH): without pieces it may have filled the card later");
    }
    // So does one that rose in stairs, and may be all that was missing.
    if case.tensor_growth_at(failure).is_some_and(|growth| growth.is_in_stairs(case.thresholds)) {
        check.at_most(Confidence::Possible);
        check.would_settle(
            "whether the program needs what came to stay in stairs (GROWTH), as the results of each evaluation do",
        );
    }
    check.must_by(sums.basis(), is_much || is_in_small_pieces, || {
        format!("that is {} of what it had reserved", percent(of_reserved))
    });
    if leaks::lines_keep_most(case, failure) {
        check.at_most(Confidence::Possible);
        check.is_a_small_part();
        check.would_settle("whether the program needs all that these lines keep (WHO HOLDS): without pieces it may have filled the card later");
    }
    if let Some(earlier) = refused_without_pieces(case, failure) {
        check.at_most(Confidence::Possible);
        check.note(true, || {
            format!(
                "#{earlier} asked for as much by the same way, and then what lay unused and what was free were together less than that: \
                 pieces were not the reason there"
            )
        });
        check.would_settle("whether what asks for so much fits at all: the same run with expandable segments");
    }
    check.must(free.is(|free| free < asked_of_driver), || {
        case.free_told(failure, free.get().unwrap_or(0), " on the card")
    });
    // So little every cache has between its blocks.
    if of_reserved < failure.thresholds.few_unused_share {
        check.at_most(Confidence::Possible);
        check.is_a_small_part();
        would_be_packed(case, failure, check);
    }
    // Who gets nothing out of the cache is served by none of its pieces.
    if case.asked_by_another(failure).is_none() {
        in_pieces(sums, usable, case, failure, check);
    }
    check.note_by(sums.basis(), sums.disagreement.is_some(), || sums.disagreement.clone().unwrap_or_default());
    if sums.told == Told::SnapshotLater {
        check.would_settle(
            "a snapshot whose history has the failure (torch.cuda.memory._record_memory_history() at the start), or \
             PyTorch's message (--log)",
        );
    }
}

/// An earlier failure of the same request that no piece would have prevented: what asks like that may need more than the card has.
fn refused_without_pieces(case: &Case<'_>, failure: &Failure<'_>) -> Option<u64> {
    let site = |failure: &Failure<'_>| failure.oom.error.as_ref().map_or(failure.oom.site, |error| error.site);
    let is_same = |other: &Failure<'_>| {
        let (one, two) = (failure.report, other.report);
        two.number < one.number && two.device == one.device && two.requested_bytes == one.requested_bytes
    };
    let had_too_little = |other: &Failure<'_>| {
        let sums = case.torch_sums(other).filter(|sums| sums.is_certain() && sums.is_of_failure != Holds::No);
        let free = case.free_for_request(other).get();
        sums.zip(free).is_some_and(|(sums, free)| sums.unused.most().saturating_add(free) < sums.tried.least())
    };
    let mut earlier =
        case.failures().filter(|other| is_same(other) && site(other) == site(failure) && site(other) != 0);
    earlier.find(had_too_little).map(|other| other.report.number)
}

/// Where tensors had never held as much as with this request, the program needed more than ever, and pieces are what is left between
/// them. What garbage holds counts as theirs.
fn unless_it_had_fitted(sums: &TorchSums<'_>, case: &Case<'_>, failure: &Failure<'_>, check: &mut Check) {
    let most = failure.device.and_then(|device| device.tensors.as_ref()).map(|tensors| tensors.peak_allocated_bytes);
    let with_it = sums.allocated.map(|allocated| allocated.plus(sums.tried).bytes);
    if most.zip(with_it).is_some_and(|(most, with_it)| most >= with_it) {
        check.note(true, || format!("tensors had held {}: as much as with this request", size(most.unwrap_or(0))));
        return;
    }
    check.at_most(Confidence::Possible);
    would_be_packed(case, failure, check);
    check.would_settle(
        "whether all that the tensors held was needed: they had never held as much as with this request (as far as is known)",
    );
}

/// In which pieces the unused memory lay; and what only a snapshot of the failure shows: for whom. `free_bytes`: what of free memory could
/// serve the request.
fn in_pieces(sums: &TorchSums<'_>, free_bytes: u64, case: &Case<'_>, failure: &Failure<'_>, check: &mut Check) {
    // Memory can go from one place of an expandable segment to another only in whole pages.
    let are_small = sums.pieces.is_some_and(|pieces| pieces.largest_bytes < SEGMENT_BYTES);
    check.part(if are_small { "small pieces" } else { "pieces" });
    if let Some(pieces) = sums.pieces {
        let (number, largest) = (pieces.number, pieces.largest_bytes);
        check.note_by(Basis::Measured, largest < sums.tried.bytes, || {
            format!("it lay in {}, of which the largest has {}", count(number, "piece", "pieces"), size(largest))
        });
        let would_hold = sums.moment.is_none() && largest >= sums.tried.bytes.max(1);
        // A segment of which a part is in use goes back to nobody, whosever the rest would be.
        let is_of_a_part = would_hold && pieces.whole_bytes < largest;
        if is_of_a_part {
            check.at_most(Confidence::Possible);
            check.note(true, || {
                format!(
                    "one unused piece of {} would have held the request, but for another stream or pool (PyTorch keeps small blocks apart, \
                     too); the rest of its segment is in use, so that it can't be given back",
                    size(largest)
                )
            });
            would_be_packed(case, failure, check);
        }
        check.unless(would_hold && !is_of_a_part, || {
            let piece = if would_hold { format!(" of {}", size(largest)) } else { String::new() };
            format!("one unused piece{piece} would have held the request: it is of another stream or pool")
        });
    }
    let Some(moment) = sums.moment else { return };
    check.note_by(Basis::Given, moment.largest_usable_bytes < sums.tried.bytes, || {
        format!("the largest unused block that the request could use had {}", size(moment.largest_usable_bytes))
    });
    let others = sums.unused.least().saturating_sub(moment.usable_bytes);
    check.note_by(Basis::Given, others > 0, || {
        format!("{} of it are in blocks of other streams, pools, or sizes", size(others))
    });
    let of_request = moment.usable_bytes.saturating_add(free_bytes);
    if others > 0 {
        check.unless(of_request < sums.tried.bytes, || {
            format!(
                "only {} of them were for this stream, pool and size, which is too little even with what was free: the rest is no \
                 fragment",
                size(moment.usable_bytes)
            )
        });
    }
    check.unless(moment.largest_usable_bytes >= sums.tried.bytes.max(1), || {
        format!("one unused block of {} would have held the request", size(moment.largest_usable_bytes))
    });
    let caller = sums.stack.iter().find(|frame| !frame.is_native());
    check.note_by(Basis::Given, caller.is_some(), || {
        let at = caller.map_or_else(String::new, |frame| frame.place());
        format!("the request came from {at}")
    });
}

/// From the calls alone, which see segments and no tensors: never more than possible.
fn by_shape(case: &Case<'_>, failure: &Failure<'_>, check: &mut Check) {
    check.at_most(Confidence::Possible);
    let Some(retry) = case.retry(failure) else { return };
    let around = case.around(failure);
    let survivors = around.and_then(|around| around.survivors.as_ref());
    // Of the asynchronous back end each block is a call of its own: there are no segments.
    let has_segments = case.versions.has(Program::Torch) && failure.oom.kind != Kind::Pool;
    let is_segments = has_segments && retry.freed_bytes > 0;
    if !check.applies(is_segments && retry.ending == Ending::Failed) {
        return;
    }
    check.must(retry.freed_bytes < retry.requested_bytes, || {
        format!(
            "the release of the cache gave back {}, and {} was asked for",
            size(retry.freed_bytes),
            size(retry.requested_bytes)
        )
    });
    let sizes = survivors.map_or(0, |survivors| survivors.covering_sizes as u64);
    check.must(sizes >= case.thresholds.many_sizes, || {
        format!("the segments that stay have {sizes} sizes that hold 80 % of the bytes")
    });
    check.must(
        Holds::Unknown(case.unless_told(
            failure,
            "PyTorch's out-of-memory message (--log), or a memory snapshot of PyTorch (--torch-snapshot)",
            "a memory snapshot of PyTorch (--torch-snapshot)",
        )),
        String::new,
    );
}

/// The allocator's cache, not the model, filled the card: it was released, and the same request succeeded. A program that gives
/// up its own data to make room does the same calls: only an allocator that is known to have a cache makes it one.
fn cache_greed(case: &Case<'_>, failure: &Failure<'_>, check: &mut Check) {
    if kept_from_another(case, failure, check) {
        return;
    }
    let Some(retry) = case.retry(failure) else { return };
    let may_cache = case.versions.has(Program::Torch) && !case.is_caching_off();
    let is_torch = may_cache && case.asked_by_torch(failure.oom.site) != Holds::No;
    let was_released = retry.freed_bytes > 0 && retry.ending != Ending::NotTried;
    // Before an error it has given back all that it had cached: what is released after that is the program's.
    let is_open = failure.oom.error.is_none();
    if !check.applies(failure.is_real_of_device() && was_released && is_torch && is_open) {
        return;
    }
    check.must(true, || {
        format!(
            "PyTorch is loaded, and the thread released {} within {} of the failure and asked for {} again",
            size(retry.freed_bytes),
            Unit::Time.shown(case.thresholds.retry_ns as f64),
            size(retry.requested_bytes)
        )
    });
    check.decides(
        retry.ending == Ending::Succeeded,
        || {
            format!(
                "and was given it ({} in all)",
                count(case.replay.tracks.retries.succeeded(), "such retry", "such retries")
            )
        },
        || "the next try failed, too".to_owned(),
    );
    check.part("made up for");
    release_was_needed(case, failure, retry, check);
    let by_all = case.until_last_try(failure).map_or(0, |done| done.returned_bytes);
    if by_all > retry.freed_bytes {
        check.at_most(Confidence::Probable);
        check.note(true, || format!("other threads gave back {} meanwhile", size(by_all - retry.freed_bytes)));
    }
}

/// What was free already counts, too: the release need only have given what was missing.
fn release_was_needed(case: &Case<'_>, failure: &Failure<'_>, retry: &Retry, check: &mut Check) {
    let free = failure.free_bytes().get().filter(|free| *free < retry.requested_bytes).unwrap_or(0);
    let missing = retry.requested_bytes - free;
    check.must(retry.freed_bytes >= missing, || match retry.freed_bytes >= retry.requested_bytes {
        true => "what was released was enough by itself".to_owned(),
        false => format!("{} was missing beside the {} that was free", size(missing), size(free)),
    });
    // Who gives up data of its own to make room frees as much.
    let cached = case.cache_at_refusal(failure);
    check.must(cached.is_none_or(|cached| cached >= missing), || match cached {
        Some(cached) => format!("the cache held {} unused before", size(cached)),
        None => String::new(),
    });
    let held = u64::try_from(failure.oom.held.requested_bytes).unwrap_or(u64::MAX);
    let of_held = share(cached.unwrap_or(u64::MAX).min(retry.freed_bytes), held);
    let told = || format!("what was released of it is {} of what the program held", percent(of_held));
    if cached.is_some() {
        // It is the cache's, however little of it was enough.
        return check.note(true, told);
    }
    check.at_most(Confidence::Probable);
    check.would_settle(
        "what PyTorch's cache held unused before the release: its blocks in the trace (GPUOOM_FRAMEWORK=on)",
    );
    check.must(of_held >= failure.thresholds.few_unused_share, told);
}

/// Reserved memory rose and then stayed: no leak.
fn reserved_plateau(case: &Case<'_>, device: &DeviceSummary, check: &mut Check) {
    match case.run_of(device.index) {
        Some(run) => {
            plateau(run, check);
            stays_flat(case, device, run, check);
        }
        None => _ = check.applies(false),
    }
}

/// Flat is what does not rise any more, and not what rises by little beside all that is held. What was refused can't rise.
fn stays_flat(case: &Case<'_>, device: &DeviceSummary, run: &DeviceRun, check: &mut Check) {
    let floors: Vec<u64> = run.cycles.steps().iter().map(|cycle| cycle.to.bytes).collect();
    let late = &floors[floors.len() / 2..];
    let (Some(first), Some(last)) = (floors.first(), floors.last()) else { return };
    let late_rise = last.saturating_sub(*late.first().unwrap_or(last));
    let steps = |holds: fn(&u64, &u64) -> bool| late.windows(2).filter(|pair| holds(&pair[0], &pair[1])).count();
    let rises_on = late_rise as f64 > case.thresholds.flat_share * last.saturating_sub(*first) as f64
        || steps(|before, after| after > before) >= 3 && steps(|before, after| after < before) == 0;
    check.unless(rises_on, || format!("what stays still rises in the later half, by {}", size(late_rise)));
    check.unless(device.account.failures > 0, || {
        "requests were refused: it may be flat because the card was full".to_owned()
    });
}
