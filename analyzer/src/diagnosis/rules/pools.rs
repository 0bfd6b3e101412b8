//! D. Stream-ordered pools, physical memory that does not come back, and what captured graphs keep.

use super::{Rule, failure};
use crate::diagnosis::case::{Case, Failure};
use crate::diagnosis::torch_sums::TorchSums;
use crate::evidence::torch_message::Printed;
use crate::judgement::check::{Basis, Check, Confidence, Holds, Known};
use crate::replay::tracks::around::Around;
use crate::replay::tracks::between::Done;
use crate::replay::tracks::pools::Pooled;
use crate::replay::tracks::reads::Stretch;
use crate::replay::tracks::retries::Ending;
use crate::software::{Platform, Version};
use crate::thresholds::Unit;
use crate::words::{count, size};
use gpuoom_trace::record::Kind;

pub(super) const RULES: &[Rule] = &[
    failure("pool-retention", pool_retention),
    failure("mallocasync-oom", mallocasync_oom),
    failure("pool-failure-leak", pool_failure_leak),
    failure("vmm-release-ineffective", vmm_release_ineffective),
    failure("graph-private-pool", graph_private_pool),
];

/// First ROCm whose stream-ordered allocator is not refused memory that the card has. (ROCm/hip#3775)
const ASYNC_SOUND: Version = Version::new(7, 0);

/// A stream-ordered pool keeps memory that the program has freed.
fn pool_retention(case: &Case<'_>, failure: &Failure<'_>, check: &mut Check) {
    let kept = case.kept_by_pools_bytes(failure);
    let Some(missing) = failure.shortfall_bytes() else { return };
    let pooled = case.around(failure).and_then(|around| around.pooled);
    let untrimmed = pooled.map_or(kept, |pooled| pooled.untrimmed_bytes);
    if !check.applies(failure.is_real_of_device() && untrimmed > 0) {
        return;
    }
    by_attributes(pooled.filter(|pooled| pooled.retained_bytes >= missing), failure, check);
    check.must_by(Basis::Estimated, untrimmed >= missing, || {
        format!(
            "stream-ordered pools gave at most {} more at once than they give now, and the request was {} short",
            size(untrimmed),
            size(missing)
        )
    });
    check.decides(
        failure.oom.kind != Kind::Pool,
        || format!("the call that failed ({}) is outside of the pool", failure.report.api),
        || "the failing call is from a pool itself, which would have used what it keeps".to_owned(),
    );
    check.unless(kept < missing, || match pooled.map_or(0, |pooled| pooled.trims) {
        0 => "the pools were trimmed before".to_owned(),
        trims => {
            let trims = count(trims, "time", "times");
            format!("the pools were trimmed {trims}, and can keep only {} since", size(kept))
        }
    });
    let came = case.retry(failure).filter(|retry| retry.ending == Ending::Succeeded).and(case.until_last_try(failure));
    check.unless(came.is_some_and(|done| done.returned_bytes == 0 && done.trims == 0), || {
        "the same request succeeded later, and nothing was trimmed or given back in between: the pool did not keep it".to_owned()
    });
    counted_by_driver(failure, missing, check);
    let hidden = failure.hidden_bytes();
    check.gives_back(0, kept.min(hidden.get().unwrap_or(kept)), Basis::Estimated);
}

/// What lets the pool keep it: an attribute that the program set, or nothing that is known.
fn by_attributes(retained: Option<Pooled>, failure: &Failure<'_>, check: &mut Check) {
    if let Some(pooled) = retained {
        return check.must(true, || kept_by_threshold(&pooled));
    }
    // Sums are all there is, and without what the driver counts they say nothing of what came back at a wait.
    let most = if failure.hidden_bytes().get().is_some() { Confidence::Probable } else { Confidence::Possible };
    check.at_most(most);
    check.would_settle("the pool's attributes ReservedMemCurrent and UsedMemCurrent");
}

/// Runtimes were seen to ignore the attribute (ROCm/rocm-systems#11690): without what the driver counts it proves nothing.
fn counted_by_driver(failure: &Failure<'_>, missing: u64, check: &mut Check) {
    let hidden = failure.hidden_bytes();
    check.decides(
        hidden.is(|hidden| hidden >= missing),
        || format!("the driver counts {} for this process beyond what lives", size(hidden.get().unwrap_or(0))),
        || format!("the driver counts only {} for this process beyond what lives", size(hidden.get().unwrap_or(0))),
    );
}

