//! What a device holds after each step of a program, whether that rises where it ends, and which blocks stayed.
//!
//! Steps are what lies between the program's own labels where it has enough of them, else cycles of live bytes. The report, the
//! rules and `check` ask here, so that they say the same of one trace.

use std::collections::{BTreeMap, BTreeSet};

use rustc_hash::FxHashMap;
use serde::Serialize;

use crate::passes::shape::cycles::Cycle;
use crate::passes::shape::labels;
use crate::passes::trend::{Limits, Point, Trend};
use crate::replay::Replay;
use crate::replay::tracks::calls::{Call, What};
use crate::replay::tracks::marks::Mark;
use crate::thresholds::{Thresholds, share};

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
    /// Blocks that stayed over the last stretch; `None` where its calls are not kept, or cover too few steps.
    pub kept: Option<Kept>,
    /// Whether the labels name pieces of something, as `layer 5`, and not steps.
    pub are_pieces: bool,
    /// Whether the calls from the beginning on are kept.
    calls_are_complete: bool,
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
    /// Bytes of blocks from before that went, and that none of the same size took the place of.
    pub gone_bytes: u64,
    /// Bytes of blocks from before that went and whose calls are not kept, so that nobody knows by which path they had come.
    pub gone_of_unknown_bytes: u64,
    /// Rise of the levels over these steps.
    pub rise_bytes: u64,
    /// What came by the call path by which most came to stay, less what went of it; where no paths are known, blocks of one size.
    pub path: OfPath,
}

/// Blocks that came by one call path.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct OfPath {
    /// Blocks that stayed.
    pub blocks: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Size of each, where they are all equal.
    pub block_bytes: Option<u64>,
    /// Bytes of blocks that outlived the step after their own, and then went.
    pub returned_later_bytes: u64,
    /// Blocks from before these steps that went.
    pub gone_blocks: u64,
    /// Their bytes less those of blocks from before that went.
    pub net_bytes: u64,
    /// Whether it is a path, and not only a size.
    pub is_known: bool,
}

impl Kept {
    /// Share of the rise that these blocks make up.
    pub fn rise_share(&self) -> f64 {
        share(self.bytes, self.rise_bytes)
    }

    /// Share of the rise that came by one call path, at most 1.
    pub fn path_share(&self) -> f64 {
        share(self.path.net_bytes, self.rise_bytes).min(1.0)
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
        let is_labelled_to_the_end =
            cycles_behind(cycles, by_marks.last().map_or(0, |level| level.at)) < limits.least_points;
        let are_pieces =
            replay.tracks.marks.without_gap().last().is_some_and(|mark| labels::names_a_piece(&mark.label));
        let by_marks_trend = trend_of(&by_marks, &limits).filter(|_| is_labelled_to_the_end);
        let (by, levels, trend) = match by_marks_trend {
            Some(trend) => (By::Marks, by_marks, trend),
            None => {
                let mut levels: Vec<Level> = cycles.iter().map(of_cycle).collect();
                if until == WHOLE_RUN {
                    leave_out_the_end(&mut levels);
                }
                let trend = trend_of(&levels, &limits)?;
                (By::Cycles, levels, trend)
            }
        };
        let stretch = &levels[levels.len() - trend.points.min(levels.len())..];
        let kept = kept(calls, is_complete, device, &of_commonest_sort(stretch))
            .filter(|kept| kept.steps as u64 >= thresholds.covered_steps);
        Some(Rise {
            by,
            levels,
            trend,
            kept,
            are_pieces,
            calls_are_complete: is_complete,
            least_bytes: thresholds.leak_total_bytes,
        })
    }

