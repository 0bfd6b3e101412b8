//! Control groups: limits of host memory and of device memory. Source: Linux `Documentation/admin-guide/cgroup-v2.rst`;
//! version 1: `Documentation/admin-guide/cgroup-v1/memory.rst`.

use serde::Serialize;

use super::text::{Files, MAX_THINGS, number_of};

/// Version 1 writes "no limit" as a number near 2^63, rounded down to a page.
const UNLIMITED_V1: u64 = 1 << 62;

/// One level of the process's control groups.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct CgroupLevel {
    /// Its directory.
    pub path: String,
    /// `memory.max`; `None`: no limit, or not known.
    pub limit_bytes: Option<u64>,
    /// `memory.high`: beyond it the group is slowed down.
    pub high_bytes: Option<u64>,
    /// `memory.current`.
    pub used_bytes: Option<u64>,
    /// `memory.swap.max`.
    pub swap_limit_bytes: Option<u64>,
    /// How often the limit was met.
    pub limit_hits: Option<u64>,
    /// Processes that the kernel killed for want of memory.
    pub kills: Option<u64>,
}

pub(super) fn levels(files: &Files<'_>) -> Vec<CgroupLevel> {
    let mut directories: Vec<&str> = files
        .below("/sys/fs/cgroup")
        .into_iter()
        .filter_map(|(path, _)| path.rsplit_once('/'))
        .filter(|(_, name)| name.starts_with("memory."))
        .map(|(directory, _)| directory)
        .collect();
    directories.dedup();
    // The innermost has the longest path, since all lie on one.
    directories.sort_by_key(|directory| std::cmp::Reverse(directory.len()));
    directories.dedup();
    directories.into_iter().take(MAX_THINGS).map(|directory| level(files, directory)).collect()
}

fn level(files: &Files<'_>, directory: &str) -> CgroupLevel {
    let number = |name: &str| files.number(&format!("{directory}/{name}"));
    let events = files.text(&format!("{directory}/memory.events"));
    let limit = number("memory.max").or_else(|| number("memory.limit_in_bytes"));
    CgroupLevel {
        path: directory.to_owned(),
        limit_bytes: limit.filter(|limit| *limit < UNLIMITED_V1),
        high_bytes: number("memory.high"),
        used_bytes: number("memory.current").or_else(|| number("memory.usage_in_bytes")),
        swap_limit_bytes: number("memory.swap.max"),
        limit_hits: number_of(events, "max").or_else(|| number("memory.failcnt")),
        kills: number_of(events, "oom_kill"),
    }
}

/// Device memory of one region in one control group: lines `drm/0000:03:00.0/vram BYTES` of `dmem.*` (Linux 6.14).
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct DeviceMemory {
    /// The group's directory.
    pub path: String,
    /// The region: driver, PCI address and heap.
    pub region: String,
    /// `dmem.max`.
    pub limit_bytes: u64,
    /// `dmem.current`.
    pub used_bytes: Option<u64>,
    /// `dmem.capacity`, which the root alone has.
    pub capacity_bytes: Option<u64>,
}

impl DeviceMemory {
    /// PCI address of the card that the region belongs to.
    pub fn pci_bus_id(&self) -> Option<&str> {
        self.region.strip_prefix("drm/")?.split('/').next()
    }

    /// Whether it is the card's own memory: amdgpu has `vram`, xe `vram0` and so on; other regions hold what is not.
    pub fn is_vram(&self) -> bool {
        self.region.rsplit('/').next().is_some_and(|heap| heap.starts_with("vram"))
    }
}

pub(super) fn device_memory(files: &Files<'_>) -> Vec<DeviceMemory> {
    let capacity = files.text("/sys/fs/cgroup/dmem.capacity");
    let mut found = Vec::new();
    for (path, text) in files.below("/sys/fs/cgroup") {
        let Some(directory) = path.strip_suffix("/dmem.max") else { continue };
        let current = files.text(&format!("{directory}/dmem.current"));
        for line in text.lines().take(MAX_THINGS - found.len()) {
            // "max" is no limit.
            let Some((region, limit)) = line.trim().rsplit_once(' ') else { continue };
            let Ok(limit_bytes) = limit.parse() else { continue };
            found.push(DeviceMemory {
                path: directory.to_owned(),
                region: region.to_owned(),
                limit_bytes,
                used_bytes: number_of(current, region),
                capacity_bytes: number_of(capacity, region),
            });
        }
    }
    found
}
