//! The way to a call, for people: the functions nearest to the call first, what only passes on folded.

use crate::passes::oom::OomReport;
use crate::passes::phase::table::is_adapter;
use crate::report::page::{Look, Page};
use crate::symbols::own::is_own;
use crate::symbols::plumbing::{begins_a_process, is_interpreter, is_plumbing, is_torch_allocator, is_trampoline};
use crate::symbols::{Frame, FrameKind};
use crate::words::{clean, count, shorten};

/// Lines of one block at most.
const MOST_LINES: usize = 8;
/// Native frames that are shown where Python's say who asked.
const MOST_BESIDE_PYTHON: usize = 3;
/// Frames in a row that only pass on and are shown one by one.
const MOST_PASSING: usize = 3;
const INDENT: &str = "                ";
/// Below a stack that was not measured by unwind tables alone.
pub(in crate::report) const INFERRED: &str = "(inferred from frame pointers: frames may be missing or wrong)";
/// Columns of a stack that stands alone.
const TEXT_WIDTH: usize = 100;
/// Widest columns.
const FUNCTION_WIDTH: usize = 46;
const PLACE_WIDTH: usize = 32;

/// Who asked for the memory that was refused.
pub(super) fn write(page: &mut Page, oom: &OomReport) {
    let (native, python): (Vec<&Frame>, Vec<&Frame>) =
        oom.stack.iter().partition(|frame| frame.kind == FrameKind::Native);
    if native.len() + python.len() < 2 && native.iter().chain(&python).all(|frame| frame.function.is_none()) {
        return;
    }
    // A module calls its `forward` through two functions of PyTorch's, each time.
    let telling: Vec<&Frame> = python.iter().filter(|frame| !is_adapter(frame)).copied().collect();
    let python = if telling.is_empty() { python } else { telling };
    block(page, "in Python", &python_lines(&python, oom.python_is_cut));
    let mut asked_by = native_lines(&native, !python.is_empty(), oom.stack_is_cut);
    if oom.stack_is_inferred && !asked_by.is_empty() {
        asked_by.push(Line::Remark(INFERRED.to_owned()));
    }
    block(page, "asked by", &asked_by);
}

/// The same without the rest of the page; empty where nobody is known.
pub(in crate::report) fn text(oom: &OomReport) -> String {
    let mut page = Page::new(Look::new(TEXT_WIDTH, false));
    write(&mut page, oom);
    page.into_text()
}

/// One line: function, library or source, or a remark over both columns.
enum Line {
    Frame { function: String, place: String },
    Remark(String),
}

fn native_lines(frames: &[&Frame], has_python: bool, is_cut: bool) -> Vec<Line> {
    let end = match has_python {
        true => frames.iter().position(|frame| is_interpreter(frame)).unwrap_or(frames.len()),
        false => frames.len(),
    };
    let passing = frames[..end].iter().take_while(|frame| is_plumbing(frame)).count();
    // Who only calls a function for another did not ask for anything.
    let carrying = frames[..end].iter().take_while(|frame| is_trampoline(frame)).count();
    let allocator = frames[..end].iter().take_while(|frame| is_torch_allocator(frame)).count();
    let mut lines = Vec::new();
    let mut next = 0;
    if allocator > 0 && (passing < frames.len() || has_python) {
        // Nobody looks for a reason in it.
        let (one, several) = ("frame of PyTorch's allocator", "frames of PyTorch's allocator");
        lines.push(Line::Remark(format!("({})", count(allocator as u64, one, several))));
        lines.extend((passing > allocator).then(|| passed_on(passing - allocator)));
        next = passing;
    // Where nobody else is there they are shown, but for Python, whose frames say who asked.
    } else if passing > MOST_PASSING && (passing < frames.len() || has_python) {
        let first = frames.first().filter(|_| carrying == 0);
        lines.extend(first.map(|frame| native(frame)));
        lines.push(passed_on(passing - lines.len()));
        next = passing;
    } else if carrying > 0 && carrying < frames.len() {
        lines.push(passed_on(carrying));
        next = carrying;
    }
    let most = if has_python { MOST_BESIDE_PYTHON } else { MOST_LINES - lines.len() };
    let shown = end.saturating_sub(next).min(most);
    lines.extend(frames[next..next + shown].iter().map(|frame| native(frame)));
    next += shown;
    if has_python && next == end && end < frames.len() {
        let inside = count((frames.len() - end) as u64, "frame", "frames");
        lines.push(Line::Remark(format!("({inside} of the interpreter and below)")));
        next = frames.len();
    }
    rest(&mut lines, frames.len() - next, is_cut);
    lines
}

