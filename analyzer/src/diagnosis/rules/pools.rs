//! D. Stream-ordered pools, and what captured graphs keep.

use super::{Rule, failure, leaks};
use crate::diagnosis::case::{Case, Failure};
use crate::diagnosis::torch_sums::TorchSums;
use crate::evidence::torch_message::Printed;
use crate::judgement::check::{Basis, Check, Confidence, Holds, Judgement, Known};
use crate::machine::kfd::KfdNode;
use crate::options::effect::ASYNC_SOUND_SINCE;
use crate::passes::shape::run::IS_IT_MEANT;
use crate::replay::blocks::Owner;
use crate::replay::tracks::around::Around;
use crate::replay::tracks::between::Done;
use crate::replay::tracks::reads::Read;
use crate::software::{Platform, Version};
use crate::thresholds::Unit;
use crate::words::{count, size};
use gpuoom_trace::record::Kind;

pub(super) const RULES: &[Rule] = &[
    failure("mallocasync-oom", mallocasync_oom),
    failure("pool-failure-leak", pool_failure_leak),
    failure("graph-private-pool", graph_private_pool),
];

/// First ROCm of which nobody says whether it still has what [`has_regressed`] asks for.
const REGRESSION_UNTRIED: Version = Version::new(10, 0);

/// Whether it is a card on which stream-ordered allocation fails with ROCm 7 and works with 6.4. (ROCm/ROCm#6178: RX 7900 XTX and
/// RX 7800 XT, seen on 7.2.2, open)
fn has_regressed(case: &Case<'_>, failure: &Failure<'_>) -> Holds {
    match failure.device.and_then(|device| case.node(device)).and_then(KfdNode::target) {
        Some((11, 0, 0 | 1)) => match case.versions.rocm {
            Some(rocm) if rocm >= REGRESSION_UNTRIED => {
                Holds::Unknown("whether this ROCm mends it on gfx1100 and gfx1101")
            }
            Some(rocm) => (rocm >= ASYNC_SOUND_SINCE).into(),
            None => Holds::Unknown("the version of ROCm"),
        },
        Some(_) => Holds::No,
        None => Holds::Unknown("the card's target (gfx1100 and gfx1101 have a fault of their own)"),
    }
}

fn is_async(failure: &Failure<'_>) -> bool {
    failure.oom.kind == Kind::Pool && !failure.is_injected()
}

/// `hipMallocAsync` fails where `hipMalloc` would work.
fn mallocasync_oom(case: &Case<'_>, failure: &Failure<'_>, check: &mut Check) {
    if !check.applies(case.versions.platform == Some(Platform::Rocm) && is_async(failure)) {
        return;
    }
    let rocm = Known::new(case.versions.rocm, "the version of ROCm");
    let shown = || rocm.get().map_or_else(String::new, |version| version.to_string());
    let request = failure.request_bytes().get().unwrap_or(u64::MAX);
    let plain =
        case.next_request(failure).filter(|(next, _)| is_plain(case, next.api) && next.requested_bytes >= request);
    let plain = plain.filter(|(next, _)| Some(next.device) == failure.oom.device);
    let alone = plain.filter(|(next, done)| next.succeeded && came_alone(case, failure, done)).map(|(next, _)| next);
    let free = failure.runtime_free_bytes();
    // What is larger than all that was reported free shows that memory came, and not that it was there.
    let alone = alone.filter(|next| free.get().is_none_or(|free| next.requested_bytes <= free));
    // A full card refuses either call.
    let was_enough = match alone {
        Some(_) => failure.was_free(free, |free| free >= request),
        None => failure.was_enough(free),
    };
    check.must(was_enough, || match free.get() {
        Some(free) => format!("{} was refused with {} free", size(request), size(free)),
        None => format!("{} was refused", size(request)),
    });
    let regressed = has_regressed(case, failure);
    let is_old = rocm.is(|version| version < ASYNC_SOUND_SINCE);
    if is_old == Holds::No && matches!(regressed, Holds::Unknown(_)) {
        check.at_most(Confidence::Possible);
    }
    check.decides(
        is_old.or(regressed),
        || match is_old {
            Holds::No => {
                format!("with ROCm 7.x it fails on gfx1100 and gfx1101, where 6.4 worked; here it is ROCm {}", shown())
            }
            _ => format!("ROCm {} is older than 7.0", shown()),
        },
        || format!("ROCm {} has the fix", shown()),
    );
    match alone {
        Some(next) => {
            check.must(true, || worked_alone(case, failure, next.api));
            // What was free is read after the refusal, and another process may have given memory back just before that.
            check.at_most(Confidence::Probable);
            check.would_settle(
                "what other processes held at the moment of the refusal: they may have made the room after it",
            );
        }
        None => {
            check.at_most(Confidence::Probable);
            check
                .would_settle("hipMalloc of the same size right after the failure, with nothing given back in between");
            check.must(sizes_grow(case, failure), || "the sizes that were asked for grow".to_owned());
        }
    }
    check.unless(plain.is_some_and(|(next, _)| !next.succeeded), || {
        "a plain allocation of the same size failed, too".to_owned()
    });
    if case.replay.made_pools > 0 {
        check.at_most(Confidence::Possible);
        check.would_settle("the limits of the pools that the program made (maxSize in hipMemPoolProps)");
    }
}

