//! Growth: what stays from step to step of a device, how it rises where it ends, and when memory would run out.

use gpuoom_trace::record::NO_DEVICE;
use serde::Serialize;

use crate::passes::fragmentation::saturate;
use crate::passes::kept::{Kept, OfPath};
use crate::passes::level::Level;
use crate::passes::rise::{By, Earlier, Rise, WHOLE_RUN};
use crate::passes::shape::cycles::{Cycle, Cycles};
use crate::passes::trend::{Course, Point, Slope};
use crate::replay::Replay;
use crate::replay::block::Side;
use crate::replay::tracks::DeviceTrack;
use crate::replay::tracks::series::{Series, Turn};
use crate::replay::tracks::survivors::{Group, STRETCHES, Survivors};
use crate::symbols::Stacks;
use crate::thresholds::Thresholds;

/// Floors that are listed, evenly chosen where there are more.
const MOST_POINTS: usize = 256;
/// Origins of blocks that are named.
const MOST_SUSPECTS: usize = 5;

/// What a device held between two cycles.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Floor {
    /// When.
    pub at_ns: u64,
    /// Bytes of the program's blocks.
    pub bytes: u64,
}

/// A rate with its 95 % interval.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Rate {
    /// Bytes per unit.
    pub bytes: f64,
    /// Lower end of the interval.
    pub low: f64,
    /// Upper end of the interval.
    pub high: f64,
}

impl Rate {
    pub(in crate::passes) fn of(slope: &Slope) -> Self {
        Rate { bytes: slope.median, low: slope.low, high: slope.high }
    }
}

/// How long what is left would last: an estimate from the line.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct RunsOut {
    /// Bytes that are left above the last floor and the height of a cycle.
    pub room_bytes: u64,
    /// When the free memory was read that the room is computed from; null where it was not.
    pub room_read_at_ns: Option<u64>,
    /// Whether the room was read at some moment; else it is the card's size less the program's blocks, and others' memory is
    /// not in it.
    pub room_was_read: bool,
    /// Time after the last floor.
    pub in_ns: u64,
    /// At the upper end of the rate.
    pub soonest_ns: u64,
    /// At the lower end of the rate; null where that does not rise.
    pub latest_ns: Option<u64>,
    /// The same in cycles.
    pub in_cycles: f64,
    /// At the upper end of the rate.
    pub soonest_cycles: f64,
    /// At the lower end of the rate.
    pub latest_cycles: Option<f64>,
}

/// Blocks of one origin that stay, more with each cycle.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Suspect {
    /// Function that gave them.
    pub api: String,
    /// Return address of the call; null where it is not known.
    pub site: Option<String>,
    /// The first function outside of allocators on the way to that call; null where nothing has names.
    pub caller: Option<String>,
    /// What other runs and builds of the program call that place, with the functions that led there; empty where it is not known.
    pub key: String,
    /// The keys of all places of that name through which the same call was made: where they differ, the caller is a wrapper.
    #[serde(skip)]
    pub ways: Vec<String>,
    /// Number of the site.
    #[serde(skip)]
    pub site_number: u32,
    /// Bytes of each.
    pub block_bytes: u64,
    /// How many live.
    pub blocks: u64,
    /// Bytes of all.
    pub bytes: u64,
    /// Blocks of all sizes that live from that place, of the groups that hold most; null where these are all.
    #[serde(skip)]
    pub of_place: Option<OfPlace>,
    /// Bytes that came with each cycle, on average.
    pub bytes_per_cycle: u64,
}

/// What lives from one place in the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OfPlace {
    /// Blocks of all sizes.
    pub blocks: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Groups are missing, which may be from there.
    pub is_at_least: bool,
}

impl OfPlace {
    /// Of the place of one group; nothing where that is all that lives from there, or where the place is not known.
    fn of(survivors: &Survivors, group: &Group) -> Option<Self> {
        let is_there = |other: &&Group| other.site == group.site && other.api == group.api;
        let (blocks, bytes) = survivors
            .groups
            .iter()
            .filter(is_there)
            .fold((0, 0u64), |(blocks, bytes), other| (blocks + other.blocks, bytes.saturating_add(other.bytes())));
        let is_at_least = survivors.group_count > survivors.groups.len();
        (group.site != 0 && blocks > group.blocks).then_some(OfPlace { blocks, bytes, is_at_least })
    }
}

