//! What a device holds after each step of a program, whether that rises where it ends, and which blocks stayed.
//!
//! Steps are what lies between the program's own labels where it has enough of them, else cycles of live bytes. The report, the
//! rules and `check` ask here, so that they say the same of one trace.

use std::collections::BTreeMap;

use rustc_hash::FxHashMap;
use serde::Serialize;

use crate::diagnosis::thresholds::{Thresholds, share};
use crate::passes::shape::cycles::Cycle;
use crate::passes::shape::labels;
use crate::passes::trend::{Limits, Point, Trend};
use crate::replay::Replay;
use crate::replay::tracks::calls::{Call, What};
use crate::replay::tracks::marks::Mark;

/// Steps that calls must cover for what they show of blocks.
const COVERED_STEPS: usize = 4;

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
}

/// What was held when a step ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Level {
    /// Ticks.
    pub at: u64,
    /// Bytes of the program's blocks.
    pub bytes: u64,
    /// Levels that can be compared have the same number.
    pub sort: u32,
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
    /// Blocks that stayed over the last stretch; `None` where its calls are not kept.
    pub kept: Option<Kept>,
    /// What the least rise is that is worth a word, in bytes.
    least_bytes: u64,
}

/// Blocks that were given during some steps and lived at the end of the last.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Kept {
    /// Steps that the calls cover.
    pub steps: usize,
    /// Steps of which a block stayed.
    pub keeping_steps: usize,
    /// Blocks that stayed.
    pub blocks: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Bytes that were given in all.
    pub given_bytes: u64,
    /// Bytes of blocks that outlived the step after their own and then went.
    pub returned_later_bytes: u64,
    /// Rise of the levels over these steps.
    pub rise_bytes: u64,
    /// Of the place that kept most: its blocks, where calls have places, else those of one size.
    pub place_blocks: u64,
    /// Bytes of these.
    pub place_bytes: u64,
    /// Size of each, where they are all equal.
    pub place_block_bytes: Option<u64>,
}

impl Kept {
    /// Share of the rise that these blocks make up.
    pub fn rise_share(&self) -> f64 {
        share(self.bytes, self.rise_bytes)
    }

    /// Share of what stayed that came from one place.
    pub fn place_share(&self) -> f64 {
        share(self.place_bytes, self.bytes)
    }

    /// Share of all that was given which stayed.
    pub fn given_share(&self) -> f64 {
        share(self.bytes, self.given_bytes)
    }
}

impl Rise {
    /// What a device did up to a moment: by the labels until then, else by these cycles. `calls` are the last calls for its memory until
    /// then, all of them if `is_complete`.
    pub fn of(
        replay: &Replay,
        device: u8,
        until: u64,
        cycles: &[Cycle],
        (calls, is_complete): (&[Call], bool),
        thresholds: &Thresholds,
    ) -> Option<Self> {
        let limits = thresholds.trend_limits();
        let marks = replay.tracks.marks.without_gap().filter(|mark| mark.at <= until);
        let by_marks = levels_at(marks, device);
        let of_cycle = |cycle: &Cycle| Level { at: cycle.to.at, bytes: cycle.to.bytes, sort: 0 };
        let (by, levels, trend) = match trend_of(&by_marks, &limits) {
            Some(trend) => (By::Marks, by_marks, trend),
            None => {
                let levels: Vec<Level> = cycles.iter().map(of_cycle).collect();
                let trend = trend_of(&levels, &limits)?;
                (By::Cycles, levels, trend)
            }
        };
        let stretch = &levels[levels.len() - trend.points.min(levels.len())..];
        let kept = kept(calls, is_complete, device, stretch);
        Some(Rise { by, levels, trend, kept, least_bytes: thresholds.leak_total_bytes })
    }

    /// Whether it rises where it ends, by enough to be worth a word.
    pub fn is_significant(&self) -> bool {
        self.trend.rises() && self.total_bytes() >= i128::from(self.least_bytes)
    }

    /// The last level less the first of its sort, in bytes.
    pub fn total_bytes(&self) -> i128 {
        let Some(last) = self.levels.last() else { return 0 };
        let first = self.levels.iter().find(|level| level.sort == last.sort).unwrap_or(last);
        i128::from(last.bytes) - i128::from(first.bytes)
    }
}

/// What was held at labels: the numbers for `growth_per_mark`, by label and bytes.
pub fn at_marks<'a>(marks: impl Iterator<Item = (&'a str, u64)>, limits: &Limits) -> Option<Trend> {
    let marks: Vec<(&str, u64)> = marks.collect();
    trend_of(&levels_of(marks.iter().map(|(label, bytes)| (*label, 0, *bytes))), limits)
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

/// Which blocks stayed of those that were given from the first level to the last.
fn kept(calls: &[Call], is_complete: bool, device: u8, levels: &[Level]) -> Option<Kept> {
    let known_from = if is_complete { 0 } else { calls.first()?.at };
    let levels = &levels[levels.partition_point(|level| level.at < known_from)..];
    let (first, last) = (levels.first()?, levels.last()?);
    let steps = levels.len() - 1;
    if steps < COVERED_STEPS {
        return None;
    }
    let mut kept = Kept { steps, rise_bytes: last.bytes.saturating_sub(first.bytes), ..Kept::default() };
    let mut live: FxHashMap<u64, (usize, &Call)> = FxHashMap::default();
    for call in calls.iter().filter(|call| call.device == device && call.at > first.at && call.at <= last.at) {
        let step = levels.partition_point(|level| level.at < call.at);
        match call.what {
            What::Given => {
                kept.given_bytes = kept.given_bytes.saturating_add(call.bytes);
                live.insert(call.address, (step, call));
            }
            What::Returned => match live.remove(&call.address) {
                Some((born, given)) if born + 1 < step => {
                    kept.returned_later_bytes = kept.returned_later_bytes.saturating_add(given.bytes);
                }
                _ => {}
            },
            What::Refused => {}
        }
    }
    sum_up(&mut kept, live.into_values());
    Some(kept)
}

fn sum_up<'a>(kept: &mut Kept, live: impl Iterator<Item = (usize, &'a Call)>) {
    // Where no call has a place, blocks of one size stand for one.
    let mut places: BTreeMap<(u32, u64), (u64, u64, u64, u64)> = BTreeMap::new();
    let mut steps = std::collections::BTreeSet::new();
    for (step, call) in live {
        steps.insert(step);
        kept.blocks += 1;
        kept.bytes = kept.bytes.saturating_add(call.bytes);
        let key = (call.site, if call.site == 0 { call.bytes } else { 0 });
        let (blocks, bytes, least, most) = places.entry(key).or_insert((0, 0, u64::MAX, 0));
        (*blocks, *bytes) = (*blocks + 1, bytes.saturating_add(call.bytes));
        (*least, *most) = ((*least).min(call.bytes), (*most).max(call.bytes));
    }
    kept.keeping_steps = steps.len();
    let Some((blocks, bytes, least, most)) = places.into_values().max_by_key(|place| place.1) else { return };
    (kept.place_blocks, kept.place_bytes) = (blocks, bytes);
    kept.place_block_bytes = (least == most).then_some(least);
}
