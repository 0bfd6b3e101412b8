//! A. A buffer of attention scores: by the stack of the request, by the lengths that labels name, or by the facts of a model.
//!
//! Names are those of torch/nn/functional.py, aten/src/ATen/native/transformers of PyTorch, and of the `attention` functions
//! of Hugging Face's transformers.

use std::collections::BTreeMap;

use crate::diagnosis::case::{Case, Failure};
use crate::diagnosis::labels::{count_up, number_behind};
use crate::evidence::torch_snapshot::Frame;
use crate::judgement::check::{Basis, Check, Confidence};
use crate::replay::tracks::calls::What;
use crate::replay::tracks::marks::Mark;
use crate::thresholds::MIB;
use crate::words::size;

/// A score buffer that grows with the square of the sequence length. Three things say so, and none of the last two alone for
/// certain: the stack of the request, growth over the lengths that labels name, and the facts of the model, whose arithmetic
/// may fit by chance.
pub(super) fn attention_quadratic(case: &Case<'_>, failure: &Failure<'_>, check: &mut Check) {
    let request = failure.request_bytes().get().unwrap_or(0);
    if !check.applies(failure.is_real_of_card() && request >= case.thresholds.attention_least_bytes) {
        return;
    }
    let sums = case.torch_sums(failure).filter(|sums| !sums.stack.is_empty());
    let asked_by = sums.as_ref().map_or(AskedBy::Other, |sums| asked_by(&sums.stack));
    let points = largest_by_length(case, failure);
    let exponent = exponent(&points, 3);
    let scores = scores_by_facts(case, request);
    if !check.applies(exponent.is_some() || asked_by != AskedBy::Other || scores.is_some()) {
        return;
    }
    check.note_by(Basis::Given, scores.is_some(), || {
        let bytes = scores.unwrap_or(0);
        format!("batch x heads x sequence² of {bytes} bytes, by the model's facts, are the {} asked for", size(request))
    });
    by_stack(&asked_by, check);
    if let Some(exponent) = exponent {
        by_exponent(case, exponent, &points, check);
    }
    match asked_by {
        AskedBy::Scores(_) | AskedBy::Fused(_) => {}
        AskedBy::Attention(_) if exponent.is_some() || scores.is_some() => {}
        AskedBy::Attention(_) => check.at_most(Confidence::Probable),
        AskedBy::Other if exponent.is_some() => check.at_most(Confidence::Probable),
        AskedBy::Other => {
            // A block of a round size fits many a formula.
            check.must_by(Basis::Given, true, String::new);
            check.at_most(Confidence::Possible);
        }
    }
    if !matches!(asked_by, AskedBy::Scores(_)) {
        check.would_settle("the stack of the failing call (a memory snapshot of PyTorch), or the shape of the tensor");
    }
}

/// Bytes of an element with which a buffer of scores has the size of the request, but for the rounding of a segment.
fn scores_by_facts(case: &Case<'_>, request: u64) -> Option<u64> {
    let model = case.evidence.model.as_ref()?;
    let is_it = |element_bytes: &u64| {
        model.score_bytes(*element_bytes).is_some_and(|bytes| (bytes..bytes.saturating_add(2 * MIB)).contains(&request))
    };
    [2, 4].into_iter().find(is_it)
}

/// With the stack of the request, from a snapshot whose history has the failure.
fn by_stack(asked_by: &AskedBy, check: &mut Check) {
    match asked_by {
        AskedBy::Scores(place) => {
            check.must_by(Basis::Given, true, || {
                format!("PyTorch's snapshot: the request is of attention scores, from {place}")
            });
        }
        AskedBy::Attention(place) => {
            check.must_by(Basis::Given, true, || format!("PyTorch's snapshot: the request came from {place}"));
        }
        AskedBy::Fused(place) => {
            check.must_by(Basis::Given, true, || "the request came from an attention call".to_owned());
            check.unless(true, || format!("fused attention is active: {place}"));
        }
        // A program's own functions may have any name.
        AskedBy::Other => {}
    }
}

