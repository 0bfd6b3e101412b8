//! How much of what lives came to stay by the call paths that still rise: what a failure may be laid to.
//!
//! A queue and a cache that filled long ago are part of what a run came to hold, and none of what still rises.

use std::collections::{BTreeMap, BTreeSet};

use rustc_hash::FxHashMap;

use crate::passes::level::Level;
use crate::replay::sites::Sites;
use crate::replay::tracks::calls::{Call, What};
use crate::replay::tracks::survivors::{Group, STRETCHES, Survivors};
use crate::thresholds::Thresholds;

/// A call path, or where no call has one, blocks of one size.
pub(super) type PathKey = (u32, u64);

/// The path that a call came by.
pub(super) fn path_of(call: &Call) -> PathKey {
    (call.site, if call.site == 0 { call.bytes } else { 0 })
}

/// The call paths of a stretch whose blocks become more up to its end. A set has the site and the size of blocks that live.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rising {
    /// Bytes that came to stay by these paths over the stretch.
    pub bytes: u64,
    /// Bytes that they came to hold behind the last step.
    after_bytes: u64,
    /// Blocks of these paths.
    own: BTreeSet<(u32, u64)>,
    /// The same with the paths of which the stretch shows too little.
    may_be: BTreeSet<(u32, u64)>,
    /// Blocks of all other paths.
    others: BTreeSet<(u32, u64)>,
}

/// What one path came to hold, in bytes.
#[derive(Clone, Copy, Debug, Default)]
struct Change {
    halves: [i128; 2],
    after: i128,
}

impl Change {
    /// Whether what it holds becomes more in both halves, and in the second not much more slowly.
    fn goes_on(&self, thresholds: &Thresholds) -> bool {
        let [first, second] = self.halves;
        first > 0 && second > 0 && second as f64 >= thresholds.slowing_share * first as f64
    }

    fn bytes(&self) -> u64 {
        u64::try_from(self.halves[0] + self.halves[1]).unwrap_or(0)
    }
}

impl Rising {
    /// The paths that rise from the first level to the last. `stayed`: blocks and bytes that came to stay by each path, less what
    /// another block took the place of.
    pub(super) fn of(
        calls: &[Call],
        device: u8,
        levels: &[Level],
        stayed: &BTreeMap<PathKey, (u64, u64)>,
        thresholds: &Thresholds,
    ) -> Self {
        let (changes, live) = changes(calls, device, levels);
        let (mut rising, mut may_be) = (BTreeSet::new(), BTreeSet::new());
        let (mut few, mut few_sum, mut few_bytes) = (Vec::new(), Change::default(), 0u64);
        let mut sum = Rising::default();
        for (key, (blocks, bytes)) in stayed.iter().filter(|(_, (_, bytes))| *bytes > 0) {
            let change = changes.get(key).copied().unwrap_or_default();
            let bytes = (*bytes).min(change.bytes());
            if *blocks < thresholds.keeping_steps {
                // Too few to say of one path whether it goes on: those are looked at together.
                few.push((*key, change));
                few_sum.halves = [few_sum.halves[0] + change.halves[0], few_sum.halves[1] + change.halves[1]];
                few_bytes = few_bytes.saturating_add(bytes);
                may_be.insert(*key);
            } else if change.goes_on(thresholds) {
                sum.take_in(bytes, &change);
                rising.insert(*key);
            }
            if change.halves[1] > 0 {
                may_be.insert(*key);
            }
        }
        if few_sum.goes_on(thresholds) {
            sum.take_in(few_bytes.min(few_sum.bytes()), &Change::default());
            for (key, change) in few {
                sum.take_in(0, &change);
                rising.insert(key);
            }
        }
        for call in live.values() {
            let (key, block) = (path_of(call), (call.site, call.bytes));
            let set = if rising.contains(&key) { &mut sum.own } else { &mut sum.others };
            set.insert(block);
            if rising.contains(&key) || may_be.contains(&key) {
                sum.may_be.insert(block);
            }
        }
        sum
    }

    fn take_in(&mut self, bytes: u64, change: &Change) {
        self.bytes = self.bytes.saturating_add(bytes);
        self.after_bytes = self.after_bytes.saturating_add(u64::try_from(change.after).unwrap_or(0));
    }
}

