//! E. Leaks: what stays from cycle to cycle.

use super::{Rule, device, run};
use crate::diagnosis::case::Case;
use crate::diagnosis::check::{Check, Holds};
use crate::diagnosis::finding::Role;
use crate::diagnosis::thresholds::UNBALANCED_MODULES;
use crate::passes::device::DeviceSummary;
use crate::passes::shape::run::{self as shape, DeviceRun};
use crate::words::count;

pub(super) const RULES: &[Rule] = &[
    device("live-leak", Role::Cause, live_leak),
    device("model-swap-residual", Role::Cause, model_swap_residual),
    run("module-load-unbalanced", Role::Cause, module_load_unbalanced),
];

fn run_of<'a>(case: &'a Case<'_>, device: &DeviceSummary) -> Option<&'a DeviceRun> {
    case.runs.iter().find(|run| Some(run.device) == device.index)
}

/// Live bytes rise cycle after cycle.
fn live_leak(case: &Case<'_>, device: &DeviceSummary, check: &mut Check) {
    match run_of(case, device) {
        Some(run) => shape::leak(run, check),
        None => _ = check.applies(false),
    }
}

/// Every load and unload of a model leaves memory behind.
fn model_swap_residual(case: &Case<'_>, device: &DeviceSummary, check: &mut Check) {
    match run_of(case, device) {
        Some(run) => shape::model_swap(run, check),
        None => _ = check.applies(false),
    }
}

/// Modules are loaded and never unloaded.
fn module_load_unbalanced(case: &Case<'_>, check: &mut Check) {
    let modules = &case.replay.tracks.modules;
    let left = modules.loaded.saturating_sub(modules.destroyed);
    if !check.applies(left >= UNBALANCED_MODULES) {
        return;
    }
    // Libraries load hundreds of code objects when they begin, and that is all: it must go on.
    let fifths = modules.left_over_time(case.replay.last_at);
    check.must(Holds::from(fifths.windows(2).all(|pair| pair[0] < pair[1])), || {
        let over_time: Vec<String> = fifths.iter().map(u64::to_string).collect();
        format!("the number that is loaded rises over the whole run: {}", over_time.join(", "))
    });
    check.must(true, || {
        let (loads, unloads) = (modules.loaded, modules.destroyed);
        format!(
            "{} and {}",
            count(loads, "code object was loaded", "code objects were loaded"),
            count(unloads, "was unloaded", "were unloaded")
        )
    });
}