fn by_exponent(case: &Case<'_>, exponent: f64, points: &[(u64, u64)], check: &mut Check) {
    let lengths: Vec<String> = points.iter().map(|(length, _)| length.to_string()).collect();
    let grows = || {
        format!(
            "the largest request grows with the sequence length (labels: {}) by an exponent of {exponent:.2}",
            lengths.join(", ")
        )
    };
    check.decides(exponent > case.thresholds.linear_exponent, grows, grows);
    let square = case.thresholds.square_exponent_least..=case.thresholds.square_exponent_most;
    check.must(square.contains(&exponent), || "that is the square, as of a buffer of attention scores".to_owned());
}

/// Sequence lengths that labels name, each with the largest request until the next label. Steps compare where their labels
/// differ in nothing else: with another batch the same length asks for more.
fn largest_by_length(case: &Case<'_>, failure: &Failure<'_>) -> Vec<(u64, u64)> {
    let Some(around) = case.around(failure) else { return Vec::new() };
    let marks: Vec<&Mark> = case.replay.tracks.marks.listed().iter().collect();
    let window = case.replay.tracks.calls.before(around.calls_before + 1);
    let mut by_rest = BTreeMap::<String, BTreeMap<u64, u64>>::new();
    let numbered: Vec<_> = marks.iter().map(|mark| number_behind(&mark.label, "seq")).collect();
    if count_up(numbered.iter().flatten()) {
        return Vec::new();
    }
    for ((index, mark), length) in marks.iter().enumerate().zip(numbered) {
        let Some(length) = length else { continue };
        let until = marks.get(index + 1).map_or(u64::MAX, |next| next.calls_before).min(around.calls_before + 1);
        let numbered = (window.from..).zip(&window.calls);
        let inside = numbered.filter(|(number, _)| (mark.calls_before..until).contains(number));
        let largest = inside.filter(|(_, call)| call.what != What::Returned).map(|(_, call)| call.bytes).max();
        if let Some(bytes) = largest.filter(|bytes| *bytes > 0) {
            let known = by_rest.entry(length.rest).or_default().entry(length.number).or_default();
            *known = bytes.max(*known);
        }
    }
    by_rest.into_values().max_by_key(BTreeMap::len).unwrap_or_default().into_iter().collect()
}

/// Slope of the least-squares line through the logarithms; `None` for fewer points than these.
pub(super) fn exponent(points: &[(u64, u64)], least: usize) -> Option<f64> {
    if points.len() < least {
        return None;
    }
    let logs: Vec<(f64, f64)> = points.iter().map(|(x, y)| ((*x as f64).ln(), (*y as f64).ln())).collect();
    let count = logs.len() as f64;
    let (mean_x, mean_y) =
        (logs.iter().map(|p| p.0).sum::<f64>() / count, logs.iter().map(|p| p.1).sum::<f64>() / count);
    let over = logs.iter().map(|(x, y)| (x - mean_x) * (y - mean_y)).sum::<f64>();
    let under = logs.iter().map(|(x, _)| (x - mean_x).powi(2)).sum::<f64>();
    Some(over / under).filter(|slope| slope.is_finite())
}

/// Who asked.
#[derive(Clone, Debug, PartialEq, Eq)]
enum AskedBy {
    /// A call that computes attention scores, with its place.
    Scores(String),
    /// A function of attention, with its place: its projections and its output are linear in the length.
    Attention(String),
    /// A fused kernel, which keeps no scores.
    Fused(String),
    /// Something else, or nobody knows.
    Other,
}

