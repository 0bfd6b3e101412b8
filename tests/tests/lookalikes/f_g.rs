//! F. Errors, G. platforms, and which card is meant.

mod apus;
mod cards;
mod errors;
mod host;
mod versions;

use crate::machine::Machine;
use crate::scene::Scene;

const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;

pub(crate) fn scenes() -> Vec<Scene> {
    [errors::scenes(), apus::scenes(), host::scenes(), versions::scenes(), cards::scenes()].concat()
}

fn mib(bytes: u64) -> String {
    format!("{}M", bytes / MIB)
}

/// A machine with another GPU of AMD: `card<number>` in that slot, with so much memory.
fn beside(machine: Machine, number: u32, slot: &str, vram: u64, gtt: u64) -> Machine {
    let device = format!("sys/class/drm/card{number}/device");
    machine
        .with(&format!("{device}/vendor"), "0x1002")
        .with(&format!("{device}/device"), "0x164e")
        .with(&format!("{device}/uevent"), format!("DRIVER=amdgpu\nPCI_ID=1002:164E\nPCI_SLOT_NAME={slot}"))
        .with(&format!("{device}/mem_info_vram_total"), vram)
        .with(&format!("{device}/mem_info_vram_used"), 100 * MIB)
        .with(&format!("{device}/mem_info_vis_vram_total"), vram)
        .with(&format!("{device}/mem_info_vis_vram_used"), 100 * MIB)
        .with(&format!("{device}/mem_info_gtt_total"), gtt)
        .with(&format!("{device}/mem_info_gtt_used"), 16 * MIB)
}

/// KFD's node of a GPU: what it is, where it is on the bus, and its render node.
fn node(machine: Machine, number: u32, gpu_id: u32, target: u32, location: u32, minor: u32) -> Machine {
    let node = format!("sys/class/kfd/kfd/topology/nodes/{number}");
    let properties = format!(
        "cpu_cores_count 0\nsimd_count 4\nmem_banks_count 1\ngfx_target_version {target}\nvendor_id 4098\ndevice_id 5710\n\
         location_id {location}\ndomain 0\ndrm_render_minor {minor}\nlocal_mem_size 0"
    );
    machine.with(&format!("{node}/gpu_id"), gpu_id).with(&format!("{node}/properties"), properties)
}

/// A card with so much memory, all of it visible to the processor.
fn card_of(vram: u64) -> Machine {
    let device = "sys/class/drm/card1/device";
    Machine::card()
        .with(&format!("{device}/mem_info_vram_total"), vram)
        .with(&format!("{device}/mem_info_vis_vram_total"), vram)
}

/// The 24 GiB card at `card1`, 0000:03:00.0, and beside it the graphics of a Ryzen processor, at `card0`, 0000:0e:00.0.
fn card_and_processor_graphics() -> Machine {
    let machine = beside(Machine::card(), 0, "0000:0e:00.0", 512 * MIB, 31 * GIB);
    node(machine, 2, 7_777, 100_306, 0x0e00, 129)
}

/// On that machine, the program sees only the 24 GiB card.
fn on_the_card(scene: Scene) -> Scene {
    scene
        .on(card_and_processor_graphics())
        .set("SIM_PCI_BUS_ID", "0000:03:00.0")
        .set("SIM_SYSFS_CARD", "card1")
        .set("SIM_CAPACITY", 24 * GIB)
}
