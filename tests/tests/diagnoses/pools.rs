//! D. Pools, virtual memory, and the options of PyTorch's allocator.

use crate::machine::Machine;
use crate::scene::Says::{First, Found, Not};
use crate::scene::Sure::{Possible, Probable, Proven};
use crate::scene::{Scene, scene};

const PRIVATE_6_GIB: &str = "torch.OutOfMemoryError: HIP out of memory. Tried to allocate 4.00 GiB. GPU 0 has a total capacity of \
    23.98 GiB of which 1.00 GiB is free. Of the allocated memory 22.00 GiB is allocated by PyTorch, with 6.00 GiB allocated in \
    private pools (e.g., CUDA Graphs), and 800.00 MiB is reserved by PyTorch but unallocated.\n";
const PRIVATE_512_MIB: &str = "torch.OutOfMemoryError: HIP out of memory. Tried to allocate 4.00 GiB. GPU 0 has a total capacity of \
    23.98 GiB of which 1.00 GiB is free. Of the allocated memory 22.00 GiB is allocated by PyTorch, with 512.00 MiB allocated in \
    private pools (e.g., CUDA Graphs), and 800.00 MiB is reserved by PyTorch but unallocated.\n";

/// Where KFD names a card's target; the machine's card is gfx1100.
const NODE: &str = "sys/class/kfd/kfd/topology/nodes/1/properties";

/// The HIP of ROCm 7.0 and of 6.4.
const HIP_7: u64 = 70_051_831;
const HIP_6: u64 = 60_443_483;

pub(crate) fn scenes() -> Vec<Scene> {
    [pools(), virtual_memory(), options()].concat()
}

fn pools() -> Vec<Scene> {
    let retained = |says, story, keep: &str, trim: &str| {
        scene(
            "pool-retention",
            says,
            story,
            format!(
                "keep {keep}; async a 6G; async b 6G; free a; free b; sync; {trim} push 1G 6; alloc c {}",
                if keep == "0" || !trim.is_empty() { "19G" } else { "8G" }
            ),
        )
        .set("SIM_HIP_VERSION", HIP_7)
    };
    let stream_ordered = |says, story, version: u64, rest: &str| {
        let script =
            format!("alloc w 1G; loop 8; async a 100M+100M; sleep 2; end; failures go; async x 2G; {rest} exit 1");
        scene("mallocasync-oom", says, story, script).set("SIM_HIP_VERSION", version).set("SIM_POOL_LIMIT", "4G")
    };
    let leaked = |says, story, loses: &str| {
        scene(
            "pool-failure-leak",
            says,
            story,
            "push 1G 14; sleep 100; failures go; async b 4G; sleep 60; alloc c 1G; exit 1",
        )
        .set("SIM_HIP_VERSION", HIP_6)
        .set("SIM_POOL_LIMIT", "1G")
        .set("SIM_POOL_LOSES", loses)
        .also(&["phantom-free", "mallocasync-oom", "known-bad-version"])
    };
    vec![
        retained(Found(Probable), "a pool keeps 12 GiB that were given back to it, and hipMalloc fails", "20G", ""),
        retained(Not, "the pool gave them back to the device", "0", ""),
        retained(Not, "the pool was told to keep them, and trimmed", "20G", "trim;"),
        stream_ordered(
            First(Probable),
            "hipMallocAsync fails on ROCm 6.4, and hipMalloc of the same size succeeds",
            HIP_6,
            "alloc y 2G;",
        )
        .also(&["known-bad-version"]),
        stream_ordered(First(Probable), "the same, and nobody tries hipMalloc", HIP_6, "").also(&["known-bad-version"]),
        stream_ordered(Not, "ROCm 7.0 has the fix", HIP_7, "alloc y 2G;")
            .on(Machine::card().changed(NODE, "gfx_target_version 110000", "gfx_target_version 120001"))
            .also(&["phantom-free"]),
        stream_ordered(Found(Probable), "on gfx1100 ROCm 7.0 brought it back", HIP_7, "alloc y 2G;")
            .also(&["phantom-free", "known-bad-version"]),
        leaked(Found(Proven), "4 GiB are gone after a refused hipMallocAsync of 4 GiB", "4G"),
        leaked(Not, "as much is free after the failure as before", "0"),
    ]
}

