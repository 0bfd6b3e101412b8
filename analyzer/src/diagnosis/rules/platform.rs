//! G. Limits of the platform: host memory for the GPU, control groups, parts that lack a feature.

use gpuoom_trace::metadata::Quantity;
use gpuoom_trace::record::{Kind, Layer};

use super::{Rule, device, failure, run};
use crate::diagnosis::case::{Case, Failure};
use crate::diagnosis::exceeded::unless_exceeded;
use crate::evidence::runtime_message::RuntimeSays;
use crate::judgement::check::{Basis, Check, Confidence, Holds, Known};
use crate::machine::cgroup::DeviceMemory;
use crate::machine::pci::PciAddress;
use crate::machine::uma::kfd_limit_bytes;
use crate::passes::device::DeviceSummary;
use crate::passes::fragmentation::saturate;
use crate::passes::holders::STILL_PINNED;
use crate::passes::ledger::Row;
use crate::replay::End;
use crate::replay::failures::RefusedBy;
use crate::software::{Platform, Version};
use crate::thresholds::share;
use crate::words::{gib, size};

pub(super) const RULES: &[Rule] = &[
    failure("kfd-system-memory-limit", kfd_system_memory_limit),
    failure("pinned-host-exhaustion", pinned_host_exhaustion),
    failure("device-cgroup-limit", device_cgroup_limit),
    run("xnack-ineffective", xnack_ineffective),
    device("vram-half-cap", vram_half_cap),
    run("missing-libdrm-link", missing_libdrm_link),
];

/// Series of PyTorch's wheels that have the reports. (pytorch/pytorch#184880)
const HALF_CAP_TORCH: [Version; 2] = [Version { major: 2, minor: 12 }, Version { major: 2, minor: 13 }];
const GROUP_USE: &str = "what the group held at the failure (dmem.current)";
const KFD_USE: &str = "the system memory that KFD counts for all processes, which the kernel does not tell";

