//! All that is known of one run, before anybody judges it. The names of the fields are those of the JSON.
//!
//! Rules read this and write nothing into it: what they conclude stands in [`crate::conclusion`].

use std::collections::BTreeMap;

use gpuoom_trace::metadata::{Module, ProcessFacts, RANK_VARIABLES};
use gpuoom_trace::reader::TraceFile;
use gpuoom_trace::record::NO_DEVICE;
use serde::Serialize;

use crate::evidence::Evidence;
use crate::evidence::torch_snapshot::{Moment, moments};
use crate::machine::Machine;
use crate::machine::kfd::KfdNode;
use crate::passes::account::{AccountSummary, describe_account};
use crate::passes::below::{self, RefusedBelow};
use crate::passes::coverage::{self, Coverage};
use crate::passes::device::{self, DeviceSummary, TotalSource};
use crate::passes::distribution::{self, Distribution};
use crate::passes::evidence::{self, OtherEvidence};
use crate::passes::fragmentation::saturate;
use crate::passes::growth::{self, Growth};
use crate::passes::ledger::{self, DeviceLedger};
use crate::passes::libraries::Libraries;
use crate::passes::oom::{self, OomReport};
use crate::passes::phase::sites::OfSites;
use crate::passes::pools::{self, PoolSummary};
use crate::passes::shape::Shapes;
use crate::passes::shape::run::DeviceRun;
use crate::passes::shape::tensors::TensorRun;
use crate::passes::tensor_growth::{self, TensorGrowth, Until};
use crate::passes::time::rfc3339;
use crate::passes::unreached::{self, UnreachedMemory};
use crate::passes::which_card::WhichCard;
use crate::passes::{buffers, tensors};
use crate::replay::account::{Account, Calls};
use crate::replay::{End, Replay};
use crate::software::{Executable, Versions, torch_version};
use crate::symbols::{MissingSymbols, Stacks};
use crate::thresholds::{Change, Thresholds};

/// The file.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct TraceSummary {
    /// As it was given.
    pub path: String,
    /// `major.minor`.
    pub format_version: String,
    /// Whether the recorder closed the file itself.
    pub clean_close: bool,
    /// Records.
    pub events: u64,
    /// Records that did not get in.
    pub events_lost: u64,
    /// Records that were claimed and never finished.
    pub torn_events: u64,
    /// From the beginning of the trace to the last record.
    pub duration_ns: u64,
    /// When the trace began.
    pub started_at: String,
    /// Whether the clock's rate was measured over the run (else it is the estimate of the start).
    pub clock_measured: bool,
    /// Why chunks could not be written, where that happened.
    pub trouble: Option<&'static str>,
}

/// The recorded process.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ProcessSummary {
    /// Process id.
    pub pid: u32,
    /// Parent process id.
    pub parent_pid: u32,
    /// The process that it, or its parent, was forked from without exec, and whose recording had begun before; left out where there was
    /// none, and where the trace does not tell.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub forked_from: Option<u32>,
    /// Rank of a distributed job; null where none was set, or nobody wrote down whether one was.
    pub rank: Option<u32>,
    /// Path of the executable.
    pub executable: String,
    /// Arguments.
    pub command_line: Vec<String>,
    /// Host name.
    pub hostname: String,
    /// `exited`, `signaled`, `unknown`.
    pub end: &'static str,
    /// Exit status.
    pub exit_code: Option<i32>,
    /// Signal number.
    pub signal: Option<i32>,
    /// Kernel release.
    pub kernel: String,
    /// Version of the recorder.
    pub recorder_version: String,
    /// What the recorder noted about its set-up.
    pub notes: Vec<String>,
    /// Variables of the environment that matter here.
    pub environment: BTreeMap<String, String>,
    /// Version of PyTorch; left out where it is not in the process.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub torch_version: Option<String>,
    /// Loaded GPU libraries of vendors.
    pub libraries: Vec<LibrarySummary>,
}

