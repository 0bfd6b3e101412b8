//! Maps of one moment: where the program's blocks lie in the address space, and where the model places them.

use gpuoom_trace::record::Kind;
use serde::Serialize;

use crate::passes::fragmentation::arena_at_peak;
use crate::passes::segments::AllocatorMap;
use crate::replay::Replay;
use crate::replay::account::{Account, has_no_room};
use crate::replay::arena::{Arena, NO_PLACE};
use crate::replay::block::{Block, Mapping};

/// Free cells between two used ones that begin a new stretch.
const FOLDED_GAP_CELLS: u64 = 16;

/// Neighbouring cells that are used alike.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Run {
    /// Number of cells.
    pub cells: u64,
    /// Bytes in use in each.
    pub used_bytes: u64,
}

/// Cells without a long gap.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Stretch {
    /// Where the first cell begins.
    #[serde(serialize_with = "hexadecimal")]
    pub start: u64,
    /// Its cells.
    pub runs: Vec<Run>,
}

pub(super) fn hexadecimal<S: serde::Serializer>(address: &u64, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(&format_args!("{address:#x}"))
}

/// Use of the address space. Addresses say nothing about the place in physical memory.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct AddressMap {
    /// Stretches by address.
    pub stretches: Vec<Stretch>,
    /// Bytes in use.
    pub used_bytes: u64,
    /// Blocks without an address of their own (arrays, unmapped physical memory).
    pub blocks_without_address: u64,
}

/// The model of the card.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ArenaMap {
    /// Size of the modelled card.
    pub capacity_bytes: u64,
    /// All cells.
    pub runs: Vec<Run>,
    /// Free bytes.
    pub free_bytes: u64,
    /// Largest free block.
    pub largest_free_block_bytes: u64,
    /// Blocks that do not fit.
    pub overflow_blocks: u64,
    /// Their padded bytes.
    pub overflow_bytes: u64,
}

/// The maps of one device.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct DeviceMap {
    /// Device index.
    pub device: Option<u8>,
    /// The moment.
    pub at_ns: u64,
    /// Bytes of a cell.
    pub cell_bytes: u64,
    /// Blocks that live.
    pub live_allocations: u64,
    /// Bytes asked for.
    pub requested_bytes: u64,
    /// The same, each block padded to cells.
    pub padded_bytes: u64,
    /// Of the bytes that were asked for, those of managed memory: its pages may lie in RAM, and the model has no place for them.
    pub managed_bytes: u64,
    /// Its blocks.
    pub managed_allocations: u64,
    /// Address space.
    pub address_space: AddressMap,
    /// Model; `None` where the size of the card is not known.
    pub model: Option<ArenaMap>,
    /// Allocators above the runtime, with their segments; empty where none told of blocks, or where nobody asked.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub allocators: Vec<AllocatorMap>,
}

/// Which state is drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Moment {
    /// Each device at its peak.
    Peak,
    /// The state where the replay stopped.
    Now,
}

/// The maps of all devices, or of one.
pub fn draw(replay: &Replay, moment: Moment, only: Option<u8>) -> Vec<DeviceMap> {
    let wanted = |device: u8| only.is_none_or(|only| only == device);
    let used = replay.accounts.devices().filter(|(device, account)| wanted(*device) && account.calls.allocations > 0);
    used.map(|(device, account)| draw_device(replay, device, account, moment)).collect()
}