const FUSED: [&str; 5] = ["flash", "efficient_attention", "cudnn_attention", "fused", "flex_attention"];
/// What computes scores: the softmax, and PyTorch's attention without a fused kernel.
const SCORES: [&str; 2] = ["softmax", "attention_math"];
/// A softmax over the words of a vocabulary, as losses do, is of no scores.
const OTHER_SOFTMAX: [&str; 4] = ["log_softmax", "cross_entropy", "gumbel", "logsoftmax"];

/// Looks at the innermost function of Python and at what it called: what lies further out only called it.
fn asked_by(stack: &[&Frame]) -> AskedBy {
    let innermost = stack.iter().position(|frame| is_python(frame)).map_or(stack.len(), |at| at + 1);
    let (inner, outer) = stack.split_at(innermost);
    let name = |frame: &Frame| frame.name.to_ascii_lowercase();
    let has = |frame: &Frame, words: &[&str]| words.iter().any(|word| name(frame).contains(word));
    if let Some(frame) = inner.iter().find(|frame| has(frame, &FUSED)) {
        return AskedBy::Fused(frame.place());
    }
    if inner.iter().any(|frame| has(frame, &OTHER_SOFTMAX)) {
        return AskedBy::Other;
    }
    // A softmax is one of scores where attention asks for it.
    let of_attention = |frame: &&Frame| {
        let both = format!("{} {}", name(frame), frame.file.to_ascii_lowercase());
        ["attention", "attn"].iter().any(|word| both.contains(word))
    };
    let within = inner.iter().chain(outer).any(of_attention);
    if let Some(frame) = inner.iter().find(|frame| has(frame, &SCORES)).filter(|_| within) {
        return AskedBy::Scores(frame.place());
    }
    let attention = inner.iter().find(|frame| has(frame, &["attention"]));
    attention.map_or(AskedBy::Other, |frame| AskedBy::Attention(frame.place()))
}

fn is_python(frame: &Frame) -> bool {
    frame.file.ends_with(".py") || frame.file.starts_with('<')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ask(stack: &[(&str, &str)]) -> AskedBy {
        let frames: Vec<Frame> =
            stack.iter().map(|(name, file)| Frame { name: (*name).into(), file: (*file).into(), line: 7 }).collect();
        asked_by(&frames.iter().collect::<Vec<_>>())
    }

    #[test]
    fn the_square_has_the_exponent_two() {
        let squares: Vec<(u64, u64)> = [1024u64, 2048, 4096].map(|s| (s, s * s * 64)).to_vec();
        assert!((exponent(&squares, 3).unwrap() - 2.0).abs() < 1e-9);
        assert_eq!(exponent(&squares[..2], 3), None);
    }

    #[test]
    fn only_the_innermost_call_counts() {
        let layer = ("forward", "transformers/models/llama/modeling_llama.py");
        let eager = ("eager_attention_forward", "transformers/models/llama/modeling_llama.py");
        let scores = |stack: &[(&str, &str)]| matches!(ask(stack), AskedBy::Scores(_));
        assert!(matches!(ask(&[eager, layer]), AskedBy::Attention(_)), "its output is linear in the length");
        assert!(scores(&[("softmax", "torch/nn/functional.py"), eager, layer]));
        assert!(scores(&[("at::native::_scaled_dot_product_attention_math", "??"), ("forward", "model.py")]));
        // A projection inside of an attention layer is linear in the length.
        assert_eq!(ask(&[("forward", "torch/nn/modules/linear.py"), eager, layer]), AskedBy::Other);
        // The loss over a vocabulary, and a softmax of something else.
        assert_eq!(ask(&[("log_softmax", "torch/nn/functional.py"), layer]), AskedBy::Other);
        assert_eq!(ask(&[("softmax", "torch/nn/functional.py"), ("sample", "generate.py")]), AskedBy::Other);
        let fused = ask(&[("at::native::_flash_attention_forward", "??"), eager]);
        assert!(matches!(fused, AskedBy::Fused(_)));
        assert_eq!(ask(&[]), AskedBy::Other);
    }
}
