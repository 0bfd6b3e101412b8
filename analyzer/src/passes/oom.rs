//! Out-of-memory returns as values.

mod after;
pub mod error;
mod held_up;
mod purpose;

use std::collections::HashSet;
use std::sync::Arc;

use gpuoom_trace::metadata::{ProcessFacts, probe_skipped};
use gpuoom_trace::outcome::{Because, Outcome, UNKNOWN_BYTES};
use gpuoom_trace::reader::Metadata;
use gpuoom_trace::record::{Event, Kind, Layer, injected, message};
use serde::Serialize;

use crate::evidence::torch_message::TorchMessage;
use crate::passes::fragmentation::saturate;
use crate::passes::moved::Moved;
use crate::passes::phase::{self, Where, runs_python};
use crate::replay::arena::FreeSpace;
use crate::replay::block::Side;
use crate::replay::failures::{self, Injected, Oom};
use crate::replay::purpose::Purpose;
use crate::replay::readings::DeviceReadings;
use crate::replay::{End, Replay};
use crate::symbols::{Frame, Stack, Stacks};
use after::{OtherMemory, Sign};
use error::AttemptReport;
use held_up::Readings;

/// Failures whose whole stacks are listed.
const MOST_STACKS: u64 = 1000;

/// A status code and its name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Status {
    /// The number that the call returned.
    pub code: i32,
    /// The vendor's name, where this version knows it.
    pub name: Option<&'static str>,
}

/// An event that shows the outcome.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Evidence {
    /// When.
    pub at_ns: u64,
    /// What sort of event.
    pub event: &'static str,
    /// Its sequence number, to find it in the list of events.
    pub seq: Option<u64>,
    /// Function, where there is one.
    pub api: Option<String>,
    /// What the record's status says: of an error query, the error that was asked about. Null of GPU work, whose status is not
    /// recorded.
    pub status: Option<i32>,
    /// Of what a call answered: the vendor's name of its status, where this version knows it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub status_name: Option<&'static str>,
    /// A name or text was asked for.
    pub asks_text: bool,
    /// The process ended by the signal in `status`.
    pub by_signal: bool,
    /// Of an allocation: what it gave.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gave: Option<Gave>,
    /// Of GPU work that was given the null that a failed call left behind: how many failed calls of the thread may have left it;
    /// 0 where nobody counted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pointer_left_by: Option<u64>,
    /// Of a look at an error, and of an exception: the number of the last failure of the same thread before it, where that is another
    /// one. It may be about that.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub after_failure: Option<u64>,
}

/// Memory that a call gave after a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Gave {
    /// Kind of memory.
    pub kind: &'static str,
    /// Bytes asked for; null where nobody tells how many.
    pub requested_bytes: Option<u64>,
    /// Device; null for memory of the host.
    pub device: Option<u8>,
}

/// The model's view of the moment of a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Model {
    /// Free model bytes.
    pub free_bytes: u64,
    /// Largest free block of the model.
    pub largest_free_block_bytes: u64,
    /// Whether the request would have fitted into the model.
    pub fits: bool,
    /// Padded bytes of blocks that lived and had no room in the model: what is free there is too much by so many.
    pub left_out_bytes: u64,
}

/// A refusal by the recorder, on request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Injection {
    /// `capacity`, `call`, `size`, `chance`, `site`; `unknown` for a reason that this version does not know.
    pub reason: &'static str,
    /// Number of the call among the process's allocation calls, counted from 1.
    pub call: u64,
    /// The setting that asked for it, as it stood in the environment: `GPUOOM_CAPACITY=8G`.
    pub setting: Option<String>,
    /// To how many bytes the virtual card rounded each block, where it refused and the trace says so.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub granularity_bytes: Option<u64>,
}

impl Injection {
    fn new(process: &ProcessFacts, Injected { reason, call, granularity_bytes }: Injected) -> Self {
        let (reason, variable) = match reason {
            injected::CAPACITY => ("capacity", "GPUOOM_CAPACITY"),
            injected::CALL => ("call", "GPUOOM_INJECT"),
            injected::SIZE => ("size", "GPUOOM_INJECT"),
            injected::CHANCE => ("chance", "GPUOOM_INJECT"),
            injected::SITE => ("site", "GPUOOM_INJECT"),
            _ => ("unknown", ""),
        };
        let setting = process.environment.iter().find(|(name, _)| name == variable);
        let setting = setting.map(|(name, value)| format!("{name}={value}"));
        Injection { reason, call, setting, granularity_bytes }
    }
}

