//! B. Limits on counts and addresses, which fail while memory is free.

use super::{Rule, failure, run};
use crate::diagnosis::case::{Case, Failure};
use crate::diagnosis::exceeded::PROBE;
use crate::judgement::check::{Check, Confidence, Holds, Known};
use crate::replay::failures::RefusedBy;
use crate::replay::reservations::Refused;
use crate::replay::tracks::around::Next;
use crate::replay::tracks::calls::{Call, What};
use crate::software::Platform;
use crate::thresholds::{GIB, MIB, share};
use crate::words::{grouped, size};
use gpuoom_trace::record::{Kind, Layer};

pub(super) const RULES: &[Rule] = &[
    failure("map-count-exhaustion", map_count_exhaustion),
    failure("address-space-limit", address_space_limit),
    failure("vmm-fd-exhaustion", vmm_fd_exhaustion),
    run("gpu-va-limit", gpu_va_limit),
];

/// A page, of which reservations and handles must be multiples at least.
const PAGE_BYTES: u64 = 4096;
/// What shows that a count was not used up.
const GIVEN_LATER: &str = "a later call of the same function was granted, and nothing had been given back in between";
/// Smaller blocks may lie in one that the runtime has mapped before. (ROCR-Runtime amd_memory_region.cpp)
const FRAGMENT_BYTES: u64 = 2 * MIB;

/// The process has as many memory mappings as the kernel allows.
fn map_count_exhaustion(case: &Case<'_>, failure: &Failure<'_>, check: &mut Check) {
    let request = failure.request_bytes().get().unwrap_or(u64::MAX);
    let is_of_host = failure.is_of_host() && !failure.is_of_gtt() && !failure.is_injected();
    let free = if is_of_host { available(failure) } else { failure.free_bytes() };
    let is_rocm = case.versions.platform == Some(Platform::Rocm);
    // Without this shape nobody would think of it.
    let is_small = request <= case.thresholds.small_request_bytes;
    let has_enough = |free: u64| free / case.thresholds.room_factor >= request;
    let has_room = if is_of_host { free.is(has_enough) } else { failure.was_free(free, has_enough) } == Holds::Yes;
    if !check.applies(is_rocm && (failure.is_real_of_device() || is_of_host) && is_small && has_room) {
        return;
    }
    let read = &failure.oom.process;
    let told = read.memory_map_limit.or(case.machine.virtual_memory.max_map_count);
    let limit = told.unwrap_or(65_530);
    let blocks = case.around(failure).map_or(failure.oom.held.blocks, |around| around.live_blocks);
    let texts = |maps: u64| format!("the process has {} memory mappings of at most {}", grouped(maps), grouped(limit));
    match read.memory_maps {
        Some(maps) => {
            let is_left = |maps: u64| (maps as f64) < case.thresholds.count_share * limit as f64;
            if told.is_none() && !check.applies(!is_left(maps)) {
                // Where nobody told the limit, few mappings may be all that are allowed.
                return;
            }
            check.decides(!is_left(maps), || texts(maps), || texts(maps));
            if told.is_none() {
                check.at_most(Confidence::Possible);
                check.must(Holds::Unknown("the limit of memory mappings (vm.max_map_count)"), String::new);
            }
            some_left(limit.saturating_sub(maps), "a failure with no mapping left: here some were", check);
            // That there are as many blocks does not show that they are what takes the mappings.
            check.at_most(Confidence::Probable);
            check.would_settle("the same run with a larger vm.max_map_count");
            let is_of_others = (2 * blocks) as f64 <= case.thresholds.handles_of_open_share * maps as f64;
            check.note(is_of_others, || "most mappings are none of the program's blocks".to_owned());
            refused_with_some_left(case, failure, |other| other.oom.process.memory_maps.map(is_left), check);
        }
        None => {
            check.at_most(Confidence::Possible);
            check.must(blocks >= case.thresholds.many_allocations, || {
                format!("{} blocks live, each with two mappings of address space", grouped(blocks))
            });
            check.must(Holds::Unknown("the number of memory mappings at the failure (/proc/PID/maps)"), String::new);
        }
    }
    check.must(true, || format!("{} was asked for and {} was free", size(request), size(free.get().unwrap_or(0))));
    if failure.oom.read.largest_allocatable_bytes.is_none() {
        // A block that it is given makes it possible only: where nobody tried, it can't be surer than that.
        check.only_as_seen();
        check.at_most(Confidence::Possible);
        check.would_settle(PROBE);
    }
    mapped_later(case, failure, check);
}

