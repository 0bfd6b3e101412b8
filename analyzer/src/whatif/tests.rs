//! Worlds that can be counted by hand, and what must hold of any.

use gpuoom_trace::metadata::Quantity;
use gpuoom_trace::record::{Event, Kind, Record, flag, injected};
use proptest::prelude::*;

use super::cards::{Basis, Card, DeviceAnswer, Fate, Unclear};
use super::overhead::Origin;
use super::{Question, ask};
use crate::testing::{GIB, MIB, TraceBuilder, open};

/// The answer about the only device.
fn answer(trace: &TraceBuilder, question: Question) -> DeviceAnswer {
    let mut answer = ask(&mut open(trace), &question, |_| {});
    assert_eq!(answer.devices.len(), 1);
    answer.devices.remove(0)
}

fn cards(sizes: &[u64]) -> Question {
    Question { capacities_bytes: sizes.to_vec(), granularities_bytes: vec![2 * MIB], ..Question::default() }
}

fn card(answer: &DeviceAnswer, capacity: u64, granularity: u64) -> &Card {
    let found = |card: &&Card| card.capacity_bytes == capacity && card.granularity.bytes == granularity;
    answer.cards.iter().find(found).expect("that card was asked for")
}

/// 6 GiB are held of 8, and 3 GiB more are asked for in vain; 1 GiB is in use by others.
fn full_card() -> TraceBuilder {
    let mut trace = TraceBuilder::default().device(0, "card", 8 * GIB);
    for number in 0..6 {
        trace.alloc(0x1000_0000_0000 + number * GIB, GIB);
    }
    let seq = trace.refuse(3 * GIB);
    trace.read_at_failure(seq, &[(Quantity::RuntimeTotal as u16, 8 * GIB), (Quantity::RuntimeFree as u16, GIB)]);
    trace
}

#[test]
fn what_others_hold_is_measured_and_counts_on_every_card() {
    let answer = answer(&full_card(), cards(&[9 * GIB, 10 * GIB]));
    assert_eq!((answer.overhead.bytes, answer.overhead.origin), (GIB, Origin::AtFailure));
    assert_eq!((answer.overhead.failure, answer.overhead.by), (Some(1), Some("hipMemGetInfo")));
    let fate = |capacity| card(&answer, capacity, 2 * MIB).failures[0].fate;
    assert_eq!([8, 9, 10].map(|gib| fate(gib * GIB)), [Fate::Remains, Fate::Remains, Fate::Gone]);
    let need = answer.needs[0];
    assert_eq!((need.fits_in_least_bytes, need.fits_in_most_bytes), (10 * GIB, 10 * GIB));
    let changed = card(&answer, 10 * GIB, 2 * MIB).first_change.as_ref().unwrap();
    assert_eq!((changed.failure, changed.requested_bytes, &changed.api[..]), (Some(1), 3 * GIB, "hipMalloc"));
}

/// The model has room for what the card refused: it says nothing of other cards, and none as small as that one is enough.
#[test]
fn what_the_model_does_not_explain_is_not_told_of_other_cards() {
    let mut trace = TraceBuilder::default().device(0, "card", 8 * GIB);
    trace.alloc(0x1000_0000_0000, GIB);
    trace.refuse(3 * GIB);
    let answer = answer(&trace, cards(&[6 * GIB, 10 * GIB]));
    assert_eq!(card(&answer, 8 * GIB, 2 * MIB).fates.gone, 1, "the check of the model");
    for capacity in [6, 10] {
        let card = card(&answer, capacity * GIB, 2 * MIB);
        assert_eq!((card.fates.unknown, card.failures[0].unclear), (1, Some(Unclear::NotExplained)));
        assert_eq!(card.first_change, None);
    }
    for need in &answer.needs {
        assert_eq!((need.fits_in_least_bytes, need.unexplained_failures), (8 * GIB, 1));
    }
}