/// Whether a GPU call was given the pointer that a failed call should have set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PointerUsed {
    /// Not in the calls that were looked at.
    NotSeen,
    /// A null like the one that it left behind, or that of another variable.
    Perhaps,
    /// A null, while its variable held one, no other failure had left one, and nothing else had come in its place. A null has no
    /// name: it may still be another's.
    Likely,
}

/// One out-of-memory return.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct OomReport {
    /// Number, counted from 1: what `--at oom:N` means.
    pub number: u64,
    /// Number of the failure that this call was an attempt to make up for: the first of its story. Left out of the first.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub attempt_of: Option<u64>,
    /// Sequence number of its record.
    pub seq: u64,
    /// When the call began, or the allocator told of its error.
    pub at_ns: u64,
    /// Kernel thread id.
    pub thread: u32,
    /// What the thread was called; null where the trace does not tell.
    pub thread_name: Option<String>,
    /// Function.
    pub api: String,
    /// Layer of the function: `framework` for an error of an allocator above the runtime.
    pub layer: Option<&'static str>,
    /// Of such an error: whose it is, in words.
    #[serde(skip)]
    pub allocator: Option<&'static str>,
    /// The refused calls of the runtime that led to such an error, in their order.
    pub attempts: Vec<AttemptReport>,
    /// What was refused after it inside the same call of an interface above, such as OpenCL: that interface's own attempts.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub same_call: Vec<AttemptReport>,
    /// What the program first said of it; null where that was not recorded.
    pub message: Option<String>,
    /// Where it was said: `exception`, `abort` or `log`.
    pub message_from: Option<&'static str>,
    /// The same, where it is PyTorch's message.
    #[serde(skip)]
    pub torch: Option<TorchMessage>,
    /// The phase that the call came in; null where nothing names it.
    pub phase: Option<&'static str>,
    /// By which function the program came into it, and from which line of its own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub phase_entry: Option<Where>,
    /// What the memory was for: `weights`, `kv-cache`, `compute`; null where nothing says so.
    pub purpose: Option<&'static str>,
    /// By which function that is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub purpose_by: Option<String>,
    /// The same, as a value.
    #[serde(skip)]
    pub is_for: Purpose,
    /// Device index, where it is known.
    pub device: Option<u8>,
    /// Kind of memory that the runtime was asked for; `tensor` where it was not asked.
    pub kind: &'static str,
    /// Bytes asked for: of such an error those that the allocator wanted, of any other those of the call.
    pub requested_bytes: u64,
    /// What the runtime was asked for: of such an error by its last attempt.
    #[serde(skip)]
    pub asked_bytes: u64,
    /// What an allocator had taken in pieces for this very block and gave back before it raised the error. `None` where it takes no
    /// pieces, or a record that would tell may be missing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub half_made_bytes: Option<u64>,
    /// Nobody tells how many bytes were wanted: a context or a library's handle was to be set up.
    pub unknown_size: bool,
    /// Its rows are padded to a pitch that only the answer to a success tells: more is wanted than it asks for.
    #[serde(skip)]
    pub pads_rows: bool,
    /// A mathematical library's call: what it returned is its own.
    #[serde(skip)]
    pub of_library: bool,
    /// What the runtime was asked for, padded.
    pub padded_bytes: u64,
    /// What the call returned.
    pub status: Status,
    /// What became of it.
    #[serde(serialize_with = "outcome_name")]
    pub outcome: Outcome,
    /// Why.
    #[serde(serialize_with = "because_name")]
    pub because: Because,
    /// Whether a GPU call was given its pointer.
    #[serde(skip)]
    pub pointer: PointerUsed,
    /// Whether time alone ties what made up for it to it: nothing shows that the program had noticed.
    #[serde(skip)]
    pub is_made_up_by_time_alone: bool,
    /// What its thread was given before any GPU work, and what makes up for nothing.
    #[serde(skip)]
    pub other_memory: Option<OtherMemory>,
    /// What may show that the program had noticed although GPU work came first.
    #[serde(skip)]
    pub sign: Option<Sign>,
    /// Whether its thread read the last error afterwards, which also clears it.
    #[serde(skip)]
    pub error_was_read: bool,
    /// Whether what the thread did was looked at until its next failure, or the end.
    #[serde(skip)]
    pub is_watched_on: bool,
    /// The events that show it.
    pub evidence: Vec<Evidence>,
    /// The lowest layer that returned the failure.
    pub refused_by: Option<&'static str>,
    /// Of a refusal on request: by which setting. Left out for any other.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub injected: Option<Injection>,
    /// Whether layers below were recorded, so that a failure of theirs would have been seen.
    pub saw_below: bool,
    /// Free memory as the runtime reported it then.
    pub free_reported_bytes: Option<u64>,
    /// Whether that is of the refusal itself: nothing is known to have come or gone until it was read.
    #[serde(skip)]
    pub free_is_of_refusal: bool,
    /// Free memory as sysfs reported it then.
    pub free_sysfs_bytes: Option<u64>,
    /// Largest allocatable block then, as the probe measured it.
    pub largest_allocatable_bytes: Option<u64>,
    /// Why that was not measured.
    pub not_probed_because: Option<&'static str>,
    /// When the same was measured at an earlier attempt, and how much it was then.
    #[serde(skip)]
    pub probed_before: Option<(u64, u64)>,
    /// How long the recorder held the thread up after the call, for its readings: the program had no part in that.
    pub held_up_ns: u64,
    /// The readings at all failures of the thread.
    #[serde(skip)]
    readings_of_thread: Arc<Readings>,
    /// What the program itself held on that device (or on the host) then.
    pub held_bytes: u64,
    /// What other threads had begun to give back there, and may not have been given back yet. Left out where that is nothing.
    #[serde(skip_serializing_if = "is_nothing")]
    pub returning_bytes: u64,
    /// Of them managed memory, whose pages may lie in RAM.
    pub held_managed_bytes: u64,
    /// Of that, at least so much lay in RAM: the card as a whole had less in use by sysfs. `None` where nobody can tell.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub managed_in_ram_bytes: Option<u64>,
    /// In how many blocks.
    pub held_blocks: u64,
    /// The model's view.
    pub model: Option<Model>,
    /// The way to the call: native frames, innermost first, then Python's. Of the first failures only; later ones name the
    /// frame that asked.
    pub stack: Vec<Frame>,
    /// Whether native frames are missing at the outer end.
    pub stack_is_cut: bool,
    /// Whether native frames were inferred from frame pointers, where unwind tables are missing.
    pub stack_is_inferred: bool,
    /// Whether Python frames are missing at the outer end.
    pub python_is_cut: bool,
}

