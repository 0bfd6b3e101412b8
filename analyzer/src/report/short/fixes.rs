//! What to do: the cheapest steps of the ladder.

use super::{INDENT, lines, section};
use crate::conclusion::Summary;
use crate::report::page::Page;
use crate::report::text::advice::{climb, to_find_out, whatever_the_cause};
use crate::words::clean;

/// Steps that are told.
const MOST_STEPS: usize = 3;
/// Lines that one may have: what does not fit is on the full page.
const LINES_OF_STEP: usize = 2;

pub(super) fn write(page: &mut Page, summary: &Summary) {
    let ladder = &summary.conclusion.ladder;
    let steps = ladder.steps.iter().take(MOST_STEPS).map(climb);
    let mut told: Vec<String> = whatever_the_cause(summary).into_iter().chain(steps).take(MOST_STEPS).collect();
    // Of a failure that nothing explains, `WHY` says what would.
    if told.is_empty() && summary.conclusion.verdict.oom.is_none() {
        let asks = summary.conclusion.would_settle.iter().take(1);
        told = asks.map(|text| format!("{}: {}", to_find_out(summary), clean(text))).collect();
    }
    let is_list = told.len() > 1;
    for (number, text) in (1..).zip(&told) {
        let (first, rest) = if is_list { (format!("{number}  "), "   ") } else { (String::new(), "") };
        let text = short(text, page.look.width.min(super::WIDTH) - INDENT - rest.len());
        match number {
            1 => section(page, "DO", &format!("{first}{text}")),
            _ => page.indented(&format!("{}{first}", " ".repeat(INDENT)), &" ".repeat(INDENT + rest.len()), &text),
        }
    }
}

/// A step without its last parts, where those make it too long.
fn short(text: &str, width: usize) -> String {
    let mut parts: Vec<&str> = text.split("; ").collect();
    while parts.len() > 1 && lines(&parts.join("; "), width) > LINES_OF_STEP {
        parts.pop();
    }
    parts.join("; ")
}
