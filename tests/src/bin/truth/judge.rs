//! What a report said, beside what is true.

use gpuoom_tests::{Diagnosis, Report};

use crate::case::Truth;

/// One statement that is not true.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Untrue {
    pub(crate) id: String,
    pub(crate) confidence: String,
}

/// What came of a run.
#[derive(Clone, Debug, Default)]
pub(crate) struct Judgement {
    pub(crate) is_decidable: bool,
    pub(crate) is_healthy: bool,
    /// What stood first.
    pub(crate) first: Option<String>,
    pub(crate) is_right_first: bool,
    /// One of the right ones is there, and called proven.
    pub(crate) is_proven_right: bool,
    /// Called proven or probable, and not true.
    pub(crate) untrue: Vec<Untrue>,
    /// What is right is said to be ruled out.
    pub(crate) is_ruled_out: bool,
    /// Why the run itself is not what it was meant to be.
    pub(crate) broken: Option<String>,
}

/// Judges a report.
pub(crate) fn judge(truth: &Truth, report: &Report) -> Judgement {
    let found = report.diagnoses();
    let is_right = |id: &str| truth.right.contains(&id);
    let first = found.iter().find(|found| found.role != "refutation");
    let first = first.filter(|first| !truth.is_healthy || explains(first) || !is_true(truth, &first.id));
    let untrue = untrue(truth, &found, &report.causes());
    Judgement {
        is_decidable: truth.is_decidable,
        is_healthy: truth.is_healthy,
        first: first.map(|first| first.id.clone()),
        is_right_first: match truth.is_healthy {
            true => untrue.is_empty(),
            false => first.is_some_and(|first| is_right(&first.id)),
        },
        is_proven_right: found.iter().any(|found| is_right(&found.id) && found.confidence == "proven"),
        untrue,
        is_ruled_out: rules_out(truth, report, &found),
        broken: broken(truth, report),
    }
}

fn is_true(truth: &Truth, id: &str) -> bool {
    truth.right.contains(&id) || truth.also.contains(&id)
}

/// Whether it names a reason for something that went wrong.
fn explains(found: &Diagnosis) -> bool {
    matches!(&found.role[..], "cause" | "shape" | "severity")
}

/// What is said surely enough to be believed, and is not true. What is named as the cause of a refused call counts, too.
fn untrue(truth: &Truth, found: &[Diagnosis], causes: &[String]) -> Vec<Untrue> {
    let said = found.iter().filter(|found| found.role != "refutation" && found.confidence != "possible");
    let said = said.map(|found| Untrue { id: found.id.clone(), confidence: found.confidence.clone() });
    let is_listed = |cause: &str| found.iter().any(|found| found.id == cause);
    let named = causes.iter().filter(|cause| !is_listed(cause));
    let named = named.map(|cause| Untrue { id: cause.clone(), confidence: "probable".to_owned() });
    let mut untrue: Vec<Untrue> = said.chain(named).filter(|said| !is_true(truth, &said.id)).collect();
    untrue.sort();
    untrue.dedup();
    untrue
}

/// Whether it rules out the only thing that would have been right.
fn rules_out(truth: &Truth, report: &Report, found: &[Diagnosis]) -> bool {
    let is_right = |id: &str| truth.right.contains(&id);
    if truth.is_healthy || found.iter().any(|found| is_right(&found.id)) {
        return false;
    }
    let excluded = report.value("/diagnoses_excluded").as_array().into_iter().flatten();
    excluded.filter_map(|entry| entry["id"].as_str()).any(is_right)
}

/// Whether calls were refused that must not be, or the other way round: the generator is wrong then, not the analyzer.
fn broken(truth: &Truth, report: &Report) -> Option<String> {
    let ooms = report.number("/oom_count");
    match truth.fails {
        Some(true) if ooms == 0 => Some("no call was refused".to_owned()),
        Some(false) if ooms > 0 => Some(format!("{ooms} calls were refused")),
        _ => None,
    }
}
