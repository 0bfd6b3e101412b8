//! Who holds the memory of each device, and pinned host memory.

use super::page::{Markdown, code, plain};
use crate::conclusion::Summary;
use crate::passes::ledger::{DeviceLedger, Row};
use crate::report::text::ledger::{MOST_ROWS, describe_holder, notes, told};
use crate::report::text::{pools, tensors};
use crate::words::{moment, percent, size};

pub(super) fn write(page: &mut Markdown, summary: &Summary, level: usize) {
    let (devices, host) = told(summary);
    for ledger in devices {
        write_one(page, summary, ledger, level);
    }
    if let Some(ledger) = host {
        write_one(page, summary, ledger, level);
    }
    let of_pools: Vec<String> = pools::notes(summary).iter().map(|note| plain(note)).collect();
    if !of_pools.is_empty() {
        page.heading(level, "Pools of the program");
        page.list(false, &of_pools);
    }
}

fn write_one(page: &mut Markdown, summary: &Summary, ledger: &DeviceLedger, level: usize) {
    page.heading(level, &format!("Who holds {}", ledger.place()));
    let when = match ledger.moment.strip_prefix("oom:") {
        Some(number) => format!("At failure {number}, {}.", moment(ledger.at_ns)),
        None => format!("At the {}, {}.", ledger.moment, moment(ledger.at_ns)),
    };
    page.paragraph(&plain(&when));
    let share = |bytes: u64| {
        let total = ledger.total_bytes.filter(|total| *total > 0);
        total.map(|total| percent(bytes as f64 / total as f64)).unwrap_or_default()
    };
    let line = |who: String, caller: String, bytes: u64, source: &str| {
        vec![who, caller, size(bytes), share(bytes), plain(source)]
    };
    let apart = tensors::of(summary, ledger).and_then(|(all, at)| tensors::take_apart(ledger, all, at));
    let holders = apart.as_ref().map_or(&ledger.rows, |apart| &apart.rows);
    let (shown, rest) = holders.split_at(holders.len().min(MOST_ROWS));
    let of_tensors = apart.iter().flat_map(|apart| &apart.lines);
    let of_tensors =
        of_tensors.map(|taken| line(plain(&who(&taken.text)), String::new(), taken.bytes, "the allocator"));
    let mut rows: Vec<Vec<String>> = of_tensors
        .chain(shown.iter().map(|row| {
            let (owner, what) = describe_holder(row);
            let mut cells = line(plain(&format!("{owner}: {what}")), caller(row), row.bytes, row.source);
            if row.asked_bytes > row.bytes {
                // How much of it lies here nobody knows: no number, and no share.
                cells[0] = plain(&format!("{owner}: {what}, {} asked; its pages move", size(row.asked_bytes)));
                let at_least = if row.bytes == 0 { "?".to_owned() } else { format!("at least {}", size(row.bytes)) };
                (cells[2], cells[3]) = (at_least, "?".to_owned());
            }
            cells
        }))
        .collect();
    if !rest.is_empty() {
        let bytes = rest.iter().fold(0u64, |sum, row| sum.saturating_add(row.bytes));
        rows.push(line(format!("{} more", rest.len()), String::new(), bytes, ""));
    }
    if let Some(bytes) = ledger.unattributed_bytes {
        rows.push(line("unattributed".to_owned(), String::new(), bytes, "the remainder"));
    }
    if let Some((bytes, by)) = ledger.free_bytes.zip(ledger.free_by) {
        rows.push(line("free".to_owned(), String::new(), bytes, by));
    }
    page.table(&["who", "asked through", ">bytes", ">of the card", "by"], &rows);
    let of_tensors = tensors::note(summary, ledger).into_iter().chain(tensors::others(summary, ledger));
    let notes: Vec<String> = of_tensors.chain(notes(ledger)).map(|note| plain(&note)).collect();
    page.list(false, &notes);
}

/// A line whose owner stands in a column of its own, in one cell.
fn who(text: &str) -> String {
    text.split_once("  ").map_or(text.to_owned(), |(owner, what)| format!("{owner}: {}", what.trim_start()))
}

fn caller(row: &Row) -> String {
    let parts = [row.api.as_deref(), row.library.as_deref()];
    let parts: Vec<String> = parts.into_iter().flatten().map(code).collect();
    parts.join(", ")
}
