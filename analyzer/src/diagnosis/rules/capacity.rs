//! A. Capacity: what one device can hold at all.

mod refuted;

use super::{Rule, device, failure};
use crate::diagnosis::case::{Case, Failure};
use crate::diagnosis::on_card::Alone;
use crate::judgement::check::{Check, Confidence, Holds, Known};
use crate::machine::kfd::KfdNode;
use crate::passes::device::DeviceSummary;
use crate::passes::fragmentation::saturate;
use crate::replay::tracks::retries::Retry;
use crate::software::Platform;
use crate::thresholds::share;
use crate::words::{percent, size};
use gpuoom_trace::metadata::Quantity;
use gpuoom_trace::record::Kind;

pub(super) const RULES: &[Rule] = &[
    failure("true-capacity", true_capacity),
    failure("request-exceeds-device", request_exceeds_device),
    device("partition-slice", partition_slice),
];

/// The card is full of memory that this process holds. Whether the program still uses all of it is not said: a pool of its own,
/// which nobody records, may have given parts back.
fn true_capacity(case: &Case<'_>, failure: &Failure<'_>, check: &mut Check) {
    if !check.applies(failure.is_real_of_card()) {
        return;
    }
    let own = failure.process_or_own_bytes_at_refusal();
    let total = failure.total_bytes();
    // A request that no empty card could hold says nothing of what is on it, unless the card is larger than it is said to be.
    let could_fit = failure.request_bytes().zip(total).is(|(request, total)| request <= total);
    if !check.applies(could_fit != Holds::No || larger_board(case, failure).is_some()) {
        return;
    }
    let exceeds = failure.alone().is(|alone| matches!(alone, Alone::Exceeds { .. })).and(could_fit);
    let is_most = total.is(|total| share(own, total) >= case.thresholds.capacity_medium_share);
    check.must(is_most.or(exceeds), || {
        let total = total.get().unwrap_or(0);
        let of_total = format!("{} of {} ({})", size(own), size(total), percent(share(own, total)));
        match is_by_driver(failure) {
            true => format!("this process holds {of_total} by the driver's count"),
            false => format!("the program's own blocks hold {of_total}"),
        }
    });
    if let Some(share) = total.get().map(|total| share(own, total)) {
        let at_most = match share {
            // That it does not fit is certain, that the card is full is too much said.
            _ if share < case.thresholds.capacity_medium_share => {
                check.only_as_seen();
                if case.tensors_exceed(failure) { Confidence::Probable } else { Confidence::Possible }
            }
            _ if share < case.thresholds.capacity_high_share => {
                if exceeds == Holds::Yes {
                    check.only_as_seen();
                }
                Confidence::Probable
            }
            _ => Confidence::Proven,
        };
        check.at_most(at_most);
    }
    too_little_was_free(case, failure, check);
    if larger_board(case, failure).is_some() {
        check.at_most(Confidence::Probable);
    }
    limited_by_the_rest(failure, check);
    refuted::by_a_leak(case, failure, check);
    refuted::by_a_pile(case, failure, check);
    refuted::by_caches(case, failure, check);
}

/// Whether the request did not fit into what was free at the refusal.
fn too_little_was_free(case: &Case<'_>, failure: &Failure<'_>, check: &mut Check) {
    let both = failure.request_bytes().zip(failure.free_bytes());
    let too_little = match failure.was_enough(failure.free_bytes()) {
        Holds::Yes => Holds::No,
        Holds::No => Holds::Yes,
        unknown => unknown,
    };
    check.must(too_little, || {
        let (request, free) = both.get().unwrap_or((0, 0));
        let barely = if free < request { "" } else { ", too little once it is rounded and mapped" };
        let barely = if failure.moved.is_none() { barely.to_owned() } else { failure.moved.told() };
        let piece = failure.piece_of().map_or_else(String::new, |block| format!(", for a block of {},", size(block)));
        format!("{}{piece} was asked for and {} was free{barely}", size(request), size(free))
    });
    let largest = failure.request_bytes().get().zip(failure.oom.read.largest_allocatable_bytes);
    let largest = largest.filter(|(request, largest)| largest < request).map(|(_, largest)| largest);
    check.note(largest.is_some(), || match largest {
        Some(0) | None => "no block of any size could be allocated right after it".to_owned(),
        Some(bytes) if failure.allocated_beyond_free().is_some() => {
            format!("a block of {} could be allocated right after it: more than had been read as free", size(bytes))
        }
        Some(bytes) => format!("a block of {} could be allocated right after it", size(bytes)),
    });
    if failure.oom.read.largest_allocatable_bytes.is_some() {
        check.unless(case.probe_gave_request(failure) && !probe_misses_little(failure), || {
            "a block of practically the size that was refused could be allocated right after it".to_owned()
        });
    }
    beside_the_runtimes_word(case, failure, check);
    // What fits by the numbers and has fitted before may have been refused for another reason.
    let would_fit = both.get().is_some_and(|(request, free)| free >= request);
    let with_request = failure.own_bytes().saturating_add(both.get().map_or(0, |(request, _)| request));
    if would_fit && saturate(failure.oom.most.held_bytes) >= with_request {
        check.at_most(Confidence::Possible);
        check.note(true, || "the program had held as much before as with this request".to_owned());
        check.would_settle("another try of the same request, with nothing given back in between");
    }
}

