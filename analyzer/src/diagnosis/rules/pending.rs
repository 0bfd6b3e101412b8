//! C. Memory that was given back in the order of a stream, and is not back yet.

use gpuoom_trace::record::Kind;

use super::{Rule, failure};
use crate::diagnosis::case::{Case, Failure};
use crate::diagnosis::meanwhile::OTHERS_AT_RETRY;
use crate::judgement::check::{Check, Confidence, Holds};
use crate::replay::tracks::around::Next;
use crate::replay::tracks::between::Done;
use crate::replay::tracks::unknown::Unknown;
use crate::thresholds::Unit;
use crate::words::size;

pub(super) const RULES: &[Rule] = &[failure("async-free-pending", async_free_pending)];

/// The program has given memory back, and the runtime not yet.
fn async_free_pending(case: &Case<'_>, failure: &Failure<'_>, check: &mut Check) {
    let Some(around) = case.around(failure) else { return };
    if !check.applies(failure.is_real_of_device() && around.pending.frees > 0) {
        return;
    }
    // What a pool was told to keep does not come by waiting.
    let pending = around.pending.bytes.saturating_sub(around.pending.kept_bytes);
    let lacked = failure.shortfall_bytes().or(failure.request_bytes().get()).unwrap_or(u64::MAX);
    check.must(pending >= lacked, || {
        format!(
            "{} was given back by stream-ordered calls in the {} before, and the request was {}",
            size(pending),
            Unit::Time.shown(case.thresholds.pending_ns as f64),
            failure.short_by(lacked)
        )
    });
    came_without_a_free(case, failure, check);
    check.unless(failure.was_enough(failure.driver_free_bytes()), || {
        "the driver's counters showed enough free without what was pending".to_owned()
    });
    let hidden = case.pools_keep_at_most(failure).by_driver_bytes;
    check.unless(hidden.is(|hidden| hidden < lacked), || match hidden.get().filter(|hidden| *hidden < lacked) {
        Some(hidden) => {
            let hidden = size(hidden);
            format!("the driver counts only {hidden} for this process beyond what lives, so what was freed is free")
        }
        None => "the driver counts less for this process beyond what lives than was missing".to_owned(),
    });
}

/// The same request succeeded, and in between nobody gave memory back: then what was pending had come. Without such a try
/// nobody knows whether the program had waited before.
fn came_without_a_free(case: &Case<'_>, failure: &Failure<'_>, check: &mut Check) {
    // A pool may have given what it kept.
    let from_the_same = |next: &Next| next.kind != Kind::Pool || failure.oom.kind == Kind::Pool;
    let Some((_, done)) = case.granted(failure).filter(|(next, _)| from_the_same(next)) else {
        check.at_most(Confidence::Possible);
        let unknown = case.replay.tracks.waits_are_kept().err().unwrap_or(Unknown::StreamProgress);
        check.must(Holds::Unknown(unknown.reason()), String::new);
        return;
    };
    if case.gave_back(failure, &done) {
        check.at_most(Confidence::Possible);
        check.note(true, || came_after(&done));
        check.must(Holds::Unknown("another try after a wait alone, without a free or a trim in between"), String::new);
        return;
    }
    if let Some(most) = case.unless_others_made_room(failure) {
        check.at_most(most);
        check.would_settle(OTHERS_AT_RETRY);
    }
    let within = Unit::Time.shown(case.thresholds.retry_ns as f64);
    check.must(true, || {
        format!("the same request succeeded within {within}, and no recorded call gave anything back in between")
    });
}

/// What came between a failure and the same request's success.
fn came_after(done: &Done) -> String {
    let returned = done.returned_bytes.saturating_add(done.returned_host_bytes);
    let unsized_ones = "pools were trimmed or destroyed, or something else went whose size nobody tells";
    let what = match (returned, done.releases) {
        (0, 0) => "a free of another thread may have been under way".to_owned(),
        (0, _) => unsized_ones.to_owned(),
        (bytes, 0) => format!("{} were given back", size(bytes)),
        (bytes, _) => format!("{} were given back and {unsized_ones}", size(bytes)),
    };
    format!("the same request succeeded later, and in between {what}")
}
