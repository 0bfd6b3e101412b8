//! The verdict in sentences that need no other knowledge: what was seen, why by the finding that decides, what the program made of
//! it, and what is missing. The first never says why: only findings do.

use super::below;
use super::finding::Finding;
use super::verdict::Happened;
use crate::passes::device::DeviceSummary;
use crate::passes::facts::Facts;
use crate::passes::oom::OomReport;
use crate::passes::outcomes::{Outcomes, count_outcomes};
use crate::words::{clean, count, gib, gpu, grouped, moment, runtime, signal, size, span, times};
use gpuoom_trace::outcome::{Because, Outcome};

/// All sentences of a verdict.
pub(super) fn all(facts: &Facts, happened: Happened, explained: Explained<'_>) -> Vec<String> {
    let mut sentences = match happened {
        Happened::OutOfMemory { oom } => {
            let which = which(facts, &facts.ooms[oom]);
            vec![format!("{which}{}", failure(facts, &facts.ooms[oom])), why(explained), reaction(&facts.ooms)]
        }
        Happened::Healthy { fullest } => vec![healthy(facts, &facts.devices[fullest])],
        Happened::NothingAllocated => vec![nothing(facts)],
    };
    // A failure explains an end; where there is none, the end itself is the news.
    let is_failure = matches!(happened, Happened::OutOfMemory { .. });
    let place = if is_failure { sentences.len() } else { 0 };
    sentences.splice(place..place, ending(facts));
    if !is_failure && matches!(explained, Explained::By(_)) {
        sentences.push(why(explained));
    }
    sentences.extend(vendor(facts));
    sentences.extend(facts.refused_below.as_ref().map(below::sentence));
    sentences.extend(facts.unreached.as_ref().map(below::unreached));
    sentences.extend(damage(facts));
    sentences
}