impl ProcessSummary {
    /// What it was forked from, in words, where the trace tells: `forked, without exec, from process 7, ...`.
    pub fn forked(&self) -> Option<String> {
        let parent = self.forked_from?;
        Some(format!(
            "forked, without exec, from process {parent}, which had made calls of a GPU runtime, its driver or an allocator before"
        ))
    }
}

/// A loaded GPU library of a vendor.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct LibrarySummary {
    /// Path, links resolved.
    pub path: String,
    /// What follows `.so.` in the file's name; null where nothing does.
    pub version: Option<String>,
    /// GNU build id in hexadecimal; null where the library has none.
    pub build_id: Option<String>,
}

/// A part of the file that could not be read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct DamageSummary {
    /// Offset in the file.
    pub offset: u64,
    /// What is wrong there.
    pub reason: String,
}

/// A call that had not returned when the trace ends.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct UnderWay {
    /// Kernel thread id.
    pub thread: u32,
    /// Function.
    pub api: String,
    /// When it began.
    pub at_ns: u64,
    /// Bytes asked for.
    pub requested_bytes: u64,
    /// Device index, where it is known.
    pub device: Option<u8>,
}

/// Everything that is known of one run: what was recorded and read, and what follows from it by arithmetic alone.
#[derive(Clone, Debug, Serialize)]
pub struct Facts {
    /// The file.
    pub trace: TraceSummary,
    /// The process.
    pub process: ProcessSummary,
    /// The devices that the program used.
    pub devices: Vec<DeviceSummary>,
    /// Pools of the program's own, and what they told that is not counted; left out where there are none.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub pools: Vec<PoolSummary>,
    /// The machine, as far as the recorder read it.
    pub machine: Machine,
    /// Frameworks in the process and versions, as far as they are known.
    #[serde(rename = "software", serialize_with = "as_words")]
    pub versions: Versions,
    /// Pinned and registered host memory.
    pub host: AccountSummary,
    /// Out-of-memory returns, in order. The JSON lists them with what was concluded of each.
    #[serde(skip)]
    pub ooms: Vec<OomReport>,
    /// Out-of-memory returns, listed or not.
    pub oom_count: u64,
    /// Out-of-memory returns of calls that vendor libraries made for themselves; they are not among `ooms`.
    pub vendor_ooms: u64,
    /// Calls that asked for no memory themselves and failed, with a refusal inside; `None` where there were none.
    pub refused_below: Option<RefusedBelow>,
    /// Calls that were to make memory reachable and failed; left out where there were none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unreached: Option<UnreachedMemory>,
    /// Who holds the memory: each device at its telling failure, its peak and the end.
    pub ledger: Vec<DeviceLedger>,
    /// Who holds pinned and registered host memory, at its telling failure, its peak and the end.
    pub host_ledger: Vec<DeviceLedger>,
    /// How what stays between cycles grows, of each device with at least five cycles.
    pub growth: Vec<Growth>,
    /// The same of the blocks that allocators above the runtime gave out, by line of the program; of each device whose blocks and steps
    /// are known.
    pub tensor_growth: Vec<TensorGrowth>,
    /// The same up to failures, by the failure's index.
    #[serde(skip)]
    pub tensor_growth_at: BTreeMap<usize, TensorGrowth>,
    /// Where in a training or in serving the failures came.
    #[serde(skip)]
    pub shapes: Shapes,
    /// The devices over the whole run.
    #[serde(skip)]
    pub runs: Vec<DeviceRun>,
    /// PyTorch's tensors over the histories of its snapshots, where those have cycles.
    #[serde(skip)]
    pub tensors: Vec<TensorRun>,
    /// The out-of-memory errors in the histories of PyTorch's snapshots, each with the number of its snapshot.
    #[serde(skip)]
    pub moments: Vec<(usize, Moment)>,
    /// How complete the trace is.
    pub coverage: Coverage,
    /// What was given beside the trace; left out where nothing was.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub other_evidence: Option<OtherEvidence>,
    /// The numbers by which rules decide.
    #[serde(skip)]
    pub thresholds: Thresholds,
    /// Those of them that the user set.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub thresholds_changed: Vec<Change>,
    /// What could not be read.
    pub damages: Vec<DamageSummary>,
    /// Calls that had not returned when the trace ends.
    pub calls_under_way: Vec<UnderWay>,
    /// Durations of the program's allocation calls.
    pub allocation_latency_ns: Distribution,
    /// Sizes that the program asked for.
    pub allocation_size_bytes: Distribution,
    /// Frees of addresses that the trace does not know.
    pub unmatched_frees: u64,
    /// Frees that returned an error.
    pub failed_frees: u64,
    /// Memory that may be gone with a CUDA context that ended; it counts as live.
    pub contexts_unclear: UnclearContexts,
    /// Bytes of memory nodes that were added to graphs: named, not counted, since the memory comes when a graph runs.
    pub graph_node_bytes: u64,
    /// The most that was reserved for memory nodes, where the program read that.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub graph_reserved_bytes: Option<u64>,
    /// Libraries in which functions of the stacks above have no names, and why.
    pub symbols_missing: Vec<MissingSymbols>,
}

