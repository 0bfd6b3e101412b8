//! One account as values: counts, peak and end.

use serde::Serialize;

use crate::passes::fragmentation::saturate;
use crate::replay::Replay;
use crate::replay::account::{Account, Calls, Peak};
use crate::words::{count, size};

/// The moment when most was asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct PeakSummary {
    /// When.
    pub at_ns: u64,
    /// Bytes asked for and held.
    pub requested_bytes: u64,
    /// The same, each block padded.
    pub padded_bytes: u64,
    /// Blocks that lived.
    pub live_allocations: u64,
    /// Of the bytes asked for, those of managed memory, whose pages may lie in RAM.
    pub managed_bytes: u64,
    /// Its blocks.
    pub managed_allocations: u64,
}

impl PeakSummary {
    /// Bytes asked for that belong on the card.
    pub fn on_card_bytes(&self) -> u64 {
        self.requested_bytes.saturating_sub(self.managed_bytes)
    }
}

/// What was left.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct EndSummary {
    /// Blocks that were not given back.
    pub live_allocations: u64,
    /// Their bytes.
    pub requested_bytes: u64,
    /// The same, each block padded.
    pub padded_bytes: u64,
    /// Of the bytes those of managed memory, whose pages may lie in RAM.
    pub managed_bytes: u64,
}

impl EndSummary {
    /// Bytes and blocks, with what of it may lie in RAM, as a sentence has it.
    pub fn in_words(&self) -> String {
        let managed = match self.managed_bytes {
            0 => String::new(),
            bytes => format!(", {} of which may lie in RAM,", size(bytes)),
        };
        format!("{} in {}{managed}", size(self.requested_bytes), count(self.live_allocations, "block", "blocks"))
    }
}

/// Counts, peak and end of one account.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct AccountSummary {
    /// Calls that gave memory.
    pub allocations: u64,
    /// Calls that gave memory back.
    pub frees: u64,
    /// Calls that were refused.
    pub failures: u64,
    /// Calls that succeeded and gave nothing, because nothing was asked.
    pub empty_allocations: u64,
    /// Blocks whose address was given out again although no free was seen.
    pub replaced: u64,
    /// Pins of host memory that was registered already.
    pub registered_again: u64,
    /// Blocks that a device reset took away.
    pub reset: u64,
    /// The moment when most was asked for.
    pub peak: PeakSummary,
    /// What was left.
    pub end: EndSummary,
}

/// One account as values.
pub(super) fn describe_account(replay: &Replay, account: &Account) -> AccountSummary {
    let padded = |granules: u64| granules.saturating_mul(replay.granularity_bytes);
    let Peak { at, held, managed, .. } = &account.peak;
    let Calls { allocations, frees, failures, empty_allocations, replaced, registered_again, reset } = account.calls;
    AccountSummary {
        allocations,
        frees,
        failures,
        empty_allocations,
        replaced,
        registered_again,
        reset,
        peak: PeakSummary {
            at_ns: if held.blocks > 0 { replay.clock.at_ns(*at) } else { 0 },
            requested_bytes: saturate(held.requested_bytes),
            padded_bytes: padded(held.granules),
            live_allocations: held.blocks,
            managed_bytes: saturate(managed.requested_bytes),
            managed_allocations: managed.blocks,
        },
        end: EndSummary {
            live_allocations: account.held.blocks,
            requested_bytes: saturate(account.held.requested_bytes),
            padded_bytes: padded(account.held.granules),
            managed_bytes: saturate(account.managed.requested_bytes),
        },
    }
}