/// What the findings say of why.
#[derive(Clone, Copy, Debug)]
pub(super) enum Explained<'f> {
    /// This one decides.
    By(&'f Finding),
    /// None is sure enough; this one is possible, and the most telling.
    Perhaps(&'f Finding),
    /// None is; but what the program held and asked for is so many bytes more than the whole card. This one is possible, too.
    TooMuch(u64, What, Option<&'f Finding>),
    /// One request for memory of the machine is more than so many bytes, which is all the machine has.
    MoreThanRam(u64),
    /// This one says how each of so many failures was made up for, and that is all there is to say.
    Coped(&'f Finding, u64),
    /// Nothing explains it.
    Not,
}

/// What is more than the whole card.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum What {
    /// All that the program held, and the request.
    Held,
    /// The same, where the program got memory after all.
    HeldThen,
    /// What PyTorch's tensors held, and the request: its cache had given back what it could.
    Tensors,
}

impl What {
    fn told(self) -> &'static str {
        match self {
            What::Held => "What the program held and asked for is",
            What::HeldThen => "What the program held and asked for then was",
            What::Tensors => "Its tensors and the request are",
        }
    }
}

/// What the finding that decides says, and how sure it is; else what is possible.
pub(super) fn why(explained: Explained<'_>) -> String {
    match explained {
        Explained::By(finding) => {
            format!("Why: {} ({}, {}).", clean(&finding.title), finding.id, finding.confidence.name())
        }
        Explained::Perhaps(finding) => {
            format!("Why is not known. Possible: {} ({}).", clean(&finding.title), finding.id)
        }
        Explained::TooMuch(bytes, what, possible) => {
            let possible = possible
                .map_or_else(String::new, |finding| format!(" Possible: {} ({}).", clean(&finding.title), finding.id));
            format!("{} {} more than the whole card.{possible}", what.told(), size(bytes))
        }
        Explained::MoreThanRam(bytes) => {
            format!("Why: one request is more than the {} of RAM that the machine has.", gib(bytes))
        }
        Explained::Coped(finding, failures) => {
            let each = if failures == 1 { "PyTorch" } else { "each time PyTorch" };
            format!(
                "Why: {each} had in its cache what was missing, gave it back, asked again and went on ({}, {}).",
                finding.id,
                finding.confidence.name()
            )
        }
        Explained::Not => "Why is not known.".to_owned(),
    }
}

/// Which of several failures decides, before what is said of it.
pub(crate) fn which(facts: &Facts, oom: &OomReport) -> String {
    match facts.oom_count {
        0 | 1 => String::new(),
        all => format!("Of {} failures #{} decides, at {}: ", grouped(all), oom.number, moment(oom.at_ns)),
    }
}

/// What was refused, and what was read at that moment.
pub(crate) fn failure(facts: &Facts, oom: &OomReport) -> String {
    let device = facts.device_of(oom);
    if oom.refused_by == Some("injected") {
        return injected(oom, device.map(|device| device.granularity_bytes));
    }
    if let Some(allocator) = oom.allocator {
        return raised(oom, allocator, device);
    }
    let asked = size(oom.requested_bytes);
    if matches!(oom.kind, "physical" | "pool") && oom.device.is_none() {
        return format!(
            "{} of {asked} failed, on no device that the trace knows: it may have asked for memory of the machine.",
            clean(&oom.api)
        );
    }
    if matches!(oom.kind, "host-pinned" | "registered") {
        let what = match oom.api.starts_with("DRM_") {
            true => "the kernel refused host memory for a GPU (GTT)",
            false => "the system refused pinned host memory",
        };
        return format!("{} of {asked} failed: {what}. This is memory of the machine, not of a GPU.", clean(&oom.api));
    }
    let what = match oom.unknown_size {
        true if oom.of_library => format!(
            "{} said on {} that an allocation failed (status {}); how much memory it needs is not known",
            clean(&oom.api),
            gpu(oom.device),
            oom.status.code
        ),
        true => {
            let status = oom.status.name.map_or_else(|| format!("status {}", oom.status.code), str::to_owned);
            format!(
                "{} returned {status} on {}; how much memory it needs is not known",
                clean(&oom.api),
                gpu(oom.device)
            )
        }
        false => {
            let rows = if oom.pads_rows { " and the padding of its rows" } else { "" };
            let what_for = oom.is_for.what_for().map_or_else(String::new, |what| format!(" {what}"));
            format!("{} refused {asked}{rows}{what_for} ({})", gpu(oom.device), clean(&oom.api))
        }
    };
    format!("{what}. {}", held_and_free(oom, device))
}

/// An error that an allocator above the runtime raised, and what it had tried.
fn raised(oom: &OomReport, allocator: &str, device: Option<&DeviceSummary>) -> String {
    let (asked, place) = (size(oom.requested_bytes), gpu(oom.device));
    let what = match oom.attempts.len() as u64 {
        0 => format!(
            "{allocator} raised an error for {asked} on {place}; no refused call of the runtime was recorded for it"
        ),
        tries => {
            let segment = size(oom.asked_bytes);
            let block = if segment == asked { String::new() } else { format!(" for a block of {asked}") };
            format!("{}. {place} refused {segment}{block} ({})", tried(allocator, tries), clean(oom.call()))
        }
    };
    format!("{what}. {}", held_and_free(oom, device))
}

/// How often an allocator asked before it raised its one error.
fn tried(allocator: &str, tries: u64) -> String {
    let who = allocator.strip_suffix("'s allocator").unwrap_or(allocator);
    format!("{who} tried {}; one error reached the program", times(tries))
}

fn held_and_free(oom: &OomReport, device: Option<&DeviceSummary>) -> String {
    let total = device.and_then(|device| device.total_bytes);
    let of_total = total.map_or(String::new(), |total| format!(" of {}", size(total)));
    let name = runtime(device.and_then(|device| device.runtime.as_deref()));
    let free = match oom.free_reported_bytes {
        Some(bytes) => {
            // What came or went until it was read was not free, or was, at the refusal.
            let is_alone = oom.allocator.is_some() && oom.attempts.is_empty();
            let is_told = !oom.unknown_size && oom.free_is_of_refusal && !is_alone;
            let short =
                oom.missing_bytes(bytes).filter(|_| is_told).map_or(String::new(), |missing| short(oom, missing));
            format!("{name} reported {} free{short}", size(bytes))
        }
        None => match oom.free_sysfs_bytes {
            Some(bytes) => format!("sysfs reported {} free", size(bytes)),
            None => "how much was free was not measured".to_owned(),
        },
    };
    let surely = oom.held_bytes.saturating_sub(oom.held_managed_bytes);
    let held = match (surely, oom.held_managed_bytes) {
        (0, managed @ 1..) if oom.managed_in_ram_bytes == Some(managed) => {
            format!("{}, all of it in RAM (sysfs had none of the card in use)", size(managed))
        }
        (0, managed @ 1..) => format!("{}, which may lie on the card{} or in RAM", size(managed), in_brackets(total)),
        (_, 0) => format!("{}{of_total}", size(surely)),
        (_, managed) => format!("{}{of_total}, beside {} that may lie in RAM", size(surely), size(managed)),
    };
    let returning = match oom.returning_bytes {
        0 => String::new(),
        bytes => format!(", and {} more unless another thread's free was done by then", size(bytes)),
    };
    format!("The program's own blocks held {held}{returning}; {free}.")
}

fn in_brackets(total_bytes: Option<u64>) -> String {
    total_bytes.map_or(String::new(), |total| format!(" ({})", size(total)))
}

fn short(oom: &OomReport, missing_bytes: u64) -> String {
    let missing = size(missing_bytes);
    match oom.half_made_bytes.filter(|_| oom.is_in_pieces()) {
        None => format!(", {missing} less than requested"),
        Some(0) => format!(", at most {missing} less than requested"),
        Some(taken) => format!(
            " beside {} that it had just given for that block, for which at most {missing} more was missing",
            size(taken)
        ),
    }
}

/// A refusal on request: it says nothing about the real card.
fn injected(oom: &OomReport, granularity_bytes: Option<u64>) -> String {
    let by = match (oom.allocator, oom.attempts.len() as u64) {
        (Some(allocator), tries @ 1..) => format!(
            "{}: {} of {} was {}",
            tried(allocator, tries),
            clean(oom.call()),
            size(oom.asked_bytes),
            refused_on_request(oom)
        ),
        _ => format!("{} of {} was {}", clean(&oom.api), size(oom.requested_bytes), refused_on_request(oom)),
    };
    let real = oom.free_reported_bytes.filter(|_| oom.kind != "host-pinned" && oom.kind != "registered");
    let real = real.map(|free| format!(" The real card had {} free.", size(free))).unwrap_or_default();
    match oom.injected.as_ref().map(|injected| injected.reason) {
        Some("capacity") => {
            // Before traces said it, the virtual card rounded to what the record is padded to.
            let granularity =
                oom.injected.as_ref().and_then(|injected| injected.granularity_bytes).or(granularity_bytes);
            let rounded = granularity.map_or("before rounding".to_owned(), |bytes| {
                format!("each counted in whole granules of {}", size(bytes))
            });
            format!(
                "{by}: the virtual card has no room for it beside what the program holds ({}, {rounded}).{real}",
                on_virtual_card(oom)
            )
        }
        _ => format!("{by}. No card was asked.{real}"),
    }
}

/// What counts on the virtual card: managed memory does not, since its pages may lie in RAM.
fn on_virtual_card(oom: &OomReport) -> String {
    match oom.held_managed_bytes {
        0 => format!("{} in {}", size(oom.held_bytes), count(oom.held_blocks, "block", "blocks")),
        managed => format!(
            "{}, beside {} of managed memory that does not count",
            size(oom.held_bytes.saturating_sub(managed)),
            size(managed)
        ),
    }
}

/// Who refused a call on request, and by which setting.
pub(crate) fn refused_on_request(oom: &OomReport) -> String {
    let setting = oom.injected.as_ref().and_then(|injected| injected.setting.as_deref());
    match setting {
        Some(setting) => format!("refused by gpuoom itself ({})", clean(setting)),
        None => "refused by gpuoom itself, on request".to_owned(),
    }
}

/// What the program did about its failures, as far as that was seen.
pub(crate) fn reaction(ooms: &[OomReport]) -> String {
    let outcomes = count_outcomes(ooms);
    let total = outcomes.total();
    match ooms.iter().find(|oom| oom.outcome == Outcome::Dropped) {
        Some(first) => went_on(outcomes, first),
        None if outcomes.recovered == total => {
            format!("{}{}", recovered(outcomes, ooms.iter().all(|oom| oom.unknown_size)), unnoticed(outcomes))
        }
        None if total == 1 => single(&ooms[0]),
        None => format!("{}{}", mixed(outcomes), unnoticed(outcomes)),
    }
}

/// What time alone ties to a failure shows nothing of the program.
fn unnoticed(outcomes: Outcomes) -> String {
    match outcomes.by_time_alone {
        0 => String::new(),
        all if all == outcomes.total() => " Nothing shows that the program had noticed.".to_owned(),
        some => format!(" Of {some} nothing shows that the program had noticed."),
    }
}

/// GPU work went on before the program gave a sign that it had noticed. Attempts to make up for one failure have one pointer.
fn went_on(outcomes: Outcomes, first: &OomReport) -> String {
    let total = outcomes.total();
    match (outcomes.likely_failed_pointers, outcomes.failed_pointers) {
        (1.., _) if total == 1 => {
            "A GPU call was then given a null pointer, as the failed call had left one: if it is that one, results that rest on \
             that memory can't be trusted."
                .to_owned()
        }
        (_, 1..) if total == 1 => {
            "A GPU call was then given a null pointer, which may be the one that the failed call left behind."
                .to_owned()
        }
        (_, 1..) if outcomes.stories == 1 && outcomes.failed_pointer_used == total => format!(
            "After {total} refused requests, which may be attempts to make up for the first, a GPU call was given a null pointer, which may \
             be one that they left behind."
        ),
        (_, used @ 1..) => format!(
            "After {used} of {total} failures a GPU call was given a null pointer, which may be the one that the failed call left behind."
        ),
        (_, 0) if total == 1 => {
            let work = first.evidence.iter().find(|evidence| evidence.event == "gpu_work");
            let later = work.map_or(String::new(), |work| {
                format!(" {} later{}", span(first.later_ns(work.at_ns)), not_counted(first))
            });
            format!("GPU work of that thread went on{later}, {}{}.", first.before_what("it"), afterwards(first))
        }
        (_, 0) if outcomes.stories == 1 => format!(
            "After {total} refused requests, which may be attempts to make up for the first, GPU work of that thread went on before any \
             other sign that it had noticed{}.",
            afterwards(first)
        ),
        (_, 0) => format!(
            "After {} of {total} failures GPU work of the same thread went on, before it asked for the error, threw or got {}{}.",
            outcomes.dropped,
            if outcomes.given_other > 0 { "memory that counts as a retry" } else { "other memory" },
            match outcomes.may_be_noticed {
                0 => String::new(),
                some => format!(
                    "; of {} by the order of calls alone: the same request succeeded or less was asked for later, so the program may \
                     well have noticed",
                    if some == outcomes.dropped { "all of these".to_owned() } else { format!("{some} of these") }
                ),
            }
        ),
    }
}

/// What a time after a failure leaves out.
fn not_counted(oom: &OomReport) -> &'static str {
    if oom.held_up_ns > 0 { " (the recorder's own readings not counted)" } else { "" }
}

