//! What is said of a trace says no more than is known of it.

use std::collections::BTreeSet;

use gpuoom_trace::metadata::Quantity::{RuntimeFree, RuntimeTotal};
use gpuoom_trace::payload::PythonFrame;
use gpuoom_trace::record::{Event, Kind, NO_DEVICE, Record};

use super::capacity::full_after_a_rise;
use super::platform;
use super::scenes::at_failure;
use crate::conclusion::finding::Finding;
use crate::judgement::check::Confidence;
use crate::passes::shape::SEGMENTS;
use crate::testing::{GIB, MIB, TraceBuilder, summary};

fn finding(trace: &TraceBuilder, id: &str) -> Finding {
    let findings = summary(trace).conclusion.findings;
    findings.into_iter().find(|finding| finding.id == id).unwrap_or_else(|| panic!("{id} is not found"))
}

#[test]
fn a_card_that_is_empty_is_not_called_full() {
    let mut trace = TraceBuilder::default().device(0, "card", 8 * GIB);
    trace.alloc(0x1000_0000_0000, GIB);
    let seq = trace.refuse(8 * GIB);
    at_failure(&mut trace, seq, [(RuntimeTotal, 8 * GIB), (RuntimeFree, 7 * GIB)]);
    let found = finding(&trace, "true-capacity");
    assert_eq!(found.confidence, Confidence::Possible);
    assert_eq!(found.title, "what this process holds and asked for is more than the card has");
}

/// 14 of 32 GiB at most: nothing of this says that the kernel's limit was met.
#[test]
fn a_limit_that_is_far_away_is_no_word_of_the_verdict() {
    let why = |pinned_gib| {
        let trace = platform::managed_beside(pinned_gib).trace;
        assert_eq!(finding(&trace, "kfd-system-memory-limit").confidence, Confidence::Possible);
        summary(&trace).conclusion.verdict.why
    };
    assert!(!why(0).contains("kfd-system-memory-limit"), "{}", why(0));
    assert!(why(6).contains("kfd-system-memory-limit"), "{}", why(6));
}

/// A MiB more than the whole card is not "1.00 GiB of 1.00 GiB".
#[test]
fn what_prints_alike_is_told_apart() {
    let mut trace = TraceBuilder::default().device(0, "card", 8 * GIB);
    trace.alloc(0x1000_0000_0000, MIB);
    let seq = trace.refuse(8 * GIB + MIB);
    at_failure(&mut trace, seq, [(RuntimeTotal, 8 * GIB), (RuntimeFree, 8 * GIB - MIB)]);
    let found = finding(&trace, "request-exceeds-device");
    assert_eq!(found.evidence[0].text, "one call asked for 8.00 GiB, 1 MiB more than the whole device has");
}

/// Half a card is held, and more than the other half is asked for: nothing else need be known, and the card is not full.
#[test]
fn what_is_more_than_the_card_is_said_where_nothing_explains_it() {
    let verdict = |asked: u64| {
        let mut trace = TraceBuilder::default().device(0, "card", 8 * GIB);
        trace.alloc(0x1000_0000_0000, 5 * GIB);
        let seq = trace.refuse(asked);
        at_failure(&mut trace, seq, [(RuntimeTotal, 8 * GIB), (RuntimeFree, 2 * GIB)]);
        summary(&trace).conclusion.verdict
    };
    let (cause, why) = (verdict(4 * GIB).cause, verdict(4 * GIB).why);
    assert_eq!((cause, &why[..]), (None, "What the program held and asked for is 1.00 GiB more than the whole card."));
    assert!(!verdict(3 * GIB).why.contains("whole card"), "{}", verdict(3 * GIB).why);
}

/// Blocks that are more than the card is said to have show that it is larger: nothing is said of the whole card.
#[test]
fn a_card_that_is_larger_than_it_is_said_to_be_is_not_exceeded() {
    let mut trace = TraceBuilder::default().device(0, "card", 8 * GIB);
    trace.alloc(0x1000_0000_0000, 12 * GIB);
    let seq = trace.refuse(4 * GIB);
    at_failure(&mut trace, seq, [(RuntimeTotal, 8 * GIB), (RuntimeFree, GIB)]);
    let conclusion = summary(&trace).conclusion;
    assert!(!conclusion.verdict.sentences.join(" ").contains("whole card"), "{:?}", conclusion.verdict);
    let evidence = conclusion.findings.iter().flat_map(|finding| &finding.evidence);
    assert!(evidence.clone().all(|evidence| !evidence.text.contains("whole card")), "{:?}", conclusion.findings);
}

