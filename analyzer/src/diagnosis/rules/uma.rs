//! G. Limits of GPUs that use the host's memory (APUs).

use super::{Rule, device, failure, run};
use crate::diagnosis::case::{Case, Failure};
use crate::diagnosis::exceeded::unless_exceeded;
use crate::judgement::check::{Basis, Check, Confidence, Holds, Known};
use crate::machine::uma::{default_pages, recommended_pages};
use crate::machine::{Machine, PAGE_BYTES, card::Card};
use crate::passes::device::DeviceSummary;
use crate::passes::shape::cycles::Cycle;
use crate::replay::End;
use crate::software::{Platform, Version};
use crate::thresholds::share;
use crate::words::{gib, grouped, percent, size};

pub(super) const RULES: &[Rule] = &[
    failure("uma-ttm-limit", uma_ttm_limit),
    run("uma-param-mismatch", uma_param_mismatch),
    failure("uma-carveout-only", uma_carveout_only),
    failure("uma-large-carveout-starves-gtt", uma_large_carveout_starves_gtt),
    failure("apu-reporting-inconsistent", apu_reporting_inconsistent),
    failure("uma-runtime-clamp", uma_runtime_clamp),
    device("uma-host-pressure", uma_host_pressure),
    device("sysmem-fallback", sysmem_fallback),
];

/// From this version on HIP lets an APU spill. (ROCm/ROCm#3681)
const SPILLING_ROCM: Version = Version { major: 6, minor: 4 };

/// Whether the failing device shares the host's memory, and device memory was refused. Ends the check where it does not, or
/// where nobody knows: on a card none of these limits is a reason.
fn is_apu_failure(case: &Case<'_>, failure: &Failure<'_>, check: &mut Check) -> bool {
    let integrated = case.is_integrated(failure.device).get();
    check.applies(failure.is_real_of_device() && integrated == Some(true))
}

fn shares_memory(case: &Case<'_>, device: Option<&DeviceSummary>, check: &mut Check) {
    check.must(case.is_integrated(device).is(|integrated| integrated), || "the GPU uses the host's memory".to_owned());
}

/// Whether what lives and what was asked for are more than the device's total, which was never exceeded before.
fn exceeds_total(case: &Case<'_>, failure: &Failure<'_>, check: &mut Check) {
    let own = failure.own_bytes();
    let both = failure.request_bytes().zip(failure.total_bytes());
    check.must(both.is(|(request, total)| own.saturating_add(request) > total), || {
        let (request, total) = both.get().unwrap_or((0, 0));
        format!("{} lived and {} was asked for: more than the {} in all", size(own), size(request), size(total))
    });
    if let Some(total) = failure.total_bytes().get() {
        unless_exceeded(case, failure, total, check);
    }
}

/// [mem_info_vram_total of an APU] What the firmware set aside.
fn carve_out(case: &Case<'_>, device: Option<&DeviceSummary>) -> Known<u64> {
    let card = device.and_then(|device| case.card(device));
    Known::new(card.and_then(|card| card.vram_total_bytes), "the carve-out of the BIOS (mem_info_vram_total)")
}

/// (`GTT_tot`)
fn gtt_total(case: &Case<'_>, device: Option<&DeviceSummary>) -> Known<u64> {
    let card = device.and_then(|device| case.card(device));
    Known::new(card.and_then(|card| card.gtt_total_bytes), "the size of GTT (mem_info_gtt_total)")
}

