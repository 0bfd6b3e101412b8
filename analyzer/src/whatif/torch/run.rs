//! A history under other settings or on another card.

use rustc_hash::FxHashMap;

use super::allocator::{Allocator, Sums};
use super::blocks::BlockId;
use super::driver::Card;
use super::policy::Policy;
use super::steps::{History, Step};

/// What came of a history.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    /// What the allocator held.
    pub sums: Sums,
    /// Whether each recorded failure remains.
    pub remains: Vec<bool>,
    /// Recorded successes that fail here.
    pub new_failures: u64,
    /// The first request (counted from 1) with another outcome than in the recorded run.
    pub first_change: Option<u64>,
}

/// Where a history runs.
#[derive(Clone, Copy, Debug)]
pub struct Stage<'a> {
    /// The settings.
    pub policy: &'a Policy,
    /// What the allocator can have of the card.
    pub usable_bytes: u64,
    /// The card.
    pub card_bytes: u64,
    /// What is asked for.
    pub asks: Asks,
}

/// What is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Asks {
    /// The known size, rounded up by the policy.
    Known,
    /// The known size, which the same policy gave in the recorded run.
    Given,
    /// The least that may have been asked for.
    Least,
}

/// Runs a history. `holds` says that what was refused in the recorded run and is given here is held to the end.
pub fn run(history: &History, stage: Stage<'_>, holds: bool) -> Outcome {
    let Stage { policy, usable_bytes, card_bytes, asks } = stage;
    let mut model = Allocator::new(policy.clone(), Card::new(usable_bytes).reserving(history.reserves), card_bytes);
    model.rounds = asks != Asks::Given;
    let mut blocks: FxHashMap<u64, BlockId> = FxHashMap::default();
    let mut outcome = Outcome::default();
    let mut requests = 0;
    for step in history.before.iter().chain(&history.steps) {
        let mut changed = false;
        requests += u64::from(matches!(step, Step::Take { .. } | Step::Refused { .. }));
        match *step {
            Step::Take { key, requested, least, stream, owner } => {
                match model.allocate(if asks == Asks::Least { least } else { requested }, stream, owner) {
                    Some(id) => {
                        blocks.insert(key, id);
                    }
                    None => {
                        changed = true;
                        outcome.new_failures += 1;
                    }
                }
            }
            Step::Free { key, waits } => {
                if let Some(id) = if waits { blocks.get(&key).copied() } else { blocks.remove(&key) } {
                    model.free(id, waits.then_some(key));
                }
            }
            Step::Completed { key } => {
                if let Some(id) = blocks.remove(&key) {
                    model.completed(id, key);
                }
            }
            Step::Refused { requested, stream, owner, .. } => {
                let given = model.allocate(requested, stream, owner);
                changed = given.is_some();
                outcome.remains.push(given.is_none());
                if let Some(id) = given.filter(|_| !holds) {
                    model.free(id, None);
                }
            }
            Step::EmptyCache => model.release_cached(),
            Step::Freeable(owner) => model.is_freeable(owner),
        }
        if changed {
            outcome.first_change.get_or_insert(requests);
        }
    }
    outcome.sums = model.sums;
    outcome
}
