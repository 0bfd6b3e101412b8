//! What the numbers of an error text decide, whoever printed them.

use super::table::{Limit, Meaning};
use super::{Diagnosis, ErrorText, Name, Quantity};
use crate::catalogue;
use crate::evidence::kernel_log::xid_meaning;
use crate::evidence::torch_message::Printed;
use crate::judgement::check::Confidence;
use crate::thresholds::Thresholds;
use crate::words::size;

/// What a meaning supports by itself.
pub(super) fn supported(meaning: &Meaning) -> Vec<Diagnosis> {
    let diagnosis = |id: &str, confidence, because: &str| {
        Some(Diagnosis { id: &catalogue::find(id)?.id, confidence, because: because.to_owned() })
    };
    let supported = meaning.diagnoses.iter();
    supported.filter_map(|told| diagnosis(&told.id, told.confidence()?, &told.because)).collect()
}

type Rule = fn(&mut ErrorText, &Thresholds);

const RULES: [Rule; 5] = [more_than_the_card, needed_and_available, share_and_free, pool_and_limit, xid];

/// Applies the rules.
pub(super) fn numbers(error: &mut ErrorText, thresholds: &Thresholds) {
    RULES.iter().for_each(|rule| rule(error, thresholds));
}

/// A size as it was printed: exact, or about.
pub(super) fn shown(printed: Printed) -> String {
    size(printed.bytes)
}

fn more_than_the_card(error: &mut ErrorText, _: &Thresholds) {
    let sizes = |quantity| error.captured.size(quantity);
    let (Some(requested), Some(total)) = (sizes(Quantity::Requested), sizes(Quantity::Total)) else { return };
    if requested.least() > total.most() {
        let because = format!("{} were requested of a device with {}", shown(requested), shown(total));
        error.limit = Some(Limit::Card);
        error.diagnoses.insert(0, Diagnosis { id: "request-exceeds-device", confidence: Confidence::Proven, because });
    }
}

fn needed_and_available(error: &mut ErrorText, _: &Thresholds) {
    let sizes = |quantity| error.captured.size(quantity);
    let (Some(needed), Some(available)) = (sizes(Quantity::Needed), sizes(Quantity::Available)) else { return };
    let short = needed.minus(available);
    if needed.least() > available.most() {
        let (needed, available) = (shown(needed), shown(available));
        error.reasons.push(format!("{needed} are needed and {available} available: {} are missing", shown(short)));
    }
}

/// A server that keeps to a share of the card: what was in use before it began.
fn share_and_free(error: &mut ErrorText, thresholds: &Thresholds) {
    let sizes = |quantity| error.captured.size(quantity);
    let (Some(free), Some(total), Some(needed)) =
        (sizes(Quantity::Free), sizes(Quantity::Total), sizes(Quantity::Needed))
    else {
        return;
    };
    let used = total.minus(free);
    let (missing, before) = (shown(needed.minus(free)), shown(used));
    error.reasons.push(format!("its share is {}, {} were free: {missing} are missing", shown(needed), shown(free)));
    error
        .reasons
        .push(format!("{before} of {} were not free when it began; the text does not say who held them", shown(total)));
    if used.least() as f64 >= total.most() as f64 * thresholds.others_share {
        let because = format!("{before} were not free when the program began; its own runtime may hold a part of it");
        error.diagnoses.push(Diagnosis { id: "other-process-on-gpu", confidence: Confidence::Possible, because });
    }
}

/// A pool that has a limit of its own.
fn pool_and_limit(error: &mut ErrorText, _: &Thresholds) {
    let sizes = |quantity| error.captured.size(quantity);
    let (Some(requested), Some(allocated), Some(allowed)) =
        (sizes(Quantity::Requested), sizes(Quantity::Allocated), sizes(Quantity::Allowed))
    else {
        return;
    };
    let others = sizes(Quantity::Others).unwrap_or_default();
    let wanted = allocated.plus(others).plus(requested);
    let reason = match (wanted.least() > allowed.most(), wanted.most() <= allowed.least()) {
        (true, _) => {
            format!("what is allocated and the request come to {}, and {} are allowed", shown(wanted), shown(allowed))
        }
        (_, true) => format!(
            "{} would not exceed the {} that are allowed: the unused part of the pool lies in pieces, or the device refused more",
            shown(wanted),
            shown(allowed)
        ),
        _ => return,
    };
    error.reasons.push(reason);
}

/// What the number of NVIDIA's driver means.
fn xid(error: &mut ErrorText, _: &Thresholds) {
    let Some(code) = error.captured.names.get(&Name::Code) else { return };
    let meaning = code.parse().ok().and_then(xid_meaning);
    error.is_memory = meaning.map(|_| false);
    error.says = match meaning {
        Some(meaning) => format!("Xid {code} is {meaning}; it is not a lack of memory"),
        None => format!(
            "Xid {code}: an error of the GPU whose meaning gpuoom does not know; NVIDIA's list of Xid errors has it"
        ),
    };
}