/// The call path by which most of what came to stay over the last stretch came.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct MostBy {
    /// Function with its line; null where it has no name.
    pub caller: Option<String>,
    #[serde(skip)]
    site_number: u32,
    /// Blocks that came to stay.
    pub blocks: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Blocks that came to stay beside them, in the place of others of their size that went.
    pub replacing_blocks: u64,
    /// Steps over which they came.
    pub steps: usize,
}

impl MostBy {
    /// The name of this call site, where it is that one and has a name.
    pub fn caller_of(&self, site: u32) -> Option<&str> {
        self.caller.as_deref().filter(|_| self.site_number == site)
    }

    fn of(kept: &Kept) -> Option<Self> {
        let OfPath { site, blocks, bytes, replacing_blocks, .. } = kept.path;
        (site != 0 && blocks > 0).then_some(MostBy {
            caller: None,
            site_number: site,
            blocks,
            bytes,
            replacing_blocks,
            steps: kept.steps,
        })
    }
}

/// The growth of one device.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Growth {
    /// Device index.
    pub device: Option<u8>,
    /// It rises where it ends, by enough to be worth a word.
    pub significant: bool,
    /// What it does where it ends.
    pub course: Course,
    /// What a step is: a cycle of live bytes, or what lies between two labels of the program.
    pub by: By,
    /// How many sorts of labels there are: "step 17" and "step 18" are one.
    #[serde(skip)]
    pub sorts: usize,
    /// Steps.
    pub cycles: usize,
    /// Whether what rose was given back behind the last of them.
    #[serde(skip)]
    pub given_back_at_the_end: bool,
    /// Of what stayed over the last stretch, bytes of managed memory, whose pages may lie in RAM.
    pub managed_bytes: u64,
    /// What came before them.
    pub earlier: Earlier,
    /// Steps of the last stretch, in which it is judged.
    pub stretch: usize,
    /// What was held after steps, at most 256 of them.
    pub floors: Vec<Floor>,
    /// Last floor less the first; negative where it fell.
    pub total_bytes: i64,
    /// Rise per second over the last stretch.
    pub per_second: Rate,
    /// Rise per step over the last stretch.
    pub per_cycle: Rate,
    /// It rests on fewer steps than a last stretch has (ten, unless a threshold says otherwise).
    pub few_points: bool,
    /// Whether its steps may be the parts of one load.
    #[serde(skip)]
    pub may_be_a_load: bool,
    /// When what is left would run out; null where it does not rise, or nobody knows what is left.
    pub runs_out: Option<RunsOut>,
    /// Where what stays comes from, the largest first.
    pub suspects: Vec<Suspect>,
    /// By which call path most of it came; null where it does not rise, or no call has a path.
    pub most_by: Option<MostBy>,
}

/// The growth of each device that has steps.
pub fn of_devices(replay: &Replay, thresholds: &Thresholds) -> Vec<Growth> {
    let tracks = replay.tracks.devices();
    let of = |(device, track)| of_device(replay, device, &cycles_of(track, thresholds), thresholds);
    tracks.filter_map(of).collect()
}

/// Names who asked for what stays.
pub fn name_callers(growths: &mut [Growth], stacks: &Stacks<'_>) {
    for most in growths.iter_mut().filter_map(|growth| growth.most_by.as_mut()) {
        let site = stacks.call_site(most.site_number).filter(|site| site.is_named());
        most.caller = site.map(|site| site.label_with_line().unwrap_or_else(|| site.label.clone()));
    }
    for suspect in growths.iter_mut().flat_map(|growth| &mut growth.suspects) {
        let Some(site) = stacks.call_site(suspect.site_number).filter(|site| site.is_named()) else { continue };
        suspect.caller = Some(site.label.clone());
        suspect.key.clone_from(&site.key);
        suspect.ways = stacks.ways_through(suspect.site_number);
    }
}

/// The cycles of a device over the whole run, without the end, where everything is given back.
pub fn cycles_of(track: &DeviceTrack, thresholds: &Thresholds) -> Cycles {
    Cycles::of(&without_end(&track.live, thresholds), thresholds).kept_of(&track.live)
}

/// The turning points of a series without the end of the program.
pub fn without_end(live: &Series, thresholds: &Thresholds) -> Vec<Turn> {
    let mut turns: Vec<Turn> = live.turns().copied().collect();
    let peak = turns.iter().map(|turn| turn.bytes).max().unwrap_or(0);
    while turns.last().is_some_and(|turn| turn.bytes as f64 <= thresholds.end_share * peak as f64) {
        turns.pop();
    }
    turns
}