/// The kernel's memory manager (TTM) gives half of the RAM.
fn uma_ttm_limit(case: &Case<'_>, failure: &Failure<'_>, check: &mut Check) {
    if !is_apu_failure(case, failure, check) {
        return;
    }
    shares_memory(case, failure.device, check);
    let (total, limit, ram) = (failure.total_bytes(), case.ttm_limit_bytes(), case.ram_bytes());
    let of_limit = total.zip(limit);
    check.must(of_limit.is(|(total, limit)| case.thresholds.is_near(total, limit)), || {
        let (total, limit) = of_limit.get().unwrap_or((0, 0));
        let pages = grouped(limit / PAGE_BYTES);
        format!("the total {} is the TTM limit: {pages} pages of 4 KiB = {}", gib(total), gib(limit))
    });
    let of_ram = limit.zip(ram);
    check.must(of_ram.is(|(limit, ram)| case.thresholds.is_near(limit, half(ram))), || {
        let (limit, ram) = of_ram.get().unwrap_or((0, 0));
        format!("that is {} of {} RAM: half is what TTM gives by itself", percent(share(limit, ram)), gib(ram))
    });
    exceeds_total(case, failure, check);
    check.unless(of_ram.is(|(limit, ram)| share(limit, ram) > case.thresholds.half_of_ram_share), || {
        format!("the TTM limit was raised above {} of the RAM", case.thresholds.half_of_ram_share)
    });
    let of_carve_out = total.zip(carve_out(case, failure.device)).zip(limit);
    let is_carve_out = |((total, carve_out), limit)| {
        case.thresholds.is_near(total, carve_out) && !case.thresholds.is_near(total, limit)
    };
    check.unless(of_carve_out.is(is_carve_out), || "the total is the carve-out of the BIOS instead".to_owned());
    if let Some((limit, ram)) = of_ram.get().filter(|_| !check.is_over()) {
        let pages = recommended_pages(ram, case.thresholds.host_keeps());
        let bytes = pages.saturating_mul(PAGE_BYTES);
        check.note_by(Basis::Estimated, bytes > limit, || {
            let kept = size(ram.saturating_sub(bytes));
            format!("{} pages = {} would keep {kept} for the host", grouped(pages), gib(bytes))
        });
        check.gives_back(0, bytes.saturating_sub(limit), Basis::Estimated);
    }
}

fn half(ram_bytes: u64) -> u64 {
    default_pages(ram_bytes).saturating_mul(PAGE_BYTES)
}

/// The kernel's limits contradict each other, or are misspelt.
fn uma_param_mismatch(case: &Case<'_>, check: &mut Check) {
    let machine = &case.machine;
    let integrated = |card: &&Card| machine.is_integrated(card) == Some(true);
    if !check.applies(machine.cards.iter().any(|card| integrated(&card))) {
        return;
    }
    let card = machine.cards.iter().find(integrated);
    let wrong: Vec<String> = [sizes_that_disagree(case, card), names_that_do_nothing(machine)].concat();
    check.must(!wrong.is_empty(), || wrong.join("; "));
}

fn sizes_that_disagree(case: &Case<'_>, card: Option<&Card>) -> Vec<String> {
    let (limit, ram) = (case.ttm_limit_bytes().get(), case.ram_bytes().get());
    let gtt = card.and_then(|card| card.gtt_total_bytes);
    let gtt_size = case.machine.amdgpu_parameter("gttsize").and_then(|mib| u64::try_from(mib).ok());
    let gtt_size = gtt_size.map(|mib| mib.saturating_mul(1 << 20)).zip(limit);
    let vm_size = case.machine.amdgpu_parameter("vm_size").filter(|gib| case.thresholds.is_absurd_vm_size(*gib));
    let above_limit = gtt.zip(limit).filter(|(gtt, limit)| gtt > limit && !case.thresholds.is_near(*gtt, *limit));
    // MemTotal lacks the carve-out: that both are above all memory means that GTT is above it.
    let above_ram = gtt.zip(ram).filter(|(gtt, ram)| gtt > ram);
    [
        gtt_size
            .filter(|(gtt, limit)| !case.thresholds.is_near(*gtt, *limit))
            .map(|(gtt, limit)| format!("amdgpu.gttsize is {}, the TTM limit {}", gib(gtt), gib(limit))),
        above_limit.map(|(gtt, limit)| format!("the GTT total {} is above the TTM limit {}", gib(gtt), gib(limit))),
        above_ram.map(|(gtt, ram)| format!("the GTT total {} is above the RAM {}", gib(gtt), gib(ram))),
        vm_size.map(|gib| format!("amdgpu.vm_size={gib}: its unit is GiB, so this is {} TiB", gib / 1024)),
    ]
    .into_iter()
    .flatten()
    .collect()
}

