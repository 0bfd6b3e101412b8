//! A policy applied to runs.

use std::collections::BTreeSet;

use serde::Serialize;

use super::{Budget, Glob, Jobs, Judged, Metric, Policy, Rule, Sides, Unjudged, Verdict, judge};
use crate::compare::{Difference, Threshold, compare};
use crate::passes::profile::{Place, Profile, Run};

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

/// All runs together, checked.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct CheckedJob {
    /// Processes whose traces were given.
    pub processes: usize,
    /// In the order of the policy.
    pub findings: Vec<Finding>,
}

/// A budget that was applied to nothing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Unused {
    /// What the author of the policy calls it.
    pub name: Option<String>,
    /// Line of the policy.
    pub line: usize,
    /// The rule.
    pub rule: String,
    /// What it would be about, and what no trace has.
    pub because: String,
}

/// All runs, checked.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Checked {
    /// The policy's file as it was given.
    pub policy: String,
    /// What becomes of limits that were not judged.
    pub unjudged: Unjudged,
    /// Each run.
    pub runs: Vec<CheckedRun>,
    /// All runs together; null where no budget is about that.
    pub job: Option<CheckedJob>,
    /// Budgets that were applied to nothing.
    pub unused: Vec<Unused>,
}

/// Whom a finding is about.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Whose<'a> {
    /// One process.
    Run(&'a Run),
    /// So many processes together.
    Job(usize),
}

impl Checked {
    /// Findings of one sort, and whom they are about.
    pub fn findings(&self, outcome: Outcome) -> impl Iterator<Item = (Whose<'_>, &Finding)> {
        let of_runs =
            self.runs.iter().flat_map(|run| run.findings.iter().map(move |finding| (Whose::Run(&run.run), finding)));
        let of_job = self
            .job
            .iter()
            .flat_map(|job| job.findings.iter().map(move |finding| (Whose::Job(job.processes), finding)));
        of_runs.chain(of_job).filter(move |(_, finding)| finding.outcome == outcome)
    }

    /// What is about nothing keeps no limit, but it can break one: something was to be there.
    fn leave_out_unused(&mut self) {
        let is_of =
            |unused: &Unused, finding: &Finding| (unused.line, &unused.rule) == (finding.line, &finding.judged.rule);
        let mut unused = std::mem::take(&mut self.unused);
        unused.retain(|budget| !self.findings(Outcome::Exceeded).any(|(_, finding)| is_of(budget, finding)));
        let findings = self.runs.iter_mut().map(|run| &mut run.findings);
        for findings in findings.chain(self.job.iter_mut().map(|job| &mut job.findings)) {
            findings.retain(|finding| !unused.iter().any(|budget| is_of(budget, finding)));
        }
        self.unused = unused;
    }

    /// Limits that no trace could judge.
    pub fn not_judged(&self) -> usize {
        self.findings(Outcome::NotJudged).count() + self.unused.len()
    }

    /// Whether what could not be judged makes the check fail.
    pub fn fails_unjudged(&self) -> bool {
        self.unjudged == Unjudged::Fail && self.not_judged() > 0
    }

    /// Whether each budget is kept, as far as the traces tell; and that they do tell, where the policy demands it.
    pub fn is_kept(&self) -> bool {
        self.findings(Outcome::Exceeded).next().is_none() && !self.fails_unjudged()
    }
}

/// Whether a rule is about this process.
pub fn is_about(rule: &Rule, run: &Run) -> bool {
    let scope = &rule.scope;
    let fits = |glob: &Glob| glob.fits(&run.executable) || run.script.as_ref().is_some_and(|script| glob.fits(script));
    scope.process.as_ref().is_none_or(fits) && scope.rank.is_none_or(|rank| rank == run.rank_or_first())
}

/// A run, and what it is compared with.
struct Compared<'a> {
    new: &'a Profile,
    base: Option<&'a Profile>,
    difference: Difference,
}

/// Applies a policy to runs, each with what it is compared with, and to all of them together.
pub fn check(name: &str, policy: &Policy, runs: &[(&Profile, Option<&Profile>)], jobs: Jobs<'_>) -> Checked {
    let compared = |(new, base): &(&'_ Profile, Option<&'_ Profile>)| {
        let nothing = Profile {
            run: new.run.clone(),
            places: Vec::new(),
            sites: Vec::new(),
            tensors: Vec::new(),
            block_growth: Vec::new(),
            label_growth: Vec::new(),
        };
        compare(base.unwrap_or(&nothing), new, Threshold::NONE)
    };
    let runs: Vec<Compared> =
        runs.iter().map(|run| Compared { new: run.0, base: run.1, difference: compared(run) }).collect();
    let (together, single): (Vec<&Budget>, Vec<&Budget>) =
        policy.budgets.iter().partition(|budget| budget.rule.scope.job);
    let of_job = |budget: &&Budget| -> Vec<Finding> {
        let told = Told::of(runs.iter().map(|run| &run.new.run).filter(|run| is_about(&budget.rule, run)));
        jobs.judge(&budget.rule).into_iter().map(|judged| Finding::new(budget, judged, told)).collect()
    };
    let findings = together.iter().flat_map(of_job).collect();
    let mut checked = Checked {
        policy: name.to_owned(),
        unjudged: policy.unjudged,
        job: (!together.is_empty()).then_some(CheckedJob { processes: runs.len(), findings }),
        unused: policy.budgets.iter().filter_map(|budget| unused(budget, &runs)).collect(),
        runs: runs.into_iter().map(|run| check_run(&single, run)).collect(),
    };
    checked.leave_out_unused();
    checked
}

