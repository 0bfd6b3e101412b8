//! Blocks that lived before the history began: the history goes back from the end.

use std::collections::BTreeMap;

use super::allocator::Owner;
use crate::evidence::torch_snapshot::{Action, Event, Snapshot, State};

/// A block that lived when the history began.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Lived {
    /// First address.
    pub(super) address: u64,
    /// Bytes that were asked for.
    pub(super) requested_bytes: u64,
    /// Stream.
    pub(super) stream: u64,
    /// Pool.
    pub(super) pool: Owner,
}

/// What lives at the end, less what was taken since, and what was freed since.
pub(super) fn blocks_before(snapshot: &Snapshot, device: u32, events: &[Event]) -> Vec<Lived> {
    let mut live: BTreeMap<u64, Lived> = BTreeMap::new();
    for segment in snapshot.segments.iter().filter(|segment| segment.device == device) {
        for block in segment.blocks.iter().filter(|block| block.state != State::Inactive) {
            let requested_bytes = block.requested_bytes.unwrap_or(block.size_bytes);
            let (address, stream, pool) = (block.address, segment.stream, segment.pool);
            live.insert(address, Lived { address, requested_bytes, stream, pool });
        }
    }
    for event in events.iter().rev() {
        let Event { address_or_free_bytes: address, size_bytes: requested_bytes, stream, pool, .. } = *event;
        match event.action {
            Action::Alloc => {
                live.remove(&address);
            }
            Action::FreeRequested | Action::FreeCompleted => {
                live.insert(address, Lived { address, requested_bytes, stream, pool });
            }
            _ => {}
        }
    }
    live.into_values().collect()
}
