//! Who asked for what was refused, and who allocated what lives.

use super::page::{Markdown, code, plain};
use crate::conclusion::Summary;
use crate::passes::oom::OomReport;
use crate::report::text::callers::{INFERRED, lines, told};
use crate::report::text::stack;
use crate::words::{grouped, moment, size};

/// What the lines of a stack are indented by on a page of text.
const INDENT: &str = "      ";
/// Failures whose stacks are shown.
const MOST_STACKS: usize = 3;

/// The stacks of the first failures, folded away.
pub(super) fn write_stacks(page: &mut Markdown, ooms: &[OomReport]) {
    for oom in ooms.iter().take(MOST_STACKS) {
        let text = stack::text(oom);
        if !text.is_empty() {
            let text: Vec<&str> = text.lines().map(|line| line.strip_prefix(INDENT).unwrap_or(line)).collect();
            page.folded(&format!("Who asked: failure {}", oom.number), &text.join("\n"));
        }
    }
}

/// Who allocated what lives at the most telling moment of each device.
pub(super) fn write(page: &mut Markdown, summary: &Summary, level: usize) {
    for ledger in told(summary) {
        let place = ledger.place();
        page.heading(level, &format!("Who allocated {place}"));
        let when = match ledger.moment.strip_prefix("oom:") {
            Some(number) => format!("At failure {number}, {}.", moment(ledger.at_ns)),
            None => format!("At the {}, {}.", ledger.moment, moment(ledger.at_ns)),
        };
        page.paragraph(&plain(&when));
        let (lines, has_inferred) = lines(&ledger.allocated_by);
        let row = |(who, amount): &(String, _)| row(who, amount);
        page.table(&["who", ">bytes", ">blocks"], &lines.iter().map(row).collect::<Vec<_>>());
        if has_inferred {
            page.paragraph(&plain(INFERRED));
        }
    }
}

fn row(who: &str, amount: &crate::passes::callers::Amount) -> Vec<String> {
    vec![code(who), size(amount.bytes), grouped(amount.blocks)]
}
