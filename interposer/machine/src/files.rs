//! The list of files. Names and formats are those of the Linux kernel: `Documentation/gpu/amdgpu/driver-misc.rst` and
//! `amdgpu_vram_mgr.c` (memory counters), `amdkfd/kfd_topology.c` and `kfd_process.c` (KFD),
//! `Documentation/admin-guide/cgroup-v2.rst` (also `dmem`), `Documentation/filesystems/proc.rst`,
//! `Documentation/accounting/psi.rst`; NVIDIA's `/proc` files: open-gpu-kernel-modules `nv-procfs.c`.

/// Below which directory a file is looked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// The machine: its devices, drivers and distribution.
    System,
    /// The kernel that this process runs on, and the process.
    Kernel,
    /// The host's memory: of the machine where its files are below that directory, else as this kernel tells it.
    Memory,
}

/// What is kept of a file's text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keep {
    /// All of it.
    Whole,
    /// Lines that begin with one of these.
    Lines(&'static [&'static str]),
    /// Words of the kernel's command line with these names.
    Parameters,
}

/// Files of one directory.
#[derive(Clone, Copy, Debug)]
pub struct Group {
    /// Where the directory is.
    pub place: Place,
    /// An absolute path. In a name, `*` stands for any characters and `#` for one digit or more.
    pub directory: &'static str,
    /// Names, with the same signs.
    pub files: &'static [&'static str],
    /// What is kept of each.
    pub keep: Keep,
}

/// Parameters of the kernel's command line that are kept: an exact name, or the beginning of one where it ends in a dot
/// or an underscore.
pub const PARAMETERS: [&str; 12] = [
    "amdgpu.",
    "amdttm.",
    "ttm.",
    "amd_iommu",
    "intel_iommu",
    "iommu",
    "pci",
    "nvidia.",
    "nvidia_",
    "nvidia-drm.",
    "cgroup_disable",
    "mem",
];

/// Lines that are kept of PyTorch's `version.py`, which lies beside the directory of its libraries: its version and what it
/// was built for. (PyTorch `tools/generate_torch_version.py`)
pub const PYTORCH_LINES: [&str; 4] = ["__version__", "cuda", "hip", "rocm"];

const fn group(place: Place, directory: &'static str, files: &'static [&'static str], keep: Keep) -> Group {
    Group { place, directory, files, keep }
}

/// All files, but those of the process's control groups, whose paths the process itself names, and [`PROCESSES`]. What
/// explains most comes first: the bounds cut off the end.
pub const GROUPS: [Group; 22] = [
    group(
        Place::Memory,
        "/proc",
        &["meminfo"],
        Keep::Lines(&[
            "MemTotal:",
            "MemFree:",
            "MemAvailable:",
            "SwapTotal:",
            "SwapFree:",
            "CommitLimit:",
            "Committed_AS:",
            "HugePages_Total:",
            "Hugepagesize:",
        ]),
    ),
    group(Place::Kernel, "/proc/sys/vm", &["max_map_count", "overcommit_memory", "overcommit_ratio"], Keep::Whole),
    group(
        Place::Kernel,
        "/proc/self",
        &["limits"],
        Keep::Lines(&["Max open files", "Max locked memory", "Max address space", "Max data size"]),
    ),
    group(Place::Kernel, "/proc/self", &["cgroup"], Keep::Whole),
    group(Place::Kernel, "/proc", &["cmdline"], Keep::Parameters),
    group(Place::Kernel, "/proc/sys/kernel", &["osrelease"], Keep::Whole),
    group(Place::Memory, "/proc/pressure", &["memory"], Keep::Whole),
    group(
        Place::System,
        "/etc",
        &["os-release"],
        Keep::Lines(&["ID=", "ID_LIKE=", "PRETTY_NAME=", "VERSION_ID=", "VARIANT_ID=", "OSTREE_VERSION="]),
    ),
    group(
        Place::System,
        "/sys/class/drm/card#/device",
        &[
            "vendor",
            "device",
            "mem_info_vram_total",
            "mem_info_vram_used",
            "mem_info_vis_vram_total",
            "mem_info_vis_vram_used",
            "mem_info_gtt_total",
            "mem_info_gtt_used",
            "current_compute_partition",
            "available_compute_partition",
            "compute_partition_mem_alloc_mode",
            "uma/carveout_options",
            "uma/carveout",
            "current_memory_partition",
            "boot_vga",
            "resource",
        ],
        Keep::Whole,
    ),
    group(
        Place::System,
        "/sys/class/drm/card#/device",
        &["uevent"],
        Keep::Lines(&["DRIVER=", "PCI_ID=", "PCI_SUBSYS_ID=", "PCI_SLOT_NAME="]),
    ),
    group(Place::System, "/sys/module/ttm/parameters", TTM_PARAMETERS, Keep::Whole),
    group(Place::System, "/sys/module/amdttm/parameters", TTM_PARAMETERS, Keep::Whole),
    group(
        Place::System,
        "/sys/module/amdgpu/parameters",
        &[
            "gttsize",
            "gartsize",
            "vm_size",
            "vm_fragment_size",
            "no_system_mem_limit",
            "vramlimit",
            "vis_vramlimit",
            "noretry",
        ],
        Keep::Whole,
    ),
    group(Place::System, "/sys/module/amdgpu", &["version"], Keep::Whole),
    group(Place::System, "/sys/module/nvidia", &["version"], Keep::Whole),
    group(Place::System, "/proc/driver/nvidia", &["version"], Keep::Lines(&["NVRM version:"])),
    group(
        Place::System,
        "/proc/driver/nvidia/gpus/*",
        &["information"],
        Keep::Lines(&["Model:", "Bus Location:", "Device Minor:", "GPU Excluded:", "GPU Firmware:"]),
    ),
    group(Place::System, "/sys/class/kfd/kfd/topology/nodes/#", &["gpu_id", "name"], Keep::Whole),
    group(
        Place::System,
        "/sys/class/kfd/kfd/topology/nodes/#",
        &["properties"],
        // Not `unique_id`, which is the card's serial number.
        Keep::Lines(&[
            "cpu_cores_count ",
            "simd_count ",
            "simd_per_cu ",
            "mem_banks_count ",
            "gfx_target_version ",
            "vendor_id ",
            "device_id ",
            "location_id ",
            "domain ",
            "drm_render_minor ",
            "local_mem_size ",
            "num_xcc ",
        ]),
    ),
    group(
        Place::System,
        "/sys/class/kfd/kfd/topology/nodes/#/mem_banks/#",
        &["properties"],
        Keep::Lines(&["heap_type ", "size_in_bytes ", "flags "]),
    ),
    group(Place::System, "/opt/rocm*/.info", &["version"], Keep::Whole),
    // ROCm 10 installs below `/opt/rocm/core-10.0`.
    group(Place::System, "/opt/rocm*/core*/.info", &["version"], Keep::Whole),
];

/// What KFD says of each process. There can be thousands: these come last.
pub const PROCESSES: Group = group(Place::System, "/sys/class/kfd/kfd/proc/#", &["vram_#"], Keep::Whole);

const TTM_PARAMETERS: &[&str] = &["pages_limit", "page_pool_size", "dma32_pages_limit"];

/// Files of one level of the process's control groups, version 2.
pub const CGROUP: [&str; 7] =
    ["memory.max", "memory.high", "memory.current", "memory.swap.max", "memory.events", "dmem.max", "dmem.current"];
/// The same of version 1.
pub const CGROUP_V1: [&str; 3] = ["memory.limit_in_bytes", "memory.usage_in_bytes", "memory.failcnt"];
