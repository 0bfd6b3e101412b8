//! What the allocator held at each out-of-memory error of its history: the history is gone back from its end, where the
//! segments are known.
//!
//! Source of what the entries mean: c10/cuda/CUDACachingAllocator.cpp of PyTorch (`record_trace`): an entry of a block has
//! the size that was asked for, one of an error has it rounded to 512 bytes, with what the driver called free as its address.

use std::collections::BTreeMap;
use std::ops::Bound::{Excluded, Unbounded};

use super::{Action, Event, Frame, Snapshot, StackId, State};
use crate::evidence::torch_message::Printed;

/// Most errors that are looked at.
const MOST_MOMENTS: usize = 256;
/// Blocks are a multiple of this.
const MIN_BLOCK: u64 = 512;
/// Requests up to here come from small segments; a rest up to here of a large segment is left in the block.
const SMALL: u64 = 1 << 20;
/// Size of a small segment.
const SMALL_SEGMENT: u64 = 2 << 20;

/// The allocator at an out-of-memory error.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Moment {
    /// Device number.
    pub device: u32,
    /// Microseconds since 1970; 0 in older snapshots.
    pub at_us: u64,
    /// What was asked for, rounded to 512 bytes.
    pub requested_bytes: u64,
    /// What the driver called free.
    pub driver_free_bytes: u64,
    /// Bytes in segments.
    pub reserved_bytes: u64,
    /// Bytes in segments that nothing used. Sizes of blocks that were freed later are known up to the rest that the
    /// allocator leaves in a block.
    pub unallocated: Printed,
    /// Bytes in segments of private pools.
    pub private_bytes: u64,
    /// Of them, bytes that nothing used.
    pub private_unused_bytes: u64,
    /// Bytes in expandable segments.
    pub expandable_bytes: u64,
    /// Of the unused bytes, those that this request may use: of its stream, its pool, and its sort of segment.
    pub usable_bytes: u64,
    /// The largest free block of these.
    pub largest_usable_bytes: u64,
    /// Where it was.
    pub stack: StackId,
}

impl Snapshot {
    /// The frames of a stack, the innermost first.
    pub fn frames_of(&self, stack: StackId) -> impl Iterator<Item = &Frame> {
        let numbers = self.stacks.get(stack as usize).map(Vec::as_slice).unwrap_or_default();
        numbers.iter().filter_map(|number| self.frames.get(*number as usize))
    }
}

/// The errors in a snapshot's history, the oldest first; of many, the last ones.
pub fn moments(snapshot: &Snapshot) -> Vec<Moment> {
    let of_device = |(device, events): (usize, &Vec<Event>)| {
        let mut found = Vec::new();
        if events.iter().any(|event| event.action == Action::Oom) {
            let device = u32::try_from(device).unwrap_or(u32::MAX);
            let mut state = Held::at_end(snapshot, device);
            for event in events.iter().rev() {
                if event.action == Action::Oom && found.len() < MOST_MOMENTS {
                    found.push(state.moment(device, event));
                }
                state.undo(event);
            }
            found.reverse();
        }
        found
    };
    snapshot.device_traces.iter().enumerate().flat_map(of_device).collect()
}

#[derive(Clone, Copy)]
struct Stretch {
    bytes: u64,
    stream: u64,
    pool: (u64, u64),
    small: bool,
    expandable: bool,
}

#[derive(Clone, Copy)]
struct Used {
    bytes: u64,
    /// Whether the size is that of the block, and not only what was asked for.
    exact: bool,
}

/// Segments and blocks in use, by address.
struct Held {
    segments: BTreeMap<u64, Stretch>,
    used: BTreeMap<u64, Used>,
}

impl Held {
    fn at_end(snapshot: &Snapshot, device: u32) -> Self {
        let mut held = Held { segments: BTreeMap::new(), used: BTreeMap::new() };
        for segment in snapshot.segments.iter().filter(|segment| segment.device == device) {
            let stretch = Stretch {
                bytes: segment.total_bytes,
                stream: segment.stream,
                pool: segment.pool,
                small: segment.small,
                expandable: segment.expandable,
            };
            held.segments.insert(segment.address, stretch);
            let in_use = segment.blocks.iter().filter(|block| block.state != State::Inactive);
            held.used.extend(in_use.map(|block| (block.address, Used { bytes: block.size_bytes, exact: true })));
        }
        held
    }

