//! Pools of a program's own: what they tell of their blocks, what of that can't be so, and which blocks lie on no card.
//!
//! A pool has no totals of its own to compare with. So its records are held against each other, and against the memory that calls
//! gave.

use std::collections::BTreeMap;

use gpuoom_trace::payload;
use gpuoom_trace::record::{Event, NO_DEVICE, Record};
use rustc_hash::FxHashMap;

use super::segments::Segment;
use super::{Blocks, Given, Owner};
use crate::replay::Replay;
use crate::replay::block::Side;
use crate::replay::purpose::Purpose;
use crate::replay::sites::Sites;

/// What a pool told that can't all be so: how often.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Contradictions {
    /// It took a block back that it had not given.
    pub freed_unknown: u64,
    /// It gave an address out again that it had not taken back.
    pub given_twice: u64,
    /// It gave a block that overlaps another one of its own.
    pub overlapping: u64,
    /// It gave more than lies in the memory in which the block begins.
    pub beyond_memory: u64,
}

/// Blocks that are on no card as far as the trace tells.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Elsewhere {
    /// Their number.
    pub blocks: u64,
    /// Their bytes.
    pub bytes: u128,
}

/// Why a block is on no card.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Why {
    /// No recorded call gave memory at its address.
    Nowhere,
    /// It lies in memory of the host.
    OnHost,
    /// The memory below it was given back while it lived.
    Freed,
}

/// What a pool has beside its live blocks.
#[derive(Clone, Debug, Default)]
pub struct Pool {
    /// Its records.
    pub events: u64,
    /// What can't be so.
    pub contradictions: Contradictions,
    /// All blocks that it gave out where no recorded call gave memory.
    pub no_memory: Elsewhere,
    /// All blocks that it gave out in memory of the host.
    pub host_memory: Elsewhere,
    /// Blocks that it did not take back before the memory below them was, nor after that.
    pub freed_memory: Elsewhere,
    /// Blocks whose names were more than are kept.
    pub names_left_out: u64,
    /// Its blocks on cards: where they end, by where they begin.
    spans: BTreeMap<u64, u64>,
    /// Those that are on no card and that it did not take back: their bytes, by address.
    elsewhere: FxHashMap<u64, (Why, u64)>,
}

impl Elsewhere {
    fn add(&mut self, bytes: u64) {
        self.blocks += 1;
        self.bytes += u128::from(bytes);
    }
}

impl Contradictions {
    /// Whether there are any.
    pub fn are_any(&self) -> bool {
        *self != Contradictions::default()
    }
}

impl Pool {
    fn sum(&mut self, why: Why) -> &mut Elsewhere {
        match why {
            Why::Nowhere => &mut self.no_memory,
            Why::OnHost => &mut self.host_memory,
            Why::Freed => &mut self.freed_memory,
        }
    }

    fn lies_elsewhere(&mut self, address: u64, bytes: u64, why: Why) {
        self.sum(why).add(bytes);
        self.elsewhere.insert(address, (why, bytes));
    }

    /// Notes where it gives a block out, and what of that can't be so.
    fn gives(&mut self, address: u64, bytes: u64) {
        let end = address.saturating_add(bytes);
        let again = self.elsewhere.remove(&address).is_some_and(|(why, _)| why != Why::Freed);
        if self.spans.contains_key(&address) || again {
            self.contradictions.given_twice += 1;
            return;
        }
        let reaches_here = self.spans.range(..address).next_back().is_some_and(|(_, before)| *before > address);
        let reaches_next = self.spans.range(address..end).next().is_some();
        self.contradictions.overlapping += u64::from(reaches_here || reaches_next);
    }

    /// The blocks that begin in a segment, or reach into it; of those only the nearest, as a pool's blocks do not overlap.
    fn blocks_in(&self, segment: &Segment) -> Vec<u64> {
        let before = self.spans.range(..segment.address).next_back().filter(|(_, end)| **end > segment.address);
        let within = self.spans.range(segment.address..segment.end);
        before.into_iter().chain(within).map(|(address, _)| *address).collect()
    }
}

impl Blocks {
    /// What pools of the program's own told, by their names, in the order in which they came.
    pub fn pools(&self) -> impl Iterator<Item = (&str, &Pool)> {
        self.allocators.iter().filter_map(|known| match &known.owner {
            Owner::Pool(name) => Some((name.as_str(), &known.pool)),
            _ => None,
        })
    }

    /// The name of blocks by its number.
    pub fn name(&self, number: super::NameNumber) -> Option<&str> {
        self.names.text(number)
    }

    /// Whether what an allocator told of its blocks may all be so.
    pub fn may_be_so(&self, allocator: u8) -> bool {
        self.allocators.get(usize::from(allocator)).is_none_or(|known| !known.pool.contradictions.are_any())
    }

    fn pool(&mut self, allocator: u8) -> &mut Pool {
        &mut self.allocators[usize::from(allocator)].pool
    }