fn draw_device(replay: &Replay, device: u8, account: &Account, moment: Moment) -> DeviceMap {
    let (blocks, mappings, at): (Vec<Block>, Vec<Mapping>, u64) = match moment {
        Moment::Peak => (
            account.blocks_at_peak(replay.blocks(device)),
            account.mappings_at_peak(replay.mappings(device)),
            account.peak.at,
        ),
        Moment::Now => {
            (replay.blocks(device).copied().collect(), replay.mappings(device).copied().collect(), replay.last_at)
        }
    };
    let cell_bytes = replay.granularity_bytes;
    let sum = |value: fn(&Block) -> u64| blocks.iter().fold(0u64, |sum, block| sum.saturating_add(value(block)));
    let managed = || blocks.iter().filter(|block| block.kind == Kind::Managed);
    let model = match moment {
        Moment::Peak => arena_at_peak(account, &blocks),
        Moment::Now => account.arena.clone().map(|arena| (arena, blocks.clone())),
    };
    DeviceMap {
        device: (device != gpuoom_trace::record::NO_DEVICE).then_some(device),
        at_ns: replay.clock.at_ns(at),
        cell_bytes,
        live_allocations: blocks.len() as u64,
        requested_bytes: sum(|block| block.requested_bytes),
        padded_bytes: sum(|block| u64::from(block.granules)).saturating_mul(cell_bytes),
        managed_bytes: managed().fold(0u64, |sum, block| sum.saturating_add(block.requested_bytes)),
        managed_allocations: managed().count() as u64,
        address_space: address_map(&blocks, &mappings, cell_bytes),
        model: model.map(|(arena, blocks)| arena_map(&arena, &blocks, cell_bytes)),
        allocators: Vec::new(),
    }
}

/// Puts cells together into runs.
pub(super) struct Cells {
    stretches: Vec<Stretch>,
    cell_bytes: u64,
    folds: bool,
    /// The cell behind the last one.
    next: u64,
    /// A cell that may still get more bytes.
    open: Option<(u64, u64)>,
}

impl Cells {
    pub(super) fn new(cell_bytes: u64, folds: bool) -> Self {
        let stretches = if folds { Vec::new() } else { vec![Stretch { start: 0, runs: Vec::new() }] };
        Cells { stretches, cell_bytes, folds, next: 0, open: None }
    }

    /// Uses bytes `start..end`, which lie behind everything used so far.
    pub(super) fn fill(&mut self, start: u64, end: u64) {
        let (first, last) = (start / self.cell_bytes, end.saturating_sub(1) / self.cell_bytes);
        if first == last {
            return self.add(first, end - start);
        }
        let head = self.cell_bytes - start % self.cell_bytes;
        self.add(first, head);
        if last > first + 1 {
            self.close();
            self.append(first + 1, last - first - 1, self.cell_bytes);
        }
        self.add(last, end - last * self.cell_bytes);
    }

    fn add(&mut self, cell: u64, used_bytes: u64) {
        match &mut self.open {
            Some((open, used)) if *open == cell => *used += used_bytes,
            _ => {
                self.close();
                self.open = Some((cell, used_bytes));
            }
        }
    }

    fn close(&mut self) {
        if let Some((cell, used_bytes)) = self.open.take() {
            self.append(cell, 1, used_bytes);
        }
    }

    fn append(&mut self, cell: u64, cells: u64, used_bytes: u64) {
        let gap = cell - self.next.min(cell);
        if self.folds && (self.stretches.is_empty() || gap > FOLDED_GAP_CELLS) {
            self.stretches.push(Stretch { start: cell.saturating_mul(self.cell_bytes), runs: Vec::new() });
        } else if gap > 0 {
            self.push(Run { cells: gap, used_bytes: 0 });
        }
        self.push(Run { cells, used_bytes });
        self.next = cell + cells;
    }

    fn push(&mut self, run: Run) {
        let Some(stretch) = self.stretches.last_mut() else { return };
        match stretch.runs.last_mut() {
            Some(last) if last.used_bytes == run.used_bytes => last.cells += run.cells,
            _ => stretch.runs.push(run),
        }
    }

    pub(super) fn finish(mut self, until_cell: Option<u64>) -> Vec<Stretch> {
        self.close();
        if let Some(cells) = until_cell.and_then(|until| until.checked_sub(self.next)).filter(|cells| *cells > 0) {
            self.push(Run { cells, used_bytes: 0 });
        }
        self.stretches
    }
}

/// Joins overlapping stretches of bytes; the result is sorted.
fn union(mut stretches: Vec<(u64, u64)>) -> Vec<(u64, u64)> {
    stretches.retain(|(start, end)| start < end);
    stretches.sort_unstable();
    let mut joined: Vec<(u64, u64)> = Vec::new();
    for (start, end) in stretches {
        match joined.last_mut() {
            Some(last) if start <= last.1 => last.1 = last.1.max(end),
            _ => joined.push((start, end)),
        }
    }
    joined
}