    fn undo(&mut self, event: &Event) {
        let (address, bytes) = (event.address_or_free_bytes, event.size_bytes);
        match event.action {
            Action::Alloc => _ = self.used.remove(&address),
            Action::FreeRequested | Action::FreeCompleted => {
                let bytes = bytes.max(1).checked_next_multiple_of(MIN_BLOCK).unwrap_or(bytes);
                self.used.entry(address).or_insert(Used { bytes, exact: false });
            }
            Action::SegmentAlloc | Action::SegmentMap => self.take_out(address, bytes),
            Action::SegmentFree | Action::SegmentUnmap => {
                let expandable = event.action == Action::SegmentUnmap;
                let small = bytes <= SMALL_SEGMENT;
                let stretch = Stretch { bytes, stream: event.stream, pool: event.pool, small, expandable };
                self.segments.insert(address, stretch);
            }
            _ => {}
        }
    }

    /// Takes a stretch out, which may be a part of one, or of several.
    fn take_out(&mut self, address: u64, bytes: u64) {
        let end = address.saturating_add(bytes);
        let before = self.segments.range(..=address).next_back().map(|(at, _)| *at);
        let from = before.unwrap_or(address);
        let touched: Vec<(u64, Stretch)> = self.segments.range(from..end.max(from)).map(|(at, s)| (*at, *s)).collect();
        for (at, stretch) in touched {
            let stops = at.saturating_add(stretch.bytes);
            if stops <= address {
                continue;
            }
            self.segments.remove(&at);
            if at < address {
                self.segments.insert(at, Stretch { bytes: address - at, ..stretch });
            }
            if stops > end {
                self.segments.insert(end, Stretch { bytes: stops - end, ..stretch });
            }
        }
    }

    fn moment(&self, device: u32, event: &Event) -> Moment {
        let mut moment = Moment {
            device,
            at_us: event.time_us,
            requested_bytes: event.size_bytes,
            driver_free_bytes: event.address_or_free_bytes,
            reserved_bytes: 0,
            unallocated: Printed::default(),
            private_bytes: 0,
            private_unused_bytes: 0,
            expandable_bytes: 0,
            usable_bytes: 0,
            largest_usable_bytes: 0,
            stack: event.stack,
        };
        let (mut sure, mut unsure) = (0u64, 0u64);
        for (address, segment) in &self.segments {
            let small = event.size_bytes <= SMALL;
            let is_usable = (segment.stream, segment.pool, segment.small) == (event.stream, event.pool, small);
            let add = |sum: &mut u64, bytes: u64| *sum = sum.saturating_add(bytes);
            add(&mut moment.reserved_bytes, segment.bytes);
            add(&mut moment.private_bytes, if segment.pool == (0, 0) { 0 } else { segment.bytes });
            add(&mut moment.expandable_bytes, if segment.expandable { segment.bytes } else { 0 });
            self.gaps(*address, segment, |bytes, is_sure| {
                add(if is_sure { &mut sure } else { &mut unsure }, bytes);
                if segment.pool != (0, 0) {
                    add(&mut moment.private_unused_bytes, bytes);
                }
                if is_usable {
                    add(&mut moment.usable_bytes, bytes);
                    moment.largest_usable_bytes = moment.largest_usable_bytes.max(bytes);
                }
            });
        }
        let rounding_bytes = unsure.div_ceil(2);
        moment.unallocated = Printed { bytes: sure.saturating_add(unsure / 2), rounding_bytes };
        moment
    }