fn as_words<S: serde::Serializer>(versions: &Versions, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_seq(versions.words())
}

/// Memory of which the trace does not tell whether it went with a CUDA context.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct UnclearContexts {
    /// Contexts that ended while there was such memory.
    pub ends: u64,
    /// Most blocks at one such end.
    pub blocks: u64,
    /// Their bytes.
    pub bytes: u64,
}

impl Facts {
    /// What a trace that was replayed to its end tells, with what was given beside it.
    pub fn of(trace: &TraceFile, replay: &Replay, evidence: &Evidence) -> Self {
        let libraries = Libraries::new(trace, replay);
        let stacks = Stacks::new(trace, replay, &evidence.symbols);
        let machine = Machine::of_trace(trace);
        let process = describe_process(trace, replay.end, replay.forked_from);
        let mut devices = describe_devices(trace, replay, &machine);
        let phases = OfSites::new(&stacks, &trace.metadata.modules);
        tensors::add_to(&mut devices, trace, replay, &phases);
        let ooms = oom::describe_all(&trace.metadata, replay, &stacks);
        let ledger: Vec<DeviceLedger> = used_accounts(replay)
            .flat_map(|(device, account)| ledger::of_device(replay, &libraries, &stacks, device, account))
            .collect();
        buffers::add_to(&mut devices, &ledger);
        let shapes = Shapes::of(replay, &evidence.thresholds).by_paths(&ooms).by_blocks(replay, &phases);
        let thresholds = &evidence.thresholds;
        let run = tensor_growth::Run { replay, stacks: &stacks, is_whole: trace.is_whole(), thresholds };
        let tensor_growth_at = tensor_growth_at(&run, &shapes);
        let shapes = shapes.by_growth(|index| Some(tensor_growth_at.get(&index)?.keeps_more(thresholds)));
        let clock = &replay.clock;
        let numbered = evidence.torch_snapshots.iter().enumerate();
        Facts {
            trace: describe_trace(trace, replay),
            versions: versions_of(trace, &devices, &process, &stacks),
            process,
            devices,
            pools: pools::describe(replay),
            machine,
            host: describe_account(replay, &replay.accounts.host),
            shapes,
            ooms,
            oom_count: replay.failures.count,
            vendor_ooms: replay.lower.failures,
            refused_below: below::describe(replay),
            unreached: unreached::describe(replay),
            ledger,
            host_ledger: ledger::of_host(replay, &libraries, &stacks),
            growth: describe_growth(replay, &evidence.thresholds, &stacks),
            tensor_growth: with_lines(run.of_devices(), &tensor_growth_at),
            tensor_growth_at,
            runs: DeviceRun::all(replay, &evidence.thresholds),
            tensors: TensorRun::all(evidence),
            moments: numbered.flat_map(|(at, file)| moments(&file.content).into_iter().map(move |m| (at, m))).collect(),
            coverage: coverage::judge(trace, replay, &libraries, &evidence.thresholds),
            other_evidence: evidence::describe(replay, trace.header.pid, evidence),
            thresholds: evidence.thresholds,
            thresholds_changed: evidence.thresholds.changes(),
            damages: describe_damages(trace),
            calls_under_way: describe_calls_under_way(trace, replay),
            allocation_latency_ns: distribution::describe(&replay.latency_ticks, |ticks| clock.duration_ns(ticks)),
            allocation_size_bytes: distribution::describe(&replay.sizes_bytes, |bytes| bytes),
            unmatched_frees: replay.unmatched_frees,
            failed_frees: replay.failed_frees,
            contexts_unclear: describe_contexts(replay),
            graph_node_bytes: saturate(replay.graph_bytes()),
            graph_reserved_bytes: replay.tracks.graph_reserved,
            symbols_missing: stacks.missing(),
        }
    }
}

