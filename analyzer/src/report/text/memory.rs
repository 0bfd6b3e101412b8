//! What the program's own calls asked for: peaks and ends.

use crate::conclusion::Summary;
use crate::passes::account::AccountSummary;
use crate::passes::device::DeviceSummary;
use crate::replay::blocks::Owner;
use crate::report::page::{Page, Paint};
use crate::words::{count, gpu, grouped, moment, percent, size, span};

pub(super) fn write(page: &mut Page, summary: &Summary) {
    let used = |account: &AccountSummary| account.allocations + account.failures + account.empty_allocations > 0;
    let devices: Vec<_> = summary.facts.devices.iter().filter(|device| used(&device.account)).collect();
    if devices.is_empty() && !used(&summary.facts.host) {
        return;
    }
    page.headed("MEMORY", Paint::Bold, "what the program's own calls asked for, counted once");
    for device in devices {
        let share = device.total_bytes.filter(|total| *total > 0).map(|total| {
            let peak = device.account.peak.requested_bytes;
            format!(" of {} ({} of the card)", size(total), percent(peak as f64 / total as f64))
        });
        let failed = failed(&device.account, attempts_beside(summary, device));
        write_account(page, &gpu(device.index), (&device.account, failed), &share.unwrap_or_default());
        write_tensors(page, device);
    }
    if used(&summary.facts.host) {
        let host = &summary.facts.host;
        write_account(page, "host ", (host, failed(host, 0)), " of pinned host memory");
    }
    let failed = summary.facts.failed_frees;
    if failed > 0 {
        let (calls, whose) = (count(failed, "call", "calls"), if failed == 1 { "its" } else { "their" });
        let text = format!(
            "{calls} to give memory back failed: the block that {whose} address lies in, if any, counts as held"
        );
        page.indented("  ", "  ", &text);
    }
    let latency = &summary.facts.allocation_latency_ns;
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

/// What PyTorch's tensors ever held: their peak may be at another moment than that of the segments they lie in.
fn write_tensors(page: &mut Page, device: &DeviceSummary) {
    let Some(tensors) = device.tensors.as_ref().filter(|tensors| tensors.owner == Owner::Torch) else { return };
    if tensors.mismatches == 0 && tensors.peak_allocated_bytes > 0 {
        let text = format!("PyTorch's tensors held {} at most", size(tensors.peak_allocated_bytes));
        let indent = " ".repeat(gpu(device.index).chars().count() + 4);
        page.indented(&indent, &indent, &text);
    }
}

/// Refused calls that led to errors of an allocator above the runtime, beside the one that counts for each error.
fn attempts_beside(summary: &Summary, device: &DeviceSummary) -> u64 {
    let errors = summary.facts.ooms.iter().filter(|oom| oom.device == device.index && oom.allocator.is_some());
    errors.map(|oom| (oom.attempts.len() as u64).saturating_sub(1)).sum()
}

/// Requests that failed: such an error is one, whatever calls were refused for it.
fn failed(account: &AccountSummary, more: u64) -> Option<String> {
    let failures = account.failures;
    (failures > 0).then(|| match more {
        0 => format!("{} failed", grouped(failures)),
        _ => format!("{} failed ({} refused)", grouped(failures), count(failures + more, "call", "calls")),
    })
}

fn write_account(page: &mut Page, name: &str, (account, failed): (&AccountSummary, Option<String>), of_total: &str) {
    let AccountSummary { allocations, frees, reset, replaced, registered_again, peak, end, .. } = account;
    let indent = " ".repeat(name.chars().count() + 4);
    // The moment when most was asked for need not be the one when most lay on the card.
    let (of_total, managed) = match peak.managed_allocations {
        0 => (of_total, String::new()),
        blocks => {
            let in_blocks = count(blocks, "block", "blocks");
            ("", format!(", {} of it in {in_blocks} that may lie in RAM", size(peak.managed_bytes)))
        }
    };
    let first = format!(
        "peak {} asked{of_total} at {}, in {}{managed}",
        size(peak.requested_bytes),
        moment(peak.at_ns),
        count(peak.live_allocations, "block", "blocks")
    );
    page.indented(&format!("  {name}  "), &indent, &first);
    let mut parts = vec![count(*allocations, "allocation", "allocations"), format!("{} freed", grouped(*frees))];
    parts.extend(failed);
    parts.extend((*reset > 0).then(|| format!("{} ended with a context or a device reset", grouped(*reset))));
    parts.extend((*replaced > 0).then(|| format!("{} whose free was not seen", grouped(*replaced))));
    let again = || format!("{} of memory that was registered already", grouped(*registered_again));
    parts.extend((*registered_again > 0).then(again));
    let left = match end.live_allocations {
        0 => "nothing left at the end".to_owned(),
        _ => format!("{} left at the end", end.in_words()),
    };
    page.indented(&indent, &indent, &format!("{}; {left}", parts.join(", ")));
}