fn is_nothing(bytes: &u64) -> bool {
    *bytes == 0
}

fn outcome_name<S: serde::Serializer>(outcome: &Outcome, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(outcome.name())
}

fn because_name<S: serde::Serializer>(because: &Because, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(because.name())
}

/// The name of a layer in reports; the recorder's own "process" layer is none.
pub fn layer_name(layer: Option<Layer>) -> Option<&'static str> {
    layer.filter(|layer| *layer != Layer::Process).map(Layer::name)
}

/// All listed failures of a replay.
pub fn describe_all(metadata: &Metadata, replay: &Replay, stacks: &Stacks<'_>) -> Vec<OomReport> {
    let (process, has_torch) = (&metadata.process, phase::has_torch(&metadata.modules));
    let numbered = (1..).zip(&replay.failures.listed);
    let described = numbered.map(|(number, oom)| OomReport {
        injected: oom.injected.map(|injected| Injection::new(process, injected)),
        managed_in_ram_bytes: managed_in_ram(metadata, oom),
        ..describe(replay, stacks, number, oom)
    });
    let mut all: Vec<OomReport> = described.collect();
    let mut probed: HashSet<Option<u8>> = HashSet::new();
    for (index, report) in all.iter_mut().enumerate() {
        let around = replay.tracks.around.failure(index).and_then(|around| around.captured);
        let oom = &replay.failures.listed[index];
        for (told, evidence) in report.evidence.iter_mut().zip(&oom.evidence) {
            told.after_failure = failure_before(&replay.failures.listed, index, evidence);
        }
        report.phase_entry = Where::of(&report.stack, around.is_some_and(|captured| captured.is_under_way))
            .or_else(|| purpose::phase_by_scopes(replay, oom))
            .or_else(|| {
                Where::by_thread(oom.thread_name.as_deref().filter(|_| has_torch && !runs_python(&report.stack))?)
            });
        (report.is_for, report.purpose_by) = purpose::of(replay, oom, &report.stack);
        report.purpose = report.is_for.name();
        report.phase = report.phase_entry.as_ref().map(|entry| entry.phase.name());
        if report.not_probed_because == Some(NOT_ASKED) {
            report.not_probed_because = Some(not_asked(process, report, probed.contains(&report.device)));
        }
        if report.largest_allocatable_bytes.is_some() || oom.probed_before.is_some() {
            probed.insert(report.device);
        }
    }
    held_up::share(&mut all);
    all
}