/// Whether the probe's block is all that the card has beside the program's own, or all that was free, and the request more than that.
/// It tries in steps: what is too much by less than one of them looks to it as if it fitted.
fn probe_misses_little(failure: &Failure<'_>) -> bool {
    let got = failure.oom.read.largest_allocatable_bytes;
    let is_all_that_was_free = got.zip(failure.free_bytes().get()).is_some_and(|(got, free)| got <= free);
    let is_less = got.zip(failure.request_bytes().get()).is_some_and(|(got, asked)| got < asked);
    if is_all_that_was_free && is_less && failure.was_enough(failure.free_bytes()) == Holds::No {
        return true;
    }
    let beside = failure.total_bytes().get().map(|total| total.saturating_sub(failure.own_bytes()));
    let both = beside.zip(failure.oom.read.largest_allocatable_bytes).zip(failure.request_bytes().get());
    both.is_some_and(|((beside, largest), request)| largest <= beside && beside < request)
}

/// That the runtime called enough free rules a full card out, unless the driver's counters of that card contradict it.
fn beside_the_runtimes_word(case: &Case<'_>, failure: &Failure<'_>, check: &mut Check) {
    const WHY: &str = "why the runtime calls more free than the driver counts";
    let was_enough = failure.was_enough(failure.runtime_free_bytes());
    let reports_too_much = if was_enough == Holds::Yes { runtime_reports_too_much(case, failure) } else { Holds::No };
    match reports_too_much {
        Holds::No => {
            check.unless(was_enough, || "the runtime reported clearly more free than was asked for".to_owned())
        }
        Holds::Yes => {
            check.at_most(Confidence::Probable);
            check.note(true, || {
                let (runtime, driver) = (failure.runtime_free_bytes().get(), failure.driver_free_bytes().get());
                let (runtime, driver) = (size(runtime.unwrap_or(0)), size(driver.unwrap_or(0)));
                format!("the runtime called {runtime} free, the driver's counters {driver}")
            });
            check.would_settle(WHY);
        }
        Holds::Unknown(reading) => {
            check.at_most(Confidence::Possible);
            check.must(Holds::Unknown(reading), String::new);
        }
    }
}

/// Whether what the runtime calls free can't be: the program's own blocks and the request are more than the card, and the driver's
/// counters of that card say so, too.
fn runtime_reports_too_much(case: &Case<'_>, failure: &Failure<'_>) -> Holds {
    let exceeds = matches!(failure.alone().get(), Some(Alone::Exceeds { .. }));
    let request = failure.request_bytes().get().unwrap_or(0);
    let too_little = failure.was_free(failure.driver_free_bytes(), |free| free < request);
    Holds::from(exceeds).and(too_little).and(case.is_read_of_card(failure))
}

/// Whether what the process holds is told by the driver's count of it, and not by its blocks alone.
fn is_by_driver(failure: &Failure<'_>) -> bool {
    failure.process_bytes().get().is_some_and(|counted| counted >= failure.own_bytes())
}

/// What the program asked for and holds, with its size where that was not told before.
fn own_blocks(failure: &Failure<'_>) -> String {
    match is_by_driver(failure) {
        true => format!("the program's own blocks ({})", size(failure.own_bytes())),
        false => "those blocks".to_owned(),
    }
}

