//! What blocks of allocators above the runtime hold from step to step: whether that still rises where it ends, and by which lines of
//! the program. The runtime's segments show a leak inside of a cache late, or as a cache that grows.
//!
//! The judge is that of all growth (`passes/trend`). A step is what lies between two labels of the program, else between the ends of two
//! backward passes of PyTorch, else between two floors of what lives.

mod lines;
#[cfg(test)]
mod tests;

use serde::Serialize;

use crate::passes::fragmentation::saturate;
use crate::passes::growth::{Floor, Rate};
use crate::passes::phase::{Phase, Where};
use crate::passes::shape::labels;
use crate::passes::tensors::name_of;
use crate::passes::trend::{Course, Point, Trend};
use crate::replay::Replay;
use crate::replay::blocks::steps::{Kept, Step, Steps};
use crate::replay::blocks::{Moment, Owner, Told};
use crate::symbols::Stacks;
use crate::thresholds::{Thresholds, share};
use crate::words::{count, size};
use lines::Rising;
pub use lines::{LargerLine, LineGrowth};

/// What a step is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Cut {
    /// What lies between two labels of the program that differ in numbers alone.
    Marks,
    /// What lies between the ends of two backward passes.
    BackwardPasses,
    /// What lies between two floors of what blocks hold.
    Cycles,
}

impl Cut {
    /// One step, as a sentence has it.
    pub fn step(self) -> &'static str {
        match self {
            Cut::Marks => "label",
            Cut::BackwardPasses => "backward pass",
            Cut::Cycles => "cycle",
        }
    }

    /// Several steps.
    pub fn steps(self) -> &'static str {
        match self {
            Cut::Marks => "labels",
            Cut::BackwardPasses => "backward passes",
            Cut::Cycles => "cycles",
        }
    }
}

/// Where the steps end that are looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Until<'a> {
    /// At the end of the run.
    End,
    /// At a failure, with what was the case there.
    Failure(&'a Moment),
}

/// How what blocks hold on a device grows.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct TensorGrowth {
    /// Device index.
    pub device: Option<u8>,
    /// `pytorch`, `ggml`, or the name of the only pool; null where several allocators tell of blocks there.
    pub framework: Option<String>,
    /// It rises where it ends, by enough to be worth a word.
    pub significant: bool,
    /// What it does where it ends.
    pub course: Course,
    /// What a step is.
    pub by: Cut,
    /// Steps up to the last that is looked at.
    pub steps: u64,
    /// Steps of the last stretch, in which it is judged.
    pub stretch: u64,
    /// What blocks held after steps, at most 64 of them.
    pub floors: Vec<Floor>,
    /// Last of them less the first; negative where it fell.
    pub total_bytes: i64,
    /// Rise per step over the last stretch.
    pub per_step: Rate,
    /// It rests on fewer steps than a last stretch has.
    pub few_points: bool,
    /// The lines of the program whose blocks become more up to the end, those that grow most first.
    pub lines: Vec<LineGrowth>,
    /// Where no line's blocks become more: the lines whose blocks become larger.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub larger: Vec<LargerLine>,
    /// What all such lines came to hold, listed or not.
    #[serde(skip)]
    pub rising_bytes: u64,
    /// Of that, what lines of backward passes and of an optimizer's step came to hold.
    #[serde(skip)]
    pub rising_trained_bytes: u64,
    /// What they hold where it ends, whenever that came.
    #[serde(skip)]
    pub rising_held_bytes: u64,
    /// Share of what the steps of the stretch were given that stays.
    #[serde(skip)]
    pub kept_share: f64,
    /// What the blocks that live where it ends hold beyond the last step's end.
    #[serde(skip)]
    pub beyond_bytes: u64,
    /// The most that a step of the stretch was given, on average of those that are not kept apart.
    #[serde(skip)]
    pub most_given_bytes: u64,
    /// Whether the labels name pieces of something, as `layer 5`, and not steps.
    #[serde(skip)]
    pub are_pieces: bool,
}

