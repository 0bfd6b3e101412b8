//! The allocator by hand, and what must hold of it whatever is asked.

use proptest::prelude::*;

use super::allocator::Allocator;
use super::blocks::{BlockId, State};
use super::driver::Card;
use super::policy::Policy;
use super::{KnownCard, TorchQuestion, UsableBy, ask_snapshot};
use crate::evidence::torch_snapshot::{Action, Event, Snapshot};
use crate::whatif::cards::Fate;

const MIB: u64 = 1 << 20;
const NONE: (u64, u64) = (0, 0);

fn allocator(settings: &str, usable: u64) -> Allocator<Card> {
    Allocator::new(Policy::parse(settings).unwrap(), Card::new(usable), 1 << 30)
}

fn reserved(settings: &str, requests: &[u64]) -> u64 {
    let mut model = allocator(settings, 1 << 40);
    requests.iter().for_each(|bytes| assert!(model.allocate(*bytes, 0, NONE).is_some()));
    model.sums.reserved
}

#[test]
fn segments_are_shared_or_a_requests_own() {
    assert_eq!((reserved("", &[100, 200, MIB]), reserved("", &[100, MIB, MIB])), (2 * MIB, 4 * MIB));
    assert_eq!(reserved("", &[2 * MIB, 3 * MIB, 5 * MIB]), 20 * MIB);
    assert_eq!(reserved("", &[11 * MIB, 12 * MIB + 1]), 12 * MIB + 14 * MIB);
    assert_eq!(reserved("expandable_segments:True", &[11 * MIB, 12 * MIB + 1]), 40 * MIB);
    assert_eq!(reserved("expandable_segments:True", &[100]), 2 * MIB);
}

#[test]
fn what_was_freed_is_joined_and_used_again_on_its_stream_only() {
    let mut model = allocator("", 1 << 40);
    let blocks: Vec<BlockId> = (0..4).map(|_| model.allocate(5 * MIB, 1, NONE).unwrap()).collect();
    blocks.into_iter().for_each(|id| model.free(id, None));
    assert_eq!(model.sums.reserved, 20 * MIB);
    model.allocate(20 * MIB, 1, NONE).unwrap();
    assert_eq!(model.sums.takes, 1);
    model.allocate(20 * MIB, 2, NONE).unwrap();
    assert_eq!(model.sums.takes, 2);
}

#[test]
fn a_block_that_waits_is_not_used_until_its_work_is_done() {
    let mut model = allocator("", 1 << 40);
    let id = model.allocate(12 * MIB, 1, NONE).unwrap();
    model.free(id, Some(7));
    let other = model.allocate(12 * MIB, 1, NONE).unwrap();
    assert_eq!(model.sums.takes, 2);
    model.completed(id, 7);
    model.allocate(12 * MIB, 1, NONE).unwrap();
    assert_eq!(model.sums.takes, 2);
    // A name that is over frees nothing.
    model.completed(other, 7);
    assert_eq!(model.sums.allocated, 24 * MIB);
}

#[test]
fn oversize_blocks_are_kept_whole() {
    let mut model = allocator("max_split_size_mb:30", 1 << 40);
    let large = model.allocate(100 * MIB, 0, NONE).unwrap();
    model.free(large, None);
    model.allocate(25 * MIB, 0, NONE).unwrap();
    assert_eq!(model.sums.reserved, 126 * MIB, "a small request does not take it");
    model.allocate(85 * MIB, 0, NONE).unwrap();
    // 25 MiB of a segment of 26 leave too little to be split off.
    assert_eq!((model.sums.reserved, model.sums.allocated), (126 * MIB, 26 * MIB + 100 * MIB));
}

/// 60 MiB in three segments with holes, and 30 MiB asked for: expandable segments find room, the others do not.
#[test]
fn holes_are_lost_to_fixed_segments_and_not_to_expandable_ones() {
    let result = |settings: &str| {
        let mut model = allocator(settings, 80 * MIB);
        let mut blocks: Vec<BlockId> = (0..4).map(|_| model.allocate(20 * MIB, 0, NONE).unwrap()).collect();
        model.free(blocks.remove(2), None);
        model.free(blocks.remove(0), None);
        (model.allocate(40 * MIB, 0, NONE).is_some(), model.sums.gives, model.sums.retries)
    };
    assert_eq!(result(""), (true, 2, 1));
    assert_eq!(result("expandable_segments:True"), (true, 2, 1));
    let shared = |settings: &str| {
        let mut model = allocator(settings, 80 * MIB);
        let mut blocks: Vec<BlockId> = (0..8).map(|_| model.allocate(9 * MIB, 0, NONE).unwrap()).collect();
        for index in [6, 4, 2, 0] {
            model.free(blocks.remove(index), None);
        }
        model.allocate(30 * MIB, 0, NONE).is_some()
    };
    assert!(!shared(""));
}

