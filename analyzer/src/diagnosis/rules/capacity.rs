//! A. Capacity: what one device can hold at all.

use super::{Rule, device, failure};
use crate::diagnosis::case::{Case, Failure};
use crate::judgement::check::{Check, Confidence, Holds};
use crate::machine::kfd::KfdNode;
use crate::passes::device::DeviceSummary;
use crate::replay::tracks::retries::Ending;
use crate::thresholds::share;
use crate::words::{percent, size};
use gpuoom_trace::metadata::Quantity;

pub(super) const RULES: &[Rule] = &[
    failure("true-capacity", true_capacity),
    failure("request-exceeds-device", request_exceeds_device),
    device("partition-slice", partition_slice),
];

/// The card is full of this process's own live memory.
fn true_capacity(case: &Case<'_>, failure: &Failure<'_>, check: &mut Check) {
    if !check.applies(failure.is_real_of_device()) {
        return;
    }
    let own = failure.process_or_own_bytes();
    let total = failure.total_bytes();
    check.must(total.is(|total| share(own, total) >= case.thresholds.capacity_medium_share), || {
        let total = total.get().unwrap_or(0);
        format!("this process holds {} of {} ({})", size(own), size(total), percent(share(own, total)))
    });
    if total.get().is_some_and(|total| share(own, total) < case.thresholds.capacity_high_share) {
        check.at_most(Confidence::Probable);
    }
    full_of_hidden(failure, own, check);
    let both = failure.request_bytes().zip(failure.free_bytes());
    check.must(both.is(|(request, free)| !case.thresholds.is_enough(free, request)), || {
        let (request, free) = both.get().unwrap_or((0, 0));
        let barely = if free < request { "" } else { ", too little once it is rounded and mapped" };
        format!("{} was asked for and {} was free{barely}", size(request), size(free))
    });
    let largest = failure.request_bytes().get().zip(failure.oom.read.largest_allocatable_bytes);
    let largest = largest.filter(|(request, largest)| largest < request).map(|(_, largest)| largest);
    check.note(largest.is_some(), || format!("no more than {} could be had, as was tried", size(largest.unwrap_or(0))));
    // As much was free as was asked for, and nobody tried what could be had: rounding may not be the reason.
    if largest.is_none() && both.get().is_some_and(|(request, free)| free >= request) {
        check.at_most(Confidence::Probable);
    }
    check.unless(case.leaks(failure.oom.device), || {
        "what stays rises from cycle to cycle: a leak is the reason, and the full card its end".to_owned()
    });
    refuted_by_others(failure, check);
    refuted_by_caches(case, failure, check);
}

/// What fills the card may be the runtime's own memory, or the rounding of blocks: the model is not the proven reason then.
fn full_of_hidden(failure: &Failure<'_>, own: u64, check: &mut Check) {
    let Some(total) = failure.total_bytes().get() else { return };
    let asked_for = failure.own_bytes();
    let hidden = own.saturating_sub(asked_for);
    if share(asked_for, total) >= failure.thresholds.capacity_high_share || hidden == 0 {
        return;
    }
    check.at_most(Confidence::Probable);
    check.note(true, || {
        format!(
            "the program asked for {} of that; {} are rounding and the runtime's own memory",
            size(asked_for),
            size(hidden)
        )
    });
}

fn refuted_by_others(failure: &Failure<'_>, check: &mut Check) {
    let runtime = failure.request_bytes().zip(failure.runtime_free_bytes());
    check.unless(runtime.is(|(request, free)| failure.thresholds.is_enough(free, request)), || {
        "the runtime reported clearly more free than was asked for".to_owned()
    });
    let much = failure.thresholds.much_of_a_card();
    check.unless(others_hold_much(failure), || match failure.external_at_most_bytes().get() {
        Some(others) => format!("others hold {much} of the card or more (they hold at most {})", size(others)),
        None => format!("others hold {much} of the card or more"),
    });
}

/// What the program holds may be cached, and not in use.
fn refuted_by_caches(case: &Case<'_>, failure: &Failure<'_>, check: &mut Check) {
    let kept = case.kept_by_pools_bytes(failure);
    let left = failure.free_bytes().zip(failure.request_bytes());
    let enough_with_pools = match kept {
        0 => Holds::No,
        _ if left.get().is_some_and(|(free, request)| free.saturating_add(kept) < request) => Holds::No,
        _ => Holds::Unknown("what stream-ordered pools keep (hipMemPoolAttrReservedMemCurrent)"),
    };
    check.unless(enough_with_pools, || "stream-ordered pools could give back what was missing".to_owned());
    check.unless(case.torch_holds_enough(failure), || {
        "PyTorch's allocator held at least the request in unused blocks".to_owned()
    });
    let retry = case.retry(failure);
    check.unless(retry.is_some_and(|retry| retry.is_release_and_success()), || {
        "the same request succeeded after a cache was released".to_owned()
    });
    let again = retry.filter(|retry| retry.ending == Ending::Failed && retry.freed_bytes > 0);
    check.note(again.is_some(), || {
        format!("{} were released, and it failed again", size(again.map_or(0, |retry| retry.freed_bytes)))
    });
}

