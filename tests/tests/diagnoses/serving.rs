//! H. Where in serving, or in sharded training, a failure came.

use crate::machine::Machine;
use crate::scene::Says::{Found, Not};
use crate::scene::Sure::Probable;
use crate::scene::{Scene, scene};
use crate::training::LOAD;

pub(crate) fn scenes() -> Vec<Scene> {
    let llama = |id, says, story, script: &str| scene(id, says, story, script).library("libggml-hip.so");
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
        llama(
            "kv-cache-prealloc",
            Found(Probable),
            "weights of 14 GiB, and the cache of 12 does not fit beside them",
            "alloc w 14G; alloc k 12G",
        ),
        llama(
            "kv-cache-prealloc",
            Found(Probable),
            "weights and cache fit, the compute buffer does not",
            "alloc w 11G; alloc k 6G; alloc c 8G",
        ),
        llama("kv-cache-prealloc", Not, "the weights themselves do not fit", "alloc w 30G")
            .also(&["request-exceeds-device"]),
        scene(
            "kv-cache-incremental",
            Found(Probable),
            "two caches, each token a MiB larger, and then something large",
            tokens("+2M"),
        ),
        scene("kv-cache-incremental", Not, "blocks that are replaced by others of the same size", tokens("")),
        scene(
            "legacy-pool-growth",
            Found(Probable),
            "six buffers, each a tenth larger than the one before, none given back",
            pool(""),
        )
        .on(Machine::card_of(2200))
        .also(&["true-capacity"]),
        scene("legacy-pool-growth", Not, "the same buffers, each given back", pool("pop 1;"))
            .set("SIM_LARGEST_REQUEST", "330M")
            .also(&["phantom-free"]),
        scene(
            "fsdp-gather-spike",
            Found(Probable),
            "equal blocks that live shortly, two of them at the failure, with RCCL",
            gathers("push 128M 2;"),
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