/// What each path came to hold, and the blocks that live behind the last call.
fn changes<'a>(
    calls: &'a [Call],
    device: u8,
    levels: &[Level],
) -> (FxHashMap<PathKey, Change>, FxHashMap<u64, &'a Call>) {
    let mut changes: FxHashMap<PathKey, Change> = FxHashMap::default();
    let mut live: FxHashMap<u64, &Call> = FxHashMap::default();
    let steps = levels.len().saturating_sub(1);
    let mut count = |at: u64, path: PathKey, bytes: i128| {
        let step = levels.partition_point(|level| level.at < at);
        let change = changes.entry(path).or_default();
        match step {
            0 => {}
            step if step > steps => change.after += bytes,
            step => change.halves[usize::from(2 * step > steps + 1)] += bytes,
        }
    };
    for call in calls.iter().filter(|call| call.device == device) {
        match call.what {
            What::Given => {
                live.insert(call.address, call);
                count(call.at, path_of(call), i128::from(call.bytes));
            }
            What::Returned => {
                if let Some(given) = live.remove(&call.address) {
                    count(call.at, path_of(given), -i128::from(given.bytes));
                }
            }
            What::Refused => {}
        }
    }
    (changes, live)
}

/// What lives of the call paths that still rise.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stays {
    /// Steps of the stretch.
    pub steps: usize,
    /// Bytes that came to stay by them over these steps.
    pub bytes: u64,
    /// The same since the program began, as far as it came all along the way; never less than `bytes`.
    pub all_along_bytes: u64,
    /// Bytes that they hold at most, whenever those came.
    pub at_most_bytes: u64,
    /// In so many blocks.
    pub at_most_blocks: u64,
}

impl Stays {
    /// Of what lives on a device. `covers_the_stretch`: the calls of the whole stretch are known. `held`: bytes and blocks of all
    /// that lives.
    pub fn of(
        (steps, rising): (usize, &Rising),
        covers_the_stretch: bool,
        survivors: Option<&Survivors>,
        held: (u64, u64),
        sites: &Sites,
    ) -> Self {
        let place = |(site, bytes): (u32, u64)| (sites.place(site), bytes);
        let [own, may_be, others]: [BTreeSet<(u32, u64)>; 3] =
            [&rising.own, &rising.may_be, &rising.others].map(|set| set.iter().copied().map(place).collect());
        let groups = survivors.map_or(&[][..], |survivors| &survivors.groups);
        let of = |group: &&Group| place((group.site, group.block_bytes));
        // What comes by another way to the same call is told apart by its size.
        let is_own = |group: &&Group| own.contains(&of(group)) && !others.contains(&of(group));
        let came_all_along = all_along(groups.iter().filter(is_own)).saturating_sub(rising.after_bytes);
        let may_rise = |group: &&Group| {
            let (site, bytes) = of(group);
            may_be.iter().any(|known| known.0 == site && (site != 0 || known.1 == bytes))
        };
        let (at_most_bytes, at_most_blocks) = match survivors.filter(|_| covers_the_stretch) {
            Some(survivors) => {
                // Groups that are not listed may be of these paths.
                let is_not = |group: &&Group| !may_rise(group);
                let not = groups.iter().filter(is_not).fold((0u64, 0u64), |(bytes, blocks), group| {
                    (bytes.saturating_add(group.bytes()), blocks.saturating_add(group.blocks))
                });
                (survivors.bytes.saturating_sub(not.0), survivors.blocks.saturating_sub(not.1))
            }
            None => held,
        };
        let bytes = rising.bytes;
        let all_along_bytes = came_all_along.max(bytes);
        Stays { steps, bytes, all_along_bytes, at_most_bytes: at_most_bytes.max(all_along_bytes), at_most_blocks }
    }
}

/// Bytes of blocks that live, where what was given in any part of the run counts at the pace of the whole only: what was set up
/// at once did not come step by step.
fn all_along<'a>(groups: impl Iterator<Item = &'a Group>) -> u64 {
    let mut born = [0u64; STRETCHES];
    for group in groups {
        for (bytes, blocks) in born.iter_mut().zip(group.born) {
            *bytes = bytes.saturating_add(group.block_bytes.saturating_mul(u64::from(blocks)));
        }
    }
    let mut sorted = born;
    sorted.sort_unstable();
    let pace = sorted[(STRETCHES - 1) / 2];
    born.iter().fold(0, |sum: u64, bytes| sum.saturating_add((*bytes).min(pace)))
}
