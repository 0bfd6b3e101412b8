//! The out-of-memory returns, each with what became of it.

use std::collections::BTreeMap;

use gpuoom_trace::outcome::{Because, Outcome};
use gpuoom_trace::record::Kind;

use super::fragmentation::rounds_itself;
use super::stack;
use super::verdict::outcome_paint;
use crate::conclusion::Summary;
use crate::conclusion::sentence::refused_on_request;
use crate::passes::oom::error::AttemptReport;
use crate::passes::oom::{Evidence, OomReport};
use crate::report::page::{Page, Paint};
use crate::symbols::FrameKind;
use crate::words::{clean, count, gpu, grouped, moment, runtime, signal, size, span, times};

/// Attempts of one error that are named.
const MOST_ATTEMPTS: usize = 4;
/// Pieces of evidence that are shown of a failure.
const MOST_EVIDENCE: usize = 4;
/// Characters of a message that are shown; the JSON has all.
const MOST_SAID: usize = 300;
/// More failures than this are folded by function and outcome.
const MOST_SHOWN: usize = 10;

pub(super) fn write(page: &mut Page, summary: &Summary) {
    if summary.facts.oom_count == 0 {
        return;
    }
    page.headed("OUT OF MEMORY", Paint::Bold, &heading(summary));
    if summary.facts.ooms.len() <= MOST_SHOWN {
        summary.facts.ooms.iter().for_each(|oom| write_one(page, summary, oom));
    } else {
        write_folded(page, summary);
    }
    page.gap();
}

/// How many there are: errors of an allocator by themselves, and of the calls those that failed by themselves.
fn heading(summary: &Summary) -> String {
    let ooms = &summary.facts.ooms;
    // What sets something up is not among the timed calls.
    let set_ups = ooms.iter().filter(|oom| oom.unknown_size).count() as u64;
    let calls = summary.facts.allocation_latency_ns.count + set_ups;
    let errors = ooms.iter().filter(|oom| oom.allocator.is_some());
    let attempts: u64 = errors.clone().map(|oom| oom.attempts.len() as u64).sum();
    let errors = errors.count() as u64;
    let others = summary.facts.oom_count.saturating_sub(errors);
    let of_calls =
        |number: u64| format!("{} of {}", grouped(number), count(calls, "allocation call", "allocation calls"));
    let raised = || match attempts {
        0 => count(errors, "error", "errors"),
        _ => format!("{} ({} refused below)", count(errors, "error", "errors"), of_calls(attempts)),
    };
    match (errors, others) {
        (0, _) => of_calls(others),
        (_, 0) => raised(),
        _ => format!("{}, and {} by themselves", raised(), grouped(others)),
    }
}

fn write_one(page: &mut Page, summary: &Summary, oom: &OomReport) {
    let head = format!(
        "  #{}  {}  {} {} on {}",
        oom.number,
        moment(oom.at_ns),
        clean(oom.name()),
        asked(oom),
        if matches!(oom.kind, "host-pinned" | "registered") { "the host".to_owned() } else { gpu(oom.device) }
    );
    match attempts(summary, oom) {
        Some(text) => {
            page.indented(&head, "        ", "");
            page.indented("      ", "      ", &text);
        }
        None => page.indented(&head, "        ", &format!("  {}, {}", status(oom), refused(summary, oom))),
    }
    page.painted("      ", &format!("{}:", oom.outcome.name()), outcome_paint(oom.outcome), &became(oom));
    if let Some(text) = same_call(oom) {
        page.indented("      ", "      ", &text);
    }
    if let Some(text) = what_for(oom).into_iter().chain(negative(oom)).reduce(|one, other| format!("{one}; {other}")) {
        page.indented("      ", "      ", &text);
    }
    if let Some(entry) = &oom.phase_entry {
        page.indented("      ", "      ", &clean(&entry.words()));
    }
    page.indented("      ", "      ", &free_then(summary, oom));
    let is_noise = !page.look.full && summary.facts.device_of(oom).is_some_and(|device| rounds_itself(summary, device));
    if let Some(text) = model(summary, oom).filter(|_| !is_noise) {
        page.indented("      ", "      ", &text);
    }
    if let Some(text) = said(oom) {
        page.indented("      ", "      ", &text);
    }
    stack::write(page, oom);
}

