//! PyTorch's caching allocator under other settings.

use crate::report::page::{Page, Paint};
use crate::whatif::cards::Fate;
use crate::whatif::torch::told::Stop;
use crate::whatif::torch::{PolicyAnswer, TorchAnswer, UsableBy};
use crate::words::{clean, count, grouped, percent, size, whole_size};

/// Failures that are told one by one.
const MOST_FAILURES: usize = 8;

pub(super) fn write(page: &mut Page, answer: &TorchAnswer) {
    let settings = if answer.settings.is_empty() { "the default settings" } else { &answer.settings };
    let text = format!("the caching allocator of GPU {}, recorded with {}", answer.device, clean(settings));
    page.headed("PYTORCH", Paint::Bold, &text);
    let history = answer.snapshot.as_deref().map_or("the blocks in the trace".to_owned(), clean);
    item(page, "history", &format!("{history} ({})", requests(answer)));
    item(page, "check", &checked(answer));
    not_known(answer).iter().for_each(|text| item(page, "not known", text));
    item(page, "limit", &limit(answer));
    page.gap();
    if answer.answered_requests == 0 {
        page.indented("  ", "  ", "The model explains no request of this run, so nothing is said of other settings.");
        return;
    }
    write_policies(page, answer);
    write_failures(page, answer);
    write_warnings(page, answer);
}

fn item(page: &mut Page, name: &str, text: &str) {
    page.indented(&format!("  {name:<9} "), "            ", text);
}

fn requests(answer: &TorchAnswer) -> String {
    if answer.stops_because.is_some() {
        // What came behind is not looked at, failures among it.
        return count(answer.check.requests, "request", "requests");
    }
    let failed =
        if answer.failures == 0 { "none failed".to_owned() } else { format!("{} more failed", answer.failures) };
    format!("{}, {failed}", count(answer.check.requests, "request", "requests"))
}

fn checked(answer: &TorchAnswer) -> String {
    let check = &answer.check;
    let calls = check.calls;
    let mut text = format!(
        "the model makes {} of the {} that were recorded, and puts {} of {} at the recorded address",
        grouped(calls.matched),
        count(calls.recorded, "segment call", "segment calls"),
        grouped(check.placed),
        count(check.requests, "block", "blocks")
    );
    if calls.extra > 0 {
        text.push_str(&format!("; it makes {} more that were not", calls.extra));
    }
    if let Some(number) = calls.first_difference.filter(|_| answer.snapshot.is_some()) {
        text.push_str(&format!("; the first difference is call #{number}: what follows is as good as that"));
    }
    if check.blocks_before > 0 {
        let blocks = count(check.blocks_before, "block", "blocks");
        text.push_str(&format!("; {blocks} lived before the history began and are placed anew"));
    }
    if let Some(stop) = answer.stops_because {
        text.push_str(&format!("; {}", stopped(answer, stop)));
    }
    text
}

/// Why the answers are about a part of the run.
fn stopped(answer: &TorchAnswer, stop: Stop) -> String {
    let next = answer.answered_requests + 1;
    let because = match stop {
        Stop::ModelDiffers => format!("it differs first at request #{next}"),
        Stop::FailureUnexplained => {
            return format!(
                "request #{next} failed, and with the recorded settings on the recorded card the model meets it: it does not explain that \
                 failure, and nothing is said of it and of what follows"
            );
        }
        Stop::TotalsDiffer => format!("from request #{next} on PyTorch's own total is not the sum of its blocks"),
        Stop::OwnLimit => {
            format!(
                "request #{next} failed although nobody refused memory: PyTorch had a limit that the trace does not tell"
            )
        }
        Stop::TooLong => format!("request #{next} and what follows are too many"),
    };
    format!("{because}, and nothing is said of what follows")
}

