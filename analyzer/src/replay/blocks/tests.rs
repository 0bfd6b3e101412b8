use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;
use crate::replay::Options;
use crate::testing::{GIB, MIB, TraceBuilder, replay};

fn trace() -> TraceBuilder {
    TraceBuilder::new(MIB).device(0, "Card", 16 * GIB)
}

fn of(moment: &Moment) -> &OfAllocator {
    assert_eq!(moment.of.len(), 1);
    &moment.of[0]
}

fn room(moment: &Moment) -> (u128, u64, u64) {
    let room = of(moment).room.as_ref().unwrap();
    (room.unused_bytes, room.largest_unused_bytes, room.unused_pieces)
}

#[test]
fn blocks_are_no_memory_of_their_own() {
    let mut with = trace();
    with.segment(0x1000_0000, 64 * MIB);
    let mut without = with.clone();
    with.tensor(0, 0x1000_0000, MIB);
    with.free_tensor(0x1000_0000);
    with.tensor(0, 0x1000_0000, 2 * MIB);
    with.now_ns = 5_000_000;
    without.now_ns = 5_000_000;
    for trace in [&mut with, &mut without] {
        trace.refuse(GIB);
        trace.free(0x1000_0000);
    }
    let (with, without) = (replay(&with, Options::default()), replay(&without, Options::default()));
    let account = |replay: &Replay| {
        let account = replay.accounts.device(0).unwrap();
        (account.calls, account.held, account.most, account.peak.held, replay.unmatched_frees, replay.failed_frees)
    };
    assert_eq!(account(&with), account(&without));
    assert_eq!(with.live.count(), 0);
    assert_eq!((with.failures.count, without.failures.count), (1, 1));
    assert_eq!(with.latency_ticks.count(), without.latency_ticks.count());
    assert_eq!(with.sizes_bytes.count(), without.sizes_bytes.count());
}

#[test]
fn what_is_unused_lies_between_the_blocks_of_a_segment() {
    let mut trace = trace();
    trace.segment(0x1000_0000, 16 * MIB);
    trace.segment(0x4000_0000, 8 * MIB);
    trace.alloc(0x7000_0000, 8 * MIB);
    trace.tensor(0, 0x1000_0000, MIB);
    trace.tensor(0, 0x1000_0000 + 4 * MIB, MIB);
    trace.tensor(0, 0x4000_0000, 8 * MIB);
    trace.free_tensor(0x4000_0000);
    let replay = replay(&trace, Options::default());
    let now = replay.blocks.now(0, 0).unwrap();
    assert_eq!(room(&now), (22 * u128::from(MIB), 11 * MIB, 3));
    assert_eq!(
        of(&now).room.as_ref().unwrap().bytes,
        24 * u128::from(MIB),
        "the program's own block is none of PyTorch's"
    );
    let peak = replay.blocks.at_peak(0).unwrap();
    assert_eq!((of(&peak).state.bytes, room(&peak)), (10 * u128::from(MIB), (14 * u128::from(MIB), 11 * MIB, 2)));
    let told = replay.blocks.device(0).unwrap().all().next().unwrap();
    assert_eq!((told.events, told.mismatches, told.unknown_frees), (4, 0, 0));
    assert_eq!(of(&peak).state.own.unwrap().reserved_bytes, 24 * MIB);
}

#[test]
fn a_block_may_reach_over_mapped_pieces() {
    let mut trace = trace();
    let piece = 2 * MIB;
    for number in 0..4 {
        trace.create_and_map(0x50 + number, 0x2_0000_0000 + number * piece, piece);
    }
    trace.reserved(0, 4 * piece);
    trace.tensor(0, 0x2_0000_0000 + MIB, 5 * MIB);
    trace.tensor(0, 0x2_0000_0000 + 7 * MIB, MIB);
    let replay = replay(&trace, Options::default());
    assert_eq!(room(&replay.blocks.now(0, 0).unwrap()), (2 * u128::from(MIB), MIB, 2));
}

