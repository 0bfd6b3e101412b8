//! One run in numbers that can be set beside those of another: by device, by kind of memory and by call site.

pub mod figures;
mod make;
mod rising;
mod script;
mod sites;
pub mod tensors;
#[cfg(test)]
mod tests;
mod unsaid;

use std::collections::BTreeMap;

use gpuoom_trace::record::{Kind, NO_DEVICE};
use serde::{Serialize, Serializer};

use crate::passes::trend::Limits;

pub use figures::{Figure, Figures, Unit};
pub use make::profile;
pub use rising::{BlockGrowth, LabelGrowth};
pub use tensors::{TensorFigure, TensorFigures, TensorProfile};

/// The thresholds that the numbers of a profile depend on: what blocks are rounded to, and what growth is laid through.
pub const THRESHOLDS: [&str; 13] = [
    "model-granule",
    "leak-cycles",
    "swing-share",
    "phase-cycles",
    "end-share",
    "stretch-share",
    "stretch-cycles",
    "step-share",
    "rise-pause-factor",
    "returned-share",
    "leak-total",
    "filling-share",
    "filling-base-share",
];

/// Where memory lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Place {
    /// On a device, by the program's index.
    Gpu(u8),
    /// On a device that the trace does not name.
    UnknownGpu,
    /// In the host's memory, pinned or registered.
    Host,
}

impl Place {
    fn of_device(device: u8) -> Self {
        if device == NO_DEVICE { Place::UnknownGpu } else { Place::Gpu(device) }
    }

    /// Its name for people.
    pub fn words(self) -> String {
        match self {
            Place::Gpu(index) => format!("GPU {index}"),
            Place::UnknownGpu => "unknown GPU".to_owned(),
            Place::Host => "host".to_owned(),
        }
    }
}

impl Serialize for Place {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Place::Gpu(index) => serializer.collect_str(&format_args!("gpu{index}")),
            Place::UnknownGpu => serializer.serialize_str("gpu?"),
            Place::Host => serializer.serialize_str("host"),
        }
    }
}

impl Run {
    /// What stands for its rank where runs are told apart: one without any is like the first.
    pub fn rank_or_first(&self) -> u32 {
        self.rank.unwrap_or(0)
    }
}

/// The run itself.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Run {
    /// The trace as it was given.
    pub path: String,
    /// `major.minor`.
    pub format_version: String,
    /// File name of the executable.
    pub executable: String,
    /// What an interpreter runs: file name of the script, or name of the module; null of other programs.
    pub script: Option<String>,
    /// Rank of a distributed job; null where none is known.
    pub rank: Option<u32>,
    /// Process id.
    pub pid: u32,
    /// From the beginning of the trace to the last record.
    pub duration_ns: u64,
    /// `exited`, `signaled`, `unknown`.
    pub end: &'static str,
    /// Exit status.
    pub exit_code: Option<i32>,
    /// Signal number.
    pub signal: Option<i32>,
    /// Records.
    pub events: u64,
    /// Records that did not get into the file, or were not finished.
    pub events_lost: u64,
    /// Parts of the file that could not be read.
    pub damages: usize,
    /// Granule that blocks are padded to.
    pub granularity_bytes: u64,
    /// Out-of-memory returns beyond those that are kept; they are in no other number.
    pub ooms_not_listed: u64,
    /// Refusals that the recorder made up on request.
    pub injected: u64,
    /// Whether the recorder followed CUDA contexts, whose end gives memory back (since format 1.2), if there were any.
    pub follows_contexts: bool,
    /// Versions of what lies below the program, as far as the trace has them: name, version.
    pub software: BTreeMap<&'static str, String>,
    /// What the trace knows its call sites by.
    pub sites_known_by: KnownBy,
    /// Thresholds that the user set, in words.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub thresholds_set: Vec<String>,
}

