//! A. How a program uses memory.

use gpuoom_trace::metadata::Quantity::{KfdOthersVram, KfdProcessVram, RuntimeFree, VramTotal, VramUsed};
use gpuoom_trace::record::{Event, Kind, NO_DEVICE, Record};

use super::scenes::{at_failure, full, set, torch};
use super::{Labelled, Says, Scene};
use crate::judgement::check::Confidence::{Possible, Probable, Proven};
use crate::testing::{GIB, MIB, TraceBuilder};

pub(super) const TRACES: &[Labelled] = &[
    Labelled {
        id: "preallocation-by-framework",
        says: Says::Found(Probable),
        also: &["true-capacity"],
        story: "JAX takes three quarters of the card, then another library finds no room",
        scene: || burst(18, 2),
    },
    Labelled {
        id: "preallocation-by-framework",
        says: Says::Found(Possible),
        also: &["true-capacity"],
        story: "a library that nobody knows takes three quarters of the card, then another finds no room",
        scene: || burst_of("/opt/engine/lib/libengine.so.1", 18, 2),
    },
    Labelled {
        id: "preallocation-by-framework",
        says: Says::Not,
        also: &["true-capacity"],
        story: "the library that was refused is the one that took the large block",
        scene: || burst(18, 1),
    },
    Labelled {
        id: "preallocation-by-framework",
        says: Says::Not,
        also: &["other-process-on-gpu"],
        story: "the first burst is a quarter of the card",
        scene: || burst(6, 2),
    },
    Labelled {
        id: "preallocation-by-framework",
        says: Says::Not,
        also: &["true-capacity"],
        story: "JAX gave the large block back before another library filled the card",
        scene: || taken_by_two(18, true),
    },
    Labelled {
        id: "preallocation-by-framework",
        says: Says::Not,
        also: &["true-capacity"],
        story: "in the first second JAX takes 4 GiB, and another library 18",
        scene: || taken_by_two(4, false),
    },
    Labelled {
        id: "attention-quadratic",
        says: Says::Found(Probable),
        also: &["request-exceeds-device"],
        story: "marks name the lengths, and the largest request grows with their square",
        scene: || lengths(|length| length * length * 64),
    },
    Labelled {
        id: "attention-quadratic",
        says: Says::Not,
        also: &["request-exceeds-device"],
        story: "the largest request grows with the length itself: fused attention",
        scene: || lengths(|length| length * 2 * MIB),
    },
    Labelled {
        id: "attention-quadratic",
        says: Says::Not,
        also: &["request-exceeds-device"],
        story: "longer sequences in larger batches: no two labels differ in the length alone",
        scene: || {
            labelled_lengths(
                |length| length * length * 64,
                |length| format!("forward seq={length} batch={}", length / 512),
            )
        },
    },
    Labelled {
        id: "training-state-exceeds-card",
        says: Says::Found(Probable),
        also: &["true-capacity"],
        story: "16 GB of weights were loaded, and labels name a training: 72 GB with optimizer and gradients",
        scene: || trained(16),
    },
    Labelled {
        id: "training-state-exceeds-card",
        says: Says::Found(Possible),
        also: &["true-capacity"],
        story: "the same, and nothing says that it is a training",
        scene: || with_torch(loaded(16)),
    },
    Labelled {
        id: "training-state-exceeds-card",
        says: Says::Found(Possible),
        also: &["true-capacity"],
        story: "the same in one of eight ranks: the state may be divided",
        scene: || {
            let mut scene = trained(16);
            set(&mut scene.trace, "WORLD_SIZE", "8");
            scene
        },
    },
    Labelled {
        id: "training-state-exceeds-card",
        says: Says::Not,
        also: &["true-capacity"],
        story: "llama.cpp, which does not train",
        scene: || loaded(16),
    },
    Labelled {
        id: "training-state-exceeds-card",
        says: Says::Found(Possible),
        also: &["true-capacity"],
        story: "4 GB of weights: too much if they have two bytes each",
        scene: || trained(4),
    },
    Labelled {
        id: "training-state-exceeds-card",
        says: Says::Not,
        also: &["true-capacity"],
        story: "1 GB of weights: the state fits either way",
        scene: || trained(1),
    },
    Labelled {
        id: "training-state-exceeds-card",
        says: Says::Found(Proven),
        also: &["true-capacity"],
        story: "4e9 parameters with 18 bytes each are 72 GB, by the facts of the model",
        scene: || known(loaded(1), "parameters=4B,state_bytes=18"),
    },
    Labelled {
        id: "training-state-exceeds-card",
        says: Says::Not,
        also: &["true-capacity"],
        story: "4e9 parameters, trained with 2 bytes each on a device, are 8 GB",
        scene: || known(loaded(16), "parameters=4B,state_bytes=2"),
    },
    Labelled {
        id: "attention-quadratic",
        says: Says::Found(Possible),
        also: &["true-capacity"],
        story: "2 GiB are asked for, which are the scores of 32 heads over 5792 tokens in 2 bytes, but for rounding: by chance or not",
        scene: || known(loaded(1), "heads=32,sequence=5792"),
    },
    Labelled {
        id: "fixed-vs-activation",
        says: Says::Found(Possible),
        also: &["true-capacity"],
        story: "4 GiB after each cycle, 20 at its peak: nothing says that it is a model",
        scene: || steps(4, |_| 8, 16),
    },
    Labelled {
        id: "fixed-vs-activation",
        says: Says::Found(Probable),
        also: &["true-capacity"],
        story: "the same, and labels name steps",
        scene: || labelled_steps(4, |_| 8, 16, |_| "forward".to_owned()),
    },
    Labelled {
        id: "fixed-vs-activation",
        says: Says::Found(Probable),
        also: &["true-capacity"],
        story: "labels name batches of 1, 2 and 4, and the peaks grow with them: labels alone prove nothing",
        scene: || labelled_steps(2, |step| 2 << (step % 3), 8, |step| format!("forward batch={}", 1 << (step % 3))),
    },
    Labelled {
        id: "fixed-vs-activation",
        says: Says::Not,
        also: &["true-capacity", "live-leak", "oom-longest-batch"],
        story: "batches that take 1 GiB, and behind the label \"done\" the card fills with blocks that stay",
        scene: || {
            let label = |step: u64| format!("batch size {}", 4 << (step % 2));
            let mut trace = cycles(4, |step| 1 + step % 2, 12, label);
            mark(&mut trace, "done");
            (0..19).for_each(|block| _ = trace.alloc(0x100_0000_0000 + block * 2 * GIB, GIB));
            let seq = trace.refuse(2 * GIB);
            full(&mut trace, seq, 24 * GIB, 23 * GIB, GIB);
            Scene { trace }
        },
    },
    Labelled {
        id: "fixed-vs-activation",
        says: Says::Not,
        also: &["true-capacity"],
        story: "labels name batches of 1, 2 and 4, and the peak is always the same: a workspace",
        scene: || labelled_steps(4, |_| 8, 9, |step| format!("forward batch={}", 1 << (step % 3))),
    },
    Labelled {
        id: "fixed-vs-activation",
        says: Says::Not,
        also: &["true-capacity"],
        story: "16 GiB stay after each step: the fixed part is the larger one",
        scene: || steps(16, |_| 2, 4),
    },
    Labelled {
        id: "repeated-large-temporaries",
        says: Says::Found(Possible),
        also: &["true-capacity"],
        story: "twelve pieces of work of different size, each with large temporary blocks",
        scene: || steps(2, |step| 4 + step % 5, 12),
    },
    Labelled {
        id: "repeated-large-temporaries",
        says: Says::Found(Possible),
        also: &["other-process-on-gpu"],
        story: "the same cycles, and another process leaves no room",
        scene: || with_others(2, |step| 4 + step % 5, 12),
    },
    Labelled {
        id: "repeated-large-temporaries",
        says: Says::Not,
        also: &["true-capacity", "fixed-vs-activation"],
        story: "the same, and labels name a training, whose batches vary",
        scene: || labelled_steps(2, |step| 4 + step % 5, 12, |step| format!("train step {step}")),
    },
    Labelled {
        id: "repeated-large-temporaries",
        says: Says::Not,
        also: &["true-capacity"],
        story: "the temporary blocks were given back, and then the card fills with blocks of 1 GiB",
        scene: || {
            let mut trace = cycles(2, |step| 4 + step % 5, 12, |_| String::new());
            (0..21).for_each(|block| _ = trace.alloc(0x100_0000_0000 + block * 2 * GIB, GIB));
            let seq = trace.refuse(8 * GIB);
            full(&mut trace, seq, 24 * GIB, 23 * GIB, GIB);
            Scene { trace }
        },
    },
    Labelled {
        id: "repeated-large-temporaries",
        says: Says::Not,
        also: &["true-capacity", "fixed-vs-activation"],
        story: "60 equal temporary blocks beside one large block that was set up first: their sizes do not vary, and the request is far \
                from them",
        scene: || {
            let mut trace = TraceBuilder::default().device(0, "card", 24 * GIB);
            trace.alloc(0x50_0000_0000, 10 * GIB);
            for _ in 0..60 {
                trace.alloc(0x20_0000_0000, GIB);
                trace.free(0x20_0000_0000);
            }
            let seq = trace.refuse(15 * GIB);
            full(&mut trace, seq, 24 * GIB, 10 * GIB, 14 * GIB);
            Scene { trace }
        },
    },
    Labelled {
        id: "repeated-large-temporaries",
        says: Says::Not,
        also: &["true-capacity", "fixed-vs-activation"],
        story: "the same with constant sizes: a training",
        scene: || steps(2, |_| 8, 12),
    },
];

