//! Shapes of a whole run: a leak, a plateau that is none, models that are swapped.

use super::SEGMENTS;
use super::cycles::{Cycle, Cycles};
use crate::judgement::check::{Check, Confidence};
use crate::passes::fit::variation;
use crate::passes::growth::{self, Growth};
use crate::replay::Replay;
use crate::thresholds::Thresholds;
use crate::words::{percent, size};

/// What is known of a device over the whole run.
#[derive(Clone, Debug)]
pub struct DeviceRun {
    /// Device number as recorded.
    pub device: u8,
    /// Its cycles, without the end of the run.
    pub cycles: Cycles,
    /// Its growth, where it has five cycles.
    pub growth: Option<Growth>,
    /// Least memory in use by the driver's or runtime's readings at the floor of each cycle; `None` where nothing was read
    /// at one.
    pub used_at_floors: Option<Vec<u64>>,
    /// Whether the last failures' calls look like an allocator's segments.
    pub are_segments: bool,
    /// The numbers by which its shapes are judged.
    pub thresholds: Thresholds,
}

impl DeviceRun {
    /// All devices that the program used.
    pub fn all(replay: &Replay, thresholds: &Thresholds) -> Vec<Self> {
        let of = |(device, track)| {
            let cycles = growth::cycles_of(track, thresholds);
            let used =
                |cycle: &Cycle| track.reads.history().least_used(cycle.peak.at, next_rise(cycle), near_floor(cycle));
            DeviceRun {
                device,
                growth: growth::of_device(replay, device, &cycles, thresholds),
                used_at_floors: cycles.main.iter().map(used).collect(),
                are_segments: segments(replay, device, thresholds),
                cycles,
                thresholds: *thresholds,
            }
        };
        replay.tracks.devices().map(of).collect()
    }
}

/// A floor is looked at for as long as the fall to it took: readings come once a second.
fn next_rise(cycle: &Cycle) -> u64 {
    cycle.to.at.saturating_add(cycle.duration() / 2)
}

/// What the program holds at most where a reading counts as one of the floor, in bytes: one that came before the fall would
/// show the peak as something that stays.
fn near_floor(cycle: &Cycle) -> u64 {
    cycle.to.bytes.saturating_add(cycle.rise_bytes() / 16)
}

fn segments(replay: &Replay, device: u8, thresholds: &Thresholds) -> bool {
    let window = replay.tracks.calls.before(replay.tracks.calls.count());
    let of_device: Vec<_> = window.calls.into_iter().filter(|call| call.device == device).collect();
    super::facts::are_segments(&of_device, thresholds)
}

/// Live bytes rise cycle after cycle.
pub fn leak(run: &DeviceRun, check: &mut Check) {
    let Some(growth) = run.growth.as_ref().filter(|growth| growth.significant) else {
        check.applies(false);
        return;
    };
    check.must(true, || {
        format!(
            "what stays after a cycle rises by {} each time ({} in {} cycles, R² {:.3}), and never falls",
            size(growth.per_cycle.bytes as u64),
            size(growth.total_bytes.unsigned_abs()),
            growth.cycles,
            growth.r_squared
        )
    });
    let heights: Vec<f64> = run.cycles.steps().iter().map(|cycle| cycle.fall_bytes() as f64).collect();
    check.must(variation(&heights).1 <= run.thresholds.height_variation_share, || {
        "the cycles are equally high, so the batches are alike".to_owned()
    });
    if let Some(suspect) = growth.suspects.first() {
        check.note(true, || {
            format!(
                "{} blocks of {} from {} stay, {} per cycle",
                suspect.blocks,
                size(suspect.block_bytes),
                suspect.api,
                size(suspect.bytes_per_cycle)
            )
        });
    }
    check.unless(is_flat(&run.cycles, &run.thresholds), || "it rises at first and is flat then".to_owned());
    if run.are_segments {
        check.at_most(Confidence::Probable);
        check.would_settle(SEGMENTS);
    }
}

/// Whether the floors of the second half hardly differ.
pub(super) fn is_flat(cycles: &Cycles, thresholds: &Thresholds) -> bool {
    let steps = cycles.steps();
    let floors = || steps[steps.len() / 2..].iter().map(|cycle| cycle.to.bytes);
    let (least, most) = (floors().min().unwrap_or(0), floors().max().unwrap_or(0));
    most > 0 && (most - least) as f64 <= thresholds.flat_share * most as f64
}

/// Memory rises for some cycles and is flat then: no leak.
pub fn plateau(run: &DeviceRun, check: &mut Check) {
    let steps = run.cycles.steps();
    if !check.applies(steps.len() as u64 >= run.thresholds.plateau_least_cycles && steps.len() >= 2) {
        return;
    }
    let (first, last) = (steps[0].to.bytes, steps[steps.len() - 1].to.bytes);
    let level = last - (last as f64 * run.thresholds.flat_share) as u64;
    let rises_for = steps.iter().position(|cycle| cycle.to.bytes >= level).unwrap_or(steps.len());
    check.must(last > first && last - first >= run.thresholds.plateau_rise_bytes, || {
        format!("what stays rose from {} to {}", size(first), size(last))
    });
    check.must(rises_for as u64 <= run.thresholds.plateau_cycles && is_flat(&run.cycles, &run.thresholds), || {
        format!("it is flat since cycle {} of {}", rises_for + 1, steps.len())
    });
}

/// Each load and unload of a model leaves memory behind.
pub fn model_swap(run: &DeviceRun, check: &mut Check) {
    let cycles = &run.cycles.main;
    let thresholds = &run.thresholds;
    let (least_bytes, least_fall) = (thresholds.swap_bytes, thresholds.swap_fall_share);
    let is_swap = |cycle: &Cycle| {
        cycle.rise_bytes() > least_bytes && cycle.fall_bytes() as f64 >= least_fall * cycle.rise_bytes() as f64
    };
    if !check.applies(cycles.len() as u64 >= run.thresholds.swaps.max(2) && cycles.iter().all(is_swap)) {
        return;
    }
    check.must(true, || {
        let (came, went) = (size(least_bytes), percent(least_fall));
        format!("{} times more than {came} came and at least {went} of it went", cycles.len())
    });
    let times = cycles.len() as u64 - 1;
    let per_cycle = |floors: &[u64]| match floors {
        [first, .., last] => last.saturating_sub(*first) / times,
        _ => 0,
    };
    let floors: Vec<u64> = cycles.iter().map(|cycle| cycle.to.bytes).collect();
    let own = per_cycle(&floors);
    match &run.used_at_floors {
        Some(used) => {
            let residue = per_cycle(used);
            check.must(residue >= run.thresholds.swap_residue_bytes, || {
                let whose = if own * 2 >= residue {
                    "the program's own blocks"
                } else {
                    "not the program's blocks: the runtime keeps it"
                };
                format!("memory in use at the floors rises by {} each time; {whose}", size(residue))
            });
        }
        None if own >= run.thresholds.swap_residue_bytes => {
            check.must(true, || format!("the program's own blocks at the floors rise by {} each time", size(own)));
        }
        // Nothing shows that anything stays: any training with large steps looks like this.
        None => _ = check.applies(false),
    }
}
