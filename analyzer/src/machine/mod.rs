//! What is known of a machine: memory, cards, KFD's nodes, limits of kernel and process, control groups. Read from the
//! small text files that a trace holds, or that a directory holds which looks like `/`.
//!
//! Nothing here is trusted: what can't be understood is left out, and no list is longer than the number of files. All
//! sizes are in bytes.

pub mod card;
pub mod carve_out;
pub mod cgroup;
pub mod distribution;
pub mod host;
pub mod kfd;
pub mod mapping;
pub mod pci;
mod text;
pub mod uma;

#[cfg(test)]
mod tests;

use std::path::Path;

use gpuoom_machine::{Roots, collect};
use gpuoom_trace::metadata::MachineFacts;
use gpuoom_trace::reader::TraceFile;
use serde::Serialize;

use card::{Card, NvidiaGpu};
use cgroup::{CgroupLevel, DeviceMemory};
use distribution::Distribution;
use host::{HostMemory, Parameter, Pressure, ProcessLimits, VirtualMemory};
use kfd::{KfdNode, KfdProcess};
use text::Files;

/// Bytes of a page of memory: 4 KiB on x86-64, for which the recorder is made.
pub const PAGE_BYTES: u64 = 4096;

/// A machine, as far as it is known. What nobody could read is `None` or empty.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Machine {
    /// `/proc/meminfo`.
    pub memory: HostMemory,
    /// Kernel release, such as `6.17.4-200.fc42.x86_64`.
    pub kernel: Option<String>,
    /// `/etc/os-release`. In a container: the container's, not the host's.
    pub distribution: Distribution,
    /// Graphics cards that have a number in `/sys/class/drm`, in that order.
    pub cards: Vec<Card>,
    /// KFD's nodes: processors and AMD GPUs.
    pub nodes: Vec<KfdNode>,
    /// Processes that hold memory through KFD.
    pub kfd_processes: Vec<KfdProcess>,
    /// Parameters of TTM, the kernel's memory manager for GPUs.
    pub ttm: Option<Ttm>,
    /// Parameters of the module amdgpu, by name.
    pub amdgpu_parameters: Vec<Parameter>,
    /// Version of amdgpu, which only AMD's own package of it (DKMS) has.
    pub amdgpu_version: Option<String>,
    /// Listed parameters of the kernel's command line, as they are written there.
    pub kernel_parameters: Vec<Parameter>,
    /// Limits of the process.
    pub limits: ProcessLimits,
    /// `/proc/sys/vm`.
    pub virtual_memory: VirtualMemory,
    /// The process's control group and those above it that have a memory controller, innermost first.
    pub cgroups: Vec<CgroupLevel>,
    /// Limits of device memory by the `dmem` controller.
    pub device_memory: Vec<DeviceMemory>,
    /// Version of NVIDIA's kernel driver.
    pub nvidia_driver: Option<String>,
    /// NVIDIA's GPUs.
    pub nvidia_gpus: Vec<NvidiaGpu>,
    /// How long tasks waited for memory.
    pub pressure: Option<Pressure>,
    /// ROCm below `/opt`: directory and version.
    pub rocm: Vec<Rocm>,
    /// Files that are there and could not be read.
    pub unreadable: Vec<String>,
    /// Whether there was more than is read of a machine.
    pub cut: bool,
}

/// Parameters of TTM (Linux `drivers/gpu/drm/ttm/ttm_device.c`, `ttm_pool.c`), in pages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Ttm {
    /// Whether it is AMD's out-of-tree build, whose parameters begin with `amdttm.`.
    pub out_of_tree: bool,
    /// Pages that GPU memory in system memory may take.
    pub pages_limit: Option<u64>,
    /// Pages that are kept for reuse.
    pub page_pool_size: Option<u64>,
}

impl Ttm {
    /// [`Ttm::pages_limit`] in bytes.
    pub fn limit_bytes(&self) -> Option<u64> {
        self.pages_limit.map(|pages| pages.saturating_mul(PAGE_BYTES))
    }

    /// How its parameters begin on the kernel's command line.
    pub fn prefix(&self) -> &'static str {
        if self.out_of_tree { "amdttm" } else { "ttm" }
    }
}

/// An installed ROCm.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Rocm {
    /// Where it is.
    pub directory: String,
    /// `.info/version`, such as `6.4.1-83`.
    pub version: String,
}

impl Machine {
    /// Whether any driver shows a GPU.
    pub fn has_gpu(&self) -> bool {
        !(self.cards.is_empty() && self.nodes.is_empty() && self.nvidia_gpus.is_empty())
    }

    /// The machine on which a trace was recorded, when recording began; empty for traces before format 1.2.
    pub fn of_trace(trace: &TraceFile) -> Self {
        let MachineFacts { files, unreadable, cut } = &trace.metadata.machine;
        Machine::of_files(files, unreadable, *cut)
    }