fn worked_alone(case: &Case<'_>, failure: &Failure<'_>, plain: u16) -> String {
    let (plain, stream_ordered) = (&case.replay.apis.get(plain).name, failure.report.call());
    format!(
        "{plain} of the same size succeeded right after {stream_ordered} had failed, and no thread gave anything back in between"
    )
}

/// Whether nothing was done between a failure and the next request that could have made room: no thread gave memory back, and
/// no frees were pending that a wait, or the plain call itself, makes take effect.
fn came_alone(case: &Case<'_>, failure: &Failure<'_>, done: &Done) -> bool {
    let pending = case.around(failure).map_or(0, |around| around.pending.bytes);
    !case.gave_back(failure, done) && done.waits == 0 && pending == 0
}

fn is_plain(case: &Case<'_>, api: u16) -> bool {
    case.replay.apis.get(api).is_plain_allocation()
}

/// Whether the later half of the stream-ordered requests before a failure is larger than the earlier half.
fn sizes_grow(case: &Case<'_>, failure: &Failure<'_>) -> Holds {
    let Some(around) = case.around(failure) else { return Holds::Unknown("the calls before the failure") };
    let window = case.replay.tracks.calls.before(around.calls_before);
    let is_given = |call: &&crate::replay::tracks::calls::Call| {
        call.what == crate::replay::tracks::calls::What::Given && call.api == failure.oom.api
    };
    let sizes: Vec<u64> = window.calls.iter().filter(is_given).map(|call| call.bytes).collect();
    let (early, late) = sizes.split_at(sizes.len() / 2);
    let most = |sizes: &[u64]| sizes.iter().copied().max().unwrap_or(0);
    (sizes.len() >= 4 && most(late) > most(early)).into()
}

/// What vanished over a failure: by how much free memory fell, and what may account for that.
struct Vanished {
    /// Free by the runtime before the failure, and at it.
    free: (u64, u64),
    /// What the program's blocks do not account for.
    unaccounted_bytes: u64,
    /// By how much other processes hold more than before; `None` where nobody read it.
    others_took_bytes: Option<u64>,
    /// By how much the driver counts more for this process than before, and than its blocks account for.
    own_took_bytes: Known<u64>,
}