/// KFD refuses more of the host's memory.
fn kfd_system_memory_limit(case: &Case<'_>, failure: &Failure<'_>, check: &mut Check) {
    // The KFD counts none of the DRM's buffers.
    let of_host = failure.is_of_host() && !failure.is_of_gtt()
        || failure.oom.kind == Kind::Managed && !failure.is_of_drm()
        || failure.is_of_host_below();
    let is_rocm = case.versions.platform == Some(Platform::Rocm);
    let of_apu = || failure.is_of_device() && case.is_integrated(failure.device).get() == Some(true);
    if !check.applies(is_rocm && !failure.is_injected() && (of_host || of_apu())) {
        return;
    }
    check.must(true, || match of_host {
        true if failure.is_of_host_below() => {
            format!("{} asked the kernel's driver for host memory, and that refused it", failure.report.call())
        }
        true => format!("{} asked for host memory", failure.report.call()),
        false => "the GPU uses the host's memory".to_owned(),
    });
    more_than_ram(case, failure, check);
    if of_host && failure.is_refused_above_kernel() {
        check.at_most(Confidence::Possible);
        check.would_settle(ABOVE_KERNEL);
    }
    let most = host_bytes(
        case,
        failure,
        saturate(failure.oom.most.held_bytes),
        saturate(failure.oom.most_host_bytes),
        of_host,
    );
    let found = kernel_limit(case, of_host, most.get().unwrap_or(0));
    let (limit, whose) = (found.map(|limit| limit.bytes), found.get().map_or("", |limit| limit.whose));
    if let Some(limit) = found.get() {
        check.part(limit.part);
    }
    if !of_host {
        // A total that is smaller, or that is the carve-out of the BIOS, is met first: other diagnoses are about those.
        let both = limit.zip(failure.total_bytes());
        check.must(both.is(|(limit, total)| limit < total), || {
            let (limit, total) = both.get().unwrap_or((0, 0));
            format!("the kernel gives {} of the {} that the runtime offers", gib(limit), gib(total))
        });
        if both.get().is_none() {
            return;
        }
        let carve_out = failure.device.and_then(|device| case.card(device)).and_then(|card| card.vram_total_bytes);
        let both = Known::new(carve_out, "the carve-out of the BIOS (mem_info_vram_total)").zip(failure.total_bytes());
        check.unless(both.is(|(carve_out, total)| case.thresholds.is_near(total, carve_out)), || {
            "the memory is the carve-out of the BIOS, which KFD does not count".to_owned()
        });
    }
    // What the program itself holds of the host's memory is the least that KFD counts.
    let by_kernel = if failure.is_of_host_below() { saturate(failure.oom.kernel_host_bytes) } else { 0 };
    let pinned = saturate(failure.oom.held_host_bytes).max(pinned_by_layers(case, failure)).max(by_kernel);
    if of_host && failure.oom.held_host_bytes > 0 {
        check.part("pins");
    }
    let own = host_bytes(case, failure, failure.own_bytes(), pinned, of_host);
    unless_more_before(most.zip(limit), check);
    let both = failure.request_bytes().zip(own).map(|(request, own)| own.saturating_add(request)).zip(limit);
    let holds = match both.is(|(wanted, limit)| wanted > limit) {
        Holds::No if of_host => Holds::Unknown(KFD_USE),
        holds => holds,
    };
    check.must_by(Basis::Estimated, holds, || {
        let (wanted, limit) = both.get().unwrap_or((0, 0));
        format!(
            "with this request this process alone needs {} of the host's memory, and the kernel gives {} at most \
             ({whose})",
            gib(wanted),
            gib(limit)
        )
    });
    if holds == Holds::Yes {
        return;
    }
    // That others hold the rest is nothing but possible, and where managed memory lies is not known.
    check.at_most(Confidence::Possible);
    let is_far = both.is(|(wanted, limit)| share(wanted, limit) < case.thresholds.kfd_own_share) == Holds::Yes;
    if is_far && failure.oom.kind == Kind::Managed {
        // The card may have refused it, and no number speaks for the limit.
        check.guess(KFD_USE);
    }
    if let Some((wanted, limit)) = both.get() {
        check.note_by(Basis::Estimated, true, || {
            let counted = match of_host {
                true => "what the program has pinned or registered of the host's memory",
                false => "what the program holds beyond the carve-out, what it has pinned",
            };
            let managed = managed_besides(failure);
            format!(
                "{counted} and this request are {} of the {} that the kernel gives at most ({whose}){managed}",
                size(wanted),
                gib(limit)
            )
        });
    }
}

/// A limit is none of which the program held more before: the most that it held, and the limit.
fn unless_more_before(both: Known<(u64, u64)>, check: &mut Check) {
    let exceeded = both.get().filter(|(most, limit)| most > limit);
    check.unless(exceeded.is_some(), || match exceeded {
        Some((most, limit)) => {
            format!("the program had held {} of the host's memory before, more than {}", gib(most), gib(limit))
        }
        None => "the program had held more of the host's memory before than the kernel is said to give".to_owned(),
    });
}

/// Managed memory that lives besides and is not counted.
fn managed_besides(failure: &Failure<'_>) -> String {
    match saturate(failure.oom.held_managed_bytes) {
        0 => String::new(),
        bytes => {
            let lies = match failure.report.managed_in_ram_bytes {
                Some(in_ram) if in_ram == bytes => "all of it in RAM".to_owned(),
                Some(in_ram @ 1..) => format!("at least {} of it in RAM", size(in_ram)),
                _ => "and nobody knows whether on the card or in RAM".to_owned(),
            };
            format!("; {} of managed memory live besides, {lies}", size(bytes))
        }
    }
}