/// The accounts that the program used: all devices, and memory of no known device where there was any.
fn used_accounts(replay: &Replay) -> impl Iterator<Item = (u8, &Account)> {
    replay.accounts.devices().filter(|(device, account)| *device != NO_DEVICE || account.calls != Calls::default())
}

fn describe_devices(trace: &TraceFile, replay: &Replay, machine: &Machine) -> Vec<DeviceSummary> {
    let describe = |(device, account): (u8, &Account)| {
        let at_peak = account.blocks_at_peak(replay.blocks(device));
        device::describe(trace, replay, device, account, &at_peak)
    };
    let mut devices: Vec<DeviceSummary> = used_accounts(replay).map(describe).collect();
    devices.extend(device::unused(trace, replay));
    devices.sort_by_key(|device| device.index.unwrap_or(NO_DEVICE));
    let environment = trace.metadata.process.environment.iter().cloned().collect();
    let which = WhichCard { machine, environment: &environment, devices: &devices };
    let of_card = |device| (which.node(device).and_then(KfdNode::target_name), which.video_memory(device));
    let of_cards: Vec<_> = devices.iter().map(of_card).collect();
    for (device, (architecture, video_memory)) in devices.iter_mut().zip(of_cards) {
        device.architecture = architecture;
        if device.total_bytes.is_none() {
            device.total_bytes = video_memory;
            device.total_source = video_memory.map(|_| TotalSource::Sysfs);
        }
    }
    devices
}

fn describe_growth(replay: &Replay, thresholds: &Thresholds, stacks: &Stacks<'_>) -> Vec<Growth> {
    let mut growth = growth::of_devices(replay, thresholds);
    growth::name_callers(&mut growth, stacks);
    growth
}

/// Of the failures that are looked at.
fn tensor_growth_at(run: &tensor_growth::Run<'_>, shapes: &Shapes) -> BTreeMap<usize, TensorGrowth> {
    let of = |index: usize| {
        let oom = run.replay.failures.listed.get(index)?;
        let moment = run.replay.blocks.moments.at_failure(oom.seq)?;
        Some((index, TensorGrowth::of(run, oom.device?, Until::Failure(moment))?))
    };
    shapes.indices().filter_map(of).collect()
}

/// Where what grew is given back by the end, the last failure that shows its lines tells of them.
fn with_lines(mut all: Vec<TensorGrowth>, at_failures: &BTreeMap<usize, TensorGrowth>) -> Vec<TensorGrowth> {
    for growth in all.iter_mut().filter(|growth| growth.significant && growth.lines.is_empty()) {
        let of_device = |at: &&TensorGrowth| at.device == growth.device && at.significant && !at.lines.is_empty();
        if let Some(at_failure) = at_failures.values().rev().find(of_device) {
            *growth = at_failure.clone();
        }
    }
    all
}

fn versions_of(
    trace: &TraceFile,
    devices: &[DeviceSummary],
    process: &ProcessSummary,
    stacks: &Stacks<'_>,
) -> Versions {
    let runtimes = devices.iter().filter_map(|device| Some((device.runtime.as_deref()?, device.runtime_version)));
    let modules = trace.metadata.modules.modules.iter().map(|module| module.path.as_str());
    let mut executable = Executable { path: &process.executable, is_ggml_possible: false };
    // Names are looked up only where they decide.
    executable.is_ggml_possible = executable.is_named_as_llama() && stacks.may_have_ggml(&process.executable);
    Versions::of(runtimes, executable, modules, &trace.metadata.machine.files)
}

