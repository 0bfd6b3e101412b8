//! F. Processes that were forked after their runtime had started.

use gpuoom_trace::metadata::Quantity::{RuntimeFree, RuntimeTotal, VramUsed};

use super::{Labelled, Says, Scene, readings};
use crate::judgement::check::Confidence::{Possible, Probable};
use crate::testing::{GIB, TraceBuilder};

pub(super) const TRACES: &[Labelled] = &[
    Labelled {
        id: "forked-after-init",
        says: Says::First(Probable),
        also: &[],
        story: "a child asks for 1 GiB of an empty card, and is refused",
        scene: || child(Some(7), |trace| refused(trace, 22 * GIB)),
    },
    Labelled {
        id: "forked-after-init",
        says: Says::Found(Possible),
        also: &[],
        story: "the same, and nobody read how much was free",
        scene: || child(Some(7), |trace| _ = trace.refuse(GIB)),
    },
    Labelled {
        id: "forked-after-init",
        says: Says::Found(Possible),
        also: &["phantom-free"],
        story: "the same, and some records are lost: what they were nobody knows",
        scene: || {
            let mut scene = child(Some(7), |trace| _ = trace.refuse(GIB));
            scene.trace.header.events_lost = 3;
            scene
        },
    },
    Labelled {
        id: "forked-after-init",
        says: Says::Not,
        also: &["phantom-free"],
        story: "the same in a process that was started anew",
        scene: || child(None, |trace| refused(trace, 22 * GIB)),
    },
    Labelled {
        id: "forked-after-init",
        says: Says::Not,
        also: &["true-capacity", "phantom-free", "other-process-on-gpu"],
        story: "the card is full",
        scene: || child(Some(7), |trace| refused(trace, 0)),
    },
    Labelled {
        id: "forked-after-init",
        says: Says::Not,
        also: &["phantom-free"],
        story: "the child has had memory: its runtime works",
        scene: || {
            child(Some(7), |trace| {
                trace.alloc(0x1000_0000, GIB);
                refused(trace, 22 * GIB);
            })
        },
    },
];

fn child(parent: Option<u32>, then: impl FnOnce(&mut TraceBuilder)) -> Scene {
    let mut trace = TraceBuilder::default().device(0, "card", 24 * GIB);
    trace.began_in_child_of(parent.unwrap_or(0));
    then(&mut trace);
    Scene { trace }
}

fn refused(trace: &mut TraceBuilder, free_bytes: u64) {
    let seq = trace.refuse(GIB);
    let used = 24 * GIB - free_bytes;
    let numbers = readings([(RuntimeTotal, 24 * GIB), (RuntimeFree, free_bytes), (VramUsed, used)]);
    trace.read_at_failure(seq, &numbers);
}
