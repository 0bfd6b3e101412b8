//! What the recorder read along the way: free and total memory, by device and by who says so.

use gpuoom_trace::metadata::{Quantity, Reading, probe_skipped};
use gpuoom_trace::record::NO_DEVICE;
use rustc_hash::FxHashMap;

/// Largest number of a quantity that this version knows.
const LAST_QUANTITY: u16 = Quantity::KfdAvailable as u16;

/// One series of readings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Series {
    /// Ticks and value of the first reading.
    pub first: (u64, u64),
    /// Ticks and value of the last reading.
    pub last: (u64, u64),
    /// Ticks and value of the smallest.
    pub least: (u64, u64),
    /// Ticks and value of the greatest.
    pub most: (u64, u64),
    /// Number of readings.
    pub count: u64,
}

/// All series, by quantity and device.
#[derive(Clone, Debug, Default)]
pub struct Readings {
    series: FxHashMap<(u16, u8), Series>,
}

impl Readings {
    /// Takes one reading.
    pub fn take(&mut self, reading: &Reading, at: u64) {
        if reading.quantity == 0 || reading.quantity > LAST_QUANTITY {
            return;
        }
        let now = (at, reading.value);
        let fresh = Series { first: now, last: now, least: now, most: now, count: 0 };
        let series = self.series.entry((reading.quantity, reading.device)).or_insert(fresh);
        series.last = now;
        series.count += 1;
        if now.1 < series.least.1 {
            series.least = now;
        }
        if now.1 > series.most.1 {
            series.most = now;
        }
    }

    /// The series of a quantity on a device.
    pub fn series(&self, quantity: Quantity, device: u8) -> Option<&Series> {
        self.series.get(&(quantity as u16, device))
    }
}

/// What was read about one device at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DeviceReadings {
    /// Free memory by the runtime.
    pub runtime_free_bytes: Option<u64>,
    /// Total memory by the runtime.
    pub runtime_total_bytes: Option<u64>,
    /// Total memory by sysfs.
    pub vram_total_bytes: Option<u64>,
    /// Used memory by sysfs.
    pub vram_used_bytes: Option<u64>,
    /// This process's memory by KFD.
    pub process_vram_bytes: Option<u64>,
    /// Other processes' memory by KFD.
    pub others_vram_bytes: Option<u64>,
    /// Memory of other processes' graphics clients.
    pub graphics_vram_bytes: Option<u64>,
    /// Memory that KFD would still give, as it told the program's runtime.
    pub kfd_available_bytes: Option<u64>,
    /// System memory that the GPU may map, by sysfs.
    pub gtt_total_bytes: Option<u64>,
    /// Of it in use.
    pub gtt_used_bytes: Option<u64>,
    /// Total memory by NVML.
    pub nvml_total_bytes: Option<u64>,
    /// Used memory by NVML.
    pub nvml_used_bytes: Option<u64>,
    /// Memory that NVIDIA's driver keeps, by NVML.
    pub nvml_reserved_bytes: Option<u64>,
    /// This process's memory by NVML.
    pub nvml_process_bytes: Option<u64>,
    /// Memory of the other processes that NVML lists.
    pub nvml_others_bytes: Option<u64>,
    /// Largest allocatable block, as the probe measured it.
    pub largest_allocatable_bytes: Option<u64>,
    /// Why the largest block was not measured.
    pub probe_skipped: Option<u64>,
}

/// What was read about the process and its host at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ProcessReadings {
    /// Open descriptors.
    pub open_descriptors: Option<u64>,
    /// Soft limit of open descriptors.
    pub descriptor_limit: Option<u64>,
    /// Memory mappings.
    pub memory_maps: Option<u64>,
    /// `vm.max_map_count`.
    pub memory_map_limit: Option<u64>,
    /// Addresses that the process has mapped, where they are limited.
    pub address_space_bytes: Option<u64>,
    /// Soft limit of them.
    pub address_space_limit_bytes: Option<u64>,
    /// Resident memory.
    pub resident_bytes: Option<u64>,
    /// Memory charged to the control group.
    pub cgroup_used_bytes: Option<u64>,
    /// Limit of the control group.
    pub cgroup_limit_bytes: Option<u64>,
    /// `MemTotal` of the host.
    pub host_total_bytes: Option<u64>,
    /// `MemAvailable` of the host.
    pub host_available_bytes: Option<u64>,
}

