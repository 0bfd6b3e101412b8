//! PyTorch's caching allocator under other settings: its history, from a snapshot or from the trace itself, replayed through a model of
//! its rules.
//!
//! How far the model can be trusted is told with every answer: the recorded run itself is replayed too, and its calls to
//! the driver are compared one by one.

pub mod allocator;
mod before;
pub mod blocks;
pub mod driver;
mod expandable;
mod explained;
pub mod policy;
mod release;
pub mod run;
pub mod steps;
#[cfg(test)]
mod tests;
pub mod told;

use serde::Serialize;

use crate::evidence::torch_snapshot::Snapshot;
use driver::Match;
use explained::{as_far_as_explained, best_explained};
use policy::{Policy, PolicyError, Ties};
use run::{Asks, Outcome, Stage, run};
use steps::{History, Sizes, Step};
use told::{Stop, ToldHistory};

/// A card of which nobody knows the size: expandable segments take as much address space.
const UNKNOWN_CARD_BYTES: u64 = 1 << 40;
/// More than any card has.
const UNLIMITED_BYTES: u64 = 1 << 56;
/// Failures that are answered one by one.
const MAX_FAILURES: usize = 1000;

/// What is asked about the allocator.
#[derive(Clone, Debug, Default)]
pub struct TorchQuestion {
    /// Settings, each as in `PYTORCH_ALLOC_CONF`.
    pub policies: Vec<Policy>,
    /// Sizes of cards.
    pub capacities_bytes: Vec<u64>,
}

/// What is known of a device from elsewhere.
#[derive(Clone, Copy, Debug, Default)]
pub struct KnownCard {
    /// Its memory.
    pub total_bytes: Option<u64>,
    /// What of it PyTorch can't have, by a reading.
    pub overhead_bytes: Option<u64>,
    /// The virtual card that the run was given in its place (`GPUOOM_CAPACITY`): all of it is for the program.
    pub virtual_bytes: Option<u64>,
}

impl KnownCard {
    /// The memory of the card that the run saw.
    fn seen_bytes(self) -> Option<u64> {
        self.virtual_bytes.or(self.total_bytes)
    }
}

/// Where the memory that PyTorch can have is known from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum UsableBy {
    /// Reserved and free memory at the first failure of the history.
    Failure,
    /// The card's memory less what a reading of the trace showed beside the program's blocks.
    Reading,
    /// The size of the virtual card (`GPUOOM_CAPACITY`).
    VirtualCard,
    /// Nothing tells: no limit.
    Unknown,
}

/// How far the model does what was recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct SelfCheck {
    /// Calls to the driver.
    pub calls: Match,
    /// Requests that were met.
    pub requests: u64,
    /// Of them those that the model puts at the recorded address.
    pub placed: u64,
    /// The first request (counted from 1) that is not.
    pub first_misplaced: Option<u64>,
    /// Blocks that lived before the history began: they are placed anew, and the calls for them were not recorded.
    pub blocks_before: u64,
    /// Requests of which only the size of the block is known, and that may have been smaller.
    pub rounded_requests: u64,
}

/// What becomes of a recorded failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct TorchFailure {
    /// Its number in the history, counted from 1.
    pub number: u64,
    /// Bytes asked for.
    pub requested_bytes: u64,
    /// What becomes of it.
    pub fate: super::cards::Fate,
}

