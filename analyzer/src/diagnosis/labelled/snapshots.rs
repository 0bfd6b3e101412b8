//! PyTorch's memory snapshots beside a trace: what they prove, what they refute, and where its message says something else.

use super::scenes::{full, torch, with_log};
use super::{Labelled, Says, Scene};
use crate::evidence::Given;
use crate::evidence::torch_snapshot::{Action, Block, Event, Frame, Segment, Snapshot, State};
use crate::judgement::check::Confidence::{Probable, Proven};
use crate::testing::{MIB, TraceBuilder, gib};

pub(super) const TRACES: &[Labelled] = &[
    Labelled {
        id: "caching-fragmentation",
        says: Says::First(Proven),
        also: &[],
        story: "a snapshot with the failure in its history: half of each segment is unused, and no piece is large enough",
        scene: || scene(&HALF_USED, None),
    },
    Labelled {
        id: "caching-fragmentation",
        says: Says::Not,
        also: &["true-capacity"],
        story: "a snapshot with the failure in its history: tensors fill the segments, though they were freed later",
        scene: || scene(&Shown { used: 960 * MIB, freed_later: true, ..HALF_USED }, None),
    },
    Labelled {
        id: "caching-fragmentation",
        says: Says::Not,
        also: &[],
        story: "one unused block would have held the request: the snapshot is of a failure that had another reason",
        scene: || scene(&Shown { request: 400 * MIB, ..HALF_USED }, None),
    },
    Labelled {
        id: "caching-fragmentation",
        says: Says::First(Probable),
        also: &[],
        story: "snapshot and message disagree: the snapshot has the failure by size and time, and is believed",
        scene: || scene(&HALF_USED, Some(FULL)),
    },
    Labelled {
        id: "caching-fragmentation",
        says: Says::Not,
        also: &["true-capacity"],
        story: "they disagree, and the snapshot has no record of the failure: the message is believed",
        scene: || scene(&Shown { history: false, ..HALF_USED }, Some(FULL)),
    },
    Labelled {
        id: "caching-fragmentation",
        says: Says::First(Probable),
        also: &[],
        story: "a snapshot without history, of about the segments that the trace has",
        scene: || scene(&Shown { history: false, ..HALF_USED }, None),
    },
    Labelled {
        id: "caching-fragmentation",
        says: Says::First(Probable),
        also: &["true-capacity"],
        story: "a third of the segments is unused, all of it for this stream and size, and only with what was free as much as was asked for",
        scene: || scene(&Shown { used: 640 * MIB, request: 5800 * MIB, ..HALF_USED }, None),
    },
    Labelled {
        id: "true-capacity",
        says: Says::First(Proven),
        also: &[],
        story: "a snapshot with the failure in its history: tensors fill the segments",
        scene: || scene(&Shown { used: 960 * MIB, ..HALF_USED }, None),
    },
    Labelled {
        id: "attention-quadratic",
        says: Says::Found(Proven),
        also: &["true-capacity"],
        story: "the stack of the request, in a snapshot, is one of attention scores",
        scene: || scene(&Shown { used: 960 * MIB, from: "_scaled_dot_product_attention_math", ..HALF_USED }, None),
    },
    Labelled {
        id: "attention-quadratic",
        says: Says::Found(Probable),
        also: &["true-capacity"],
        story: "the stack is of attention: its output is linear in the length, its scores are not",
        scene: || scene(&Shown { used: 960 * MIB, from: "eager_attention_forward", ..HALF_USED }, None),
    },
    Labelled {
        id: "attention-quadratic",
        says: Says::Found(Proven),
        also: &["true-capacity"],
        story: "the stack is of attention, and the model's facts make scores of just that size",
        scene: || {
            let mut scene = scene(&Shown { used: 960 * MIB, from: "eager_attention_forward", ..HALF_USED }, None);
            let facts = "heads=32,sequence=4096,batch=2";
            scene.trace.evidence.model.get_or_insert_default().add(facts).expect("facts of a model");
            scene
        },
    },
    Labelled {
        id: "attention-quadratic",
        says: Says::Not,
        also: &["true-capacity"],
        story: "the stack is of a fused kernel, which keeps no scores",
        scene: || scene(&Shown { used: 960 * MIB, from: "_flash_attention_forward", ..HALF_USED }, None),
    },
    Labelled {
        id: "cache-greed",
        says: Says::Found(Probable),
        also: &[],
        story: "another library is refused what half of PyTorch's segments hold unused",
        scene: || by_another(&Shown { history: false, ..HALF_USED }),
    },
    Labelled {
        id: "cache-greed",
        says: Says::Not,
        also: &["true-capacity"],
        story: "the same library, and tensors fill the segments",
        scene: || by_another(&Shown { history: false, used: 960 * MIB, ..HALF_USED }),
    },
    Labelled {
        id: "caching-fragmentation",
        says: Says::Not,
        also: &[],
        story: "another library is refused: no unused block would have helped it",
        scene: || by_another(&Shown { history: false, ..HALF_USED }),
    },
    Labelled {
        id: "graph-private-pool",
        says: Says::First(Proven),
        also: &[],
        story: "a snapshot with the failure in its history: the segments belong to captured graphs",
        scene: || scene(&Shown { pool: (0, 1), ..HALF_USED }, None),
    },
    Labelled {
        id: "graph-private-pool",
        says: Says::Not,
        also: &["caching-fragmentation"],
        story: "no segment of the snapshot belongs to a graph",
        scene: || scene(&HALF_USED, None),
    },
];

