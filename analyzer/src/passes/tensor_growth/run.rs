//! What is looked at: a run, and what a step of it is.

use serde::Serialize;

use crate::passes::fragmentation::saturate;
use crate::replay::Replay;
use crate::replay::blocks::{Moment, Owner, Told};
use crate::symbols::Stacks;
use crate::thresholds::Thresholds;

/// What a step is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Cut {
    /// What lies between two labels of the program that differ in numbers alone.
    Marks,
    /// What lies between the ends of two backward passes.
    BackwardPasses,
    /// What lies between two floors of what blocks hold.
    Cycles,
}

impl Cut {
    /// One step, as a sentence has it.
    pub fn step(self) -> &'static str {
        match self {
            Cut::Marks => "label",
            Cut::BackwardPasses => "backward pass",
            Cut::Cycles => "cycle",
        }
    }

    /// Several steps.
    pub fn steps(self) -> &'static str {
        match self {
            Cut::Marks => "labels",
            Cut::BackwardPasses => "backward passes",
            Cut::Cycles => "cycles",
        }
    }
}

/// A run whose blocks are looked at.
pub struct Run<'a> {
    /// The state at its end.
    pub replay: &'a Replay,
    /// The ways to its calls.
    pub stacks: &'a Stacks<'a>,
    /// Whether no record of it is missing.
    pub is_whole: bool,
    /// The numbers by which growth is judged.
    pub thresholds: &'a Thresholds,
}

impl Run<'_> {
    /// Whether all blocks of an allocator are known: its own totals say so, and where it has none, no record may be missing.
    pub(super) fn knows_all_of(&self, told: &Told) -> bool {
        let is_of_one_mind = told.mismatches == 0 && told.unknown_frees == 0 && told.replaced == 0;
        is_of_one_mind
            && self.replay.blocks.may_be_so(told.allocator)
            && (self.is_whole || self.replay.blocks.owner(told.allocator) == Some(&Owner::Torch))
    }
}

/// Bytes of all blocks at a moment, of these call sites.
pub(super) fn held_at(moment: &Moment, is_of: impl Fn(u32) -> bool) -> u64 {
    let rows = moment.of.iter().flat_map(|of| &of.rows);
    saturate(rows.filter(|row| is_of(row.site)).map(|row| row.bytes).sum())
}