/// What the memory was for, and by which function that is known.
pub(in crate::report) fn what_for(oom: &OomReport) -> Option<String> {
    let by = oom.purpose_by.as_deref().map_or_else(String::new, |by| format!(" ({})", clean(by)));
    Some(format!("it was {}{by}", oom.is_for.what_for()?))
}

/// A size that is negative where it is read as a signed number, as one is that was subtracted from too little.
fn negative(oom: &OomReport) -> Option<String> {
    let signed = oom.requested_bytes as i64;
    (signed < 0 && !oom.unknown_size).then(|| match signed {
        // What the recorder computes from sides ends there.
        -1 => "the size asked for is -1 where it is read as a signed number, or a product that does not fit 64 bits"
            .to_owned(),
        _ => format!("read as a signed number, the size asked for is -{}", size(signed.unsigned_abs())),
    })
}

/// What an allocator had tried before it raised its error.
pub(in crate::report) fn attempts(summary: &Summary, oom: &OomReport) -> Option<String> {
    oom.allocator?;
    let tries = &oom.attempts;
    if tries.is_empty() {
        return Some("no refused call of the runtime was recorded for it".to_owned());
    }
    let one = |attempt: &AttemptReport| {
        format!("{} {} refused at {}", clean(&attempt.api), size(attempt.requested_bytes), moment(attempt.at_ns))
    };
    let listed: Vec<String> = tries.iter().take(MOST_ATTEMPTS).map(one).collect();
    let more = match tries.len() - listed.len() {
        0 => String::new(),
        more => format!(", and {more} more"),
    };
    let often = times(tries.len() as u64);
    Some(format!("asked the runtime {often}: {}{more}; {}", listed.join(", "), refused(summary, oom)))
}

/// What an interface above tried after it, inside the same call.
fn same_call(oom: &OomReport) -> Option<String> {
    let one = |attempt: &AttemptReport| {
        let bytes = size(attempt.requested_bytes);
        format!("{} {bytes} of {} memory", clean(&attempt.api), attempt.kind)
    };
    let listed: Vec<String> = oom.same_call.iter().take(MOST_ATTEMPTS).map(one).collect();
    let more = match oom.same_call.len() - listed.len() {
        0 => String::new(),
        more => format!(", and {more} more"),
    };
    (!listed.is_empty()).then(|| format!("refused after it inside the same call: {}{more}", listed.join(", ")))
}

/// What the program said of it, in short.
fn said(oom: &OomReport) -> Option<String> {
    let text = clean(&oom.message.as_deref()?.replace('\n', " "));
    let whole = text.chars().count() <= MOST_SAID;
    let start: String = text.chars().take(MOST_SAID).collect();
    let who = match oom.message_from? {
        "log" => "the program's log says",
        "abort" => "the program aborts with",
        _ => "the exception says",
    };
    Some(format!("{who}: \"{}{}\"", start.trim_end(), if whole { "" } else { "…" }))
}

/// What was asked for, as far as anybody knows.
pub(in crate::report) fn asked(oom: &OomReport) -> String {
    if oom.unknown_size { "unknown size".to_owned() } else { size(oom.requested_bytes) }
}

pub(in crate::report) fn status(oom: &OomReport) -> String {
    match oom.status.name {
        Some(name) => format!("{name} ({})", oom.status.code),
        None => format!("status {}", oom.status.code),
    }
}

