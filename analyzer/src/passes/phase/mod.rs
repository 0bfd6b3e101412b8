//! In which phase of a training or of serving a call came. Functions of frameworks name it, which do nothing else, or a capture
//! that is under way; where none of them is on the way to the call, nobody knows.

pub mod sites;
pub(crate) mod table;
#[cfg(test)]
mod tests;

use gpuoom_trace::metadata::Modules;
use serde::Serialize;

use crate::symbols::key::label_with_line;
use crate::symbols::own::is_own;
use crate::symbols::plumbing::{begins_a_process, is_interpreter, is_plumbing};
use crate::symbols::{Frame, FrameKind, file_name};

/// A part of what a program does with a model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// It loads a model, or brings it to the card.
    Load,
    /// It loads a file of which nobody tells what is in it.
    File,
    /// It loads an optimizer's state.
    State,
    /// It loads data.
    Data,
    /// Forward pass.
    Forward,
    /// Backward pass.
    Backward,
    /// The optimizer's step.
    Optimizer,
    /// Evaluation.
    Evaluation,
    /// Processes exchange tensors.
    Collective,
    /// A stream is captured.
    Capture,
}

impl Phase {
    /// The name in JSON.
    pub fn name(self) -> &'static str {
        match self {
            Phase::Load | Phase::File | Phase::State | Phase::Data => "loading",
            Phase::Forward => "forward",
            Phase::Backward => "backward",
            Phase::Optimizer => "optimizer",
            Phase::Evaluation => "evaluation",
            Phase::Collective => "collective",
            Phase::Capture => "capture",
        }
    }

    /// Where something is, in words.
    fn words(self) -> &'static str {
        match self {
            Phase::Load => "while a model was made, loaded, moved or converted",
            Phase::File => "while a file was loaded",
            Phase::State => "while the state of an optimizer was loaded",
            Phase::Data => "in the data loader",
            Phase::Forward => "in a forward pass",
            Phase::Backward => "in a backward pass",
            Phase::Optimizer => "in the optimizer's step",
            Phase::Evaluation => "in an evaluation",
            Phase::Collective => "in a collective operation",
            Phase::Capture => "while a stream was captured",
        }
    }
}

impl Phase {
    /// Whose a block is that came in it, behind its name.
    pub fn of_it(self) -> &'static str {
        match self {
            Phase::Load => "of a model's load",
            Phase::File => "of a loaded file",
            Phase::State => "of an optimizer's load",
            Phase::Data => "of a data loader",
            Phase::Forward => "of a forward pass",
            Phase::Backward => "of a backward pass",
            Phase::Optimizer => "of an optimizer's step",
            Phase::Evaluation => "of an evaluation or of what is decorated with no_grad",
            Phase::Collective => "of a collective",
            Phase::Capture => "of a capture",
        }
    }
}

/// The phase that a call came in, and by which function.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Where {
    /// The phase.
    #[serde(skip)]
    pub phase: Phase,
    /// The function by which the program came into it; null where only the phase is known.
    pub function: Option<String>,
    /// Its file, from where the package lies.
    pub file: Option<String>,
    /// The program's line that called it, where the frames of that thread name one.
    pub called_from: Option<String>,
    /// What is peculiar to it.
    #[serde(skip)]
    more: More,
}

/// What the frames say of a phase besides.
#[derive(Clone, Debug, PartialEq, Eq)]
enum More {
    Nothing,
    /// The function is decorated with a context that takes no gradients.
    Without(String),
    /// The same, and no forward pass is on the way: the program's own name for the function says what it does.
    Called(String),
    /// A checkpointed forward pass is computed again.
    Again,
    /// No function names it, but the thread is called so.
    ByThread(String),
}

/// A phase, with the place of the outermost frame that names it.
struct Named {
    phase: Phase,
    place: usize,
    more: More,
}

