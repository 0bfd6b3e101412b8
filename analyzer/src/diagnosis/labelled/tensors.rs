//! PyTorch's tensors, cache and fraction, by its snapshots and messages.

use gpuoom_trace::metadata::Quantity::{KfdOthersVram, KfdProcessVram, RuntimeFree, VramTotal, VramUsed};
use gpuoom_trace::record::process;

use super::scenes::{at_failure, set, torch, with_log};
use super::{Labelled, Says, Scene};
use crate::evidence::torch_snapshot::{Action, Event, Frame, Segment, Snapshot};
use crate::evidence::{Given, program_log};
use crate::judgement::check::Confidence::{Possible, Probable, Proven};
use crate::testing::{GIB, MIB, TraceBuilder};

pub(super) const TRACES: &[Labelled] = &[
    Labelled {
        id: "live-leak",
        says: Says::First(Possible),
        also: &[],
        story: "segments of PyTorch rise step by step, and nothing shows its tensors",
        scene: || segments(None),
    },
    Labelled {
        id: "live-leak",
        says: Says::First(Possible),
        also: &[],
        story: "the same, and the snapshot's history has tensors of one line that stay, more with each step",
        scene: || segments(Some(steps(12, 30 * MIB))),
    },
    Labelled {
        id: "live-leak",
        says: Says::Not,
        also: &[],
        story: "the same segments, and after each step the tensors of the history are those of before: the cache grows",
        scene: || segments(Some(steps(12, 0))),
    },
    Labelled {
        id: "live-leak",
        says: Says::First(Possible),
        also: &[],
        story: "a history of three steps, too short for a line",
        scene: || segments(Some(steps(3, 30 * MIB))),
    },
    Labelled {
        id: "reading-mismatch-benign",
        says: Says::Found(Proven),
        also: &["other-process-on-gpu"],
        story: "the driver counts 9.2 GiB for the process, its tensors hold 5, and PyTorch's message has 4 cached",
        scene: || cached(5, 4),
    },
    Labelled {
        id: "reading-mismatch-benign",
        says: Says::Not,
        also: &["other-process-on-gpu"],
        story: "the same readings, and only 1 GiB is cached: something else holds the rest",
        scene: || cached(5, 1),
    },
    Labelled {
        id: "reading-mismatch-benign",
        says: Says::Not,
        also: &["other-process-on-gpu", "caching-fragmentation"],
        story: "the cache holds more than was asked for: that is no harmless difference",
        scene: || cached(0, 9),
    },
    Labelled {
        id: "process-fraction-cap",
        says: Says::First(Proven),
        also: &[],
        story: "half of 16 GiB is allowed by PyTorch's option, 7.9 are reserved, 512 MiB are refused by PyTorch and by nobody else",
        scene: || fraction(Some("0.5"), false),
    },
    Labelled {
        id: "process-fraction-cap",
        says: Says::Found(Probable),
        also: &[],
        story: "the same, and no option has a fraction: the program may have set it",
        scene: || fraction(None, false),
    },
    Labelled {
        id: "process-fraction-cap",
        says: Says::Not,
        also: &[],
        story: "nine tenths are allowed, which leaves room",
        scene: || fraction(Some("0.9"), false),
    },
    Labelled {
        id: "process-fraction-cap",
        says: Says::Not,
        also: &["phantom-free"],
        story: "a device call of that size failed: the driver refused it",
        scene: || fraction(Some("0.5"), true),
    },
    Labelled {
        id: "process-fraction-cap",
        says: Says::Found(Possible),
        also: &[],
        story: "a server was given half of the card, and ended with an error although no call failed",
        scene: || server("0.5"),
    },
    Labelled {
        id: "process-fraction-cap",
        says: Says::Not,
        also: &[],
        story: "the same server with the whole card",
        scene: || server("1.0"),
    },
    Labelled {
        id: "process-fraction-cap",
        says: Says::First(Probable),
        also: &[],
        story: "a server ended, and its log says that less than its share was free",
        scene: || with_servers_log(server("0.9"), LESS_FREE),
    },
    Labelled {
        id: "process-fraction-cap",
        says: Says::First(Probable),
        also: &[],
        story: "a server ended, and its log says that its share leaves nothing for the cache, although no option set one",
        scene: || with_servers_log(server("1.0"), "ValueError: No available memory for the cache blocks."),
    },
    Labelled {
        id: "process-fraction-cap",
        says: Says::Not,
        also: &["phantom-free"],
        story: "a call failed: that log is of another start",
        scene: || with_servers_log(fraction(None, true), LESS_FREE),
    },
];