pub(in crate::report) fn refused(summary: &Summary, oom: &OomReport) -> String {
    let name = runtime(summary.facts.device_of(oom).and_then(|device| device.runtime.as_deref()));
    match oom.refused_by {
        Some("injected") => refused_on_request(oom),
        Some("kernel") => "refused by the kernel driver".to_owned(),
        Some("hsa") => "refused by ROCr (hsa) or below".to_owned(),
        Some("driver") => "refused by the driver library or below".to_owned(),
        Some("runtime") if oom.of_library && oom.saw_below => {
            "by the library itself (the layers below were recorded, and none of them failed)".to_owned()
        }
        Some("runtime") if oom.of_library => "by the library or below (no lower layer was seen to fail)".to_owned(),
        Some("runtime") if oom.saw_below => {
            format!("refused by {name} itself (the layers below were recorded, and none of them failed)")
        }
        Some("runtime") => format!("refused by {name} or below (no lower layer was seen to fail)"),
        _ => "the trace does not say who refused".to_owned(),
    }
}

/// What became of a failure, in words.
pub(in crate::report) fn became(oom: &OomReport) -> String {
    let mut parts: Vec<String> =
        oom.evidence.iter().take(MOST_EVIDENCE).map(|evidence| describe(oom, evidence)).collect();
    if parts.is_empty() {
        parts.push(match oom.because {
            Because::TraceEnded => "the trace ends before the thread does anything that tells".to_owned(),
            _ => "nothing that tells was recorded".to_owned(),
        });
    } else if oom.evidence.len() > MOST_EVIDENCE {
        parts.push(format!("and {} more", oom.evidence.len() - MOST_EVIDENCE));
    }
    if oom.because == Because::TraceEnded && !oom.evidence.is_empty() {
        parts.push("nothing on that thread tells before that".to_owned());
    }
    if let Some(open) = left_open(oom) {
        let last = parts.pop().unwrap_or_default();
        parts.push(format!("{last}{}; {open}", not_counted(oom)));
        return parts.join(", ");
    }
    format!("{}{}", parts.join(", "), not_counted(oom))
}

/// What no call shows, although the outcome is read from calls.
fn left_open(oom: &OomReport) -> Option<String> {
    let open = match oom.because {
        Because::FellBack if oom.attempt_of.is_some() => {
            return oom.attempt_of.map(|first| format!("by the order of calls an attempt to make up for #{first}"));
        }
        Because::ErrorRead if oom.allocator.is_some() => {
            "no exception was recorded, and what the program made of the error can't be seen"
        }
        Because::ErrorRead => "whether anybody looked at the error can't be seen",
        Because::FellBack if oom.allocator.is_none() && oom.is_made_up_by_time_alone => {
            "that is as far as calls show: nothing shows that the failure was noticed"
        }
        Because::RetrySucceeded | Because::FellBack if went_well_inside(oom) => return None,
        Because::RetrySucceeded | Because::FellBack if oom.allocator.is_none() => {
            "whether the program took it in place of this one can't be seen"
        }
        Because::GpuWorkContinued if oom.sign.is_some() => return oom.may_have_noticed(),
        // CuPy raises at each refusal, and its callers may go on.
        Because::GpuWorkContinued if oom.allocator.is_none() && is_from_python(oom) => {
            "whether it looked at the status, or raised an exception of Python, can't be seen"
        }
        Because::GpuWorkContinued if oom.allocator.is_none() => "whether it looked at the status can't be seen",
        Because::StatusChecked | Because::ErrorReported | Because::Exception if after_another(oom).is_some() => {
            return after_another(oom)
                .map(|other| format!("whether that was about this failure or #{other} can't be seen"));
        }
        Because::Exception if !oom.message.as_deref().is_some_and(is_of_memory) => {
            "whether the exception is about this failure can't be seen"
        }
        Because::ProcessExited => "whether it ended because of this failure can't be seen",
        _ => return None,
    };
    Some(open.to_owned())
}

/// Whether the call of an interface above, inside which it was refused, succeeded all the same.
fn went_well_inside(oom: &OomReport) -> bool {
    oom.evidence.iter().any(|evidence| evidence.event == "answer" && evidence.status == Some(0))
}