impl Vanished {
    fn of(case: &Case<'_>, failure: &Failure<'_>, around: &Around, before: &Read) -> Option<Self> {
        let free = before.read.runtime_free_bytes.zip(failure.oom.read.runtime_free_bytes)?;
        // Blocks that came while the card was being read may be in the reading or not: they may account for it. So may what pools
        // were given back meanwhile: they may keep it. So may what another thread had begun to give back: a free may wait for the
        // device.
        let meanwhile = around.until_read.given_bytes.saturating_add(around.until_read.returned_bytes);
        let held = around.held_bytes.saturating_add(meanwhile);
        let done = around.read_at.map_or(around.done, |read| read.done);
        let done = done.since(&before.done);
        let rounding = case.rounding_between(around.device, &done);
        let by_blocks = held.saturating_sub(before.least_held_bytes).saturating_add(done.returned_to_pools_bytes);
        let by_blocks = by_blocks.saturating_add(rounding);
        let others = before.read.others_vram_bytes.zip(failure.oom.read.others_vram_bytes);
        Some(Vanished {
            free,
            unaccounted_bytes: free.0.saturating_sub(free.1).saturating_sub(by_blocks),
            others_took_bytes: others.map(|(then, now)| now.saturating_sub(then)),
            own_took_bytes: Known::new(
                before.read.process_vram_bytes.zip(failure.oom.read.process_vram_bytes.filter(|bytes| *bytes > 0)),
                "what the driver counts for this process before the failure and after it (KFD)",
            )
            .map(|(then, now)| now.saturating_sub(then).saturating_sub(by_blocks)),
        })
    }

    /// What nothing that is known accounts for.
    fn gone_bytes(&self) -> u64 {
        self.unaccounted_bytes.saturating_sub(self.others_took_bytes.unwrap_or(0))
    }
}

/// Earlier failures that are looked at for what they took.
const EARLIER: usize = 16;

/// A failed stream-ordered allocation still took memory from the card: this one, or an earlier one took what is missing now.
fn pool_failure_leak(case: &Case<'_>, failure: &Failure<'_>, check: &mut Check) {
    let Some((number, taken, confidence)) = taken_before(case, failure) else {
        return takes_memory(case, failure, check);
    };
    let missing = failure.shortfall_bytes().unwrap_or(0);
    check.must(true, || {
        format!(
            "failure #{number} took {} of the card that no block accounts for, and {} was missing here",
            size(taken),
            size(missing)
        )
    });
    let hidden = failure.hidden_bytes();
    check.must(hidden.is(|bytes| bytes >= missing), || {
        format!("the driver counts {} for this process beyond its own blocks", size(hidden.get().unwrap_or(0)))
    });
    check.at_most(confidence.min(Confidence::Probable));
    check.would_settle("whether that memory was still gone: the same run without the earlier request");
}

/// The earlier failure that took at least what is missing at this one: its number, what it took, and how sure that is.
fn taken_before(case: &Case<'_>, failure: &Failure<'_>) -> Option<(u64, u64, Confidence)> {
    let missing = failure.shortfall_bytes().filter(|_| failure.is_real_of_device())?;
    let taken_at = |failure: &Failure<'_>| {
        let mut check = Check::default();
        takes_memory(case, failure, &mut check);
        let Judgement::Found(confidence) = check.judgement() else { return None };
        let around = case.around(failure)?;
        let vanished = Vanished::of(case, failure, around, &around.read_before?)?;
        Some((failure.report.number, vanished.gone_bytes(), confidence))
    };
    if taken_at(failure).is_some() {
        return None;
    }
    let is_earlier = |other: &Failure<'_>| {
        other.report.number < failure.report.number && other.report.device == failure.report.device && is_async(other)
    };
    let earlier = case.failures().filter(is_earlier).take(EARLIER);
    earlier.filter_map(|other| taken_at(&other)).find(|(_, taken, _)| *taken >= missing)
}

