//! Whether a series of levels still rises where it ends: judged by the pairs of its last stretch, against its own noise.
//!
//! A line through a whole run says "rises" of a cache that filled long ago, and of one step up in the middle. So the last
//! stretch is judged: by the median of the slopes between all its pairs (Theil and Sen), with the interval that Kendall's
//! statistic gives. It needs no normal noise, and a few outliers do not move it. Levels of different sorts (what is held at a
//! label `forward` and at a label `backward`) are compared with their own sort only, as in the seasonal test of Hirsch and
//! Slack.

mod bounds;
mod returns;
mod stairs;
#[cfg(test)]
mod tests;

use serde::Serialize;

/// Points of a stretch that are looked at at most, the last ones: their pairs grow with the square.
const MOST_POINTS: usize = 256;
/// The 97.5 % quantile of the normal distribution.
const NORMAL_975: f64 = 1.96;

/// One level.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Point {
    /// Where: the number of a cycle or a label, or a time.
    pub x: f64,
    /// The level.
    pub y: f64,
    /// The sort of levels that it can be compared with.
    pub sort: u32,
}

/// The numbers by which a trend is judged; rows of the table of thresholds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Limits {
    /// Points below which there is no trend.
    pub least_points: usize,
    /// Points that the last stretch has at least, where there are so many.
    pub stretch_points: usize,
    /// Share of all points that are the last stretch.
    pub stretch_share: f64,
    /// Share of a rise that one step of it may make up.
    pub step_share: f64,
    /// Share of a rise below which each step of it is where it is gradual: of three steps up one has a third.
    pub gradual_share: f64,
    /// How many times as long as before a rise must pause to be over.
    pub pause_factor: f64,
    /// Share of a stretch from which on a pause at its end counts, whatever pauses came before.
    pub pause_share: f64,
    /// Share of a rise whose return, after a rise as large, says that it is given back again and again.
    pub returned_share: f64,
    /// The same of returns to the floor of all levels, of which there were several.
    pub often_returned_share: f64,
    /// Share of a round's height above the lowest level of all that is its floor still.
    pub floor_share: f64,
    /// How many times the largest step from level to level a fall is that ends a round, and is no noise.
    pub round_steps: f64,
    /// Correlation of a step with the one before, above which the levels wander and do not waver around a line: -0.5 is that of noise, 0
    /// that of a sum of independent steps.
    pub wanders_above: f64,
    /// Share of its first half's slope below which a stretch slows down in its second half.
    pub slowing_share: f64,
    /// Share of an average step of the rise that a level must be above the last high to be a new one.
    pub new_high_share: f64,
    /// Stairs from which on they are more than one step up.
    pub least_stairs: usize,
    /// Share of the highest stair that each is at least.
    pub stair_height_share: f64,
    /// Share of a rise from which on a step of it is a stair.
    pub stair_share: f64,
    /// Share of a rise that stairs make up where it has no other.
    pub stairs_share: f64,
    /// Points from which on a stretch is compared by its quarters and its halves.
    pub parted_points: usize,
    /// Share of all points from which on a level stretch between two highs is a bound.
    pub bound_share: f64,
}

/// What a series does where it ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Course {
    /// It goes on rising.
    Rises,
    /// It rises, more slowly than shortly before.
    Slows,
    /// It rose, and then not for longer than it ever paused before, or for a good part of the stretch, but not for long enough to be over.
    Pauses,
    /// It rose, and has not for much longer than it ever paused.
    Stopped,
    /// It rose in one or two steps.
    Stepped,
    /// It rose again and again, in stairs with level stretches between them: whether another follows, it does not show.
    Stairs,
    /// It rises, and what rose like this before was given back.
    GivenBack,
    /// It does not rise by more than its noise.
    Level,
}

impl Course {
    /// Whether it goes on rising, be it more slowly, as far as is known.
    pub fn rises(self) -> bool {
        matches!(self, Course::Rises | Course::Slows | Course::Pauses)
    }

    /// What the end of the rise would have to show before it is one that goes on; `None` where it does.
    pub fn unsettled(self) -> Option<&'static str> {
        match self {
            Course::Slows => Some("a longer run: the rise slows down, as that of a cache does that fills"),
            Course::Pauses => {
                Some("a longer run: the last steps did not rise, as those of a cache do not that is full")
            }
            _ => None,
        }
    }

    /// What it does where it ends, behind a sentence that says that it rises.
    pub fn told(self) -> &'static str {
        match self {
            Course::Slows => "; it slows down",
            Course::Pauses => "; the last of these did not rise",
            _ => "",
        }
    }
}

/// What would tell a bound that was raised from one that is missing.
pub const WHY_AGAIN: &str =
    "what changed where it began to rise again: for long before, it stood level, as at a bound (a window, a cache)";

