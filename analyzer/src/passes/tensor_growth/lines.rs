//! The lines of a program whose blocks become more from step to step.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;

use super::chosen::{Chosen, points};
use super::run::{Run, held_at};
use crate::passes::earlier::all_gone;
use crate::passes::growth::Rate;
use crate::passes::phase::{Phase, Where};
use crate::passes::trend::Trend;
use crate::replay::blocks::Moment;
use crate::replay::blocks::steps::{SiteLevel, Step};
use crate::symbols::key::label_with_line;
use crate::symbols::own::is_own;
use crate::symbols::plumbing::begins_a_process;
use crate::symbols::{Frame, FrameKind, Stacks};
use crate::thresholds::Thresholds;
use crate::words::{clean, count, size};

/// Lines that are listed.
const MOST_LINES: usize = 5;
/// Call sites whose names are looked up, those that grew most.
const MOST_NAMED: usize = 1024;
/// What stands for places that have no name.
const NOT_KNOWN: &str = "places that the trace does not tell";

/// The growth of one line of the program.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct LineGrowth {
    /// For people: function, file and line of Python, else function and library.
    pub label: String,
    /// What other runs and builds call the same place; null where it has no name.
    pub key: Option<String>,
    /// Rise per step over the last stretch.
    pub per_step: Rate,
    /// What it holds after the last step less what it held after the first.
    pub total_bytes: u64,
    /// What it holds after the last step.
    pub bytes: u64,
    /// In so many blocks.
    pub blocks: u64,
    /// What it held after each of the steps that are listed (`floors`), in bytes.
    pub floors_bytes: Vec<u64>,
    /// All of it came in backward passes and in an optimizer's step, by the functions on the ways to it.
    #[serde(skip)]
    pub is_of_trained: bool,
    /// All of it came where a module is made.
    #[serde(skip)]
    pub is_of_modules: bool,
    /// Of its blocks, those that were given back between the first and the last step.
    pub freed_blocks: u64,
    /// Where all is gone that came before the oldest of its blocks that live: how many of that it held after one step.
    #[serde(skip)]
    pub all_gone_blocks: u64,
    /// The way that most of it came by.
    pub stack: Vec<Frame>,
}

impl LineGrowth {
    /// A sentence without its beginning and its end. `blocks`: what the program takes them for; `step`: what a step is.
    pub fn told(&self, blocks: &str, step: &str) -> String {
        let per_step = size(self.per_step.bytes.max(0.0) as u64);
        let freed = match self.freed_blocks {
            0 => {
                format!(", and no {} from these calls is freed up to the last one", blocks.trim_end_matches('s'))
            }
            freed => format!(", while {freed} {blocks} of that place are freed up to the last one"),
        };
        let (place, held) = (clean(&self.label), size(self.bytes));
        format!(
            "{blocks} allocated in {place}{} grow by {per_step} with each {step}{freed}: {held} in {} {blocks} then",
            self.called_from().unwrap_or_default(),
            self.blocks
        )
    }

    /// The program's line that called the place: the same place may be reached by others, whose blocks are given back.
    fn called_from(&self) -> Option<String> {
        let own = || self.stack.iter().take_while(|frame| !begins_a_process(frame)).filter(|frame| is_own(frame));
        let labels = || own().map(|frame| (frame, label_with_line(frame)));
        let is_other = |label: &str| !self.label.starts_with(label.trim_end_matches(')'));
        // A script's own last line only calls its main function, where it has one.
        let in_function = labels().filter(|(frame, _)| frame.function.as_deref() != Some("<module>"));
        let mut callers = in_function.chain(labels()).filter_map(|(_, label)| label).filter(|label| is_other(label));
        Some(format!(", by way of {},", clean(&callers.next()?)))
    }
}

/// A line of the program whose blocks become larger, and not more.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct LargerLine {
    /// As of [`LineGrowth`].
    pub label: String,
    /// What it holds after the last step less what it held after the first of the stretch.
    pub total_bytes: u64,
    /// What it holds after the last step.
    pub bytes: u64,
    /// In so many blocks.
    pub blocks: u64,
}

impl LargerLine {
    /// A sentence without its beginning and its end.
    pub fn told(&self, blocks: &str, since: &str) -> String {
        let Self { label, total_bytes, bytes, blocks: number } = self;
        let (place, held, more) = (clean(label), size(*bytes), size(*total_bytes));
        let number = count(*number, blocks.trim_end_matches('s'), blocks);
        format!(
            "{blocks} allocated in {place} become larger and not more: {held} in {number} after the last step, {more} more than {since} before"
        )
    }

