//! Memory that other processes may open, and what becomes of it when the program frees it.

use gpuoom_trace::record::Kind;
use rustc_hash::{FxHashMap, FxHashSet};

use super::key;
use super::pools::Number;
use crate::replay::block::Block;

/// Blocks that are followed.
const MOST_BLOCKS: usize = 1 << 16;

/// Exported memory.
#[derive(Clone, Debug, Default)]
pub struct Exports {
    /// Exports that succeeded.
    pub calls: u64,
    /// Exports of memory that the trace does not know.
    pub unmatched: u64,
    /// Bytes of the blocks that were exported, each block once.
    pub exported_bytes: u64,
    /// Bytes of those that were freed since.
    pub freed_bytes: u64,
    live: FxHashMap<super::Key, u64>,
    /// Pools that were exported as a whole.
    pools: FxHashSet<Number>,
}

impl Exports {
    /// A block, or a part of it, was exported.
    pub(super) fn export(&mut self, block: Option<&Block>) {
        self.calls += 1;
        let Some(block) = block else {
            self.unmatched += 1;
            return;
        };
        if self.live.len() < MOST_BLOCKS && self.live.insert(key(block), block.requested_bytes).is_none() {
            self.exported_bytes = self.exported_bytes.saturating_add(block.requested_bytes);
        }
    }

    /// A pool was exported: others may open whatever it gives.
    pub(super) fn export_pool(&mut self, pool: Number) {
        self.calls += 1;
        self.pools.insert(pool);
    }

    /// Whether other processes may open a block because of its pool.
    pub fn is_of_exported_pool(&self, block: &Block) -> bool {
        block.pool != 0 && self.pools.contains(&block.pool)
    }

    /// The program gave a block back; the bytes of it if it was exported, and free memory should rise by them. What comes
    /// from a pool goes back to the pool, whether it was exported or not.
    #[inline]
    pub(super) fn returned(&mut self, block: &Block) -> Option<u64> {
        if self.live.is_empty() {
            return None;
        }
        let bytes = self.live.remove(&key(block)).filter(|_| block.kind != Kind::Pool)?;
        self.freed_bytes = self.freed_bytes.saturating_add(bytes);
        Some(bytes)
    }
}
