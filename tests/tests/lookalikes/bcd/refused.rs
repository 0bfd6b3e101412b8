//! C. What looks as if free memory had been refused, or as if somebody else had it.

use super::HIP_7;
use crate::looks_like;
use crate::machine::Machine;
use crate::scene::Scene;

pub(crate) fn scenes() -> Vec<Scene> {
    [enough(), others(), left_behind(), pending()].concat()
}

fn enough() -> Vec<Scene> {
    let id = "phantom-free";
    vec![
        looks_like(
            id,
            "22 of 24 GiB were live; they are given back at once when 4 more are refused, before anybody looks",
            "push 1G 22; failures go; alloc x 4G; pop; sleep 100; exit 1",
        )
        .set("GPUOOM_PROBE", "off")
        .also(&["true-capacity"]),
        looks_like(
            id,
            "the same, and it is another thread that gives them back",
            "push 1G 22; failures go; alloc x 4G; thread other; pop; end; sleep 100; exit 1",
        )
        .set("GPUOOM_PROBE", "off")
        .also(&["true-capacity"]),
        looks_like(id, "the failure was asked for: it was injected", "alloc a 1G; alloc b 64M")
            .set("GPUOOM_INJECT", "oom@2")
            .also(&["requested-refusal"]),
        looks_like(id, "the failure was asked for: a card of 8 GiB was played", "push 1G 7; alloc b 4G")
            .set("GPUOOM_CAPACITY", "8G")
            .also(&["true-capacity", "requested-refusal"]),
        looks_like(id, "pinned memory of the host is refused, and the card is empty", "host a 1G; host b 4G")
            .set("SIM_PINNED_LIMIT", "2G")
            .also(&["pinned-host-exhaustion"]),
        looks_like(
            id,
            "addresses are refused, which take no memory",
            "alloc a 1G; failures go; reserve 3000001; sleep 100; exit 1",
        ),
        looks_like(
            id,
            "the second card is full, and the first one is empty",
            "alloc a 1G; device 1; push 1G 23; alloc x 4G",
        )
        .set("SIM_DEVICES", 2)
        .also(&["true-capacity"]),
    ]
}

fn others() -> Vec<Scene> {
    let id = "other-process-on-gpu";
    let process = |gpu: u32, gib: u64| Machine::card().with(&format!("sys/class/kfd/kfd/proc/1/vram_{gpu}"), gib << 30);
    vec![
        looks_like(id, "the other process has another card", "push 1G 23; alloc x 4G")
            .on(process(60_001, 20))
            .also(&["true-capacity"]),
        looks_like(
            id,
            "the other process has 3 GiB, and without it 8 more would not fit either",
            "push 1G 20; alloc x 8G",
        )
        .on(process(51_312, 3))
        .set("SIM_OTHERS", "3G")
        .also(&["true-capacity"]),
        looks_like(
            id,
            "in a container: the process in KFD's list is this one, under its number outside",
            "push 1G 22; sleep 60; alloc x 4G",
        )
        .on(process(51_312, 22))
        .set("SIM_SYSFS_GPU", "")
        .also(&["true-capacity"]),
        looks_like(
            id,
            "the other process has ended, and the driver keeps its entry and its memory",
            "alloc a 1G; alloc b 8G",
        )
        .on(Machine::card().with("proc/1/stat", 1).with("sys/class/kfd/kfd/proc/4242/vram_51312", 20_u64 << 30))
        .set("SIM_OTHERS", "20G")
        .also(&["zombie-vram"]),
        looks_like(id, "the other process holds 12 GiB of which nothing was missing", "push 1G 4; alloc x 2G")
            .on(process(51_312, 12))
            .set("SIM_OTHERS", "12G")
            .set("SIM_PROCESS_LIMIT", "5G")
            .also(&["phantom-free"]),
    ]
}

fn left_behind() -> Vec<Scene> {
    let id = "zombie-vram";
    let headless = || Machine::card().with("sys/class/drm/card1/device/boot_vga", 0);
    let elsewhere = |machine: Machine| machine.with("sys/class/drm/card1/device/mem_info_vram_used", 12_u64 << 30);
    vec![
        looks_like(id, "a desktop is drawn with the card", "alloc a 1G; alloc b 23G")
            .on(Machine::card().with("sys/class/drm/card1/device/boot_vga", 1))
            .set("SIM_OTHERS", "2G"),
        looks_like(id, "it is another card that is in use", "push 1G 23; alloc b 4G")
            .on(elsewhere(headless()))
            .set("SIM_SYSFS_CARD", "")
            .set("SIM_PCI_BUS_ID", "0000:26:00.0")
            .also(&["true-capacity"]),
        looks_like(id, "a living process holds what was in use before", "alloc a 1G; alloc b 20G")
            .on(headless().with("sys/class/kfd/kfd/proc/1/vram_51312", 7_800_u64 << 20))
            .set("SIM_OTHERS", "8G")
            .also(&["other-process-on-gpu"]),
    ]
}

fn pending() -> Vec<Scene> {
    let id = "async-free-pending";
    vec![
        looks_like(
            id,
            "2 GiB were pending, and 12 were given back with hipFree before the next try",
            "push 1G 20; async a 2G; free a; failures retry; on_failure; sync; pop 12; end; alloc x 10G",
        )
        .set("SIM_FREES_WAIT", 1)
        .set("SIM_HIP_VERSION", HIP_7)
        .also(&["true-capacity"]),
        looks_like(
            id,
            "as much was pending as was missing, and as much was given back by another thread before the next try",
            "push 1G 12; async a 8G; free a; failures retry; on_failure; thread other; pop 10; end; sync; end; alloc x 12G",
        )
        .set("SIM_HIP_VERSION", HIP_7),
        looks_like(
            id,
            "what was freed stays with the pool, as it was told to",
            "keep 20G; async a 12G; free a; sync; push 1G 4; alloc x 16G",
        )
        .set("SIM_HIP_VERSION", HIP_7)
        .also(&["pool-retention"]),
        looks_like(
            id,
            "it was freed on another card",
            "device 1; async a 12G; device 0; push 1G 20; device 1; free a; device 0; failures retry; on_failure; sync; pop 6; end; \
             alloc x 10G",
        )
        .set("SIM_DEVICES", 2)
        .set("SIM_FREES_WAIT", 1)
        .set("SIM_HIP_VERSION", HIP_7)
        .also(&["true-capacity"]),
    ]
}
