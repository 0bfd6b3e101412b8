//! The phases of call sites: what blocks came in, of those that live and those that are gone.

use std::cell::RefCell;
use std::hash::{Hash, Hasher};

use gpuoom_trace::metadata::Modules;
use rustc_hash::{FxHashMap, FxHasher};

use super::{Phase, Where, has_torch, runs_python, table};
use crate::passes::shape::paths::own_evaluation;
use crate::replay::thread_names::ThreadNames;
use crate::symbols::own::is_own;
use crate::symbols::plumbing::{is_interpreter, is_torch_allocator};
use crate::symbols::{Frame, FrameKind, Stacks};

/// Call sites whose phases are looked up. Those behind them count as sites that no function names a phase of.
const MOST_SITES: usize = 1 << 14;

/// What is known of one site.
#[derive(Clone, Copy)]
struct Known {
    phase: Option<Phase>,
    way: u64,
    in_model: Option<InModel>,
    /// Whether no native frame is missing.
    is_whole: bool,
    runs_python: bool,
    is_of_own_evaluation: bool,
}

/// Phases of a trace's call sites, each looked up once.
pub struct OfSites<'a> {
    stacks: &'a Stacks<'a>,
    has_torch: bool,
    known: RefCell<FxHashMap<u32, Known>>,
}

impl<'a> OfSites<'a> {
    /// By the ways to the sites. The names of threads count where PyTorch was among the libraries.
    pub fn new(stacks: &'a Stacks<'a>, modules: &Modules) -> Self {
        OfSites { stacks, has_torch: has_torch(modules), known: RefCell::default() }
    }

    /// The ways to the sites.
    pub fn stacks(&self) -> &'a Stacks<'a> {
        self.stacks
    }

    /// The phase that functions on the way to a site name.
    pub fn phase(&self, site: u32) -> Option<Phase> {
        self.known(site)?.phase
    }

    /// The phase that the name of the thread tells which came to a site, where no function does. Only of a whole way: it begins with
    /// what the thread runs, so no thread of another sort comes by it.
    pub fn phase_by_thread(&self, site: u32, names: &ThreadNames) -> Option<Phase> {
        let known = self.known(site)?;
        let name = names
            .of_site(site)
            .filter(|_| self.has_torch && known.phase.is_none() && known.is_whole && !known.runs_python)?;
        Where::by_thread(name).map(|at| at.phase)
    }

    /// Whether a site is of an evaluation, by a framework's function or by one of the program's own that is called so.
    pub fn is_of_evaluation(&self, site: u32) -> bool {
        self.known(site).is_some_and(|known| known.phase == Some(Phase::Evaluation) || known.is_of_own_evaluation)
    }

    /// What is the same number for sites to which the program came by the same way, whatever the allocator did behind it.
    pub fn way(&self, site: u32) -> Option<u64> {
        self.known(site).map(|known| known.way)
    }

    /// Where in a model's forward pass a site lies, whoever called the model; `None` where no module's call leads to it.
    pub fn in_model(&self, site: u32) -> Option<InModel> {
        self.known(site)?.in_model
    }

    fn known(&self, site: u32) -> Option<Known> {
        if let Some(known) = self.known.borrow().get(&site) {
            return Some(*known);
        }
        self.is_open().then(|| {
            let stack = self.stacks.of(site);
            let phase = Where::of(&stack.frames, false).map(|at| at.phase);
            let known = Known {
                phase,
                way: way(stack.frames.iter()),
                in_model: InModel::of(&stack.frames),
                is_whole: !stack.native_is_cut,
                runs_python: runs_python(&stack.frames),
                is_of_own_evaluation: own_evaluation(&stack.frames).is_some(),
            };
            self.known.borrow_mut().insert(site, known);
            known
        })
    }

    /// Whether more can be looked up, so that a site without a phase is one that no function names a phase of.
    pub fn is_open(&self) -> bool {
        self.known.borrow().len() < MOST_SITES
    }
}

