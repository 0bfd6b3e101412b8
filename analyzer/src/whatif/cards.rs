//! What other cards and granules would have made of the calls of one device.

use gpuoom_trace::outcome::Because;
use gpuoom_trace::record::{Kind, injected};
use serde::Serialize;

use super::overhead::Overhead;
use super::world::{Lifetime, World};
use crate::replay::block::{Block, Side};
use crate::replay::failures::{Oom, RefusedBy};
use crate::replay::readings::DeviceReadings;
use crate::thresholds::Thresholds;

/// No card has so much: who asks for it has calculated wrongly. 1 PiB.
pub const NO_CARD_BYTES: u64 = 1 << 50;
/// Failures that are answered one by one; more are only counted.
pub const MAX_FAILURES: usize = 1000;

/// Where a granule comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Basis {
    /// Somebody asked for it.
    Given,
    /// The recorder's setting: a model.
    Recorded,
    /// The addresses show it.
    Inferred,
    /// No rounding: the addresses do not show any granule.
    None,
}

/// A granule.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Granularity {
    /// Bytes.
    pub bytes: u64,
    /// Where it comes from.
    pub basis: Basis,
}

/// What the recorded calls need, with one granule.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Need {
    /// The granule.
    pub granularity: Granularity,
    /// Most bytes that were asked for and held, without what was refused.
    pub peak_requested_bytes: u64,
    /// Most bytes that were held, each block padded to granules.
    pub peak_padded_bytes: u64,
    /// The smallest card on which no recorded request would have failed, if what was refused had been given back at once.
    pub fits_in_least_bytes: u64,
    /// The same, if it had been held to the end.
    pub fits_in_most_bytes: u64,
}

/// What becomes of a recorded failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Fate {
    /// It fails here too.
    Remains,
    /// It succeeds.
    Gone,
    /// It depends on how long memory is held that was refused in the recorded run and is given here.
    Depends,
    /// The size of the card is not what it failed for, or nobody knows its size.
    Unknown,
}

/// Why nothing can be said about a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Unclear {
    /// It is about memory of the host.
    Host,
    /// It set something up whose size nobody tells.
    UnknownSize,
    /// It was injected.
    Injected,
    /// More was free than it asked for.
    EnoughWasFree,
}

/// A recorded failure on another card.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Failure {
    /// Its number, counted from 1.
    pub number: u64,
    /// When.
    pub at_ns: u64,
    /// Bytes asked for.
    pub requested_bytes: u64,
    /// What becomes of it.
    pub fate: Fate,
    /// Why nothing can be said.
    pub unclear: Option<Unclear>,
    /// Whether an earlier call already had another outcome than in the recorded run.
    pub conditional: bool,
}

/// A call that has another outcome than in the recorded run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Change {
    /// When.
    pub at_ns: u64,
    /// Function.
    pub api: String,
    /// Bytes asked for.
    pub requested_bytes: u64,
    /// The failure (counted from 1) that does not happen; `None` for a success that becomes a failure.
    pub failure: Option<u64>,
}

/// How many failures have which fate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Fates {
    /// Fail here too.
    pub remain: u64,
    /// Succeed.
    pub gone: u64,
    /// Depend on how long other memory is held.
    pub depend: u64,
    /// Nothing can be said.
    pub unknown: u64,
}

/// A card.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Card {
    /// All its memory.
    pub capacity_bytes: u64,
    /// The granule.
    pub granularity: Granularity,
    /// Whether it is the card of the recorded run: then this is a check of the model.
    pub is_recorded: bool,
    /// The first call with another outcome. It is certain, as far as the model is right; what comes after depends on what
    /// the program would have done.
    pub first_change: Option<Change>,
    /// Counts of the recorded failures.
    pub fates: Fates,
    /// Recorded successes that fail here: the fewest and the most, by how long refused memory would have been held.
    pub new_failures_least: u64,
    /// The most.
    pub new_failures_most: u64,
    /// The recorded failures.
    pub failures: Vec<Failure>,
}

