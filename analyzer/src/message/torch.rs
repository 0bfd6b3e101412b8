//! What the numbers of PyTorch's message decide. The rules are those that judge it beside a trace.

use super::judge::shown;
use super::table::Limit;
use super::{Diagnosis, ErrorText, Excluded};
use crate::evidence::torch_message::{Finding, Judgement, Numbers, Printed, Spelling, TorchMessage, judge};
use crate::judgement::check::Confidence;
use crate::message::table::Table;
use crate::thresholds::Thresholds;

/// Adds what PyTorch's message says to its error.
pub(super) fn of_torch(error: &mut ErrorText, message: &TorchMessage, thresholds: &Thresholds) {
    let Judgement { findings, look_at, numbers } = judge(message, thresholds);
    for finding in &findings {
        let confidence = confidence(finding, message, &numbers, thresholds);
        let because = because(finding.id, message, &numbers);
        error.diagnoses.push(Diagnosis { id: finding.id, confidence, because });
    }
    error.not_told_apart = look_at;
    error.excluded = excluded(message, &numbers, thresholds);
    if let Some(first) = findings.first() {
        // What is only possible decides no limit.
        let is_decided = error.diagnoses.first().is_some_and(|told| told.confidence > Confidence::Possible);
        error.limit = Some(if is_decided { limit_of(first.id) } else { Limit::Device });
        let (missing, next) = lacks(first.id);
        let table = Table::get();
        error.missing = missing.iter().map(|name| table.missing(name)).collect();
        error.next = next.iter().map(|name| table.next(name)).collect();
    }
}

fn limit_of(id: &str) -> Limit {
    match id {
        "true-capacity" | "request-exceeds-device" => Limit::Card,
        "caching-fragmentation" => Limit::Cache,
        "other-process-on-gpu" => Limit::Others,
        "hidden-runtime-memory" => Limit::Runtime,
        "process-fraction-cap" => Limit::Fraction,
        _ => Limit::Unknown,
    }
}

/// What else is needed, and what comes next, by the table's names of sentences.
fn lacks(id: &str) -> (&'static [&'static str], &'static [&'static str]) {
    match id {
        "request-exceeds-device" => (&["call"], &["smaller", "record"]),
        "process-fraction-cap" => (&["call"], &["fraction", "record"]),
        "caching-fragmentation" => (&["pieces", "expandable"], &["expandable", "record"]),
        "other-process-on-gpu" | "hidden-runtime-memory" => (&["holders"], &["doctor", "record"]),
        "phantom-free" | "apu-reporting-inconsistent" => (&["holders", "call"], &["doctor", "record"]),
        _ => (&["call", "growth"], &["record"]),
    }
}

/// How sure a message makes it, by the catalogue: a number that rounding may change makes nothing certain.
fn confidence(finding: &Finding, message: &TorchMessage, numbers: &Numbers, thresholds: &Thresholds) -> Confidence {
    use Confidence::{Possible, Probable, Proven};
    let (sure, at_most) = match finding.id {
        "true-capacity" => (capacity(message, numbers, thresholds), Probable),
        "caching-fragmentation" => (fragmentation(message, numbers, thresholds), Possible),
        "other-process-on-gpu" => (others(message, numbers), Possible),
        "request-exceeds-device" | "process-fraction-cap" | "apu-reporting-inconsistent" => (Proven, Probable),
        // They name what was seen, and what explains it is not in the text.
        _ => (Probable, Possible),
    };
    if finding.certain { sure } else { sure.min(at_most) }
}

/// What the allocator holds, with what the process holds beside it where that is printed.
fn held(message: &TorchMessage, numbers: &Numbers) -> Option<Printed> {
    message.this_process.or_else(|| Some(message.allocated?.plus(numbers.unallocated?)))
}

fn capacity(message: &TorchMessage, numbers: &Numbers, thresholds: &Thresholds) -> Confidence {
    let (Some(held), Some(total)) = (held(message, numbers), message.total) else { return Confidence::Possible };
    let share = held.least() as f64 / total.most().max(1) as f64;
    match () {
        // Whether what is held grew from step to step, which would make a leak the cause, one message can't tell.
        () if share >= thresholds.capacity_medium_share => Confidence::Probable,
        () => Confidence::Possible,
    }
}

fn fragmentation(message: &TorchMessage, numbers: &Numbers, thresholds: &Thresholds) -> Confidence {
    let (Some(unused), Some(allocated), Some(tried)) = (numbers.unallocated, message.allocated, message.tried) else {
        return Confidence::Possible;
    };
    let reserved = allocated.plus(unused);
    let share = unused.least() as f64 / reserved.most().max(1) as f64;
    let is_much = share > thresholds.unused_share
        || tried.most() as f64 <= unused.least() as f64 * thresholds.request_of_unused_share;
    match () {
        // Every cache has some between its blocks.
        () if share < thresholds.few_unused_share => Confidence::Possible,
        // Whether segments are expandable, which would refute it, is not in the text.
        () if is_much => Confidence::Probable,
        () => Confidence::Possible,
    }
}

