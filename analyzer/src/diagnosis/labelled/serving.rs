//! H. Where in serving, or in sharded training, a failure came.

use gpuoom_trace::metadata::Module;
use gpuoom_trace::metadata::Quantity::{RuntimeFree, RuntimeTotal};

use super::scenes::{at_failure, set};
use super::training::python;
use super::{Labelled, Says, Scene};
use crate::evidence::{Given, program_log};
use crate::judgement::check::Confidence::{Possible, Probable, Proven};
use crate::passes::shape::programs::Program;
use crate::testing::{GIB, MIB, TraceBuilder};

pub(super) const TRACES: &[Labelled] = &[
    Labelled {
        id: "kv-cache-prealloc",
        says: Says::Found(Possible),
        also: &[],
        story: "llama.cpp: weights of 9 GiB, and something of 8 does not fit beside them",
        scene: || llama(&[9 * GIB], 8 * GIB),
    },
    Labelled {
        id: "kv-cache-prealloc",
        says: Says::Found(Possible),
        also: &[],
        story: "llama.cpp: two buffers fit, the next does not: which it is, nothing says",
        scene: || llama(&[9 * GIB, 6 * GIB], 2 * GIB),
    },
    Labelled {
        id: "kv-cache-prealloc",
        says: Says::First(Probable),
        also: &[],
        story: "the same as at first, and llama.cpp's log says that the buffer was for the cache",
        scene: || logged(llama(&[9 * GIB], 8 * GIB), 8 * GIB, "failed to allocate buffer for kv cache"),
    },
    Labelled {
        id: "kv-cache-prealloc",
        says: Says::Not,
        also: &[],
        story: "the log says that it was for a compute buffer",
        scene: || logged(llama(&[9 * GIB], 8 * GIB), 8 * GIB, "failed to allocate compute pp buffers"),
    },
    Labelled {
        id: "kv-cache-prealloc",
        says: Says::Found(Possible),
        also: &[],
        story: "the log is of a buffer of another size",
        scene: || logged(llama(&[9 * GIB], 8 * GIB), 7 * GIB, "failed to allocate compute pp buffers"),
    },
    Labelled {
        id: "oom-model-load",
        says: Says::First(Possible),
        also: &[],
        story: "llama.cpp: the first buffer does not fit, and its log says that it was for the weights; nobody read who held the rest",
        scene: || logged(llama(&[], 15 * GIB), 15 * GIB, "error loading model: unable to allocate ROCm0 buffer"),
    },
    Labelled {
        id: "kv-cache-prealloc",
        says: Says::Not,
        also: &[],
        story: "llama.cpp: the weights themselves do not fit",
        scene: || llama(&[], 15 * GIB),
    },
    Labelled {
        id: "kv-cache-prealloc",
        says: Says::First(Proven),
        also: &[],
        story: "the facts of the model make just this cache",
        scene: || known(llama(&[9 * GIB], 8 * GIB), "layers=32,kv_heads=32,head_dim=128,context=16384"),
    },
    Labelled {
        id: "kv-cache-prealloc",
        says: Says::Not,
        also: &[],
        story: "the facts of the model make the cache that was given; the compute buffer behind it is refused",
        scene: || known(llama(&[9 * GIB, 6 * GIB], 2 * GIB), "layers=32,kv_heads=24,head_dim=128,context=16384"),
    },
    Labelled {
        id: "kv-cache-prealloc",
        says: Says::Not,
        also: &[],
        story: "by the facts of the model its cache takes half of what was asked for",
        scene: || known(llama(&[9 * GIB], 8 * GIB), "layers=32,kv_heads=32,head_dim=128,context=8192"),
    },
    Labelled {
        id: "kv-cache-prealloc",
        says: Says::Not,
        also: &[],
        story: "by the facts of the model its cache, in 8 bits, is none of these buffers",
        scene: || known(llama(&[9 * GIB], 8 * GIB), "layers=32,kv_heads=32,head_dim=128,context=16384,kv_type=q8_0"),
    },
    Labelled {
        id: "kv-cache-prealloc",
        says: Says::Found(Possible),
        also: &[],
        story: "an old llama.cpp: a block for each tensor, and the keys' half of the cache is asked for elsewhere",
        scene: || tensors(2, &[], 4 * GIB),
    },
    Labelled {
        id: "kv-cache-prealloc",
        says: Says::First(Proven),
        also: &[],
        story: "the same with the model's facts: two halves of 4 GiB are its cache",
        scene: || known(tensors(2, &[], 4 * GIB), "layers=32,kv_heads=32,head_dim=128,context=16384"),
    },
    Labelled {
        id: "kv-cache-prealloc",
        says: Says::First(Proven),
        also: &[],
        story: "the keys' half was given, the values' half, which is smaller, does not fit",
        scene: || {
            let facts = "layers=32,kv_heads=32,head_dim=128,context=16384,key_type=f16,value_type=q8_0";
            known(tensors(2, &[4 * GIB], 4 * GIB * 17 / 32), facts)
        },
    },
    Labelled {
        id: "kv-cache-prealloc",
        says: Says::First(Proven),
        also: &[],
        story: "layer by layer: five layers' caches were given, the sixth does not fit",
        scene: || known(tensors(2, &[GIB; 5], GIB), "layers=8,kv_heads=64,head_dim=128,context=32768"),
    },
    Labelled {
        id: "kv-cache-prealloc",
        says: Says::Not,
        also: &[],
        story: "both halves were given; the compute buffer behind them is refused",
        scene: || known(tensors(2, &[4 * GIB; 2], 3 * GIB), "layers=32,kv_heads=32,head_dim=128,context=16384"),
    },
    Labelled {
        id: "kv-cache-prealloc",
        says: Says::Not,
        also: &[],
        story: "by the model's facts each half of the cache is a quarter of what was asked for",
        scene: || known(tensors(2, &[], 4 * GIB), "layers=32,kv_heads=32,head_dim=128,context=4096"),
    },
    Labelled {
        id: "kv-cache-prealloc",
        says: Says::Not,
        also: &[],
        story: "an old llama.cpp asks for one more tensor, where it asked for all the others",
        scene: || tensors(1, &[], 4 * GIB),
    },
    Labelled {
        id: "kv-cache-prealloc",
        says: Says::Found(Possible),
        also: &[],
        story: "blocks whose call sites nobody knows: a tensor or the cache",
        scene: || tensors(0, &[], 4 * GIB),
    },
    Labelled {
        id: "oom-model-load",
        says: Says::Found(Possible),
        also: &[],
        story: "an old llama.cpp asks for one more tensor, where it asked for all the others",
        scene: || tensors(1, &[], 4 * GIB),
    },
    Labelled {
        id: "oom-model-load",
        says: Says::First(Proven),
        also: &[],
        story: "the same, and the model's weights take more than was given",
        scene: || known(tensors(1, &[], 4 * GIB), "weights=19G"),
    },
    Labelled {
        id: "oom-model-load",
        says: Says::Not,
        also: &[],
        story: "the same place asks for more than the model's weights",
        scene: || known(tensors(1, &[], 4 * GIB), "weights=14G"),
    },
    Labelled {
        id: "oom-model-load",
        says: Says::Not,
        also: &[],
        story: "an old llama.cpp: behind a block for each tensor, another place asks for the cache",
        scene: || tensors(2, &[], 4 * GIB),
    },
    Labelled {
        id: "oom-model-load",
        says: Says::First(Proven),
        also: &[],
        story: "the request has the size of the model's weights",
        scene: || known(llama(&[], 16 * GIB), "weights=16G"),
    },
    Labelled {
        id: "oom-model-load",
        says: Says::Not,
        also: &[],
        story: "the model's weights are far smaller than the request",
        scene: || known(llama(&[], 15 * GIB), "weights=4G"),
    },
    Labelled {
        id: "oom-model-load",
        says: Says::Found(Possible),
        also: &[],
        story: "llama.cpp: the first buffer does not fit, and nothing says that it is the weights",
        scene: || llama(&[], 15 * GIB),
    },
    Labelled {
        id: "kv-cache-incremental",
        says: Says::First(Probable),
        also: &[],
        story: "four caches, each token a MiB larger, as a label says",
        scene: || tokens(1, Some("token 5")),
    },
    Labelled {
        id: "kv-cache-incremental",
        says: Says::Found(Possible),
        also: &[],
        story: "the same without a label: four arrays that grow",
        scene: || tokens(1, None),
    },
    Labelled {
        id: "kv-cache-incremental",
        says: Says::Found(Possible),
        also: &[],
        story: "the same, and at every other token a scratch buffer as large as the cache comes and goes",
        scene: || tokens_with(1, None, 2),
    },
    Labelled {
        id: "kv-cache-incremental",
        says: Says::Not,
        also: &[],
        story: "blocks that are replaced by others of the same size",
        scene: || tokens(0, Some("token 5")),
    },
    Labelled {
        id: "kv-cache-incremental",
        says: Says::Not,
        also: &[],
        story: "layers of rising sizes live side by side, and are given back in the order in which they came",
        scene: || layers(false),
    },
    Labelled {
        id: "kv-cache-incremental",
        says: Says::Not,
        also: &[],
        story: "the same, given back the other way round",
        scene: || layers(true),
    },
    Labelled {
        id: "kv-cache-incremental",
        says: Says::Not,
        also: &[],
        story: "30 textures of sizes that rise in turn, each replaced by one of its own size",
        scene: || replaced(30, 600, |_, texture| 8 + texture),
    },
    Labelled {
        id: "kv-cache-incremental",
        says: Says::Not,
        also: &[],
        story: "a cache with 40 places and five sizes: what comes into a place is as large as what goes",
        scene: || replaced(40, 400, |round, _| 16 + round * 7 % 5),
    },
    Labelled {
        id: "kv-cache-incremental",
        says: Says::Not,
        also: &[],
        story: "60 sessions of any size come and go",
        scene: || replaced(60, 3000, |round, _| 1 + round.wrapping_mul(0x9E37_79B9_7F4A_7C15) % 12),
    },
    Labelled {
        id: "legacy-pool-growth",
        says: Says::First(Probable),
        also: &[],
        story: "six buffers of ggml's library, each a tenth larger than the one before, none given back",
        scene: || pool(false, true),
    },
    Labelled {
        id: "legacy-pool-growth",
        says: Says::Found(Possible),
        also: &[],
        story: "the same, asked for by nobody knows whom",
        scene: || pool(false, false),
    },
    Labelled {
        id: "legacy-pool-growth",
        says: Says::Not,
        also: &[],
        story: "the same buffers, each given back",
        scene: || pool(true, true),
    },
    Labelled {
        id: "fsdp-gather-spike",
        says: Says::Not,
        also: &[],
        story: "equal blocks that live shortly, two of them at the failure, with RCCL, and no second rank is known",
        scene: || gathers(2),
    },
    Labelled { id: "fsdp-gather-spike", says: Says::Not, also: &[], story: "one at a time", scene: || gathers(0) },
    Labelled {
        id: "fsdp-gather-spike",
        says: Says::Found(Possible),
        also: &[],
        story: "the same as one of two ranks",
        scene: || ranks("2"),
    },
    Labelled { id: "fsdp-gather-spike", says: Says::Not, also: &[], story: "a single rank", scene: || ranks("1") },
    Labelled {
        id: "kv-cache-prealloc",
        says: Says::First(Proven),
        also: &[],
        story: "llama.cpp tells that it makes a context's memory",
        scene: || told(&[9 * GIB], 8 * GIB, CONTEXT),
    },
    Labelled {
        id: "kv-cache-prealloc",
        says: Says::Not,
        also: &[],
        story: "ggml tells that it makes room for a graph, where a cache might be",
        scene: || told(&[9 * GIB], 8 * GIB, GRAPH),
    },
    Labelled {
        id: "kv-cache-prealloc",
        says: Says::Not,
        also: &[],
        story: "llama.cpp tells that it loads a model: a second buffer of weights",
        scene: || told(&[9 * GIB], 8 * GIB, WEIGHTS),
    },
    Labelled {
        id: "oom-model-load",
        says: Says::First(Proven),
        also: &[],
        story: "llama.cpp tells that it loads a model, with its first buffer",
        scene: || told(&[], 16 * GIB, WEIGHTS),
    },
    Labelled {
        id: "oom-model-load",
        says: Says::Not,
        also: &[],
        story: "the first buffer on a card is a context's: the weights lie elsewhere",
        scene: || told(&[], 16 * GIB, CONTEXT),
    },
    Labelled {
        id: "oom-model-load",
        says: Says::Not,
        also: &[],
        story: "the first buffer on a card is a graph's: the weights lie elsewhere",
        scene: || told(&[], 16 * GIB, GRAPH),
    },
];