/// A stream-ordered allocation failed, and took memory all the same.
fn takes_memory(case: &Case<'_>, failure: &Failure<'_>, check: &mut Check) {
    let Some(around) = case.around(failure) else { return };
    let is_rocm = case.versions.platform == Some(Platform::Rocm);
    let (Some(before), Some(request)) = (around.read_before, failure.request_bytes().get()) else { return };
    if !check.applies(is_rocm && is_async(failure)) {
        return;
    }
    let Some(vanished) = Vanished::of(case, failure, around, &before) else { return };
    let is_share = |bytes: u64| bytes as f64 >= case.thresholds.failure_leak_share * request as f64 && bytes > 0;
    let gone = vanished.gone_bytes();
    let (then, now) = vanished.free;
    check.must(is_share(vanished.unaccounted_bytes), || {
        format!(
            "free memory fell from {} to {} over the failure of {}, and no new block accounts for {} of it",
            size(then),
            size(now),
            size(request),
            size(gone)
        )
    });
    check.unless(!is_share(gone), || match vanished.others_took_bytes.filter(|_| !is_share(gone)) {
        Some(others) => format!("other processes hold {} more than before the failure: they took it", size(others)),
        None => "other processes took as much meanwhile".to_owned(),
    });
    let clock = &case.replay.clock;
    let age = clock.at_ns(failure.oom.at).saturating_sub(clock.at_ns(before.at));
    let is_fresh = match age <= case.thresholds.pool_leak_ns {
        true => Holds::Yes,
        false => Holds::Unknown("free memory shortly before the failing call (a shorter period in GPUOOM_SAMPLE)"),
    };
    check.must(is_fresh, || {
        format!(
            "the reading before is less than {} older than the failure",
            Unit::Time.shown(case.thresholds.pool_leak_ns as f64)
        )
    });
    // Who only draws on the card is in no list of processes, and takes memory, too.
    let own = vanished.own_took_bytes;
    if own.get().is_none() {
        check.at_most(Confidence::Possible);
    }
    check.decides(
        own.is(is_share),
        || {
            format!(
                "the driver counts {} more for this process, which no new block accounts for",
                size(own.get().unwrap_or(0))
            )
        },
        || format!("the driver counts only {} more for this process beyond its blocks", size(own.get().unwrap_or(0))),
    );
    if let Some(bytes) = came_back(case, failure) {
        check.at_most(Confidence::Possible);
        check.note(true, || format!("{} could be allocated afterwards: as much was free again", size(bytes)));
    }
    more_than_asked(case, gone, request, check);
    taken_otherwise(around, vanished.others_took_bytes, check);
}

/// What the failing thread was given next, where that is more than had been read as free at the failure: what had gone was back.
fn came_back(case: &Case<'_>, failure: &Failure<'_>) -> Option<u64> {
    let (next, done) = case.next_request(failure)?;
    let free = failure.free_bytes().get()?;
    let is_back =
        next.succeeded && next.kind != Kind::Managed && next.requested_bytes > free.saturating_add(done.returned_bytes);
    is_back.then_some(next.requested_bytes)
}

/// A refused call takes no more than it asked for, but for rounding: whatever is beyond that went elsewhere, and so may the rest.
fn more_than_asked(case: &Case<'_>, gone: u64, request: u64, check: &mut Check) {
    let rounded = request.saturating_add(case.thresholds.gap_noise_bytes);
    if gone > rounded {
        check.at_most(Confidence::Probable);
        check.note(true, || format!("that is {} more than the call asked for", size(gone - request)));
        check.would_settle("what else takes memory of the card in that time (KFD's list of processes, GPUOOM_SAMPLE)");
    }
}

