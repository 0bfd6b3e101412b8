//! What was in use on a card beside the program's own blocks, by a reading: runtime, driver, other processes.

use serde::Serialize;

use crate::passes::fragmentation::saturate;
use crate::passes::ledger::source_name;
use crate::passes::libraries::Libraries;
use crate::replay::Replay;
use crate::replay::comparison::Movable;
use crate::replay::failures::Oom;
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
    /// Of them, what may be pages of managed memory, at most.
    pub managed_bytes: u64,
    /// Of them, what may be memory that stream-ordered pools kept then, at most.
    pub kept_by_pools_bytes: u64,
    /// Managed memory that lived then: as much of it may lie on a larger card.
    pub managed_held_bytes: u64,
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
        Overhead { bytes, origin: Origin::Given, ..Overhead::UNKNOWN }
    }

    /// Nothing was read, and nothing given.
    pub const UNKNOWN: Overhead = Overhead {
        bytes: 0,
        managed_bytes: 0,
        kept_by_pools_bytes: 0,
        managed_held_bytes: 0,
        origin: Origin::Unknown,
        failure: None,
        by: None,
    };

    /// What is in use in any case: pages of managed memory may lie in RAM, and what pools kept is counted with the blocks.
    pub fn least_bytes(&self) -> u64 {
        self.bytes.saturating_sub(self.managed_bytes).saturating_sub(self.kept_by_pools_bytes)
    }

    /// The most that is in use on a card, if pools keep nothing beside it. A larger card may hold more of the managed memory. What
    /// the recorded card gave beside it bounds what may be pools' memory.
    pub fn most_bytes(&self, capacity_bytes: u64, recorded: Option<Recorded>) -> u64 {
        let Some(recorded) = recorded else { return self.bytes.saturating_add(self.more_managed_bytes()) };
        let room = recorded.total_bytes.saturating_sub(recorded.peak_bytes).max(self.least_bytes());
        let most = if self.kept_by_pools_bytes > 0 { self.bytes.min(room) } else { self.bytes };
        if capacity_bytes > recorded.total_bytes { most.saturating_add(self.more_managed_bytes()) } else { most }
    }

    fn more_managed_bytes(&self) -> u64 {
        self.managed_held_bytes.saturating_sub(self.managed_bytes)
    }
}

/// The card of the recorded run, and the most that it gave of memory that belongs there.
#[derive(Clone, Copy, Debug)]
pub struct Recorded {
    /// Its size.
    pub total_bytes: u64,
    /// The most that lived at once, managed memory left out.
    pub peak_bytes: u64,
}

/// What the readings say about a device: total less free less what the program's own blocks take.
///
/// The replay must count granules of the size that blocks really have there: what rounding takes is the blocks' own.
pub fn measured(replay: &Replay, libraries: &Libraries<'_>, device: u8) -> Overhead {
    let number = |oom: &Oom| {
        (1..).zip(&replay.failures.listed).find(|(_, other)| other.seq == oom.seq).map(|(number, _)| number)
    };
    let at_failure = replay.failures.listed.iter().filter(|oom| oom.device == Some(device)).find_map(|oom| {
        let kept_by_pools_bytes = kept_at(replay, oom);
        let movable = Movable { managed_bytes: oom.held_managed_bytes, kept_by_pools_bytes };
        let beside = beside(replay, libraries, device, (oom.held, movable), oom.read)?;
        Some(Overhead { origin: Origin::AtFailure, failure: number(oom), ..beside })
    });
    let compared = replay.comparisons.get(&device);
    let held_at_peak = replay.accounts.device(device).map_or_else(Held::default, |account| account.peak.held);
    let at_peak = || {
        let read = compared?.at_peak?.read;
        let beside = beside(replay, libraries, device, (held_at_peak, compared?.movable_at_peak), read)?;
        Some(Overhead { origin: Origin::AtPeak, ..beside })
    };
    let last = || {
        let (held, read) = compared?.last?;
        let beside = beside(replay, libraries, device, (held, compared?.movable_at_last), read)?;
        Some(Overhead { origin: Origin::LastReading, ..beside })
    };
    at_failure.or_else(at_peak).or_else(last).unwrap_or(Overhead::UNKNOWN)
}

fn beside(
    replay: &Replay,
    libraries: &Libraries<'_>,
    device: u8,
    (held, movable): (Held, Movable),
    mut read: DeviceReadings,
) -> Option<Overhead> {
    read.runtime_total_bytes = read.runtime_total_bytes.or(replay.accounts.total_bytes(device));
    let whole = *read.wholes().first()?;
    // Where blocks are not rounded at all, a large one has more granules, of one byte each, than a record can say.
    let padded = u128::from(held.granules) * u128::from(replay.granularity_bytes);
    let own = saturate(padded.max(held.requested_bytes).saturating_sub(movable.managed_bytes));
    let in_use = whole.total_bytes.saturating_sub(whole.free_bytes);
    let bytes = in_use.saturating_sub(own);
    let managed_held_bytes = saturate(movable.managed_bytes);
    let managed_bytes = managed_held_bytes.min(bytes);
    Some(Overhead {
        bytes,
        managed_bytes,
        kept_by_pools_bytes: movable.kept_by_pools_bytes.min(bytes - managed_bytes),
        managed_held_bytes,
        by: Some(source_name(libraries, device, whole.source)),
        ..Overhead::UNKNOWN
    })
}

/// What pools kept at a failure, at most.
fn kept_at(replay: &Replay, oom: &Oom) -> u64 {
    let index = replay.failures.listed.iter().position(|other| other.seq == oom.seq);
    let pooled = index.and_then(|index| replay.tracks.around.failure(index)?.pooled);
    // Where trims were not recorded, all that went back may be kept.
    let returned = || replay.tracks.device(oom.device?).map(|track| track.pool.peak_bytes);
    pooled.map(|pooled| pooled.all.at_most_bytes).or_else(returned).unwrap_or(0)
}
