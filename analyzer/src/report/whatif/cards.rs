//! What other cards and granules make of a device's calls.

use crate::report::page::{Page, Paint};
use crate::whatif::cards::{Basis, Card, Change, DeviceAnswer, Failure, Fate, Fates, Granularity, Need, Unclear};
use crate::whatif::overhead::{Origin, Overhead};
use crate::words::{clean, count, gpu, moment, size, whole_size};

/// Failures that are told one by one.
const MOST_FAILURES: usize = 8;

pub(super) fn write(page: &mut Page, device: &DeviceAnswer) {
    write_head(page, device);
    page.gap();
    write_needs(page, device);
    if device.cards.is_empty() {
        page.gap();
        page.indented("", "", "The size of the card is not in the trace: ask with --capacity what another would do.");
        return;
    }
    page.gap();
    write_cards(page, device);
    write_changes(page, device);
    write_failures(page, device);
}

fn item(page: &mut Page, name: &str, text: &str) {
    page.indented(&format!("  {name:<9} "), "            ", text);
}

fn write_head(page: &mut Page, device: &DeviceAnswer) {
    let name = device.name.as_ref().map_or(String::new(), |name| format!("{}, ", clean(name)));
    let total = device.total_bytes.map_or("of unknown size".to_owned(), size);
    let calls = count(device.allocations, "allocation", "allocations");
    let text = format!("{}: {name}{total}; {calls}, {}", gpu(device.index), failed(device.failures));
    page.headed("WHAT IF", Paint::Bold, &text);
    if let Some(bytes) = device.virtual_bytes {
        let text = format!(
            "the run had {} in place of the card (GPUOOM_CAPACITY), for the program's own blocks alone: the recorded failures are \
             judged by that, and the card itself is one of those that are asked about; --capacity asks about another",
            size(bytes)
        );
        item(page, "virtual", &text);
    }
    item(page, "measured", &measured(&device.overhead));
    if device.managed_bytes > 0 {
        item(page, "", &managed(device));
    }
    item(
        page,
        "modelled",
        "a request fails where it, what is held (each block rounded up to granules) and what was measured are more than \
         the card has; where a block lies plays no part, because drivers scatter blocks",
    );
    if device.returned_to_pools_bytes > 0 {
        let bytes = size(device.returned_to_pools_bytes);
        let kept = match device.overhead.kept_by_pools_bytes {
            0 => String::new(),
            kept => format!("; of what was measured above, up to {} may be what they kept then", size(kept)),
        };
        let text = format!(
            "{bytes} went back to pools over the run: nobody knows how much of it they keep, and what depends on that is told as a \
             range, from nothing to all that the recorded card had room for{kept}"
        );
        item(page, "not known", &text);
    }
    for check in device.cards.iter().filter(|card| card.is_recorded) {
        item(page, "check", &checked(check, device));
    }
}

/// What is known of managed memory: nothing of where its pages lay.
fn managed(device: &DeviceAnswer) -> String {
    let held = size(device.managed_bytes);
    let beside = match device.overhead.origin {
        Origin::Given | Origin::Unknown => String::new(),
        _ if device.overhead.managed_bytes == 0 => {
            "; nothing of what was measured can be part of it, and a larger card may hold some of it".to_owned()
        }
        _ => format!(
            "; of what was measured, up to {} may be part of it, which may lie in RAM on another card, and a larger card may hold more of \
             it",
            size(device.overhead.managed_bytes)
        ),
    };
    format!("up to {held} that may lie in RAM is none of the program's blocks here: nobody knows where it lay{beside}")
}

fn failed(failures: u64) -> String {
    if failures == 0 { "none failed".to_owned() } else { format!("{failures} more failed") }
}