/// What else takes memory between two readings, beside blocks: other processes, and code that is loaded.
fn taken_otherwise(around: &Around, others_took_bytes: Option<u64>, check: &mut Check) {
    match others_took_bytes {
        None => {
            check.at_most(Confidence::Possible);
            check.must(Holds::Unknown("what other processes held before the failure and after it (KFD)"), String::new);
        }
        Some(0) => {}
        Some(others) => {
            // They took some of it, and may have taken more and given it back to somebody else.
            check.at_most(Confidence::Probable);
            check.note(true, || format!("other processes took {} in that time, which is left out of it", size(others)));
            check.would_settle("the same failure while other processes hold still");
        }
    }
    let until = around.read_at.map_or(around.done, |read| read.done);
    let loads = around.read_before.map_or(0, |before| until.since(&before.done).loads);
    if loads > 0 {
        check.at_most(Confidence::Possible);
        check.note(true, || {
            format!("{} of code came in between, which take memory, too", count(loads, "load", "loads"))
        });
    }
}

/// Captured graphs keep their high-water mark: by PyTorch's message, or by what was taken during captures.
fn graph_private_pool(case: &Case<'_>, failure: &Failure<'_>, check: &mut Check) {
    if !check.applies(failure.is_real_of_device()) {
        return;
    }
    match case.torch_sums(failure).filter(|sums| sums.private.is_some_and(|private| private.bytes > 0)) {
        Some(sums) => private_by_sums(&sums, case, failure, check),
        None => private_by_captures(case, failure, check),
    }
}

/// What would tell whether the pools' memory is in use.
const IDLE: &str =
    "how much of what private pools hold is in tensors: PyTorch's blocks in the trace (GPUOOM_FRAMEWORK=on)";

fn private_by_sums(sums: &TorchSums<'_>, case: &Case<'_>, failure: &Failure<'_>, check: &mut Check) {
    let private = sums.private.unwrap_or_default();
    // Tensors that live are no reserve of the pool that they lie in.
    let idle = sums.idle_private.unwrap_or(private);
    let by_runtime = failure.free_bytes().get().map(|bytes| Printed { bytes, rounding_bytes: 0 });
    let missing = sums.free.or(by_runtime).map(|free| sums.tried.minus(free));
    let missing = Known::new(missing, "free memory at the failure");
    let (by, held) = (sums.told.by(), size(private.bytes));
    let in_none = match sums.idle_private {
        Some(idle) => format!(", {} of it in no tensor", size(idle.bytes)),
        None => String::new(),
    };
    check.decides(
        missing.is(|missing| missing.bytes > 0 && idle.bytes >= missing.bytes),
        || format!("{by}: private pools hold {held}{in_none}, which is at least what was missing"),
        || format!("{by}: private pools hold only {held}{in_none}"),
    );
    if sums.idle_private.is_none() {
        check.at_most(Confidence::Probable);
        check.would_settle(IDLE);
    }
    in_a_piece_of_use(sums, missing.get(), check);
    let certain = missing.get().is_some_and(|missing| idle.least() >= missing.most()) && sums.is_certain();
    if !certain {
        check.at_most(if sums.is_of_failure != Holds::No { Confidence::Probable } else { Confidence::Possible });
    }
    beside_a_rise(idle.bytes, case, failure, check);
    if leaks::lines_keep_most(case, failure) {
        check.at_most(Confidence::Possible);
        check.is_a_small_part();
        check.would_settle(IS_IT_MEANT);
    }
    let is_in_small_pieces = sums.pieces.is_some_and(|pieces| pieces.largest_bytes < sums.tried.least());
    whose_pools(case, failure, is_in_small_pieces, check);
    check.gives_back(0, idle.bytes, sums.basis());
}

/// What lies between tensors, in pieces smaller than the request, would hold it in no pool, and can't be given back.
fn in_a_piece_of_use(sums: &TorchSums<'_>, missing: Option<Printed>, check: &mut Check) {
    let (Some(pieces), Some(missing)) = (sums.pieces, missing) else { return };
    let is_of_use = pieces.largest_bytes >= sums.tried.least() || pieces.whole_bytes >= missing.bytes;
    check.unless(!is_of_use, || {
        format!(
            "what is unused lies in {} between tensors, the largest {}: none would hold the request, and none can be given back",
            count(pieces.number, "piece", "pieces"),
            size(pieces.largest_bytes)
        )
    });
    // Whose a piece between tensors is, no call tells.
    if pieces.whole_bytes < missing.bytes {
        check.at_most(Confidence::Probable);
    }
}

