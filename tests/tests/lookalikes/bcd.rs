//! B. Fragmentation, C. free memory that is none, and D. pools.

mod caches;
mod counts;
mod gone;
mod options;
mod pools;
mod readings;
mod refused;

use crate::scene::Scene;

/// The HIP of ROCm 7.0 and of 6.4.
const HIP_7: u64 = 70_051_831;
const HIP_6: u64 = 60_443_483;

pub(crate) fn scenes() -> Vec<Scene> {
    [
        caches::scenes(),
        counts::scenes(),
        refused::scenes(),
        readings::scenes(),
        gone::scenes(),
        pools::scenes(),
        options::scenes(),
    ]
    .concat()
}

/// On PyTorch for ROCm 7.0, whose library asks for what `alloc` and `push` ask for.
fn of_torch(id: &'static str, story: &'static str, script: &str) -> Scene {
    of_torch_version(id, story, script, "2.10.0+rocm7.0")
}

fn of_torch_version(id: &'static str, story: &'static str, script: &str, version: &str) -> Scene {
    let script = format!("through {{lib}}/libtorch_hip.so; {script}");
    crate::looks_like(id, story, script).torch(version, "7.0.51831").set("SIM_HIP_VERSION", HIP_7)
}
