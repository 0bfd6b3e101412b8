//! What PyTorch's allocator held at a failure: by its message, by a memory snapshot, or by both.
//!
//! A snapshot whose history has this failure tells it best: size and time say that it is this one, and its numbers are not
//! rounded. A message is tied to a failure by its size alone, but was printed at the failure. A snapshot without the failure
//! in its history shows a later moment, when tensors may have been freed: it proves nothing, and refutes nothing.

use super::case::{Case, Failure};
use crate::evidence::torch_message::{Printed, TorchMessage};
use crate::evidence::torch_snapshot::{DeviceSums, Frame, Moment, sums};
use crate::judgement::check::{Basis, Holds};
use crate::passes::fragmentation::saturate;
use crate::replay::blocks::Owner;
use crate::thresholds::share;
use crate::words::size;
use gpuoom_trace::record::Kind;

/// A segment that several blocks above 1 MiB share; an expandable one is mapped, and given back, in pieces of this size.
pub(in crate::diagnosis) const SEGMENT_BYTES: u64 = 20 << 20;
/// What the allocator adds to a request at most before it asks the driver.
pub(super) const MOST_ADDED_BYTES: u64 = SEGMENT_BYTES;

/// Who told the sums.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Told {
    /// PyTorch's message, in a log.
    Message,
    /// PyTorch's message, as it was recorded with this very error.
    Error,
    /// Its blocks and its own totals in the trace, at this very failure.
    Blocks,
    /// A snapshot that has this failure in its history.
    SnapshotAtFailure,
    /// A snapshot of a later moment.
    SnapshotLater,
}

impl Told {
    /// As the beginning of a sentence.
    pub fn by(self) -> &'static str {
        match self {
            Told::Message | Told::Error => "PyTorch's message",
            Told::Blocks => "PyTorch's blocks in the trace",
            Told::SnapshotAtFailure => "PyTorch's snapshot, at its record of this failure",
            Told::SnapshotLater => "PyTorch's snapshot, taken at another moment",
        }
    }
}

/// Unused memory between an allocator's blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pieces {
    /// Stretches.
    pub number: u64,
    /// The longest, in bytes.
    pub largest_bytes: u64,
    /// What of them is whole segments, which could be given back, in bytes.
    pub whole_bytes: u64,
}

/// What PyTorch's allocator held at a failure.
#[derive(Clone, Debug)]
pub struct TorchSums<'a> {
    /// Who told it.
    pub told: Told,
    /// The request.
    pub tried: Printed,
    /// What it held and no tensor used.
    pub unused: Printed,
    /// What tensors held.
    pub allocated: Option<Printed>,
    /// What the driver called free.
    pub free: Option<Printed>,
    /// What private pools held, in tensors or not.
    pub private: Option<Printed>,
    /// What of that lay in no tensor, by the blocks in the trace. PyTorch counts it as allocated.
    pub idle_private: Option<Printed>,
    /// The state of the allocator, block by block, where a snapshot has this failure.
    pub moment: Option<&'a Moment>,
    /// The stack of the request, the innermost frame first.
    pub stack: Vec<&'a Frame>,
    /// In which pieces the unused memory lies, where the blocks in the trace tell.
    pub pieces: Option<Pieces>,
    /// How message and snapshot differ, and which is believed.
    pub disagreement: Option<String>,
    /// Whether what it calls free is what was read at the failure: else it is of another one.
    pub is_of_failure: Holds,
}

impl TorchSums<'_> {
    /// Where the numbers come from.
    pub fn basis(&self) -> Basis {
        if matches!(self.told, Told::Error | Told::Blocks) { Basis::Measured } else { Basis::Given }
    }

    /// Whether they are of this failure, and nothing contradicts them.
    pub fn is_certain(&self) -> bool {
        let is_believed = self.disagreement.is_none() || matches!(self.told, Told::Message | Told::Error);
        self.is_of_failure == Holds::Yes && self.told != Told::SnapshotLater && is_believed
    }

    /// All that the allocator held.
    pub fn reserved_bytes(&self) -> u64 {
        self.allocated.map_or(0, |allocated| allocated.plus(self.unused).bytes)
    }
}

fn exactly(bytes: u64) -> Printed {
    Printed { bytes, rounding_bytes: 0 }
}

/// Whether two numbers can be of the same moment: within what printing and blocks of unknown size leave open.
fn agree(one: Printed, other: Printed) -> bool {
    // A block may be larger than the request by what is left in it.
    let slack = 1 << 20;
    one.least() <= other.most().saturating_add(slack) && other.least() <= one.most().saturating_add(slack)
}

