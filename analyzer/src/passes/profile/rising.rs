//! How fast what blocks of allocators above the runtime hold rises where the run ends, as numbers for a policy.

use super::Place;
use crate::passes::growth::Floor;
use crate::passes::tensor_growth::{Cut, OfLabels, Run, TensorGrowth, Until};
use crate::passes::trend::{Course, Limits, Point, Trend};

/// The rise of what blocks hold on a device, from step to step.
#[derive(Clone, Debug, PartialEq)]
pub struct BlockGrowth {
    /// Which device.
    pub place: Place,
    /// What its blocks are called: `tensors`, `blocks`.
    pub blocks: &'static str,
    /// What a step is.
    pub by: Cut,
    /// Steps.
    pub steps: u64,
    /// Bytes per second where the run ends; 0 where the rise is over, or is no more than noise.
    pub per_second: f64,
    /// The rate of a rise that goes as it went before it was given back, or that went in stairs: nobody knows whether it will be again,
    /// or whether another follows.
    pub open_per_second: Option<f64>,
    /// What a step is, by its last label, where it lies between two of them; and bytes from one to the next, as `per_second`.
    pub per_mark: Option<(String, f64)>,
    /// Whether it went in stairs.
    pub in_stairs: bool,
    /// What lives beside the steps, where that is more than any of them was given: they say nothing of it.
    pub beyond: Option<String>,
    /// The lines of the program whose blocks become more, and what they hold in bytes where it ends.
    pub lines: Vec<(String, u64)>,
}

/// What blocks hold at the program's labels.
#[derive(Clone, Debug, PartialEq)]
pub struct LabelGrowth {
    /// On which device.
    pub place: Place,
    /// At which labels, and how it rises from one to the next.
    pub of: OfLabels,
}

impl BlockGrowth {
    /// Of what the passes found; `None` where its steps took no time that could be told apart.
    pub(super) fn of(run: &Run<'_>, growth: &TensorGrowth) -> Option<Self> {
        let limits = &run.thresholds.trend_limits();
        let rate = per_second(&growth.floors, limits)?;
        let open = match growth.course {
            Course::GivenBack => rate,
            Course::Stairs if growth.by != Cut::Cycles => overall(&growth.floors)?,
            _ => 0.0,
        };
        let name = |key: &Option<String>, label: &String| key.clone().unwrap_or_else(|| label.clone());
        Some(BlockGrowth {
            place: growth.device.map_or(Place::UnknownGpu, Place::Gpu),
            blocks: growth.blocks(),
            by: growth.by,
            steps: growth.steps,
            // What is over, or no more than noise, is no growth.
            per_second: if growth.course.rises() { rate.max(0.0) } else { 0.0 },
            open_per_second: (open > 0.0).then_some(open),
            per_mark: growth.label.clone().map(|label| {
                let rate = growth.per_step.bytes;
                (label, if growth.course.rises() { rate.max(0.0) } else { 0.0 })
            }),
            in_stairs: growth.course == Course::Stairs,
            beyond: beyond(run, growth),
            lines: growth.all_lines().map(|line| (name(&line.key, &line.label), line.bytes)).collect(),
        })
    }
}

/// What lived beside its steps at the last failure of a device, if no step came after that.
fn beyond(run: &Run<'_>, growth: &TensorGrowth) -> Option<String> {
    let failures = &run.replay.failures.listed;
    let last = failures.iter().rfind(|failure| failure.device.is_some() && failure.device == growth.device)?;
    let moment = run.replay.blocks.moments.at_failure(last.seq)?;
    let until = TensorGrowth::of(run, growth.device?, Until::Failure(moment))?;
    let is_beyond = until.steps == growth.steps && until.is_beyond_its_steps(run.thresholds);
    is_beyond.then(|| until.beyond_told())
}

/// The rate from the first to the last level.
fn overall(floors: &[Floor]) -> Option<f64> {
    let (first, last) = (floors.first()?, floors.last()?);
    let seconds = last.at_ns.checked_sub(first.at_ns).filter(|ns| *ns > 0)? as f64 / 1e9;
    Some((last.bytes as f64 - first.bytes as f64) / seconds)
}

/// The slope over time of the last stretch: which that is depends on the number of levels alone.
fn per_second(floors: &[Floor], limits: &Limits) -> Option<f64> {
    let point = |floor: &Floor| Point { x: floor.at_ns as f64 / 1e9, y: floor.bytes as f64, sort: 0 };
    let points: Vec<Point> = floors.iter().map(point).collect();
    Some(Trend::of(&points, limits)?.slope.median)
}