/// A library takes a block at once; later the library with this number is refused 8 GiB.
fn burst(taken_gib: u64, asks: u32) -> Scene {
    burst_of("/usr/lib/python3/jaxlib/xla_extension.so", taken_gib, asks)
}

fn burst_of(library: &str, taken_gib: u64, asks: u32) -> Scene {
    let mut trace = TraceBuilder::default().device(0, "card", 24 * GIB);
    trace = trace.library(library, 0x5000_0000, 1);
    trace = trace.library("/usr/lib/python3/torch/lib/libc10_hip.so", 0x6000_0000, 2);
    let record = trace.record(Event::Alloc, Kind::Device, "hipMalloc");
    trace.push(Record { site: 1, address: 0x10_0000_0000, requested: taken_gib * GIB, ..record }, &[]);
    trace.now_ns += 5_000_000_000;
    let record = trace.record(Event::Alloc, Kind::Device, "hipMalloc");
    let seq = trace.push(Record { site: asks, status: 2, requested: 8 * GIB, ..record }, &[]);
    let others = if taken_gib < 16 { 12 * GIB } else { 0 };
    let read = [
        (RuntimeFree, 24 * GIB - taken_gib * GIB - others),
        (VramTotal, 24 * GIB),
        (VramUsed, taken_gib * GIB + others),
        (KfdProcessVram, taken_gib * GIB),
        (KfdOthersVram, others),
    ];
    at_failure(&mut trace, seq, read);
    Scene { trace }
}

