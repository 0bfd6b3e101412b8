//! How much more than was asked for the driver may take for a program's blocks.

use super::case::{Case, Failure};
use crate::judgement::check::Holds;
use crate::replay::tracks::between::Done;
use crate::replay::tracks::survivors::Survivors;
use crate::thresholds::share;

impl Case<'_> {
    /// The most that rounding can have added to what was given between two moments, in bytes: by the granularity that the device's
    /// addresses show where that is more than the runtime's.
    pub fn rounding_between(&self, device: u8, done: &Done) -> u64 {
        let seen = self.replay.accounts.device(device).and_then(|account| account.spacing.granularity_bytes());
        let granule_bytes = seen.unwrap_or(0).max(self.thresholds.rocr_block_bytes);
        done.given_blocks.saturating_mul(granule_bytes)
    }

    /// What rounding to the runtime's blocks adds by the sizes that are known, in bytes.
    pub fn rounding_bytes(&self, failure: &Failure<'_>) -> u64 {
        self.survivors(failure).map_or(0, |survivors| self.added(survivors))
    }

    /// The most that rounding to the runtime's blocks can add, in bytes: a whole block for each whose size is not listed.
    pub fn rounding_at_most_bytes(&self, failure: &Failure<'_>) -> u64 {
        let listed = self.survivors(failure);
        let counted = listed.map_or(0, |survivors| survivors.groups.iter().map(|group| group.blocks).sum());
        let unlisted = failure.oom.held.blocks.saturating_sub(counted);
        let most = unlisted.saturating_mul(self.thresholds.rocr_block_bytes);
        listed.map_or(0, |survivors| self.added(survivors)).saturating_add(most)
    }

    /// The granule that the addresses show, what rounding each block up to it adds, in bytes, and whether that is what the driver counts for
    /// the process beyond its blocks. `None` also where not all sizes are listed, where managed memory may be among what is counted, and
    /// where some blocks may share pieces that the driver took.
    pub fn observed_rounding(&self, failure: &Failure<'_>) -> Option<(u64, u64, Holds)> {
        let granule = failure.device?.granularity_observed_bytes.filter(|granule| *granule > 0)?;
        let listed = self.survivors(failure).filter(|listed| listed.group_count == listed.groups.len())?;
        if failure.oom.held_managed_blocks > 0 || listed.blocks != failure.oom.held.blocks {
            return None;
        }
        let spacing = &self.replay.accounts.device(failure.oom.device?)?.spacing;
        if listed.groups.iter().any(|group| spacing.may_share(group.block_bytes)) {
            return None;
        }
        let added = added_by(listed, granule);
        let is_near = |hidden: u64| share(hidden.min(added), hidden.max(added)) >= self.thresholds.explained_share;
        (added > 0).then(|| (granule, added, failure.hidden_bytes().is(is_near)))
    }

    fn survivors<'c>(&'c self, failure: &Failure<'_>) -> Option<&'c Survivors> {
        self.around(failure)?.survivors.as_deref()
    }

    fn added(&self, survivors: &Survivors) -> u64 {
        added_by(survivors, self.thresholds.rocr_block_bytes)
    }
}

/// What rounding each listed block up to a granule adds, in bytes.
fn added_by(survivors: &Survivors, granule: u64) -> u64 {
    let granule = granule.max(1);
    let added = |bytes: u64| (granule - bytes % granule) % granule;
    let groups = survivors.groups.iter();
    groups.fold(0, |sum: u64, group| sum.saturating_add(added(group.block_bytes).saturating_mul(group.blocks)))
}