/// The surest sign that came only after the work.
fn afterwards(oom: &OomReport) -> String {
    let work = oom.evidence.iter().position(|evidence| evidence.event == "gpu_work");
    let later = work.map_or(&[][..], |work| &oom.evidence[work + 1..]);
    let is_in = |event: &str, asks_text| {
        later.iter().any(|evidence| evidence.event == event && evidence.asks_text == asks_text)
    };
    let sign = match () {
        () if is_in("exception", false) => "an exception was thrown",
        () if is_in("error_query", true) => "it asked for the error's text",
        () if is_in("error_query", false) => "it read the last error",
        () if is_in("process", false) => "the process ended with a failure",
        () => return oom.may_have_noticed().map(|sign| format!("; {sign}")).unwrap_or_default(),
    };
    format!("; after that {sign}")
}

/// `sets_up`: each failed call was to set something up, whose size nobody tells.
fn recovered(outcomes: Outcomes, sets_up: bool) -> String {
    let total = outcomes.total();
    match (outcomes.fell_back, total, outcomes.stories) {
        (0, ..) if sets_up => "Before any GPU work a call of the same sort succeeded.".to_owned(),
        (0, 1, _) => "A call for at least as much succeeded before any GPU work of that thread; whether in its place can't be seen.".to_owned(),
        (0, ..) => "Each time a call for at least as much succeeded before any GPU work of that thread; whether in its place can't be seen.".to_owned(),
        (_, 1, _) => {
            "Another call got memory before any GPU work of that thread: a fall-back, as far as calls show.".to_owned()
        }
        (_, _, 1) => format!(
            "After {total} refused attempts another call got memory before any GPU work of that thread: a fall-back, as far as calls show."
        ),
        (fell_back, ..) if fell_back == total => {
            "Each time another call got memory before any GPU work of that thread: fall-backs, as far as calls show."
                .to_owned()
        }
        (fell_back, ..) => format!(
            "Of {total} failures, {} were followed by a call for at least as much that succeeded, and {fell_back} by another call that \
             got memory.",
            total - fell_back
        ),
    }
}

