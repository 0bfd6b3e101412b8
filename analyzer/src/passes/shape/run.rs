//! Shapes of a whole run: a leak, a plateau that is none, models that are swapped.

use super::cycles::{Cycle, Cycles};
use super::labels;
use super::{MARKS, SEGMENTS};
use crate::judgement::check::{Check, Confidence, Holds};
use crate::passes::growth;
use crate::passes::kept::Kept;
use crate::passes::phase::Phase;
use crate::passes::rise::{By, Rise};
use crate::passes::trend::{Course, Trend, WHY_AGAIN};
use crate::replay::Replay;
use crate::replay::tracks::reads::{History, Whose};
use crate::thresholds::Thresholds;
use crate::words::{count, percent, size};

/// What is known of a device over the whole run.
#[derive(Clone, Debug)]
pub struct DeviceRun {
    /// Device number as recorded.
    pub device: u8,
    /// Its cycles, without the end of the run.
    pub cycles: Cycles,
    /// What it held after each step, where it has enough of them.
    pub rise: Option<Rise>,
    /// How many of its cycles have a label that says that a model is loaded.
    pub labelled_loads: usize,
    /// The most that rounding adds to the blocks that live at the end, in bytes.
    pub rounding_bytes: u64,
    /// How often code was loaded over the run.
    pub loads: u64,
    /// Bytes that went back to stream-ordered pools over the run.
    pub returned_to_pools_bytes: u64,
    /// Memory in use at the floors; `None` where nothing was read at one.
    pub used_at_floors: Option<UsedAtFloors>,
    /// Whether the last failures' calls look like an allocator's segments.
    pub are_segments: bool,
    /// The numbers by which its shapes are judged.
    pub thresholds: Thresholds,
}

/// Memory in use by the driver's or runtime's readings at the floor of each cycle.
#[derive(Clone, Debug)]
pub struct UsedAtFloors {
    /// Whose it is, at every floor: a rise between two numbers of different sources says nothing.
    pub whose: Whose,
    /// The least at each floor, in bytes.
    pub bytes: Vec<u64>,
}

impl UsedAtFloors {
    /// By this process where that was read at every floor, else by all.
    fn of(cycles: &[Cycle], history: &History, thresholds: &Thresholds) -> Option<Self> {
        let by = |whose| {
            let used = |cycle: &Cycle| {
                history.least_used(whose, cycle.peak.at, next_rise(cycle), near_floor(cycle, thresholds))
            };
            Some(UsedAtFloors { whose, bytes: cycles.iter().map(used).collect::<Option<_>>()? })
        };
        by(Whose::Process).or_else(|| by(Whose::All))
    }
}

impl DeviceRun {
    /// All devices that the program used.
    pub fn all(replay: &Replay, thresholds: &Thresholds) -> Vec<Self> {
        let of = |(device, track)| {
            let cycles = growth::cycles_of(track, thresholds);
            DeviceRun {
                device,
                rise: growth::rise_of(replay, device, &cycles, thresholds),
                labelled_loads: cycles.main.iter().filter(|cycle| is_labelled_load(replay, cycle)).count(),
                rounding_bytes: rounding_at_most(replay, device, thresholds),
                loads: track.done.loads,
                returned_to_pools_bytes: track.done.returned_to_pools_bytes,
                used_at_floors: UsedAtFloors::of(&cycles.main, track.reads.history(), thresholds),
                are_segments: segments(replay, device, thresholds),
                cycles,
                thresholds: *thresholds,
            }
        };
        replay.tracks.devices().map(of).collect()
    }
}

/// The most that rounding adds to the blocks of a device that live at the end: a whole block of the runtime's for each.
fn rounding_at_most(replay: &Replay, device: u8, thresholds: &Thresholds) -> u64 {
    let blocks = replay.accounts.device(device).map_or(0, |account| account.held.blocks);
    blocks.saturating_mul(thresholds.rocr_block_bytes)
}

