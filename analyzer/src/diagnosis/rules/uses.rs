//! A. How a program uses memory: in one go, in steps, or again and again.

use super::attention::{self, AskedBy};
use super::{Rule, failure};
use crate::diagnosis::case::{Case, Failure};
use crate::evidence::model::ModelFacts;
use crate::judgement::check::{Basis, Check, Confidence, Holds};
use crate::passes::libraries::Libraries;
use crate::passes::shape::facts::ends_the_load;
use crate::replay::tracks::calls::{Call, What};
use crate::replay::tracks::marks::Mark;
use crate::replay::tracks::series::Turn;
use crate::thresholds::{MIB, Unit, share};
use crate::words::{percent, size};

pub(super) const RULES: &[Rule] = &[
    failure("preallocation-by-framework", preallocation_by_framework),
    failure("attention-quadratic", attention_quadratic),
    failure("training-state-exceeds-card", training_state_exceeds_card),
    failure("fixed-vs-activation", fixed_vs_activation),
    failure("repeated-large-temporaries", repeated_large_temporaries),
];

/// A framework took most of the card when it started.
fn preallocation_by_framework(case: &Case<'_>, failure: &Failure<'_>, check: &mut Check) {
    let Some((around, total)) = case.around(failure).zip(failure.total_bytes().get()) else { return };
    if !check.applies(failure.is_real_of_device()) {
        return;
    }
    check.at_most(Confidence::Probable);
    let Some((burst, largest)) = first_burst(case, around.device) else { return };
    check.must(share(burst, total) >= case.thresholds.burst_share, || {
        let within = Unit::Time.shown(case.thresholds.burst_ns as f64);
        format!(
            "{} ({} of the card) were taken within {within} of its first use",
            size(burst),
            percent(share(burst, total))
        )
    });
    if check.is_over() {
        return;
    }
    let libraries = Libraries::new(case.trace, case.replay);
    let window = case.replay.tracks.calls.before(around.calls_before + 1);
    let failed = window.calls.last().filter(|call| call.what == What::Refused);
    let taken_by = libraries.of_site(largest.site);
    let asked_by = failed.and_then(|call| libraries.of_site(call.site));
    // A program that loads its model in a second looks the same: only two different libraries make the shape.
    let Some((taken_by, asked_by)) = taken_by.zip(asked_by) else {
        check.applies(false);
        return;
    };
    check.decides(
        taken_by != asked_by,
        || format!("{taken_by} took it, and {asked_by} was refused"),
        || format!("{asked_by}, which was refused, is the one that divides it"),
    );
}

/// The most that was taken within a second of a device's first use, and the largest block of it.
fn first_burst<'a>(case: &Case<'a>, device: u8) -> Option<(u64, &'a Call)> {
    let replay = case.replay;
    let is_of_device = |call: &&Call| call.device == device && !replay.apis.get(call.api).is_of_host();
    let calls = || replay.tracks.calls.first().iter().filter(is_of_device);
    let start = replay.clock.at_ns(calls().next()?.at);
    let (mut held, mut most) = (0u64, 0);
    let mut largest: Option<&Call> = None;
    for call in calls().take_while(|call| replay.clock.at_ns(call.at) <= start.saturating_add(case.thresholds.burst_ns))
    {
        match call.what {
            What::Given => {
                held = held.saturating_add(call.bytes);
                largest = largest.filter(|known| known.bytes >= call.bytes).or(Some(call));
            }
            What::Returned => held = held.saturating_sub(call.bytes),
            What::Refused => {}
        }
        most = most.max(held);
    }
    Some((most, largest?))
}