fn measured(overhead: &Overhead) -> String {
    let by = overhead.by.map_or(String::new(), |by| format!(", by {by}"));
    let bytes = size(overhead.bytes);
    match (overhead.origin, overhead.failure) {
        (Origin::Given, _) => format!("{bytes} beside the program's blocks: given, not measured"),
        (Origin::Unknown, _) => {
            "nothing: no reading tells what runtime, driver and other processes hold, so it is taken as nothing and what \
             is needed is more; --overhead gives a number"
                .to_owned()
        }
        (origin, failure) => {
            let when = match (origin, failure) {
                (Origin::AtFailure, Some(number)) => format!("at failure #{number}"),
                (Origin::AtPeak, _) => "at the peak".to_owned(),
                _ => "at the last reading".to_owned(),
            };
            format!(
                "{bytes} in use beside the program's blocks and what rounding adds to them {when}{by}: runtime, driver, what pools \
                 keep, other processes; taken as the same at all times and on all cards"
            )
        }
    }
}

fn checked(card: &Card, device: &DeviceAnswer) -> String {
    let Fates { remain, gone, depend, unknown } = card.fates;
    let judged = remain + gone + depend;
    let failures = match (judged, unknown) {
        (0, 0) => String::new(),
        (0, _) => "no failure is one of the card's size; ".to_owned(),
        _ => {
            let open = match (depend, unknown_part(device)) {
                (1.., Some(part)) => format!(", {depend} if it is for {part}"),
                _ => String::new(),
            };
            format!("{remain} of {} explained{open}; ", count(judged, "failure", "failures"))
        }
    };
    let refused = match (card.new_failures_least, card.new_failures_most) {
        (0, None) if device.allocations == 0 => "all that was given may lie in RAM".to_owned(),
        (0, None) => {
            format!("all {} beside managed memory may fit", count(device.allocations, "allocation", "allocations"))
        }
        (0, Some(0)) if device.allocations == 0 => "no allocation succeeded".to_owned(),
        (0, Some(0)) if device.allocations == 1 => "the one allocation fits".to_owned(),
        (0, Some(0)) => format!("all {} fit", count(device.allocations, "allocation", "allocations")),
        (least, most) => {
            let refused = refused(least, most);
            format!("{refused} that succeeded would not fit, so the model asks for more than the card did")
        }
    };
    let which = match device.virtual_bytes {
        Some(bytes) => format!("the virtual card of {}", size(bytes)),
        None => "the recorded card".to_owned(),
    };
    format!("{which}, {}: {failures}{refused}", granule(card.granularity))
}

fn granule(granularity: Granularity) -> String {
    let bytes = size(granularity.bytes);
    match granularity.basis {
        Basis::Inferred => format!("{bytes} (from addresses)"),
        Basis::Recorded => format!("{bytes} (model)"),
        Basis::Given => format!("{bytes} (given)"),
        Basis::None => "no rounding".to_owned(),
    }
}

fn refused(least: u64, most: Option<u64>) -> String {
    match most {
        None => format!("{least} or more"),
        Some(most) if most == least => least.to_string(),
        Some(most) => format!("{least} to {most}"),
    }
}