/// A floor is looked at for as long as the fall to it took: readings come once a second.
fn next_rise(cycle: &Cycle) -> u64 {
    cycle.to.at.saturating_add(cycle.duration() / 2)
}

/// What the program holds at most where a reading counts as one of the floor, in bytes: one that came before the fall would
/// show the peak as something that stays.
fn near_floor(cycle: &Cycle, thresholds: &Thresholds) -> u64 {
    cycle.to.bytes.saturating_add((thresholds.floor_margin_share * cycle.rise_bytes() as f64) as u64)
}

fn segments(replay: &Replay, device: u8, thresholds: &Thresholds) -> bool {
    let window = replay.tracks.calls.before(replay.tracks.calls.count());
    let of_device: Vec<_> = window.calls.into_iter().filter(|call| call.device == device).collect();
    super::facts::are_segments(&of_device, thresholds)
}

/// Whether a label within a cycle, or right before it, says that a model is loaded.
fn is_labelled_load(replay: &Replay, cycle: &Cycle) -> bool {
    let marks = replay.tracks.marks.listed();
    let mut inside = marks.iter().filter(|mark| mark.at >= cycle.from.at && mark.at <= cycle.to.at);
    inside.any(|mark| Phase::of(&mark.label) == Some(Phase::Load) || labels::ends_the_load(&mark.label))
}

/// Live bytes rise step after step, up to the end of what is looked at.
pub fn leak(rise: Option<&Rise>, are_segments: bool, thresholds: &Thresholds, check: &mut Check) {
    let Some(rise) = rise.filter(|rise| rise.is_significant()) else {
        check.applies(false);
        return;
    };
    let (step, trend) = (rise.by.step(), &rise.trend);
    let each = rise.by.step_of(rise.sorts);
    let bytes = |rate: f64| size(rate.max(0.0) as u64);
    check.must(true, || {
        format!(
            "what stays after a {each} rises by {} each time (95 %: {} to {}), {}; {} since the first of {}",
            bytes(trend.slope.median),
            bytes(trend.slope.low),
            bytes(trend.slope.high),
            up_to(trend, step),
            size(u64::try_from(rise.total_bytes()).unwrap_or(0)),
            rise.earlier.first_of(rise.levels.len(), rise.by),
        )
    });
    match &rise.kept {
        Some(kept) => blocks_stay(rise, kept, thresholds, check),
        None => check.must(Holds::Unknown(rise.kept_unknown()), String::new),
    }
    if rise.by == By::Cycles {
        // Nobody but the recorder says what a step is. A KV cache that grows with the context rises the same way until it is full.
        check.only_as_seen();
        check.at_most(Confidence::Possible);
        check.would_settle(
            "labels of the program (gpuoom_mark) where a step ends: a cache that fills rises like this, too",
        );
    }
    is_it_meant(check);
    if let Some(unsettled) = trend.course.unsettled() {
        check.at_most(Confidence::Possible);
        check.would_settle(unsettled);
    }
    may_be_meant(trend.stood_level, rise.are_pieces, check);
    if trend.slope.low <= 0.0 {
        check.at_most(Confidence::Possible);
        check.would_settle(STEADY);
    }
    if (trend.points as u64) < thresholds.stretch_cycles {
        check.at_most(Confidence::Probable);
        check.would_settle("a longer run: the trend rests on few cycles");
    }
    if are_segments {
        check.at_most(Confidence::Probable);
        check.would_settle(SEGMENTS);
    }
}

/// Up to where it rises of what is looked at.
fn up_to(trend: &Trend, step: &str) -> String {
    let points = trend.points;
    match trend.course {
        Course::Pauses => {
            format!("over the last {points} {step}s, but not over the last {} of them", trend.paused)
        }
        _ => format!("up to the last of the {points} {step}s looked at"),
    }
}

/// Where the interval of a rate reaches to nothing.
pub const STEADY: &str =
    "a longer run: whether what stays rises at all where it ends is not sure (the interval of its rate begins at 0)";