fn others(message: &TorchMessage, numbers: &Numbers) -> Confidence {
    let would_fit = match (message.total, held(message, numbers), message.tried) {
        (Some(total), Some(held), Some(tried)) => held.plus(tried).most() <= total.least(),
        _ => false,
    };
    match (would_fit, message.other_processes.is_empty()) {
        // Without them it would not have fit either.
        (false, _) => Confidence::Possible,
        (true, false) => Confidence::Proven,
        (true, true) => Confidence::Probable,
    }
}

fn because(id: &str, message: &TorchMessage, numbers: &Numbers) -> String {
    let of = |size: Option<Printed>| size.map_or_else(|| "an unknown amount".to_owned(), shown);
    let (tried, total, free) = (of(message.tried), of(message.total), of(message.free));
    match id {
        "request-exceeds-device" if message.total.is_some() => {
            format!("{tried} were requested of a device with {total}")
        }
        "request-exceeds-device" => "more than 1 EiB were requested".to_owned(),
        "process-fraction-cap" if message.allowed.is_some() => {
            let wanted = of(numbers.with_request);
            format!("with the request the allocator would hold {wanted}, and {} are allowed", of(message.allowed))
        }
        "process-fraction-cap" => "the message names the limit, per_process_memory_fraction".to_owned(),
        "apu-reporting-inconsistent" => format!("{free} are called free of a total of {total}"),
        "phantom-free" => format!("{tried} were requested while {free} were called free"),
        "caching-fragmentation" => {
            format!("{} were reserved but unallocated, and {tried} requested", of(numbers.unallocated))
        }
        "hidden-runtime-memory" => {
            format!("this process holds {} that PyTorch's allocator does not", of(numbers.outside_own))
        }
        "other-process-on-gpu" => others_because(message, numbers),
        "graph-private-pool" => format!("private pools hold {}, and {tried} were requested", of(message.private_pools)),
        _ => format!(
            "{tried} were requested; {free} were free and {} reserved but unallocated, of {total}",
            of(numbers.unallocated)
        ),
    }
}

fn others_because(message: &TorchMessage, numbers: &Numbers) -> String {
    let outside = numbers.outside.map_or_else(|| "an unknown amount".to_owned(), shown);
    let named = message.other_processes.iter().take(3);
    let named: Vec<String> =
        named.map(|other| format!("process {} holds {}", other.pid, shown(other.in_use))).collect();
    match named.is_empty() {
        true => format!("{outside} of the card are neither free nor PyTorch's; the message does not say whose"),
        false => format!("{outside} of the card are neither free nor PyTorch's: {}", named.join(", ")),
    }
}

fn excluded(message: &TorchMessage, numbers: &Numbers, thresholds: &Thresholds) -> Vec<Excluded> {
    let rules = [
        no_fragmentation(message, numbers),
        no_others(message, thresholds),
        no_fraction(message),
        no_too_large_request(message),
    ];
    rules.into_iter().flatten().collect()
}

/// Even in one piece it would not have been enough.
fn no_fragmentation(message: &TorchMessage, numbers: &Numbers) -> Option<Excluded> {
    let (tried, left) = (message.tried?, numbers.free_and_unallocated?);
    let (free, unused) = (shown(message.free?), shown(numbers.unallocated?));
    let because =
        format!("{unused} reserved but unallocated and {free} free are less than the {} requested", shown(tried));
    (left.most() < tried.least()).then_some(Excluded { what: "fragmentation", because })
}

fn no_others(message: &TorchMessage, thresholds: &Thresholds) -> Option<Excluded> {
    let (total, free, own) = (message.total?, message.free?, message.this_process?);
    let rest = total.minus(free).minus(own);
    let is_little = (rest.most() as f64) < total.least() as f64 * thresholds.others_share;
    let because = match rest.bytes {
        0 => format!("all of {} that is not free is held by this process", shown(total)),
        _ => format!("{} of {} are neither free nor held by this process", shown(rest), shown(total)),
    };
    (is_little && message.other_processes.is_empty()).then_some(Excluded { what: "other processes", because })
}

/// PyTorch prints the limit where one is set (CUDACachingAllocator.cpp, `allowed_info`).
fn no_fraction(message: &TorchMessage) -> Option<Excluded> {
    let prints_it =
        matches!(message.spelling, Spelling::TotalCapacity | Spelling::TotalCapacty | Spelling::ReservedInTotal);
    let is_whole = message.total.is_some() && message.unallocated().is_some();
    let because = "the message names no allowed size, which PyTorch prints where one is set".to_owned();
    (prints_it && is_whole && message.allowed.is_none()).then_some(Excluded { what: "a memory fraction", because })
}

fn no_too_large_request(message: &TorchMessage) -> Option<Excluded> {
    let (tried, total) = (message.tried?, message.total?);
    let because = format!("{} are less than the card's {}", shown(tried), shown(total));
    (tried.most() <= total.least()).then_some(Excluded { what: "a request larger than the card", because })
}
