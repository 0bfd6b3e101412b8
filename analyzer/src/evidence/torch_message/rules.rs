//! What the numbers of a message say: rules in order, the first that holds decides.

use serde::Serialize;

use super::size::Printed;
use super::{Backend, Spelling, TorchMessage};
use crate::thresholds::Thresholds;

/// A diagnosis that the message speaks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// Its id in the catalogue.
    pub id: &'static str,
    /// Whether it holds whatever the printed numbers were rounded from. If not, it holds for the numbers as printed, or
    /// can hold for what they were rounded from.
    pub certain: bool,
}

/// What the rules compare, as far as the message has it. Roundings add up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Numbers {
    /// What the caching allocator holds and no tensor uses.
    pub unallocated: Option<Printed>,
    /// Free, and what the allocator holds unused: all that the request could have come from.
    pub free_and_unallocated: Option<Printed>,
    /// What the allocator would hold with the request granted.
    pub with_request: Option<Printed>,
    /// What is neither free nor the allocator's: the runtime's own memory, other processes, graphics.
    pub outside: Option<Printed>,
    /// Of that, what this process holds, where the driver said.
    pub outside_own: Option<Printed>,
}

/// What the rules make of a message.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Judgement {
    /// Diagnoses, the deciding one first. Empty where the message lacks the numbers.
    pub findings: Vec<Finding>,
    /// Diagnoses that the message can't tell from the first one, in the order to look at them.
    pub look_at: Vec<&'static str>,
    /// What was compared.
    pub numbers: Numbers,
}

/// Applies the rules.
pub fn judge(message: &TorchMessage, thresholds: &Thresholds) -> Judgement {
    let numbers = numbers_of(message);
    let (mut findings, look_at) = RULES.iter().find_map(|rule| rule(message, &numbers, thresholds)).unwrap_or_default();
    findings.extend(private_pools(message));
    Judgement { findings, look_at, numbers }
}

/// Whether with the request the allocator would have held more than the limit that the message names, whatever else the message says.
pub fn exceeds_allowed(message: &TorchMessage, thresholds: &Thresholds) -> Option<Finding> {
    let (findings, _) = more_than_allowed(message, &numbers_of(message), thresholds)?;
    findings.first().copied()
}

fn numbers_of(message: &TorchMessage) -> Numbers {
    let unallocated = message.unallocated();
    let held = (|| Some(message.allocated?.plus(unallocated?)))();
    // The asynchronous allocator does not say what its pool keeps.
    let limited = held.or(message.allocated.filter(|_| message.spelling == Spelling::MallocAsync));
    let of_process = |held: Printed| Some(message.this_process?.minus(held));
    Numbers {
        unallocated,
        free_and_unallocated: (|| Some(message.free?.plus(unallocated?)))(),
        with_request: (|| Some(limited?.plus(message.tried?)))(),
        outside: (|| Some(message.total?.minus(message.free?).minus(held?)))(),
        outside_own: held.and_then(of_process),
    }
}

type Found = (Vec<Finding>, Vec<&'static str>);
type Rule = fn(&TorchMessage, &Numbers, &Thresholds) -> Option<Found>;

/// In order. That free exceeds the total comes before all that believes either number.
const RULES: [Rule; 8] = [
    without_numbers,
    more_free_than_there_is,
    more_than_the_card,
    more_than_allowed,
    free_was_reported,
    held_but_unused,
    outside_of_torch,
    full,
];

fn found(id: &'static str, certain: bool, look_at: &[&'static str]) -> Option<Found> {
    Some((vec![Finding { id, certain }], look_at.to_vec()))
}

/// Wordings that say by themselves what happened.
fn without_numbers(message: &TorchMessage, _: &Numbers, _: &Thresholds) -> Option<Found> {
    match message.spelling {
        Spelling::MoreThanAnExabyte => found("request-exceeds-device", true, &[]),
        Spelling::Preempted => found("process-fraction-cap", true, &[]),
        _ => None,
    }
}

fn more_free_than_there_is(message: &TorchMessage, _: &Numbers, _: &Thresholds) -> Option<Found> {
    let (free, total) = (message.free?, message.total?);
    (free.bytes > total.bytes).then(|| found("apu-reporting-inconsistent", free.least() > total.most(), &[]))?
}

