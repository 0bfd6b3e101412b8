//! Which steps of a run are looked at, and what is made of them.

use super::run::{Cut, Run};
use crate::passes::phase::{Phase, Where};
use crate::passes::shape::labels;
use crate::passes::trend::{Point, Trend};
use crate::replay::blocks::steps::{Kept, Labelled, Step, Steps};
use crate::thresholds::Thresholds;

/// The steps that are looked at.
pub(super) struct Chosen<'a> {
    pub(super) by: Cut,
    pub(super) label: Option<&'a str>,
    pub(super) steps: Vec<&'a Step>,
    /// When the last step ended, kept or not.
    pub(super) last_at: u64,
    /// Steps that may have ended behind the last one that is looked at.
    pub(super) unseen: u64,
    pub(super) trend: Trend,
    pub(super) are_pieces: bool,
    /// Floors between greater swings before, where these steps are the smaller ones behind them.
    pub(super) great: Option<&'a Kept>,
}

impl<'a> Chosen<'a> {
    pub(super) fn of(run: &Run<'_>, steps: &'a Steps, until: u64) -> Option<Self> {
        let thresholds = run.thresholds;
        let chosen = |by: Cut, kept: &'a Kept| Chosen::of_kept(by, kept, until, thresholds);
        let great = Some(steps.great_floors()).filter(|great| !std::ptr::eq(*great, steps.floors()));
        let floors = chosen(Cut::Cycles, steps.floors()).map(|chosen| Chosen { great, ..chosen });
        let behind = |last: u64| floors.as_ref().map_or(0, |floors| floors.steps_behind(last));
        // A step may have many floors of its own: those of one that is under way say nothing.
        let goes_to_the_end = |chosen: &Chosen<'_>| {
            let behind = behind(chosen.last_at);
            let all = floors.as_ref().map_or(0, |floors| floors.last().number);
            let of_a_step = all.saturating_sub(behind) / chosen.last().number.max(1);
            let least = match chosen.by {
                // A pass has one for each of its layers.
                Cut::BackwardPasses => thresholds.open_step_floors,
                _ => thresholds.trend_limits().least_points as u64,
            };
            behind < least.max(2 * of_a_step)
        };
        let mut labelled: Vec<_> =
            steps.labelled().iter().filter(|labelled| !labels::names_a_load(&labelled.first)).collect();
        labelled.sort_by_key(|labelled| std::cmp::Reverse(labelled.kept.count()));
        let mut by_marks = labelled.into_iter().filter_map(|labelled| {
            let are_pieces = labels::names_a_piece(&labelled.last);
            Some(Chosen { are_pieces, label: Some(&labelled.last), ..chosen(Cut::Marks, &labelled.kept)? })
        });
        let (backward, site) = steps.backward();
        let by_backward = || chosen(Cut::BackwardPasses, backward).filter(|_| Chosen::is_backward(run, site));
        by_marks.find(goes_to_the_end).or_else(|| by_backward().filter(goes_to_the_end)).or(floors)
    }

    /// Whether a call site lies in a backward pass of PyTorch's.
    pub(super) fn is_backward(run: &Run<'_>, site: u32) -> bool {
        let is_backward = |way: Where| way.phase == Phase::Backward;
        run.replay.sites.has_way(site) && Where::of(&run.stacks.of(site).frames, false).is_some_and(is_backward)
    }

    /// What a program sets up once comes before it ends its first step: that is left out, where steps are known and not only floors.
    fn of_kept(by: Cut, kept: &'a Kept, until: u64, thresholds: &Thresholds) -> Option<Self> {
        let first = usize::from(by != Cut::Cycles);
        let steps: Vec<&Step> = kept.steps().iter().skip(first).filter(|step| step.at <= until).collect();
        let points = points(steps.iter().map(|step| (step.number, step.bytes)));
        let trend = Trend::of(&points, &thresholds.trend_limits()).filter(|_| !kept.is_cut())?;
        let last_at = kept.last_at().min(until).max(steps.last()?.at);
        let unseen = kept.may_be_behind(steps.last()?);
        Some(Chosen { by, label: None, steps, last_at, unseen, trend, are_pieces: false, great: None })
    }

    pub(super) fn last(&self) -> &'a Step {
        self.steps[self.steps.len() - 1]
    }

    /// The steps in which it is judged.
    pub(super) fn stretch(&self) -> &[&'a Step] {
        &self.steps[self.steps.len() - self.trend.points.min(self.steps.len())..]
    }

    /// Steps that ended after a moment.
    fn steps_behind(&self, at: u64) -> u64 {
        let before = self.steps.iter().rev().find(|step| step.at < at).map_or(0, |step| step.number);
        self.last().number - before.min(self.last().number)
    }

    /// Whether the program was given no more behind the last step than a step takes, or nothing of all went before it was given the last
    /// block of all: what goes then goes because the program ends.
    pub(super) fn is_the_end(&self, steps: &Steps, thresholds: &Thresholds) -> bool {
        let (first, last) = (self.stretch()[0], self.last());
        let a_step = last.at.saturating_sub(first.at) / (last.number - first.number).max(1);
        let (last_given_at, held_bytes) = steps.last_given();
        let still_held = held_bytes as f64 >= (1.0 - thresholds.returned_share) * last.bytes as f64;
        last_given_at <= self.last_at.saturating_add(2 * a_step) || still_held
    }

    /// Whether what rises was given back twice before, as a cache is where a request ends: once is what a load does. What falls back to a
    /// level that rose itself is what comes and goes beside it.
    pub(super) fn was_given_back(&self, thresholds: &Thresholds) -> bool {
        let (began, rise) = (self.steps[0].bytes, self.last().bytes.saturating_sub(self.steps[0].bytes) as f64);
        let least = thresholds.returned_share * rise;
        let gave_back = |floor: &&Step| {
            floor.fell_bytes as f64 >= least && floor.bytes.saturating_sub(began) as f64 <= rise - least
        };
        self.great.map_or(&[][..], Kept::steps).iter().filter(gave_back).count() >= 2
    }
}

