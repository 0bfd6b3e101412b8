//! What is known of a run up to one failure, as shapes need it: cycles, repetition, the load and what came behind it.

use std::collections::BTreeMap;

use gpuoom_trace::record::NO_DEVICE;
use rustc_hash::FxHashMap;

use super::cycles::Cycles;
pub(crate) use super::labels::ends_the_load;
use super::labels::names_a_batch;
use super::of_blocks::OfBlocks;
use super::paths::{Named, Thing};
use super::repetition::Repetition;
use crate::judgement::check::Holds;
use crate::passes::fit::rank_correlation;
pub use crate::passes::phase::Phase;
use crate::passes::rise::{By, Rise};
use crate::passes::stays::Stays;
use crate::replay::Replay;
use crate::replay::block::Side;
use crate::replay::failures::Oom;
use crate::replay::tracks::around::Around;
use crate::replay::tracks::calls::{Call, LAST, What};
use crate::replay::tracks::series::Turn;
use crate::thresholds::{Thresholds, share};

/// What PyTorch's allocator asks its segments in, in bytes.
const SEGMENT_BYTES: u64 = 2 << 20;

/// The last label before a failure.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Marked {
    /// The label.
    pub label: String,
    /// What it says.
    pub phase: Option<Phase>,
    /// Kernel thread id of who said so: it says nothing of what other threads do.
    pub thread: u32,
    /// Ticks.
    pub at: u64,
}

/// How the end of the load was told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Told {
    /// By a label.
    Mark,
    /// By a pause of so many times the median one.
    Pause(u64),
}

/// Calls behind the load beside those of the load.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Matching {
    /// Share of the load's blocks whose size comes again.
    pub once: f64,
    /// Share of the load's blocks whose size comes again twice.
    pub twice: f64,
    /// Rank correlation of the places in the load and behind it; `None` where sizes are too much alike to tell.
    pub order: Option<f64>,
    /// Bytes of those that came again.
    pub bytes: u64,
}

/// What is known up to one failure.
#[derive(Clone, Debug)]
pub struct Facts {
    /// Bytes that were asked for.
    pub requested_bytes: u64,
    /// Ticks of the failure.
    pub at: u64,
    /// Kernel thread id.
    pub thread: u32,
    /// Bytes that lived on the device.
    pub held_bytes: u64,
    /// Cycles before it.
    pub cycles: Cycles,
    /// Repetition up to it.
    pub repetition: Option<Repetition>,
    /// The calls before it on its device.
    pub calls: Vec<Call>,
    /// Whether these are all since the program began.
    pub from_beginning: bool,
    /// The last label.
    pub marked: Option<Marked>,
    /// Ticks of the first label that says the same as the last.
    pub phase_since: Option<u64>,
    /// Whether a label before it names a batch, or a phase that a training has.
    pub names_a_training: bool,
    /// What the way to the call names.
    pub path: Vec<Named>,
    /// What PyTorch's blocks tell, where they do.
    pub told: Option<OfBlocks>,
    /// Call site, 0 where it is not known.
    pub site: u32,
    /// What was held after each step before, where there were enough of them.
    pub rise: Option<Rise>,
    /// Whether blocks of allocators above the runtime that stay become more from step to step; `None` where they tell nothing of it.
    pub keeps_more_blocks: Option<Holds>,
    /// How much of what lives is of the call paths that still rise there, where that is known.
    pub stays: Option<Stays>,
    /// Index of the first call behind the load, and how that was told.
    pub load_end: Option<(usize, Told)>,
    /// Ticks of the first large free, if that was before.
    pub large_free_at: Option<u64>,
    /// Whether the calls look like those of an allocator that asks for whole segments of 2 MiB.
    pub are_segments: bool,
    /// Physical memory (VMM) that was created on the device, in bytes.
    pub vmm_bytes: u64,
    /// Cycles since the last label.
    pub since_mark: Cycles,
    /// Ticks that a pause between bursts takes at least.
    pub pause_ticks: u64,
    /// Ticks that a gathered part lives at most.
    pub short_ticks: u64,
    /// The numbers by which its shapes are judged.
    pub thresholds: Thresholds,
}