fn address_map(blocks: &[Block], mappings: &[Mapping], cell_bytes: u64) -> AddressMap {
    let of_blocks =
        blocks.iter().filter(|block| block.has_address()).map(|block| (block.address, block.requested_bytes));
    let of_mappings = mappings.iter().map(|mapping| (mapping.address, mapping.size_bytes));
    let stretches = of_blocks.chain(of_mappings).map(|(start, size)| (start, start.saturating_add(size)));
    let used = union(stretches.collect());
    let mut cells = Cells::new(cell_bytes, true);
    used.iter().for_each(|(start, end)| cells.fill(*start, *end));
    AddressMap {
        stretches: cells.finish(None),
        used_bytes: used.iter().fold(0u64, |sum, (start, end)| sum.saturating_add(end - start)),
        blocks_without_address: blocks.iter().filter(|block| !block.has_address()).count() as u64,
    }
}

fn arena_map(arena: &Arena, blocks: &[Block], cell_bytes: u64) -> ArenaMap {
    let mut placed: Vec<&Block> = blocks.iter().filter(|block| block.place != NO_PLACE).collect();
    placed.sort_unstable_by_key(|block| block.place);
    let mut cells = Cells::new(cell_bytes, false);
    for block in placed {
        let start = u64::from(block.place).saturating_mul(cell_bytes);
        // A block never uses more than its granules, whatever the file says about both.
        let size = block.requested_bytes.min(u64::from(block.granules).saturating_mul(cell_bytes));
        if size > 0 {
            cells.fill(start, start.saturating_add(size));
        }
    }
    let bytes = |granules: u64| granules.saturating_mul(cell_bytes);
    let free = arena.free_space();
    let overflow = || blocks.iter().filter(|block| has_no_room(block));
    ArenaMap {
        capacity_bytes: bytes(arena.granules()),
        runs: cells.finish(Some(arena.granules())).into_iter().flat_map(|stretch| stretch.runs).collect(),
        free_bytes: bytes(free.total_granules),
        largest_free_block_bytes: bytes(free.largest_granules),
        overflow_blocks: overflow().count() as u64,
        overflow_bytes: overflow().fold(0u64, |sum, block| sum.saturating_add(bytes(u64::from(block.granules)))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn used_of(stretches: &[Stretch]) -> u64 {
        stretches.iter().flat_map(|stretch| &stretch.runs).map(|run| run.cells * run.used_bytes).sum()
    }

    proptest! {
        #[test]
        fn cells_hold_what_is_used(
            pieces in prop::collection::vec((0u64..1 << 20, 1u64..5000), 0..60),
            cell_bytes in prop_oneof![Just(1u64), Just(100), Just(4096)],
        ) {
            let joined = union(pieces.iter().map(|(start, size)| (*start, start + size)).collect());
            let mut cells = Cells::new(cell_bytes, true);
            joined.iter().for_each(|(start, end)| cells.fill(*start, *end));
            let stretches = cells.finish(None);
            prop_assert_eq!(used_of(&stretches), joined.iter().map(|(start, end)| end - start).sum::<u64>());
            for stretch in &stretches {
                prop_assert!(stretch.runs.iter().all(|run| run.used_bytes <= cell_bytes));
                prop_assert!(stretch.runs.windows(2).all(|pair| pair[0].used_bytes != pair[1].used_bytes));
            }
        }
    }

    #[test]
    fn the_whole_address_space_is_a_few_runs() {
        let joined = union(vec![(0, u64::MAX), (5, 10)]);
        let mut cells = Cells::new(4096, true);
        joined.iter().for_each(|(start, end)| cells.fill(*start, *end));
        assert_eq!(cells.finish(None)[0].runs.len(), 2);
    }

    #[test]
    fn long_gaps_begin_a_new_stretch_and_short_ones_are_drawn() {
        let mut cells = Cells::new(10, true);
        cells.fill(0, 15);
        cells.fill(40, 50);
        cells.fill(1000, 1010);
        let stretches = cells.finish(None);
        let run = |cells, used_bytes| Run { cells, used_bytes };
        assert_eq!(stretches[0].runs, [run(1, 10), run(1, 5), run(2, 0), run(1, 10)]);
        assert_eq!((stretches[1].start, &stretches[1].runs[..]), (1000, &[run(1, 10)][..]));
    }
}