/// What a pool keeps by an attribute that the program set.
fn kept_by_threshold(pooled: &Pooled) -> String {
    let threshold = match pooled.threshold_bytes {
        u64::MAX => "without a limit".to_owned(),
        bytes => format!("to {}", size(bytes)),
    };
    format!(
        "the program raised the pool's release threshold {threshold}: it keeps {} that were given back",
        size(pooled.retained_bytes)
    )
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
    let was_free = free.is(|free| case.thresholds.is_enough(free, request));
    // A full card refuses either call.
    let was_enough = if alone.is_some() { free.is(|free| free >= request) } else { was_free };
    check.must(was_enough, || match free.get() {
        Some(free) => format!("{} was refused with {} free", size(request), size(free)),
        None => format!("{} was refused", size(request)),
    });
    check.decides(
        rocm.is(|version| version < ASYNC_SOUND),
        || format!("ROCm {} is older than 7.0", shown()),
        || format!("ROCm {} has the fix", shown()),
    );
    match alone {
        Some(next) => check.must(true, || worked_alone(case, failure, next.api)),
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
    let (plain, stream_ordered) = (&case.replay.apis.get(plain).name, &failure.report.api);
    format!(
        "{plain} of the same size succeeded right after {stream_ordered} had failed, and no thread gave anything back in between"
    )
}

/// Whether nothing was done between a failure and the next request that could have made room: no thread gave memory back, and
/// no frees were pending that a wait, or the plain call itself, makes take effect.
fn came_alone(case: &Case<'_>, failure: &Failure<'_>, done: &Done) -> bool {
    let pending = case.around(failure).map_or(0, |around| around.pending.bytes);
    done.returned_bytes == 0 && done.trims == 0 && done.waits == 0 && pending == 0
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

/// A failed stream-ordered allocation still took memory from the card.
fn pool_failure_leak(case: &Case<'_>, failure: &Failure<'_>, check: &mut Check) {
    let Some(around) = case.around(failure) else { return };
    let is_rocm = case.versions.platform == Some(Platform::Rocm);
    let (Some(before), Some(request)) = (around.read_before, failure.request_bytes().get()) else { return };
    if !check.applies(is_rocm && is_async(failure)) {
        return;
    }
    let free = |read: &crate::replay::readings::DeviceReadings| read.runtime_free_bytes;
    let both = free(&before.read).zip(free(&failure.oom.read));
    let Some((then, now)) = both else { return };
    let others = |read: &crate::replay::readings::DeviceReadings| read.others_vram_bytes;
    let by_others = others(&failure.oom.read).zip(others(&before.read)).map(|(now, then)| now.saturating_sub(then));
    // Blocks that came while the card was being read may be in the reading or not: they may account for it.
    let held = around.held_bytes.saturating_add(case.before_reading(failure).map_or(0, |done| done.given_bytes));
    let by_blocks = held.saturating_sub(before.least_held_bytes);
    let gone = then.saturating_sub(now).saturating_sub(by_others.unwrap_or(0)).saturating_sub(by_blocks);
    check.must(gone as f64 >= case.thresholds.failure_leak_share * request as f64 && gone > 0, || {
        format!(
            "free memory fell from {} to {} over the failure of {}, and no new block accounts for {} of it",
            size(then),
            size(now),
            size(request),
            size(gone)
        )
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
    taken_otherwise(around, by_others.is_some(), check);
}

/// What else takes memory between two readings, beside blocks: other processes, and code that is loaded.
fn taken_otherwise(around: &Around, others_known: bool, check: &mut Check) {
    if !others_known {
        check.must(Holds::Unknown("what other processes held before the failure and after it (KFD)"), String::new);
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

/// Memory was unmapped and released, and the card did not get it back.
fn vmm_release_ineffective(case: &Case<'_>, failure: &Failure<'_>, check: &mut Check) {
    let is_rocm = case.versions.platform == Some(Platform::Rocm);
    let track = failure.oom.device.and_then(|device| case.replay.tracks.device(device));
    let Some(track) = track.filter(|_| is_rocm && failure.is_real_of_device()) else { return };
    let stretches: Vec<&Stretch> = track.reads.releases().iter().filter(|stretch| is_clear(stretch, failure)).collect();
    let expects = |stretch: &&Stretch| stretch.expected_and_seen().is_some_and(|(expected, _)| expected > 0);
    let stretches: Vec<&Stretch> = stretches.into_iter().filter(expects).collect();
    if !check.applies(!stretches.is_empty()) {
        return;
    }
    // A reading is taken a moment before it is recorded: one stretch may end with a reading from before the release.
    if stretches.len() < 2 {
        check.at_most(Confidence::Probable);
        check.would_settle("a second release between two readings of free memory");
    }
    let (mut expected, mut seen) = (0i128, 0i128);
    for stretch in &stretches {
        let Some((should, did)) = stretch.expected_and_seen() else { continue };
        (expected, seen) = (expected + should, seen + did.max(0) + taken_by_others(stretch));
    }
    let bytes = |number: i128| u64::try_from(number.max(0)).unwrap_or(u64::MAX);
    check.decides(
        (seen as f64) < case.thresholds.stuck_share * expected as f64,
        || {
            format!(
                "{} were unmapped and released, and free memory rose by {}",
                size(bytes(expected)),
                size(bytes(seen))
            )
        },
        || format!("free memory rose by {} of the {} that were released", size(bytes(seen)), size(bytes(expected))),
    );
    let reserved = stretches.last().map_or(0, |stretch| stretch.after.reserved_bytes);
    check.must(reserved > 0, || format!("the address ranges were still reserved ({})", size(reserved)));
    check.gives_back(0, bytes(expected - seen), Basis::Estimated);
}

/// Whether nothing else came between two readings that takes memory or holds it by right: code that was loaded, and memory
/// that other processes may have open.
fn is_clear(stretch: &Stretch, failure: &Failure<'_>) -> bool {
    let loads = stretch.after.done.since(&stretch.before.done).loads;
    stretch.after.at <= failure.oom.at && loads == 0 && stretch.exported_freed_bytes == 0
}

/// What other processes took between two readings.
fn taken_by_others(stretch: &Stretch) -> i128 {
    let others = stretch.before.read.others_vram_bytes.zip(stretch.after.read.others_vram_bytes);
    others.map_or(0, |(before, after)| i128::from(after.saturating_sub(before)))
}

/// Captured graphs keep their high-water mark: by PyTorch's message, or by what was taken during captures.
fn graph_private_pool(case: &Case<'_>, failure: &Failure<'_>, check: &mut Check) {
    if !check.applies(failure.is_real_of_device()) {
        return;
    }
    match case.torch_sums(failure).filter(|sums| sums.private.is_some_and(|private| private.bytes > 0)) {
        Some(sums) => private_by_sums(&sums, failure, check),
        None => private_by_captures(case, failure, check),
    }
}

fn private_by_sums(sums: &TorchSums<'_>, failure: &Failure<'_>, check: &mut Check) {
    let private = sums.private.unwrap_or_default();
    let by_runtime = failure.free_bytes().get().map(|bytes| Printed { bytes, rounding_bytes: 0 });
    let missing = sums.free.or(by_runtime).map(|free| sums.tried.minus(free));
    let missing = Known::new(missing, "free memory at the failure");
    let (by, held) = (sums.told.by(), size(private.bytes));
    check.decides(
        missing.is(|missing| missing.bytes > 0 && private.bytes >= missing.bytes),
        || format!("{by}: private pools hold {held}, which is at least what was missing"),
        || format!("{by}: private pools hold only {held}"),
    );
    let certain = missing.get().is_some_and(|missing| private.least() >= missing.most()) && sums.is_certain();
    if !certain {
        check.at_most(if sums.is_of_failure != Holds::No { Confidence::Probable } else { Confidence::Possible });
    }
    check.gives_back(0, private.bytes, Basis::Given);
}

/// What a pool of a graph holds was taken while the graph was captured; whether it holds that still, nobody says.
fn private_by_captures(case: &Case<'_>, failure: &Failure<'_>, check: &mut Check) {
    let captured = case.around(failure).and_then(|around| around.captured).unwrap_or_default();
    if !check.applies(captured.ended > 0) {
        return;
    }
    check.at_most(Confidence::Probable);
    check.would_settle("PyTorch's message, which says what private pools hold (report --torch-log)");
    let taken = captured.live_bytes;
    check.decides(
        failure
            .shortfall_bytes()
            .map_or(Holds::Unknown("free memory at the failure"), |missing| (taken >= missing).into()),
        || {
            let captures = count(captured.ended, "capture", "captures");
            format!("{} that were taken during {captures} of streams live, at least what was missing", size(taken))
        },
        || format!("of what was taken during captures of streams, only {} live", size(taken)),
    );
    check.note(captured.graphs > 0, || {
        format!("{} ready to launch and not destroyed", count(captured.graphs, "graph is", "graphs are"))
    });
    check.gives_back(0, taken, Basis::Estimated);
}
