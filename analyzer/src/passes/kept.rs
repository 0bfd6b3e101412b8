//! Which blocks came to stay over a stretch of steps, and by which call paths that goes on to its end.

use std::collections::{BTreeMap, BTreeSet};

use rustc_hash::FxHashMap;

use crate::passes::earlier::all_gone_of;
use crate::passes::level::Level;
use crate::passes::stays::{PathKey, Rising, path_of};
use crate::replay::tracks::calls::{Call, What};
use crate::thresholds::{Thresholds, share};

/// Blocks that were given during some steps and lived at the end of the last.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Kept {
    /// Steps that the calls cover.
    pub steps: usize,
    /// Steps of which a block stayed.
    pub keeping_steps: usize,
    /// Blocks that stayed.
    pub blocks: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Of them those of managed memory, whose pages may lie in RAM.
    pub managed_bytes: u64,
    /// Of them those of threads that set no label, and of whose blocks none came and went over these steps: nothing ties them to
    /// the steps.
    pub untied_bytes: u64,
    /// Bytes that outlived their step, and of them those that were given back behind the last step.
    pub outlived_bytes: [u64; 2],
    /// Bytes that were given in all.
    pub given_bytes: u64,
    /// Bytes of blocks from before that went, and that none of the same size took the place of.
    pub gone_bytes: u64,
    /// Bytes of blocks from before that went and whose calls are not kept, so that nobody knows by which path they had come.
    pub gone_of_unknown_bytes: u64,
    /// Rise of the levels over these steps.
    pub rise_bytes: u64,
    /// What came by the call path by which most came to stay, less what went of it; where no paths are known, blocks of one size.
    pub path: OfPath,
    /// The call paths that rise up to the last step.
    pub rising: Rising,
}

/// Blocks that came by one call path.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct OfPath {
    /// Blocks that stayed, less those that took the place of older ones.
    pub blocks: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Blocks that stayed in the place of others of their size that went.
    pub replacing_blocks: u64,
    /// Where all is gone that came before the oldest of the path's blocks that live: how many of that outlived their step.
    pub all_gone_blocks: u64,
    /// Size of each, where they are all equal.
    pub block_bytes: Option<u64>,
    /// Bytes of blocks that outlived the step after their own, and then went.
    pub returned_later_bytes: u64,
    /// Blocks from before these steps that went.
    pub gone_blocks: u64,
    /// Their bytes less those of blocks from before that went.
    pub net_bytes: u64,
    /// Call site of the path, 0 where only a size ties the blocks.
    pub site: u32,
}

impl Kept {
    /// Share of the rise that these blocks make up.
    pub fn rise_share(&self) -> f64 {
        share(self.bytes, self.rise_bytes)
    }

    /// Whether so much of what stayed was given back behind the last step.
    pub fn was_given_back(&self, share_of_it: f64) -> bool {
        let [all, gone] = self.outlived_bytes;
        gone > 0 && share(gone, all) >= share_of_it
    }

    /// Share of the rise that came by one call path, at most 1.
    pub fn path_share(&self) -> f64 {
        share(self.path.net_bytes, self.rise_bytes).min(1.0)
    }

    /// Share of all that was given which stayed.
    pub fn given_share(&self) -> f64 {
        share(self.bytes, self.given_bytes)
    }
}

/// Which blocks stayed of those that were given from the first level to the last. `labelling`: threads that set the labels.
pub(super) fn kept<'l>(
    calls: &[Call],
    is_complete: bool,
    device: u8,
    (all_levels, stretch, labelling): (&'l [Level], &'l [Level], &BTreeSet<u32>),
    thresholds: &Thresholds,
) -> Option<Kept> {
    let known_from = if is_complete { 0 } else { calls.first()?.at };
    let known = |levels: &'l [Level]| &levels[levels.partition_point(|level| level.at < known_from)..];
    let levels = known(stretch);
    let (first, last) = (levels.first()?, levels.last()?);
    let steps = levels.len() - 1;
    let mut kept = Kept { steps, rise_bytes: last.bytes.saturating_sub(first.bytes), ..Kept::default() };
    let mut live: FxHashMap<u64, (usize, &Call)> = FxHashMap::default();
    let mut before = live_before(calls, device, first.at);
    let mut paths: BTreeMap<PathKey, Path> = BTreeMap::new();
    // Blocks from before that went, by size.
    let mut gone: FxHashMap<u64, Vec<Option<PathKey>>> = FxHashMap::default();
    let mut tied = labelling.clone();
    for call in calls.iter().filter(|call| call.device == device && call.at > first.at && call.at <= last.at) {
        let step = levels.partition_point(|level| level.at < call.at);
        match call.what {
            What::Given => {
                kept.given_bytes = kept.given_bytes.saturating_add(call.bytes);
                live.insert(call.address, (step, call));
            }
            What::Returned => match live.remove(&call.address) {
                Some((born, given)) => {
                    tied.insert(given.thread);
                    if born + 1 < step {
                        let path = paths.entry(path_of(given)).or_default();
                        path.returned_later_bytes = path.returned_later_bytes.saturating_add(given.bytes);
                    }
                }
                None => {
                    let path = before.remove(&call.address).map(path_of);
                    gone.entry(call.bytes).or_default().push(path);
                }
            },
            What::Refused => {}
        }
    }
    let mut live: Vec<(usize, &Call)> = live.into_values().collect();
    live.sort_unstable_by_key(|(_, call)| std::cmp::Reverse(call.at));
    // What was on its way at the beginning is on its way at the end, too: a block for a block of its size, of its own path before
    // those of others.
    let mut keeps = |replaces: &dyn Fn(&Call, &mut Vec<Option<PathKey>>) -> bool, call: &Call| {
        let is_kept = gone.get_mut(&call.bytes).is_none_or(|gone| !replaces(call, gone));
        paths.entry(path_of(call)).or_default().replacing_blocks += u64::from(!is_kept);
        is_kept
    };
    live.retain(|(_, call)| keeps(&replaces_one_of_its_path, call));
    live.retain(|(_, call)| keeps(&|_, gone| replaces_any(gone), call));
    for (size, path) in gone.into_iter().flat_map(|(size, paths)| paths.into_iter().map(move |path| (size, path))) {
        kept.gone_bytes = kept.gone_bytes.saturating_add(size);
        match path {
            Some(path) => paths.entry(path).or_default().went(size),
            None => kept.gone_of_unknown_bytes = kept.gone_of_unknown_bytes.saturating_add(size),
        }
    }
    let sum = |is_one: &dyn Fn(&Call) -> bool| {
        let those = live.iter().filter(|(_, call)| is_one(call));
        those.fold(0, |sum: u64, (_, call)| sum.saturating_add(call.bytes))
    };
    (kept.managed_bytes, kept.untied_bytes) = (sum(&|call| call.is_managed), sum(&|call| !tied.contains(&call.thread)));
    // What the last step itself took may be its own.
    let outlived = live.iter().filter(|(step, _)| *step < steps).map(|(_, call)| *call);
    kept.outlived_bytes = given_back(calls, device, last.at, outlived);
    if let Some(path) = sum_up(&mut kept, &mut paths, live.into_iter()) {
        kept.path.all_gone_blocks = all_gone_of(path, calls, device, known(all_levels), thresholds);
    }
    let stayed = paths.iter().map(|(key, path)| (*key, (path.blocks, path.net_bytes()))).collect();
    kept.rising = Rising::of(calls, device, levels, &stayed, thresholds);
    Some(kept)
}

