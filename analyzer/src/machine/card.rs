//! Graphics cards: amdgpu's counters in sysfs, and what NVIDIA's driver shows in `/proc`.

use serde::Serialize;

use super::carve_out::{self, CarveOut};
use super::text::{Files, value_of};

/// PCI number of AMD.
pub const AMD: u64 = 0x1002;
/// PCI number of NVIDIA.
pub const NVIDIA: u64 = 0x10de;
/// PCI number of Intel.
pub const INTEL: u64 = 0x8086;
/// The window onto video memory where the firmware has no resizable BAR: the size since the days of 32-bit firmware.
pub const SMALL_BAR_BYTES: u64 = 256 << 20;

/// A card of `/sys/class/drm`. Sources: Linux `amdgpu_vram_mgr.c`, `amdgpu_gtt_mgr.c`, `amdgpu_gfx.c`,
/// `Documentation/ABI/testing/sysfs-bus-pci`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Card {
    /// Its number: `card0` is 0.
    pub number: u64,
    /// PCI address in lower case, such as `0000:03:00.0`.
    pub pci_bus_id: Option<String>,
    /// PCI number of the vendor.
    pub vendor_id: Option<u64>,
    /// PCI number of the model.
    pub device_id: Option<u64>,
    /// Kernel driver.
    pub driver: Option<String>,
    /// Video memory; of an APU: the carve-out of the BIOS.
    pub vram_total_bytes: Option<u64>,
    /// Of it in use, by anybody.
    pub vram_used_bytes: Option<u64>,
    /// Video memory that the processor can reach.
    pub visible_vram_total_bytes: Option<u64>,
    /// Of it in use.
    pub visible_vram_used_bytes: Option<u64>,
    /// System memory that the GPU may map.
    pub gtt_total_bytes: Option<u64>,
    /// Of it in use.
    pub gtt_used_bytes: Option<u64>,
    /// Compute partition mode, such as `SPX`.
    pub compute_partition: Option<String>,
    /// Modes that the card could be in.
    pub compute_partitions: Vec<String>,
    /// Memory partition mode, such as `NPS1`.
    pub memory_partition: Option<String>,
    /// How partitions share memory, as `EVEN`; older kernels do not say. (Linux `amdgpu_gfx.c`)
    pub partition_memory: Option<String>,
    /// Sizes of the carve-out that the firmware offers; empty where it takes none from Linux.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub carve_outs: Vec<CarveOut>,
    /// The number of the one that is set for the next start.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub carve_out_set: Option<u64>,
    /// Whether the firmware showed its messages on it.
    pub is_boot_display: Option<bool>,
    /// Largest window that the processor has onto the card (PCI BAR).
    pub largest_bar_bytes: Option<u64>,
}

impl Card {
    /// A name for people: `card1 (0000:03:00.0)`.
    pub fn label(&self) -> String {
        match &self.pci_bus_id {
            Some(address) => format!("card{} ({address})", self.number),
            None => format!("card{}", self.number),
        }
    }

    /// Whether AMD made it.
    pub fn is_amd(&self) -> bool {
        self.vendor_id == Some(AMD)
    }

    /// Free video memory by these counters.
    pub fn vram_free_bytes(&self) -> Option<u64> {
        Some(self.vram_total_bytes?.saturating_sub(self.vram_used_bytes?))
    }
}

pub(super) fn cards(files: &Files<'_>) -> Vec<Card> {
    let numbers = files.numbers_below("/sys/class/drm", "card");
    numbers.into_iter().map(|number| card(files, number)).collect()
}

fn card(files: &Files<'_>, number: u64) -> Card {
    let path = |name: &str| format!("/sys/class/drm/card{number}/device/{name}");
    let (read, line) = (|name: &str| files.number(&path(name)), |name: &str| files.line(&path(name)));
    let uevent = files.text(&path("uevent"));
    let modes = line("available_compute_partition").unwrap_or_default();
    Card {
        number,
        pci_bus_id: value_of(uevent, "PCI_SLOT_NAME").map(shown),
        vendor_id: read("vendor"),
        device_id: read("device"),
        driver: value_of(uevent, "DRIVER").map(shown),
        vram_total_bytes: read("mem_info_vram_total"),
        vram_used_bytes: read("mem_info_vram_used"),
        visible_vram_total_bytes: read("mem_info_vis_vram_total"),
        visible_vram_used_bytes: read("mem_info_vis_vram_used"),
        gtt_total_bytes: read("mem_info_gtt_total"),
        gtt_used_bytes: read("mem_info_gtt_used"),
        compute_partition: line("current_compute_partition"),
        compute_partitions: modes
            .split(',')
            .map(|mode| mode.trim().to_owned())
            .filter(|mode| !mode.is_empty())
            .collect(),
        memory_partition: line("current_memory_partition"),
        partition_memory: line("compute_partition_mem_alloc_mode"),
        carve_outs: carve_out::options(files.text(&path("uma/carveout_options"))),
        carve_out_set: read("uma/carveout"),
        is_boot_display: read("boot_vga").map(|value| value != 0),
        largest_bar_bytes: largest_bar(files.text(&path("resource"))),
    }
}

fn shown(text: &str) -> String {
    text.chars().take(64).collect::<String>().to_ascii_lowercase()
}

/// The largest of the first six windows: lines `start end flags`; the seventh is the expansion ROM.
fn largest_bar(text: &str) -> Option<u64> {
    let size = |line: &str| {
        let mut words = line.split_whitespace().map(super::text::number);
        let (start, end) = (words.next()??, words.next()??);
        (end > start).then(|| (end - start).saturating_add(1))
    };
    text.lines().take(6).filter_map(size).max()
}

/// A GPU of NVIDIA's driver: `/proc/driver/nvidia/gpus/ADDRESS/information` (open-gpu-kernel-modules `nv-procfs.c`).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct NvidiaGpu {
    /// PCI address.
    pub pci_bus_id: String,
    /// Name of the model.
    pub model: Option<String>,
    /// Number of its device node: `/dev/nvidia0` is 0.
    pub minor: Option<u64>,
    /// Whether the driver leaves it alone.
    pub is_excluded: bool,
}

pub(super) fn nvidia_gpus(files: &Files<'_>) -> Vec<NvidiaGpu> {
    const DIRECTORY: &str = "/proc/driver/nvidia/gpus";
    let gpus = files.below(DIRECTORY).into_iter().filter_map(|(path, text)| {
        let address = path.strip_prefix(DIRECTORY)?.trim_start_matches('/').strip_suffix("/information")?;
        Some(NvidiaGpu {
            pci_bus_id: shown(address),
            model: value_of(text, "Model").and_then(super::text::first_line),
            minor: super::text::number_of(text, "Device Minor"),
            is_excluded: value_of(text, "GPU Excluded") == Some("Yes"),
        })
    });
    gpus.collect()
}

/// The driver's version: the first word with two dots or one that looks like `580.95.05`.
pub(super) fn nvidia_driver(files: &Files<'_>) -> Option<String> {
    let line = files.line("/proc/driver/nvidia/version");
    let is_version = |word: &&str| {
        let mut parts = word.split('.');
        let count = parts.clone().count();
        (2..=3).contains(&count) && parts.all(|part| !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit()))
    };
    let in_line = line.as_deref().and_then(|line| line.split_whitespace().find(is_version)).map(str::to_owned);
    in_line.or_else(|| files.line("/sys/module/nvidia/version"))
}