#[test]
fn pinned_memory_that_is_left_is_in_the_verdict() {
    let mut trace = TraceBuilder::default().device(0, "card", 8 * GIB);
    trace.alloc(0x1000_0000_0000, GIB);
    trace.free(0x1000_0000_0000);
    let record = trace.record(Event::Alloc, Kind::HostPinned, "hipHostMalloc");
    trace.push(Record { address: 0x2000_0000_0000, requested: 2 * GIB, ..record }, &[]);
    let sentence = summary(&trace).conclusion.verdict.sentences.join(" ");
    assert!(sentence.contains("0 bytes left at the end, and 2.00 GiB in 1 block of pinned host memory."), "{sentence}");
}

#[test]
fn a_rise_that_is_shown_is_not_told_as_refuted() {
    let trace = full_after_a_rise(false).trace;
    assert_eq!(finding(&trace, "live-leak").confidence, Confidence::Possible);
    let full = finding(&trace, "true-capacity");
    let rise = full.refuters_checked.iter().find(|refuter| refuter.text.contains("rises from cycle to cycle"));
    assert!(rise.is_none_or(|rise| !rise.checked), "{full:?}");
    assert!(full.missing.iter().any(|reading| reading.contains("is meant")), "{:?}", full.missing);
}

/// A block that is replaced by a larger one rises, too: what is ruled out is not that.
#[test]
fn what_is_ruled_out_does_not_deny_the_growth_that_is_told() {
    let mut trace = TraceBuilder::default().device(0, "card", 4 * GIB);
    let step = GIB / 32;
    trace.alloc(GIB, step);
    for number in 2..=64 {
        trace.alloc(number * 16 * GIB, number * step);
        trace.free(if number == 2 { GIB } else { (number - 1) * 16 * GIB });
    }
    let seq = trace.refuse(65 * step);
    at_failure(&mut trace, seq, [(RuntimeTotal, 4 * GIB), (RuntimeFree, 2 * GIB)]);
    assert!(summary(&trace).facts.growth.iter().any(|growth| growth.significant));
    let full = format!("{:?}", finding(&trace, "true-capacity"));
    assert!(
        full.contains("what came to stay, without which the request") && !full.contains("what stays rises"),
        "{full}"
    );
}

/// Python asked for the first, which may have raised an exception, and not for the second: how sure one is is not said of the other.
#[test]
fn what_is_said_of_one_failure_is_not_said_of_another() {
    let mut trace = TraceBuilder::default().device(0, "card", 24 * GIB);
    trace.code(1, "/home/me/run.py", "load");
    trace.stack(7, &[], &[PythonFrame { code: 1, line: 3 }]);
    trace.site = 7;
    trace.refuse(GIB);
    trace.after(Event::GpuWork, "hipMemcpy", 0, 0);
    trace.now_ns += 20_000_000_000;
    trace.site = 0;
    let seq = trace.refuse(GIB);
    trace.used_null_of("hipLaunchKernel", seq);
    let findings = summary(&trace).conclusion.findings;
    let dropped = findings.iter().filter(|finding| finding.id == "dropped-oom-return");
    let said: Vec<_> = dropped.map(|finding| (finding.confidence, finding.ooms.clone(), finding.evidence_of)).collect();
    // The first decides, and comes first.
    assert_eq!(said, [(Confidence::Possible, vec![1], Some(1)), (Confidence::Probable, vec![2], Some(2))]);
}