/// How sure it is that a failed call's pointer was used. What failed beside it may have left a null, too.
fn pointer_used(oom: &Oom) -> PointerUsed {
    if oom.because != Because::FailedPointerUsed {
        return PointerUsed::NotSeen;
    }
    let other_came = oom.evidence.iter().any(|evidence| evidence.gave.is_some());
    let is_likely =
        |used: failures::PointerUse| used.left_by == Some(1) && used.is_still_held && used.others == Some(0);
    let is_its_own = oom.evidence.iter().filter_map(|evidence| evidence.pointer).any(is_likely);
    if is_its_own && !other_came { PointerUsed::Likely } else { PointerUsed::Perhaps }
}

/// How much of the managed memory surely lay in RAM: what is on the process's only card is part of what sysfs has in use there. By
/// whom it is used there does not matter, and neither does which of the driver's counts have managed memory in them.
fn managed_in_ram(metadata: &Metadata, oom: &Oom) -> Option<u64> {
    let used = oom.read.vram_used_bytes.filter(|_| metadata.devices.len() == 1)?;
    let managed = saturate(oom.held_managed_bytes);
    (managed > 0).then(|| managed.saturating_sub(used))
}

/// Why the recorder did not try what could be had, as far as the trace tells.
fn not_asked(process: &ProcessFacts, report: &OomReport, was_probed: bool) -> &'static str {
    let setting = process.environment.iter().find(|(name, _)| name == "GPUOOM_PROBE").map(|(_, value)| value.as_str());
    match setting {
        _ if report.injected.is_some() => "gpuoom itself refused the call, and no card was asked",
        _ if report.kind != Kind::Device.name() => "that is tried for plain device memory only",
        Some("off") => "it was turned off (GPUOOM_PROBE=off)",
        _ if report.probed_before.is_some() => "it was measured at an earlier attempt",
        // What was set could not be understood, or is the default.
        setting if was_probed && setting != Some("all") => {
            "only the first failure on a device is measured (GPUOOM_PROBE=all measures each)"
        }
        _ => NOT_ASKED,
    }
}

/// The way to a failing call; of very many failures the later ones name only who asked.
fn stack_of(stacks: &Stacks<'_>, number: u64, site: u32) -> Stack {
    match stacks.call_site(site) {
        Some(known) if number > MOST_STACKS => Stack {
            frames: known.asked_by.iter().chain([&known.who]).cloned().collect(),
            native_is_cut: true,
            python_is_cut: true,
            native_is_inferred: stacks.is_inferred(site),
        },
        _ => stacks.of(site),
    }
}

/// Where a text was said.
fn said_in(from: i32) -> Option<&'static str> {
    match from {
        message::EXCEPTION => Some("exception"),
        message::ABORT => Some("abort"),
        message::LOG => Some("log"),
        _ => None,
    }
}