fn names_that_do_nothing(machine: &Machine) -> Vec<String> {
    let in_tree = machine.ttm.is_some_and(|ttm| !ttm.out_of_tree);
    let of = |name: &str| match name {
        "amdgpu.gtt_size" => Some("amdgpu.gtt_size is no parameter of the kernel".to_owned()),
        _ if in_tree && name.starts_with("amdttm.") => Some(format!("{name} has no effect on the kernel's own driver")),
        _ => None,
    };
    machine.kernel_parameters.iter().filter_map(|parameter| of(&parameter.name.replace('-', "_"))).collect()
}

/// The runtime sees only the BIOS carve-out.
fn uma_carveout_only(case: &Case<'_>, failure: &Failure<'_>, check: &mut Check) {
    if !is_apu_failure(case, failure, check) {
        return;
    }
    shares_memory(case, failure.device, check);
    let both = failure.total_bytes().zip(carve_out(case, failure.device));
    check.must(both.is(|(total, carve_out)| case.thresholds.is_near(total, carve_out)), || {
        let (total, carve_out) = both.get().unwrap_or((0, 0));
        format!("the total {} is the carve-out of the BIOS, {}", size(total), size(carve_out))
    });
    let both = carve_out(case, failure.device).zip(gtt_total(case, failure.device));
    check.must(
        both.is(|(carve_out, gtt)| gtt > 0 && share(carve_out, gtt) <= case.thresholds.small_carve_out_share),
        || {
            let gtt = both.get().map_or(0, |(_, gtt)| gtt);
            format!("GTT would be {} besides", gib(gtt))
        },
    );
    exceeds_total(case, failure, check);
    check.note(case.machine.kernel.is_some(), || {
        format!("the kernel is {}", case.machine.kernel.as_deref().unwrap_or_default())
    });
}

/// A large carve-out, and allocations go to a small GTT.
fn uma_large_carveout_starves_gtt(case: &Case<'_>, failure: &Failure<'_>, check: &mut Check) {
    if !is_apu_failure(case, failure, check) {
        return;
    }
    shares_memory(case, failure.device, check);
    let (carve_out, gtt) = (carve_out(case, failure.device), gtt_total(case, failure.device));
    let both = carve_out.zip(case.ram_bytes());
    let all = |(carve_out, ram): (u64, u64)| ram.saturating_add(carve_out);
    check.must(
        both.is(|(carve_out, ram)| share(carve_out, all((carve_out, ram))) >= case.thresholds.carve_out_share),
        || {
            let (carve_out, ram) = both.get().unwrap_or((0, 0));
            format!("the BIOS set {} aside for the GPU, of {} in all", gib(carve_out), gib(all((carve_out, ram))))
        },
    );
    check.must(gtt.is(|gtt| gtt <= case.thresholds.small_gtt_bytes), || {
        format!("GTT is only {}", gib(gtt.get().unwrap_or(0)))
    });
    let own = failure.own_bytes();
    let ends_there = gtt.zip(failure.total_bytes());
    check.must(
        ends_there.is(|(gtt, total)| case.thresholds.is_near(total, gtt) || case.thresholds.is_near(own, gtt)),
        || {
            let (gtt, total) = ends_there.get().unwrap_or((0, 0));
            match case.thresholds.is_near(total, gtt) {
                true => format!("the total {} is the GTT", gib(total)),
                false => format!("it failed with {} of the program's own: all of GTT", gib(own)),
            }
        },
    );
    let used = failure.used_bytes().zip(carve_out);
    check.must(used.is(|(used, carve_out)| share(used, carve_out) <= case.thresholds.used_carve_out_share), || {
        let (used, carve_out) = used.get().unwrap_or((0, 0));
        format!("of the carve-out {} of {} are in use", size(used), gib(carve_out))
    });
}

