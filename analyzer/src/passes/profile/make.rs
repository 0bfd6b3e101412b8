//! The profile of a trace, from its replay.

use std::collections::BTreeMap;

use gpuoom_trace::outcome::Outcome;
use gpuoom_trace::reader::TraceFile;
use gpuoom_trace::record::{Kind, NO_DEVICE};

use super::figures::{Figure, Figures};
use super::rising::{BlockGrowth, LabelGrowth};
use super::script::script;
use super::sites::{Sites, file_name};
use super::tensors::tensors;
use super::unsaid::unsaid;
use super::{InUse, KnownBy, MarkProfile, Place, PlaceProfile, Profile, Run, SiteName, SiteProfile};
use crate::machine::Machine;
use crate::passes::facts;
use crate::passes::fragmentation::saturate;
use crate::passes::growth::{self, Growth, cycles_of};
use crate::passes::ledger::source_name;
use crate::passes::libraries::Libraries;
use crate::passes::rise::cycles_behind;
use crate::passes::tensor_growth::{self, OfLabels, TensorGrowth};
use crate::passes::trend::Course;
use crate::replay::Replay;
use crate::replay::account::{Account, Calls};
use crate::replay::block::Side;
use crate::replay::census::Census;
use crate::replay::failures::{Oom, RefusedBy};
use crate::software::torch_version;
use crate::symbols::SymbolPlaces;
use crate::thresholds::{Change, Thresholds};
use crate::words;

/// The format's version since which CUDA contexts are followed (FORMAT.md).
const CONTEXTS_SINCE: (u16, u16) = (1, 2);

/// The numbers of call sites while they are put together.
type Rows = BTreeMap<(Place, Kind, SiteName), Figures>;

/// The profile of a trace that was replayed to its end, with tallies kept ([`crate::replay::accounts::Accounts::keep_tallies`]).
/// Functions are named by what is found in `symbols`;
/// `thresholds` are those of [`super::THRESHOLDS`] that the user set.
pub fn profile(trace: &TraceFile, replay: &Replay, symbols: &SymbolPlaces, thresholds: &Thresholds) -> Profile {
    let mut sites = Sites::new(trace, replay, symbols);
    let devices = replay.accounts.devices().map(|(device, account)| (Place::of_device(device), device, account));
    let accounts: BTreeMap<Place, (u8, &Account)> = devices
        .chain(Some((Place::Host, NO_DEVICE, &replay.accounts.host)))
        .filter(|(_, _, account)| account.calls != Calls::default())
        .map(|(place, device, account)| (place, (device, account)))
        .collect();
    let mut rows = Rows::new();
    for (place, (device, account)) in &accounts {
        add_account(&mut rows, &mut sites, replay, *place, *device, account);
    }
    for oom in &replay.failures.listed {
        add_oom(rows.entry((place_of(oom), oom.kind, sites.name(oom.api, oom.site))).or_default(), oom.outcome);
    }
    let mut sums: BTreeMap<Place, Figures> = accounts.keys().map(|place| (*place, Figures::default())).collect();
    rows.iter().for_each(|((place, ..), row)| sums.entry(*place).or_default().add(row));
    let libraries = Libraries::new(trace, replay);
    let places = sums.into_iter().map(|(place, figures)| {
        let facts = trace.metadata.devices.iter().find(|facts| Place::Gpu(facts.index) == place);
        let name = facts.map(|facts| facts.name.clone()).filter(|name| !name.is_empty());
        let growth = growth_of(replay, place, thresholds);
        let may_be_a_load = growth.as_ref().is_some_and(|growth| growth.may_be_a_load && growth.course.rises());
        let growth = growth.filter(|_| !may_be_a_load);
        PlaceProfile {
            place,
            name,
            figures,
            most_in_use: most_in_use(replay, &libraries, place),
            growth_per_second: growth.as_ref().map(growth_per_second),
            unsaid: growth.as_ref().and_then(|growth| unsaid(replay, place, growth, thresholds)),
            open_growth_per_second: growth.as_ref().and_then(open_growth_per_second),
            given_back_at_the_end: growth.is_some_and(|growth| growth.given_back_at_the_end),
            may_be_a_load,
            cycles_are_missing: cycles_are_missing(replay, place, thresholds),
            marks: marks(replay, place),
            cycles_behind_marks: cycles_behind_marks(replay, place, thresholds),
            trend_limits: thresholds.trend_limits(),
        }
    });
    let places = places.collect();
    let sites_known_by = rows.keys().map(|(_, _, name)| name.known_by()).max().unwrap_or_default();
    let sites_of_calls =
        rows.into_iter().map(|((place, kind, name), figures)| SiteProfile { place, kind, name, figures });
    let thresholds_set = thresholds.changes().iter().map(Change::words).collect();
    let growth_run = tensor_growth::Run { replay, stacks: sites.stacks(), is_whole: trace.is_whole(), thresholds };
    Profile {
        run: Run { sites_known_by, thresholds_set, ..run(trace, replay) },
        places,
        sites: sites_of_calls.collect(),
        tensors: tensors(replay, &sites, trace.is_whole()),
        block_growth: block_growth(&growth_run),
        label_growth: label_growth(&growth_run),
    }
}

