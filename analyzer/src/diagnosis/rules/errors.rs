//! F. Errors: what became of a failure.

use gpuoom_trace::outcome::{Because, Outcome};

use super::{Rule, failure};
use crate::diagnosis::case::{Case, Failure};
use crate::diagnosis::check::{Check, Confidence};
use crate::diagnosis::finding::Role;

pub(super) const RULES: &[Rule] = &[failure("dropped-oom-return", Role::Severity, dropped_oom_return)];

/// A failing allocation was ignored.
fn dropped_oom_return(_: &Case<'_>, failure: &Failure<'_>, check: &mut Check) {
    let oom = failure.oom;
    if !check.applies(oom.outcome == Outcome::Dropped) {
        return;
    }
    let pointer = oom.because == Because::FailedPointerUsed;
    check.must(true, || match pointer {
        true => format!("the pointer of the failed {} was passed to a GPU call", failure.report.api),
        false => format!("after {} had failed, thread {} went on with GPU work", failure.report.api, oom.thread),
    });
    if !pointer {
        check.at_most(Confidence::Probable);
        check.would_settle("the failed call's pointer in a later call: nothing passed it on");
    }
}