#[test]
fn a_smaller_card_refuses_what_succeeded_and_says_from_where_on_it_guesses() {
    let answer = answer(&full_card(), cards(&[4 * GIB]));
    let small = card(&answer, 4 * GIB, 2 * MIB);
    assert_eq!((small.new_failures_least, small.new_failures_most), (3, Some(3)));
    let first = small.first_change.as_ref().unwrap();
    assert_eq!((first.failure, first.requested_bytes), (None, GIB));
    assert!(small.failures[0].conditional);
    assert!(!card(&answer, 8 * GIB, 2 * MIB).failures[0].conditional);
}

/// What a pool keeps is counted once: a larger card gives all that the recorded one gave.
#[test]
fn what_pools_keep_counts_once() {
    let mut trace = TraceBuilder::default().device(0, "card", 24 * GIB);
    let address = |block: u64| 0x1000_0000_0000 + block * 2 * GIB;
    (0..16).for_each(|block| _ = trace.alloc_kind(Kind::Pool, "hipMallocAsync", address(block), GIB));
    (0..16).for_each(|block| _ = trace.free_kind(Kind::Pool, "hipFreeAsync", address(block)));
    let seq = trace.refuse(12 * GIB);
    trace.read_at_failure(seq, &[(Quantity::RuntimeTotal as u16, 24 * GIB), (Quantity::RuntimeFree as u16, 8 * GIB)]);
    let answer = answer(&trace, cards(&[26 * GIB, 32 * GIB]));
    assert_eq!((answer.overhead.bytes, answer.overhead.kept_by_pools_bytes), (16 * GIB, 16 * GIB));
    for capacity in [24 * GIB, 26 * GIB, 32 * GIB] {
        assert_eq!(card(&answer, capacity, 2 * MIB).new_failures_most, Some(0), "{capacity}");
    }
    let fate = |capacity| card(&answer, capacity, 2 * MIB).failures[0].fate;
    assert_eq!([26, 32].map(|gib| fate(gib * GIB)), [Fate::Depends, Fate::Gone]);
    let changes = |capacity| {
        let card = card(&answer, capacity, 2 * MIB);
        (card.may_change.is_some(), card.first_change.is_some())
    };
    assert_eq!([26, 32].map(|gib| changes(gib * GIB)), [(true, false), (false, true)]);
}

/// Managed memory may lie on a larger card, and that refuses nothing that the smaller card gave.
#[test]
fn managed_memory_refuses_nothing_on_a_larger_card() {
    let mut trace = TraceBuilder::default().device(0, "card", 24 * GIB);
    trace.alloc_kind(Kind::Managed, "hipMallocManaged", 0x1000_0000_0000, 24 * GIB);
    (0..20).for_each(|block| _ = trace.alloc(0x2000_0000_0000 + block * GIB, GIB));
    let seq = trace.refuse(6 * GIB);
    trace.read_at_failure(seq, &[(Quantity::RuntimeTotal as u16, 24 * GIB), (Quantity::RuntimeFree as u16, 4 * GIB)]);
    let answer = answer(&trace, cards(&[32 * GIB, 64 * GIB]));
    assert_eq!((answer.overhead.bytes, answer.overhead.managed_held_bytes), (0, 24 * GIB));
    assert_eq!(card(&answer, 32 * GIB, 2 * MIB).new_failures_most, Some(0));
    let fate = |capacity| card(&answer, capacity, 2 * MIB).failures[0].fate;
    assert_eq!([24, 32, 64].map(|gib| fate(gib * GIB)), [Fate::Remains, Fate::Depends, Fate::Gone]);
}

#[test]
fn an_overhead_that_is_given_is_used_instead() {
    let answer = answer(&full_card(), Question { overhead_bytes: Some(0), ..cards(&[9 * GIB]) });
    assert_eq!(card(&answer, 9 * GIB, 2 * MIB).failures[0].fate, Fate::Gone);
    assert_eq!(answer.overhead.origin, Origin::Given);
}