impl Where {
    /// What a stack says (native frames, then Python's, innermost first each); `is_captured`: its thread captured a stream.
    pub fn of(stack: &[Frame], is_captured: bool) -> Option<Self> {
        let way = in_order(stack);
        let Some(named) = named(&way).filter(|_| !is_captured) else {
            let called_from = line_of(way.iter());
            return is_captured.then_some(Where {
                phase: Phase::Capture,
                function: None,
                file: None,
                called_from,
                more: More::Nothing,
            });
        };
        let inward = way[..=named.place].iter().rev();
        let entry = inward.clone().find(|frame| !table::is_adapter(frame)).unwrap_or(&way[named.place]);
        let is_python = entry.kind == FrameKind::Python;
        let file = entry.package_path.as_deref().or(entry.file.as_deref().map(crate::symbols::file_name));
        Some(Where {
            phase: named.phase,
            function: entry.short().filter(|_| is_python || named.phase != Phase::Backward),
            file: file.filter(|_| is_python).map(str::to_owned),
            called_from: line_of(way[named.place + 1..].iter()),
            more: named.more,
        })
    }

    /// What the functions of a framework say that the thread was in, where the way to the call names none of them.
    pub fn inside(phase: Phase, function: &str) -> Self {
        Where { phase, function: Some(function.to_owned()), file: None, called_from: None, more: More::Nothing }
    }

    /// What a thread's name tells, where no function does: of a process that has PyTorch, whose threads are called so.
    pub fn by_thread(name: &str) -> Option<Self> {
        let phase = table::phase_of_thread(name)?;
        let more = More::ByThread(name.to_owned());
        Some(Where { phase, function: None, file: None, called_from: None, more })
    }

    /// Whether nothing but a context without gradients, which a function of the program's is decorated with, tells it from a forward pass.
    pub fn is_by_decoration(&self) -> bool {
        matches!(self.more, More::Without(_))
    }

    /// What brought the program into it, for people.
    pub fn entry(&self) -> &str {
        self.function.as_deref().unwrap_or("PyTorch's autograd engine")
    }

    /// In words.
    pub fn words(&self) -> String {
        let phase = match &self.more {
            // A context inside of it may turn gradients on again, and has no frame.
            More::Without(_) => Phase::Forward.words().to_owned(),
            More::Again => format!("{}, where a checkpointed forward pass is computed again", self.phase.words()),
            More::ByThread(name) => format!("{}, as the name of the thread says: {name}", self.phase.words()),
            More::Called(_) | More::Nothing => self.phase.words().to_owned(),
        };
        let function = match (&self.function, &self.file) {
            (Some(function), Some(file)) => format!(": {function} ({file})"),
            (Some(function), None) => format!(": {function}"),
            _ => String::new(),
        };
        let context = match &self.more {
            More::Without(context) | More::Called(context) => format!(", which is decorated with {context}"),
            _ => String::new(),
        };
        let at = if self.phase == Phase::Capture && self.function.is_none() { "at" } else { "called from" };
        let from = self.called_from.as_ref().map_or(String::new(), |line| format!(", {at} {line}"));
        format!("{phase}{function}{context}{from}")
    }
}

/// The frames of both languages, innermost first: what Python runs lies inside the interpreter's own frames.
fn in_order(stack: &[Frame]) -> Vec<&Frame> {
    let (native, python): (Vec<&Frame>, Vec<&Frame>) = stack.iter().partition(|frame| frame.kind == FrameKind::Native);
    let inside = native.iter().position(|frame| is_interpreter(frame)).unwrap_or(native.len());
    [&native[..inside], &python, &native[inside..]].concat()
}

/// The program's own line that is nearest; where all lines are of installed packages, the nearest of those that do not only pass
/// memory on. Behind the functions that begin a process the program has no line.
fn line_of<'a>(frames: impl Iterator<Item = &'a &'a Frame>) -> Option<String> {
    let python = frames.filter(|frame| frame.kind == FrameKind::Python);
    let lines: Vec<&&Frame> = python.take_while(|frame| !begins_a_process(frame)).collect();
    let mut known = lines.iter().filter(|frame| !is_plumbing(frame));
    let own = known.clone().find(|frame| is_own(frame));
    own.or_else(|| known.next()).and_then(|frame| label_with_line(frame))
}