fn write_needs(page: &mut Page, device: &DeviceAnswer) {
    // Of managed memory nobody knows how much a card must hold.
    if device.allocations == 0 && device.managed_bytes > 0 {
        return;
    }
    page.headed("FITS IN", Paint::Bold, "the smallest card on which no recorded request would have failed (modelled)");
    if device.own_limit_failures > 0 {
        let failures = count(device.own_limit_failures, "failure is", "failures are");
        let text = format!(
            "Not known: {failures} by a limit that an allocator of the program keeps by itself, such as \
             torch.cuda.set_per_process_memory_fraction. Where that is a share of the card, another card has another limit."
        );
        page.indented("  ", "  ", &text);
        return;
    }
    let cells = ["granules", "peak asked", "padded", "card of at least", "at most"];
    page.line(&needs_row(cells.map(str::to_owned)));
    for need in &device.needs {
        let Need { peak_requested_bytes, peak_padded_bytes, fits_in_least_bytes, fits_in_most_bytes, .. } = *need;
        let most = match need.unexplained_failures {
            1.. => "not known".to_owned(),
            0 if fits_in_most_bytes == fits_in_least_bytes => String::new(),
            0 => whole_size(fits_in_most_bytes),
        };
        let [asked, padded] = [peak_requested_bytes, peak_padded_bytes].map(size);
        let least = whole_size(fits_in_least_bytes);
        page.line(&needs_row([granule(need.granularity), asked, padded, least, most]));
    }
    if device.needs.iter().any(|need| need.fits_in_most_bytes != need.fits_in_least_bytes) {
        if device.failures > 0 {
            let text = "Two sizes, because nobody knows how long what was refused would have lived: it might be freed at once, or \
                        never.";
            page.indented("  ", "  ", text);
        }
        if let Some(part) = unknown_part(device) {
            let text = format!("They also bound what nobody knows: {part}.");
            page.indented("  ", "  ", &text);
        }
    }
    if device.needs.iter().any(|need| need.unexplained_failures > 0) {
        let text = "Not known where the model has room on the recorded card for what that card refused: for such a failure it says \
                    nothing of another card either.";
        page.indented("  ", "  ", text);
    }
    if device.absurd_failures > 0 {
        let failures = count(device.absurd_failures, "failed request", "failed requests");
        page.indented("  ", "  ", &format!("{failures} of 1 PiB or more left out: no card has that."));
    }
    let of_others = device.cards.first().map_or(0, |card| card.fates.unknown);
    if of_others > 0 {
        let failures = count(of_others, "failure is", "failures are");
        page.indented("  ", "  ", &format!("{failures} left out that the size of the card does not explain."));
    }
    page.indented("  ", "  ", &for_this_length(device));
    if device.failures > 0 {
        let text = "Only what was recorded counts: what the program would have asked for, had its requests not failed, is not in the \
                    trace.";
        page.indented("  ", "  ", text);
    }
}

/// How long a run the sizes are good for.
fn for_this_length(device: &DeviceAnswer) -> String {
    match (device.grows_bytes_per_step, device.may_grow_bytes_per_step) {
        (Some(bytes), _) => format!(
            "They hold for this run's length only: where it ends, what stays still grows, by {} after each step; a longer run needs more.",
            size(bytes)
        ),
        (None, Some(bytes)) => format!(
            "They hold for a run as long as this one: where it ends, what stays still grows, by {} after each step; if that is no load that \
             ends, a longer run needs more.",
            size(bytes)
        ),
        (None, None) => "They hold for a run as long as this one.".to_owned(),
    }
}

fn needs_row([granule, asked, padded, least, most]: [String; 5]) -> String {
    format!("  {granule:<24} {asked:>11} {padded:>11} {least:>17} {most:>11}")
}

fn write_cards(page: &mut Page, device: &DeviceAnswer) {
    page.headed("CARDS", Paint::Bold, "what each card makes of the recorded calls (modelled)");
    page.line(&format!("  {:<10} {:<24} {:<26}  {:>14}", "", "", "recorded failures", "successes"));
    let heads = ["card", "granules", "remain", "gone", "depend", "unknown", "that fail"];
    page.line(&cards_row(heads.map(str::to_owned)));
    for card in &device.cards {
        let Fates { remain, gone, depend, unknown } = card.fates;
        let [remain, gone, depend, unknown] = [remain, gone, depend, unknown].map(|number| number.to_string());
        // How much of what may lie in RAM another card would hold, nobody knows.
        let is_unknown = card.new_failures_most.is_none() && device.allocations == 0;
        let new = if is_unknown { "?".to_owned() } else { refused(card.new_failures_least, card.new_failures_most) };
        let mark = if card.is_recorded && device.virtual_bytes.is_some() { "†" } else { "" };
        page.line(&cards_row([
            format!("{}{mark}", card_size(card)),
            granule(card.granularity),
            remain,
            gone,
            depend,
            unknown,
            new,
        ]));
    }
    if device.virtual_bytes.is_some() {
        page.indented(
            "  ",
            "  ",
            "†: the virtual card of GPUOOM_CAPACITY, which counts the program's own blocks alone",
        );
    }
}

