//! A. Weights, gradients and optimizer state against the card.

use crate::diagnosis::case::{Case, Failure};
use crate::evidence::model::ModelFacts;
use crate::judgement::check::{Basis, Check, Confidence, Holds};
use crate::passes::shape::facts::ends_the_load;
use crate::replay::tracks::calls::What;
use crate::software::Program;
use crate::words::{percent, size};

/// Weights, gradients and optimizer state alone do not fit. Where the load ended, only a mark tells.
pub(super) fn training_state_exceeds_card(case: &Case<'_>, failure: &Failure<'_>, check: &mut Check) {
    let (Some(total), Some(device)) = (failure.total_bytes().get(), failure.oom.device) else { return };
    if let Some(needed) = case.evidence.model.as_ref().and_then(ModelFacts::training_bytes) {
        return state_by_facts(case, failure, needed, check);
    }
    let loaded =
        case.replay.tracks.marks.listed().iter().find(|mark| mark.at <= failure.oom.at && ends_the_load(&mark.label));
    let Some(weights) = loaded.and_then(|mark| held_before(case, device, mark.calls_before)) else { return };
    // llama.cpp does not train.
    let only_infers = case.versions.has(Program::LlamaCpp) && !case.versions.has(Program::Torch);
    if !check.applies(failure.is_real_of_card() && weights > 0 && !only_infers) {
        return;
    }
    check.at_most(if case.labels_name_training(failure) { Confidence::Probable } else { Confidence::Possible });
    if is_one_of_several(case) {
        check.at_most(Confidence::Possible);
        check.would_settle("how the state is divided among the ranks (ZeRO, FSDP)");
    }
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

/// Whether the process is one rank of several, among which the state may be divided.
fn is_one_of_several(case: &Case<'_>) -> bool {
    let ranks = case.variable("WORLD_SIZE").and_then(|text| text.trim().parse::<u64>().ok());
    ranks.is_some_and(|ranks| ranks > 1)
}

/// With the number of parameters and the bytes that each takes on a device: how it is trained is in the latter.
fn state_by_facts(case: &Case<'_>, failure: &Failure<'_>, needed: u64, check: &mut Check) {
    let Some(total) = failure.total_bytes().get().filter(|_| failure.is_real_of_card()) else { return };
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
