//! E. Leaks: what stays from cycle to cycle.

use super::{Rule, device, run};
use crate::diagnosis::case::Case;
use crate::judgement::check::Check;
use crate::passes::device::DeviceSummary;
use crate::passes::shape::run::{self as shape, DeviceRun};
use crate::replay::tracks::modules::Balance;
use crate::words::count;

pub(super) const RULES: &[Rule] = &[
    device("live-leak", live_leak),
    device("model-swap-residual", model_swap_residual),
    run("module-load-unbalanced", module_load_unbalanced),
];

fn run_of<'a>(case: &'a Case<'_>, device: &DeviceSummary) -> Option<&'a DeviceRun> {
    case.runs.iter().find(|run| Some(run.device) == device.index)
}

/// Live bytes rise cycle after cycle.
fn live_leak(case: &Case<'_>, device: &DeviceSummary, check: &mut Check) {
    case.judge_leak(device.index, check);
    account_for_growth(case, device, check);
}

/// Every load and unload of a model leaves memory behind.
fn model_swap_residual(case: &Case<'_>, device: &DeviceSummary, check: &mut Check) {
    match run_of(case, device) {
        Some(run) => shape::model_swap(run, check),
        None => _ = check.applies(false),
    }
    account_for_growth(case, device, check);
}

/// What has come to stay on a device since its first cycle.
fn account_for_growth(case: &Case<'_>, device: &DeviceSummary, check: &mut Check) {
    let growth = case.facts.growth.iter().find(|growth| growth.device == device.index);
    if let Some(bytes) = growth.and_then(|growth| u64::try_from(growth.total_bytes).ok()) {
        check.accounts_for(bytes);
    }
}

/// Modules are loaded and never unloaded.
fn module_load_unbalanced(case: &Case<'_>, check: &mut Check) {
    let modules = &case.replay.tracks.modules;
    let rises =
        |balance: &Balance| balance.left_over_time(case.replay.last_at).windows(2).all(|pair| pair[0] < pair[1]);
    let above = modules.above().ok();
    let sorts = [above.map(|above| ("module", above)), Some(("code object", &modules.code))];
    let unbalanced =
        || sorts.into_iter().flatten().filter(|(_, balance)| balance.left() >= case.thresholds.unbalanced_modules);
    let Some((name, balance)) = unbalanced().find(|(_, balance)| rises(balance)).or_else(|| unbalanced().next()) else {
        _ = check.applies(false);
        return;
    };
    // Libraries load hundreds of code objects when they begin, and that is all: it must go on.
    check.must(rises(balance), || {
        let over_time: Vec<String> = balance.left_over_time(case.replay.last_at).iter().map(u64::to_string).collect();
        format!("the number that is loaded rises over the whole run: {}", over_time.join(", "))
    });
    check.must(true, || {
        let loaded = count(balance.loaded, &format!("{name} was loaded"), &format!("{name}s were loaded"));
        format!("{loaded} and {}", count(balance.unloaded, "was unloaded", "were unloaded"))
    });
    // What the program unloads and HSA keeps is kept by the runtime.
    let by_runtime =
        above.filter(|above| name == "code object" && above.unloaded >= case.thresholds.unbalanced_modules);
    check.note(by_runtime.is_some_and(|above| above.left() < case.thresholds.unbalanced_modules), || {
        let (loads, unloads) = by_runtime.map_or((0, 0), |above| (above.loaded, above.unloaded));
        format!("the program unloaded {unloads} of its {loads} modules: the runtime keeps their code")
    });
}