/// What the nearest function says; of a forward pass also for what it runs.
fn named(way: &[&Frame]) -> Option<Named> {
    let found = all_named(way);
    let Some(&(innermost, phase)) = found.first() else { return called_evaluation(way) };
    // A module may be called in everything else, too.
    let outer =
        |wanted: Phase| found.iter().position(|(_, phase)| *phase == wanted).filter(|_| phase == Phase::Forward);
    if let Some(backward) = outer(Phase::Backward) {
        let place = end_of(way, &found, backward);
        let is_again = way[innermost..place].iter().any(|frame| table::computes_again(frame));
        return Some(Named { phase: Phase::Backward, place, more: if is_again { More::Again } else { More::Nothing } });
    }
    if let Some(evaluation) = outer(Phase::Evaluation) {
        return Some(Named { phase: Phase::Evaluation, place: end_of(way, &found, evaluation), more: More::Nothing });
    }
    let place = end_of(way, &found, 0);
    let decorated = (phase == Phase::Forward).then(|| without_gradients(way, place)).flatten();
    Some(match decorated {
        Some((place, context)) => Named { phase: Phase::Evaluation, place, more: More::Without(context) },
        None => Named { phase, place, more: More::Nothing },
    })
}

/// The frames that name a phase, innermost first.
fn all_named(way: &[&Frame]) -> Vec<(usize, Phase)> {
    let mut found = Vec::new();
    for (place, frame) in way.iter().enumerate() {
        let is_steps_own = || !table::leaves_the_step(way[..=place].iter().rev().copied());
        let own = table::phase_of(frame).filter(|phase| *phase != Phase::Optimizer || is_steps_own());
        let phase = own.or_else(|| table::phase_around(frame).filter(|_| found.is_empty()));
        found.extend(phase.map(|phase| (place, phase)));
    }
    found
}

/// The place of the outermost frame that says the same as the one found at this index, with nothing else between. A frame of Python
/// that was called by a line of the program comes before all native ones: where in Python those were called is not known.
fn end_of(way: &[&Frame], found: &[(usize, Phase)], index: usize) -> usize {
    let phase = found[index].1;
    let same = || found[index..].iter().take_while(|(_, other)| *other == phase).map(|(place, _)| *place);
    let of_python = same().filter(|place| way[*place].kind == FrameKind::Python).last();
    let has_line = |place: &usize| line_of(way[place + 1..].iter()).is_some();
    of_python.filter(has_line).or_else(|| same().last()).unwrap_or(found[index].0)
}

/// The program's own function around a forward pass that is decorated with a context without gradients.
fn without_gradients(way: &[&Frame], forward: usize) -> Option<(usize, String)> {
    let (place, context) = nearest_context(way)?;
    let decorated = way[place - 1];
    let is_own = decorated.kind == FrameKind::Python && !is_plumbing(decorated);
    // An optimizer's `step` is decorated so, and turns gradients on again for the closure that it calls.
    let is_a_step = way[place..].iter().any(|frame| table::phase_of(frame) == Some(Phase::Optimizer));
    (place > forward && is_own && !is_a_step && table::takes_no_gradients(context)).then(|| (place, context.to_owned()))
}

/// The program's own function that is decorated with a context without gradients and called after an evaluation. Weights are filled
/// and averaged without gradients, too: where no forward pass is on the way, the decoration alone says nothing.
fn called_evaluation(way: &[&Frame]) -> Option<Named> {
    let (place, context) = nearest_context(way)?;
    let decorated = way[place - 1];
    let is_evaluation =
        is_own(decorated) && table::is_called_evaluation(decorated) && table::takes_no_gradients(context);
    is_evaluation.then(|| Named { phase: Phase::Evaluation, place, more: More::Called(context.to_owned()) })
}

/// The nearest context that a function is decorated with, and its place: one inside another may turn gradients on again.
fn nearest_context<'a>(way: &[&'a Frame]) -> Option<(usize, &'a str)> {
    let behind = way.iter().enumerate().skip(1);
    behind.filter_map(|(place, frame)| Some((place, table::context_of(frame)?))).next()
}

/// Whether the way leads through Python: none of the threads that are known by their names alone runs any but in functions that say so.
pub fn runs_python(way: &[Frame]) -> bool {
    way.iter().any(|frame| frame.kind == FrameKind::Python)
}

/// Whether PyTorch was loaded, as far as the list of libraries goes.
pub fn has_torch(modules: &Modules) -> bool {
    modules.modules.iter().any(|module| file_name(&module.path).starts_with("libtorch_cpu.so"))
}