/// Bytes of blocks that live at a moment, and of those which are given back after it.
fn given_back<'a>(calls: &[Call], device: u8, at: u64, live: impl Iterator<Item = &'a Call>) -> [u64; 2] {
    let mut left: FxHashMap<u64, u64> = live.map(|call| (call.address, call.bytes)).collect();
    let all = left.values().fold(0, |sum: u64, bytes| sum.saturating_add(*bytes));
    let returned = calls.iter().filter(|call| call.device == device && call.at > at && call.what == What::Returned);
    let gone = returned.filter_map(|call| left.remove(&call.address)).fold(0, u64::saturating_add);
    [all, gone]
}

/// Whether a block takes the place of one of its size that went and that its own path had brought. That one is taken from the list.
fn replaces_one_of_its_path(call: &Call, gone: &mut Vec<Option<PathKey>>) -> bool {
    let own = gone.iter().position(|path| *path == Some(path_of(call)));
    own.map(|place| gone.swap_remove(place)).is_some()
}

/// The same for one of another path, or better of one that nobody knows.
fn replaces_any(gone: &mut Vec<Option<PathKey>>) -> bool {
    let place = gone.iter().position(Option::is_none).or(gone.len().checked_sub(1));
    place.map(|place| gone.swap_remove(place)).is_some()
}

/// The blocks that lived at a moment, of those whose call is known.
fn live_before(calls: &[Call], device: u8, at: u64) -> FxHashMap<u64, &Call> {
    let mut live = FxHashMap::default();
    for call in calls.iter().filter(|call| call.device == device && call.at <= at) {
        match call.what {
            What::Given => _ = live.insert(call.address, call),
            What::Returned => _ = live.remove(&call.address),
            What::Refused => {}
        }
    }
    live
}

/// One call path while sums are made.
#[derive(Clone, Copy, Debug, Default)]
struct Path {
    blocks: u64,
    bytes: u64,
    least_bytes: u64,
    most_bytes: u64,
    returned_later_bytes: u64,
    replacing_blocks: u64,
    gone_blocks: u64,
    gone_bytes: u64,
}

impl Path {
    fn went(&mut self, bytes: u64) {
        (self.gone_blocks, self.gone_bytes) = (self.gone_blocks + 1, self.gone_bytes.saturating_add(bytes));
    }

    fn net_bytes(&self) -> u64 {
        self.bytes.saturating_sub(self.gone_bytes)
    }
}

/// Sums up what stayed, and returns the path by which most did.
fn sum_up<'a>(
    kept: &mut Kept,
    paths: &mut BTreeMap<PathKey, Path>,
    live: impl Iterator<Item = (usize, &'a Call)>,
) -> Option<PathKey> {
    let mut steps = BTreeSet::new();
    for (step, call) in live {
        steps.insert(step);
        kept.blocks += 1;
        kept.bytes = kept.bytes.saturating_add(call.bytes);
        let path = paths.entry(path_of(call)).or_default();
        path.least_bytes = if path.blocks == 0 { call.bytes } else { path.least_bytes.min(call.bytes) };
        path.most_bytes = path.most_bytes.max(call.bytes);
        (path.blocks, path.bytes) = (path.blocks + 1, path.bytes.saturating_add(call.bytes));
    }
    kept.keeping_steps = steps.len();
    // Sessions that come and go hold much, and a leak beside them little: what came to stay counts.
    let (key, most) = paths.iter().max_by_key(|(_, path)| (path.net_bytes(), path.bytes))?;
    kept.path = OfPath {
        blocks: most.blocks,
        bytes: most.bytes,
        replacing_blocks: most.replacing_blocks,
        all_gone_blocks: 0,
        block_bytes: (most.least_bytes == most.most_bytes).then_some(most.least_bytes),
        returned_later_bytes: most.returned_later_bytes,
        gone_blocks: most.gone_blocks,
        net_bytes: most.net_bytes(),
        site: key.0,
    };
    Some(*key)
}
