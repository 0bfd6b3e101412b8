//! Errors of an allocator above the runtime: which refusals are theirs, and what becomes of them.

use gpuoom_trace::outcome::{Because, Outcome};
use gpuoom_trace::record::{Event, Kind, Layer, Record, message, process};

use super::RefusedBy;
use crate::replay::{Options, Replay};
use crate::testing::{self, GIB, MIB, THREAD, TraceBuilder};

const OTHER: u32 = THREAD + 1;
const OBJECT: u64 = 0x5555_0000_1000;
const TEXT: &str = "CUDA out of memory. Tried to allocate 4.00 GiB.";

fn run(trace: &TraceBuilder) -> Replay {
    testing::replay(trace, Options::default())
}

fn card() -> TraceBuilder {
    let mut trace = TraceBuilder::default().device(0, "card", 24 * GIB).cuda();
    trace.alloc_kind(Kind::Device, "cudaMalloc", 0x10_0000_0000, 22 * GIB);
    trace.tensor_on(THREAD, 0x10_0000_0000, 22 * GIB, [22 * GIB, 22 * GIB]);
    trace
}

fn refuse(trace: &mut TraceBuilder, thread: u32, bytes: u64) -> u64 {
    let record = trace.record_on(thread, Event::Alloc, Kind::Device, "cudaMalloc");
    trace.push(Record { status: 2, requested: bytes, ..record }, &[])
}

fn error(trace: &mut TraceBuilder, thread: u32, bytes: u64) -> u64 {
    trace.framework_error(thread, bytes, [22 * GIB, 22 * GIB])
}

/// What is listed: bytes that the runtime was asked for, attempts, outcome and why.
fn listed(replay: &Replay) -> Vec<(u64, Option<usize>, Outcome, Because)> {
    let failures = replay.failures.listed.iter();
    failures
        .map(|oom| {
            let attempts = oom.error.as_ref().map(|error| error.attempts.len());
            (oom.requested_bytes, attempts, oom.outcome, oom.because)
        })
        .collect()
}

#[test]
fn the_refusals_before_an_error_are_its_attempts() {
    let mut trace = card();
    let first = refuse(&mut trace, THREAD, 4 * GIB);
    trace.after(Event::ErrorQuery, "cudaGetLastError", 0, 0);
    let second = refuse(&mut trace, THREAD, 4 * GIB);
    let told = error(&mut trace, THREAD, 4 * GIB - 512);
    trace.throws(THREAD, OBJECT, Some(TEXT));
    trace.end(process::EXITS, 1);
    let replay = run(&trace);
    assert_eq!(listed(&replay), [(4 * GIB, Some(2), Outcome::Propagated, Because::Exception)]);
    assert_eq!((replay.failures.count, replay.failures.begun), (1, 2));
    assert_eq!(replay.accounts.device(0).unwrap().calls.failures, 1, "one error reached the program");
    let oom = &replay.failures.listed[0];
    let error = oom.error.as_ref().unwrap();
    assert_eq!((error.seq, error.requested_bytes), (told, 4 * GIB - 512));
    assert_eq!(error.attempts.iter().map(|attempt| attempt.seq).collect::<Vec<_>>(), [first, second]);
    assert_eq!((oom.story, oom.message.as_ref().map(|message| &*message.text)), (0, Some(TEXT)));
    assert_eq!(oom.refused_by, RefusedBy::Layer(Some(Layer::Runtime)));
    assert_eq!(replay.tracks.around.listed().count(), 1);
    assert_eq!(replay.tracks.retries.of_failure(0).map(|retry| retry.failed_tries), Some(2));
    for seq in [first, second, told] {
        assert_eq!(replay.failures.index_of(seq), Some(0));
    }
}

