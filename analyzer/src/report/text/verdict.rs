//! The verdict.

use gpuoom_trace::outcome::Outcome;

use crate::conclusion::Summary;
use crate::conclusion::verdict::Happened;
use crate::passes::outcomes::count_outcomes;
use crate::report::page::{Page, Paint};

pub(super) fn write(page: &mut Page, summary: &Summary) {
    let verdict = &summary.conclusion.verdict;
    let paint = match verdict.happened {
        Happened::OutOfMemory { .. } if count_outcomes(&summary.facts.ooms).dropped > 0 => Paint::Dropped,
        Happened::OutOfMemory { .. } => Paint::Failure,
        _ => Paint::Bold,
    };
    page.headed("VERDICT", paint, &verdict.sentences.join(" "));
    page.gap();
}

/// The word for an outcome and how it is painted.
pub(super) fn outcome_paint(outcome: Outcome) -> Paint {
    match outcome {
        Outcome::Dropped => Paint::Dropped,
        Outcome::Propagated | Outcome::Unresolved => Paint::Failure,
        Outcome::Recovered => Paint::Plain,
    }
}
