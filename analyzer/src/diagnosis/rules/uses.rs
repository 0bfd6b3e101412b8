//! A. How a program uses memory: in one go, in steps, or again and again.

use std::collections::{BTreeMap, HashSet};
use std::ops::RangeInclusive;

use super::attention::{self, exponent};
use super::capacity::after_a_release;
use super::{Rule, failure, training_state};
use crate::diagnosis::case::{Case, Failure};
use crate::diagnosis::labels::{Numbered, count_up, number_behind};
use crate::diagnosis::on_card::Alone;
use crate::judgement::check::{Check, Confidence, Holds, Known};
use crate::passes::fragmentation::saturate;
use crate::passes::libraries::Libraries;
use crate::replay::census::Census;
use crate::replay::tracks::calls::{Call, What};
use crate::replay::tracks::marks::Mark;
use crate::replay::tracks::series::Turn;
use crate::software::Program;
use crate::thresholds::{Unit, share};
use crate::words::{percent, size};
use gpuoom_trace::outcome::Outcome;

pub(super) const RULES: &[Rule] = &[
    failure("preallocation-by-framework", preallocation_by_framework),
    failure("attention-quadratic", attention::attention_quadratic),
    failure("training-state-exceeds-card", training_state::training_state_exceeds_card),
    failure("fixed-vs-activation", fixed_vs_activation),
    failure("repeated-large-temporaries", repeated_large_temporaries),
];

/// A framework took most of the card when it started.
fn preallocation_by_framework(case: &Case<'_>, failure: &Failure<'_>, check: &mut Check) {
    let Some((around, total)) = case.around(failure).zip(failure.total_bytes().get()) else { return };
    if !check.applies(failure.is_real_of_card()) {
        return;
    }
    // Any library can take much at first: only a framework whose default it is makes it likely.
    let is_framework = [Program::Jax, Program::TensorFlow].into_iter().any(|one| case.versions.has(one));
    check.at_most(if is_framework { Confidence::Probable } else { Confidence::Possible });
    if !is_framework {
        check.only_as_seen();
    }
    let libraries = Libraries::new(case.trace, case.replay);
    let Some((taken_by, burst)) = first_burst(case, around.device, &libraries) else { return };
    check.must(share(burst, total) >= case.thresholds.burst_share, || {
        let within = Unit::Time.shown(case.thresholds.burst_ns as f64);
        format!(
            "{taken_by} took {} ({} of the card) within {within} of its first use",
            size(burst),
            percent(share(burst, total))
        )
    });
    let window = case.replay.tracks.calls.before(around.calls_before + 1);
    let failed = window.calls.last().filter(|call| call.what == What::Refused);
    let asked_by = failed.and_then(|call| libraries.of_site(call.site));
    // A program that loads its data in a second looks the same: only two different libraries make the shape.
    let executable = case.facts.process.executable.rsplit('/').next().unwrap_or_default();
    let Some(asked_by) = asked_by.filter(|_| taken_by != executable && !check.is_over()) else {
        check.applies(false);
        return;
    };
    check.decides(
        taken_by != asked_by,
        || format!("{asked_by} was refused"),
        || format!("{asked_by} itself was refused"),
    );
    let held = held_by(failure, &taken_by, &libraries);
    check.decides(
        held.is(|held| share(held, total) >= case.thresholds.burst_share),
        || format!("{taken_by} still held {} then", size(held.get().unwrap_or(0))),
        || format!("{taken_by} held only {} then: it had given the rest back", size(held.get().unwrap_or(0))),
    );
}

/// The library whose block was the largest within a second of a device's first use, and the most that it held then.
fn first_burst(case: &Case<'_>, device: u8, libraries: &Libraries<'_>) -> Option<(String, u64)> {
    let replay = case.replay;
    let is_of_device = |call: &&Call| call.device == device && !replay.apis.get(call.api).is_of_host();
    let calls = || replay.tracks.calls.first().iter().filter(is_of_device);
    let until = replay.clock.at_ns(calls().next()?.at).saturating_add(case.thresholds.burst_ns);
    let burst = || calls().take_while(|call| replay.clock.at_ns(call.at) <= until);
    let largest = burst().filter(|call| call.what == What::Given).max_by_key(|call| call.bytes)?;
    let library = libraries.of_site(largest.site)?.to_owned();
    let mut own = HashSet::new();
    let (mut held, mut most) = (0u64, 0);
    for call in burst() {
        let is_own = |site| libraries.of_site(site) == Some(&library);
        match call.what {
            What::Given if is_own(call.site) => {
                own.insert(call.address);
                held = held.saturating_add(call.bytes);
            }
            What::Returned if own.remove(&call.address) => held = held.saturating_sub(call.bytes),
            _ => {}
        }
        most = most.max(held);
    }
    Some((library, most))
}