fn virtual_memory() -> Vec<Scene> {
    let released = |says, story, stay: u64| {
        let each =
            |command: &str, rest: &str| ["a", "b", "c", "d"].map(|name| format!("{command} {name}{rest};")).concat();
        let script = format!(
            "alloc w 1G; {} sleep 80; {} sleep 80; alloc x 23500M",
            each("virtual", " 2G"),
            each("release", "")
        );
        scene("vmm-release-ineffective", says, story, script)
            .set("SIM_HIP_VERSION", HIP_7)
            .set("SIM_HANDLES_STAY", stay)
    };
    let graphs = |says, story, log: &str| {
        scene("graph-private-pool", says, story, "push 1G 23; alloc x 4G")
            .torch("2.10.0+rocm7.0", "7.0.51831")
            .set("SIM_HIP_VERSION", HIP_7)
            .given("--torch-log", log)
            .also(&["true-capacity"])
    };
    vec![
        scene(
            "vmm-half-returned",
            Found(Possible),
            "6 GiB of virtual memory are unmapped, and their handles kept: 4 GiB are missing",
            "virtual v 6G; push 1G 14; unmap v; alloc a 8G",
        )
        .also(&["true-capacity"]),
        scene("vmm-half-returned", Not, "6 GiB stay mapped", "virtual v 6G; push 1G 14; alloc a 8G")
            .also(&["true-capacity"]),
        released(Found(Probable), "8 GiB are unmapped and released, and nothing becomes free", 1),
        released(Not, "what was released is free again", 0),
        graphs(
            Found(Probable),
            "PyTorch's message: graphs keep 6 GiB, and 3 were missing; what of it is in tensors nobody says",
            PRIVATE_6_GIB,
        ),
        graphs(Not, "graphs keep 512 MiB, which is not enough", PRIVATE_512_MIB),
    ]
}

fn options() -> Vec<Scene> {
    // PyTorch's own library asks: what another one takes has nothing to do with its options.
    let torch = |id, says, story, script: &str, options: &str| {
        scene(id, says, story, format!("through {{lib}}/libtorch_hip.so; {script}"))
            .torch("2.10.0+rocm7.0", "7.0.51831")
            .set("SIM_HIP_VERSION", HIP_7)
            .set("PYTORCH_HIP_ALLOC_CONF", options)
    };
    let on = "expandable_segments:True";
    let no_caching = |says, story| {
        scene("caching-disabled", says, story, "alloc a 1G; sleep 250")
            .set("PYTORCH_NO_HIP_MEMORY_CACHING", 1)
            .set("SIM_HIP_VERSION", HIP_7)
    };
    vec![
        torch(
            "expandable-ignored",
            Found(Proven),
            "expandable segments are asked for, and every segment comes from hipMalloc",
            "push 20M 10; sleep 250",
            on,
        ),
        torch(
            "expandable-ignored",
            Not,
            "physical memory is mapped: the option has its effect",
            "alloc a 20M; virtual v 20M; sleep 250",
            on,
        ),
        scene(
            "expandable-ignored",
            Found(Probable),
            "the same over CUDA, where the driver is too old for it: the program may have turned them off",
            "through {lib}/libtorch_cuda.so; push 20M 10; sleep 250",
        )
        .torch_cuda("2.8.0+cu128", "12.8")
        .set("PYTORCH_CUDA_ALLOC_CONF", on),
        torch(
            "expandable-with-max-split",
            Found(Proven),
            "both options in one string on ROCm",
            "push 20M 10; sleep 250",
            "expandable_segments:True,max_split_size_mb:256",
        )
        .also(&["expandable-ignored"]),
        torch(
            "expandable-with-max-split",
            Not,
            "max_split_size_mb alone",
            "push 20M 10; sleep 250",
            "max_split_size_mb:256",
        ),
        torch(
            "expandable-hazard",
            Found(Proven),
            "hipMemMap does not return for three seconds, where one is too long",
            "alloc a 20M; sleep 60; kill_in 3000; virtual v 20M",
            on,
        )
        .set("SIM_MAPS_HANG", 1)
        .threshold("hang=1s")
        .also(&["hang-not-oom"]),
        torch(
            "expandable-hazard",
            Not,
            "the program is killed in a long step",
            "alloc a 20M; virtual v 20M; kill_in 150; sleep 5000",
            on,
        ),
        no_caching(Found(Proven), "PYTORCH_NO_HIP_MEMORY_CACHING=1 with PyTorch").torch("2.10.0+rocm7.0", "7.0.51831"),
        no_caching(Not, "the variable is set for a program that has no PyTorch"),
    ]
}