/// What rises on would have taken what is idle soon, too.
fn beside_a_rise(idle_bytes: u64, case: &Case<'_>, failure: &Failure<'_>, check: &mut Check) {
    let Some(growth) = case.tensor_growth_at(failure).filter(|growth| growth.significant) else { return };
    let has_room = growth.has_room_in(idle_bytes, failure.thresholds);
    check.at_most(if has_room { Confidence::Probable } else { Confidence::Possible });
    check.note(true, || format!("beside {}", growth.each_time_told()));
    check.would_settle(IS_IT_MEANT);
}

/// What of an allocator's memory lay in no tensor at a failure, by PyTorch's blocks.
fn in_no_tensor(failure: &Failure<'_>) -> Option<u64> {
    let tensors = failure.device?.tensors.as_ref().filter(|tensors| tensors.owner == Owner::Torch)?;
    tensors.moment(&format!("oom:{}", failure.report.number))?.unused_bytes
}

/// Captured graphs have such pools, and so has who makes one (`torch.cuda.MemPool`). Of pieces that are too small for the request
/// another request has no use, whatever pool it may take from.
fn whose_pools(case: &Case<'_>, failure: &Failure<'_>, is_in_small_pieces: bool, check: &mut Check) {
    let Some(captured) = case.around(failure).and_then(|around| around.captured) else { return };
    if captured.ended > 0 {
        // A graph that runs again writes there.
        check.at_most(Confidence::Probable);
        check.would_settle(
            "whether the graphs need it when they run: what lies in no tensor between two runs may be theirs",
        );
    }
    check.part(match (captured.ended, is_in_small_pieces) {
        (0, false) => "pools of its own",
        (0, true) => "pools of its own, in small pieces",
        _ => "captured graphs",
    });
    check.note(true, || match captured.ended {
        0 => "no stream had been captured: they are pools that the program made (torch.cuda.MemPool)".to_owned(),
        ended => format!("{} of streams had ended", count(ended, "capture", "captures")),
    });
}

/// What a pool of a graph holds was taken while the graph was captured; whether it holds that still, nobody says.
fn private_by_captures(case: &Case<'_>, failure: &Failure<'_>, check: &mut Check) {
    let captured = case.around(failure).and_then(|around| around.captured).unwrap_or_default();
    // Whose pools they are is only known of PyTorch's.
    if !check.applies(captured.ended > 0 && case.has_torch_library()) {
        return;
    }
    check.part("captured graphs");
    check.at_most(Confidence::Probable);
    check.would_settle(case.unless_told(
        failure,
        "PyTorch's message, which says what private pools hold (report --log)",
        "a memory snapshot of PyTorch with the failure (--torch-snapshot), which says what private pools hold",
    ));
    // Tensors that live are no reserve of the pool that they lie in.
    let unused = in_no_tensor(failure);
    let taken = captured.live_bytes.min(unused.unwrap_or(u64::MAX));
    let which = if unused.is_some() { "live and may be in no tensor" } else { "live" };
    check.decides(
        failure
            .shortfall_bytes()
            .map_or(Holds::Unknown("free memory at the failure"), |missing| (taken >= missing).into()),
        || {
            let captures = count(captured.ended, "capture", "captures");
            format!("{} that were taken during {captures} of streams {which}, at least what was missing", size(taken))
        },
        || format!("of what was taken during captures of streams, only {} {which}", size(taken)),
    );
    check.note(captured.graphs > 0, || {
        format!("{} ready to launch and not destroyed", count(captured.graphs, "graph is", "graphs are"))
    });
    beside_a_rise(taken, case, failure, check);
    check.gives_back(0, taken, Basis::Estimated);
}
