//! C. Readings that differ, and conditions of the machine.

use super::HIP_7;
use crate::looks_like;
use crate::machine::{APU, Machine, ram_bytes};
use crate::scene::Scene;

pub(crate) fn scenes() -> Vec<Scene> {
    [graphics(), sysfs_is_higher(), harmless(), conditions()].concat()
}

/// A card that is not the one that the program uses, with so much of it in use.
fn other_card(used_mib: u64) -> Machine {
    Machine::card().with("sys/class/drm/card1/device/mem_info_vram_used", used_mib << 20)
}

/// The program's card is at another place of the bus, of which sysfs says nothing.
fn elsewhere(scene: Scene) -> Scene {
    scene.set("SIM_SYSFS_CARD", "").set("SIM_PCI_BUS_ID", "0000:26:00.0")
}

fn graphics() -> Vec<Scene> {
    let id = "free-overreported-graphics";
    vec![
        elsewhere(
            looks_like(id, "the desktop is on another card", "push 1G 18; alloc x 5G")
                .on(other_card(21_000))
                .set("SIM_PROCESS_LIMIT", "20G"),
        )
        .also(&["phantom-free"]),
        looks_like(id, "a compute process holds what HIP leaves out", "push 1G 18; alloc x 5G")
            .on(Machine::card().with("sys/class/kfd/kfd/proc/1/vram_51312", 2_u64 << 30))
            .set("SIM_OTHERS", "2G")
            .set("SIM_OVER_REPORTED", "2G")
            .also(&["other-process-on-gpu"]),
        looks_like(
            id,
            "no display hangs on the card, and nobody has it open: memory without an owner",
            "push 1G 18; alloc x 5G",
        )
        .on(Machine::card().with("sys/class/drm/card1/device/boot_vga", 0))
        .set("SIM_OTHERS", "2G")
        .set("SIM_OVER_REPORTED", "2G"),
        looks_like(id, "both readings are below the request", "push 1G 21; alloc x 8G")
            .set("SIM_OTHERS", "1G")
            .set("SIM_OVER_REPORTED", "1G")
            .also(&["true-capacity"]),
    ]
}

fn sysfs_is_higher() -> Vec<Scene> {
    let id = "sysfs-free-overreported";
    vec![
        elsewhere(looks_like(id, "sysfs speaks of another card", "push 1G 22; alloc x 4G").on(other_card(100)))
            .also(&["true-capacity"]),
        looks_like(id, "a setting hides 8 GiB from HIP", "push 1G 14; alloc x 4G")
            .set("HIP_HIDDEN_FREE_MEM", 8192)
            .set("SIM_UNDER_REPORTED", "8G")
            .set("SIM_PROCESS_LIMIT", "16G")
            .also(&["process-fraction-cap"]),
        looks_like(id, "a slice of the board: sysfs has the counters of all of it", "push 1G 22; alloc x 4G")
            .on(Machine::of("mi300x"))
            .set("SIM_CAPACITY", 25_757_220_864_u64)
            .set("SIM_SYSFS_CARD", "")
            .set("SIM_PCI_BUS_ID", "0000:26:00.0")
            .also(&["true-capacity", "partition-slice"]),
    ]
}

fn harmless() -> Vec<Scene> {
    let id = "reading-mismatch-benign";
    vec![
        looks_like(
            id,
            "170 MiB apart, and the request lies just between the two readings",
            "push 1G 23; push 200M; alloc x 600M",
        )
        .set("SIM_OTHERS", "170M")
        .set("SIM_OVER_REPORTED", "170M")
        .also(&["free-overreported-graphics", "true-capacity"]),
        elsewhere(
            looks_like(id, "the readings are of two cards that are equally full", "push 1G 22; alloc x 4G")
                .on(other_card(22_600)),
        )
        .also(&["true-capacity"]),
        looks_like(id, "there is one reading and no other", "push 1G 22; alloc x 4G").cuda().also(&["true-capacity"]),
    ]
}

fn conditions() -> Vec<Scene> {
    let idle = |id, story| looks_like(id, story, "alloc a 1G; sleep 250").set("SIM_HIP_VERSION", HIP_7);
    let visible = |bytes: &str| Machine::card().with("sys/class/drm/card1/device/mem_info_vis_vram_total", bytes);
    let (bar, gfx) = ("bar-visible-limit", "gfx-override-active");
    vec![
        idle(bar, "32 MiB are missing, which is the card's own reserve").on(visible("25719472128")),
        idle(bar, "an APU, whose processor reaches all of the memory")
            .on(Machine::of(APU))
            .set("SIM_CAPACITY", ram_bytes(APU) / 2)
            .set("SIM_SYSFS_CARD", ""),
        idle(bar, "the file can't be read").on(visible("")),
        elsewhere(idle(bar, "it is another card that has a small window").on(visible("268435456"))),
        idle(gfx, "a program over CUDA, in a shell that has the variable")
            .set("HSA_OVERRIDE_GFX_VERSION", "11.0.0")
            .cuda(),
        idle(gfx, "the variable is for another node").set("HSA_OVERRIDE_GFX_VERSION_5", "10.3.0"),
        idle(gfx, "a name that only looks like it").set("MY_HSA_OVERRIDE_GFX_VERSION", "10.3.0"),
    ]
}
