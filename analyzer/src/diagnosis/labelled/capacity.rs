//! A. Capacity and request shape.

use gpuoom_trace::metadata::Quantity::{KfdOthersVram, KfdProcessVram, RuntimeFree, VramTotal, VramUsed};

use super::{Labelled, Says, Scene, readings};
use crate::diagnosis::check::Confidence::{Probable, Proven};
use crate::testing::{GIB, TraceBuilder, gib};

pub(super) const TRACES: &[Labelled] = &[
    Labelled {
        id: "true-capacity",
        says: Says::First(Proven),
        also: &[],
        story: "22 of 24 GiB are held, 4 more are asked for",
        scene: || held_and_refused(22, 4, gib(1.9), gib(1.8)),
    },
    Labelled {
        id: "true-capacity",
        says: Says::First(Probable),
        also: &[],
        story: "19 of 24 GiB are held, which leaves more room for other reasons",
        scene: || held_and_refused(19, 6, gib(4.9), gib(4.8)),
    },
    Labelled {
        id: "true-capacity",
        says: Says::Not,
        also: &["other-process-on-gpu"],
        story: "the program holds half of the card, another process the rest",
        scene: || {
            let mut trace = TraceBuilder::default().device(0, "card", 24 * GIB);
            trace.alloc(0x1000_0000, 12 * GIB);
            let seq = trace.refuse(4 * GIB);
            let read = [
                (RuntimeFree, GIB),
                (VramTotal, 24 * GIB),
                (VramUsed, 23 * GIB),
                (KfdProcessVram, 12 * GIB),
                (KfdOthersVram, 11 * GIB),
            ];
            trace.read_at_failure(seq, &readings(read));
            Scene { trace }
        },
    },
    Labelled {
        id: "request-exceeds-device",
        says: Says::First(Proven),
        also: &[],
        story: "77.5 GiB on a card of 24 (ROCm/ROCm#5519)",
        scene: || held_and_refused(1, 77, 22 * GIB, 22 * GIB),
    },
    Labelled {
        id: "request-exceeds-device",
        says: Says::Not,
        also: &["true-capacity"],
        story: "a request below the card's size",
        scene: || held_and_refused(22, 23, gib(1.9), gib(1.8)),
    },
];

/// The program holds some GiB of 24, asks for more, and both readings say what is free.
fn held_and_refused(held_gib: u64, asked_gib: u64, runtime_free: u64, sysfs_free: u64) -> Scene {
    let mut trace = TraceBuilder::default().device(0, "card", 24 * GIB);
    for block in 0..held_gib {
        trace.alloc(0x10_0000_0000 + block * 2 * GIB, GIB);
    }
    let seq = trace.refuse(asked_gib * GIB);
    let read = [
        (RuntimeFree, runtime_free),
        (VramTotal, 24 * GIB),
        (VramUsed, 24 * GIB - sysfs_free),
        (KfdProcessVram, held_gib * GIB),
        (KfdOthersVram, 0),
    ];
    trace.read_at_failure(seq, &readings(read));
    Scene { trace }
}
