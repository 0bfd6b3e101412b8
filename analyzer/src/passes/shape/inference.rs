//! Shapes of serving, and of sharded training: caches that grow, pools that keep peaks, parts that are gathered.

use rustc_hash::FxHashMap;

use super::facts::{Facts, alive};
use super::labels;
use super::named::must_be_named;
use super::paths::Thing;
use crate::judgement::check::{Check, Confidence};
use crate::replay::tracks::calls::{Call, What};
use crate::thresholds::{Thresholds, Unit, share};
use crate::words::{percent, size};

/// A thread's last live requests among which the smaller block's successor is looked for: the new cache, and what was made with it.
const NEAR: usize = 2;
/// What would tell gathered parameters from other buffers.
const COMMUNICATOR: &str =
    "whether parameters are gathered here: the way to the call through FSDP (GPUOOM_STACKS=native,python)";
/// Families of one thread and place that are told apart.
const MOST_CHAINS: usize = 256;

/// A cache that grows by a constant.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Growing {
    /// By so many bytes each time.
    step_bytes: u64,
    /// Allocations of a larger block that a free of the smaller one followed.
    pairs: usize,
    /// All blocks of these sizes that were given back.
    returned: usize,
    /// Different sizes that were given.
    sizes: usize,
    /// The smallest and the largest.
    from_bytes: u64,
    to_bytes: u64,
}

/// A block that took the place of a smaller one, which was given back then.
#[derive(Clone, Copy)]
struct Successor {
    /// Number of the call that gave the smaller one back.
    at: usize,
    /// By so many bytes it is larger.
    step_bytes: u64,
    /// Whether the pair is counted.
    counts: bool,
}

/// What one thread did of late.
#[derive(Default)]
struct Lately {
    /// Its last live requests that took no block's place so far, with the numbers of their calls.
    given: Vec<(usize, Call)>,
    /// A block that it gave back last, and the request that took its place, unless the next one is of the block's own size.
    replaced: Option<Replaced>,
}

/// A block that was given back, and what took its place.
struct Replaced {
    /// Number of the call that gave it back.
    at: usize,
    bytes: u64,
    by: (usize, Call),
    /// What it had replaced itself.
    before: Option<Successor>,
}

/// Blocks that took the place of smaller ones.
#[derive(Default)]
struct Replacements {
    /// Pairs of one step, and their sizes.
    by_step: FxHashMap<u64, (usize, Vec<u64>)>,
    successors: FxHashMap<u64, Successor>,
    /// Sizes that were given back.
    returned: Vec<u64>,
}

impl Replacements {
    fn returned(&mut self, at: usize, call: &Call, lately: &mut Lately) {
        self.count(lately.replaced.take());
        self.returned.push(call.bytes);
        let before = self.successors.remove(&call.address);
        if lately.given.last().is_some_and(|(_, given)| given.bytes == call.bytes) {
            // That one took its place.
            return;
        }
        let larger = lately
            .given
            .iter()
            .enumerate()
            .filter(|(_, (_, given))| given.bytes > call.bytes && given.bytes - call.bytes <= call.bytes);
        // The one nearest in size, and of those the latest.
        if let Some((place, _)) = larger.rev().min_by_key(|(_, (_, given))| given.bytes) {
            lately.replaced = Some(Replaced { at, bytes: call.bytes, by: lately.given.remove(place), before });
        }
    }

    fn count(&mut self, replaced: Option<Replaced>) {
        let Some(Replaced { at, bytes, by: (given_at, given), before }) = replaced else { return };
        let step_bytes = given.bytes - bytes;
        let before = before.filter(|before| before.at < given_at && before.step_bytes == step_bytes);
        let news = before.map_or(0, |before| 1 + usize::from(!before.counts));
        if news > 0 {
            let (pairs, sizes) = self.by_step.entry(step_bytes).or_default();
            *pairs += news;
            sizes.extend([bytes, given.bytes]);
        }
        self.successors.insert(given.address, Successor { at, step_bytes, counts: news > 0 });
    }