/// One device, or the host.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PlaceProfile {
    /// Which.
    pub place: Place,
    /// Name of the device, where it is known.
    pub name: Option<String>,
    /// Its numbers.
    pub figures: Figures,
    /// The most that was in use by a reading, whoever used it; null where nobody read it.
    pub most_in_use: Option<InUse>,
    /// Rise of what stays between the cycles of the run, in bytes per second; null below five cycles.
    pub growth_per_second: Option<f64>,
    /// That rise where it goes as it went before it was given back: nobody knows whether it will be again.
    #[serde(skip)]
    pub open_growth_per_second: Option<f64>,
    /// Why its level cycles do not show that nothing grows: then its growth is not judged.
    #[serde(skip)]
    pub unsaid: Option<String>,
    /// Whether what rose at its marks was given back behind the last of them.
    #[serde(skip)]
    pub given_back_at_the_end: bool,
    /// Whether the steps in which it rises may be the parts of one load: then its growth is not judged.
    #[serde(skip)]
    pub may_be_a_load: bool,
    /// Whether the run had more cycles than were kept.
    #[serde(skip)]
    pub cycles_are_missing: bool,
    /// What was held at the program's marks, in order; of very many, the last ones.
    #[serde(skip)]
    pub marks: Vec<MarkProfile>,
    /// Cycles of live bytes that came when the last mark had: of these the marks say nothing.
    #[serde(skip)]
    pub cycles_behind_marks: usize,
    /// The numbers by which their trend is judged.
    #[serde(skip)]
    pub trend_limits: Limits,
}

/// How much of a device was in use by a reading.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct InUse {
    /// Bytes.
    pub bytes: u64,
    /// Who said so.
    pub by: &'static str,
    /// Whether that is this process's share, and not that of all processes.
    pub of_process: bool,
}

/// A mark of the program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MarkProfile {
    /// Its label.
    pub label: String,
    /// Bytes of the program's blocks on the device.
    pub held_bytes: u64,
}

/// What a call site is known by, the least telling first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub enum KnownBy {
    /// The function that was called.
    #[default]
    #[serde(rename = "function")]
    Function,
    /// That, and the library that called it.
    #[serde(rename = "function and library")]
    Library,
    /// That, and the function in it that called.
    #[serde(rename = "caller")]
    Caller,
    /// Functions and modules of its call stack.
    #[serde(rename = "call stack")]
    Stack,
}

/// The names of a call site: two runs are compared by the most telling that both have.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SiteName {
    /// By its call stack: `hipMalloc < libfoo.so!load < program!main`.
    pub by_stack: Option<String>,
    /// By the function that called: `hipMalloc < libfoo.so!load`.
    pub by_caller: Option<String>,
    /// By the function that was called and the library that called it.
    pub by_library: Option<String>,
    /// By the function that was called.
    pub by_function: String,
}

impl SiteName {
    /// The most telling that there is.
    pub fn known_by(&self) -> KnownBy {
        match self {
            SiteName { by_stack: Some(_), .. } => KnownBy::Stack,
            SiteName { by_caller: Some(_), .. } => KnownBy::Caller,
            SiteName { by_library: Some(_), .. } => KnownBy::Library,
            _ => KnownBy::Function,
        }
    }

    /// The name, no more telling than asked for.
    pub fn at_most(&self, known_by: KnownBy) -> &str {
        let by_stack = self.by_stack.as_ref().filter(|_| known_by >= KnownBy::Stack);
        let by_caller = self.by_caller.as_ref().filter(|_| known_by >= KnownBy::Caller);
        let by_library = self.by_library.as_ref().filter(|_| known_by >= KnownBy::Library);
        by_stack.or(by_caller).or(by_library).unwrap_or(&self.by_function)
    }
}

/// One call site on one device, for one kind of memory.
#[derive(Clone, Debug, PartialEq)]
pub struct SiteProfile {
    /// Which device, or the host.
    pub place: Place,
    /// Kind of memory.
    pub kind: Kind,
    /// Its names.
    pub name: SiteName,
    /// Its numbers.
    pub figures: Figures,
}

/// One run.
#[derive(Clone, Debug, PartialEq)]
pub struct Profile {
    /// The run itself.
    pub run: Run,
    /// Devices and host, in order; only those that were used.
    pub places: Vec<PlaceProfile>,
    /// Call sites, in the order of place, kind and name.
    pub sites: Vec<SiteProfile>,
    /// What allocators above the runtime told, by device.
    pub tensors: Vec<TensorProfile>,
    /// How what they gave out grows, by device; only where enough steps are told.
    pub block_growth: Vec<BlockGrowth>,
    /// What they hold at the program's labels, by device and sort of label.
    pub label_growth: Vec<LabelGrowth>,
}
