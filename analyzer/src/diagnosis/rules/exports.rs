//! C. Memory that other processes may open.

use super::{Rule, failure};
use crate::diagnosis::case::{Case, Failure};
use crate::judgement::check::{Basis, Check, Confidence, Holds, Known};
use crate::replay::readings::DeviceReadings;
use crate::replay::tracks::reads::Stretch;
use crate::software::{Platform, Version};
use crate::words::{count, size};
use gpuoom_trace::record::NO_DEVICE;

pub(super) const RULES: &[Rule] = &[failure("ipc-export-pin", ipc_export_pin)];

/// First ROCm whose exports go through the kernel's buffers and may stay pinned. (ROCm/rocm-systems#4754)
const PINNING_ROCM: Version = Version::new(7, 0);
/// The exports of earlier releases.
const LEGACY: &str = "HSA_ENABLE_IPC_MODE_LEGACY";
const READINGS: &str = "free memory before and after these frees (a shorter period in GPUOOM_SAMPLE)";

/// Buffers that were exported stay pinned after they are freed.
fn ipc_export_pin(case: &Case<'_>, failure: &Failure<'_>, check: &mut Check) {
    let freed = case.around(failure).and_then(|around| around.exported_freed_bytes).unwrap_or(0);
    let is_rocm = case.versions.platform == Some(Platform::Rocm);
    if !check.applies(is_rocm && failure.is_real_of_device() && freed > 0) {
        return;
    }
    check.must(true, || format!("{} had been exported to other processes and were freed", size(freed)));
    let pinned = pinned_bytes(case, failure);
    if pinned.is_none() {
        check.at_most(Confidence::Possible);
    }
    let is_little = |(freed, risen): (u64, u64)| (risen as f64) < case.thresholds.export_rise_share * freed as f64;
    // Free memory rose, and nobody knows whether these frees did it.
    if !check.applies(pinned.is_none_or(|pinned| is_little(pinned) || rose_by_frees_alone(case, failure))) {
        return;
    }
    let known = Known::new(pinned, READINGS);
    let shown = |pick: fn((u64, u64)) -> u64| size(pinned.map_or(0, pick));
    check.decides(
        known.is(is_little),
        || format!("at most {} became free when {} of them were freed", shown(|both| both.1), shown(|both| both.0)),
        || format!("free memory rose by {} when {} of them were freed", shown(|both| both.1), shown(|both| both.0)),
    );
    let rocm = Known::new(case.versions.rocm, "the version of ROCm");
    let version = || rocm.get().map_or_else(String::new, |version| version.to_string());
    check.decides(
        rocm.is(|version| version >= PINNING_ROCM),
        || format!("ROCm {} exports in the way that pins", version()),
        || format!("ROCm {} exports in the way of before 7.0", version()),
    );
    check.unless(case.variable(LEGACY) == Some("1"), || format!("{LEGACY}=1 is set"));
    may_be_open(failure, check);
    let loads = loads_between(case, failure);
    if loads > 0 {
        check.at_most(Confidence::Possible);
        check.note(true, || {
            format!("{} of code came between these readings, which take memory, too", count(loads, "load", "loads"))
        });
    }
    if let Some((freed, risen)) = pinned {
        check.gives_back(0, freed.saturating_sub(risen), Basis::Estimated);
    }
}

/// A process that imported the memory and lives may still have it open: then it stays by right.
fn may_be_open(failure: &Failure<'_>, check: &mut Check) {
    let others = failure.oom.read.others_vram_bytes;
    let alone = Known::new(others, "whether another process has the card open (KFD's list of processes)");
    if others != Some(0) {
        check.at_most(Confidence::Possible);
    }
    if others.is_some_and(|bytes| bytes > 0) {
        check.must(Holds::Unknown("whether the process that imported the memory still has it open"), String::new);
        return;
    }
    check.must(alone.is(|bytes| bytes == 0), || {
        "no other compute process is counted with memory of the card".to_owned()
    });
    // What a process only opened need not be counted as its own.
    check.at_most(Confidence::Probable);
    check.would_settle("whether a process that imported the memory still has it open: the traces of all processes");
}

/// The stretches between readings in which exported memory was freed before a failure.
fn stretches<'a>(case: &Case<'a>, failure: &Failure<'_>) -> impl Iterator<Item = &'a Stretch> {
    let track = failure.oom.device.and_then(|device| case.replay.tracks.device(device));
    let at = failure.oom.at;
    track.into_iter().flat_map(|track| track.reads.export_frees()).filter(move |stretch| stretch.before.at <= at)
}

/// Loads of code between the readings that these frees are compared by.
fn loads_between(case: &Case<'_>, failure: &Failure<'_>) -> u64 {
    stretches(case, failure).map(|stretch| stretch.after.done.since(&stretch.before.done).loads).sum()
}

/// Whether nothing but frees of known size gave memory back in those stretches: no other process, no pool, nothing whose size nobody
/// tells.
fn rose_by_frees_alone(case: &Case<'_>, failure: &Failure<'_>) -> bool {
    stretches(case, failure).all(|stretch| {
        let done = stretch.after.done.since(&stretch.before.done);
        let others = |read: &DeviceReadings| read.others_vram_bytes;
        let others = others(&stretch.before.read).zip(others(&stretch.after.read));
        let hold_still = others.is_some_and(|(before, after)| after >= before);
        hold_still && done.releases == 0 && done.returned_to_pools_bytes == 0
    })
}

/// Of the exported memory that was freed between two readings, how much that was and by how much free memory rose for it.
fn pinned_bytes(case: &Case<'_>, failure: &Failure<'_>) -> Option<(u64, u64)> {
    let rises = stretches(case, failure)
        .filter_map(|stretch| Some((stretch.exported_freed_bytes, risen_for_exports(case, failure, stretch)?)));
    rises.reduce(|sum, (freed, risen)| (sum.0.saturating_add(freed), sum.1.saturating_add(risen)))
}

/// What else was given and taken meanwhile, by the program and by others, would have moved free memory as well.
fn risen_for_exports(case: &Case<'_>, failure: &Failure<'_>, stretch: &Stretch) -> Option<u64> {
    let exported = i128::from(stretch.exported_freed_bytes);
    let (by_all, seen) = stretch.expected_and_seen()?;
    let others = |read: &DeviceReadings| read.others_vram_bytes.map(i128::from);
    let taken_by_others = match (others(&stretch.before.read), others(&stretch.after.read)) {
        (Some(before), Some(after)) => after - before,
        _ => 0,
    };
    let done = stretch.after.done.since(&stretch.before.done);
    let rounding = case.rounding_between(failure.oom.device.unwrap_or(NO_DEVICE), &done);
    let risen = seen + taken_by_others + i128::from(rounding) - (by_all - exported);
    u64::try_from(risen.clamp(0, exported)).ok()
}