    /// Of the places that come to hold more in as many blocks or fewer, those that grew most over the last stretch.
    pub(super) fn of(run: &Run<'_>, chosen: &Chosen<'_>) -> Vec<Self> {
        let (first, last) = (chosen.stretch()[0], chosen.last());
        let before = |row: &SiteLevel| first.of_site(row.site).map_or((0, 0), |before| (before.bytes, before.blocks));
        let is_larger = |row: &&SiteLevel| row.bytes > before(row).0 && (1..=before(row).1).contains(&row.blocks);
        let mut sites: Vec<&SiteLevel> = last.rows.iter().filter(is_larger).collect();
        sites.sort_unstable_by_key(|row| (std::cmp::Reverse(row.bytes - before(row).0), row.site));
        let sites: Vec<u32> = sites.into_iter().take(MOST_NAMED).map(|row| row.site).collect();
        let larger = |(label, line): (String, Line)| {
            let sum_of = |step: &Step| sum(line.sites.iter().filter_map(|site| step.of_site(*site)));
            let (then, now) = (sum_of(first), sum_of(last));
            let total_bytes = now.bytes.saturating_sub(then.bytes);
            LargerLine { label, total_bytes, bytes: now.bytes, blocks: now.blocks }
        };
        let mut lines: Vec<Self> = by_line(run.stacks, &sites).into_iter().map(larger).collect();
        lines.sort_by_key(|line| std::cmp::Reverse((line.total_bytes, line.bytes)));
        lines.truncate(MOST_LINES);
        lines
    }
}

/// All lines that rise.
#[derive(Default)]
pub(super) struct Rising {
    /// The first of them, those that grew most.
    pub(super) lines: Vec<LineGrowth>,
    /// What all of them came to hold over the steps.
    pub(super) bytes: u64,
    /// Of that, those whose blocks come in backward passes and in an optimizer's step.
    pub(super) trained_bytes: u64,
    /// What they held after the last step.
    pub(super) bytes_at_last: u64,
    /// What they hold at the moment up to which it is looked at.
    pub(super) held_bytes: u64,
    /// Lines that hold more and more blocks, while most of the older ones are given back.
    pub(super) turning: Vec<LineGrowth>,
    /// What all of those came to hold.
    pub(super) turning_bytes: u64,
    /// What they hold at that moment.
    pub(super) turning_held_bytes: u64,
    /// What sites came to hold over the stretch in place of other blocks of theirs.
    pub(super) replaced_bytes: u64,
}

/// The call sites of one line.
#[derive(Default)]
struct Line {
    sites: Vec<u32>,
    key: Option<String>,
}

impl Rising {
    /// By the call sites whose blocks become more over the last stretch; `now`: what is the case at its end.
    pub(super) fn of(run: &Run<'_>, chosen: &Chosen<'_>, now: &Moment) -> Self {
        let rising = rising_of(run, chosen, now, &growing_sites(chosen, now, Fate::Stays));
        let of_turning = rising_of(run, chosen, now, &growing_sites(chosen, now, Fate::TurnsOver));
        let turning_sites: BTreeSet<u32> = of_turning.iter().flat_map(|(_, sites)| sites).copied().collect();
        let mut turning: Vec<_> = of_turning.into_iter().map(|(line, _)| line).collect();
        let turning_bytes = turning.iter().fold(0, |sum: u64, line| sum.saturating_add(line.total_bytes));
        turning.truncate(MOST_LINES);
        let sites: BTreeSet<u32> = rising.iter().flat_map(|(_, sites)| sites).copied().collect();
        let sum =
            |of: fn(&LineGrowth) -> u64| rising.iter().fold(0, |sum: u64, (line, _)| sum.saturating_add(of(line)));
        Rising {
            bytes: sum(|line| line.total_bytes),
            trained_bytes: sum(|line| if line.is_of_trained { line.total_bytes } else { 0 }),
            bytes_at_last: sum(|line| line.bytes),
            held_bytes: held_at(now, |site| sites.contains(&site)),
            turning,
            turning_bytes,
            replaced_bytes: replaced_bytes(chosen, now),
            turning_held_bytes: held_at(now, |site| turning_sites.contains(&site)),
            lines: rising.into_iter().take(MOST_LINES).map(|(line, _)| line).collect(),
        }
    }
}