/// The median slope between pairs, with its 95 % interval.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Slope {
    /// Rise per unit of x.
    pub median: f64,
    /// Lower end of the interval.
    pub low: f64,
    /// Upper end of the interval.
    pub high: f64,
}

/// A series and what it does where it ends.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Trend {
    /// Points of the last stretch.
    pub points: usize,
    /// Slope of the last stretch.
    pub slope: Slope,
    /// What it does there.
    pub course: Course,
    /// Whether it stood level for a large part of the series before it rose again, as at a bound.
    pub stood_level: bool,
    /// Levels at the end of the stretch that are no new high.
    pub paused: usize,
    /// Whether those are a good part of the stretch.
    pub is_long_pause: bool,
}

impl Trend {
    /// The trend of points in their order; `None` for too few.
    pub fn of(points: &[Point], limits: &Limits) -> Option<Self> {
        if points.len() < limits.least_points.max(3) {
            return None;
        }
        let share = (points.len() as f64 * limits.stretch_share).ceil() as usize;
        let length = share.max(limits.stretch_points).min(points.len()).min(MOST_POINTS);
        let stretch = &points[points.len() - length..];
        let slope = Slope::of(stretch)?;
        let all = levels(points, stretch, &slope);
        let pause = Pause::of(&all[all.len() - length.min(all.len())..], limits);
        let course = match course(&all, length, stretch, (&slope, &pause), limits) {
            Course::Level | Course::Stepped | Course::Stopped if stairs::are_stairs(&all, limits) => Course::Stairs,
            course => course,
        };
        Some(Trend {
            points: length,
            slope: slope.to_one_step(stretch).to_steps(stretch, course.rises(), limits),
            course,
            stood_level: bounds::stood_level(&all, limits),
            paused: pause.last,
            is_long_pause: pause.is_long(limits),
        })
    }

    /// Whether it goes on rising where it ends, be it more slowly.
    pub fn rises(&self) -> bool {
        self.course.rises()
    }

    /// The slope where it ends: 0 where nothing is known to rise or fall there, as where it has not risen for a good part of the stretch.
    pub fn rate(&self) -> f64 {
        let pauses = self.course == Course::Pauses && self.is_long_pause;
        if (self.rises() && !pauses) || self.slope.high < 0.0 { self.slope.median } else { 0.0 }
    }
}

impl Slope {
    /// The slope of points; `None` where no two can be compared.
    pub fn of(points: &[Point]) -> Option<Self> {
        let mut slopes = Vec::new();
        for (place, one) in points.iter().enumerate() {
            let later = points[place + 1..].iter().filter(|other| other.sort == one.sort && other.x > one.x);
            slopes.extend(later.map(|other| (other.y - one.y) / (other.x - one.x)));
        }
        if slopes.is_empty() || slopes.iter().any(|slope| !slope.is_finite()) {
            return None;
        }
        slopes.sort_unstable_by(f64::total_cmp);
        let reach = NORMAL_975 * variance_of_kendall(points).sqrt();
        let last = slopes.len() - 1;
        // One rank further out than the formula's: never too narrow.
        let below = ((slopes.len() as f64 - reach) / 2.0).floor() as usize;
        let low = slopes[below.saturating_sub(1).min(last)];
        let high = slopes[(last - below.min(last) + 1).min(last)];
        let median = median_of_sorted(&slopes);
        Some(Slope { median, low, high })
    }

    /// Kendall's formula takes the levels for independent. Where blocks stay at random steps, the steps are, and their sums wander: then
    /// the mean of the steps has the interval of their own variance, over all lags at which they may depend on each other (Newey and
    /// West). Whether it rises is judged without: it only says how far the rate is known.
    fn to_steps(self, points: &[Point], rises: bool, limits: &Limits) -> Self {
        let Some(steps) = Steps::of(points).filter(|steps| steps.correlation > limits.wanders_above) else {
            return self;
        };
        let reach = NORMAL_975 * steps.error;
        let low = self.low.min(steps.mean - reach);
        let low = if rises { low.max(0.0) } else { low };
        Slope { low, high: self.high.max(steps.mean + reach), ..self }
    }

    /// Kendall's formula takes the points for independent. Those of a staircase are not: where it stands is known to one step.
    fn to_one_step(self, points: &[Point]) -> Self {
        let unsure = one_step(points, self.median).unwrap_or(0.0);
        Slope { low: self.low.min(self.median - unsure), high: self.high.max(self.median + unsure), ..self }
    }
}

/// The steps between neighbouring levels of one sort.
struct Steps {
    /// Per unit of x.
    mean: f64,
    /// Its standard error.
    error: f64,
    /// Correlation of a step with the one before.
    correlation: f64,
}

