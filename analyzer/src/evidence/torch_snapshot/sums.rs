//! What a snapshot holds, per device.

use serde::Serialize;

use super::{Action, Snapshot, State};

/// Sums over the segments of one device.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct DeviceSums {
    /// Device number.
    pub device: u32,
    /// Segments.
    pub segments: u64,
    /// Bytes in segments.
    pub reserved_bytes: u64,
    /// Bytes that tensors hold.
    pub allocated_bytes: u64,
    /// Bytes that were freed and wait for work on another stream.
    pub pending_free_bytes: u64,
    /// Bytes in segments that nothing uses.
    pub unallocated_bytes: u64,
    /// Of that, bytes beside a block that is in use: the segment can't be given back to the driver.
    pub stranded_bytes: u64,
    /// The largest free block.
    pub largest_free_block_bytes: u64,
    /// Bytes in segments of private pools (CUDA graphs).
    pub private_bytes: u64,
    /// Bytes in expandable segments.
    pub expandable_bytes: u64,
    /// Entries of the history.
    pub events: u64,
    /// Out-of-memory errors in the history.
    pub ooms: u64,
}

/// What PyTorch's host allocator keeps pinned.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct HostSums {
    /// Blocks.
    pub blocks: u64,
    /// Bytes in blocks.
    pub reserved_bytes: u64,
    /// Bytes of blocks that tensors hold.
    pub allocated_bytes: u64,
    /// Bytes of blocks that it keeps for the next tensor.
    pub unused_bytes: u64,
}

/// Sums of what the host allocator pinned; `None` where the snapshot has nothing of it.
pub fn host_sums(snapshot: &Snapshot) -> Option<HostSums> {
    let mut sums = HostSums::default();
    for segment in &snapshot.host_segments {
        let used = segment.active_bytes.max(segment.allocated_bytes).min(segment.total_bytes);
        sums.blocks += 1;
        sums.reserved_bytes = sums.reserved_bytes.saturating_add(segment.total_bytes);
        sums.allocated_bytes = sums.allocated_bytes.saturating_add(used);
    }
    sums.unused_bytes = sums.reserved_bytes - sums.allocated_bytes;
    (sums.blocks > 0).then_some(sums)
}

/// Sums of all devices that the snapshot has anything of.
pub fn sums(snapshot: &Snapshot) -> Vec<DeviceSums> {
    let mut all: Vec<DeviceSums> = Vec::new();
    for segment in &snapshot.segments {
        // They are sorted by device.
        if all.last().is_none_or(|last| last.device != segment.device) {
            all.push(DeviceSums { device: segment.device, ..DeviceSums::default() });
        }
        let Some(sums) = all.last_mut() else { continue };
        let of = |state: State| {
            let blocks = segment.blocks.iter().filter(|block| block.state == state);
            blocks.fold(0, |sum: u64, block| sum.saturating_add(block.size_bytes))
        };
        let free = segment.blocks.iter().filter(|block| block.state == State::Inactive);
        let pending = of(State::ActivePendingFree);
        let unused = segment.total_bytes.saturating_sub(segment.active_bytes.max(segment.allocated_bytes));
        sums.segments += 1;
        for (sum, bytes) in [
            (&mut sums.reserved_bytes, segment.total_bytes),
            (&mut sums.allocated_bytes, segment.allocated_bytes),
            (&mut sums.pending_free_bytes, pending),
            (&mut sums.unallocated_bytes, unused),
            (&mut sums.stranded_bytes, if unused < segment.total_bytes { unused } else { 0 }),
            (&mut sums.private_bytes, if segment.is_private() { segment.total_bytes } else { 0 }),
            (&mut sums.expandable_bytes, if segment.expandable { segment.total_bytes } else { 0 }),
        ] {
            *sum = sum.saturating_add(bytes);
        }
        let largest = free.map(|block| block.size_bytes).max().unwrap_or(0);
        sums.largest_free_block_bytes = sums.largest_free_block_bytes.max(largest);
    }
    for (device, events) in snapshot.device_traces.iter().enumerate().filter(|(_, events)| !events.is_empty()) {
        let device = device as u32;
        let at = all.iter().position(|sums| sums.device == device).unwrap_or_else(|| {
            all.push(DeviceSums { device, ..DeviceSums::default() });
            all.len() - 1
        });
        all[at].events = events.len() as u64;
        all[at].ooms = events.iter().filter(|event| event.action == Action::Oom).count() as u64;
    }
    all.sort_by_key(|sums| sums.device);
    all
}
