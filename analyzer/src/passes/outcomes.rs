//! How the failures of a run ended, counted.

use gpuoom_trace::outcome::Outcome;
use serde::Serialize;

use crate::passes::oom::OomReport;

/// How many failures ended in each way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Outcomes {
    /// Tried again with success.
    pub recovered: u64,
    /// Let out.
    pub propagated: u64,
    /// Ignored.
    pub dropped: u64,
    /// Not known.
    pub unresolved: u64,
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
    }
    counts
}