/// Functions inside which llama.cpp makes its buffers.
const WEIGHTS: [&str; 2] = ["llama_model_load_from_file", "ggml_backend_alloc_ctx_tensors_from_buft"];
const CONTEXT: [&str; 2] = ["llama_init_from_model", "ggml_backend_alloc_ctx_tensors_from_buft"];
const GRAPH: [&str; 2] = ["llama_init_from_model", "ggml_gallocr_reserve_n"];

/// With facts of the model.
pub(super) fn known(mut scene: Scene, facts: &str) -> Scene {
    scene.trace.evidence.model.get_or_insert_default().add(facts).expect("facts of a model");
    scene
}

/// What llama.cpp wrote of a buffer that was refused.
fn logged(mut scene: Scene, bytes: u64, why: &str) -> Scene {
    let log = format!(
        "llama_params_fit_impl: projected to use 17408 MiB of device memory vs. 15872 MiB of free device memory\n\
         alloc_tensor_range: failed to allocate ROCm0 buffer of size {bytes}\nllama_init_from_model: {why}\n"
    );
    let content = program_log::find_all(&log);
    scene.trace.evidence.program_logs.push(Given { path: "server.log".into(), content });
    scene
}

fn llama(given: &[u64], asked: u64) -> Scene {
    let mut program = Program::new();
    program.read(100 * MIB);
    let mut trace = program.trace;
    for (number, bytes) in (1..).zip(given) {
        trace.alloc(number << 36, *bytes);
    }
    trace.refuse(asked);
    Scene { trace }
}

