//! What only several runs together can show: memory that stays on a card after each of them, and a setting that decides
//! whether a program fails.

use crate::catalogue;
use crate::conclusion::Summary;
use crate::passes::device::DeviceSummary;
use crate::words::{count, size};

use crate::conclusion::finding::Finding;
use crate::conclusion::remedies;
use crate::diagnosis::Judged;
use crate::judgement::check::{Check, Confidence, Holds, Judgement};
use crate::thresholds::MIB;

const SDMA: &str = "HSA_ENABLE_SDMA";

/// One run of several.
#[derive(Clone, Copy)]
pub struct Run<'a> {
    /// Its report.
    pub summary: &'a Summary,
    /// When it began, in nanoseconds since the first began.
    pub began_at_ns: u64,
    /// Its last sign of life.
    pub ended_at_ns: u64,
}

/// Diagnoses over several runs.
pub fn diagnose(runs: &[Run<'_>]) -> Vec<Finding> {
    let mut found = stranded(runs);
    found.extend(sdma(runs));
    found
}

/// The floor of a card stays up after each run.
fn stranded(runs: &[Run<'_>]) -> Vec<Finding> {
    let mut places: Vec<(&str, &str)> =
        runs.iter().flat_map(|run| cards(run.summary)).map(|(place, _)| place).collect();
    places.sort_unstable();
    places.dedup();
    places.into_iter().filter_map(|place| stranded_on(runs, place)).collect()
}

/// The cards of a run whose place on the bus is known: host and place, and what was read there.
fn cards(summary: &Summary) -> impl Iterator<Item = ((&str, &str), &DeviceSummary)> {
    let host = summary.facts.process.hostname.as_str();
    let placed = |device: &'_ DeviceSummary| device.runtime.as_deref() == Some("hip") && device.pci_bus_id.is_some();
    let devices = summary.facts.devices.iter().filter(move |device| placed(device));
    devices.map(move |device| ((host, device.pci_bus_id.as_deref().unwrap_or_default()), device))
}

fn stranded_on(runs: &[Run<'_>], place: (&str, &str)) -> Option<Finding> {
    let mut floors: Vec<(Run<'_>, u64, Option<u64>)> = runs
        .iter()
        .filter_map(|run| {
            let (_, device) = cards(run.summary).find(|(other, _)| *other == place)?;
            Some((*run, device.used_at_start_bytes?, device.others_at_start_bytes))
        })
        .collect();
    floors.sort_by_key(|(run, ..)| run.began_at_ns);
    // Only one after the other: what another run holds at the same time is no floor.
    let apart = floors.windows(2).all(|pair| pair[0].0.ended_at_ns <= pair[1].0.began_at_ns);
    let mut check = Check::default();
    let thresholds = &floors.first()?.0.summary.facts.thresholds;
    if !check.applies(floors.len() as u64 >= thresholds.runs_of_a_card.max(2) && apart) {
        return None;
    }
    let per_run = thresholds.stranded_per_run_bytes;
    let rises = |pair: &[(Run<'_>, u64, Option<u64>)]| pair[1].1 >= pair[0].1.saturating_add(per_run);
    let (first, last) = (floors.first()?.1, floors.last()?.1);
    check.must(floors.windows(2).all(rises), || {
        let runs = count(floors.len() as u64, "run", "runs");
        format!(
            "before the first allocation of each of {runs}, one after the other, more of the card was in use: {} at first, {} \
             at last, at least {} more each time",
            size(first),
            size(last),
            size(per_run)
        )
    });
    let others = floors.first()?.2.zip(floors.last()?.2).map(|(first, last)| last.saturating_sub(first));
    let grown = match others {
        Some(others) => (others.saturating_add(per_run) > last.saturating_sub(first)).into(),
        None => Holds::Unknown("the memory of other processes and graphics clients at the beginning of each run"),
    };
    check.unless(grown, || "another client of the card grew by as much".to_owned());
    check.at_most(Confidence::Probable);
    finding("driver-stranded-vram", check)
}

/// A program fails with the DMA engines and does not without them.
fn sdma(runs: &[Run<'_>]) -> Option<Finding> {
    let is_off =
        |run: &&Run<'_>| run.summary.facts.process.environment.get(SDMA).is_some_and(|value| value.trim() == "0");
    let off = runs.iter().find(is_off)?;
    let same = |run: &&Run<'_>| command(run.summary) == command(off.summary);
    let (without, with): (Vec<&Run<'_>>, Vec<&Run<'_>>) = runs.iter().filter(same).partition(|run| is_off(run));
    let is_rocm = off.summary.facts.devices.iter().any(|device| device.runtime.as_deref() == Some("hip"));
    let mut check = Check::default();
    if !check.applies(is_rocm && !with.is_empty()) {
        return None;
    }
    let failed = |runs: &[&Run<'_>]| runs.iter().filter(|run| run.summary.facts.oom_count > 0).count();
    check.must(failed(&with) == with.len() && failed(&without) == 0, || {
        format!(
            "the same command failed in {} of {} with the DMA engines, and in none of {} with {SDMA}=0",
            failed(&with),
            count(with.len() as u64, "run", "runs"),
            without.len()
        )
    });
    let repeated = with.len().min(without.len()) as u64 >= off.summary.facts.thresholds.runs_on_each_side;
    check.must(if repeated { Holds::Yes } else { Holds::Unknown("several runs on each side") }, || {
        "both sides were repeated".to_owned()
    });
    let differs = differences(with.iter().chain(&without).map(|run| run.summary));
    if !differs.is_empty() {
        check.at_most(Confidence::Possible);
        check.note(true, || format!("the runs differ in more than {SDMA}: {}", differs.join(", ")));
        check.would_settle("runs in which nothing else differs");
    }
    let pinned =
        |runs: &[&Run<'_>]| runs.iter().map(|run| run.summary.facts.host.peak.requested_bytes).max().unwrap_or(0);
    check.note(pinned(&with).abs_diff(pinned(&without)) >= MIB, || {
        format!("most pinned host memory: {} with, {} without", size(pinned(&with)), size(pinned(&without)))
    });
    if !repeated {
        check.at_most(Confidence::Possible);
    }
    finding("sdma-sensitive", check)
}

/// The command that ran.
fn command(summary: &Summary) -> (&str, &[String]) {
    (&summary.facts.process.executable, &summary.facts.process.command_line)
}

/// What else is not equal in runs that are compared, or not known of each: one thing may be changed, or nothing is shown.
fn differences<'a>(runs: impl Iterator<Item = &'a Summary>) -> Vec<String> {
    let runs: Vec<&Summary> = runs.collect();
    let Some((first, rest)) = runs.split_first() else { return Vec::new() };
    let mut differs = Vec::new();
    let mut compare = |what: &str, is_same: &dyn Fn(&Summary, &Summary) -> bool| {
        if rest.iter().any(|other| !is_same(first, other)) {
            differs.push(what.to_owned());
        }
    };
    compare("the host", &|one, other| one.facts.process.hostname == other.facts.process.hostname);
    let of_each = |summary: &Summary, what: fn(&DeviceSummary) -> Option<String>| -> Vec<Option<String>> {
        summary.facts.devices.iter().map(what).collect()
    };
    let card =
        |device: &DeviceSummary| Some(format!("{:?} {:?} {:?}", device.pci_bus_id, device.name, device.total_bytes));
    compare("the card", &|one, other| of_each(one, card) == of_each(other, card));
    let version = |device: &DeviceSummary| device.runtime_version.map(|version| version.to_string());
    compare("the version of the runtime", &|one, other| of_each(one, version) == of_each(other, version));
    compare("memory in use at the start", &began_alike);
    for name in variables(&runs) {
        let value = |summary: &Summary| summary.facts.process.environment.get(&name).cloned();
        compare(&name, &|one, other| value(one) == value(other));
    }
    differs
}

/// Whether as much of each card was in use when two runs began, but for noise. Where nobody read it, nobody knows.
fn began_alike(one: &Summary, other: &Summary) -> bool {
    let noise = one.facts.thresholds.gap_noise_bytes;
    let began = |summary: &Summary| -> Vec<Option<u64>> {
        summary.facts.devices.iter().map(|device| device.used_at_start_bytes).collect()
    };
    let (one, other) = (began(one), began(other));
    let alike =
        |pair: (&Option<u64>, &Option<u64>)| matches!(pair, (Some(one), Some(other)) if one.abs_diff(*other) < noise);
    one.len() == other.len() && one.iter().zip(&other).all(alike)
}

/// The recorded variables of all runs, without the one that is compared and the recorder's own.
fn variables(runs: &[&Summary]) -> Vec<String> {
    let names = runs.iter().flat_map(|run| run.facts.process.environment.keys());
    let mut names: Vec<String> = names.filter(|name| *name != SDMA && !name.starts_with("GPUOOM_")).cloned().collect();
    names.sort_unstable();
    names.dedup();
    names
}

fn finding(id: &'static str, check: Check) -> Option<Finding> {
    let entry = catalogue::find(id)?;
    let Judgement::Found(confidence) = check.judgement() else { return None };
    let judged = Judged {
        id,
        confidence,
        role: entry.role,
        ooms: Vec::new(),
        told_of: None,
        device: None,
        shortfall_bytes: None,
        parts: check.into_parts(),
    };
    Some(Finding::new(judged, entry, remedies::unconditional(entry)))
}
