//! What has the shape of a model that serves, or of one that is sharded, in programs that do neither.

use super::{COPIED, FIELDS};
use crate::looks_like;
use crate::machine::Machine;
use crate::scene::Scene;

pub(crate) fn scenes() -> Vec<Scene> {
    [preallocations(), growing(), pools(), gathers()].concat()
}

fn preallocations() -> Vec<Scene> {
    let cache = |story, script: &str| looks_like("kv-cache-prealloc", story, script).also(&["true-capacity"]);
    vec![
        cache(
            "a picture is made with ggml: after the weights, the picture's buffer does not fit",
            "alloc w 14G; copy w; alloc p 12G",
        )
        .library("libggml-hip.so"),
        cache("speech is recognised with ggml: the work buffer does not fit", "alloc w 11G; alloc a 6G; alloc c 8G")
            .library("libggml-hip.so"),
        cache("a simulation: fields of 14 GiB, and a second buffer of 12 for them", "alloc w 14G; copy w; alloc k 12G"),
        cache("a database: one table, and the equal partitions of another", "alloc w 14G; push 2G 6"),
        cache(
            "llama.cpp: the cache fits, the compute buffer behind it does not",
            "alloc w 11G; alloc k 6G; alloc c 8G",
        )
        .library("libllama.so")
        .library("libggml-hip.so"),
    ]
}

fn growing() -> Vec<Scene> {
    let cache = |story, script: String| looks_like("kv-cache-incremental", story, script).also(&["true-capacity"]);
    vec![
        cache(
            "an array of particles grows by 2 MiB at each step",
            format!(
                "{FIELDS} alloc a 64M; loop 20; alloc b 65M+2M; use a; free a; alloc a 66M+2M; use b; free b; end; alloc x 24000M"
            ),
        ),
        cache(
            "positions and velocities grow together",
            format!(
                "{FIELDS} alloc k 64M; alloc v 64M; loop 12; alloc n 65M+2M; free k; alloc m 65M+2M; free v; alloc k 66M+2M; \
                 free n; alloc v 66M+2M; free m; end; alloc x 24000M"
            ),
        ),
        cache(
            "an append-only column grows by a page of 16 MiB at a time, until its next page does not fit beside it",
            "alloc a 4G; loop 400; alloc b 4112M+32M; free a; alloc a 4128M+32M; free b; end".to_owned(),
        ),
    ]
}

fn pools() -> Vec<Scene> {
    let pool = |story, script: String| {
        looks_like("legacy-pool-growth", story, script).on(Machine::card_of(2200)).also(&["true-capacity"])
    };
    vec![
        pool(
            "an image pyramid: each level is a tenth larger than the one before",
            format!("{FIELDS} push 200M; push 220M; push 242M; push 266M; push 293M; push 322M; alloc x 354M"),
        ),
        pool(
            "snapshots of a mesh that is refined: each is a bit larger than the one before, and all are wanted",
            format!("{COPIED} push 210M; push 225M; push 240M; push 255M; push 270M; push 285M; alloc x 300M"),
        ),
        pool(
            "fields sorted by size, the smallest first",
            "push 200M; push 210M; push 230M; push 240M; push 260M; push 280M; push 300M; push 320M; alloc x 340M"
                .to_owned(),
        ),
    ]
}

fn gathers() -> Vec<Scene> {
    let gather = |story, script: String| {
        looks_like("fsdp-gather-spike", story, script).on(Machine::card_of(900)).also(&["true-capacity"])
    };
    let short = "loop 12; alloc g 128M; free g; end;";
    vec![
        gather(
            "RCCL is loaded, as PyTorch always loads it; a sort takes two buffers in turn, on one card",
            format!("{FIELDS} {short} push 128M 2; alloc x 128M"),
        )
        .library("librccl.so.1"),
        gather(
            "one of eight jobs that a launcher started, which have nothing to do with each other",
            format!("{FIELDS} {short} push 128M 2; alloc x 128M"),
        )
        .library("librccl.so.1")
        .set("RANK", 3)
        .set("WORLD_SIZE", 8),
        gather(
            "two halos of equal size, exchanged in each of twelve steps",
            format!("{FIELDS} loop 12; alloc g 128M; alloc h 128M; free h; free g; end; push 128M 2; alloc x 128M"),
        )
        .library("librccl.so.1")
        .set("OMPI_COMM_WORLD_SIZE", 2),
    ]
}