#[test]
fn what_does_not_fit_is_not_known() {
    let mut trace = trace();
    trace.segment(0x1000_0000, 2 * MIB);
    trace.tensor(0, 0x1000_0000, MIB);
    let room = |trace: &TraceBuilder| of(&replay(trace, Options::default()).blocks.now(0, 0).unwrap()).room.clone();
    assert!(room(&trace).is_some());
    let mut beyond = trace.clone();
    beyond.tensor(0, 0x1000_0000 + MIB, MIB + 1);
    let mut outside = trace.clone();
    outside.tensor(0, 0x9000_0000, MIB);
    let mut overlapping = trace.clone();
    overlapping.tensor(0, 0x1000_0000 + MIB / 2, MIB);
    let mut gone = trace.clone();
    gone.free(0x1000_0000);
    for trace in [&beyond, &outside, &overlapping, &gone] {
        assert_eq!(room(trace), None);
    }
}

/// An allocator's own word counts what it gave back until its next block.
#[test]
fn what_went_back_is_not_held_any_more() {
    let mut trace = trace();
    for number in 0..2 {
        trace.segment(0x1000_0000 << number, 16 * MIB);
        trace.tensor(0, 0x1000_0000 << number, MIB);
    }
    trace.free_tensor(0x1000_0000);
    trace.free(0x1000_0000);
    let now = replay(&trace, Options::default()).blocks.now(0, 0).unwrap();
    assert_eq!(of(&now).state.own.unwrap().reserved_bytes, 32 * MIB);
    assert_eq!((of(&now).state.reserved_bytes(), room(&now)), (Some(16 * MIB), (15 * u128::from(MIB), 15 * MIB, 1)));
    let at_peak = replay(&trace, Options::default()).blocks.at_peak(0).unwrap();
    assert_eq!(of(&at_peak).state.reserved_bytes(), Some(32 * MIB));
    trace.reserved(0, 16 * MIB).tensor(0, 0x2000_0000 + MIB, MIB);
    let now = replay(&trace, Options::default()).blocks.now(0, 0).unwrap();
    assert_eq!(of(&now).state.reserved_bytes(), Some(16 * MIB), "and then it is not taken off twice");
}

#[test]
fn another_number_than_the_sum_is_counted() {
    let mut trace = trace();
    trace.segment(0x1000_0000, 16 * MIB);
    trace.tensor(0, 0x1000_0000, MIB);
    trace.hostile_tensor(false, 0, 0x1000_0000 + MIB, MIB, Some([5 * MIB, 16 * MIB]));
    trace.hostile_tensor(true, 0, 0x1000_0000 + MIB, 2 * MIB, None);
    trace.hostile_tensor(true, 0, 0x1000_0000 + 7 * MIB, MIB, None);
    trace.hostile_tensor(false, 0, 0x1000_0000, 3 * MIB, None);
    let first = trace.records().nth(2).unwrap().seq();
    let replay = replay(&trace, Options::default());
    let told = replay.blocks.device(0).unwrap().all().next().unwrap();
    assert_eq!((told.mismatches, told.first_mismatch), (4, Some(first)));
    assert_eq!((told.other_sizes, told.unknown_frees, told.replaced), (1, 1, 1));
    assert_eq!((told.now.bytes, told.now.own.unwrap().allocated_bytes), (3 * u128::from(MIB), 5 * MIB));
}

#[test]
fn pools_are_told_apart_by_their_names() {
    let mut trace = trace();
    trace.alloc(0x1000_0000, 16 * MIB);
    trace.pool_alloc("kv", "layer 0", 0x1000_0000, MIB);
    trace.pool_alloc("scratch", "", 0x1000_0000, 2 * MIB);
    trace.pool_free("kv", 0x1000_0000);
    let replay = replay(&trace, Options::default());
    let now = replay.blocks.now(0, 0).unwrap();
    let states: Vec<_> =
        now.of.iter().map(|one| (replay.blocks.owner(one.allocator).unwrap().clone(), one.state.bytes)).collect();
    let pool = |name: &str| Owner::Pool(name.to_owned());
    assert_eq!(states, [(pool("kv"), 0), (pool("scratch"), 2 * u128::from(MIB))]);
    assert!(now.of.iter().all(|one| one.state.own.is_none() && one.room.is_some()));
}