impl TensorGrowth {
    /// That of a device up to a moment; `None` where nothing is told of blocks there, they are not all known, or there were too few
    /// steps.
    pub fn of(run: &Run<'_>, device: u8, until: Until<'_>) -> Option<Self> {
        let known = run.replay.blocks.device(device)?;
        if !known.all().all(|told| run.knows_all_of(told)) {
            return None;
        }
        let until_at = match until {
            Until::End => u64::MAX,
            Until::Failure(moment) => moment.at,
        };
        let chosen = Chosen::of(run, &known.steps, until_at)?;
        let mut allocators = known.all().filter_map(|told| run.replay.blocks.owner(told.allocator)).map(name_of);
        let framework = allocators.next().filter(|_| allocators.next().is_none()).map(str::to_owned);
        let rising = match until {
            _ if !chosen.trend.rises() => Rising::default(),
            Until::End => Rising::of(run, &chosen, &run.replay.blocks.at_end(device, run.replay.last_at)?),
            Until::Failure(moment) => Rising::of(run, &chosen, moment),
        };
        let is_cleaned_up = until == Until::End && chosen.is_the_end(known.steps.last_given_at());
        let mut growth = chosen.describe(run, (device, framework), rising, is_cleaned_up);
        // The gradients of one backward pass, between which other blocks come and go: no steps.
        let (backward, backward_site) = known.steps.backward();
        let is_one_pass = growth.by == Cut::Cycles && backward.count() <= 1;
        let is_trained = || growth.rising_bytes > 0 && growth.is_of_trained_parameters(run.thresholds);
        // Nor what lies within the only step.
        let is_one_step = || backward.count() == 1 && Chosen::is_backward(run, backward_site);
        if is_one_pass && (is_one_step() || is_trained()) {
            growth = TensorGrowth { significant: false, lines: Vec::new(), larger: Vec::new(), ..growth };
        }
        let held = if let Until::Failure(moment) = until { held_at(moment, |_| true) } else { 0 };
        Some(TensorGrowth { beyond_bytes: held.saturating_sub(chosen.last().bytes), ..growth })
    }

    /// Whether clearly more lives that came since the last step's end than a step was ever given: what happens there is no part of such a step,
    /// and its steps say nothing of it.
    pub fn is_beyond_its_steps(&self, thresholds: &Thresholds) -> bool {
        self.is_beyond(thresholds.beyond_factor)
    }

    /// The same for a step that would not have fitted by itself, whatever the steps before left.
    pub fn is_unusual_step(&self, thresholds: &Thresholds) -> bool {
        self.is_beyond(thresholds.unusual_step_factor)
    }

    fn is_beyond(&self, factor: f64) -> bool {
        self.beyond_bytes as f64 > factor * self.most_given_bytes as f64
    }

    /// What lives beyond the steps, as evidence.
    pub fn beyond_told(&self) -> String {
        format!(
            "{} live that came since the last step, of which none was ever given more than {}",
            size(self.beyond_bytes),
            size(self.most_given_bytes)
        )
    }

    /// First level of all, in bytes.
    pub fn began_bytes(&self) -> u64 {
        self.floors.first().map_or(0, |floor| floor.bytes)
    }

    /// Whether its steps may be the parts of one load: most of what they were given stays, and little was there before.
    pub fn may_be_a_load(&self, thresholds: &Thresholds) -> bool {
        let is_most = self.began_bytes() as f64 <= thresholds.filling_base_share * self.total_bytes as f64;
        (self.by == Cut::Cycles || self.are_pieces) && is_most && self.kept_share > thresholds.filling_share
    }

    /// Share of the rise that lines make up whose blocks become more.
    pub fn lines_share(&self) -> f64 {
        share(self.rising_bytes, u64::try_from(self.total_bytes).unwrap_or(0)).min(1.0)
    }

    /// Share of the rise that the line makes up which grows most.
    pub fn line_share(&self) -> f64 {
        let most = self.lines.first().map_or(0, |line| line.total_bytes);
        share(most, u64::try_from(self.total_bytes).unwrap_or(0)).min(1.0)
    }