/// What would tell a leak from what is put together.
const PIECES: &str = "whether these are the pieces of one whole, as their label is called after: those of a model or of data are meant to stay";

/// What would tell a leak from what fills.
pub const IS_IT_MEANT: &str =
    "whether the rise is meant and has an end, as that of a cache: the code at the place where it comes from";

/// What rises without an end is a leak, and what fills and stops is a cache: where the run ended in between, both look the same.
pub fn is_it_meant(check: &mut Check) {
    check.at_most(Confidence::Probable);
    check.would_settle(IS_IT_MEANT);
}

/// Where what rises had stood level for long, or is labelled as the pieces of a whole, it may well be meant to stay.
pub fn may_be_meant(stood_level: bool, are_pieces: bool, check: &mut Check) {
    for (_, would_settle) in [(stood_level, WHY_AGAIN), (are_pieces, PIECES)].into_iter().filter(|(holds, _)| *holds) {
        check.at_most(Confidence::Possible);
        check.would_settle(would_settle);
    }
}

/// What would show whose blocks went.
const OLDER: &str = "which call paths the older blocks came by that were given back: their calls are not kept";
/// What would show whether blocks are only late.
const LATER: &str =
    "whether what stays is given back later: most blocks of that call path that outlived their step were";

/// What would tell a leak from longer rounds and from more that lives at once.
pub const GIVEN_BACK_AT_LAST: &str = "whether what stays is given back at last, as all was that had come to stay there before: more of it at \
                                      once, or for longer, rises like this, too";

/// What went of it in other sizes, as a part of a sentence.
fn less(gone_bytes: u64) -> String {
    match gone_bytes {
        0 => String::new(),
        bytes => format!(", less {} of older ones that went", size(bytes)),
    }
}

/// Those that are no more than there were before, as a part of a sentence.
pub fn in_place_of_others(blocks: u64) -> String {
    match blocks {
        0 => String::new(),
        blocks => format!(", beside {blocks} in the place of others that went"),
    }
}

/// What rises must be blocks that stay, and not one that is replaced by a larger one, or a window that moves.
fn blocks_stay(rise: &Rise, kept: &Kept, thresholds: &Thresholds, check: &mut Check) {
    let step = rise.by.step();
    let much = |gone_bytes: u64| gone_bytes as f64 > thresholds.dominant_share * kept.bytes as f64;
    let are_few = (kept.keeping_steps as u64) < thresholds.keeping_steps;
    let is_replaced = are_few
        || kept.rise_share() < thresholds.dominant_share
        || kept.path.gone_blocks as f64 >= thresholds.replaced_share * kept.path.blocks as f64
        || kept.path.site == 0 && much(kept.gone_bytes);
    let is_replaced = match much(kept.gone_of_unknown_bytes) {
        true if !is_replaced => Holds::Unknown(OLDER),
        _ => Holds::from(is_replaced),
    };
    check.unless(is_replaced, || match is_replaced == Holds::Yes && are_few {
        true => format!("blocks came to stay in only {} of the last {} {step}s", kept.keeping_steps, kept.steps),
        false => "what rises are blocks in place of others that were given back, and not more of them".to_owned(),
    });
    let path = &kept.path;
    let comes_and_goes = match path.returned_later_bytes > path.bytes || path.all_gone_blocks > 0 {
        true => Holds::Unknown(LATER),
        false => Holds::No,
    };
    check.unless(comes_and_goes, || {
        format!(
            "blocks that outlive their {step} are given back by the last of these {step}s: {} of them, and {} stay",
            size(path.returned_later_bytes),
            size(path.bytes)
        )
    });
    check.must(true, || {
        let each = path.block_bytes.map_or_else(String::new, |bytes| format!(" of {} each", size(bytes)));
        format!(
            "{} blocks{each} by one call path stay of the last {} {step}s{}: {} of {}{}",
            path.blocks,
            kept.steps,
            in_place_of_others(path.replacing_blocks),
            size(path.bytes),
            size(kept.bytes),
            less(path.bytes.saturating_sub(path.net_bytes))
        )
    });
    if path.all_gone_blocks > 0 {
        check.at_most(Confidence::Possible);
        check.note(true, || {
            format!(
                "all {} blocks of that path that came before the oldest of those which live, and outlived their {step}, were given back{}",
                path.all_gone_blocks,
                if rise.has_all_calls() { "" } else { " (of those whose calls are kept)" }
            )
        });
        check.would_settle(GIVEN_BACK_AT_LAST);
    }
    check.note(kept.managed_bytes > 0, || format!("{} of it may lie in RAM", size(kept.managed_bytes)));
    if kept.path_share() < thresholds.dominant_share {
        check.at_most(Confidence::Probable);
        check.would_settle("which of several call paths keeps too much: what stays comes by many");
    }
    // A thread that sets no labels and keeps all that it takes may load what is meant to stay, at a pace of its own.
    if rise.by == By::Marks && kept.untied_bytes as f64 >= thresholds.dominant_share * kept.bytes as f64 {
        check.at_most(Confidence::Possible);
        check.note(true, || {
            format!(
                "{} of it was asked for by threads that set no labels and gave nothing back: nothing ties them to these steps",
                size(kept.untied_bytes)
            )
        });
        check.would_settle("labels (gpuoom_mark) on the thread that asks for what stays");
    }
    if rise.may_be_a_load(thresholds) {
        check.at_most(Confidence::Possible);
        check.note(true, || {
            let share = percent(kept.given_share());
            let steps = rise.by.step();
            format!("{share} of what these {steps}s were given stays, and little was there before: they may be parts of a load")
        });
        check.would_settle(MARKS);
    }
}

