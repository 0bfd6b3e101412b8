//! What each caller asked for over a whole run: memory that grows with the number of callers, not with their calls.

use rustc_hash::FxHashMap;

use super::block::Block;
use super::held::Caller;

/// What one caller asked for on one account.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Asked {
    /// Calls that gave memory.
    pub allocations: u64,
    /// Bytes that they asked for, all together.
    pub requested_bytes: u128,
    /// Calls that were refused, for whatever reason.
    pub failures: u64,
}

/// All callers of an account.
#[derive(Clone, Debug, Default)]
pub struct Tally {
    callers: FxHashMap<Caller, Asked>,
}

impl Tally {
    /// A caller was given a block.
    #[inline]
    pub fn given(&mut self, block: &Block) {
        let asked = self.callers.entry(Caller::of(block)).or_default();
        asked.allocations += 1;
        asked.requested_bytes += u128::from(block.requested_bytes);
    }

    /// A caller was refused.
    pub fn refused(&mut self, caller: Caller) {
        self.callers.entry(caller).or_default().failures += 1;
    }

    /// A refusal of a caller is counted as a part of another one.
    pub fn not_refused(&mut self, caller: Caller) {
        let asked = self.callers.entry(caller).or_default();
        asked.failures = asked.failures.saturating_sub(1);
    }

    /// The callers, in no order.
    pub fn callers(&self) -> impl Iterator<Item = (&Caller, &Asked)> {
        self.callers.iter()
    }
}