/// In its first second JAX takes a block, which it may give back at once, and another library 18 GiB; then that one is refused 8.
fn taken_by_two(taken_gib: u64, is_given_back: bool) -> Scene {
    let mut trace = TraceBuilder::default().device(0, "card", 24 * GIB);
    trace = trace.library("/usr/lib/python3/jaxlib/xla_extension.so", 0x5000_0000, 1);
    trace = trace.library("/usr/lib/python3/torch/lib/libc10_hip.so", 0x6000_0000, 2);
    trace.site = 1;
    trace.alloc(0x10_0000_0000, taken_gib * GIB);
    if is_given_back {
        trace.free(0x10_0000_0000);
    }
    trace.site = 2;
    let blocks = if is_given_back { 22 } else { 18 };
    (0..blocks).for_each(|block| _ = trace.alloc(0x100_0000_0000 + block * 2 * GIB, GIB));
    let seq = trace.refuse(8 * GIB);
    full(&mut trace, seq, 24 * GIB, 22 * GIB, 2 * GIB);
    Scene { trace }
}

pub(super) fn mark(trace: &mut TraceBuilder, label: &str) {
    let record = trace.record(Event::Mark, Kind::None, "gpuoom_mark");
    trace.with_text(Record { device: NO_DEVICE, duration: 0, ..record }, label);
}

/// Runs with growing lengths; the last one does not fit.
fn lengths(bytes: fn(u64) -> u64) -> Scene {
    labelled_lengths(bytes, |length| format!("forward seq={length}"))
}