fn passed_on(frames: usize) -> Line {
    let (passes, pass) = ("frame that only passes it on", "frames that only pass it on");
    Line::Remark(format!("({})", count(frames as u64, passes, pass)))
}

/// The innermost lines. The program's own line is among them, however deep the packages are that it called.
fn python_lines(frames: &[&Frame], is_cut: bool) -> Vec<Line> {
    let mut lines: Vec<Line> = frames.iter().take(MOST_LINES).map(|frame| python(frame)).collect();
    let mut shown = lines.len();
    let own = own(frames).filter(|place| *place >= MOST_LINES);
    if let Some(place) = own {
        lines.truncate(MOST_LINES - 2);
        let between = count((place - lines.len()) as u64, "frame", "frames");
        lines.push(Line::Remark(format!("({between} between)")));
        lines.push(python(frames[place]));
        shown = place + 1;
    }
    if !frames.is_empty() {
        rest(&mut lines, frames.len() - shown, is_cut);
    }
    lines
}

/// Which of the frames is the program's own that is nearest.
fn own(frames: &[&Frame]) -> Option<usize> {
    frames.iter().take_while(|frame| !begins_a_process(frame)).position(|frame| is_own(frame))
}

fn rest(lines: &mut Vec<Line>, more: usize, is_cut: bool) {
    match (more, is_cut) {
        (0, false) => {}
        (0, true) => lines.push(Line::Remark("(no further frames were recorded)".to_owned())),
        (more, false) => lines.push(Line::Remark(format!("... {more} more"))),
        (more, true) => lines.push(Line::Remark(format!("... {more} more, and no further ones were recorded"))),
    }
}

fn native(frame: &Frame) -> Line {
    let module = frame.module.as_deref().map(clean).unwrap_or_else(|| "no library".to_owned());
    let place = match (source(frame), &frame.function, frame.offset) {
        (Some(source), ..) => format!("{module}  {source}"),
        (None, None, Some(offset)) => format!("{module}+{offset:#x}"),
        _ => module,
    };
    let function = frame.short().map(|name| clean(&name));
    let unknown = || frame.address.map_or("?".to_owned(), |address| format!("{address:#x}"));
    Line::Frame { function: function.unwrap_or_else(unknown), place }
}

fn python(frame: &Frame) -> Line {
    let function = frame.function.as_deref().map(clean).unwrap_or_else(|| "?".to_owned());
    Line::Frame { function, place: source(frame).unwrap_or_else(|| "?".to_owned()) }
}

/// `file:line`, without the directories.
pub(super) fn source(frame: &Frame) -> Option<String> {
    let file = frame.file.as_deref()?;
    let file = clean(file.rsplit('/').next().unwrap_or(file));
    Some(match frame.line {
        Some(line) => format!("{file}:{line}"),
        None => file,
    })
}

fn block(page: &mut Page, heading: &str, lines: &[Line]) {
    let functions = lines.iter().filter_map(|line| match line {
        Line::Frame { function, .. } => Some(function.chars().count()),
        Line::Remark(_) => None,
    });
    let room = page.look.width.saturating_sub(INDENT.len() + PLACE_WIDTH + 2).min(FUNCTION_WIDTH);
    let wide = functions.max().unwrap_or(0).min(room);
    for (number, line) in lines.iter().enumerate() {
        let first = if number == 0 { format!("      {heading:<10}") } else { INDENT.to_owned() };
        match line {
            Line::Frame { function, place } => {
                let left = page.look.width.saturating_sub(INDENT.len() + wide + 2);
                let (function, place) = (shorten(function, wide.max(1)), shorten(place, left));
                page.line(&format!("{first}{function:<wide$}  {place}"));
            }
            Line::Remark(text) => page.line(&format!("{first}{text}")),
        }
    }
}
