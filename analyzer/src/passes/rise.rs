//! What a device holds after each step of a program, whether that rises where it ends, and which blocks stayed.
//!
//! Steps are what lies between the program's own labels where it has enough of them, else cycles of live bytes. The report, the
//! rules and `check` ask here, so that they say the same of one trace.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;

use crate::passes::kept::{Kept, kept};
use crate::passes::level::Level;
use crate::passes::shape::cycles::{Cycle, Cycles};
use crate::passes::shape::labels;
use crate::passes::trend::{Course, Limits, Point, Trend};
use crate::replay::Replay;
use crate::replay::tracks::calls::Call;
use crate::replay::tracks::marks::Mark;
use crate::thresholds::Thresholds;
use crate::words::count;

/// The moment to ask for where the whole run is meant, with its end.
pub const WHOLE_RUN: u64 = u64::MAX;

/// What a step is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum By {
    /// What lies between two floors of live bytes.
    Cycles,
    /// What lies between two labels of the program.
    Marks,
}

impl By {
    /// One step, as a sentence has it.
    pub fn step(self) -> &'static str {
        match self {
            By::Cycles => "cycle",
            By::Marks => "label",
        }
    }

    /// The same where a rate is told, which is one for each label, whatever it says.
    pub fn step_of(self, sorts: usize) -> &'static str {
        match self {
            By::Marks if sorts > 1 => "label of any sort",
            _ => self.step(),
        }
    }
}

/// What came before the steps that are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Earlier {
    /// Nothing: these are all.
    Nothing,
    /// They are the last ones of so many labels.
    OfLabels(u64),
    /// Cycles, and nobody knows how many.
    Cycles,
}

impl Earlier {
    /// All steps that are kept, and how many there were.
    pub fn first_of(self, steps: usize, by: By) -> String {
        let step = by.step();
        let kept = count(steps as u64, step, &format!("{step}s"));
        match self {
            Earlier::Nothing => kept,
            Earlier::OfLabels(all) => format!("the last {steps} of {all} {step}s"),
            Earlier::Cycles => format!("the last {kept} (too many to keep those before)"),
        }
    }
}

/// The levels of a device, and what they do where they end.
#[derive(Clone, Debug, PartialEq)]
pub struct Rise {
    /// What a step is.
    pub by: By,
    /// One for each step.
    pub levels: Vec<Level>,
    /// What they do.
    pub trend: Trend,
    /// Blocks that stayed over the last stretch; `None` where its calls are not kept, or cover too few steps.
    pub kept: Option<Kept>,
    /// Whether what rose was given back behind the last step, before the run's end or the failure.
    pub given_back_at_the_end: bool,
    /// What came before these levels.
    pub earlier: Earlier,
    /// Whether the labels name pieces of something, as `layer 5`, and not steps.
    pub are_pieces: bool,
    /// How many sorts of labels there are: "step 17" and "step 18" are one.
    pub sorts: usize,
    /// Whether the calls from the beginning on are kept.
    calls_are_complete: bool,
    /// What the least rise is that is worth a word, in bytes.
    least_bytes: u64,
}