impl Finding {
    fn new(budget: &Budget, judged: Judged, told: Told) -> Self {
        let judged = told.judges(judged, budget.rule.metric);
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
    }
}

/// Why a budget is about nothing that any run has. A misspelt name would be kept for ever otherwise.
fn unused(budget: &Budget, runs: &[Compared<'_>]) -> Option<Unused> {
    let about = runs.iter().filter(|run| is_about(&budget.rule, &run.new.run));
    let because = about_nothing(&budget.rule, &about.map(|run| &run.difference).collect::<Vec<_>>())?;
    Some(Unused { name: budget.name.clone(), line: budget.line, rule: budget.rule.to_string(), because })
}

/// Why a rule is about nothing that these runs have.
pub fn about_nothing(rule: &Rule, about: &[&Difference]) -> Option<String> {
    let scope = &rule.scope;
    let used = || about.iter().flat_map(|run| &run.places).map(|known| known.place);
    let glob = scope.site.as_ref().or(scope.each_site.as_ref());
    let of_tensors = rule.metric == Metric::Tensors;
    let sites = about.iter().flat_map(|run| if of_tensors { &run.tensor_sites } else { &run.sites });
    let fits = |glob: &Glob| sites.clone().any(|site| glob.fits(&site.key));
    let because = if about.is_empty() {
        "no trace is of such a process".to_owned()
    } else if scope.device.is_some_and(|device| !used().any(|place| place == Place::Gpu(device))) {
        let devices: BTreeSet<Place> = used().filter(|place| *place != Place::Host).collect();
        let devices: Vec<String> = devices.into_iter().map(Place::words).collect();
        let devices = if devices.is_empty() { "none".to_owned() } else { devices.join(", ") };
        format!("no process used that device (used: {devices})")
    } else if !glob.is_none_or(fits) {
        "no call site fits (`diff` prints their names; inlined functions have none)".to_owned()
    } else {
        return None;
    };
    Some(because)
}

fn check_run(budgets: &[&Budget], run: Compared<'_>) -> CheckedRun {
    let Compared { new, base, difference } = run;
    let sides = Sides { difference: &difference, new, base };
    let about = budgets.iter().filter(|budget| is_about(&budget.rule, &new.run));
    let of_budget = |budget: &&&Budget| -> Vec<Finding> {
        let told = Told::of(std::iter::once(&new.run));
        judge(&budget.rule, &sides).into_iter().map(|judged| Finding::new(budget, judged, told)).collect()
    };
    let findings = about.collect::<Vec<_>>().iter().flat_map(of_budget).collect();
    CheckedRun {
        run: new.run.clone(),
        base: base.map(|base| base.run.clone()),
        findings,
        notes: difference.notes.into_iter().filter_map(|note| note_of(note, base.is_some())).collect(),
    }
}

/// How much of what happened the traces tell.
#[derive(Clone, Copy, Debug)]
struct Told {
    /// Nothing is damaged.
    is_undamaged: bool,
    /// No event was lost.
    is_complete: bool,
}

impl Told {
    fn of<'a>(runs: impl Iterator<Item = &'a Run>) -> Self {
        let all = Told { is_undamaged: true, is_complete: true };
        runs.fold(all, |told, run| Told {
            is_undamaged: told.is_undamaged && run.damages == 0,
            is_complete: told.is_complete && run.events_lost == 0,
        })
    }

    /// Part of a trace shows that a budget is exceeded, and never that it is kept: what is missing may have been more.
    fn judges(self, mut judged: Judged, metric: Metric) -> Judged {
        let is_whole = self.is_undamaged && (self.is_complete || metric == Metric::EventsLost);
        let is_upper = matches!(judged.comparison, "<=" | "<" | "==");
        if judged.verdict == Verdict::True && is_upper && !is_whole {
            judged.verdict = Verdict::NotJudged;
            judged.not_judged_because =
                Some("part of the trace is missing, and with it there may have been more".to_owned());
        }
        judged
    }
}

/// A run that is compared with nothing is no `NEW` one.
fn note_of(note: String, is_compared: bool) -> Option<String> {
    if is_compared {
        return Some(note);
    }
    note.strip_prefix("NEW ").map(|rest| format!("The trace {rest}"))
}
