//! D. What looks as if a pool kept memory, lost it, or failed where plain memory was there.

use super::{HIP_6, HIP_7, of_torch};
use crate::looks_like;
use crate::scene::Scene;

pub(crate) fn scenes() -> Vec<Scene> {
    [kept(), failed(), lost(), graphs()].concat()
}

fn kept() -> Vec<Scene> {
    let kept = |story, script: &str| looks_like("pool-retention", story, script).set("SIM_HIP_VERSION", HIP_7);
    vec![
        kept("the pool's memory is all in use", "keep 20G; async a 6G; async b 6G; sync; alloc c 16G"),
        kept(
            "the threshold was raised when the pool had given back everything",
            "async a 6G; async b 6G; free a; free b; sync; keep 20G; push 1G 22; alloc c 4G",
        )
        .also(&["true-capacity"]),
        kept(
            "another thread trimmed the pool",
            "keep 20G; async a 6G; async b 6G; free a; free b; sync; thread other; trim; end; push 1G 22; alloc c 4G",
        )
        .also(&["true-capacity"]),
        kept(
            "the threshold is of another card's pool",
            "keep 20G; device 1; async a 6G; async b 6G; free a; free b; sync; push 1G 22; alloc c 4G",
        )
        .set("SIM_DEVICES", 2)
        .also(&["true-capacity"]),
        kept(
            "what the pool keeps is less than was missing",
            "keep 20G; async a 1G; free a; sync; push 1G 20; alloc c 8G",
        )
        .also(&["true-capacity"]),
    ]
}

fn failed() -> Vec<Scene> {
    let failed = |story, script: &str| {
        looks_like("mallocasync-oom", story, script).set("SIM_HIP_VERSION", HIP_6).set("GPUOOM_PROBE", "off")
    };
    vec![
        failed(
            "the card was full, and 12 GiB were given back before hipMalloc",
            "push 1G 22; failures go; async x 8G; pop 12; alloc y 8G; launch",
        )
        .also(&["known-bad-version", "true-capacity"]),
        failed(
            "the card was full, and another thread gave 12 GiB back before hipMalloc",
            "push 1G 22; failures go; async x 8G; thread other; pop 12; end; alloc y 8G; launch",
        )
        .also(&["known-bad-version", "true-capacity"]),
        failed(
            "the hipMalloc that succeeded asked for an eighth",
            "alloc w 1G; loop 8; async a 100M; sleep 2; end; failures go; async x 2G; alloc y 256M; launch",
        )
        .set("SIM_PROCESS_LIMIT", "2500M")
        .also(&["known-bad-version", "phantom-free", "dropped-oom-return"]),
        failed(
            "the hipMalloc that succeeded was on another card",
            "push 1G 22; failures go; async x 8G; device 1; alloc y 8G; launch",
        )
        .set("SIM_DEVICES", 2)
        .also(&["known-bad-version", "true-capacity"]),
        failed(
            "frees were pending, and the synchronisation before hipMalloc brought them",
            "async a 12G; async b 6G; free a; failures go; async x 10G; sync; alloc y 10G; launch",
        )
        .set("SIM_FREES_WAIT", 1)
        .also(&["known-bad-version", "async-free-pending"]),
        failed("the failure was asked for: it was injected", "alloc w 1G; failures go; async x 2G; alloc y 2G; launch")
            .set("GPUOOM_INJECT", "oom@2")
            .also(&["known-bad-version", "requested-refusal"]),
    ]
}

fn lost() -> Vec<Scene> {
    let lost = |story, after: &str| {
        let script = format!("push 1G 14; sleep 100; failures go; async b 4G; {after} sleep 100; exit 1");
        looks_like("pool-failure-leak", story, script)
            .set("SIM_HIP_VERSION", HIP_6)
            .set("SIM_POOL_LIMIT", "1G")
            .set("GPUOOM_PROBE", "off")
            .also(&["phantom-free", "mallocasync-oom", "known-bad-version", "dropped-oom-return"])
    };
    vec![
        lost("another thread took 4 GiB meanwhile", "thread other; push 2G 2; end;"),
        lost("a module was loaded meanwhile, which takes memory", "module;").set("SIM_HIDDEN_PER_MODULE", "3G"),
        lost("handles of virtual memory were made meanwhile", "virtual v 4G;"),
        lost("managed memory was made instead", "managed m 4G; launch;"),
    ]
}

fn graphs() -> Vec<Scene> {
    let message = |asked: &str, free: &str, private: &str| {
        format!(
            "torch.OutOfMemoryError: HIP out of memory. Tried to allocate {asked}. GPU 0 has a total capacity of 23.98 GiB of which \
             {free} is free. Of the allocated memory 22.00 GiB is allocated by PyTorch, with {private} allocated in private pools \
             (e.g., CUDA Graphs), and 800.00 MiB is reserved by PyTorch but unallocated.\n"
        )
    };
    let graph = |story, script: &str| of_torch("graph-private-pool", story, script).also(&["true-capacity"]);
    vec![
        graph("graphs have 2 GiB, and 3 were missing", "push 1G 23; alloc x 4G")
            .given("--torch-log", message("4.00 GiB", "1.00 GiB", "2.00 GiB")),
        graph("the message is of another failure", "push 1G 23; alloc x 1500M")
            .given("--torch-log", message("4.00 GiB", "1.00 GiB", "6.00 GiB")),
        graph("the message is of another card", "push 1G 23; alloc x 4G")
            .given("--torch-log", message("4.00 GiB", "1.00 GiB", "6.00 GiB").replace("GPU 0", "GPU 2")),
    ]
}