/// What the model needs and the trace does not tell.
fn not_known(answer: &TorchAnswer) -> Vec<String> {
    if answer.snapshot.is_some() {
        return Vec::new();
    }
    let differs = matches!(answer.stops_because, Some(Stop::ModelDiffers | Stop::FailureUnexplained));
    let streams = match differs {
        true => {
            "streams, graphs' pools and blocks that wait for other streams: one of these may be why the model differs"
        }
        false => {
            "streams: all blocks are taken for one stream's, which explains the recorded run; a program with several may do \
             otherwise under other settings"
        }
    };
    let rounded = answer.check.rounded_requests;
    let sizes = (rounded > 0).then(|| {
        format!(
            "what {} asked for: PyTorch tells the size of the block; where it matters both ends are told",
            count(rounded, "request", "requests")
        )
    });
    std::iter::once(streams.to_owned()).chain(sizes).collect()
}

fn limit(answer: &TorchAnswer) -> String {
    match (answer.usable_bytes, answer.usable_by) {
        (Some(bytes), UsableBy::Failure) => {
            format!("PyTorch can have {}: what it had and what was free at the first failure", size(bytes))
        }
        (Some(bytes), UsableBy::VirtualCard) => {
            format!(
                "PyTorch could have {}: the virtual card of that run (GPUOOM_CAPACITY), not the card itself",
                size(bytes)
            )
        }
        (Some(bytes), _) => format!("PyTorch can have {}: the card less what a reading showed beside it", size(bytes)),
        (None, _) => "nothing tells how much PyTorch can have, so nothing fails: ask with --capacity".to_owned(),
    }
}

fn write_policies(page: &mut Page, answer: &TorchAnswer) {
    let which = match answer.stops_because {
        Some(_) => {
            format!("the first {} under each (modelled)", count(answer.answered_requests, "request", "requests"))
        }
        None => "the same requests under each (modelled)".to_owned(),
    };
    page.headed("SETTINGS", Paint::Bold, &which);
    let heads = ["", "card", "peak reserved", "in tensors", "unused", "takes", "gives", "retries", "fail"];
    page.line(&row(heads.map(str::to_owned)));
    for policy in &answer.policies {
        page.indented("  ", "    ", &named(policy));
        page.line(&numbers(policy));
        if let Some(least) = &policy.with_least_requests {
            page.indented("    ", "    ", "if requests were the least that their blocks can stand for");
            page.line(&numbers(least));
        }
    }
    let text = "takes, gives: calls of the driver for segments; unused: what no tensor had when most was reserved; retries: \
                the driver refused, and all cached memory was given back.";
    page.indented("  ", "  ", text);
    if answer.policies.iter().any(changes) {
        let text = "Where a request has another outcome the program may go another way: what is counted behind it is what \
                    happens if it asks for the same nevertheless.";
        page.indented("  ", "  ", text);
    }
}

fn numbers(policy: &PolicyAnswer) -> String {
    let fail = policy.failures.iter().filter(|failure| failure.fate == Fate::Remains).count() as u64;
    let (least, most) = (fail + policy.new_failures_least, fail + policy.new_failures_most);
    let fails = if least == most { least.to_string() } else { format!("{least} to {most}") };
    let [takes, gives, retries] = [policy.takes, policy.gives, policy.retries].map(|number| number.to_string());
    row([
        String::new(),
        policy.capacity_bytes.map_or("-".to_owned(), |bytes| card(policy, bytes)),
        size(policy.peak_reserved_bytes),
        size(policy.peak_allocated_bytes),
        percent(policy.unused_at_peak),
        takes,
        gives,
        retries,
        fails,
    ])
}

fn changes(policy: &PolicyAnswer) -> bool {
    policy.first_change.is_some()
        || policy.with_least_requests.as_ref().is_some_and(|least| least.first_change.is_some())
}

fn named(policy: &PolicyAnswer) -> String {
    let settings = if policy.settings.is_empty() { "default settings" } else { &policy.settings };
    let settings = clean(settings);
    let recorded = if policy.is_recorded { ", as recorded" } else { "" };
    let change = policy.first_change.map_or(String::new(), |number| format!(", another way from request #{number} on"));
    format!("{settings}{recorded}{change}")
}