/// Whether the floors of the second half hardly differ.
fn is_flat(cycles: &Cycles, thresholds: &Thresholds) -> bool {
    let steps = cycles.steps();
    let floors = || steps[steps.len() / 2..].iter().map(|cycle| cycle.to.bytes);
    let (least, most) = (floors().min().unwrap_or(0), floors().max().unwrap_or(0));
    most > 0 && (most - least) as f64 <= thresholds.flat_share * most as f64
}

/// Memory rises for some cycles and is flat then: no leak.
pub fn plateau(run: &DeviceRun, check: &mut Check) {
    let steps = run.cycles.steps();
    if !check.applies(steps.len() as u64 >= run.thresholds.plateau_least_cycles && steps.len() >= 2) {
        return;
    }
    let (first, last) = (steps[0].to.bytes, steps[steps.len() - 1].to.bytes);
    let level = last - (last as f64 * run.thresholds.flat_share) as u64;
    let rises_for = steps.iter().position(|cycle| cycle.to.bytes >= level).unwrap_or(steps.len());
    check.must(last > first && last - first >= run.thresholds.plateau_rise_bytes, || {
        format!("what stays rose from {} to {}", size(first), size(last))
    });
    let is_over = run.rise.as_ref().is_none_or(|rise| !rise.is_significant()) && is_flat(&run.cycles, &run.thresholds);
    check.must(rises_for as u64 <= run.thresholds.plateau_cycles && is_over, || {
        format!("it is flat since cycle {} of {}", rises_for + 1, steps.len())
    });
    let of_process = run.used_at_floors.as_ref().filter(|used| used.whose == Whose::Process);
    let more = of_process.and_then(|used| {
        let later = &used.bytes[used.bytes.len() / 2..];
        Some(later.last()?.saturating_sub(*later.first()?))
    });
    check.note(more.is_some_and(|more| more >= run.thresholds.plateau_rise_bytes), || {
        format!(
            "the driver counts {} more for this process over the second half: none of it is the program's blocks",
            size(more.unwrap_or(0))
        )
    });
}

