//! What is concluded from the facts of a run: the findings, the verdict and what to do. All of it comes from the same findings,
//! in every format: there is no second judge.
//!
//! Facts lie below ([`crate::passes::facts`]) and rules between ([`crate::diagnosis`]); neither knows this.

mod below;
mod conditions;
pub mod finding;
mod guesses;
pub mod ladder;
mod order;
mod relations;
pub mod remedies;
pub(crate) mod sentence;
pub(crate) mod settled;
mod spelling;
pub mod verdict;
pub mod warnings;

use std::collections::HashSet;

use gpuoom_trace::reader::TraceFile;

use crate::catalogue;
use crate::diagnosis::case::Case;
use crate::diagnosis::{self, Judged, RuledOut};
use crate::evidence::Evidence;
use crate::passes::facts::Facts;
use crate::passes::shape::{SEGMENTS, TENSORS};
use crate::replay::Replay;
use crate::software::Program;
use finding::{Excluded, Finding};
use ladder::Ladder;
use verdict::{Happened, Verdict};
use warnings::Warning;

/// What is known of a run, and what follows from it.
#[derive(Clone, Debug)]
pub struct Summary {
    /// What is known.
    pub facts: Facts,
    /// What follows.
    pub conclusion: Conclusion,
}

/// What follows from the facts of a run.
#[derive(Clone, Debug)]
pub struct Conclusion {
    /// What happened and why, in a few sentences.
    pub verdict: Verdict,
    /// The cause of each failure in the order of [`Facts::ooms`]; `None` where none is at least probable.
    pub causes: Vec<Option<&'static str>>,
    /// Why memory ran out, the most telling first.
    pub findings: Vec<Finding>,
    /// Diagnoses that were ruled out although their shape was there.
    pub excluded: Vec<Excluded>,
    /// What to do, cheapest first.
    pub ladder: Ladder,
    /// Failures that no diagnosis was tried on, because there are too many.
    pub ooms_not_diagnosed: u64,
    /// What would tell why, where nothing is sure enough.
    pub would_settle: Vec<String>,
    /// Settings of the environment that do not do what people hope.
    pub warnings: Vec<Warning>,
}

impl Conclusion {
    /// The failure that decides, where a finding is true of the run and ruled out as the reason of that failure.
    pub(crate) fn is_not_why(&self, finding: &Finding) -> Option<u64> {
        let number = self.verdict.oom.filter(|_| finding.ooms.is_empty())?;
        self.excluded.iter().any(|out| out.id == finding.id && out.ooms.contains(&number)).then_some(number)
    }

    /// The most telling cause that is only possible: of the failure that decides, else of the run.
    pub fn perhaps(&self) -> Option<&Finding> {
        let of_run = || verdict::perhaps(&self.findings, None);
        verdict::perhaps(&self.findings, self.verdict.oom).or_else(of_run)
    }
}

/// Sums up a trace that was replayed to its end, with what was given beside it.
pub fn sum_up(trace: &TraceFile, replay: &Replay, evidence: &Evidence) -> Summary {
    let facts = Facts::of(trace, replay, evidence);
    let conclusion = conclude(&Case::new(trace, replay, &facts, evidence));
    Summary { facts, conclusion }
}

/// Asks all rules and draws the conclusion.
pub fn conclude(case: &Case<'_>) -> Conclusion {
    let judgements = diagnosis::judge(case);
    let mut ruled_out = judgements.ruled_out;
    let mut findings: Vec<Finding> = judgements.held.into_iter().filter_map(|judged| found(case, judged)).collect();
    relations::apply(&mut findings, &ruled_out);
    guesses::drop_explained(&mut findings);
    order::sort(&mut findings);
    let causes = causes(case, &findings);
    let deciding = Happened::of(case.facts).decides(case.facts);
    let failure = case.failures().find(|failure| Some(failure.report.number) == deciding);
    if let Some(number) = deciding {
        let of_it = ruled_out.iter().filter(|out| out.ooms.contains(&number)).map(|out| out.id);
        let device = failure.as_ref().and_then(|failure| failure.report.device);
        order::put_first(&mut findings, number, device, &of_it.collect::<Vec<_>>());
        ruled_out.sort_by_key(|out| order::is_of_others(&out.ooms, number));
    }
    let decides = verdict::deciding_finding(case.facts, &findings, &causes);
    let late_bytes = failure.map_or(0, |failure| failure.moved.given_bytes);
    let explaining: Vec<&'static str> =
        causes.iter().flatten().copied().chain(decides.map(|finding| finding.id)).collect();
    Conclusion {
        verdict: Verdict::new(case.facts, &findings, decides, late_bytes),
        ladder: ladder::climb(case, &findings, &ruled_out, &explaining),
        would_settle: would_settle(case, decides, &findings),
        warnings: warnings::warn(case),
        excluded: ruled_out.into_iter().filter_map(excluded).collect(),
        ooms_not_diagnosed: judgements.not_looked_at,
        findings,
        causes,
    }
}

