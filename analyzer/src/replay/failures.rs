//! Allocations that ran out of memory, and what the thread did next.

use gpuoom_trace::outcome::{Because, Outcome, Step, UNKNOWN_BYTES, Watched};
use gpuoom_trace::record::{Event, Kind, Layer, Record, flag};
use rustc_hash::FxHashMap;

use super::arena::FreeSpace;
use super::census::Census;
use super::held::Held;
use super::readings::{DeviceReadings, ProcessReadings};

/// Failures that are listed; more are only counted.
pub const MAX_LISTED: usize = 100_000;
/// Events that are kept as evidence of one outcome.
const MAX_EVIDENCE: usize = 16;
/// Failing nested calls that are remembered for a thread.
const MAX_NESTED: usize = 64;

/// Who refused an allocation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RefusedBy {
    /// The lowest layer that returned a failure; `None` where the file does not name the layer.
    Layer(Option<Layer>),
    /// The recorder, on request.
    Injected,
}

/// A call inside another one that failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Inside {
    /// Ordinal of the call within its thread.
    call: u32,
    /// Its layer.
    pub layer: Layer,
    /// Function.
    pub api: u16,
    /// What it returned.
    pub status: i32,
    /// Bytes asked for.
    pub requested_bytes: u64,
}

/// An event that shows what became of a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Evidence {
    /// Ticks when it began.
    pub at: u64,
    /// Its sequence number; `None` for the end of the process where nothing was recorded.
    pub seq: Option<u64>,
    /// What happened.
    pub event: Event,
    /// Function, where there is one.
    pub api: Option<u16>,
    /// Status of the record.
    pub status: i32,
    /// The error's name or text was asked for (and not the last error).
    pub asks_text: bool,
}

/// An allocation that ran out of memory.
#[derive(Clone, Debug)]
pub struct Oom {
    /// Ordinal of its record in the replay.
    pub position: u64,
    /// Sequence number of its record.
    pub seq: u64,
    /// Ticks when the call began.
    pub at: u64,
    /// Kernel thread id.
    pub thread: u32,
    /// Function.
    pub api: u16,
    /// Call site, 0 where it is not known.
    pub site: u32,
    /// Device, where it is known.
    pub device: Option<u8>,
    /// Kind of memory that was asked for.
    pub kind: Kind,
    /// Bytes asked for; 0 where a context or a handle was to be set up, whose size nobody tells.
    pub requested_bytes: u64,
    /// Whether that size is not known.
    pub unknown_size: bool,
    /// Granules asked for.
    pub granules: u32,
    /// What the call returned.
    pub status: i32,
    /// Who refused.
    pub refused_by: RefusedBy,
    /// Of a refusal on request, what the record says of it: the reason's number, and the number of the call.
    pub injected: Option<(u8, u64)>,
    /// The lowest call inside it that failed, as far as that was recorded.
    pub inside: Option<Inside>,
    /// What became of it.
    pub outcome: Outcome,
    /// Why that is the outcome.
    pub because: Because,
    /// The events that show it.
    pub evidence: Vec<Evidence>,
    /// What was read at that moment.
    pub read: DeviceReadings,
    /// What was read of the process and its host.
    pub process: ProcessReadings,
    /// What the program held on that device.
    pub held: Held,
    /// Who held what there, as far as that was counted.
    pub census: Option<Box<Census>>,
    /// Whether layers below the one that was asked had been recorded before.
    pub saw_below: bool,
    /// Free space of the model arena.
    pub model: Option<FreeSpace>,
}

/// The failures of one thread that are not decided.
#[derive(Clone, Debug, Default)]
struct ThreadWatch {
    open: Vec<(usize, Watched)>,
    /// Failures before this one have seen a read of the last error: another changes nothing.
    checked: usize,
    /// The same for a text about the common status.
    told: usize,
}

/// All failures of a trace.
#[derive(Clone, Debug, Default)]
pub struct Failures {
    /// In the order of their records.
    pub listed: Vec<Oom>,
    /// All, listed or not.
    pub count: u64,
    watches: FxHashMap<u32, ThreadWatch>,
    by_seq: FxHashMap<u64, usize>,
    nested: FxHashMap<u32, Vec<Inside>>,
}

impl Failures {
    /// Notes that a call below another failed.
    pub fn note_nested(&mut self, record: &Record, layer: Option<Layer>) {
        let Some(layer) = layer else { return };
        if self.nested.len() < MAX_LISTED || self.nested.contains_key(&record.thread) {
            let calls = self.nested.entry(record.thread).or_default();
            if calls.len() < MAX_NESTED {
                let (call, api, status, requested_bytes) = (record.call, record.api, record.status, record.requested);
                calls.push(Inside { call, layer, api, status, requested_bytes });
            }
        }
    }

    /// Whether [`Failures::lowest_nested`] must be asked at the end of an outermost call.
    #[inline]
    pub fn has_nested(&self) -> bool {
        !self.nested.is_empty()
    }

