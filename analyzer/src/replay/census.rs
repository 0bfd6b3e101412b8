//! Who held what at one moment: the blocks that lived, summed up by caller.

use std::collections::BTreeMap;

use gpuoom_trace::record::Kind;

use super::balance::Balance;
use super::block::{Block, Side};
use super::held::{Caller, Held};
use super::lower::book::LowerBlock;
use super::lower::sums::{Class, Sum, Sums};
use super::sites::Sites;

/// Who held the memory of one device, or of the host.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Census {
    /// The program's own blocks.
    pub own: Vec<(Caller, Held)>,
    /// What else was given at any layer.
    pub lower: Vec<(Class, Sum)>,
}

impl Census {
    /// Counts blocks; the lower ones as sums that were kept along the way.
    pub fn take<'a>(own: impl Iterator<Item = &'a Block>, lower: Vec<(Class, Sum)>) -> Self {
        let mut callers = BTreeMap::<Caller, Held>::new();
        for block in own {
            callers.entry(Caller::of(block)).or_default().add(block);
        }
        Census { own: callers.into_iter().collect(), lower }
    }

    /// The same without the ways to the calls: callers with one return address become one.
    pub fn by_place(self, sites: &Sites) -> Self {
        let mut callers = BTreeMap::<Caller, Held>::new();
        for (caller, held) in &self.own {
            let sum = callers.entry(Caller { site: sites.place(caller.site), ..*caller }).or_default();
            sum.blocks += held.blocks;
            sum.requested_bytes += held.requested_bytes;
            sum.granules += held.granules;
        }
        Census { own: callers.into_iter().collect(), ..self }
    }

    /// Counts blocks of both sorts.
    pub fn of_blocks<'a>(own: impl Iterator<Item = &'a Block>, lower: impl Iterator<Item = &'a LowerBlock>) -> Self {
        let mut sums = Sums::default();
        lower.for_each(|block| sums.add(block));
        Census::take(own, sums.rows().collect())
    }

    /// What lower layers hold of what the program's own calls for one kind of memory took, beyond what of it lives: rounding, and what
    /// was given back and kept.
    pub fn beyond_own(&self, kind: Kind) -> u128 {
        let mut balance = Balance::default();
        for (caller, held) in &self.own {
            balance.add_own(caller.layer, caller.kind, held.requested_bytes);
        }
        self.lower.iter().for_each(|(class, sum)| balance.add_lower(class, sum));
        let of_it = balance.overheads().filter(|overhead| overhead.asking.own && overhead.asking.kind == kind);
        of_it.map(|overhead| overhead.bytes).sum()
    }

    /// Whether nothing was held.
    pub fn is_empty(&self) -> bool {
        self.own.is_empty() && self.lower.is_empty()
    }
}

/// The blocks of one side and device among others.
pub(super) fn is_of(block: &Block, side: Side, device: u8) -> bool {
    Side::of(block.kind) == side && (side == Side::Host || block.device == device)
}
