//! Who holds what: peaks, ends, and the ledger of each device.

use crate::passes::account::AccountSummary;
use crate::passes::ledger::{DeviceLedger, Row};
use crate::passes::summary::Summary;
use crate::report::page::{Page, Paint};
use crate::report::words::{count, gib_number, gpu, moment, percent, shorten, size, span};

pub(super) fn write_accounts(page: &mut Page, summary: &Summary) {
    let used = |account: &AccountSummary| account.allocations + account.failures + account.empty_allocations > 0;
    let devices: Vec<_> = summary.devices.iter().filter(|device| used(&device.account)).collect();
    if devices.is_empty() && !used(&summary.host) {
        return;
    }
    page.headed("MEMORY", Paint::Bold, "what the program's own calls asked for, counted once");
    for device in devices {
        let share = device.total_bytes.filter(|total| *total > 0).map(|total| {
            let peak = device.account.peak.requested_bytes;
            format!(" of {} ({} of the card)", size(total), percent(peak as f64 / total as f64))
        });
        write_account(page, &gpu(device.index), &device.account, &share.unwrap_or_default());
    }
    if used(&summary.host) {
        write_account(page, "host ", &summary.host, " of pinned host memory");
    }
    let latency = &summary.allocation_latency_ns;
    if latency.count > 0 {
        let text = format!(
            "an allocation call takes {} (median), 99 % are under {}, the longest took {}",
            span(latency.p50),
            span(latency.p99),
            span(latency.max)
        );
        page.indented("  ", "  ", &text);
    }
    page.gap();
}

fn write_account(page: &mut Page, name: &str, account: &AccountSummary, of_total: &str) {
    let AccountSummary { allocations, frees, failures, reset, replaced, peak, end, .. } = account;
    let indent = " ".repeat(name.chars().count() + 4);
    let first = format!(
        "peak {} asked{of_total} at {}, in {}",
        size(peak.requested_bytes),
        moment(peak.at_ns),
        count(peak.live_allocations, "block", "blocks")
    );
    page.indented(&format!("  {name}  "), &indent, &first);
    let mut parts = vec![count(*allocations, "allocation", "allocations"), format!("{frees} freed")];
    parts.extend((*failures > 0).then(|| format!("{failures} failed")));
    parts.extend((*reset > 0).then(|| format!("{reset} ended by a device reset")));
    parts.extend((*replaced > 0).then(|| format!("{replaced} whose free was not seen")));
    let left = match end.live_allocations {
        0 => "nothing left at the end".to_owned(),
        blocks => format!("{} in {} left at the end", size(end.requested_bytes), count(blocks, "block", "blocks")),
    };
    page.indented(&indent, &indent, &format!("{}; {left}", parts.join(", ")));
}

pub(super) fn write_ledger(page: &mut Page, summary: &Summary) {
    for ledger in summary.ledger.iter().filter(|ledger| !ledger.rows.is_empty()) {
        let when = match ledger.moment.strip_prefix("oom:") {
            Some(number) => format!("at failure #{number}, {}", moment(ledger.at_ns)),
            None => format!("at the peak, {}", moment(ledger.at_ns)),
        };
        page.headed(&format!("WHO HOLDS {}", gpu(ledger.device)), Paint::Bold, &when);
        write_rows(page, ledger);
        page.gap();
    }
}

fn write_rows(page: &mut Page, ledger: &DeviceLedger) {
    let share = |bytes: u64| {
        let total = ledger.total_bytes.filter(|total| *total > 0)?;
        Some(percent(bytes as f64 / total as f64))
    };
    let last = if ledger.total_bytes.is_some() { "% of the card" } else { "" };
    row(page, "", "GiB", last);
    for holder in &ledger.rows {
        row(page, &describe(holder), &gib_number(holder.bytes), &share(holder.bytes).unwrap_or_default());
    }
    if let Some(bytes) = ledger.unattributed_bytes {
        let text = "unattributed (others, rounding, code, scratch)";
        row(page, text, &gib_number(bytes), &share(bytes).unwrap_or_default());
    }
    match ledger.free_bytes {
        Some(bytes) => row(page, "free, by the runtime", &gib_number(bytes), &share(bytes).unwrap_or_default()),
        None => page.indented("  ", "  ", "the rest was not measured at that moment"),
    }
    if let Some(bytes) = ledger.overattributed_bytes {
        let text = format!(
            "the blocks above are {} more than the runtime says is used: part of them is not backed by memory",
            size(bytes)
        );
        page.indented("  ", "  ", &text);
    }
    for (bytes, what) in [
        (ledger.reserved_bytes, "of address space is reserved; that holds no memory"),
        (ledger.imported_bytes, "of another process's memory is open here; it counts there"),
    ] {
        if bytes > 0 {
            page.indented("  ", "  ", &format!("{} {what}", size(bytes)));
        }
    }
}

fn describe(row: &Row) -> String {
    let kind = match row.kind {
        "device" => "device memory",
        "managed" => "managed memory",
        "array" => "arrays (size not known here)",
        "physical" => "VMM memory",
        "pool" => "stream-ordered pools",
        other => other,
    };
    let when = if row.of_the_end { " (at the end of the trace)" } else { "" };
    format!("{:<16} {kind}, {}{when}", row.owner, count(row.blocks, "block", "blocks"))
}

fn row(page: &mut Page, text: &str, bytes: &str, share: &str) {
    let wide = page.look.width.min(100) - 28;
    let text = shorten(text, wide);
    page.line(&format!("  {text:<wide$}{bytes:>9}  {share:>13}"));
}