/// The same, where the trace tells inside which functions each buffer was asked for: weights first.
fn told(given: &[u64], asked: u64, functions: [&str; 2]) -> Scene {
    let mut program = Program::new();
    program.read(100 * MIB);
    let mut trace = program.trace;
    for (number, bytes) in (1..).zip(given) {
        trace.scope(&WEIGHTS);
        trace.alloc(number << 36, *bytes);
        trace.buffer(number, number << 36, *bytes);
    }
    trace.scope(&functions);
    trace.refuse(asked);
    Scene { trace }
}

/// A version of llama.cpp that asks for each tensor by itself, at one call site, and for the cache at another. `site` is the
/// one that asks last; 0: no call site is known.
fn tensors(site: u32, caches: &[u64], asked: u64) -> Scene {
    const TENSORS: u64 = 24;
    let mut program = Program::new();
    program.read(100 * MIB);
    let mut trace = program.trace.library("/opt/llama", 0x1000, 1).library("/opt/llama", 0x2000, 2);
    let left = 15 * GIB - caches.iter().sum::<u64>();
    trace.site = site.min(1);
    (1..=TENSORS).for_each(|number| _ = trace.alloc(number << 36, left / TENSORS));
    trace.site = site.min(2);
    (TENSORS + 1..).zip(caches).for_each(|(number, bytes)| _ = trace.alloc(number << 36, *bytes));
    trace.site = site;
    trace.refuse(asked);
    Scene { trace }
}