/// 5 GiB refused, then 2 GiB refused: whether a card of 6 GiB gives the second depends on how long the first is held.
#[test]
fn the_lifetime_of_what_was_refused_is_bounded() {
    let mut trace = TraceBuilder::default().device(0, "card", 2 * GIB);
    trace.alloc(0x1000_0000_0000, GIB);
    trace.refuse(5 * GIB);
    trace.refuse(2 * GIB);
    let answer = answer(&trace, cards(&[6 * GIB, 8 * GIB]));
    let fates =
        |capacity| card(&answer, capacity, 2 * MIB).failures.iter().map(|failure| failure.fate).collect::<Vec<_>>();
    assert_eq!(fates(6 * GIB), [Fate::Gone, Fate::Depends]);
    assert_eq!(fates(8 * GIB), [Fate::Gone, Fate::Gone]);
    let need = answer.needs.iter().find(|need| need.granularity.bytes == 2 * MIB).unwrap();
    assert_eq!((need.fits_in_least_bytes, need.fits_in_most_bytes), (6 * GIB, 8 * GIB));
}

/// A program that frees and asks again gets the same memory once, not twice.
#[test]
fn a_retry_that_succeeded_is_not_held_twice() {
    let mut trace = TraceBuilder::default().device(0, "card", 4 * GIB);
    trace.alloc(0x1000_0000_0000, 3 * GIB);
    trace.refuse(2 * GIB);
    trace.free(0x1000_0000_0000);
    trace.alloc(0x2000_0000_0000, 2 * GIB);
    let answer = answer(&trace, cards(&[5 * GIB]));
    let need = answer.needs[0];
    assert_eq!((need.fits_in_least_bytes, need.fits_in_most_bytes), (5 * GIB, 5 * GIB));
    assert_eq!(card(&answer, 5 * GIB, 2 * MIB).new_failures_most, Some(0));
}

#[test]
fn failures_that_are_not_about_the_size_of_the_card_are_not_judged() {
    let mut trace = TraceBuilder::default().device(0, "card", 8 * GIB);
    trace.alloc(0x1000_0000_0000, GIB);
    let seq = trace.refuse(GIB);
    trace.read_at_failure(seq, &[(Quantity::RuntimeTotal as u16, 8 * GIB), (Quantity::RuntimeFree as u16, 6 * GIB)]);
    let record = trace.record(Event::Alloc, Kind::HostPinned, "hipHostMalloc");
    trace.push(gpuoom_trace::record::Record { status: 2, requested: GIB, ..record }, &[]);
    let answer = answer(&trace, cards(&[16 * GIB]));
    let failures = &card(&answer, 16 * GIB, 2 * MIB).failures;
    let unclear: Vec<_> = failures.iter().map(|failure| (failure.fate, failure.unclear)).collect();
    assert_eq!(unclear, [(Fate::Unknown, Some(Unclear::EnoughWasFree)), (Fate::Unknown, Some(Unclear::Host))]);
    assert!(card(&answer, 16 * GIB, 2 * MIB).first_change.is_none());
}

#[test]
fn what_a_virtual_card_refused_is_judged_by_its_size() {
    let mut trace = TraceBuilder::default().device(0, "card", 16 * GIB);
    trace.alloc(0x1000_0000_0000, 3 * GIB);
    let record = trace.record(Event::Alloc, Kind::Device, "hipMalloc");
    let kind_flags = Kind::Device as u8 | flag::INJECTED;
    trace.push(Record { status: 2, requested: 2 * GIB, kind_flags, address: injected::CAPACITY.into(), ..record }, &[]);
    let answer = answer(&trace, cards(&[4 * GIB, 8 * GIB]));
    let fate =
        |bytes: u64| card(&answer, bytes, 2 * MIB).failures.iter().map(|failure| failure.fate).collect::<Vec<_>>();
    assert_eq!((fate(4 * GIB), fate(8 * GIB)), (vec![Fate::Remains], vec![Fate::Gone]));
    assert_eq!(answer.needs[0].fits_in_least_bytes, 5 * GIB);
}

