//! Shapes of a training: load, first passes, optimizer, a long batch, evaluation.

use super::facts::{Facts, Phase, Told};
use super::{MARKS, SEGMENTS};
use crate::judgement::check::{Check, Confidence, Holds};
use crate::passes::fit::{Fit, variation};
use crate::passes::shape::cycles::Cycle;
use crate::replay::tracks::unknown::Unknown;
use crate::thresholds::share;
use crate::words::{percent, size};

fn says(facts: &Facts, phase: Phase) -> Option<String> {
    let mark = facts.marked.as_ref().filter(|mark| mark.phase == Some(phase))?;
    Some(format!("the program's own label says so: \"{}\"", mark.label))
}

/// What a label says, or else what nobody knows without one.
fn by_mark(facts: &Facts, phase: Phase, check: &mut Check, otherwise: Holds) {
    match says(facts, phase) {
        Some(text) => check.must(true, || text),
        None => check.must(otherwise, String::new),
    }
    let other = facts.phase().is_some_and(|known| known != phase);
    check.unless(other, || match &facts.marked {
        Some(mark) if other => format!("the program's last label is \"{}\"", mark.label),
        _ => "a label of another phase".to_owned(),
    });
}

fn no_step_yet(facts: &Facts, check: &mut Check) {
    check.must(facts.steps() == 0, || "no step had been completed before it".to_owned());
}

/// Only what the allocator asks for is seen, and not the program's tensors.
fn not_segments(facts: &Facts, check: &mut Check) {
    if facts.are_segments && facts.marked.is_none() {
        check.at_most(Confidence::Possible);
        check.would_settle(SEGMENTS);
    }
}

/// While weights are loaded.
pub(super) fn load(facts: &Facts, check: &mut Check) {
    if !check.applies(facts.requested_bytes > 0 && facts.held_bytes > 0) {
        return;
    }
    no_step_yet(facts, check);
    check.must(facts.large_free_at.is_none(), || {
        let large = size(facts.thresholds.large_free_bytes);
        format!("{} had been allocated, and nothing above {large} given back", size(facts.held_bytes))
    });
    let fall = facts.cycles.peak_bytes.saturating_sub(facts.held_bytes);
    check.must(share(fall, facts.cycles.peak_bytes) <= facts.thresholds.load_fall_share, || {
        "what was held only rose".to_owned()
    });
    by_mark(facts, Phase::Load, check, Holds::Unknown(Unknown::CopiesToDevice.reason()));
    let is_over = facts.load_end.is_some_and(|(_, told)| told == Told::Mark);
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
            format!("it came behind a pause of {times} times the usual one, after {end} calls for memory")
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
    check.must(matching.is_some(), || format!("{} of the load's blocks came again in size", percent(once)));
    check.unless(once >= facts.thresholds.matching_share, || {
        format!("sizes of the load come again ({} of its blocks), as gradients do", percent(once))
    });
    match says(facts, Phase::Forward) {
        Some(text) => check.must(true, || text),
        None => {
            check.at_most(Confidence::Possible);
            check.would_settle(MARKS);
        }
    }
    check.unless(facts.phase().is_some_and(|phase| phase != Phase::Forward), || "a label of another phase".to_owned());
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
            format!("{} of the load's blocks came again in size, as gradients do", percent(matching.once))
        });
        let order = match matching.order {
            Some(order) => Holds::from(order <= -facts.thresholds.reversed_share),
            None => Holds::Unknown("the order of the gradients: the sizes are too much alike to tell"),
        };
        check.must(order, || {
            format!("they came in the reverse order (rank correlation {:.2})", matching.order.unwrap_or(0.0))
        });
        let load = facts.held_bytes.saturating_sub(matching.bytes);
        check.note(load > 0, || {
            format!(
                "{} were held, {} of it in blocks of the load's sizes",
                size(facts.held_bytes),
                size(matching.bytes)
            )
        });
    } else {
        check.applies(false);
    }
    if says(facts, Phase::Backward).is_none() {
        check.at_most(Confidence::Probable);
        check.would_settle(MARKS);
    }
    check.unless(facts.phase().is_some_and(|phase| phase != Phase::Backward), || "a label of another phase".to_owned());
    not_segments(facts, check);
}

