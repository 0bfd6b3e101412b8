//! Segments that grow: address space for the whole card, with memory mapped in units.

use super::allocator::{Allocator, Expandable, Request};
use super::blocks::{Block, BlockId, State};
use super::driver::{CallKind, Driver};

impl<D: Driver> Allocator<D> {
    /// A free block of at least the request's size, with memory behind all of it.
    pub(super) fn take_expandable(&mut self, request: &Request) -> Option<BlockId> {
        let mut id = self.find_space(request)?;
        if !self.blocks.get(id).mapped {
            let wanted = request.bytes.min(self.blocks.get(id).bytes);
            self.map(id, wanted).then_some(())?;
        }
        // What is free lies before what has no memory: that grows until it is enough.
        while self.blocks.get(id).bytes < request.bytes {
            let remaining = request.bytes - self.blocks.get(id).bytes;
            let next = self.blocks.get(id).after?;
            let wanted = remaining.min(self.blocks.get(next).bytes);
            self.map(next, wanted).then_some(())?;
            id = next;
        }
        self.uncache(id);
        Some(id)
    }

    fn is_usable(&self, id: Option<BlockId>) -> Option<BlockId> {
        id.filter(|id| self.blocks.get(*id).state == State::Free)
    }

    /// Free and unmapped blocks from one on have room for a request.
    fn has_space(&self, from: BlockId, bytes: u64) -> bool {
        let (mut sum, mut next) = (0u64, self.is_usable(Some(from)));
        while let Some(id) = next
            && sum < bytes
        {
            let block = self.blocks.get(id);
            sum = sum.saturating_add(block.bytes);
            next = self.is_usable(block.after);
        }
        sum >= bytes
    }

    /// The lowest address where a request has room, in a new segment if there is none.
    fn find_space(&mut self, request: &Request) -> Option<BlockId> {
        let Request { bytes, stream, pool } = *request;
        for (of_stream, _, id) in self.pools[pool].unmapped.range((stream, 0, 0)..) {
            if *of_stream != stream {
                break;
            }
            let from = self.is_usable(self.blocks.get(*id).before).unwrap_or(*id);
            if self.has_space(from, bytes) {
                return Some(from);
            }
        }
        let unit = self.policy.mapping_bytes(self.pools[pool].small);
        // An eighth more than the card has: what was unmapped in front can be put behind.
        let room = self.card_bytes.saturating_add(self.card_bytes / 8).div_ceil(unit).saturating_mul(unit);
        if room < bytes {
            return None;
        }
        let base = self.driver.reserve(room, unit, stream);
        self.segments.push(Expandable { base, bytes: room, unit });
        let expandable = Some(self.segments.len() - 1);
        let (address, segment) = (base, self.next_segment());
        let block = Block { address, bytes: room, stream, pool, mapped: false, expandable, segment, ..Block::EMPTY };
        let id = self.blocks.add(block);
        self.pools[pool].unmapped.insert((stream, base, id));
        Some(id)
    }

    /// Maps memory to the front of a block that has none.
    fn map(&mut self, id: BlockId, wanted: u64) -> bool {
        let block = *self.blocks.get(id);
        let Some(segment) = block.expandable.map(|number| self.segments[number]) else { return false };
        let bytes = wanted.div_ceil(segment.unit).saturating_mul(segment.unit).min(block.bytes);
        if !self.driver.map(block.address, bytes, block.stream, self.sums.reserved) {
            return false;
        }
        self.uncache(id);
        if bytes < block.bytes {
            let behind = Block { address: block.address + bytes, bytes: block.bytes - bytes, ..block };
            let rest = self.blocks.add(behind);
            self.blocks.link(rest, Some(id), block.after);
            self.pools[block.pool].unmapped.insert((block.stream, behind.address, rest));
        }
        let front = self.blocks.get_mut(id);
        (front.mapped, front.bytes) = (true, bytes);
        self.join_neighbours(id);
        self.cache(id);
        self.took(bytes);
        true
    }

    /// Takes the memory of the whole units in a free block away.
    pub(super) fn unmap(&mut self, id: BlockId) {
        let block = *self.blocks.get(id);
        let Some(segment) = block.expandable.map(|number| self.segments[number]) else { return };
        let first = (block.address - segment.base).div_ceil(segment.unit);
        let last = (block.end() - segment.base) / segment.unit;
        if first >= last {
            return;
        }
        let start = segment.base + first * segment.unit;
        let bytes = (last - first) * segment.unit;
        self.uncache(id);
        self.blocks.get_mut(id).mapped = false;
        if start > block.address {
            let front = self.blocks.add(Block { bytes: start - block.address, ..block });
            self.blocks.link(front, block.before, Some(id));
            self.cache(front);
        }
        if start + bytes < block.end() {
            let behind = Block { address: start + bytes, bytes: block.end() - start - bytes, ..block };
            let rest = self.blocks.add(behind);
            let after = self.blocks.get(id).after;
            self.blocks.link(rest, Some(id), after);
            self.cache(rest);
        }
        let middle = self.blocks.get_mut(id);
        (middle.address, middle.bytes) = (start, bytes);
        self.join_neighbours(id);
        let Block { stream, address, pool, .. } = *self.blocks.get(id);
        self.pools[pool].unmapped.insert((stream, address, id));
        self.gave(CallKind::Unmap, start, bytes, block.stream);
    }

    /// Gives the addresses of a segment back that has no memory left.
    pub(super) fn drop_if_empty(&mut self, id: BlockId) {
        let block = *self.blocks.get(id);
        let is_segment = block.expandable.is_some_and(|number| self.segments[number].bytes == block.bytes);
        if is_segment && !block.mapped && block.is_whole() {
            self.uncache(id);
            self.blocks.forget(id);
            self.driver.unreserve(block.address);
        }
    }
}
