//! What a program's label names: only what it says in so many words. `forward` names a forward pass; `fft-forward` and
//! `forwarding` name something else, and a word that is not known may change the sense of one that is.

use crate::passes::phase::Phase;

/// Words for a phase.
const PHASES: &[(Phase, &[&str])] = &[
    (
        Phase::Evaluation,
        &["eval", "evaluate", "evaluating", "evaluation", "valid", "validate", "validation", "predict", "prediction"],
    ),
    (Phase::Backward, &["backward", "backprop", "backpropagation"]),
    (Phase::Forward, &["forward"]),
    (Phase::Optimizer, &["optim", "optimizer", "optimiser"]),
];
/// Words that only together with one of [`MODEL`] name the load of a model.
const LOAD: &[&str] = &["load", "loads", "loading", "upload", "uploading", "restore"];
const MODEL: &[&str] =
    &["model", "models", "weight", "weights", "checkpoint", "checkpoints", "parameters", "params", "dict"];
/// Words for the end of such a load, and for what takes the model away again.
const LOADED: &[&str] = &["loaded", "unload", "unloading", "unloaded"];
/// Words for the pieces of a whole.
const PIECE: &[&str] = &[
    "layer", "layers", "shard", "shards", "tile", "tiles", "chunk", "chunks", "piece", "pieces", "part", "parts",
    "tensor", "tensors", "file", "files", "block", "blocks",
];
/// Words for one portion of data that a network is given.
const BATCH: &[&str] = &["batch", "batches", "minibatch", "microbatch", "train", "training", "epoch"];
/// Words for what a language model makes.
const TOKEN: &[&str] = &["token", "tokens", "decode", "decoding", "generate", "generation", "generating"];
const CACHE: &[&str] = &["kv", "cache", "kvcache"];
/// Words for parameters that are put together from several cards.
const GATHER: &[&str] = &["gather", "allgather", "unshard", "fsdp", "all"];
/// Words that leave the sense as it is.
const NEUTRAL: &[&str] = &[
    "step",
    "steps",
    "iter",
    "iteration",
    "iterations",
    "pass",
    "phase",
    "loop",
    "begin",
    "begins",
    "start",
    "starts",
    "started",
    "end",
    "ends",
    "ended",
    "done",
    "finished",
    "of",
    "the",
    "a",
    "first",
    "next",
    "last",
    "set",
    "network",
    "net",
    "loss",
    "data",
    "new",
    "old",
    "state",
    "init",
    "create",
    "allocate",
    "alloc",
    "reserve",
    "from",
    "disk",
    "pretrained",
    "llm",
    "prefill",
    "pp",
    "tg",
    "global",
    "micro",
    "mini",
];

/// The words of a label, in lower case and without numbers.
fn words(label: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let mut was_lower = false;
    for c in label.chars() {
        // fooBar is two words.
        if !c.is_alphabetic() || (c.is_uppercase() && was_lower) {
            words.push(String::new());
        }
        if c.is_alphabetic() {
            words.last_mut().expect("one word").extend(c.to_lowercase());
        }
        was_lower = c.is_lowercase();
    }
    words.retain(|word| !word.is_empty());
    words
}

/// Whether each word of a label is known, and one of them is in this list.
fn names(label: &str, wanted: &[&str]) -> bool {
    let words = words(label);
    let has = |list: &[&str], word: &String| list.contains(&word.as_str());
    words.iter().any(|word| has(wanted, word)) && words.iter().all(|word| is_known(word))
}

fn is_known(word: &str) -> bool {
    [LOAD, MODEL, LOADED, BATCH, TOKEN, CACHE, GATHER, NEUTRAL].iter().any(|list| list.contains(&word))
        || PHASES.iter().any(|(_, list)| list.contains(&word))
}

/// Longest number of a label that is a step, a size or a count, and nobody's.
const MOST_DIGITS: usize = 6;

/// Whether a label is made of words that anybody uses, and short numbers: it says nothing of whose program it is.
pub(crate) fn says_nothing_private(label: &str) -> bool {
    let numbers = label.split(|c: char| !c.is_ascii_digit());
    let words = words(label);
    label.is_ascii()
        && !words.is_empty()
        && words.iter().all(|word| is_known(word))
        && numbers.map(str::len).all(|digits| digits <= MOST_DIGITS)
}

