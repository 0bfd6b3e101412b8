//! H. What follows from the facts of a model: the cache for its context, and its weights.

use super::llama::Start;
use super::log;
use super::shapes::{facts, its_own_doing, loads_as_llama_does};
use crate::diagnosis::case::{Case, Failure};
use crate::evidence::model::ModelFacts;
use crate::judgement::check::{Basis, Check, Confidence, Holds};
use crate::passes::shape::facts::{Facts, Phase};
use crate::passes::shape::labels;
use crate::passes::shape::paths::Thing;
use crate::replay::purpose::Purpose;
use crate::thresholds::share;
use crate::words::{count, grouped, percent, size};

/// What would tell how large the cache must be.
const MODEL: &str = "layers, KV heads, head dimension and context of the model (--model, --model-facts or --gguf): 2 x layers x \
    context x heads x dimension x bytes";
/// The same, where the file tells all but how many tokens the program was told to keep.
const CONTEXT: &str = "the context that the program was told (--model context=...)";

/// What would name the buffer.
const NAMES: &str = "which buffer this is: a function on the way to the call that names it (--symbols, where names are missing), a label of the program \
    (gpuoom_mark), or the model's facts (--gguf)";

/// Without which a tensor and a cache look alike.
pub(super) const CALL_SITES: &str = "the call sites of the requests, which this trace does not have: weights and caches are asked for in \
    different places of llama.cpp";

/// The cache for the whole context is allocated at the start.
pub(super) fn kv_cache_prealloc(case: &Case<'_>, failure: &Failure<'_>, check: &mut Check) {
    let of_llama = |facts: &&Facts| loads_as_llama_does(case, Some(facts), Thing::KvCache);
    let found = facts(case, failure).filter(|facts| facts.from_beginning).filter(of_llama);
    let start = found.map(|facts| (facts, Start::of(case, failure, facts)));
    let fits = |start: &Start<'_>| {
        !start.weights.is_empty() && start.asks_for_tensor != Some(true) && start.is_before_compute()
    };
    let Some((facts, start)) = start.filter(|(_, start)| fits(start)) else {
        check.applies(false);
        return;
    };
    check.must(true, || position(facts, &start));
    if start.asks_for_tensor.is_none() {
        check.must(Holds::Unknown(CALL_SITES), String::new);
        check.at_most(Confidence::Possible);
    }
    let other = [Thing::ComputeBuffer, Thing::Phase(Phase::Load)].into_iter().find_map(|thing| facts.on_path(thing));
    let named = facts.says_that(Thing::KvCache, labels::names_the_cache);
    let by_path = facts.on_path(Thing::KvCache).is_some();
    let is_surely_other = [Thing::ComputeBuffer, Thing::Phase(Phase::Load)]
        .into_iter()
        .any(|thing| facts.on_frameworks_path(thing).is_some());
    if let Some(text) = other.filter(|_| named.is_none() || is_surely_other && !by_path) {
        check.unless(true, || text);
    }
    check.unless(facts.steps() > 0 || facts.large_free_at.is_some(), || "the program had already computed".to_owned());
    its_own_doing(failure, check);
    let by_log = named.is_none() && log::says_what_for(case, failure, Purpose::KvCache, check);
    if let Some(said) = named {
        said.count(check);
        fits_the_model(case, facts, &start, check);
    } else if by_log {
        fits_the_model(case, facts, &start, check);
    } else if !fits_the_model(case, facts, &start, check) {
        check.guess(NAMES);
    }
}

/// Where the request came, and what that makes it.
fn position(facts: &Facts, start: &Start<'_>) -> String {
    let asked = size(facts.requested_bytes);
    let (weights, behind) = (start.weights.len() as u64, start.behind.len() as u64);
    match (start.by_tensor, behind) {
        (false, 0) => format!("{asked} was asked for right behind the first large buffer"),
        (false, _) => {
            format!("{asked} was asked for behind {}", count(weights + behind, "large buffer", "large buffers"))
        }
        (true, _) => {
            let blocks =
                format!("{} from one place ({})", count(weights, "block", "blocks"), size(start.weights_bytes()));
            let what = match behind {
                _ if start.asks_for_tensor.is_none() => "in a place that nobody knows",
                0 => "in another place",
                _ if start.behind.iter().any(|call| call.bytes == facts.requested_bytes) => "behind an equal one",
                _ => "behind others from another place",
            };
            format!("{asked} was asked for after {blocks}, {what}")
        }
    }
}