impl ProcessReadings {
    /// Takes one reading; those of devices say nothing here.
    pub fn take(&mut self, reading: &Reading) {
        let field = match reading.quantity {
            _ if reading.device != NO_DEVICE => return,
            q if q == Quantity::OpenDescriptors as u16 => &mut self.open_descriptors,
            q if q == Quantity::DescriptorLimit as u16 => &mut self.descriptor_limit,
            q if q == Quantity::MemoryMaps as u16 => &mut self.memory_maps,
            q if q == Quantity::MemoryMapLimit as u16 => &mut self.memory_map_limit,
            q if q == Quantity::AddressSpace as u16 => &mut self.address_space_bytes,
            q if q == Quantity::AddressSpaceLimit as u16 => &mut self.address_space_limit_bytes,
            q if q == Quantity::ResidentMemory as u16 => &mut self.resident_bytes,
            q if q == Quantity::CgroupUsed as u16 => &mut self.cgroup_used_bytes,
            q if q == Quantity::CgroupLimit as u16 => &mut self.cgroup_limit_bytes,
            q if q == Quantity::HostTotal as u16 => &mut self.host_total_bytes,
            q if q == Quantity::HostAvailable as u16 => &mut self.host_available_bytes,
            _ => return,
        };
        *field = Some(reading.value);
    }
}

/// Who says how much of a device is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// `hipMemGetInfo` or `cudaMemGetInfo`.
    Runtime,
    /// amdgpu's sysfs.
    Sysfs,
    /// KFD's sysfs.
    Kfd,
    /// NVML.
    Nvml,
}

/// A device by one source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Whole {
    /// The source.
    pub source: Source,
    /// All memory.
    pub total_bytes: u64,
    /// What is free.
    pub free_bytes: u64,
}

/// How much of a device's memory is in use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InUse {
    /// The source.
    pub source: Source,
    /// Bytes in use.
    pub bytes: u64,
    /// Whether this is the process's own share, and not that of all processes.
    pub of_process: bool,
}

impl DeviceReadings {
    /// Takes one reading.
    pub fn take(&mut self, reading: &Reading) {
        let field = match reading.quantity {
            q if q == Quantity::RuntimeFree as u16 => &mut self.runtime_free_bytes,
            q if q == Quantity::RuntimeTotal as u16 => &mut self.runtime_total_bytes,
            q if q == Quantity::VramTotal as u16 => &mut self.vram_total_bytes,
            q if q == Quantity::VramUsed as u16 => &mut self.vram_used_bytes,
            q if q == Quantity::KfdProcessVram as u16 => &mut self.process_vram_bytes,
            q if q == Quantity::KfdOthersVram as u16 => &mut self.others_vram_bytes,
            q if q == Quantity::GraphicsVram as u16 => &mut self.graphics_vram_bytes,
            q if q == Quantity::KfdAvailable as u16 => &mut self.kfd_available_bytes,
            q if q == Quantity::GttTotal as u16 => &mut self.gtt_total_bytes,
            q if q == Quantity::GttUsed as u16 => &mut self.gtt_used_bytes,
            q if q == Quantity::NvmlTotal as u16 => &mut self.nvml_total_bytes,
            q if q == Quantity::NvmlUsed as u16 => &mut self.nvml_used_bytes,
            q if q == Quantity::NvmlReserved as u16 => &mut self.nvml_reserved_bytes,
            q if q == Quantity::NvmlProcess as u16 => &mut self.nvml_process_bytes,
            q if q == Quantity::NvmlOthers as u16 => &mut self.nvml_others_bytes,
            q if q == Quantity::LargestAllocatable as u16 => &mut self.largest_allocatable_bytes,
            q if q == Quantity::ProbeSkipped as u16 => &mut self.probe_skipped,
            _ => return,
        };
        *field = Some(reading.value);
    }