impl Phase {
    /// What a label says; `None` where it says nothing of a phase, or something besides. That the load is over says nothing of
    /// what comes now.
    pub fn of(label: &str) -> Option<Self> {
        if ends_the_load(label) {
            return None;
        }
        let named = PHASES.iter().find(|(_, list)| names(label, list)).map(|(phase, _)| *phase);
        named.or_else(|| (names(label, LOAD) && names(label, MODEL)).then_some(Phase::Load))
    }
}

/// Whether a label says that the load is over.
pub(crate) fn ends_the_load(label: &str) -> bool {
    names(label, &["loaded"]) || (names(label, LOAD) && names(label, &["end", "ends", "ended", "done", "finished"]))
}

/// Whether a label may say that something is loaded or unloaded: what comes then is meant to stay.
pub(crate) fn names_a_load(label: &str) -> bool {
    words(label).iter().any(|word| LOAD.contains(&word.as_str()) || LOADED.contains(&word.as_str()))
}

/// Whether a label says that batches are worked on.
pub(crate) fn names_a_batch(label: &str) -> bool {
    names(label, BATCH)
}

/// Whether a label counts pieces of something that is put together: what stays of each may be what was meant to come.
pub(crate) fn names_a_piece(label: &str) -> bool {
    words(label).iter().any(|word| PIECE.contains(&word.as_str()))
}

/// Whether a label says that tokens are made.
pub(crate) fn names_tokens(label: &str) -> bool {
    names(label, TOKEN)
}

/// Whether a label says that parameters are gathered.
pub(crate) fn names_a_gather(label: &str) -> bool {
    names(label, &["allgather", "unshard", "fsdp"]) || (names(label, &["all"]) && names(label, &["gather"]))
}

/// Whether a label names the cache of keys and values.
pub(crate) fn names_the_cache(label: &str) -> bool {
    names(label, &["kvcache"]) || (names(label, &["kv"]) && names(label, &["cache"]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_label_names_what_it_says_in_so_many_words() {
        for (label, phase) in [
            ("forward", Some(Phase::Forward)),
            ("step 17: forward pass", Some(Phase::Forward)),
            ("train/forward", Some(Phase::Forward)),
            ("forwarding", None),
            ("fft-forward", None),
            ("evalStep", Some(Phase::Evaluation)),
            ("eval_poly", None),
            ("evaluate_forces", None),
            ("optimizer.step", Some(Phase::Optimizer)),
            ("optimize mesh", None),
            ("load_weights", Some(Phase::Load)),
            ("load model from checkpoint", Some(Phase::Load)),
            ("load_textures", None),
            ("load", None),
            ("model loaded", None),
            ("", None),
        ] {
            assert_eq!(Phase::of(label), phase, "{label}");
        }
    }

    #[test]
    fn a_label_of_common_words_and_short_numbers_says_nothing_private() {
        for label in ["forward batch=8", "step 17", "model loaded", "trainStep 4"] {
            assert!(says_nothing_private(label), "{label}");
        }
        for label in ["", "17", "forward pass of Project Zebra", "batch 49301234567", "förward", "load /home/me/model"]
        {
            assert!(!says_nothing_private(label), "{label}");
        }
    }

    #[test]
    fn the_other_names() {
        let all = |label: &str| {
            (
                ends_the_load(label),
                names_a_load(label),
                names_a_batch(label),
                names_tokens(label),
                names_the_cache(label),
            )
        };
        assert_eq!(all("model loaded"), (true, true, false, false, false));
        assert_eq!(all("load model: done"), (true, true, false, false, false));
        assert_eq!(all("unload model"), (false, true, false, false, false));
        assert_eq!(all("batch 12"), (false, false, true, false, false));
        assert_eq!(all("batch job for mail"), (false, false, false, false, false));
        assert_eq!(all("token 5"), (false, false, false, true, false));
        assert!(names_a_gather("all_gather") && names_a_gather("FSDP unshard"));
        assert!(!names_a_gather("gather particles") && !names_a_gather("gather"));
        assert_eq!(all("KV cache"), (false, false, false, false, true));
        assert_eq!(all("cache"), (false, false, false, false, false));
    }
}
