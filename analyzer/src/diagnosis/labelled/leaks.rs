//! E. Leaks.

use gpuoom_trace::metadata::Quantity::{KfdOthersVram, KfdProcessVram, RuntimeFree, VramTotal, VramUsed};
use gpuoom_trace::record::{Event, Kind, Record};

use super::capacity::full_after_a_rise;
use super::scenes::{at_failure, full};
use super::{Labelled, Says, Scene, readings};
use crate::judgement::check::Confidence::{Possible, Probable};
use crate::passes::shape::programs::Program;
use crate::testing::{GIB, MIB, TraceBuilder};

/// A thread that sets no labels.
const OTHER_THREAD: u32 = 77;

pub(super) const TRACES: &[Labelled] = &[
    Labelled {
        id: "live-leak",
        says: Says::Found(Possible),
        also: &["true-capacity"],
        story: "shards of data come one after the other, each with a buffer that goes, until the card is full: they are meant to stay",
        scene: || labelled_until_full("shard"),
    },
    Labelled {
        id: "live-leak",
        says: Says::Found(Probable),
        also: &["true-capacity"],
        story: "the same by the labels of steps",
        scene: || labelled_until_full("step"),
    },
    Labelled {
        id: "live-leak",
        says: Says::First(Possible),
        also: &[],
        story: "300 MiB of each of 30 steps stay, and then 7 GiB do not fit, which would have fitted at first",
        scene: || fails(7 * GIB, 6 * GIB),
    },
    Labelled {
        id: "live-leak",
        says: Says::Found(Possible),
        also: &[],
        story: "the same, and then 15.9 GiB do not fit, which never would have: it rises, and that made nothing fail",
        scene: || fails(16 * GIB - 100 * MIB, 6 * GIB),
    },
    Labelled {
        id: "live-leak",
        says: Says::First(Probable),
        also: &["true-capacity"],
        story: "32 MiB of each of 120 steps stay beside a queue and a cache that are full, and 2.5 GiB were missing: all of the leak counts",
        scene: || beside_a_queue(6 * GIB, 5 * GIB / 2),
    },
    Labelled {
        id: "live-leak",
        says: Says::Found(Possible),
        also: &["true-capacity"],
        story: "the same, and 6 GiB were missing: what the leak took would not have been enough, and the queue and the cache are none of it",
        scene: || beside_a_queue(0, 6 * GIB),
    },
    Labelled {
        id: "true-capacity",
        says: Says::First(Probable),
        also: &[],
        story: "the same, and 6 GiB that were set up first: what rises is not why the card is full",
        scene: || beside_a_queue(6 * GIB, 6 * GIB),
    },
    Labelled {
        id: "live-leak",
        says: Says::First(Possible),
        also: &[],
        story: "20 MiB of each of 40 steps stay, and nothing fails: it may be a cache that is not full yet",
        scene: || steps(40, false),
    },
    Labelled {
        id: "live-leak",
        says: Says::First(Possible),
        also: &[],
        story: "4 MiB of each of 100 steps stay on a card of 16 GiB of which the model holds most, beside noise of 30 MiB",
        scene: || small_beside_much(4 * MIB),
    },
    Labelled {
        id: "live-leak",
        says: Says::First(Possible),
        also: &["true-capacity"],
        story: "one GiB of each of 20 steps stays until a card of 24 is full: the rise stands before its end",
        scene: || full_after_a_rise(false),
    },
    Labelled {
        id: "live-leak",
        says: Says::First(Possible),
        also: &[],
        story: "4 MiB of each of 2100 steps stay, whose temporaries are all alike: too many to keep, and the last ones are kept",
        scene: || long(2100),
    },
    Labelled {
        id: "live-leak",
        says: Says::First(Possible),
        also: &["true-capacity"],
        story: "a thread without labels loads 64 MiB beside each labelled step of another, and gives nothing back: it may be a load",
        scene: || beside_a_thread(false),
    },
    Labelled {
        id: "live-leak",
        says: Says::First(Probable),
        also: &["true-capacity"],
        story: "the same thread takes and gives back blocks in each step, too: it works for the steps",
        scene: || beside_a_thread(true),
    },
    Labelled {
        id: "live-leak",
        says: Says::First(Possible),
        also: &[],
        story: "what stays rises from label to label until a request fails; then the program goes on, and gives most of it back",
        scene: || {
            let mut scene = full_after_a_rise(true);
            scene.trace.after(Event::GpuWork, "hipLaunchKernel", 0, 0);
            (0..20).for_each(|step| _ = scene.trace.free(0x100_0000_0000 + step * 2 * GIB));
            scene
        },
    },
    Labelled {
        id: "live-leak",
        says: Says::Not,
        also: &[],
        story: "a queue fills for 40 labels, and is drained behind the last of them",
        scene: || drained(true),
    },
    Labelled {
        id: "live-leak",
        says: Says::Not,
        also: &[],
        story: "the same without labels",
        scene: || drained(false),
    },
    Labelled {
        id: "live-leak",
        says: Says::Found(Possible),
        also: &["true-capacity"],
        story: "more and more blocks come with each step, and each goes when it is 20 steps old: no living block is older",
        scene: grow_old,
    },
    Labelled {
        id: "live-leak",
        says: Says::Found(Possible),
        also: &["true-capacity"],
        story: "a round of 20 results was given back, and one of 80 does not fit",
        scene: || rounds(&[20, 80]),
    },
    Labelled {
        id: "live-leak",
        says: Says::Found(Possible),
        also: &[],
        story: "blocks stay from step to step, and all go at once where the program ends: a clean-up",
        scene: || filled_and_given_back(true, 100_000_000),
    },
    Labelled { id: "live-leak", says: Says::Not, also: &[], story: "the noise alone", scene: || small_beside_much(0) },
    Labelled {
        id: "live-leak",
        says: Says::Not,
        also: &[],
        story: "one step up in the middle of 40 steps",
        scene: || kept(|step| if step == 20 { GIB } else { 0 }),
    },
    Labelled {
        id: "live-leak",
        says: Says::Not,
        also: &[],
        story: "one step up close to the end",
        scene: || kept(|step| if step == 36 { GIB } else { 0 }),
    },
    Labelled {
        id: "live-leak",
        says: Says::Not,
        also: &[],
        story: "an array that is replaced by a larger one in each step",
        scene: replaced,
    },
    Labelled {
        id: "live-leak",
        says: Says::Found(Possible),
        also: &[],
        story: "shards that come through a buffer: most of what came stays, as in a load",
        scene: || shards(None),
    },
    Labelled {
        id: "live-leak",
        says: Says::First(Possible),
        also: &[],
        story: "the same behind labels that say steps",
        scene: || shards(Some("step")),
    },
    Labelled {
        id: "live-leak",
        says: Says::Found(Possible),
        also: &[],
        story: "the same behind labels that count the pieces: they may be what was meant to come",
        scene: || shards(Some("layer")),
    },
    Labelled {
        id: "live-leak",
        says: Says::First(Possible),
        also: &[],
        story: "a queue: three blocks come in each step, and the two oldest go, all of one size",
        scene: || queue(24 * MIB, 24 * MIB),
    },
    Labelled {
        id: "live-leak",
        says: Says::Not,
        also: &[],
        story: "a queue of three blocks whose sizes grow: what rises are larger blocks, and not more of them",
        scene: || queue(24 * MIB, 0),
    },
    Labelled {
        id: "live-leak",
        says: Says::First(Possible),
        also: &[],
        story: "the same with a pause between two steps, so that it is no line over time",
        scene: || steps(40, true),
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
        says: Says::Found(Probable),
        also: &["live-leak"],
        story: "200 MiB stay of each of five models, which labels name, in this process, and none of it is the program's",
        scene: || swaps_read(200 * MIB, Some("load model"), true),
    },
    Labelled {
        id: "model-swap-residual",
        says: Says::Found(Possible),
        also: &["live-leak"],
        story: "the same, and a pool was given memory back on a stream: it may only be late",
        scene: || {
            let mut scene = swaps_read(200 * MIB, Some("load model"), true);
            scene.trace.alloc_kind(Kind::Pool, "hipMallocAsync", 0x90_0000_0000, GIB);
            scene.trace.free_kind(Kind::Pool, "hipFreeAsync", 0x90_0000_0000);
            scene
        },
    },
    Labelled {
        id: "model-swap-residual",
        says: Says::Found(Possible),
        also: &["live-leak"],
        story: "the same by the memory that all processes use: another one may have grown",
        scene: || swaps(200 * MIB, Some("load model")),
    },
    Labelled {
        id: "model-swap-residual",
        says: Says::Found(Possible),
        also: &[],
        story: "the same without labels: nothing says that these are models",
        scene: || swaps(200 * MIB, None),
    },
    Labelled {
        id: "model-swap-residual",
        says: Says::Not,
        also: &["live-leak"],
        story: "560 MiB stay of each of twelve rounds of 4 GiB: a leak, and of no model",
        scene: || {
            let mut program = Program::new();
            for _ in 0..12 {
                program.keep(560 * MIB);
                let work = [program.give(2 * GIB), program.give(2 * GIB)];
                program.take(&work);
            }
            Scene { trace: program.trace }
        },
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
        scene: || swaps(0, Some("load model")),
    },
    Labelled {
        id: "module-load-unbalanced",
        says: Says::First(Possible),
        also: &[],
        story: "a code object per step is loaded and never unloaded",
        scene: || modules(80, 1),
    },
    Labelled {
        id: "module-load-unbalanced",
        says: Says::Not,
        also: &[],
        story: "a kernel is compiled in each of 60 steps, and none in the 30 after that: a cache that is full",
        scene: || {
            let mut scene = modules(60, 1);
            (60..90).for_each(|step| work(&mut scene.trace, step));
            scene
        },
    },
    Labelled {
        id: "module-load-unbalanced",
        says: Says::Found(Possible),
        also: &["true-capacity"],
        story: "a code object per step, and then a request that is too large for the card: the driver counts nothing beside the blocks",
        scene: || modules_at_failure(80 * MIB),
    },
    Labelled {
        id: "module-load-unbalanced",
        says: Says::Found(Possible),
        also: &["hidden-runtime-memory"],
        story: "a code object per step, and without what the driver counts beside the blocks the request would have fitted",
        scene: || modules_at_failure(9 * GIB),
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
        says: Says::First(Possible),
        also: &[],
        story: "two modules per step are loaded above HSA, and one is unloaded",
        scene: || above_hsa(1),
    },
    Labelled {
        id: "module-load-unbalanced",
        says: Says::Not,
        also: &[],
        story: "a kernel for each sort of request is loaded when it first comes, and a reset of the device unloads them all",
        scene: || {
            let mut scene = modules(80, 1);
            let reset = scene.trace.record(Event::Device, Kind::None, "hipDeviceReset");
            scene.trace.push(Record { device: 0, ..reset }, &[]);
            scene
        },
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

/// Steps that give more and more blocks of a library's, each of which goes 20 steps later, until the card is full.
fn grow_old() -> Scene {
    let mut program = of_library();
    let mut live: Vec<(u64, Vec<u64>)> = Vec::new();
    for step in 0..150 {
        program.mark(&format!("step {step}"));
        let old: Vec<u64> =
            live.iter().filter(|(born, _)| born + 20 <= step).flat_map(|(_, blocks)| blocks.clone()).collect();
        program.take(&old);
        live.retain(|(born, _)| born + 20 > step);
        live.push((step, (0..1 + step / 15).map(|_| program.give(64 * MIB)).collect()));
    }
    refused_when_full(program)
}

/// Results of a library's, one in each step, that are given back at the end of a round of so many; the last round is not over.
fn rounds(rounds: &[u64]) -> Scene {
    let mut program = of_library();
    for (number, round) in rounds.iter().enumerate() {
        let mut results = Vec::new();
        for step in 0..*round {
            program.mark(&format!("step {step}"));
            let work = program.give(512 * MIB);
            results.push(program.give(160 * MIB));
            program.take(&[work]);
        }
        if number + 1 < rounds.len() {
            program.take(&results);
        }
    }
    refused_when_full(program)
}

fn of_library() -> Program {
    let mut program = Program::new();
    program.trace = program.trace.library("/opt/app/libworld.so", 0x1000, 1);
    program.trace.site = 1;
    program
}

/// 16 GiB of which nearly all is held: one more request for 4 GiB is refused.
fn refused_when_full(mut program: Program) -> Scene {
    let seq = program.trace.refuse(4 * GIB);
    full(&mut program.trace, seq, 16 * GIB, 15 * GIB, GIB);
    Scene { trace: program.trace }
}

/// Steps with a temporary of 64 MiB, of which 4 MiB each stay.
pub(super) fn long(steps: u64) -> Scene {
    let mut program = Program::new();
    for _ in 0..steps {
        let work = program.give(64 * MIB);
        program.keep(4 * MIB);
        program.take(&[work]);
    }
    Scene { trace: program.trace }
}

/// A queue that fills by 50 MiB a step, and is then drained: the model stays.
pub(super) fn drained(labelled: bool) -> Scene {
    filled_and_given_back(labelled, 0)
}

/// The same, where a step takes so much longer than a call.
fn filled_and_given_back(labelled: bool, step_ns: u64) -> Scene {
    let mut program = Program::new();
    program.load();
    let mut queue = Vec::new();
    for step in 0..40 {
        if labelled {
            program.mark(&format!("item {step}"));
        }
        queue.push(program.give(50 * MIB));
        program.trace.now_ns += step_ns;
        let work = program.give(200 * MIB);
        program.take(&[work]);
    }
    program.take(&queue);
    Scene { trace: program.trace }
}

/// 50 labelled steps keep 300 MiB each on a card of 16 GiB, beside a buffer that goes. Then a GiB is missing.
fn labelled_until_full(label: &str) -> Scene {
    let mut program = Program::new();
    program.keep(GIB / 4);
    for step in 0..50 {
        program.mark(&format!("{label} {step}"));
        let work = program.give(800 * MIB);
        program.keep(300 * MIB);
        program.take(&[work]);
    }
    let own = GIB / 4 + 50 * 300 * MIB;
    let free = 16 * GIB - own;
    let seq = program.trace.refuse(free + GIB);
    full(&mut program.trace, seq, 16 * GIB, own, free);
    Scene { trace: program.trace }
}

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

/// 30 steps keep 300 MiB each; then so much is asked for, and so much was free.
fn fails(asked: u64, free: u64) -> Scene {
    let mut program = Program::new();
    program.load();
    for _ in 0..30 {
        program.keep(300 * MIB);
        program.step(200 * MIB);
    }
    let seq = program.trace.refuse(asked);
    program.trace.read_at_failure(seq, &readings([(RuntimeFree, free)]));
    Scene { trace: program.trace }
}

/// 120 labelled steps: 32 MiB of each stay, a queue of 40 blocks is full after a third of them, and a cache after half. Then so much
/// is missing.
fn beside_a_queue(set_up: u64, missing: u64) -> Scene {
    let mut program = Program::new();
    if set_up > 0 {
        program.keep(set_up);
    }
    let mut queue = std::collections::VecDeque::new();
    let mut held = set_up;
    for step in 0..120 {
        program.mark(&format!("step {step}"));
        let work = program.give(900 * MIB);
        queue.push_back(program.give(64 * MIB));
        if queue.len() > 40 {
            let oldest = queue.pop_front().expect("it is full");
            program.take(&[oldest]);
        }
        program.keep(32 * MIB);
        held += 32 * MIB;
        if step < 60 {
            program.keep(48 * MIB);
            held += 48 * MIB;
        }
        program.take(&[work]);
    }
    let own = held + 40 * 64 * MIB;
    let free = 16 * GIB - own;
    let seq = program.trace.refuse(free + missing);
    full(&mut program.trace, seq, 16 * GIB, own, free);
    Scene { trace: program.trace }
}

/// 120 labelled steps of a GiB, beside each of which another thread takes 64 MiB for good. `works`: and more for a while. Then a GiB is missing.
fn beside_a_thread(works: bool) -> Scene {
    let mut program = Program::new();
    program.keep(7 * GIB);
    for step in 0..120 {
        program.mark(&format!("step {step}"));
        let work = program.give(GIB);
        program.keep_on(OTHER_THREAD, 64 * MIB);
        if works {
            let temporary = program.keep_on(OTHER_THREAD, 256 * MIB);
            program.take(&[temporary]);
        }
        program.take(&[work]);
    }
    let own = 7 * GIB + 120 * 64 * MIB;
    let free = 16 * GIB - own;
    let seq = program.trace.refuse(free + GIB);
    full(&mut program.trace, seq, 16 * GIB, own, free);
    Scene { trace: program.trace }
}

/// 40 steps, each of which keeps so much.
fn kept(bytes: fn(u64) -> u64) -> Scene {
    let mut program = Program::new();
    program.load();
    for step in 0..40 {
        if bytes(step) > 0 {
            program.keep(bytes(step));
        }
        program.step(200 * MIB);
    }
    Scene { trace: program.trace }
}

/// A model of 13 GiB, and 100 steps: each holds something of up to 30 MiB until the next, and keeps so much for good.
fn small_beside_much(kept_bytes: u64) -> Scene {
    let mut program = Program::new();
    program.keep(13 * GIB);
    let mut before = program.give(MIB);
    for step in 0..100u64 {
        let held = program.give((step * 7919 % 30 + 1) * MIB);
        program.take(&[before]);
        before = held;
        if kept_bytes > 0 {
            program.keep(kept_bytes);
        }
        let work: Vec<u64> = (0..4).map(|block| program.give((150 + block) * MIB)).collect();
        program.take(&work);
    }
    Scene { trace: program.trace }
}

/// An array that grows: a larger one comes, the old one goes.
fn replaced() -> Scene {
    let mut program = Program::new();
    program.load();
    let mut array = program.give(GIB);
    for step in 1..30 {
        let larger = program.give(GIB + step * 100 * MIB);
        program.take(&[array]);
        array = larger;
        program.step(400 * MIB);
    }
    Scene { trace: program.trace }
}

/// Twenty times 500 MiB that stay, through a buffer of 256.
fn shards(label: Option<&str>) -> Scene {
    let mut program = Program::new();
    for _ in 0..20 {
        let buffer = program.give(256 * MIB);
        program.keep(500 * MIB);
        program.take(&[buffer]);
        label.into_iter().for_each(|label| program.mark(label));
    }
    Scene { trace: program.trace }
}

/// 200 labelled steps. `stays`: three blocks of one size come in each, and the two oldest go; else three larger ones come, and the three
/// oldest go.
fn queue(block_bytes: u64, stays: u64) -> Scene {
    let mut program = Program::new();
    let mut queue = std::collections::VecDeque::new();
    for step in 0..200u64 {
        program.mark("step");
        let work = program.give(100 * MIB);
        let larger = if stays > 0 { 0 } else { step * 2 * MIB };
        (0..3).for_each(|_| queue.push_back(program.give(block_bytes + larger)));
        let gone = if stays > 0 { 2 } else { queue.len() - 3 };
        let old: Vec<u64> = queue.drain(..gone).collect();
        program.take(&old);
        program.take(&[work]);
    }
    Scene { trace: program.trace }
}

/// Five models are loaded and unloaded; the card is read with and without each.
fn swaps(hidden_bytes: u64, label: Option<&str>) -> Scene {
    swaps_read(hidden_bytes, label, false)
}

/// `by_process`: the readings are of this process alone.
fn swaps_read(hidden_bytes: u64, label: Option<&str>, by_process: bool) -> Scene {
    let mut program = Program::new();
    for swap in 1..=5 {
        label.into_iter().for_each(|label| program.mark(label));
        let model: Vec<u64> = (0..4).map(|_| program.give(GIB)).collect();
        program.read_as(5 * GIB + swap * hidden_bytes, by_process);
        program.take(&model);
        program.read_as(GIB + swap * hidden_bytes, by_process);
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
        work(&mut trace, step);
    }
    Scene { trace }
}

fn work(trace: &mut TraceBuilder, step: u64) {
    trace.alloc(0x10_0000_0000 + step * GIB, MIB);
    trace.now_ns += 20_000_000;
}

/// 80 steps with a code object each; then the driver counts so much for this process, and all of the card but that is asked for, and
/// 4 GiB more than is left.
fn modules_at_failure(process_bytes: u64) -> Scene {
    let mut scene = modules(80, 1);
    let free = 24 * GIB - process_bytes;
    let seq = scene.trace.refuse(free + 4 * GIB);
    let read = [
        (RuntimeFree, free),
        (VramTotal, 24 * GIB),
        (VramUsed, process_bytes),
        (KfdProcessVram, process_bytes),
        (KfdOthersVram, 0),
    ];
    at_failure(&mut scene.trace, seq, read);
    scene
}
