//! What an evaluation asks a model's lines for, beside what the training asked the same lines for: what tells a larger batch.

use rustc_hash::FxHashMap;

use crate::passes::phase::Phase;
use crate::passes::phase::sites::OfSites;
use crate::replay::blocks::Came;

/// Lines of a model that forward passes of the training and the evaluation that failed went through.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Beside {
    /// How many.
    pub lines: u64,
    /// Of them those at which the evaluation was given a larger block than the training ever was.
    pub larger: u64,
}

impl Beside {
    /// `came`: all blocks with their phases. `last_backward`: ordinal of the last block of a backward pass, behind which the evaluation
    /// lies. `larger_share`: by how much of it a block must be larger. The request that failed does not count: it is what is to be explained.
    pub(super) fn of(
        came: &[(Option<Phase>, Came)],
        last_backward: Option<u64>,
        phases: &OfSites<'_>,
        larger_share: f64,
    ) -> Self {
        let Some(last) = last_backward else { return Beside::default() };
        // Native functions differ with and without gradients.
        let line = |site: u32| phases.in_model(site).map(|place| place.lines);
        let is_trainings =
            |phase: &Option<Phase>, came: &Came| *phase == Some(Phase::Forward) && !phases.is_of_evaluation(came.site);
        let of_training = came.iter().filter(|(phase, came)| is_trainings(phase, came));
        let trained = most(of_training.filter_map(|(_, came)| Some((line(came.site)?, came.largest_until(last)?))));
        // What came before the last backward pass is of an earlier evaluation.
        let is_evaluations = |came: &&Came| phases.is_of_evaluation(came.site) && came.largest_at > last;
        let of_evaluation = came.iter().map(|(_, came)| came).filter(is_evaluations);
        let evaluated = most(of_evaluation.filter_map(|came| Some((line(came.site)?, came.largest_bytes))));
        let both = evaluated.iter().filter_map(|(line, bytes)| Some((*bytes, *trained.get(line)?)));
        let is_larger = |bytes: u64, before: u64| bytes as f64 > (1.0 + larger_share) * before as f64;
        both.fold(Beside::default(), |Beside { lines, larger }, (bytes, before)| Beside {
            lines: lines + 1,
            larger: larger + u64::from(is_larger(bytes, before)),
        })
    }
}

/// The largest block of each line.
fn most(blocks: impl Iterator<Item = (u64, u64)>) -> FxHashMap<u64, u64> {
    let mut all: FxHashMap<u64, u64> = FxHashMap::default();
    for (line, bytes) in blocks {
        let known = all.entry(line).or_default();
        *known = bytes.max(*known);
    }
    all
}