/// Frames: a line that keeps a loss, the forward pass, a function of PyTorch.
fn frames() -> Vec<Frame> {
    let frame = |name: &str, file: &str, line| Frame { name: name.into(), file: file.into(), line };
    vec![
        frame("training_step", "/home/me/train.py", 42),
        frame("forward", "/home/me/model.py", 7),
        frame("linear", "/usr/lib/python3/torch/nn/functional.py", 99),
    ]
}

fn event(action: Action, address_or_free_bytes: u64, size_bytes: u64, stack: u32) -> Event {
    Event { action, address_or_free_bytes, size_bytes, stream: 0, time_us: 0, pool: (0, 0), stack }
}

/// So many steps with six activations each, of which one more tensor stays.
fn steps(count: u64, kept_bytes: u64) -> Snapshot {
    let mut events = Vec::new();
    for step in 0..count {
        let activations: Vec<u64> = (0..6).map(|layer| 0x1000_0000 + layer).collect();
        events.extend(activations.iter().map(|address| event(Action::Alloc, *address, 100 * MIB, 2)));
        if kept_bytes > 0 {
            events.push(event(Action::Alloc, 0x9000_0000 + step, kept_bytes, 1));
        }
        for address in activations {
            events.push(event(Action::FreeRequested, address, 100 * MIB, 0));
            events.push(event(Action::FreeCompleted, address, 100 * MIB, 0));
        }
    }
    Snapshot {
        device_traces: vec![events],
        frames: frames(),
        stacks: vec![Vec::new(), vec![2, 0], vec![2, 1]],
        ..Snapshot::default()
    }
}

/// PyTorch's segments over 20 steps: six come and go, one stays.
fn segments(snapshot: Option<Snapshot>) -> Scene {
    let mut trace = torch(TraceBuilder::default().device(0, "card", 16 * GIB));
    let mut next = 0x10_0000_0000;
    for _ in 0..20 {
        let mut give = |bytes: u64| {
            next += GIB;
            trace.alloc(next, bytes);
            next
        };
        let given: Vec<u64> = (0..6).map(|_| give(100 * MIB)).collect();
        give(20 * MIB);
        given.iter().for_each(|address| _ = trace.free(*address));
    }
    let given = snapshot.map(|content| Given { path: "snapshot.pickle".into(), content });
    trace.evidence.torch_snapshots.extend(given);
    Scene { trace }
}

/// 8 GiB are refused on a card of 24, on which another process holds 12 and this one 9.2.
fn cached(tensors: u64, unused: u64) -> Scene {
    cached_beside(tensors, unused, 200 * MIB)
}

fn cached_beside(tensors: u64, unused: u64, beside: u64) -> Scene {
    let mut trace = torch(TraceBuilder::default().device(0, "card", 24 * GIB));
    trace.alloc(0x10_0000_0000, 9 * GIB);
    let seq = trace.refuse(8 * GIB);
    let read = [
        (RuntimeFree, 2 * GIB),
        (VramTotal, 24 * GIB),
        (VramUsed, 22 * GIB),
        (KfdProcessVram, 9 * GIB + beside),
        (KfdOthersVram, 12 * GIB),
    ];
    at_failure(&mut trace, seq, read);
    let log = format!(
        "torch.OutOfMemoryError: HIP out of memory. Tried to allocate 8.00 GiB. GPU 0 has a total capacity of 24.00 GiB of which \
         2.00 GiB is free. Of the allocated memory {tensors}.00 GiB is allocated by PyTorch, and {unused}.00 GiB is reserved by \
         PyTorch but unallocated."
    );
    with_log(trace, &log)
}

