//! H. Where in serving, or in sharded training, a failure came.

use crate::machine::Machine;
use crate::scene::Says::{First, Found, Not};
use crate::scene::Sure::{Possible, Probable, Proven};
use crate::scene::{Scene, scene};
use crate::training::LOAD;

pub(crate) fn scenes() -> Vec<Scene> {
    let llama =
        |id, says, story, script: &str| scene(id, says, story, script).library("libllama.so").library("libggml-hip.so");
    let by =
        |id, says, story, source, script: &str| scene(id, says, story, script).library_of("libggml-hip.so", source);
    let tokens = |step: &str| {
        format!(
            "{LOAD} alloc k 64M; alloc v 64M; loop 12; alloc n 65M{step}; free k; alloc m 65M{step}; free v; \
             alloc k 66M{step}; free n; alloc v 66M{step}; free m; end; alloc x 24000M"
        )
    };
    let pool = |back: &str| {
        format!(
            "{LOAD} push 200M; {back} push 220M; {back} push 242M; {back} push 266M; {back} push 293M; {back} push 322M; {back} alloc x 354M"
        )
    };
    let gathers = |at_once: &str| format!("{LOAD} loop 12; alloc g 128M; free g; end; {at_once} alloc x 128M");
    vec![
        by(
            "kv-cache-prealloc",
            First(Proven),
            "weights of 14 GiB, and the cache of 12, which a function names, does not fit beside them",
            "caller_kv_cache.c",
            "alloc w 14G; through {lib}/libggml-hip.so; alloc k 12G",
        ),
        llama(
            "kv-cache-prealloc",
            Found(Possible),
            "the same, and nothing names the buffers",
            "alloc w 14G; alloc k 12G",
        ),
        by(
            "kv-cache-prealloc",
            Not,
            "weights and cache fit, the compute buffer, which a function names, does not",
            "caller_compute.c",
            "alloc w 11G; alloc k 6G; through {lib}/libggml-hip.so; alloc c 8G",
        ),
        llama("kv-cache-prealloc", Not, "the weights themselves do not fit", "alloc w 30G")
            .also(&["request-exceeds-device"]),
        by(
            "oom-model-load",
            Found(Proven),
            "the weights, which a function names, do not fit",
            "caller_weights.c",
            "through {lib}/libggml-hip.so; alloc w 30G",
        )
        .also(&["request-exceeds-device"]),
        scene(
            "kv-cache-incremental",
            Found(Probable),
            "two caches, each token a MiB larger, as a label says, and then something large",
            format!("mark decode; {}", tokens("+2M")),
        ),
        scene("kv-cache-incremental", Found(Possible), "the same without a label: arrays that grow", tokens("+2M")),
        scene("kv-cache-incremental", Not, "blocks that are replaced by others of the same size", tokens("")),
        by(
            "legacy-pool-growth",
            Found(Proven),
            "six buffers of ggml's pool, each a tenth larger than the one before, none given back",
            "caller_pool.c",
            &format!("through {{lib}}/libggml-hip.so; {}", pool("")),
        )
        .on(Machine::card_of(2200))
        .also(&["true-capacity"]),
        scene("legacy-pool-growth", Not, "the same buffers, each given back", pool("pop 1;"))
            .set("SIM_LARGEST_REQUEST", "330M")
            .also(&["phantom-free"]),
        scene(
            "fsdp-gather-spike",
            Found(Probable),
            "equal blocks that live shortly, two of them at the failure, with RCCL, and a label says that they are gathered",
            gathers("mark all_gather; push 128M 2;"),
        )
        .library("librccl.so.1")
        .on(Machine::card_of(900))
        .also(&["true-capacity"]),
        scene("fsdp-gather-spike", Not, "one at a time", gathers(""))
            .library("librccl.so.1")
            .on(Machine::card_of(600))
            .also(&["true-capacity"]),
    ]
}