/// The answers about one device.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct DeviceAnswer {
    /// Device index.
    pub index: Option<u8>,
    /// Name, where the runtime tells it.
    pub name: Option<String>,
    /// Memory of the recorded card.
    pub total_bytes: Option<u64>,
    /// Recorded allocations that are counted here.
    pub allocations: u64,
    /// Recorded failures.
    pub failures: u64,
    /// Failed requests that no card could hold ([`NO_CARD_BYTES`] and more): they are left out of what is needed.
    pub absurd_failures: u64,
    /// Managed memory at its most. It is left out: its pages move to the host.
    pub managed_bytes: u64,
    /// Bytes that went back to stream-ordered pools over the run. The model takes them as free at once; a pool may keep them, and
    /// what it keeps at a reading is in [`DeviceAnswer::overhead`], too.
    pub returned_to_pools_bytes: u64,
    /// What is in use beside the program's blocks.
    pub overhead: Overhead,
    /// What is needed, by granule.
    pub needs: Vec<Need>,
    /// What other cards make of it.
    pub cards: Vec<Card>,
    /// These numbers are of a model, but for [`DeviceAnswer::overhead`].
    pub modelled: bool,
}

/// A recorded failure, as far as a model needs it.
#[derive(Clone, Copy, Debug)]
pub struct Refused {
    number: u64,
    at_ns: u64,
    requested_bytes: u64,
    asked_again: bool,
    unclear: Option<Unclear>,
}

impl Refused {
    /// From a failure whose outcome is known.
    pub fn new(number: u64, at_ns: u64, oom: &Oom, thresholds: &Thresholds) -> Self {
        Refused {
            number,
            at_ns,
            requested_bytes: oom.requested_bytes,
            asked_again: oom.because == Because::RetrySucceeded,
            unclear: unclear(oom, thresholds),
        }
    }

    /// As a call that has another outcome.
    pub fn as_change(&self, api: &str) -> Change {
        let Refused { number, at_ns, requested_bytes, .. } = *self;
        Change { at_ns, api: api.to_owned(), requested_bytes, failure: Some(number) }
    }
}

fn unclear(oom: &Oom, thresholds: &Thresholds) -> Option<Unclear> {
    match oom {
        _ if Side::of(oom.kind) == Side::Host => Some(Unclear::Host),
        _ if oom.unknown_size => Some(Unclear::UnknownSize),
        // A virtual card refuses what it has no room for: another size would have changed that.
        _ if oom.injected.is_some_and(|injected| injected.reason == injected::CAPACITY) => None,
        _ if oom.refused_by == RefusedBy::Injected => Some(Unclear::Injected),
        _ if enough_was_free(&oom.read, oom.requested_bytes, thresholds) => Some(Unclear::EnoughWasFree),
        _ => None,
    }
}

/// A failure with enough free had another reason than the size of the card.
fn enough_was_free(read: &DeviceReadings, requested_bytes: u64, thresholds: &Thresholds) -> bool {
    read.wholes().first().is_some_and(|whole| thresholds.is_enough(whole.free_bytes, requested_bytes))
}

/// The two worlds of a card: what was refused in the recorded run and is given there is freed at once, or never.
#[derive(Clone, Debug)]
struct Pair {
    least: World,
    most: World,
}

impl Pair {
    fn new(usable_bytes: u64, granularity_bytes: u64) -> Self {
        let world = |lifetime| World::new(usable_bytes, granularity_bytes, lifetime);
        Pair { least: world(Lifetime::None), most: world(Lifetime::Whole) }
    }
}

/// A card that lives through the calls.
#[derive(Clone, Debug)]
pub struct CardModel {
    card: Card,
    pair: Pair,
}

impl CardModel {
    /// An empty card.
    pub fn new(capacity_bytes: u64, granularity: Granularity, is_recorded: bool, overhead: Overhead) -> Self {
        let usable = capacity_bytes.saturating_sub(overhead.bytes);
        CardModel {
            card: Card {
                capacity_bytes,
                granularity,
                is_recorded,
                first_change: None,
                fates: Fates::default(),
                new_failures_least: 0,
                new_failures_most: 0,
                failures: Vec::new(),
            },
            pair: Pair::new(usable, granularity.bytes),
        }
    }

    fn comes(&mut self, block: &Block, change: impl FnOnce() -> Change) {
        let least = self.pair.least.comes(block);
        let most = self.pair.most.comes(block);
        if (least || most) && self.card.first_change.is_none() {
            self.card.first_change = Some(change());
        }
    }

    fn goes(&mut self, block: &Block) {
        self.pair.least.goes(block);
        self.pair.most.goes(block);
    }