/// What of the host's memory the program is known to hold, of so much on the device and so much pinned. Memory of a card is no
/// part of it. Managed memory may lie on the card, and what an APU gives comes from the BIOS's carve-out as far as that reaches.
fn host_bytes(case: &Case<'_>, failure: &Failure<'_>, own: u64, pinned: u64, of_host: bool) -> Known<u64> {
    let carve_out = failure.device.and_then(|device| case.card(device)).and_then(|card| card.vram_total_bytes);
    match of_host {
        true => Known::new(Some(pinned), KFD_USE),
        false => Known::new(carve_out, "the carve-out of the BIOS (mem_info_vram_total)")
            .map(|carve_out| own.saturating_sub(carve_out).saturating_add(pinned)),
    }
}

/// What the process has pinned by the calls of all layers, those of the runtime for itself among them, as far as they were recorded.
fn pinned_by_layers(case: &Case<'_>, failure: &Failure<'_>) -> u64 {
    // What is no block was asked for by nobody, but for memory that was registered and is pinned still.
    host_rows(case, failure).filter(|row| row.blocks > 0 || row.owner == STILL_PINNED).fold(0, sum)
}

/// Of that, what the program registered and does not hold any more, in bytes.
fn still_pinned(case: &Case<'_>, failure: &Failure<'_>) -> u64 {
    host_rows(case, failure).filter(|row| row.owner == STILL_PINNED).fold(0, sum)
}

fn host_rows<'a>(case: &Case<'a>, failure: &Failure<'_>) -> impl Iterator<Item = &'a Row> {
    let at = format!("oom:{}", failure.report.number);
    let ledger = case.facts.host_ledger.iter().find(move |ledger| ledger.moment == at);
    ledger.into_iter().flat_map(|ledger| &ledger.rows)
}

fn sum(bytes: u64, row: &Row) -> u64 {
    bytes.saturating_add(row.bytes)
}

/// A limit of the host's memory.
#[derive(Clone, Copy)]
struct Limit {
    bytes: u64,
    /// Of the diagnosis, by which fixes differ.
    part: &'static str,
    whose: &'static str,
}

/// What the kernel gives of the host's memory: KFD's limit, unless it is turned off, and TTM's for what is not device memory of
/// an APU, for which that is a diagnosis of its own. Where the program had held more than TTM's before, it is
/// KFD's.
fn kernel_limit(case: &Case<'_>, of_host: bool, most: u64) -> Known<Limit> {
    let is_off = |value: &str| matches!(value.trim(), "Y" | "y" | "1");
    let mut parameters = case.machine.amdgpu_parameters.iter();
    let off = parameters.any(|known| known.name == "no_system_mem_limit" && known.value.as_deref().is_some_and(is_off));
    let kfd = |bytes| Limit { bytes, part: "kfd", whose: "KFD's limit" };
    let ttm = |bytes| Limit { bytes, part: "ttm", whose: "TTM's limit, pages_limit" };
    let (kfd, ttm) = (case.ram_bytes().map(kfd_limit_bytes).map(kfd), case.ttm_limit_bytes().map(ttm));
    let nearer = |(kfd, ttm): (Limit, Limit)| if ttm.bytes < most || kfd.bytes <= ttm.bytes { kfd } else { ttm };
    match (of_host, off) {
        (true, true) => ttm,
        (true, false) => kfd.zip(ttm).map(nearer).or(kfd),
        (false, true) => Known::new(None, KFD_USE),
        (false, false) => kfd,
    }
}

/// A request for more than the machine has is refused whatever limit there is: its size is wrong.
pub(super) fn more_than_ram(case: &Case<'_>, failure: &Failure<'_>, check: &mut Check) {
    let both = failure.request_bytes().zip(case.ram_bytes());
    let text = || match both.get() {
        Some((request, ram)) if request > ram => {
            format!("{} in one request is more than the {} of RAM: no limit is the reason", size(request), gib(ram))
        }
        _ => "one request is more than all RAM: no limit is the reason".to_owned(),
    };
    check.unless(both.is(|(request, ram)| request > ram), text);
}

