//! Step shapes: where in a training or in serving a failure came, by what was followed on the way to it.
//!
//! A shape is judged like a diagnosis: what must hold, what refutes it, what is missing, with the numbers. The phases come
//! from marks where there are any, then from repetition and cycles, then from pauses.

mod beside_training;
mod by_frames;
pub mod cycles;
pub mod facts;
pub mod inference;
pub(crate) mod labels;
mod named;
pub mod of_blocks;
pub mod paths;
#[cfg(test)]
pub(crate) mod programs;
pub mod repetition;
pub mod run;
pub mod tensors;
#[cfg(test)]
mod tests;
pub mod training;

use std::collections::BTreeMap;

use gpuoom_trace::outcome::Outcome;

use crate::judgement::check::{Check, Holds, Judgement};
use crate::passes::oom::{OomReport, deciding};
use crate::passes::phase::sites::OfSites;
use crate::replay::Replay;
use crate::thresholds::Thresholds;
use facts::Facts;
use of_blocks::OfBlocks;

/// Failures whose shape is judged of the beginning, and as many of the end, beside the one that decides.
const EACH: usize = 4;
/// What a rule says where only segments of an allocator are seen.
pub const SEGMENTS: &str = "the program's own blocks: nearly all requests are multiples of 2 MiB, as those of an allocator with a cache are, and what such an allocator gives out is not seen";
/// The same with PyTorch, which can be asked.
pub const TENSORS: &str = "what tensors hold: record three steps again with PYTORCH_NO_CUDA_MEMORY_CACHING=1 (PYTORCH_NO_HIP_MEMORY_CACHING=1 on ROCm), \
     or give a memory snapshot";
/// What a label would settle.
pub const MARKS: &str =
    "what the program does here: its labels (gpuoom_mark), or the names of its functions (--symbols)";

/// A shape that a failure can have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// While weights are loaded.
    Load,
    /// In the first forward pass.
    FirstForward,
    /// In the first backward pass.
    FirstBackward,
    /// In the optimizer's first step, or in step 2.
    Optimizer,
    /// In one batch that is larger than all before.
    LongestBatch,
    /// Results of an evaluation pile up.
    EvalAccumulation,
    /// The first batch of an evaluation.
    EvalBatch,
    /// A cache that grows token by token.
    KvIncremental,
    /// A pool that keeps each peak.
    LegacyPool,
    /// Gathered parts that live at once.
    GatherSpike,
}

impl Shape {
    /// All.
    pub const ALL: [Shape; 10] = [
        Shape::Load,
        Shape::FirstForward,
        Shape::FirstBackward,
        Shape::Optimizer,
        Shape::LongestBatch,
        Shape::EvalAccumulation,
        Shape::EvalBatch,
        Shape::KvIncremental,
        Shape::LegacyPool,
        Shape::GatherSpike,
    ];

    /// Whether it is about one moment. Of the others, blocks that become more are the shape itself.
    pub fn is_of_a_moment(self) -> bool {
        !matches!(self, Shape::EvalAccumulation | Shape::KvIncremental | Shape::LegacyPool | Shape::GatherSpike)
    }

    /// Its entry in the catalogue.
    pub fn id(self) -> &'static str {
        match self {
            Shape::Load => "oom-model-load",
            Shape::FirstForward => "oom-first-forward",
            Shape::FirstBackward => "oom-first-backward",
            Shape::Optimizer => "oom-optimizer-step",
            Shape::LongestBatch => "oom-longest-batch",
            Shape::EvalAccumulation => "oom-eval-accumulation",
            Shape::EvalBatch => "oom-eval-batch",
            Shape::KvIncremental => "kv-cache-incremental",
            Shape::LegacyPool => "legacy-pool-growth",
            Shape::GatherSpike => "fsdp-gather-spike",
        }
    }

    /// Puts the shape to the test.
    pub fn judge(self, facts: &Facts, check: &mut Check) {
        if by_frames::judge(self, facts, check) {
            return;
        }
        let is_first = matches!(self, Shape::Load | Shape::FirstForward | Shape::FirstBackward);
        if let Some(told) = facts.told.as_ref().filter(|_| is_first) {
            check.unless(told.has_trained(), || {
                "PyTorch's blocks show that a step of a training had been before".to_owned()
            });
        }
        match self {
            Shape::Load => training::load(facts, check),
            Shape::FirstForward => training::first_forward(facts, check),
            Shape::FirstBackward => training::first_backward(facts, check),
            Shape::Optimizer => training::optimizer(facts, check),
            Shape::LongestBatch => training::longest_batch(facts, check),
            Shape::EvalAccumulation => training::eval_accumulation(facts, check),
            Shape::EvalBatch => training::eval_batch(facts, check),
            Shape::KvIncremental => inference::kv_incremental(facts, check),
            Shape::LegacyPool => inference::legacy_pool(facts, check),
            Shape::GatherSpike => inference::gather_spike(facts, check),
        }
    }
}

