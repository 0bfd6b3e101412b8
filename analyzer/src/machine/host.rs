//! The host: memory, limits of kernel and process, parameters, pressure.

use serde::Serialize;

use super::text::{Files, first_line, value_of};

/// `/proc/meminfo` (Linux `Documentation/filesystems/proc.rst`), in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct HostMemory {
    /// `MemTotal`: without what the firmware keeps, so without an APU's carve-out.
    pub total_bytes: Option<u64>,
    /// `MemFree`.
    pub free_bytes: Option<u64>,
    /// `MemAvailable`: what programs can get without swapping.
    pub available_bytes: Option<u64>,
    /// `SwapTotal`.
    pub swap_total_bytes: Option<u64>,
    /// `SwapFree`.
    pub swap_free_bytes: Option<u64>,
    /// `Committed_AS`: what is promised to programs.
    pub committed_bytes: Option<u64>,
    /// `CommitLimit`.
    pub commit_limit_bytes: Option<u64>,
    /// `HugePages_Total` times `Hugepagesize`: set aside, and no use to GPU memory.
    pub huge_pages_bytes: Option<u64>,
}

impl HostMemory {
    pub(super) fn parse(text: &str) -> Self {
        let kib = |key: &str| gpuoom_units::size(value_of(text, key)?).ok();
        let pages: Option<u64> = value_of(text, "HugePages_Total").and_then(|count| count.parse().ok());
        HostMemory {
            total_bytes: kib("MemTotal"),
            free_bytes: kib("MemFree"),
            available_bytes: kib("MemAvailable"),
            swap_total_bytes: kib("SwapTotal"),
            swap_free_bytes: kib("SwapFree"),
            committed_bytes: kib("Committed_AS"),
            commit_limit_bytes: kib("CommitLimit"),
            huge_pages_bytes: pages.zip(kib("Hugepagesize")).map(|(pages, size)| pages.saturating_mul(size)),
        }
    }
}

/// A parameter with its value as it is written.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Parameter {
    /// Name, such as `ttm.pages_limit`.
    pub name: String,
    /// What stands behind `=`.
    pub value: Option<String>,
}

/// The parameters of a module, by name.
pub(super) fn module_parameters(files: &Files<'_>, directory: &str) -> Vec<Parameter> {
    let named = files.below(directory).into_iter().filter_map(|(path, text)| {
        let name = path.rsplit('/').next()?.to_owned();
        Some(Parameter { name, value: first_line(text) })
    });
    named.collect()
}

/// Parameters of the kernel's command line. Values with spaces in quotes are none of those that are kept.
pub(super) fn kernel_parameters(text: &str) -> Vec<Parameter> {
    let words = text.split_ascii_whitespace().map(|word| match word.split_once('=') {
        Some((name, value)) => Parameter { name: name.to_owned(), value: Some(value.to_owned()) },
        None => Parameter { name: word.to_owned(), value: None },
    });
    words.collect()
}

/// A soft and a hard limit; `None` where there is no limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Limit {
    /// What holds now.
    pub soft: Option<u64>,
    /// How far the process may raise it.
    pub hard: Option<u64>,
}

/// `/proc/self/limits`; `None` where the file does not tell.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ProcessLimits {
    /// Open descriptors.
    pub open_files: Option<Limit>,
    /// Locked memory, in bytes.
    pub locked_bytes: Option<Limit>,
    /// Address space, in bytes.
    pub address_space_bytes: Option<Limit>,
    /// Data, in bytes.
    pub data_bytes: Option<Limit>,
}

impl ProcessLimits {
    pub(super) fn parse(text: &str) -> Self {
        let limit = |name: &str| {
            let mut words = text.lines().find_map(|line| line.strip_prefix(name))?.split_whitespace();
            let mut next = || match words.next()? {
                "unlimited" => Some(None),
                number => number.parse().ok().map(Some),
            };
            Some(Limit { soft: next()?, hard: next()? })
        };
        ProcessLimits {
            open_files: limit("Max open files"),
            locked_bytes: limit("Max locked memory"),
            address_space_bytes: limit("Max address space"),
            data_bytes: limit("Max data size"),
        }
    }
}

/// `/proc/sys/vm` (Linux `Documentation/admin-guide/sysctl/vm.rst`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct VirtualMemory {
    /// Mappings that a process may have.
    pub max_map_count: Option<u64>,
    /// 0 heuristic, 1 always, 2 never more than the commit limit.
    pub overcommit_memory: Option<u64>,
    /// Per cent of the RAM that count for the commit limit.
    pub overcommit_ratio: Option<u64>,
}

/// `/proc/pressure/memory` (Linux `Documentation/accounting/psi.rst`): per cent of the time in which tasks waited for
/// memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Pressure {
    /// Some task waited, in the last 10 s.
    pub some_10s_percent: Option<f64>,
    /// All tasks waited, in the last 10 s.
    pub full_10s_percent: Option<f64>,
    /// All tasks waited, in the last 60 s.
    pub full_60s_percent: Option<f64>,
}

impl Pressure {
    pub(super) fn parse(text: &str) -> Option<Self> {
        let value = |line: &str, key: &str| {
            let line = text.lines().find(|candidate| candidate.starts_with(line))?;
            let word = line.split_whitespace().find_map(|word| word.strip_prefix(key)?.strip_prefix('='))?;
            word.parse::<f64>().ok().filter(|percent| percent.is_finite())
        };
        let pressure = Pressure {
            some_10s_percent: value("some", "avg10"),
            full_10s_percent: value("full", "avg10"),
            full_60s_percent: value("full", "avg60"),
        };
        (pressure != Pressure::default()).then_some(pressure)
    }
}