/// Free memory above the total.
fn apu_reporting_inconsistent(case: &Case<'_>, failure: &Failure<'_>, check: &mut Check) {
    let integrated = case.is_integrated(failure.device).get();
    let is_rocm = case.versions.platform == Some(Platform::Rocm);
    if !check.applies(is_rocm && failure.is_real_of_device() && integrated != Some(false)) {
        return;
    }
    if integrated.is_none() {
        // On a card the same numbers are another matter.
        check.at_most(Confidence::Possible);
    }
    let both = failure.runtime_free_bytes().zip(failure.total_bytes());
    check.must(both.is(|(free, total)| free > total), || {
        let (free, total) = both.get().unwrap_or((0, 0));
        format!("the runtime reports {} free of {} in all", gib(free), gib(total))
    });
    shares_memory(case, failure.device, check);
    let limit = case.ttm_limit_bytes();
    let own = failure.own_bytes();
    check.note_by(Basis::Estimated, limit.is(|_| true), || {
        let left = limit.get().unwrap_or(0).saturating_sub(own);
        format!("the TTM limit less what lives would be {}", gib(left))
    });
}

/// The variable by which the user lowers the total that the runtime reports.
fn lowered_by(case: &Case<'_>) -> Option<String> {
    const LOWER: [(&str, &str); 3] =
        [("GPU_MAX_HEAP_SIZE", "100"), ("GPUOOM_CAPACITY", "off"), ("GPUOOM_CAPACITY", "0")];
    let set = LOWER.iter().find_map(|(name, _)| Some((*name, case.variable(name)?)));
    let (name, value) = set.filter(|set| !LOWER.contains(set))?;
    Some(format!("{name}={value}"))
}

/// The runtime offers half of what the kernel does.
fn uma_runtime_clamp(case: &Case<'_>, failure: &Failure<'_>, check: &mut Check) {
    if !is_apu_failure(case, failure, check) {
        return;
    }
    shares_memory(case, failure.device, check);
    let (limit, ram, total) = (case.ttm_limit_bytes(), case.ram_bytes(), failure.total_bytes());
    let raised = limit.zip(ram);
    check.must(raised.is(|(limit, ram)| limit > half(ram) && !case.thresholds.is_near(limit, half(ram))), || {
        let (limit, ram) = raised.get().unwrap_or((0, 0));
        format!("the TTM limit was raised to {} of {} RAM", gib(limit), gib(ram))
    });
    let node = failure.device.and_then(|device| case.node(device));
    let bank = node.map(|node| node.local_bytes()).filter(|bytes| *bytes > 0);
    let bank = Known::new(bank, "the size of KFD's memory bank").zip(limit);
    check.must(bank.is(|(bank, limit)| case.thresholds.is_near(bank, limit)), || {
        format!("KFD offers {}", gib(bank.get().map_or(0, |(bank, _)| bank)))
    });
    let clamped = total.zip(ram);
    check.must(clamped.is(|(total, ram)| case.thresholds.is_near(total, half(ram))), || {
        format!("the runtime reports {} all the same: half of the RAM", gib(total.get().unwrap_or(0)))
    });
    exceeds_total(case, failure, check);
    let of_carve_out = total.zip(carve_out(case, failure.device));
    check.unless(of_carve_out.is(|(total, carve_out)| case.thresholds.is_near(total, carve_out)), || {
        "the total is the carve-out of the BIOS, which happens to be half of the RAM".to_owned()
    });
    let lowered = lowered_by(case);
    check.unless(lowered.is_some(), || match lowered {
        Some(set) => format!("{set} lowers the total"),
        None => "a variable lowers the total".to_owned(),
    });
}

