//! Shapes of a training: load, first passes, optimizer, a long batch, evaluation.

use super::facts::{Facts, Phase, Told};
use super::named::must_be_named;
use super::paths::Thing;
use super::{MARKS, SEGMENTS};
use crate::judgement::check::{Check, Confidence, Holds};
use crate::passes::fit::variation;
use crate::passes::shape::cycles::Cycle;
use crate::passes::trend::{Course, Point, Trend};
use crate::replay::tracks::calls::What;
use crate::thresholds::share;
use crate::words::{count, percent, size};

/// What names the phase; without that it is a guess. A label of another phase refutes it.
fn in_phase(facts: &Facts, phase: Phase, check: &mut Check) {
    must_be_named(facts.says(phase), check);
    let other = facts.phase().filter(|known| *known != phase && facts.on_path(Thing::Phase(phase)).is_none());
    if let (Some(_), Some(mark)) = (other, &facts.marked) {
        check.unless(true, || format!("the program's last label is \"{}\"", mark.label));
    }
}

fn no_step_yet(facts: &Facts, check: &mut Check) {
    check.must(facts.steps() == 0 && facts.labelled_steps() == 0, || "no step had been completed before it".to_owned());
}

/// Only what the allocator asks for is seen, and not the program's tensors.
fn not_segments(facts: &Facts, check: &mut Check) {
    if facts.are_segments && facts.marked.is_none() {
        check.at_most(Confidence::Possible);
        check.would_settle(SEGMENTS);
    }
}

/// What words outside of the ones known leave open.
const OTHER_LABELS: &str = "whether the program's labels mean that the load was over";

/// While weights are loaded.
pub(super) fn load(facts: &Facts, check: &mut Check) {
    if !check.applies(facts.requested_bytes > 0 && facts.held_bytes > 0) {
        return;
    }
    check.part("one load");
    no_step_yet(facts, check);
    check.must(facts.large_free_at.is_none(), || {
        let large = size(facts.thresholds.large_free_bytes);
        format!("{} had been allocated, and nothing above {large} given back", size(facts.held_bytes))
    });
    let fall = facts.cycles.peak_bytes.saturating_sub(facts.held_bytes);
    check.must(share(fall, facts.cycles.peak_bytes) <= facts.thresholds.load_fall_share, || {
        "what was held only rose".to_owned()
    });
    in_phase(facts, Phase::Load, check);
    let is_over = match facts.load_end {
        Some((_, Told::Mark)) => Holds::Yes,
        _ if facts.marked.as_ref().is_some_and(|mark| Phase::of(&mark.label) != Some(Phase::Load)) => {
            Holds::Unknown(OTHER_LABELS)
        }
        _ => Holds::No,
    };
    check.unless(is_over, || "a label says that the load was over".to_owned());
    let pause = facts.load_end.is_some_and(|(_, told)| told != Told::Mark);
    if pause && facts.marked.is_none() {
        check.must(Holds::Unknown(MARKS), String::new);
    }
    not_segments(facts, check);
}

/// How the end of the load was told, as a predicate.
fn behind_the_load(facts: &Facts, check: &mut Check) {
    let Some((end, told)) = facts.load_end else {
        check.applies(false);
        return;
    };
    check.must(end > 0 && end <= facts.calls.len(), || match told {
        Told::Mark => "a label says that the load was over".to_owned(),
        Told::Pause(times) => {
            format!("it came after {end} calls for memory and a pause {times} times as long as the usual one")
        }
    });
}

/// In the first forward pass.
pub(super) fn first_forward(facts: &Facts, check: &mut Check) {
    if !check.applies(facts.requested_bytes > 0) {
        return;
    }
    no_step_yet(facts, check);
    behind_the_load(facts, check);
    let matching = facts.matching();
    let once = matching.map_or(0.0, |matching| matching.once);
    check.must(matching.is_some(), || format!("{} of the blocks before it came again in size", percent(once)));
    check.unless(once >= facts.thresholds.matching_share, || {
        format!("sizes of the blocks before come again ({} of them)", percent(once))
    });
    in_phase(facts, Phase::Forward, check);
    not_segments(facts, check);
}

/// In the first backward pass.
pub(super) fn first_backward(facts: &Facts, check: &mut Check) {
    if !check.applies(facts.requested_bytes > 0) {
        return;
    }
    no_step_yet(facts, check);
    behind_the_load(facts, check);
    if let Some(matching) = facts.matching() {
        check.must(matching.once >= facts.thresholds.matching_share, || {
            format!("{} of the blocks before it came again in size", percent(matching.once))
        });
        let order = match matching.order {
            Some(order) => Holds::from(order <= -facts.thresholds.reversed_share),
            None => Holds::Unknown("the order in which they came: the sizes are too much alike to tell"),
        };
        check.must(order, || {
            format!("they came in the reverse order (rank correlation {:.2})", matching.order.unwrap_or(0.0))
        });
        let load = facts.held_bytes.saturating_sub(matching.bytes);
        check.note(load > 0, || {
            format!(
                "{} were held, {} of it in blocks of sizes that came again",
                size(facts.held_bytes),
                size(matching.bytes)
            )
        });
    } else {
        check.applies(false);
    }
    in_phase(facts, Phase::Backward, check);
    not_segments(facts, check);
}

