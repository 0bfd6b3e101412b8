//! What the amdgpu kernel driver shows in sysfs. Sources: Linux `amdgpu_vram_mgr.c`, `amdkfd/kfd_process.c`.

use std::path::{Path, PathBuf};
use std::{fs, process};

use gpuoom_machine::fdinfo;
use gpuoom_trace::metadata::{Quantity, Reading};
use gpuoom_trace::record::NO_DEVICE;

use crate::base::config::Config;
use crate::devices::gpus::number;

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

/// Reads the counters of all cards, and what KFD says of this process and of all others.
pub(super) fn read(config: &Config, cards: &[Card], gpus: &[(u64, u8)], readings: &mut Vec<Reading>) {
    for card in cards {
        for (file, quantity) in COUNTERS {
            if let Some(value) = number(&card.directory.join(file)) {
                readings.push(Reading { quantity: quantity as u16, device: card.device, value });
            }
        }
    }
    let own = process::id();
    let pids = kfd_processes(config);
    let is_known = pids.contains(&own) || is_initial_namespace(Path::new("/proc/thread-self/ns/pid"));
    for (gpu_id, device) in gpus.iter().filter(|(_, device)| *device != NO_DEVICE) {
        let mut push = |quantity: Quantity, value| {
            readings.push(Reading { quantity: quantity as u16, device: *device, value });
        };
        let of = |pid: u32| number(&config.system_path(&format!("{KFD_PROCESSES}/{pid}/vram_{gpu_id}")));
        if let Some(value) = of(own) {
            push(Quantity::KfdProcessVram, value);
        }
        if is_known {
            let others = pids.iter().filter(|pid| **pid != own && !has_ended(config, **pid)).filter_map(|pid| of(*pid));
            push(Quantity::KfdOthersVram, others.fold(0, u64::saturating_add));
        }
    }
}

/// Where KFD lists the processes that use it, by their numbers in the initial namespace.
const KFD_PROCESSES: &str = "/sys/class/kfd/kfd/proc";
/// Processes that are looked at in one reading.
const MAX_KFD_PROCESSES: usize = 1024;

/// The processes that KFD knows.
pub(super) fn kfd_processes(config: &Config) -> Vec<u32> {
    let Ok(entries) = fs::read_dir(config.system_path(KFD_PROCESSES)) else { return Vec::new() };
    let pids = entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    pids.take(MAX_KFD_PROCESSES).collect()
}

/// Whether the process of one of KFD's entries has surely ended. The driver may keep the entry and its memory after that:
/// then nobody holds it, which is another trouble than somebody who does.
fn has_ended(config: &Config, pid: u32) -> bool {
    if config.sysroot != Path::new("/") {
        // The copy of a machine's files need not have its processes: then nothing is known of them.
        let processes = config.system_path("/proc");
        return processes.join("1").exists() && !processes.join(pid.to_string()).exists();
    }
    // KFD's numbers mean something to us only where they are counted as ours are.
    let Ok(pid) = libc::pid_t::try_from(pid) else { return false };
    if pid <= 0 || !is_initial_namespace(Path::new("/proc/thread-self/ns/pid")) {
        return false;
    }
    // Not `/proc/PID`, which `hidepid` hides from other users.
    // SAFETY: signal 0 is sent to nobody: the kernel only looks whether the process exists.
    let answer = unsafe { libc::kill(pid, 0) };
    answer == -1 && std::io::Error::last_os_error().raw_os_error() == Some(libc::ESRCH)
}

/// Whether this process's own number is the one that KFD knows it by: in a container it would take itself for somebody
/// else. The initial namespace has a fixed number (Linux `include/linux/proc_ns.h`).
pub(super) fn is_initial_namespace(link: &Path) -> bool {
    const INITIAL: &str = "pid:[4026531836]";
    fs::read_link(link).is_ok_and(|target| target == Path::new(INITIAL))
}