/// A card that was asked about is told as exactly as it was given: 1026 MiB is not the card of 1 GiB that failed.
fn card_size(card: &Card) -> String {
    if card.is_recorded { size(card.capacity_bytes) } else { whole_size(card.capacity_bytes) }
}

fn cards_row([card, granule, remain, gone, depend, unknown, new]: [String; 7]) -> String {
    // 80 columns, with a range in the last of them.
    format!("  {card:<10} {granule:<24} {remain:>6} {gone:>4} {depend:>6} {unknown:>7}  {new:>14}")
}

/// The first change of each card, and what it means for all that comes after.
fn write_changes(page: &mut Page, device: &DeviceAnswer) {
    let (mut any, mut any_uncertain) = (false, false);
    for card in device.cards.iter().filter(|card| !card.is_recorded) {
        let name = format!("{}, {}", card_size(card), granule(card.granularity));
        any |= card.first_change.is_some() || card.may_change.is_some();
        any_uncertain |= card.may_change.is_some();
        let text = match (&card.may_change, &card.first_change) {
            (None, None) if device.managed_bytes > 0 => {
                "nothing changes of what surely lies on the card; of what may lie in RAM it is not known".to_owned()
            }
            (None, None) if card.fates.unknown > 0 => "every call that can be told has the same outcome".to_owned(),
            (None, None) => "every call has the same outcome".to_owned(),
            (None, Some(change)) => format!("the first change is that {}", what_changes(change)),
            (Some(change), None) => format!("the first change may be that {}", what_changes(change)),
            (Some(change), Some(latest)) => format!(
                "the first change may be that {}; at the latest it is that {}",
                what_changes(change),
                what_changes(latest)
            ),
        };
        page.indented("  - ", "    ", &format!("{name}: {text}"));
    }
    if any {
        let sure = match (any_uncertain, unknown_part(device)) {
            (false, _) => "Only the first change is certain, as far as the model is right.".to_owned(),
            (true, Some(part)) => format!("Where it says \"may\", not even the first change is certain: it depends on {part}."),
            (true, None) => "Where it says \"may\", not even the first change is certain: it depends on how long memory is held that \
                             was refused."
                .to_owned(),
        };
        let text = format!(
            "{sure} After it the program may have gone another way: all counts behind it say what happens if it makes the same calls \
             nevertheless."
        );
        page.indented("  ", "  ", &text);
    }
}

/// What nobody knows of the memory in use.
fn unknown_part(device: &DeviceAnswer) -> Option<&'static str> {
    let pools = device.returned_to_pools_bytes > 0;
    match (device.overhead.managed_held_bytes > 0, pools) {
        (true, true) => Some("what pools keep and how much of what may lie in RAM is on the card"),
        (true, false) => Some("how much of what may lie in RAM is on the card"),
        (false, true) => Some("what pools keep"),
        (false, false) if device.failures_in_pieces > 0 => Some(
            "how many more pieces of a refused block would have been asked for, and how long they would have been held",
        ),
        (false, false) => None,
    }
}

fn what_changes(change: &Change) -> String {
    let call = format!("{} {} at {}", clean(&change.api), size(change.requested_bytes), moment(change.at_ns));
    match change.failure {
        Some(number) => format!("failure #{number} ({call}) does not happen"),
        None => format!("{call}, which succeeded, fails"),
    }
}

