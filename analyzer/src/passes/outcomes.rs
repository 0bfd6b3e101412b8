//! What became of failures, counted.

use gpuoom_trace::outcome::{Because, Outcome};
use serde::Serialize;

use super::oom::{OomReport, PointerUsed};

/// How many failures ended in each way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Outcomes {
    /// Memory came after all.
    pub recovered: u64,
    /// Let out.
    pub propagated: u64,
    /// Followed by GPU work without a sign that the program had noticed.
    pub dropped: u64,
    /// Not known.
    pub unresolved: u64,
    /// Of those recovered: by another call.
    pub fell_back: u64,
    /// Of those: where time alone ties the two, and nothing shows that the program had noticed.
    #[serde(skip)]
    pub by_time_alone: u64,
    /// Of those dropped: the thread had got memory that makes up for nothing.
    #[serde(skip)]
    pub given_other: u64,
    /// Of those dropped: what came after the work may show that the program had noticed.
    #[serde(skip)]
    pub may_be_noticed: u64,
    /// Of those dropped: a GPU call was given the null that the failed call left behind, as far as nulls can be told apart.
    pub failed_pointer_used: u64,
    /// Stories of those: attempts to make up for one failure have one pointer.
    pub failed_pointers: u64,
    /// Stories of those where that is likely.
    pub likely_failed_pointers: u64,
    /// Of those unresolved: the last error was read, and GPU work went on.
    pub error_read: u64,
    /// Failures that were no attempt to make up for an earlier one.
    pub stories: u64,
}

impl Outcomes {
    /// All failures.
    pub fn total(&self) -> u64 {
        self.recovered + self.propagated + self.dropped + self.unresolved
    }
}

/// Counts the listed failures by outcome.
pub fn count_outcomes(ooms: &[OomReport]) -> Outcomes {
    let mut counts = Outcomes::default();
    for oom in ooms {
        *match oom.outcome {
            Outcome::Recovered => &mut counts.recovered,
            Outcome::Propagated => &mut counts.propagated,
            Outcome::Dropped => &mut counts.dropped,
            Outcome::Unresolved => &mut counts.unresolved,
        } += 1;
        let fell_back = oom.because == Because::FellBack;
        counts.fell_back += u64::from(fell_back);
        counts.by_time_alone += u64::from(fell_back && oom.is_made_up_by_time_alone);
        let went_on = oom.because == Because::GpuWorkContinued;
        counts.given_other += u64::from(went_on && oom.other_memory.is_some());
        counts.may_be_noticed += u64::from(went_on && oom.sign.is_some());
        counts.failed_pointer_used += u64::from(oom.because == Because::FailedPointerUsed);
        let is_first = oom.attempt_of.is_none();
        counts.failed_pointers += u64::from(is_first && oom.pointer != PointerUsed::NotSeen);
        counts.likely_failed_pointers += u64::from(is_first && oom.pointer == PointerUsed::Likely);
        counts.error_read += u64::from(oom.because == Because::ErrorRead);
        counts.stories += u64::from(oom.attempt_of.is_none());
    }
    counts
}