fn run(trace: &TraceFile, replay: &Replay) -> Run {
    let header = &trace.header;
    let listed = &replay.failures.listed;
    let has_cuda = trace.metadata.devices.iter().any(|facts| facts.runtime == "cuda");
    let (end, exit_code, signal) = replay.end.parts();
    Run {
        path: trace.path().display().to_string(),
        format_version: format!("{}.{}", header.major, header.minor),
        executable: file_name(&trace.metadata.process.executable).to_owned(),
        script: script(&trace.metadata.process.executable, &trace.metadata.process.command_line),
        rank: facts::rank(&trace.metadata.process),
        pid: header.pid,
        end,
        exit_code,
        signal,
        duration_ns: replay.clock.at_ns(replay.last_at),
        events: replay.events,
        events_lost: header.events_lost.saturating_add(header.torn),
        damages: trace.damages().len(),
        granularity_bytes: replay.granularity_bytes,
        ooms_not_listed: replay.failures.count.saturating_sub(listed.len() as u64),
        injected: listed.iter().filter(|oom| oom.refused_by == RefusedBy::Injected).count() as u64,
        follows_contexts: (header.major, header.minor) >= CONTEXTS_SINCE || !has_cuda,
        software: software(trace),
        sites_known_by: KnownBy::default(),
        thresholds_set: Vec::new(),
    }
}

/// What may behave otherwise in another version: runtimes, frameworks, drivers, the kernel.
fn software(trace: &TraceFile) -> BTreeMap<&'static str, String> {
    let machine = Machine::of_trace(trace);
    let runtimes = trace.metadata.devices.iter().filter(|facts| facts.runtime_version > 0).map(|facts| {
        let name = Some(facts.runtime.as_str());
        (words::runtime(name), words::runtime_version(name, facts.runtime_version))
    });
    let others = [
        ("PyTorch", torch_version(&trace.metadata.machine.files).map(str::to_owned)),
        ("NVIDIA's driver", machine.nvidia_driver),
        ("amdgpu", machine.amdgpu_version),
        ("the kernel", machine.kernel),
    ];
    runtimes.chain(others.into_iter().filter_map(|(name, version)| Some((name, version?)))).collect()
}

fn place_of(oom: &Oom) -> Place {
    match Side::of(oom.kind) {
        Side::Host if !oom.unknown_size => Place::Host,
        _ => oom.device.map_or(Place::UnknownGpu, Place::Gpu),
    }
}

fn add_account(rows: &mut Rows, sites: &mut Sites<'_>, replay: &Replay, place: Place, device: u8, account: &Account) {
    let side = if place == Place::Host { Side::Host } else { Side::Device };
    for (caller, asked) in account.tally.iter().flat_map(|tally| tally.callers()) {
        let row = rows.entry((place, caller.kind, sites.name(caller.api, caller.site))).or_default();
        add(row, Figure::Allocations, asked.allocations);
        // What still lives at the end is taken off below.
        add(row, Figure::Frees, asked.allocations);
        add(row, Figure::Allocated, saturate(asked.requested_bytes));
        add(row, Figure::Failures, asked.failures);
    }
    let at_peak = account.blocks_at_peak(replay.blocks_of(side, device));
    let at_peak = Census::take(at_peak.iter(), Vec::new()).own;
    let at_end = Census::take(replay.blocks_of(side, device), Vec::new()).own;
    for (callers, [bytes, padded, blocks], live) in [
        (at_peak, [Figure::Peak, Figure::PaddedPeak, Figure::PeakBlocks], false),
        (at_end, [Figure::End, Figure::PaddedEnd, Figure::EndBlocks], true),
    ] {
        for (caller, held) in callers {
            let row = rows.entry((place, caller.kind, sites.name(caller.api, caller.site))).or_default();
            add(row, bytes, saturate(held.requested_bytes));
            add(row, padded, held.granules.saturating_mul(replay.granularity_bytes));
            add(row, blocks, held.blocks);
            if live {
                row[Figure::Frees] = row[Figure::Frees].saturating_sub(held.blocks);
            }
        }
    }
}

