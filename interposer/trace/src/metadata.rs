//! Cold metadata: facts about process, functions, libraries and devices, encoded by bincode behind this one module.
//!
//! Every decoder has a limit, so a length in a hostile file cannot make it allocate.

use bincode::Options;
use serde::{Deserialize, Serialize, de::DeserializeOwned};

use crate::meaning::{Codes, Meaning};
use crate::record::Kind;

/// Largest metadata block that is read, in bytes.
pub const MAX_METADATA_BYTES: u64 = 8 << 20;

/// Variables that tell the rank of a distributed job, in the order of preference. One that does is in the environment that is
/// written, so that rank 0 is told from none.
pub const RANK_VARIABLES: [&str; 3] = ["RANK", "OMPI_COMM_WORLD_RANK", "SLURM_PROCID"];

/// Facts about the recorded process, written when the file is made.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProcessFacts {
    /// Process id.
    pub pid: u32,
    /// Parent process id.
    pub parent_pid: u32,
    /// Rank of a distributed job; 0 also where none is set, see [`RANK_VARIABLES`].
    pub rank: u32,
    /// Path of the executable.
    pub executable: String,
    /// Arguments; values of options named like a secret are masked.
    pub command_line: Vec<String>,
    /// Variables from the allow-list that were set.
    pub environment: Vec<(String, String)>,
    /// Host name.
    pub hostname: String,
    /// Kernel release and version.
    pub kernel: String,
    /// Version of the recorder.
    pub recorder_version: String,
    /// Settings of the recorder that could not be understood.
    pub notes: Vec<String>,
}

/// One function that the recorder knows; records name it by its row.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ApiRow {
    /// Exported name, e.g. `hipMalloc`.
    pub name: String,
    /// [`crate::record::Layer`] as a number.
    pub layer: u8,
}

/// The functions that the recorder of this file knows, in the order of their numbers.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ApiTable {
    /// Row `n` belongs to `api == n`.
    pub rows: Vec<ApiRow>,
}

/// What a function means: the numbers of [`crate::meaning`]. A number that a reader does not know counts as 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ApiMeaning {
    /// [`crate::record::Kind`] of memory that it is about, where its arguments do not say otherwise.
    pub kind: u8,
    /// [`crate::meaning::Codes`].
    pub codes: u8,
    /// [`crate::meaning::Family`].
    pub family: u8,
    /// [`crate::meaning::Ends`].
    pub ends: u8,
    /// [`crate::meaning::Does`].
    pub does: u8,
    /// Bits of [`crate::meaning::says`].
    pub flags: u8,
}

/// An interface's status codes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StatusCodes {
    /// [`crate::meaning::Codes`] as a number.
    pub codes: u8,
    /// The interface's name, for texts.
    pub interface: String,
    /// The codes that say that there was no memory, the usual one first.
    pub out_of_memory: Vec<i32>,
}

/// What the functions of [`ApiTable`] mean, in the same order.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ApiMeanings {
    /// Row `n` belongs to `api == n`.
    pub rows: Vec<ApiMeaning>,
    /// The interfaces whose codes the rows name.
    pub statuses: Vec<StatusCodes>,
}

impl ApiMeanings {
    /// The block for these rows, each with the kind of memory that it is about.
    pub fn of(rows: impl Iterator<Item = (Kind, Meaning)>) -> Self {
        let rows = rows.map(|(kind, meaning)| ApiMeaning {
            kind: kind as u8,
            codes: meaning.codes as u8,
            family: meaning.family as u8,
            ends: meaning.ends as u8,
            does: meaning.does as u8,
            flags: meaning.flags,
        });
        let statuses = Codes::ALL.iter().map(|codes| StatusCodes {
            codes: *codes as u8,
            interface: codes.name().to_owned(),
            out_of_memory: codes.out_of_memory().to_vec(),
        });
        ApiMeanings { rows: rows.collect(), statuses: statuses.collect() }
    }
}

/// A loaded library of interest.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Module {
    /// Path as the loader knows it, symbolic links resolved.
    pub path: String,
    /// GNU build id in hexadecimal, empty where there is none.
    pub build_id: String,
    /// First address.
    pub start: u64,
    /// End of the last segment.
    pub end: u64,
    /// Whether it is a vendor's GPU library.
    pub vendor: bool,
}

