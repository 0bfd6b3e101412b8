//! Errors that PyTorch's allocator raised: the refusals that led to them are its attempts.

use gpuoom_trace::metadata::Quantity::{NvmlProcess, NvmlTotal, NvmlUsed, RuntimeFree, VramTotal, VramUsed};
use gpuoom_trace::record::{Event, Kind, process};

use super::scenes::{at_failure, full, torch, with_log};
use super::{Labelled, Says, Scene};
use crate::judgement::check::Confidence::{Possible, Probable, Proven};
use crate::testing::{GIB, MIB, THREAD, TraceBuilder, gib};

/// Another thread, and the objects that are thrown.
const OTHER: u32 = THREAD + 1;
const OBJECT: u64 = 0x5555_0000_1000;

pub(super) const TRACES: &[Labelled] = &[
    Labelled {
        id: "true-capacity",
        says: Says::First(Proven),
        also: &[],
        story: "PyTorch asks twice for 4 GiB on a full card, raises one error, and the process ends; its message says that the cache is empty",
        scene: || scene(full_card(Some(FULL))),
    },
    Labelled {
        id: "true-capacity",
        says: Says::First(Proven),
        also: &[],
        story: "the same on a card of NVIDIA's: the runtime calls 2 GiB free, and NVML counts 22 of 24 in use",
        scene: || read_by_nvml(2 * GIB, 22 * GIB),
    },
    Labelled {
        id: "true-capacity",
        says: Says::First(Probable),
        also: &[],
        story: "NVML and the runtime contradict each other: 2 GiB are free by the runtime, and 12 of 24 in use by NVML",
        scene: || read_by_nvml(2 * GIB, 12 * GIB),
    },
    Labelled {
        id: "true-capacity",
        says: Says::First(Proven),
        also: &[],
        story: "the first, and nobody recorded what the exception says: the blocks show that the cache is empty",
        scene: || scene(full_card(None)),
    },
    Labelled {
        id: "true-capacity",
        says: Says::First(Proven),
        also: &[],
        story: "the same, and the message that was recorded is of another exception",
        scene: || {
            let mut trace = before_the_throw(4 * GIB, 2 * GIB, 22 * GIB - 100 * MIB);
            trace.throws(THREAD, OBJECT, None);
            trace.message(THREAD, OBJECT + 64, FULL);
            trace.message(OTHER, OBJECT, FULL);
            ends(&mut trace);
            scene(trace)
        },
    },
    Labelled {
        id: "caching-fragmentation",
        says: Says::First(Proven),
        also: &[],
        story: "PyTorch's own message, recorded with the error: 9.27 GiB are held unused, and 8.54 are asked for",
        scene: || {
            let mut trace = before_the_throw(gib(8.54), 0, gib(12.73));
            trace.throws(THREAD, OBJECT, Some(SPLIT));
            ends(&mut trace);
            scene(trace)
        },
    },
    Labelled {
        id: "caching-fragmentation",
        says: Says::Not,
        also: &["true-capacity"],
        story: "the recorded message says that the cache is empty; a log with another one of that size is of another error",
        scene: || {
            let mut scene = with_log(full_card(Some(FULL)), SPLIT_OF_4);
            scene.trace = torch(scene.trace);
            scene
        },
    },
    Labelled {
        id: "true-capacity",
        says: Says::First(Proven),
        also: &[],
        story: "a segment that grows in pieces: a piece is refused, those before it are given back and taken again, and the next is refused",
        scene: || scene(in_pieces()),
    },
    Labelled {
        id: "cache-greed",
        says: Says::Not,
        also: &["true-capacity"],
        story: "the same: what was given back was a part of what was asked for, and nothing that PyTorch had kept unused",
        scene: || scene(in_pieces()),
    },
    Labelled {
        id: "request-exceeds-device",
        says: Says::Found(Probable),
        also: &["true-capacity"],
        story: "a block of 30 GiB on a card of 24, put together from pieces of 1 GiB, of which the third is refused",
        scene: || scene(of_pieces(30 * GIB, None)),
    },
    Labelled {
        id: "process-fraction-cap",
        says: Says::First(Proven),
        also: &[],
        story: "PyTorch raises an error without asking the runtime, and its message names what is allowed",
        scene: || scene(limited(16 * GIB, Some(ALLOWED))),
    },
    Labelled {
        id: "process-fraction-cap",
        says: Says::First(Proven),
        also: &[],
        story: "the same for a request that is larger than the card: the limit came first all the same",
        scene: || scene(limited_to(16 * GIB, 30 * GIB, Some(ALLOWED_OF_30))),
    },
    Labelled {
        id: "process-fraction-cap",
        says: Says::First(Probable),
        also: &[],
        story: "the same without a message, and enough was free on the card",
        scene: || scene(limited(16 * GIB, None)),
    },
    Labelled {
        id: "process-fraction-cap",
        says: Says::Found(Possible),
        also: &[],
        story: "the same on a full card: a refusal that nobody saw would explain it, too",
        scene: || scene(limited(GIB / 4, None)),
    },
    Labelled {
        id: "process-fraction-cap",
        says: Says::Not,
        also: &["true-capacity"],
        story: "PyTorch's error on a full card had attempts that the runtime refused",
        scene: || scene(full_card(None)),
    },
    Labelled {
        id: "true-capacity",
        says: Says::Not,
        also: &["process-fraction-cap"],
        story: "an error without an attempt on a full card: nobody below refused anything",
        scene: || scene(limited(GIB / 4, Some(ALLOWED))),
    },
    Labelled {
        id: "true-capacity",
        says: Says::First(Probable),
        also: &[],
        story: "half of the card is in tensors, and the request is more than the other half: it can't fit, and the card is not full",
        scene: || scene(half_in_tensors(12 * GIB)),
    },
    Labelled {
        id: "true-capacity",
        says: Says::Found(Possible),
        also: &["caching-fragmentation"],
        story: "the same request beside as much memory, of which only a third is in tensors: PyTorch could have given the rest back",
        scene: || scene(half_in_tensors(4 * GIB)),
    },
    Labelled {
        id: "true-capacity",
        says: Says::First(Probable),
        also: &["caching-fragmentation"],
        story: "a full card of which 1 GiB lies unused: with the 2 GiB that are free it would have held the request in one piece",
        scene: || scene(in_tensors(21 * GIB, 22 * GIB, 5 * GIB / 2)),
    },
    Labelled {
        id: "caching-fragmentation",
        says: Says::Found(Possible),
        also: &["true-capacity"],
        story: "the same: so little every cache has between its blocks",
        scene: || scene(in_tensors(21 * GIB, 22 * GIB, 5 * GIB / 2)),
    },
    Labelled {
        id: "true-capacity",
        says: Says::First(Proven),
        also: &[],
        story: "the same and half a GiB more: not even in one piece would all of it have held the request",
        scene: || scene(in_tensors(21 * GIB, 22 * GIB, 3 * GIB + GIB / 16)),
    },
    Labelled {
        id: "caching-fragmentation",
        says: Says::First(Probable),
        also: &["true-capacity"],
        story: "the same: what lies unused and what is free would have held the request together, and neither would by itself",
        scene: || scene(half_in_tensors(4 * GIB)),
    },
    Labelled {
        id: "cache-greed",
        says: Says::Found(Proven),
        also: &[],
        story: "a refusal that PyTorch made up for by emptying its cache: there was no error",
        scene: || scene(made_up_for(22 * GIB, 3 * GIB, 4 * GIB)),
    },
    Labelled {
        id: "cache-greed",
        says: Says::Found(Proven),
        also: &[],
        story: "the same, and what was cached and released is less than the request: with what was free it was enough",
        scene: || scene(made_up_for(23 * GIB, GIB + 512 * MIB, GIB)),
    },
    Labelled {
        id: "cache-greed",
        says: Says::Found(Proven),
        also: &[],
        story: "the same, and it is two hundredths of what the program held",
        scene: || scene(made_up_for(23 * GIB + 512 * MIB, 768 * MIB, 512 * MIB)),
    },
    Labelled {
        id: "cache-greed",
        says: Says::Not,
        also: &["true-capacity"],
        story: "the same request succeeded after the release of a segment that a tensor had held: the cache had had nothing of it",
        scene: || {
            let mut trace = TraceBuilder::default().device(0, "card", 24 * GIB);
            trace.alloc(0x10_0000_0000, 22 * GIB);
            trace.tensor_on(THREAD, 0x10_0000_0000, 22 * GIB, [22 * GIB, 23 * GIB]);
            trace.alloc(0x80_0000_0000, GIB);
            trace.tensor_on(THREAD, 0x80_0000_0000, GIB, [23 * GIB, 23 * GIB]);
            let seq = trace.refuse(GIB + 512 * MIB);
            full(&mut trace, seq, 24 * GIB, 23 * GIB, GIB);
            trace.free_tensor(0x80_0000_0000);
            trace.free(0x80_0000_0000);
            trace.alloc(0x80_0000_0000, GIB + 512 * MIB);
            scene(trace)
        },
    },
];

