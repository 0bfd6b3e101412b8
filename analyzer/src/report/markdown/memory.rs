//! What the program's own calls asked for: peaks and ends.

use super::page::Markdown;
use crate::conclusion::Summary;
use crate::passes::account::AccountSummary;
use crate::words::{gpu, grouped, moment, percent, size};

pub(super) fn write(page: &mut Markdown, summary: &Summary, level: usize) {
    let used = |account: &AccountSummary| account.allocations + account.failures + account.empty_allocations > 0;
    let mut rows: Vec<Vec<String>> = Vec::new();
    for device in summary.facts.devices.iter().filter(|device| used(&device.account)) {
        let total = device.total_bytes.filter(|total| *total > 0);
        // Of what may lie in RAM nobody knows how much lay on the card.
        let peak = &device.account.peak;
        let share = total.filter(|_| peak.managed_bytes == 0);
        let share = share.map(|total| percent(peak.requested_bytes as f64 / total as f64));
        rows.push(row(gpu(device.index), &device.account, share));
    }
    if used(&summary.facts.host) {
        rows.push(row("host, pinned".to_owned(), &summary.facts.host, None));
    }
    if rows.is_empty() {
        return;
    }
    page.heading(level, "Memory");
    page.paragraph(
        "What the program's own calls asked for, counted once. Padded sizes are a model, not a measurement.",
    );
    page.table(
        &[
            "",
            ">peak asked",
            ">of the card",
            ">peak padded (model)",
            ">at",
            ">allocations",
            ">freed",
            ">failed",
            ">left at the end",
        ],
        &rows,
    );
}

fn row(name: String, account: &AccountSummary, share: Option<String>) -> Vec<String> {
    vec![
        name,
        match account.peak.managed_bytes {
            0 => size(account.peak.requested_bytes),
            managed => {
                let all = size(account.peak.requested_bytes);
                format!("{all}, {} of it managed, which may lie in RAM", size(managed))
            }
        },
        share.unwrap_or_default(),
        size(account.peak.padded_bytes),
        moment(account.peak.at_ns),
        grouped(account.allocations),
        grouped(account.frees),
        grouped(account.failures),
        format!("{} in {}", size(account.end.requested_bytes), grouped(account.end.live_allocations)),
    ]
}
