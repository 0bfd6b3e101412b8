//! Events that show what became of a failure.

use gpuoom_trace::meaning::Does;
use gpuoom_trace::outcome::{Step, UNKNOWN_BYTES};
use gpuoom_trace::record::{Event, Kind, Record};

/// An event that shows what became of a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Evidence {
    /// Ticks when it began; when the call returned, of what it answered.
    pub at: u64,
    /// Its sequence number; `None` for the end of the process where nothing was recorded.
    pub seq: Option<u64>,
    /// What happened.
    pub event: Event,
    /// Function, where there is one.
    pub api: Option<u16>,
    /// Call site, 0 where it is not known.
    pub site: u32,
    /// Status of the record.
    pub status: i32,
    /// Address of the record: of GPU work, what its function was given first, which need not be a pointer; 0 of no record.
    pub address: u64,
    /// The error's name or text was asked for (and not the last error).
    pub asks_text: bool,
    /// Of an allocation: the kind of memory, how much of it, and the device, where there is one.
    pub gave: Option<(Kind, u64, Option<u8>)>,
    /// Of GPU work: the failed call's pointer that it was given.
    pub pointer: Option<PointerUse>,
    /// The last error was read, and not only looked at.
    pub clears_error: bool,
}

/// Memory that a thread was given after a failure and before any GPU work, and that makes up for nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OtherMemory {
    /// The largest block, the first of equal ones.
    pub largest: Option<Evidence>,
    /// How many there were.
    pub blocks: u64,
}

impl OtherMemory {
    pub(super) fn add(&mut self, evidence: Evidence) {
        let bytes = |evidence: Evidence| evidence.gave.map_or(0, |(_, bytes, _)| bytes);
        self.blocks += 1;
        if self.largest.is_none_or(|largest| bytes(largest) < bytes(evidence)) {
            self.largest = Some(evidence);
        }
    }
}

/// GPU work was given what a failed call left in its pointer variable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PointerUse {
    /// How many undecided failures of the thread left the same; `None` where nobody counted.
    pub left_by: Option<u64>,
    /// Sequence number of the failure that it is held for; `None` where it may be one or another.
    pub whose: Option<u64>,
    /// Whether that failure's variable held it to that moment. False also where nobody looked.
    pub is_still_held: bool,
    /// Failures of the process until then beside that one and its attempts; `None` where nobody counted.
    pub others: Option<u64>,
}

impl Evidence {
    /// Whether it gave memory, as far as anybody knows how much.
    pub(super) fn is_block(&self) -> bool {
        matches!(self.event, Event::Alloc | Event::Pin) && self.gave.is_some_and(|(_, bytes, _)| bytes != UNKNOWN_BYTES)
    }

    /// A record as evidence.
    pub(super) fn of(record: &Record, step: Step, pointer: Option<PointerUse>, does: Does) -> Self {
        let gave = match step {
            Step::Allocated(by) => Some((record.kind(), by.requested_bytes, record.device())),
            _ => None,
        };
        // An answer comes when the call returns.
        let waited = if matches!(step, Step::Answered { .. }) { u64::from(record.duration) } else { 0 };
        Evidence {
            at: record.at.saturating_add(waited),
            seq: Some(record.seq()),
            event: record.event().unwrap_or(Event::Mark),
            api: Some(record.api),
            site: record.site,
            status: record.status,
            address: record.address,
            asks_text: matches!(step, Step::ErrorText { .. }),
            gave,
            pointer,
            clears_error: step == Step::LastErrorRead && does != Does::PeeksError,
        }
    }

    /// The end of the process; without a number where nothing was recorded.
    pub fn of_end(at: u64, seq: Option<u64>, status: i32) -> Self {
        Evidence {
            at,
            seq,
            event: Event::Process,
            api: None,
            site: 0,
            status,
            address: 0,
            asks_text: false,
            gave: None,
            pointer: None,
            clears_error: false,
        }
    }
}
