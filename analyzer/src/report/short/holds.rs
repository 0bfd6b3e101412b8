//! Who holds the memory at the failure that decides: at most five rows, which add up to what was known of the card.

use super::INDENT;
use crate::conclusion::Summary;
use crate::passes::ledger::DeviceLedger;
use crate::report::page::{Page, Paint};
use crate::report::text::ledger::{describe_holder, told};
use crate::report::text::tensors::{self, TakenLine};
use crate::words::{clean, count, gib_number, mib_number, moment, percent, shorten, size};

/// Rows, with that of the free memory.
const MOST_ROWS: usize = 5;
/// Below this the numbers are told in MiB.
const SMALLEST_IN_GIB: u64 = 1 << 30;
/// What is less of the card than this share is not told by itself.
const SMALLEST_SHARE: f64 = 0.0005;
/// The least that is not 0.00 GiB.
const SMALLEST_SHOWN: u64 = (1 << 30) / 200;
/// Sums that differ by less agree.
const AGREES_BYTES: u64 = 1 << 20;
/// Columns of a number with its unit, and of a share.
const NUMBERS: usize = 22;

/// One row: `None` where nobody knows how much it is.
struct Row {
    text: String,
    bytes: Option<u64>,
}

pub(super) fn write(page: &mut Page, summary: &Summary) {
    let Some(ledger) = of_failure(summary) else { return };
    let (all, free) = rows(summary, ledger);
    if all.is_empty() && free.is_none() {
        return;
    }
    let most = ledger.total_bytes.into_iter().chain(all.iter().filter_map(|row| row.bytes)).max().unwrap_or(0);
    let number = |bytes: u64| match most < SMALLEST_IN_GIB {
        true => format!("{} MiB", mib_number(bytes)),
        false => format!("{} GiB", gib_number(bytes)),
    };
    let total = ledger.total_bytes.filter(|total| *total > 0 && !ledger.is_host);
    let share = |bytes: u64| total.map_or_else(String::new, |total| percent(bytes as f64 / total as f64));
    let wide = page.look.width - INDENT - NUMBERS;
    // What would be told as nothing is not told by itself either.
    let shown = if most < SMALLEST_IN_GIB { SMALLEST_SHOWN >> 10 } else { SMALLEST_SHOWN };
    let least = shown.max((most as f64 * SMALLEST_SHARE) as u64);
    for (place, row) in few(all, free, (least, shown)).iter().enumerate() {
        let (bytes, share) = row.bytes.map_or(("?".to_owned(), String::new()), |bytes| (number(bytes), share(bytes)));
        let text = format!("{:<wide$} {bytes:>12} {share:>7}", shorten(&row.text, wide));
        match place {
            0 => section_line(page, &text),
            _ => page.line(&format!("{}{text}", " ".repeat(INDENT))),
        }
    }
    if let Some(note) = note(summary, ledger) {
        page.indented(&" ".repeat(INDENT), &" ".repeat(INDENT), &note);
    }
}

/// A row that begins the section: its columns must stay, which a paragraph would not keep.
fn section_line(page: &mut Page, text: &str) {
    let heading = page.paint("  HOLDS", Paint::Bold);
    page.verbatim(&format!("{heading}  {text}"));
}

/// The ledger of the failure that decides, else of the most telling moment.
fn of_failure(summary: &Summary) -> Option<&DeviceLedger> {
    let number = summary.conclusion.verdict.oom?;
    let oom = summary.facts.ooms.iter().find(|oom| oom.number == number)?;
    let at = format!("oom:{number}");
    if matches!(oom.kind, "host-pinned" | "registered") {
        return summary.facts.host_ledger.iter().find(|ledger| ledger.moment == at);
    }
    let of_it = summary.facts.ledger.iter().find(|ledger| ledger.moment == at && ledger.device == oom.device);
    of_it.or_else(|| told(summary).0.into_iter().find(|ledger| ledger.device == oom.device))
}

/// All rows, the largest first, and the free memory.
fn rows(summary: &Summary, ledger: &DeviceLedger) -> (Vec<Row>, Option<Row>) {
    let apart = tensors::of(summary, ledger).and_then(|(all, at)| tensors::take_apart(ledger, all, at));
    let (taken, holders) = match &apart {
        Some(apart) => (&apart.lines[..], &apart.rows[..]),
        None => (&[][..], &ledger.rows[..]),
    };
    let of_blocks = taken.iter().map(|line| Row { text: whose(line), bytes: Some(line.bytes) });
    let of_calls = holders.iter().map(|holder| {
        let (owner, what) = describe_holder(holder);
        // Of pages that move nobody told how many lie here; what lower layers gave is the least.
        let is_unknown = holder.bytes == 0 && holder.asked_bytes > 0;
        Row { text: format!("{owner}: {}", clean(&what)), bytes: Some(holder.bytes).filter(|_| !is_unknown) }
    });
    let rest = ledger
        .unattributed_bytes
        .map(|bytes| Row { text: "unattributed: in none of these rows".to_owned(), bytes: Some(bytes) });
    let free = ledger.free_bytes.zip(ledger.free_by);
    let free = free.map(|(bytes, by)| Row { text: format!("free, by {by}"), bytes: Some(bytes) });
    let mut all: Vec<Row> = of_blocks.chain(of_calls).chain(rest).collect();
    all.retain(|row| row.bytes != Some(0));
    all.sort_by_key(|row| std::cmp::Reverse(row.bytes.unwrap_or(u64::MAX)));
    (all, free)
}

/// Whose tensors or buffers, without the columns of the full page.
fn whose(line: &TakenLine) -> String {
    match line.text.split_once("  ") {
        Some((owner, what)) => format!("{owner}: {}", what.trim_start()),
        None => line.text.clone(),
    }
}

/// The largest rows, and one for the sum of the others: of those that are too small to show and of those that there is no room for.
fn few(mut all: Vec<Row>, free: Option<Row>, (least, shown): (u64, u64)) -> Vec<Row> {
    let room = MOST_ROWS - usize::from(free.is_some());
    let large = all.iter().take_while(|row| row.bytes.is_none_or(|bytes| bytes >= least)).count();
    let kept = if large == all.len() && large <= room { large } else { large.min(room - 1) };
    let others = all.split_off(kept);
    let bytes = others.iter().try_fold(0u64, |sum, row| Some(sum.saturating_add(row.bytes?)));
    match &others[..] {
        // All of them are told as nothing.
        _ if bytes.is_some_and(|bytes| bytes < shown) => {}
        [_] => all.extend(others),
        _ => {
            all.push(Row { text: format!("all else, {}", count(others.len() as u64, "row", "rows")), bytes });
        }
    }
    all.extend(free);
    all
}

/// What must be said beside the rows: where they are no whole, or too much.
fn note(summary: &Summary, ledger: &DeviceLedger) -> Option<String> {
    if let Some(bytes) = ledger.overattributed_bytes.filter(|bytes| *bytes > AGREES_BYTES) {
        let by = ledger.free_by.unwrap_or("the reading");
        return Some(format!("the rows are {} more than {by} says is used", size(bytes)));
    }
    let is_of_failure = ledger.moment.starts_with("oom:");
    if !is_of_failure {
        return Some(format!("at the {}, {}", ledger.moment, moment(ledger.at_ns)));
    }
    if ledger.free_bytes.is_none() && ledger.device.is_some() {
        return Some("the rest was not measured at that moment".to_owned());
    }
    tensors::note(summary, ledger)
}
