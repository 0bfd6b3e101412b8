//! The one sentence: which failure decides, and what the numbers say about it.

use crate::passes::device::DeviceSummary;
use crate::passes::oom::{OomReport, deciding};
use crate::passes::summary::Summary;

/// What happened, in the order in which it is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// At least one allocation ran out of memory; this one decides.
    OutOfMemory {
        /// Index in [`Summary::ooms`].
        oom: usize,
        /// What the numbers say.
        why: Why,
    },
    /// Nothing ran out of memory.
    Healthy {
        /// Index in [`Summary::devices`] of the device that was fullest.
        fullest: usize,
    },
    /// The program got no device memory at all, nor was it refused any.
    NothingAllocated,
}

/// Why memory was refused, as far as the numbers of the trace go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Why {
    /// The recorder was asked to refuse.
    Injected,
    /// Host memory.
    Host,
    /// More was asked for than the card has.
    LargerThanCard {
        /// Size of the card.
        total_bytes: u64,
    },
    /// The runtime reported enough free memory and still refused.
    FreeWasReported {
        /// What it reported.
        free_bytes: u64,
    },
    /// Too little is free, and most of what is used belongs to the program.
    FullOfOwn {
        /// What was left, by the runtime or, where nobody read it, by subtraction.
        left_bytes: u64,
        /// Whether the runtime said so.
        reported: bool,
    },
    /// Too little is free, and most of what is used is not in the trace.
    FullOfOthers {
        /// What the runtime reported as free.
        left_bytes: u64,
        /// What is used and not held by the program.
        others_bytes: u64,
    },
    /// Nobody read how much was free, and what the program held does not explain it.
    NotMeasured,
}

/// Finds the verdict.
pub fn judge(summary: &Summary) -> Verdict {
    if let Some(oom) = deciding(summary.ooms.iter().map(|oom| oom.outcome)) {
        return Verdict::OutOfMemory { oom, why: why(summary, &summary.ooms[oom]) };
    }
    let fullest = (0..summary.devices.len()).max_by_key(|index| summary.devices[*index].account.peak.requested_bytes);
    match fullest {
        Some(fullest) if summary.devices[fullest].account.allocations + summary.host.allocations > 0 => {
            Verdict::Healthy { fullest }
        }
        _ => Verdict::NothingAllocated,
    }
}

fn why(summary: &Summary, oom: &OomReport) -> Why {
    if oom.refused_by == Some("injected") {
        return Why::Injected;
    }
    if matches!(oom.kind, "host-pinned" | "registered") {
        return Why::Host;
    }
    let total = device_of(summary, oom).and_then(|device| device.total_bytes);
    if let Some(total_bytes) = total.filter(|total| oom.requested_bytes > *total) {
        return Why::LargerThanCard { total_bytes };
    }
    match (oom.free_reported_bytes, total) {
        (Some(free_bytes), _) if free_bytes >= oom.requested_bytes && !oom.unknown_size => {
            Why::FreeWasReported { free_bytes }
        }
        (Some(left_bytes), Some(total)) => {
            let others_bytes = total.saturating_sub(left_bytes).saturating_sub(oom.held_bytes);
            match others_bytes > oom.held_bytes {
                true => Why::FullOfOthers { left_bytes, others_bytes },
                false => Why::FullOfOwn { left_bytes, reported: true },
            }
        }
        (Some(left_bytes), None) => Why::FullOfOwn { left_bytes, reported: true },
        (None, Some(total)) if oom.held_bytes.saturating_add(oom.requested_bytes) > total => {
            Why::FullOfOwn { left_bytes: total.saturating_sub(oom.held_bytes), reported: false }
        }
        _ => Why::NotMeasured,
    }
}

/// The device of a failure.
pub fn device_of<'a>(summary: &'a Summary, oom: &OomReport) -> Option<&'a DeviceSummary> {
    summary.devices.iter().find(|device| device.index == oom.device)
}

/// Whether the request would fit with the granularity that the addresses show, where the numbers decide it.
///
/// Placement is no obstacle there: drivers scatter a buffer over physical memory.
pub fn fits_as_observed(device: &DeviceSummary, oom: &OomReport) -> Option<bool> {
    let granularity = device.granularity_observed_bytes?;
    let total = device.total_bytes?;
    let round = |bytes: u64| bytes.div_ceil(granularity).saturating_mul(granularity);
    let rounding_at_most = oom.held_blocks.saturating_mul(granularity);
    let least_free = total.saturating_sub(oom.held_bytes.saturating_add(rounding_at_most));
    let most_free = total.saturating_sub(oom.held_bytes);
    if round(oom.requested_bytes) <= least_free {
        return Some(true);
    }
    (oom.requested_bytes > most_free).then_some(false)
}