/// What is more than the card by itself needs no other reason. Else something beside the program's own requests decided:
/// rounding, the runtime's own memory or other processes. A runtime's usual part no program can have.
fn limited_by_the_rest(failure: &Failure<'_>, check: &mut Check) {
    let spare = match failure.alone().get() {
        Some(Alone::Exceeds { by_bytes }) => {
            // Where the blocks alone are more than the card is said to have, it is larger than that.
            let is_larger = failure.total_bytes().get().is_some_and(|total| failure.own_bytes() > total);
            if is_larger {
                check.at_most(Confidence::Probable);
                check.would_settle("the size of the card: the program's own blocks are more than it is said to have");
            }
            check.note(!is_larger, || {
                let request = if failure.piece_of().is_some() { "this piece" } else { "this request" };
                format!(
                    "{} and {request} are {} more than the whole card, whatever else is there",
                    own_blocks(failure),
                    size(by_bytes)
                )
            });
            return;
        }
        Some(Alone::Fits { spare_bytes }) => Some(spare_bytes),
        None => None,
    };
    let usual = failure.total_bytes().get().map_or(0, |total| failure.thresholds.usual_overhead_bytes(total));
    let is_usual = spare.is_some_and(|spare| spare < usual);
    check.at_most(match failure.is_missing_with_others().get() {
        Some(false) if is_usual => Confidence::Proven,
        _ if is_usual => Confidence::Probable,
        _ => Confidence::Possible,
    });
    check.note(spare.is_some(), || {
        let (own, spare) = (own_blocks(failure), size(spare.unwrap_or(0)));
        let late = failure.moved.given_bytes;
        let at_most = if late > 0 { "at most " } else { "" };
        let late = match late {
            0 => String::new(),
            late => {
                format!(" ({} of them came while the call was under way, and maybe after it was refused)", size(late))
            }
        };
        format!(
            "on a card without anything else (rounding, the runtime, others) {own} and this request would \
             have fit, with {at_most}{spare} to spare{late}"
        )
    });
    refuted_by_others(failure, check);
}

fn refuted_by_others(failure: &Failure<'_>, check: &mut Check) {
    let much = failure.thresholds.much_of_a_card();
    let own = failure.total_bytes().get().map_or(0.0, |total| share(failure.process_or_own_bytes(), total));
    if own >= failure.thresholds.capacity_medium_share && others_hold_much(failure) == Holds::Yes {
        // The card is full of both.
        check.at_most(Confidence::Possible);
        check.note(true, || format!("others hold {much} of the card or more"));
        return;
    }
    check.unless(others_hold_much(failure), || match failure.external_at_most_bytes().get() {
        Some(others) => format!("others hold {much} of the card or more (they hold at most {})", size(others)),
        None => format!("others hold {much} of the card or more"),
    });
}

/// What was given back, a cache or data, no call says.
pub(super) fn after_a_release(retry: &Retry) -> String {
    let who = match (retry.freed_bytes, retry.freed_by_others_bytes) {
        (0, _) => "another thread",
        (_, 0) => "its thread",
        _ => "its thread and another",
    };
    format!("a request for as much succeeded after {who} had given memory back")
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
    if failure.is_of_drm() && !failure.is_injected() {
        request_exceeds_card_and_gtt(failure, check);
        return;
    }
    if !check.applies(failure.is_real_of_card()) {
        return;
    }
    if failure.oom.kind == Kind::Pool && case.replay.made_pools > 0 {
        check.at_most(Confidence::Probable);
        check.would_settle(
            "what sort of memory the pool gives that the program made: managed memory may be larger than the device",
        );
    }
    // Of a block that PyTorch puts together from pages the last of these is no measure.
    let block = failure.oom.error.as_ref().map_or(0, |error| error.requested_bytes);
    // What a setting leaves the runtime of the card is not the device.
    let whole = if failure.is_heap_limited() { failure.card_bytes() } else { failure.total_bytes() };
    let of_card = |request: Known<u64>| request.map(|request| request.max(block)).zip(whole);
    let exceeds = |both: Known<(u64, u64)>| both.is(|(request, total)| request > total);
    let least = of_card(failure.least_request_bytes());
    let holds = match exceeds(least) {
        Holds::Yes => Holds::Yes,
        // With the padding of its rows it may be more than the card.
        _ => exceeds(of_card(failure.request_bytes())),
    };
    check.must(holds, || {
        let (request, total) = least.get().unwrap_or((0, 0));
        let (asked, whole) = (size(request), size(total));
        match asked == whole {
            true => format!(
                "one call asked for {asked}, {} more than the whole device has",
                size(request.saturating_sub(total))
            ),
            false => format!("one call asked for {asked}, and the whole device has {whole}"),
        }
    });
    // No machine has so much: what is negative as a signed number was computed wrongly.
    let is_negative = failure.least_request_bytes().get().is_some_and(|request| i64::try_from(request).is_err());
    check.part(if is_negative { "negative" } else { "size" });
    // The total may be wrong. Each way in which it can be is looked at where it was read.
    if let Some((free, total)) = failure.runtime_free_bytes().zip(failure.total_bytes()).get() {
        check.unless(free > total, || "the runtime reports more free than the whole device is said to have".to_owned());
    }
    if let Some(total) = failure.total_bytes().get() {
        let held = saturate(failure.oom.most.held_bytes);
        check.unless(held > total, || "the process had held more than the whole device is said to have".to_owned());
    }
    if let Some((request, board)) = failure.least_request_bytes().get().zip(larger_board(case, failure)) {
        check.unless(request <= board, || format!("the reported total is a limit: the board has {}", size(board)));
    }
    // No limit of any machine holds a number that is negative.
    let has_larger_pool = if is_negative { Holds::No } else { has_larger_pool(case, failure) };
    check.unless(has_larger_pool, || {
        "the GPU shares the host's memory, and another of its limits would hold the request".to_owned()
    });
}

