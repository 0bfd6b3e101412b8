//! What pools of the program's own told that is not counted.

use crate::conclusion::Summary;
use crate::report::page::{Page, Paint};

pub(super) fn write(page: &mut Page, summary: &Summary) {
    let notes = notes(summary);
    if notes.is_empty() {
        return;
    }
    page.headed("POOLS", Paint::Bold, "what the program's own pools told, and what of it is not counted");
    notes.iter().for_each(|text| page.indented("  ", "    ", text));
    page.gap();
}

/// A sentence each.
pub(in crate::report) fn notes(summary: &Summary) -> Vec<String> {
    let trace = &summary.facts.trace;
    let is_whole = trace.events_lost == 0 && trace.torn_events == 0 && summary.facts.damages.is_empty();
    summary.facts.pools.iter().flat_map(|pool| pool.notes(is_whole)).collect()
}