impl Steps {
    /// `None` where all steps are equal, or none can be compared.
    fn of(points: &[Point]) -> Option<Self> {
        let mut by_sort: Vec<(u32, Vec<&Point>)> = Vec::new();
        for point in points {
            match by_sort.iter_mut().find(|(sort, _)| *sort == point.sort) {
                Some((_, of_sort)) => of_sort.push(point),
                None => by_sort.push((point.sort, vec![point])),
            }
        }
        let pairs = |of: &[&Point]| of.windows(2).map(|pair| (pair[1].x - pair[0].x, pair[1].y - pair[0].y)).collect();
        let steps: Vec<Vec<(f64, f64)>> = by_sort.iter().map(|(_, of)| pairs(of)).collect();
        let all = || steps.iter().flatten();
        let (length, rise) = all().fold((0.0, 0.0), |(x, y), step| (x + step.0, y + step.1));
        let count = all().count() as f64;
        let mean = rise / length;
        let left: Vec<Vec<f64>> = steps.iter().map(|of| of.iter().map(|(x, y)| y - mean * x).collect()).collect();
        let shared = |lag: usize| {
            let of =
                |left: &Vec<f64>| left.iter().zip(left.iter().skip(lag)).map(|(one, later)| one * later).sum::<f64>();
            left.iter().map(of).sum::<f64>() / count
        };
        let (own, next) = (shared(0), shared(1));
        let lags = count.sqrt().floor() as usize;
        let more: f64 = (1..=lags).map(|lag| (1.0 - lag as f64 / (lags + 1) as f64) * shared(lag)).sum();
        // A sample of few steps shows too little of how they depend on each other: never too narrow.
        let error = (count * (own + 2.0 * more).max(own)).sqrt() / length;
        (own > 0.0 && error.is_finite()).then_some(Steps { mean, error, correlation: next / own })
    }
}

/// By how much the highest step of a series that only rises is above its slope, spread over its length; `None` where it falls
/// anywhere, as noise does.
fn one_step(points: &[Point], slope: f64) -> Option<f64> {
    let mut sorts: Vec<u32> = points.iter().map(|point| point.sort).collect();
    sorts.sort_unstable();
    sorts.dedup();
    let of_sort = |sort: u32| points.iter().filter(move |point| point.sort == sort);
    let mut most: f64 = 0.0;
    for sort in sorts {
        let length = of_sort(sort).next_back()?.x - of_sort(sort).next()?.x;
        for (one, next) in of_sort(sort).zip(of_sort(sort).skip(1)) {
            if next.y < one.y {
                return None;
            }
            most = most.max((next.y - one.y - slope * (next.x - one.x)) / length);
        }
    }
    Some(most)
}

/// The variance of Kendall's statistic without a trend, summed over the sorts.
fn variance_of_kendall(points: &[Point]) -> f64 {
    let mut sorts: Vec<u32> = points.iter().map(|point| point.sort).collect();
    sorts.sort_unstable();
    let of_sort = |count: f64| count * (count - 1.0) * (2.0 * count + 5.0) / 18.0;
    sorts.chunk_by(|one, other| one == other).map(|sort| of_sort(sort.len() as f64)).sum()
}

fn median_of_sorted(values: &[f64]) -> f64 {
    let middle = values.len() / 2;
    if values.len().is_multiple_of(2) { f64::midpoint(values[middle - 1], values[middle]) } else { values[middle] }
}

fn median(mut values: Vec<f64>) -> f64 {
    if values.is_empty() {
        return 0.0;
    }
    values.sort_unstable_by(f64::total_cmp);
    median_of_sorted(&values)
}

/// Points of a sort from which on it is known by what it differs from others. A label that comes once, as where a program ends, would
/// lie on the slope wherever it is.
const LEAST_OF_SORT: usize = 3;

/// The levels without what their sorts differ by; sorts that the last stretch lacks, or has hardly any of, are left out.
fn levels(points: &[Point], stretch: &[Point], slope: &Slope) -> Vec<f64> {
    let mut all: Vec<u32> = stretch.iter().map(|point| point.sort).collect();
    all.sort_unstable();
    let often = all.chunk_by(|one, other| one == other).filter(|of| of.len() >= LEAST_OF_SORT).map(|of| of[0]);
    let mut sorts: Vec<u32> = often.collect();
    if sorts.is_empty() {
        all.dedup();
        sorts = all;
    }
    if let [_] = sorts[..] {
        return points.iter().filter(|point| point.sort == sorts[0]).map(|point| point.y).collect();
    }
    let offset = |sort: u32| {
        let of_sort = stretch.iter().filter(|point| point.sort == sort);
        median(of_sort.map(|point| point.y - slope.median * point.x).collect())
    };
    let offsets: Vec<f64> = sorts.iter().map(|sort| offset(*sort)).collect();
    let level = |point: &Point| Some(point.y - offsets[sorts.binary_search(&point.sort).ok()?]);
    points.iter().filter_map(level).collect()
}