const FULL: &str = "CUDA out of memory. Tried to allocate 4.00 GiB. GPU 0 has a total capacity of 24.00 GiB of which 2.00 GiB is free. \
     Of the allocated memory 21.90 GiB is allocated by PyTorch, and 100.00 MiB is reserved by PyTorch but unallocated.";
const EMPTY: &str = "CUDA out of memory. Tried to allocate 4.00 GiB. GPU 0 has a total capacity of 24.00 GiB of which 0 bytes is free. \
     Of the allocated memory 22.00 GiB is allocated by PyTorch, and 0 bytes is reserved by PyTorch but unallocated.";
const SPLIT: &str = "HIP out of memory. Tried to allocate 8.54 GiB. GPU 0 has a total capacity of 24.00 GiB of which 0 bytes is free. \
     Of the allocated memory 12.73 GiB is allocated by PyTorch, and 9.27 GiB is reserved by PyTorch but unallocated.";
const SPLIT_OF_4: &str = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 4.00 GiB. GPU 0 has a total capacity of 24.00 GiB \
     of which 2.00 GiB is free. Of the allocated memory 12.73 GiB is allocated by PyTorch, and 9.27 GiB is reserved by PyTorch but \
     unallocated.\n";
const ALLOWED_OF_30: &str = "CUDA out of memory. Tried to allocate 30.00 GiB. GPU 0 has a total capacity of 24.00 GiB of which 16.00 GiB \
     is free. 7.00 GiB allowed; Of the allocated memory 6.00 GiB is allocated by PyTorch, and 0 bytes is reserved by PyTorch but \
     unallocated.";