fn more_than_the_card(message: &TorchMessage, _: &Numbers, _: &Thresholds) -> Option<Found> {
    let (tried, total) = (message.tried?, message.total?);
    let mut look_at = vec!["attention-quadratic"];
    // A card with nothing on it, too small for one request: is it the size that it has?
    if message.backend != Some(Backend::Cuda) {
        look_at.insert(0, "uma-large-carveout-starves-gtt");
    }
    (tried.bytes > total.bytes).then(|| found("request-exceeds-device", tried.least() > total.most(), &look_at))?
}

/// The limit is printed only where one is set. Both sums of rounded numbers come close to it when it was reached, so that
/// "can have been reached" counts.
fn more_than_allowed(message: &TorchMessage, numbers: &Numbers, _: &Thresholds) -> Option<Found> {
    let (allowed, wanted) = (message.allowed?, numbers.with_request?);
    (wanted.most() > allowed.least()).then(|| found("process-fraction-cap", wanted.least() > allowed.most(), &[]))?
}

fn free_was_reported(message: &TorchMessage, _: &Numbers, thresholds: &Thresholds) -> Option<Found> {
    let (free, tried) = (message.free?, message.tried?);
    let enough = |free: u64, tried: u64| free as f64 >= tried as f64 * (1.0 + thresholds.free_margin_share);
    let mut look_at = vec![
        "map-count-exhaustion",
        "vmm-fd-exhaustion",
        "single-alloc-cap",
        "free-overreported-graphics",
        "device-cgroup-limit",
        "ipc-export-pin",
        "known-bad-version",
    ];
    if message.total.is_some_and(|total| total.bytes < thresholds.small_card_bytes) {
        look_at.insert(0, "uma-carveout-only");
    }
    let certain = enough(free.least(), tried.most());
    enough(free.bytes, tried.bytes).then(|| found("phantom-free", certain, &look_at))?
}

fn held_but_unused(message: &TorchMessage, numbers: &Numbers, _: &Thresholds) -> Option<Found> {
    let (tried, unused) = (message.tried?, numbers.unallocated?);
    let certain = unused.least() >= tried.most();
    (unused.bytes >= tried.bytes)
        .then(|| found("caching-fragmentation", certain, &["expandable-ignored", "expandable-with-max-split"]))?
}

fn outside_of_torch(message: &TorchMessage, numbers: &Numbers, thresholds: &Thresholds) -> Option<Found> {
    let (total, outside) = (message.total?, numbers.outside?);
    let much = |total: u64| thresholds.outside_bytes.max((total as f64 * thresholds.others_share) as u64);
    if outside.bytes < much(total.bytes) {
        return None;
    }
    let certain = outside.least() >= much(total.most());
    let own = numbers.outside_own.map(|own| own.bytes.saturating_mul(2) >= outside.bytes);
    match own {
        Some(true) => found("hidden-runtime-memory", certain, &["other-process-on-gpu"]),
        Some(false) => found("other-process-on-gpu", certain, &["free-overreported-graphics", "zombie-vram"]),
        // The message does not say who: neither of them is certain.
        None => found(
            "other-process-on-gpu",
            false,
            &["hidden-runtime-memory", "free-overreported-graphics", "zombie-vram"],
        ),
    }
}

fn full(message: &TorchMessage, numbers: &Numbers, _: &Thresholds) -> Option<Found> {
    let (tried, left) = (message.tried?, numbers.free_and_unallocated?);
    message.total?;
    let look_at: &[_] = if message.backend == Some(Backend::Cuda) { &[] } else { &["uma-ttm-limit"] };
    found("true-capacity", left.most() < tried.least(), look_at)
}

/// Besides: what captured graphs keep would have been enough.
fn private_pools(message: &TorchMessage) -> Option<Finding> {
    let (pools, tried, free) = (message.private_pools?, message.tried?, message.free?);
    let missing = tried.minus(free);
    (missing.bytes > 0 && pools.bytes >= missing.bytes)
        .then(|| Finding { id: "graph-private-pool", certain: pools.least() >= missing.most() })
}
