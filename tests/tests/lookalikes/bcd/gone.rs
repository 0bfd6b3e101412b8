//! C and D. Memory that was given back and does not seem to be free, or that nobody seems to have asked for.

use super::{HIP_6, HIP_7};
use crate::looks_like;
use crate::machine::Machine;
use crate::scene::Scene;

pub(crate) fn scenes() -> Vec<Scene> {
    [exported(), hidden(), released()].concat()
}

fn exported() -> Vec<Scene> {
    let id = "ipc-export-pin";
    let story = |story, script: &str| {
        let script = format!("alloc a 8G; export a; alloc b 4G; export b; sleep 250; {script}");
        looks_like(id, story, script).set("SIM_HIP_VERSION", HIP_7)
    };
    vec![
        story(
            "what was given back is taken again at once, by blocks of its own",
            "free a; free b; push 1G 22; sleep 250; alloc c 8G",
        )
        .also(&["known-bad-version", "true-capacity"]),
        story("the importer still has it open, as it may", "free a; free b; sleep 250; alloc c 20G")
            .on(Machine::card().with("sys/class/kfd/kfd/proc/1/vram_51312", 512_u64 << 20))
            .set("SIM_OTHERS", "512M")
            .set("SIM_EXPORTS_STAY", 1)
            .also(&["known-bad-version"]),
        story("exports as before ROCm 7.0 were chosen", "free a; free b; sleep 250; module; sleep 250; alloc c 20G")
            .set("HSA_ENABLE_IPC_MODE_LEGACY", 1)
            .set("SIM_HIDDEN_PER_MODULE", "12G")
            .also(&["known-bad-version"]),
        story("nothing was read between the frees and the next blocks", "free a; free b; push 2G 11; alloc c 8G")
            .also(&["known-bad-version", "true-capacity"]),
    ]
}

fn hidden() -> Vec<Scene> {
    let id = "hidden-runtime-memory";
    vec![
        looks_like(id, "1,500 blocks of 64 KiB take 2 MiB each", "push 64K 1500; push 1G 19; alloc b 4G")
            .also(&["true-capacity"]),
        looks_like(
            id,
            "a pool keeps what was freed, as it was told to",
            "keep 20G; async a 6G; free a; sync; push 1G 14; alloc b 8G",
        )
        .set("SIM_HIP_VERSION", HIP_7)
        .also(&["pool-retention"]),
        looks_like(id, "handles were unmapped and not released", "virtual v 4G; unmap v; push 1G 16; alloc b 6G")
            .set("SIM_HIP_VERSION", HIP_7)
            .also(&["true-capacity"]),
    ]
}

fn released() -> Vec<Scene> {
    let id = "vmm-release-ineffective";
    let each = |command: &str, rest: &str| ["a", "b", "c", "d"].map(|name| format!("{command} {name}{rest};")).concat();
    let on_hip = |story, script: String, version: u64| looks_like(id, story, script).set("SIM_HIP_VERSION", version);
    vec![
        on_hip(
            "what is released is taken again at once",
            format!(
                "alloc w 1G; {} sleep 80; {} push 2G 4; sleep 80; push 1G 14; alloc x 4G",
                each("virtual", " 2G"),
                each("release", "")
            ),
            HIP_6,
        )
        .also(&["known-bad-version", "true-capacity"]),
        on_hip(
            "it is only unmapped, and its handles still have the memory",
            format!(
                "alloc w 1G; {} sleep 80; {} sleep 80; push 1G 14; alloc x 4G",
                each("virtual", " 2G"),
                each("unmap", "")
            ),
            HIP_6,
        )
        .also(&["known-bad-version", "true-capacity"]),
        on_hip(
            "between release and the next reading a library takes as much for itself",
            format!(
                "alloc w 1G; {} sleep 80; {} module; sleep 80; alloc x 23500M",
                each("virtual", " 2G"),
                each("release", "")
            ),
            HIP_7,
        )
        .set("SIM_HIDDEN_PER_MODULE", "8G"),
    ]
}