const ALLOWED: &str = "CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 24.00 GiB of which 16.00 GiB is \
     free. 7.00 GiB allowed; Of the allocated memory 6.00 GiB is allocated by PyTorch, and 0 bytes is reserved by PyTorch but \
     unallocated.";

fn scene(trace: TraceBuilder) -> Scene {
    Scene { trace: torch(trace) }
}

/// Of what PyTorch holds so much is in no tensor; a request is refused, that is given back, and the request succeeds.
fn made_up_for(held: u64, request: u64, cached: u64) -> TraceBuilder {
    let mut trace = TraceBuilder::default().device(0, "card", 24 * GIB);
    let (first, second) = (0x10_0000_0000, 0x80_0000_0000);
    let tensors = held - cached;
    trace.alloc(first, tensors);
    trace.alloc(second, cached);
    trace.tensor_on(THREAD, first, tensors, [tensors, held]);
    let seq = trace.refuse(request);
    full(&mut trace, seq, 24 * GIB, held, 24 * GIB - held);
    trace.free(second);
    trace.alloc(second, request);
    trace.tensor_on(THREAD, second, request, [tensors + request; 2]);
    trace
}

/// A run in which PyTorch coped with each failure has no cause that is still to be found, and no advice for a library that never asked.
#[test]
fn a_run_in_which_pytorch_coped_says_so() {
    let summary = crate::testing::summary(&scene(made_up_for(23 * GIB, GIB + 512 * MIB, GIB)).trace);
    // What is filled in for a tracker is about what the verdict names.
    let summaries = [summary.clone()];
    let known = crate::bundle::issue::Known { summaries: &summaries, readings: &[], evidence: &[] };
    assert_eq!(
        crate::bundle::issue::fill(&known).and_then(|issue| issue.finding).map(|found| found.id),
        Some("cache-greed")
    );
    let conclusion = summary.conclusion;
    let wanted =
        "PyTorch had in its cache what was missing, gave it back, asked again and went on (cache-greed, proven).";
    assert!(conclusion.verdict.why.contains(wanted), "{:?}", conclusion.verdict);
    assert!(conclusion.would_settle.is_empty(), "{:?}", conclusion.would_settle);
    let advice: Vec<&str> = conclusion.ladder.steps.iter().map(|step| &*step.fix.why).collect();
    assert!(advice.iter().any(|text| text.contains("PyTorch coped")), "{advice:?}");
    assert!(advice.iter().all(|text| !text.contains("another library")), "{advice:?}");
}

fn ends(trace: &mut TraceBuilder) {
    trace.end(process::EXITS, 1);
}

