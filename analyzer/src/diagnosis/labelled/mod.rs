//! Traces whose cause is known: each rule is proven by at least one and refuted by at least one.
//!
//! A chapter's traces stand in a file of its own. The tests here hold over all of them: the right diagnosis comes first, and
//! none that is not true of a trace is ever called proven.

mod allocator_options;
mod blocks;
mod capacity;
mod ceilings;
mod counts;
mod drm;
mod errors;
mod exports;
mod fixes;
mod forks;
mod fragmentation;
mod growth;
mod hardware;
mod host;
mod installed;
mod leaks;
mod machines;
mod numbers;
mod pending;
mod phantom_free;
mod phases;
mod pieces;
mod platform;
mod pools;
mod removals;
mod reported;
mod retention;
mod scenes;
mod sentences;
mod serving;
mod since_refusal;
mod snapshots;
mod tensors;
mod the_rest;
mod torch_errors;
mod training;
mod uma;
mod uses;
mod which_card;

use gpuoom_trace::metadata::Quantity;

use crate::conclusion::Summary;
use crate::judgement::check::Confidence;
use crate::judgement::role::Role;
use crate::passes::oom::deciding;
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
        tensors::TRACES,
        counts::TRACES,
        phantom_free::TRACES,
        pending::TRACES,
        pieces::TRACES,
        reported::TRACES,
        since_refusal::TRACES,
        exports::TRACES,
        pools::TRACES,
        retention::TRACES,
        allocator_options::TRACES,
        leaks::TRACES,
        errors::TRACES,
        forks::TRACES,
        installed::TRACES,
        drm::TRACES,
        platform::TRACES,
        uma::TRACES,
        training::TRACES,
        phases::TRACES,
        serving::TRACES,
        host::TRACES,
        hardware::TRACES,
        which_card::TRACES,
        the_rest::TRACES,
        torch_errors::TRACES,
        blocks::TRACES,
    ]
    .into_iter()
    .flatten()
}

/// All traces, for tests of what is told of them.
pub(crate) fn each(mut told: impl FnMut(&str, &Summary)) {
    all().for_each(|labelled| told(labelled.story, &summed_up(&(labelled.scene)())));
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
        let found = summary.conclusion.findings.iter().find(|finding| finding.id == labelled.id);
        let found = found.map(|finding| finding.confidence);
        let first = summary.conclusion.findings.first().map(|finding| finding.id);
        let decides =
            deciding(summary.facts.ooms.iter().map(|oom| oom.outcome)).map(|index| summary.conclusion.causes[index]);
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
            let all: Vec<_> =
                summary.conclusion.findings.iter().map(|finding| (finding.id, finding.confidence)).collect();
            wrong.push(format!(
                "{} ({}): must say {:?}; found {all:?}, excluded {:?}",
                labelled.id, labelled.story, labelled.says, summary.conclusion.excluded
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
        let proven = summary.conclusion.findings.iter().filter(|finding| finding.confidence == Confidence::Proven);
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

/// Numbers that a trace with this diagnosis passes by default, and with this setting does not.
const DECIDE: [(&str, &str); 31] = [
    ("step-share=0", "live-leak"),
    ("leak-total=100G", "live-leak"),
    ("swing-share=100%", "live-leak"),
    ("end-share=100%", "live-leak"),
    ("plateau-least-cycles=1000", "reserved-plateau"),
    ("plateau-rise=100G", "reserved-plateau"),
    ("swap=100G", "model-swap-residual"),
    ("pause-factor=1000000", "oom-first-forward"),
    ("burst-calls=100000", "oom-first-forward"),
    ("later-steps=1", "oom-optimizer-step"),
    ("trained-steps=1000", "oom-eval-batch"),
    ("phase-cycles=1000", "oom-eval-accumulation"),
    ("forward-share=0", "oom-eval-accumulation"),
    ("growing-sizes=1000", "kv-cache-incremental"),
    ("growing-share=100%", "kv-cache-incremental"),
    ("kept-least-share=100%", "legacy-pool-growth"),
    ("gathered-for=1us", "fsdp-gather-spike"),
    ("gathers-at-once=50", "fsdp-gather-spike"),
    ("gathered=100G", "fsdp-gather-spike"),
    ("small-request=1", "map-count-exhaustion"),
    ("room-factor=1000000", "map-count-exhaustion"),
    ("handles-of-open-share=100%", "vmm-fd-exhaustion"),
    ("linear-exponent=3", "attention-quadratic"),
    ("square-exponent-least=2.2", "attention-quadratic"),
    ("square-exponent-most=1.8", "attention-quadratic"),
    ("pending=1ns", "async-free-pending"),
    ("noted=1ns", "graph-private-pool"),
    ("mapping-quiet=1ns", "expandable-hazard"),
    ("family-share=100%", "mixed-size-padding"),
    ("small-carve-out-share=0", "uma-carveout-only"),
    ("used-carve-out-share=0", "uma-large-carveout-starves-gtt"),
];

#[test]
fn numbers_that_are_set_decide() {
    let confidence = |labelled: &Labelled, setting: Option<&str>| {
        let mut scene = (labelled.scene)();
        setting.into_iter().for_each(|text| scene.trace.evidence.thresholds.set(text).unwrap());
        summed_up(&scene)
            .conclusion
            .findings
            .iter()
            .find(|finding| finding.id == labelled.id)
            .map(|found| found.confidence)
    };
    let mut without_effect = Vec::new();
    for (setting, id) in DECIDE {
        let mut shown = all().filter(|labelled| labelled.id == id && labelled.says != Says::Not);
        if !shown.any(|labelled| confidence(labelled, Some(setting)) < confidence(labelled, None)) {
            without_effect.push((setting, id));
        }
    }
    assert!(without_effect.is_empty(), "{without_effect:?}");
}

/// What is asked for exists where the program runs.
#[test]
fn readings_are_named_as_the_platform_has_them() {
    let (mut asked, mut wrong) = (0, Vec::new());
    for labelled in all() {
        let mut scene = (labelled.scene)();
        scene.trace = scene.trace.cuda();
        let summary = summed_up(&scene);
        if summary.facts.versions.platform != Some(crate::software::Platform::Cuda) {
            continue;
        }
        for reading in summary.conclusion.findings.iter().flat_map(|finding| &finding.missing) {
            asked += 1;
            let is_amds = ["KFD", "rocm-smi", "amd-smi", "amdgpu"].iter().any(|name| reading.contains(name));
            wrong.extend(is_amds.then(|| format!("{} ({}): {reading}", labelled.id, labelled.story)));
        }
    }
    assert!(asked > 100 && wrong.is_empty(), "{asked}, wrong: {wrong:#?}");
}
