//! Allocations that ran out of memory, and what the thread did next.

use gpuoom_trace::meaning::Does;
use gpuoom_trace::outcome::{Because, Limits, Outcome, Request, Step, Watched};
use gpuoom_trace::payload;
use gpuoom_trace::record::{Event, Kind, Layer, Record, flag, injected};
use rustc_hash::FxHashMap;

use super::account::Most;
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
/// Stories of a thread that are followed at once; the two oldest then become one.
const MAX_STORIES: usize = 64;

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
    /// Of an allocation: the kind of memory, how much of it, and the device, where there is one.
    pub gave: Option<(Kind, u64, Option<u8>)>,
    /// Of GPU work: the failed call's pointer that it was given.
    pub pointer: Option<PointerUse>,
    /// The last error was read, and not only looked at.
    pub clears_error: bool,
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
    /// A record as evidence.
    fn of(record: &Record, step: Step, pointer: Option<PointerUse>, does: Does) -> Self {
        let gave = match step {
            Step::Allocated(by) => Some((record.kind(), by.requested_bytes, record.device())),
            _ => None,
        };
        Evidence {
            at: record.at,
            seq: Some(record.seq()),
            event: record.event().unwrap_or(Event::Mark),
            api: Some(record.api),
            status: record.status,
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
            status,
            asks_text: false,
            gave: None,
            pointer: None,
            clears_error: false,
        }
    }
}

/// What the record of a refusal on request says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Injected {
    /// The reason's number.
    pub reason: u8,
    /// The number of the call.
    pub call: u64,
    /// To how many bytes the virtual card rounded, where it refused and the trace says so.
    pub granularity_bytes: Option<u64>,
}

impl Injected {
    /// Of a record that is one.
    pub fn of(record: &Record, payload: &[u8]) -> Option<Self> {
        let (reason, call) = (record.address as u8, record.address >> 8);
        let granularity = || payload::unpack_numbers(payload).nth(1).filter(|bytes| *bytes > 0);
        let granularity_bytes = if reason == injected::CAPACITY { granularity() } else { None };
        record.has(flag::INJECTED).then_some(Injected { reason, call, granularity_bytes })
    }
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
    /// Index of the first failure of its story: itself, unless it was an attempt to make up for an earlier one.
    pub story: usize,
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
    /// Of a refusal on request, what the record says of it.
    pub injected: Option<Injected>,
    /// The lowest call inside it that failed, as far as that was recorded.
    pub inside: Option<Inside>,
    /// What became of it.
    pub outcome: Outcome,
    /// Why that is the outcome.
    pub because: Because,
    /// The events that show it.
    pub evidence: Vec<Evidence>,
    /// Whether its thread read the last error afterwards, which also clears it.
    pub error_was_read: bool,
    /// Whether what the thread did was looked at until its next failure, or the end.
    pub is_watched_on: bool,
    /// How long the recorder's readings then held the thread up, in nanoseconds.
    pub held_up_ns: u64,
    /// What was read at that moment.
    pub read: DeviceReadings,
    /// What was read of the process and its host.
    pub process: ProcessReadings,
    /// What the program held on that device.
    pub held: Held,
    /// How much of that is managed memory, in bytes: its pages may lie on the device or in RAM.
    pub held_managed_bytes: u128,
    /// What it held of the host's memory, pinned and registered, in bytes.
    pub held_host_bytes: u128,
    /// The most that it had been given there before.
    pub most: Most,
    /// The most that it had held of the host's memory, pinned and registered, in bytes.
    pub most_host_bytes: u128,
    /// Its granules in the model.
    pub held_managed_granules: u64,
    /// Their number.
    pub held_managed_blocks: u64,
    /// Who held what there, as far as that was counted.
    pub census: Option<Box<Census>>,
    /// Whether layers below the one that was asked had been recorded before.
    pub saw_below: bool,
    /// Free space of the model arena.
    pub model: Option<FreeSpace>,
}

impl Oom {
    fn decide(&mut self, answer: Option<(Outcome, Because)>) {
        if let Some(decided) = answer {
            (self.outcome, self.because) = decided;
        }
    }
}

/// Failures with one fate: one, and the attempts to make up for it.
#[derive(Clone, Debug)]
struct Story {
    watched: Watched,
    /// Indices among the listed ones, in their order.
    members: Vec<usize>,
}

/// The failures of one thread that are not decided.
#[derive(Clone, Debug, Default)]
struct ThreadWatch {
    open: Vec<Story>,
    /// When the last failing call returned, in nanoseconds.
    failed_at_ns: u64,
}

impl ThreadWatch {
    /// Attempts to make up for a failure become part of its story, as soon as the program has shown as much of both.
    fn join(&mut self) {
        self.open.dedup_by(|newer, older| {
            let is_part = older.watched.takes_in(&newer.watched);
            if is_part {
                older.members.append(&mut newer.members);
            }
            is_part
        });
        if self.open.len() > MAX_STORIES {
            let mut oldest = self.open.remove(0);
            oldest.members.append(&mut self.open[0].members);
            self.open[0].members = oldest.members;
        }
    }
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
    limits: Limits,
}

impl Failures {
    /// None yet; by `limits` a later request belongs to a failure.
    pub fn new(limits: Limits) -> Self {
        Failures { limits, ..Failures::default() }
    }

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

