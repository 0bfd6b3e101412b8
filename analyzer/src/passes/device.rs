//! One device as values.

use gpuoom_trace::metadata::{DeviceFacts, Quantity};
use gpuoom_trace::reader::TraceFile;
use gpuoom_trace::record::NO_DEVICE;
use serde::Serialize;

use crate::passes::account::{AccountSummary, describe_account};
use crate::passes::fragmentation::{self, Fragmentation, Observed};
use crate::passes::oom::OomReport;
use crate::passes::tensors::Tensors;
use crate::replay::Replay;
use crate::replay::account::Account;
use crate::replay::block::Block;

/// Blocks of the peak that are named.
const LARGEST_BLOCKS: usize = 5;

/// One device.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct DeviceSummary {
    /// Index as the program's runtime counts; `None` for memory whose device is not known.
    pub index: Option<u8>,
    /// Name, where the runtime tells it.
    pub name: Option<String>,
    /// Its instruction set, such as `gfx1100`, where KFD's topology tells it.
    pub architecture: Option<String>,
    /// `hip` or `cuda`.
    pub runtime: Option<String>,
    /// Version of the runtime as it encodes it.
    pub runtime_version: Option<i32>,
    /// PCI bus id.
    pub pci_bus_id: Option<String>,
    /// Total memory, in bytes; `None` where nobody tells.
    pub total_bytes: Option<u64>,
    /// Who tells it; left out where that is the runtime, or nobody.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub total_source: Option<TotalSource>,
    /// Granule of the model.
    pub granularity_bytes: u64,
    /// Granularity that the addresses show.
    pub granularity_observed_bytes: Option<u64>,
    /// Counts, peak and end.
    #[serde(flatten)]
    pub account: AccountSummary,
    /// Fragmentation of the model at the peak.
    pub fragmentation: Fragmentation,
    /// The same blocks with the observed granularity.
    pub observed: Option<Observed>,
    /// Memory of the device in use by all at the first reading, by sysfs.
    pub used_at_start_bytes: Option<u64>,
    /// What of it other processes and graphics clients held, as far as both were read.
    pub others_at_start_bytes: Option<u64>,
    /// Lowest free memory that the runtime reported, with its moment.
    pub least_free: Option<LeastFree>,
    /// The largest blocks that lived at the peak.
    pub largest_at_peak: Vec<LargeBlock>,
    /// What an allocator above the runtime gave out of it; null where none told.
    pub tensors: Option<Tensors>,
}

impl DeviceSummary {
    /// Total memory as the runtime reports it, in bytes: rules set it beside what sysfs says.
    pub fn runtime_total_bytes(&self) -> Option<u64> {
        self.total_bytes.filter(|_| self.total_source.is_none())
    }

    /// Whether the request would fit with the granularity that the addresses show, where the numbers decide it.
    ///
    /// Placement is no obstacle there: drivers scatter a buffer over physical memory.
    pub fn fits_as_observed(&self, oom: &OomReport) -> Option<bool> {
        let granularity = self.granularity_observed_bytes?;
        let total = self.total_bytes?;
        let round = |bytes: u64| bytes.div_ceil(granularity).saturating_mul(granularity);
        // Of managed memory all may lie on the card, or nothing.
        let rounding_at_most = oom.held_blocks.saturating_mul(granularity);
        let least_free = total.saturating_sub(oom.held_bytes.saturating_add(rounding_at_most));
        let most_free = total.saturating_sub(oom.held_bytes.saturating_sub(oom.held_managed_bytes));
        if round(oom.asked_bytes) <= least_free {
            return Some(true);
        }
        (oom.asked_bytes > most_free).then_some(false)
    }
}

/// Who tells the size of a device, where its runtime does not.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum TotalSource {
    /// `mem_info_vram_total` of the card that the device is.
    Sysfs,
}

/// A block that lived at the peak.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct LargeBlock {
    /// Function that gave it.
    pub api: String,
    /// Bytes asked for.
    pub requested_bytes: u64,
    /// When it was given.
    pub at_ns: u64,
}

