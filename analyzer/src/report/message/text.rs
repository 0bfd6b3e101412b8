//! The page: each error with its limit, its numbers, what they decide and exclude, what is missing, what to do next.

use crate::catalogue;
use crate::message::{ErrorText, Triage};
use crate::report::page::{Page, Paint};
use crate::words::{clean, count, shorten, size, times};

/// Errors that are told in full.
const MOST_IN_FULL: usize = 5;
/// Errors that get a line.
const MOST_ROWS: usize = 20;
/// Longest part of an error's own text on the page.
const MOST_CHARACTERS: usize = 260;
/// Exclusions on the page: the first ones answer what people ask first.
const MOST_EXCLUDED: usize = 3;
/// Diagnoses that can't be told apart, on the page.
const MOST_NAMES: usize = 4;

/// Writes the page.
pub fn write(page: &mut Page, triage: &Triage) {
    if triage.errors.is_empty() {
        return unknown(page, triage);
    }
    let all = triage.errors.len();
    for (number, error) in (1..).zip(&triage.errors).take(MOST_IN_FULL) {
        if number > 1 {
            page.gap();
        }
        one(page, error, (all > 1).then_some(number));
    }
    rows(page, triage);
}

fn rows(page: &mut Page, triage: &Triage) {
    let rest = triage.errors.get(MOST_IN_FULL..).unwrap_or_default();
    if rest.is_empty() {
        return;
    }
    page.gap();
    page.headed(
        "ALSO",
        Paint::Bold,
        &format!("{}; --format json has all of them in full", count(rest.len() as u64, "error", "errors")),
    );
    for error in rest.iter().take(MOST_ROWS) {
        page.line(&format!("  {}: {}", place(error), clean(&shorten(&error.text, 80))));
    }
    let left = rest.len().saturating_sub(MOST_ROWS) as u64 + triage.left_off;
    if left > 0 {
        page.line(&format!("  and {left} more"));
    }
}

fn place(error: &ErrorText) -> String {
    format!("{}:{}", clean(&error.source), error.line)
}

fn one(page: &mut Page, error: &ErrorText, number: Option<usize>) {
    let heading = number.map_or_else(|| "ERROR".to_owned(), |number| format!("ERROR {number}"));
    let program = error.program.map_or_else(String::new, |program| format!("{program}, "));
    let repeats = match error.times {
        1 => String::new(),
        often => format!(", seen {}", times(often)),
    };
    page.headed(&heading, Paint::Failure, &format!("{program}{}{repeats}", place(error)));
    page.indented("  ", "  ", &clean(&beginning(&error.text)));
    match error.is_memory {
        None | Some(true) => page.headed("MEANS", Paint::Bold, &format!("{}{}", error.says, purpose(error))),
        Some(false) => page.headed("MEANS", Paint::Bold, &format!("not a GPU out-of-memory error: {}", error.says)),
    }
    if let Some(limit) = error.limit {
        page.headed("LIMIT", Paint::Bold, limit.words());
    }
    numbers(page, error);
    list(page, "DECIDED", &error.reasons);
    diagnoses(page, error);
    let excluded =
        error.excluded.iter().take(MOST_EXCLUDED).map(|excluded| format!("{}: {}", excluded.what, excluded.because));
    list(page, "RULED OUT", &excluded.collect::<Vec<_>>());
    list(page, "MISSING", &error.missing);
    next(page, error);
}

/// The beginning of a text: an error says first what it is.
fn beginning(text: &str) -> String {
    match text.char_indices().nth(MOST_CHARACTERS) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

fn purpose(error: &ErrorText) -> String {
    error.purpose.map_or_else(String::new, |purpose| format!(" (for {purpose})"))
}

/// A heading with a line each.
fn list(page: &mut Page, heading: &str, items: &[String]) {
    let Some((first, rest)) = items.split_first() else { return };
    page.headed(heading, Paint::Bold, &clean(first));
    let indent = " ".repeat(heading.len() + 2);
    rest.iter().for_each(|item| page.indented(&indent, &indent, &clean(item)));
}

fn numbers(page: &mut Page, error: &ErrorText) {
    let mut sizes: Vec<String> = error
        .captured
        .sizes
        .iter()
        .map(|(quantity, printed)| format!("{} {}", size(printed.bytes), quantity.words()))
        .collect();
    if let Some([least, most]) = error.requests_bytes {
        sizes[0] = format!("{} to {} requested", size(least), size(most));
    }
    sizes.extend(error.captured.names.iter().map(|(name, text)| format!("{} {text}", name.words())));
    if !sizes.is_empty() {
        page.headed("NUMBERS", Paint::Bold, &clean(&sizes.join(", ")));
    }
}

fn diagnoses(page: &mut Page, error: &ErrorText) {
    for (place, diagnosis) in error.diagnoses.iter().enumerate() {
        let title = catalogue::find(diagnosis.id).map_or("", |entry| entry.title.as_str());
        let heading = if place == 0 { "DIAGNOSIS" } else { "AND      " };
        let (id, confidence) = (diagnosis.id, diagnosis.confidence.name());
        page.headed(heading, Paint::Bold, &format!("{id}, {confidence}: {title}; {}", diagnosis.because));
    }
    if !error.not_told_apart.is_empty() {
        let names = error.not_told_apart.iter().take(MOST_NAMES).copied().collect::<Vec<_>>().join(", ");
        let more = if error.not_told_apart.len() > MOST_NAMES { " and others" } else { "" };
        page.indented("           ", "           ", &format!("the text can't tell it from {names}{more}"));
    }
}

fn next(page: &mut Page, error: &ErrorText) {
    let next = error.next.iter().map(|next| match next.command.is_empty() {
        true => next.text.clone(),
        false => format!("{}: {}", next.command, next.text),
    });
    list(page, "NEXT", &next.collect::<Vec<_>>());
}

fn unknown(page: &mut Page, triage: &Triage) {
    let lines = count(triage.lines, "line", "lines");
    page.headed(
        "NO KNOWN ERROR",
        Paint::Bold,
        &format!("in {lines}: no wording that gpuoom knows is in this text, so it says nothing about it"),
    );
    for line in &triage.unknown {
        page.indented(&format!("  {}:{}  ", clean(&line.source), line.line), "    ", &clean(&shorten(&line.text, 160)));
    }
    if !triage.unknown.is_empty() {
        page.indented("", "", "These lines speak of memory in words that are not in its table.");
    }
    page.headed("NEXT", Paint::Bold, "give the program's output with the lines before the error, or record the run: gpuoom-analyze record -- COMMAND");
}