impl<'a> Case<'a> {
    /// What PyTorch's allocator held at a failure: by its blocks, a message or a snapshot.
    pub fn torch_sums<'c>(&'c self, failure: &Failure<'_>) -> Option<TorchSums<'c>> {
        let Some(blocks) = self.by_blocks(failure) else { return self.given_sums(failure) };
        // These have what the blocks do not show: what private pools hold, and what the driver calls free.
        let other = self.given_sums(failure);
        let Some(other) = other.filter(|other| other.told != Told::SnapshotLater) else { return Some(blocks) };
        if agree(blocks.unused, other.unused) {
            // The message names the segment that was asked for, and a block is often smaller.
            // Then private pools hold tensors, and hardly anything else.
            let idle_private = other
                .private
                .map(|private| if private.bytes > 0 { blocks.unused.minus(other.unused) } else { private });
            return Some(TorchSums { pieces: blocks.pieces, tried: blocks.tried, idle_private, ..other });
        }
        // What was told of another moment contradicts nothing.
        if other.is_of_failure == Holds::No {
            return Some(blocks);
        }
        // What private pools keep lies in no tensor's block, and PyTorch counts it as allocated.
        let in_pools = other.private.map_or(0, Printed::most);
        let explains = other.unused.most().saturating_add(in_pools) >= blocks.unused.least();
        if in_pools > 0 && explains && other.unused.least() <= blocks.unused.most() {
            let idle = blocks.unused.minus(other.unused);
            return Some(TorchSums { pieces: blocks.pieces, idle_private: Some(idle), ..other });
        }
        let disagreement = format!(
            "{} says {} unused and its blocks in the trace {}: the blocks are believed, of which each was recorded",
            other.told.by(),
            size(other.unused.bytes),
            size(blocks.unused.bytes)
        );
        Some(TorchSums { disagreement: Some(disagreement), ..blocks })
    }

    /// By the blocks in the trace: at PyTorch's error, when it has given back what it had cached, or where another library was refused.
    /// At a refusal that PyTorch itself went on from, its cache is not given back yet.
    fn by_blocks(&self, failure: &Failure<'_>) -> Option<TorchSums<'static>> {
        let is_other = || self.asked_by_another(failure).is_some();
        let tensors = failure.device?.tensors.as_ref().filter(|tensors| tensors.owner == Owner::Torch)?;
        let moment = tensors.moment(&format!("oom:{}", failure.report.number))?;
        if failure.oom.error.is_none() && !is_other() {
            return None;
        }
        let pieces = moment.unused_pieces.zip(moment.largest_unused_bytes).zip(moment.whole_unused_bytes);
        Some(TorchSums {
            told: Told::Blocks,
            is_of_failure: Holds::Yes,
            tried: exactly(failure.report.requested_bytes),
            unused: exactly(moment.unused_bytes?),
            allocated: Some(exactly(moment.allocated_bytes)),
            free: None,
            private: None,
            idle_private: None,
            moment: None,
            pieces: pieces.map(|((number, largest_bytes), whole_bytes)| Pieces { number, largest_bytes, whole_bytes }),
            stack: Vec::new(),
            disagreement: None,
        })
    }

    /// What a message or a snapshot tells.
    fn given_sums<'c>(&'c self, failure: &Failure<'_>) -> Option<TorchSums<'c>> {
        let recorded = self.recorded_message(failure).and_then(by_message);
        let recorded = recorded.map(|told| TorchSums { told: Told::Error, ..told });
        let of_log = || self.message(failure).and_then(by_message).map(|told| self.tied(told, failure));
        let told = recorded.or_else(of_log);
        if let Some((file, moment)) = self.moment(failure) {
            let snapshot = &self.evidence.torch_snapshots[file].content;
            let mut sums = by_moment(moment);
            sums.stack = snapshot.frames_of(moment.stack).collect();
            let other = told.filter(|told| !agree(told.unused, sums.unused));
            // What was recorded with the error is surely of it.
            if let Some(told) = other.as_ref().filter(|other| other.told == Told::Error) {
                let disagreement = format!(
                    "PyTorch's snapshot says {} unused and the message of this error {}: the message is believed",
                    size(sums.unused.bytes),
                    size(told.unused.bytes)
                );
                return Some(TorchSums { disagreement: Some(disagreement), ..told.clone() });
            }
            sums.disagreement = other.map(|told| {
                format!(
                    "PyTorch's message says {} unused and its snapshot {}: the snapshot is believed, which has this \
                     failure by size and time, where the message has the size alone",
                    size(told.unused.bytes),
                    size(sums.unused.bytes)
                )
            });
            return Some(sums);
        }
        let later = self.later(failure);
        let Some(mut told) = told else { return later };
        let other = later.filter(|later| told.is_of_failure != Holds::No && !agree(told.unused, later.unused));
        let believed = other.map(|later| {
            format!(
                "PyTorch's snapshot shows {} unused and its message {}: the message is believed, which was printed at the \
                 failure; the snapshot has no record of it and shows another moment",
                size(later.unused.bytes),
                size(told.unused.bytes)
            )
        });
        told.disagreement = told.disagreement.or(believed);
        Some(told)
    }

    /// A log may have messages of other runs that asked for as much: free memory ties a message to its failure.
    fn tied(&self, mut told: TorchSums<'static>, failure: &Failure<'_>) -> TorchSums<'static> {
        let read = failure.runtime_free_bytes();
        let both = told.free.zip(read.get());
        if both.is_none() {
            told.is_of_failure =
                read.is(|_| false).or(Holds::Unknown("free memory at the failure, beside PyTorch's message"));
        }
        let apart = both.filter(|(printed, read)| {
            let noise = self.thresholds.gap_noise_bytes;
            *read > printed.most().saturating_add(noise) || printed.least() > read.saturating_add(noise)
        });
        if let Some((printed, read)) = apart {
            told.is_of_failure = Holds::No;
            told.disagreement = Some(format!(
                "PyTorch's message says {} free, and {} was read at the failure: it may be of another one",
                size(printed.bytes),
                size(read)
            ));
        }
        told
    }

