//! PyTorch's memory snapshots: what `torch.cuda.memory._dump_snapshot()` writes. What the caching allocator holds and hands
//! out is visible only there: for the driver it is segments.
//!
//! Source: torch/csrc/cuda/Module.cpp (`THCPModule_memorySnapshot`), torch/csrc/cuda/memory_snapshot.cpp and
//! torch/cuda/memory.py of PyTorch.

mod join;
mod moments;
pub mod pickle;
mod read;
mod sums;
mod tensors;
#[cfg(test)]
mod tests;

pub use join::{Join, Piece, common_bytes, join};
pub use moments::{Moment, moments};
pub use read::{SnapshotError, read};
pub use sums::{DeviceSums, HostSums, host_sums, sums};
pub use tensors::{Origin, Tensors, tensors};

use std::sync::Arc;

use serde::Serialize;

use crate::words::clean;

/// A snapshot.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Snapshot {
    /// What the allocator took from the driver, by device and address.
    pub segments: Vec<Segment>,
    /// What its host allocator pinned, where that was recorded (`record_pinned_host_memory`).
    pub host_segments: Vec<Segment>,
    /// What it did, device by device, the oldest first; empty where no history was recorded.
    pub device_traces: Vec<Vec<Event>>,
    /// Its options, as `name: value`.
    pub allocator_settings: Vec<(String, String)>,
    /// Annotations that the program made: name, stage and time in microseconds.
    pub annotations: Vec<Annotation>,
    /// Frames that stacks consist of.
    #[serde(skip)]
    pub frames: Vec<Frame>,
    /// Stacks, the innermost frame first; numbers of [`Snapshot::frames`]. The first is empty.
    #[serde(skip)]
    pub stacks: Vec<Vec<u32>>,
}

/// Number of a stack in [`Snapshot::stacks`].
pub type StackId = u32;

/// A frame of a stack.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Frame {
    /// Function.
    pub name: Arc<str>,
    /// File.
    pub file: Arc<str>,
    /// Line, or an address in a library.
    pub line: u64,
}

impl Frame {
    /// Function, file and line, as a report names them.
    pub fn place(&self) -> String {
        format!("{} ({}:{})", clean(&self.name), clean(&self.file), self.line)
    }

    /// Whether it is of C++: a history with the stacks of all languages begins in PyTorch's own unwinder, and its lines are addresses.
    pub fn is_native(&self) -> bool {
        let ends = [".cpp", ".cc", ".h", ".cu", ".c", "??"];
        self.name.contains("::") || self.file.contains(".so") || ends.iter().any(|end| self.file.ends_with(end))
    }
}

/// A stretch that the allocator took from the driver.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Segment {
    /// Device number.
    pub device: u32,
    /// First address.
    pub address: u64,
    /// Bytes.
    pub total_bytes: u64,
    /// Bytes that tensors hold.
    pub allocated_bytes: u64,
    /// The same with blocks whose free waits for another stream.
    pub active_bytes: u64,
    /// What the program asked for; older snapshots do not say.
    pub requested_bytes: Option<u64>,
    /// Stream.
    pub stream: u64,
    /// `small` or `large`.
    pub small: bool,
    /// Whether it is a part of an expandable segment.
    pub expandable: bool,
    /// Private pool; (0, 0) is none.
    pub pool: (u64, u64),
    /// Its blocks, by address.
    pub blocks: Vec<Block>,
    /// Where it was taken.
    #[serde(skip)]
    pub stack: StackId,
}

/// What a block is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// A tensor's.
    ActiveAllocated,
    /// Freed, and waits for work on another stream.
    ActivePendingFree,
    /// Free within its segment.
    Inactive,
    /// A word that later versions may have.
    Unknown,
}

/// A part of a segment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Block {
    /// First address.
    pub address: u64,
    /// Bytes.
    pub size_bytes: u64,
    /// What the program asked for; older snapshots do not say.
    pub requested_bytes: Option<u64>,
    /// What it is.
    pub state: State,
    /// Where it was allocated.
    #[serde(skip)]
    pub stack: StackId,
}

/// What the allocator did.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Action {
    /// Gave a block.
    Alloc,
    /// Was asked to free one.
    FreeRequested,
    /// Freed it.
    FreeCompleted,
    /// Took a segment from the driver.
    SegmentAlloc,
    /// Gave one back.
    SegmentFree,
    /// Mapped memory into an expandable segment.
    SegmentMap,
    /// Unmapped some.
    SegmentUnmap,
    /// A snapshot was taken.
    Snapshot,
    /// Ran out of memory.
    Oom,
    /// A word that later versions may have.
    Unknown,
}

/// One entry of the allocator's history.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Event {
    /// What it did.
    pub action: Action,
    /// Address; for [`Action::Oom`] what the driver called free.
    pub address_or_free_bytes: u64,
    /// Bytes.
    pub size_bytes: u64,
    /// Stream.
    pub stream: u64,
    /// Microseconds since 1970; 0 in older snapshots.
    pub time_us: u64,
    /// Private pool; (0, 0) is none. Older snapshots do not say.
    pub pool: (u64, u64),
    /// Where.
    #[serde(skip)]
    pub stack: StackId,
}

/// A mark that the program or the profiler set.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Annotation {
    /// Device number.
    pub device: u32,
    /// Microseconds since 1970.
    pub time_us: u64,
    /// `START`, `END`, or what the program wrote.
    pub stage: String,
    /// Name.
    pub name: String,
}

impl Segment {
    /// The address behind it.
    pub fn end(&self) -> u64 {
        self.address.saturating_add(self.total_bytes)
    }

    /// Whether it belongs to a private pool.
    pub fn is_private(&self) -> bool {
        self.pool != (0, 0)
    }
}
