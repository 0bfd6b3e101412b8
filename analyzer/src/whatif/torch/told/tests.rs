//! Histories from traces that were built.

use gpuoom_trace::metadata::Quantity;
use proptest::prelude::*;

use super::*;
use crate::intake::read_through;
use crate::replay::{Options, Replay};
use crate::testing::{GIB, MIB, TraceBuilder, open};
use crate::whatif::cards::Fate;
use crate::whatif::torch::{KnownCard, TorchAnswer, TorchQuestion, UsableBy, ask_told};

const SEGMENT: u64 = 0x7f00_0000_0000;

fn trace() -> TraceBuilder {
    TraceBuilder::new(MIB).device(0, "Card", 16 * GIB)
}

/// The histories of a trace that was built.
pub(crate) fn told(builder: &TraceBuilder, policy: &Policy) -> ToldHistory {
    let mut trace = open(builder);
    let mut replay = Replay::new(&trace, Options::default());
    read_through(&mut trace, |_| {}, |batch| replay.batch(batch));
    replay.finish();
    let mut histories = Histories::new(&replay, policy);
    let work = |batch: &Batch| {
        histories.batch(batch);
        std::ops::ControlFlow::Continue(())
    };
    read_through(&mut trace, |_| {}, work);
    histories.finish()
}

fn asked(builder: &TraceBuilder, recorded: &str, settings: &[&str]) -> TorchAnswer {
    let policy = Policy::parse(recorded).unwrap();
    let policies = settings.iter().map(|text| Policy::parse(text).unwrap()).collect();
    let question = TorchQuestion { policies, ..TorchQuestion::default() };
    let card = KnownCard { total_bytes: Some(16 * GIB), overhead_bytes: None, virtual_bytes: None };
    let mut answers = ask_told(&told(builder, &policy), &policy, &question, |_| card);
    assert_eq!(answers.len(), 1);
    answers.remove(0)
}

fn actions(builder: &TraceBuilder) -> Vec<(Action, u64, u64)> {
    let events = told(builder, &Policy::default()).snapshot.device_traces.remove(0);
    events.iter().map(|event| (event.action, event.address_or_free_bytes, event.size_bytes)).collect()
}

#[test]
fn segment_calls_stand_before_the_blocks_that_they_were_made_for() {
    let mut trace = trace();
    // Another library's memory is no segment, also where it comes between.
    trace.alloc(SEGMENT + 8 * GIB, 30 * MIB);
    trace.segment(SEGMENT, 20 * MIB);
    trace.tensor(0, SEGMENT, 4 * MIB);
    trace.alloc(SEGMENT + 9 * GIB, 40 * MIB);
    trace.free_tensor(SEGMENT);
    trace.free(SEGMENT + 9 * GIB);
    trace.free(SEGMENT);
    trace.segment(SEGMENT + GIB, 12 * MIB);
    trace.tensor(0, SEGMENT + GIB, 12 * MIB);
    let expected = [
        (Action::SegmentAlloc, SEGMENT, 20 * MIB),
        (Action::Alloc, SEGMENT, 4 * MIB),
        (Action::FreeRequested, SEGMENT, 4 * MIB),
        (Action::FreeCompleted, SEGMENT, 4 * MIB),
        (Action::SegmentFree, SEGMENT, 20 * MIB),
        (Action::SegmentAlloc, SEGMENT + GIB, 12 * MIB),
        (Action::Alloc, SEGMENT + GIB, 12 * MIB),
    ];
    assert_eq!(actions(&trace), expected);
    let answer = asked(&trace, "", &["expandable_segments:True"]);
    assert_eq!((answer.check.calls.matched, answer.check.calls.recorded, answer.check.placed), (3, 3, 2));
    assert_eq!((answer.answered_requests, answer.stops_because), (2, None));
    // The cache was emptied by the program: under any settings.
    assert_eq!(answer.policies.iter().map(|policy| policy.gives).collect::<Vec<_>>(), [1, 1]);
    // The segment of 12 MiB was one request's, of which nobody knows how much of it was asked for.
    let least = answer.policies[1].with_least_requests.as_ref().unwrap();
    assert_eq!((answer.check.rounded_requests, answer.policies[1].peak_allocated_bytes), (1, 12 * MIB));
    assert_eq!(least.peak_allocated_bytes, 11 * MIB);
    assert!(answer.policies[0].with_least_requests.is_none(), "the recorded run gave just that");
}

