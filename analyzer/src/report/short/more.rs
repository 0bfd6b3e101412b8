//! Where to look further.

use super::INDENT;
use crate::conclusion::Summary;
use crate::conclusion::verdict::Happened;
use crate::report::page::{Page, Paint};
use crate::words::clean;

pub(super) fn write(page: &mut Page, summary: &Summary) {
    let path = quoted(&summary.facts.trace.path);
    let mut commands = vec![format!("gpuoom-analyze report --full {path}")];
    match (summary.conclusion.verdict.cause, summary.conclusion.perhaps()) {
        (Some(id), _) => commands.push(format!("gpuoom-analyze explain {id}")),
        (None, Some(finding)) if matches!(summary.conclusion.verdict.happened, Happened::OutOfMemory { .. }) => {
            commands.push(format!("gpuoom-analyze explain {}", finding.id));
        }
        _ => {}
    }
    // To be copied: never cut, and each in a line of its own where one has no room for both.
    let heading = page.paint("  MORE ", Paint::Bold);
    let all = commands.join("  |  ");
    let is_one_line = INDENT + all.chars().count() <= page.look.width;
    let lines = if is_one_line { vec![all] } else { commands };
    for (place, line) in lines.iter().enumerate() {
        let start = if place == 0 { heading.clone() } else { " ".repeat(INDENT - 2) };
        page.verbatim(&format!("{start}  {line}"));
    }
}

/// As a shell takes it.
fn quoted(path: &str) -> String {
    let is_plain = |letter: char| letter.is_ascii_alphanumeric() || "/._-+,:@%=".contains(letter);
    match path.chars().all(is_plain) {
        true => path.to_owned(),
        false => format!("'{}'", clean(path).replace('\'', "'\\''")),
    }
}
