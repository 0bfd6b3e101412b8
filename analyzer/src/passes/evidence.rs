//! What was given beside the trace, held against it.

use gpuoom_trace::record::NO_DEVICE;
use serde::Serialize;

use crate::evidence::kernel_log::{KernelEvent, xid_meaning};
use crate::evidence::program_log::ProgramLine;
use crate::evidence::smi::SmiReport;
use crate::evidence::torch_message::{Judgement, TorchMessage, judge};
use crate::evidence::torch_snapshot::{HostSums, Join, Piece, Segment, Snapshot, common_bytes, host_sums, join, sums};
use crate::evidence::{Evidence, Given};
use crate::passes::model::{self, GivenModel};
use crate::replay::Replay;
use crate::replay::block::{Block, Mapping, Side};
use crate::thresholds::Thresholds;

/// Most messages of one log that are reported. The first ones tell most: later ones can be their consequences.
const MOST_MESSAGES: usize = 100;

/// A message of PyTorch and what its numbers say.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct JudgedMessage {
    /// What it says.
    #[serde(flatten)]
    pub message: TorchMessage,
    /// Versions of PyTorch that write like this.
    pub versions: Option<&'static str>,
    /// Diagnoses that the numbers speak for.
    #[serde(flatten)]
    pub judgement: Judgement,
    /// Messages after it with the same numbers.
    pub repeated: u64,
}

/// A log with PyTorch's messages.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct TorchLog {
    /// The file.
    pub path: String,
    /// Messages in it.
    pub count: u64,
    /// The first hundred different ones.
    pub messages: Vec<JudgedMessage>,
}

/// A moment of the trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum JoinMoment {
    /// The end.
    End,
    /// The peak of the device.
    Peak,
}

/// A device of a snapshot beside the trace.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct JoinedDevice {
    /// Of the trace: where more of the snapshot is found.
    pub moment: JoinMoment,
    /// What both have.
    #[serde(flatten)]
    pub join: Join,
}

/// A memory snapshot of PyTorch.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct TorchSnapshot {
    /// The file.
    pub path: String,
    /// Options of the allocator.
    pub allocator_settings: Vec<(String, String)>,
    /// Its devices.
    pub devices: Vec<JoinedDevice>,
    /// What its host allocator pinned; missing where the snapshot does not say.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub host: Option<JoinedHost>,
}

/// Pinned memory of PyTorch's host allocator, held against the trace.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct JoinedHost {
    /// The snapshot's sums.
    #[serde(flatten)]
    pub sums: HostSums,
    /// What of it the trace has pinned at its end, or at the peak of pinned memory, whichever is more.
    pub in_trace_bytes: u64,
}

/// Output of a vendor's tool.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Smi {
    /// The file.
    pub path: String,
    /// What it says.
    #[serde(flatten)]
    pub report: SmiReport,
}

/// A line of the kernel's log.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct KernelLine {
    /// What it says.
    #[serde(flatten)]
    pub event: KernelEvent,
    /// Whether it names the recorded process.
    pub of_this_process: bool,
    /// What an Xid number means.
    pub meaning: Option<&'static str>,
}

/// A log of the kernel.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct KernelLog {
    /// The file.
    pub path: String,
    /// Lines that have to do with memory, the GPU or a crash; those that name the recorded process first.
    pub lines: Vec<KernelLine>,
}

/// A log with lines of llama.cpp's or vLLM's about memory.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ProgramLog {
    /// The file.
    pub path: String,
    /// The lines; of those that say the same the last one.
    pub lines: Vec<ProgramLine>,
}

/// All that was given beside the trace.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct OtherEvidence {
    /// Logs with PyTorch's messages.
    pub torch_logs: Vec<TorchLog>,
    /// The same logs, as far as llama.cpp and vLLM wrote of memory there.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub program_logs: Vec<ProgramLog>,
    /// Memory snapshots of PyTorch.
    pub torch_snapshots: Vec<TorchSnapshot>,
    /// Output of the vendors' tools.
    pub smi: Vec<Smi>,
    /// Logs of the kernel.
    pub kernel_logs: Vec<KernelLog>,
    /// The model that runs, as somebody described it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<GivenModel>,
}

/// Describes the evidence; none where nothing was given.
pub fn describe(replay: &Replay, pid: u32, evidence: &Evidence) -> Option<OtherEvidence> {
    let said = evidence.program_logs.iter().filter(|log| !log.content.is_empty());
    let other = OtherEvidence {
        torch_logs: evidence.torch_logs.iter().map(|log| describe_log(log, &evidence.thresholds)).collect(),
        program_logs: said.map(|log| ProgramLog { path: log.path.clone(), lines: log.content.clone() }).collect(),
        torch_snapshots: evidence.torch_snapshots.iter().map(|file| describe_snapshot(replay, file)).collect(),
        smi: evidence.smi.iter().map(|file| Smi { path: file.path.clone(), report: file.content.clone() }).collect(),
        kernel_logs: evidence.kernel_logs.iter().map(|file| describe_kernel_log(pid, file)).collect(),
        model: model::describe(replay, evidence),
    };
    (other != OtherEvidence::default()).then_some(other)
}