impl Rise {
    /// What a device did up to a moment: by the labels until then, else by these cycles. `calls` are the last calls for its memory until
    /// then, all of them if `is_complete`.
    pub fn of(
        replay: &Replay,
        device: u8,
        until: u64,
        all_cycles: &Cycles,
        (calls, is_complete): (&[Call], bool),
        thresholds: &Thresholds,
    ) -> Option<Self> {
        let (limits, cycles) = (thresholds.trend_limits(), all_cycles.unbroken());
        let marks = replay.tracks.marks.without_gap().filter(|mark| mark.at <= until);
        let marks: Vec<&Mark> = marks.collect();
        let labelling: BTreeSet<u32> = marks.iter().map(|mark| mark.thread).collect();
        let by_marks = levels_at(marks.into_iter(), device);
        let of_cycle = |cycle: &Cycle| Level { at: cycle.to.at, bytes: cycle.to.bytes, sort: 0 };
        let is_labelled_to_the_end =
            cycles_behind(cycles, by_marks.last().map_or(0, |level| level.at)) < limits.least_points;
        let are_pieces =
            replay.tracks.marks.without_gap().last().is_some_and(|mark| labels::names_a_piece(&mark.label));
        let by_marks_trend = trend_of(&by_marks, &limits).filter(|_| is_labelled_to_the_end);
        let (by, levels, trend, earlier) = match by_marks_trend {
            Some(trend) => (By::Marks, by_marks, trend, earlier_labels(replay, until)),
            None => {
                let mut levels: Vec<Level> = cycles.iter().map(of_cycle).collect();
                if until == WHOLE_RUN {
                    leave_out_the_end(&mut levels);
                }
                let trend = trend_of(&levels, &limits)?;
                let is_whole = all_cycles.whole_since == 0;
                (By::Cycles, levels, trend, if is_whole { Earlier::Nothing } else { Earlier::Cycles })
            }
        };
        let stretch = &levels[levels.len() - trend.points.min(levels.len())..];
        let (all, judged) = (of_commonest_sort(&levels), of_commonest_sort(stretch));
        let kept = kept(calls, is_complete, device, (&all, &judged, &labelling), thresholds)
            .filter(|kept| kept.steps as u64 >= thresholds.covered_steps);
        let gone_by_blocks = kept.as_ref().is_some_and(|kept| kept.was_given_back(limits.returned_share));
        let given_back_at_the_end = trend.rises()
            && !(until == WHOLE_RUN && is_cleaned_up(replay, device, stretch, thresholds))
            && (gone_by_blocks || holds_too_little(replay, device, until, stretch, limits.returned_share));
        let course = if given_back_at_the_end { Course::GivenBack } else { trend.course };
        let sorts = levels.iter().map(|level| level.sort).collect::<BTreeSet<u32>>().len();
        Some(Rise {
            by,
            sorts,
            levels,
            trend: Trend { course, ..trend },
            kept,
            given_back_at_the_end,
            earlier,
            are_pieces,
            calls_are_complete: is_complete,
            least_bytes: thresholds.leak_total_bytes,
        })
    }

    /// Whether what stays makes up so much of what the cycles were given that they may be the parts of one load.
    pub fn may_be_a_load(&self, thresholds: &Thresholds) -> bool {
        let is_most = self.began_bytes() as f64 <= thresholds.filling_base_share * self.total_bytes() as f64;
        let stays = |kept: &Kept| kept.given_share() > thresholds.filling_share;
        let may_be = self.by == By::Cycles || self.are_pieces;
        may_be && is_most && self.kept.as_ref().is_some_and(stays)
    }

    /// Whether it rises where it ends, by enough to be worth a word.
    pub fn is_significant(&self) -> bool {
        self.trend.rises() && self.total_bytes() >= i128::from(self.least_bytes)
    }

    /// By how much more was held at the end of the last stretch than at its beginning, whatever happened in between.
    pub fn risen_bytes(&self) -> u64 {
        let stretch = &self.levels[self.levels.len() - self.trend.points.min(self.levels.len())..];
        let ends = stretch.first().zip(stretch.last());
        ends.map_or(0, |(first, last)| last.bytes.saturating_sub(first.bytes))
    }

    /// Whether the calls of all of the stretch are kept in which it is judged.
    pub fn is_covered(&self) -> bool {
        let stretch = &self.levels[self.levels.len() - self.trend.points.min(self.levels.len())..];
        let steps = of_commonest_sort(stretch).len().saturating_sub(1);
        self.kept.as_ref().is_some_and(|kept| kept.steps >= steps)
    }

    /// Whether the calls of all its steps are kept.
    pub fn has_all_calls(&self) -> bool {
        self.calls_are_complete
    }

    /// Why nothing says which blocks stayed.
    pub fn kept_unknown(&self) -> &'static str {
        match self.calls_are_complete {
            true => "a longer run, to see which blocks stay: the last stretch has too few steps",
            false => "which blocks stayed of these steps: there were too many calls to keep",
        }
    }

    /// What was held when the first step ended, in bytes.
    pub fn began_bytes(&self) -> u64 {
        self.levels.first().map_or(0, |level| level.bytes)
    }

    /// The last level less the first, of the sort that comes most often, in bytes. A label that comes once, as where a program ends, has
    /// no other to be compared with.
    pub fn total_bytes(&self) -> i128 {
        let levels = of_commonest_sort(&self.levels);
        let Some((first, last)) = levels.first().zip(levels.last()) else { return 0 };
        i128::from(last.bytes) - i128::from(first.bytes)
    }
}