/// The growth of the lines of these sites, those first that grew most.
fn rising_of(run: &Run<'_>, chosen: &Chosen<'_>, now: &Moment, sites: &[u32]) -> Vec<(LineGrowth, Vec<u32>)> {
    let mut rising: Vec<(LineGrowth, Vec<u32>)> = Vec::new();
    for (label, line) in by_line(run.stacks, sites) {
        rising.extend(grown(run, chosen, now, label, &line).map(|grown| (grown, line.sites)));
    }
    rising.sort_by_key(|(line, _)| std::cmp::Reverse((line.total_bytes, line.bytes)));
    rising
}

/// What becomes of a site's blocks, where it holds more of them with each step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    /// Most of them stay.
    Stays,
    /// Most are given back, and some are nearly as old as the stretch: entries of a cache that are replaced, and ever more of them.
    TurnsOver,
    /// None stays: more of them come each time in place of the older ones.
    Replaced,
}

/// The sites that hold more blocks, and more in them, after the last step than after the first of the stretch, and whose blocks have this
/// fate: one whose block is replaced by a larger one keeps nothing.
fn growing_sites(chosen: &Chosen<'_>, now: &Moment, wanted: Fate) -> Vec<u32> {
    let first = chosen.stretch()[0];
    let more = |row: &SiteLevel| {
        let before = first.of_site(row.site).map_or((0, 0), |before| (before.bytes, before.blocks));
        let is_more = row.bytes > before.0 && row.blocks > before.1 && fate(chosen, now, row.site) == wanted;
        is_more.then(|| (row.bytes - before.0, row.site))
    };
    let mut growing: Vec<(u64, u32)> = chosen.last().rows.iter().filter_map(more).collect();
    growing.sort_unstable_by_key(|(bytes, site)| (std::cmp::Reverse(*bytes), *site));
    growing.into_iter().take(MOST_NAMED).map(|(_, site)| site).collect()
}

/// Most of what a site once held was given back since, where at a step it held half of what it holds now, and less than a quarter of that
/// is as old.
fn fate(chosen: &Chosen<'_>, now: &Moment, site: u32) -> Fate {
    let Some(age) = now.age(site) else { return Fate::Stays };
    let held_half = |step: &&&Step| step.of_site(site).is_some_and(|row| row.bytes >= age.bytes.div_ceil(2));
    match chosen.steps.iter().find(held_half) {
        Some(step) if age.quarter_entered > step.entered => {
            let stretch = chosen.stretch();
            match age.few_entered <= stretch[stretch.len() / 4].entered {
                true => Fate::TurnsOver,
                false => Fate::Replaced,
            }
        }
        _ => Fate::Stays,
    }
}

/// What sites came to hold over the stretch in blocks that took the place of others: in no more of them than before, or of which none
/// stays.
fn replaced_bytes(chosen: &Chosen<'_>, now: &Moment) -> u64 {
    let first = chosen.stretch()[0];
    let rise = |row: &SiteLevel| {
        let before = first.of_site(row.site).map_or((0, 0), |before| (before.bytes, before.blocks));
        let is_replaced = row.blocks <= before.1 || fate(chosen, now, row.site) == Fate::Replaced;
        if is_replaced { row.bytes.saturating_sub(before.0) } else { 0 }
    };
    chosen.last().rows.iter().map(rise).fold(0, u64::saturating_add)
}

fn by_line(stacks: &Stacks<'_>, sites: &[u32]) -> BTreeMap<String, Line> {
    let mut lines: BTreeMap<String, Line> = BTreeMap::new();
    for site in sites {
        let known = stacks.call_site(*site);
        let label = known.as_ref().map_or_else(
            || NOT_KNOWN.to_owned(),
            |known| known.label_with_line().unwrap_or_else(|| known.label.clone()),
        );
        let line = lines.entry(label).or_default();
        line.key = line.key.take().or(known.map(|known| known.key.clone()));
        line.sites.push(*site);
    }
    lines
}

