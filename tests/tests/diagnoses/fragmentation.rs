//! B. Fragmentation of caches, rounding, and limits on counts and addresses.

use std::fs;

use crate::machine::Machine;
use crate::scene::Says::{First, Found, Not};
use crate::scene::Sure::{Possible, Probable, Proven};
use crate::scene::{Scene, scene};

const SPLIT: &str = "torch.OutOfMemoryError: HIP out of memory. Tried to allocate 8.54 GiB. GPU 0 has a total capacity of \
    23.98 GiB of which 0 bytes is free. Of the allocated memory 11.97 GiB is allocated by PyTorch, and 9.27 GiB is reserved by \
    PyTorch but unallocated.\n";
const FULL: &str = "torch.OutOfMemoryError: HIP out of memory. Tried to allocate 8.54 GiB. GPU 0 has a total capacity of \
    23.98 GiB of which 0 bytes is free. Of the allocated memory 21.97 GiB is allocated by PyTorch, and 348.16 MiB is reserved by \
    PyTorch but unallocated.\n";

pub(crate) fn scenes() -> Vec<Scene> {
    [caches(), rounding(), counts()].concat()
}

fn caches() -> Vec<Scene> {
    let torch = |id, says, story, script: &str| {
        // PyTorch's own library asks: what another one is refused is no matter of its cache.
        let script = format!("through {{lib}}/libtorch_hip.so; {script}");
        scene(id, says, story, script).torch("2.10.0+rocm7.0", "7.0.51831").set("SIM_HIP_VERSION", 70_051_831)
    };
    // PyTorch frees what it can, and asks once more.
    let segments =
        |sizes: &str| format!("alloc s 500M; {sizes} failures retry; on_failure; sync; free s; end; alloc x 5G");
    let ten = "loop 4; loop 10; push 500M+20M; end; end;";
    let two = "loop 19; loop 2; push 500M+20M; end; end;";
    let by_message = |says, story, log: &str| {
        torch("caching-fragmentation", says, story, "push 1022M 24; alloc x 8746M").given("--torch-log", log)
    };
    vec![
        torch(
            "caching-fragmentation",
            Found(Possible),
            "PyTorch releases what it can; segments of ten sizes stay",
            &segments(ten),
        )
        .also(&["true-capacity"]),
        torch("caching-fragmentation", Not, "the segments that stay have two sizes", &segments(two))
            .also(&["true-capacity"]),
        torch("caching-fragmentation", Not, "caching is disabled: there are no segments", &segments(ten))
            .set("PYTORCH_NO_HIP_MEMORY_CACHING", 1)
            .also(&["true-capacity", "caching-disabled"]),
        by_message(First(Proven), "PyTorch's message: 9.27 GiB are held unused", SPLIT),
        by_message(Not, "PyTorch's message: only 0.34 GiB are held unused", FULL).also(&["true-capacity"]),
        torch(
            "cache-greed",
            Found(Probable),
            "4 GiB are refused, PyTorch releases 4, and the next try succeeds",
            "push 1G 20; failures retry; on_failure; sync; pop 4; end; alloc x 4G",
        ),
        torch(
            "cache-greed",
            Not,
            "the next try fails, too",
            "push 1G 22; failures retry; on_failure; sync; pop 1; end; alloc x 4G",
        )
        .also(&["true-capacity"]),
        scene(
            "reserved-plateau",
            Found(Proven),
            "what stays rises for five steps and is flat for fifteen",
            "loop 5; alloc a 100M; push 300M 4; pop 4; end; loop 15; push 300M 4; pop 4; end",
        ),
        scene(
            "reserved-plateau",
            Not,
            "what stays rises in every step",
            "loop 20; alloc a 90M; push 300M 4; pop 4; end",
        )
        .also(&["live-leak"]),
    ]
}