    /// Those of the step that comes most often.
    fn most_frequent(self) -> Growing {
        let most = self.by_step.into_iter().max_by_key(|(step, (pairs, _))| (*pairs, std::cmp::Reverse(*step)));
        let Some((step_bytes, (pairs, mut sizes))) = most else { return Growing::default() };
        sizes.sort_unstable();
        sizes.dedup();
        let (from_bytes, to_bytes) = (sizes[0].saturating_sub(step_bytes), sizes[sizes.len() - 1]);
        let returned = self.returned.iter().filter(|bytes| (from_bytes..to_bytes).contains(*bytes)).count();
        Growing { step_bytes, pairs, returned, sizes: sizes.len(), from_bytes, to_bytes }
    }
}

/// Pairs of "more given, less given back" whose difference is the same, as often as it comes. A pair counts once its larger block
/// gives way to a still larger one that was asked for after it: blocks of rising sizes that live side by side, and are given back one
/// after the other, replace nothing. A block of the same size, given before or right after, is what replaces one.
fn growing(calls: &[Call]) -> Growing {
    let mut threads: FxHashMap<u32, Lately> = FxHashMap::default();
    let mut found = Replacements::default();
    for (number, call) in calls.iter().enumerate() {
        match call.what {
            What::Given => {
                let lately = threads.entry(call.thread).or_default();
                found.count(lately.replaced.take().filter(|replaced| replaced.bytes != call.bytes));
                if lately.given.len() == NEAR {
                    lately.given.remove(0);
                }
                lately.given.push((number, *call));
            }
            What::Returned => {
                for lately in threads.values_mut() {
                    lately.given.retain(|(_, given)| given.address != call.address);
                }
                found.returned(number, call, threads.entry(call.thread).or_default());
            }
            What::Refused => {}
        }
    }
    threads.into_values().for_each(|lately| found.count(lately.replaced));
    found.most_frequent()
}

/// A block that is replaced again and again by one that is larger by the same amount: an array that grows, or a cache of keys and
/// values.
pub(super) fn kv_incremental(facts: &Facts, check: &mut Check) {
    let found = growing(&facts.calls);
    let thresholds = &facts.thresholds;
    let are_many = found.pairs as u64 >= thresholds.growing_pairs && found.sizes as u64 >= thresholds.growing_sizes;
    // Among blocks of many sizes some follow a smaller one by chance.
    let is_rule = share(found.pairs as u64, found.returned as u64) >= thresholds.growing_share;
    if !check.applies(are_many && is_rule) {
        return;
    }
    check.must(true, || {
        format!(
            "{} times a block was given back after one had been asked for that is {} larger, from {} to {}",
            found.pairs,
            size(found.step_bytes),
            size(found.from_bytes),
            size(found.to_bytes)
        )
    });
    let next = facts.requested_bytes;
    let goes_on =
        next > found.to_bytes - found.step_bytes && next <= found.to_bytes.saturating_add(2 * found.step_bytes);
    check.note(goes_on, || format!("the request that failed ({}) is the next of them", size(next)));
    if !goes_on {
        // Something else may have met a card that the block filled.
        check.at_most(Confidence::Probable);
    }
    must_be_named(facts.says_tokens(), check);
}

/// Buffers of one family: bytes of the last, how many, bytes of all.
type Chain = (u64, usize, u64);