#[test]
fn more_allocators_than_are_followed_are_counted() {
    let mut trace = trace();
    for number in 0..MOST_ALLOCATORS as u64 + 5 {
        trace.pool_alloc(&number.to_string(), "", 0x1000 * (number + 1), 16);
    }
    let replay = replay(&trace, Options::default());
    assert_eq!(replay.blocks.not_followed, 5);
}

#[test]
fn a_failure_and_a_label_keep_what_was_there() {
    let mut trace = trace();
    trace.segment(0x1000_0000, 4 * MIB);
    trace.tensor(0, 0x1000_0000, MIB);
    let seq = trace.refuse(GIB);
    let mark = trace.record(Event::Mark, gpuoom_trace::record::Kind::None, "gpuoom_mark");
    trace.with_text(mark, "step 1");
    let popped = trace.record(Event::Mark, gpuoom_trace::record::Kind::None, "gpuoom_mark");
    trace.push(Record { status: gpuoom_trace::record::mark::POP, ..popped }, &[]);
    trace.free_tensor(0x1000_0000);
    let replay = replay(&trace, Options::default());
    let at = replay.blocks.moments.at_failure(seq).unwrap();
    assert_eq!((of(at).state.bytes, room(at)), (u128::from(MIB), (3 * u128::from(MIB), 3 * MIB, 1)));
    let marks = replay.blocks.moments.marks();
    assert_eq!((marks.len(), marks[0].label.as_str()), (1, "step 1"));
    assert_eq!(replay.tracks.marks.listed().count(), 1, "the end of a range is no label");
}

/// One thing that happens in the plain model.
#[derive(Clone, Debug)]
enum Step {
    Segment(u64),
    DropSegment(prop::sample::Index),
    Give { segment: prop::sample::Index, at: u64, bytes: u64, site: u32 },
    Take(prop::sample::Index),
}

fn step() -> impl Strategy<Value = Step> {
    let index = any::<prop::sample::Index>;
    prop_oneof![
        2 => (1u64..4).prop_map(Step::Segment),
        1 => index().prop_map(Step::DropSegment),
        6 => (index(), 0u64..8, 1u64..3, 0u32..4)
            .prop_map(|(segment, at, bytes, site)| Step::Give { segment, at, bytes, site }),
        3 => index().prop_map(Step::Take),
    ]
}

/// What lives, looked at as a whole after each record.
#[derive(Clone, Debug, Default)]
struct Naive {
    /// Address to size, in MiB.
    segments: BTreeMap<u64, u64>,
    blocks: BTreeMap<u64, (u64, u32)>,
    /// Segments that a block was ever laid into.
    used: Vec<u64>,
}

impl Naive {
    fn rows(&self) -> BTreeMap<u32, (u128, u64)> {
        let mut rows: BTreeMap<u32, (u128, u64)> = BTreeMap::new();
        for (bytes, site) in self.blocks.values() {
            let row = rows.entry(*site).or_default();
            (row.0, row.1) = (row.0 + u128::from(bytes * MIB), row.1 + 1);
        }
        rows
    }

    fn held(&self) -> u64 {
        self.segments.values().sum()
    }

    fn given(&self) -> u64 {
        self.blocks.values().map(|(bytes, _)| bytes).sum()
    }

