//! Blocks in numbers: how many, of how many bytes, and who asked for them.

use gpuoom_trace::record::{Kind, Layer};

use super::block::Block;

/// Blocks and bytes of one sort.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Held {
    /// Number of blocks.
    pub blocks: u64,
    /// Sum of the bytes asked for. Wide enough that no file can make it overflow.
    pub requested_bytes: u128,
    /// Sum of the granules.
    pub granules: u64,
}

impl Held {
    /// Counts a block.
    #[inline]
    pub fn add(&mut self, block: &Block) {
        self.blocks += 1;
        self.requested_bytes += u128::from(block.requested_bytes);
        self.granules += u64::from(block.granules);
    }

    /// Takes a block away again.
    #[inline]
    pub(super) fn remove(&mut self, block: &Block) {
        self.blocks -= 1;
        self.requested_bytes -= u128::from(block.requested_bytes);
        self.granules -= u64::from(block.granules);
    }
}

/// Blocks of the program that were asked for in the same way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Caller {
    /// Layer that was asked.
    pub layer: Layer,
    /// Kind of memory.
    pub kind: Kind,
    /// Function.
    pub api: u16,
    /// Call site, 0 where it is not known.
    pub site: u32,
}

impl Caller {
    /// Who asked for a block.
    #[inline]
    pub fn of(block: &Block) -> Self {
        let Block { layer, kind, api, site, .. } = *block;
        Caller { layer, kind, api, site }
    }
}