fn describe_log(log: &Given<Vec<TorchMessage>>, thresholds: &Thresholds) -> TorchLog {
    let mut messages: Vec<JudgedMessage> = Vec::new();
    for message in &log.content {
        // A traceback is often printed twice; its numbers are the same.
        if let Some(last) = messages.last_mut().filter(|last| same(&last.message, message)) {
            last.repeated += 1;
        } else if messages.len() < MOST_MESSAGES {
            let (versions, judgement) = (message.spelling.versions(), judge(message, thresholds));
            messages.push(JudgedMessage { message: message.clone(), versions, judgement, repeated: 0 });
        }
    }
    TorchLog { path: log.path.clone(), count: log.content.len() as u64, messages }
}

fn same(one: &TorchMessage, other: &TorchMessage) -> bool {
    let place = (other.offset_bytes, other.line, other.exception);
    let (offset_bytes, line, exception) = place;
    one.has_numbers() && TorchMessage { offset_bytes, line, exception, ..one.clone() } == *other
}

fn describe_snapshot(replay: &Replay, file: &Given<Snapshot>) -> TorchSnapshot {
    let devices = sums(&file.content).into_iter().map(|sums| {
        let device = u8::try_from(sums.device).unwrap_or(u8::MAX);
        let at_end = join(&file.content, sums.device, pieces(replay.blocks(device), replay.mappings(device)));
        let at_peak = replay.accounts.device(device).map(|account| {
            let blocks = account.blocks_at_peak(replay.blocks(device));
            let mappings = account.mappings_at_peak(replay.mappings(device));
            join(&file.content, sums.device, pieces(blocks.iter(), mappings.iter()))
        });
        match at_peak.filter(|peak| peak.common_bytes > at_end.common_bytes) {
            Some(join) => JoinedDevice { moment: JoinMoment::Peak, join },
            None => JoinedDevice { moment: JoinMoment::End, join: at_end },
        }
    });
    TorchSnapshot {
        path: file.path.clone(),
        allocator_settings: file.content.allocator_settings.clone(),
        devices: devices.collect(),
        host: describe_host(replay, &file.content),
    }
}

fn describe_host(replay: &Replay, snapshot: &Snapshot) -> Option<JoinedHost> {
    let sums = host_sums(snapshot)?;
    let piece = |segment: &Segment| Piece { address: segment.address, size_bytes: segment.total_bytes };
    let traced = |block: &Block| Piece { address: block.address, size_bytes: block.requested_bytes };
    let common = |blocks: &[Block]| {
        let blocks = blocks.iter().filter(|block| block.may_hold_blocks());
        common_bytes(snapshot.host_segments.iter().map(piece), blocks.map(traced))
    };
    let live = || replay.blocks_of(Side::Host, NO_DEVICE);
    let at_end: Vec<Block> = live().copied().collect();
    // Nobody knows when the snapshot was taken: programs give back what they pinned at their end.
    let in_trace_bytes = common(&at_end).max(common(&replay.accounts.host.blocks_at_peak(live())));
    Some(JoinedHost { sums, in_trace_bytes })
}

fn describe_kernel_log(pid: u32, file: &Given<Vec<KernelEvent>>) -> KernelLog {
    let lines = file.content.iter().map(|event| KernelLine {
        event: event.clone(),
        // The kernel counts in its own name space: in a container these numbers can differ from the trace's.
        of_this_process: event.pid == Some(u64::from(pid)),
        meaning: event.code.and_then(xid_meaning),
    });
    let mut lines: Vec<KernelLine> = lines.collect();
    lines.sort_by_key(|line| !line.of_this_process);
    KernelLog { path: file.path.clone(), lines }
}

/// Blocks that lie at addresses, and physical memory where it is mapped.
fn pieces<'a>(
    blocks: impl Iterator<Item = &'a Block>,
    mappings: impl Iterator<Item = &'a Mapping>,
) -> impl Iterator<Item = Piece> {
    let blocks = blocks.filter(|block| block.has_address());
    let blocks = blocks.map(|block| Piece { address: block.address, size_bytes: block.requested_bytes });
    blocks.chain(mappings.map(|mapping| Piece { address: mapping.address, size_bytes: mapping.size_bytes }))
}