impl Facts {
    /// What is known up to a failure; `None` where it is not of a device, or not described.
    pub fn of(replay: &Replay, index: usize, oom: &Oom, thresholds: &Thresholds) -> Option<Self> {
        let tracks = &replay.tracks;
        let around = tracks.around.failure(index)?;
        let device = around.device;
        let track = tracks.device(device).filter(|_| Side::of(oom.kind) == Side::Device || oom.unknown_size)?;
        let window = tracks.calls.before(around.calls_before);
        // A refused call may have begun before what other threads did until it was refused.
        let until = window.calls.iter().map(|call| call.at).max().map_or(oom.at, |last| last.max(oom.at));
        let now = Turn { at: until, bytes: around.held_bytes, largest_request_bytes: 0 };
        let turns: Vec<Turn> = track.live.turns().take_while(|turn| turn.at <= until).copied().chain([now]).collect();
        let on_device = window.calls.iter().filter(|call| call.device == device || call.device == NO_DEVICE);
        // A call is the same one by whichever way it was reached.
        let calls: Vec<Call> = on_device.map(|call| Call { site: replay.sites.place(call.site), ..*call }).collect();
        let mark = tracks.marks.before(oom.at);
        let is_behind =
            |label: &str| ends_the_load(label) || Phase::of(label).is_some_and(|phase| phase != Phase::Load);
        let first = tracks.marks.listed().iter().find(|mark| is_behind(&mark.label));
        let labelled = first.filter(|mark| mark.at <= oom.at);
        let at_label = labelled.map(|mark| (calls.partition_point(|call| call.at < mark.at), Told::Mark));
        // A backward pass or an evaluation is not the first that comes behind a load.
        let is_next = |label: &str| ends_the_load(label) || Phase::of(label) == Some(Phase::Forward);
        let pause_ticks = ticks_of(replay, thresholds.least_pause_ns);
        let load_end = match (labelled, at_label) {
            (Some(mark), Some(at_label)) if is_next(&mark.label) => Some(at_label),
            (_, at_label) => {
                let until = at_label.map_or(calls.len(), |(place, _)| place);
                longest_pause(&calls[..until], pause_ticks, thresholds).or(at_label)
            }
        };
        let since = mark.map_or(0, |mark| turns.partition_point(|turn| turn.at < mark.at));
        let of_thread: Vec<Call> = calls[calls.len().saturating_sub(LAST)..]
            .iter()
            .filter(|call| call.thread == oom.thread && call.what != What::Refused)
            .copied()
            .collect();
        let phase = mark.and_then(|mark| Phase::of(&mark.label));
        let same = |label: &str| phase.is_some() && Phase::of(label) == phase;
        let cycles = Cycles::of(&turns, thresholds).kept_of(&track.live);
        let known = (&window.calls[..], window.from == 0);
        let rise = Rise::of(replay, device, until, &cycles, known, thresholds);
        Some(Facts {
            requested_bytes: oom.requested_bytes,
            at: oom.at,
            thread: oom.thread,
            held_bytes: around.held_bytes,
            names_a_training: tracks
                .marks
                .listed()
                .iter()
                .any(|mark| mark.at <= oom.at && names_a_training(&mark.label)),
            phase_since: tracks.marks.listed().iter().find(|mark| same(&mark.label)).map(|mark| mark.at),
            path: Vec::new(),
            told: None,
            keeps_more_blocks: None,
            site: replay.sites.place(oom.site),
            stays: rise.as_ref().and_then(|rise| stays(replay, around, rise)),
            rise,
            cycles,
            repetition: Repetition::of(&of_thread, thresholds),
            are_segments: are_segments(&calls, thresholds),
            from_beginning: window.from == 0,
            marked: mark.map(|mark| Marked { label: mark.label.clone(), phase, thread: mark.thread, at: mark.at }),
            load_end: load_end.filter(|_| window.from == 0),
            large_free_at: track.first_large_free_at.filter(|at| *at <= until),
            vmm_bytes: track.vmm_created_bytes,
            since_mark: Cycles::of(turns.get(since..).unwrap_or(&[]), thresholds),
            pause_ticks,
            short_ticks: ticks_of(replay, thresholds.gathered_for_ns),
            thresholds: *thresholds,
            calls,
        })
    }

    /// Steps that were completed before, by what tells more of them.
    pub fn steps(&self) -> usize {
        self.cycles.steps().len().max(self.repetition.map_or(0, |repetition| repetition.times))
    }

