//! A. Capacity and request shape.

use super::{Rule, failure};
use crate::diagnosis::case::{Case, Failure};
use crate::diagnosis::check::{Check, Confidence, Holds};
use crate::diagnosis::finding::Role;
use crate::diagnosis::thresholds::{CAPACITY_HIGH, CAPACITY_MEDIUM, OTHERS_SHARE, is_enough, share};
use crate::words::{percent, size};

pub(super) const RULES: &[Rule] = &[
    failure("true-capacity", Role::Cause, true_capacity),
    failure("request-exceeds-device", Role::Cause, request_exceeds_device),
];

/// The card is full of this process's own live memory.
fn true_capacity(_: &Case<'_>, failure: &Failure<'_>, check: &mut Check) {
    if !check.applies(failure.is_of_device() && !failure.is_injected()) {
        return;
    }
    let own = failure.process_or_own_bytes();
    let total = failure.total_bytes();
    check.must(total.is(|total| share(own, total) >= CAPACITY_MEDIUM), || {
        let total = total.get().unwrap_or(0);
        format!("this process holds {} of {} ({})", size(own), size(total), percent(share(own, total)))
    });
    if total.get().is_some_and(|total| share(own, total) < CAPACITY_HIGH) {
        check.at_most(Confidence::Probable);
    }
    let both = failure.request_bytes().zip(failure.free_bytes());
    check.must(both.is(|(request, free)| free < request), || {
        let (request, free) = both.get().unwrap_or((0, 0));
        format!("{} was asked for and {} was free", size(request), size(free))
    });
    let runtime = failure.request_bytes().zip(failure.runtime_free_bytes());
    check.unless(runtime.is(|(request, free)| is_enough(free, request)), || {
        "the runtime reported enough free memory".to_owned()
    });
    check.unless(others_hold_a_tenth(failure), || match failure.external_at_most_bytes().get() {
        Some(others) => format!("others hold a tenth of the card or more (they hold at most {})", size(others)),
        None => "others hold a tenth of the card or more".to_owned(),
    });
}

/// Whether others hold enough to be a reason. That they do not can be known without knowing how much they hold.
fn others_hold_a_tenth(failure: &Failure<'_>) -> Holds {
    let total = failure.total_bytes();
    let is_much = |(others, total)| share(others, total) >= OTHERS_SHARE;
    match failure.external_at_most_bytes().zip(total).is(is_much) {
        Holds::No => Holds::No,
        _ => failure.external_bytes().zip(total).is(is_much),
    }
}

/// One request is larger than the whole device.
fn request_exceeds_device(_: &Case<'_>, failure: &Failure<'_>, check: &mut Check) {
    if !check.applies(failure.is_of_device() && !failure.is_injected()) {
        return;
    }
    let both = failure.request_bytes().zip(failure.total_bytes());
    check.must(both.is(|(request, total)| request > total), || {
        let (request, total) = both.get().unwrap_or((0, 0));
        format!("one call asked for {}, and the whole device has {}", size(request), size(total))
    });
    let free = failure.runtime_free_bytes().zip(failure.total_bytes());
    check.unless(free.get().is_some_and(|(free, total)| free > total), || {
        "the reported total is wrong: more is reported free than there is".to_owned()
    });
}