/// Holds what was asked for against what the model's facts make of its cache: whether it is the cache, or the next part of it.
fn fits_the_model(case: &Case<'_>, facts: &Facts, start: &Start<'_>, check: &mut Check) -> bool {
    let model = case.evidence.model.as_ref();
    let Some((model, expected)) = model.and_then(|model| Some((model, model.kv_bytes()?))) else {
        check.would_settle(MODEL);
        return false;
    };
    let seen = seen_caches(model, facts.requested_bytes, start);
    let off = |seen: &Seen| share(seen.whole_bytes.abs_diff(expected), expected);
    let nearest = |of_request: bool| {
        let those = seen.iter().filter(move |seen| seen.of_request == of_request);
        those.min_by_key(|seen| seen.whole_bytes.abs_diff(expected)).copied()
    };
    let formula = || {
        let context = grouped(model.context.unwrap_or(0));
        format!("the cache of this model for {context} tokens takes {}", size(expected))
    };
    let is_match = |seen: &Seen| off(seen) <= case.thresholds.model_share;
    if let Some(asked) = nearest(true).filter(is_match) {
        check.note_by(Basis::Given, true, || {
            let exactly = asked.whole_bytes == expected;
            let differs = if exactly { "exactly".to_owned() } else { format!("within {}", percent(off(&asked))) };
            format!("{}: {} is that {differs}", formula(), asked.text())
        });
        return true;
    }
    if let Some(given) = nearest(false).filter(is_match) {
        check.unless(true, || format!("{}, and {} was given: what failed is another buffer", formula(), given.text()));
        return false;
    }
    let closest = nearest(true).or(nearest(false)).unwrap_or_default();
    if model.context_is_certain {
        let tolerance = percent(case.thresholds.model_share);
        check.unless(true, || {
            format!("{}, and no buffer has that within {tolerance} ({})", formula(), size(closest.bytes))
        });
        return false;
    }
    check.would_settle(CONTEXT);
    let tokens = tokens_of(model, closest.whole_bytes).filter(|_| closest.of_request);
    check.note_by(Basis::Given, tokens.is_some(), || {
        format!("{} is the cache of this model for {} tokens", closest.text(), grouped(tokens.unwrap_or(0)))
    });
    check.at_most(Confidence::Probable);
    tokens.is_some()
}

/// What can be the cache, or a part of it.
#[derive(Clone, Copy, Debug, Default)]
struct Seen {
    /// Bytes that were given or asked for.
    bytes: u64,
    /// Bytes of the whole cache, where these are that part of it.
    whole_bytes: u64,
    /// Which part; empty where it is the whole.
    part: &'static str,
    /// Whether what failed is it, or a part of it.
    of_request: bool,
}

impl Seen {
    fn text(&self) -> String {
        match self.part {
            "" => format!("the buffer of {}", size(self.bytes)),
            part => format!("{} for {part}, which makes {} in all,", size(self.bytes), size(self.whole_bytes)),
        }
    }
}