    /// Drops a largest allocatable block of 0 bytes where the runtime answered nothing else: it had no context to
    /// ask on, and refused whatever the size. Recorders up to format 1.5 took that for a measurement.
    pub fn drop_probe_of_nobody(&mut self) {
        let answered = self.runtime_free_bytes.is_some() || self.runtime_total_bytes.is_some();
        if self.largest_allocatable_bytes == Some(0) && !answered {
            self.largest_allocatable_bytes = None;
            self.probe_skipped = Some(probe_skipped::NOT_ASKED);
        }
    }

    /// The whole device, by each source that tells both numbers: those that see all users of the card come first.
    pub fn wholes(&self) -> Vec<Whole> {
        let whole = |source, total: Option<u64>, free: Option<u64>| {
            let (total_bytes, free_bytes) = total.filter(|total| *total > 0).zip(free)?;
            Some(Whole { source, total_bytes, free_bytes: free_bytes.min(total_bytes) })
        };
        let unused = |total: Option<u64>, used: Option<u64>| Some(total?.saturating_sub(used?));
        let all = [
            whole(Source::Sysfs, self.vram_total_bytes, unused(self.vram_total_bytes, self.vram_used_bytes)),
            whole(Source::Nvml, self.nvml_total_bytes, unused(self.nvml_total_bytes, self.nvml_used_bytes)),
            whole(Source::Runtime, self.runtime_total_bytes, self.runtime_free_bytes),
        ];
        all.into_iter().flatten().collect()
    }

    /// Other users of the card, as far as somebody counts them.
    pub fn others_bytes(&self) -> u64 {
        self.others_vram_bytes.unwrap_or(0).saturating_add(self.graphics_vram_bytes.unwrap_or(0))
    }

    /// By NVML, what is in use beyond the driver's reserve and this process; `None` where this process is not told.
    pub fn nvml_beyond_process_bytes(&self) -> Option<u64> {
        let process = self.nvml_process_bytes.filter(|bytes| *bytes > 0)?;
        let reserved = self.nvml_reserved_bytes.unwrap_or(0);
        Some(self.nvml_used_bytes?.saturating_sub(reserved).saturating_sub(process))
    }

    /// What this process uses by the driver, or where nobody tells that, what all use that are not known to be others.
    pub fn in_use(&self) -> Option<InUse> {
        self.in_use_by_process().or_else(|| self.in_use_by_all())
    }

    /// What this process uses by the driver.
    pub fn in_use_by_process(&self) -> Option<InUse> {
        // A container sees neither by its own process number: 0 is no answer then.
        let counts = |bytes: &u64| *bytes > 0;
        let of_process = |source, bytes| InUse { source, bytes, of_process: true };
        let by_kfd = self.process_vram_bytes.filter(counts).map(|bytes| of_process(Source::Kfd, bytes));
        let by_nvml = self.nvml_process_bytes.filter(counts).map(|bytes| of_process(Source::Nvml, bytes));
        by_kfd.or(by_nvml)
    }

    /// What all processes use that are not known to be others.
    pub fn in_use_by_all(&self) -> Option<InUse> {
        let whole = *self.wholes().first()?;
        let reserved = if whole.source == Source::Nvml { self.nvml_reserved_bytes.unwrap_or(0) } else { 0 };
        let bytes = (whole.total_bytes - whole.free_bytes).saturating_sub(reserved);
        Some(InUse { source: whole.source, bytes: bytes.saturating_sub(self.others_bytes()), of_process: false })
    }
}