/// Where PyTorch's blocks were not recorded, and neither a message, a log nor a snapshot tells of them, nobody knows of tensors.
#[test]
fn nothing_is_said_of_tensors_that_nobody_told_of() {
    let mut looked_at = 0;
    for labelled in super::all() {
        let trace = (labelled.scene)().trace;
        let evidence = &trace.evidence;
        let summary = summary(&trace);
        let facts = &summary.facts;
        let is_told = facts.devices.iter().any(|device| device.tensors.is_some())
            || facts.ooms.iter().any(|oom| oom.message.is_some())
            || !evidence.torch_logs.is_empty()
            || !evidence.torch_snapshots.is_empty();
        if is_told {
            continue;
        }
        looked_at += 1;
        let verdict = summary.conclusion.verdict.sentences.join(" ");
        let said = summary.conclusion.findings.iter().flat_map(|finding| {
            let refuters =
                finding.refuters_checked.iter().filter(|refuter| refuter.checked).map(|one| one.text.clone());
            let evidence = finding.evidence.iter().map(|evidence| evidence.text.clone());
            evidence.chain(refuters).chain([finding.title.to_string()])
        });
        for text in said.chain([verdict]) {
            assert!(!text.contains("tensor"), "{} ({}): {text}", labelled.id, labelled.story);
        }
    }
    assert!(looked_at > 300, "{looked_at}");
}

/// Physical memory of the machine is no matter of a card, however little of that is free.
#[test]
fn physical_memory_without_a_device_is_no_memory_of_a_card() {
    let mut trace = TraceBuilder::default().device(0, "card", 8 * GIB);
    trace.alloc(0x10_0000_0000, GIB);
    let record = trace.record(Event::Alloc, Kind::Physical, "hipMemCreate");
    let seq = trace.push(Record { status: 2, requested: 10 * GIB, device: NO_DEVICE, ..record }, &[]);
    trace.read_at_failure(seq, &[(RuntimeTotal as u16, 8 * GIB), (RuntimeFree as u16, 7 * GIB)]);
    let summary = summary(&trace);
    let found: Vec<_> = summary.conclusion.findings.iter().map(|finding| finding.id).collect();
    assert!(!found.contains(&"request-exceeds-device"), "{found:?}");
    assert_eq!(summary.facts.ooms[0].free_reported_bytes, None);
    let first = &summary.conclusion.verdict.sentences[0];
    assert!(first.starts_with("hipMemCreate of 10.00 GiB failed, on no device that the trace knows"), "{first}");
}

/// What fills segments is not missing where an allocator tells of its blocks.
#[test]
fn segments_are_no_riddle_where_blocks_are_told() {
    let asks = |trace: &TraceBuilder| {
        let summary = summary(trace);
        let missing = summary.conclusion.findings.iter().flat_map(|finding| &finding.missing);
        (missing.filter(|reading| *reading == SEGMENTS).count(), summary.facts.devices[0].tensors.is_some())
    };
    let scenes = super::all().map(|labelled| (labelled.scene)().trace);
    let mut trace =
        scenes.into_iter().find(|trace| asks(trace) != (0, false) && !asks(trace).1).expect("a trace that asks");
    // A pool in memory that was given before says nothing of failures.
    let given: BTreeSet<u64> =
        trace.records().filter(|record| record.event() == Some(Event::Alloc)).map(|record| record.address).collect();
    given.iter().filter(|address| **address != 0).for_each(|address| _ = trace.pool_alloc("pool", "", *address, 1));
    assert_eq!(asks(&trace), (0, true));
}

/// A stream-ordered pool is itself the cache: nothing above it hides what blocks hold, whole multiples of 2 MiB or not.
#[test]
fn requests_to_a_pool_are_no_segments() {
    let asks = |kind, name, returns| {
        let mut trace = TraceBuilder::default().device(0, "card", 24 * GIB);
        for step in 1..=40 {
            let mark = trace.record(Event::Mark, Kind::None, "gpuoom_mark");
            trace.with_text(mark, &format!("step {step}"));
            trace.alloc_kind(kind, name, 1 << 40, 256 * MIB);
            trace.alloc_kind(kind, name, step << 36, 64 * MIB);
            trace.free_kind(kind, returns, 1 << 40);
        }
        finding(&trace, "live-leak").missing.iter().any(|reading| *reading == SEGMENTS)
    };
    assert!(asks(Kind::Device, "hipMalloc", "hipFree"));
    assert!(!asks(Kind::Pool, "hipMallocAsync", "hipFreeAsync"));
}