/// A refusal, all that is unused given back, and the error that comes of a second refusal.
#[test]
fn what_a_refused_request_gives_back_is_its_own() {
    let mut trace = trace();
    trace.segment(SEGMENT, 40 * MIB);
    trace.tensor(0, SEGMENT, 40 * MIB);
    trace.segment(SEGMENT + GIB, 30 * MIB);
    trace.tensor(0, SEGMENT + GIB, 30 * MIB);
    trace.free_tensor(SEGMENT);
    trace.refuse(60 * MIB);
    trace.free(SEGMENT);
    let last = trace.refuse(60 * MIB);
    trace.read_at_failure(last, &[(Quantity::RuntimeFree as u16, 50 * MIB)]);
    trace.no_tensor(0, 60 * MIB);
    let answer = asked(&trace, "", &[]);
    assert_eq!((answer.check.calls.matched, answer.check.calls.recorded), (3, 3));
    assert_eq!((answer.failures, answer.usable_bytes, answer.usable_by), (1, Some(80 * MIB), UsableBy::Failure));
    assert_eq!((answer.policies[0].retries, answer.policies[0].failures[0].fate), (1, Fate::Remains));
}

/// With several streams a block that one of them freed is not given to another: the model, which knows of none, would give it.
#[test]
fn nothing_is_said_of_what_follows_a_difference() {
    let mut trace = trace();
    for number in 0..3 {
        let at = SEGMENT + number * GIB;
        trace.segment(at, 12 * MIB);
        trace.tensor(0, at, 12 * MIB);
        trace.free_tensor(at);
    }
    trace.refuse(GIB);
    trace.no_tensor(0, GIB);
    let answer = asked(&trace, "", &["expandable_segments:True"]);
    assert_eq!((answer.answered_requests, answer.stops_because), (1, Some(Stop::ModelDiffers)));
    assert_eq!((answer.check.requests, answer.failures, answer.usable_bytes), (3, 0, None));
    assert!(answer.policies.iter().all(|policy| policy.takes == 1 && policy.failures.is_empty()));
}

/// A request that another stream's block would have held failed in the run, and the model, which knows of one stream, meets it.
#[test]
fn a_failure_that_the_model_does_not_have_is_not_foretold() {
    let mut trace = trace();
    trace.segment(SEGMENT, 20 * MIB);
    trace.tensor(0, SEGMENT, 5 * MIB);
    trace.refuse(20 * MIB);
    let last = trace.refuse(20 * MIB);
    trace.read_at_failure(last, &[(Quantity::RuntimeFree as u16, 4 * MIB)]);
    trace.no_tensor(0, 9 * MIB);
    let answer = asked(&trace, "", &["expandable_segments:True"]);
    assert_eq!((answer.answered_requests, answer.stops_because), (1, Some(Stop::FailureUnexplained)));
    assert!(answer.policies.iter().all(|policy| policy.failures.is_empty() && policy.first_change.is_none()));
}

#[test]
fn a_limit_that_nobody_told_of_ends_the_history() {
    let mut trace = trace();
    trace.segment(SEGMENT, 12 * MIB);
    trace.tensor(0, SEGMENT, 12 * MIB);
    trace.no_tensor(0, GIB);
    trace.segment(SEGMENT + GIB, 12 * MIB);
    trace.tensor(0, SEGMENT + GIB, 12 * MIB);
    let answer = asked(&trace, "", &[]);
    assert_eq!((answer.stops_because, answer.answered_requests), (Some(Stop::OwnLimit), 1));
    let answer = asked(&trace, "per_process_memory_fraction:0.01", &[]);
    assert_eq!((answer.stops_because, answer.answered_requests, answer.failures), (None, 3, 1));
}

