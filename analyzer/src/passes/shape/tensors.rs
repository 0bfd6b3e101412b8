//! A leak among the tensors of PyTorch, by the history of its snapshot: what segments only suggest is shown there.

use super::cycles::Cycles;
use super::run::is_it_meant;
use crate::evidence::Evidence;
use crate::evidence::torch_snapshot::{Origin, Snapshot, Tensors, tensors};
use crate::judgement::check::{Basis, Check};
use crate::passes::growth::without_end;
use crate::passes::trend::{Point, Slope, Trend};
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
    slope: Slope,
    total_bytes: u64,
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

    /// The rise of what stays, where it goes on to the end and comes to something.
    fn rise(&self) -> Option<Rise> {
        let steps = self.cycles.steps();
        let point = |(x, bytes): (u32, u64)| Point { x: f64::from(x), y: bytes as f64, sort: 0 };
        let points: Vec<Point> = (0u32..).zip(steps.iter().map(|cycle| cycle.to.bytes)).map(point).collect();
        let trend = Trend::of(&points, &self.thresholds.trend_limits())?;
        let total_bytes = steps.last()?.to.bytes.saturating_sub(steps.first()?.to.bytes);
        let is_enough = trend.rises() && total_bytes >= self.thresholds.leak_total_bytes;
        is_enough.then_some(Rise { slope: trend.slope, total_bytes })
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
    let bytes = |rate: f64| size(rate.max(0.0) as u64);
    check.must_by(Basis::Given, true, || {
        format!(
            "PyTorch's snapshot: what tensors hold after a cycle rises by {} each time (95 %: {} to {}), up to the last; {} in {} \
             cycles",
            bytes(rise.slope.median),
            bytes(rise.slope.low),
            bytes(rise.slope.high),
            size(rise.total_bytes),
            steps.len(),
        )
    });
    let largest = run.growing().next();
    let part = share(largest.map_or(0, |origin| origin.bytes), rise.total_bytes);
    check.must_by(Basis::Given, part >= run.thresholds.dominant_share, || {
        let places: Vec<String> = run.growing().take(MOST_NAMED).map(|origin| named(origin, snapshot)).collect();
        format!("what stays comes all along from the same place: {}", places.join("; "))
    });
    check.note_by(Basis::Given, part < 1.0, || format!("that is {} of the rise", percent(part)));
    is_it_meant(check);
}

/// Where tensors come from that stay.
fn named(origin: &Origin, snapshot: &Snapshot) -> String {
    let held = format!("{} ({})", count(origin.tensors, "tensor", "tensors"), size(origin.bytes));
    match snapshot.own_frame(origin.stack) {
        Some(frame) => format!("{held} from {}", frame.place()),
        None => format!("{held} of {} each", size(origin.bytes / origin.tensors.max(1))),
    }
}
