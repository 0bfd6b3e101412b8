//! The short answer, which is the default: what happened, why, who holds the card, what to do, and where to look further.
//!
//! For one failure it has at most [`MOST_LINES`] lines of [`WIDTH`] columns. It says nothing that the full page does not say: its texts
//! and numbers are that page's, and a section that has no room for a sentence leaves out the whole sentence.

mod fixes;
mod headline;
mod holds;
mod more;
#[cfg(test)]
mod tests;
mod why;

use crate::conclusion::Summary;
use crate::conclusion::verdict::Happened;
use crate::report::page::{Look, Page, Paint};

/// Lines of the page for one failure, at most.
pub const MOST_LINES: usize = 25;
/// Columns, at most.
pub const WIDTH: usize = 100;

/// Lines that the first paragraph may have.
const LINES_OF_HEADLINE: usize = 5;
/// Lines that the last paragraph may have, and more where it tells of damage.
const LINES_OF_END: usize = 3;

/// The short answer on one trace.
pub fn write(summary: &Summary, look: Look) -> String {
    let mut page = Page::new(Look { width: look.width.min(WIDTH), ..look });
    let sentences = headline::sentences(summary);
    headline::write(&mut page, summary, &fitted(look, 0, &sentences.first, " ", LINES_OF_HEADLINE));
    if why::is_worth_telling(summary) {
        page.gap();
        why::write(&mut page, summary);
    }
    if matches!(summary.conclusion.verdict.happened, Happened::OutOfMemory { .. }) {
        holds::write(&mut page, summary);
    }
    fixes::write(&mut page, summary);
    more::write(&mut page, summary);
    if !sentences.last.is_empty() {
        page.gap();
        page.indented("", "", &fitted(look, 0, &sentences.last, " ", LINES_OF_END));
    }
    page.into_text()
}

/// A section's first line, or one of its others. Headings are as wide as the widest.
fn section(page: &mut Page, heading: &str, text: &str) {
    page.headed(&format!("  {heading:<5}"), Paint::Bold, text);
}

/// The column in which the text of a section begins.
const INDENT: usize = 9;

/// The first part, and of the others those that there is room for.
fn fitted(look: Look, indent: usize, parts: &[String], between: &str, most_lines: usize) -> String {
    let width = look.width.min(WIDTH) - indent;
    let mut text = parts.first().cloned().unwrap_or_default();
    for part in parts.iter().skip(1) {
        let longer = format!("{text}{between}{part}");
        if lines(&longer, width) <= most_lines {
            text = longer;
        }
    }
    text
}

/// In how many lines a text is set.
fn lines(text: &str, width: usize) -> usize {
    let (mut lines, mut column) = (1, 0);
    for word in text.split(' ') {
        let length = word.chars().count().min(width);
        if column > 0 && column + 1 + length > width {
            (lines, column) = (lines + 1, length);
        } else {
            column += length + usize::from(column > 0);
        }
    }
    lines
}
