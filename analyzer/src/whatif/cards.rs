//! What other cards and granules would have made of the calls of one device.

use gpuoom_trace::outcome::Because;
use gpuoom_trace::record::{Kind, injected};
use serde::Serialize;

use super::overhead::{Origin, Overhead, Recorded};
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
    /// The same, if it had been held to the end. Not known where [`Need::unexplained_failures`] are left out.
    pub fits_in_most_bytes: u64,
    /// Failures that the model has room for on the recorded card, which refused them: what a card must have for them is not known.
    pub unexplained_failures: u64,
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
    /// The model has room for it on the recorded card, which refused it.
    NotExplained,
    /// An allocator above the runtime raised it and asked nobody: it has a limit of its own, which may be a share of the card.
    OwnLimit,
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
    /// Whether it is the card of the recorded run, or the virtual one that stood in its place: then this is a check of the model.
    pub is_recorded: bool,
    /// The first call with another outcome, whatever is in use beside the blocks within its bounds: at the latest here the program may
    /// go another way. What comes after depends on what it would have done.
    pub first_change: Option<Change>,
    /// An earlier call that may have another outcome, by what is not known.
    pub may_change: Option<Change>,
    /// Counts of the recorded failures.
    pub fates: Fates,
    /// Recorded successes that fail here: the fewest and the most, by how long refused memory would have been held.
    pub new_failures_least: u64,
    /// The most; `None` where managed memory is used too: how much of it a card would have to hold is not known, but for a larger
    /// one, which gives what the recorded one gave.
    pub new_failures_most: Option<u64>,
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
    /// Memory of the virtual card that the run was given in its place (`GPUOOM_CAPACITY`): the recorded failures are judged by
    /// that, and the card itself is another.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub virtual_bytes: Option<u64>,
    /// Recorded allocations that are counted here.
    pub allocations: u64,
    /// Recorded failures.
    pub failures: u64,
    /// Failed requests that no card could hold ([`NO_CARD_BYTES`] and more): they are left out of what is needed.
    pub absurd_failures: u64,
    /// Failures by a limit of an allocator above the runtime. On another card it may be another limit, so there is no
    /// [`DeviceAnswer::needs`] then.
    pub own_limit_failures: u64,
    /// Failures of which a piece was refused, and others would have followed.
    #[serde(skip)]
    pub failures_in_pieces: u64,
    /// Managed memory at its most. It is no block of the model: its pages may lie in RAM. What of it lay on the card when
    /// [`DeviceAnswer::overhead`] was measured is in that.
    pub managed_bytes: u64,
    /// Bytes that went back to stream-ordered pools over the run. With the least that may be in use they are free at once, with the
    /// most pools keep them.
    pub returned_to_pools_bytes: u64,
    /// Bytes that stayed more after each step where the run ends, where what stays rises there: a longer run needs more than
    /// [`DeviceAnswer::needs`] says. `None` where it was not seen to rise.
    pub grows_bytes_per_step: Option<u64>,
    /// The same where the steps may be the parts of one load, which ends.
    #[serde(skip)]
    pub may_grow_bytes_per_step: Option<u64>,
    /// What is in use beside the program's blocks.
    pub overhead: Overhead,
    /// What is needed, by granule; empty where nobody can tell.
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
    /// The most that had to be there for the program to get what it wanted: of an expandable segment a piece is refused, and others
    /// would have followed.
    wanted_bytes: u64,
    kind: Kind,
    asked_again: bool,
    /// The virtual card refused it, and no real one.
    by_virtual_card: bool,
    unclear: Option<Unclear>,
}

impl Refused {
    /// From a failure whose outcome is known.
    pub fn new(number: u64, at_ns: u64, oom: &Oom, thresholds: &Thresholds) -> Self {
        Refused {
            number,
            at_ns,
            requested_bytes: oom.requested_bytes,
            wanted_bytes: wanted_bytes(oom),
            kind: oom.kind,
            asked_again: oom.because == Because::RetrySucceeded,
            by_virtual_card: oom.injected.is_some_and(|injected| injected.reason == injected::CAPACITY),
            unclear: unclear(oom, thresholds),
        }
    }