    /// What is free in a segment, gap by gap, and whether that is sure: a small rest behind a block may belong to it.
    fn gaps(&self, address: u64, segment: &Stretch, mut gap: impl FnMut(u64, bool)) {
        let end = address.saturating_add(segment.bytes);
        let mut free_from = address;
        let mut exact = true;
        let mut next = self.used.range(address..end).next();
        loop {
            let until = next.map_or(end, |(at, _)| *at);
            if until > free_from {
                let bytes = until - free_from;
                gap(bytes, exact || segment.small || bytes > SMALL);
            }
            let Some((at, used)) = next else { return };
            free_from = free_from.max(at.saturating_add(used.bytes)).min(end);
            exact = used.exact;
            next = self.used.range((Excluded(*at), Unbounded)).next().filter(|(at, _)| **at < end);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Block, Segment};
    use super::*;

    const MIB: u64 = 1 << 20;

    fn block(address: u64, size_bytes: u64, state: State) -> Block {
        Block { address, size_bytes, requested_bytes: None, state, stack: 0 }
    }

    fn segment(address: u64, total_bytes: u64, blocks: Vec<Block>) -> Segment {
        Segment {
            device: 0,
            address,
            total_bytes,
            allocated_bytes: 0,
            active_bytes: 0,
            requested_bytes: None,
            stream: 0,
            small: false,
            expandable: false,
            pool: (0, 0),
            blocks,
            stack: 0,
        }
    }

    fn event(action: Action, address_or_free_bytes: u64, size_bytes: u64) -> Event {
        Event { action, address_or_free_bytes, size_bytes, stream: 0, time_us: 7, pool: (0, 0), stack: 0 }
    }

    /// After the error a tensor was freed, another taken, and a segment given back: none of that counts.
    #[test]
    fn the_state_at_the_error_is_found_from_the_end() {
        let blocks = vec![
            block(0, 10 * MIB, State::Inactive),
            block(10 * MIB, 10 * MIB, State::ActiveAllocated),
            block(20 * MIB, 20 * MIB, State::ActiveAllocated),
        ];
        let snapshot = Snapshot {
            segments: vec![segment(0, 40 * MIB, blocks)],
            device_traces: vec![vec![
                event(Action::Oom, 3 * MIB, 30 * MIB),
                event(Action::FreeRequested, 0, 9 * MIB + 1),
                event(Action::FreeCompleted, 0, 9 * MIB + 1),
                event(Action::Alloc, 20 * MIB, 20 * MIB),
                event(Action::SegmentFree, 100 * MIB, 20 * MIB),
            ]],
            ..Snapshot::default()
        };
        let found = moments(&snapshot);
        assert_eq!(found.len(), 1);
        let at = &found[0];
        assert_eq!((at.reserved_bytes, at.requested_bytes, at.driver_free_bytes), (60 * MIB, 30 * MIB, 3 * MIB));
        // 20 MiB of the segment that was given back, 20 that were taken later; of the first 10, all but 9 may be free.
        assert_eq!(at.unallocated.least(), 40 * MIB);
        assert!(at.unallocated.most() <= 41 * MIB);
        assert_eq!(at.largest_usable_bytes, 20 * MIB);
    }

    #[test]
    fn parts_of_expandable_segments_come_and_go() {
        let mut whole = segment(0, 60 * MIB, Vec::new());
        whole.expandable = true;
        let snapshot = Snapshot {
            segments: vec![whole],
            device_traces: vec![vec![
                event(Action::Oom, 0, 30 * MIB),
                event(Action::SegmentMap, 20 * MIB, 20 * MIB),
                event(Action::SegmentUnmap, 80 * MIB, 10 * MIB),
            ]],
            ..Snapshot::default()
        };
        let at = &moments(&snapshot)[0];
        assert_eq!((at.reserved_bytes, at.expandable_bytes, at.unallocated.bytes), (50 * MIB, 50 * MIB, 50 * MIB));
    }

    #[test]
    fn any_numbers_are_borne() {
        let snapshot = Snapshot {
            segments: vec![segment(u64::MAX - 5, u64::MAX, vec![block(u64::MAX, u64::MAX, State::ActiveAllocated)])],
            device_traces: vec![vec![
                event(Action::Oom, u64::MAX, u64::MAX),
                event(Action::FreeCompleted, u64::MAX, u64::MAX),
                event(Action::SegmentAlloc, 3, u64::MAX),
                event(Action::SegmentFree, u64::MAX, 0),
                event(Action::Oom, 0, 0),
            ]],
            ..Snapshot::default()
        };
        assert_eq!(moments(&snapshot).len(), 2);
    }
}
