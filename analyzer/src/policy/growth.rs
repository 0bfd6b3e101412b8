//! Whether what is held grows, and by how much: from step to step, and from mark to mark.

use super::evaluate::{Culprit, MOST_CULPRITS, Sides, Subject, no_base};
use super::{Limit, Metric, Rule};
use crate::passes::profile::{BlockGrowth, LabelGrowth, Place, PlaceProfile, Profile};
use crate::passes::rise::at_marks;
use crate::passes::trend::{Course, Slope, Trend};
use crate::words::{count, size};

/// What a run tells of the growth on a device.
#[derive(Clone, Copy)]
struct Told<'a> {
    place: Option<&'a PlaceProfile>,
    blocks: Option<&'a BlockGrowth>,
    labels: &'a [LabelGrowth],
}

/// What blocks do from one label to the next.
enum AtMarks {
    /// No allocator above the runtime tells of any.
    NoBlocks,
    /// They rise by so many bytes; 0 where the rise is over, or is no more than noise.
    Rise(f64),
    /// Of the labels that are asked for there are too few, or not all blocks are known.
    Unknown,
}

impl<'a> Told<'a> {
    fn of(profile: &'a Profile, place: Place) -> Self {
        Told {
            place: profile.places.iter().find(|known| known.place == place),
            blocks: profile.block_growth.iter().find(|known| known.place == place),
            labels: &profile.label_growth,
        }
    }

    /// The blocks of an allocator above the runtime, where they rise at least as fast as what it asked the runtime for: a cache shows a
    /// leak inside of it late or never.
    fn faster_blocks(self) -> Option<&'a BlockGrowth> {
        let blocks = self.blocks?;
        let rate = |per_second: f64, open: Option<f64>| open.unwrap_or(per_second);
        let of_calls = self.place.and_then(|known| Some(rate(known.growth_per_second?, known.open_growth_per_second)));
        (of_calls.is_none_or(|of_calls| rate(blocks.per_second, blocks.open_per_second) >= of_calls)).then_some(blocks)
    }

    /// The same from label to label: of the labels that the rule names, or else of those by which the report has its steps.
    fn at_marks(self, rule: &Rule) -> AtMarks {
        let place = self.place.map(|known| known.place);
        let of_place = || self.labels.iter().filter(|known| Some(known.place) == place).map(|known| &known.of);
        if of_place().next().is_none() {
            return AtMarks::NoBlocks;
        }
        let chosen = self.blocks.and_then(|blocks| blocks.per_mark.as_ref());
        let fits = |label: &str| rule.scope.mark.as_ref().is_none_or(|glob| glob.fits(label));
        let of_steps = chosen.filter(|(label, _)| fits(label)).map(|(_, rate)| *rate);
        let others = of_place().filter(|of| chosen.is_none_or(|(label, _)| *label != of.last));
        let trends = others.filter(|of| fits(&of.first) || fits(&of.last)).filter_map(|of| of.trend);
        let trends: Vec<Trend> =
            if of_steps.is_some() && rule.scope.mark.is_none() { Vec::new() } else { trends.collect() };
        let rate = trends.iter().map(|trend| trend.rate().max(0.0)).chain(of_steps).reduce(f64::max);
        match rate {
            // What seems to rise at one sort of labels, and may not, is not shown to stand still by another sort.
            Some(rate) if keeps(rule, rate) && trends.iter().any(|trend| is_unclear(trend, rule)) => AtMarks::Unknown,
            Some(rate) => AtMarks::Rise(rate),
            None => AtMarks::Unknown,
        }
    }

    fn faster_at_marks(self, rule: &Rule) -> Option<f64> {
        let AtMarks::Rise(rate) = self.at_marks(rule) else { return None };
        (rate > growth_of_calls_per_mark(rule, self).unwrap_or(0.0)).then_some(rate)
    }

    /// The blocks that are judged, where it is not what the program asked the runtime for.
    fn judged_blocks(self, rule: &Rule) -> Option<&'a BlockGrowth> {
        match rule.metric {
            Metric::GrowthPerMark => self.blocks.filter(|_| self.faster_at_marks(rule).is_some()),
            Metric::GrowthPerSecond => self.faster_blocks(),
            _ => None,
        }
    }

    fn value(self, rule: &Rule) -> Result<f64, String> {
        if let Some(beyond) = self.blocks.and_then(|blocks| blocks.beyond.as_ref()) {
            return Err(format!("{beyond}: the steps say nothing of it"));
        }
        match rule.metric {
            Metric::GrowthPerMark => growth_per_mark(rule, self),
            _ => growth_per_second(rule, self),
        }
    }
}

/// What a rule about growth is applied to on one device.
pub(super) fn subject<'a>(rule: &Rule, sides: &Sides<'a>, place: Place) -> Subject<'a> {
    let new = Told::of(sides.new, place);
    let blocks = new.judged_blocks(rule);
    let words = match blocks {
        Some(blocks) => format!("of {} on {}", blocks.blocks, place.words()),
        None => format!("of {}", place.words()),
    };
    let lines = blocks.iter().flat_map(|blocks| &blocks.lines).take(MOST_CULPRITS);
    Subject {
        words,
        value: new.value(rule),
        base: sides.base.map_or_else(|| Err(no_base()), |base| Told::of(base, place).value(rule)),
        // Who asked the runtime for memory is not who keeps it.
        sites: sides.difference.sites.iter().filter(|site| site.place == place && blocks.is_none()).collect(),
        culprits: lines.map(|(key, bytes)| Culprit { key: key.clone(), value: *bytes as f64, base: None }).collect(),
    }
}

