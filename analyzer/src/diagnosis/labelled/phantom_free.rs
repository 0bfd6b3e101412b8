//! C. Free memory reported, allocation refused.

use gpuoom_trace::metadata::Quantity::{KfdOthersVram, KfdProcessVram, RuntimeFree, VramTotal, VramUsed};

use super::{Labelled, Says, Scene, readings};
use crate::diagnosis::check::Confidence::Proven;
use crate::testing::{GIB, MIB, TraceBuilder};

pub(super) const TRACES: &[Labelled] = &[
    Labelled {
        id: "phantom-free",
        says: Says::First(Proven),
        also: &[],
        story: "64 MiB are refused with 20 GiB free, and nothing explains it",
        scene: || one_block(64 * MIB, 20 * GIB, 0),
    },
    Labelled {
        id: "phantom-free",
        says: Says::Not,
        also: &["other-process-on-gpu"],
        story: "what was free was not enough",
        scene: || one_block(8 * GIB, 2 * GIB, 20 * GIB),
    },
    Labelled {
        id: "other-process-on-gpu",
        says: Says::First(Proven),
        also: &[],
        story: "another process holds 20 of 24 GiB",
        scene: || one_block(8 * GIB, 2 * GIB, 20 * GIB),
    },
    Labelled {
        id: "other-process-on-gpu",
        says: Says::Not,
        also: &["phantom-free"],
        story: "another process holds 3 GiB, and there was enough left",
        scene: || one_block(64 * MIB, 18 * GIB, 3 * GIB),
    },
];

/// A program with 1 GiB asks for more on a card of 24.
fn one_block(asked: u64, free: u64, others: u64) -> Scene {
    let mut trace = TraceBuilder::default().device(0, "card", 24 * GIB);
    trace.alloc(0x10_0000_0000, GIB);
    let seq = trace.refuse(asked);
    let read = [
        (RuntimeFree, free),
        (VramTotal, 24 * GIB),
        (VramUsed, 24 * GIB - free),
        (KfdProcessVram, GIB),
        (KfdOthersVram, others),
    ];
    trace.read_at_failure(seq, &readings(read));
    Scene { trace }
}