/// A score buffer that grows with the square of the sequence length.
fn attention_quadratic(case: &Case<'_>, failure: &Failure<'_>, check: &mut Check) {
    let request = failure.request_bytes().get().unwrap_or(0);
    if !check.applies(failure.is_real_of_device() && request >= case.thresholds.attention_least_bytes) {
        return;
    }
    let sums = case.torch_sums(failure).filter(|sums| !sums.stack.is_empty());
    let asked_by = sums.as_ref().map(|sums| attention::asked_by(&sums.stack));
    let points = largest_by_length(case, failure);
    let exponent = exponent(&points);
    let scores = scores_by_facts(case, request);
    let is_told = asked_by.as_ref().is_some_and(|found| *found != AskedBy::Other);
    if !check.applies(exponent.is_some() || is_told || scores.is_some()) {
        return;
    }
    if let Some(element_bytes) = scores {
        check.must_by(Basis::Given, true, || {
            format!(
                "batch x heads x sequence² of {element_bytes} bytes, by the model's facts, are the {} asked for",
                size(request)
            )
        });
        if !is_told {
            check.at_most(Confidence::Probable);
        }
    }
    by_stack(asked_by.as_ref(), check);
    let Some(exponent) = exponent else { return };
    let lengths: Vec<String> = points.iter().map(|(length, _)| length.to_string()).collect();
    let grows = || {
        format!(
            "the largest request grows with the sequence length (marks: {}) by an exponent of {exponent:.2}",
            lengths.join(", ")
        )
    };
    if matches!(asked_by, Some(AskedBy::Scores(_))) {
        check.unless(exponent <= case.thresholds.linear_exponent, grows);
        return;
    }
    // From sizes alone: the stack would prove it.
    check.at_most(Confidence::Probable);
    check.must(exponent > case.thresholds.linear_exponent, grows);
    let square = case.thresholds.square_exponent_least..=case.thresholds.square_exponent_most;
    check.must(square.contains(&exponent), || "that is the square, as of a buffer of attention scores".to_owned());
    check.would_settle("the stack of the failing call (a memory snapshot of PyTorch), or the shape of the tensor");
}

/// Bytes of an element with which a buffer of scores has the size of the request, but for the rounding of a segment.
fn scores_by_facts(case: &Case<'_>, request: u64) -> Option<u64> {
    let model = case.evidence.model.as_ref()?;
    let is_it = |element_bytes: &u64| {
        model.score_bytes(*element_bytes).is_some_and(|bytes| (bytes..bytes.saturating_add(2 * MIB)).contains(&request))
    };
    [2, 4].into_iter().find(is_it)
}

/// With the stack of the request, from a snapshot whose history has the failure.
fn by_stack(asked_by: Option<&AskedBy>, check: &mut Check) {
    match asked_by {
        Some(AskedBy::Scores(place)) => {
            check.must_by(Basis::Given, true, || format!("PyTorch's snapshot: the request came from {place}"));
        }
        Some(AskedBy::Fused(place)) => {
            check.must_by(Basis::Given, true, || "the request came from an attention call".to_owned());
            check.unless(true, || format!("fused attention is active: {place}"));
        }
        // A program's own functions may have any name.
        Some(AskedBy::Other) | None => {}
    }
}

/// Sequence lengths that marks name, each with the largest request until the next mark.
fn largest_by_length(case: &Case<'_>, failure: &Failure<'_>) -> Vec<(u64, u64)> {
    let tracks = &case.replay.tracks;
    let Some(around) = case.around(failure) else { return Vec::new() };
    let marks: Vec<&Mark> = tracks.marks.listed().iter().collect();
    let window = tracks.calls.before(around.calls_before + 1);
    let mut points = std::collections::BTreeMap::<u64, u64>::new();
    for (index, mark) in marks.iter().enumerate() {
        let Some(length) = length_in(&mark.label) else { continue };
        let until = marks.get(index + 1).map_or(u64::MAX, |next| next.calls_before).min(around.calls_before + 1);
        let numbered = (window.from..).zip(&window.calls);
        let inside = numbered.filter(|(number, _)| (mark.calls_before..until).contains(number));
        let largest = inside.filter(|(_, call)| call.what != What::Returned).map(|(_, call)| call.bytes).max();
        if let Some(bytes) = largest.filter(|bytes| *bytes > 0) {
            let known = points.entry(length).or_default();
            *known = bytes.max(*known);
        }
    }
    points.into_iter().collect()
}

/// The number behind "seq" in a label: `seq=4096`, `forward seq_len 2048`.
fn length_in(label: &str) -> Option<u64> {
    let rest = &label[label.find("seq")?..];
    let digits = rest.trim_start_matches(|c: char| !c.is_ascii_digit());
    let is_near = rest.len() - digits.len() <= 20;
    let end = digits.find(|c: char| !c.is_ascii_digit()).unwrap_or(digits.len());
    digits[..end].parse().ok().filter(|length| is_near && *length > 0)
}