/// Any block needs mappings, a small one and that of the recorder's probe, too. But mappings come and go without a call for memory:
/// that a smaller block was given right after it rules nothing out.
fn mapped_later(case: &Case<'_>, failure: &Failure<'_>, check: &mut Check) {
    let request = failure.oom.requested_bytes;
    check.unless(is_given_later(case, failure, request), || GIVEN_LATER.to_owned());
    let probed = failure.oom.read.largest_allocatable_bytes.filter(|_| case.is_probe_of_failure(failure)).unwrap_or(0);
    if probed > 0 || is_given_later(case, failure, request.min(FRAGMENT_BYTES)) {
        check.only_as_seen();
        check.at_most(Confidence::Possible);
        check.would_settle("whether any mapping could be made at the failure");
        check.note(true, || match probed {
            0 => "a smaller block was given after it, and nothing had been given back in between".to_owned(),
            _ => format!("a block of {} could be allocated right after it, which needs mappings, too", size(probed)),
        });
    }
}

/// The process may not map as many addresses more as the request needs. ROCm maps a block of a device's memory, too, into the process.
fn address_space_limit(case: &Case<'_>, failure: &Failure<'_>, check: &mut Check) {
    let is_rocm = case.versions.platform == Some(Platform::Rocm);
    let read = &failure.oom.process;
    let limit = read.address_space_limit_bytes.filter(|_| is_rocm && !failure.is_injected());
    let (Some(limit), Some(mapped)) = (limit, read.address_space_bytes) else { return };
    let Some(request) = failure.request_bytes().get() else { return };
    let left = limit.saturating_sub(mapped);
    let text = || {
        format!(
            "the process had mapped {} of {} addresses (ulimit -v), and {} was asked for",
            size(mapped),
            size(limit),
            size(request)
        )
    };
    check.decides(left < request, text, text);
    check.at_most(Confidence::Probable);
    check.would_settle("the same run without the limit (ulimit -v unlimited)");
    // Ruled out is only what a call below, or the probe, could have shown.
    let by_kernel = failure.oom.refused_by == RefusedBy::Layer(Some(Layer::Kernel));
    if by_kernel || failure.oom.saw_below {
        check.unless(by_kernel, || "the kernel's driver refused it, whatever the process may map".to_owned());
    }
    if let Some(probed) = failure.oom.read.largest_allocatable_bytes {
        check.unless(probed > left, || match probed > left {
            true => format!("a block of {} could be allocated right after it", size(probed)),
            false => "a block larger than what was left could be allocated right after it".to_owned(),
        });
    }
}

/// What RAM could give then.
fn available(failure: &Failure<'_>) -> Known<u64> {
    Known::new(failure.oom.process.host_available_bytes, "available RAM at the failure (MemAvailable)")
}

/// VMM handles used up the descriptors of the process.
fn vmm_fd_exhaustion(case: &Case<'_>, failure: &Failure<'_>, check: &mut Check) {
    let Some(around) = case.around(failure) else { return };
    let is_rocm = case.versions.platform == Some(Platform::Rocm);
    let is_handle = failure.oom.kind == Kind::Physical && !failure.is_injected();
    if !check.applies(is_rocm && is_handle && around.vmm_handles > 0) {
        return;
    }
    let both = failure.request_bytes().zip(failure.free_bytes());
    let odd = failure.request_bytes().get().filter(|bytes| bytes % PAGE_BYTES != 0);
    check.unless(odd.is_some(), || match odd {
        Some(bytes) => format!("{bytes} bytes are no multiple of a page, which is refused by itself"),
        None => "a size that is no multiple of a page was asked for".to_owned(),
    });
    check.must(failure.was_enough(failure.free_bytes()), || {
        let (request, free) = both.get().unwrap_or((0, 0));
        format!("{} of physical memory was refused with {} free", size(request), size(free))
    });
    let (handles, read) = (around.vmm_handles, &failure.oom.process);
    match read.open_descriptors.zip(read.descriptor_limit) {
        Some((open, limit)) => {
            let text = || format!("{} of at most {} descriptors are open", grouped(open), grouped(limit));
            let is_left = |open: u64| (open as f64) < case.thresholds.count_share * limit as f64;
            check.decides(!is_left(open), text, text);
            some_left(limit.saturating_sub(open), "a failure with no descriptor left: here some were", check);
            // That there are as many does not show that they are what takes the descriptors.
            check.at_most(Confidence::Probable);
            check.would_settle(
                "what the descriptors are (/proc/PID/fd at the failure), or the same run with a larger ulimit -n",
            );
            let are_most = handles as f64 >= case.thresholds.handles_of_open_share * open as f64;
            if !are_most {
                check.only_as_seen();
                check.at_most(Confidence::Possible);
            }
            check.note(true, || match are_most {
                true => format!("{} live handles can account for them", grouped(handles)),
                false => format!("{} live handles account for some of them at most", grouped(handles)),
            });
            refused_with_some_left(case, failure, |other| other.oom.process.open_descriptors.map(is_left), check);
        }
        None => {
            check.at_most(Confidence::Possible);
            let usual = case.thresholds.usual_descriptors;
            let is_near = share(handles.abs_diff(usual), usual) <= case.thresholds.usual_descriptors_share;
            check.must(is_near, || {
                format!("{} handles live, near the usual limit of {usual} descriptors", grouped(handles))
            });
            check.must(Holds::Unknown("the number of open descriptors at the failure, and its limit"), String::new);
        }
    }
    check.unless(is_given_later(case, failure, 0), || GIVEN_LATER.to_owned());
}

