//! Who allocated what lives at the most telling moment of each device, and which names are missing.

use super::{stack::source, tensors};
use crate::conclusion::Summary;
use crate::passes::callers::{Amount, CallerRow, Callers, LeftOut};
use crate::passes::ledger::DeviceLedger;
use crate::replay::blocks::Owner;
use crate::report::apart::way_behind;
use crate::report::page::{Page, Paint};
use crate::symbols::FrameKind;
use crate::symbols::own::behind;
use crate::symbols::plumbing::only_passes_on;
use crate::words::{clean, count, gib_number, grouped, mib_number, moment, shorten};

/// Callers that are shown of one device.
const MOST_ROWS: usize = 8;
/// Sums in which nothing is larger are told in MiB.
const SMALLEST_IN_GIB: u64 = 1 << 30;
/// Before what a caller asked for as managed memory.
pub(in crate::report) const MANAGED_MARK: &str = "managed, may lie in RAM: ";
/// Before a caller whose stack was not measured by unwind tables alone.
const INFERRED_MARK: &str = "~ ";
/// What that means.
pub(in crate::report) const INFERRED: &str =
    "~ inferred from frame pointers, because code on the way has no unwind tables: frames may be missing or wrong";
/// What the rows are where PyTorch's segments are among them.
const OF_SEGMENTS: &str = "a segment of PyTorch's counts for the place that needed it first, even where that has long been freed; whose tensors lie in \
     it now stands above";
/// Libraries without names that are listed.
const MOST_MISSING: usize = 5;

pub(super) fn write(page: &mut Page, summary: &Summary) {
    told(summary).into_iter().for_each(|ledger| write_one(page, summary, ledger));
    write_missing(page, summary);
}

/// The most telling moment of each device, and of pinned host memory, where callers have names.
pub(in crate::report) fn told(summary: &Summary) -> Vec<&DeviceLedger> {
    let mut last = None;
    let devices = summary.facts.ledger.iter().filter(|ledger| ledger.tells());
    // The first of each device is its most telling moment.
    let first = devices.filter(|ledger| last.replace(ledger.device) != Some(ledger.device));
    first.chain(summary.facts.host_ledger.first()).filter(|ledger| is_named(&ledger.allocated_by)).collect()
}

/// Libraries alone stand among the holders already.
fn is_named(callers: &Callers) -> bool {
    callers.rows.iter().any(|row| row.frame.function.is_some())
}

fn write_one(page: &mut Page, summary: &Summary, ledger: &DeviceLedger) {
    let place = ledger.place();
    let when = match ledger.moment.strip_prefix("oom:") {
        Some(number) => format!("at failure #{number}, {}", moment(ledger.at_ns)),
        None => format!("at the {}, {}", ledger.moment, moment(ledger.at_ns)),
    };
    page.headed(&format!("WHO ALLOCATED {place}"), Paint::Bold, &when);
    let rows = &ledger.allocated_by.rows;
    let most = rows.iter().map(|row| row.bytes.max(row.managed_bytes)).max().unwrap_or(0);
    let (unit, number): (_, fn(u64) -> String) =
        if most < SMALLEST_IN_GIB { ("MiB", mib_number) } else { ("GiB", gib_number) };
    line(page, "", unit, "blocks");
    let (lines, has_inferred) = lines(&ledger.allocated_by);
    lines.iter().for_each(|(text, amount)| line(page, text, &number(amount.bytes), &grouped(amount.blocks)));
    if has_inferred {
        page.indented("  ", "    ", INFERRED);
    }
    if tensors::of(summary, ledger).is_some_and(|(told, _)| told.owner == Owner::Torch) {
        page.indented("  ", "    ", OF_SEGMENTS);
    }
    page.gap();
}

/// Who allocated how much, with those who are not shown as one; and whether the way to any of them is marked as inferred.
pub(in crate::report) fn lines(callers: &Callers) -> (Vec<(String, Amount)>, bool) {
    let (shown, rest) = callers.rows.split_at(callers.rows.len().min(MOST_ROWS));
    let amount = |row: &CallerRow| {
        let CallerRow { bytes, blocks, managed_bytes, managed_blocks, .. } = *row;
        Amount { bytes, blocks, managed_bytes, managed_blocks }
    };
    let mut lines: Vec<_> = Vec::new();
    shown.iter().for_each(|row| add_lines(&mut lines, describe(row, &way_of(row, shown)), amount(row)));
    if lines.len() < shown.len() {
        lines.sort_by_key(|(_, amount)| std::cmp::Reverse(amount.bytes));
    }
    let LeftOut { callers: others, bytes, blocks, managed_bytes, managed_blocks } = callers.left_out;
    let others = others + rest.len() as u64;
    if others > 0 {
        let mut sum = Amount { bytes, blocks, managed_bytes, managed_blocks };
        rest.iter().for_each(|row| sum.add(amount(row)));
        add_lines(&mut lines, format!("{} more", grouped(others)), sum);
    }
    if callers.unknown.blocks + callers.unknown.managed_blocks > 0 {
        add_lines(&mut lines, "calls whose place is not known".to_owned(), callers.unknown);
    }
    (lines, shown.iter().any(|row| row.stack_is_inferred))
}

/// One line for what belongs on the card, and one for managed memory: bytes and blocks are of the same memory. What reads the same is one
/// line: nobody could tell two apart.
fn add_lines(lines: &mut Vec<(String, Amount)>, text: String, amount: Amount) {
    let Amount { bytes, blocks, managed_bytes, managed_blocks } = amount;
    let mut add = |text: String, amount: Amount| match lines.iter_mut().find(|(known, _)| *known == text) {
        Some((_, sum)) => sum.add(amount),
        None => lines.push((text, amount)),
    };
    if managed_blocks == 0 || blocks > 0 {
        add(text.clone(), Amount { bytes, blocks, ..Amount::default() });
    }
    if managed_blocks > 0 {
        add(
            format!("{MANAGED_MARK}{text}"),
            Amount { bytes: managed_bytes, blocks: managed_blocks, ..Amount::default() },
        );
    }
}