#[test]
fn old_segments_go_when_the_threshold_is_passed() {
    let mut model = allocator("garbage_collection_threshold:0.5,per_process_memory_fraction:0.1", 1 << 40);
    let old = model.allocate(40 * MIB, 0, NONE).unwrap();
    model.free(old, None);
    let held = model.allocate(30 * MIB, 1, NONE).unwrap();
    model.allocate(20 * MIB, 1, NONE).unwrap();
    assert_eq!((model.sums.gives, model.sums.reserved), (1, 50 * MIB));
    assert_eq!(model.blocks.get(held).state, State::Allocated);
}

fn event(action: Action, address: u64, size: u64) -> Event {
    let (address_or_free_bytes, size_bytes) = (address, size);
    Event { action, address_or_free_bytes, size_bytes, stream: 0, time_us: 0, pool: NONE, stack: 0 }
}

fn snapshot(events: &[(Action, u64, u64)]) -> Snapshot {
    let events = events.iter().map(|(action, address, size)| event(*action, *address, *size));
    Snapshot { device_traces: vec![events.collect()], ..Snapshot::default() }
}

/// Two segments of which one is given back inside a request that fails all the same.
fn failing() -> Snapshot {
    let (one, two) = (0x7f00_0000_0000, 0x7f00_1000_0000);
    snapshot(&[
        (Action::SegmentAlloc, one, 40 * MIB),
        (Action::Alloc, one, 40 * MIB),
        (Action::SegmentAlloc, two, 30 * MIB),
        (Action::Alloc, two, 30 * MIB - 5),
        (Action::FreeRequested, one, 40 * MIB),
        (Action::FreeCompleted, one, 40 * MIB),
        (Action::SegmentFree, one, 40 * MIB),
        (Action::Oom, 50 * MIB, 60 * MIB),
    ])
}

#[test]
fn a_history_is_reproduced_and_its_limit_is_read_from_its_failure() {
    let question = TorchQuestion { capacities_bytes: vec![200 * MIB], ..TorchQuestion::default() };
    let card = KnownCard { total_bytes: Some(100 * MIB), overhead_bytes: None, virtual_bytes: None };
    let answers = ask_snapshot("s", &failing(), &question, |_| card).unwrap();
    let check = answers[0].check;
    assert_eq!((check.calls.matched, check.calls.recorded, check.calls.extra), (3, 3, 0));
    assert_eq!((check.placed, check.requests), (2, 2));
    assert_eq!((answers[0].usable_bytes, answers[0].usable_by), (Some(80 * MIB), UsableBy::Failure));
    let fates: Vec<_> =
        answers[0].policies.iter().map(|policy| (policy.usable_bytes, policy.failures[0].fate)).collect();
    assert_eq!(fates, [(Some(80 * MIB), Fate::Remains), (Some(180 * MIB), Fate::Gone)]);
}

#[test]
fn a_history_that_the_model_does_not_make_is_told_apart() {
    let one = 0x7f00_0000_0000;
    let events =
        [(Action::SegmentAlloc, one, 60 * MIB), (Action::Alloc, one, 40 * MIB), (Action::SegmentFree, one, MIB)];
    let answers = ask_snapshot("s", &snapshot(&events), &TorchQuestion::default(), |_| KnownCard::default()).unwrap();
    let calls = answers[0].check.calls;
    assert_eq!((calls.matched, calls.recorded, calls.first_difference), (0, 2, Some(1)));
}

#[test]
fn what_lived_before_the_history_is_there_from_its_begin() {
    let one = 0x7f00_0000_0000;
    let events = [(Action::FreeRequested, one, 40 * MIB), (Action::FreeCompleted, one, 40 * MIB)];
    let answers = ask_snapshot("s", &snapshot(&events), &TorchQuestion::default(), |_| KnownCard::default()).unwrap();
    assert_eq!((answers[0].check.blocks_before, answers[0].policies[0].peak_reserved_bytes), (1, 40 * MIB));
}

