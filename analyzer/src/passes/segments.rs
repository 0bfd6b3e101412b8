//! The segments of allocators above the runtime at one moment: what of each is in blocks, and in which pieces the rest lies.

use serde::Serialize;

use crate::passes::fragmentation::saturate;
use crate::passes::map::{Cells, Moment, Run, hexadecimal};
use crate::passes::tensors::{held, name_of};
use crate::replay::Replay;
use crate::replay::blocks::{Laid, Layout, Owner};

/// Cells of the largest segment, at most: a segment is one row.
pub const MOST_CELLS: u64 = 32;
/// PyTorch rounds every block up to this, so no cell is smaller.
const SMALLEST_CELL_BYTES: u64 = 512;
/// Segments of one allocator that are kept: those with most unused.
const MOST_SEGMENTS: usize = 4096;
/// Unused pieces whose sizes are kept of one segment.
const MOST_PIECES: usize = 16;

/// A segment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct SegmentMap {
    /// First address.
    #[serde(serialize_with = "hexadecimal")]
    pub address: u64,
    /// Bytes.
    pub bytes: u64,
    /// Kind of memory; `physical` for mapped pieces that lie beside each other.
    pub kind: &'static str,
    /// Blocks in it.
    pub blocks: u64,
    /// Their bytes.
    pub allocated_bytes: u64,
    /// What is in no block.
    pub unused_bytes: u64,
    /// Pieces of that.
    pub unused_pieces: u64,
    /// The sizes of these, the largest first; of very many the largest.
    pub unused_piece_bytes: Vec<u64>,
    /// Its cells, with what is in blocks of each.
    pub runs: Vec<Run>,
}

/// Sums over segments.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Sums {
    /// Segments.
    pub segments: u64,
    /// Their bytes.
    pub bytes: u64,
    /// What of it is in blocks.
    pub allocated_bytes: u64,
    /// What is not.
    pub unused_bytes: u64,
    /// Pieces of that.
    pub unused_pieces: u64,
}

/// An allocator on one device.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct AllocatorMap {
    /// `pytorch`, `ggml`, or the pool's name.
    pub framework: String,
    /// Whose it is: a pool may have any name.
    #[serde(skip)]
    pub owner: Owner,
    /// The moment: of those when the device's calls held most, the one when most was in blocks.
    pub at_ns: u64,
    /// Its blocks.
    pub blocks: u64,
    /// Their bytes.
    pub allocated_bytes: u64,
    /// Bytes of a cell.
    pub cell_bytes: u64,
    /// Its segments, by address; null where its blocks do not fit into what calls gave, or into its own totals, or where records are
    /// missing.
    pub segments: Option<Vec<SegmentMap>>,
    /// Those that are not listed, because there are so many.
    pub left_out: Sums,
}

impl Sums {
    /// Adds a segment.
    pub fn add(&mut self, segment: &SegmentMap) {
        let SegmentMap { bytes, allocated_bytes, unused_bytes, unused_pieces, .. } = *segment;
        self.join(&Sums { segments: 1, bytes, allocated_bytes, unused_bytes, unused_pieces });
    }

    /// Adds other sums.
    pub fn join(&mut self, other: &Sums) {
        for (sum, number) in [
            (&mut self.segments, other.segments),
            (&mut self.bytes, other.bytes),
            (&mut self.allocated_bytes, other.allocated_bytes),
            (&mut self.unused_bytes, other.unused_bytes),
            (&mut self.unused_pieces, other.unused_pieces),
        ] {
            *sum = sum.saturating_add(number);
        }
    }
}

impl AllocatorMap {
    /// Of all segments, also those that are not listed.
    pub fn sums(&self) -> Sums {
        let mut sums = self.left_out;
        self.segments.iter().flatten().for_each(|segment| sums.add(segment));
        sums
    }
}

/// The allocators of a device. `is_whole`: no record of the trace is missing.
pub fn of_device(replay: &Replay, device: u8, moment: Moment, is_whole: bool) -> Vec<AllocatorMap> {
    let blocks = &replay.blocks;
    let (layouts, at) = match moment {
        Moment::Peak => (blocks.layout_at_peak(device), blocks.device(device).and_then(|known| Some(known.peak?.at))),
        Moment::Now => (blocks.layout_now(device), Some(replay.last_at)),
    };
    let at_ns = replay.clock.at_ns(at.unwrap_or_default());
    let mut maps: Vec<AllocatorMap> = layouts
        .into_iter()
        .filter(|layout| blocks.may_be_so(layout.of.allocator))
        .map(|layout| {
            let owner = blocks.owner(layout.of.allocator).cloned().unwrap_or(Owner::Torch);
            describe(owner, at_ns, layout, is_whole)
        })
        .collect();
    maps.sort_by(|one, other| (other.allocated_bytes, &one.framework).cmp(&(one.allocated_bytes, &other.framework)));
    maps
}