/// Slope of the least-squares line through the logarithms; `None` for less than three points.
fn exponent(points: &[(u64, u64)]) -> Option<f64> {
    if points.len() < 3 {
        return None;
    }
    let logs: Vec<(f64, f64)> = points.iter().map(|(x, y)| ((*x as f64).ln(), (*y as f64).ln())).collect();
    let count = logs.len() as f64;
    let (mean_x, mean_y) =
        (logs.iter().map(|p| p.0).sum::<f64>() / count, logs.iter().map(|p| p.1).sum::<f64>() / count);
    let over = logs.iter().map(|(x, y)| (x - mean_x) * (y - mean_y)).sum::<f64>();
    let under = logs.iter().map(|(x, _)| (x - mean_x).powi(2)).sum::<f64>();
    Some(over / under).filter(|slope| slope.is_finite())
}

/// Weights, gradients and optimizer state alone do not fit. Where the load ended, only a mark tells.
fn training_state_exceeds_card(case: &Case<'_>, failure: &Failure<'_>, check: &mut Check) {
    let (Some(total), Some(device)) = (failure.total_bytes().get(), failure.oom.device) else { return };
    if let Some(needed) = case.evidence.model.as_ref().and_then(ModelFacts::training_bytes) {
        return state_by_facts(case, failure, needed, check);
    }
    let loaded =
        case.replay.tracks.marks.listed().iter().find(|mark| mark.at <= failure.oom.at && ends_the_load(&mark.label));
    let Some(weights) = loaded.and_then(|mark| held_before(case, device, mark.calls_before)) else { return };
    if !check.applies(failure.is_real_of_device() && weights > 0) {
        return;
    }
    check.at_most(Confidence::Probable);
    let needed = |element_bytes: u64| (weights / element_bytes).saturating_mul(case.thresholds.state_per_parameter);
    let fits = |element_bytes: u64| (needed(element_bytes) as f64) <= case.thresholds.state_share * total as f64;
    // Weights of two bytes are twice as many parameters.
    if fits(4) {
        check.at_most(Confidence::Possible);
    }
    check.must_by(Basis::Estimated, true, || {
        format!(
            "{} were loaded: with {} bytes a parameter the state of a training with Adam needs {} (weights of 4 bytes) or \
             {} (of 2), of {}",
            size(weights),
            case.thresholds.state_per_parameter,
            size(needed(4)),
            size(needed(2)),
            size(total)
        )
    });
    check.unless(fits(2), || format!("even with weights of 2 bytes the state would fit: {}", size(needed(2))));
    check.would_settle("the number of parameters and their type");
    check.unless(Holds::Unknown("whether LoRA, an 8-bit optimizer, sharding or offload is in use"), || {
        "the state is smaller: LoRA, an 8-bit optimizer, sharding or offload".to_owned()
    });
}

/// With the number of parameters and the bytes that each takes on a device: how it is trained is in the latter.
fn state_by_facts(case: &Case<'_>, failure: &Failure<'_>, needed: u64, check: &mut Check) {
    let Some(total) = failure.total_bytes().get().filter(|_| failure.is_real_of_device()) else { return };
    let (needs, most) = (size(needed), percent(case.thresholds.state_share));
    check.must_by(Basis::Given, true, || format!("the state of the training takes {needs} by the model's facts"));
    check.unless((needed as f64) <= case.thresholds.state_share * total as f64, || {
        format!("its {needs} are no more than {most} of {}", size(total))
    });
    check.note_by(Basis::Given, true, || format!("that is more than {most} of {}", size(total)));
}

/// What a device held before a call of the beginning; `None` where that call is too late to be kept.
fn held_before(case: &Case<'_>, device: u8, calls: u64) -> Option<u64> {
    let first = case.replay.tracks.calls.first();
    let until = usize::try_from(calls).ok().filter(|until| *until <= first.len())?;
    let of_device = first[..until].iter().filter(|call| call.device == device);
    Some(of_device.fold(0u64, |held, call| match call.what {
        What::Given => held.saturating_add(call.bytes),
        What::Returned => held.saturating_sub(call.bytes),
        What::Refused => held,
    }))
}