    /// Whether it rises where it ends, by enough to be worth a word.
    pub fn is_significant(&self) -> bool {
        self.trend.rises() && self.total_bytes() >= i128::from(self.least_bytes)
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

    /// The last level less the first of its sort, in bytes.
    pub fn total_bytes(&self) -> i128 {
        let Some(last) = self.levels.last() else { return 0 };
        let first = self.levels.iter().find(|level| level.sort == last.sort).unwrap_or(last);
        i128::from(last.bytes) - i128::from(first.bytes)
    }
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

/// Which blocks stayed of those that were given from the first level to the last.
fn kept(calls: &[Call], is_complete: bool, device: u8, levels: &[Level]) -> Option<Kept> {
    let known_from = if is_complete { 0 } else { calls.first()?.at };
    let levels = &levels[levels.partition_point(|level| level.at < known_from)..];
    let (first, last) = (levels.first()?, levels.last()?);
    let steps = levels.len() - 1;
    let mut kept = Kept { steps, rise_bytes: last.bytes.saturating_sub(first.bytes), ..Kept::default() };
    let mut live: FxHashMap<u64, (usize, &Call)> = FxHashMap::default();
    let mut before = live_before(calls, device, first.at);
    let mut paths: BTreeMap<(u32, u64), Path> = BTreeMap::new();
    // Blocks from before that went, by size.
    let mut gone: FxHashMap<u64, Vec<Option<(u32, u64)>>> = FxHashMap::default();
    for call in calls.iter().filter(|call| call.device == device && call.at > first.at && call.at <= last.at) {
        let step = levels.partition_point(|level| level.at < call.at);
        match call.what {
            What::Given => {
                kept.given_bytes = kept.given_bytes.saturating_add(call.bytes);
                live.insert(call.address, (step, call));
            }
            What::Returned => match live.remove(&call.address) {
                Some((born, given)) if born + 1 < step => {
                    let path = paths.entry(path_of(given)).or_default();
                    path.returned_later_bytes = path.returned_later_bytes.saturating_add(given.bytes);
                }
                Some(_) => {}
                None => {
                    let path = before.remove(&call.address).map(path_of);
                    gone.entry(call.bytes).or_default().push(path);
                }
            },
            What::Refused => {}
        }
    }
    let mut live: Vec<(usize, &Call)> = live.into_values().collect();
    live.sort_unstable_by_key(|(_, call)| std::cmp::Reverse(call.at));
    // What was on its way at the beginning is on its way at the end, too: a block for a block of its size.
    live.retain(|(_, call)| gone.get_mut(&call.bytes).is_none_or(|gone| !replaces_one_of(call, gone)));
    for (size, path) in gone.into_iter().flat_map(|(size, paths)| paths.into_iter().map(move |path| (size, path))) {
        kept.gone_bytes = kept.gone_bytes.saturating_add(size);
        match path {
            Some(path) => paths.entry(path).or_default().went(size),
            None => kept.gone_of_unknown_bytes = kept.gone_of_unknown_bytes.saturating_add(size),
        }
    }
    sum_up(&mut kept, &mut paths, live.into_iter());
    Some(kept)
}

/// Whether a block takes the place of one of its size that went, of its own path first. That one is taken from the list.
fn replaces_one_of(call: &Call, gone: &mut Vec<Option<(u32, u64)>>) -> bool {
    let own = gone.iter().position(|path| *path == Some(path_of(call)));
    let place = own.or_else(|| gone.iter().position(Option::is_none)).or(gone.len().checked_sub(1));
    place.map(|place| gone.swap_remove(place)).is_some()
}

/// The blocks that lived at a moment, of those whose call is known.
fn live_before(calls: &[Call], device: u8, at: u64) -> FxHashMap<u64, &Call> {
    let mut live = FxHashMap::default();
    for call in calls.iter().filter(|call| call.device == device && call.at <= at) {
        match call.what {
            What::Given => _ = live.insert(call.address, call),
            What::Returned => _ = live.remove(&call.address),
            What::Refused => {}
        }
    }
    live
}

/// One call path while sums are made.
#[derive(Clone, Copy, Debug, Default)]
struct Path {
    blocks: u64,
    bytes: u64,
    least_bytes: u64,
    most_bytes: u64,
    returned_later_bytes: u64,
    gone_blocks: u64,
    gone_bytes: u64,
}

impl Path {
    fn went(&mut self, bytes: u64) {
        (self.gone_blocks, self.gone_bytes) = (self.gone_blocks + 1, self.gone_bytes.saturating_add(bytes));
    }

    fn net_bytes(&self) -> u64 {
        self.bytes.saturating_sub(self.gone_bytes)
    }
}

/// The call path, or where no call has one, blocks of one size.
fn path_of(call: &Call) -> (u32, u64) {
    (call.site, if call.site == 0 { call.bytes } else { 0 })
}

fn sum_up<'a>(kept: &mut Kept, paths: &mut BTreeMap<(u32, u64), Path>, live: impl Iterator<Item = (usize, &'a Call)>) {
    let mut steps = BTreeSet::new();
    for (step, call) in live {
        steps.insert(step);
        kept.blocks += 1;
        kept.bytes = kept.bytes.saturating_add(call.bytes);
        let path = paths.entry(path_of(call)).or_default();
        path.least_bytes = if path.blocks == 0 { call.bytes } else { path.least_bytes.min(call.bytes) };
        path.most_bytes = path.most_bytes.max(call.bytes);
        (path.blocks, path.bytes) = (path.blocks + 1, path.bytes.saturating_add(call.bytes));
    }
    kept.keeping_steps = steps.len();
    // Sessions that come and go hold much, and a leak beside them little: what came to stay counts.
    let Some(((site, _), most)) = paths.iter().max_by_key(|(_, path)| (path.net_bytes(), path.bytes)) else { return };
    kept.path = OfPath {
        blocks: most.blocks,
        bytes: most.bytes,
        block_bytes: (most.least_bytes == most.most_bytes).then_some(most.least_bytes),
        returned_later_bytes: most.returned_later_bytes,
        gone_blocks: most.gone_blocks,
        net_bytes: most.net_bytes(),
        is_known: *site != 0,
    };
}