/// What a snapshot of 16 segments shows.
struct Shown {
    /// Of each segment, in use at the failure.
    used: u64,
    /// Whether that was freed before the snapshot was written.
    freed_later: bool,
    /// What was asked for.
    request: u64,
    /// Whether its history was recorded.
    history: bool,
    /// The innermost function of the failing request.
    from: &'static str,
    /// Pool of the segments.
    pool: (u64, u64),
}

const SEGMENT: u64 = 980 * MIB;
const HALF_USED: Shown =
    Shown { used: 490 * MIB, freed_later: false, request: 2048 * MIB, history: true, from: "forward", pool: (0, 0) };
const FULL: &str = "torch.OutOfMemoryError: HIP out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of \
    15.92 GiB of which 621.82 MiB is free. Of the allocated memory 14.97 GiB is allocated by PyTorch, and 348.16 MiB is \
    reserved by PyTorch but unallocated.";

/// A card of 15.92 GiB that is full of PyTorch's segments, a request that is refused, and a snapshot.
fn scene(shown: &Shown, log: Option<&str>) -> Scene {
    asked_from(0, shown, log)
}

/// The same, and the request that is refused comes from a library that has nothing to do with PyTorch.
fn by_another(shown: &Shown) -> Scene {
    asked_from(3, shown, None)
}

fn asked_from(site: u32, shown: &Shown, log: Option<&str>) -> Scene {
    let total = gib(15.92);
    let mut trace = torch(TraceBuilder::default().device(0, "card", total));
    trace = trace.library("/opt/engine/lib/libengine.so.1", 0x5000_0000, 3);
    let addresses: Vec<u64> = (0..16).map(|segment| 0x10_0000_0000 + segment * 1024 * MIB).collect();
    addresses.iter().for_each(|address| _ = trace.alloc(*address, SEGMENT));
    trace.site = site;
    let seq = trace.refuse(shown.request);
    full(
        &mut trace,
        seq,
        total,
        16 * SEGMENT,
        if shown.request < 700 * MIB { 100 * MIB } else { total - 16 * SEGMENT },
    );
    let failed_at_us = (trace.header.clock_first.wall_ns + trace.now_ns) / 1000;
    trace
        .evidence
        .torch_snapshots
        .push(Given { path: "snapshot.pickle".into(), content: snapshot(shown, &addresses, failed_at_us + 300) });
    match log {
        Some(log) => with_log(trace, log),
        None => Scene { trace },
    }
}

