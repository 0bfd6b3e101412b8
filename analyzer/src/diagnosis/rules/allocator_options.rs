//! D. Options of PyTorch's allocator, and what came of them.

use super::{Rule, failure, run};
use crate::diagnosis::case::{Case, Failure};
use crate::diagnosis::torch_sums::TorchSums;
use crate::evidence::runtime_message::RuntimeSays;
use crate::judgement::check::{Basis, Check, Confidence, Holds, Known};
use crate::judgement::role::Role;
use crate::options::NO_CACHING;
use crate::replay::tracks::calls::{Call, What};
use crate::software::{EXPANDABLE_ON_ROCM, Platform, Program, Version};
use crate::thresholds::{Unit, share};
use crate::words::{percent, size};
use gpuoom_trace::record::{Kind, NO_DEVICE};

pub(super) const RULES: &[Rule] = &[
    run("expandable-ignored", expandable_ignored),
    run("expandable-with-max-split", expandable_with_max_split),
    failure("expandable-with-max-split", filled_by_the_pair),
    run("expandable-hazard", expandable_hazard),
    run("caching-disabled", caching_disabled),
];

/// First torch in which the pair of options lets reserved memory grow to the whole card. (pytorch/pytorch#193400)
const PAIR_GROWS: Version = Version::new(2, 12);
/// Version of torch, which the trace does not tell.
const TORCH: &str = "the version of PyTorch";

/// The option is set and has no effect.
fn expandable_ignored(case: &Case<'_>, check: &mut Check) {
    let Some(options) = case.allocator_options() else { return };
    let asks = options.conf.is_on("expandable_segments");
    // Other allocators than PyTorch's own have no segments.
    let is_native = options.conf.get("backend").is_none_or(|backend| backend == "native");
    let is_about = asks && is_native && case.versions.has(Program::Torch) && took_by_torch(case);
    if !check.applies(is_about) || !has_cache(case, check) {
        return;
    }
    // Builds of before 2.12 for ROCm have none. Elsewhere the program may have turned them off itself.
    let is_too_old = case.versions.platform == Some(Platform::Rocm)
        && case.versions.torch.is_some_and(|torch| torch < EXPANDABLE_ON_ROCM);
    if !is_too_old {
        check.at_most(Confidence::Probable);
        check.would_settle(
            "whether the program turned them off: torch.cuda.memory._snapshot()[\"allocator_settings\"] has what counts",
        );
    }
    let asked = || format!("{} asks for expandable segments", options.chosen.variable);
    check.must(holds_if(options.chosen.is_certain, true), asked);
    let mapped = case.replay.tracks.devices().any(|(_, track)| track.vmm_created_bytes > 0);
    check.decides(
        !mapped,
        || "all device memory came from plain allocations, none from mapped physical memory".to_owned(),
        || "physical memory was created and mapped: the option has its effect".to_owned(),
    );
}

/// Whether PyTorch's library may have taken memory of a device: surely not where each call is known to be another's.
fn took_by_torch(case: &Case<'_>) -> bool {
    let calls = &case.replay.tracks.calls;
    let taken = |call: &&Call| call.what == What::Given && call.device != NO_DEVICE;
    let mut sites: Vec<u32> = calls.first().iter().filter(taken).map(|call| call.site).collect();
    let is_whole = calls.count() == calls.first().len() as u64;
    sites.sort_unstable();
    sites.dedup();
    !sites.is_empty() && (!is_whole || sites.iter().any(|site| case.asked_by_torch(*site) != Holds::No))
}

/// What holds only if the variable is the one that counts.
fn holds_if(is_certain: bool, holds: bool) -> Holds {
    match is_certain {
        true => holds.into(),
        false => Holds::Unknown(TORCH),
    }
}

/// Both options in one string.
fn expandable_with_max_split(case: &Case<'_>, check: &mut Check) {
    // That both are set explains no failure by itself.
    check.plays(Role::Condition);
    pair_is_set(case, check);
}

fn pair_is_set(case: &Case<'_>, check: &mut Check) -> bool {
    let Some(options) = case.allocator_options() else {
        return check.applies(false);
    };
    let has_both = options.conf.is_on("expandable_segments") && options.conf.get("max_split_size_mb").is_some();
    if !check.applies(has_both && case.versions.has(Program::Torch)) || !has_cache(case, check) {
        return false;
    }
    check.must(holds_if(options.chosen.is_certain, true), || {
        format!("{}={} has expandable_segments and max_split_size_mb", options.chosen.variable, options.chosen.text)
    });
    let torch = Known::new(case.versions.torch, TORCH);
    let is_rocm = Holds::from(case.versions.platform == Some(Platform::Rocm));
    if is_rocm == Holds::No && torch.get().is_none() {
        check.at_most(Confidence::Possible);
    }
    check.must(is_rocm.or(torch.is(|torch| torch >= PAIR_GROWS)), || match case.versions.platform {
        Some(Platform::Rocm) => "on ROCm, where memory in use was seen to read zeros with this pair (7.14)".to_owned(),
        _ => "with this torch reserved memory grows to the whole card".to_owned(),
    });
    true
}