fn row([first, card, reserved, tensors, unused, takes, gives, retries, fail]: [String; 9]) -> String {
    format!(
        "  {first:<2}{card:>11} {reserved:>13} {tensors:>11} {unused:>7} {takes:>6} {gives:>6} {retries:>7} {fail:>7}"
    )
}

fn write_failures(page: &mut Page, answer: &TorchAnswer) {
    let Some(first) = answer.policies.first().filter(|policy| !policy.failures.is_empty()) else { return };
    page.gap();
    page.headed("FAILURES OF PYTORCH", Paint::Bold, "would the error remain? (modelled)");
    for (index, failure) in first.failures.iter().take(MOST_FAILURES).enumerate() {
        let head = format!("  #{:<3} {}: ", failure.number, size(failure.requested_bytes));
        // Of a range of requests only two examples were replayed, which bound nothing.
        let words = [
            (Fate::Remains, false, "remains with"),
            (Fate::Gone, false, "gone with"),
            (Fate::Remains, true, "remains in both examples with"),
            (Fate::Gone, true, "gone in both examples with"),
            (Fate::Depends, false, "depends with"),
            (Fate::Depends, true, "depends with"),
        ];
        let told = words.iter().filter_map(|(fate, by_examples, words)| {
            let here = |policy: &&PolicyAnswer| {
                policy.fate(index) == Some(*fate) && policy.with_least_requests.is_some() == *by_examples
            };
            let name = |policy: &PolicyAnswer| match *fate {
                Fate::Gone => format!("{}{}", short(policy), others_fail(policy)),
                _ => short(policy),
            };
            let names: Vec<String> = answer.policies.iter().filter(here).map(name).collect();
            (!names.is_empty()).then(|| format!("{words} {}", names.join("; ")))
        });
        page.indented(&head, "       ", &told.collect::<Vec<_>>().join(". "));
    }
    let has_gone = |policy: &PolicyAnswer| policy.failures.iter().any(|failure| failure.fate == Fate::Gone);
    if answer.policies.iter().any(has_gone) {
        let text = "What the program would have asked for next, had a request not failed, is not in the trace.";
        page.indented("  ", "  ", text);
    }
}

/// A failure that is gone helps nobody where others come in its place.
fn others_fail(policy: &PolicyAnswer) -> String {
    let new = |policy: &PolicyAnswer| policy.new_failures_most;
    match policy.with_least_requests.as_deref().map_or(0, new).max(new(policy)) {
        0 => String::new(),
        1 => ", where another request fails that had succeeded".to_owned(),
        more => format!(", where up to {more} others fail that had succeeded"),
    }
}

fn short(policy: &PolicyAnswer) -> String {
    let settings = if policy.settings.is_empty() { "default settings".to_owned() } else { clean(&policy.settings) };
    policy.capacity_bytes.map_or(settings.clone(), |bytes| format!("{settings} on {}", card(policy, bytes)))
}

/// A card that was asked about as exactly as it was given.
fn card(policy: &PolicyAnswer, bytes: u64) -> String {
    if policy.is_recorded { size(bytes) } else { whole_size(bytes) }
}

fn write_warnings(page: &mut Page, answer: &TorchAnswer) {
    let has = |what: fn(&PolicyAnswer) -> bool| answer.policies.iter().any(what);
    if has(|policy| policy.expandable_with_max_split) {
        let text = "do not run with expandable_segments:True and max_split_size_mb together: from torch 2.12 the pair lets \
                    reserved memory grow to the whole card, and on ROCm 7.14 live memory was seen to read back zeros. Give one \
                    of the two (gpuoom-analyze explain expandable-with-max-split)";
        page.painted("  ", "warning:", Paint::Failure, text);
    }
    if has(|policy| policy.inert_threshold) {
        let text = "garbage_collection_threshold acts only where a share of the card is set \
                    (torch.cuda.set_per_process_memory_fraction, or per_process_memory_fraction:0.9)";
        page.painted("  ", "note:", Paint::Plain, text);
    }
}
