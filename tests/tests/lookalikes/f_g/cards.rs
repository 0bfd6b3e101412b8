//! Which card: what another card of the machine did says nothing about the program's.

use super::{GIB, MIB, beside, card_and_processor_graphics, node, on_the_card};
use crate::looks_like;
use crate::machine::Machine;
use crate::scene::Scene;

pub(super) fn scenes() -> Vec<Scene> {
    [counters(), tools(), logs()].concat()
}

/// Two cards of 24 GiB: `card1` at 0000:03:00.0, `card2` at 0000:83:00.0.
fn two_cards() -> Machine {
    let machine = beside(Machine::card(), 2, "0000:83:00.0", 25_753_026_560, 31 * GIB);
    node(machine, 2, 9_999, 110_000, 0x8300, 129)
}

/// A program that sees only the second of the two cards, and fills it.
fn on_the_second(scene: crate::scene::Scene) -> Scene {
    scene
        .on(two_cards())
        .set("HIP_VISIBLE_DEVICES", 1)
        .set("SIM_PCI_BUS_ID", "0000:83:00.0")
        .set("SIM_SYSFS_CARD", "card2")
        .set("SIM_SYSFS_GPU", 9999)
}

fn counters() -> Vec<Scene> {
    let others = |machine: Machine| {
        machine
            .with("sys/class/kfd/kfd/proc/1/vram_51312", 20 * GIB)
            .with("sys/class/drm/card1/device/mem_info_vram_used", 20 * GIB)
    };
    vec![
        on_the_second(looks_like(
            "other-process-on-gpu",
            "another process fills the first card, the program has the second",
            "push 1G 22; alloc b 4G",
        ))
        .on(others(two_cards()))
        .also(&["true-capacity"]),
        looks_like(
            "other-process-on-gpu",
            "the same, and the runtime does not tell where its device is",
            "push 1G 22; alloc b 4G",
        )
        .on(others(two_cards()))
        .set("HIP_VISIBLE_DEVICES", 1)
        .set("SIM_PCI_BUS_ID", "-")
        .set("SIM_SYSFS_CARD", "card2")
        .set("SIM_SYSFS_GPU", 9999)
        .also(&["true-capacity"]),
        on_the_card(looks_like(
            "uma-carveout-only",
            "the runtime does not tell which of two GPUs it is",
            "push 1G 22; alloc b 4G",
        ))
        .set("SIM_PCI_BUS_ID", "-")
        .also(&["true-capacity"]),
        looks_like(
            "gtt-exhaustion",
            "the graphics of a Ryzen have a full GTT, the program has an NVIDIA card",
            "alloc a 1G; sleep 250; exit 1",
        )
        .on(beside(Machine::of("nvidia"), 1, "0000:0e:00.0", 512 * MIB, 31 * GIB)
            .with("sys/class/drm/card1/device/mem_info_gtt_used", 31 * GIB))
        .set("SIM_CAPACITY", 24 * GIB)
        .set("SIM_SYSFS_CARD", "")
        .cuda(),
        looks_like(
            "xnack-ineffective",
            "a gfx90a as the second device, gfx1100 as the first",
            "device 1; alloc a 1G; sleep 250",
        )
        .on(node(beside(Machine::card(), 2, "0000:83:00.0", 64 * GIB, 31 * GIB), 2, 9_999, 90_010, 0x8300, 129))
        .set("HSA_XNACK", 1)
        .set("SIM_DEVICES", 2)
        .set("SIM_PCI_BUS_ID", "0000:03:00.0,0000:83:00.0"),
    ]
}

/// `nvidia-smi --query-compute-apps` and such, of two cards.
fn tools() -> Vec<Scene> {
    let nvidia = || {
        Machine::of("nvidia")
            .with(
                "proc/driver/nvidia/gpus/0000:41:00.0/information",
                "Model: \t\t NVIDIA GeForce RTX 4090\nBus Location: \t 0000:41:00.0\nDevice Minor: \t 1",
            )
            .with("sys/class/drm/card1/device/uevent", "DRIVER=nvidia\nPCI_ID=10DE:2684\nPCI_SLOT_NAME=0000:41:00.0")
            .with("sys/class/drm/card1/device/vendor", "0x10de")
            .with("sys/class/drm/card1/device/device", "0x2684")
    };
    // The first card is full with another process's memory; the second one is empty.
    let smi = "index, pci.bus_id, memory.total [MiB], memory.used [MiB], memory.free [MiB]\n\
               0, 00000000:01:00.0, 24576 MiB, 23000 MiB, 1576 MiB\n1, 00000000:41:00.0, 24576 MiB, 22600 MiB, 1976 MiB\n";
    let on_the_other = |story| {
        looks_like("other-process-on-gpu", story, "push 1G 22; alloc b 4G")
            .on(nvidia())
            .cuda()
            .given("--nvidia-smi", smi)
            .also(&["true-capacity"])
    };
    vec![
        on_the_other("CUDA_VISIBLE_DEVICES=1: what nvidia-smi says of card 0 is not the program's")
            .set("CUDA_VISIBLE_DEVICES", 1)
            .set("SIM_PCI_BUS_ID", "0000:41:00.0"),
        on_the_other("CUDA's order of devices is not that of nvidia-smi, and no address is known")
            .set("SIM_PCI_BUS_ID", "-"),
    ]
}

fn logs() -> Vec<Scene> {
    let fault = "[  812.113215] amdgpu 0000:0e:00.0: amdgpu: ring gfx_0.0.0 timeout, signaled seq=12, emitted seq=14\n\
                 [  812.113300] amdgpu 0000:0e:00.0: amdgpu: GPU reset begin!\n";
    let retired = "[   12.113215] amdgpu 0000:83:00.0: amdgpu: 64 pages are reserved for bad memory\n\
                   [   12.113300] [drm:amdgpu_cs_ioctl [amdgpu]] *ERROR* Not enough memory for command submission!\n";
    vec![
        on_the_card(looks_like(
            "driver-stranded-vram",
            "the processor's graphics were reset, the card was not",
            "push 1G 22; alloc b 4G",
        ))
        .given("--kernel-log", fault)
        .also(&["true-capacity"]),
        on_the_card(looks_like(
            "zombie-vram",
            "the processor's graphics hold memory of a process that is gone",
            "push 1G 22; alloc b 4G",
        ))
        .on(card_and_processor_graphics().with("sys/class/kfd/kfd/proc/4194000/vram_7777", 400 * MIB))
        .also(&["true-capacity"]),
        looks_like("retired-pages", "the kernel retired memory of the other card", "push 1G 22; alloc b 4G")
            .on(two_cards())
            .set("SIM_PCI_BUS_ID", "0000:03:00.0")
            .given("--kernel-log", retired)
            .also(&["true-capacity"]),
    ]
}