/// What blocks that a library asked for held at a failure.
fn held_by(failure: &Failure<'_>, library: &str, libraries: &Libraries<'_>) -> Known<u64> {
    let sum = |census: &Census| {
        let own = census.own.iter().filter(|(caller, _)| libraries.of_site(caller.site) == Some(library));
        own.fold(0u64, |sum, (_, held)| sum.saturating_add(saturate(held.requested_bytes)))
    };
    let held = failure.oom.census.as_deref().map(sum);
    Known::new(held, "who held what at the failure, which is counted for the first failures of a run")
}

/// Floors and peaks of a device before a failure that stand out.
fn turns_before(case: &Case<'_>, failure: &Failure<'_>, least_bytes: u64) -> Vec<Turn> {
    let track = failure.oom.device.and_then(|device| case.replay.tracks.device(device));
    let Some(track) = track else { return Vec::new() };
    let filtered = track.live.filtered(least_bytes);
    filtered.turns().filter(|turn| turn.at <= failure.oom.at).copied().collect()
}

/// Activations, not the fixed state, fill the card. That a peak above a floor is of activations, only labels say.
fn fixed_vs_activation(case: &Case<'_>, failure: &Failure<'_>, check: &mut Check) {
    let Some(total) = failure.total_bytes().get().filter(|_| failure.is_real_of_card()) else { return };
    let turns = turns_before(case, failure, case.thresholds.large_cycle_bytes);
    // The floor of nothing, a peak, and then floors after steps.
    let floors: Vec<u64> = turns.iter().step_by(2).skip(1).map(|turn| turn.bytes).collect();
    // What is held at the failure may have come to stay: only what a whole cycle gave back is its own.
    let peak = turns.windows(3).step_by(2).map(|cycle| cycle[1].bytes).max().unwrap_or(0);
    let (Some(least), Some(most)) = (floors.iter().min().copied(), floors.iter().max().copied()) else { return };
    if !check.applies(floors.len() >= 2 && least > 0 && share(most - least, most) <= case.thresholds.variation_share) {
        return;
    }
    check.must(share(peak.saturating_sub(most), total) >= case.thresholds.activation_share, || {
        format!(
            "{} live at the peak of a whole cycle and {} after it: the difference is {} of the card",
            size(peak),
            size(most),
            percent(share(peak.saturating_sub(most), total))
        )
    });
    explains_the_failure(failure, check);
    // A label says what began, and not that the card is full of it.
    let is_named = case.last_label_names_a_step(failure);
    check.at_most(if is_named { Confidence::Probable } else { Confidence::Possible });
    if !is_named {
        check.only_as_seen();
    }
    check.would_settle(match is_named {
        true => "which blocks are activations: functions on the way to their calls that name them (--symbols, where names are missing)",
        false => "labels of the steps (gpuoom_mark), such as \"forward batch=8\": whether it is a model that runs",
    });
    let points = peaks_by_batch(case, failure, &turns, most);
    let Some(exponent) = exponent(&points, 2) else {
        check.must(Holds::Unknown("a run with another batch size: whether that part grows with it"), String::new);
        if numbers_of_batches(case, failure).iter().any(|(_, batch)| batch.is_some()) {
            // They count the batches, and say nothing of their size.
            check.at_most(Confidence::Possible);
        }
        return;
    };
    let batches: Vec<String> = points.iter().map(|(batch, _)| batch.to_string()).collect();
    let grows = || {
        format!(
            "above the floor it grows with the batch (labels: {}) by an exponent of {exponent:.2}",
            batches.join(", ")
        )
    };
    let linear = case.thresholds.batch_exponent_least..=case.thresholds.linear_exponent;
    check.decides(linear.contains(&exponent), grows, grows);
}

/// Batch sizes that labels name, each with the peak above the floor until the next label. Steps compare where their labels
/// differ in nothing else; the one that failed has not reached its peak.
fn peaks_by_batch(case: &Case<'_>, failure: &Failure<'_>, turns: &[Turn], floor: u64) -> Vec<(u64, u64)> {
    let marks = numbers_of_batches(case, failure);
    if count_up(marks.iter().filter_map(|(_, batch)| batch.as_ref())) {
        return Vec::new();
    }
    let mut by_rest = BTreeMap::<String, BTreeMap<u64, u64>>::new();
    for pair in marks.windows(2) {
        let (mark, Some(batch)) = &pair[0] else { continue };
        let inside = turns.iter().filter(|turn| (mark.at..pair[1].0.at).contains(&turn.at));
        let Some(peak) = inside.map(|turn| turn.bytes).max().filter(|peak| *peak > floor) else { continue };
        let known = by_rest.entry(batch.rest.clone()).or_default().entry(batch.number).or_default();
        *known = (peak - floor).max(*known);
    }
    let most = by_rest.into_values().max_by_key(BTreeMap::len).unwrap_or_default();
    most.into_iter().collect()
}

/// The labels before a failure, with the number of a batch in each.
fn numbers_of_batches<'a>(case: &Case<'a>, failure: &Failure<'_>) -> Vec<(&'a Mark, Option<Numbered>)> {
    case.labels_before(failure).map(|mark| (mark, number_behind(&mark.label, "batch"))).collect()
}

