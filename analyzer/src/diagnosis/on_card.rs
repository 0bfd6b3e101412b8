//! A failure against the memory of the card itself: what was asked of it, and whether that could fit at all.

use gpuoom_trace::record::Kind;

use super::case::Failure;
use crate::judgement::check::{Holds, Known};
use crate::passes::fragmentation::saturate;
use crate::thresholds::share;

/// The program's own requests and the one that failed, on a card that has nothing else on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Alone {
    /// They are so many bytes more than the card has. Nothing else need be known.
    Exceeds {
        /// Above the card's total.
        by_bytes: u64,
    },
    /// They would fit: rounding, the runtime or other processes decided.
    Fits {
        /// What would be left.
        spare_bytes: u64,
    },
}

impl Failure<'_> {
    /// Whether memory of the card was asked for and really refused. Managed memory may lie in RAM, and exceed the card.
    pub fn is_real_of_card(&self) -> bool {
        self.is_real_of_device() && self.oom.kind != Kind::Managed
    }

    /// Whether the program's own requests and this one would fit into the card, were nothing else there.
    pub fn alone(&self) -> Known<Alone> {
        // What another thread was given while the call was under way may have come after the refusal.
        let own = self.own_bytes().saturating_sub(self.moved.given_bytes);
        let needed = self.request_bytes().map(|request| own.saturating_add(request));
        let within = |total: u64, needed: u64| match total.checked_sub(needed) {
            Some(spare_bytes) => Alone::Fits { spare_bytes },
            None => Alone::Exceeds { by_bytes: needed - total },
        };
        // What fits into the part that the runtime has fits the card; what does not may.
        let both = needed.zip(self.total_bytes());
        let in_part = both.map(|(needed, total)| within(total, needed));
        match in_part.get() {
            Some(Alone::Exceeds { .. }) => needed.zip(self.card_bytes()).map(|(needed, card)| within(card, needed)),
            _ => in_part,
        }
    }

    /// What of the card was in use beside the program's own blocks, where that decided: it is much of the card, and without it the
    /// request would have fitted, with what a runtime usually takes. Else 0. Whose it is, is another question.
    pub fn decided_by_the_rest(&self) -> Known<u64> {
        let alone = self.alone();
        let usual = self.total_bytes().get().map_or(0, |total| self.thresholds.usual_overhead_bytes(total));
        // What others hold, by the driver's count, a runtime does not take.
        let others = self.external_bytes().zip(self.total_bytes());
        let are_much = others.is(|(others, total)| share(others, total) >= self.thresholds.others_share) == Holds::Yes;
        let least = if are_much && self.is_missing_with_others().get() == Some(true) { 0 } else { usual };
        let spare = |alone: &Alone| matches!(alone, Alone::Fits { spare_bytes } if *spare_bytes >= least);
        if alone.get().is_some_and(|alone| !spare(&alone)) {
            return Known::new(Some(0), "");
        }
        let beside = self.total_bytes().zip(self.free_bytes()).zip(alone).map(|((total, free), _)| {
            // What may lie in RAM may as well be what is in use there, and so may what other threads had begun to give back.
            let moving = saturate(self.oom.held_managed_bytes).saturating_add(self.moved.returned_bytes);
            let beside = total.saturating_sub(free).saturating_sub(self.own_bytes()).saturating_sub(moving);
            if share(beside, total) < self.thresholds.others_share { 0 } else { beside }
        });
        Known::new(beside.get(), "what is in use of the card at the failure")
    }

    /// Whether what others hold, as the driver counts it, is what was missing.
    pub fn is_missing_with_others(&self) -> Known<bool> {
        let both = self.request_bytes().zip(self.free_bytes()).zip(self.external_bytes());
        both.map(|((request, free), external)| request <= self.moved.free_at_most(free).saturating_add(external))
    }
}