    /// Steps that labels of the program tell, where they name no pieces of something.
    pub fn labelled_steps(&self) -> usize {
        let labelled = self.rise.as_ref().filter(|rise| rise.by == By::Marks && !rise.are_pieces);
        labelled.map_or(0, |rise| rise.levels.len())
    }

    /// Great cycles that were completed before the phase that the last label names, or all where it names none.
    pub fn steps_before_phase(&self) -> usize {
        let until = self.phase_since.unwrap_or(u64::MAX);
        self.cycles.main.iter().filter(|cycle| cycle.to.at <= until).count()
    }

    /// Ticks when the first cycle began.
    pub fn cycles_began_at(&self) -> u64 {
        self.cycles.steps().first().map_or(0, |cycle| cycle.from.at)
    }

    /// Whether functions of frameworks and the ways of PyTorch's blocks tell of the phases, where sizes need not.
    pub fn is_by_frames(&self) -> bool {
        let by_path =
            self.path.first().is_some_and(|named| named.is_frameworks && matches!(named.thing, Thing::Phase(_)));
        by_path && self.told.is_some()
    }

    /// What the last label says.
    pub fn phase(&self) -> Option<Phase> {
        self.marked.as_ref().filter(|mark| mark.thread == self.thread).and_then(|mark| mark.phase)
    }

    /// Sizes of the load's blocks beside those behind it.
    pub fn matching(&self) -> Option<Matching> {
        let (end, _) = self.load_end?;
        let given = |calls: &[Call]| -> Vec<u64> {
            calls.iter().filter(|call| call.what == What::Given).map(|call| call.bytes).collect()
        };
        let (load, behind) = self.calls.split_at_checked(end)?;
        let mut behind = given(behind);
        behind.push(self.requested_bytes);
        matching(&given(load), &behind)
    }

    /// Sizes of the blocks that lived at the last floor beside those that were asked for behind it.
    pub fn matching_since_floor(&self) -> Option<Matching> {
        let floor = self.cycles.open_from.at;
        let place = self.calls.partition_point(|call| call.at <= floor);
        let (before, behind) = self.calls.split_at_checked(place)?;
        let mut behind: Vec<u64> =
            behind.iter().filter(|call| call.what == What::Given).map(|call| call.bytes).collect();
        behind.push(self.requested_bytes);
        matching(&alive(before).iter().map(|call| call.bytes).collect::<Vec<_>>(), &behind)
    }

    /// The largest request that was given before the cycle that failed, in bytes.
    pub fn largest_before(&self) -> u64 {
        let all = self.cycles.main.iter().chain(&self.cycles.tail);
        all.map(super::cycles::Cycle::largest_request_bytes).max().unwrap_or(0)
    }

    /// The other call paths of the cycle that failed which were given blocks before, and how many of them were given a larger one than ever
    /// before: a longer batch makes each of its activations larger.
    pub fn grown_paths(&self) -> (usize, usize) {
        let began = self.cycles.open_from.at;
        let mut largest: FxHashMap<u32, [u64; 2]> = FxHashMap::default();
        let given =
            self.calls.iter().filter(|call| call.what == What::Given && call.site != 0 && call.site != self.site);
        for call in given {
            let known = &mut largest.entry(call.site).or_default()[usize::from(call.at > began)];
            *known = call.bytes.max(*known);
        }
        let again = || largest.values().filter(|[before, now]| *before > 0 && *now > 0);
        (again().count(), again().filter(|[before, now]| now > before).count())
    }

    /// The largest request that was refused before it and after the first cycle began; nothing where none was.
    pub fn largest_refused_before(&self) -> Option<u64> {
        let (from, until) = (self.cycles_began_at(), self.cycles.open_from.at);
        let refused = self.calls.iter().filter(|call| call.what == What::Refused && (from..=until).contains(&call.at));
        refused.map(|call| call.bytes).max()
    }
}

/// Whether a label names a batch, or a phase that a training has and nothing else.
fn names_a_training(label: &str) -> bool {
    let phase =
        Phase::of(label).is_some_and(|phase| matches!(phase, Phase::Forward | Phase::Backward | Phase::Optimizer));
    phase || names_a_batch(label)
}