/// Places are filled in turn, 11 apart, each again with so many MiB by round and place once what was there has been given back.
fn replaced(places: u64, rounds: u64, mib: fn(u64, u64) -> u64) -> Scene {
    let mut program = Program::new();
    let mut held = vec![None; places as usize];
    for round in 0..rounds {
        let place = round * 11 % places;
        if let Some(block) = held[place as usize].take() {
            program.take(&[block]);
        }
        held[place as usize] = Some(program.give(mib(round, place) * MIB));
    }
    program.trace.refuse(15 * GIB);
    Scene { trace: program.trace }
}

/// 20 steps with 12 blocks each, each 3 MiB larger than the one before.
fn layers(backwards: bool) -> Scene {
    let mut trace = TraceBuilder::default().device(0, "card", 16 * GIB);
    for step in 0..20u64 {
        let mut blocks: Vec<u64> = (0..12).map(|layer| 0x10_0000_0000 + step * 64 * GIB + layer * GIB).collect();
        for (block, size) in blocks.iter().zip((40..).step_by(3)) {
            trace.alloc(*block, size * MIB);
        }
        if backwards {
            blocks.reverse();
        }
        blocks.iter().for_each(|block| _ = trace.free(*block));
    }
    trace.refuse(15 * GIB);
    Scene { trace }
}