/// Whether what is given back behind the last step goes at once, as where a program ends and gives back all that it has: a leak is one
/// all the same.
fn is_cleaned_up(replay: &Replay, device: u8, stretch: &[Level], thresholds: &Thresholds) -> bool {
    let Some(((first, last), track)) = stretch.first().zip(stretch.last()).zip(replay.tracks.device(device)) else {
        return false;
    };
    let end = track.live.turns().map(|turn| turn.at).next_back().unwrap_or(last.at);
    let [took, fell] = [last.at.saturating_sub(first.at), end.saturating_sub(last.at)];
    (fell as f64) < thresholds.cleanup_share * took as f64
}

/// Whether less was held behind the last step than can hold what rose: whosever it was, it was given back.
fn holds_too_little(replay: &Replay, device: u8, until: u64, stretch: &[Level], returned_share: f64) -> bool {
    let Some(((first, last), track)) = stretch.first().zip(stretch.last()).zip(replay.tracks.device(device)) else {
        return false;
    };
    let behind = track.live.turns().filter(|turn| turn.at > last.at && turn.at <= until).map(|turn| turn.bytes);
    let rise = last.bytes.saturating_sub(first.bytes) as f64;
    behind.min().is_some_and(|least| least as f64 <= (1.0 - returned_share) * rise)
}

/// How many labels came before those that are kept.
fn earlier_labels(replay: &Replay, until: u64) -> Earlier {
    let marks = replay.tracks.marks.listed();
    let after = marks.iter().filter(|mark| mark.at > until).count() as u64;
    if marks.is_complete() { Earlier::Nothing } else { Earlier::OfLabels(marks.count() - after) }
}

/// Cycles that began when the last label had come: of these labels say nothing.
pub fn cycles_behind(cycles: &[Cycle], last_label_at: u64) -> usize {
    cycles.iter().filter(|cycle| cycle.from.at >= last_label_at).count()
}

/// What was held at labels: the numbers for `growth_per_mark`, by label and bytes.
pub fn at_marks<'a>(marks: impl Iterator<Item = (&'a str, u64)>, limits: &Limits) -> Option<Trend> {
    let marks: Vec<(&str, u64)> = marks.collect();
    trend_of(&levels_of(marks.iter().map(|(label, bytes)| (*label, 0, *bytes))), limits)
}

/// What a program gives back where it ends says nothing of its steps: the last floor counts only where it did not fall.
fn leave_out_the_end(levels: &mut Vec<Level>) {
    if let [.., before, last] = levels[..]
        && last.bytes < before.bytes
    {
        levels.pop();
    }
}

fn levels_at<'a>(marks: impl Iterator<Item = &'a Mark>, device: u8) -> Vec<Level> {
    let held = |held: &[(u8, u64)]| held.iter().find(|(known, _)| *known == device).map_or(0, |(_, bytes)| *bytes);
    levels_of(marks.map(|mark| (mark.label.as_str(), mark.at, held(&mark.held_bytes))))
}

/// Labels with another number are of one sort ("step 17"). The first is left out: what a program sets up once comes before it
/// ends its first step. What a load takes is meant to stay.
fn levels_of<'a>(marks: impl Iterator<Item = (&'a str, u64, u64)>) -> Vec<Level> {
    let mut sorts: BTreeMap<String, u32> = BTreeMap::new();
    let levels = marks.filter(|(label, ..)| !labels::names_a_load(label)).map(|(label, at, bytes)| {
        let name: String = label.chars().filter(|c| !c.is_ascii_digit()).collect();
        let next = sorts.len() as u32;
        Level { at, bytes, sort: *sorts.entry(name).or_insert(next) }
    });
    levels.skip(1).collect()
}

fn trend_of(levels: &[Level], limits: &Limits) -> Option<Trend> {
    let points = levels.iter().enumerate();
    let points = points.map(|(place, level)| Point { x: place as f64, y: level.bytes as f64, sort: level.sort });
    Trend::of(&points.collect::<Vec<_>>(), limits)
}

/// The levels of the sort that comes most often: what lies between two of them is a whole step.
fn of_commonest_sort(levels: &[Level]) -> Vec<Level> {
    let times = |sort: u32| levels.iter().filter(|level| level.sort == sort).count();
    let commonest = levels.iter().map(|level| level.sort).max_by_key(|sort| times(*sort));
    levels.iter().filter(|level| Some(level.sort) == commonest).copied().collect()
}