/// The run was given a virtual card: by that its failures are judged, and the card itself is another one.
#[test]
fn a_virtual_card_is_judged_as_one() {
    let mut trace = TraceBuilder::default().device(0, "card", 24 * GIB);
    trace.process.environment.push(("GPUOOM_CAPACITY".into(), "4G".into()));
    trace.alloc(0x1000_0000_0000, 3 * GIB);
    let record = trace.record(Event::Alloc, Kind::Device, "hipMalloc");
    let kind_flags = Kind::Device as u8 | flag::INJECTED;
    trace.push(Record { status: 2, requested: 2 * GIB, kind_flags, address: injected::CAPACITY.into(), ..record }, &[]);
    let told = answer(&trace, cards(&[8 * GIB]));
    assert_eq!((told.virtual_bytes, told.total_bytes), (Some(4 * GIB), Some(24 * GIB)));
    let known: Vec<(u64, bool, Fate)> = told
        .cards
        .iter()
        .filter(|card| card.granularity.bytes == 2 * MIB)
        .map(|card| (card.capacity_bytes >> 30, card.is_recorded, card.failures[0].fate))
        .collect();
    assert_eq!(known, [(4, true, Fate::Remains), (24, false, Fate::Gone), (8, false, Fate::Gone)]);
    trace.process.environment.last_mut().unwrap().1 = "off".into();
    assert_eq!(answer(&trace, cards(&[])).virtual_bytes, None);
}

#[test]
fn granules_are_inferred_from_addresses_and_taken_as_none_where_they_cannot_be() {
    let basis = |blocks: u64| {
        let mut trace = TraceBuilder::default().device(0, "card", 8 * GIB);
        for number in 0..blocks {
            trace.alloc(0x1000_0000_0000 + number * 2 * MIB, MIB);
        }
        let answer = answer(&trace, Question::default());
        let bases: Vec<_> = answer.needs.iter().map(|need| (need.granularity.basis, need.peak_padded_bytes)).collect();
        bases
    };
    assert_eq!(basis(8), [(Basis::Inferred, 16 * MIB), (Basis::Recorded, 2 * GIB)]);
    assert_eq!(basis(2), [(Basis::None, 2 * MIB), (Basis::Recorded, 512 * MIB)]);
}

/// One block of 7 GiB: with so few addresses nothing is rounded, and the block is larger than 32 bits can say in bytes.
#[test]
fn a_block_above_4_gib_is_all_the_programs_own() {
    let mut trace = TraceBuilder::default().device(0, "card", 8 * GIB);
    trace.alloc(0x1000_0000_0000, 7 * GIB);
    let seq = trace.refuse(2 * GIB);
    trace.read_at_failure(seq, &[(Quantity::RuntimeTotal as u16, 8 * GIB), (Quantity::RuntimeFree as u16, GIB)]);
    let answer = answer(&trace, Question::default());
    assert_eq!((answer.overhead.bytes, answer.needs[0].granularity.basis), (0, Basis::None));
    assert_eq!(answer.needs[0].fits_in_most_bytes, 9 * GIB);
    assert_eq!(card(&answer, 8 * GIB, answer.needs[0].granularity.bytes).failures[0].fate, Fate::Remains);
}

#[test]
fn managed_memory_is_left_out() {
    let mut trace = TraceBuilder::default().device(0, "card", 8 * GIB);
    trace.alloc_kind(Kind::Managed, "hipMallocManaged", 0x1000_0000_0000, 20 * GIB);
    trace.alloc(0x2000_0000_0000, GIB);
    let answer = answer(&trace, cards(&[4 * GIB, 16 * GIB]));
    assert_eq!((answer.managed_bytes, answer.needs[0].fits_in_most_bytes), (20 * GIB, GIB));
    let new = |capacity| {
        let card = card(&answer, capacity, answer.needs[0].granularity.bytes);
        (card.new_failures_least, card.new_failures_most)
    };
    assert_eq!(new(4 * GIB), (0, None), "what of it a smaller card would have to hold is not known");
    assert_eq!(new(16 * GIB), (0, Some(0)));
}