    /// Whether blocks that stay become more, and are not only replaced by larger ones.
    pub fn keeps_more(&self, thresholds: &Thresholds) -> bool {
        self.significant && self.lines_share() >= thresholds.dominant_share
    }

    /// Whether what rises is of backward passes and of an optimizer's step, and nothing else by enough to be worth a word.
    pub fn is_of_trained_parameters(&self, thresholds: &Thresholds) -> bool {
        let others = self.rising_bytes.saturating_sub(self.rising_trained_bytes);
        share(self.rising_trained_bytes, self.rising_bytes) >= thresholds.dominant_share
            && others < thresholds.leak_total_bytes
    }

    /// How far the last stretch goes back: `120 backward passes`.
    pub fn stretch_told(&self) -> String {
        count(self.stretch.saturating_sub(1), self.by.step(), self.by.steps())
    }

    /// The interval of its rate, and its sum: one sentence for the evidence and the section on growth.
    pub fn range(&self) -> String {
        let bytes = |rate: f64| size(rate.max(0.0) as u64);
        format!(
            "95 %: {} to {}, over the last {}; {} in {}",
            bytes(self.per_step.low),
            bytes(self.per_step.high),
            self.stretch,
            size(self.total_bytes.unsigned_abs()),
            count(self.steps, self.by.step(), self.by.steps()),
        )
    }

    /// As the beginning of a sentence: `tensors` where PyTorch alone tells of blocks.
    pub fn blocks(&self) -> &'static str {
        if self.framework.as_deref() == Some("pytorch") { "tensors" } else { "blocks" }
    }
}

/// A run whose blocks are looked at.
pub struct Run<'a> {
    /// The state at its end.
    pub replay: &'a Replay,
    /// The ways to its calls.
    pub stacks: &'a Stacks<'a>,
    /// Whether no record of it is missing.
    pub is_whole: bool,
    /// The numbers by which growth is judged.
    pub thresholds: &'a Thresholds,
}

impl Run<'_> {
    /// The growth on each device that tells of blocks.
    pub fn of_devices(&self) -> Vec<TensorGrowth> {
        let devices = self.replay.accounts.devices().map(|(device, _)| device);
        devices.filter_map(|device| TensorGrowth::of(self, device, Until::End)).collect()
    }

    /// Whether all blocks of an allocator are known: its own totals say so, and where it has none, no record may be missing.
    fn knows_all_of(&self, told: &Told) -> bool {
        let is_of_one_mind = told.mismatches == 0 && told.unknown_frees == 0 && told.replaced == 0;
        is_of_one_mind
            && self.replay.blocks.may_be_so(told.allocator)
            && (self.is_whole || self.replay.blocks.owner(told.allocator) == Some(&Owner::Torch))
    }
}

/// The steps that are looked at.
struct Chosen<'a> {
    by: Cut,
    steps: Vec<&'a Step>,
    /// When the last step ended, kept or not.
    last_at: u64,
    trend: Trend,
    are_pieces: bool,
    /// Floors between greater swings before, where these steps are the smaller ones behind them.
    great: Option<&'a Kept>,
}