/// PyTorch holds 22 of 24 GiB, of which so much is in tensors, is refused twice, and tells of its error.
fn before_the_throw(asked: u64, free: u64, allocated: u64) -> TraceBuilder {
    let trace = TraceBuilder::default().device(0, "card", 24 * GIB);
    read_before_the_throw(trace, asked, allocated, |trace, seq| full(trace, seq, 24 * GIB, 22 * GIB, free))
}

/// The same, with these readings at each refusal.
fn read_before_the_throw(
    mut trace: TraceBuilder,
    asked: u64,
    allocated: u64,
    read: impl Fn(&mut TraceBuilder, u64),
) -> TraceBuilder {
    trace.alloc(0x10_0000_0000, 22 * GIB);
    trace.tensor_on(THREAD, 0x10_0000_0000, 2 * GIB, [2 * GIB, 22 * GIB]);
    let behind = 0x10_0000_0000 + 2 * GIB + (22 * GIB - allocated) / 2;
    trace.tensor_on(THREAD, behind, allocated - 2 * GIB, [allocated, 22 * GIB]);
    for _ in 0..2 {
        let seq = trace.refuse(asked);
        read(&mut trace, seq);
        trace.after(Event::ErrorQuery, "hipGetLastError", 0, 0);
    }
    trace.framework_error(THREAD, asked, [allocated, 22 * GIB]);
    trace
}

fn full_card(text: Option<&str>) -> TraceBuilder {
    let mut trace = before_the_throw(4 * GIB, 2 * GIB, 22 * GIB - 100 * MIB);
    trace.throws(THREAD, OBJECT, text);
    ends(&mut trace);
    trace
}

/// A full card of NVIDIA's: what the runtime calls free, and what NVML counts in use.
fn read_by_nvml(free: u64, used: u64) -> Scene {
    let trace = TraceBuilder::default().device(0, "card", 24 * GIB).cuda();
    let mut trace = read_before_the_throw(trace, 4 * GIB, 22 * GIB - 100 * MIB, |trace, seq| {
        let read = [(RuntimeFree, free), (NvmlTotal, 24 * GIB), (NvmlUsed, used), (NvmlProcess, used)];
        at_failure(trace, seq, read);
    });
    trace.throws(THREAD, OBJECT, Some(FULL));
    ends(&mut trace);
    scene(trace)
}

/// Expandable segments on a full card: 4 GiB are mapped in pieces of 1 GiB, twice two of them, and the third is refused.
fn in_pieces() -> TraceBuilder {
    of_pieces(4 * GIB, Some(EMPTY))
}

/// The same for a block of that size, with that message.
fn of_pieces(block_bytes: u64, text: Option<&str>) -> TraceBuilder {
    let mut trace = TraceBuilder::default().device(0, "card", 24 * GIB);
    trace.create_and_map(0xA0, 0x10_0000_0000, 22 * GIB);
    trace.tensor_on(THREAD, 0x10_0000_0000, 22 * GIB, [22 * GIB, 22 * GIB]);
    let base = 0x20_0000_0000;
    for attempt in 0..2 {
        for piece in 0..2 {
            trace.create_and_map(0xB0 + piece, base + piece * GIB, GIB);
        }
        let seq = trace.refuse_piece(GIB);
        full(&mut trace, seq, 24 * GIB, 24 * GIB, 0);
        if attempt == 0 {
            for piece in 0..2 {
                trace.unmap(base + piece * GIB, GIB);
                trace.free_kind(Kind::Physical, "hipMemRelease", 0xB0 + piece);
            }
        }
    }
    trace.framework_error(THREAD, block_bytes, [22 * GIB, 22 * GIB]);
    trace.throws(THREAD, OBJECT, text);
    ends(&mut trace);
    trace
}

/// PyTorch holds 12 of 24 GiB, of which so much is in tensors, and 14 GiB are refused.
fn half_in_tensors(allocated: u64) -> TraceBuilder {
    in_tensors(allocated, 12 * GIB, 14 * GIB)
}