fn rounding() -> Vec<Scene> {
    let on = |id, says, story, script: &str, mib: u64, granularity: &str| {
        let scene = scene(id, says, story, script).on(Machine::card_of(mib)).set("SIM_GRANULARITY", granularity);
        // What the driver rounds is counted as this process's.
        scene.also(&["true-capacity"])
    };
    let equal = "push 201863463 57; alloc x 201863463";
    let mixed = "push 402653184 25; push 134217728 10; alloc x 134217728";
    let even = "push 268435456 60; alloc x 134217728";
    vec![
        on(
            "granularity-waste",
            First(Probable),
            "blocks of 192 MiB on a card that gives 256 for each",
            equal,
            14_600,
            "256M",
        ),
        on(
            "granularity-waste",
            Not,
            "the same blocks on a card that gives what is asked for",
            "push 201863463 75; alloc x 201863463",
            14_600,
            "2M",
        ),
        on(
            "mixed-size-padding",
            Found(Probable),
            "blocks of 384 MiB and of 128 in granules of 256",
            mixed,
            15_360,
            "256M",
        ),
        on("mixed-size-padding", Not, "blocks of 256 MiB fill their granules", even, 15_360, "256M"),
    ]
}

fn counts() -> Vec<Scene> {
    let limit: u64 =
        fs::read_to_string("/proc/sys/vm/max_map_count").ok().and_then(|text| text.trim().parse().ok()).unwrap_or(0);
    let vm_size = |gib: u64| Machine::card().with("sys/module/amdgpu/parameters/vm_size", gib);
    let reservations = |first: &str| format!("alloc a 1G; failures go; reserve {first}; reserve 8G; sleep 250; exit 1");
    let handles = "alloc a 1G; files 128; loop 200; virtual v 2M; end";
    // Elsewhere so many mappings would take too long to make.
    let few = (1..=100_000).contains(&limit);
    let mappings = few.then(|| {
        scene(
            "map-count-exhaustion",
            // Most mappings are none of the program's blocks.
            First(Probable),
            "2 MiB are refused with 20 GiB free: no mapping is left",
            "push 2M 20; mappings 40; push 2M 200",
        )
        .set("SIM_REAL_MAPPINGS", 1)
    });
    let rest = [
        scene("map-count-exhaustion", Not, "the same with few mappings", "push 2M 20; push 2M 200")
            .set("SIM_PROCESS_LIMIT", "100M")
            .also(&["phantom-free"]),
        scene(
            "address-space-limit",
            First(Probable),
            "4 GiB are refused with 20 GiB free: the process may map 2 GiB more addresses",
            "push 2M 20; addresses 2G; alloc a 4G",
        )
        .set("SIM_REAL_ADDRESSES", 1),
        scene(
            "address-space-limit",
            Not,
            "the same of a card that has no more",
            "push 2M 20; addresses 30G; alloc a 4G",
        )
        .set("SIM_REAL_ADDRESSES", 1)
        .set("SIM_PROCESS_LIMIT", "100M")
        .also(&["phantom-free"]),
        scene("vmm-fd-exhaustion", First(Probable), "each handle takes a descriptor, and 128 are allowed", handles)
            .set("SIM_HANDLE_FILES", 1),
        scene(
            "vmm-fd-exhaustion",
            Not,
            "handles are refused while descriptors are left",
            "alloc a 1G; loop 200; virtual v 2M; end",
        )
        .set("SIM_PROCESS_LIMIT", "1200M")
        .also(&["phantom-free"]),
        scene(
            "gpu-va-limit",
            First(Proven),
            "60 GiB of addresses are reserved and 8 more refused, with vm_size=64",
            reservations("60G"),
        )
        .on(vm_size(64))
        .set("SIM_RESERVED_LIMIT", "64G"),
        scene("gpu-va-limit", Not, "1 GiB is reserved: vm_size=64 is far away", reservations("1G"))
            .on(vm_size(64))
            .set("SIM_RESERVED_LIMIT", "4G"),
    ];
    mappings.into_iter().chain(rest).collect()
}