#[derive(Clone, Debug)]
enum Step {
    Take(u64, u64),
    Free(prop::sample::Index, bool),
    Complete(prop::sample::Index),
    Empty,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let bytes = prop_oneof![1u64..4096, 1u64..2 * MIB, MIB..12 * MIB, 10 * MIB..80 * MIB];
    let step = prop_oneof![
        6 => (bytes, 0u64..2).prop_map(|(bytes, stream)| Step::Take(bytes, stream)),
        4 => (any::<prop::sample::Index>(), any::<bool>()).prop_map(|(which, waits)| Step::Free(which, waits)),
        2 => any::<prop::sample::Index>().prop_map(Step::Complete),
        1 => Just(Step::Empty),
    ];
    prop::collection::vec(step, 1..120)
}

fn settings() -> impl Strategy<Value = &'static str> {
    prop::sample::select(vec![
        "",
        "expandable_segments:True",
        "max_split_size_mb:25",
        "roundup_power2_divisions:4",
        "garbage_collection_threshold:0.4,per_process_memory_fraction:0.3",
        "expandable_segments:True,max_split_size_mb:25",
    ])
}

/// Nothing overlaps, free neighbours are joined, and the sums are those of the blocks.
fn assert_sound(model: &Allocator<Card>, held: u64) {
    let mut blocks: Vec<_> = model.blocks.ids().map(|id| *model.blocks.get(id)).collect();
    blocks.sort_unstable_by_key(|block| block.address);
    for pair in blocks.windows(2) {
        assert!(pair[0].end() <= pair[1].address, "{:x?} overlaps {:x?}", pair[0], pair[1]);
        let joined = pair[0].after.is_some_and(|after| model.blocks.get(after).address == pair[1].address);
        let alike = pair.iter().all(|block| block.state == State::Free) && pair[0].mapped == pair[1].mapped;
        assert!(!(joined && alike), "free neighbours: {pair:x?}");
    }
    let mapped: u64 = blocks.iter().filter(|block| block.mapped).map(|block| block.bytes).sum();
    assert_eq!(mapped, model.sums.reserved);
    assert_eq!(held, model.sums.allocated);
    assert!(model.bytes_in_use() >= model.sums.allocated && model.sums.reserved >= model.bytes_in_use());
    let cached: u64 = model.pools.iter().flat_map(|pool| &pool.free).map(|(_, bytes, ..)| bytes).sum();
    assert_eq!(cached + model.bytes_in_use(), model.sums.reserved);
    assert!(model.sums.peak_reserved >= model.sums.reserved && model.sums.peak_allocated >= model.sums.allocated);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn the_allocator_keeps_its_books(steps in steps(), settings in settings(), usable in 50u64..600) {
        let mut model = allocator(settings, usable * MIB);
        let mut live: Vec<(u64, BlockId)> = Vec::new();
        let mut waiting: Vec<(u64, BlockId)> = Vec::new();
        for (name, step) in (0u64..).zip(&steps) {
            match step {
                Step::Take(bytes, stream) => live.extend(model.allocate(*bytes, *stream, NONE).map(|id| (name, id))),
                Step::Free(which, waits) if !live.is_empty() => {
                    let (name, id) = live.swap_remove(which.index(live.len()));
                    model.free(id, waits.then_some(name));
                    waiting.extend(waits.then_some((name, id)));
                }
                Step::Complete(which) if !waiting.is_empty() => {
                    let (name, id) = waiting.swap_remove(which.index(waiting.len()));
                    model.completed(id, name);
                }
                Step::Empty => model.release_cached(),
                _ => {}
            }
            let held = live.iter().map(|(_, id)| model.blocks.get(*id).bytes).sum();
            assert_sound(&model, held);
            prop_assert!(model.sums.reserved <= usable * MIB);
        }
        live.into_iter().for_each(|(_, id)| model.free(id, None));
        model.release_cached();
        prop_assert_eq!((model.sums.reserved, model.sums.allocated), (0, 0));
    }

    /// A history of any events is answered, whatever they say.
    #[test]
    fn no_history_breaks_it(events in prop::collection::vec((0usize..8, any::<u64>(), any::<u64>()), 0..60)) {
        let actions = [
            Action::Alloc, Action::FreeRequested, Action::FreeCompleted, Action::SegmentAlloc, Action::SegmentFree,
            Action::SegmentMap, Action::SegmentUnmap, Action::Oom,
        ];
        let events: Vec<_> = events.iter().map(|(action, address, size)| (actions[*action], *address, *size)).collect();
        let policies = vec![Policy::parse("expandable_segments:True").unwrap(), Policy::default()];
        let question = TorchQuestion { policies, capacities_bytes: vec![u64::MAX] };
        for answer in ask_snapshot("s", &snapshot(&events), &question, |_| KnownCard::default()).unwrap() {
            prop_assert!(answer.check.calls.matched <= answer.check.calls.recorded);
        }
    }
}
