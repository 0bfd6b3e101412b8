//! C. Free memory reported, allocation refused.

use super::{Rule, failure};
use crate::diagnosis::case::{Case, Failure};
use crate::diagnosis::check::Check;
use crate::diagnosis::finding::Role;
use crate::diagnosis::thresholds::{OTHERS_SHARE, is_enough, share};
use crate::words::{percent, size};

pub(super) const RULES: &[Rule] = &[
    failure("phantom-free", Role::Cause, phantom_free),
    failure("other-process-on-gpu", Role::Cause, other_process_on_gpu),
];

/// The umbrella: enough was reported free. What resolves it is found by other rules (see `diagnosis::resolve`).
fn phantom_free(_: &Case<'_>, failure: &Failure<'_>, check: &mut Check) {
    if !check.applies(failure.is_of_device() && !failure.is_injected()) {
        return;
    }
    let both = failure.request_bytes().zip(failure.runtime_free_bytes());
    check.must(both.is(|(request, free)| is_enough(free, request)), || {
        let (request, free) = both.get().unwrap_or((0, 0));
        format!("{} was refused although the runtime reported {} free", size(request), size(free))
    });
}

/// Another compute process holds the card.
fn other_process_on_gpu(_: &Case<'_>, failure: &Failure<'_>, check: &mut Check) {
    if !check.applies(failure.is_of_device() && !failure.is_injected()) {
        return;
    }
    let others = failure.other_compute_bytes();
    let both = others.zip(failure.total_bytes());
    let explains = failure.shortfall_bytes().zip(others.get()).is_some_and(|(missing, others)| others >= missing);
    check.must(both.is(|(others, total)| others > 0 && (explains || share(others, total) >= OTHERS_SHARE)), || {
        let (others, total) = both.get().unwrap_or((0, 0));
        format!("other compute processes hold {} ({} of the card)", size(others), percent(share(others, total)))
    });
    let request = failure.request_bytes().zip(failure.free_bytes());
    check.unless(request.is(|(request, free)| is_enough(free, request)), || {
        "enough was free in spite of them".to_owned()
    });
}
