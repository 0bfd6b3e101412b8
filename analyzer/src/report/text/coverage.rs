//! How complete the trace is, and what it can't tell.

use crate::conclusion::Summary;
use crate::passes::coverage::Coverage;
use crate::report::page::{Page, Paint};
use crate::words::{clean, count, grouped, moment, percent, size};

pub(super) fn write(page: &mut Page, summary: &Summary) {
    page.headed("Coverage:", Paint::Plain, &sentences(summary).join(" "));
    for note in &summary.facts.process.notes {
        page.indented("           ", "           ", &format!("recorder: {}", clean(note)));
    }
}

/// All that is to be said, sentence by sentence.
pub(in crate::report) fn sentences(summary: &Summary) -> Vec<String> {
    let trace = &summary.facts.trace;
    let coverage = &summary.facts.coverage;
    let mut parts = vec![accounts_for(coverage), bypassed(coverage)];
    if !coverage.unrecorded.is_empty() {
        let interfaces = coverage.unrecorded.join(" and ");
        parts.push(format!(
            "Calls of {interfaces} are seen by what they ask the layers below: what {interfaces} refuses by itself is in no record."
        ));
    }
    let recorded = count(trace.events, "event", "events");
    parts.push(match summary.facts.damages.is_empty() {
        true => {
            format!("{recorded} recorded, {} lost, {} torn.", grouped(trace.events_lost), grouped(trace.torn_events))
        }
        false => format!(
            "{recorded} could be read, {} had been lost before, {} torn; how many the damage took is not known.",
            grouped(trace.events_lost),
            grouped(trace.torn_events)
        ),
    });
    parts.extend(trace.trouble.map(|what| format!("The recorder had to leave events out, because {what}.")));
    if !summary.facts.damages.is_empty() {
        parts.push(format!(
            "{} of the file could not be read.",
            count(summary.facts.damages.len() as u64, "part", "parts")
        ));
    }
    if summary.facts.unmatched_frees > 0 && coverage.bypassed.is_empty() {
        parts.push(format!(
            "{} of addresses that the trace does not know.",
            count(summary.facts.unmatched_frees, "free", "frees")
        ));
    }
    parts.extend(unclear_contexts(summary));
    if summary.facts.graph_node_bytes > 0 {
        parts.push(format!(
            "Memory nodes of {} were added to graphs; they are not counted among the program's blocks: the memory comes when a graph runs (HIP 5: when the node is made){}.",
            size(summary.facts.graph_node_bytes),
            summary.facts.graph_reserved_bytes.map(|bytes| format!("; the program read that {} were reserved for them", size(bytes)))
                .unwrap_or_default()
        ));
    }
    if !trace.clock_measured {
        parts.push("Times are estimates: the clock's rate was not measured over the run.".to_owned());
    }
    parts
}

/// Memory whose context is not known may be gone with one that ended.
fn unclear_contexts(summary: &Summary) -> Option<String> {
    let unclear = summary.facts.contexts_unclear;
    (unclear.blocks > 0).then(|| {
        format!(
            "When a CUDA context ended, up to {} ({}) had no known context: they are counted as held, and may be gone.",
            count(unclear.blocks, "allocation", "allocations"),
            size(unclear.bytes)
        )
    })
}

fn accounts_for(coverage: &Coverage) -> String {
    let seen = coverage.lowest_layer.map(|layer| format!("; calls were seen down to {}", layer_words(layer)));
    let seen = seen.unwrap_or_default();
    match (coverage.share, coverage.in_use_bytes) {
        (Some(share), Some(_)) => {
            let by = coverage.by.unwrap_or("several sources");
            let (user, whose) =
                if coverage.of_process { ("that this process uses", "") } else { ("in use", ", all processes") };
            let when = match &coverage.devices[..] {
                [device] => format!(" at {}", moment(device.at_ns)),
                _ => String::new(),
            };
            let share = percent(share);
            format!(
                "the trace accounts for {share} of the device memory {user}{when} (by {by}{whose}){seen}.{}",
                managed(coverage)
            )
        }
        _ if coverage.was_read => format!(
            "in none of the recorder's readings that can be compared with the calls was device memory this process's{seen}."
        ),
        _ if coverage.disturbed_readings > 0 => format!(
            "what was read of the device memory in use can't be compared, because calls for memory were under way each time{seen}."
        ),
        _ => format!("how much device memory was in use was not read{seen}."),
    }
}

/// Managed memory moves between card and RAM, and nobody told where it was.
fn managed(coverage: &Coverage) -> String {
    let bytes = coverage.devices.iter().fold(0u64, |sum, device| sum.saturating_add(device.managed_bytes));
    match bytes {
        0 => String::new(),
        _ => format!(
            " Not in that share: {} that may lie in RAM; nobody read how much of it lay on the card.",
            size(bytes)
        ),
    }
}

/// A layer as people call it.
fn layer_words(layer: &str) -> &str {
    match layer {
        "runtime" => "the runtime (HIP or CUDA)",
        "driver" => "the CUDA driver's library",
        "hsa" => "ROCr (HSA)",
        "kernel" => "the kernel driver",
        other => other,
    }
}

fn bypassed(coverage: &Coverage) -> String {
    if coverage.bypassed.is_empty() {
        // A small block that nobody recorded hides in what the runtime takes for itself.
        return "No sign that an interface was bypassed.".to_owned();
    }
    let all = coverage.bypassed.iter().map(|bypass| match (bypass.certain, bypass.bytes) {
        (true, _) => format!("BYPASSED: {}, because {}.", bypass.interface, clean(&bypass.why)),
        (false, None) => format!("NOT SEEN: {}, because {}.", bypass.interface, clean(&bypass.why)),
        (false, Some(_)) => format!(
            "NOT SEEN: {}: memory that the runtime takes for itself, what rounding adds to blocks, or calls past {}.",
            clean(&bypass.why),
            bypass.interface
        ),
    });
    all.collect::<Vec<_>>().join(" ")
}