fn course(
    levels: &[f64],
    length: usize,
    stretch: &[Point],
    (slope, pause): (&Slope, &Pause),
    limits: &Limits,
) -> Course {
    if slope.low <= 0.0 {
        return Course::Level;
    }
    let last = &levels[levels.len() - length.min(levels.len())..];
    if returns::was_given_back(levels, last, limits) || returns::was_given_back_often(levels, last, limits) {
        return Course::GivenBack;
    }
    if pause.is_for_good(limits) {
        return Course::Stopped;
    }
    match rise_by_parts(last, limits) {
        Parts::Even => {}
        Parts::EndsLevel => return Course::Stopped,
        Parts::InSteps => return Course::Stepped,
    }
    if pause.is_longest() || pause.is_long(limits) {
        return Course::Pauses;
    }
    let (first, second) = stretch.split_at(stretch.len() / 2);
    let halves = Slope::of(first).zip(Slope::of(second)).filter(|_| stretch.len() >= limits.parted_points);
    match halves {
        Some((first, second)) if second.high < limits.slowing_share * first.median => Course::Slows,
        _ => Course::Rises,
    }
}

/// Steps without a new high.
struct Pause {
    /// Behind the last one.
    last: usize,
    /// The most between two highs of the stretch.
    longest_before: usize,
    /// Half of those between two highs are no longer than this.
    usual: usize,
    /// All levels of the stretch.
    levels: usize,
}

impl Pause {
    /// Levels that only waver around a high are no new ones, as those of a full cache whose entries differ in size.
    fn of(stretch: &[f64], limits: &Limits) -> Self {
        let [first, .., end] = stretch else { return Pause { last: 0, longest_before: 0, usual: 0, levels: 0 } };
        let least = limits.new_high_share * (end - first).max(0.0) / (stretch.len() - 1) as f64;
        let (mut high, mut at, mut before) = (*first, 0, Vec::new());
        for (place, level) in stretch.iter().enumerate().skip(1) {
            if *level > high + least {
                before.push(place - at - 1);
                (high, at) = (*level, place);
            }
        }
        before.sort_unstable();
        let usual = before.get(before.len() / 2).copied().unwrap_or(0);
        let longest_before = before.last().copied().unwrap_or(0);
        Pause { last: stretch.len() - 1 - at, longest_before, usual, levels: stretch.len() }
    }

    /// Whether it is longer than the longest before, by the factor: one step more than that where there was none.
    fn is_for_good(&self, limits: &Limits) -> bool {
        self.last as f64 > limits.pause_factor * (self.longest_before + 1) as f64
    }

    fn is_longest(&self) -> bool {
        self.last > self.longest_before
    }

    /// Whether it is a good part of the stretch, and longer than pauses of this rise usually are.
    fn is_long(&self, limits: &Limits) -> bool {
        let is_unusual = self.last as f64 > limits.pause_factor * (self.usual + 1) as f64;
        is_unusual && self.last as f64 >= limits.pause_share * self.levels as f64
    }
}

/// How a stretch rises from part to part.
enum Parts {
    Even,
    EndsLevel,
    InSteps,
}

fn rise_by_parts(last: &[f64], limits: &Limits) -> Parts {
    let parts: Vec<f64> = match last.len() {
        // Each level is a part of its own.
        few if few < limits.parted_points => last.to_vec(),
        many => (0..4).map(|part| median(last[many * part / 4..many * (part + 1) / 4].to_vec())).collect(),
    };
    let rises: Vec<f64> = parts.windows(2).map(|pair| pair[1] - pair[0]).collect();
    let (sum, largest) = (rises.iter().sum::<f64>(), rises.iter().copied().fold(0.0, f64::max));
    match () {
        () if sum <= 0.0 || rises.last().is_some_and(|last| *last <= 0.0) => Parts::EndsLevel,
        () if is_gradual(last, limits) && rises.last() >= Some(&(sum / parts.len() as f64)) => Parts::Even,
        () if largest > limits.step_share * sum || rises.iter().any(|rise| *rise <= 0.0) => Parts::InSteps,
        () => Parts::Even,
    }
}

/// Whether no single step makes up much of a rise, by the levels that are never fallen below again: noise may lay its parts side by side.
fn is_gradual(last: &[f64], limits: &Limits) -> bool {
    let kept = stairs::kept(last);
    let [first, .., end] = kept[..] else { return false };
    let steps = kept.windows(2).map(|pair| pair[1] - pair[0]);
    end > first && steps.fold(0.0, f64::max) < limits.gradual_share.min(limits.step_share) * (end - first)
}