/// What a device held after each step of the run; `None` for too few steps.
pub fn rise_of(replay: &Replay, device: u8, cycles: &Cycles, thresholds: &Thresholds) -> Option<Rise> {
    let window = replay.tracks.calls.before(replay.tracks.calls.count());
    Rise::of(replay, device, WHOLE_RUN, cycles, (&window.calls, window.from == 0), thresholds)
}

/// The growth of one device; `None` for too few steps.
pub fn of_device(replay: &Replay, device: u8, cycles: &Cycles, thresholds: &Thresholds) -> Option<Growth> {
    Some(of_rise(replay, device, cycles, &rise_of(replay, device, cycles, thresholds)?, thresholds))
}

/// The growth that a rise is.
fn of_rise(replay: &Replay, device: u8, cycles: &Cycles, rise: &Rise, thresholds: &Thresholds) -> Growth {
    let (levels, trend) = (&rise.levels, &rise.trend);
    let stretch = &levels[levels.len() - trend.points.min(levels.len())..];
    let seconds = |level: &Level| replay.clock.at_ns(level.at) as f64 / 1e9;
    let point = |level: &Level| Point { x: seconds(level), y: level.bytes as f64, sort: level.sort };
    let by_time = Slope::of(&stretch.iter().map(point).collect::<Vec<_>>());
    let nothing = Slope { median: 0.0, low: 0.0, high: 0.0 };
    let (per_second, per_cycle) = (Rate::of(&by_time.unwrap_or(nothing)), Rate::of(&trend.slope));
    let significant = rise.is_significant();
    let total = rise.total_bytes();
    Growth {
        device: (device != NO_DEVICE).then_some(device),
        significant,
        course: trend.course,
        by: rise.by,
        sorts: rise.sorts,
        cycles: levels.len(),
        earlier: rise.earlier,
        given_back_at_the_end: rise.given_back_at_the_end,
        managed_bytes: rise.kept.as_ref().map_or(0, |kept| kept.managed_bytes),
        stretch: trend.points,
        floors: floors(replay, levels),
        total_bytes: i64::try_from(total).unwrap_or(if total < 0 { i64::MIN } else { i64::MAX }),
        per_second,
        per_cycle,
        few_points: (levels.len() as u64) < thresholds.stretch_cycles,
        may_be_a_load: rise.may_be_a_load(thresholds),
        // Nobody knows whether a rise that pauses goes on.
        runs_out: if significant && trend.course != Course::Pauses {
            runs_out(replay, device, rise, cycles.unbroken(), &per_second, &per_cycle)
        } else {
            None
        },
        suspects: if significant { suspects(replay, device, levels.len(), thresholds) } else { Vec::new() },
        most_by: rise.kept.as_ref().filter(|_| significant).and_then(MostBy::of),
    }
}

fn floors(replay: &Replay, levels: &[Level]) -> Vec<Floor> {
    let every = levels.len().div_ceil(MOST_POINTS);
    // Counted from the end, so that the last floor is there.
    let chosen = levels.iter().enumerate().filter(|(number, _)| (levels.len() - 1 - number).is_multiple_of(every));
    chosen.map(|(_, level)| Floor { at_ns: replay.clock.at_ns(level.at), bytes: level.bytes }).collect()
}

/// By how much what was held rises above its level within each step of the last stretch.
fn heights_of(replay: &Replay, device: u8, rise: &Rise, steps: &[Cycle]) -> Vec<u64> {
    if rise.by == By::Cycles {
        return steps.iter().map(Cycle::fall_bytes).collect();
    }
    // A great swing far off is no part of what lies between two labels.
    let Some(track) = replay.tracks.device(device) else { return Vec::new() };
    let stretch = &rise.levels[rise.levels.len() - rise.trend.points.min(rise.levels.len())..];
    let height = |pair: &[Level]| {
        let inside = track.live.turns().filter(|turn| turn.at > pair[0].at && turn.at <= pair[1].at);
        inside.map(|turn| turn.bytes).max().map_or(0, |most| most.saturating_sub(pair[1].bytes))
    };
    stretch.windows(2).map(height).collect()
}