/// Whether a call pads the rows of what it is asked for: arrays, and what has a pitch (`hipMallocPitch`, `cuMemAllocPitch`, `cudaMalloc3D`).
fn pads_rows(api: &str, kind: Kind) -> bool {
    kind == Kind::Array || api.contains("AllocPitch") || api.contains("MallocPitch") || api.ends_with("Malloc3D")
}

fn describe(replay: &Replay, stacks: &Stacks<'_>, number: u64, oom: &Oom) -> OomReport {
    let stack = stack_of(stacks, number, oom.site);
    let api = replay.apis.get(oom.api);
    let read = &oom.read;
    // What was read is of a card, and says nothing of the host's memory.
    let is_placed = oom.device.is_some() || !matches!(oom.kind, Kind::Physical | Kind::Pool);
    let of_card = oom.unknown_size || Side::of(oom.kind) != Side::Host && is_placed;
    let report = OomReport {
        number,
        attempt_of: Some(oom.story as u64 + 1).filter(|first| *first != number),
        allocator: None,
        attempts: Vec::new(),
        same_call: oom.same_call.iter().map(|one| error::attempt(replay, one)).collect(),
        message: oom.message.as_ref().map(|message| message.text.to_string()),
        message_from: oom.message.as_ref().and_then(|message| said_in(message.from)),
        torch: None,
        phase: None,
        phase_entry: None,
        purpose: None,
        purpose_by: None,
        is_for: Purpose::Unknown,
        asked_bytes: oom.requested_bytes,
        half_made_bytes: None,
        seq: oom.seq,
        at_ns: replay.clock.at_ns(oom.at),
        thread: oom.thread,
        thread_name: oom.thread_name.as_deref().map(str::to_owned),
        api: api.name.clone(),
        layer: layer_name(api.layer),
        device: oom.device,
        kind: oom.kind.name(),
        requested_bytes: oom.requested_bytes,
        unknown_size: oom.unknown_size,
        pads_rows: pads_rows(&api.name, oom.kind),
        of_library: api.is_library(),
        padded_bytes: replay.padded_bytes(oom.granules),
        status: Status { code: oom.status, name: api.status_name(oom.status) },
        outcome: oom.outcome,
        because: oom.because,
        pointer: pointer_used(oom),
        is_made_up_by_time_alone: oom.is_made_up_by_time_alone,
        other_memory: OtherMemory::of(replay, stacks, oom),
        sign: Sign::of(replay, (number - 1) as usize, oom),
        error_was_read: oom.error_was_read,
        is_watched_on: oom.is_watched_on,
        evidence: oom.evidence.iter().map(|evidence| describe_evidence(replay, evidence)).collect(),
        refused_by: error::refuser(oom.refused_by),
        injected: None,
        saw_below: oom.saw_below,
        free_reported_bytes: read.runtime_free_bytes.filter(|_| of_card),
        free_is_of_refusal: Moved::of(oom, replay.tracks.around.failure((number - 1) as usize), false).is_none(),
        free_sysfs_bytes: read
            .vram_total_bytes
            .zip(read.vram_used_bytes)
            .map(|(total, used)| total.saturating_sub(used))
            .filter(|_| of_card),
        largest_allocatable_bytes: read.largest_allocatable_bytes,
        not_probed_because: not_probed(read),
        probed_before: oom.probed_before.map(|(at, bytes)| (replay.clock.at_ns(at), bytes)),
        held_up_ns: oom.held_up_ns,
        readings_of_thread: Arc::default(),
        held_bytes: saturate(oom.held.requested_bytes),
        held_managed_bytes: saturate(oom.held_managed_bytes),
        managed_in_ram_bytes: None,
        returning_bytes: oom.returning_bytes,
        held_blocks: oom.held.blocks,
        model: oom.model.map(|free| {
            let left_out_bytes = left_out_bytes(replay, oom, free);
            Model {
                free_bytes: free.total_granules.saturating_mul(replay.granularity_bytes),
                largest_free_block_bytes: free.largest_granules.saturating_mul(replay.granularity_bytes),
                fits: left_out_bytes == 0 && u64::from(oom.granules) <= free.largest_granules,
                left_out_bytes,
            }
        }),
        stack: stack.frames,
        stack_is_cut: stack.native_is_cut,
        stack_is_inferred: stack.native_is_inferred,
        python_is_cut: stack.python_is_cut,
    };
    match &oom.error {
        Some(error) => error::describe(replay, stacks, error, report),
        None => report,
    }
}

