//! The memory that blocks lie in: what calls gave, and what they mapped, by address.

use std::collections::BTreeMap;

use gpuoom_trace::record::Kind;

use super::Given;
use super::device::Device;
use crate::replay::block::{Block, Mapping};

/// Segments that are looked at for all blocks together beyond one for each. Blocks are larger than a segment only where an allocator
/// maps memory piece by piece.
const MOST_STEPS: u64 = 1 << 28;

/// Memory at an address: a block of the runtime's or driver's, or a mapped piece.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Segment {
    /// First address.
    pub address: u64,
    /// The address behind it.
    pub end: u64,
    /// Ordinal of the record that made it.
    pub entered: u64,
    /// The allocators whose blocks lie in it, or lay: a bit each.
    by: u64,
    /// Ordinal of the record since when no further allocator is among them.
    by_since: u64,
    /// Kind of memory; [`Kind::Physical`] for a mapped piece, which goes on where the next one begins.
    pub kind: Kind,
    /// Device number as recorded.
    pub device: u8,
}

impl Segment {
    fn is_of(&self, allocator: u8, device: u8) -> bool {
        self.has_blocks_of(allocator) && self.device == device
    }

    /// Whether blocks of an allocator lie in it, or lay.
    pub(super) fn has_blocks_of(&self, allocator: u8) -> bool {
        self.by & 1 << allocator != 0
    }

    /// Bytes.
    pub(super) fn bytes(&self) -> u64 {
        self.end - self.address
    }
}

/// All segments that are there.
#[derive(Clone, Debug, Default)]
pub(super) struct Segments {
    by_address: BTreeMap<u64, Segment>,
    steps: u64,
}

impl Segments {
    pub(super) fn count(&self) -> usize {
        self.by_address.len()
    }

    pub(super) fn block_comes(&mut self, block: &Block) {
        self.comes(block.address, block.requested_bytes, block.entered, block.kind, block.device);
    }

    pub(super) fn mapping_comes(&mut self, mapping: &Mapping) {
        self.comes(mapping.address, mapping.size_bytes, mapping.entered, Kind::Physical, mapping.device);
    }

    fn comes(&mut self, address: u64, bytes: u64, entered: u64, kind: Kind, device: u8) {
        let end = address.saturating_add(bytes);
        self.by_address.insert(address, Segment { address, end, entered, by: 0, by_since: 0, kind, device });
    }

    /// A segment is gone: the peak of its device may have had it.
    pub(super) fn goes(&mut self, address: u64, devices: &mut [Device]) -> Option<Segment> {
        let gone = self.by_address.remove(&address)?;
        if let Some(known) = devices.iter_mut().find(|known| known.index == gone.device) {
            known.segment_goes(&gone);
        }
        Some(gone)
    }

    /// The memory at an address.
    pub(super) fn at(&self, address: u64) -> Option<&Segment> {
        let (_, segment) = self.by_address.range(..=address).next_back()?;
        (address < segment.end).then_some(segment)
    }

    /// Whether memory reaches from the segment at an address to this end without a gap; also where looking is too much work.
    pub(super) fn reach(&mut self, first: &Segment, end: u64) -> bool {
        let mut at = first.end;
        for (_, next) in self.by_address.range(first.end..end) {
            self.steps += 1;
            if at >= end || self.steps > MOST_STEPS {
                return true;
            }
            if next.address != at || next.kind != Kind::Physical || first.kind != Kind::Physical {
                return false;
            }
            at = next.end;
        }
        at >= end
    }

    /// Notes that a block lies here. One may reach over several mapped pieces.
    #[inline]
    pub(super) fn lies_in(&mut self, given: &Given) {
        let end = given.address.saturating_add(given.size_bytes.max(1));
        let bit = 1 << given.allocator;
        for (_, segment) in self.by_address.range_mut(..end).rev() {
            if segment.end <= given.address || self.steps > MOST_STEPS {
                return;
            }
            if segment.by & bit == 0 {
                (segment.by, segment.by_since) = (segment.by | bit, given.entered);
            }
            if segment.address <= given.address {
                return;
            }
            self.steps += 1;
        }
    }

    /// The segments of an allocator on a device, by address: those that came before or at a record, and these that are gone. `None`
    /// where it is not known which they are.
    pub(super) fn of(&self, allocator: u8, device: u8, until: u64, gone: &[Segment]) -> Option<Vec<Segment>> {
        if self.steps > MOST_STEPS {
            return None;
        }
        let there = self.by_address.values().filter(|segment| segment.entered <= until);
        let mut all: Vec<Segment> =
            there.chain(gone).filter(|segment| segment.is_of(allocator, device)).copied().collect();
        // A block may have come to lie there after that.
        if all.iter().any(|segment| segment.by_since > until) {
            return None;
        }
        all.sort_by_key(|segment| (segment.address, segment.entered));
        Some(all)
    }
}