    /// The lowest call that failed inside this outermost call. Forgets what failed inside the thread's calls so far.
    pub fn lowest_nested(&mut self, record: &Record) -> Option<Inside> {
        let calls = self.nested.remove(&record.thread)?;
        // Calls nest: what began after this one and was recorded before it ended lies inside it.
        let inside = calls.into_iter().filter(|inside| inside.call.wrapping_sub(record.call) as i32 > 0);
        inside.max_by_key(|inside| inside.layer)
    }

    /// Begins to watch a failed allocation.
    pub fn begin(&mut self, oom: Oom) {
        self.count += 1;
        if self.listed.len() >= MAX_LISTED {
            return;
        }
        // What has no size is made up for only by a success of its own sort.
        let wanted_bytes = if oom.unknown_size { UNKNOWN_BYTES } else { oom.requested_bytes };
        let watched = Watched::new(oom.device, wanted_bytes, oom.status);
        self.watches.entry(oom.thread).or_default().open.push((self.listed.len(), watched));
        self.by_seq.insert(oom.seq, self.listed.len());
        self.listed.push(oom);
    }

    /// Whether any thread has an undecided failure.
    #[inline]
    pub fn is_watching(&self) -> bool {
        !self.watches.is_empty()
    }

    /// The failure that a reading belongs to.
    pub fn by_seq(&mut self, seq: u64) -> Option<&mut Oom> {
        self.by_seq.get(&seq).and_then(|index| self.listed.get_mut(*index))
    }

    /// Feeds one of the program's own records to the failures of its thread.
    pub fn step(&mut self, record: &Record, sets_up: bool) {
        let Some(watch) = self.watches.get_mut(&record.thread) else { return };
        let Some(step) = step_of(record, sets_up) else { return };
        let from = match step {
            Step::LastErrorRead => watch.checked,
            Step::ErrorText { .. } => watch.told,
            _ => 0,
        };
        let evidence = Evidence {
            at: record.at,
            seq: Some(record.seq()),
            event: record.event().unwrap_or(Event::Mark),
            api: Some(record.api),
            status: record.status,
            asks_text: matches!(step, Step::ErrorText { .. }),
        };
        apply(&mut self.listed, watch, step, from, evidence);
        if watch.open.is_empty() {
            self.watches.remove(&record.thread);
        }
    }

    /// The process ends: the last step of every thread.
    pub fn end(&mut self, failure: bool, evidence: Evidence) {
        for (_, mut watch) in std::mem::take(&mut self.watches) {
            apply(&mut self.listed, &mut watch, Step::Ended { failure }, 0, evidence);
        }
    }

    /// Nothing more is known: what is still open is judged by what was seen.
    pub fn close(&mut self) {
        for (_, watch) in std::mem::take(&mut self.watches) {
            for (index, watched) in watch.open {
                (self.listed[index].outcome, self.listed[index].because) = watched.undecided();
            }
        }
    }
}

fn step_of(record: &Record, sets_up: bool) -> Option<Step> {
    match record.event()? {
        _ if sets_up && record.status == 0 => {
            Some(Step::Allocated { device: record.device(), requested_bytes: UNKNOWN_BYTES })
        }
        Event::Alloc | Event::Pin if record.status == 0 => {
            Some(Step::Allocated { device: record.device(), requested_bytes: record.requested })
        }
        Event::ErrorQuery if record.has(flag::ERROR_TEXT) => Some(Step::ErrorText { status: record.status }),
        Event::ErrorQuery => Some(Step::LastErrorRead),
        Event::Exception => Some(Step::Thrown),
        Event::GpuWork => Some(Step::GpuWork { failed_pointer: record.has(flag::FAILED_POINTER) }),
        _ => None,
    }
}

fn apply(listed: &mut [Oom], watch: &mut ThreadWatch, step: Step, from: usize, evidence: Evidence) {
    let (mut all_told, mut index) = (true, 0);
    let (mut checked, mut told) = (watch.checked, watch.told);
    watch.open.retain_mut(|(number, watched)| {
        index += 1;
        if index <= from {
            return true;
        }
        let oom = &mut listed[*number];
        let before = *watched;
        let answer = watched.step(step);
        if (answer.is_some() || *watched != before) && oom.evidence.len() < MAX_EVIDENCE {
            oom.evidence.push(evidence);
        }
        all_told &= !matches!(step, Step::ErrorText { status } if status != oom.status);
        if let Some((outcome, because)) = answer {
            (oom.outcome, oom.because) = (outcome, because);
            checked -= usize::from(index <= watch.checked);
            told -= usize::from(index <= watch.told);
        }
        answer.is_none()
    });
    (watch.checked, watch.told) = match step {
        Step::LastErrorRead => (watch.open.len(), told),
        Step::ErrorText { .. } if all_told => (checked, watch.open.len()),
        _ => (checked, told),
    };
}