/// The loaded libraries at one moment; a later block replaces an earlier one.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Modules {
    /// In load order.
    pub modules: Vec<Module>,
}

/// A library that calls a vendor's function past the recorder.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Bypass {
    /// Path of the library that calls; empty where `target` comes before the recorder in the order of all (`ioctl`).
    pub caller: String,
    /// A function that its references lead past the hook; one of several.
    pub function: String,
    /// Path of the library that they lead to.
    pub target: String,
    /// Number of such functions.
    pub functions: u32,
}

/// The libraries that call past the recorder; a later block replaces an earlier one.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Bypasses {
    /// In load order.
    pub bypasses: Vec<Bypass>,
}

/// Small text files that tell about the machine, as they were when recording began. What is on the list of files, and
/// what is kept of each, is the business of the crate `gpuoom-machine`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MachineFacts {
    /// Path and text of each file that was there.
    pub files: Vec<(String, String)>,
    /// Paths of files that were there and could not be read.
    pub unreadable: Vec<String>,
    /// Whether a bound of the recorder cut something off.
    pub cut: bool,
}

/// What the runtime says about a device that the program used.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeviceFacts {
    /// Index as the program's runtime counts.
    pub index: u8,
    /// Name, empty where the runtime does not tell.
    pub name: String,
    /// `hip` or `cuda`.
    pub runtime: String,
    /// Version of the runtime as it encodes it, 0 where it does not tell.
    pub runtime_version: i32,
    /// Version of the driver as it encodes it, 0 where it does not tell.
    pub driver_version: i32,
    /// Total memory as the runtime reports it.
    pub total_bytes: u64,
    /// PCI bus id (`0000:03:00.0`), empty where the runtime does not tell.
    pub pci_bus_id: String,
}

/// Where a number of a [`Reading`] comes from. Numbers of a file that are not here belong to a newer minor version.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u16)]
pub enum Quantity {
    /// Total memory of a device by `hipMemGetInfo` or `cudaMemGetInfo`.
    RuntimeTotal = 1,
    /// Free memory of a device by the same call.
    RuntimeFree = 2,
    /// `mem_info_vram_total` of amdgpu's sysfs.
    VramTotal = 3,
    /// `mem_info_vram_used`.
    VramUsed = 4,
    /// `mem_info_vis_vram_total`.
    VisibleVramTotal = 5,
    /// `mem_info_vis_vram_used`.
    VisibleVramUsed = 6,
    /// `mem_info_gtt_total`.
    GttTotal = 7,
    /// `mem_info_gtt_used`.
    GttUsed = 8,
    /// `/sys/class/kfd/kfd/proc/PID/vram_*` of this process.
    KfdProcessVram = 9,
    /// Resident memory of the process.
    ResidentMemory = 10,
    /// Memory charged to the process's cgroup.
    CgroupUsed = 11,
    /// Limit of that cgroup.
    CgroupLimit = 12,
    /// Open descriptors.
    OpenDescriptors = 13,
    /// Soft limit of open descriptors.
    DescriptorLimit = 14,
    /// Memory mappings.
    MemoryMaps = 15,
    /// `vm.max_map_count`.
    MemoryMapLimit = 16,
    /// Largest block that could be allocated when it was tried, in bytes.
    LargestAllocatable = 17,
    /// Why the largest block was not measured: one of [`probe_skipped`].
    ProbeSkipped = 18,
    /// `MemTotal` of `/proc/meminfo`.
    HostTotal = 19,
    /// `MemAvailable` of `/proc/meminfo`.
    HostAvailable = 20,
    /// Sum of `/sys/class/kfd/kfd/proc/PID/vram_*` of all other processes.
    KfdOthersVram = 21,
    /// Video memory of other processes' graphics clients, by `/proc/PID/fdinfo`, as far as they may be read.
    GraphicsVram = 22,
    /// Total memory of a device by NVML.
    NvmlTotal = 23,
    /// Used memory of a device by NVML, all processes and the driver.
    NvmlUsed = 24,
    /// Memory that the driver keeps for itself, by NVML.
    NvmlReserved = 25,
    /// This process's memory by NVML.
    NvmlProcess = 26,
    /// `AMDKFD_IOC_AVAILABLE_MEMORY`, as the program's own runtime asked it.
    KfdAvailable = 27,
    /// Memory of all other processes that NVML lists for a device. What is in use and in no process's account is not in it: the
    /// driver's own, page tables, pages of managed memory.
    NvmlOthers = 28,
    /// Addresses that the process has mapped (the first number of `/proc/self/statm`, in bytes); only where they are limited.
    AddressSpace = 29,
    /// Soft limit of them (`RLIMIT_AS`).
    AddressSpaceLimit = 30,
}