/// One failure that was not made up for, and not followed by work without a sign of notice.
fn single(oom: &OomReport) -> String {
    let read_error = oom.evidence.iter().any(|evidence| evidence.event == "error_query");
    match oom.because {
        Because::ErrorRead if oom.allocator.is_some() && !read_error => {
            "GPU work of that thread went on, and no exception was recorded: what the program made of the error can't be seen."
                .to_owned()
        }
        Because::ErrorRead => {
            "The last error was read, and GPU work went on: whether anybody looked at it can't be seen.".to_owned()
        }
        Because::TraceEnded => "No reaction of that thread was seen before the trace ends.".to_owned(),
        Because::StatusChecked => "The last error was read, and no GPU work followed.".to_owned(),
        // A status of 3 may be about something else.
        Because::ProcessExited => {
            "No GPU work of that thread followed, and the process ended with a failure.".to_owned()
        }
        Because::Exception => "An exception was raised after it.".to_owned(),
        _ => "The program asked for the error's text.".to_owned(),
    }
}

fn mixed(outcomes: Outcomes) -> String {
    let Outcomes { recovered, propagated, unresolved, fell_back, error_read, .. } = outcomes;
    let parts = [
        (propagated, "propagated"),
        (recovered - fell_back, "followed by a call for at least as much that succeeded"),
        (fell_back, "followed by another call that got memory"),
        (error_read, "with the error read before GPU work went on"),
        (unresolved - error_read, "unresolved at the end"),
    ];
    let parts: Vec<String> =
        parts.iter().filter(|(number, _)| *number > 0).map(|(number, what)| format!("{number} {what}")).collect();
    format!("Of {} failures: {}. None was seen to be dropped.", outcomes.total(), parts.join(", "))
}

