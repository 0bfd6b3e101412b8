//! What tells a call site from others in every build and run: names of functions, libraries and Python files. Addresses
//! and lines change with each build, and are not part of it.

use super::file_name;
use super::frame::{Frame, FrameKind};
use super::own::{behind, whose};
use super::plumbing::{innermost, is_interpreter, is_plumbing};
use super::short::{short, without_clones};

/// Frames that a key is made of at most.
const DEPTH: usize = 6;
/// Native frames among them where Python called.
const NATIVE_DEPTH: usize = 2;
/// Longest part of a key.
const MAX_PART_CHARACTERS: usize = 256;

/// A call site.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CallSite {
    /// The program's frames, `library!function < library!function`. Builds in which code only moved agree on it.
    pub key: String,
    /// For people: the function of the program that is nearest, and where it is; behind it the function of a package that asked.
    /// Where no function is the program's own, the first one outside of plumbing.
    pub label: String,
    /// That frame.
    pub who: Frame,
    /// The frame that asked, where that is one of an installed package or of generated code, and `who` is the program's.
    pub asked_by: Option<Frame>,
    /// For people: the innermost function, which made the call.
    pub caller: String,
}

impl CallSite {
    /// Whether anything is known but addresses and libraries.
    pub fn is_named(&self) -> bool {
        self.who.function.is_some()
    }

    /// Of the frames that led to a call, as [`super::Stack`] has them; there must be one at least.
    pub fn of(frames: &[Frame]) -> Self {
        let unknown = || Frame::native(0);
        let whose = whose(frames);
        let who = whose.map_or_else(unknown, |whose| whose.who.clone());
        let asked_by = whose.and_then(|whose| whose.asked_by);
        CallSite {
            key: key(frames, asked_by.map(|_| &who)),
            label: with_behind(label(&who), &behind(asked_by, false)),
            caller: innermost(frames).map(self::label).unwrap_or_default(),
            asked_by: asked_by.cloned(),
            who,
        }
    }

    /// The label with lines, `main (train.py:31)` or `main (train.py:31, in transformers modeling_utils.py:3789 PreTrainedModel.from_pretrained)`; `None`
    /// of native frames, and where no line is known.
    pub fn label_with_line(&self) -> Option<String> {
        let own = label_with_line(&self.who)?;
        Some(with_behind(own, &behind(self.asked_by.as_ref(), true)))
    }
}

/// What stands behind belongs into the brackets, where there are any.
fn with_behind(label: String, behind: &str) -> String {
    match label.strip_suffix(')') {
        Some(open) => format!("{open}{behind})"),
        None => format!("{label}{behind}"),
    }
}

/// One frame for people: `function (library)`, `function (file.py)`.
pub fn label(frame: &Frame) -> String {
    let place = match frame.kind {
        FrameKind::Native => frame.module.as_deref(),
        FrameKind::Python => frame.file.as_deref().map(file_name),
    };
    match (frame.short(), place) {
        (Some(function), Some(place)) => format!("{function} ({place})"),
        (Some(function), None) => function,
        (None, Some(place)) => match frame.offset {
            Some(offset) => format!("{place}+{offset:#x}"),
            None => place.to_owned(),
        },
        (None, None) => match frame.address {
            Some(address) => format!("{address:#x}"),
            None => "unknown".to_owned(),
        },
    }
}

/// A frame of Python with its line, for people: `function (file.py:38)`; `None` for others, and where no line is known.
pub fn label_with_line(frame: &Frame) -> Option<String> {
    let line = frame.line.filter(|_| frame.kind == FrameKind::Python)?;
    let file = file_name(frame.file.as_deref()?);
    Some(match frame.short() {
        Some(function) => format!("{function} ({file}:{line})"),
        None => format!("{file}:{line}"),
    })
}

/// The key of a stack. It ends at the program's own frame, if that lies deeper than a key is long: what is named by it has its name.
fn key(frames: &[Frame], own: Option<&Frame>) -> String {
    let has_python = frames.iter().any(|frame| frame.kind == FrameKind::Python);
    // What was inlined depends on the compiler's mood, and on whether debug information is there.
    let whole = || frames.iter().filter(|frame| !frame.inlined);
    // Behind the interpreter the way goes on in Python.
    let native = whole().take_while(|frame| frame.kind == FrameKind::Native);
    let native = native.take_while(|frame| !(has_python && is_interpreter(frame))).filter(|frame| !is_plumbing(frame));
    let native = native.take(if has_python { NATIVE_DEPTH } else { usize::MAX });
    let python = whole().filter(|frame| frame.kind == FrameKind::Python && !is_plumbing(frame));
    let mut parts: Vec<String> = Vec::new();
    for part in native.chain(python).map(part) {
        // A recursion has another depth each time.
        if parts.last() != Some(&part) {
            parts.push(part);
        }
        if parts.len() == DEPTH {
            break;
        }
    }
    let own = own.map(part).filter(|own| parts.len() == DEPTH && !parts.contains(own));
    parts.extend(own);
    if parts.is_empty() {
        parts.extend(whole().next().map(part));
    }
    parts.join(" < ")
}

