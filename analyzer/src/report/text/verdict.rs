//! The verdict, in a sentence that needs no other knowledge.

use gpuoom_trace::outcome::{Because, Outcome};

use crate::passes::oom::OomReport;
use crate::passes::outcomes::{Outcomes, count_outcomes};
use crate::passes::summary::Summary;
use crate::passes::verdict::{Verdict, Why, device_of};
use crate::report::page::{Page, Paint};
use crate::words::{clean, count, gpu, moment, runtime, signal, size, span};

pub(super) fn write(page: &mut Page, summary: &Summary, verdict: Verdict) {
    let outcomes = count_outcomes(&summary.ooms);
    let paint = match verdict {
        Verdict::OutOfMemory { .. } if outcomes.dropped > 0 => Paint::Dropped,
        Verdict::OutOfMemory { .. } => Paint::Failure,
        _ => Paint::Bold,
    };
    page.headed("VERDICT", paint, &sentences(summary, verdict).join(" "));
    page.gap();
}

/// The verdict, sentence by sentence.
pub(in crate::report) fn sentences(summary: &Summary, verdict: Verdict) -> Vec<String> {
    let ending = ending(summary);
    let mut sentences = match verdict {
        Verdict::OutOfMemory { oom, why } => {
            let oom = &summary.ooms[oom];
            let mut sentences = vec![out_of_memory(summary, oom, why)];
            sentences.extend(cause(summary, oom));
            sentences.push(reaction(&summary.ooms));
            sentences
        }
        Verdict::Healthy { fullest } => vec![healthy(summary, fullest)],
        Verdict::NothingAllocated => vec![nothing(summary)],
    };
    // A failure explains an end; where there is none, the end itself is the news.
    let place = if matches!(verdict, Verdict::OutOfMemory { .. }) { sentences.len() } else { 0 };
    sentences.splice(place..place, ending);
    sentences.extend(vendor(summary));
    sentences.extend(damage(summary));
    sentences
}

pub(super) fn out_of_memory(summary: &Summary, oom: &OomReport, why: Why) -> String {
    let name = runtime(device_of(summary, oom).and_then(|device| device.runtime.as_deref()));
    let device = gpu(oom.device);
    let asked = size(oom.requested_bytes);
    if oom.unknown_size && why != Why::Injected {
        let free = oom.free_reported_bytes.map(|bytes| format!(" {name} reports {} free.", size(bytes)));
        return format!(
            "{} ran out of memory on {device}; how much it needs is not known. The program itself holds {}.{}",
            oom.api,
            size(oom.held_bytes),
            free.unwrap_or_default()
        );
    }
    match why {
        Why::Injected => injected(oom, device_of(summary, oom).map(|device| device.granularity_bytes)),
        Why::Host => {
            format!("The system refused {asked} of pinned host memory. This is memory of the machine, not of a GPU.")
        }
        Why::LargerThanCard { total_bytes } => {
            format!("One request asks for more than the whole of {device}: {asked} of {}.", size(total_bytes))
        }
        Why::FreeWasReported { free_bytes } => {
            format!(
                "{device} refused {asked} although the runtime reported {} free (measured right after).",
                size(free_bytes)
            )
        }
        Why::FullOfOwn { left_bytes, reported } => {
            let (held, left) = (size(oom.held_bytes), size(left_bytes));
            let left = match reported {
                true => format!("{name} reports {left} free"),
                false => format!("the card has room for {left} beside that"),
            };
            match oom.held_bytes >= oom.requested_bytes {
                true => format!(
                    "{device} is full of this program's own memory: it holds {held}, asked for {asked} more, and {left}."
                ),
                // The card is not full of it: the one request is what is large.
                false => format!(
                    "One request does not fit into what is left of {device}: it asks for {asked}, {left}, and the program \
                     itself holds {held}."
                ),
            }
        }
        Why::FullOfOthers { left_bytes, others_bytes } => format!(
            "{device} is full, and mostly not by this program's allocations: it asked for {asked}, {name} reports {} free, and {} is used \
             by others (other programs, or the runtime itself); the program's own blocks hold {}.",
            size(left_bytes),
            size(others_bytes),
            size(oom.held_bytes)
        ),
        Why::NotMeasured => format!(
            "{device} refused {asked} while the program held {}. How much was free was not measured, so the trace does not \
             say who used the rest.",
            size(oom.held_bytes)
        ),
    }
}

