//! Frees are recorded before their calls; this remembers how to undo the last of each thread, should its call fail.

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
    undo: Undo,
}

/// The last free of each thread.
#[derive(Clone, Debug)]
pub(super) struct LastFrees {
    slots: Vec<Slot>,
}

impl Default for LastFrees {
    fn default() -> Self {
        LastFrees { slots: vec![Slot::default(); SLOTS] }
    }
}

impl LastFrees {
    /// Remembers how to undo a call.
    #[inline]
    pub(super) fn remember(&mut self, thread: u32, call: u32, undo: Undo) {
        self.slots[thread as usize % SLOTS] = Slot { thread, call, undo };
    }

    /// How to undo a call, once.
    pub(super) fn take(&mut self, thread: u32, call: u32) -> Option<Undo> {
        let slot = &mut self.slots[thread as usize % SLOTS];
        (slot.thread == thread && slot.call == call).then(|| std::mem::take(&mut slot.undo))
    }
}