fn describe(owner: Owner, at_ns: u64, layout: Layout, is_whole: bool) -> AllocatorMap {
    let Layout { of, segments } = layout;
    let (_, room) = held(&of, owner == Owner::Torch, is_whole);
    let segments = segments.filter(|_| room.is_some());
    let largest = segments.iter().flatten().map(|segment| segment.bytes).max().unwrap_or(0);
    // No power of two is larger than a half of all addresses.
    let cell_bytes = largest.div_ceil(MOST_CELLS).clamp(SMALLEST_CELL_BYTES, 1 << 62).next_power_of_two();
    let mut maps: Option<Vec<SegmentMap>> =
        segments.map(|segments| segments.iter().map(|segment| draw(segment, cell_bytes)).collect());
    let left_out = maps.as_mut().map(|maps| keep_most_unused(maps, MOST_SEGMENTS)).unwrap_or_default();
    AllocatorMap {
        framework: name_of(&owner).to_owned(),
        owner,
        at_ns,
        blocks: of.state.blocks,
        allocated_bytes: saturate(of.state.bytes),
        cell_bytes,
        segments: maps,
        left_out,
    }
}

/// Leaves those with most unused, in their order, and answers what the others sum up to.
pub fn keep_most_unused(segments: &mut Vec<SegmentMap>, most: usize) -> Sums {
    let mut sums = Sums::default();
    if segments.len() > most {
        segments.sort_by_key(|segment| (std::cmp::Reverse(segment.unused_bytes), segment.address));
        segments.drain(most..).for_each(|segment| sums.add(&segment));
        segments.sort_by_key(|segment| segment.address);
    }
    sums
}