    /// Begins to watch a failed allocation, which may be an attempt to make up for an earlier one.
    pub fn begin(&mut self, mut oom: Oom, request: Request) {
        self.count += 1;
        let index = self.listed.len();
        if index >= MAX_LISTED {
            return;
        }
        let watch = self.watches.entry(oom.thread).or_default();
        let listed = &mut self.listed;
        watch.open.retain_mut(|story| {
            let answer = story.watched.step(Step::Refused(request), &self.limits);
            story.members.iter().for_each(|index| listed[*index].decide(answer));
            answer.is_none()
        });
        let watched = Watched::new(request, oom.status);
        let is_attempt = |story: &&Story| story.watched.last_attempt() == watched.last_attempt();
        oom.story = watch.open.iter().rev().find(is_attempt).map_or(index, |story| self.listed[story.members[0]].story);
        watch.open.push(Story { watched, members: vec![index] });
        watch.failed_at_ns = request.at_ns;
        watch.join();
        self.by_seq.insert(oom.seq, index);
        self.listed.push(oom);
    }

    /// The recorder's readings of a failure were done at this moment, for which the thread was held up.
    pub fn read_at(&mut self, seq: u64, at_ns: u64) {
        let Some(oom) = self.by_seq.get(&seq).and_then(|index| self.listed.get_mut(*index)) else { return };
        let Some(watch) = self.watches.get_mut(&oom.thread) else { return };
        let held_up_ns = at_ns.saturating_sub(watch.failed_at_ns);
        oom.held_up_ns = oom.held_up_ns.saturating_add(held_up_ns);
        watch.open.iter_mut().for_each(|story| story.watched.held_up(held_up_ns));
        // A second reading would count the same time twice.
        watch.failed_at_ns = watch.failed_at_ns.max(at_ns);
    }

    /// Whether any thread has an undecided failure.
    #[inline]
    pub fn is_watching(&self) -> bool {
        !self.watches.is_empty()
    }

    /// The place among the listed failures of the one with this sequence number.
    pub fn index_of(&self, seq: u64) -> Option<usize> {
        self.by_seq.get(&seq).copied()
    }

    /// The failure that a reading belongs to.
    pub fn by_seq(&mut self, seq: u64) -> Option<&mut Oom> {
        self.by_seq.get(&seq).and_then(|index| self.listed.get_mut(*index))
    }

    /// Feeds a step of the program, which this record tells of, to the failures of its thread; `pointer`: of a failed call, that it
    /// was given; `does`: what its function does.
    pub fn step(&mut self, record: &Record, step: Step, pointer: Option<PointerUse>, does: Does) {
        let Some(watch) = self.watches.get_mut(&record.thread) else { return };
        apply(&mut self.listed, watch, step, &self.limits, Evidence::of(record, step, pointer, does));
        if watch.open.is_empty() {
            self.watches.remove(&record.thread);
        }
    }

    /// The process ends: the last step of every thread.
    pub fn end(&mut self, failure: bool, evidence: Evidence) {
        for (_, mut watch) in std::mem::take(&mut self.watches) {
            apply(&mut self.listed, &mut watch, Step::Ended { failure }, &self.limits, evidence);
        }
    }

    /// Nothing more is known: what is still open is judged by what was seen.
    pub fn close(&mut self) {
        for (_, watch) in std::mem::take(&mut self.watches) {
            for (story, index) in
                watch.open.iter().flat_map(|story| story.members.iter().map(move |index| (story, *index)))
            {
                (self.listed[index].outcome, self.listed[index].because) = story.watched.undecided();
            }
        }
    }
}

/// Whether GPU work with this pointer used that of a story. Where nobody wrote down whose it is, that is known of a thread with one
/// story only.
fn uses_pointer_of(listed: &[Oom], story: &Story, stories: usize, pointer: PointerUse) -> bool {
    match (pointer.whose, pointer.left_by) {
        (Some(seq), _) => story.members.iter().any(|index| listed[*index].seq == seq),
        (None, None | Some(1)) => stories == 1,
        (None, Some(_)) => false,
    }
}

fn apply(listed: &mut [Oom], watch: &mut ThreadWatch, step: Step, limits: &Limits, evidence: Evidence) {
    let stories = watch.open.len();
    watch.open.retain_mut(|story| {
        let known = |watched: &Watched| (watched.shown(), watched.settled());
        let before = known(&story.watched);
        let step = match evidence.pointer {
            Some(pointer) => Step::GpuWork { failed_pointer: uses_pointer_of(listed, story, stories, pointer) },
            None => step,
        };
        let answer = story.watched.step(step, limits);
        let ended_badly = matches!(step, Step::Ended { failure: true });
        let decides = match answer {
            // What settled it is its evidence, and not what ended the watch.
            Some(_) => answer != before.1 || ended_badly,
            None => known(&story.watched) != before || evidence.pointer.is_some(),
        };
        for index in &story.members {
            let oom = &mut listed[*index];
            oom.error_was_read |= evidence.clears_error;
            oom.is_watched_on &= answer.is_none() || !matches!(step, Step::GpuWork { .. });
            if decides && oom.evidence.len() < MAX_EVIDENCE {
                oom.evidence.push(evidence);
            }
            oom.decide(answer);
        }
        answer.is_none()
    });
    watch.join();
}