/// The history under one policy on one card.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PolicyAnswer {
    /// The settings, as in `PYTORCH_ALLOC_CONF`.
    pub settings: String,
    /// Whether they are those of the recorded run, on its card.
    pub is_recorded: bool,
    /// The card; `None` where its size is not known.
    pub capacity_bytes: Option<u64>,
    /// What of it PyTorch can have; `None` for no limit.
    pub usable_bytes: Option<u64>,
    /// Most bytes of all segments.
    pub peak_reserved_bytes: u64,
    /// Most bytes of all tensors.
    pub peak_allocated_bytes: u64,
    /// Share of the segments that no tensor had when most was reserved.
    pub unused_at_peak: f64,
    /// Times that memory was taken from the driver.
    pub takes: u64,
    /// Times that it was given back.
    pub gives: u64,
    /// Times that all cached memory was given back because the driver refused.
    pub retries: u64,
    /// Recorded successes that fail here.
    pub new_failures_least: u64,
    /// The same, if what was refused in the recorded run and is given here is never freed.
    pub new_failures_most: u64,
    /// The first request (counted from 1, the failed ones among them) with another outcome than in the recorded run. All
    /// before it is certain, as far as the model is right.
    pub first_change: Option<u64>,
    /// The recorded failures.
    pub failures: Vec<TorchFailure>,
    /// The pair of settings is on that the catalogue warns of.
    pub expandable_with_max_split: bool,
    /// A threshold is set that never acts, because no share of the card is.
    pub inert_threshold: bool,
    /// The same if each request was the least that its block can stand for; left out where that is no other.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub with_least_requests: Option<Box<PolicyAnswer>>,
    /// These numbers are of a model.
    pub modelled: bool,
}

/// The answers about one device.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct TorchAnswer {
    /// The snapshot; null where the history is what the trace has of the allocator.
    pub snapshot: Option<String>,
    /// Device number.
    pub device: u32,
    /// The recorded settings.
    pub settings: String,
    /// Which of several blocks of the same size is taken: that rule of PyTorch's versions which explains the history best.
    pub ties: Ties,
    /// How far the model does what was recorded.
    pub check: SelfCheck,
    /// Requests that the answers are about, failed ones included: all, or those before the history stops.
    pub answered_requests: u64,
    /// Why that is not all of the run; null where it is.
    pub stops_because: Option<Stop>,
    /// Recorded failures among these.
    pub failures: u64,
    /// What PyTorch could have of the recorded card.
    pub usable_bytes: Option<u64>,
    /// Where that is known from.
    pub usable_by: UsableBy,
    /// Policies and cards.
    pub policies: Vec<PolicyAnswer>,
}

/// The settings that a snapshot was recorded with.
pub fn recorded_policy(snapshot: &Snapshot) -> Result<Policy, PolicyError> {
    let setting =
        |name: &str| snapshot.allocator_settings.iter().find(|(known, _)| known == name).map(|(_, value)| value);
    let text = setting("PYTORCH_CUDA_ALLOC_CONF").or_else(|| setting("PYTORCH_ALLOC_CONF"));
    let mut policy = Policy::parse(text.map_or("", String::as_str))?;
    // What a program sets while it runs is not in the text.
    if let Some(value) = setting("expandable_segments") {
        policy.expandable_segments = value == "True";
    }
    if let Some(bytes) = setting("max_split_size").and_then(|value| value.parse::<i64>().ok()) {
        policy.max_split_bytes = u64::try_from(bytes).unwrap_or(u64::MAX);
    }
    if let Some(share) = setting("garbage_collection_threshold").and_then(|value| value.parse().ok()) {
        policy.garbage_collection_threshold = share;
    }
    Ok(policy)
}

/// Asks a snapshot about each device with a history. `card` tells what is known of a device.
pub fn ask_snapshot(
    path: &str,
    snapshot: &Snapshot,
    question: &TorchQuestion,
    card: impl Fn(u32) -> KnownCard,
) -> Result<Vec<TorchAnswer>, PolicyError> {
    let recorded = recorded_policy(snapshot)?;
    let devices = (0u32..).zip(&snapshot.device_traces).filter(|(_, events)| !events.is_empty());
    Ok(devices
        .map(|(device, _)| {
            let card = card(device);
            let card_bytes = card.seen_bytes().unwrap_or(UNKNOWN_CARD_BYTES);
            let mut explained = best_explained(snapshot, device as usize, &recorded, card_bytes, Sizes::Requested);
            TorchAnswer {
                snapshot: Some(path.to_owned()),
                ..as_far_as_explained(device, &mut explained, question, card)
            }
        })
        .collect())
}

