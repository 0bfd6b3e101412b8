//! Who holds the memory of each device, as far as the trace proves it.

use gpuoom_trace::metadata::Quantity;
use gpuoom_trace::record::Kind;
use serde::Serialize;

use crate::passes::fragmentation::saturate;
use crate::passes::oom::deciding;
use crate::passes::oom::layer_name;
use crate::replay::Replay;
use crate::replay::account::{Account, Holdings};
use crate::replay::block::Block;
use crate::replay::failures::Oom;

/// Owner of what the program's own calls hold.
const PROGRAM: &str = "program";
/// Owner of what GPU libraries took for themselves.
const VENDOR: &str = "vendor libraries";

/// One holder.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Row {
    /// Layer that was asked, where the trace says it.
    pub layer: Option<&'static str>,
    /// Who asked.
    pub owner: &'static str,
    /// Kind of memory.
    pub kind: &'static str,
    /// Bytes asked for.
    pub bytes: u64,
    /// Number of blocks.
    pub blocks: u64,
    /// Whether this is of the end of the trace, because it is not known for the moment of the ledger.
    pub of_the_end: bool,
}

/// The memory of one device at one moment.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct DeviceLedger {
    /// Device index, `None` for memory whose device is not known.
    pub device: Option<u8>,
    /// The moment: `oom:N` or `peak`.
    pub moment: String,
    /// The moment.
    pub at_ns: u64,
    /// Who holds what, largest first.
    pub rows: Vec<Row>,
    /// Total memory, where it is known.
    pub total_bytes: Option<u64>,
    /// Free memory as the runtime reported it at that moment.
    pub free_bytes: Option<u64>,
    /// What is neither free nor in a row; `None` where nobody read the free memory at that moment.
    pub unattributed_bytes: Option<u64>,
    /// How much more the rows hold than is missing from the free memory (rounding, or free memory of another moment).
    pub overattributed_bytes: Option<u64>,
    /// Reserved address ranges at the end of the replay, which hold no memory.
    pub reserved_bytes: u64,
    /// Memory of other processes that was open at the end of the replay.
    pub imported_bytes: u64,
}

/// The ledger of a device at its most telling failure, else at its peak.
pub fn of_device(replay: &Replay, device: u8, account: &Account, at_peak: &[Block]) -> DeviceLedger {
    let failure = telling_failure(replay, device);
    let rows = rows(replay, device, failure.map(|(_, oom)| oom), at_peak);
    let free_bytes = failure.and_then(|(_, oom)| oom.read.runtime_free_bytes);
    let total_bytes = failure.and_then(|(_, oom)| oom.read.runtime_total_bytes);
    let total_bytes = total_bytes.or(replay.accounts.total_bytes(device));
    let held = rows.iter().fold(0u64, |sum, row| sum.saturating_add(row.bytes));
    let missing = total_bytes.zip(free_bytes).map(|(total, free)| total.saturating_sub(free));
    DeviceLedger {
        device: (device != gpuoom_trace::record::NO_DEVICE).then_some(device),
        moment: failure.map_or("peak".to_owned(), |(number, _)| format!("oom:{number}")),
        at_ns: replay.clock.at_ns(failure.map_or(account.peak.at, |(_, oom)| oom.at)),
        rows,
        total_bytes,
        free_bytes,
        unattributed_bytes: missing.map(|missing| missing.saturating_sub(held)),
        overattributed_bytes: missing.map(|missing| held.saturating_sub(missing)).filter(|more| *more > 0),
        reserved_bytes: saturate(account.reserved_bytes),
        imported_bytes: saturate(account.imported_bytes),
    }
}

fn rows(replay: &Replay, device: u8, failure: Option<&Oom>, at_peak: &[Block]) -> Vec<Row> {
    let (holdings, internals) = match failure {
        Some(oom) => (oom.holdings.as_deref().copied().unwrap_or_default(), oom.internals.clone()),
        None => (Holdings::of(at_peak), replay.internals.of_device(device)),
    };
    let row = |owner, layer, kind: Kind, bytes, blocks| {
        let of_the_end = owner != PROGRAM && failure.is_none();
        Row { layer: layer_name(Some(layer)), owner, kind: kind.name(), bytes: saturate(bytes), blocks, of_the_end }
    };
    let own = holdings.rows().map(|(layer, kind, held)| row(PROGRAM, layer, kind, held.requested_bytes, held.blocks));
    let vendor =
        internals.into_iter().map(|(layer, kind, sum)| row(VENDOR, layer, kind, sum.requested_bytes, sum.pieces));
    let mut rows: Vec<Row> = own.chain(vendor).collect();
    rows.sort_by_key(|row| std::cmp::Reverse(row.bytes));
    rows
}

/// The failure of a device that decides the verdict, as far as its holdings were kept.
fn telling_failure(replay: &Replay, device: u8) -> Option<(u64, &Oom)> {
    let listed = (1..).zip(&replay.failures.listed);
    let of_device: Vec<(u64, &Oom)> =
        listed.filter(|(_, oom)| oom.device == Some(device) && oom.holdings.is_some()).collect();
    let index = deciding(of_device.iter().map(|(_, oom)| oom.outcome))?;
    of_device.get(index).copied()
}

/// Lowest free memory that the runtime reported for a device, with its moment in ticks.
pub fn least_free(replay: &Replay, device: u8) -> Option<(u64, u64)> {
    replay.readings.series(Quantity::RuntimeFree, device).map(|series| series.least)
}