    fn failed(&mut self, refused: &Refused, change: impl FnOnce() -> Change) {
        let Refused { number, at_ns, requested_bytes, asked_again, unclear } = *refused;
        let fate = match unclear {
            Some(_) => Fate::Unknown,
            None => match [&mut self.pair.least, &mut self.pair.most]
                .map(|world| world.failed(requested_bytes, asked_again))
            {
                [true, true] => Fate::Remains,
                [false, false] => Fate::Gone,
                _ => Fate::Depends,
            },
        };
        let conditional = self.card.first_change.is_some();
        if matches!(fate, Fate::Gone | Fate::Depends) && !conditional {
            self.card.first_change = Some(change());
        }
        let fates = &mut self.card.fates;
        *match fate {
            Fate::Remains => &mut fates.remain,
            Fate::Gone => &mut fates.gone,
            Fate::Depends => &mut fates.depend,
            Fate::Unknown => &mut fates.unknown,
        } += 1;
        if self.card.failures.len() < MAX_FAILURES {
            self.card.failures.push(Failure { number, at_ns, requested_bytes, fate, unclear, conditional });
        }
    }

    fn finish(mut self) -> Card {
        let counts = [self.pair.least.refusals, self.pair.most.refusals];
        self.card.new_failures_least = counts.into_iter().min().unwrap_or(0);
        self.card.new_failures_most = counts.into_iter().max().unwrap_or(0);
        self.card
    }
}

/// What is needed with one granule: a card without an end.
#[derive(Clone, Debug)]
struct NeedModel {
    granularity: Granularity,
    /// The recorded successes only.
    recorded: World,
    pair: Pair,
}

/// All models of a device.
#[derive(Clone, Debug)]
pub struct DeviceModel {
    answer: DeviceAnswer,
    needs: Vec<NeedModel>,
    cards: Vec<CardModel>,
    managed_bytes: u128,
}

impl DeviceModel {
    /// Models for an answer that knows the device, with these granules and cards.
    pub fn new(answer: DeviceAnswer, granularities: &[Granularity], cards: Vec<CardModel>) -> Self {
        let needs = granularities.iter().map(|granularity| NeedModel {
            granularity: *granularity,
            recorded: World::new(u64::MAX, granularity.bytes, Lifetime::None),
            pair: Pair::new(u64::MAX, granularity.bytes),
        });
        DeviceModel { needs: needs.collect(), cards, answer, managed_bytes: 0 }
    }

    /// A recorded success, and how to name it.
    pub fn comes(&mut self, block: &Block, change: impl Fn() -> Change) {
        if block.kind == Kind::Managed {
            self.managed_bytes = self.managed_bytes.saturating_add(u128::from(block.requested_bytes));
            let most = u64::try_from(self.managed_bytes).unwrap_or(u64::MAX);
            self.answer.managed_bytes = self.answer.managed_bytes.max(most);
            return;
        }
        self.answer.allocations += 1;
        for need in &mut self.needs {
            need.recorded.comes(block);
            need.pair.least.comes(block);
            need.pair.most.comes(block);
        }
        self.cards.iter_mut().for_each(|card| card.comes(block, &change));
    }

    /// A recorded free.
    pub fn goes(&mut self, block: &Block) {
        if block.kind == Kind::Managed {
            self.managed_bytes = self.managed_bytes.saturating_sub(u128::from(block.requested_bytes));
            return;
        }
        for need in &mut self.needs {
            need.recorded.goes(block);
            need.pair.least.goes(block);
            need.pair.most.goes(block);
        }
        self.cards.iter_mut().for_each(|card| card.goes(block));
    }

    /// A recorded failure, and how to name it.
    pub fn failed(&mut self, refused: &Refused, change: impl Fn() -> Change) {
        self.answer.failures += 1;
        let is_absurd = refused.requested_bytes >= NO_CARD_BYTES;
        self.answer.absurd_failures += u64::from(is_absurd);
        if refused.unclear.is_none() && !is_absurd {
            for need in &mut self.needs {
                need.pair.least.failed(refused.requested_bytes, refused.asked_again);
                need.pair.most.failed(refused.requested_bytes, refused.asked_again);
            }
        }
        self.cards.iter_mut().for_each(|card| card.failed(refused, &change));
    }

    /// The answer, after the last record.
    pub fn finish(mut self) -> DeviceAnswer {
        let overhead = u128::from(self.answer.overhead.bytes);
        let narrow = |bytes: u128| u64::try_from(bytes).unwrap_or(u64::MAX);
        let needs = self.needs.iter().map(|need| Need {
            granularity: need.granularity,
            peak_requested_bytes: narrow(need.recorded.peak_asked_bytes),
            peak_padded_bytes: narrow(need.recorded.peak_bytes),
            fits_in_least_bytes: narrow(need.pair.least.peak_bytes.saturating_add(overhead)),
            fits_in_most_bytes: narrow(need.pair.most.peak_bytes.saturating_add(overhead)),
        });
        self.answer.needs = needs.collect();
        self.answer.cards = self.cards.into_iter().map(CardModel::finish).collect();
        self.answer
    }
}
