//! Memory that a thread was given after a failure and that does not count for what became of it, and what that may mean all the same.

use gpuoom_trace::outcome::Because;
use gpuoom_trace::record::NO_DEVICE;

use super::{Evidence, OomReport, describe_evidence};
use crate::replay::Replay;
use crate::replay::failures::Oom;
use crate::replay::tracks::retries::Retry;
use crate::symbols::Stacks;
use crate::words::{clean, count, gpu, size, span};

/// What a thread was given before any GPU work, and what makes up for nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OtherMemory {
    /// The largest block.
    largest: Evidence,
    /// Who asked for it; empty where that has no name.
    asked_by: String,
    /// How many there were.
    blocks: u64,
}

impl OtherMemory {
    pub(super) fn of(replay: &Replay, stacks: &Stacks<'_>, oom: &Oom) -> Option<Self> {
        let largest = oom.other_memory.largest?;
        let asked_by = stacks.call_site(largest.site).map(|known| known.label.clone()).unwrap_or_default();
        Some(OtherMemory { largest: describe_evidence(replay, &largest), asked_by, blocks: oom.other_memory.blocks })
    }
}

/// A sign that a program may have noticed a failure although GPU work came first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sign {
    /// The same request succeeded at this moment, after its thread had given memory back.
    GivenAgain(u64),
    /// A smaller request from the same place was made at this moment.
    AskedForLess(u64),
}

impl Sign {
    /// Of a failure after which GPU work went on.
    pub(super) fn of(replay: &Replay, index: usize, oom: &Oom) -> Option<Self> {
        if oom.because != Because::GpuWorkContinued {
            return None;
        }
        let retry = replay.tracks.retries.of_failure(index).filter(|retry| retry.is_release_and_success());
        let again = |retry: &Retry| Sign::GivenAgain(replay.clock.at_ns(retry.ended_at));
        retry.map(again).or_else(|| asked_for_less(replay, index, oom))
    }

    fn words(self, oom: &OomReport) -> String {
        match self {
            Sign::GivenAgain(at_ns) => format!(
                "the same request succeeded {} later, after the thread had given memory back",
                span(oom.later_ns(at_ns))
            ),
            Sign::AskedForLess(at_ns) => {
                format!("the thread asked for less from the same place {} later", span(oom.later_ns(at_ns)))
            }
        }
    }
}

/// Whether the thread's next request came soon, from the same place, and for less.
fn asked_for_less(replay: &Replay, index: usize, oom: &Oom) -> Option<Sign> {
    let next = replay.tracks.around.failure(index)?.next?;
    let is_soon = replay.clock.duration_ns(next.at.saturating_sub(oom.at)) <= replay.failures.soon_ns();
    let is_same_place = next.site != 0 && next.site == oom.site && next.device == oom.device.unwrap_or(NO_DEVICE);
    let is_in_its_place = next.succeeded || next.same_variable;
    let is_less = next.requested_bytes < oom.requested_bytes;
    (is_soon && is_same_place && is_in_its_place && is_less).then(|| Sign::AskedForLess(replay.clock.at_ns(next.at)))
}

impl OomReport {
    /// What GPU work came before, in words; `who`: the thread.
    pub fn before_what(&self, who: &str) -> String {
        let Some(other) = &self.other_memory else {
            return format!("before {who} asked for the error, threw or got other memory");
        };
        let by = if other.asked_by.is_empty() { String::new() } else { format!(" for {}", clean(&other.asked_by)) };
        let others = match other.blocks {
            0 | 1 => String::new(),
            blocks => format!(", the largest of {}", count(blocks, "block", "blocks")),
        };
        format!(
            "before {who} asked for the error or threw; it had got {}{by} {} after the failure{others}, which counts as no retry",
            self.gave(&other.largest),
            span(self.later_ns(other.largest.at_ns)),
        )
    }

    /// What may show that the program had noticed, although GPU work came first.
    pub fn may_have_noticed(&self) -> Option<String> {
        let sign = self.sign?.words(self);
        Some(format!("by the order of calls alone: {sign}, so the program may well have noticed"))
    }

    /// What another call gave in the place of the failed one.
    pub fn gave(&self, evidence: &Evidence) -> String {
        let Some(gave) = evidence.gave else { return "memory".to_owned() };
        let bytes = gave.requested_bytes.map_or("an unknown amount".to_owned(), size);
        let kind = if gave.kind == self.kind { String::new() } else { format!(" of {} memory", gave.kind) };
        let place = match gave.device {
            Some(device) if self.device.is_some_and(|of| of != device) => format!(" on {}", gpu(Some(device))),
            _ => String::new(),
        };
        format!("{bytes}{kind}{place}")
    }
}