/// Values of [`Quantity::ProbeSkipped`].
pub mod probe_skipped {
    /// The runtime's version is not one for which the last error was shown to be kept per thread.
    pub const RUNTIME_UNVERIFIED: u64 = 1;
    /// A stream was being captured, which an allocation would break.
    pub const CAPTURE: u64 = 2;
    /// The measurement took too long.
    pub const TIMEOUT: u64 = 3;
    /// The recorder has no thread of its own in this process.
    pub const NO_THREAD: u64 = 4;
    /// Turned off, or measured before on this device.
    pub const NOT_ASKED: u64 = 5;
    /// The program uses stream-ordered pools, whose memory the runtime that had to be asked may give up.
    pub const POOLS: u64 = 6;
}

/// One number that the recorder read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reading {
    /// [`Quantity`] as a number.
    pub quantity: u16,
    /// Device index (or, for sysfs, the card's position), 0xFF where it belongs to none.
    pub device: u8,
    /// Bytes, or a count.
    pub value: u64,
}

/// What made the recorder read: the `status` of a reading record.
pub mod trigger {
    /// The first GPU call, and the first successful allocation on a device.
    pub const START: i32 = 0;
    /// The sampling period.
    pub const PERIOD: i32 = 1;
    /// A failed allocation; the record's `address` is that record's sequence number.
    pub const FAILURE: i32 = 2;
    /// The program's own query of free memory, seen after a failure.
    pub const PROGRAM: i32 = 4;
}

fn options() -> impl Options {
    bincode::DefaultOptions::new().with_fixint_encoding().with_limit(MAX_METADATA_BYTES)
}

/// Encodes a block of metadata; empty when it exceeds [`MAX_METADATA_BYTES`].
pub fn encode<T: Serialize>(value: &T) -> Vec<u8> {
    options().serialize(value).unwrap_or_default()
}

/// Encodes readings into `out` without allocating; returns the bytes used, 0 when they do not fit.
pub fn encode_readings(readings: &[Reading], out: &mut [u8]) -> usize {
    let room = out.len();
    let mut rest = &mut *out;
    match options().serialize_into(&mut rest, readings) {
        Ok(()) => room - rest.len(),
        Err(_) => 0,
    }
}

/// Decodes a block; `None` when the bytes are not one. Further bytes behind it (of a newer minor) are ignored.
pub fn decode<T: DeserializeOwned>(bytes: &[u8]) -> Option<T> {
    options().allow_trailing_bytes().deserialize(bytes).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metadata_returns() {
        let facts = ProcessFacts { pid: 7, command_line: vec!["a".into(), "b c".into()], ..ProcessFacts::default() };
        assert_eq!(decode::<ProcessFacts>(&encode(&facts)), Some(facts));
        let readings = [Reading { quantity: 1, device: 0, value: 42 }; 3];
        let mut out = [0; 100];
        let used = encode_readings(&readings, &mut out);
        assert_eq!(decode::<Vec<Reading>>(&out[..used]), Some(readings.to_vec()));
        assert_eq!(encode_readings(&readings, &mut [0; 20]), 0);
    }

    #[test]
    fn a_hostile_length_is_refused_without_allocating() {
        assert_eq!(decode::<ApiTable>(&u64::MAX.to_le_bytes()), None);
        assert_eq!(decode::<Vec<Reading>>(&(1u64 << 40).to_le_bytes()), None);
    }
}
