//! Whether a stack asks for a buffer of attention scores.
//!
//! Names are those of torch/nn/functional.py, aten/src/ATen/native/transformers of PyTorch, and of the `attention` functions
//! of Hugging Face's transformers.

use crate::diagnosis::torch_sums::place;
use crate::evidence::torch_snapshot::Frame;

/// Who asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum AskedBy {
    /// A call that computes attention scores, with its place.
    Scores(String),
    /// A fused kernel, which keeps no scores.
    Fused(String),
    /// Something else, or nobody knows.
    Other,
}

const FUSED: [&str; 5] = ["flash", "efficient_attention", "cudnn_attention", "fused", "flex_attention"];
/// A softmax over the words of a vocabulary, as losses do, is of no scores.
const OTHER_SOFTMAX: [&str; 4] = ["log_softmax", "cross_entropy", "gumbel", "logsoftmax"];

/// Looks at the innermost function of Python and at what it called: what lies further out only called it.
pub(super) fn asked_by(stack: &[&Frame]) -> AskedBy {
    let innermost = stack.iter().position(|frame| is_python(frame)).map_or(stack.len(), |at| at + 1);
    let (inner, outer) = stack.split_at(innermost);
    let name = |frame: &Frame| frame.name.to_ascii_lowercase();
    let has = |frame: &Frame, words: &[&str]| words.iter().any(|word| name(frame).contains(word));
    if let Some(frame) = inner.iter().find(|frame| has(frame, &FUSED)) {
        return AskedBy::Fused(place(frame));
    }
    if inner.iter().any(|frame| has(frame, &OTHER_SOFTMAX)) {
        return AskedBy::Other;
    }
    if let Some(frame) = inner.iter().find(|frame| has(frame, &["attention"])) {
        return AskedBy::Scores(place(frame));
    }
    // A softmax is one of scores where attention asks for it.
    let of_attention = |frame: &&Frame| {
        let both = format!("{} {}", name(frame), frame.file.to_ascii_lowercase());
        ["attention", "attn"].iter().any(|word| both.contains(word))
    };
    let within = inner.iter().chain(outer).any(of_attention);
    let softmax = inner.iter().find(|frame| has(frame, &["softmax"])).filter(|_| within);
    softmax.map_or(AskedBy::Other, |frame| AskedBy::Scores(place(frame)))
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
    fn only_the_innermost_call_counts() {
        let layer = ("forward", "transformers/models/llama/modeling_llama.py");
        let eager = ("eager_attention_forward", "transformers/models/llama/modeling_llama.py");
        let scores = |stack: &[(&str, &str)]| matches!(ask(stack), AskedBy::Scores(_));
        assert!(scores(&[eager, layer]));
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
