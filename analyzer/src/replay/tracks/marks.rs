//! Labels that the program put on its timeline.

use gpuoom_trace::payload;
use gpuoom_trace::record::Record;

use super::ends::Ends;

/// Labels that are kept of the beginning, and as many of the end.
const LISTED: usize = 2048;
/// Characters of a label that are kept.
const MAX_LABEL: usize = 200;

/// The text of a record, cut if it is very long.
pub fn label(bytes: &[u8]) -> String {
    payload::text(bytes).chars().take(MAX_LABEL).collect()
}

/// Ranges that libraries put around their own kernels, as CUB's device algorithms do below PyTorch's embeddings (seen with 2.11): they
/// are no steps of the program.
const OF_LIBRARIES: [&str; 2] = ["cub::", "thrust::"];

/// Whether a label is the program's own.
pub fn is_programs(bytes: &[u8]) -> bool {
    let label = payload::text(bytes);
    !OF_LIBRARIES.iter().any(|name| label.starts_with(name))
}

/// One label.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mark {
    /// Ticks.
    pub at: u64,
    /// Kernel thread id.
    pub thread: u32,
    /// The label, cut if it is very long.
    pub label: String,
    /// How many of the program's calls for memory came before it.
    pub calls_before: u64,
    /// Bytes that the program's blocks held on each device.
    pub held_bytes: Vec<(u8, u64)>,
}

/// All labels.
#[derive(Clone, Debug)]
pub struct Marks {
    listed: Ends<Mark>,
}

impl Default for Marks {
    fn default() -> Self {
        Marks { listed: Ends::new(LISTED) }
    }
}

impl Marks {
    #[cold]
    pub(super) fn push(&mut self, record: &Record, bytes: &[u8], calls_before: u64, held_bytes: Vec<(u8, u64)>) {
        let label = label(bytes);
        self.listed.push(Mark { at: record.at, thread: record.thread, label, calls_before, held_bytes });
    }

    /// In order; beginning and end of a long list.
    pub fn listed(&self) -> &Ends<Mark> {
        &self.listed
    }

    /// The longest stretch that is kept without a gap: all of a short list, the end of a long one.
    pub fn without_gap(&self) -> impl Iterator<Item = &Mark> {
        let left_out = if self.listed.is_complete() { 0 } else { LISTED };
        self.listed.iter().skip(left_out)
    }

    /// The last label at or before a moment.
    pub fn before(&self, at: u64) -> Option<&Mark> {
        self.listed.iter().rev().find(|mark| mark.at <= at)
    }
}
