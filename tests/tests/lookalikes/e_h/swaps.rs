//! What comes and goes, and is no model; modules that are many, and are not forgotten; versions that are not bad.

use super::{FIELDS, TOO_MUCH};
use crate::looks_like;
use crate::scene::Scene;

pub(crate) fn scenes() -> Vec<Scene> {
    [swaps(), modules(), versions()].concat()
}

fn swaps() -> Vec<Scene> {
    let swap = |story, script: String| looks_like("model-swap-residual", story, script);
    vec![
        swap(
            "560 MiB stay of each of six rounds of 4 GiB: a leak, of no model",
            "loop 6; push 560M; alloc a 2G; alloc b 2G; launch; sleep 60; free b; free a; sleep 60; end; alloc x 24000M".to_owned(),
        )
        .also(&["live-leak", "true-capacity"]),
        swap(
            "a database keeps 150 MiB of columns of each of five queries, beside 4 GiB of hash tables that it gives back",
            "loop 5; push 150M; alloc a 3G; alloc b 1G; launch; sleep 60; free b; free a; sleep 60; end".to_owned(),
        )
        .also(&["live-leak"]),
        swap(
            "each of six frames of a renderer adds a texture; its targets come and go",
            "loop 6; push 300M; alloc a 2G; alloc b 1500M; launch; sleep 60; free b; free a; sleep 60; end".to_owned(),
        )
        .also(&["live-leak"]),
        swap(
            "a kernel is compiled for each of five data sets, and the driver keeps memory for its code",
            "loop 5; alloc a 2G; alloc b 2G; launch; sleep 250; free b; free a; module; sleep 250; end; push 3G".to_owned(),
        )
        .set("SIM_HIDDEN_PER_MODULE", "200M")
        .also(&["hidden-runtime-memory"]),
        swap(
            "a library takes memory of its own in the first rounds, and no more in the later ones",
            "loop 3; alloc a 2G; alloc b 2G; launch; sleep 150; free b; free a; module; sleep 150; end; \
             loop 5; alloc a 2G; alloc b 2G; launch; sleep 150; free b; free a; sleep 150; end; push 3G"
                .to_owned(),
        )
        .set("SIM_HIDDEN_PER_MODULE", "200M")
        .also(&["hidden-runtime-memory"]),
    ]
}

fn modules() -> Vec<Scene> {
    let modules = |story, script: String| looks_like("module-load-unbalanced", story, script);
    vec![
        modules(
            "a compiler makes 120 kernels in the first steps, and then 40 steps run without a new one",
            "alloc m 1G; loop 12; loop 10; module; end; alloc t 1G; launch; sleep 2; free t; end; \
             loop 40; alloc t 1G; launch; sleep 2; free t; end"
                .to_owned(),
        ),
        modules(
            "variants of a kernel are tried in the first third, all are kept for later calls",
            "alloc m 1G; loop 90; module; sleep 1; end; loop 60; alloc t 1G; launch; sleep 3; free t; end".to_owned(),
        ),
        modules(
            "a cache of 60 modules, emptied when it is full; the run ends while it fills for the fourth time",
            "alloc m 1G; loop 3; loop 60; module; sleep 1; end; loop 60; unload; end; end; loop 55; module; sleep 1; end".to_owned(),
        ),
        modules(
            "two parts of a program load 40 modules each when they begin",
            "alloc m 1G; loop 40; module; end; loop 30; alloc t 1G; launch; sleep 2; free t; end; loop 40; module; end; \
             loop 30; alloc t 1G; launch; sleep 2; free t; end"
                .to_owned(),
        ),
    ]
}

fn versions() -> Vec<Scene> {
    let version = |story, number: u64, script: String| {
        looks_like("known-bad-version", story, script).set("SIM_HIP_VERSION", number)
    };
    let mismatch = |story, torch, hip, number: u64| {
        looks_like("version-mismatch", story, "alloc a 1G; sleep 250").torch(torch, hip).set("SIM_HIP_VERSION", number)
    };
    vec![
        version("ROCm 6.4, and nothing that is wrong in it is used", 60_443_483, format!("{FIELDS} {TOO_MUCH}"))
            .also(&["true-capacity"]),
        version("ROCm 7.0, and no memory is exported", 70_051_831, format!("{FIELDS} {TOO_MUCH}"))
            .also(&["true-capacity"]),
        version(
            "modules on HIP 5.7, where the leak of 5.6.0 is mended",
            50_731_921,
            format!("loop 80; module; unload; end; {FIELDS} {TOO_MUCH}"),
        )
        .also(&["true-capacity"]),
        mismatch("PyTorch for ROCm 7.0 with its own runtime of 7.0", "2.10.0+rocm7.0", "7.0.51831", 70_051_831),
        mismatch("the same with another patch of the runtime", "2.10.0+rocm7.0", "7.0.51831", 70_051_899),
        mismatch("PyTorch for ROCm 6.4 and a runtime of 6.4", "2.9.0+rocm6.4", "6.4.43483-a187df25c", 60_443_484),
    ]
}
