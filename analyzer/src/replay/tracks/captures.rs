//! Stream captures, the graphs that come of them, and the memory that was taken meanwhile.
//!
//! PyTorch and others take memory for a captured graph from a pool of its own, which keeps it as long as the graph may run.

use rustc_hash::FxHashMap;

use super::key;
use crate::replay::block::Block;

/// Threads whose capture is followed at a time.
const MOST_OPEN: usize = 1024;
/// Blocks that are followed. What is taken beyond that is not counted as kept.
const MOST_BLOCKS: usize = 1 << 16;

/// Captures, graphs and their memory.
#[derive(Clone, Debug, Default)]
pub struct Captures {
    /// Captures that began.
    pub begun: u64,
    /// Captures that ended.
    pub ended: u64,
    /// Graphs that were made ready to launch.
    pub instantiated: u64,
    /// Of those, how many were destroyed.
    pub destroyed: u64,
    /// Bytes that threads took while they captured.
    pub taken_bytes: u64,
    /// Bytes of memory nodes that captures would have made that had become void.
    pub void_bytes: u128,
    /// Captures under way, by thread: how many, and the bytes of memory nodes that they made.
    open: FxHashMap<u32, (u32, u128)>,
    /// Blocks that were taken during a capture and live: device and bytes.
    live: FxHashMap<super::Key, (u8, u64)>,
}

/// What is the case at one moment on one device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Captured {
    /// Bytes that were taken on the device during captures and live.
    pub live_bytes: u64,
    /// Captures that ended, on any device.
    pub ended: u64,
    /// Graphs that are ready to launch and not destroyed, of any device.
    pub graphs: u64,
    /// The thread captures a stream.
    pub is_under_way: bool,
}

impl Captures {
    pub(super) fn begin(&mut self, thread: u32) {
        self.begun += 1;
        if self.open.len() < MOST_OPEN {
            self.open.entry(thread).or_default().0 += 1;
        }
    }

    pub(super) fn end(&mut self, thread: u32) {
        self.ended += 1;
        self.close(thread);
    }

    /// A capture ended without a graph. Of several on one thread nobody tells whose the nodes were: they count until the last is over.
    pub(super) fn end_void(&mut self, thread: u32) {
        self.void_bytes += self.close(thread);
    }

    /// Takes one capture of the thread away; answers the bytes of the nodes that they made where it was the last.
    fn close(&mut self, thread: u32) -> u128 {
        let Some((open, bytes)) = self.open.get_mut(&thread) else { return 0 };
        *open -= 1;
        let (open, bytes) = (*open, *bytes);
        if open > 0 {
            return 0;
        }
        self.open.remove(&thread);
        bytes
    }

    /// A memory node was made, maybe in a capture.
    pub(super) fn node(&mut self, thread: u32, bytes: u64) {
        if let Some((_, made)) = self.open.get_mut(&thread) {
            *made += u128::from(bytes);
        }
    }

    /// `failed`: an end that was counted has failed.
    pub(super) fn destroy(&mut self, failed: bool) {
        self.destroyed = if failed { self.destroyed.saturating_sub(1) } else { self.destroyed + 1 };
    }

    /// The program was given a block.
    #[inline]
    pub(super) fn given(&mut self, block: &Block, thread: u32) {
        if !self.open.is_empty() && self.open.contains_key(&thread) {
            self.taken_bytes = self.taken_bytes.saturating_add(block.requested_bytes);
            if self.live.len() < MOST_BLOCKS {
                self.live.insert(key(block), (block.device, block.requested_bytes));
            }
        }
    }

    /// The program gave a block back. Where that call then fails, the block counts as given back all the same.
    #[inline]
    pub(super) fn returned(&mut self, block: &Block) {
        if !self.live.is_empty() {
            self.live.remove(&key(block));
        }
    }

    /// Nothing of a device lives any more.
    pub(super) fn forget(&mut self, device: u8) {
        self.live.retain(|_, (of, _)| *of != device);
    }

    pub(super) fn on(&self, device: u8, thread: u32) -> Captured {
        let here = self.live.values().filter(|(of, _)| *of == device);
        Captured {
            live_bytes: here.fold(0, |sum: u64, (_, bytes)| sum.saturating_add(*bytes)),
            ended: self.ended,
            graphs: self.instantiated.saturating_sub(self.destroyed),
            is_under_way: self.open.contains_key(&thread),
        }
    }
}