/// Floors and peaks of a device before a failure that stand out.
fn turns_before(case: &Case<'_>, failure: &Failure<'_>, least_bytes: u64) -> Vec<Turn> {
    let track = failure.oom.device.and_then(|device| case.replay.tracks.device(device));
    let Some(track) = track else { return Vec::new() };
    let filtered = track.live.filtered(least_bytes);
    filtered.turns().filter(|turn| turn.at <= failure.oom.at).copied().collect()
}

/// Activations, not the fixed state, fill the card.
fn fixed_vs_activation(case: &Case<'_>, failure: &Failure<'_>, check: &mut Check) {
    let Some(total) = failure.total_bytes().get().filter(|_| failure.is_real_of_device()) else { return };
    let turns = turns_before(case, failure, case.thresholds.large_cycle_bytes);
    // The floor of nothing, a peak, and then floors after steps.
    let floors: Vec<u64> = turns.iter().step_by(2).skip(1).map(|turn| turn.bytes).collect();
    let peak = turns.iter().map(|turn| turn.bytes).max().unwrap_or(0);
    let (Some(least), Some(most)) = (floors.iter().min().copied(), floors.iter().max().copied()) else { return };
    if !check.applies(floors.len() >= 2 && least > 0 && share(most - least, most) <= case.thresholds.variation_share) {
        return;
    }
    check.must(share(peak.saturating_sub(most), total) >= case.thresholds.activation_share, || {
        format!(
            "{} live at the peak of a step and {} after it: the difference is {} of the card",
            size(peak),
            size(most),
            percent(share(peak - most, total))
        )
    });
    check.must(Holds::Unknown("a run with another batch size: whether that part grows with it"), String::new);
}

/// Many pieces of work, each with large temporary blocks.
fn repeated_large_temporaries(case: &Case<'_>, failure: &Failure<'_>, check: &mut Check) {
    let Some(request) = failure.request_bytes().get().filter(|_| failure.is_real_of_device()) else { return };
    let turns = turns_before(case, failure, case.thresholds.large_cycle_bytes);
    // Whole cycles: from a floor over a peak to the next floor.
    let cycles: Vec<&[Turn]> = turns.windows(3).step_by(2).collect();
    if !check.applies(cycles.len() as u64 >= case.thresholds.many_cycles) {
        return;
    }
    check.at_most(Confidence::Probable);
    check.must(true, || format!("{} cycles of large blocks, taken and given back, came before", cycles.len()));
    let passes = |cycle: &&&[Turn]| {
        let (used, left) =
            (cycle[1].bytes.saturating_sub(cycle[0].bytes), cycle[2].bytes.saturating_sub(cycle[0].bytes));
        used >= left.saturating_mul(case.thresholds.temporary_factor)
    };
    let temporary = cycles.iter().filter(passes).count();
    check.must(share(temporary as u64, cycles.len() as u64) >= case.thresholds.temporary_share, || {
        let factor = case.thresholds.temporary_factor;
        format!("in {temporary} of them the peak is at least {factor} times what is left")
    });
    let largest: Vec<u64> =
        cycles.iter().map(|cycle| cycle[1].largest_request_bytes).filter(|bytes| *bytes > 0).collect();
    let (least, most) = (largest.iter().min().copied().unwrap_or(0), largest.iter().max().copied().unwrap_or(0));
    let factor = case.thresholds.family_factor;
    check.must(request >= least / factor && request <= most.saturating_mul(factor), || {
        format!("the request of {} is of the same family as theirs ({} to {})", size(request), size(least), size(most))
    });
    check.decides(
        share(most - least, most) > case.thresholds.variation_share,
        || "their sizes vary, so that no training step repeats".to_owned(),
        || "the sizes are constant".to_owned(),
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_square_has_the_exponent_two() {
        let squares: Vec<(u64, u64)> = [1024u64, 2048, 4096].map(|s| (s, s * s * 64)).to_vec();
        assert!((exponent(&squares).unwrap() - 2.0).abs() < 1e-9);
        assert_eq!(exponent(&squares[..2]), None);
    }

    #[test]
    fn lengths_are_read_from_labels() {
        for (label, length) in [
            ("seq=4096", Some(4096)),
            ("forward seq_len 2048 batch 4", Some(2048)),
            ("epoch 3", None),
            ("seq", None),
            ("sequence of things that took very long: 12", None),
        ] {
            assert_eq!(length_in(label), length, "{label}");
        }
    }
}