    /// A pool gave a block out; answers the device that it lies on.
    fn pool_gives(&mut self, given: Given, record: &Record, sites: &Sites) -> Option<u8> {
        let Given { address, size_bytes, allocator, .. } = given;
        self.pool(allocator).gives(address, size_bytes);
        let Some(segment) = self.segments.at(address).copied() else {
            return self.lies_elsewhere(&given, record, Why::Nowhere);
        };
        if Side::of(segment.kind) != Side::Device || segment.device == NO_DEVICE {
            let why = if Side::of(segment.kind) == Side::Host { Why::OnHost } else { Why::Nowhere };
            return self.lies_elsewhere(&given, record, why);
        }
        let end = address.checked_add(size_bytes);
        let fits = end.is_some_and(|end| end <= segment.end || self.segments.reach(&segment, end));
        let pool = self.pool(allocator);
        pool.contradictions.beyond_memory += u64::from(!fits);
        pool.spans.insert(address, end.unwrap_or(u64::MAX));
        self.give(Given { device: segment.device, ..given }, record, sites);
        Some(segment.device)
    }

    /// A pool's block is on no card. What it had at that address before is gone.
    fn lies_elsewhere(&mut self, given: &Given, record: &Record, why: Why) -> Option<u8> {
        let device = self.pool_block_goes(given.allocator, given.address, record.at);
        self.pool(given.allocator).lies_elsewhere(given.address, given.size_bytes, why);
        device
    }

    /// A pool's block on a card is gone; answers the device.
    fn pool_block_goes(&mut self, allocator: u8, address: u64, at: u64) -> Option<u8> {
        let known = &mut self.allocators[usize::from(allocator)];
        known.pool.spans.remove(&address);
        let given = known.live.remove(&address)?;
        let place = self.place_of(given.device);
        self.devices[place].taken(&given, 0, at, &mut self.rows_left);
        Some(given.device)
    }

    /// A pool took a block back; answers the device that it lay on.
    fn pool_takes(&mut self, record: &Record, allocator: u8) -> Option<u8> {
        let device = self.pool_block_goes(allocator, record.address, record.at);
        if device.is_some() {
            return device;
        }
        let pool = self.pool(allocator);
        match pool.elsewhere.remove(&record.address) {
            Some((Why::Freed, bytes)) => {
                pool.freed_memory.blocks -= 1;
                pool.freed_memory.bytes -= u128::from(bytes);
            }
            Some(_) => {}
            None => pool.contradictions.freed_unknown += 1,
        }
        None
    }

    /// The blocks of pools in memory that is gone are on no card any more, though nobody took them back.
    pub(super) fn end_pools_below(&mut self, gone: &Segment, at: u64) {
        for allocator in 0..self.allocators.len() {
            let known = &self.allocators[allocator];
            if !gone.has_blocks_of(allocator as u8) || !matches!(known.owner, Owner::Pool(_)) {
                continue;
            }
            for address in known.pool.blocks_in(gone) {
                let bytes = self.allocators[allocator].live.get(&address).map_or(0, |given| given.size_bytes);
                self.pool_block_goes(allocator as u8, address, at);
                self.pool(allocator as u8).lies_elsewhere(address, bytes, Why::Freed);
            }
        }
    }
}

impl Replay {
    /// A pool of the program's own gave a block out, or took one back.
    pub(super) fn pool_told(&mut self, record: &Record, payload: &[u8], allocator: u8) {
        self.blocks.pool(allocator).events += 1;
        let device = match record.event() {
            Some(Event::BlockFree) => self.blocks.pool_takes(record, allocator),
            Some(Event::Block) if record.status == 0 => {
                let text = payload::unpack(payload);
                let name = text.split(|byte| *byte == 0).nth(1).unwrap_or_default();
                let name = self.blocks.names.number(name);
                self.blocks.pool(allocator).names_left_out += u64::from(name.is_left_out());
                let (address, size_bytes, entered, site) = (record.address, record.requested, self.events, record.site);
                let (device, purpose) = (record.device, Purpose::Unknown);
                let given =
                    Given { address, size_bytes, entered, site, nth: 0, device, allocator, name, slot: 0, purpose };
                self.blocks.pool_gives(given, record, &self.sites)
            }
            _ => None,
        };
        let Some(device) = device else { return };
        let place = self.blocks.place_of(device);
        self.blocks.devices[place].told(allocator).events += 1;
        self.look_for_peak_on(device, record);
    }
}

#[cfg(test)]
mod tests {
    use gpuoom_trace::record::Kind;

    use super::*;
    use crate::replay::Options;
    use crate::testing::{GIB, MIB, TraceBuilder, replay};

    const MEMORY: u64 = 0x7f00_0000_0000;

    fn trace() -> TraceBuilder {
        let mut trace = TraceBuilder::new(MIB).device(0, "Card", 16 * GIB);
        trace.alloc(MEMORY, 16 * MIB);
        trace.pool_alloc("kv", "layer 0", MEMORY, 4 * MIB);
        trace
    }

    /// The first pool, and what of its blocks is counted at the end, in MiB.
    fn kv(trace: &TraceBuilder) -> (Pool, u128) {
        let replay = replay(trace, Options::default());
        let now = replay.blocks.now(0, 0);
        let of = now.iter().flat_map(|now| &now.of).find(|of| of.allocator == 0);
        let rows: u128 = of.iter().flat_map(|of| &of.rows).map(|row| row.bytes).sum();
        assert_eq!(rows, of.map_or(0, |of| of.state.bytes));
        (replay.blocks.pools().next().unwrap().1.clone(), rows / u128::from(MIB))
    }