/// In the optimizer's first step.
pub(super) fn optimizer(facts: &Facts, check: &mut Check) {
    if !check.applies(facts.requested_bytes > 0) {
        return;
    }
    let marked = says(facts, Phase::Optimizer);
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
                format!(
                    "{} of the sizes that stayed came again twice, as Adam's two states do",
                    percent(matching.twice)
                )
            });
        }
        None => check.must(Holds::Unknown("the calls before the failure: there were too many to keep"), String::new),
    }
    let (rose, floor) = (facts.held_bytes.saturating_sub(facts.cycles.open_from.bytes), facts.cycles.open_from.bytes);
    check
        .note(rose > 0, || format!("{} had come on top of the {} that stayed after the step", size(rose), size(floor)));
    check.unless(is_late, || format!("{} steps or more had been completed", facts.thresholds.later_steps));
    if let Some(text) = marked {
        check.note(true, || text);
    } else {
        check.at_most(Confidence::Probable);
        check.would_settle(MARKS);
    }
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
    check.must(true, || format!("{} steps had been completed before it", steps.len()));
    let peaks: Vec<f64> = steps.iter().map(|cycle| cycle.peak.bytes as f64).collect();
    let (_, variation) = variation(&peaks);
    check.must(variation >= facts.thresholds.peak_variation_share, || {
        format!("the steps' peaks differ by {} of their mean (standard deviation)", percent(variation))
    });
    check.must(facts.requested_bytes as f64 > (1.0 + facts.thresholds.longer_share) * largest as f64, || {
        format!("it asks for {}, the steps before for at most {}", size(facts.requested_bytes), size(largest))
    });
    let rising = floors_rise(facts);
    check.unless(rising, || "the floor between steps rises (a leak)".to_owned());
    check.unless(facts.phase() == Some(Phase::Evaluation), || "a label says evaluation".to_owned());
    check.would_settle("a restart: failing again at the same data supports this, and refutes a leak");
    if facts.are_segments {
        check.at_most(Confidence::Probable);
    }
}

fn floors_rise(facts: &Facts) -> bool {
    let steps = facts.cycles.steps();
    let points: Vec<(f64, f64)> = (0..).zip(steps).map(|(x, cycle)| (f64::from(x), cycle.to.bytes as f64)).collect();
    let rise = steps.last().map_or(0, |last| last.to.bytes.saturating_sub(steps[0].to.bytes));
    Fit::through(&points).is_some_and(|fit| fit.r_squared >= facts.thresholds.straight_share && fit.slope > 0.0)
        && rise >= facts.thresholds.leak_total_bytes
}

/// Results of an evaluation pile up.
pub(super) fn eval_accumulation(facts: &Facts, check: &mut Check) {
    let marked = says(facts, Phase::Evaluation);
    let later = if marked.is_some() { facts.since_mark.steps() } else { facts.cycles.later() };
    let before = facts.cycles.main.len();
    if !check.applies(before >= 1 && later.len() >= facts.thresholds.least_cycles()) {
        return;
    }
    let rise =
        |cycles: &[Cycle]| cycles.iter().map(|cycle| cycle.fall_bytes() as f64).sum::<f64>() / cycles.len() as f64;
    let lower = rise(later) / rise(&facts.cycles.main);
    match marked {
        Some(text) => check.must(true, || text),
        None => check.must(lower < facts.thresholds.forward_share, || {
            format!(
                "{} cycles behind {before} larger ones, {} as high: forward passes only",
                later.len(),
                percent(lower)
            )
        }),
    }
    let points: Vec<(f64, f64)> = (0..).zip(later).map(|(x, cycle)| (f64::from(x), cycle.to.bytes as f64)).collect();
    let fit = Fit::through(&points);
    let straight = fit.is_some_and(|fit| fit.r_squared >= facts.thresholds.straight_share && fit.slope > 0.0);
    check.must(straight, || {
        let fit = fit.unwrap_or(Fit { points: 0, slope: 0.0, slope_error: 0.0, r_squared: 0.0 });
        format!("what stays between them rises by {} each (R² {:.3})", size(fit.slope as u64), fit.r_squared)
    });
    let last = later.last().map_or(0, |cycle| cycle.to.bytes);
    let given_back = last - (last as f64 * facts.thresholds.given_back_share) as u64;
    check.unless(facts.held_bytes < given_back, || "it had been given back before the failure".to_owned());
    not_segments(facts, check);
}

/// The first batch of an evaluation.
pub(super) fn eval_batch(facts: &Facts, check: &mut Check) {
    let is_marked = facts.phase() == Some(Phase::Evaluation);
    let steps = facts.cycles.main.len();
    let is_trained = steps as u64 >= facts.thresholds.trained_steps;
    if !check.applies(is_trained && facts.requested_bytes > 0 && facts.cycles.later().is_empty()) {
        return;
    }
    let largest = facts.largest_before();
    check.must(facts.requested_bytes > largest, || {
        format!("it asks for {}, the {steps} steps before for at most {}", size(facts.requested_bytes), size(largest))
    });
    let pause = pause_before_last_cycle(facts);
    by_mark(facts, Phase::Evaluation, check, if pause { Holds::Unknown(MARKS) } else { Holds::No });
    check.must(!is_marked || facts.since_mark.main.is_empty(), || {
        "no cycle of that phase had been completed".to_owned()
    });
    check.unless(floors_rise(facts), || "the floor between steps rises".to_owned());
    check.at_most(Confidence::Probable);
}

/// Whether the cycle that failed began after a pause as before another phase.
fn pause_before_last_cycle(facts: &Facts) -> bool {
    let steps = facts.cycles.steps();
    let mut durations: Vec<u64> = steps.iter().map(Cycle::duration).collect();
    durations.sort_unstable();
    let median = durations.get(durations.len() / 2).copied().unwrap_or(0);
    let floor = facts.cycles.open_from.at;
    let next = facts.calls.iter().find(|call| call.at > floor).map_or(facts.at, |call| call.at);
    share(next.saturating_sub(floor), median) >= facts.thresholds.pause_share
}