fn healthy(facts: &Facts, device: &DeviceSummary) -> String {
    let peak = &device.account.peak;
    let of_total = device.total_bytes.map_or(String::new(), |total| format!(" of {}", size(total)));
    let failed: u64 = facts.devices.iter().map(|device| device.account.failures).sum();
    // What a damaged file lacks may have been a failure.
    let (so_far, end) = match facts.damages[..] {
        [] if facts.trace.events_lost > 0 => (" in what was recorded", "in what was recorded"),
        [] => ("", "at the end"),
        _ => (" in what could be read", "where that ends"),
    };
    let opening = match failed {
        // What was refused below has a sentence of its own.
        0 if facts.refused_below.is_some() => format!("No call of the program for memory failed{so_far}."),
        0 if !facts.coverage.unrecorded.is_empty() => format!(
            "No recorded allocation failed{so_far}; those of {} itself are not recorded.",
            facts.coverage.unrecorded.join(" and ")
        ),
        0 => format!("No allocation failed{so_far}."),
        failed => format!("No allocation ran out of memory{so_far} ({failed} failed for other reasons)."),
    };
    let left = &device.account.end;
    let left = match left.live_allocations {
        0 => format!("0 bytes left {end}"),
        _ => format!("{} not given back {end}", left.in_words()),
    };
    let where_at = format!("on {} at {}", gpu(device.index), moment(peak.at_ns));
    // The moment when most was asked for need not be the one when most lay on the card.
    let (of_total, managed) = match peak.managed_bytes {
        0 => (of_total, String::new()),
        bytes => (String::new(), format!(", {} of it in blocks that may lie in RAM", size(bytes))),
    };
    let pinned = match facts.host.end.live_allocations {
        0 => String::new(),
        _ => format!(", and {} of pinned host memory", facts.host.end.in_words()),
    };
    format!("{opening} Peak {}{of_total} {where_at}{managed}; {left}{pinned}.", size(peak.requested_bytes))
}