fn tokens(step_mib: u64, label: Option<&str>) -> Scene {
    tokens_with(step_mib, label, u64::MAX)
}

/// Four caches that grow at each of eight tokens, with a scratch buffer of the cache's size where the number of the token is a multiple of `scratch_every`.
fn tokens_with(step_mib: u64, label: Option<&str>, scratch_every: u64) -> Scene {
    let mut program = python();
    program.load();
    let mut caches: Vec<(u64, u64)> = (0..4).map(|_| (program.give(64 * MIB), 64 * MIB)).collect();
    for token in 1..=8u64 {
        for cache in &mut caches {
            let bytes = cache.1 + step_mib * MIB;
            let larger = program.give(bytes);
            program.take(&[cache.0]);
            if token.is_multiple_of(scratch_every) {
                let scratch = program.give(bytes);
                program.take(&[scratch]);
            }
            *cache = (larger, bytes);
        }
    }
    label.into_iter().for_each(|label| program.mark(label));
    let seq = program.trace.refuse(caches[0].1 + MIB);
    if label.is_some() {
        at_failure(&mut program.trace, seq, [(RuntimeTotal, 900 * MIB), (RuntimeFree, 20 * MIB)]);
    }
    Scene { trace: program.trace }
}

fn pool(gives_back: bool, of_ggml: bool) -> Scene {
    let mut program = Program::new();
    program.load();
    grows(program, gives_back, of_ggml, 2300 * MIB)
}

/// The pool of ggml beside so much of the same program's.
pub(super) fn pool_beside(bytes: u64) -> Scene {
    let mut program = Program::new();
    program.keep(bytes);
    grows(program, false, true, bytes + 1700 * MIB)
}

fn grows(mut program: Program, gives_back: bool, of_ggml: bool, total: u64) -> Scene {
    if of_ggml {
        program.trace = program.trace.library("/opt/llama/libggml-hip.so", 0x1000, 1);
        program.trace.site = 1;
    }
    let mut bytes = 200 * MIB;
    for _ in 0..6 {
        let buffer = program.give(bytes);
        if gives_back {
            program.take(&[buffer]);
        }
        bytes += bytes / 10;
    }
    let seq = program.trace.refuse(bytes);
    if of_ggml {
        at_failure(&mut program.trace, seq, [(RuntimeTotal, total), (RuntimeFree, 150 * MIB)]);
    }
    Scene { trace: program.trace }
}

fn gathers(at_once: usize) -> Scene {
    let mut program = python();
    let path = "/opt/rocm/lib/librccl.so.1".to_owned();
    let module = Module { path, build_id: String::new(), start: 0x1000, end: 0x2000, vendor: true };
    program.trace.modules.push(module);
    program.load();
    for _ in 0..12 {
        let part = program.give(128 * MIB);
        program.take(&[part]);
    }
    (0..at_once).for_each(|_| program.keep(128 * MIB));
    program.trace.refuse(128 * MIB);
    Scene { trace: program.trace }
}

fn ranks(count: &str) -> Scene {
    let mut scene = gathers(2);
    set(&mut scene.trace, "WORLD_SIZE", count);
    scene
}
