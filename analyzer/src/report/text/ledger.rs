//! Who holds the memory of each device, and pinned host memory.

use crate::conclusion::Summary;
use crate::passes::holders::PROGRAM;
use crate::passes::ledger::{DeviceLedger, ReadingRow, Row};
use crate::report::page::{Page, Paint};
use crate::report::text::tensors::{self, Apart};
use crate::words::{clean, count, gib_number, mib_number, moment, percent, shorten, size};

/// Rows that are shown of one ledger; smaller ones are summed up.
pub(in crate::report) const MOST_ROWS: usize = 10;
/// Ledgers in which nothing is larger are told in MiB.
const SMALLEST_IN_GIB: u64 = 1 << 30;
/// Sources that agree to this are not listed beside each other.
const AGREES_BYTES: u64 = 1 << 20;
/// Readings that came so much later than the peak that they are set beside are said to be later, in nanoseconds.
const LATER_NS: u64 = 10_000_000;

pub(super) fn write(page: &mut Page, summary: &Summary) {
    let (devices, host) = told(summary);
    for ledger in devices {
        write_one(page, summary, &format!("WHO HOLDS {}", ledger.place()), ledger);
    }
    if let Some(ledger) = host {
        write_one(page, summary, &format!("WHO HOLDS {}", ledger.place()), ledger);
    }
}

/// The ledgers that are told: each device at its most telling moment, and the host.
pub(in crate::report) fn told(summary: &Summary) -> (Vec<&DeviceLedger>, Option<&DeviceLedger>) {
    let mut devices: Vec<&DeviceLedger> = Vec::new();
    for ledger in summary.facts.ledger.iter().filter(|ledger| ledger.tells()) {
        // The first of each device is its most telling moment.
        if devices.last().is_none_or(|last| last.device != ledger.device) {
            devices.push(ledger);
        }
    }
    // Pinned memory that only the program asked for stands in the section before.
    let tells = |ledger: &&DeviceLedger| ledger.rows.iter().any(|row| row.owner != PROGRAM) || ledger.moment != "peak";
    (devices, summary.facts.host_ledger.first().filter(tells))
}

fn write_one(page: &mut Page, summary: &Summary, heading: &str, ledger: &DeviceLedger) {
    let at = moment(ledger.at_ns);
    let when = match ledger.moment.strip_prefix("oom:") {
        Some(number) => format!("at failure #{number}, {at}"),
        None => format!("at the {}, {at}", ledger.moment),
    };
    page.headed(heading, Paint::Bold, &when);
    let apart = tensors::of(summary, ledger).and_then(|(all, at)| tensors::take_apart(ledger, all, at));
    write_rows(page, ledger, apart.as_ref());
    let of_tensors = tensors::note(summary, ledger).into_iter().chain(tensors::share_with_python(summary, ledger));
    of_tensors.chain(tensors::others(summary, ledger)).for_each(|text| page.indented("  ", "  ", &text));
    write_notes(page, ledger);
    page.gap();
}

fn write_rows(page: &mut Page, ledger: &DeviceLedger, apart: Option<&Apart>) {
    let share = |bytes: u64| {
        let total = ledger.total_bytes.filter(|total| *total > 0);
        total.map(|total| percent(bytes as f64 / total as f64)).unwrap_or_default()
    };
    let wide = text_width(page);
    // Small cards and small sums are told in smaller units.
    let most = ledger.total_bytes.into_iter().chain(ledger.rows.iter().map(|row| row.bytes)).max().unwrap_or(0);
    let (unit, number): (_, fn(u64) -> String) =
        if most < SMALLEST_IN_GIB { ("MiB", mib_number) } else { ("GiB", gib_number) };
    row(page, "", unit, if ledger.total_bytes.is_some() && !ledger.is_host { "% of the card" } else { "" });
    let line = |page: &mut Page, text: &str, bytes: Option<u64>| match bytes {
        Some(bytes) => row(page, text, &number(bytes), &share(bytes)),
        None => row(page, text, "?", "?"),
    };
    let (lines, rows) = match apart {
        Some(Apart { lines, rows }) => (&lines[..], &rows[..]),
        None => (&[][..], &ledger.rows[..]),
    };
    for taken in lines {
        let (text, below) = taken.folded(wide);
        line(page, &text, Some(taken.bytes));
        if let Some(below) = below {
            page.line(&format!("  {:<18} {}", "", shorten(&below, wide)));
        }
    }
    let (shown, rest) = rows.split_at(rows.len().min(MOST_ROWS));
    for holder in shown {
        // Of pages that move nobody told how many lie here; what lower layers gave is the least.
        let is_unknown = holder.bytes == 0 && holder.asked_bytes > 0;
        line(page, &describe(holder, wide), Some(holder.bytes).filter(|_| !is_unknown));
    }
    if !rest.is_empty() {
        let bytes = rest.iter().fold(0u64, |sum, row| sum.saturating_add(row.bytes));
        line(page, &format!("{} more", rest.len()), Some(bytes));
    }
    if let Some(bytes) = ledger.unattributed_bytes {
        line(page, &unattributed(ledger, wide), Some(bytes));
    }
    if let Some((bytes, by)) = ledger.free_bytes.zip(ledger.free_by) {
        line(page, &format!("free, by {by}"), Some(bytes));
    }
}