/// What would tell why a runtime refused without a refusal of the kernel's driver.
const ABOVE_KERNEL: &str = "why the runtime refused it although no recorded request to the kernel's driver was refused: a limit of the process, such as \
     its memory mappings or its addresses, stops a runtime before it asks";

/// Pinned memory was refused, and not that of a device.
fn pinned_host_exhaustion(case: &Case<'_>, failure: &Failure<'_>, check: &mut Check) {
    if !check.applies(failure.is_of_host() && !failure.is_of_gtt() && !failure.is_injected()) {
        return;
    }
    let own = failure.own_bytes().saturating_add(still_pinned(case, failure));
    check.part(if own > 0 { "pinned before" } else { "nothing pinned" });
    // Where the layers below were seen, a refusal above the kernel is none of its limits.
    if !failure.oom.saw_below || failure.oom.refused_by == RefusedBy::Layer(Some(Layer::Kernel)) {
        check.part("the kernel may have refused");
    }
    check.must(true, || {
        let asked = size(failure.oom.requested_bytes);
        format!(
            "{} asked for {asked} of pinned host memory, beside {} that had been pinned before",
            failure.report.call(),
            size(own)
        )
    });
    more_than_ram(case, failure, check);
    if failure.is_refused_above_kernel() {
        check.at_most(Confidence::Possible);
        check.would_settle(ABOVE_KERNEL);
    }
    let available = case.series(Quantity::HostAvailable).map(|series| series.last.1);
    check.note(available.is_some(), || {
        format!("{} of RAM was available at the last reading", size(available.unwrap_or(0)))
    });
}

/// The limit of a control group for device memory.
fn device_cgroup_limit(case: &Case<'_>, failure: &Failure<'_>, check: &mut Check) {
    let place = failure.device.and_then(|device| case.place(device));
    let is_of_card = |region: &&DeviceMemory| {
        let of_region = region.pci_bus_id().and_then(PciAddress::parse);
        region.is_vram() && place.zip(of_region).is_some_and(|(place, of_region)| place.is(of_region))
    };
    let of_card = case.machine.device_memory.iter().filter(is_of_card);
    let Some(region) = of_card.min_by_key(|region| region.limit_bytes).filter(|_| failure.is_real_of_device()) else {
        check.applies(false);
        return;
    };
    let limit = region.limit_bytes;
    check.must(true, || format!("the control group may have {} of {} (dmem.max)", gib(limit), region.region));
    let own = failure.own_bytes();
    let request = failure.request_bytes();
    let wanted = request.map(|request| own.saturating_add(request));
    unless_exceeded(case, failure, limit, check);
    let fits_card = request.zip(failure.free_bytes()).is(|(request, free)| request <= free);
    let is_over = wanted.is(|wanted| wanted > limit);
    // What is read when a process starts holds nothing of what it took since.
    let counted = region.used_bytes.filter(|used| *used >= own).zip(request.get());
    let holds = match counted {
        Some((used, request)) if used.saturating_add(request) > limit => Holds::Yes,
        _ if is_over == Holds::No && fits_card == Holds::No => Holds::No,
        _ => Holds::Unknown(GROUP_USE),
    };
    if holds != Holds::Yes || is_over != Holds::Yes || fits_card == Holds::No {
        // Others of the group may hold the rest, or the card itself is full: nobody saw it.
        check.at_most(Confidence::Possible);
    }
    check.must(holds, || {
        let (used, request) = counted.unwrap_or((0, 0));
        format!(
            "the group held {} (dmem.current), so the request makes it {}",
            gib(used),
            gib(used.saturating_add(request))
        )
    });
    check.note(is_over, || {
        format!("the program held {}, so the request makes it {}", gib(own), gib(wanted.get().unwrap_or(0)))
    });
}