/// Asks what a trace has of the allocator itself, about each device with a history. Where the model does something else than was
/// recorded, nothing is said of what follows: with several streams, a graph's pool or a limit of the program's it may mean nothing.
pub fn ask_told(
    told: &ToldHistory,
    policy: &Policy,
    question: &TorchQuestion,
    card: impl Fn(u32) -> KnownCard,
) -> Vec<TorchAnswer> {
    let recorded = told.policy(policy);
    let devices =
        (0u32..).zip(&told.snapshot.device_traces).zip(&told.stops).filter(|((_, events), _)| !events.is_empty());
    let one = |((device, _), stop): ((u32, _), &Option<Stop>)| {
        let card = card(device);
        let card_bytes = card.seen_bytes().unwrap_or(UNKNOWN_CARD_BYTES);
        let mut explained = best_explained(&told.snapshot, device as usize, &recorded, card_bytes, Sizes::OfBlocks);
        let differs = explained.1.agreed_steps.map(|_| Stop::ModelDiffers);
        explained.1.keep_what_agrees();
        let answer = as_far_as_explained(device, &mut explained, question, card);
        TorchAnswer { stops_because: answer.stops_because.or(differs).or(*stop), ..answer }
    };
    devices.map(one).collect()
}

fn usable(history: &History, card: KnownCard) -> (Option<u64>, UsableBy) {
    // What was free at a failure is the real card's.
    if card.virtual_bytes.is_some() {
        return (card.virtual_bytes, UsableBy::VirtualCard);
    }
    let by_reading = || Some(card.total_bytes?.saturating_sub(card.overhead_bytes?));
    match (history.usable_bytes, by_reading()) {
        (Some(bytes), _) => (Some(bytes), UsableBy::Failure),
        (None, Some(bytes)) => (Some(bytes), UsableBy::Reading),
        (None, None) => (None, UsableBy::Unknown),
    }
}

fn answer(
    device: u32,
    (recorded, history): &(Policy, History),
    question: &TorchQuestion,
    card: KnownCard,
) -> TorchAnswer {
    let (usable_bytes, usable_by) = usable(history, card);
    // What PyTorch can't have of the recorded card it can't have of another.
    let beside = match card.virtual_bytes {
        Some(_) => card.overhead_bytes.unwrap_or(0),
        None => card.total_bytes.zip(usable_bytes).map_or(0, |(total, usable)| total.saturating_sub(usable)),
    };
    let mut cards = vec![(card.seen_bytes(), usable_bytes, true)];
    let real = card.total_bytes.filter(|_| card.virtual_bytes.is_some());
    let others = real.iter().chain(question.capacities_bytes.iter().filter(|bytes| Some(**bytes) != real));
    cards.extend(others.map(|bytes| (Some(*bytes), Some(bytes.saturating_sub(beside)), false)));
    let asked = question.policies.iter().map(|policy| Policy { ties: recorded.ties, ..policy.clone() });
    // The same options in other words are the recorded ones, too.
    let is_same = |policy: &Policy| Policy { settings: recorded.settings.clone(), ..policy.clone() } == *recorded;
    let policies = std::iter::once(recorded.clone()).chain(asked).map(|policy| (is_same(&policy), policy));
    let mut answers = Vec::new();
    for (same, policy) in policies {
        for (capacity, usable, real) in &cards {
            answers.push(under(history, &policy, *capacity, *usable, [same, *real]));
        }
    }
    TorchAnswer {
        snapshot: None,
        device,
        settings: recorded.settings.clone(),
        ties: recorded.ties,
        check: SelfCheck {
            calls: history.compared,
            requests: history.requests,
            placed: history.placed,
            first_misplaced: history.first_misplaced,
            blocks_before: history.before.len() as u64,
            rounded_requests: history.rounded,
        },
        answered_requests: history.requests_in_steps(),
        stops_because: None,
        failures: history.steps.iter().filter(|step| matches!(step, Step::Refused { .. })).count() as u64,
        usable_bytes,
        usable_by,
        policies: answers,
    }
}

