//! Where something else holds the card, the program's own memory is not the reason; where the program fills it, nothing else is.

use gpuoom_trace::metadata::Quantity::{
    KfdOthersVram, KfdProcessVram, LargestAllocatable, RuntimeFree, RuntimeTotal, VramTotal, VramUsed,
};

use super::scenes::{NAVI_31, amd_gpu, at_failure, full};
use super::serving::{known, pool_beside};
use super::{Labelled, Says, Scene};
use crate::judgement::check::Confidence::{Possible, Probable};
use crate::passes::shape::programs::Program;
use crate::testing::{GIB, MIB, TraceBuilder};

pub(super) const TRACES: &[Labelled] = &[
    Labelled {
        id: "kv-cache-prealloc",
        says: Says::Found(Possible),
        also: &[],
        story: "the cache of a small model does not fit, because something else holds nearly all of the card",
        scene: || {
            let mut program = Program::new();
            program.read(100 * MIB);
            program.keep(GIB);
            let seq = program.trace.refuse(512 * MIB);
            at_failure(&mut program.trace, seq, [(RuntimeTotal, 16 * GIB), (RuntimeFree, 50 * MIB)]);
            known(Scene { trace: program.trace }, "layers=32,kv_heads=32,head_dim=128,context=1024")
        },
    },
    Labelled {
        id: "legacy-pool-growth",
        says: Says::Found(Possible),
        also: &[],
        story: "a pool of 1.5 GiB beside 14 GiB of the same program's",
        scene: || pool_beside(14 * GIB + 512 * MIB),
    },
    Labelled {
        id: "live-leak",
        says: Says::First(Probable),
        also: &["true-capacity"],
        story: "each of 40 labelled steps keeps 300 MiB, and fills the card with that",
        scene: || leak(300 * MIB, 0, 200 * MIB),
    },
    Labelled {
        id: "live-leak",
        says: Says::Found(Possible),
        also: &["other-process-on-gpu"],
        story: "each keeps 20 MiB, and another process takes 14 GiB",
        scene: || leak(20 * MIB, 14 * GIB, 200 * MIB),
    },
    Labelled {
        id: "live-leak",
        says: Says::First(Possible),
        also: &[],
        story: "each keeps 60 MiB, and then one asks for 13.6 GiB, where those before took 200 MiB",
        scene: || leak(60 * MIB, 0, 13 * GIB + 700 * MIB),
    },
    Labelled {
        id: "live-leak",
        says: Says::First(Possible),
        also: &[],
        story: "each keeps 60 MiB, and then one asks for 700 MiB, where those before took 200 MiB",
        scene: || leak(60 * MIB, 0, 700 * MIB),
    },
    Labelled {
        id: "other-process-on-gpu",
        says: Says::First(Probable),
        also: &[],
        story: "another process holds 2.5 of 24 GiB, and this one 20.5",
        scene: || {
            let mut trace = TraceBuilder::default().device(0, "card", 24 * GIB);
            trace.alloc(0x10_0000_0000, 20 * GIB + 512 * MIB);
            let seq = trace.refuse(2 * GIB);
            let read = [
                (RuntimeFree, GIB),
                (VramTotal, 24 * GIB),
                (VramUsed, 23 * GIB),
                (KfdProcessVram, 20 * GIB + 512 * MIB),
                (KfdOthersVram, 2 * GIB + 512 * MIB),
            ];
            at_failure(&mut trace, seq, read);
            Scene { trace }
        },
    },
    Labelled {
        id: "true-capacity",
        says: Says::First(Probable),
        also: &[],
        story: "the card is full by the calls and by sysfs, and HIP calls 4 GiB free",
        scene: || {
            let mut trace = TraceBuilder::default().device(0, "card", 24 * GIB);
            amd_gpu(&mut trace, NAVI_31, 24 * GIB, 32 * GIB);
            trace.alloc(0x10_0000_0000, 24 * GIB - 160 * MIB);
            let seq = trace.refuse(400 * MIB);
            let own = 24 * GIB - 160 * MIB;
            let read = [
                (RuntimeFree, 4 * GIB + 160 * MIB),
                (VramTotal, 24 * GIB),
                (VramUsed, own),
                (KfdProcessVram, own),
                (KfdOthersVram, 0),
            ];
            at_failure(&mut trace, seq, read);
            Scene { trace }
        },
    },
    Labelled {
        id: "granularity-waste",
        says: Says::First(Probable),
        also: &["true-capacity", "hidden-runtime-memory"],
        story: "128 blocks of 33 MiB lie 64 MiB apart, the driver counts as much for each, and the card of 8 GiB is full",
        scene: || apart(33 * MIB, 64 * MIB, 128, None),
    },
    Labelled {
        id: "hidden-runtime-memory",
        says: Says::Found(Possible),
        also: &["true-capacity", "granularity-waste"],
        story: "256 blocks of 17 MiB lie 32 MiB apart, and the driver counts as much for each",
        scene: || apart(17 * MIB, 32 * MIB, 256, None),
    },
    Labelled {
        id: "true-capacity",
        says: Says::Found(Possible),
        also: &["granularity-waste"],
        story: "the driver counts a whole card for blocks of 1.1 MiB, 2 MiB apart, and the probe was given nothing",
        scene: || apart(MIB + 100 * 1024, 2 * MIB, 4096, Some(0)),
    },
    Labelled {
        id: "granularity-waste",
        says: Says::First(Probable),
        also: &["phantom-free", "hidden-runtime-memory"],
        story: "95 blocks of 5 MiB lie 256 MiB apart, and the driver counts as much for each",
        scene: || {
            let total = 24 * GIB - 16 * MIB;
            let mut trace = TraceBuilder::default().device(0, "card", total);
            (0..95).for_each(|block| _ = trace.alloc(0x10_0000_0000 + block * 256 * MIB, 5 * MIB));
            let seq = trace.refuse(5 * MIB);
            let counted = 95 * 256 * MIB;
            full(&mut trace, seq, total, counted, total - counted);
            Scene { trace }
        },
    },
];