/// A buffer of the DRM may lie on the card or in GTT: one that is larger than either finds room nowhere.
fn request_exceeds_card_and_gtt(failure: &Failure<'_>, check: &mut Check) {
    check.must(super::gtt::exceeds_both(failure), || {
        let gtt = failure.oom.read.gtt_total_bytes.unwrap_or(0);
        format!(
            "one call asked for {}, the whole device has {}, and GTT, where the kernel may put it, too, {}",
            size(failure.oom.requested_bytes),
            size(failure.total_bytes().get().unwrap_or(0)),
            size(gtt)
        )
    });
    check.part("size");
}

/// The memory of the board where it is known and more than the device is said to have, although the device is no part of it.
fn larger_board(case: &Case<'_>, failure: &Failure<'_>) -> Option<u64> {
    let device = failure.device?;
    if case.is_integrated(Some(device)).get() == Some(true) || part_of_a_board(case, device).is_some() {
        return None;
    }
    let read = &failure.oom.read;
    let of_card = case.card(device).and_then(|card| card.vram_total_bytes);
    let board = read.vram_total_bytes.or(of_card).or(read.nvml_total_bytes)?;
    let total = failure.total_bytes().get()?;
    (board > total && !case.thresholds.is_near(board, total)).then_some(board)
}

/// Whether an APU has a pool into which the request would fit, so that its total is a limit and no size. That the request exceeds
/// what this runtime offers is measured either way.
fn has_larger_pool(case: &Case<'_>, failure: &Failure<'_>) -> Holds {
    const POOLS: &str = "the APU's pools and TTM's limit (sysfs)";
    match case.is_integrated(failure.device).get() {
        Some(false) => return Holds::No,
        // The runtime of an integrated GPU of NVIDIA's reports the memory of the machine.
        None if case.versions.platform == Some(Platform::Cuda) => return Holds::No,
        None => return Holds::Unknown("whether the GPU shares the host's memory (KFD's topology)"),
        Some(true) => {}
    }
    let card = failure.device.and_then(|device| case.card(device));
    let [gtt, carve_out] = card.map(|card| [card.gtt_total_bytes, card.vram_total_bytes]).unwrap_or_default();
    let pools = [gtt, carve_out, case.machine.ttm.and_then(|ttm| ttm.limit_bytes())];
    let fits = |bytes: &u64| failure.request_bytes().get().is_some_and(|request| *bytes >= request);
    match pools.iter().flatten().any(fits) {
        true => Holds::Yes,
        false if pools.iter().any(Option::is_none) => Holds::Unknown(POOLS),
        false => Holds::No,
    }
}

/// By what a device is known to be a part of a board.
enum Part<'a> {
    /// A MIG slice is named in the environment.
    Mig,
    /// The card's partition mode.
    Mode(&'a str),
}

/// Variables that choose the devices of a program or of a container.
const MIG_VARIABLES: [&str; 2] = ["CUDA_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES"];

fn part_of_a_board<'a>(case: &'a Case<'_>, device: &DeviceSummary) -> Option<Part<'a>> {
    let is_cuda = case.versions.platform == Some(Platform::Cuda);
    let names_mig = |devices: &&str| devices.starts_with("MIG-");
    let by_mig = MIG_VARIABLES.into_iter().find_map(|name| case.variable(name).filter(names_mig)).filter(|_| is_cuda);
    let mode = case.card(device).and_then(|card| card.compute_partition.as_deref());
    let mode = mode.filter(|mode| !mode.eq_ignore_ascii_case("SPX"));
    by_mig.map(|_| Part::Mig).or(mode.map(Part::Mode))
}

/// The device is a part of a board.
fn partition_slice(case: &Case<'_>, device: &DeviceSummary, check: &mut Check) {
    let Some((index, part)) = device.index.zip(part_of_a_board(case, device)) else { return };
    let board = match part {
        Part::Mode(_) => {
            case.card(device).and_then(|card| case.machine.node_of(card)).map(|node| board_bytes(case, node))
        }
        Part::Mig => case.device_series(Quantity::NvmlTotal, index).map(|series| series.last.1),
    };
    check.must(true, || match part {
        Part::Mig => {
            "the environment names a MIG slice as the device (CUDA_VISIBLE_DEVICES, NVIDIA_VISIBLE_DEVICES)".to_owned()
        }
        Part::Mode(mode) => format!("the card is in the partition mode {mode}"),
    });
    let both =
        Known::new(device.runtime_total_bytes().zip(board.filter(|board| *board > 0)), "the memory of the whole board");
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