fn snapshot(shown: &Shown, addresses: &[u64], at_us: u64) -> Snapshot {
    let segment = |address: &u64| {
        let used = if shown.freed_later { State::Inactive } else { State::ActiveAllocated };
        let block = |address, size_bytes, state| Block { address, size_bytes, requested_bytes: None, state, stack: 0 };
        let allocated_bytes = if shown.freed_later { 0 } else { shown.used };
        Segment {
            device: 0,
            address: *address,
            total_bytes: SEGMENT,
            allocated_bytes,
            active_bytes: allocated_bytes,
            requested_bytes: None,
            stream: 0,
            small: false,
            expandable: false,
            pool: shown.pool,
            blocks: vec![
                block(*address, shown.used, used),
                block(address + shown.used, SEGMENT - shown.used, State::Inactive),
            ],
            stack: 0,
        }
    };
    let event = |action, address_or_free_bytes, size_bytes, stack| Event {
        action,
        address_or_free_bytes,
        size_bytes,
        stream: 0,
        time_us: at_us,
        pool: (0, 0),
        stack,
    };
    let oom = event(Action::Oom, 600 * MIB, shown.request, 1);
    let freed = addresses.iter().map(|address| event(Action::FreeCompleted, *address, shown.used, 0));
    let events = std::iter::once(oom).chain(freed.filter(|_| shown.freed_later));
    let frame = |name: &str, file: &str| Frame { name: name.into(), file: file.into(), line: 42 };
    Snapshot {
        segments: addresses.iter().map(segment).collect(),
        device_traces: vec![events.filter(|_| shown.history).collect()],
        frames: vec![frame(shown.from, "model.py"), frame("<module>", "run.py")],
        stacks: vec![Vec::new(), vec![0, 1]],
        ..Snapshot::default()
    }
}

fn evidence_of(scene: &Scene, id: &str) -> String {
    let summary = crate::testing::summary(&scene.trace);
    let found = summary.conclusion.findings.iter().find(|finding| finding.id == id);
    let excluded = summary.conclusion.excluded.iter().find(|excluded| excluded.id == id);
    let evidence = found.into_iter().flat_map(|finding| &finding.evidence).map(|evidence| evidence.text.as_str());
    evidence.chain(excluded.map(|excluded| excluded.by.as_str())).collect::<Vec<_>>().join("; ")
}

#[test]
fn the_report_says_what_the_snapshot_shows() {
    insta::assert_snapshot!(evidence_of(&scene(&HALF_USED, None), "caching-fragmentation"), @"PyTorch's snapshot, at its record of this failure: it held 7.66 GiB in unused blocks, and 2.00 GiB was asked for; that is 50.0 % of what it had reserved; 0.61 GiB was free on the card; the largest unused block that the request could use had 490 MiB; the request came from forward (model.py:42)");
}

#[test]
fn where_both_disagree_the_report_says_which_is_believed() {
    insta::assert_snapshot!(evidence_of(&scene(&HALF_USED, Some(FULL)), "caching-fragmentation"), @"PyTorch's snapshot, at its record of this failure: it held 7.66 GiB in unused blocks, and 2.00 GiB was asked for; that is 50.0 % of what it had reserved; 0.61 GiB was free on the card; the largest unused block that the request could use had 490 MiB; the request came from forward (model.py:42); PyTorch's message says 348.2 MiB unused and its snapshot 7.66 GiB: the snapshot is believed, which has this failure by size and time, where the message has the size alone");
}

/// A failure of another time is another failure, whatever its size.
#[test]
fn an_old_record_is_of_another_failure() {
    let mut old = scene(&HALF_USED, None);
    old.trace.evidence.torch_snapshots[0].content.device_traces[0][0].time_us -= 60_000_000;
    let summary = crate::testing::summary(&old.trace);
    let found = summary
        .conclusion
        .findings
        .iter()
        .find(|finding| finding.id == "caching-fragmentation")
        .expect("by its segments");
    assert_eq!(found.confidence, Probable, "{:?}", found.evidence);
}