/// What can be the cache: what was asked for right behind the weights, each by itself and all together; of the compute
/// buffer nothing is known. Where it comes in parts, also keys and values, of all layers or of one.
fn seen_caches(model: &ModelFacts, requested_bytes: u64, start: &Start<'_>) -> Vec<Seen> {
    let whole = |bytes: u64, of_request: bool| Seen { bytes, whole_bytes: bytes, part: "", of_request };
    let given: Vec<u64> = start.behind.iter().map(|call| call.bytes).collect();
    let together = given.iter().fold(0, |sum: u64, bytes| sum.saturating_add(*bytes));
    let mut seen = match given[..] {
        [] => vec![whole(requested_bytes, true)],
        // Two caches may be meant, of which the second is the one that fails.
        _ => given
            .iter()
            .copied()
            .chain([together])
            .map(|bytes| whole(bytes, false))
            .chain([whole(together.saturating_add(requested_bytes), true)])
            .collect(),
    };
    if !start.cache_is_in_parts(requested_bytes) {
        return seen;
    }
    let equal = |wanted: u64| given.iter().chain([&requested_bytes]).filter(|bytes| **bytes == wanted).count();
    let asked = (given.len() <= 1 || equal(requested_bytes) > 1).then_some(requested_bytes);
    let (keys, values) = model.kv_parts_bytes_per_token().unwrap_or_default();
    let layers = model.layers.unwrap_or(1) as f64;
    // A part that was given is the cache's, and so is an equal one that was asked for.
    let parts = given.iter().map(|bytes| (*bytes, given.len() <= 1 || *bytes == requested_bytes));
    for (bytes, of_request) in parts.chain(asked.map(|bytes| (bytes, true))) {
        let whole_bytes = |times: f64| (bytes as f64 * times) as u64;
        let mut part = |times: f64, part| seen.push(Seen { bytes, whole_bytes: whole_bytes(times), part, of_request });
        part((keys + values) / keys.max(1.0), "its keys");
        part((keys + values) / values.max(1.0), "its values");
        // A single block that fits a layer may do so by chance.
        if equal(bytes) > 1 {
            part(layers, "each layer");
            part(layers * (keys + values) / keys.max(1.0), "each layer's keys");
            part(layers * (keys + values) / values.max(1.0), "each layer's values");
        }
    }
    seen
}

/// The context whose cache has this size, where that is a whole number of tokens as llama.cpp counts them.
fn tokens_of(model: &ModelFacts, bytes: u64) -> Option<u64> {
    const ROUNDED_TO: u64 = 32;
    let tokens = bytes as f64 / model.kv_bytes_per_token().filter(|bytes| *bytes > 0.0)?;
    let is_whole = tokens.fract() == 0.0 && tokens >= 1.0 && (tokens as u64).is_multiple_of(ROUNDED_TO);
    is_whole.then_some(tokens as u64)
}

/// Whether the request is known to be the model's weights; that it is not excludes it. False where nothing is known of them.
pub(super) fn are_weights(case: &Case<'_>, failure: &Failure<'_>, check: &mut Check) -> bool {
    let Some(weights) = case.evidence.model.as_ref().and_then(|model| model.weights_bytes) else { return false };
    let request = failure.oom.requested_bytes;
    let off = share(request.abs_diff(weights), weights);
    let is_match = off <= case.thresholds.model_share;
    check.note_by(Basis::Given, is_match, || {
        format!("the weights of this model take {}: the request is that within {}", size(weights), percent(off))
    });
    // With some layers only on the card, less is asked for.
    check.unless(request > weights && !is_match, || {
        format!("the weights of this model take only {}, and {} was asked for", size(weights), size(request))
    });
    is_match
}

/// The same where each tensor is a block of its own: whether what was given and the request fit into the weights.
pub(super) fn are_tensors(case: &Case<'_>, failure: &Failure<'_>, given_bytes: u64, check: &mut Check) -> bool {
    let Some(weights) = case.evidence.model.as_ref().and_then(|model| model.weights_bytes) else { return false };
    let request = failure.oom.requested_bytes;
    let most = weights.saturating_add((weights as f64 * case.thresholds.model_share) as u64);
    let fits = given_bytes.saturating_add(request) <= most;
    check.note_by(Basis::Given, fits, || format!("the weights of this model take {}", size(weights)));
    check.unless(!fits, || {
        let (given, request) = (size(given_bytes), size(request));
        format!(
            "the weights of this model take only {}; {given} were given, and {request} was asked for",
            size(weights)
        )
    });
    fits
}