/// What the program itself does not give back may have nothing to do with what it loads.
fn kept_by_the_program(check: &mut Check) {
    check.at_most(Confidence::Possible);
    check.only_as_seen();
    check.would_settle("whether the program keeps these blocks on purpose: the code at the place where they come from");
}

/// Each load and unload of a model leaves memory behind. That models come and go is for labels to say: `named` is what else says
/// so.
pub fn model_swap(run: &DeviceRun, named: Option<String>, check: &mut Check) {
    let cycles = &run.cycles.main;
    let thresholds = &run.thresholds;
    let (least_bytes, least_fall) = (thresholds.swap_bytes, thresholds.swap_fall_share);
    let is_swap = |cycle: &Cycle| {
        cycle.rise_bytes() > least_bytes && cycle.fall_bytes() as f64 >= least_fall * cycle.rise_bytes() as f64
    };
    if !check.applies(cycles.len() as u64 >= run.thresholds.swaps.max(2) && cycles.iter().all(is_swap)) {
        return;
    }
    check.must(true, || {
        let (came, went) = (size(least_bytes), percent(least_fall));
        format!(
            "{} times, the end of the run left out, more than {came} came and at least {went} of it went",
            cycles.len()
        )
    });
    let times = cycles.len() as u64 - 1;
    // Each time, and not now and then: the least of two halves decides.
    let of_part = |floors: &[u64]| match floors {
        [first, .., last] => last.saturating_sub(*first) / (floors.len() as u64 - 1),
        _ => u64::MAX,
    };
    let per_cycle = |floors: &[u64]| {
        let middle = times as usize / 2;
        of_part(&floors[..=middle]).min(of_part(&floors[middle..])).min(of_part(floors))
    };
    let floors: Vec<u64> = cycles.iter().map(|cycle| cycle.to.bytes).collect();
    let own = per_cycle(&floors);
    match &run.used_at_floors {
        Some(used) => {
            let residue = per_cycle(&used.bytes);
            check.must(residue >= run.thresholds.swap_residue_bytes, || {
                let whose = if own * 2 >= residue {
                    "blocks of the program"
                } else {
                    "of it, the program's blocks make up less than half"
                };
                format!("memory in use at the floors rises by {} each time; {whose}", size(residue))
            });
            // Small blocks of the program take much more than they ask for.
            let by_rounding = run.rounding_bytes / times;
            if own.saturating_add(by_rounding) * 2 >= residue {
                kept_by_the_program(check);
            } else if used.whose == Whose::All {
                check.at_most(Confidence::Possible);
                check.would_settle("what this process itself uses by the driver: other processes may have taken it");
            }
        }
        None if own >= run.thresholds.swap_residue_bytes => {
            check.must(true, || format!("the program's own blocks at the floors rise by {} each time", size(own)));
            kept_by_the_program(check);
        }
        // Nothing shows that anything stays: any training with large steps looks like this.
        None => _ = check.applies(false),
    }
    // That memory stays each time does not say what it is of.
    check.at_most(Confidence::Probable);
    check.would_settle("what else the program does in each of these cycles that takes memory, as its libraries may");
    if run.loads >= times {
        check.at_most(Confidence::Possible);
        check.note(true, || format!("code was loaded {} over the run", count(run.loads, "time", "times")));
        check.would_settle("how much of it the code takes that was loaded: no call tells");
    }
    if run.returned_to_pools_bytes > 0 {
        check.at_most(Confidence::Possible);
        check.would_settle("what stream-ordered pools keep where models end: frees on a stream take effect later");
    }
    match named {
        _ if run.labelled_loads as u64 >= thresholds.swaps => {
            let labelled = run.labelled_loads;
            check.must(true, || format!("in {labelled} of them the program's own labels say that a model is loaded"));
            check.at_most(Confidence::Probable);
            check.would_settle(
                "whether what stays is of the models: the names of the functions that asked for it (--symbols)",
            );
        }
        Some(text) => check.must(true, || text),
        None => check.guess(MARKS),
    }
}