fn is_from_python(oom: &OomReport) -> bool {
    oom.stack.iter().any(|frame| frame.kind == FrameKind::Python)
}

/// Another failure of the thread that lies between this one and the first sign of notice.
fn after_another(oom: &OomReport) -> Option<u64> {
    let told = oom.evidence.iter().find(|evidence| matches!(evidence.event, "error_query" | "exception"));
    told.and_then(|told| told.after_failure)
}

/// Whether a message is about memory: a program may throw for another reason in between.
fn is_of_memory(message: &str) -> bool {
    let message = message.to_lowercase();
    ["memory", "alloc"].iter().any(|word| message.contains(word))
}

/// That the recorder's own readings held the thread up, where a time after them is told without that.
fn not_counted(oom: &OomReport) -> String {
    let timed = oom.evidence.iter().take(MOST_EVIDENCE).filter(|evidence| evidence.seq.is_some());
    match timed.map(|evidence| oom.held_up_until(evidence.at_ns)).max() {
        Some(ns @ 1..) => format!(" (not counted: {} of the recorder's own readings)", span(ns)),
        _ => String::new(),
    }
}

fn describe(oom: &OomReport, evidence: &Evidence) -> String {
    let later = match oom.later_ns(evidence.at_ns) {
        _ if evidence.seq.is_none() => "in the end".to_owned(),
        // Of what an allocator did between its last attempt and its error.
        _ if evidence.at_ns < oom.at_ns => format!("{} before", span(oom.at_ns - evidence.at_ns)),
        ns => format!("{} later", span(ns)),
    };
    // The end of a process that left no record of it has no time.
    let ended = if evidence.seq.is_none() { String::new() } else { format!(" {later}") };
    let api = evidence.api.as_deref().map(clean).unwrap_or_default();
    match evidence.event {
        "module" | "reserve" => format!("{api} succeeded {later}"),
        "pin" if evidence.gave.is_some_and(|gave| gave.kind == Kind::Registered.name()) => {
            let bytes = evidence.gave.and_then(|gave| gave.requested_bytes).map_or("memory".to_owned(), size);
            format!("{api} pinned {bytes} of the program's own {later}")
        }
        "alloc" | "pin" if matches!(oom.because, Because::FellBack | Because::FailedPointerUsed) => {
            format!("{api} gave {} {later}", oom.gave(evidence))
        }
        "alloc" | "pin" => format!("{api} of at least that size succeeded {later}"),
        "error_query" if evidence.asks_text => format!("the error's text was asked for ({api}) {later}"),
        "error_query" => format!("the last error was read ({api}) {later}"),
        "exception" => format!("an exception was thrown {later}"),
        "answer" if evidence.status == Some(0) => format!("{api}, inside which that was, succeeded {later}"),
        "answer" => format!("{api}, inside which that was, answered {} {later}", answered(evidence)),
        "block" => {
            format!("the program went on, and PyTorch's allocator gave that thread {} {later}", oom.gave(evidence))
        }
        "gpu_work" if evidence.pointer_left_by.is_some() => {
            format!("{api} was given a null pointer {later}, {}", whose_null(oom, evidence))
        }
        "gpu_work" if oom.because == Because::GpuWorkContinued => {
            format!("GPU work went on ({api}) {later}, {}", oom.before_what("the thread"))
        }
        "gpu_work" => format!("GPU work went on ({api}) {later}"),
        "process" if oom.because == Because::ProcessExited || oom.outcome == Outcome::Propagated => {
            format!("the process ended{ended} with {}", end(evidence))
        }
        "process" => format!("the process ended{ended}"),
        other => format!("{other} {later}"),
    }
}

/// What a call of an interface above answered.
fn answered(evidence: &Evidence) -> String {
    let number = evidence.status.filter(|status| *status < 0).map_or(String::new(), |status| format!(" ({status})"));
    format!("{}{number}", evidence.status_name.unwrap_or("an error"))
}

