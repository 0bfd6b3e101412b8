//! What llama.cpp's own log says of a buffer that was refused.

use crate::diagnosis::case::{Case, Failure};
use crate::evidence::program_log::ProgramSays;
use crate::judgement::check::{Basis, Check, Confidence};
use crate::replay::purpose::Purpose;
use crate::words::size;

/// What a log leaves open: it is told from others by a size alone.
const OF_THIS_RUN: &str = "whether that log is of this run";

/// Whether a log says that the request was for this. That it was for something else excludes it.
pub(super) fn says_what_for(case: &Case<'_>, failure: &Failure<'_>, wanted: Purpose, check: &mut Check) -> bool {
    let bytes = failure.oom.requested_bytes;
    let said = case.program_lines().find_map(|(file, line)| Some((file, line, line.refused_for(bytes)?)));
    let Some((file, line, purpose)) = said else { return false };
    let told = || {
        let what = purpose.what_for().unwrap_or_default();
        format!("llama.cpp's log ({file}, line {}): a buffer of {} {what} was refused", line.line, size(bytes))
    };
    if purpose != wanted {
        check.unless(true, told);
        return false;
    }
    check.must_by(Basis::Given, true, told);
    check.at_most(Confidence::Probable);
    check.would_settle(OF_THIS_RUN);
    projected(case, check);
    true
}

/// What llama.cpp had reckoned with before it began.
fn projected(case: &Case<'_>, check: &mut Check) {
    for (file, line) in case.program_lines() {
        let ProgramSays::Projected { needed, free } = line.says else { continue };
        check.note_by(Basis::Given, true, || {
            let (needed, free) = (size(needed.bytes), size(free.bytes));
            format!("llama.cpp's log ({file}, line {}): it reckoned with {needed}, and {free} was free", line.line)
        });
    }
}
