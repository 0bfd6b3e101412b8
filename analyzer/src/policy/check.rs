//! A policy applied to runs.

use serde::Serialize;

use super::{Budget, Judged, Metric, Rule, Sides, Verdict, judge};
use crate::compare::{Threshold, compare};
use crate::passes::profile::{Profile, Run};

/// What a run makes of a budget.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// It is kept.
    Kept,
    /// It is not.
    Exceeded,
    /// The trace does not tell.
    NotJudged,
}

/// A budget, applied to one thing of one run.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Finding {
    /// What the author of the policy calls it.
    pub name: Option<String>,
    /// Line of the policy.
    pub line: usize,
    /// What became of it.
    pub outcome: Outcome,
    /// The numbers.
    #[serde(flatten)]
    pub judged: Judged,
}

/// One run, checked.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct CheckedRun {
    /// The run.
    pub run: Run,
    /// What it was compared with.
    pub base: Option<Run>,
    /// What must be known before the numbers are believed.
    pub notes: Vec<String>,
    /// In the order of the policy.
    pub findings: Vec<Finding>,
}

/// A budget that none of the runs is about.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Unused {
    /// Line of the policy.
    pub line: usize,
    /// The rule.
    pub rule: String,
}

/// All runs, checked.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Checked {
    /// The policy's file as it was given.
    pub policy: String,
    /// Each run.
    pub runs: Vec<CheckedRun>,
    /// Budgets that none of the runs is about.
    pub unused: Vec<Unused>,
}

impl Checked {
    /// Findings of one sort, with their runs.
    pub fn findings(&self, outcome: Outcome) -> impl Iterator<Item = (&CheckedRun, &Finding)> {
        let all = self.runs.iter().flat_map(|run| run.findings.iter().map(move |finding| (run, finding)));
        all.filter(move |(_, finding)| finding.outcome == outcome)
    }

    /// Whether each budget is kept, as far as the traces tell.
    pub fn is_kept(&self) -> bool {
        self.findings(Outcome::Exceeded).next().is_none()
    }
}

/// Whether a rule is about this process.
pub fn is_about(rule: &Rule, run: &Run) -> bool {
    let scope = &rule.scope;
    scope.process.as_ref().is_none_or(|glob| glob.fits(&run.executable))
        && scope.rank.is_none_or(|rank| rank == run.rank)
}

/// Applies a policy to runs, each with what it is compared with.
pub fn check(policy: &str, budgets: &[Budget], runs: &[(&Profile, Option<&Profile>)]) -> Checked {
    let unused = budgets.iter().filter(|budget| !runs.iter().any(|(new, _)| is_about(&budget.rule, &new.run)));
    Checked {
        policy: policy.to_owned(),
        runs: runs.iter().map(|(new, base)| check_run(budgets, new, *base)).collect(),
        unused: unused.map(|budget| Unused { line: budget.line, rule: budget.rule.to_string() }).collect(),
    }
}

fn check_run(budgets: &[Budget], new: &Profile, base: Option<&Profile>) -> CheckedRun {
    let nothing = Profile { run: new.run.clone(), places: Vec::new(), sites: Vec::new() };
    let difference = compare(base.unwrap_or(&nothing), new, Threshold::NONE);
    let sides = Sides { difference: &difference, new, base };
    let about = budgets.iter().filter(|budget| is_about(&budget.rule, &new.run));
    let findings = about.flat_map(|budget| {
        judge(&budget.rule, &sides).into_iter().map(|judged| {
            let judged = as_far_as_told(judged, budget.rule.metric, &new.run);
            Finding {
                name: budget.name.clone(),
                line: budget.line,
                outcome: match judged.verdict {
                    Verdict::True => Outcome::Kept,
                    Verdict::False => Outcome::Exceeded,
                    Verdict::NotJudged => Outcome::NotJudged,
                },
                judged,
            }
        })
    });
    CheckedRun {
        run: new.run.clone(),
        base: base.map(|base| base.run.clone()),
        findings: findings.collect(),
        notes: difference.notes.into_iter().filter_map(|note| note_of(note, base.is_some())).collect(),
    }
}

/// Part of a trace shows that a budget is exceeded, and never that it is kept: what is missing may have been more.
fn as_far_as_told(mut judged: Judged, metric: Metric, run: &Run) -> Judged {
    let is_whole = run.damages == 0 && (run.events_lost == 0 || metric == Metric::EventsLost);
    let is_upper = matches!(judged.comparison, "<=" | "<" | "==");
    if judged.verdict == Verdict::True && is_upper && !is_whole {
        judged.verdict = Verdict::NotJudged;
        judged.not_judged_because =
            Some("part of the trace is missing, and with it there may have been more".to_owned());
    }
    judged
}

/// A run that is compared with nothing is no `NEW` one.
fn note_of(note: String, is_compared: bool) -> Option<String> {
    if is_compared {
        return Some(note);
    }
    note.strip_prefix("NEW ").map(|rest| format!("The trace {rest}"))
}
