//! KFD, the compute driver of AMD: its nodes and the processes that use it. Sources: Linux `amdkfd/kfd_topology.c`,
//! `kfd_crat.h`, `kfd_process.c`; which targets are APUs: the table of processors in LLVM's `AMDGPUUsage.rst`.

use serde::Serialize;

use super::text::{Files, MAX_THINGS, number_of};

/// Targets that share the host's memory, as `gfx_target_version` counts them (gfx1151 is 110501).
const INTEGRATED_TARGETS: [u64; 13] = [
    80_001,  // gfx801, Carrizo
    90_002,  // gfx902, Raven
    90_009,  // gfx909
    90_012,  // gfx90c, Renoir
    100_103, // gfx1013
    100_303, // gfx1033, Van Gogh
    100_305, // gfx1035, Rembrandt
    100_306, // gfx1036, Raphael
    110_003, // gfx1103, Phoenix
    110_500, // gfx1150, Strix
    110_501, // gfx1151, Strix Halo
    110_502, // gfx1152, Krackan
    110_503, // gfx1153
];
/// gfx942 is a card (MI300X) and an APU (MI300A): the model decides (Linux `amdgpu_drv.c`, ROCm's list of GPUs).
const GFX942: u64 = 90_402;
const MI300A: u64 = 0x74a0;

/// A node: a processor or a GPU.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct KfdNode {
    /// Its number.
    pub number: u64,
    /// KFD's number of the GPU; 0 for a processor.
    pub gpu_id: Option<u64>,
    /// Name, where the kernel has one.
    pub name: Option<String>,
    /// Cores of a processor.
    pub cpu_cores: Option<u64>,
    /// SIMD units of a GPU; 0 for a processor.
    pub simds: Option<u64>,
    /// Target: major · 10000 + minor · 100 + stepping.
    pub gfx_target_version: Option<u64>,
    /// PCI number of the vendor.
    pub vendor_id: Option<u64>,
    /// PCI number of the model.
    pub device_id: Option<u64>,
    /// PCI bus, device and function: bus · 256 + device · 8 + function.
    pub location_id: Option<u64>,
    /// PCI domain.
    pub domain: Option<u64>,
    /// Number of its render node.
    pub render_minor: Option<u64>,
    /// Its memory.
    pub banks: Vec<MemoryBank>,
}

/// Memory of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct MemoryBank {
    /// What it is.
    pub heap: Heap,
    /// Its size.
    pub bytes: u64,
}

/// Kinds of memory banks (`HSA_MEM_HEAP_TYPE_*` in `kfd_crat.h`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Heap {
    /// The host's memory.
    System,
    /// Memory of the GPU, all of it within the processor's reach.
    FramebufferPublic,
    /// Memory of the GPU, not all of it within the processor's reach.
    FramebufferPrivate,
    /// Anything else: shared memory, scratch.
    Other,
}

impl KfdNode {
    /// Whether it is a GPU.
    pub fn is_gpu(&self) -> bool {
        self.gpu_id.is_some_and(|id| id != 0) || self.simds.is_some_and(|simds| simds > 0)
    }

    /// The memory that KFD offers of it.
    pub fn local_bytes(&self) -> u64 {
        let is_local = |bank: &&MemoryBank| matches!(bank.heap, Heap::FramebufferPublic | Heap::FramebufferPrivate);
        self.banks.iter().filter(is_local).map(|bank| bank.bytes).fold(0, u64::saturating_add)
    }

    /// Major, minor and stepping of its target.
    pub fn target(&self) -> Option<(u64, u64, u64)> {
        let version = self.gfx_target_version.filter(|version| *version != 0)?;
        Some((version / 10_000, version / 100 % 100, version % 100))
    }

    /// Name of its target, such as `gfx1151`: minor and stepping are hexadecimal.
    pub fn target_name(&self) -> Option<String> {
        self.target().map(|(major, minor, stepping)| format!("gfx{major}{minor:x}{stepping:x}"))
    }

    /// Whether it uses the host's memory; `None` when its target is not known.
    pub fn is_integrated(&self) -> Option<bool> {
        match self.gfx_target_version? {
            0 => None,
            GFX942 => Some(self.device_id == Some(MI300A)),
            version => Some(INTEGRATED_TARGETS.contains(&version)),
        }
    }

    /// Whether its target is of the RDNA family: gfx10 to gfx12.
    pub fn is_rdna(&self) -> Option<bool> {
        self.target().map(|(major, ..)| (10..=12).contains(&major))
    }

    /// PCI address as sysfs writes it.
    pub fn pci_bus_id(&self) -> Option<String> {
        let location = self.location_id.filter(|_| self.is_gpu())?;
        let (bus, device, function) = (location >> 8 & 0xff, location >> 3 & 0x1f, location & 7);
        Some(format!("{:04x}:{bus:02x}:{device:02x}.{function}", self.domain.unwrap_or(0) & 0xffff_ffff))
    }
}

const NODES: &str = "/sys/class/kfd/kfd/topology/nodes";

pub(super) fn nodes(files: &Files<'_>) -> Vec<KfdNode> {
    files.numbers_below(NODES, "").into_iter().map(|number| node(files, number)).collect()
}

fn node(files: &Files<'_>, number: u64) -> KfdNode {
    let directory = format!("{NODES}/{number}");
    let properties = files.text(&format!("{directory}/properties"));
    let read = |key: &str| number_of(properties, key);
    let banks = files.below(&format!("{directory}/mem_banks")).into_iter().filter_map(|(path, text)| {
        path.ends_with("/properties").then_some(())?;
        let heap = match number_of(text, "heap_type")? {
            0 => Heap::System,
            1 => Heap::FramebufferPublic,
            2 => Heap::FramebufferPrivate,
            _ => Heap::Other,
        };
        Some(MemoryBank { heap, bytes: number_of(text, "size_in_bytes")? })
    });
    KfdNode {
        number,
        gpu_id: files.number(&format!("{directory}/gpu_id")),
        name: files.line(&format!("{directory}/name")),
        cpu_cores: read("cpu_cores_count"),
        simds: read("simd_count"),
        gfx_target_version: read("gfx_target_version"),
        vendor_id: read("vendor_id"),
        device_id: read("device_id"),
        location_id: read("location_id"),
        domain: read("domain"),
        render_minor: read("drm_render_minor"),
        banks: banks.take(MAX_THINGS).collect(),
    }
}

/// A process that uses KFD.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct KfdProcess {
    /// Its number in the initial namespace: in a container it is another.
    pub pid: u64,
    /// What it holds of each GPU: KFD's number of the GPU and bytes.
    pub vram: Vec<(u64, u64)>,
}

impl KfdProcess {
    /// What it holds of one GPU.
    pub fn bytes_of(&self, gpu_id: u64) -> u64 {
        self.vram.iter().filter(|(gpu, _)| *gpu == gpu_id).map(|(_, bytes)| *bytes).fold(0, u64::saturating_add)
    }
}

pub(super) fn processes(files: &Files<'_>) -> Vec<KfdProcess> {
    const DIRECTORY: &str = "/sys/class/kfd/kfd/proc";
    let of = |pid: u64| {
        let own = format!("{DIRECTORY}/{pid}");
        let vram = files.below(&own).into_iter().filter_map(|(path, text)| {
            let gpu = path.rsplit('/').next()?.strip_prefix("vram_")?.parse().ok()?;
            Some((gpu, text.trim().parse().ok()?))
        });
        KfdProcess { pid, vram: vram.take(MAX_THINGS).collect() }
    };
    files.numbers_below(DIRECTORY, "").into_iter().map(of).collect()
}