/// A refusal on request: it says nothing about the real card.
fn injected(oom: &OomReport, granularity_bytes: Option<u64>) -> String {
    let (api, asked) = (&oom.api, size(oom.requested_bytes));
    let by = format!("{api} of {asked} was {}", refused_on_request(oom));
    let real = oom.free_reported_bytes.filter(|_| oom.kind != "host-pinned" && oom.kind != "registered");
    let real = real.map(|free| format!(" The real card had {} free.", size(free))).unwrap_or_default();
    match oom.injected.as_ref().map(|injected| injected.reason) {
        Some("capacity") => {
            let rounded = granularity_bytes.map_or("before rounding".to_owned(), |bytes| {
                format!("each of which counts as whole granules of {}: GPUOOM_GRANULARITY", size(bytes))
            });
            format!(
                "{by}: the virtual card has no room for it beside what the program holds ({} in {}, {rounded}).{real}",
                size(oom.held_bytes),
                count(oom.held_blocks, "block", "blocks")
            )
        }
        _ => format!("{by}. No card was asked.{real}"),
    }
}

/// Who refused a call on request, and by which setting.
pub(super) fn refused_on_request(oom: &OomReport) -> String {
    let setting = oom.injected.as_ref().and_then(|injected| injected.setting.as_deref());
    match setting {
        Some(setting) => format!("refused by gpuoom itself ({})", clean(setting)),
        None => "refused by gpuoom itself, on request".to_owned(),
    }
}

/// The diagnosis of a failure and how sure it is.
fn cause(summary: &Summary, oom: &OomReport) -> Option<String> {
    let finding = summary.diagnoses.iter().find(|finding| Some(finding.id) == oom.cause)?;
    Some(format!("Cause: {}, {}.", finding.id, finding.confidence.name()))
}

/// What the program did about its failures, as far as that was seen.
pub(super) fn reaction(ooms: &[OomReport]) -> String {
    let outcomes = count_outcomes(ooms);
    let total = outcomes.total();
    match ooms.iter().find(|oom| oom.outcome == Outcome::Dropped) {
        Some(first) => went_on(outcomes, first),
        None if outcomes.recovered == total => recovered(outcomes),
        None if total == 1 => single(ooms[0].because),
        None => mixed(outcomes),
    }
}

/// GPU work went on. That results can't be trusted is known only where the failed call's pointer was used.
fn went_on(outcomes: Outcomes, first: &OomReport) -> String {
    let total = outcomes.total();
    match (outcomes.failed_pointer_used, total) {
        (1.., 1) => {
            "The failed call's pointer was passed to a GPU call: the program's results can't be trusted.".to_owned()
        }
        (used @ 1.., _) => format!(
            "After {used} of {total} failures the failed call's pointer was passed to a GPU call: the program's results can't \
             be trusted."
        ),
        (0, 1) => {
            let work = first.evidence.iter().find(|evidence| evidence.event == "gpu_work");
            let later = work.map_or(String::new(), |work| format!(" {} later", span(first.later_ns(work.at_ns))));
            format!("GPU work went on{later} without any sign that the program noticed.")
        }
        _ => format!(
            "After {} of {total} failures GPU work went on without any sign that the program noticed.",
            outcomes.dropped
        ),
    }
}

fn recovered(outcomes: Outcomes) -> String {
    let total = outcomes.total();
    match (outcomes.fell_back, total, outcomes.stories) {
        (0, ..) => "Each time the program tried again and succeeded.".to_owned(),
        (_, 1, _) => "The program fell back: another call got memory in its place.".to_owned(),
        (_, _, 1) => format!("The program fell back: after {total} refused attempts another call got memory."),
        (fell_back, ..) if fell_back == total => "Each time the program fell back: another call got memory.".to_owned(),
        (fell_back, ..) => format!(
            "Of {total} failures, {} were tried again with success, and after {fell_back} another call got memory.",
            total - fell_back
        ),
    }
}

/// One failure that was not made up for, and not followed by work without a sign of notice.
fn single(because: Because) -> String {
    match because {
        Because::ErrorRead => {
            "The last error was read, and GPU work went on: whether anybody looked at it can't be seen.".to_owned()
        }
        Because::TraceEnded => "The trace ends before the program reacts.".to_owned(),
        Because::StatusChecked => "The last error was read, and no GPU work followed.".to_owned(),
        _ => "The program noticed the failure; nothing was dropped.".to_owned(),
    }
}