fn nothing(facts: &Facts) -> String {
    match facts.trace.events {
        0 if !facts.damages.is_empty() => "No event of the trace could be read.".to_owned(),
        0 => "The trace holds no events.".to_owned(),
        _ => "The program allocated no GPU memory through the functions that are recorded.".to_owned(),
    }
}

/// How the process ended, where that is part of the story.
fn ending(facts: &Facts) -> Option<String> {
    let at = moment(facts.trace.duration_ns);
    let how = match (facts.process.end, facts.process.signal) {
        ("exited", _) => return None,
        ("signaled", Some(number)) => format!("The process was ended by {}.", signal(number)),
        _ if facts.trace.clean_close => return None,
        _ => "The process was killed, became another program (exec), or still runs: there is no end mark.".to_owned(),
    };
    let lost = facts.trace.events_lost;
    let under_way = match &facts.calls_under_way[..] {
        [] => "no allocation call was under way".to_owned(),
        calls => format!(
            "{}: {}",
            count(calls.len() as u64, "call was under way", "calls were under way"),
            list_calls(facts)
        ),
    };
    Some(format!("{how} Everything up to {at} is here; {} lost, {under_way}.", count(lost, "event", "events")))
}

fn list_calls(facts: &Facts) -> String {
    let shown = facts.calls_under_way.iter().take(3);
    let calls: Vec<String> = shown
        .map(|call| format!("{} {} on thread {}", clean(&call.api), size(call.requested_bytes), call.thread))
        .collect();
    calls.join(", ")
}

/// Failures inside vendor libraries, which the program may never have heard of.
fn vendor(facts: &Facts) -> Option<String> {
    let number = facts.vendor_ooms;
    let calls = count(number, "allocation", "allocations");
    (number > 0).then(|| format!("{calls} that GPU libraries made for themselves ran out of memory."))
}

fn damage(facts: &Facts) -> Option<String> {
    let first = facts.damages.first()?;
    let places = count(facts.damages.len() as u64, "place", "places");
    Some(format!(
        "The file is damaged in {places} (offset {}: {}): what lies there is missing from this report.",
        first.offset, first.reason
    ))
}