/// GPU memory took the RAM that the host needs.
fn uma_host_pressure(case: &Case<'_>, device: &DeviceSummary, check: &mut Check) {
    let ended_by_others = matches!(case.replay.end, End::Unknown | End::Signaled(libc::SIGKILL));
    let integrated = case.is_integrated(Some(device)).get();
    if !check.applies(integrated == Some(true) && ended_by_others) {
        return;
    }
    shares_memory(case, Some(device), check);
    let live = peak_bytes(device);
    let ram = case.ram_bytes();
    check.must(ram.is(|ram| share(live, ram) > case.thresholds.host_share), || {
        format!("the program held {} of GPU memory, of {} RAM", gib(live), gib(ram.get().unwrap_or(0)))
    });
    let least = case.series(gpuoom_trace::metadata::Quantity::HostAvailable).map(|series| series.least.1);
    let least = Known::new(least, "available RAM along the way (GPUOOM_SAMPLE)");
    let full = case.machine.pressure.and_then(|pressure| pressure.full_10s_percent);
    let waits = full.is_some_and(|full| full > case.thresholds.pressure_percent);
    let holds = least.is(|least| least < case.thresholds.host_least_bytes).or(waits.into());
    check.must(holds, || match least.get() {
        Some(least) => format!("at least once only {} of RAM was available", size(least)),
        None => format!("all tasks waited for memory {:.1} % of the time", full.unwrap_or(0.0)),
    });
    check.must(case.kernel_killed_this(), || {
        case.kill_text().unwrap_or_else(|| "the kernel killed it for want of memory".to_owned())
    });
}

/// The most that the program's blocks held on a device at once.
fn peak_bytes(device: &DeviceSummary) -> u64 {
    device.account.peak.requested_bytes
}

/// What tells whether a program crawls.
const THROUGHPUT: &str = "the program's throughput before and after: it falls to a third or less";

/// How many times as long steps take that hold more than a device has, beside those that fit; `None` without steps of both
/// sorts.
fn slower_beyond(case: &Case<'_>, device: Option<u8>, total_bytes: u64) -> Option<f64> {
    let steps = case.run_of(device)?.cycles.steps();
    let median = |beyond: bool| {
        let of_sort = steps.iter().filter(|cycle| (cycle.peak.bytes > total_bytes) == beyond);
        let mut durations: Vec<u64> = of_sort.map(Cycle::duration).collect();
        durations.sort_unstable();
        (durations.len() as u64 >= case.thresholds.steps_compared.max(1)).then(|| durations[durations.len() / 2].max(1))
    };
    Some(median(true)? as f64 / median(false)? as f64)
}

/// No failure, but memory spills to system memory.
fn sysmem_fallback(case: &Case<'_>, device: &DeviceSummary, check: &mut Check) {
    let spills = case.versions.rocm.is_some_and(|rocm| rocm >= SPILLING_ROCM);
    let failed = case.facts.ooms.iter().any(|oom| oom.device == device.index);
    if !check.applies(spills && !failed && case.is_integrated(Some(device)).get() == Some(true)) {
        return;
    }
    check.at_most(Confidence::Probable);
    let live = peak_bytes(device);
    let total = Known::new(device.runtime_total_bytes(), "the size of the device");
    check.must(total.is(|total| live > total), || {
        format!("{} lived on a device of {}, and nothing failed", gib(live), gib(total.get().unwrap_or(0)))
    });
    let slower = slower_beyond(case, device.index, total.get().unwrap_or(u64::MAX));
    check.must(
        slower.map_or(Holds::Unknown(THROUGHPUT), |factor| (factor >= case.thresholds.slower_factor).into()),
        || format!("steps that held more than that took {:.1} times as long as those before", slower.unwrap_or(0.0)),
    );
}