/// PyTorch has 7.9 GiB of a card of 16 and refuses 512 MiB, by itself or because the driver did.
fn fraction(option: Option<&str>, refused: bool) -> Scene {
    const RESERVED: u64 = 8 * GIB - 100 * MIB;
    let mut trace = torch(TraceBuilder::default().device(0, "card", 16 * GIB));
    if let Some(fraction) = option {
        set(&mut trace, "PYTORCH_HIP_ALLOC_CONF", &format!("per_process_memory_fraction:{fraction}"));
    }
    trace.alloc(0x10_0000_0000, RESERVED);
    if refused {
        let seq = trace.refuse(512 * MIB);
        at_failure(&mut trace, seq, [(RuntimeFree, 8 * GIB), (VramTotal, 16 * GIB), (VramUsed, 8 * GIB)]);
    }
    let time_us = (trace.header.clock_first.wall_ns + trace.now_ns) / 1000;
    let segment = Segment {
        device: 0,
        address: 0x10_0000_0000,
        total_bytes: RESERVED,
        allocated_bytes: RESERVED,
        active_bytes: RESERVED,
        requested_bytes: None,
        stream: 0,
        small: false,
        expandable: false,
        pool: (0, 0),
        blocks: Vec::new(),
        stack: 0,
    };
    let oom = Event { time_us, ..event(Action::Oom, 8 * GIB, 512 * MIB, 0) };
    let content = Snapshot { segments: vec![segment], device_traces: vec![vec![oom]], ..Snapshot::default() };
    trace.evidence.torch_snapshots.push(Given { path: "snapshot.pickle".into(), content });
    Scene { trace }
}

const LESS_FREE: &str = "ValueError: Free memory on device cuda:0 (19.77/22.05 GiB) on startup is less than desired GPU memory utilization \
    (0.9, 19.84 GiB). Decrease GPU memory utilization or reduce GPU memory used by other processes.";

fn with_servers_log(mut scene: Scene, log: &str) -> Scene {
    let content = program_log::find_all(log);
    scene.trace.evidence.program_logs.push(Given { path: "server.log".into(), content });
    scene
}

fn server(share: &str) -> Scene {
    let mut trace = torch(TraceBuilder::default().device(0, "card", 24 * GIB));
    trace.process.command_line = ["vllm", "serve", "--gpu-memory-utilization", share].map(Into::into).into();
    trace.alloc(0x10_0000_0000, 11 * GIB);
    trace.end(process::EXITS, 1);
    Scene { trace }
}

#[test]
fn the_report_says_where_the_tensors_come_from() {
    let summary = crate::testing::summary(&segments(Some(steps(12, 30 * MIB))).trace);
    let found = &summary.conclusion.findings[0];
    let texts: Vec<&str> = found.evidence.iter().map(|evidence| evidence.text.as_str()).collect();
    insta::assert_snapshot!(texts.join("; "), @"PyTorch's snapshot: what tensors hold after a cycle rises by 30 MiB each time (95 %: 30 MiB to 30 MiB), up to the last; 330 MiB in 12 cycles; what stays comes all along from the same place: 12 tensors (360 MiB) from training_step (/home/me/train.py:42)");
    let flat = crate::testing::summary(&segments(Some(steps(12, 0))).trace);
    let by: Vec<&str> = flat.conclusion.excluded.iter().map(|excluded| excluded.by.as_str()).collect();
    insta::assert_snapshot!(by.join("; "), @"PyTorch's snapshot: over 11 cycles tensors held 0 bytes to 0 bytes after each, which is no steady rise: the cache grows, and no tensor leaks");
}

/// What tensors and cache leave of the driver's count is told where it is more than noise.
#[test]
fn a_byte_is_no_difference() {
    let said = |beside: u64| {
        let scene = cached_beside(5, 4, beside);
        let findings = crate::testing::summary(&scene.trace).conclusion.findings;
        let found = findings.into_iter().find(|finding| finding.id == "reading-mismatch-benign");
        found.expect("the cache explains it").evidence[0].text.clone()
    };
    assert!(said(1).ends_with("the rest is PyTorch's cache (4.00 GiB)"), "{}", said(1));
    assert!(said(200 * MIB).ends_with("(4.00 GiB), all but 200 MiB"), "{}", said(200 * MIB));
}
