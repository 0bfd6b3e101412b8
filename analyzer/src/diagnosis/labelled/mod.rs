//! Traces whose cause is known: each rule is proven by at least one and refuted by at least one.
//!
//! A chapter's traces stand in a file of its own. The tests here hold over all of them: the right diagnosis comes first, and
//! none that is not true of a trace is ever called proven.

mod allocator_options;
mod capacity;
mod ceilings;
mod counts;
mod errors;
mod exports;
mod fragmentation;
mod hardware;
mod host;
mod installed;
mod leaks;
mod machines;
mod phantom_free;
mod platform;
mod pools;
mod reported;
mod scenes;
mod serving;
mod snapshots;
mod training;
mod uma;
mod uses;

use gpuoom_trace::metadata::Quantity;

use crate::diagnosis::check::Confidence;
use crate::diagnosis::finding::Role;
use crate::passes::oom::deciding;
use crate::passes::summary::Summary;
use crate::testing::{self, TraceBuilder};

/// What the analyzer is given.
struct Scene {
    trace: TraceBuilder,
}

/// What must come of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Says {
    /// It comes first, as sure as this, and is the cause of the failure that decides.
    First(Confidence),
    /// It is found, as sure as this.
    Found(Confidence),
    /// It is not found, although it looks like it.
    Not,
}

/// A trace with its label.
struct Labelled {
    /// The diagnosis that it is about.
    id: &'static str,
    /// What must come of it.
    says: Says,
    /// Other diagnoses that are true of this trace.
    also: &'static [&'static str],
    /// What happens in it.
    story: &'static str,
    /// Makes it.
    scene: fn() -> Scene,
}

fn all() -> impl Iterator<Item = &'static Labelled> {
    [
        capacity::TRACES,
        ceilings::TRACES,
        uses::TRACES,
        fragmentation::TRACES,
        snapshots::TRACES,
        counts::TRACES,
        phantom_free::TRACES,
        reported::TRACES,
        exports::TRACES,
        pools::TRACES,
        allocator_options::TRACES,
        leaks::TRACES,
        errors::TRACES,
        installed::TRACES,
        platform::TRACES,
        uma::TRACES,
        training::TRACES,
        serving::TRACES,
        host::TRACES,
        hardware::TRACES,
    ]
    .into_iter()
    .flatten()
}

fn summed_up(scene: &Scene) -> Summary {
    testing::summary(&scene.trace)
}

/// Readings at a failure by what they are: numbers for [`TraceBuilder::read_at_failure`].
fn readings<const N: usize>(values: [(Quantity, u64); N]) -> [(u16, u64); N] {
    values.map(|(quantity, value)| (quantity as u16, value))
}

#[test]
fn each_trace_is_diagnosed_as_its_label_says() {
    let mut wrong = Vec::new();
    for labelled in all() {
        let summary = summed_up(&(labelled.scene)());
        let found = summary.diagnoses.iter().find(|finding| finding.id == labelled.id);
        let found = found.map(|finding| finding.confidence);
        let first = summary.diagnoses.first().map(|finding| finding.id);
        let decides = deciding(summary.ooms.iter().map(|oom| oom.outcome)).map(|index| summary.ooms[index].cause);
        let holds = match labelled.says {
            Says::First(confidence) => {
                let names_it =
                    decides.is_none_or(|cause| cause == Some(labelled.id) || confidence == Confidence::Possible);
                found == Some(confidence) && first == Some(labelled.id) && names_it
            }
            Says::Found(confidence) => found == Some(confidence),
            Says::Not => found.is_none(),
        };
        if !holds {
            let all: Vec<_> = summary.diagnoses.iter().map(|finding| (finding.id, finding.confidence)).collect();
            wrong.push(format!(
                "{} ({}): must say {:?}; found {all:?}, excluded {:?}",
                labelled.id, labelled.story, labelled.says, summary.diagnoses_excluded
            ));
        }
    }
    assert!(wrong.is_empty(), "{} of {} wrong:\n{}", wrong.len(), all().count(), wrong.join("\n"));
}

#[test]
fn no_wrong_cause_is_ever_called_proven() {
    for labelled in all() {
        let summary = summed_up(&(labelled.scene)());
        let is_true = |id: &str| labelled.also.contains(&id) || (labelled.says != Says::Not && labelled.id == id);
        let proven = summary.diagnoses.iter().filter(|finding| finding.confidence == Confidence::Proven);
        for finding in proven.filter(|finding| finding.role != Role::Refutation) {
            assert!(is_true(finding.id), "{} ({}): {} is called proven", labelled.id, labelled.story, finding.id);
        }
    }
}

#[test]
fn each_rule_is_proven_by_a_trace_and_refuted_by_another() {
    for rule in crate::diagnosis::rules::all() {
        let of_rule = || all().filter(|labelled| labelled.id == rule.id);
        assert!(of_rule().any(|labelled| labelled.says != Says::Not), "{}: no trace that shows it", rule.id);
        assert!(of_rule().any(|labelled| labelled.says == Says::Not), "{}: no trace that refutes it", rule.id);
    }
}