#[test]
fn a_block_in_between_parts_a_refusal_from_an_error() {
    let mut trace = card();
    refuse(&mut trace, THREAD, 4 * GIB);
    trace.free_kind(Kind::Device, "cudaFree", 0x10_0000_0000);
    trace.alloc_kind(Kind::Device, "cudaMalloc", 0x20_0000_0000, 4 * GIB);
    trace.tensor_on(THREAD, 0x20_0000_0000, 4 * GIB, [4 * GIB, 4 * GIB]);
    refuse(&mut trace, THREAD, 30 * GIB);
    error(&mut trace, THREAD, 30 * GIB);
    trace.throws(THREAD, OBJECT, None);
    let wanted = [
        (4 * GIB, None, Outcome::Recovered, Because::RetrySucceeded),
        (30 * GIB, Some(1), Outcome::Propagated, Because::Exception),
    ];
    assert_eq!(listed(&run(&trace)), wanted);
}

#[test]
fn what_the_program_was_told_of_or_ignored_led_to_no_later_error() {
    let between: [fn(&mut TraceBuilder); 3] = [
        |trace| _ = trace.throws(THREAD, OBJECT, None),
        |trace| _ = trace.after(Event::GpuWork, "cudaLaunchKernel", 0, 0),
        |trace| _ = refuse(trace, OTHER, 4 * GIB),
    ];
    for (case, between) in between.into_iter().enumerate() {
        let mut trace = card();
        refuse(&mut trace, if case == 2 { OTHER } else { THREAD }, 4 * GIB);
        between(&mut trace);
        error(&mut trace, THREAD, 4 * GIB);
        trace.throws(THREAD, OBJECT + 1, None);
        let replay = run(&trace);
        let attempts: Vec<_> = listed(&replay).into_iter().map(|(_, attempts, ..)| attempts).collect();
        assert_eq!(attempts.last(), Some(&Some(0)), "{case}: {attempts:?}");
        assert!(attempts[..attempts.len() - 1].iter().all(Option::is_none), "{case}: {attempts:?}");
    }
}

#[test]
fn only_a_segment_that_holds_the_block_is_an_attempt() {
    let mut trace = card();
    refuse(&mut trace, THREAD, 2 * MIB);
    refuse(&mut trace, THREAD, 4 * GIB);
    error(&mut trace, THREAD, 4 * GIB);
    let attempts: Vec<_> = listed(&run(&trace)).into_iter().map(|(bytes, attempts, ..)| (bytes, attempts)).collect();
    assert_eq!(attempts, [(2 * MIB, None), (4 * GIB, Some(1))]);
}

#[test]
fn two_threads_have_an_error_each() {
    let mut trace = card();
    for thread in [THREAD, OTHER, THREAD, OTHER] {
        refuse(&mut trace, thread, 4 * GIB);
    }
    error(&mut trace, OTHER, 4 * GIB);
    error(&mut trace, THREAD, 4 * GIB);
    trace.throws(THREAD, OBJECT, Some(TEXT));
    trace.throws(OTHER, OBJECT + 64, Some("another"));
    let replay = run(&trace);
    let one = (4 * GIB, Some(2), Outcome::Propagated, Because::Exception);
    assert_eq!(listed(&replay), [one, one]);
    let said =
        replay.failures.listed.iter().map(|oom| (oom.thread, oom.message.as_ref().map(|message| &*message.text)));
    assert_eq!(said.collect::<Vec<_>>(), [(THREAD, Some(TEXT)), (OTHER, Some("another"))]);
    assert_eq!(replay.failures.listed.iter().map(|oom| oom.story).collect::<Vec<_>>(), [0, 1]);
}