fn under(
    history: &History,
    policy: &Policy,
    capacity_bytes: Option<u64>,
    usable_bytes: Option<u64>,
    [is_policy, is_card]: [bool; 2],
) -> PolicyAnswer {
    let is_recorded = is_policy && is_card;
    let of = |asks| {
        let stage = Stage {
            policy,
            usable_bytes: usable_bytes.unwrap_or(UNLIMITED_BYTES),
            card_bytes: capacity_bytes.unwrap_or(UNKNOWN_CARD_BYTES),
            asks,
        };
        let outcomes = [false, true].map(|holds| run(history, stage, holds));
        PolicyAnswer { capacity_bytes, usable_bytes, is_recorded, ..policy_answer(history, policy, &outcomes) }
    };
    let known = if is_policy && history.sizes == Sizes::OfBlocks { Asks::Given } else { Asks::Known };
    let answer = of(known);
    // The recorded run gave these very blocks, whatever was asked for.
    let least = (history.rounded > 0 && !is_recorded).then(|| Box::new(of(Asks::Least)));
    PolicyAnswer { with_least_requests: least.filter(|least| **least != answer), ..answer }
}

fn policy_answer(history: &History, policy: &Policy, outcomes: &[Outcome; 2]) -> PolicyAnswer {
    let [least, most] = outcomes;
    let sums = least.sums;
    let unused = sums.peak_reserved.saturating_sub(sums.allocated_at_peak);
    let new = outcomes.each_ref().map(|outcome| outcome.new_failures);
    PolicyAnswer {
        settings: policy.settings.clone(),
        is_recorded: false,
        capacity_bytes: None,
        usable_bytes: None,
        peak_reserved_bytes: sums.peak_reserved,
        peak_allocated_bytes: sums.peak_allocated,
        unused_at_peak: if sums.peak_reserved == 0 { 0.0 } else { unused as f64 / sums.peak_reserved as f64 },
        takes: sums.takes,
        gives: sums.gives,
        retries: sums.retries,
        new_failures_least: new[0].min(new[1]),
        new_failures_most: new[0].max(new[1]),
        first_change: least.first_change.into_iter().chain(most.first_change).min(),
        failures: failures(history, least, most),
        expandable_with_max_split: policy.is_expandable_with_max_split(),
        inert_threshold: policy.has_inert_threshold(),
        with_least_requests: None,
        modelled: true,
    }
}

impl PolicyAnswer {
    /// What becomes of a recorded failure, by its place; of one that the sizes of requests decide, that it depends.
    pub fn fate(&self, index: usize) -> Option<super::cards::Fate> {
        let fate = self.failures.get(index)?.fate;
        let other =
            self.with_least_requests.as_ref().map_or(Some(fate), |least| Some(least.failures.get(index)?.fate))?;
        Some(if fate == other { fate } else { super::cards::Fate::Depends })
    }
}

fn failures(history: &History, least: &Outcome, most: &Outcome) -> Vec<TorchFailure> {
    use super::cards::Fate;
    let refused = history.steps.iter().filter_map(|step| match step {
        Step::Refused { requested, .. } => Some(*requested),
        _ => None,
    });
    let fates = least.remains.iter().zip(&most.remains).map(|pair| match pair {
        (true, true) => Fate::Remains,
        (false, false) => Fate::Gone,
        _ => Fate::Depends,
    });
    let numbered = (1..).zip(refused.zip(fates)).take(MAX_FAILURES);
    numbered.map(|(number, (requested_bytes, fate))| TorchFailure { number, requested_bytes, fate }).collect()
}
