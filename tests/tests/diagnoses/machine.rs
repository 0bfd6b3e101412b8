//! Machines that scenes take place on: a folder of `analyzer/tests/roots`, with changes, as files below a scratch directory.

use std::fs;
use std::path::{Path, PathBuf};

use gpuoom_tests::machine_root;
use tempfile::TempDir;

/// What a scene changes on a machine.
#[derive(Clone, Default)]
pub(crate) struct Machine {
    root: &'static str,
    files: Vec<(String, String)>,
}

/// A machine whose files have been written.
pub(crate) struct Built {
    /// What stands for `/`.
    pub(crate) root: TempDir,
    /// `card1`, where the card has counters.
    pub(crate) card: Option<String>,
    /// KFD's number of the first GPU.
    pub(crate) gpu: Option<String>,
    /// Its place on the bus.
    pub(crate) pci_bus_id: Option<String>,
    /// Size of its memory.
    pub(crate) vram_bytes: Option<u64>,
}

/// The folder of [`Machine::card`] and that of [`Machine::apu`].
pub(crate) const CARD: &str = "rdna3-24g";
/// See [`CARD`].
pub(crate) const APU: &str = "strix-halo-after";

/// The memory of a machine by its folder, which is what recorder and analyzer see of the host.
pub(crate) fn ram_bytes(root: &str) -> u64 {
    let text = fs::read_to_string(machine_root(root).join("proc/meminfo")).expect("the machine's memory");
    let line = text.lines().find_map(|line| line.strip_prefix("MemTotal:")).expect("MemTotal");
    line.trim().trim_end_matches(" kB").parse::<u64>().expect("a number of KiB") << 10
}

impl Machine {
    /// A machine by its folder.
    pub(crate) fn of(root: &'static str) -> Self {
        Machine { root, files: Vec::new() }
    }

    /// A 24 GiB card of RDNA3.
    pub(crate) fn card() -> Self {
        Machine::of(CARD)
    }

    /// The same with another amount of memory.
    pub(crate) fn card_of(mib: u64) -> Self {
        Machine::card().with("sys/class/drm/card1/device/mem_info_vram_total", mib << 20)
    }

    /// An APU whose kernel gives so much to the GPU, beside a carve-out of the firmware.
    pub(crate) fn apu(limit_bytes: u64, carve_out_bytes: u64, gtt_bytes: u64, bank_bytes: u64) -> Self {
        let device = "sys/class/drm/card1/device";
        Machine::of(APU)
            .with("sys/module/ttm/parameters/pages_limit", limit_bytes / 4096)
            .with(&format!("{device}/mem_info_vram_total"), carve_out_bytes)
            .with(&format!("{device}/mem_info_gtt_total"), gtt_bytes)
            .with(
                "sys/class/kfd/kfd/topology/nodes/1/mem_banks/0/properties",
                format!("heap_type 1\nsize_in_bytes {bank_bytes}\nflags 0"),
            )
    }

    /// With another file, or a file with other contents.
    pub(crate) fn with(mut self, path: &str, text: impl ToString) -> Self {
        self.files.push((path.to_owned(), format!("{}\n", text.to_string())));
        self
    }

    /// With a file whose first occurrence of a text is another one.
    pub(crate) fn changed(self, path: &str, from: &str, to: &str) -> Self {
        let text = fs::read_to_string(machine_root(self.root).join(path)).expect("a file of the machine");
        assert!(text.contains(from), "{path} has no {from}");
        let text = text.replacen(from, to, 1);
        self.with(path, text.trim_end())
    }

    /// Writes its files.
    pub(crate) fn build(&self) -> Built {
        let root = TempDir::new().expect("a scratch directory");
        if !self.root.is_empty() {
            copy(&machine_root(self.root), root.path());
        }
        for (path, text) in &self.files {
            put(&root.path().join(path), text);
        }
        let read = |path: PathBuf| fs::read_to_string(path).ok().map(|text| text.trim().to_owned());
        let drm = root.path().join("sys/class/drm");
        let card = names(&drm).into_iter().find(|name| name.starts_with("card") && !name.contains('-'));
        let device = card.as_ref().map(|card| drm.join(card).join("device"));
        let nodes = root.path().join("sys/class/kfd/kfd/topology/nodes");
        let gpu = names(&nodes).into_iter().filter_map(|node| read(nodes.join(node).join("gpu_id")));
        let uevent = device.as_ref().and_then(|device| read(device.join("uevent"))).unwrap_or_default();
        let pci_bus_id = uevent.lines().find_map(|line| line.strip_prefix("PCI_SLOT_NAME=")).map(str::to_owned);
        let total = device.and_then(|device| read(device.join("mem_info_vram_total")));
        Built {
            card: card.filter(|_| total.is_some()),
            gpu: gpu.into_iter().find(|gpu| gpu != "0"),
            pci_bus_id,
            vram_bytes: total.and_then(|total| total.parse().ok()),
            root,
        }
    }
}

/// Names in a directory, sorted.
fn names(directory: &Path) -> Vec<String> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    let mut names: Vec<String> = entries.filter_map(|entry| entry.file_name().into_string().ok()).collect();
    names.sort();
    names
}

fn put(path: &Path, text: &str) {
    fs::create_dir_all(path.parent().expect("a file below the root")).expect("a directory below the root");
    fs::write(path, text).expect("a file below the root");
}

fn copy(from: &Path, to: &Path) {
    for entry in fs::read_dir(from).expect("a folder of the machine").flatten() {
        let target = to.join(entry.file_name());
        if entry.path().is_dir() {
            fs::create_dir_all(&target).expect("a directory below the root");
            copy(&entry.path(), &target);
        } else {
            fs::copy(entry.path(), target).expect("a file of the machine");
        }
    }
}
