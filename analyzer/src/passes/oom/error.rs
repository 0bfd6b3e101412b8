//! An error of an allocator above the runtime, with the refusals that led to it.

use gpuoom_trace::record::Kind;
use serde::Serialize;

use super::{OomReport, Status, layer_name, stack_of};
use crate::evidence::torch_message::{TorchMessage, find_all};
use crate::replay::Replay;
use crate::replay::apis::Does;
use crate::replay::failures::RefusedBy;
use crate::replay::failures::framework::{Attempt, FrameworkError};
use crate::symbols::{Stacks, function_name};

/// A refused call of the runtime that led to an error of an allocator above it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct AttemptReport {
    /// Sequence number of its record.
    pub seq: u64,
    /// When it began.
    pub at_ns: u64,
    /// Function.
    pub api: String,
    /// Layer of the function.
    pub layer: Option<&'static str>,
    /// Kind of memory that was asked for.
    pub kind: &'static str,
    /// Bytes asked for.
    pub requested_bytes: u64,
    /// What it returned.
    pub status: Status,
    /// The lowest layer that returned the failure.
    pub refused_by: Option<&'static str>,
}

/// A layer that refused, by name.
pub(super) fn refuser(refused_by: RefusedBy) -> Option<&'static str> {
    match refused_by {
        RefusedBy::Layer(layer) => layer_name(layer),
        RefusedBy::Injected => Some("injected"),
    }
}

/// A refused call, as reports have it.
pub(super) fn attempt(replay: &Replay, attempt: &Attempt) -> AttemptReport {
    let api = replay.apis.get(attempt.api);
    AttemptReport {
        seq: attempt.seq,
        at_ns: replay.clock.at_ns(attempt.at),
        api: api.name.clone(),
        layer: layer_name(api.layer),
        kind: attempt.kind.name(),
        requested_bytes: attempt.requested_bytes,
        status: Status { code: attempt.status, name: api.status_name(attempt.status) },
        refused_by: refuser(attempt.refused_by),
    }
}

/// The error in the place of the attempt that stands for it.
pub(super) fn describe(replay: &Replay, stacks: &Stacks<'_>, error: &FrameworkError, last: OomReport) -> OomReport {
    let api = replay.apis.get(error.api);
    let is_torchs = api.does == Does::TellsOfTensor;
    // The allocator's own report has the frames of whoever asked it.
    let stack = (error.site != 0).then(|| stack_of(stacks, last.number, error.site));
    let is_thrown = last.message_from == Some("exception");
    let torch = last.message.as_deref().filter(|_| is_torchs && is_thrown);
    let torch = torch.and_then(|text| message_of(text, last.device));
    let report = OomReport {
        seq: error.seq,
        at_ns: replay.clock.at_ns(error.at),
        api: function_name(&api.name),
        layer: layer_name(api.layer),
        allocator: Some(if is_torchs { "PyTorch's allocator" } else { "the program's allocator" }),
        attempts: error.attempts.iter().map(|one| attempt(replay, one)).collect(),
        torch,
        requested_bytes: error.requested_bytes,
        half_made_bytes: error.half_made_bytes.filter(|_| last.kind == Kind::Physical.name()),
        status: Status { code: error.status, name: api.status_name(error.status) },
        ..last
    };
    match stack {
        Some(stack) => OomReport {
            stack: stack.frames,
            stack_is_cut: stack.native_is_cut,
            stack_is_inferred: stack.native_is_inferred,
            python_is_cut: stack.python_is_cut,
            ..report
        },
        None => report,
    }
}

/// PyTorch's message in what an exception says, unless it names another device.
fn message_of(text: &str, device: Option<u8>) -> Option<TorchMessage> {
    let message = find_all(text).into_iter().next()?;
    let is_other = message.device.zip(device).is_some_and(|(told, device)| told != u32::from(device));
    (!is_other).then_some(message)
}

impl OomReport {
    /// Who failed, in words: a function, or an allocator.
    pub fn name(&self) -> &str {
        self.allocator.unwrap_or(&self.api)
    }

    /// Whether only a piece of the block was refused.
    pub fn is_in_pieces(&self) -> bool {
        self.asked_bytes < self.requested_bytes
    }

    /// What was missing beside what was free. Of a block in pieces that is the most: what of it might have lain in memory that the
    /// allocator had mapped before nobody tells. `None` where nothing was, or it is not known what had been taken for the block.
    pub fn missing_bytes(&self, free_bytes: u64) -> Option<u64> {
        let wanted = match self.is_in_pieces() {
            true => self.requested_bytes.saturating_sub(self.half_made_bytes?),
            false => self.asked_bytes,
        };
        wanted.checked_sub(free_bytes).filter(|missing| *missing > 0)
    }

    /// The function that the runtime was asked by: the call itself, or the last attempt of an error.
    pub fn call(&self) -> &str {
        self.attempts.last().map_or(self.name(), |attempt| &attempt.api)
    }
}
