//! B. What looks like a limit on mappings, on descriptors, or on addresses.

use std::fs;

use crate::looks_like;
use crate::machine::Machine;
use crate::scene::Scene;

pub(crate) fn scenes() -> Vec<Scene> {
    [mappings(), descriptors(), addresses()].concat()
}

fn mappings() -> Vec<Scene> {
    let id = "map-count-exhaustion";
    let limit: u64 =
        fs::read_to_string("/proc/sys/vm/max_map_count").ok().and_then(|text| text.trim().parse().ok()).unwrap_or(0);
    let few = looks_like(
        id,
        "30 MiB are refused by a limit of the process, and few mappings are in use",
        "push 30M 30; alloc x 30M",
    )
    .set("SIM_PROCESS_LIMIT", "900M")
    .also(&["phantom-free"]);
    // Elsewhere so many mappings would take too long to make.
    if !(1..=100_000).contains(&limit) {
        return vec![few];
    }
    vec![
        few,
        looks_like(id, "nearly all mappings are in use, and so is the card", "mappings 400; push 1G 23; alloc x 4G")
            .also(&["true-capacity"]),
        looks_like(
            id,
            "2,000 mappings are left, which one block does not need",
            "mappings 2000; push 2M 20; alloc x 2M",
        )
        .set("SIM_PROCESS_LIMIT", "40M")
        .also(&["phantom-free"]),
        looks_like(
            id,
            "hardly a mapping is left, one call is refused for another reason, and the next is given",
            "mappings 70; push 2M 20; failures go; alloc x 20M; alloc y 18M; exit 1",
        )
        .set("SIM_FAIL_AT", 21)
        .also(&["phantom-free"]),
        looks_like(
            id,
            "nearly all mappings are in use, and after the failure the same size is given again and again",
            "mappings 400; push 2M 20; failures go; alloc x 2M; push 2M 40; launch",
        )
        .set("SIM_FAIL_AT", 21)
        .set("GPUOOM_PROBE", "off")
        .also(&["phantom-free", "dropped-oom-return"]),
    ]
}

fn descriptors() -> Vec<Scene> {
    let id = "vmm-fd-exhaustion";
    vec![
        looks_like(
            id,
            "nearly all descriptors are files and sockets, and there is one handle",
            "alloc a 1G; files 100; open 80; virtual v 2M; open 8; failures go; virtual w 64M; sleep 100; exit 1",
        )
        .set("SIM_PROCESS_LIMIT", "1030M")
        .also(&["phantom-free"]),
        looks_like(
            id,
            "nearly all descriptors are handles, and the card is full",
            "push 1G 23; files 200; loop 150; virtual v 2M; end; open 40; virtual w 1G",
        )
        .set("SIM_HANDLE_FILES", 1)
        .also(&["true-capacity"]),
        looks_like(
            id,
            "nearly all descriptors are handles, and it is hipMalloc that is refused",
            "files 200; loop 150; virtual v 2M; end; open 36; alloc w 1G",
        )
        .set("SIM_HANDLE_FILES", 1)
        .set("SIM_PROCESS_LIMIT", "500M")
        .also(&["phantom-free"]),
        looks_like(
            id,
            "nearly all descriptors are handles, a large one is refused for its size, and a small one is then given",
            "files 200; loop 150; virtual v 2M; end; open 36; failures go; virtual w 3G; virtual x 2M; exit 1",
        )
        .set("SIM_HANDLE_FILES", 1)
        .set("SIM_LARGEST_REQUEST", "2G")
        .also(&["phantom-free"]),
        looks_like(
            id,
            "a handle of a size that is no multiple of the granularity, which HIP calls out of memory",
            "files 200; loop 150; virtual v 2M; end; open 36; failures go; virtual w 3000001; exit 1",
        )
        .set("SIM_HANDLE_FILES", 1),
    ]
}

fn addresses() -> Vec<Scene> {
    let id = "gpu-va-limit";
    let reserved = |story, script: &str, gib: u64| {
        looks_like(id, story, script).on(Machine::card().with("sys/module/amdgpu/parameters/vm_size", gib))
    };
    vec![
        reserved(
            "58 of 64 GiB are reserved; 3,000,001 bytes are refused, because they are no multiple of the granularity",
            "alloc a 1G; failures go; reserve 58G; reserve 3000001; sleep 100; exit 1",
            64,
        ),
        reserved(
            "58 of 64 GiB are reserved, and 1 more is refused, which would fit",
            "alloc a 1G; failures go; reserve 58G; reserve 1G; sleep 100; exit 1",
            64,
        )
        .set("SIM_RESERVED_LIMIT", "58G"),
        reserved(
            "vm_size=131072 is 128 TiB, of which 100 GiB are nothing",
            "alloc a 1G; failures go; reserve 100G; reserve 30G; sleep 100; exit 1",
            131_072,
        )
        .set("SIM_RESERVED_LIMIT", "128G"),
        reserved(
            "58 of 64 GiB are reserved, and what is refused is memory: the card is full",
            "push 1G 23; reserve 58G; alloc x 4G",
            64,
        )
        .also(&["true-capacity"]),
    ]
}
