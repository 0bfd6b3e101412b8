//! One world: a card of a given size and granule that lives through the recorded calls.
//!
//! A request is refused where what is held, rounded up to granules, would be more than the card has. That is the rule of
//! the recorder's virtual card; where on the card a block lies plays no part, because drivers scatter blocks.

use gpuoom_trace::record::Kind;
use rustc_hash::FxHashSet;

use crate::replay::block::Block;

/// Blocks that a world refused and that are remembered. A world that refused more has left the recorded run far behind.
const MAX_REFUSED: usize = 1 << 20;

/// What becomes of memory that was refused in the recorded run and is given here: nobody knows how long it would have
/// lived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lifetime {
    /// Given back at once.
    None,
    /// Held to the end.
    Whole,
}

/// A card and what it holds.
#[derive(Clone, Debug)]
pub struct World {
    usable_bytes: u64,
    granularity_bytes: u64,
    lifetime: Lifetime,
    held_bytes: u128,
    asked_bytes: u128,
    refused: FxHashSet<(u64, u64)>,
    /// What of the card is left where pools keep what was given back to them; `None` where that is not counted.
    usable_with_kept_bytes: Option<u64>,
    kept_bytes: u128,
    /// Recorded successes that this world refuses.
    pub refusals: u64,
    /// Most bytes that were held, in granules, a request that was freed at once among them.
    pub peak_bytes: u128,
    /// The same with what pools may keep beside.
    pub peak_with_kept_bytes: u128,
    /// Most bytes that were asked for and held.
    pub peak_asked_bytes: u128,
}

impl World {
    /// An empty card, of which so many bytes can be used.
    pub fn new(usable_bytes: u64, granularity_bytes: u64, lifetime: Lifetime) -> Self {
        World {
            usable_bytes,
            granularity_bytes: granularity_bytes.max(1),
            lifetime,
            held_bytes: 0,
            asked_bytes: 0,
            refused: FxHashSet::default(),
            usable_with_kept_bytes: None,
            kept_bytes: 0,
            refusals: 0,
            peak_bytes: 0,
            peak_with_kept_bytes: 0,
            peak_asked_bytes: 0,
        }
    }

    /// A card on which pools keep what was given back to them: so much can be used by them and by blocks.
    pub fn with_pools(self, usable_bytes: u64) -> Self {
        World { usable_with_kept_bytes: Some(usable_bytes), ..self }
    }

    /// The recorded run shows that pools kept no more than this.
    pub fn kept_at_most(&mut self, bytes: u64) {
        self.kept_bytes = self.kept_bytes.min(u128::from(bytes));
    }

    fn padded(&self, bytes: u64) -> u128 {
        u128::from(bytes.div_ceil(self.granularity_bytes)) * u128::from(self.granularity_bytes)
    }

    fn fits(&self, bytes: u64, kind: Kind) -> bool {
        let padded = self.padded(bytes);
        let held = self.held_bytes.saturating_add(padded);
        let with_kept = held.saturating_add(self.kept_beside(padded, kind));
        held <= u128::from(self.usable_bytes)
            && self.usable_with_kept_bytes.is_none_or(|usable| with_kept <= u128::from(usable))
    }

    /// What pools keep beside a block: one of theirs is taken from it.
    fn kept_beside(&self, padded: u128, kind: Kind) -> u128 {
        if kind == Kind::Pool { self.kept_bytes.saturating_sub(padded) } else { self.kept_bytes }
    }

    fn hold(&mut self, bytes: u64) {
        self.held_bytes = self.held_bytes.saturating_add(self.padded(bytes));
        self.asked_bytes = self.asked_bytes.saturating_add(u128::from(bytes));
        self.peak_bytes = self.peak_bytes.max(self.held_bytes);
        self.peak_with_kept_bytes = self.peak_with_kept_bytes.max(self.held_bytes.saturating_add(self.kept_bytes));
        self.peak_asked_bytes = self.peak_asked_bytes.max(self.asked_bytes);
    }

    fn drop(&mut self, bytes: u64) {
        self.held_bytes = self.held_bytes.saturating_sub(self.padded(bytes));
        self.asked_bytes = self.asked_bytes.saturating_sub(u128::from(bytes));
    }

    /// A recorded success. Answers whether this world refuses it: then it goes on without that block.
    pub fn comes(&mut self, block: &Block) -> bool {
        if self.fits(block.requested_bytes, block.kind) {
            self.must_take(block);
            return false;
        }
        self.refusals += 1;
        if self.refused.len() < MAX_REFUSED {
            self.refused.insert((block.entered, block.address));
        }
        true
    }

    /// A recorded success that this world can't refuse, whatever is not known of it.
    pub fn must_take(&mut self, block: &Block) {
        self.kept_bytes = self.kept_beside(self.padded(block.requested_bytes), block.kind);
        self.hold(block.requested_bytes);
    }

    /// A recorded free.
    pub fn goes(&mut self, block: &Block) {
        if !self.refused.remove(&(block.entered, block.address)) {
            self.drop(block.requested_bytes);
            if block.kind == Kind::Pool && self.usable_with_kept_bytes.is_some() {
                self.kept_bytes = self.kept_bytes.saturating_add(self.padded(block.requested_bytes));
            }
        }
    }

    /// A recorded failure. Answers whether this world refuses it too. `asked_again` says that the program later got the
    /// same memory by asking again: then it is not held twice.
    pub fn failed(&mut self, requested_bytes: u64, kind: Kind, asked_again: bool) -> bool {
        if !self.fits(requested_bytes, kind) {
            return true;
        }
        self.hold(requested_bytes);
        if self.lifetime == Lifetime::None || asked_again {
            self.drop(requested_bytes);
        }
        false
    }
}