/// The lowest free memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct LeastFree {
    /// When it was read.
    pub at_ns: u64,
    /// What the runtime reported.
    pub bytes: u64,
}

/// A device that the program used.
pub(super) fn describe(
    trace: &TraceFile,
    replay: &Replay,
    device: u8,
    account: &Account,
    at_peak: &[Block],
) -> DeviceSummary {
    let facts = trace.metadata.devices.iter().find(|facts| facts.index == device);
    DeviceSummary {
        account: describe_account(replay, account),
        granularity_observed_bytes: account.spacing.granularity_bytes(),
        fragmentation: fragmentation::at_peak(replay, account, at_peak),
        observed: fragmentation::observed(account, at_peak),
        largest_at_peak: largest(replay, at_peak),
        ..facts_of_device(replay, device, facts)
    }
}

/// The largest blocks; of equal ones the oldest.
fn largest(replay: &Replay, blocks: &[Block]) -> Vec<LargeBlock> {
    let mut blocks: Vec<&Block> = blocks.iter().collect();
    blocks.sort_unstable_by_key(|block| (std::cmp::Reverse(block.requested_bytes), block.entered));
    let first = blocks.into_iter().take(LARGEST_BLOCKS);
    first
        .map(|block| LargeBlock {
            api: replay.apis.get(block.api).name.clone(),
            requested_bytes: block.requested_bytes,
            at_ns: replay.clock.at_ns(block.at),
        })
        .collect()
}

fn facts_of_device(replay: &Replay, device: u8, facts: Option<&DeviceFacts>) -> DeviceSummary {
    let known = |text: &String| (!text.is_empty()).then(|| text.clone());
    let first = |quantity| replay.readings.series(quantity, device).map(|series| series.first.1);
    let least = replay.readings.series(Quantity::RuntimeFree, device).map(|series| series.least);
    DeviceSummary {
        index: (device != NO_DEVICE).then_some(device),
        name: facts.and_then(|facts| known(&facts.name)),
        architecture: None,
        runtime: facts.and_then(|facts| known(&facts.runtime)),
        runtime_version: facts.map(|facts| facts.runtime_version).filter(|version| *version != 0),
        pci_bus_id: facts.and_then(|facts| known(&facts.pci_bus_id)),
        total_bytes: replay.accounts.total_bytes(device),
        total_source: None,
        granularity_bytes: replay.granularity_bytes,
        granularity_observed_bytes: None,
        account: AccountSummary::default(),
        fragmentation: Fragmentation { modelled: true, ..Fragmentation::default() },
        observed: None,
        largest_at_peak: Vec::new(),
        used_at_start_bytes: first(Quantity::VramUsed),
        others_at_start_bytes: others_at_start(replay, device),
        tensors: None,
        least_free: least.map(|(at, bytes)| LeastFree { at_ns: replay.clock.at_ns(at), bytes }),
    }
}

/// What others held when the memory in use was first read: numbers of different moments are not set beside each other.
fn others_at_start(replay: &Replay, device: u8) -> Option<u64> {
    let first = |quantity| replay.readings.series(quantity, device).map(|series| series.first);
    let (at, _) = first(Quantity::VramUsed)?;
    let then = |quantity| first(quantity).filter(|(other, _)| *other == at).map(|(_, bytes)| bytes);
    Some(then(Quantity::KfdOthersVram)?.saturating_add(then(Quantity::GraphicsVram)?))
}

/// Devices that the trace has facts about and on which nothing was allocated.
pub(super) fn unused(trace: &TraceFile, replay: &Replay) -> Vec<DeviceSummary> {
    let unused = |facts: &&DeviceFacts| replay.accounts.devices().all(|(device, _)| device != facts.index);
    let facts = trace.metadata.devices.iter().filter(unused);
    facts.map(|facts| facts_of_device(replay, facts.index, Some(facts))).collect()
}