/// A size below zero is a huge one.
#[test]
fn what_no_card_could_hold_is_left_out_of_what_is_needed() {
    let mut trace = TraceBuilder::default().device(0, "card", 8 * GIB);
    trace.alloc(0x1000_0000_0000, GIB);
    trace.refuse(100u64.wrapping_neg());
    trace.refuse(9 * GIB);
    let answer = answer(&trace, Question { granularities_bytes: vec![256 * MIB], ..Question::default() });
    assert_eq!((answer.absurd_failures, answer.failures), (1, 2));
    assert!(answer.needs.iter().all(|need| need.fits_in_most_bytes == 10 * GIB), "{:?}", answer.needs);
}

/// A pool may keep what it was given back: the model says so, and by how much.
#[test]
fn what_went_back_to_pools_is_told() {
    let mut trace = TraceBuilder::default().device(0, "card", 8 * GIB);
    for _ in 0..5 {
        trace.alloc_kind(Kind::Pool, "hipMallocAsync", 0x1000_0000_0000, 2 * GIB);
        trace.free(0x1000_0000_0000);
    }
    trace.alloc(0x2000_0000_0000, GIB);
    trace.free(0x2000_0000_0000);
    let answer = answer(&trace, Question::default());
    assert_eq!(answer.returned_to_pools_bytes, 10 * GIB);
    // The plain block beside what the pool gave back, or beside what it keeps.
    let need = answer.needs[0];
    assert_eq!((need.fits_in_least_bytes, need.fits_in_most_bytes), (2 * GIB, 3 * GIB));
}

#[derive(Clone, Debug)]
enum Step {
    Alloc(u64),
    Refuse(u64),
    Free(prop::sample::Index),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        3 => (1u64..600).prop_map(Step::Alloc),
        1 => (1u64..900).prop_map(Step::Refuse),
        2 => any::<prop::sample::Index>().prop_map(Step::Free),
    ];
    prop::collection::vec(step, 1..60)
}

fn build(steps: &[Step]) -> TraceBuilder {
    let mut trace = TraceBuilder::default().device(0, "card", 64 * GIB);
    let mut live = Vec::new();
    for (number, step) in steps.iter().enumerate() {
        let address = 0x1000_0000_0000 + number as u64 * GIB;
        match step {
            Step::Alloc(mib) => {
                trace.alloc(address, mib * MIB - 3);
                live.push(address);
            }
            Step::Refuse(mib) => {
                trace.refuse(mib * MIB);
            }
            Step::Free(which) if !live.is_empty() => {
                trace.free(live.swap_remove(which.index(live.len())));
            }
            Step::Free(_) => {}
        }
    }
    trace
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(12))]

    /// The card that is said to be large enough is, and one byte less is not.
    #[test]
    fn fits_in_is_the_smallest_card_that_refuses_nothing(steps in steps()) {
        let trace = build(&steps);
        let mut first = ask(&mut open(&trace), &cards(&[]), |_| {});
        let Some(device) = first.devices.pop() else { return Ok(()) };
        // What the recorded card refused and the model has room for is in no size.
        for need in device.needs.iter().filter(|need| need.unexplained_failures == 0) {
            let ask_size = |bytes: u64| {
                let answer = answer(&trace, Question { device: Some(0), ..cards(&[bytes]) });
                card(&answer, bytes, need.granularity.bytes).clone()
            };
            let enough = ask_size(need.fits_in_most_bytes);
            prop_assert_eq!((enough.new_failures_most, enough.fates.remain, enough.fates.depend), (Some(0), 0, 0));
            if need.fits_in_most_bytes > 1 {
                let less = ask_size(need.fits_in_most_bytes - 1);
                prop_assert!(less.new_failures_most.expect("known") + less.fates.remain + less.fates.depend > 0);
            }
            prop_assert!(need.fits_in_least_bytes <= need.fits_in_most_bytes);
            prop_assert!(need.peak_requested_bytes <= need.peak_padded_bytes);
        }
    }

    /// Every recorded failure has a fate.
    #[test]
    fn fates_add_up(steps in steps(), capacity in 1u64..40_000) {
        let trace = build(&steps);
        for device in ask(&mut open(&trace), &cards(&[capacity * MIB]), |_| {}).devices {
            for card in &device.cards {
                let fates = card.fates;
                prop_assert_eq!(fates.remain + fates.gone + fates.depend + fates.unknown, device.failures);
                prop_assert!(Some(card.new_failures_least) <= card.new_failures_most);
                prop_assert!(card.new_failures_most <= Some(device.allocations));
            }
        }
    }
}