#[test]
fn a_caught_error_may_be_made_up_for_by_less() {
    let mut trace = card();
    trace.stack(7, &[0x1000, 0x2000], &[]);
    let at_path = |trace: &mut TraceBuilder, status, bytes, address| {
        let record = trace.record(Event::Alloc, Kind::Device, "cudaMalloc");
        trace.push(Record { status, requested: bytes, address, site: 7, ..record }, &[]);
    };
    at_path(&mut trace, 2, 4 * GIB, 0);
    at_path(&mut trace, 2, 4 * GIB, 0);
    error(&mut trace, THREAD, 4 * GIB);
    trace.throws(THREAD, OBJECT, None);
    at_path(&mut trace, 0, GIB, 0x70_0000_0000);
    trace.tensor_on(THREAD, 0x70_0000_0000, GIB, [23 * GIB, 23 * GIB]);
    trace.after(Event::GpuWork, "cudaLaunchKernel", 0, 0);
    assert_eq!(listed(&run(&trace)), [(4 * GIB, Some(2), Outcome::Recovered, Because::FellBack)]);
}

#[test]
fn an_error_without_an_attempt_is_a_failure_of_its_own() {
    let mut trace = card();
    error(&mut trace, THREAD, 4 * GIB);
    trace.throws(THREAD, OBJECT, Some(TEXT));
    let replay = run(&trace);
    assert_eq!(listed(&replay), [(4 * GIB, Some(0), Outcome::Propagated, Because::Exception)]);
    let oom = &replay.failures.listed[0];
    assert_eq!(
        (oom.kind, oom.refused_by, oom.message.as_ref().map(|message| &*message.text)),
        (Kind::Tensor, RefusedBy::Layer(None), Some(TEXT))
    );
    assert_eq!(oom.held.requested_bytes, u128::from(22 * GIB));
    assert_eq!(replay.accounts.device(0).unwrap().calls.failures, 1);
}

#[test]
fn work_after_an_error_does_not_show_that_nobody_was_told() {
    let mut trace = card();
    error(&mut trace, THREAD, 4 * GIB);
    trace.after(Event::GpuWork, "cudaLaunchKernel", 0, 0);
    assert_eq!(listed(&run(&trace)), [(4 * GIB, Some(0), Outcome::Unresolved, Because::ErrorRead)]);
}

#[test]
fn a_message_belongs_to_the_exception_of_the_last_failure() {
    let message = |tell: fn(&mut TraceBuilder)| {
        let mut trace = card();
        refuse(&mut trace, THREAD, 4 * GIB);
        error(&mut trace, THREAD, 4 * GIB);
        tell(&mut trace);
        run(&trace).failures.listed[0].message.as_ref().map(|message| &*message.text).map(str::to_owned)
    };
    assert_eq!(message(|trace| _ = trace.throws(THREAD, OBJECT, Some(TEXT))), Some(TEXT.to_owned()));
    assert_eq!(message(|trace| _ = trace.throws(OTHER, OBJECT, Some(TEXT))), None, "another thread");
    let other_object: fn(&mut TraceBuilder) = |trace| {
        trace.throws(THREAD, OBJECT, None);
        trace.message(THREAD, OBJECT + 64, TEXT);
    };
    assert_eq!(message(other_object), None, "another exception");
    assert_eq!(message(|trace| _ = trace.message(THREAD, OBJECT, TEXT)), None, "its exception is lost");
    let second: fn(&mut TraceBuilder) = |trace| {
        trace.throws(THREAD, OBJECT, None);
        trace.throws(THREAD, OBJECT + 64, Some(TEXT));
    };
    assert_eq!(message(second), None, "the first exception after it was another one");
}