fn found(case: &Case<'_>, judged: Judged) -> Option<Finding> {
    let entry = catalogue::find(judged.id)?;
    let fix = remedies::of(entry, case, &judged.parts, judged.shortfall_bytes);
    let file = remedies::places_to_report(entry, case, &judged.parts);
    let mut finding = Finding { file, ..Finding::new(judged, entry, fix) };
    // What lies in the segments is known then.
    if case.facts.devices.iter().any(|device| device.tensors.is_some()) {
        finding.missing.retain(|reading| reading != SEGMENTS);
    }
    if case.versions.has(Program::Torch) && finding.missing.iter().any(|reading| reading == SEGMENTS) {
        finding.missing.push(TENSORS.to_owned());
    }
    for reading in &mut finding.missing {
        *reading = spelling::reading(reading, case.versions.platform);
    }
    // Two names of one thing may be one here.
    let mut seen = HashSet::new();
    finding.missing.retain(|reading| seen.insert(reading.clone()));
    Some(finding)
}

fn excluded(out: RuledOut) -> Option<Excluded> {
    let title = catalogue::find(out.id)?.title.clone();
    Some(Excluded { id: out.id, title, ooms: out.ooms, by: out.by })
}

/// The cause of each failure: the most telling diagnosis about it that is at least probable.
fn causes(case: &Case<'_>, findings: &[Finding]) -> Vec<Option<&'static str>> {
    let cause_of = |number: u64| findings.iter().find(|finding| finding.explains(number)).map(|finding| finding.id);
    case.facts.ooms.iter().map(|oom| cause_of(oom.number)).collect()
}

/// What would tell why the deciding failure came, or in a run without one whether what is possible is so: what the diagnoses about
/// it lack, else the readings that it lacks, else where the catalogue says what would prove the most telling one.
fn would_settle(case: &Case<'_>, decides: Option<&Finding>, findings: &[Finding]) -> Vec<String> {
    if decides.is_some() {
        return Vec::new();
    }
    let failure = match Happened::of(case.facts) {
        Happened::OutOfMemory { oom } => case.failures().nth(oom),
        _ => None,
    };
    let number = failure.as_ref().map(|failure| failure.report.number);
    let possible = verdict::perhaps(findings, number).or_else(|| verdict::perhaps(findings, None));
    let is_about = |finding: &Finding| match number {
        Some(number) => finding.ooms.contains(&number),
        None => possible.is_some_and(|possible| possible.id == finding.id),
    };
    let about = findings.iter().filter(|finding| is_about(finding));
    let mut missing: Vec<String> = about.flat_map(|finding| finding.missing.clone()).collect();
    if let Some(failure) = failure.filter(|_| missing.is_empty()) {
        let readings = [failure.request_bytes(), failure.total_bytes(), failure.free_bytes(), failure.process_bytes()];
        missing =
            readings.iter().filter(|known| known.get().is_none()).map(|known| known.reading().to_owned()).collect();
    }
    if let Some(possible) = possible.filter(|_| missing.is_empty()) {
        let id = possible.id;
        missing.push(format!("whether it is {id}: gpuoom-analyze explain {id} lists what would prove and refute it"));
    }
    let mut seen = HashSet::new();
    missing.retain(|text| seen.insert(text.clone()));
    missing
}