/// In the optimizer's first step.
pub(super) fn optimizer(facts: &Facts, check: &mut Check) {
    if !check.applies(facts.requested_bytes > 0) {
        return;
    }
    let marked = facts.says(Phase::Optimizer);
    let cycles = facts.cycles.steps().len();
    let is_late = facts.steps() as u64 >= facts.thresholds.later_steps;
    check.must(cycles == 1 && facts.repetition.is_none() || marked.is_some() && !is_late, || {
        "just one step had been completed before it (a peak, and back to a floor)".to_owned()
    });
    if check.is_over() {
        return;
    }
    match facts.matching_since_floor() {
        Some(matching) => {
            check.must(matching.twice >= facts.thresholds.matching_share, || {
                format!("{} of the sizes that stayed were asked for twice again", percent(matching.twice))
            });
        }
        // Nothing stayed, so nothing came again.
        None if facts.from_beginning => _ = check.applies(false),
        None => check.must(Holds::Unknown("the calls before the failure: there were too many to keep"), String::new),
    }
    let (rose, floor) = (facts.held_bytes.saturating_sub(facts.cycles.open_from.bytes), facts.cycles.open_from.bytes);
    check
        .note(rose > 0, || format!("{} had come on top of the {} that stayed after the step", size(rose), size(floor)));
    check.unless(is_late, || format!("{} steps or more had been completed", facts.thresholds.later_steps));
    in_phase(facts, Phase::Optimizer, check);
    check.would_settle("the optimizer in use: 8-bit ones and SGD without momentum take less than 8 B per parameter");
    not_segments(facts, check);
}

/// In one batch that is larger than all before.
pub(super) fn longest_batch(facts: &Facts, check: &mut Check) {
    let steps = facts.cycles.steps();
    if !check.applies(steps.len() as u64 >= facts.thresholds.stable_cycles && facts.cycles.later().is_empty()) {
        return;
    }
    let largest = facts.largest_before();
    check.must(true, || {
        format!("{} cycles, each a rise and a fall of what is held, were completed before it", steps.len())
    });
    let peaks: Vec<f64> = steps.iter().map(|cycle| cycle.peak.bytes as f64).collect();
    let (_, variation) = variation(&peaks);
    check.must(variation >= facts.thresholds.peak_variation_share, || {
        format!("their peaks differ by {} of their mean (standard deviation)", percent(variation))
    });
    check.must(facts.requested_bytes as f64 > (1.0 + facts.thresholds.longer_share) * largest as f64, || {
        let (asks, given) = (size(facts.requested_bytes), size(largest));
        format!("it asks for {asks}, and the largest that was given before is {given}")
    });
    // What was refused was asked for.
    let refused = facts.largest_refused_before();
    let asked_as_much = refused
        .is_some_and(|bytes| facts.requested_bytes as f64 <= (1.0 + facts.thresholds.longer_share) * bytes as f64);
    check.unless(asked_as_much, || match refused {
        Some(bytes) => format!("the cycles before had asked for as much, and been refused {}", size(bytes)),
        None => "the cycles before had asked for as much, and been refused it".to_owned(),
    });
    check.must(same_place_asked(facts), || "the same thread had asked from the same call site".to_owned());
    must_be_named(facts.says_batch(), check);
    unless_more_stays(facts, check);
    check.unless(facts.phase() == Some(Phase::Evaluation), || "a label says evaluation".to_owned());
    match facts.grown_paths() {
        (0, _) => {
            check.at_most(Confidence::Possible);
            check.would_settle(
                "whether the batch is longer, or one request of it: other call paths in that cycle that came before",
            );
        }
        (paths, grown) => check.unless(grown == 0, || {
            format!(
                "{} had asked in this cycle, and none of them for more than ever before",
                count(paths as u64, "other call path", "other call paths")
            )
        }),
    }
    check.would_settle("a restart: failing again at the same data supports this, and refutes a leak");
    if facts.are_segments {
        check.at_most(Confidence::Probable);
    }
}

/// Whether the request came from where the requests of the cycles before came from.
fn same_place_asked(facts: &Facts) -> Holds {
    let given = || facts.calls.iter().filter(|call| call.what == What::Given && call.at >= facts.cycles_began_at());
    if given().all(|call| call.thread != facts.thread) {
        return Holds::No;
    }
    if facts.site == 0 || given().all(|call| call.site == 0) {
        return Holds::Unknown("the call sites of the requests");
    }
    given().any(|call| call.thread == facts.thread && call.site == facts.site).into()
}

