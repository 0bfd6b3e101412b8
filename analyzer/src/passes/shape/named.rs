//! What names the things that a shape is about: a label of the program, or a function on the way to the call. Sizes and times name nothing.

use super::MARKS;
use super::facts::Facts;
use super::labels;
use super::paths::{Named, Thing};
use crate::judgement::check::{Check, Confidence};
use crate::passes::phase::Phase;

/// What names a thing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Said {
    text: String,
    by: By,
}

/// Who names it, the surest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum By {
    /// A function of a framework that does nothing else.
    Framework,
    /// A function that any program may call so.
    OwnFunction,
    /// A label of the program.
    Label,
}

impl Said {
    /// Whether no more than a label of the program names it.
    pub fn is_by_label(&self) -> bool {
        self.by == By::Label
    }

    /// Counts it. A label says what began, and never what has ended since, and a program's own function may do something else
    /// than its name says elsewhere: by these alone nothing is proven.
    pub fn count(self, check: &mut Check) {
        check.must(true, || self.text);
        let open = match self.by {
            By::Framework => return,
            By::OwnFunction => OWN_WORD,
            By::Label => STILL,
        };
        check.at_most(Confidence::Probable);
        check.would_settle(open);
    }
}

/// What the name of a program's own function leaves open.
const OWN_WORD: &str = "what that function does: it is of no framework that is known, and only its name speaks";
/// What a label leaves open.
const STILL: &str = "whether that was still under way when the call failed: a function on the way to it that names it (--symbols, where names are missing)";

impl Facts {
    /// What says that the failed call belongs to a phase.
    pub fn says(&self, phase: Phase) -> Option<Said> {
        let by_path = self.said_by_path(Thing::Phase(phase));
        // A forward pass comes in everything else, too.
        let outer = [Phase::Backward, Phase::Optimizer, Phase::Evaluation, Phase::Load].map(Thing::Phase);
        let is_inner = phase == Phase::Forward && self.path.iter().any(|named| outer.contains(&named.thing));
        by_path.filter(|_| !is_inner).or_else(|| self.says_by(|label| Phase::of(label) == Some(phase)))
    }

    /// What says that it belongs to a thing that only call paths name, or labels that fit.
    pub fn says_that(&self, thing: Thing, fits: impl Fn(&str) -> bool) -> Option<Said> {
        self.said_by_path(thing).or_else(|| self.says_by(fits))
    }

    /// What says that batches are worked on.
    pub fn says_batch(&self) -> Option<Said> {
        // What the optimizer takes is the same for every batch.
        let training = [Phase::Forward, Phase::Backward];
        let by_phase = training.into_iter().filter_map(|phase| self.says(phase));
        by_phase.chain(self.says_by(labels::names_a_batch)).min_by_key(|said| said.by)
    }

    /// What says that a cache of keys and values grows.
    pub fn says_tokens(&self) -> Option<Said> {
        self.says_that(Thing::KvCache, |label| labels::names_tokens(label) || labels::names_the_cache(label))
    }

    /// What the way to the call names.
    pub fn on_path(&self, thing: Thing) -> Option<String> {
        let named = self.path.iter().find(|named| named.thing == thing);
        named.map(|Named { function, .. }| format!("the call comes from {function}"))
    }

    /// The same, where it is a framework's own function: what a label says does not count against that.
    pub fn on_frameworks_path(&self, thing: Thing) -> Option<String> {
        let is_named = self.path.iter().any(|named| named.thing == thing && named.is_frameworks);
        self.on_path(thing).filter(|_| is_named)
    }

    fn said_by_path(&self, thing: Thing) -> Option<Said> {
        let named = self.path.iter().find(|named| named.thing == thing)?;
        let by = if named.is_frameworks { By::Framework } else { By::OwnFunction };
        Some(Said { text: self.on_path(thing)?, by })
    }

    fn says_by(&self, fits: impl Fn(&str) -> bool) -> Option<Said> {
        let mark = self.marked.as_ref().filter(|mark| mark.thread == self.thread && fits(&mark.label))?;
        Some(Said { text: format!("the program's last label is \"{}\"", mark.label), by: By::Label })
    }
}

/// What must name the thing that a diagnosis is about; without it, the diagnosis is a guess.
pub(super) fn must_be_named(named: Option<Said>, check: &mut Check) {
    match named {
        Some(said) => said.count(check),
        None => check.guess(MARKS),
    }
}