fn add(row: &mut Figures, figure: Figure, number: u64) {
    row[figure] = row[figure].saturating_add(number);
}

fn add_oom(row: &mut Figures, outcome: Outcome) {
    let of_outcome = match outcome {
        Outcome::Recovered => Figure::Recovered,
        Outcome::Propagated => Figure::Propagated,
        Outcome::Dropped => Figure::Dropped,
        Outcome::Unresolved => Figure::Unresolved,
    };
    add(row, Figure::Ooms, 1);
    add(row, of_outcome, 1);
}

fn block_growth(run: &tensor_growth::Run<'_>) -> Vec<BlockGrowth> {
    let growths = run.of_devices();
    // What a load gives stays, and is no growth from step to step.
    let is_of_steps = |growth: &&TensorGrowth| !growth.may_be_a_load(run.thresholds) && !growth.lies_within_steps;
    let of_steps = growths.iter().filter(is_of_steps);
    of_steps.filter_map(|growth| BlockGrowth::of(run, growth)).collect()
}

fn label_growth(run: &tensor_growth::Run<'_>) -> Vec<LabelGrowth> {
    let devices = run.replay.accounts.devices().map(|(device, _)| device);
    let of = |device: u8| {
        let place = if device == NO_DEVICE { Place::UnknownGpu } else { Place::Gpu(device) };
        OfLabels::of(run, device).into_iter().map(move |of| LabelGrowth { place, of })
    };
    devices.flat_map(of).collect()
}

/// What runtime, libraries, driver and other processes take is in no figure of the program's calls: readings have it.
fn most_in_use(replay: &Replay, libraries: &Libraries<'_>, place: Place) -> Option<InUse> {
    let Place::Gpu(device) = place else { return None };
    let read = replay.comparisons.get(&device)?.fullest?.in_use;
    let by = source_name(libraries, device, read.source);
    Some(InUse { bytes: read.bytes, by, of_process: read.of_process })
}

fn growth_of(replay: &Replay, place: Place, thresholds: &Thresholds) -> Option<Growth> {
    let Place::Gpu(device) = place else { return None };
    let track = replay.tracks.device(device)?;
    growth::of_device(replay, device, &cycles_of(track, thresholds), thresholds)
}

fn growth_per_second(growth: &Growth) -> f64 {
    let rate = growth.per_second.bytes;
    // What is over, or no more than noise, is no growth.
    if growth.course.rises() { rate } else { rate.min(0.0) }
}

/// What rises as it did before it was given back may or may not be given back again.
fn open_growth_per_second(growth: &Growth) -> Option<f64> {
    let is_open = growth.course == Course::GivenBack && !growth.given_back_at_the_end;
    Some(growth.per_second.bytes).filter(|rate| is_open && *rate > 0.0)
}

/// Whether memory rose and fell too often to keep it all.
fn cycles_are_missing(replay: &Replay, place: Place, thresholds: &Thresholds) -> bool {
    let Place::Gpu(device) = place else { return false };
    replay.tracks.device(device).is_some_and(|track| cycles_of(track, thresholds).whole_since > 0)
}

/// How much of the run came when the program had stopped to label it.
fn cycles_behind_marks(replay: &Replay, place: Place, thresholds: &Thresholds) -> usize {
    let Place::Gpu(device) = place else { return 0 };
    let last = replay.tracks.marks.without_gap().last();
    let Some((mark, track)) = last.zip(replay.tracks.device(device)) else { return 0 };
    cycles_behind(cycles_of(track, thresholds).unbroken(), mark.at)
}

/// What a device held at each mark; nothing before its first block.
fn marks(replay: &Replay, place: Place) -> Vec<MarkProfile> {
    let Place::Gpu(device) = place else { return Vec::new() };
    let held = |held: &[(u8, u64)]| held.iter().find(|(known, _)| *known == device).map_or(0, |(_, bytes)| *bytes);
    let marks = replay.tracks.marks.without_gap();
    marks.map(|mark| MarkProfile { label: mark.label.clone(), held_bytes: held(&mark.held_bytes) }).collect()
}
