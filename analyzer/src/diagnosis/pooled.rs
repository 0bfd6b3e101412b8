//! How much stream-ordered pools may keep at a failure of what was given back to them. All rules ask here, so that they say one thing.

use gpuoom_trace::record::Kind;

use super::case::{Case, Failure};
use crate::judgement::check::{Holds, Known};
use crate::passes::fragmentation::saturate;
use crate::replay::tracks::pools::Kept;

/// What would tell what pools keep.
pub(super) const KEPT: &str = "what stream-ordered pools keep (the pools' attribute ReservedMemCurrent)";
/// What would tell whether a trim took what it could.
pub(super) const SETTLED: &str =
    "whether the streams had got to what was freed when the pools were trimmed (wait for the device before the trim)";
const BEYOND_BLOCKS: &str = "what the driver counts for this process beyond what lives (KFD or NVML)";

/// No more than so much can be in pools.
#[derive(Clone, Copy, Debug)]
pub(super) struct AtMost {
    /// By the calls: all that pools gave since they were surely empty, less what of it is in use.
    pub(super) by_calls_bytes: u64,
    /// By the driver: what it counts for the process beyond what the program asked for.
    pub(super) by_driver_bytes: Known<u64>,
    /// By the card: all that it has beside the program's own blocks and what was free.
    by_card_bytes: Option<u64>,
}

impl AtMost {
    /// The smallest of them.
    pub(super) fn bytes(&self) -> u64 {
        let others = [self.by_driver_bytes.get(), self.by_card_bytes];
        others.into_iter().flatten().fold(self.by_calls_bytes, u64::min)
    }
}

impl Case<'_> {
    /// What stream-ordered pools hold beyond what is in use, by the calls. 0 where nothing was ever given back to them.
    pub(super) fn kept_by_pools(&self, failure: &Failure<'_>) -> Kept {
        if let Some(pooled) = self.around(failure).and_then(|around| around.pooled) {
            return pooled.all;
        }
        let track = failure.oom.device.and_then(|device| self.replay.tracks.device(device));
        let Some(track) = track.filter(|track| track.pool.returned > 0) else { return Kept::default() };
        let used = self.held_of_kind(failure, Kind::Pool);
        let bytes = track.pool.peak_bytes.saturating_sub(used);
        let at_most_bytes = track.pool.given_bytes.saturating_sub(used);
        Kept { bytes, untrimmed_bytes: bytes, at_most_bytes, ..Kept::default() }
    }

    /// The same of the pools that the failing call did not ask; `None` where it is not clear which pool gave what.
    pub(super) fn kept_elsewhere(&self, failure: &Failure<'_>) -> Option<Kept> {
        match failure.oom.kind {
            Kind::Pool => self.around(failure)?.pooled?.elsewhere,
            _ => Some(self.kept_by_pools(failure)),
        }
    }

    /// The most that pools can keep.
    pub(super) fn pools_keep_at_most(&self, failure: &Failure<'_>) -> AtMost {
        AtMost {
            by_calls_bytes: self.kept_by_pools(failure).at_most_bytes,
            by_driver_bytes: self.hidden_at_most_bytes(failure),
            by_card_bytes: self.beside_own_and_free_bytes(failure),
        }
    }

    /// What of the card was neither free nor in the program's own blocks. What came free after the refusal may have been in pools.
    fn beside_own_and_free_bytes(&self, failure: &Failure<'_>) -> Option<u64> {
        let total = failure.total_bytes().get()?;
        let own = failure.own_bytes().saturating_sub(failure.moved.given_bytes);
        let free =
            failure.free_bytes().get().filter(|_| self.before_reading(failure).unwrap_or_default().releases == 0);
        let free = free.map_or(0, |free| failure.moved.free_at_least(free));
        total.checked_sub(own).map(|beside| beside.saturating_sub(free))
    }

    /// Whether pools keep what was missing. No where they can't, else not known: no call and no reading tells.
    pub(super) fn pools_keep_missing(&self, failure: &Failure<'_>) -> Holds {
        let at_most = self.pools_keep_at_most(failure).bytes();
        let left = failure.request_bytes().zip(failure.free_bytes());
        match left.get().is_some() && at_most < failure.least_shortfall_bytes() || at_most == 0 {
            true => Holds::No,
            false => Holds::Unknown(KEPT),
        }
    }

    /// The most that the driver can count for this process beyond the program's blocks: their managed memory may lie in RAM, and
    /// what was freed while the card was read was counted no more. Not known where it counts less than lives, as on an APU whose
    /// memory lies in RAM: then it does not count the same.
    fn hidden_at_most_bytes(&self, failure: &Failure<'_>) -> Known<u64> {
        let meanwhile = self.before_reading(failure).unwrap_or_default();
        let unclear = saturate(self.replay.unclear_contexts().bytes);
        let counted = failure.process_bytes().get().filter(|_| meanwhile.releases == 0);
        let counted = counted.map(|bytes| bytes.saturating_add(meanwhile.returned_bytes).saturating_add(unclear));
        Known::new(counted.and_then(|bytes| bytes.checked_sub(failure.own_bytes())), BEYOND_BLOCKS)
    }
}
