//! G. GTT, the host memory that the kernel lends to a card, and buffers of the DRM (Vulkan, OpenGL), which may lie there.

use gpuoom_trace::metadata::Quantity;

use super::{Rule, device, failure};
use crate::diagnosis::case::{Case, Failure};
use crate::evidence::kernel_log::KernelEventKind;
use crate::judgement::check::{Check, Confidence, Holds, Known};
use crate::passes::device::DeviceSummary;
use crate::software::Platform;
use crate::thresholds::share;
use crate::words::{gib, percent, size};

pub(super) const RULES: &[Rule] =
    &[device("gtt-exhaustion", gtt_exhaustion), failure("gtt-exhaustion", gtt_exhaustion_of)];

/// The graphics translation memory of a card is full.
fn gtt_exhaustion(case: &Case<'_>, device: &DeviceSummary, check: &mut Check) {
    let Some(index) = device.index else {
        check.applies(false);
        return;
    };
    let went_wrong = case.facts.oom_count > 0 || case.replay.end.is_failure();
    // A program that uses Vulkan alone has no runtime.
    let may_be_amd = !matches!(case.versions.platform, Some(Platform::Cuda));
    if !check.applies(may_be_amd && went_wrong) {
        return;
    }
    let total = case.device_series(Quantity::GttTotal, index).map(|series| series.last.1).filter(|total| *total > 0);
    let used = case.device_series(Quantity::GttUsed, index).map(|series| series.most.1);
    let both = Known::new(used, "GTT in use (mem_info_gtt_used)").zip(Known::new(total, "the size of GTT"));
    check.must(both.is(|(used, total)| share(used, total) >= case.thresholds.count_share), || {
        let (used, total) = both.get().unwrap_or((0, 0));
        format!("{} of {} GTT were in use ({})", gib(used), gib(total), percent(share(used, total)))
    });
    unless_gtt_is_all(case, device, check);
    let refused = kernel_refused_submission(case, device);
    check.must(refused, || "the kernel says that there is not enough memory for a command submission".to_owned());
    // What is known of such a buffer is said of it.
    let has_its_own = |failure: Failure<'_>| {
        failure.is_of_gtt() || failure.is_of_drm() && room_for(&failure).is(|(asked, free)| asked > free) == Holds::Yes
    };
    if refused != Holds::Yes && case.failures().any(has_its_own) {
        check.applies(false);
        return;
    }
    // Without that line a full GTT explains at most that memory of the host was refused.
    let is_of_host = |failure: &Failure<'_>| failure.is_of_host() && !failure.is_injected();
    if refused != Holds::Yes && !case.failures().any(|failure| is_of_host(&failure)) {
        check.at_most(Confidence::Possible);
    }
}

fn unless_gtt_is_all(case: &Case<'_>, device: &DeviceSummary, check: &mut Check) {
    check.unless(case.is_integrated(Some(device)).is(|integrated| integrated), || {
        "the GPU uses the host's memory: GTT is what it has".to_owned()
    });
}

/// A buffer of the DRM lies on the card or in GTT, and was refused while neither had as much left.
fn gtt_exhaustion_of(case: &Case<'_>, failure: &Failure<'_>, check: &mut Check) {
    if !check.applies((failure.is_of_drm() || failure.is_of_gtt()) && !failure.is_injected()) {
        return;
    }
    match failure.is_of_gtt() {
        true => in_gtt_alone(case, failure, check),
        false => on_card_or_in_gtt(failure, check),
    }
    if let Some(device) = failure.device {
        unless_gtt_is_all(case, device, check);
    }
    // Who else may have taken either in between, and in how many pieces they were free, was not read.
    check.at_most(Confidence::Probable);
}

fn on_card_or_in_gtt(failure: &Failure<'_>, check: &mut Check) {
    let both = failure.driver_free_bytes().zip(gtt_free_bytes(failure));
    check.must(room_for(failure).is(|(asked, free)| asked > free), || {
        let (card, gtt) = both.get().unwrap_or_default();
        format!(
            "{} asked for {}, which the kernel may put on the card or into GTT: {} was free on the card, {} in GTT",
            failure.report.call(),
            size(failure.oom.requested_bytes),
            size(card),
            size(gtt)
        )
    });
    check.unless(exceeds_both(failure), || "one request is for more than the card or all of GTT".to_owned());
}

/// What a buffer of the DRM asked for, and what was free where most was: on the card or in GTT.
fn room_for(failure: &Failure<'_>) -> Known<(u64, u64)> {
    let free = failure.driver_free_bytes().zip(gtt_free_bytes(failure)).map(|(card, gtt)| card.max(gtt));
    failure.request_bytes().zip(free)
}

fn gtt_free_bytes(failure: &Failure<'_>) -> Known<u64> {
    let read = &failure.oom.read;
    let free = read.gtt_total_bytes.zip(read.gtt_used_bytes).map(|(total, used)| total.saturating_sub(used));
    Known::new(free, "GTT in use at the failure (mem_info_gtt_used)")
}

/// Whether a request is larger than the card and larger than GTT, so that neither would ever hold it.
pub(super) fn exceeds_both(failure: &Failure<'_>) -> Holds {
    let gtt = Known::new(failure.oom.read.gtt_total_bytes, "the size of GTT (mem_info_gtt_total)");
    failure.request_bytes().zip(failure.total_bytes().zip(gtt)).is(|(request, (card, gtt))| request > card.max(gtt))
}

/// What this process holds in GTT and asks for there is more than GTT has. GTT that others use, and what the card gave up, come on top.
fn in_gtt_alone(case: &Case<'_>, failure: &Failure<'_>, check: &mut Check) {
    let total = failure.oom.device.and_then(|device| case.device_series(Quantity::GttTotal, device));
    let total = Known::new(total.map(|series| series.last.1), "the size of GTT (mem_info_gtt_total)");
    let used = failure.oom.device.and_then(|device| case.device_series(Quantity::GttUsed, device));
    let used = used.map_or(0, |series| series.last.1).max(failure.own_bytes());
    let both = failure.request_bytes().zip(total);
    check.must(both.is(|(request, total)| used.saturating_add(request) > total), || {
        let (request, total) = both.get().unwrap_or_default();
        format!(
            "{} asked for {} in GTT, of which at least {} of {} were in use",
            failure.report.call(),
            size(request),
            size(used),
            size(total)
        )
    });
}

/// Whether the kernel refused a command submission of a device for want of memory.
fn kernel_refused_submission(case: &Case<'_>, device: &DeviceSummary) -> Holds {
    case.kernel_says_of(device, |event| event.kind == KernelEventKind::CommandSubmission)
}
