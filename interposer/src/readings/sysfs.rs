//! What the amdgpu kernel driver shows in sysfs. Sources: Linux `amdgpu_vram_mgr.c`, `amdkfd/kfd_process.c`.

use std::fs;
use std::path::{Path, PathBuf};

use gpuoom_trace::metadata::{Quantity, Reading};

use crate::config::Config;

/// A card with memory counters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Card {
    directory: PathBuf,
    pci_bus_id: String,
    /// Index of the program's runtime once it is known, else the card's position.
    device: u8,
}

const COUNTERS: [(&str, Quantity); 6] = [
    ("mem_info_vram_total", Quantity::VramTotal),
    ("mem_info_vram_used", Quantity::VramUsed),
    ("mem_info_vis_vram_total", Quantity::VisibleVramTotal),
    ("mem_info_vis_vram_used", Quantity::VisibleVramUsed),
    ("mem_info_gtt_total", Quantity::GttTotal),
    ("mem_info_gtt_used", Quantity::GttUsed),
];

/// The number in a file of one line.
pub(super) fn number(path: &Path) -> Option<u64> {
    fs::read_to_string(path).ok()?.trim().parse().ok()
}

/// The cards of this machine, in the order of their numbers.
pub(super) fn cards(config: &Config) -> Vec<Card> {
    let Ok(entries) = fs::read_dir(config.system_path("/sys/class/drm")) else { return Vec::new() };
    let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    let mut numbers: Vec<u32> = names.filter_map(|name| name.strip_prefix("card")?.parse().ok()).collect();
    numbers.sort_unstable();
    let directory = |number: &u32| config.system_path(&format!("/sys/class/drm/card{number}/device"));
    let with_counters = numbers.iter().map(directory).filter(|path| path.join("mem_info_vram_total").exists());
    with_counters
        .enumerate()
        .map(|(position, directory)| Card { pci_bus_id: pci_bus_id(&directory), directory, device: position as u8 })
        .collect()
}

fn pci_bus_id(directory: &Path) -> String {
    let uevent = fs::read_to_string(directory.join("uevent")).unwrap_or_default();
    let slot = uevent.lines().find_map(|line| line.strip_prefix("PCI_SLOT_NAME="));
    slot.unwrap_or_default().to_ascii_lowercase()
}

/// Gives the card with this bus id the runtime's index; the index that it had goes to the card that held the other.
pub(super) fn assign(cards: &mut [Card], device: u8, pci_bus_id: &str) {
    let wanted = pci_bus_id.to_ascii_lowercase();
    let Some(found) = cards.iter().position(|card| !wanted.is_empty() && card.pci_bus_id == wanted) else { return };
    let before = cards[found].device;
    for card in cards.iter_mut().filter(|card| card.device == device) {
        card.device = before;
    }
    cards[found].device = device;
}

/// Reads the counters of all cards and this process's share of KFD memory.
pub(super) fn read(config: &Config, cards: &[Card], readings: &mut Vec<Reading>) {
    for card in cards {
        for (file, quantity) in COUNTERS {
            if let Some(value) = number(&card.directory.join(file)) {
                readings.push(Reading { quantity: quantity as u16, device: card.device, value });
            }
        }
    }
    let process = config.system_path(&format!("/sys/class/kfd/kfd/proc/{}", std::process::id()));
    for (position, (gpu_id, _)) in gpu_nodes(config).iter().enumerate() {
        if let Some(value) = number(&process.join(format!("vram_{gpu_id}"))) {
            readings.push(Reading { quantity: Quantity::KfdProcessVram as u16, device: position as u8, value });
        }
    }
}

/// KFD's numbers of the GPUs, each with the path of its properties, in the order of its topology, which is the order in
/// which ROCr counts them (unless the program's environment selects some).
pub(crate) fn gpu_nodes(config: &Config) -> Vec<(u64, PathBuf)> {
    let nodes = config.system_path("/sys/class/kfd/kfd/topology/nodes");
    let Ok(entries) = fs::read_dir(&nodes) else { return Vec::new() };
    let mut numbers: Vec<u32> = entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok()).collect();
    numbers.sort_unstable();
    let directories = numbers.iter().map(|node| nodes.join(node.to_string()));
    let with_ids = directories.filter_map(|node| Some((number(&node.join("gpu_id"))?, node.join("properties"))));
    // The processors are nodes too, with the number 0.
    with_ids.filter(|(gpu_id, _)| *gpu_id != 0).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tree(root: &Path) -> Config {
        for (card, slot, total) in [(0, "0000:03:00.0", "25753026560"), (1, "0000:0A:00.0", "17163091968")] {
            let device = root.join(format!("sys/class/drm/card{card}/device"));
            fs::create_dir_all(&device).unwrap();
            fs::write(device.join("mem_info_vram_total"), format!("{total}\n")).unwrap();
            fs::write(device.join("uevent"), format!("DRIVER=amdgpu\nPCI_SLOT_NAME={slot}\n")).unwrap();
        }
        fs::create_dir_all(root.join("sys/class/drm/card0-DP-1")).unwrap();
        for (node, gpu_id) in [(0, 0), (2, 9999), (10, 17)] {
            let node = root.join(format!("sys/class/kfd/kfd/topology/nodes/{node}"));
            fs::create_dir_all(&node).unwrap();
            fs::write(node.join("gpu_id"), format!("{gpu_id}\n")).unwrap();
        }
        let process = root.join(format!("sys/class/kfd/kfd/proc/{}", std::process::id()));
        fs::create_dir_all(&process).unwrap();
        fs::write(process.join("vram_17"), "4096\n").unwrap();
        Config { sysroot: root.into(), ..Config::default() }
    }

    #[test]
    fn cards_are_found_and_assigned_by_bus_id() {
        let directory = tempfile::tempdir().unwrap();
        let config = tree(directory.path());
        let mut cards = cards(&config);
        assert_eq!(cards.len(), 2);
        assign(&mut cards, 0, "0000:0a:00.0");
        assert_eq!((cards[0].device, cards[1].device), (1, 0));
        let mut readings = Vec::new();
        read(&config, &cards, &mut readings);
        assert_eq!(readings[0], Reading { quantity: Quantity::VramTotal as u16, device: 1, value: 25_753_026_560 });
        let last = *readings.last().unwrap();
        assert_eq!(last, Reading { quantity: Quantity::KfdProcessVram as u16, device: 1, value: 4096 });
    }
}
