//! E. Leaks.

use gpuoom_trace::record::{Event, Kind, Record};

use super::{Labelled, Says, Scene};
use crate::judgement::check::Confidence::Proven;
use crate::passes::shape::programs::Program;
use crate::testing::{GIB, MIB, TraceBuilder};

pub(super) const TRACES: &[Labelled] = &[
    Labelled {
        id: "live-leak",
        says: Says::First(Proven),
        also: &[],
        story: "20 MiB of each of 30 steps stay",
        scene: || steps(30, false),
    },
    Labelled {
        id: "live-leak",
        says: Says::First(Proven),
        also: &[],
        story: "the same with a pause between two steps, so that it is no line over time",
        scene: || steps(30, true),
    },
    Labelled {
        id: "live-leak",
        says: Says::Not,
        also: &[],
        story: "what stays is flat after 12 steps",
        scene: || steps(12, false),
    },
    Labelled {
        id: "model-swap-residual",
        says: Says::Found(Proven),
        also: &["live-leak"],
        story: "200 MiB stay of each of five models, and none of it is the program's",
        scene: || swaps(200 * MIB),
    },
    Labelled {
        id: "model-swap-residual",
        says: Says::Not,
        also: &[],
        story: "a training with steps of 2 GiB that nobody read the card in",
        scene: || {
            let mut program = Program::new();
            (0..12).for_each(|_| program.step(200 * MIB));
            Scene { trace: program.trace }
        },
    },
    Labelled {
        id: "model-swap-residual",
        says: Says::Not,
        also: &[],
        story: "five models, and nothing stays",
        scene: || swaps(0),
    },
    Labelled {
        id: "module-load-unbalanced",
        says: Says::First(Proven),
        also: &[],
        story: "a code object per step is loaded and never unloaded",
        scene: || modules(80, 1),
    },
    Labelled {
        id: "module-load-unbalanced",
        says: Says::Not,
        also: &[],
        story: "80 code objects at the start, and none after that",
        scene: || modules(80, 0),
    },
    Labelled {
        id: "module-load-unbalanced",
        says: Says::First(Proven),
        also: &[],
        story: "two modules per step are loaded above HSA, and one is unloaded",
        scene: || above_hsa(1),
    },
    Labelled {
        id: "module-load-unbalanced",
        says: Says::Not,
        also: &[],
        story: "each module that is loaded is unloaded",
        scene: || above_hsa(2),
    },
    Labelled {
        id: "module-load-unbalanced",
        says: Says::Not,
        also: &[],
        story: "a recorder that kept loads only after a failure: what is missing is no evidence",
        scene: || {
            let mut scene = above_hsa(1);
            scene.trace.header.minor = 2;
            scene
        },
    },
];

/// 40 steps; the first ones keep 20 MiB each.
fn steps(until: u64, pauses: bool) -> Scene {
    let mut program = Program::new();
    program.load();
    for step in 0..40.min(until + 28) {
        if step < until {
            program.keep(20 * MIB);
        }
        program.step(200 * MIB);
        if pauses && step == 20 {
            program.pause();
        }
    }
    Scene { trace: program.trace }
}

/// Five models are loaded and unloaded; the card is read with and without each.
fn swaps(hidden_bytes: u64) -> Scene {
    let mut program = Program::new();
    for swap in 1..=5 {
        let model: Vec<u64> = (0..4).map(|_| program.give(GIB)).collect();
        program.read(5 * GIB + swap * hidden_bytes);
        program.take(&model);
        program.read(GIB + swap * hidden_bytes);
        program.trace.now_ns += 1_000_000;
    }
    program.keep(3 * GIB);
    Scene { trace: program.trace }
}

/// 80 steps, each of which loads two modules and unloads so many.
fn above_hsa(unloads: u64) -> Scene {
    let mut trace = TraceBuilder::default().device(0, "card", 24 * GIB);
    for step in 0..80 {
        for (count, api) in [(2, "hipModuleLoadData"), (unloads, "hipModuleUnload")] {
            for module in 0..count {
                let record = trace.record(Event::Module, Kind::Code, api);
                trace.push(Record { address: 0x7000 + step * 16 + module, ..record }, &[]);
            }
        }
        trace.alloc(0x10_0000_0000 + step * GIB, MIB);
        trace.now_ns += 20_000_000;
    }
    Scene { trace }
}

/// So many loads at the start, or one with each of as many steps.
fn modules(count: u64, per_step: u64) -> Scene {
    let mut trace = TraceBuilder::default().device(0, "card", 24 * GIB);
    let load = |trace: &mut TraceBuilder| {
        let record = trace.record(Event::Module, Kind::None, "hsa_executable_load_agent_code_object");
        trace.push(Record { address: 0x7000, ..record }, &[]);
    };
    if per_step == 0 {
        (0..count).for_each(|_| load(&mut trace));
    }
    for step in 0..count {
        (0..per_step).for_each(|_| load(&mut trace));
        trace.alloc(0x10_0000_0000 + step * GIB, MIB);
        trace.now_ns += 20_000_000;
    }
    Scene { trace }
}