/// Where what stays rises from step to step up to the failure, the batch is not the reason. Where blocks are told of, they decide: the
/// segments below them also rise with the largest batch so far.
pub(super) fn unless_more_stays(facts: &Facts, check: &mut Check) {
    match facts.keeps_more_blocks {
        Some(keeps_more) => {
            check.unless(keeps_more, || "blocks that stay become more from step to step".to_owned());
        }
        None => {
            let rise = facts.rise.as_ref().filter(|rise| rise.is_significant());
            let goes_on = match rise.map(|rise| rise.trend.course) {
                None => Holds::No,
                Some(Course::Pauses) => {
                    Holds::Unknown("whether what stays between the cycles still rises: the last steps did not")
                }
                Some(_) => Holds::Yes,
            };
            check.unless(goes_on, || "what stays between the cycles rises".to_owned());
        }
    }
}

/// Results of an evaluation pile up.
pub(super) fn eval_accumulation(facts: &Facts, check: &mut Check) {
    let named = facts.says(Phase::Evaluation);
    let by_label = facts.phase() == Some(Phase::Evaluation);
    let later = if by_label { facts.since_mark.steps() } else { facts.cycles.later() };
    let before = facts.cycles.main.len();
    if !check.applies(before >= 1 && later.len() >= facts.thresholds.least_cycles()) {
        return;
    }
    let rise =
        |cycles: &[Cycle]| cycles.iter().map(|cycle| cycle.fall_bytes() as f64).sum::<f64>() / cycles.len() as f64;
    let lower = rise(later) / rise(&facts.cycles.main);
    if !by_label {
        check.must(lower < facts.thresholds.forward_share, || {
            format!("{} cycles came behind {before} larger ones, {} as high", later.len(), percent(lower))
        });
    }
    let point = |(x, cycle): (u32, &Cycle)| Point { x: f64::from(x), y: cycle.to.bytes as f64, sort: 0 };
    let points: Vec<Point> = (0..).zip(later).map(point).collect();
    let trend = Trend::of(&points, &facts.thresholds.trend_limits());
    check.must(trend.is_some_and(|trend| trend.rises()), || {
        let rate = trend.map_or(0.0, |trend| trend.rate());
        format!("what stays between them rises by {} each, up to the last", size(rate.max(0.0) as u64))
    });
    must_be_named(named, check);
    let last = later.last().map_or(0, |cycle| cycle.to.bytes);
    let given_back = last - (last as f64 * facts.thresholds.given_back_share) as u64;
    check.unless(facts.held_bytes < given_back, || "it had been given back before the failure".to_owned());
    not_segments(facts, check);
}

/// The first batch of an evaluation.
pub(super) fn eval_batch(facts: &Facts, check: &mut Check) {
    let is_marked = facts.phase() == Some(Phase::Evaluation);
    let steps = facts.steps_before_phase();
    let is_trained = steps as u64 >= facts.thresholds.trained_steps;
    if !check.applies(is_trained && facts.requested_bytes > 0 && facts.cycles.later().is_empty()) {
        return;
    }
    let largest = facts.largest_before();
    check.must(facts.requested_bytes > largest, || {
        format!(
            "it asks for {}, and no request of the cycles before for more than {}",
            size(facts.requested_bytes),
            size(largest)
        )
    });
    if !is_marked && !pause_before_last_cycle(facts) {
        check.must(facts.on_path(Thing::Phase(Phase::Evaluation)).is_some(), String::new);
    }
    in_phase(facts, Phase::Evaluation, check);
    check.must(!is_marked || facts.since_mark.main.is_empty(), || {
        "no cycle of that phase had been completed".to_owned()
    });
    if is_marked && !facts.names_a_training {
        check.would_settle("whether a model was trained before: no label names a batch or a phase of a training");
    }
    unless_more_stays(facts, check);
    // A size alone does not tell a larger batch from another head of the model.
    check.at_most(Confidence::Possible);
    check.would_settle("the sizes of both batches");
}

/// Whether the cycle that failed began after a pause as before another phase.
fn pause_before_last_cycle(facts: &Facts) -> bool {
    let steps = facts.cycles.steps();
    let mut durations: Vec<u64> = steps.iter().map(Cycle::duration).collect();
    durations.sort_unstable();
    let median = durations.get(durations.len() / 2).copied().unwrap_or(0);
    let floor = facts.cycles.open_from.at;
    let next = facts.calls.iter().find(|call| call.at > floor).map_or(facts.at, |call| call.at);
    let pause = next.saturating_sub(floor);
    pause >= facts.pause_ticks && share(pause, median) >= facts.thresholds.pause_share
}
