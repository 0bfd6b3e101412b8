//! G. Refused memory of the host, and limits that somebody else's memory meets.

use super::{GIB, MIB, mib, on_the_card};
use crate::looks_like;
use crate::machine::{APU, CARD, Machine, ram_bytes};
use crate::scene::Scene;

pub(super) fn scenes() -> Vec<Scene> {
    [kfd_limit(), pinned(), gtt(), device_group()].concat()
}

fn kfd_limit() -> Vec<Scene> {
    const ID: &str = "kfd-system-memory-limit";
    let ram = ram_bytes(CARD);
    vec![
        looks_like(ID, "pinned memory is refused by far before the kernel's limit", "host a 1G; host b 4G")
            .set("SIM_PINNED_LIMIT", "2G")
            .also(&["pinned-host-exhaustion"]),
        looks_like(
            ID,
            "over CUDA there is no KFD",
            format!("host a {}; host b {}", mib(ram / 5 * 2), mib(ram / 5 * 3)),
        )
        .on(Machine::of("nvidia"))
        .set("SIM_PINNED_LIMIT", ram / 2)
        .cuda()
        .also(&["pinned-host-exhaustion"]),
        looks_like(
            ID,
            "half of the RAM is pinned, and memory of the card is refused",
            format!("host a {}; push 1G 22; alloc b 4G", mib(ram / 5 * 2)),
        )
        .on(Machine::card().with("sys/module/ttm/parameters/pages_limit", ram / 2 / 4096))
        .also(&["true-capacity"]),
        looks_like(
            ID,
            "more had been pinned before than the kernel is said to give",
            format!("host a {}; host b 1G", mib(ram / 5 * 3)),
        )
        .on(Machine::card().with("sys/module/ttm/parameters/pages_limit", ram / 2 / 4096))
        .set("SIM_FAIL_AT", 2)
        .also(&["pinned-host-exhaustion"]),
        looks_like(
            ID,
            "pinned memory was given back before the request that is refused",
            format!("loop 3; host a {}; free a; end; host b 4G", mib(ram / 5 * 2)),
        )
        .set("SIM_FAIL_AT", 4)
        .also(&["pinned-host-exhaustion"]),
    ]
}

fn pinned() -> Vec<Scene> {
    const ID: &str = "pinned-host-exhaustion";
    vec![
        looks_like(ID, "much is pinned, and the card is full", "host a 30G; push 1G 22; alloc b 4G")
            .also(&["true-capacity"]),
        looks_like(ID, "managed memory is refused", "push 1G 22; managed m 4G").also(&["true-capacity"]),
        looks_like(ID, "the failure was made to order, to try the program", "host a 1G; host b 1G")
            .set("GPUOOM_INJECT", "oom@2")
            .also(&["requested-refusal"]),
        looks_like(ID, "a size that is a negative number", "host a 1G; host b 16000000T")
            .set("SIM_PINNED_LIMIT", "64G"),
    ]
}

fn gtt() -> Vec<Scene> {
    const ID: &str = "gtt-exhaustion";
    let used = |machine: Machine, bytes: u64| machine.with("sys/class/drm/card1/device/mem_info_gtt_used", bytes);
    let half = ram_bytes(APU) / 2;
    vec![
        looks_like(
            ID,
            "the card is full, and GTT is, too: the request is for the card",
            "push 1G 22; sleep 250; alloc b 4G",
        )
        .on(used(Machine::card(), 33_600_000_000))
        .also(&["true-capacity"]),
        looks_like(
            ID,
            "on an APU, GTT is where the GPU's memory is",
            format!("push {} 95; sleep 250; alloc b 8G", mib(half / 100)),
        )
        .on(used(Machine::apu(half, 512 * MIB, half, half), half / 100 * 96))
        .set("SIM_CAPACITY", half)
        .set("SIM_SYSFS_CARD", "")
        .also(&["true-capacity", "uma-ttm-limit"]),
        looks_like(ID, "GTT is full, and the run ends well", "alloc a 1G; launch; sleep 250; free a")
            .on(used(Machine::card(), 33_600_000_000)),
        on_the_card(looks_like(ID, "the GTT of the processor's graphics is full", "alloc a 1G; sleep 250; exit 1"))
            .on(super::card_and_processor_graphics().with("sys/class/drm/card0/device/mem_info_gtt_used", 31 * GIB)),
    ]
}

fn device_group() -> Vec<Scene> {
    const ID: &str = "device-cgroup-limit";
    let group = |max: &str| Machine::of("container").with("sys/fs/cgroup/dmem.max", max);
    let refused = |story, machine: Machine| {
        looks_like(ID, story, "push 1G 7; alloc b 2G")
            .on(machine)
            .set("SIM_PROCESS_LIMIT", "8G")
            .also(&["phantom-free"])
    };
    vec![
        refused("the limit is another card's", group("drm/0000:0e:00.0/vram 8589934592")),
        refused("the limit is 20 GiB, and far away", group("drm/0000:03:00.0/vram 21474836480")),
        refused("the limit is for a region that is not the card's memory", group("drm/0000:03:00.0/stolen 8589934592")),
        looks_like(ID, "the program held 12 GiB before in a group that may have 8", "push 1G 12; alloc b 3G")
            .on(Machine::of("container"))
            .set("SIM_FAIL_AT", 13)
            .also(&["phantom-free"]),
        looks_like(ID, "3 GiB are given to the probe after 6 in a group that may have 8", "push 1G 6; alloc b 3G")
            .on(Machine::of("container"))
            .set("SIM_FAIL_AT", 7)
            .also(&["phantom-free"]),
        looks_like(ID, "the card is full, in a group that may have 8 of its 24 GiB", "push 1G 22; alloc b 3G")
            .on(Machine::of("container"))
            .also(&["true-capacity"]),
        looks_like(ID, "pinned memory is refused in a group with a limit", "push 1G 7; host b 4G")
            .on(Machine::of("container"))
            .set("SIM_PINNED_LIMIT", "2G")
            .also(&["pinned-host-exhaustion"]),
    ]
}
