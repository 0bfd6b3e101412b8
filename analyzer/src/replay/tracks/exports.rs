//! Memory that other processes may open, and what becomes of it when the program frees it.

use rustc_hash::FxHashMap;

use super::key;
use crate::replay::block::Block;

/// Blocks that are followed.
const MOST_BLOCKS: usize = 1 << 16;

/// Exported memory.
#[derive(Clone, Debug, Default)]
pub struct Exports {
    /// Exports that succeeded.
    pub calls: u64,
    /// Exports of memory that the trace does not know, and of whole pools, whose blocks are none of their own.
    pub unmatched: u64,
    /// Bytes of the blocks that were exported, each block once.
    pub exported_bytes: u64,
    /// Bytes of those that were freed since.
    pub freed_bytes: u64,
    live: FxHashMap<super::Key, u64>,
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

    /// The program gave a block back; the bytes of it if it was exported.
    #[inline]
    pub(super) fn returned(&mut self, block: &Block) -> Option<u64> {
        if self.live.is_empty() {
            return None;
        }
        let bytes = self.live.remove(&key(block))?;
        self.freed_bytes = self.freed_bytes.saturating_add(bytes);
        Some(bytes)
    }
}