#[test]
fn a_line_of_a_log_belongs_to_the_failure_that_it_names() {
    const LINE: &str = "alloc_buffer: allocating 4096.00 MiB on device 0: cudaMalloc failed: out of memory";
    let said = |tell: fn(&mut TraceBuilder, u64)| {
        let mut trace = card();
        let failure = refuse(&mut trace, THREAD, 4 * GIB);
        tell(&mut trace, failure);
        let message = run(&trace).failures.listed[0].message.clone();
        message.map(|message| (message.from, message.text.to_string()))
    };
    let line = (message::LOG, LINE.to_owned());
    assert_eq!(said(|trace, failure| _ = trace.says(THREAD, message::LOG, failure, LINE)), Some(line.clone()));
    let first: fn(&mut TraceBuilder, u64) = |trace, failure| {
        trace.says(THREAD, message::LOG, failure, LINE);
        trace.says(THREAD, message::LOG, failure, "failed to allocate a buffer");
        trace.throws(THREAD, OBJECT, Some(TEXT));
    };
    assert_eq!(said(first), Some(line), "what came first");
    let last: fn(&mut TraceBuilder, u64) =
        |trace, failure| _ = trace.says(THREAD, message::ABORT, failure, "fatal error");
    assert_eq!(said(last), Some((message::ABORT, "fatal error".to_owned())));
    assert_eq!(said(|trace, failure| _ = trace.says(OTHER, message::LOG, failure, LINE)), None, "another thread");
    assert_eq!(said(|trace, failure| _ = trace.says(THREAD, message::LOG, failure + 1, LINE)), None, "no failure");
    assert_eq!(said(|trace, _| _ = trace.says(THREAD, message::LOG, u64::MAX - 1, LINE)), None, "its record is lost");
    let made_up: fn(&mut TraceBuilder, u64) = |trace, failure| {
        trace.alloc_kind(Kind::Device, "cudaMalloc", 0x7000_0000_0000, 4 * GIB);
        trace.says(THREAD, message::LOG, failure, LINE);
    };
    assert_eq!(said(made_up), None, "memory came meanwhile");
}

#[test]
fn what_was_measured_at_the_first_attempt_is_kept_while_nothing_moved() {
    use gpuoom_trace::metadata::Quantity::{LargestAllocatable, RuntimeFree};
    let largest = |free: [u64; 2]| {
        let mut trace = card();
        let first = refuse(&mut trace, THREAD, 4 * GIB);
        trace.read_at_failure(first, &[(RuntimeFree as u16, free[0]), (LargestAllocatable as u16, GIB)]);
        let second = refuse(&mut trace, THREAD, 4 * GIB);
        trace.read_at_failure(second, &[(RuntimeFree as u16, free[1])]);
        error(&mut trace, THREAD, 4 * GIB);
        let read = run(&trace).failures.listed[0].read;
        (read.runtime_free_bytes, read.largest_allocatable_bytes)
    };
    assert_eq!(largest([2 * GIB, 2 * GIB]), (Some(2 * GIB), Some(GIB)));
    assert_eq!(largest([2 * GIB, 3 * GIB]), (Some(3 * GIB), None));
}

/// The error reached the program, which caught it: that it asks on is no recovery of a refused call, and its end says nothing of it.
#[test]
fn who_catches_an_error_and_goes_on_is_seen_to() {
    let caught = |goes_on: bool| {
        let mut trace = card();
        refuse(&mut trace, THREAD, 4 * GIB);
        error(&mut trace, THREAD, 4 * GIB);
        trace.throws(THREAD, OBJECT, Some(TEXT));
        if goes_on {
            trace.free_tensor(0x10_0000_0000);
            trace.tensor_on(THREAD, 0x10_0000_0000, GIB, [GIB, 22 * GIB]);
            trace.tensor_on(THREAD, 0x20_0000_0000, GIB, [2 * GIB, 22 * GIB]);
            trace.after(Event::GpuWork, "cudaLaunchKernel", 0, 0);
        }
        trace.end(process::EXITS, 1);
        let replay = run(&trace);
        let oom = &replay.failures.listed[0];
        assert_eq!((oom.outcome, oom.because), (Outcome::Propagated, Because::Exception));
        oom.evidence.iter().map(|evidence| evidence.event).collect::<Vec<_>>()
    };
    assert_eq!(caught(false), [Event::Exception, Event::Process]);
    assert_eq!(caught(true), [Event::Exception, Event::Block, Event::GpuWork]);
}
