//! What blocks of allocators above the runtime hold from step to step: whether that still rises where it ends, and by which lines of
//! the program. The runtime's segments show a leak inside of a cache late, or as a cache that grows.
//!
//! The judge is that of all growth (`passes/trend`). A step is what lies between two labels of the program, else between the ends of two
//! backward passes of PyTorch, else between two floors of what lives.

mod chosen;
mod lines;
mod run;
#[cfg(test)]
mod tests;

use serde::Serialize;

use crate::judgement::check::Holds;
use crate::passes::growth::{Floor, Rate};
use crate::passes::tensors::name_of;
use crate::passes::trend::Course;
use crate::replay::blocks::Moment;
use crate::thresholds::{Thresholds, share};
use crate::words::{count, size};
pub use chosen::OfLabels;
use chosen::{Chosen, given_in};
use lines::Rising;
pub use lines::{LargerLine, LineGrowth};
use run::held_at;
pub use run::{Cut, Run};

/// What would tell floors from steps.
const STEPS: &str = "labels of the program (gpuoom_mark, NVTX) where a step ends: what rises may be one long step";
/// What would tell data that become larger from what is kept of them.
pub const BECOMES_LARGER: &str = "whether the data become larger from step to step, or what is kept and put together anew each time: what is live after a step does (GROWTH)";

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
    /// The last of these labels, where a step is what lies between two of them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub label: Option<String>,
    /// Steps up to the last that is looked at.
    pub steps: u64,
    /// The number of the first whose level counts, from one on.
    #[serde(skip)]
    pub first_step: u64,
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
    /// The lines that hold more and more blocks, while most of the older ones are given back: as of a cache without a bound.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub turning: Vec<LineGrowth>,
    /// Where no line's blocks become more: the lines whose blocks become larger.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub larger: Vec<LargerLine>,
    /// What all such lines came to hold, listed or not.
    #[serde(skip)]
    pub rising_bytes: u64,
    /// Of that, what lines of backward passes and of an optimizer's step came to hold.
    #[serde(skip)]
    pub rising_trained_bytes: u64,
    /// What all lines of `turning` came to hold, listed or not.
    #[serde(skip)]
    pub turning_bytes: u64,
    /// What they hold where it ends.
    #[serde(skip)]
    pub turning_held_bytes: u64,
    /// Share of the stretch's rise that lies in blocks which took the place of others of the same site.
    #[serde(skip)]
    pub replaced_share: f64,
    /// What they hold where it ends, whenever that came.
    #[serde(skip)]
    pub rising_held_bytes: u64,
    /// Share of what the steps of the stretch were given that stays.
    #[serde(skip)]
    pub kept_share: f64,
    /// What the blocks that live where it ends hold beyond the last step's end.
    #[serde(skip)]
    pub beyond_bytes: u64,
    /// Steps that may have ended behind the last one that was looked at, which are reckoned to have kept what the others kept.
    #[serde(skip)]
    pub unseen_steps: u64,
    /// The most that a step was given, on average of those that are not kept apart.
    #[serde(skip)]
    pub most_given_bytes: u64,
    /// Whether its steps are cycles of a program whose real ones are known, and are too few: backward passes.
    #[serde(skip)]
    pub lies_within_steps: bool,
    /// Whether the labels name pieces of something, as `layer 5`, and not steps.
    #[serde(skip)]
    pub are_pieces: bool,
    /// Whether it stood level for long before it rose again, as at a bound.
    #[serde(skip)]
    pub stood_level: bool,
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
        let is_cleaned_up = until == Until::End && chosen.is_the_end(&known.steps, run.thresholds);
        let mut growth = TensorGrowth::describe(run, &chosen, (device, framework), rising, is_cleaned_up);
        // The gradients of one backward pass, between which other blocks come and go: no steps.
        let (backward, backward_site) = known.steps.backward();
        let is_one_pass = growth.by == Cut::Cycles && backward.count() <= 1;
        let is_trained = || growth.rising_bytes > 0 && growth.is_of_trained_parameters(run.thresholds);
        // Nor what lies within the only step.
        let is_one_step = || Chosen::is_backward(run, backward_site);
        if is_one_pass && (is_one_step() || is_trained()) {
            let (lines, turning, larger) = Default::default();
            growth = TensorGrowth { significant: false, lines, turning, larger, ..growth };
        }
        growth.lies_within_steps = growth.by == Cut::Cycles
            && (1..run.thresholds.trend_limits().least_points)
                .contains(&usize::try_from(backward.count()).unwrap_or(0))
            && is_one_step();
        let held = if let Until::Failure(moment) = until { held_at(moment, |_| true) } else { 0 };
        // Steps that nobody looked at keep what the others kept.
        let kept_unseen = (chosen.unseen as f64 * growth.per_step.bytes.max(0.0)) as u64;
        let beyond_bytes = held.saturating_sub(chosen.last().bytes).saturating_sub(kept_unseen);
        Some(TensorGrowth { beyond_bytes, unseen_steps: chosen.unseen, ..growth })
    }

    /// Puts together what was found.
    fn describe(
        run: &Run<'_>,
        chosen: &Chosen<'_>,
        (device, framework): (u8, Option<String>),
        rising: Rising,
        is_cleaned_up: bool,
    ) -> Self {
        let (replay, thresholds) = (run.replay, run.thresholds);
        let (first, last, stretch) = (chosen.steps[0], chosen.last(), chosen.stretch());
        let total = i128::from(last.bytes) - i128::from(first.bytes);
        let returned = 1.0 - share(rising.held_bytes, rising.bytes_at_last).min(1.0);
        let is_given_back = rising.bytes_at_last > 0 && !is_cleaned_up && returned >= thresholds.returned_share
            || chosen.was_given_back(thresholds);
        let course = if chosen.trend.rises() && is_given_back { Course::GivenBack } else { chosen.trend.course };
        let significant = course.rises() && total >= i128::from(thresholds.leak_total_bytes);
        let given = last.given_bytes.saturating_sub(stretch[0].given_bytes);
        let is_told = !rising.lines.is_empty() || !rising.turning.is_empty();
        let larger = if significant && !is_told { LargerLine::of(run, chosen) } else { Vec::new() };
        TensorGrowth {
            device: (device != gpuoom_trace::record::NO_DEVICE).then_some(device),
            framework,
            significant,
            course,
            by: chosen.by,
            label: chosen.label.map(str::to_owned),
            steps: last.number,
            first_step: first.number,
            stretch: last.number - stretch[0].number + 1,
            floors: chosen
                .steps
                .iter()
                .map(|step| Floor { at_ns: replay.clock.at_ns(step.at), bytes: step.bytes })
                .collect(),
            total_bytes: total.clamp(i64::MIN.into(), i64::MAX.into()) as i64,
            per_step: Rate::of(&chosen.trend.slope),
            few_points: (chosen.steps.len() as u64) < thresholds.stretch_cycles,
            lines: if course.rises() { rising.lines } else { Vec::new() },
            turning: if course.rises() { rising.turning } else { Vec::new() },
            turning_bytes: rising.turning_bytes,
            turning_held_bytes: rising.turning_held_bytes,
            replaced_share: share(rising.replaced_bytes, last.bytes.saturating_sub(stretch[0].bytes)),
            larger,
            rising_bytes: rising.bytes,
            rising_trained_bytes: rising.trained_bytes,
            rising_held_bytes: rising.held_bytes,
            kept_share: share(last.bytes.saturating_sub(stretch[0].bytes), given),
            beyond_bytes: 0,
            unseen_steps: 0,
            most_given_bytes: chosen.steps.windows(2).map(given_in).max().unwrap_or(0),
            are_pieces: chosen.are_pieces,
            stood_level: chosen.trend.stood_level,
            lies_within_steps: false,
        }
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
        let unseen = match self.unseen_steps {
            0 => String::new(),
            steps => format!(" that was looked at, beyond what {} like them would keep", count(steps, "more", "more")),
        };
        format!(
            "{} live that came since the last {step}{unseen}, and none of the {} {} looked at was given more than {}",
            size(self.beyond_bytes),
            self.floors.len(),
            self.by.steps(),
            size(self.most_given_bytes),
            step = self.by.step(),
        )
    }

    /// Whether what rises takes more than so much from step to step, so that the next step would not have had room there either.
    pub fn takes_each_time(&self, bytes: u64) -> bool {
        self.significant && self.per_step.low > bytes as f64
    }

    /// What it takes each time, as the end of a sentence.
    pub fn each_time_told(&self) -> String {
        let (rise, step) = (size(self.per_step.bytes.max(0.0) as u64), self.by.step());
        format!("what {} hold more after each {step} ({rise})", self.blocks())
    }

    /// First level of all, in bytes.
    pub fn began_bytes(&self) -> u64 {
        self.floors.first().map_or(0, |floor| floor.bytes)
    }

    /// Whether it rose in stairs, by enough to be worth a word: between them no step keeps more, and another may follow. Cycles may be the
    /// parts of one load, which rises like that.
    pub fn is_in_stairs(&self, thresholds: &Thresholds) -> bool {
        let total_bytes = u64::try_from(self.total_bytes).unwrap_or(0);
        self.course == Course::Stairs && self.by != Cut::Cycles && total_bytes >= thresholds.leak_total_bytes
    }

    /// Whether it rises to more than was ever held before it last fell, by enough to be worth a word: rounds that were given back say little of
    /// one that is not.
    pub fn is_beyond_its_rounds(&self, thresholds: &Thresholds) -> bool {
        let held: Vec<u64> = self.floors.iter().map(|floor| floor.bytes).collect();
        let Some(fell) = held.windows(2).rposition(|pair| pair[1] < pair[0]) else { return false };
        let top = held[..=fell].iter().max().copied().unwrap_or(0);
        let risen = held.last().map_or(0, |last| last.saturating_sub(top));
        self.course == Course::GivenBack && risen >= thresholds.leak_total_bytes
    }

    /// Whether what it is judged by are steps: what rises in cycles and is yet not called growth, rises within one step.
    pub fn has_steps(&self) -> bool {
        self.by != Cut::Cycles || self.significant || !self.course.rises()
    }

    /// Whether what blocks hold was seen not to rise: neither slowly, nor in stairs, nor up to where it was given back.
    pub fn does_not_rise(&self) -> bool {
        matches!(self.course, Course::Level | Course::Stopped | Course::Stepped)
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

    /// Share of the rise that those of the listed lines make up.
    pub fn lines_share_of(&self, is_one: impl Fn(&LineGrowth) -> bool) -> f64 {
        let bytes = self.all_lines().filter(|line| is_one(line)).map(|line| line.total_bytes);
        share(bytes.fold(0, u64::saturating_add), u64::try_from(self.total_bytes).unwrap_or(0)).min(1.0)
    }

    /// The same with lines whose blocks become more, while most of the older ones are given back.
    pub fn turning_share(&self) -> f64 {
        let all = self.rising_bytes.saturating_add(self.turning_bytes);
        share(all, u64::try_from(self.total_bytes).unwrap_or(0)).min(1.0)
    }

    /// What the lines that hold more and more blocks came to hold over the steps, and what they hold where it ends, in bytes.
    pub fn came_and_held_bytes(&self) -> (u64, u64) {
        let sum = |bytes: fn(&LargerLine) -> u64| self.larger.iter().map(bytes).fold(0, u64::saturating_add);
        let came = self.rising_bytes.saturating_add(self.turning_bytes).saturating_add(sum(|line| line.total_bytes));
        let held = self.rising_held_bytes.saturating_add(self.turning_held_bytes);
        (came, held.saturating_add(sum(|line| line.bytes)))
    }

    /// All lines that hold more and more blocks.
    pub fn all_lines(&self) -> impl Iterator<Item = &LineGrowth> {
        self.lines.iter().chain(&self.turning)
    }

    /// Share of the rise that the line makes up which grows most.
    pub fn line_share(&self) -> f64 {
        let most = self.lines.first().map_or(0, |line| line.total_bytes);
        share(most, u64::try_from(self.total_bytes).unwrap_or(0)).min(1.0)
    }

    /// Whether it rises steadily where it ends, by too little in all to be judged.
    pub fn is_slight(&self) -> bool {
        let is_steady = self.course == Course::Rises && self.per_step.low > 0.0 && !self.few_points;
        !self.significant && is_steady && self.by != Cut::Cycles && self.total_bytes > 0
    }

    /// Whether there is room for many more steps in so many bytes.
    pub fn has_room_in(&self, bytes: u64, thresholds: &Thresholds) -> bool {
        self.significant && bytes as f64 >= self.per_step.high * thresholds.stretch_cycles as f64
    }

    /// Whether blocks that stay become more, and are not only replaced by larger ones.
    pub fn keeps_more(&self, thresholds: &Thresholds) -> Holds {
        match self.significant && self.lines_share() >= thresholds.dominant_share {
            // The data may become larger from step to step, and so may what is kept of it.
            false if self.significant && !self.larger.is_empty() => Holds::Unknown(BECOMES_LARGER),
            // What comes and goes within one step has such floors, too.
            true if self.by == Cut::Cycles => Holds::Unknown(STEPS),
            rises => rises.into(),
        }
    }

    /// Whether what rises is of backward passes and of an optimizer's step, and nothing else by enough to be worth a word; and whether
    /// all else that lives can be the weights that it belongs to.
    pub fn is_of_trained_parameters(&self, thresholds: &Thresholds) -> bool {
        let others = self.rising_bytes.saturating_sub(self.rising_trained_bytes);
        let may_be_weights = self.floors.last().map_or(0, |last| last.bytes.saturating_sub(self.rising_trained_bytes));
        share(self.rising_trained_bytes, self.rising_bytes) >= thresholds.dominant_share
            && others < thresholds.leak_total_bytes
            && self.rising_trained_bytes as f64 <= thresholds.trained_factor * may_be_weights as f64
    }

    /// Whether most of what rises are parts of modules that the program makes: a model that grows.
    pub fn is_of_modules(&self, thresholds: &Thresholds) -> bool {
        self.lines_share_of(|line| line.is_of_modules) >= thresholds.dominant_share
    }

    /// How far the last stretch goes back: `120 backward passes`.
    pub fn stretch_told(&self) -> String {
        count(self.stretch.saturating_sub(1), self.by.step(), self.by.steps())
    }

    /// The interval of its rate, and its sum: one sentence for the evidence and the section on growth.
    pub fn range(&self) -> String {
        let bytes = |rate: f64| size(rate.max(0.0) as u64);
        // Of many steps some are looked at, and those behind the last of them are not.
        let steps = match self.unseen_steps {
            0 => format!("since {} {} of {}", self.by.step(), self.first_step, self.steps),
            unseen => {
                let all = self.steps.saturating_add(unseen);
                format!("from {} {} to {} of {all}", self.by.step(), self.first_step, self.steps)
            }
        };
        format!(
            "95 %: {} to {}, over the last {}; {} {steps}",
            bytes(self.per_step.low),
            bytes(self.per_step.high),
            self.stretch,
            size(self.total_bytes.unsigned_abs()),
        )
    }

    /// As the beginning of a sentence: `tensors` where PyTorch alone tells of blocks.
    pub fn blocks(&self) -> &'static str {
        if self.framework.as_deref() == Some("pytorch") { "tensors" } else { "blocks" }
    }
}

impl Run<'_> {
    /// The growth on each device that tells of blocks.
    pub fn of_devices(&self) -> Vec<TensorGrowth> {
        let devices = self.replay.accounts.devices().map(|(device, _)| device);
        devices.filter_map(|device| TensorGrowth::of(self, device, Until::End)).collect()
    }
}