/// Many pieces of work, each with large temporary blocks.
fn repeated_large_temporaries(case: &Case<'_>, failure: &Failure<'_>, check: &mut Check) {
    let Some(request) = failure.request_bytes().get().filter(|_| failure.is_real_of_card()) else { return };
    let turns = turns_before(case, failure, case.thresholds.large_cycle_bytes);
    // Whole cycles: from a floor over a peak to the next floor.
    let cycles: Vec<&[Turn]> = turns.windows(3).step_by(2).collect();
    if !check.applies(cycles.len() as u64 >= case.thresholds.many_cycles) {
        return;
    }
    // A guess from sizes: nothing names what was computed.
    check.at_most(Confidence::Possible);
    check.only_as_seen();
    check.must(true, || format!("{} cycles of large blocks, taken and given back, came before", cycles.len()));
    let passes = |cycle: &&&[Turn]| {
        let (used, left) =
            (cycle[1].bytes.saturating_sub(cycle[0].bytes), cycle[2].bytes.saturating_sub(cycle[0].bytes));
        used >= left.saturating_mul(case.thresholds.temporary_factor)
    };
    let temporary: Vec<&&[Turn]> = cycles.iter().filter(passes).collect();
    check.must(share(temporary.len() as u64, cycles.len() as u64) >= case.thresholds.temporary_share, || {
        let factor = case.thresholds.temporary_factor;
        format!("in {} of them at least {factor} times as much came as stayed", temporary.len())
    });
    // What stayed of the other cycles was set up, and says nothing of the temporary blocks.
    let stayed = |cycle: &[Turn]| cycle[2].bytes.saturating_sub(cycle[0].bytes);
    let largest = || {
        let own = temporary.iter().filter(|cycle| cycle[1].largest_request_bytes > stayed(cycle));
        own.map(|cycle| cycle[1].largest_request_bytes)
    };
    let (least, most) = (largest().min().unwrap_or(0), largest().max().unwrap_or(0));
    let factor = case.thresholds.family_factor;
    let family = least / factor..=most.saturating_mul(factor);
    check.must(family.contains(&request), || {
        let theirs = if least == most { size(least) } else { format!("{} to {}", size(least), size(most)) };
        format!("the request of {} is of the same family as theirs ({theirs})", size(request))
    });
    let since = since_the_last(case, failure, &turns, &family);
    check.must(since.is_some_and(|since| since.is_of_family), || match since {
        Some(Since { taken_bytes: 0, .. }) => "nothing was taken since the last of them".to_owned(),
        Some(since) => {
            format!(
                "{} was taken since the last of them, most of it in blocks of that family, too",
                size(since.taken_bytes)
            )
        }
        None => String::new(),
    });
    check.decides(
        share(most - least, most) > case.thresholds.variation_share,
        || "their sizes vary".to_owned(),
        || match least == most {
            true => format!("their sizes do not vary: {} each time", size(most)),
            false => format!("their sizes hardly vary: from {} to {}", size(least), size(most)),
        },
    );
    check.unless(case.labels_name_training(failure), || "labels name a training, whose batches may vary".to_owned());
    // What was kept and is given back when memory is short is a cache, and what was asked for in vain is no harm.
    if let Some(retry) = case.retry(failure) {
        check.unless(retry.is_release_and_success(), || after_a_release(retry));
    }
    explains_the_failure(failure, check);
}

/// The curve alone says nothing of a failure that did no harm, or that came although the program's own memory and the request
/// would have fit: then something else was on the card.
fn explains_the_failure(failure: &Failure<'_>, check: &mut Check) {
    let usual = failure.total_bytes().get().map_or(0, |total| failure.thresholds.usual_overhead_bytes(total));
    let would_fit = |alone| matches!(alone, Alone::Fits { spare_bytes } if spare_bytes >= usual);
    if failure.oom.outcome == Outcome::Recovered || failure.alone().get().is_none_or(would_fit) {
        check.at_most(Confidence::Possible);
    }
}

/// What was taken since the last floor.
#[derive(Clone, Copy)]
struct Since {
    taken_bytes: u64,
    /// Whether most of it, or nothing at all, is in blocks of the cycles' sizes: else something else was under way.
    is_of_family: bool,
}

fn since_the_last(
    case: &Case<'_>,
    failure: &Failure<'_>,
    turns: &[Turn],
    family: &RangeInclusive<u64>,
) -> Option<Since> {
    let (around, floor) = (case.around(failure)?, turns.iter().step_by(2).next_back()?);
    let window = case.replay.tracks.calls.before(around.calls_before + 1);
    let taken = |call: &&Call| call.what == What::Given && call.device == around.device && call.at > floor.at;
    let (mut of_family, mut all) = (0u64, 0u64);
    for call in window.calls.iter().filter(taken) {
        all = all.saturating_add(call.bytes);
        of_family = of_family.saturating_add(if family.contains(&call.bytes) { call.bytes } else { 0 });
    }
    let is_of_family = all == 0 || share(of_family, all) >= case.thresholds.under_way_share;
    Some(Since { taken_bytes: all, is_of_family })
}