/// PyTorch holds so much of 24 GiB, of which so much is in tensors, and raises an error for another block.
fn in_tensors(allocated: u64, reserved: u64, asked: u64) -> TraceBuilder {
    let mut trace = TraceBuilder::default().device(0, "card", 24 * GIB);
    trace.alloc(0x10_0000_0000, reserved);
    trace.tensor_on(THREAD, 0x10_0000_0000, allocated, [allocated, reserved]);
    for _ in 0..2 {
        let seq = trace.refuse(asked);
        full(&mut trace, seq, 24 * GIB, reserved, 24 * GIB - reserved);
        trace.after(Event::ErrorQuery, "hipGetLastError", 0, 0);
    }
    trace.framework_error(THREAD, asked, [allocated, reserved]);
    trace.throws(THREAD, OBJECT, None);
    ends(&mut trace);
    trace
}

/// PyTorch holds 6 of 24 GiB and raises an error without asking for more; so much was free.
fn limited(free: u64, text: Option<&str>) -> TraceBuilder {
    limited_to(free, 2 * GIB, text)
}

fn limited_to(free: u64, request: u64, text: Option<&str>) -> TraceBuilder {
    let mut trace = TraceBuilder::default().device(0, "card", 24 * GIB);
    trace.alloc(0x10_0000_0000, 6 * GIB);
    trace.tensor_on(THREAD, 0x10_0000_0000, 6 * GIB, [6 * GIB, 6 * GIB]);
    let seq = trace.framework_error(THREAD, request, [6 * GIB, 6 * GIB]);
    at_failure(&mut trace, seq, [(RuntimeFree, free), (VramTotal, 24 * GIB), (VramUsed, 24 * GIB - free + MIB)]);
    trace.throws(THREAD, OBJECT, text);
    ends(&mut trace);
    trace
}

/// What the trace has is not asked for.
#[test]
fn nobody_is_asked_for_a_message_that_was_recorded() {
    let asks = |text: Option<&str>| {
        let summary = crate::testing::summary(&torch(limited(16 * GIB, text)));
        let findings = summary.conclusion.findings.iter().flat_map(|finding| &finding.missing);
        findings.chain(&summary.conclusion.would_settle).any(|reading| reading.contains("--log"))
    };
    assert!(asks(None), "without a message it is asked for");
    assert!(!asks(Some("CUDA out of memory. Tried to allocate 2.00 GiB.")), "this one does not name the limit");
}

/// A ceiling is raised where that helps, and the one that is set.
#[test]
fn a_ceiling_is_raised_once_and_where_that_helps() {
    let steps = |request: u64, text: &str| {
        let summary = crate::testing::summary(&torch(limited_to(16 * GIB, request, Some(text))));
        let steps = summary.conclusion.ladder.steps.into_iter();
        steps.filter(|step| step.id == "process-fraction-cap").map(|step| step.fix.why).collect::<Vec<_>>()
    };
    let within = steps(2 * GIB, ALLOWED);
    assert!(within.len() == 1 && within[0].starts_with("raise the ceiling: torch.cuda."), "{within:?}");
    let beyond = steps(30 * GIB, ALLOWED_OF_30);
    assert!(beyond.len() == 1 && beyond[0].starts_with("ask for less at once"), "{beyond:?}");
}

/// A ceiling says nothing of why memory rose: the leak that filled it has its advice, too.
#[test]
fn a_leak_up_to_a_ceiling_is_advised_against() {
    let mut trace = torch(TraceBuilder::default().device(0, "card", 24 * GIB));
    for step in 0..60 {
        super::uses::mark(&mut trace, &format!("step {step}"));
        trace.alloc(0x10_0000_0000 + step * GIB, 100 * MIB);
        trace.tensor_on(THREAD, 0x10_0000_0000 + step * GIB, 100 * MIB, [(step + 1) * 100 * MIB; 2]);
        trace.alloc(0x1000_0000_0000, 200 * MIB);
        trace.free(0x1000_0000_0000);
    }
    let held = 6000 * MIB;
    let seq = trace.framework_error(THREAD, 2 * GIB, [held, held]);
    at_failure(&mut trace, seq, [(RuntimeFree, 16 * GIB), (VramTotal, 24 * GIB), (VramUsed, 8 * GIB)]);
    trace.throws(THREAD, OBJECT, Some(ALLOWED));
    ends(&mut trace);
    let conclusion = crate::testing::summary(&trace).conclusion;
    assert_eq!(conclusion.verdict.cause, Some("process-fraction-cap"), "{:?}", conclusion.verdict);
    let leak = conclusion.findings.iter().find(|finding| finding.id == "live-leak").expect("a leak");
    assert!(leak.confidence >= Probable, "{leak:?}");
    assert!(conclusion.ladder.steps.iter().any(|step| step.id == "live-leak"), "{:?}", conclusion.ladder.steps);
}