/// Who had left such a null: one that several calls left has no name.
fn whose_null(oom: &OomReport, evidence: &Evidence) -> String {
    match evidence.pointer_left_by {
        Some(calls @ 2..) => {
            format!("as {} had left one, this one among them", count(calls, "failed call", "failed calls"))
        }
        Some(_) if oom.because == Because::FailedPointerUsed => "as this call had left one".to_owned(),
        _ => "which may be the one that this call left".to_owned(),
    }
}

fn end(evidence: &Evidence) -> String {
    match evidence.status {
        Some(number) if evidence.by_signal => signal(number),
        Some(number) => format!("status {number}"),
        None => "a status that was not recorded".to_owned(),
    }
}

/// What the program held: managed memory by itself, as everywhere.
fn held_then(oom: &OomReport) -> String {
    let held = surely_held(oom);
    match oom.returning_bytes {
        0 => held,
        bytes => format!("{held}, and {} more unless another thread's free was done by then", size(bytes)),
    }
}

fn surely_held(oom: &OomReport) -> String {
    let on_card = size(oom.held_bytes.saturating_sub(oom.held_managed_bytes));
    let blocks = count(oom.held_blocks, "block", "blocks");
    match oom.held_managed_bytes {
        0 => format!("held then: {on_card} asked, in {blocks}"),
        managed if managed >= oom.held_bytes => {
            format!(
                "held then: {} asked, in {blocks}, all of which may lie in RAM{}",
                size(managed),
                surely_in_ram(oom)
            )
        }
        managed => {
            format!(
                "held then: {on_card} asked, beside {} that may lie in RAM{}; {blocks} in all",
                size(managed),
                surely_in_ram(oom)
            )
        }
    }
}

/// What the reading of the card leaves no room for there.
fn surely_in_ram(oom: &OomReport) -> String {
    match oom.managed_in_ram_bytes {
        Some(bytes @ 1..) => format!(" (at least {} did: the card had no more in use by sysfs)", size(bytes)),
        _ => String::new(),
    }
}

pub(in crate::report) fn free_then(summary: &Summary, oom: &OomReport) -> String {
    let name = runtime(summary.facts.device_of(oom).and_then(|device| device.runtime.as_deref()));
    let mut parts = vec![held_then(oom)];
    let mut free = Vec::new();
    free.extend(oom.free_reported_bytes.map(|bytes| format!("{} by {name}", size(bytes))));
    free.extend(oom.free_sysfs_bytes.map(|bytes| format!("{} by sysfs", size(bytes))));
    match free.is_empty() {
        true => parts.push("free then: not read".to_owned()),
        false => parts.push(format!("free then: {}", free.join(", "))),
    }
    match (oom.largest_allocatable_bytes, oom.not_probed_because) {
        (Some(0), _) => {
            parts.push("largest allocatable block below the request: none, of any size (measured)".to_owned())
        }
        // No larger one was tried.
        (Some(bytes), _) if oom.free_reported_bytes.is_some_and(|free| bytes >= free) => {
            parts.push(format!("a block of all that was reported free could be allocated: {} (measured)", size(bytes)));
        }
        (Some(bytes), _) => {
            parts.push(format!("largest allocatable block below the request: {} (measured)", size(bytes)))
        }
        (None, why) => {
            let not = why.map(|why| format!("not measured, because {why}"));
            let text = before(oom).or(not);
            parts.extend(text.map(|text| format!("largest allocatable block below the request: {text}")));
        }
    }
    parts.join("; ")
}

/// What was measured at an earlier attempt: other memory may have been free by the last one.
fn before(oom: &OomReport) -> Option<String> {
    let (at_ns, bytes) = oom.probed_before?;
    let bytes = if bytes == 0 { "none, of any size,".to_owned() } else { size(bytes) };
    Some(format!("{bytes} at the attempt of {} (measured); not measured at the last one", moment(at_ns)))
}