/// What lives at the labels of one sort.
#[derive(Clone, Debug, PartialEq)]
pub struct OfLabels {
    /// The first such label.
    pub first: String,
    /// The last one.
    pub last: String,
    /// How it rises from one to the next; `None` where there are too few, or not all blocks are known.
    pub trend: Option<Trend>,
}

impl OfLabels {
    /// Of all sorts of labels, but for those that name a load.
    pub fn of(run: &Run<'_>, device: u8) -> Vec<OfLabels> {
        let Some(known) = run.replay.blocks.device(device) else { return Vec::new() };
        let are_known = known.all().all(|told| run.knows_all_of(told));
        let sorts = known.steps.labelled().iter().filter(|labelled| !labels::names_a_load(&labelled.first));
        let of = |labelled: &Labelled| OfLabels {
            first: labelled.first.clone(),
            last: labelled.last.clone(),
            trend: Chosen::of_kept(Cut::Marks, &labelled.kept, u64::MAX, run.thresholds)
                .filter(|_| are_known)
                .map(|chosen| chosen.trend),
        };
        sorts.map(of).collect()
    }
}

/// What a step between two ends was given, on average where there are several.
pub(super) fn given_in(ends: &[&Step]) -> u64 {
    let steps = (ends[1].number - ends[0].number).max(1);
    ends[1].given_bytes.saturating_sub(ends[0].given_bytes) / steps
}

/// Levels by the numbers of steps.
pub(super) fn points(levels: impl Iterator<Item = (u64, u64)>) -> Vec<Point> {
    levels.map(|(number, bytes)| Point { x: number as f64, y: bytes as f64, sort: 0 }).collect()
}
