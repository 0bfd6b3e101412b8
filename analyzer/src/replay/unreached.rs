//! Calls of the program that were to make memory reachable, and failed for another reason than want of memory: opening memory of
//! another process, mapping memory under an address.

use gpuoom_trace::record::{Event, Record};

/// The first such call, and how many there were.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unreached {
    /// Ticks when it was made.
    pub at: u64,
    /// Function.
    pub api: u16,
    /// What it returned.
    pub status: i32,
    /// It was to open memory of another process or interface; else to map memory.
    pub is_import: bool,
    /// All of both sorts.
    pub count: u64,
}

impl Unreached {
    /// One more.
    #[cold]
    pub(super) fn note(known: &mut Option<Self>, record: &Record) {
        let Record { at, api, status, .. } = *record;
        let is_import = record.event() == Some(Event::Import);
        known.get_or_insert(Unreached { at, api, status, is_import, count: 0 }).count += 1;
    }
}