/// The pair as the cause: handles fill the card, and tensors do not.
fn filled_by_the_pair(case: &Case<'_>, failure: &Failure<'_>, check: &mut Check) {
    if !check.applies(failure.is_real_of_device()) || !pair_is_set(case, check) {
        return;
    }
    let handles = case.held_of_kind(failure, Kind::Physical);
    let total = failure.total_bytes();
    check.must(total.is(|total| share(handles, total) > case.thresholds.handles_share), || {
        let total = total.get().unwrap_or(0);
        format!("handles of virtual memory hold {} ({} of the card)", size(handles), percent(share(handles, total)))
    });
    let sums = case.torch_sums(failure).filter(TorchSums::is_certain);
    let tensors = Known::new(
        sums.and_then(|sums| sums.allocated).map(|allocated| allocated.bytes),
        case.unless_told(
            failure,
            "what tensors hold: PyTorch's message (--log) or a snapshot with the failure (--torch-snapshot)",
            "what tensors hold: a snapshot with the failure (--torch-snapshot)",
        ),
    );
    check.decides(
        tensors.is(|tensors| share(tensors, handles) <= case.thresholds.few_tensors_share),
        || format!("tensors hold only {} of it", size(tensors.get().unwrap_or(0))),
        || format!("tensors hold {} of it", size(tensors.get().unwrap_or(0))),
    );
    if tensors.get().is_none() {
        check.at_most(Confidence::Possible);
    }
}

/// The last call is one that maps memory, and it never returned.
fn expandable_hazard(case: &Case<'_>, check: &mut Check) {
    const MAPS: [&str; 6] = [
        "hipMemMap",
        "hipMemSetAccess",
        "hsa_amd_vmem_map",
        "hsa_amd_vmem_set_access",
        "cuMemMap",
        "AMDKFD_IOC_MAP_MEMORY_TO_GPU",
    ];
    let hung = case.facts.calls_under_way.iter().find(|call| MAPS.contains(&call.api.as_str()));
    let mapped = case.replay.tracks.devices().any(|(_, track)| track.vmm_created_bytes > 0);
    let is_rocm = case.versions.platform == Some(Platform::Rocm);
    let asks = case.allocator_options().is_some_and(|options| options.conf.is_on("expandable_segments"));
    if !check.applies(is_rocm && mapped && asks && case.versions.has(Program::Torch)) {
        return;
    }
    let Some(hung) = hung else { return faulted(case, check) };
    let quiet_ns = case.thresholds.mapping_quiet_ns;
    let waited_ns = case.last_sign_of_life_ns().saturating_sub(hung.at_ns);
    let waited = || Unit::Time.shown(waited_ns as f64);
    check.must(true, || {
        format!("expandable segments are asked for, and {} of thread {} was under way", hung.api, hung.thread)
    });
    // Whatever ends a program finds some call under way.
    check.decides(
        waited_ns >= case.thresholds.hang_ns,
        || format!("it had not returned {} later", waited()),
        || format!("the process ended {} after that call had begun", waited()),
    );
    check.decides(
        case.last_call_ns().is_none_or(|last_ns| last_ns <= hung.at_ns.saturating_add(quiet_ns)),
        || "no other thread took memory or gave any back since".to_owned(),
        || "other threads went on with memory for long after it".to_owned(),
    );
}

/// An illegal address was reported in a process whose memory is mapped. That it came right behind a mapping no log tells.
fn faulted(case: &Case<'_>, check: &mut Check) {
    if !check.applies(case.runtime_said(&[RuntimeSays::IllegalAddress]) == Holds::Yes) {
        return;
    }
    check.at_most(Confidence::Possible);
    check.must_by(Basis::Given, true, || "the runtime reported an illegal address".to_owned());
    check.must(true, || "expandable segments are asked for, and physical memory is mapped".to_owned());
    check.would_settle("the same run without expandable segments");
}

/// Whether PyTorch's cache may be on. Without it there are no segments, and what is said of its options does not happen.
fn has_cache(case: &Case<'_>, check: &mut Check) -> bool {
    match no_caching(case).map_or(Holds::No, |(_, value)| case.turns_caching_off(value)) {
        Holds::Yes => return check.applies(false),
        Holds::Unknown(reading) => check.must(Holds::Unknown(reading), String::new),
        Holds::No => {}
    }
    true
}

/// The variable that asks for no caching, and its value.
fn no_caching<'a>(case: &Case<'a>) -> Option<(&'static str, &'a str)> {
    NO_CACHING.into_iter().find_map(|name| Some((name, case.variable(name)?)))
}

/// PyTorch's caching allocator is turned off.
fn caching_disabled(case: &Case<'_>, check: &mut Check) {
    let Some((name, value)) = no_caching(case) else { return };
    if check.applies(case.versions.has(Program::Torch)) {
        check.decides(
            case.turns_caching_off(value),
            || format!("{name}={value} is set, and PyTorch is loaded"),
            || format!("{name}={value}: since PyTorch 2.7 only 1 turns the cache off"),
        );
        // A guess about the version is none about the cache.
        if case.turns_caching_off(value) != Holds::Yes {
            check.at_most(Confidence::Possible);
            check.must(true, || format!("{name}={value} is set, and PyTorch is loaded"));
        }
    }
}
