//! D. Physical memory that was unmapped and released, and does not come back to the card.

use super::{Rule, failure};
use crate::diagnosis::case::{Case, Failure};
use crate::judgement::check::{Basis, Check, Confidence};
use crate::replay::tracks::reads::Stretch;
use crate::software::Platform;
use crate::words::size;
use gpuoom_trace::record::{Kind, NO_DEVICE};

pub(super) const RULES: &[Rule] =
    &[failure("vmm-release-ineffective", vmm_release_ineffective), failure("vmm-half-returned", vmm_half_returned)];

/// Physical memory is released and still mapped, or unmapped and still held. Both are how programs use it as well.
fn vmm_half_returned(case: &Case<'_>, failure: &Failure<'_>, check: &mut Check) {
    let Some(half) = case.around(failure).and_then(|around| around.half) else { return };
    let all = half.mapped_bytes.saturating_add(half.held_bytes);
    let missing = failure.shortfall_bytes();
    let is_enough = all > 0 && missing.is_some_and(|missing| all >= missing);
    if !check.applies(failure.is_real_of_device() && is_enough) {
        return;
    }
    check.at_most(Confidence::Possible);
    let parts = [
        (half.mapped_bytes, "mapped", "of physical memory was released, and is mapped"),
        (half.held_bytes, "held", "was unmapped, and its handles are not released"),
    ];
    for (bytes, part, text) in parts.into_iter().filter(|(bytes, ..)| *bytes > 0) {
        check.part(part);
        check.must(true, || format!("{} {text}", size(bytes)));
    }
    check.must(true, || format!("{} was missing", size(missing.unwrap_or(0))));
    check.would_settle("whether the program still needs it: the code that maps and releases it");
}

/// By how much free memory rose over releases.
struct Risen {
    /// By what was released.
    expected: i128,
    /// What came, what others took meanwhile, and what rounding may have added to new blocks.
    at_most: i128,
    /// What came because of the releases, where nothing else gave memory back.
    by_release: Option<i128>,
}

impl Risen {
    fn of(case: &Case<'_>, device: u8, stretches: &[&Stretch]) -> Self {
        let mut risen = Risen { expected: 0, at_most: 0, by_release: Some(0) };
        for stretch in stretches {
            let Some((should, did)) = stretch.expected_and_seen() else { continue };
            let taken = change_of_others(stretch).unwrap_or(0).max(0);
            risen.expected += should;
            let rounding = case.rounding_between(device, &stretch.after.done.since(&stretch.before.done));
            risen.at_most += did.max(0) + taken + i128::from(rounding);
            risen.by_release = risen.by_release.zip(by_release(stretch)).map(|(sum, came)| sum + came);
        }
        risen
    }
}

fn bytes(number: i128) -> u64 {
    u64::try_from(number.max(0)).unwrap_or(u64::MAX)
}

/// Memory was unmapped and released, and the card did not get it back.
fn vmm_release_ineffective(case: &Case<'_>, failure: &Failure<'_>, check: &mut Check) {
    let is_rocm = case.versions.platform == Some(Platform::Rocm);
    let track = failure.oom.device.and_then(|device| case.replay.tracks.device(device));
    let Some(track) = track.filter(|_| is_rocm && failure.is_real_of_device()) else { return };
    let stretches: Vec<&Stretch> = track.reads.releases().filter(|stretch| is_clear(stretch, failure)).collect();
    let expects = |stretch: &&Stretch| stretch.expected_and_seen().is_some_and(|(expected, _)| expected > 0);
    let stretches: Vec<&Stretch> = stretches.into_iter().filter(expects).collect();
    if stretches.is_empty() {
        return kept_below(case, failure, check);
    }
    // A reading is taken a moment before it is recorded: one stretch may end with a reading from before the release.
    if stretches.len() < 2 {
        check.at_most(Confidence::Probable);
        check.would_settle("a second release between two readings of free memory");
    }
    if stretches.iter().any(|stretch| change_of_others(stretch).is_none()) {
        check.at_most(Confidence::Probable);
        check.would_settle("what other processes held before the release and after it (KFD)");
    }
    let risen = Risen::of(case, failure.oom.device.unwrap_or(NO_DEVICE), &stretches);
    let is_share = |seen: i128| seen as f64 >= case.thresholds.stuck_share * risen.expected as f64;
    // Free memory rose, and nobody knows whether the release did it.
    if !check.applies(!is_share(risen.at_most) || risen.by_release.is_some_and(is_share)) {
        return;
    }
    let expected = size(bytes(risen.expected));
    check.decides(
        !is_share(risen.at_most),
        || {
            format!(
                "{expected} were unmapped and released, and at most {} of it became free",
                size(bytes(risen.at_most))
            )
        },
        || {
            let came = size(bytes(risen.by_release.unwrap_or(0)));
            format!("free memory rose by {came} of the {expected} that were released")
        },
    );
    let reserved = stretches.last().map_or(0, |stretch| stretch.after.reserved_bytes);
    check.part("reserved addresses");
    check.must(reserved > 0, || format!("the address ranges were still reserved ({})", size(reserved)));
    check.gives_back(0, bytes(risen.expected - risen.at_most), Basis::Estimated);
}

/// Nobody read what was free around a release, and the layers below still hold what handles took that are gone.
fn kept_below(case: &Case<'_>, failure: &Failure<'_>, check: &mut Check) {
    let kept = failure.kept_below_bytes(Kind::Physical);
    if !check.applies(kept >= case.thresholds.much_released_bytes) {
        return;
    }
    check.at_most(Confidence::Probable);
    check.part("released handles");
    check.must(true, || {
        format!("below the runtime live {} that handles took which were released: no call gave that back", size(kept))
    });
    check.must(failure.shortfall_bytes().is_some_and(|missing| kept >= missing), || {
        format!("the request was {}", failure.short_by(failure.shortfall_bytes().unwrap_or(0)))
    });
    let exported = case.around(failure).and_then(|around| around.exported_freed_bytes).unwrap_or(0);
    if exported > 0 {
        check.at_most(Confidence::Possible);
        check.would_settle("whether another process has open what was exported and released");
    }
    check.gives_back(0, kept, Basis::Estimated);
}

/// Whether nothing else came between two readings that takes memory or holds it by right: code that was loaded, and memory
/// that other processes may have open. Nor was a device reset, which takes all away at once.
fn is_clear(stretch: &Stretch, failure: &Failure<'_>) -> bool {
    let done = stretch.after.done.since(&stretch.before.done);
    stretch.after.at <= failure.oom.at && done.loads == 0 && done.ends == 0 && stretch.exported_freed_bytes == 0
}

/// By how much other processes hold more than at the reading before.
fn change_of_others(stretch: &Stretch) -> Option<i128> {
    let (before, after) = (stretch.before.read.others_vram_bytes?, stretch.after.read.others_vram_bytes?);
    Some(i128::from(after) - i128::from(before))
}

/// By how much free memory rose because of what was released: not known where something else may have made it rise, as what a
/// pool gives back after a wait.
fn by_release(stretch: &Stretch) -> Option<i128> {
    let (_, did) = stretch.expected_and_seen()?;
    let is_alone =
        stretch.after.done.since(&stretch.before.done).releases == 0 && stretch.after.done.returned_to_pools_bytes == 0;
    is_alone.then_some(did.max(0) + change_of_others(stretch)?)
}