fn mixed(outcomes: Outcomes) -> String {
    let Outcomes { recovered, propagated, unresolved, fell_back, error_read, .. } = outcomes;
    let parts = [
        (propagated, "noticed"),
        (recovered - fell_back, "tried again with success"),
        (fell_back, "made up for by another call"),
        (error_read, "with the error read before GPU work went on"),
        (unresolved - error_read, "still open at the end"),
    ];
    let parts: Vec<String> =
        parts.iter().filter(|(number, _)| *number > 0).map(|(number, what)| format!("{number} {what}")).collect();
    let none = if unresolved == 0 { "Nothing was dropped." } else { "None was seen to be dropped." };
    format!("Of {} failures: {}. {none}", outcomes.total(), parts.join(", "))
}

fn healthy(summary: &Summary, fullest: usize) -> String {
    let device = &summary.devices[fullest];
    let peak = &device.account.peak;
    let of_total = device.total_bytes.map_or(String::new(), |total| format!(" of {}", size(total)));
    let failed: u64 = summary.devices.iter().map(|device| device.account.failures).sum();
    let opening = match failed {
        0 => "No allocation failed.".to_owned(),
        failed => format!("No allocation ran out of memory ({failed} failed for other reasons)."),
    };
    let left = &device.account.end;
    let left = match left.live_allocations {
        0 => "0 bytes left at the end".to_owned(),
        blocks => {
            format!("{} in {} not given back at the end", size(left.requested_bytes), count(blocks, "block", "blocks"))
        }
    };
    let where_at = format!("on {} at {}", gpu(device.index), moment(peak.at_ns));
    format!("{opening} Peak {}{of_total} {where_at}; {left}.", size(peak.requested_bytes))
}

fn nothing(summary: &Summary) -> String {
    match summary.trace.events {
        0 if !summary.damages.is_empty() => "No event of the trace could be read.".to_owned(),
        0 => "The trace holds no events.".to_owned(),
        _ => "The program allocated no GPU memory through the functions that are recorded.".to_owned(),
    }
}

/// How the process ended, where that is part of the story.
fn ending(summary: &Summary) -> Option<String> {
    let at = moment(summary.trace.duration_ns);
    let how = match (summary.process.end, summary.process.signal) {
        ("exited", _) => return None,
        ("signaled", Some(number)) => format!("The process was ended by {}.", signal(number)),
        _ if summary.trace.clean_close => return None,
        _ => "The process was killed, or still runs (no end mark).".to_owned(),
    };
    let lost = summary.trace.events_lost;
    let under_way = match &summary.calls_under_way[..] {
        [] => "no allocation call was under way".to_owned(),
        calls => format!(
            "{}: {}",
            count(calls.len() as u64, "call was under way", "calls were under way"),
            list_calls(summary)
        ),
    };
    Some(format!("{how} Everything up to {at} is here; {} lost, {under_way}.", count(lost, "event", "events")))
}

fn list_calls(summary: &Summary) -> String {
    let shown = summary.calls_under_way.iter().take(3);
    let calls: Vec<String> =
        shown.map(|call| format!("{} {} on thread {}", call.api, size(call.requested_bytes), call.thread)).collect();
    calls.join(", ")
}

/// Failures inside vendor libraries, which the program may never have heard of.
fn vendor(summary: &Summary) -> Option<String> {
    let number = summary.vendor_ooms;
    let calls = count(number, "allocation", "allocations");
    (number > 0).then(|| format!("{calls} that GPU libraries made for themselves ran out of memory."))
}

fn damage(summary: &Summary) -> Option<String> {
    let first = summary.damages.first()?;
    let places = count(summary.damages.len() as u64, "place", "places");
    Some(format!(
        "The file is damaged in {places} (offset {}: {}): what lies there is missing from this report.",
        first.offset, first.reason
    ))
}

/// The word for an outcome and how it is painted.
pub(super) fn outcome_paint(outcome: Outcome) -> Paint {
    match outcome {
        Outcome::Dropped => Paint::Dropped,
        Outcome::Propagated | Outcome::Unresolved => Paint::Failure,
        Outcome::Recovered => Paint::Plain,
    }
}
