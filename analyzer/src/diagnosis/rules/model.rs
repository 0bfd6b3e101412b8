//! H. What follows from the facts of a model: the cache for its context, and its weights.

use gpuoom_trace::record::NO_DEVICE;

use super::shapes::{buffers, facts, not_enough};
use crate::diagnosis::case::{Case, Failure};
use crate::diagnosis::check::{Basis, Check, Confidence};
use crate::diagnosis::thresholds::share;
use crate::diagnosis::versions::Program;
use crate::evidence::model::ModelFacts;
use crate::passes::shape::facts::Facts;
use crate::replay::tracks::calls::{Call, What};
use crate::words::{count, grouped, percent, size};

/// Buffers of llama.cpp on a device before its compute buffer: weights, and one or two caches.
const FIRST_BUFFERS: usize = 3;
/// What would tell how large the cache must be.
const MODEL: &str = "layers, KV heads, head dimension and context of the model (--model, --model-facts or --gguf): 2 x layers x \
    context x heads x dimension x bytes";
/// The same, where the file tells all but how many tokens the program was told to keep.
const CONTEXT: &str = "the context that the program was told (--model context=...)";

/// The cache for the whole context is allocated at the start.
pub(super) fn kv_cache_prealloc(case: &Case<'_>, failure: &Failure<'_>, check: &mut Check) {
    let found = facts(case, failure).filter(|facts| facts.from_beginning && case.versions.has(Program::LlamaCpp));
    let Some(facts) = found.filter(|facts| (1..=FIRST_BUFFERS).contains(&buffers(case, facts))) else {
        check.applies(false);
        return;
    };
    let before = buffers(case, facts);
    check.must(true, || {
        let asked = size(facts.requested_bytes);
        let blocks = count(before as u64, "buffer", "buffers");
        match before {
            1 => format!("llama.cpp asked for {asked} right behind its weights ({blocks}): the KV cache"),
            _ => format!("llama.cpp asked for {asked} behind {blocks}, weights and KV cache: the compute buffer"),
        }
    });
    check.unless(facts.steps() > 0 || facts.large_free_at.is_some(), || "the program had already computed".to_owned());
    not_enough(failure, check);
    by_model(case, facts, check);
}

/// Holds the buffer that must be the cache against what the model's facts make of it.
fn by_model(case: &Case<'_>, facts: &Facts, check: &mut Check) {
    let model = case.evidence.model.as_ref();
    let Some((model, expected)) = model.and_then(|model| Some((model, model.kv_bytes()?))) else {
        check.at_most(Confidence::Probable);
        check.would_settle(MODEL);
        return;
    };
    let caches = cache_sizes(case, facts);
    let nearest = caches.iter().copied().min_by_key(|bytes| bytes.abs_diff(expected)).unwrap_or(0);
    let off = share(nearest.abs_diff(expected), expected);
    let is_match = off <= case.thresholds.model_share;
    let formula = || {
        let context = grouped(model.context.unwrap_or(0));
        format!("the cache of this model for {context} tokens takes {}", size(expected))
    };
    check.note_by(Basis::Given, is_match, || {
        let differs = if nearest == expected { "exactly".to_owned() } else { format!("within {}", percent(off)) };
        format!("{}: the buffer of {} is that {differs}", formula(), size(nearest))
    });
    if is_match {
        return;
    }
    if model.context_is_certain {
        let tolerance = percent(case.thresholds.model_share);
        check.unless(true, || format!("{}, and no buffer has that within {tolerance} ({})", formula(), size(nearest)));
        return;
    }
    check.at_most(Confidence::Probable);
    check.would_settle(CONTEXT);
    let tokens = tokens_of(model, nearest);
    check.note_by(Basis::Given, tokens.is_some(), || {
        format!("{} are the cache of this model for {} tokens", size(nearest), grouped(tokens.unwrap_or(0)))
    });
}

/// What can be the cache: what was asked for right behind the weights, each by itself and all together; of the compute
/// buffer nothing is known.
fn cache_sizes(case: &Case<'_>, facts: &Facts) -> Vec<u64> {
    let large = |call: &&Call| {
        call.what == What::Given && call.bytes >= case.thresholds.buffer_bytes && call.device != NO_DEVICE
    };
    let given: Vec<u64> = facts.calls.iter().filter(large).map(|call| call.bytes).skip(1).collect();
    if given.is_empty() {
        return vec![facts.requested_bytes];
    }
    let together = given.iter().fold(0, |sum: u64, bytes| sum.saturating_add(*bytes));
    // Two caches may be meant, of which the second is the one that fails.
    let with_request = together.saturating_add(facts.requested_bytes);
    given.into_iter().chain([together, with_request]).collect()
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