#[test]
fn totals_that_differ_end_the_history() {
    let mut trace = trace();
    trace.segment(SEGMENT, 20 * MIB);
    trace.tensor(0, SEGMENT, 4 * MIB);
    trace.hostile_tensor(false, 0, SEGMENT + 4 * MIB, 2 * MIB, Some([GIB, GIB]));
    let answer = asked(&trace, "", &[]);
    assert_eq!((answer.stops_because, answer.answered_requests), (Some(Stop::TotalsDiffer), 1));
}

#[test]
fn pieces_that_are_mapped_beside_each_other_are_one_call() {
    let mut trace = trace();
    let space = 18 * GIB;
    let record = trace.record(Told::Reserve, Kind::Reserved, "hipMemAddressReserve");
    trace.push(Record { address: SEGMENT, requested: space, ..record }, &[]);
    for number in 0..2 {
        trace.create_and_map(0x50 + number, SEGMENT + number * 20 * MIB, 20 * MIB);
    }
    trace.reserved(0, 40 * MIB);
    trace.tensor(0, SEGMENT, 30 * MIB);
    trace.free_tensor(SEGMENT);
    for number in 0..2 {
        trace.unmap(SEGMENT + number * 20 * MIB, 20 * MIB);
    }
    trace.segment(SEGMENT + 64 * GIB, 12 * MIB);
    assert_eq!(
        actions(&trace),
        [
            (Action::SegmentMap, SEGMENT, 40 * MIB),
            (Action::Alloc, SEGMENT, 30 * MIB),
            (Action::FreeRequested, SEGMENT, 30 * MIB),
            (Action::FreeCompleted, SEGMENT, 30 * MIB),
        ],
        "what comes behind the last block belongs to no request"
    );
    let answer = asked(&trace, "", &[]);
    assert_eq!((answer.check.calls.matched, answer.check.placed, answer.stops_because), (1, 1, None));
    assert_eq!(answer.check.rounded_requests, 0, "segments that grow give what was asked for");
}

fn reserve(trace: &mut TraceBuilder) {
    let record = trace.record(Told::Reserve, Kind::Reserved, "hipMemAddressReserve");
    trace.push(Record { address: SEGMENT, requested: 18 * GIB, ..record }, &[]);
}

/// Two pieces of a block were given before the third was refused, and were given back.
fn refused_at_the_third_piece() -> TraceBuilder {
    let mut trace = trace();
    reserve(&mut trace);
    trace.create_and_map(0x50, SEGMENT, 20 * MIB);
    trace.reserved(0, 20 * MIB);
    trace.tensor(0, SEGMENT, 20 * MIB);
    let pieces = |trace: &mut TraceBuilder| {
        (0..2).for_each(|piece| _ = trace.alloc_kind(Kind::Physical, "hipMemCreate", 0x60 + piece, 20 * MIB));
        let last = trace.refuse_piece(20 * MIB);
        trace.read_at_failure(last, &[(Quantity::RuntimeFree as u16, 8 * MIB)]);
        (0..2).for_each(|piece| _ = trace.free_kind(Kind::Physical, "hipMemRelease", 0x60 + piece));
    };
    pieces(&mut trace);
    pieces(&mut trace);
    trace.no_tensor(0, 100 * MIB);
    trace
}

/// Where a record is missing it may be one of a piece: what was free for the request is not known, and no number is said.
#[test]
fn pieces_of_the_refused_block_are_not_known_where_events_were_lost() {
    let mut trace = refused_at_the_third_piece();
    trace.header.events_lost = 1;
    let summary = crate::testing::summary(&trace);
    assert_eq!((summary.facts.ooms[0].half_made_bytes, summary.facts.ooms[0].missing_bytes(8 * MIB)), (None, None));
    let verdict = summary.conclusion.verdict.sentences.join(" ");
    assert!(verdict.contains("8 MiB free") && !verdict.contains("less than requested"), "{verdict}");
    let answer = asked(&trace, "", &[]);
    assert_ne!(answer.usable_by, UsableBy::Failure, "{answer:?}");
}