fn labelled_lengths(bytes: fn(u64) -> u64, label: fn(u64) -> String) -> Scene {
    let mut trace = TraceBuilder::default().device(0, "card", 6 * GIB);
    for length in [1024, 2048, 4096] {
        mark(&mut trace, &label(length));
        trace.alloc(0x10_0000_0000, 16 * MIB);
        trace.alloc(0x20_0000_0000, bytes(length));
        trace.free(0x20_0000_0000);
        trace.free(0x10_0000_0000);
    }
    mark(&mut trace, &label(16_384));
    let seq = trace.refuse(bytes(16_384));
    full(&mut trace, seq, 6 * GIB, 0, 5 * GIB);
    Scene { trace }
}

/// With facts of the model.
fn known(mut scene: Scene, facts: &str) -> Scene {
    scene.trace.evidence.model.get_or_insert_default().add(facts).expect("facts of a model");
    scene
}

/// With PyTorch's library.
fn with_torch(scene: Scene) -> Scene {
    Scene { trace: torch(scene.trace) }
}

/// Weights are loaded by llama.cpp, and later the card of 24 GiB is full.
fn loaded(gib: u64) -> Scene {
    loaded_and(gib, &["model loaded"])
}

/// The same by PyTorch, in a training.
fn trained(gib: u64) -> Scene {
    with_torch(loaded_and(gib, &["model loaded", "backward"]))
}

fn loaded_and(gib: u64, labels: &[&str]) -> Scene {
    let mut trace = TraceBuilder::default().device(0, "card", 24 * GIB);
    trace.alloc(0x10_0000_0000, gib * GIB);
    labels.iter().for_each(|label| mark(&mut trace, label));
    (gib..23).for_each(|block| _ = trace.alloc(0x100_0000_0000 + block * 2 * GIB, GIB));
    let seq = trace.refuse(2 * GIB);
    full(&mut trace, seq, 24 * GIB, 23 * GIB, GIB);
    Scene { trace }
}

/// A fixed part, and steps with two large temporary blocks each; then a request that others leave no room for.
fn steps(fixed_gib: u64, temporary_gib: fn(u64) -> u64, count: u64) -> Scene {
    labelled_steps(fixed_gib, temporary_gib, count, |_| String::new())
}

/// A fixed part, and steps with two large temporary blocks each; a label before each step, where it is not empty.
fn cycles(fixed_gib: u64, temporary_gib: fn(u64) -> u64, count: u64, label: fn(u64) -> String) -> TraceBuilder {
    let mut trace = TraceBuilder::default().device(0, "card", 24 * GIB);
    trace.alloc(0x10_0000_0000, fixed_gib * GIB);
    for step in 0..count {
        Some(label(step)).filter(|label| !label.is_empty()).iter().for_each(|label| mark(&mut trace, label));
        trace.alloc(0x20_0000_0000, temporary_gib(step) * GIB);
        trace.alloc(0x40_0000_0000, temporary_gib(step) * GIB);
        trace.free(0x40_0000_0000);
        trace.free(0x20_0000_0000);
    }
    trace
}

/// The same, and then a request in the next cycle that the card has no room for.
fn labelled_steps(fixed_gib: u64, temporary_gib: fn(u64) -> u64, count: u64, label: fn(u64) -> String) -> Scene {
    let mut trace = cycles(fixed_gib, temporary_gib, count, label);
    let temporary = temporary_gib(count) * GIB;
    trace.alloc(0x20_0000_0000, temporary);
    trace.alloc(0x40_0000_0000, temporary);
    let seq = trace.refuse(10 * GIB);
    let own = fixed_gib * GIB + 2 * temporary;
    full(&mut trace, seq, 24 * GIB, own, 24 * GIB - own);
    Scene { trace }
}

/// Cycles, and then a request that others leave no room for.
fn with_others(fixed_gib: u64, temporary_gib: fn(u64) -> u64, count: u64) -> Scene {
    let mut trace = cycles(fixed_gib, temporary_gib, count, |_| String::new());
    let seq = trace.refuse(8 * GIB);
    let own = fixed_gib * GIB;
    let read = [
        (RuntimeFree, 6 * GIB),
        (VramTotal, 24 * GIB),
        (VramUsed, 18 * GIB),
        (KfdProcessVram, own),
        (KfdOthersVram, 18 * GIB - own),
    ];
    at_failure(&mut trace, seq, read);
    Scene { trace }
}