fn part(frame: &Frame) -> String {
    let (place, function) = match frame.kind {
        FrameKind::Python => (frame.file.as_deref().map(|file| file_name(file).to_owned()), frame.function.as_deref()),
        FrameKind::Native => {
            (frame.module.as_deref().map(library), frame.symbol.as_deref().or(frame.function.as_deref()))
        }
    };
    let function = function.map(|name| match frame.kind {
        FrameKind::Native => short(without_clones(name)),
        FrameKind::Python => name.to_owned(),
    });
    let place = place.unwrap_or_else(|| "?".to_owned());
    let part = format!("{place}!{}", function.unwrap_or_else(|| "?".to_owned()));
    part.chars().take(MAX_PART_CHARACTERS).collect()
}

/// A library without its version: `libfoo.so.1.2.3` and `libfoo-d0da41ae.so.1` are `libfoo.so`.
pub fn library(name: &str) -> String {
    let mut ends = name.match_indices(".so");
    let end = ends.find(|(at, _)| matches!(name.as_bytes().get(at + 3), None | Some(b'.')));
    let Some((end, _)) = end else { return name.to_owned() };
    let stem = &name[..end];
    // Wheels of Python carry libraries with a hash in their names.
    let stem = match stem.rsplit_once('-') {
        Some((before, hash)) if hash.len() == 8 && hash.bytes().all(|byte| byte.is_ascii_hexdigit()) => before,
        _ => stem,
    };
    format!("{stem}.so")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn native(module: &str, function: &str) -> Frame {
        let name = |name: &str| (!name.is_empty()).then(|| name.to_owned());
        Frame { module: name(module), function: name(function), symbol: name(function), ..Frame::native(0x10) }
    }

    #[test]
    fn a_key_leaves_out_what_only_passes_on() {
        let frames = [
            native("libggml-hip.so", "ggml_cuda_device_malloc(void**, unsigned long, int)"),
            native("libggml-hip.so", "ggml_backend_cuda_buffer_type_alloc_buffer"),
            native("libggml-base.so", "ggml_gallocr_reserve_n"),
            native("libllama.so.0.0.1", "llama_context::llama_context(llama_model const&, llama_context_params)"),
            native("libllama.so.0.0.1", "llama_init_from_model.part.0"),
            native("llama-cli", "main"),
            native("libc.so.6", "__libc_start_main"),
            native("llama-cli", "_start"),
        ];
        let site = CallSite::of(&frames);
        assert_eq!(
            site.key,
            "libllama.so!llama_context::llama_context < libllama.so!llama_init_from_model < llama-cli!main"
        );
        assert_eq!(site.label, "llama_context::llama_context (libllama.so.0.0.1)");
        assert_eq!(site.caller, "ggml_cuda_device_malloc (libggml-hip.so)");
    }

    #[test]
    fn python_takes_over_where_the_interpreter_begins() {
        let frames = [
            native("libc10_hip.so", "c10::hip::HIPCachingAllocator::Native::raw_alloc(unsigned long)"),
            native("libtorch_hip.so", "at::native::cudnn_convolution(at::Tensor const&)"),
            native("libtorch_python.so", "torch::autograd::THPVariable_conv2d"),
            native("python3.12", "_PyEval_EvalFrameDefault"),
            native("python3.12", "Py_RunMain"),
            native("launcher", "main"),
            Frame::python("/venv/lib/python3.12/site-packages/torch/nn/modules/conv.py", "Conv2d.forward", 554),
            Frame::python("/home/me/train.py", "Model.forward", 41),
            Frame::python("/home/me/train.py", "Model.forward", 44),
            Frame::python("/home/me/train.py", "<module>", 90),
        ];
        let site = CallSite::of(&frames);
        assert_eq!(
            site.key,
            "libtorch_hip.so!at::native::cudnn_convolution < train.py!Model.forward < train.py!<module>"
        );
        assert_eq!((site.label.as_str(), site.who.line), ("Model.forward (train.py)", Some(41)));
    }

    #[test]
    fn what_has_no_name_is_still_a_key() {
        let unknown = |offset| Frame { offset: Some(offset), ..native("app", "") };
        let one = CallSite::of(&[unknown(0x10), unknown(0x20), native("libc.so.6", "")]);
        assert_eq!((one.key.as_str(), one.label.as_str()), ("app!?", "app+0x10"));
        assert_eq!(CallSite::of(&[Frame::native(0x10)]).key, "?!?");
        assert_eq!(CallSite::of(&[native("libc.so.6", "malloc")]).key, "libc.so!malloc");
    }

    #[test]
    fn libraries_lose_their_versions() {
        for (name, expected) in [
            ("libfoo.so.1.2.3", "libfoo.so"),
            ("libcudart-d0da41ae.so.11.0", "libcudart.so"),
            ("libfoo-bar.so", "libfoo-bar.so"),
            ("_C.cpython-311-x86_64-linux-gnu.so", "_C.cpython-311-x86_64-linux-gnu.so"),
            ("lib.sources", "lib.sources"),
            ("python3.12", "python3.12"),
        ] {
            assert_eq!(library(name), expected);
        }
    }
}