/// XNACK on a part that has none.
fn xnack_ineffective(case: &Case<'_>, check: &mut Check) {
    if !check.applies(case.variable("HSA_XNACK") == Some("1") && case.versions.platform == Some(Platform::Rocm)) {
        return;
    }
    check.must(true, || "HSA_XNACK=1 is set".to_owned());
    let used = || case.facts.devices.iter().filter(|device| device.account.allocations > 0);
    let without: Vec<String> = used()
        .filter(|device| case.is_rdna(device) == Some(true))
        .filter_map(|device| device.architecture.clone())
        .collect();
    let holds = match used().all(|device| case.is_rdna(device).is_some()) && used().next().is_some() {
        _ if !without.is_empty() => Holds::Yes,
        true => Holds::No,
        false => Holds::Unknown("the target of the GPU (KFD's topology)"),
    };
    if holds != Holds::Yes {
        check.at_most(Confidence::Possible);
    }
    check.must(holds, || format!("{} is an RDNA part: only Instinct parts can retry page faults", without.join(", ")));
}

/// A library for the names of devices is not found.
fn missing_libdrm_link(case: &Case<'_>, check: &mut Check) {
    check.must_by(Basis::Given, case.runtime_said(&[RuntimeSays::NoLibdrm]), || {
        "the program's standard error says that libdrm_amdgpu.so can't be opened".to_owned()
    });
}

/// Only half of a card of RDNA4 can be used.
fn vram_half_cap(case: &Case<'_>, device: &DeviceSummary, check: &mut Check) {
    let rdna4 = case.target(device).map(|(major, ..)| major == 12);
    if !check.applies(case.versions.platform == Some(Platform::Rocm) && rdna4 != Some(false)) {
        return;
    }
    check.at_most(Confidence::Possible);
    let torch = Known::new(case.versions.torch, "the version of PyTorch");
    check.must(torch.is(|torch| HALF_CAP_TORCH.contains(&torch)), || {
        format!("PyTorch {} for ROCm", torch.get().map(|torch| torch.to_string()).unwrap_or_default())
    });
    check.must(Known::new(rdna4, "the target of the GPU (KFD's topology)").is(|rdna4| rdna4), || {
        format!("the GPU is {}", device.architecture.clone().unwrap_or_default())
    });
    let total = Known::new(device.runtime_total_bytes(), "the size of the device");
    let board = case.card(device).and_then(|card| card.vram_total_bytes).zip(total.get());
    if let Some((board, total)) = board {
        let is_less = total < board && !case.thresholds.is_near(board, total);
        check.unless(is_less, || match is_less {
            true => {
                format!("the runtime offers {} of a board of {}: the total itself is too small", gib(total), gib(board))
            }
            false => "the total itself is less than the board has".to_owned(),
        });
    }
    let peak = device.account.peak.requested_bytes;
    check.must(total.is(|total| case.thresholds.is_near(peak, total / 2)), || {
        format!("the program's own memory stopped at {} of {}", gib(peak), gib(total.get().unwrap_or(0)))
    });
    let crashed = case.replay.end == End::Signaled(libc::SIGSEGV);
    let refused =
        case.failures().filter(|failure| failure.report.device == device.index && failure.is_real_of_device());
    // What was more than the free half would not have fitted without any such limit.
    let had_room = |failure: &Failure<'_>| {
        let both = failure.request_bytes().zip(failure.free_bytes()).get()?;
        (failure.was_enough(failure.free_bytes()) == Holds::Yes).then_some(both.1)
    };
    let free = refused.filter_map(|failure| had_room(&failure)).max();
    let half_free = free
        .zip(device.runtime_total_bytes())
        .is_some_and(|(free, total)| share(free, total) >= case.thresholds.half_free_share);
    check.must(crashed || half_free, || match free.filter(|_| half_free) {
        Some(free) => format!("memory was refused with {} free", gib(free)),
        None => "then it ended with a segmentation fault".to_owned(),
    });
}