fn draw(segment: &Laid, cell_bytes: u64) -> SegmentMap {
    let mut cells = Cells::new(cell_bytes, false);
    for (at, bytes) in segment.blocks.iter().filter(|(_, bytes)| *bytes > 0) {
        cells.fill(*at, at.saturating_add(*bytes));
    }
    let stretches = cells.finish(Some(segment.bytes.div_ceil(cell_bytes)));
    let sum = |sizes: &mut dyn Iterator<Item = u64>| sizes.fold(0, u64::saturating_add);
    let mut unused_piece_bytes = segment.unused.clone();
    unused_piece_bytes.sort_unstable_by_key(|bytes| std::cmp::Reverse(*bytes));
    unused_piece_bytes.truncate(MOST_PIECES);
    SegmentMap {
        address: segment.address,
        bytes: segment.bytes,
        kind: segment.kind.name(),
        blocks: segment.blocks.len() as u64,
        allocated_bytes: sum(&mut segment.blocks.iter().map(|(_, bytes)| *bytes)),
        unused_bytes: sum(&mut segment.unused.iter().copied()),
        unused_pieces: segment.unused.len() as u64,
        unused_piece_bytes,
        runs: stretches.into_iter().flat_map(|stretch| stretch.runs).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::passes::map::draw as draw_all;
    use crate::replay::{Options, Until};
    use crate::testing::{GIB, MIB, TraceBuilder, replay};

    const SEGMENT: u64 = 0x7f00_0000_0000;

    fn trace() -> TraceBuilder {
        TraceBuilder::new(MIB).device(0, "Card", 16 * GIB)
    }

    fn now(trace: &TraceBuilder) -> Vec<AllocatorMap> {
        of_device(&replay(trace, Options::default()), 0, Moment::Now, true)
    }

    #[test]
    fn pieces_lie_between_the_blocks_of_a_segment() {
        let mut trace = trace();
        trace.segment(SEGMENT, 32 * MIB);
        trace.segment(SEGMENT + GIB, 2 * MIB);
        trace.tensor(0, SEGMENT, MIB);
        trace.tensor(0, SEGMENT + 3 * MIB, MIB / 2);
        trace.tensor(0, SEGMENT + 10 * MIB, 2 * MIB);
        trace.tensor(0, SEGMENT + GIB, 2 * MIB);
        let maps = now(&trace);
        let segments = maps[0].segments.as_ref().unwrap();
        assert_eq!((maps[0].cell_bytes, maps[0].blocks, segments.len()), (MIB, 4, 2));
        let first = &segments[0];
        assert_eq!((first.blocks, first.allocated_bytes, first.unused_pieces), (3, 7 * MIB / 2, 3));
        assert_eq!(first.unused_piece_bytes, [20 * MIB, 13 * MIB / 2, 2 * MIB]);
        let run = |cells, used_bytes| Run { cells, used_bytes };
        let expected = [run(1, MIB), run(2, 0), run(1, MIB / 2), run(6, 0), run(2, MIB), run(20, 0)];
        assert_eq!(first.runs, expected);
        assert_eq!((segments[1].unused_bytes, &segments[1].runs[..]), (0, &[run(2, MIB)][..]));
        let sums = maps[0].sums();
        assert_eq!((sums.bytes, sums.allocated_bytes, sums.unused_bytes), (34 * MIB, 11 * MIB / 2, 57 * MIB / 2));
    }

    /// What the cache gave back is no segment any more, though the allocator says so only with its next block.
    #[test]
    fn what_went_back_is_not_drawn() {
        let mut trace = trace();
        for number in 0..3 {
            trace.segment(SEGMENT + number * GIB, 20 * MIB);
            trace.tensor(0, SEGMENT + number * GIB, 5 * MIB);
        }
        trace.free_tensor(SEGMENT);
        trace.free(SEGMENT);
        let maps = now(&trace);
        assert_eq!(
            maps[0].sums(),
            Sums { segments: 2, bytes: 40 * MIB, allocated_bytes: 10 * MIB, unused_bytes: 30 * MIB, unused_pieces: 2 }
        );
        // The peak was before that.
        let peak = of_device(&replay(&trace, Options::default()), 0, Moment::Peak, true);
        assert_eq!((peak[0].sums().segments, peak[0].sums().allocated_bytes), (3, 15 * MIB));
        assert_eq!(draw_all(&replay(&trace, Options::default()), Moment::Now, None)[0].allocators, []);
    }

    #[test]
    fn a_replay_that_stops_has_what_was_there() {
        let mut trace = trace();
        trace.segment(SEGMENT, 20 * MIB);
        trace.tensor(0, SEGMENT, 5 * MIB);
        trace.refuse(GIB);
        trace.tensor(0, SEGMENT + 5 * MIB, 5 * MIB);
        let stopped = replay(&trace, Options { until: Until::Refusal(1), ..Options::default() });
        assert_eq!(of_device(&stopped, 0, Moment::Now, true)[0].sums().allocated_bytes, 5 * MIB);
    }

    #[test]
    fn what_does_not_agree_is_not_drawn() {
        let mut trace = trace();
        trace.segment(SEGMENT, 20 * MIB);
        trace.tensor(0, SEGMENT, 5 * MIB);
        assert!(now(&trace)[0].segments.is_some());
        trace.reserved(0, GIB).tensor(0, SEGMENT + 8 * MIB, MIB);
        let maps = now(&trace);
        assert_eq!((maps[0].segments.as_ref(), maps[0].allocated_bytes, maps[0].blocks), (None, 6 * MIB, 2));
    }

    #[test]
    fn of_very_many_those_with_most_unused_are_kept() {
        let segment = |number: u64| {
            let (blocks, unused) = (vec![(0, MIB * number)], vec![(100 - number) * MIB]);
            draw(
                &Laid {
                    address: number << 30,
                    bytes: 100 * MIB,
                    kind: gpuoom_trace::record::Kind::Device,
                    blocks,
                    unused,
                },
                4 * MIB,
            )
        };
        let mut segments: Vec<SegmentMap> = (1..100).map(segment).collect();
        let all = segments.iter().fold(Sums::default(), |mut sums, segment| {
            sums.add(segment);
            sums
        });
        let left = keep_most_unused(&mut segments, 10);
        assert_eq!(
            segments.iter().map(|segment| segment.address >> 30).collect::<Vec<_>>(),
            (1..=10).collect::<Vec<_>>()
        );
        let mut sums = left;
        segments.iter().for_each(|segment| sums.add(segment));
        assert_eq!((sums, left.segments), (all, 89));
    }

    #[test]
    fn absurd_sizes_are_drawn() {
        let mut trace = trace();
        trace.segment(0, u64::MAX);
        trace.hostile_tensor(false, 0, 0, 0, None);
        trace.hostile_tensor(false, 0, 1, u64::MAX - 1, None);
        now(&trace);
    }
}