/// `way` is told behind the function, where several rows have the same one.
fn describe(caller: &CallerRow, way: &str) -> String {
    let label = clean(&caller.label);
    let (function, place) =
        label.split_once(" (").map_or((label.as_str(), ""), |(name, _)| (name, &label[name.len()..]));
    let mark = if caller.stack_is_inferred { INFERRED_MARK } else { "" };
    match (caller.frame.kind, source(&caller.frame), caller.frame.line) {
        (FrameKind::Native, Some(source), _) => format!("{mark}{function}{way}{place}  {source}"),
        // The file stands in the label already.
        (FrameKind::Python, Some(source), Some(_)) => {
            let behind = clean(&behind(caller.asked_by.as_ref(), true));
            format!("{mark}{function}{way} ({source}{behind})")
        }
        _ => format!("{mark}{function}{way}{place}"),
    }
}

/// What tells a row from the others with its label.
fn way_of(row: &CallerRow, rows: &[CallerRow]) -> String {
    let same = rows.iter().filter(|other| other.label == row.label).map(|other| &other.key[..]);
    way_behind(row.frame.function.as_deref().unwrap_or_default(), &row.key, same)
}

fn line(page: &mut Page, text: &str, bytes: &str, blocks: &str) {
    let wide = page.look.width.min(100) - 24;
    let (text, below) = folded(text, wide);
    page.line(&format!("  {:<wide$}{bytes:>9}  {blocks:>9}", shorten(&text, wide)));
    if let Some(below) = below {
        page.line(&format!("    {}", shorten(below, wide)));
    }
}

/// A text that is too wide, in two: the program's line, and below it the package's function that asked.
fn folded(text: &str, wide: usize) -> (String, Option<&str>) {
    let asked = text.strip_suffix(')').filter(|_| text.chars().count() > wide);
    match asked.and_then(|text| text.rsplit_once(", in ")) {
        Some((own, _)) => (format!("{own})"), Some(&text[own.len() + 2..text.len() - 1])),
        None => (text.to_owned(), None),
    }
}

/// Whether the trace tells more than return addresses, so that names would be worth something.
fn has_stacks(summary: &Summary) -> bool {
    let rows = summary.facts.ledger.iter().flat_map(|ledger| &ledger.allocated_by.rows);
    let stacks = summary.facts.ooms.iter().map(|oom| &oom.stack).chain(rows.map(|row| &row.stack));
    stacks.into_iter().any(|stack| stack.len() > 1 || stack.iter().any(|frame| frame.function.is_some()))
}

/// Libraries of the program without names, and what to do about it.
fn write_missing(page: &mut Page, summary: &Summary) {
    let own = summary.facts.symbols_missing.iter().filter(|missing| !only_passes_on(&missing.module));
    let own: Vec<_> = own.collect();
    if own.is_empty() || !has_stacks(summary) {
        return;
    }
    let libraries = count(own.len() as u64, "library", "libraries");
    page.headed(
        "NAMES MISSING",
        Paint::Bold,
        &format!("functions of {libraries} have no names; --symbols DIR names a place with the recorded files"),
    );
    for missing in own.iter().take(MOST_MISSING) {
        let name = shorten(&clean(&missing.module), 60);
        page.indented("  ", "    ", &format!("{name}: {}", clean(&missing.reason)));
    }
    if own.len() > MOST_MISSING {
        page.line(&format!("  ... {} more", own.len() - MOST_MISSING));
    }
    page.gap();
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::symbols::Frame;

    fn row(label: &str, key: &str) -> CallerRow {
        CallerRow {
            bytes: 1,
            blocks: 1,
            managed_bytes: 0,
            managed_blocks: 0,
            key: key.into(),
            label: label.into(),
            frame: Frame::native(0),
            asked_by: None,
            ways: 1,
            stack: Vec::new(),
            stack_is_cut: false,
            stack_is_inferred: false,
        }
    }

    /// Two ways through a library to one line of the program: nothing that is told tells them apart.
    #[test]
    fn rows_that_read_the_same_are_one() {
        let line = |key: &str, bytes: u64| {
            let frame = Frame::python("/home/me/leak.py", "main", 14);
            CallerRow { bytes, frame, ..row("main (leak.py)", key) }
        };
        let rows = vec![line("a!x < leak.py!main", 5), row("other (app)", "app!other"), line("b!y < leak.py!main", 3)];
        let rows = rows.into_iter().map(|one| CallerRow { bytes: one.bytes.max(4), ..one }).collect();
        let (lines, _) = lines(&Callers { rows, ..Callers::default() });
        let told: Vec<_> = lines.iter().map(|(text, amount)| (text.as_str(), amount.bytes, amount.blocks)).collect();
        assert_eq!(told, [("main (leak.py:14)", 9, 2), ("other (app)", 4, 1)]);
    }

    #[test]
    fn rows_of_one_function_are_told_apart_by_its_callers() {
        let rows = [
            row("allocate (app)", "app!allocate < app!load < app!main"),
            row("allocate (app)", "app!allocate < app!grow < app!step < app!main"),
            row("allocate (app)", "app!allocate < app!grow < app!main"),
            row("main (app)", "app!main"),
        ];
        let told: Vec<String> = rows.iter().map(|one| describe(one, &way_of(one, &rows))).collect();
        let expected =
            ["allocate < load (app)", "allocate < grow < step (app)", "allocate < grow < main (app)", "main (app)"];
        assert_eq!(told, expected);
    }
}
