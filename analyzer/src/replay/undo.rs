//! Frees are recorded before their calls; this remembers how to undo the last of each thread, should its call fail.

use gpuoom_trace::record::Record;

use super::block::Block;
use super::objects::Gone;
use super::vmm::{Released, Reset, Unmapped};

/// Threads that are remembered at once. Two threads in the same slot displace each other, which matters only between a
/// free and the return of its call.
const SLOTS: usize = 1024;

/// What a free took away.
#[derive(Clone, Debug, Default)]
pub(super) enum Undo {
    /// Nothing to undo.
    #[default]
    Nothing,
    /// A free of an address that was not known.
    Unmatched,
    /// A block.
    Block(Block),
    /// An object of NVIDIA's resource manager, with what went with it.
    Objects(Vec<Gone>),
    /// Memory that was pinned more than once, and is pinned still.
    Pin(Block),
    /// A reserved range or imported memory, which are on no account.
    Uncounted(Block),
    /// The blocks that went with a context, and the device whose primary context lost a reference (0xFF: none).
    Context(u8, Vec<Block>),
    /// A released handle.
    Release(Released),
    /// Mappings and the memory that was gone with them.
    Unmap(Box<Unmapped>),
    /// All memory of a device: blocks, and physical memory with its handles and mappings.
    Reset(Vec<Block>, Box<Reset>),
}

#[derive(Clone, Debug, Default)]
struct Slot {
    thread: u32,
    call: u32,
    /// Ticks when it was recorded, which is before it was made.
    at: u64,
    undo: Undo,
}

/// The last free of each thread.
#[derive(Clone, Debug)]
pub(super) struct LastFrees {
    slots: Vec<Slot>,
    latest_at: u64,
}

impl Default for LastFrees {
    fn default() -> Self {
        LastFrees { slots: vec![Slot::default(); SLOTS], latest_at: 0 }
    }
}

impl LastFrees {
    /// Remembers how to undo a call.
    #[inline]
    pub(super) fn remember(&mut self, record: &Record, undo: Undo) {
        let (thread, call, at) = (record.thread, record.call, record.at);
        self.latest_at = self.latest_at.max(at);
        self.slots[thread as usize % SLOTS] = Slot { thread, call, at, undo };
    }

    /// The blocks that other threads than `thread` gave back last, and only after a moment. Of each thread one is known.
    pub(super) fn after(&self, moment: u64, thread: u32) -> Vec<Block> {
        if self.latest_at <= moment {
            return Vec::new();
        }
        let is_later = |slot: &&Slot| slot.at > moment && slot.thread != thread;
        let block = |slot: &Slot| if let Undo::Block(block) = &slot.undo { Some(*block) } else { None };
        self.slots.iter().filter(is_later).filter_map(block).collect()
    }

    /// Whether the last free of a thread took the block at this address.
    pub(super) fn took(&self, thread: u32, address: u64) -> bool {
        let slot = &self.slots[thread as usize % SLOTS];
        slot.thread == thread && matches!(&slot.undo, Undo::Block(block) if block.address == address)
    }

    /// How to undo a call, once.
    pub(super) fn take(&mut self, thread: u32, call: u32) -> Option<Undo> {
        let slot = &mut self.slots[thread as usize % SLOTS];
        (slot.thread == thread && slot.call == call).then(|| std::mem::take(&mut slot.undo))
    }
}

#[cfg(test)]
mod tests {
    use gpuoom_trace::record::{Event, Kind, Record};

    use crate::replay::failures::Oom;
    use crate::replay::{Options, Replay};
    use crate::testing::{self, GIB, THREAD, TraceBuilder};

    const BLOCK: u64 = 0x10_0000_0000;
    const OTHER: u32 = THREAD + 1;

    /// A block of another thread's, its free so many ticks after the refused call began, which took ten, and then the refusal's record.
    fn freed_after(ticks: u64) -> (Replay, Oom) {
        let mut trace = TraceBuilder::default().device(0, "card", 8 * GIB);
        trace.alloc_kind(Kind::Device, "hipMalloc", BLOCK, 4 * GIB);
        let refusal = trace.record_on(THREAD, Event::Alloc, Kind::Device, "hipMalloc");
        let free = trace.record_on(OTHER, Event::Free, Kind::Device, "hipFree");
        trace.push(Record { address: BLOCK, at: refusal.at + ticks, ..free }, &[]);
        trace.push(Record { status: 2, requested: 5 * GIB, duration: 10, ..refusal }, &[]);
        let replay = testing::replay(&trace, Options::default());
        let oom = replay.failures.listed[0].clone();
        (replay, oom)
    }

    #[test]
    fn what_was_given_back_after_a_refusal_was_held_then() {
        let (replay, oom) = freed_after(11);
        assert_eq!((oom.held.requested_bytes, oom.held.blocks), (u128::from(4 * GIB), 1));
        assert_eq!(oom.returning_bytes, 0, "nobody doubts that");
        assert_eq!(oom.census.unwrap().own.len(), 1, "who held it is told");
        let account = replay.accounts.device(0).unwrap();
        assert_eq!((account.held.blocks, account.calls.frees, replay.live.count()), (0, 1, 0), "it is gone afterwards");
        assert_eq!(account.peak.held.requested_bytes, u128::from(4 * GIB));
    }

    #[test]
    fn what_was_given_back_meanwhile_may_have_been_held() {
        let (_, oom) = freed_after(5);
        assert_eq!((oom.held.requested_bytes, oom.returning_bytes), (0, 4 * GIB));
    }
}
