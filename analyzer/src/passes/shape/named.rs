//! What names the things that a shape is about: a label of the program, or a function on the way to the call. Sizes and times name nothing.

use super::MARKS;
use super::facts::Facts;
use super::labels::{self, Phase};
use super::paths::{Named, Thing};
use crate::judgement::check::Check;

impl Facts {
    /// What says that the failed call belongs to a phase.
    pub fn says(&self, phase: Phase) -> Option<String> {
        let by_path = self.on_path(Thing::Phase(phase));
        // A forward pass comes in everything else, too.
        let outer = [Phase::Backward, Phase::Optimizer, Phase::Evaluation, Phase::Load].map(Thing::Phase);
        let is_inner = phase == Phase::Forward && self.path.iter().any(|named| outer.contains(&named.thing));
        self.says_by(|label| Phase::of(label) == Some(phase)).or_else(|| by_path.filter(|_| !is_inner))
    }

    /// What says that it belongs to a thing that only call paths name, or labels that fit.
    pub fn says_that(&self, thing: Thing, fits: impl Fn(&str) -> bool) -> Option<String> {
        self.says_by(fits).or_else(|| self.on_path(thing))
    }

    /// What says that batches are worked on.
    pub fn says_batch(&self) -> Option<String> {
        let training = [Phase::Forward, Phase::Backward, Phase::Optimizer];
        self.says_by(labels::names_a_batch).or_else(|| training.into_iter().find_map(|phase| self.says(phase)))
    }

    /// What says that a cache of keys and values grows.
    pub fn says_tokens(&self) -> Option<String> {
        self.says_that(Thing::KvCache, |label| labels::names_tokens(label) || labels::names_the_cache(label))
    }

    /// What the way to the call names.
    pub fn on_path(&self, thing: Thing) -> Option<String> {
        let named = self.path.iter().find(|named| named.thing == thing);
        named.map(|Named { function, .. }| format!("the call comes from {function}"))
    }

    fn says_by(&self, fits: impl Fn(&str) -> bool) -> Option<String> {
        let mark = self.marked.as_ref().filter(|mark| mark.thread == self.thread && fits(&mark.label))?;
        Some(format!("the program's own label says so: \"{}\"", mark.label))
    }
}

/// What must name the thing that a diagnosis is about; without it, the diagnosis is a guess.
pub(super) fn must_be_named(named: Option<String>, check: &mut Check) {
    match named {
        Some(text) => check.must(true, || text),
        None => check.guess(MARKS),
    }
}