fn write_failures(page: &mut Page, device: &DeviceAnswer) {
    let asked = device.cards.iter().any(|card| !card.is_recorded);
    let Some(first) = device.cards.first() else { return };
    let told = |failure: &&Failure| asked || failure.unclear.is_some();
    if !first.failures.iter().any(|failure| told(&failure)) {
        return;
    }
    page.gap();
    page.headed("FAILURES", Paint::Bold, "what becomes of each recorded failure (modelled)");
    for (index, failure) in first.failures.iter().enumerate().filter(|(_, failure)| told(failure)).take(MOST_FAILURES) {
        let head = format!("  #{:<3} {} {}: ", failure.number, moment(failure.at_ns), size(failure.requested_bytes));
        let text = failure.unclear.map_or_else(|| fates(device, index), |unclear| why_unclear(unclear).to_owned());
        page.indented(&head, "       ", &text);
    }
    if asked {
        page.indented("  ", "  ", "* if the program gets there: an earlier call already had another outcome");
    }
    if first.failures.len() > MOST_FAILURES {
        page.indented("  ", "  ", "The others are in --format json.");
    }
}

fn fates(device: &DeviceAnswer, index: usize) -> String {
    let cards = &device.cards;
    let or = unknown_part(device).map_or_else(String::new, |part| format!(" or on {part}"));
    let depends = format!("depends, on how long refused memory would have been held{or}, on");
    let words = [(Fate::Remains, "remains on"), (Fate::Gone, "gone on"), (Fate::Depends, &depends[..])];
    let told = words.iter().filter_map(|(fate, words)| {
        let names = with_fate(cards, index, *fate);
        (!names.is_empty()).then(|| format!("{words} {}", names.join(", ")))
    });
    let told: Vec<String> = told.collect();
    let untold = with_fate(cards, index, Fate::Unknown);
    let why = cards.iter().find_map(|card| card.failures.get(index)?.unclear).map(why_unclear);
    match (&told[..], why) {
        (told, None) => told.join("; "),
        ([], Some(why)) => why.to_owned(),
        (told, Some(why)) => format!("{}; on {} it {why}", told.join("; "), untold.join(", ")),
    }
}

/// The cards on which a failure has this fate; their granules only where others have another fate there.
fn with_fate(cards: &[Card], index: usize, fate: Fate) -> Vec<String> {
    let asked: Vec<&Card> = cards.iter().filter(|card| !card.is_recorded).collect();
    let of_size = asked.chunk_by(|one, other| one.capacity_bytes == other.capacity_bytes);
    let named = of_size.filter_map(|same| {
        let failure = |card: &Card| card.failures.get(index).copied();
        let here: Vec<&Card> =
            same.iter().filter(|card| failure(card).is_some_and(|failure| failure.fate == fate)).copied().collect();
        let conditional = failure(here.first()?)?.conditional;
        let mark = if conditional { "*" } else { "" };
        let (unrounded, rounded): (Vec<&Card>, Vec<&Card>) =
            here.iter().copied().partition(|card| card.granularity.basis == Basis::None);
        let sizes: Vec<String> = rounded.iter().map(|card| size(card.granularity.bytes)).collect();
        let at = (!sizes.is_empty()).then(|| format!("at {}", sizes.join(" and ")));
        let with = unrounded.first().map(|card| format!("with {}", granule(card.granularity)));
        let words: Vec<String> = at.into_iter().chain(with).collect();
        let beside = if here.len() < same.len() { format!(" {}", words.join(" and ")) } else { String::new() };
        Some(format!("{}{mark}{beside}", card_size(here.first()?)))
    });
    named.collect()
}

fn why_unclear(unclear: Unclear) -> &'static str {
    match unclear {
        Unclear::Host => "no card changes it: it is about memory of the host",
        Unclear::UnknownSize => "can't be told: nobody says how much memory the call wanted",
        Unclear::Injected => "no card changes it: the recorder injected it",
        Unclear::OwnLimit => {
            "can't be told: an allocator of the program raised it and no call of the runtime was refused, so it has a limit of its own \
             (such as torch.cuda.set_per_process_memory_fraction), which may be another one on another card"
        }
        Unclear::NotExplained => "can't be told: the model has room for it on the recorded card, which refused it",
        Unclear::EnoughWasFree => {
            "can't be told: more was free than it asked for, so it failed for another reason than the size of the card"
        }
    }
}