/// Whether others hold enough to be a reason. That they do not can be known without knowing how much they hold.
fn others_hold_much(failure: &Failure<'_>) -> Holds {
    let total = failure.total_bytes();
    let is_much = |(others, total)| share(others, total) >= failure.thresholds.others_share;
    match failure.external_at_most_bytes().zip(total).is(is_much) {
        Holds::No => Holds::No,
        _ => failure.external_bytes().zip(total).is(is_much),
    }
}

/// One request is larger than the whole device.
fn request_exceeds_device(case: &Case<'_>, failure: &Failure<'_>, check: &mut Check) {
    if !check.applies(failure.is_real_of_device()) {
        return;
    }
    let both = failure.request_bytes().zip(failure.total_bytes());
    check.must(both.is(|(request, total)| request > total), || {
        let (request, total) = both.get().unwrap_or((0, 0));
        format!("one call asked for {}, and the whole device has {}", size(request), size(total))
    });
    let free = failure.runtime_free_bytes().zip(failure.total_bytes());
    check.unless(free.get().is_some_and(|(free, total)| free > total), || {
        "the reported total is wrong: more is reported free than there is".to_owned()
    });
    check.unless(has_larger_pool(case, failure), || {
        "the GPU shares the host's memory, and another of its limits would hold the request".to_owned()
    });
}

/// Whether an APU is known to have a pool into which the request would fit, so that its total is a limit and no size. That
/// the request exceeds what this runtime offers is measured either way.
fn has_larger_pool(case: &Case<'_>, failure: &Failure<'_>) -> bool {
    let card = failure.device.and_then(|device| case.card(device));
    let pools = card.map(|card| [card.gtt_total_bytes, card.vram_total_bytes]).unwrap_or_default();
    let by_ttm = case.machine.ttm.and_then(|ttm| ttm.limit_bytes());
    let largest = pools.into_iter().chain([by_ttm]).flatten().max().unwrap_or(0);
    let fits = failure.request_bytes().get().is_some_and(|request| largest >= request);
    case.is_integrated(failure.device).get() == Some(true) && fits
}

/// The device is a part of a board.
fn partition_slice(case: &Case<'_>, device: &DeviceSummary, check: &mut Check) {
    let Some(index) = device.index else { return };
    let by_mig = case.variable("CUDA_VISIBLE_DEVICES").filter(|devices| devices.starts_with("MIG-"));
    let mode = case.card(device).and_then(|card| card.compute_partition.as_deref());
    let mode = mode.filter(|mode| !mode.eq_ignore_ascii_case("SPX"));
    if !check.applies(by_mig.is_some() || mode.is_some()) {
        return;
    }
    let board = match mode {
        Some(_) => case.card(device).and_then(|card| case.machine.node_of(card)).map(|node| board_bytes(case, node)),
        None => case.device_series(Quantity::NvmlTotal, index).map(|series| series.last.1),
    };
    check.must(true, || match (by_mig, mode) {
        (Some(_), _) => "CUDA_VISIBLE_DEVICES names a MIG slice".to_owned(),
        (None, mode) => format!("the card is in the partition mode {}", mode.unwrap_or_default()),
    });
    let both = crate::judgement::check::Known::new(
        device.total_bytes.zip(board.filter(|board| *board > 0)),
        "the memory of the whole board",
    );
    check.must(both.is(|(total, board)| share(total, board) <= case.thresholds.slice_share), || {
        let (total, board) = both.get().unwrap_or((0, 0));
        format!("the device has {} of the board's {}", size(total), size(board))
    });
}

/// What all partitions of a board have: the memory of all of KFD's nodes in its slot.
fn board_bytes(case: &Case<'_>, node: &KfdNode) -> u64 {
    let slot = |node: &KfdNode| (node.domain, node.location_id.map(|location| location >> 8));
    let nodes = case.machine.nodes.iter().filter(|other| other.is_gpu() && slot(other) == slot(node));
    nodes.fold(0, |sum: u64, node| sum.saturating_add(node.local_bytes()))
}