/// Whether each of the last third of the heights is above all of the first third.
fn become_higher(heights: &[u64]) -> bool {
    let third = heights.len() / 3;
    let [first, last] = [&heights[..third], &heights[heights.len() - third..]];
    first.iter().max().zip(last.iter().min()).is_some_and(|(first, last)| last > first)
}

/// What is left above the last floor and a step's height, and the ticks when it was read, where it was.
fn room(replay: &Replay, device: u8, rise: &Rise, steps: &[Cycle]) -> Option<(u64, Option<u64>)> {
    let mut heights = heights_of(replay, device, rise, steps);
    // Where the steps rise higher and higher themselves, as those of a block that is copied into a larger one, the rate of what stays is not
    // that of what is needed.
    if become_higher(&heights) {
        return None;
    }
    heights.sort_unstable();
    let height = heights.get(heights.len() / 2).copied().unwrap_or(0);
    // What came behind the last step and is still held takes room, too.
    let held = replay.accounts.device(device).map_or(0, |account| saturate(account.held.requested_bytes));
    let needed = rise.levels.last()?.bytes.saturating_add(height).max(held);
    let read = replay.tracks.device(device).and_then(|track| track.reads.last).filter(|read| !read.is_disturbed);
    // All that the program could hold at that moment: what it held, and what was free.
    let by_reading =
        read.and_then(|read| Some((read.least_free_bytes()?.saturating_add(read.held_bytes), Some(read.at))));
    let is_managed = replay.accounts.device(device).is_some_and(|account| account.managed.blocks > 0);
    let by_size = || Some((replay.accounts.total_bytes(device).filter(|_| !is_managed)?, None));
    let (could_hold, read_at) = by_reading.or_else(by_size)?;
    Some((could_hold.saturating_sub(needed), read_at))
}

fn runs_out(replay: &Replay, device: u8, rise: &Rise, steps: &[Cycle], time: &Rate, cycle: &Rate) -> Option<RunsOut> {
    // Nobody tells how much of managed memory lies on the card: where it may be what rises, nothing is foretold.
    let managed = replay.accounts.device(device).map_or(0, |account| account.managed.requested_bytes);
    if managed > 0 && rise.kept.as_ref().is_none_or(|kept| kept.managed_bytes > 0) {
        return None;
    }
    let (room_bytes, read_at) = room(replay, device, rise, steps)?;
    let lasts = |rate: f64| (rate > 0.0).then(|| room_bytes as f64 / rate);
    let ns = |seconds: f64| (seconds * 1e9) as u64;
    Some(RunsOut {
        room_bytes,
        room_read_at_ns: read_at.map(|at| replay.clock.at_ns(at)),
        room_was_read: read_at.is_some(),
        in_ns: ns(lasts(time.bytes)?),
        soonest_ns: ns(lasts(time.high)?),
        latest_ns: lasts(time.low).map(ns),
        in_cycles: lasts(cycle.bytes)?,
        soonest_cycles: lasts(cycle.high)?,
        latest_cycles: lasts(cycle.low),
    })
}

/// Origins of blocks that live at the last failure of the device, or at the end, and were given all along the way.
fn suspects(replay: &Replay, device: u8, steps: usize, thresholds: &Thresholds) -> Vec<Suspect> {
    let at_failure = replay.tracks.around.listed().iter().rev().find(|around| around.device == device);
    let survivors = match at_failure.and_then(|around| around.survivors.as_deref().cloned()) {
        Some(survivors) => survivors,
        None => Survivors::of(
            replay.blocks_of(Side::Device, device),
            &replay.sites,
            replay.tracks.first_at(),
            replay.last_at,
        ),
    };
    let least = thresholds.suspect_share * STRETCHES.min(steps) as f64;
    let grows = survivors.groups.iter().filter(|group| group.stretches() as f64 >= least);
    grows
        .take(MOST_SUSPECTS)
        .map(|group| Suspect {
            api: replay.apis.get(group.api).name.clone(),
            site: replay.sites.address(group.site).map(|address| format!("{address:#x}")),
            caller: None,
            key: String::new(),
            ways: Vec::new(),
            site_number: group.site,
            block_bytes: group.block_bytes,
            blocks: group.blocks,
            bytes: group.bytes(),
            of_place: OfPlace::of(&survivors, group),
            bytes_per_cycle: group.bytes() / (steps as u64).max(1),
        })
        .collect()
}