/// The same that is refused with some of a count left was not refused for want of it. Where nobody counted then, some may have been.
fn refused_with_some_left(
    case: &Case<'_>,
    failure: &Failure<'_>,
    is_left: impl Fn(&Failure<'_>) -> Option<bool>,
    check: &mut Check,
) {
    let request = failure.request_bytes().get().unwrap_or(0);
    let is_same = |other: &Failure<'_>| {
        other.report.number != failure.report.number
            && (other.oom.api, other.oom.device) == (failure.oom.api, failure.oom.device)
            && other.request_bytes().is(|bytes| bytes <= request) == Holds::Yes
            && other.was_enough(other.free_bytes()) != Holds::No
    };
    let mut doubts = case.failures().filter(|other| is_same(other) && is_left(other) != Some(false));
    let Some(other) = doubts.next() else { return };
    check.only_as_seen();
    check.at_most(Confidence::Possible);
    if is_left(&other).is_none() {
        check.would_settle("how many were left when the same was refused another time");
        return;
    }
    check.note(true, || format!("#{} was refused with some left", other.report.number));
    check.would_settle("why that one was refused");
}

/// A count is used up where nothing of it is left. With some left, that it is nearly used up may be a chance.
fn some_left(left: u64, would_settle: &str, check: &mut Check) {
    if left > 0 {
        check.only_as_seen();
        check.at_most(Confidence::Possible);
        check.would_settle(would_settle);
    }
}

/// Whether something was given by the same function, to any thread or to the thread that failed, before anything was given back: a
/// count that was used up stays so. `least_bytes`: what surely takes one more.
fn is_given_later(case: &Case<'_>, failure: &Failure<'_>, least_bytes: u64) -> bool {
    let is_same = |next: &Next| next.api == failure.oom.api || next.kind == failure.oom.kind;
    let is_next = |next: &Next| next.succeeded && is_same(next) && next.requested_bytes >= least_bytes;
    let next = case.next_request(failure).filter(|(next, done)| is_next(next) && !done.gave_back());
    let calls = &case.replay.tracks.calls;
    let from = case.around(failure).map_or(u64::MAX, |around| around.calls_before.saturating_add(1));
    let until_return = (from..calls.count()).map_while(|number| calls.get(number));
    let mut until_return = until_return.take_while(|call| call.what != What::Returned);
    let is_given = |call: &Call| call.what == What::Given && call.api == failure.oom.api && call.bytes >= least_bytes;
    next.is_some() || until_return.any(is_given)
}

/// A reservation of GPU addresses was refused.
fn gpu_va_limit(case: &Case<'_>, check: &mut Check) {
    let Some(refused) = case.replay.reservations.refused() else { return };
    if !check.applies(case.facts.oom_count == 0) {
        return;
    }
    let Refused { bytes, reserved_bytes, .. } = *refused;
    check.must(true, || {
        format!(
            "{} refused {} of addresses (status {}) with {} reserved, and no call for memory failed",
            case.replay.apis.get(refused.api).name,
            size(bytes),
            refused.status,
            size(reserved_bytes)
        )
    });
    let by_kernel =
        case.machine.amdgpu_parameter("vm_size").and_then(|gib| u64::try_from(gib).ok()).filter(|gib| *gib > 0);
    let by_kernel = by_kernel.filter(|_| case.versions.platform == Some(Platform::Rocm));
    let by_shell = case.machine.limits.address_space_bytes.and_then(|limit| limit.soft);
    let limits =
        [by_kernel.map(|gib| ("amdgpu.vm_size", gib.saturating_mul(GIB))), by_shell.map(|bytes| ("ulimit -v", bytes))];
    let Some((name, limit)) = limits.into_iter().flatten().min_by_key(|(_, limit)| *limit) else {
        check.at_most(Confidence::Possible);
        check.must(Holds::Unknown("the limit of GPU addresses (amdgpu.vm_size, ulimit -v)"), String::new);
        return;
    };
    let wanted = reserved_bytes.saturating_add(bytes);
    // The runtimes refuse such a size whatever is left.
    check.unless(bytes % PAGE_BYTES != 0, || {
        format!("{bytes} bytes are no multiple of a page, which is refused by itself")
    });
    if wanted <= limit {
        check.at_most(Confidence::Possible);
        check.would_settle("what else takes addresses of the process (/proc/PID/maps at the failure)");
    }
    check.decides(
        share(wanted, limit) > case.thresholds.address_share,
        || format!("with it {} would be reserved, and {name} allows {}", size(wanted), size(limit)),
        || format!("the reservations are small: {} of the {} that {name} allows", size(wanted), size(limit)),
    );
}