/// What shapes need, for the failures that are looked at.
#[derive(Clone, Debug, Default)]
pub struct Shapes {
    failures: BTreeMap<usize, Facts>,
    /// The first failure of each device, where that was made up for: what rises can't rise any more from there on.
    begins: BTreeMap<usize, Facts>,
}

impl Shapes {
    /// Looks at the first and the last failures, and at the one that decides the verdict.
    pub fn of(replay: &Replay, thresholds: &Thresholds) -> Self {
        let listed = &replay.failures.listed;
        let decides = deciding(listed.iter().map(|oom| oom.outcome));
        let ends = (0..EACH.min(listed.len())).chain(listed.len().saturating_sub(EACH)..listed.len());
        // What was made up for by another try is an allocator's housekeeping, and ended nothing.
        let matters = |index: &usize| listed[*index].outcome != Outcome::Recovered;
        let facts = |index: usize| Some((index, Facts::of(replay, index, &listed[index], thresholds)?));
        let is_first = |index: &usize| !listed[..*index].iter().any(|oom| oom.device == listed[*index].device);
        let begins = (0..EACH.min(listed.len())).filter(|index| !matters(index)).filter(is_first);
        Shapes {
            failures: ends.chain(decides).filter(matters).filter_map(facts).collect(),
            begins: begins.filter_map(facts).collect(),
        }
    }

    /// The same with what the ways to the failed calls name, and the functions of a framework that they came inside.
    pub fn by_paths(mut self, ooms: &[OomReport]) -> Self {
        for (index, facts) in self.failures.iter_mut().chain(&mut self.begins) {
            let Some(oom) = ooms.get(*index) else { continue };
            let by = oom.purpose_by.as_deref().unwrap_or_default();
            facts.path = paths::with_purpose(paths::named(&oom.stack), oom.is_for, by);
        }
        self
    }

    /// The same with what PyTorch's blocks tell. What is captured runs later, and in no phase of its own.
    pub fn by_blocks(mut self, replay: &Replay, phases: &OfSites<'_>) -> Self {
        for (index, facts) in &mut self.failures {
            let captured = replay.tracks.around.failure(*index).and_then(|around| around.captured);
            let oom = replay.failures.listed.get(*index);
            let oom = oom.filter(|_| !captured.is_some_and(|captured| captured.is_under_way));
            facts.told = oom.and_then(|oom| OfBlocks::of(replay, oom, phases, &facts.thresholds));
        }
        self
    }

    /// The same with whether blocks that allocators tell of become more up to these failures.
    pub fn by_growth(mut self, keeps_more: impl Fn(usize) -> Option<Holds>) -> Self {
        for (index, facts) in &mut self.failures {
            facts.keeps_more_blocks = keeps_more(*index);
        }
        self
    }

    /// The failures that are looked at, by index.
    pub fn indices(&self) -> impl Iterator<Item = usize> {
        self.failures.keys().copied()
    }

    /// What is known up to the failure with this index, where it is looked at.
    pub fn failure(&self, index: usize) -> Option<&Facts> {
        self.failures.get(&index)
    }

    /// The same, and of the first failure of each device, whatever became of it.
    pub fn up_to(&self, index: usize) -> Option<&Facts> {
        self.failures.get(&index).or_else(|| self.begins.get(&index))
    }

    /// Of all failures that are looked at.
    pub fn all(&self) -> impl Iterator<Item = &Facts> {
        self.failures.values()
    }

    /// The shapes that a failure has, and those that have been refuted.
    pub fn judged(&self, index: usize) -> Vec<(Shape, Judgement)> {
        let Some(facts) = self.failure(index) else { return Vec::new() };
        let judge = |shape: Shape| {
            let mut check = Check::default();
            shape.judge(facts, &mut check);
            (shape, check.judgement())
        };
        Shape::ALL.into_iter().map(judge).filter(|(_, judgement)| *judgement != Judgement::None).collect()
    }
}