impl Facts {
    /// Whether every event of the run is in the trace: none lost, none claimed and never written, nothing damaged. What a killed
    /// process was writing in its last instant does not count: there is nothing behind it.
    pub fn are_whole(&self) -> bool {
        let torn = if self.trace.clean_close { self.trace.torn_events } else { 0 };
        self.trace.events_lost == 0 && torn == 0 && self.damages.is_empty()
    }

    /// The device of a failure.
    pub fn device_of(&self, oom: &OomReport) -> Option<&DeviceSummary> {
        self.devices.iter().find(|device| device.index == oom.device)
    }
}

fn describe_contexts(replay: &Replay) -> UnclearContexts {
    let unclear = replay.unclear_contexts();
    UnclearContexts { ends: unclear.ends, blocks: unclear.blocks, bytes: saturate(unclear.bytes) }
}

fn describe_trace(trace: &TraceFile, replay: &Replay) -> TraceSummary {
    let header = &trace.header;
    TraceSummary {
        path: trace.path().display().to_string(),
        format_version: format!("{}.{}", header.major, header.minor),
        clean_close: header.closed == 1,
        events: replay.events,
        events_lost: header.events_lost,
        torn_events: header.torn,
        duration_ns: replay.clock.at_ns(replay.last_at),
        started_at: rfc3339(replay.clock.started_at_ns()),
        clock_measured: replay.clock.measured,
        trouble: match header.trouble {
            0 => None,
            1 => Some("the disk was full"),
            2 => Some("the limit for the size of files was reached"),
            3 => Some("the program closed the recorder's file descriptor"),
            _ => Some("the trace file could not be written"),
        },
    }
}

/// The rank of a process. A file has 0 also where none was set; traces of older recorders do not tell the two apart.
pub fn rank(process: &ProcessFacts) -> Option<u32> {
    let is_set = || process.environment.iter().any(|(name, _)| RANK_VARIABLES.contains(&name.as_str()));
    (process.rank > 0 || is_set()).then_some(process.rank)
}

fn describe_process(trace: &TraceFile, end: End, forked_from: Option<u32>) -> ProcessSummary {
    let facts = &trace.metadata.process;
    let modules = trace.metadata.modules.modules.iter();
    let (end, exit_code, signal) = end.parts();
    ProcessSummary {
        pid: trace.header.pid,
        parent_pid: facts.parent_pid,
        forked_from,
        rank: rank(facts),
        executable: facts.executable.clone(),
        command_line: facts.command_line.clone(),
        hostname: facts.hostname.clone(),
        end,
        exit_code,
        signal,
        kernel: facts.kernel.clone(),
        recorder_version: facts.recorder_version.clone(),
        notes: facts.notes.clone(),
        environment: facts.environment.iter().cloned().collect(),
        torch_version: torch_version(&trace.metadata.machine.files).map(str::to_owned),
        libraries: modules.filter(|module| module.vendor).map(describe_library).collect(),
    }
}

fn describe_library(module: &Module) -> LibrarySummary {
    let version = module.path.rsplit('/').next().and_then(|name| name.split_once(".so."));
    LibrarySummary {
        path: module.path.clone(),
        version: version.map(|(_, version)| version.to_owned()),
        build_id: (!module.build_id.is_empty()).then(|| module.build_id.clone()),
    }
}

fn describe_damages(trace: &TraceFile) -> Vec<DamageSummary> {
    let damages = trace.damages().iter();
    damages.map(|damage| DamageSummary { offset: damage.offset, reason: damage.reason.clone() }).collect()
}

fn describe_calls_under_way(trace: &TraceFile, replay: &Replay) -> Vec<UnderWay> {
    // After a clean end these are calls of threads that the exit cut off: of no interest.
    let calls = trace.calls_under_way().into_iter();
    calls
        .map(|call| UnderWay {
            thread: call.thread,
            api: replay.apis.get(call.api).name.clone(),
            at_ns: replay.clock.at_ns(call.at),
            requested_bytes: call.requested_bytes,
            device: (call.device != NO_DEVICE).then_some(call.device),
        })
        .collect()
}
