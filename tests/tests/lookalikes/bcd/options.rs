//! D. Options of PyTorch's allocator that do nothing here, or are not what they look like.

use super::{HIP_7, of_torch, of_torch_version};
use crate::looks_like;
use crate::scene::Scene;

const ON: &str = "expandable_segments:True";
const BOTH: &str = "expandable_segments:True,max_split_size_mb:256";
const QUIET: &str = "push 20M 10; sleep 100";

pub(crate) fn scenes() -> Vec<Scene> {
    [ignored(), pair(), hazard(), caching()].concat()
}

fn ignored() -> Vec<Scene> {
    let id = "expandable-ignored";
    vec![
        of_torch(id, "the option is there and off", QUIET).set("PYTORCH_HIP_ALLOC_CONF", "expandable_segments:False"),
        looks_like(id, "no PyTorch is in the process: the shell has the variable for another program", QUIET)
            .set("PYTORCH_HIP_ALLOC_CONF", ON)
            .set("SIM_HIP_VERSION", HIP_7),
        looks_like(
            id,
            "PyTorch is there, and it is another library that allocates",
            "through {lib}/librccl.so; push 20M 10; sleep 100",
        )
        .torch("2.10.0+rocm7.0", "7.0.51831")
        .library("librccl.so")
        .set("PYTORCH_HIP_ALLOC_CONF", ON)
        .set("SIM_HIP_VERSION", HIP_7),
        of_torch(id, "another variable comes first, and its options are the ones that count", QUIET)
            .set("PYTORCH_CUDA_ALLOC_CONF", "garbage_collection_threshold:0.8")
            .set("PYTORCH_HIP_ALLOC_CONF", ON),
        of_torch(
            id,
            "the runtime's own pools were chosen, which have no segments",
            "async a 20M; async b 20M; sleep 100",
        )
        .set("PYTORCH_HIP_ALLOC_CONF", "backend:hipMallocAsync,expandable_segments:True"),
    ]
}

fn pair() -> Vec<Scene> {
    let id = "expandable-with-max-split";
    vec![
        of_torch(id, "expandable segments are off", QUIET)
            .set("PYTORCH_HIP_ALLOC_CONF", "expandable_segments:False,max_split_size_mb:256"),
        of_torch(id, "each option in a variable of its own: they are not merged, the first one counts", QUIET)
            .set("PYTORCH_CUDA_ALLOC_CONF", "max_split_size_mb:256")
            .set("PYTORCH_HIP_ALLOC_CONF", ON),
        looks_like(id, "no PyTorch is in the process", QUIET)
            .set("PYTORCH_HIP_ALLOC_CONF", BOTH)
            .set("SIM_HIP_VERSION", HIP_7),
        looks_like(
            id,
            "PyTorch 2.8 over CUDA, where the pair does no harm",
            "through {lib}/libtorch_cuda.so; push 20M 10; sleep 100",
        )
        .torch_cuda("2.8.0+cu128", "12.8")
        .set("PYTORCH_CUDA_ALLOC_CONF", BOTH)
        .also(&["expandable-ignored"]),
    ]
}

fn hazard() -> Vec<Scene> {
    let id = "expandable-hazard";
    vec![
        of_torch(
            id,
            "the program was stopped while a handle was being mapped, a tenth of a second after it began",
            "alloc a 20M; sleep 60; kill_in 150; virtual v 20M",
        )
        .set("SIM_MAPS_HANG", 1)
        .set("PYTORCH_HIP_ALLOC_CONF", ON),
        looks_like(
            id,
            "a program with virtual memory of its own: no PyTorch, no segments",
            "alloc a 20M; sleep 60; kill_in 3000; virtual v 20M",
        )
        .set("SIM_MAPS_HANG", 1)
        .set("SIM_HIP_VERSION", HIP_7)
        .threshold("hang=1s")
        .also(&["hang-not-oom"]),
        looks_like(
            id,
            "a program with virtual memory of its own passes a wrong value to hipMemSetAccess",
            "alloc a 20M; failures go; virtual v 20M; sleep 60; exit 1",
        )
        .set("SIM_ACCESS_FAILS", 1)
        .set("SIM_HIP_VERSION", HIP_7),
        of_torch(
            id,
            "PyTorch maps its segments, goes on, and is killed much later",
            "virtual v 20M; launch; sleep 100; alloc a 20M; launch; kill_in 50; sleep 3000",
        )
        .set("PYTORCH_HIP_ALLOC_CONF", ON),
    ]
}

fn caching() -> Vec<Scene> {
    let id = "caching-disabled";
    vec![
        of_torch_version(id, "the variable is 0, which is no", QUIET, "2.10.0+rocm7.0")
            .set("PYTORCH_NO_HIP_MEMORY_CACHING", 0),
        of_torch(id, "the variable is empty", QUIET).set("PYTORCH_NO_HIP_MEMORY_CACHING", ""),
        looks_like(id, "no PyTorch is in the process", QUIET)
            .set("PYTORCH_NO_HIP_MEMORY_CACHING", 1)
            .set("SIM_HIP_VERSION", HIP_7),
    ]
}