/// Blocks of one size on a card of 8 GiB that is full of them, as the driver counts them: by their distance.
fn apart(bytes: u64, apart: u64, count: u64, largest: Option<u64>) -> Scene {
    let mut trace = TraceBuilder::default().device(0, "card", 8 * GIB);
    (0..count).for_each(|block| _ = trace.alloc(0x10_0000_0000 + block * apart, bytes));
    let seq = trace.refuse(bytes);
    full(&mut trace, seq, 8 * GIB, count * apart, 8 * GIB - count * apart);
    if let Some(largest) = largest {
        at_failure(&mut trace, seq, [(LargestAllocatable, largest)]);
    }
    Scene { trace }
}

/// 40 labelled steps of 200 MiB, each of which keeps something; then a request that is a little too large.
fn leak(kept: u64, others: u64, asked: u64) -> Scene {
    let mut program = Program::new();
    // What is left beside others when the program began, so that the last request misses a little.
    let missing = 50 * MIB;
    let set_up = 16 * GIB - others - 40 * kept - (asked - missing);
    program.keep(set_up);
    for step in 0..40 {
        program.mark(&format!("step {step}"));
        let work = program.give(200 * MIB);
        program.keep(kept);
        program.take(&[work]);
    }
    let seq = program.trace.refuse(asked);
    let own = set_up + 40 * kept;
    let free = asked - missing;
    let read = [
        (RuntimeFree, free),
        (VramTotal, 16 * GIB),
        (VramUsed, 16 * GIB - free),
        (KfdProcessVram, own),
        (KfdOthersVram, others),
    ];
    at_failure(&mut program.trace, seq, read);
    Scene { trace: program.trace }
}
