//! What was in use on a card beside the program's own blocks, by a reading: runtime, driver, other processes.

use serde::Serialize;

use crate::passes::fragmentation::saturate;
use crate::passes::ledger::source_name;
use crate::passes::libraries::Libraries;
use crate::replay::Replay;
use crate::replay::held::Held;
use crate::replay::readings::DeviceReadings;

/// Where the number comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Origin {
    /// A reading at a failure.
    AtFailure,
    /// A reading when as much was held as at the peak.
    AtPeak,
    /// The last reading of the trace.
    LastReading,
    /// Somebody gave it.
    Given,
    /// There is no reading: it is taken as nothing.
    Unknown,
}

/// What is in use beside the program's own blocks. It is taken as the same at all times and on all cards.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Overhead {
    /// Bytes.
    pub bytes: u64,
    /// Where the number comes from.
    pub origin: Origin,
    /// The failure (counted from 1) whose reading it is.
    pub failure: Option<u64>,
    /// Who read it.
    pub by: Option<&'static str>,
}

impl Overhead {
    /// What somebody gave.
    pub fn given(bytes: u64) -> Self {
        Overhead { bytes, origin: Origin::Given, failure: None, by: None }
    }
}

/// What the readings say about a device: total less free less what the program's own blocks take.
///
/// The replay must count granules of the size that blocks really have there: what rounding takes is the blocks' own.
pub fn measured(replay: &Replay, libraries: &Libraries<'_>, device: u8) -> Overhead {
    let number = |oom: &crate::replay::failures::Oom| {
        (1..).zip(&replay.failures.listed).find(|(_, other)| other.seq == oom.seq).map(|(number, _)| number)
    };
    let at_failure = replay.failures.listed.iter().filter(|oom| oom.device == Some(device)).find_map(|oom| {
        let (bytes, by) = beside(replay, libraries, device, oom.held, oom.read)?;
        Some(Overhead { bytes, origin: Origin::AtFailure, failure: number(oom), by: Some(by) })
    });
    let compared = replay.comparisons.get(&device);
    let held_at_peak = replay.accounts.device(device).map_or_else(Held::default, |account| account.peak.held);
    let at_peak = || {
        let (_, read) = compared?.at_peak?;
        let (bytes, by) = beside(replay, libraries, device, held_at_peak, read)?;
        Some(Overhead { bytes, origin: Origin::AtPeak, failure: None, by: Some(by) })
    };
    let last = || {
        let (held, read) = compared?.last?;
        let (bytes, by) = beside(replay, libraries, device, held, read)?;
        Some(Overhead { bytes, origin: Origin::LastReading, failure: None, by: Some(by) })
    };
    let unknown = Overhead { bytes: 0, origin: Origin::Unknown, failure: None, by: None };
    at_failure.or_else(at_peak).or_else(last).unwrap_or(unknown)
}

fn beside(
    replay: &Replay,
    libraries: &Libraries<'_>,
    device: u8,
    held: Held,
    mut read: DeviceReadings,
) -> Option<(u64, &'static str)> {
    read.runtime_total_bytes = read.runtime_total_bytes.or(replay.accounts.total_bytes(device));
    let whole = *read.wholes().first()?;
    // Where blocks are not rounded at all, a large one has more granules, of one byte each, than a record can say.
    let padded = u128::from(held.granules) * u128::from(replay.granularity_bytes);
    let own = saturate(padded.max(held.requested_bytes));
    let in_use = whole.total_bytes.saturating_sub(whole.free_bytes);
    Some((in_use.saturating_sub(own), source_name(libraries, device, whole.source)))
}