/// The verdict of the model and the one with the observed granularity, side by side.
fn model(summary: &Summary, oom: &OomReport) -> Option<String> {
    // What a virtual card refused is no matter of the real one's granules.
    let model = oom.model.filter(|_| !oom.unknown_size && oom.injected.is_none())?;
    let device = summary.facts.device_of(oom)?;
    let granules = size(device.granularity_bytes);
    let alone = " and no memory but the program's blocks";
    // What lives is there, whether the model found room for it or not.
    let free_bytes = model.free_bytes.saturating_sub(model.left_out_bytes);
    let left_out = match model.left_out_bytes {
        0 => String::new(),
        bytes => format!(" beside the blocks that live, of which {} have no room in the model", size(bytes)),
    };
    let modelled = match model.fits {
        true => format!("modelled with {granules} granules{alone} it would fit"),
        false if model.left_out_bytes > 0 && free_bytes >= oom.padded_bytes => format!(
            "modelled with {granules} granules{alone}, {} of the blocks that live have no room in one piece already: that tells nothing of \
             this request",
            size(model.left_out_bytes)
        ),
        false if free_bytes >= oom.padded_bytes => format!(
            "modelled with {granules} granules{alone} it would not fit: {} free, but the largest free block of the model is {} (external \
             fragmentation)",
            size(model.free_bytes),
            size(model.largest_free_block_bytes)
        ),
        false => {
            format!("modelled with {granules} granules{alone} it would not fit: {} free{left_out}", size(free_bytes))
        }
    };
    let inferred =
        device.granularity_observed_bytes.map(|bytes| format!("with the {} inferred from the addresses", size(bytes)));
    let observed = match (inferred, device.fits_as_observed(oom)) {
        (Some(with), Some(true)) => {
            format!("{with} the program's own blocks leave room for it: fragmentation does not explain the refusal")
        }
        (Some(with), Some(false)) => format!("{with} it would not fit either: rounding does not explain this failure"),
        (Some(with), None) => format!("{with} it fits or not, depending on how much rounding adds to each block"),
        (None, _) => "too few addresses of plain device memory to infer the real granularity".to_owned(),
    };
    Some(format!("{modelled}; {observed}"))
}

/// Many failures, by function, device and outcome.
fn write_folded(page: &mut Page, summary: &Summary) {
    let mut groups = BTreeMap::<(u8, &str, Option<u8>), Vec<&OomReport>>::new();
    for oom in &summary.facts.ooms {
        let severity = match oom.outcome {
            Outcome::Dropped => 0,
            Outcome::Unresolved => 1,
            Outcome::Propagated => 2,
            Outcome::Recovered => 3,
        };
        groups.entry((severity, oom.name(), oom.device)).or_default().push(oom);
    }
    for ((_, api, device), group) in groups.iter().take(MOST_SHOWN) {
        let Some((first, last)) = group.first().zip(group.last()) else { continue };
        let smallest = group.iter().map(|oom| oom.requested_bytes).min().unwrap_or(0);
        let largest = group.iter().map(|oom| oom.requested_bytes).max().unwrap_or(0);
        let sizes = match group.iter().all(|oom| oom.unknown_size) {
            true => asked(first),
            false if smallest == largest => size(smallest),
            false => format!("{} to {}", size(smallest), size(largest)),
        };
        let text = format!(
            "{} of {} on {}, {sizes}, from {} to {}; the first:",
            match first.allocator {
                Some(_) => count(group.len() as u64, "error", "errors"),
                None => count(group.len() as u64, "return", "returns"),
            },
            clean(api),
            gpu(*device),
            moment(first.at_ns),
            moment(last.at_ns)
        );
        page.painted("  ", &format!("{}:", first.outcome.name()), outcome_paint(first.outcome), &text);
        write_one(page, summary, first);
    }
    let listed = summary.facts.ooms.len() as u64;
    if summary.facts.oom_count > listed {
        page.indented(
            "  ",
            "  ",
            &format!(
                "only the first {} are listed; {} came later",
                grouped(listed),
                grouped(summary.facts.oom_count - listed)
            ),
        );
    }
}
