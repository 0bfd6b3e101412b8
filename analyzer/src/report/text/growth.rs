//! Memory that grows from cycle to cycle: one paragraph, and only where it is significant.

use crate::passes::growth::{Growth, RunsOut};
use crate::passes::summary::Summary;
use crate::report::page::{Page, Paint};
use crate::words::{clean, count, gpu, size, span};

pub(super) fn write(page: &mut Page, summary: &Summary) {
    let significant: Vec<&Growth> = summary.growth.iter().filter(|growth| growth.significant).collect();
    if significant.is_empty() {
        return;
    }
    page.headed("GROWTH", Paint::Bold, "what stays between cycles, a line through its floors");
    for growth in significant {
        let ran_out = summary.ooms.iter().any(|oom| oom.device == growth.device);
        page.indented("  ", "  ", &describe(growth, ran_out));
    }
    page.gap();
}

fn describe(growth: &Growth, ran_out: bool) -> String {
    let rate = &growth.per_cycle;
    let bytes = |rate: f64| size(rate.max(0.0) as u64);
    let mut text = format!(
        "{}: {} more after each cycle (95 %: {} to {}), {} in {}",
        gpu(growth.device),
        bytes(rate.bytes),
        bytes(rate.low),
        bytes(rate.high),
        size(growth.total_bytes.unsigned_abs()),
        count(growth.cycles as u64, "cycle", "cycles"),
    );
    if let Some(runs_out) = growth.runs_out.as_ref().filter(|_| !ran_out) {
        text.push_str(&describe_end(runs_out));
    }
    if growth.few_points {
        text.push_str("; the line rests on few points");
    }
    if let Some(suspect) = growth.suspects.first() {
        text.push_str(&format!(
            "; most of what stays: {} of {} by {}{}",
            count(suspect.blocks, "block", "blocks"),
            size(suspect.block_bytes),
            clean(&suspect.api),
            suspect.site.as_ref().map(|site| format!(" called at {site}")).unwrap_or_default(),
        ));
    }
    text
}

fn describe_end(runs_out: &RunsOut) -> String {
    let latest = match runs_out.latest_ns {
        Some(latest) => format!("{} to {}", span(runs_out.soonest_ns), span(latest)),
        None => format!("{} at the earliest", span(runs_out.soonest_ns)),
    };
    let by = if runs_out.room_was_read { "by the lowest reading" } else { "by the card's size, others not counted" };
    format!(
        "; at this rate the {} that are left ({by}) last {} ({latest}), or about {}",
        size(runs_out.room_bytes),
        span(runs_out.in_ns),
        count(runs_out.in_cycles as u64, "cycle", "cycles"),
    )
}
