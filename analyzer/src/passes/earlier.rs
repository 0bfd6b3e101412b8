//! Whether a place kept its earlier blocks, too: where all that came before the oldest of those that live is gone, rounds that end and blocks
//! that grow old rise like a leak, until there are more of them or they last longer than before.

use rustc_hash::FxHashMap;

use crate::passes::level::Level;
use crate::passes::stays::{PathKey, path_of};
use crate::replay::tracks::calls::{Call, What};
use crate::thresholds::{Thresholds, share};

/// The earlier blocks of a place that outlived their step and are all gone, or 0 where that may be chance: of `outlived` blocks `live`
/// were kept, and each of the earlier ones might have been one of those. `outlived`: all that outlived their step, those that live among
/// them.
pub(super) fn all_gone(earlier: u64, live: u64, outlived: u64, thresholds: &Thresholds) -> u64 {
    let kept = share(live, outlived).min(1.0);
    let chance = (1.0 - kept).powf(earlier as f64);
    if chance < thresholds.all_gone_chance { earlier } else { 0 }
}

/// The same of one call path, by its calls; `levels`: the ends of all steps whose calls are known.
pub(super) fn all_gone_of(path: PathKey, calls: &[Call], device: u8, levels: &[Level], thresholds: &Thresholds) -> u64 {
    let step_of = |at: u64| levels.partition_point(|level| level.at < at);
    let mut live: FxHashMap<u64, &Call> = FxHashMap::default();
    // When those came that outlived their step and went.
    let mut gone: Vec<u64> = Vec::new();
    for call in calls.iter().filter(|call| call.device == device) {
        match call.what {
            What::Given if path_of(call) == path => _ = live.insert(call.address, call),
            What::Returned => {
                let given = live.remove(&call.address);
                gone.extend(given.filter(|given| step_of(given.at) < step_of(call.at)).map(|given| given.at));
            }
            _ => {}
        }
    }
    let outlive = live.values().filter(|call| step_of(call.at) < levels.len());
    let (oldest, kept) = outlive.fold((u64::MAX, 0), |(oldest, kept), call| (oldest.min(call.at), kept + 1));
    let earlier = gone.iter().filter(|at| **at < oldest).count() as u64;
    all_gone(earlier, kept, kept + gone.len() as u64, thresholds)
}
