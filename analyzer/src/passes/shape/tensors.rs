//! A leak among the tensors of PyTorch, by the history of its snapshot: what segments only suggest is shown there.

use super::cycles::{Cycle, Cycles};
use super::run::is_flat;
use crate::diagnosis::torch_sums::place;
use crate::evidence::Evidence;
use crate::evidence::torch_snapshot::{Origin, Snapshot, Tensors, tensors};
use crate::judgement::check::{Basis, Check};
use crate::passes::fit::{Fit, variation};
use crate::passes::growth::without_end;
use crate::thresholds::{Thresholds, share};
use crate::words::{count, percent, size};

/// Places that are named.
const MOST_NAMED: usize = 3;

/// The tensors of a device over a snapshot's history.
#[derive(Clone, Debug)]
pub struct TensorRun {
    /// Device number as recorded.
    pub device: u8,
    /// Number of the snapshot.
    pub snapshot: usize,
    /// Cycles of what they held.
    pub cycles: Cycles,
    /// Where what stays comes from, the largest first.
    pub origins: Vec<Origin>,
    /// The numbers by which they are judged.
    pub thresholds: Thresholds,
}

/// How what stays between cycles rises.
struct Rise {
    per_cycle_bytes: f64,
    total_bytes: u64,
    r_squared: f64,
}

impl TensorRun {
    /// Those of all snapshots whose history has cycles enough for a line.
    pub fn all(evidence: &Evidence) -> Vec<Self> {
        let numbered = evidence.torch_snapshots.iter().enumerate();
        let found =
            numbered.flat_map(|(number, file)| tensors(&file.content).into_iter().map(move |one| (number, one)));
        found.filter_map(|(number, tensors)| TensorRun::of(number, tensors, &evidence.thresholds)).collect()
    }

    fn of(snapshot: usize, tensors: Tensors, thresholds: &Thresholds) -> Option<Self> {
        let device = u8::try_from(tensors.device).ok()?;
        let cycles = Cycles::of(&without_end(&tensors.live, thresholds), thresholds);
        let is_enough = cycles.steps().len() >= thresholds.least_cycles();
        is_enough.then_some(TensorRun { device, snapshot, cycles, origins: tensors.origins, thresholds: *thresholds })
    }

    /// The rise of what stays, where it never falls, is a straight line and comes to much.
    fn rise(&self) -> Option<Rise> {
        let steps = self.cycles.steps();
        let floors = (0u32..).zip(steps).map(|(number, cycle)| (f64::from(number), cycle.to.bytes as f64));
        let fit = Fit::through(&floors.collect::<Vec<_>>())?;
        let never_falls = steps.windows(2).all(|pair| pair[0].to.bytes <= pair[1].to.bytes);
        let total_bytes = steps.last()?.to.bytes.saturating_sub(steps.first()?.to.bytes);
        let is_line = fit.r_squared >= self.thresholds.straight_share && fit.slope > 0.0;
        (never_falls && is_line && total_bytes >= self.thresholds.leak_total_bytes).then_some(Rise {
            per_cycle_bytes: fit.slope,
            total_bytes,
            r_squared: fit.r_squared,
        })
    }

    /// Whether what tensors hold after a cycle rises.
    pub fn rises(&self) -> bool {
        self.rise().is_some()
    }

    /// What refutes a leak that segments suggest.
    pub fn stays(&self) -> String {
        let floors = || self.cycles.steps().iter().map(|cycle| cycle.to.bytes);
        format!(
            "PyTorch's snapshot: over {} tensors held {} to {} after each, which is no steady rise: the cache grows, and no \
             tensor leaks",
            count(self.cycles.steps().len() as u64, "cycle", "cycles"),
            size(floors().min().unwrap_or(0)),
            size(floors().max().unwrap_or(0))
        )
    }

    /// What stays and came all along the history.
    fn growing(&self) -> impl Iterator<Item = &Origin> {
        self.origins.iter().filter(|origin| origin.came_all_along())
    }
}

/// What tensors hold rises cycle after cycle.
pub fn leak(run: &TensorRun, snapshot: &Snapshot, check: &mut Check) {
    let Some(rise) = run.rise() else {
        check.applies(false);
        return;
    };
    let steps = run.cycles.steps();
    check.must_by(Basis::Given, true, || {
        format!(
            "PyTorch's snapshot: what tensors hold after a cycle rises by {} each time ({} in {} cycles, R² {:.3}), and never \
             falls",
            size(rise.per_cycle_bytes as u64),
            size(rise.total_bytes),
            steps.len(),
            rise.r_squared
        )
    });
    let heights: Vec<f64> = steps.iter().map(|cycle: &Cycle| cycle.fall_bytes() as f64).collect();
    check.must_by(Basis::Given, variation(&heights).1 <= run.thresholds.height_variation_share, || {
        "the cycles are equally high, so the batches are alike".to_owned()
    });
    let largest = run.growing().next();
    let part = share(largest.map_or(0, |origin| origin.bytes), rise.total_bytes);
    check.must_by(Basis::Given, part >= run.thresholds.dominant_share, || {
        let places: Vec<String> = run.growing().take(MOST_NAMED).map(|origin| named(origin, snapshot)).collect();
        format!("what stays comes all along from the same place: {}", places.join("; "))
    });
    check.unless(is_flat(&run.cycles, &run.thresholds), || "it rises at first and is flat then".to_owned());
    check.note_by(Basis::Given, part < 1.0, || format!("that is {} of the rise", percent(part)));
}

/// Where tensors come from that stay.
fn named(origin: &Origin, snapshot: &Snapshot) -> String {
    let held = format!("{} ({})", count(origin.tensors, "tensor", "tensors"), size(origin.bytes));
    match snapshot.own_frame(origin.stack) {
        Some(frame) => format!("{held} from {}", place(frame)),
        None => format!("{held} of {} each", size(origin.bytes / origin.tensors.max(1))),
    }
}