/// A number for a way, without the allocator's own frames at its inner end: it tells of a block in another place than of an error.
fn way<'a>(frames: impl Iterator<Item = &'a Frame>) -> u64 {
    let mut hasher = FxHasher::default();
    for frame in frames.skip_while(|frame| is_torch_allocator(frame)) {
        (frame.address, &frame.file, &frame.function, frame.line).hash(&mut hasher);
    }
    hasher.finish()
}

/// A place in a model's forward pass, as numbers that are the same whoever called the model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InModel {
    /// The way from the outermost module to the site.
    pub way: u64,
    /// The lines of Python on it: native functions differ with and without gradients.
    pub lines: u64,
    /// The program's own innermost line on it; one number for all where the modules are a library's.
    pub own_line: u64,
}

impl InModel {
    fn of(frames: &[Frame]) -> Option<Self> {
        let outermost = frames.iter().rposition(|frame| table::phase_of(frame) == Some(Phase::Forward))?;
        let inside = &frames[..=outermost];
        let own = inside.iter().find(|frame| frame.kind == FrameKind::Python && is_own(frame));
        // Native frames behind the interpreter tell how deep the caller was.
        let native = inside.iter().filter(|frame| frame.kind == FrameKind::Native);
        let native = native.take_while(|frame| !is_interpreter(frame));
        let python = || inside.iter().filter(|frame| frame.kind == FrameKind::Python);
        Some(InModel { way: way(native.chain(python())), lines: lines(python()), own_line: lines(own.into_iter()) })
    }
}

/// A number for lines of Python.
fn lines<'a>(frames: impl Iterator<Item = &'a Frame>) -> u64 {
    let mut hasher = FxHasher::default();
    for frame in frames {
        (&frame.file, &frame.function, frame.line).hash(&mut hasher);
    }
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_models_lines_are_the_same_whoever_calls_it() {
        let python = |file: &str, function: &str, line: u32| Frame::python(file, function, line);
        let library = "/venv/lib/python3.11/site-packages/torch/nn/modules/container.py";
        let of = |native: u64, layer: u32, caller: &str| {
            let call = "/venv/lib/python3.11/site-packages/torch/nn/modules/module.py";
            let inside = [
                Frame::native(native),
                python(library, "Sequential.forward", layer),
                python(call, "Module._call_impl", 1776),
            ];
            let frames: Vec<Frame> = inside.into_iter().chain([python("/home/me/train.py", caller, 9)]).collect();
            InModel::of(&frames).expect("a module's call")
        };
        assert_eq!(of(1, 5, "train"), of(1, 5, "evaluate"));
        let (with, without) = (of(1, 5, "train"), of(2, 5, "evaluate"));
        assert!(with.way != without.way && with.lines == without.lines);
        let (one, other) = (of(1, 5, "train"), of(1, 6, "train"));
        assert!(one.way != other.way && one.lines != other.lines && one.own_line == other.own_line);
        assert_eq!(InModel::of(&[python("/home/me/train.py", "main", 3)]), None);
    }

    #[test]
    fn a_way_is_the_same_whatever_the_allocator_did_behind_it() {
        let native = |module: &str, address: u64| Frame { module: Some(module.to_owned()), ..Frame::native(address) };
        let line = |line: u32| Frame::python("/home/me/train.py", "main", line);
        let of = |inner: &[u64], outer: u64, at: u32| {
            let inner = inner.iter().map(|address| native("libc10_cuda.so", *address));
            way(inner.chain([native("libtorch_cpu.so", outer), line(at)]).collect::<Vec<_>>().iter())
        };
        assert_eq!(of(&[1, 2], 9, 7), of(&[3], 9, 7));
        assert_ne!(of(&[1, 2], 9, 7), of(&[1, 2], 8, 7));
        assert_ne!(of(&[1, 2], 9, 7), of(&[1, 2], 9, 6));
    }
}