/// They were free again after it: for PyTorch, and for the same request.
#[test]
fn pieces_of_the_refused_block_were_free_for_it() {
    let trace = refused_at_the_third_piece();
    let answer = asked(&trace, "", &[]);
    assert_eq!((answer.failures, answer.usable_bytes, answer.usable_by), (1, Some(68 * MIB), UsableBy::Failure));
    assert_eq!((answer.policies[0].failures[0].fate, answer.stops_because), (Fate::Remains, None));
    let oom = &crate::testing::summary(&trace).facts.ooms[0];
    assert_eq!((oom.half_made_bytes, oom.missing_bytes(8 * MIB)), (Some(40 * MIB), Some(52 * MIB)));
    // A card must hold another piece at least, and all of the block at most.
    let question = crate::whatif::replays::Question {
        capacities_bytes: vec![90 * MIB],
        overhead_bytes: Some(0),
        ..Default::default()
    };
    let device = crate::whatif::replays::ask(&mut open(&trace), &question, |_| {}).devices.remove(0);
    let needs = device.needs[0];
    assert_eq!((needs.fits_in_least_bytes, needs.fits_in_most_bytes), (80 * MIB, 120 * MIB));
    assert_eq!(
        device.cards.iter().find(|card| !card.is_recorded).map(|card| card.failures[0].fate),
        Some(Fate::Depends)
    );
}

/// Address space that is given back and set aside again at the same place, before a block lies in it: what was unmapped there was mapped
/// for the blocks before.
#[test]
fn address_space_that_comes_again_is_told_apart() {
    let mut trace = trace();
    reserve(&mut trace);
    trace.create_and_map(0x50, SEGMENT, 20 * MIB);
    trace.reserved(0, 20 * MIB);
    trace.tensor(0, SEGMENT, 20 * MIB);
    trace.free_tensor(SEGMENT);
    trace.unmap(SEGMENT, 20 * MIB);
    trace.free_kind(Kind::Reserved, "hipMemAddressFree", SEGMENT);
    reserve(&mut trace);
    trace.create_and_map(0x51, SEGMENT, 20 * MIB);
    trace.tensor(0, SEGMENT, 20 * MIB);
    let actions = actions(&trace);
    assert!(actions.contains(&(Action::SegmentUnmap, SEGMENT, 20 * MIB)), "{actions:?}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn no_trace_breaks_it(steps in prop::collection::vec((0u8..8, 0u64..6, 0u64..5), 0..60)) {
        let mut trace = trace();
        for (what, place, size) in steps {
            let (at, bytes) = (SEGMENT + place * 8 * MIB, [0, 512, 3 * MIB, 40 * MIB, u64::MAX][size as usize]);
            match what {
                0 => drop(trace.segment(at, bytes.min(1 << 60))),
                1 => drop(trace.hostile_tensor(false, place as u8 % 2, at, bytes, None)),
                2 => drop(trace.hostile_tensor(true, place as u8 % 2, at, bytes, None)),
                3 => drop(trace.free(at)),
                4 => drop(trace.refuse(bytes)),
                5 => drop(trace.no_tensor(0, bytes)),
                6 => trace.map(place, at, bytes),
                _ => trace.unmap(at, bytes),
            }
        }
        let policy = Policy::default();
        let question = TorchQuestion { policies: vec![Policy::parse("expandable_segments:True").unwrap()], ..TorchQuestion::default() };
        for answer in ask_told(&told(&trace, &policy), &policy, &question, |_| KnownCard::default()) {
            prop_assert!(answer.check.calls.matched <= answer.check.calls.recorded);
            prop_assert!(answer.stops_because.is_some() || answer.check.placed == answer.check.requests);
        }
    }
}