/// The remainder. Pages of managed memory that lie on the card are in it, because nobody told how many do.
fn unattributed(ledger: &DeviceLedger, wide: usize) -> String {
    let is_of_none = ledger.unattributed_in_process_bytes.is_some_and(|bytes| bytes <= AGREES_BYTES);
    let all = match ledger.has_moving_pages() {
        true => "unattributed (the remainder; what moves is among it)",
        // What the driver counts for this process was read, and the remainder is not in it. Nobody tells whose it is.
        false if is_of_none && kept_by_pools(ledger).is_none() => {
            "unattributed (the remainder: in no call and no reading)"
        }
        // Rounding, contexts and pools may be in it, or a reading tells something of it, which the notes say.
        false => "unattributed (the remainder: in none of these rows)",
    };
    if all.chars().count() <= wide { all.to_owned() } else { "unattributed (the remainder)".to_owned() }
}

fn write_notes(page: &mut Page, ledger: &DeviceLedger) {
    notes(ledger).iter().for_each(|text| page.indented("  ", "  ", text));
}

/// What must be said beside the rows.
pub(in crate::report) fn notes(ledger: &DeviceLedger) -> Vec<String> {
    let mut notes = Vec::new();
    let mut note = |text: String| notes.push(text);
    if ledger.free_bytes.is_none() && ledger.device.is_some() {
        note("the rest was not measured at that moment".to_owned());
    }
    // What others took or gave back in between is in what was read.
    if let Some(read_at) = ledger.read_at_ns.filter(|at| at.saturating_sub(ledger.at_ns) >= LATER_NS) {
        note(format!(
            "what is free and what others hold was read at {}, with as much held as at the peak; nobody read it at the peak itself",
            moment(read_at)
        ));
    }
    if let Some(bytes) = ledger.unattributed_in_process_bytes.filter(|bytes| *bytes > AGREES_BYTES) {
        let managed = if ledger.has_moving_pages() { "memory that may lie in RAM as well, " } else { "" };
        note(format!(
            "{} of the remainder are this process's by the driver: {managed}what rounding adds to blocks, contexts, code, page tables, what pools keep",
            size(bytes)
        ));
    }
    notes.extend(kept_by_pools(ledger));
    let mut note = |text: String| notes.push(text);
    if let Some(bytes) = ledger.overattributed_bytes.filter(|bytes| *bytes > AGREES_BYTES) {
        note(format!(
            "the rows above are {} more than {} says is used: part of them is not on the card, is not counted there, or was given back before it was read",
            size(bytes),
            ledger.free_by.unwrap_or("the reading")
        ));
    }
    if disagree(&ledger.readings) {
        let parts: Vec<String> = ledger.readings.iter().map(describe_reading).collect();
        note(format!("read then: {}", parts.join("; ")));
    }
    for (bytes, what) in [
        (ledger.reserved_bytes, "of address space is reserved; that holds no memory"),
        (ledger.imported_bytes, "of another process's memory is open here; it counts there"),
    ] {
        if bytes > 0 {
            note(format!("{} {what}", size(bytes)));
        }
    }
    notes
}

/// What the calls of pools tell of the remainder.
fn kept_by_pools(ledger: &DeviceLedger) -> Option<String> {
    let rest = ledger.unattributed_bytes.filter(|bytes| *bytes > 0 && ledger.may_be_kept_by_pools())?;
    Some(match ledger.returned_to_pools_bytes {
        Some(returned) => format!(
            "up to {} of the remainder may be what pools keep: calls gave {} back to them before",
            size(rest.min(ledger.pools_keep_at_most_bytes.unwrap_or(returned))),
            size(returned)
        ),
        None => {
            "some of the remainder may be what pools keep: the calls gave memory back to them over the run".to_owned()
        }
    })
}

