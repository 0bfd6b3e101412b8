//! One allocation that ran out of memory, or one error of an allocator above the runtime.

use gpuoom_trace::outcome::{Because, Outcome};
use gpuoom_trace::payload;
use gpuoom_trace::record::{Kind, Layer, Record, flag, injected};

use super::evidence::{Evidence, OtherMemory};
use super::framework::{Attempt, FrameworkError};
use crate::replay::account::Most;
use crate::replay::arena::FreeSpace;
use crate::replay::census::Census;
use crate::replay::held::Held;
use crate::replay::purpose::Purpose;
use crate::replay::readings::{DeviceReadings, ProcessReadings};

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
    pub(super) call: u32,
    /// Its layer.
    pub layer: Layer,
    /// Function.
    pub api: u16,
    /// Kind of memory.
    pub kind: Kind,
    /// What it returned.
    pub status: i32,
    /// Bytes asked for.
    pub requested_bytes: u64,
    /// The device that it was asked of, where a layer was asked that is told of the device and does not take the thread's.
    pub device: Option<u8>,
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
    /// Its number among all refusals, those of errors included, counted from 1.
    pub ordinal: u64,
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
    /// Whether time alone ties what made up for it to it: nothing shows that the program had noticed.
    pub is_made_up_by_time_alone: bool,
    /// What its thread was given before any GPU work, and what makes up for nothing.
    pub other_memory: OtherMemory,
    /// Whether its thread read the last error afterwards, which also clears it.
    pub error_was_read: bool,
    /// Whether what the thread did was looked at until its next failure, or the end.
    pub is_watched_on: bool,
    /// How long the recorder's readings then held the thread up, in nanoseconds.
    pub held_up_ns: u64,
    /// What was read at that moment.
    pub read: DeviceReadings,
    /// Ticks of the last of its earlier attempts at which the largest block was measured, and that block.
    pub probed_before: Option<(u64, u64)>,
    /// What was read of the process and its host.
    pub process: ProcessReadings,
    /// What the program held on that device.
    pub held: Held,
    /// Bytes that other threads had begun to give back there: nobody knows whether before the refusal or after it.
    pub returning_bytes: u64,
    /// How much of that is managed memory, in bytes: its pages may lie on the device or in RAM.
    pub held_managed_bytes: u128,
    /// What it held of the host's memory, pinned and registered, in bytes.
    pub held_host_bytes: u128,
    /// What the kernel's driver had given then of the host's memory, pinned for whatever call, as far as its requests were recorded.
    pub kernel_host_bytes: u128,
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
    /// Of an error that an allocator above the runtime raised: what it told. All else is then of its last attempt, where it has one.
    pub error: Option<Box<FrameworkError>>,
    /// What was refused after it inside the same call of an interface above.
    pub same_call: Vec<Attempt>,
    /// What the memory was for, by the functions of a framework that asked for it.
    pub purpose: Purpose,
    /// The function that says so.
    pub purpose_by: Option<u16>,
    /// The functions of a framework that its thread was in, outermost first.
    pub scopes: Box<[u16]>,
    /// What its thread was called.
    pub thread_name: Option<Box<str>>,
    /// What the program first said of it, where that was recorded.
    pub message: Option<Message>,
}

/// What a program said of a failure.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    /// Where it was said, in the numbers of [`gpuoom_trace::record::message`].
    pub from: i32,
    /// Its text.
    pub text: Box<str>,
}

impl Oom {
    /// What its record says. Nothing is known yet of what was held, and of what comes of it.
    pub(in crate::replay) fn new(record: &Record, position: u64, refused_by: RefusedBy) -> Self {
        Oom {
            ordinal: 0,
            position,
            seq: record.seq(),
            at: record.at,
            thread: record.thread,
            api: record.api,
            site: record.site,
            story: 0,
            device: None,
            kind: record.kind(),
            requested_bytes: record.requested,
            unknown_size: false,
            granules: 0,
            status: record.status,
            refused_by,
            injected: None,
            inside: None,
            outcome: Outcome::Unresolved,
            because: Because::TraceEnded,
            evidence: Vec::new(),
            is_made_up_by_time_alone: false,
            other_memory: OtherMemory::default(),
            error_was_read: false,
            is_watched_on: true,
            held_up_ns: 0,
            read: DeviceReadings::default(),
            probed_before: None,
            process: ProcessReadings::default(),
            held: Held::default(),
            returning_bytes: 0,
            held_managed_bytes: 0,
            held_managed_granules: 0,
            held_managed_blocks: 0,
            held_host_bytes: 0,
            kernel_host_bytes: 0,
            most: Most::default(),
            most_host_bytes: 0,
            census: None,
            saw_below: false,
            model: None,
            error: None,
            same_call: Vec::new(),
            purpose: Purpose::Unknown,
            purpose_by: None,
            scopes: Box::default(),
            thread_name: None,
            message: None,
        }
    }

    pub(super) fn decide(&mut self, answer: Option<(Outcome, Because)>) {
        let Some(decided) = answer else { return };
        (self.outcome, self.because) = match decided {
            // Whoever raised it throws: that no exception was seen is no sign that nobody was told.
            (Outcome::Dropped, Because::GpuWorkContinued) if self.error.is_some() => {
                (Outcome::Unresolved, Because::ErrorRead)
            }
            decided => decided,
        };
    }

    /// Whether it is an error that an allocator raised without a refusal below it, as far as calls were recorded.
    pub fn is_of_allocator_alone(&self) -> bool {
        self.error.as_ref().is_some_and(|error| error.attempts.is_empty())
    }

    /// Whether this is the number of its record, or of that of an attempt.
    pub(super) fn has_record(&self, seq: u64) -> bool {
        let of_error = |error: &FrameworkError| error.seq == seq || error.attempts.iter().any(|one| one.seq == seq);
        self.seq == seq || self.error.as_ref().is_some_and(|error| of_error(error))
    }
}