    /// Unused MiB: all, the largest stretch, and stretches.
    fn unused(&self) -> (u64, u64, u64) {
        let mut runs: Vec<u64> = Vec::new();
        for address in &self.used {
            let mut run = 0;
            for page in *address..address + self.segments[address] {
                let taken = self.blocks.iter().any(|(at, (bytes, _))| (*at..at + bytes).contains(&page));
                if taken {
                    runs.push(run);
                }
                run = if taken { 0 } else { run + 1 };
            }
            runs.push(run);
        }
        let runs: Vec<u64> = runs.into_iter().filter(|run| *run > 0).collect();
        (runs.iter().sum(), runs.iter().copied().max().unwrap_or(0), runs.len() as u64)
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn sums_rows_and_gaps_agree_with_a_plain_model(steps in prop::collection::vec(step(), 0..120)) {
        let mut trace = trace();
        let mut naive = Naive::default();
        let (mut peak, mut highest, mut reserved): (Option<Naive>, u64, u64) = (None, 0, 0);
        // When most was in blocks, and the most that was said to be held.
        let (mut most, mut most_held) = (Naive::default(), (0, 0));
        let mut next = 0x100;
        let mut told = false;
        for step in steps {
            let addresses: Vec<u64> = naive.segments.keys().copied().collect();
            match step {
                Step::Segment(size) => {
                    trace.alloc(next * MIB, size * MIB);
                    naive.segments.insert(next, size);
                    // Segments may lie beside each other, and are stretches of their own.
                    next += size;
                }
                Step::DropSegment(which) if !addresses.is_empty() => {
                    let address = addresses[which.index(addresses.len())];
                    let end = address + naive.segments[&address];
                    if naive.blocks.range(address..end).next().is_some() {
                        continue;
                    }
                    trace.free(address * MIB);
                    naive.segments.remove(&address);
                    naive.used.retain(|used| *used != address);
                }
                Step::Give { segment, at, bytes, site } if !addresses.is_empty() => {
                    let address = addresses[segment.index(addresses.len())];
                    let at = address + at;
                    let fits = at + bytes <= address + naive.segments[&address];
                    if !fits || naive.blocks.iter().any(|(other, (size, _))| *other < at + bytes && at < other + size) {
                        continue;
                    }
                    if !naive.used.contains(&address) {
                        naive.used.push(address);
                    }
                    naive.blocks.insert(at, (bytes, site));
                    reserved = naive.used.iter().map(|used| naive.segments[used]).sum();
                    trace.site = site;
                    trace.reserved(0, reserved * MIB).tensor(0, at * MIB, bytes * MIB);
                    told = true;
                    if naive.given() > most.given() {
                        most = naive.clone();
                    }
                    most_held = most_held.max((reserved * MIB, naive.given() * MIB));
                }
                Step::Take(which) if !naive.blocks.is_empty() => {
                    let at = *naive.blocks.keys().nth(which.index(naive.blocks.len())).unwrap();
                    naive.blocks.remove(&at);
                    trace.free_tensor(at * MIB);
                }
                _ => continue,
            }
            let is_new = naive.held() > highest;
            let better = peak.as_ref().is_none_or(|peak| naive.given() > peak.given());
            if is_new {
                peak = None;
            }
            highest = highest.max(naive.held());
            if told && naive.held() == highest && (is_new || better) {
                peak = Some(naive.clone());
            }
        }
        let replay = replay(&trace, Options::default());
        prop_assert_eq!(replay.blocks.is_used(), told);
        if !told {
            return Ok(());
        }
        let same = |moment: &Moment, naive: &Naive| {
            let one = of(moment);
            let rows: BTreeMap<u32, (u128, u64)> = one.rows.iter().map(|row| (row.site, (row.bytes, row.blocks))).collect();
            prop_assert_eq!(rows, naive.rows());
            prop_assert_eq!(one.state.bytes, u128::from(naive.given() * MIB));
            if let Some(room) = &one.room {
                let (all, largest, pieces) = naive.unused();
                let found = (room.unused_bytes, room.largest_unused_bytes, room.unused_pieces);
                prop_assert_eq!(found, (u128::from(all * MIB), largest * MIB, pieces));
            }
            Ok(())
        };
        same(&replay.blocks.now(0, 0).unwrap(), &naive)?;
        prop_assert!(of(&replay.blocks.now(0, 0).unwrap()).room.is_some());
        prop_assert!(reserved > 0);
        match (replay.blocks.at_peak(0), peak) {
            (Some(moment), Some(peak)) => same(&moment, &peak)?,
            (found, wanted) => prop_assert!(found.is_none() && wanted.is_none(), "{:?} {:?}", found, wanted),
        }
        let told = replay.blocks.device(0).unwrap().all().next().unwrap();
        prop_assert_eq!((told.mismatches, told.unknown_frees, told.replaced), (0, 0, 0));
        let rows: BTreeMap<u32, (u128, u64)> =
            replay.blocks.when_most(0, 0).into_iter().map(|row| (row.site, (row.bytes, row.blocks))).collect();
        prop_assert_eq!((rows, told.most_bytes), (most.rows(), u128::from(most.given() * MIB)));
        prop_assert_eq!((told.most_held.reserved_bytes, told.most_held.allocated_bytes), most_held);
    }
}