impl<'a> Chosen<'a> {
    fn of(run: &Run<'_>, steps: &'a Steps, until: u64) -> Option<Self> {
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
            Some(Chosen { are_pieces, ..chosen(Cut::Marks, &labelled.kept)? })
        });
        let (backward, site) = steps.backward();
        let by_backward = || chosen(Cut::BackwardPasses, backward).filter(|_| Chosen::is_backward(run, site));
        by_marks.find(goes_to_the_end).or_else(|| by_backward().filter(goes_to_the_end)).or(floors)
    }

    /// Whether a call site lies in a backward pass of PyTorch's.
    fn is_backward(run: &Run<'_>, site: u32) -> bool {
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
        Some(Chosen { by, steps, last_at, trend, are_pieces: false, great: None })
    }

    fn last(&self) -> &'a Step {
        self.steps[self.steps.len() - 1]
    }

    /// The steps in which it is judged.
    fn stretch(&self) -> &[&'a Step] {
        &self.steps[self.steps.len() - self.trend.points.min(self.steps.len())..]
    }

    /// Steps that ended after a moment.
    fn steps_behind(&self, at: u64) -> u64 {
        let before = self.steps.iter().rev().find(|step| step.at < at).map_or(0, |step| step.number);
        self.last().number - before.min(self.last().number)
    }

    /// Whether the program was given no more behind the last step than a step takes: what goes then goes because the program ends.
    fn is_the_end(&self, last_given_at: u64) -> bool {
        let (first, last) = (self.stretch()[0], self.last());
        let a_step = last.at.saturating_sub(first.at) / (last.number - first.number).max(1);
        last_given_at <= self.last_at.saturating_add(2 * a_step)
    }

    /// Whether what rises was given back twice before, as a cache is where a request ends: once is what a load does.
    fn was_given_back(&self, thresholds: &Thresholds) -> bool {
        let least = thresholds.returned_share * self.last().bytes.saturating_sub(self.steps[0].bytes) as f64;
        let floors = self.great.map_or(&[][..], Kept::steps);
        floors.iter().filter(|floor| floor.fell_bytes as f64 >= least).count() >= 2
    }

    fn describe(
        &self,
        run: &Run<'_>,
        (device, framework): (u8, Option<String>),
        rising: Rising,
        is_cleaned_up: bool,
    ) -> TensorGrowth {
        let (replay, thresholds) = (run.replay, run.thresholds);
        let (first, last, stretch) = (self.steps[0], self.last(), self.stretch());
        let total = i128::from(last.bytes) - i128::from(first.bytes);
        let returned = 1.0 - share(rising.held_bytes, rising.bytes_at_last).min(1.0);
        let is_given_back = rising.bytes_at_last > 0 && !is_cleaned_up && returned >= thresholds.returned_share
            || self.was_given_back(thresholds);
        let course = if self.trend.rises() && is_given_back { Course::GivenBack } else { self.trend.course };
        let significant = course.rises() && total >= i128::from(thresholds.leak_total_bytes);
        let given = last.given_bytes.saturating_sub(stretch[0].given_bytes);
        let larger = if significant && rising.lines.is_empty() { LargerLine::of(run, self) } else { Vec::new() };
        TensorGrowth {
            device: (device != gpuoom_trace::record::NO_DEVICE).then_some(device),
            framework,
            significant,
            course,
            by: self.by,
            steps: last.number,
            stretch: last.number - stretch[0].number + 1,
            floors: self
                .steps
                .iter()
                .map(|step| Floor { at_ns: replay.clock.at_ns(step.at), bytes: step.bytes })
                .collect(),
            total_bytes: total.clamp(i64::MIN.into(), i64::MAX.into()) as i64,
            per_step: Rate::of(&self.trend.slope),
            few_points: (self.steps.len() as u64) < thresholds.stretch_cycles,
            lines: if significant { rising.lines } else { Vec::new() },
            larger,
            rising_bytes: rising.bytes,
            rising_trained_bytes: rising.trained_bytes,
            rising_held_bytes: rising.held_bytes,
            kept_share: share(last.bytes.saturating_sub(stretch[0].bytes), given),
            beyond_bytes: 0,
            most_given_bytes: stretch.windows(2).map(given_in).max().unwrap_or(0),
            are_pieces: self.are_pieces,
        }
    }
}

/// What a step between two ends was given, on average where there are several.
fn given_in(ends: &[&Step]) -> u64 {
    let steps = (ends[1].number - ends[0].number).max(1);
    ends[1].given_bytes.saturating_sub(ends[0].given_bytes) / steps
}

/// Levels by the numbers of steps.
fn points(levels: impl Iterator<Item = (u64, u64)>) -> Vec<Point> {
    levels.map(|(number, bytes)| Point { x: number as f64, y: bytes as f64, sort: 0 }).collect()
}

/// Bytes of all blocks at a moment, of these call sites.
fn held_at(moment: &Moment, is_of: impl Fn(u32) -> bool) -> u64 {
    let rows = moment.of.iter().flat_map(|of| &of.rows);
    saturate(rows.filter(|row| is_of(row.site)).map(|row| row.bytes).sum())
}