/// What lives at a failure of the call paths that rise up to it.
fn stays(replay: &Replay, around: &Around, rise: &Rise) -> Option<Stays> {
    let kept = rise.kept.as_ref()?;
    let held = (around.held_bytes, around.live_blocks);
    let survivors = around.survivors.as_deref();
    Some(Stays::of((kept.steps, &kept.rising), rise.is_covered(), survivors, held, &replay.sites))
}

/// Ticks of a time by the clock of the trace.
fn ticks_of(replay: &Replay, time_ns: u64) -> u64 {
    let ns = replay.clock.duration_ns(1 << 32).max(1);
    u64::try_from(u128::from(time_ns) * (1 << 32) / u128::from(ns)).unwrap_or(u64::MAX)
}

/// The calls that gave blocks which still live behind the last of them, in their order.
pub(super) fn alive(calls: &[Call]) -> Vec<&Call> {
    let mut live: FxHashMap<u64, usize> = FxHashMap::default();
    for (place, call) in calls.iter().enumerate() {
        match call.what {
            What::Given => _ = live.insert(call.address, place),
            What::Returned => _ = live.remove(&call.address),
            What::Refused => {}
        }
    }
    let mut places: Vec<usize> = live.into_values().collect();
    places.sort_unstable();
    places.into_iter().map(|place| &calls[place]).collect()
}

/// The place behind the longest pause, if it is long and has bursts on both sides. Before it nothing large is given back.
fn longest_pause(calls: &[Call], least_ticks: u64, thresholds: &Thresholds) -> Option<(usize, Told)> {
    let pauses: Vec<u64> = calls.windows(2).map(|pair| pair[1].at.saturating_sub(pair[0].at)).collect();
    let mut sorted = pauses.clone();
    sorted.sort_unstable();
    let median = (*sorted.get(sorted.len() / 2)?).max(1);
    let freed = calls.iter().position(|call| call.what == What::Returned).unwrap_or(calls.len());
    let burst = usize::try_from(thresholds.burst_calls).unwrap_or(usize::MAX);
    let inside = pauses.iter().enumerate().take(freed).skip(burst.saturating_sub(1));
    let (place, pause) = inside.max_by_key(|(place, pause)| (**pause, std::cmp::Reverse(*place)))?;
    let is_long = *pause >= thresholds.pause_factor.saturating_mul(median) && *pause >= least_ticks;
    is_long.then_some((place + 1, Told::Pause(pause / median)))
}

/// Whether nearly all requests are whole segments of 2 MiB. Those to a stream-ordered pool are none: it is itself the cache, and PyTorch
/// asks it for each tensor (`backend:cudaMallocAsync`).
pub(super) fn are_segments(calls: &[Call], thresholds: &Thresholds) -> bool {
    let given = calls.iter().filter(|call| call.what == What::Given);
    let is_whole = |call: &Call| !call.is_of_pool && call.bytes.is_multiple_of(SEGMENT_BYTES);
    let (all, whole) = given.fold((0, 0), |(all, whole), call| (all + 1, whole + u64::from(is_whole(call))));
    all >= thresholds.burst_calls && share(whole, all) >= thresholds.segments_share
}

fn matching(load: &[u64], behind: &[u64]) -> Option<Matching> {
    if load.is_empty() {
        return None;
    }
    let places = |sizes: &[u64]| {
        let mut places: BTreeMap<u64, Vec<f64>> = BTreeMap::new();
        (0..).zip(sizes).for_each(|(place, size)| places.entry(*size).or_default().push(f64::from(place as u32)));
        places
    };
    let (load_places, behind_places) = (places(load), places(behind));
    let (mut once, mut twice, mut bytes, mut pairs) = (0, 0, 0u64, Vec::new());
    for (size, wanted) in &load_places {
        let Some(found) = behind_places.get(size) else { continue };
        let common = wanted.len().min(found.len());
        once += common;
        twice += wanted.len().min(found.len() / 2);
        bytes = bytes.saturating_add(size.saturating_mul(common as u64));
        // Which of equal blocks belongs to which nobody knows: their mean places stand for all.
        let mean = |places: &[f64]| places.iter().sum::<f64>() / places.len() as f64;
        pairs.extend(std::iter::repeat_n((mean(wanted), mean(found)), common));
    }
    let share = |count: usize| count as f64 / load.len() as f64;
    Some(Matching { once: share(once), twice: share(twice), order: rank_correlation(&pairs), bytes })
}