/// The growth of a line, if it goes on to the last step.
fn grown(run: &Run<'_>, chosen: &Chosen<'_>, now: &Moment, label: String, line: &Line) -> Option<LineGrowth> {
    let levels: Vec<SiteLevel> =
        chosen.steps.iter().map(|step| sum(line.sites.iter().filter_map(|site| step.of_site(*site)))).collect();
    let numbered = chosen.steps.iter().zip(&levels).map(|(step, level)| (step.number, level.bytes));
    let trend = Trend::of(&points(numbered), &run.thresholds.trend_limits()).filter(Trend::rises)?;
    let (first, last) = (levels.first()?, levels.last()?);
    Some(LineGrowth {
        label,
        key: line.key.clone(),
        per_step: Rate::of(&trend.slope),
        total_bytes: last.bytes.saturating_sub(first.bytes),
        bytes: last.bytes,
        blocks: last.blocks,
        floors_bytes: levels.iter().map(|level| level.bytes).collect(),
        is_of_trained: line.sites.iter().all(|site| is_of_trained(run, *site)),
        is_of_modules: line.sites.iter().all(|site| makes_a_module(run, *site)),
        freed_blocks: line.sites.iter().map(|site| freed(chosen, *site)).sum(),
        all_gone_blocks: all_gone_of(chosen, now, line, &levels, run.thresholds),
        stack: line.sites.first().map(|site| run.stacks.of(*site).frames).unwrap_or_default(),
    })
}

/// As [`LineGrowth::all_gone_blocks`]: those that a step's end saw outlived that step, and only the most that one saw are surely others
/// than those of the next. `levels`: what the line held after each step.
fn all_gone_of(chosen: &Chosen<'_>, now: &Moment, line: &Line, levels: &[SiteLevel], thresholds: &Thresholds) -> u64 {
    let rows = now.of.iter().flat_map(|one| &one.rows).filter(|row| line.sites.contains(&row.site));
    let (oldest, live) = rows.fold((u64::MAX, 0), |(oldest, live), row| (oldest.min(row.first), live + row.blocks));
    // What a program gives back where it ends says nothing of its steps.
    if 2 * live < levels.last().map_or(0, |last| last.blocks) {
        return 0;
    }
    let before = chosen.steps.iter().zip(levels).filter(|(step, _)| step.entered < oldest);
    let earlier = before.map(|(_, level)| level.blocks).max().unwrap_or(0);
    let given = levels.iter().map(|level| level.given).max().unwrap_or(0);
    all_gone(earlier, live, given.max(live + earlier), thresholds)
}

/// Whether a call site lies in a backward pass or in an optimizer's step.
fn is_of_trained(run: &Run<'_>, site: u32) -> bool {
    let frames = run.stacks.of(site).frames;
    match Where::of(&frames, false).map(|way| way.phase) {
        Some(Phase::Optimizer) => true,
        // What a hook of the program's keeps is no gradient.
        Some(Phase::Backward) => !frames.iter().find(|frame| frame.kind == FrameKind::Python).is_some_and(is_a_hook),
        _ => false,
    }
}

/// Whether a call site lies where a module of PyTorch's is made, or brought to the card.
fn makes_a_module(run: &Run<'_>, site: u32) -> bool {
    let frames = run.stacks.of(site).frames;
    let is_made = |frame: &Frame| {
        let is_module = |path: &str| path.starts_with("torch/nn/modules/");
        frame.package_path.as_deref().is_some_and(is_module)
            && frame.function.as_deref().is_some_and(|name| name.ends_with("__init__"))
    };
    frames.iter().any(is_made) || Where::of(&frames, false).is_some_and(|way| way.phase == Phase::Load)
}

/// Whether a frame is the program's own, and no backward pass of a function that it wrote itself.
fn is_a_hook(frame: &Frame) -> bool {
    is_own(frame) && frame.function.as_deref().is_some_and(|name| !name.ends_with("backward"))
}

fn sum<'a>(rows: impl Iterator<Item = &'a SiteLevel>) -> SiteLevel {
    let nothing = SiteLevel { site: 0, bytes: 0, blocks: 0, given: 0 };
    rows.fold(nothing, |sum, row| SiteLevel {
        bytes: sum.bytes.saturating_add(row.bytes),
        blocks: sum.blocks + row.blocks,
        given: sum.given + row.given,
        ..sum
    })
}

/// Blocks of a site that were given back since the first step after which it held any.
fn freed(chosen: &Chosen<'_>, site: u32) -> u64 {
    let gone = |row: &SiteLevel| row.given.saturating_sub(row.blocks);
    let mut rows = chosen.steps.iter().filter_map(|step| step.of_site(site));
    let first = rows.next().map_or(0, gone);
    chosen.last().of_site(site).map_or(0, gone).saturating_sub(first)
}