fn growth_per_second(rule: &Rule, told: Told<'_>) -> Result<f64, String> {
    let place = told.place;
    let (growth, open) = match told.faster_blocks() {
        Some(blocks) => (Some(blocks.per_second), blocks.open_per_second),
        None => (place.and_then(|known| known.growth_per_second), place.and_then(|known| known.open_growth_per_second)),
    };
    if let (Some(rate), Limit::Fixed(limit)) = (open, rule.limit)
        && !rule.comparison.holds(rate, limit.number())
    {
        let in_stairs = told.faster_blocks().is_some_and(|blocks| blocks.in_stairs);
        return Err(if in_stairs { STAIRS } else { GIVEN_BACK }.to_owned());
    }
    // Where an allocator tells its blocks, these say what is in use of what was asked for.
    if let Some(unsaid) = place.and_then(|known| known.unsaid.as_ref()).filter(|_| told.blocks.is_none()) {
        return Err(unsaid.clone());
    }
    growth.ok_or_else(|| {
        if place.is_some_and(|known| known.may_be_a_load) {
            return "nearly all that came stayed, from the first step on: its steps may be the parts of one load".to_owned();
        }
        if place.is_some_and(|known| known.cycles_are_missing) {
            return "memory rose and fell too often to keep all of it, and fewer than five of the cycles that are kept follow each other"
                .to_owned();
        }
        "the run has fewer than five steps that the trace tells: labels (gpuoom_mark), backward passes of PyTorch by backward(), or cycles in which memory rises and falls"
            .to_owned()
    })
}

/// Why a rise is not judged that goes as it went before it was given back.
const GIVEN_BACK: &str = "what is held rises by more than that, as it rose before it was given back: whether it is given back again, the run does not show";

/// Why a rise is not judged that comes now and then.
const STAIRS: &str = "what is held rose by more than that from the first step to the last, in stairs with level stretches between them: whether another follows, the run does not show";

/// Whether it seems to rise by more than the limit allows, and may just as well not rise at all.
fn is_unclear(trend: &Trend, rule: &Rule) -> bool {
    let Limit::Fixed(limit) = rule.limit else { return false };
    let keeps = |rate: f64| rule.comparison.holds(rate, limit.number());
    // What rises as it rose before, and was given back then, may or may not be given back again.
    let is_open = matches!(trend.course, Course::Level | Course::GivenBack);
    is_open && keeps(trend.rate()) && !keeps(trend.slope.median)
}

fn signed(bytes: f64) -> String {
    format!("{}{}", if bytes < 0.0 { "-" } else { "" }, size(bytes.abs() as u64))
}

/// The rise of what was held at the marks, where it ends: by the same function as the report's. 0 where it is over, or is no more
/// than noise.
fn growth_per_mark(rule: &Rule, told: Told<'_>) -> Result<f64, String> {
    if let Some(rate) = told.faster_at_marks(rule) {
        return Ok(rate);
    }
    let of_calls = growth_of_calls_per_mark(rule, told)?;
    match told.at_marks(rule) {
        AtMarks::Unknown if keeps(rule, of_calls) => {
            let least = told.place.map_or(0, |place| place.trend_limits.least_points + 1);
            Err(format!("{HELD_AT_MARKS} (at least {least} of one sort are needed)"))
        }
        _ => Ok(of_calls),
    }
}

/// Why what the program asked the runtime for does not show that nothing grows.
const HELD_AT_MARKS: &str = "how what the allocator's blocks hold changes from one such mark to the next is not known, and what it asked the runtime for \
                             does not show it: there are too few of these marks or too many sorts, they vary too much, or not all blocks are known";

/// Whether a rate keeps within a rule, as far as its limit is a number.
fn keeps(rule: &Rule, rate: f64) -> bool {
    !matches!(rule.limit, Limit::Fixed(limit) if !rule.comparison.holds(rate, limit.number()))
}

/// The same of what the program asked the runtime for.
fn growth_of_calls_per_mark(rule: &Rule, told: Told<'_>) -> Result<f64, String> {
    let Some(place) = told.place else { return Err("there are no marks (gpuoom_mark) of it".to_owned()) };
    let fits = |label: &str| rule.scope.mark.as_ref().is_none_or(|glob| glob.fits(label));
    let marks =
        || place.marks.iter().filter(|mark| fits(&mark.label)).map(|mark| (mark.label.as_str(), mark.held_bytes));
    if place.cycles_behind_marks >= place.trend_limits.least_points {
        let behind = place.cycles_behind_marks;
        return Err(format!(
            "{behind} cycles of memory came after the last mark, and no mark tells what stayed after them"
        ));
    }
    let least = place.trend_limits.least_points + 1;
    match at_marks(marks(), &place.trend_limits) {
        // What was given back before the run ended did not come to stay.
        Some(trend) if place.given_back_at_the_end => Ok(trend.rate().min(0.0)),
        Some(trend) if is_unclear(&trend, rule) && trend.course == Course::GivenBack => Err(GIVEN_BACK.to_owned()),
        Some(trend) if is_unclear(&trend, rule) => {
            let Slope { low, high, .. } = trend.slope;
            Err(format!(
                "what is held at the marks varies too much to tell: it changes by {} to {} a mark",
                signed(low),
                signed(high)
            ))
        }
        Some(trend) => Ok(trend.rate()),
        None if marks().count() < least => {
            let instead = told.blocks.map_or_else(String::new, |blocks| {
                let steps = count(blocks.steps, blocks.by.step(), blocks.by.steps());
                format!("; growth_per_second judges the {} of the run by {steps}", blocks.blocks)
            });
            let marks = marks().count();
            Err(format!("there are {marks} such marks (gpuoom_mark); at least {least} are needed{instead}"))
        }
        None => Err("no two of the marks (gpuoom_mark) can be compared: their labels differ".to_owned()),
    }
}