    /// The error in a snapshot's history that is this failure: of its size and device, and of its time.
    pub fn moment(&self, failure: &Failure<'_>) -> Option<(usize, &Moment)> {
        let asked = failure.request_bytes().get()?;
        let device = failure.oom.device.map(u32::from)?;
        let header = &self.trace.header;
        let failed_at_us =
            i128::from(header.clock_first.wall_ns / 1000) + i128::from(self.replay.clock.at_ns(failure.oom.at) / 1000);
        let has_clock = header.clock_first.wall_ns > 0;
        let alike = |moment: &Moment| {
            let wanted = moment.requested_bytes;
            let same_size = match failure.oom.kind {
                _ if failure.oom.error.is_some() => failure.report.requested_bytes == wanted,
                Kind::Physical => asked <= wanted.saturating_add(MOST_ADDED_BYTES),
                _ => (wanted..=wanted.saturating_add(MOST_ADDED_BYTES)).contains(&asked),
            };
            same_size && moment.device == device
        };
        let late_us = |moment: &Moment| i128::from(moment.at_us) - failed_at_us;
        let timed = |moment: &Moment| has_clock && moment.at_us > 0;
        let all = || self.moments.iter().filter(|(_, moment)| alike(moment));
        let us = |time_ns: u64| i128::from(time_ns / 1000);
        let near = -us(self.thresholds.clocks_differ_ns)..=us(self.thresholds.noted_ns);
        let in_time = all().filter(|(_, moment)| timed(moment) && near.contains(&late_us(moment)));
        let nearest = in_time.min_by_key(|(_, moment)| late_us(moment).unsigned_abs());
        // Without times only one that is alone can be it.
        let alone = || all().next().filter(|(_, moment)| !timed(moment) && all().count() == 1);
        nearest.or_else(alone).map(|(file, moment)| (*file, moment))
    }

    /// A snapshot whose segments are about what the trace had at the failure, though its history does not have it.
    fn later(&self, failure: &Failure<'_>) -> Option<TorchSums<'_>> {
        let device = failure.oom.device.map(u32::from)?;
        let asked = failure.request_bytes().get()?;
        let held = saturate(failure.oom.held.requested_bytes).max(1);
        let near = |sums: &DeviceSums| {
            sums.device == device
                && sums.reserved_bytes > 0
                && share(sums.reserved_bytes.abs_diff(held), held) <= self.thresholds.same_moment_share
        };
        let all = self.evidence.torch_snapshots.iter().flat_map(|file| sums(&file.content));
        let sums = all.filter(near).min_by_key(|sums| sums.reserved_bytes.abs_diff(held))?;
        Some(TorchSums {
            told: Told::SnapshotLater,
            is_of_failure: Holds::Yes,
            tried: exactly(asked),
            unused: exactly(sums.unallocated_bytes),
            allocated: Some(exactly(sums.reserved_bytes.saturating_sub(sums.unallocated_bytes))),
            free: None,
            private: Some(exactly(sums.private_bytes)),
            idle_private: None,
            moment: None,
            pieces: None,
            stack: Vec::new(),
            disagreement: None,
        })
    }
}

fn by_message(message: &TorchMessage) -> Option<TorchSums<'static>> {
    Some(TorchSums {
        told: Told::Message,
        is_of_failure: Holds::Yes,
        tried: message.tried?,
        unused: message.unallocated()?,
        allocated: message.allocated,
        free: message.free,
        private: message.private_pools,
        idle_private: None,
        moment: None,
        pieces: None,
        stack: Vec::new(),
        disagreement: None,
    })
}

fn by_moment(moment: &Moment) -> TorchSums<'_> {
    TorchSums {
        told: Told::SnapshotAtFailure,
        is_of_failure: Holds::Yes,
        tried: exactly(moment.requested_bytes),
        unused: moment.unallocated,
        allocated: Some(exactly(moment.reserved_bytes).minus(moment.unallocated)),
        free: Some(exactly(moment.driver_free_bytes)),
        private: Some(exactly(moment.private_bytes)),
        idle_private: Some(exactly(moment.private_unused_bytes)),
        moment: Some(moment),
        pieces: None,
        stack: Vec::new(),
        disagreement: None,
    }
}