    /// The machine below a directory that looks like `/`. With `/` itself: this machine and this process.
    pub fn of_root(root: &Path) -> Self {
        let collected = collect(Roots::all(root));
        Machine::of_files(&collected.files, &collected.unreadable, collected.cut)
    }

    fn of_files(files: &[(String, String)], unreadable: &[String], cut: bool) -> Self {
        let files = Files::new(files);
        Machine {
            memory: HostMemory::parse(files.text("/proc/meminfo")),
            kernel: files.line("/proc/sys/kernel/osrelease"),
            distribution: Distribution::parse(files.text("/etc/os-release")),
            cards: card::cards(&files),
            nodes: kfd::nodes(&files),
            kfd_processes: kfd::processes(&files),
            ttm: ttm(&files),
            amdgpu_parameters: host::module_parameters(&files, "/sys/module/amdgpu/parameters"),
            amdgpu_version: files.line("/sys/module/amdgpu/version"),
            kernel_parameters: host::kernel_parameters(files.text("/proc/cmdline")),
            limits: ProcessLimits::parse(files.text("/proc/self/limits")),
            virtual_memory: VirtualMemory {
                max_map_count: files.number("/proc/sys/vm/max_map_count"),
                overcommit_memory: files.number("/proc/sys/vm/overcommit_memory"),
                overcommit_ratio: files.number("/proc/sys/vm/overcommit_ratio"),
            },
            cgroups: cgroup::levels(&files),
            device_memory: cgroup::device_memory(&files),
            nvidia_driver: card::nvidia_driver(&files),
            nvidia_gpus: card::nvidia_gpus(&files),
            pressure: Pressure::parse(files.text("/proc/pressure/memory")),
            rocm: rocm(&files),
            unreadable: unreadable.to_vec(),
            cut,
        }
    }

    /// Whether nothing is known at all, as with traces before format 1.2.
    pub fn is_empty(&self) -> bool {
        *self == Machine::default()
    }

    /// The number that a parameter of amdgpu has; −1 stands for "automatic".
    pub fn amdgpu_parameter(&self, name: &str) -> Option<i64> {
        let parameter = self.amdgpu_parameters.iter().find(|parameter| parameter.name == name)?;
        parameter.value.as_deref()?.trim().parse().ok()
    }

    /// The card with a PCI address, in any spelling of its hexadecimal digits.
    pub fn card(&self, pci_bus_id: &str) -> Option<&Card> {
        let wanted = pci_bus_id.to_ascii_lowercase();
        self.cards.iter().find(|card| card.pci_bus_id.as_deref() == Some(&*wanted))
    }

    /// KFD's node of a card; of a card in partitions the first one.
    pub fn node_of(&self, card: &Card) -> Option<&KfdNode> {
        let wanted = card.pci_bus_id.as_deref()?;
        self.nodes.iter().find(|node| node.is_gpu() && node.pci_bus_id().as_deref() == Some(wanted))
    }

    /// Whether a card uses the host's memory, as far as that can be told: by KFD's node of it.
    pub fn is_integrated(&self, card: &Card) -> Option<bool> {
        self.node_of(card).and_then(KfdNode::is_integrated)
    }

    /// The lowest limit of the process's control groups.
    pub fn cgroup_limit(&self) -> Option<&CgroupLevel> {
        self.cgroups.iter().filter(|level| level.limit_bytes.is_some()).min_by_key(|level| level.limit_bytes)
    }

    /// What processes hold of a GPU through KFD, by KFD's number of it.
    pub fn kfd_bytes(&self, gpu_id: u64) -> u64 {
        self.kfd_processes.iter().map(|process| process.bytes_of(gpu_id)).fold(0, u64::saturating_add)
    }
}

fn ttm(files: &Files<'_>) -> Option<Ttm> {
    // With AMD's package both modules may be loaded; its amdgpu then uses its own.
    [("amdttm", true), ("ttm", false)].into_iter().find_map(|(module, out_of_tree)| {
        let number = |name: &str| files.number(&format!("/sys/module/{module}/parameters/{name}"));
        let (pages_limit, page_pool_size) = (number("pages_limit"), number("page_pool_size"));
        (pages_limit.is_some() || page_pool_size.is_some()).then_some(Ttm { out_of_tree, pages_limit, page_pool_size })
    })
}

fn rocm(files: &Files<'_>) -> Vec<Rocm> {
    let versions = files.below("/opt").into_iter().filter_map(|(path, text)| {
        let directory = path.strip_suffix("/.info/version")?;
        Some(Rocm { directory: directory.to_owned(), version: text::first_line(text)? })
    });
    versions.collect()
}