    /// As a call that has another outcome.
    pub fn as_change(&self, api: &str) -> Change {
        let Refused { number, at_ns, requested_bytes, .. } = *self;
        Change { at_ns, api: api.to_owned(), requested_bytes, failure: Some(number) }
    }
}

/// All of the block that an allocator wanted, but for the pieces that it is known to have taken for it, in whole pieces: the most that was
/// wanted. What of it might have lain in memory that it had mapped before nobody tells.
fn wanted_bytes(oom: &Oom) -> u64 {
    let piece = oom.requested_bytes;
    let Some(error) = oom.error.as_ref().filter(|_| oom.kind == Kind::Physical && piece > 0) else { return piece };
    let rest = error.requested_bytes.saturating_sub(error.half_made_bytes.unwrap_or(0));
    rest.div_ceil(piece).saturating_mul(piece).max(piece)
}

fn unclear(oom: &Oom, thresholds: &Thresholds) -> Option<Unclear> {
    match oom {
        _ if Side::of(oom.kind) == Side::Host => Some(Unclear::Host),
        _ if oom.unknown_size => Some(Unclear::UnknownSize),
        // A virtual card refuses what it has no room for: another size would have changed that.
        _ if oom.injected.is_some_and(|injected| injected.reason == injected::CAPACITY) => None,
        _ if oom.refused_by == RefusedBy::Injected => Some(Unclear::Injected),
        _ if oom.is_of_allocator_alone() => Some(Unclear::OwnLimit),
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
    /// `least` and `most` of the card can be used, by what may be in use beside the blocks.
    fn new((least, most): (u64, u64), granularity_bytes: u64) -> Self {
        let world = |usable, lifetime| World::new(usable, granularity_bytes, lifetime);
        Pair { least: world(most, Lifetime::None), most: world(least, Lifetime::Whole).with_pools(most) }
    }
}

/// A card that lives through the calls.
#[derive(Clone, Debug)]
pub struct CardModel {
    card: Card,
    pair: Pair,
    /// Whether it is larger than the recorded one.
    is_larger: bool,
    /// Calls so far.
    calls: u64,
    /// The first call of each world with another outcome, with its number.
    changes: [Option<(u64, Change)>; 2],
}

impl CardModel {
    /// An empty card.
    pub fn new(
        capacity_bytes: u64,
        granularity: Granularity,
        is_recorded: bool,
        overhead: Overhead,
        recorded: Option<Recorded>,
    ) -> Self {
        let beside = |overhead_bytes: u64| capacity_bytes.saturating_sub(overhead_bytes);
        let usable = (beside(overhead.most_bytes(capacity_bytes, recorded)), beside(overhead.least_bytes()));
        CardModel {
            card: Card {
                capacity_bytes,
                granularity,
                is_recorded,
                first_change: None,
                may_change: None,
                fates: Fates::default(),
                new_failures_least: 0,
                new_failures_most: Some(0),
                failures: Vec::new(),
            },
            calls: 0,
            changes: [None, None],
            is_larger: recorded.is_some_and(|recorded| capacity_bytes > recorded.total_bytes),
            pair: Pair::new(usable, granularity.bytes),
        }
    }

    fn comes(&mut self, block: &Block, change: impl FnOnce() -> Change) {
        let least = self.pair.least.comes(block);
        // What the recorded card gave, a larger one gives, too, as long as all went the same way: what is not known of the memory in
        // use refuses nothing there.
        let is_given = !least && self.is_larger && !self.has_changed();
        let most = !is_given && self.pair.most.comes(block);
        if is_given {
            self.pair.most.must_take(block);
        }
        self.note([least, most], change);
    }

    /// Whether any of the worlds has left the recorded run.
    fn has_changed(&self) -> bool {
        self.changes.iter().any(Option::is_some)
    }

    /// Takes note of a call, and of the worlds in which it has another outcome than in the recorded run.
    fn note(&mut self, differs: [bool; 2], change: impl FnOnce() -> Change) {
        self.calls += 1;
        let is_first = |world: usize| differs[world] && self.changes[world].is_none();
        let firsts = [is_first(0), is_first(1)];
        if firsts.contains(&true) {
            let change = change();
            for (first, known) in firsts.into_iter().zip(&mut self.changes) {
                if first {
                    *known = Some((self.calls, change.clone()));
                }
            }
        }
    }

    fn goes(&mut self, block: &Block) {
        self.pair.least.goes(block);
        self.pair.most.goes(block);
    }

    /// A recorded failure. Answers whether the model has room for what the recorded card refused.
    fn failed(&mut self, refused: &Refused, change: impl FnOnce() -> Change) -> bool {
        let Refused { number, at_ns, requested_bytes, wanted_bytes, kind, asked_again, unclear, .. } = *refused;
        let worlds = [(&mut self.pair.least, requested_bytes), (&mut self.pair.most, wanted_bytes)];
        let refused = unclear.is_none().then(|| worlds.map(|(world, bytes)| world.failed(bytes, kind, asked_again)));
        let fate = match refused {
            None => Fate::Unknown,
            Some([true, true]) => Fate::Remains,
            Some([false, false]) => Fate::Gone,
            Some(_) => Fate::Depends,
        };
        let conditional = self.has_changed();
        self.note(refused.map_or([false; 2], |refused| refused.map(|refused| !refused)), change);
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
        self.card.is_recorded && fate == Fate::Gone
    }

    fn finish(mut self, uses_managed: bool) -> Card {
        let known = |change: Option<(u64, Change)>| change.map(|(_, change)| change);
        (self.card.may_change, self.card.first_change) = match self.changes {
            [Some(one), Some(other)] if one.0 == other.0 => (None, Some(one.1)),
            [Some(one), Some(other)] if one.0 < other.0 => (Some(one.1), Some(other.1)),
            [Some(one), Some(other)] => (Some(other.1), Some(one.1)),
            [one, other] => (known(one.or(other)), None),
        };
        let counts = [self.pair.least.refusals, self.pair.most.refusals];
        self.card.new_failures_least = counts.into_iter().min().unwrap_or(0);
        self.card.new_failures_most =
            counts.into_iter().max().filter(|most| !uses_managed || self.is_larger && *most == 0);
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
    unexplained_failures: u64,
}

/// All models of a device.
#[derive(Clone, Debug)]
pub struct DeviceModel {
    answer: DeviceAnswer,
    needs: Vec<NeedModel>,
    cards: Vec<CardModel>,
    managed_bytes: u128,
    /// What the recorded run holds, managed memory left out.
    held_bytes: u128,
    recorded: Option<Recorded>,
}

impl DeviceModel {
    /// Models for an answer that knows the device, with these granules and cards.
    pub fn new(
        answer: DeviceAnswer,
        granularities: &[Granularity],
        cards: Vec<CardModel>,
        recorded: Option<Recorded>,
    ) -> Self {
        let needs = granularities.iter().map(|granularity| NeedModel {
            granularity: *granularity,
            recorded: World::new(u64::MAX, granularity.bytes, Lifetime::None),
            pair: Pair::new((u64::MAX, u64::MAX), granularity.bytes),
            unexplained_failures: 0,
        });
        DeviceModel { needs: needs.collect(), cards, answer, managed_bytes: 0, held_bytes: 0, recorded }
    }

    /// What the recorded card had left beside its blocks is the most that pools can have kept.
    fn bound_kept(&mut self) {
        let Some(total) = self.answer.total_bytes.filter(|_| self.answer.returned_to_pools_bytes > 0) else { return };
        let held = u64::try_from(self.held_bytes).unwrap_or(u64::MAX);
        let room = total.saturating_sub(held).saturating_sub(self.answer.overhead.least_bytes());
        self.needs.iter_mut().for_each(|need| need.pair.most.kept_at_most(room));
        self.cards.iter_mut().for_each(|card| card.pair.most.kept_at_most(room));
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
        self.held_bytes = self.held_bytes.saturating_add(u128::from(block.requested_bytes));
        self.bound_kept();
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
        self.held_bytes = self.held_bytes.saturating_sub(u128::from(block.requested_bytes));
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
        self.answer.failures_in_pieces += u64::from(refused.wanted_bytes > refused.requested_bytes);
        self.answer.own_limit_failures += u64::from(refused.unclear == Some(Unclear::OwnLimit));
        // The recorded card's own models first: what one does not explain, it says nothing of on another card. Where somebody says what
        // is in use beside the blocks, it is a question about another world.
        let is_check = self.answer.overhead.origin != Origin::Given
            && refused.by_virtual_card == self.answer.virtual_bytes.is_some();
        let mut unexplained = Vec::new();
        for card in self.cards.iter_mut().filter(|card| card.card.is_recorded) {
            if card.failed(refused, &change) && is_check {
                unexplained.push(card.card.granularity);
            }
        }
        let of_model = |granularity: Granularity| match unexplained.contains(&granularity) {
            true => Refused { unclear: Some(Unclear::NotExplained), ..*refused },
            false => *refused,
        };
        for card in self.cards.iter_mut().filter(|card| !card.card.is_recorded) {
            card.failed(&of_model(card.card.granularity), &change);
        }
        for need in self.needs.iter_mut().filter(|_| refused.unclear.is_none() && !is_absurd) {
            if of_model(need.granularity).unclear.is_some() {
                need.unexplained_failures += 1;
                continue;
            }
            need.pair.least.failed(refused.requested_bytes, refused.kind, refused.asked_again);
            need.pair.most.failed(refused.wanted_bytes, refused.kind, refused.asked_again);
        }
    }

    /// The answer, after the last record.
    pub fn finish(mut self) -> DeviceAnswer {
        let overhead = self.answer.overhead;
        let least = u128::from(overhead.least_bytes());
        let most = u128::from(overhead.most_bytes(u64::MAX, self.recorded));
        // Pools keep what they were given, or they keep nothing and all that was measured is others': whichever takes more.
        let fits_in_most =
            |world: &World| world.peak_bytes.saturating_add(most).max(world.peak_with_kept_bytes.saturating_add(least));
        let narrow = |bytes: u128| u64::try_from(bytes).unwrap_or(u64::MAX);
        // The recorded card refused what the model has room for: no smaller one is enough.
        let refused_by = self.answer.total_bytes.filter(|_| self.answer.virtual_bytes.is_none()).unwrap_or(0);
        let needs = self.needs.iter().map(|need| {
            let floor = if need.unexplained_failures > 0 { refused_by } else { 0 };
            Need {
                granularity: need.granularity,
                peak_requested_bytes: narrow(need.recorded.peak_asked_bytes),
                peak_padded_bytes: narrow(need.recorded.peak_bytes),
                fits_in_least_bytes: narrow(need.pair.least.peak_bytes.saturating_add(least)).max(floor),
                fits_in_most_bytes: narrow(fits_in_most(&need.pair.most)).max(floor),
                unexplained_failures: need.unexplained_failures,
            }
        });
        self.answer.needs = if self.answer.own_limit_failures == 0 { needs.collect() } else { Vec::new() };
        let uses_managed = self.answer.managed_bytes > 0;
        self.answer.cards = self.cards.into_iter().map(|card| card.finish(uses_managed)).collect();
        self.answer
    }
}
