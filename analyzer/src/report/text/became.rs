//! What became of failures, in sentences that no event of the same trace denies.

use gpuoom_trace::record::{Event, Kind, flag};

use crate::report::page::Look;
use crate::testing::{GIB, MIB, TraceBuilder, summary};

/// The page on one line.
fn page(trace: &TraceBuilder) -> String {
    let text = super::write(&summary(trace), &[], Look::new(4000, false));
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// A block that lives, and a request for 2 GiB that is refused.
fn refused() -> TraceBuilder {
    let trace = TraceBuilder::default().device(0, "card", 24 * GIB);
    // Where each call came from is known.
    let mut trace = trace.library("/opt/app/libask.so", 0x1000, 7).library("/opt/app/libother.so", 0x2000, 9);
    trace.site = 6;
    trace.alloc(0x1000_0000, GIB);
    trace.site = 7;
    trace.refuse(2 * GIB);
    trace.site = 9;
    trace
}

fn works(trace: &mut TraceBuilder) -> String {
    trace.after(Event::GpuWork, "hipLaunchKernel", 0, 0);
    page(trace)
}

/// Nobody is told that a thread got no memory which got some.
#[test]
fn memory_that_counts_as_no_retry_is_told() {
    let mut trace = refused();
    trace.now_ns += 1_500_000_000;
    trace.alloc(0x2000_0000, 100 * MIB);
    let text = works(&mut trace);
    assert!(text.contains("dropped: GPU work went on"), "{text}");
    let got = "it had got 100 MiB";
    let places = text.matches(got).count();
    assert!(places >= 3, "verdict, failure, diagnosis: {places} in {text}");
    assert_eq!(text.matches("which counts as no retry").count(), places, "{text}");
    assert!(!text.contains("or got other memory"), "{text}");
    let mut trace = refused();
    assert!(works(&mut trace).contains("threw or got other memory"));
}

/// A program that frees and takes one larger block at once has memory after all.
#[test]
fn a_larger_block_after_memory_was_given_back_is_a_fall_back() {
    let mut trace = refused();
    trace.free(0x1000_0000);
    trace.alloc(0x2000_0000, 3 * GIB);
    let text = works(&mut trace);
    assert!(text.contains("recovered: hipMalloc gave 3.00 GiB"), "{text}");
    assert!(!text.contains("othing shows that"), "it gave memory back: {text}");
    let mut trace = refused();
    trace.alloc(0x2000_0000, 3 * GIB);
    assert!(works(&mut trace).contains("dropped:"));
}

/// What rules out that a failure was ignored stands beside its outcome, too.
#[test]
fn the_outcome_and_what_refutes_the_diagnosis_are_one_story() {
    let mut trace = refused();
    trace.after(Event::GpuWork, "hipMemcpy", 0, 0);
    trace.free(0x1000_0000);
    trace.site = 7;
    trace.alloc(0x2000_0000, 2 * GIB);
    let text = works(&mut trace);
    assert!(text.contains("not dropped-oom-return: the same request succeeded"), "{text}");
    assert!(text.contains("its outcome is called dropped because GPU work went on before memory came"), "{text}");
    let noticed = "after the thread had given memory back, so the program may well have noticed";
    assert_eq!(text.matches(noticed).count(), 2, "verdict and failure: {text}");
    let mut trace = refused();
    trace.after(Event::GpuWork, "hipMemcpy", 0, 0);
    trace.site = 7;
    trace.alloc(0x2000_0000, GIB);
    let text = works(&mut trace);
    assert!(text.contains("asked for less from the same place") && text.contains("may well have noticed"), "{text}");
}

/// A smaller block for another variable shows nothing of the program.
#[test]
fn what_time_alone_ties_to_a_failure_shows_no_notice() {
    let mut trace = refused();
    trace.alloc(0x2000_0000, 100 * MIB);
    let text = works(&mut trace);
    assert!(text.contains("that is as far as calls show: nothing shows that the failure was noticed"), "{text}");
    assert!(text.contains("a fall-back, as far as calls show. Nothing shows that the program had noticed."), "{text}");
    let mut trace = refused();
    let same = trace.record(Event::Alloc, Kind::Device, "hipMalloc");
    trace.push(
        gpuoom_trace::record::Record {
            address: 0x2000_0000,
            requested: 100 * MIB,
            kind_flags: same.kind_flags | flag::SAME_VARIABLE,
            ..same
        },
        &[],
    );
    let text = works(&mut trace);
    assert!(text.contains("recovered:") && !text.contains("othing shows that"), "{text}");
}

/// Who asks for less than the whole card when more was refused has done what the fixes say.
#[test]
fn a_probe_of_the_card_that_ended_well_gets_no_advice() {
    let probe = |ends_well: bool| {
        let mut trace = TraceBuilder::default().device(0, "card", 24 * GIB);
        trace.site = 7;
        trace.refuse(32 * GIB);
        trace.after(Event::ErrorQuery, "hipGetLastError", 2, 0);
        if ends_well {
            trace.alloc(0x10_0000_0000, 20 * GIB);
        }
        works(&mut trace)
    };
    assert!(probe(false).contains("split it"), "{}", probe(false));
    let text = probe(true);
    assert!(text.contains("request-exceeds-device") && !text.contains("split it"), "{text}");
    assert!(!text.contains("no cause is sure enough"), "{text}");
}