/// Whether the sources say different things, or one says what no other does.
fn disagree(readings: &[ReadingRow]) -> bool {
    let free: Vec<u64> = readings.iter().filter_map(|reading| reading.free_bytes).collect();
    let apart = |one: &u64| free.first().is_some_and(|first| one.abs_diff(*first) > AGREES_BYTES);
    free.iter().any(apart) || readings.iter().any(|reading| reading.process_bytes.is_some())
}

fn describe_reading(reading: &ReadingRow) -> String {
    let free = reading.free_bytes.map(|bytes| match reading.total_bytes {
        Some(total) => format!("{} of {} free", size(bytes), size(total)),
        None => format!("{} to be had", size(bytes)),
    });
    let process = reading.process_bytes.map(|bytes| format!("{} held by this process", size(bytes)));
    let parts: Vec<String> = free.into_iter().chain(process).collect();
    format!("{} {}", reading.source, parts.join(", "))
}

/// Who holds a row, and what.
pub(in crate::report) fn describe_holder(row: &Row) -> (&'static str, String) {
    match row.owner {
        "rounding" => ("rounding", format!("of {}{}, and blocks for reuse", kind_name(row), in_layer(row))),
        "still pinned" => {
            ("still pinned", format!("{}{}, beyond what the program has registered", kind_name(row), in_layer(row)))
        }
        "runtime pools and caches" => ("runtime", "pools and caches beyond what was handed out".to_owned()),
        "contexts and library handles" => ("set-up", format!("contexts and library handles{}", blocks(row))),
        "other processes" | "graphics clients" => ("others", format!("{}, by {}", row.owner, row.source)),
        "in no process" => ("no process", format!("the driver's own, managed memory, by {}", row.source)),
        "not this process" => ("others", format!("other processes, or the driver itself, by {}", row.source)),
        "driver reserve" => ("driver", format!("reserve, by {}", row.source)),
        owner => (owner, format!("{}{}", kind_name(row), blocks(row))),
    }
}

fn describe(row: &Row, wide: usize) -> String {
    let (owner, what) = describe_holder(row);
    let mut text = format!("{owner:<16} {what}");
    if row.asked_bytes > row.bytes {
        let moves = format!(", {} asked; its pages move", size(row.asked_bytes));
        if text.chars().count() + moves.chars().count() > wide {
            // What it is says more than in how many blocks.
            text = format!("{owner:<16} {}", kind_name(row));
        }
        text.push_str(&moves);
    }
    // Who called is said as far as there is room.
    let api = row.api.as_deref().map(clean);
    let both = api.as_ref().zip(row.library.as_deref().map(clean)).map(|(api, library)| format!("{api}, {library}"));
    let callers = [both, api].into_iter().flatten().map(|caller| format!("{text} ({caller})"));
    let fitting = callers.into_iter().find(|line| line.chars().count() <= wide);
    fitting.unwrap_or(text)
}

fn blocks(row: &Row) -> String {
    if row.blocks == 0 { String::new() } else { format!(", {}", count(row.blocks, "block", "blocks")) }
}

/// Where a row of that name stands for each layer that rounds.
fn in_layer(row: &Row) -> String {
    match row.layer {
        Some("hsa") => " (HSA)".to_owned(),
        Some(layer) => format!(" ({layer})"),
        None => String::new(),
    }
}

fn kind_name(row: &Row) -> &'static str {
    match row.kind {
        "device" => "device memory",
        "managed" if row.api.as_deref().is_some_and(|api| api.starts_with("DRM_")) => "GEM buffers",
        "managed" => "managed memory",
        "array" => "arrays",
        "physical" => "VMM memory",
        "pool" => "stream-ordered memory",
        "code" => "code objects",
        "queue" => "queues",
        "host-pinned" => "pinned host memory",
        "registered" if row.owner == "runtime" => "host memory pinned for copies",
        "registered" => "registered host memory",
        other => other,
    }
}

fn text_width(page: &Page) -> usize {
    page.look.width.min(100) - 28
}

fn row(page: &mut Page, text: &str, bytes: &str, share: &str) {
    let wide = text_width(page);
    let text = shorten(text, wide);
    page.line(&format!("  {text:<wide$}{bytes:>9}  {share:>13}"));
}