/// Reads what graphics clients of other processes hold. Looks at all processes: not for every period.
pub(super) fn read_graphics(config: &Config, cards: &[Card], proc: &Path, readings: &mut Vec<Reading>) {
    if cards.is_empty() {
        return;
    }
    let pids = kfd_processes(config);
    let Some(graphics) = fdinfo::graphics(proc, process::id(), |pid| pids.contains(&pid)) else { return };
    for card in cards.iter().filter(|card| !card.pci_bus_id.is_empty()) {
        let held = graphics.bytes.get(&card.pci_bus_id).copied();
        // Of whom nothing is said may hold some there: none is known, not zero.
        let Some(value) = held.or((graphics.silent_processes == 0).then_some(0)) else { continue };
        readings.push(Reading { quantity: Quantity::GraphicsVram as u16, device: card.device, value });
    }
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
        for (pid, gpu_id, used) in [(std::process::id(), 17, 4096), (1, 17, 300), (2, 17, 20), (2, 9999, 7)] {
            let process = root.join(format!("sys/class/kfd/kfd/proc/{pid}"));
            fs::create_dir_all(&process).unwrap();
            fs::write(process.join(format!("vram_{gpu_id}")), format!("{used}\n")).unwrap();
        }
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
        read(&config, &cards, &[], &mut readings);
        assert_eq!(
            readings,
            [1, 0].map(|device| {
                let value = if device == 1 { 25_753_026_560 } else { 17_163_091_968 };
                Reading { quantity: Quantity::VramTotal as u16, device, value }
            })
        );
    }

    #[test]
    fn kfd_tells_own_memory_from_that_of_others() {
        let directory = tempfile::tempdir().unwrap();
        let config = tree(directory.path());
        let mut readings = Vec::new();
        read(&config, &[], &[(9999, 0), (17, 1), (5, NO_DEVICE)], &mut readings);
        let found: Vec<_> = readings.iter().map(|reading| (reading.quantity, reading.device, reading.value)).collect();
        let [own, others] = [Quantity::KfdProcessVram as u16, Quantity::KfdOthersVram as u16];
        assert_eq!(found, [(others, 0, 7), (own, 1, 4096), (others, 1, 320)]);
    }

    #[test]
    fn the_entry_of_an_ended_process_is_nobodys_memory() {
        let directory = tempfile::tempdir().unwrap();
        let config = tree(directory.path());
        fs::create_dir_all(directory.path().join("proc/1")).unwrap();
        let mut readings = Vec::new();
        read(&config, &[], &[(17, 1)], &mut readings);
        let others = readings.iter().find(|reading| reading.quantity == Quantity::KfdOthersVram as u16).unwrap();
        assert_eq!(others.value, 300, "process 2 has ended");
    }

    #[test]
    fn only_a_process_that_does_not_exist_has_ended() {
        let config = Config::default();
        assert!(!has_ended(&config, std::process::id()));
        assert!(!has_ended(&config, 0));
        let mut child = std::process::Command::new("true").spawn().unwrap();
        let pid = child.id();
        assert!(!has_ended(&config, pid), "not waited for yet: it still has its number");
        child.wait().unwrap();
        assert_eq!(has_ended(&config, pid), is_initial_namespace(Path::new("/proc/thread-self/ns/pid")));
    }

    #[test]
    fn only_the_initial_namespace_has_the_numbers_that_kfd_knows() {
        let directory = tempfile::tempdir().unwrap();
        let link = |name: &str, target: &str| {
            let path = directory.path().join(name);
            std::os::unix::fs::symlink(target, &path).unwrap();
            path
        };
        assert!(is_initial_namespace(&link("host", "pid:[4026531836]")));
        assert!(!is_initial_namespace(&link("container", "pid:[4026532501]")));
        assert!(!is_initial_namespace(&directory.path().join("none")));
    }

    #[test]
    fn graphics_clients_go_to_their_card() {
        let directory = tempfile::tempdir().unwrap();
        let config = tree(directory.path());
        let proc = directory.path().join("proc");
        for (pid, client) in [(2, 5), (100, 6)] {
            let process = proc.join(pid.to_string());
            fs::create_dir_all(process.join("fd")).unwrap();
            fs::create_dir_all(process.join("fdinfo")).unwrap();
            std::os::unix::fs::symlink("/dev/dri/renderD128", process.join("fd/3")).unwrap();
            let text = format!("drm-driver:\tamdgpu\ndrm-pdev:\t0000:03:00.0\ndrm-client-id:\t{client}\n");
            fs::write(process.join("fdinfo/3"), text + "drm-memory-vram:\t64 KiB\n").unwrap();
        }
        let mut readings = Vec::new();
        read_graphics(&config, &cards(&config), &proc, &mut readings);
        let found: Vec<_> = readings.iter().map(|reading| (reading.device, reading.value)).collect();
        assert_eq!(found, [(0, 65536), (1, 0)], "process 2 uses KFD");
        // An older kernel's words: what that client holds, and on which card, is not known.
        fs::create_dir_all(proc.join("101/fd")).unwrap();
        fs::create_dir_all(proc.join("101/fdinfo")).unwrap();
        std::os::unix::fs::symlink("/dev/dri/renderD129", proc.join("101/fd/3")).unwrap();
        fs::write(proc.join("101/fdinfo/3"), "pos:\t0\npdev:\t0000:0a:00.0\nvram mem:\t64 kB\n").unwrap();
        readings.clear();
        read_graphics(&config, &cards(&config), &proc, &mut readings);
        let found: Vec<_> = readings.iter().map(|reading| (reading.device, reading.value)).collect();
        assert_eq!(found, [(0, 65536)]);
    }
}
