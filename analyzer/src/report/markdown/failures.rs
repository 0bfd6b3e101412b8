//! The out-of-memory returns.

use super::callers;
use super::page::{Markdown, code, plain};
use crate::conclusion::Summary;
use crate::passes::oom::OomReport;
use crate::report::text::failures::{asked, attempts, became, free_then, refused, status};
use crate::words::{count, gpu, grouped, moment};

/// Failures that have a row.
const MOST_ROWS: usize = 20;

pub(super) fn write(page: &mut Markdown, summary: &Summary, level: usize) {
    if summary.facts.oom_count == 0 {
        return;
    }
    page.heading(level, "Out of memory");
    let shown = summary.facts.ooms.iter().take(MOST_ROWS);
    let rows: Vec<Vec<String>> = shown.map(|oom| row(summary, oom)).collect();
    page.table(&[">no.", ">at", "call", ">asked", "where", "returned", "outcome", "then"], &rows);
    let more = summary.facts.oom_count.saturating_sub(rows.len() as u64);
    if more > 0 {
        let more = count(more, "more failure", "more failures");
        page.paragraph(&format!("{more} of {} in all: the JSON lists them.", grouped(summary.facts.oom_count)));
    }
    callers::write_stacks(page, &summary.facts.ooms);
}

fn row(summary: &Summary, oom: &OomReport) -> Vec<String> {
    let place = match oom.kind {
        "host-pinned" | "registered" => "the host".to_owned(),
        _ => gpu(oom.device),
    };
    let then = match &oom.phase_entry {
        Some(entry) => format!("{}; {}", entry.words(), free_then(summary, oom)),
        None => free_then(summary, oom),
    };
    vec![
        oom.number.to_string(),
        moment(oom.at_ns),
        match oom.allocator {
            Some(allocator) => plain(allocator),
            None => code(&oom.api),
        },
        asked(oom),
        place,
        plain(&attempts(summary, oom).unwrap_or_else(|| format!("{}, {}", status(oom), refused(summary, oom)))),
        format!("**{}**: {}", oom.outcome.name(), plain(&became(oom))),
        plain(&then),
    ]
}