    #[test]
    fn a_pool_that_is_of_one_mind_has_nothing_to_tell() {
        let mut trace = trace();
        trace.pool_alloc("kv", "layer 1", MEMORY + 4 * MIB, 12 * MIB);
        trace.pool_free("kv", MEMORY);
        trace.pool_alloc("kv", "layer 0", MEMORY, 2 * MIB);
        // One that lies in its blocks is another pool.
        trace.pool_alloc("scratch", "", MEMORY + 4 * MIB, MIB);
        let (pool, mib) = kv(&trace);
        assert_eq!((pool.events, mib, pool.contradictions.are_any()), (4, 14, false));
        assert_eq!((pool.no_memory.blocks, pool.host_memory.blocks, pool.freed_memory.blocks), (0, 0, 0));
    }

    #[test]
    fn what_cannot_be_so_is_counted() {
        let told = |change: fn(&mut TraceBuilder) -> u64| {
            let mut trace = trace();
            change(&mut trace);
            let told = kv(&trace).0.contradictions;
            (told.freed_unknown, told.given_twice, told.overlapping, told.beyond_memory)
        };
        assert_eq!(told(|trace| trace.pool_free("kv", MEMORY + 1)), (1, 0, 0, 0));
        assert_eq!(told(|trace| trace.pool_alloc("kv", "", MEMORY, MIB)), (0, 1, 0, 0));
        assert_eq!(told(|trace| trace.pool_alloc("kv", "", MEMORY + MIB, MIB)), (0, 0, 1, 0));
        assert_eq!(told(|trace| trace.pool_alloc("kv", "", MEMORY + 8 * MIB, 9 * MIB)), (0, 0, 0, 1));
        assert_eq!(told(|trace| trace.pool_alloc("kv", "", MEMORY + 8 * MIB, u64::MAX)), (0, 0, 0, 1));
    }

    #[test]
    fn a_block_over_mapped_pieces_that_lie_beside_each_other_fits() {
        let mut trace = trace();
        for number in 0..3 {
            trace.create_and_map(0x50 + number, MEMORY + GIB + number * 2 * MIB, 2 * MIB);
        }
        trace.pool_alloc("kv", "", MEMORY + GIB, 6 * MIB);
        assert_eq!(kv(&trace).0.contradictions, Contradictions::default());
        trace.pool_free("kv", MEMORY + GIB);
        trace.pool_alloc("kv", "", MEMORY + GIB + MIB, 6 * MIB);
        assert_eq!(kv(&trace).0.contradictions.beyond_memory, 1);
    }

    #[test]
    fn blocks_on_no_card_are_told_and_not_counted() {
        let mut trace = trace();
        trace.alloc_kind(Kind::HostPinned, "hipHostMalloc", MEMORY + GIB, 8 * MIB);
        trace.pool_alloc("kv", "", MEMORY + GIB, 8 * MIB);
        trace.pool_alloc("kv", "", MEMORY + 2 * GIB, 3 * MIB);
        let (pool, mib) = kv(&trace);
        assert_eq!(mib, 4);
        let sum = |all: Elsewhere| (all.blocks, all.bytes / u128::from(MIB));
        assert_eq!((sum(pool.host_memory), sum(pool.no_memory)), ((1, 8), (1, 3)));
        // Taking them back is no contradiction; giving one out again before that is.
        trace.pool_free("kv", MEMORY + GIB);
        assert!(!kv(&trace).0.contradictions.are_any());
        trace.pool_alloc("kv", "", MEMORY + 2 * GIB, 3 * MIB);
        assert_eq!(kv(&trace).0.contradictions.given_twice, 1);
    }

    #[test]
    fn memory_that_is_gone_takes_its_blocks_along() {
        let mut trace = trace();
        trace.pool_alloc("kv", "layer 1", MEMORY + 8 * MIB, 8 * MIB);
        trace.free(MEMORY);
        let (pool, mib) = kv(&trace);
        assert_eq!((mib, pool.freed_memory.blocks, pool.freed_memory.bytes), (0, 2, 12 * u128::from(MIB)));
        // Another order of the same: the pool takes its blocks back after the memory went.
        let mut late = trace.clone();
        late.pool_free("kv", MEMORY);
        let (pool, _) = kv(&late);
        assert_eq!((pool.freed_memory.blocks, pool.contradictions.are_any()), (1, false));
        // The address comes again.
        trace.alloc(MEMORY, 16 * MIB);
        trace.pool_alloc("kv", "layer 0", MEMORY, 2 * MIB);
        let (pool, mib) = kv(&trace);
        assert_eq!((mib, pool.freed_memory.blocks, pool.contradictions.are_any()), (2, 2, false));
        let peak = replay(&trace, Options::default()).blocks.at_peak(0).unwrap();
        assert_eq!(peak.of[0].state.bytes, 12 * u128::from(MIB), "at the peak they lived");
    }
}