/// Blocks that lived and that the model had no room for: what it calls free is not less for them. Managed memory has no place
/// there, because its pages may lie in RAM.
fn left_out_bytes(replay: &Replay, oom: &Oom, free: FreeSpace) -> u64 {
    let arena = oom.device.and_then(|device| replay.accounts.device(device)).and_then(|account| account.arena.as_ref());
    let whole = arena.map_or(0, |arena| u128::from(arena.granules()));
    let on_card = oom.held.granules.saturating_sub(oom.held_managed_granules);
    let asked_for = u128::from(on_card) + u128::from(free.total_granules);
    saturate(asked_for.saturating_sub(whole) * u128::from(replay.granularity_bytes))
}

fn describe_evidence(replay: &Replay, evidence: &failures::Evidence) -> Evidence {
    let has_api = evidence.event != Event::Process;
    Evidence {
        at_ns: replay.clock.at_ns(evidence.at),
        event: evidence.event.name(),
        seq: evidence.seq,
        api: evidence.api.filter(|_| has_api).map(|api| replay.apis.get(api).name.clone()),
        status: Some(evidence.status).filter(|_| evidence.event != Event::GpuWork),
        status_name: evidence
            .api
            .filter(|_| evidence.event == Event::Answer)
            .and_then(|api| replay.apis.get(api).status_name(evidence.status)),
        asks_text: evidence.asks_text,
        by_signal: !has_api && matches!(replay.end, End::Signaled(_)),
        gave: evidence.gave.map(|(kind, bytes, device)| Gave {
            kind: kind.name(),
            requested_bytes: (bytes != UNKNOWN_BYTES).then_some(bytes),
            device,
        }),
        pointer_left_by: evidence.pointer.map(|used| used.left_by.unwrap_or(0)),
        after_failure: None,
    }
}

/// The last failure of a thread before something that it did, other than the one at `index` and its own later attempts.
fn failure_before(listed: &[Oom], index: usize, evidence: &failures::Evidence) -> Option<u64> {
    if !matches!(evidence.event, Event::ErrorQuery | Event::Exception) {
        return None;
    }
    let own = &listed[index];
    let later = (index + 1..listed.len()).take_while(|later| listed[*later].at < evidence.at);
    let others = later.filter(|later| listed[*later].thread == own.thread && listed[*later].story != own.story);
    others.last().map(|later| later as u64 + 1)
}

/// The recorder was not to measure; for one reason or another.
const NOT_ASKED: &str = "it was turned off, measured before on this device, not tried for this kind of memory, or there was no runtime to ask";

fn not_probed(read: &DeviceReadings) -> Option<&'static str> {
    if read.largest_allocatable_bytes.is_some() {
        return None;
    }
    Some(match read.probe_skipped? {
        probe_skipped::RUNTIME_UNVERIFIED => {
            "this version of the runtime is not known to keep the last error per thread"
        }
        probe_skipped::CAPTURE => "a stream was being captured",
        // Recorders before this one said so as well where there was no runtime to ask.
        probe_skipped::TIMEOUT if read.runtime_free_bytes.is_none() => "neither runtime nor driver answered",
        probe_skipped::TIMEOUT => "it took too long, or the process was ending",
        probe_skipped::NO_THREAD => "the recorder has no thread of its own in this process",
        probe_skipped::NOT_ASKED => NOT_ASKED,
        probe_skipped::POOLS => "the runtime may give up what its stream-ordered pools keep when it is asked",
        _ => "the recorder gives a reason that this version does not know",
    })
}

/// The failure that decides: the first that was dropped, else the last that was not recovered, else the last.
pub fn deciding(outcomes: impl DoubleEndedIterator<Item = Outcome> + ExactSizeIterator + Clone) -> Option<usize> {
    let first_dropped = outcomes.clone().position(|outcome| outcome == Outcome::Dropped);
    let last_open = || outcomes.clone().rposition(|outcome| outcome != Outcome::Recovered);
    first_dropped.or_else(last_open).or_else(|| outcomes.len().checked_sub(1))
}