/// An allocator's own limit may be a share of the card: nobody knows it on another one.
#[test]
fn a_limit_of_an_allocator_is_not_judged_by_the_size_of_the_card() {
    let mut trace = TraceBuilder::new(MIB).device(0, "card", GIB);
    trace.segment(0x7f00_0000_0000, 200 * MIB);
    trace.tensor(0, 0x7f00_0000_0000, 200 * MIB);
    trace.no_tensor(0, 120 * MIB);
    let answer = answer(&trace, cards(&[2 * GIB]));
    let failure = card(&answer, 2 * GIB, 2 * MIB).failures[0];
    assert_eq!((failure.fate, failure.unclear), (Fate::Unknown, Some(Unclear::OwnLimit)));
    assert_eq!((answer.own_limit_failures, answer.needs.len()), (1, 0));
}

#[test]
fn the_recorded_card_is_not_told_twice() {
    let answer = answer(&full_card(), cards(&[8 * GIB, 10 * GIB]));
    let of_size = |bytes| answer.cards.iter().filter(|card| card.capacity_bytes == bytes).count();
    assert_eq!(of_size(8 * GIB), of_size(10 * GIB));
}

/// A cache that is large from the beginning hides what becomes more inside of it.
#[test]
fn growth_inside_of_a_cache_is_growth() {
    let grows = |kept_bytes: u64| {
        let mut trace = TraceBuilder::new(MIB).device(0, "card", 16 * GIB);
        let segment = 0x7f00_0000_0000;
        trace.segment(segment, 8 * GIB);
        for step in 0..40 {
            let mark = trace.record(Event::Mark, Kind::None, "gpuoom_mark");
            trace.with_text(mark, &format!("step {step}"));
            trace.tensor(0, segment + step * 64 * MIB, kept_bytes);
            trace.tensor(0, segment + 7 * GIB, 32 * MIB);
            trace.free_tensor(segment + 7 * GIB);
        }
        answer(&trace, Question::default()).grows_bytes_per_step
    };
    assert_eq!((grows(8 * MIB), grows(0)), (Some(8 * MIB), None));
}

/// What fills in cycles may be a load, which ends, or a cache, which a longer run fills further.
#[test]
fn what_may_be_a_load_may_go_on() {
    let mut trace = TraceBuilder::new(MIB).device(0, "card", 16 * GIB);
    let segment = 0x7f00_0000_0000;
    trace.segment(segment, 8 * GIB);
    for step in 0..40 {
        trace.tensor(0, segment + step * 64 * MIB, 40 * MIB);
        trace.tensor(0, segment + 7 * GIB, 32 * MIB);
        trace.free_tensor(segment + 7 * GIB);
    }
    let answer = answer(&trace, Question::default());
    assert_eq!((answer.grows_bytes_per_step, answer.may_grow_bytes_per_step), (None, Some(40 * MIB)));
}
