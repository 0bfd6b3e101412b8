//! What this trace can't tell.

use crate::passes::summary::Summary;
use crate::report::page::{Page, Paint};
use crate::report::words::{clean, count, grouped};

pub(super) fn write(page: &mut Page, summary: &Summary) {
    let trace = &summary.trace;
    let mut parts = vec![format!(
        "{} recorded, {} lost, {} torn.",
        count(trace.events, "event", "events"),
        grouped(trace.events_lost),
        grouped(trace.torn_events)
    )];
    parts.extend(trace.trouble.map(|what| format!("The recorder had to leave events out, because {what}.")));
    if !summary.damages.is_empty() {
        parts.push(format!("{} of the file could not be read.", count(summary.damages.len() as u64, "part", "parts")));
    }
    if summary.unmatched_frees > 0 {
        parts.push(format!(
            "{} of addresses that the trace does not know.",
            count(summary.unmatched_frees, "free", "frees")
        ));
    }
    if !trace.clock_measured {
        parts.push("Times are estimates: the clock's rate was not measured over the run.".to_owned());
    }
    parts.push(
        "Calls through pointers taken with dlsym or handed out by the runtime are not seen by this version, nor is memory that \
         libraries take below the recorded functions."
            .to_owned(),
    );
    page.headed("Coverage:", Paint::Plain, &parts.join(" "));
    for note in &summary.process.notes {
        page.indented("           ", "           ", &format!("recorder: {}", clean(note)));
    }
}