/// Buffers of which each is a little larger than the one before, none given back.
fn family(calls: &[Call], thresholds: &Thresholds) -> (usize, u64, u64) {
    let fitting = thresholds.kept_least_share..=thresholds.kept_larger_share;
    // A family is told by its thread and call site, where that is known.
    let mut families: FxHashMap<(u32, u32), Vec<Chain>> = FxHashMap::default();
    let mut best = (0, 0, 0);
    for call in alive(calls) {
        let chains = families.entry((call.thread, call.site)).or_default();
        let fits = |last: u64| call.bytes > last && fitting.contains(&share(call.bytes - last, last));
        let known = chains.iter().enumerate().filter(|(_, chain)| fits(chain.0)).max_by_key(|(_, chain)| chain.0);
        match known.map(|(place, chain)| (place, *chain)) {
            Some((place, chain)) => chains[place] = (call.bytes, chain.1 + 1, chain.2.saturating_add(call.bytes)),
            None if chains.len() < MOST_CHAINS => chains.push((call.bytes, 1, call.bytes)),
            None => {}
        }
        let longest = chains.iter().max_by_key(|chain| (chain.1, chain.2)).copied().unwrap_or_default();
        if longest.1 > best.0 {
            best = (longest.1, longest.2, longest.0);
        }
    }
    best
}

/// A pool that keeps each peak.
pub(super) fn legacy_pool(facts: &Facts, check: &mut Check) {
    let (buffers, bytes, last) = family(&facts.calls, &facts.thresholds);
    if !check.applies(buffers as u64 >= facts.thresholds.kept_buffers && bytes >= facts.thresholds.kept_bytes) {
        return;
    }
    check.must(true, || {
        format!("{buffers} buffers of one thread and place, each up to {} larger than the one before: {} in all, none given back", percent(facts.thresholds.kept_larger_share), size(bytes))
    });
    let part = share(bytes, facts.held_bytes);
    if part < facts.thresholds.dominant_share {
        // The rest is no pool's: that fills the card as much, or more.
        let is_little = part < facts.thresholds.others_share;
        check.at_most(if is_little { Confidence::Possible } else { Confidence::Probable });
        check.note(true, || format!("that is {} of what the program held", percent(part)));
        check.would_settle("the same run with what else the program holds made smaller");
    }
    let next = facts.requested_bytes;
    let goes_on = next > last && next.saturating_sub(last) as f64 <= facts.thresholds.kept_larger_share * last as f64;
    check.must(goes_on, || {
        format!("the request that failed ({}) is the next of them, after {}", size(next), size(last))
    });
    check.unless(facts.vmm_bytes > 0, || "virtual memory management is in use".to_owned());
    check.unless(facts.steps() >= 3 && facts.repetition.is_some(), || "memory comes back in steps".to_owned());
}

/// Equal blocks that live shortly, several at once.
pub(super) fn gather_spike(facts: &Facts, check: &mut Check) {
    let mut open: FxHashMap<u64, &Call> = FxHashMap::default();
    let mut short: FxHashMap<u64, usize> = FxHashMap::default();
    for call in &facts.calls {
        match call.what {
            What::Given => _ = open.insert(call.address, call),
            What::Returned => {
                let given = open.remove(&call.address);
                if given.is_some_and(|given| call.at.saturating_sub(given.at) < facts.short_ticks) {
                    *short.entry(call.bytes).or_default() += 1;
                }
            }
            What::Refused => {}
        }
    }
    let wanted = facts.requested_bytes;
    let times = short.get(&wanted).copied().unwrap_or(0);
    let now = open.values().filter(|call| call.bytes == wanted && facts.at.saturating_sub(call.at) < facts.short_ticks);
    let now = now.count();
    let thresholds = &facts.thresholds;
    let are_many = times as u64 >= thresholds.gathers && now as u64 >= thresholds.gathers_at_once;
    if !check.applies(are_many && wanted >= thresholds.gathered_bytes) {
        return;
    }
    check.must(true, || {
        let short = Unit::Time.shown(thresholds.gathered_for_ns as f64);
        format!("{times} blocks of {} lived for less than {short} each", size(wanted))
    });
    check.must(true, || format!("{now} of them lived at once when another one failed"));
    match facts.says_that(Thing::Gather, labels::names_a_gather) {
        Some(said) => said.count(check),
        // Any two buffers that are used in turn look like this; whether a communicator was made, nobody recorded.
        None => check.guess(COMMUNICATOR),
    }
    check.at_most(Confidence::Probable);
}
