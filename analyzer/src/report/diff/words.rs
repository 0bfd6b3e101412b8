//! What text and Markdown have in common: which numbers are shown, and the sentences.

use crate::compare::{Difference, Pair, PlaceDifference, Presence, SiteDifference};
use crate::passes::profile::{Figure, Figures, KnownBy, Place, Run, TensorFigure, Unit};
use crate::words;

/// Figures of a device that are always shown.
const ALWAYS: [Figure; 5] = [Figure::Peak, Figure::PaddedPeak, Figure::End, Figure::Allocations, Figure::Frees];
/// Figures that only matter where they are not zero.
const WHERE_THERE: [Figure; 6] =
    [Figure::Failures, Figure::Ooms, Figure::Recovered, Figure::Propagated, Figure::Dropped, Figure::Unresolved];
/// Figures of a call site that are named where they changed; the others follow from them.
const OF_SITES: [Figure; 10] = [
    Figure::Peak,
    Figure::End,
    Figure::Allocations,
    Figure::Allocated,
    Figure::Failures,
    Figure::Ooms,
    Figure::Recovered,
    Figure::Propagated,
    Figure::Dropped,
    Figure::Unresolved,
];

/// What a call site is where PyTorch's segments are among the calls.
const OF_SEGMENTS: &str = "; a segment of PyTorch's counts for the place that needed it first";

/// A number in its unit.
pub(super) fn amount(figure: Figure, number: u64) -> String {
    match figure.unit() {
        Unit::Bytes => words::size(number),
        Unit::Count => words::grouped(number),
    }
}

/// A change with its sign, in its unit.
pub(super) fn signed(figure: Figure, change: i128) -> String {
    let size = amount(figure, u64::try_from(change.unsigned_abs()).unwrap_or(u64::MAX));
    match change {
        0 => "=".to_owned(),
        1.. => format!("+{size}"),
        _ => format!("-{size}"),
    }
}

/// A change as a share of what it was: `+12.5 %`, or `×12` where it is that many times as much; nothing where there is nothing to compare with.
pub(super) fn share(pair: &Pair, figure: Figure) -> String {
    let (base, change) = (pair.base[figure], pair.change(figure));
    match (base, change) {
        (0, _) | (_, 0) => String::new(),
        _ if change / i128::from(base) >= 10 => format!("×{:.0}", pair.new[figure] as f64 / base as f64),
        _ => format!("{:+.1} %", change as f64 / base as f64 * 100.0),
    }
}

/// The lines of a device about what an allocator above the runtime gave out and held: name, both numbers, change, share. What is not
/// known is `?`.
pub(super) fn of_tensors(place: &PlaceDifference) -> Vec<[String; 5]> {
    let Some(tensors) = &place.tensors else { return Vec::new() };
    let line = |figure: TensorFigure| {
        let sides = tensors.pair(figure);
        let [was, is] = sides.map(|number| number.map_or("?".to_owned(), words::size));
        let (change, share) = match sides {
            [Some(base), Some(new)] => {
                let mut pair = Pair::default();
                (pair.base[Figure::Peak], pair.new[Figure::Peak]) = (base, new);
                (signed(Figure::Peak, pair.change(Figure::Peak)), share(&pair, Figure::Peak))
            }
            _ => ("?".to_owned(), String::new()),
        };
        [figure.words().to_owned(), was, is, change, share]
    };
    TensorFigure::ALL.into_iter().map(line).collect()
}

/// The call sites of blocks that are listed, in the same words as the others.
pub(super) fn notable_tensors(difference: &Difference) -> Vec<&SiteDifference> {
    difference.tensor_sites.iter().filter(|site| site.is_notable).collect()
}

/// What is to be said of a call site of blocks.
pub(super) fn tensor_site(site: &SiteDifference) -> SiteWords {
    let [was, is] = [&site.pair.base, &site.pair.new].map(|figures| {
        let blocks = words::count(figures[Figure::PeakBlocks], "block", "blocks");
        format!("{} in {blocks}", words::size(figures[Figure::Peak]))
    });
    let details = match site.presence {
        Presence::Both => format!("when most was in tensors: {was}, now {is}"),
        Presence::New => format!("when most was in tensors: {is}"),
        Presence::Gone => format!("when most was in tensors: {was}"),
    };
    SiteWords { change: signed(Figure::Peak, site.pair.change(Figure::Peak)), details }
}

/// The figures of a device that are worth a line.
pub(super) fn of_place(place: &PlaceDifference) -> Vec<Figure> {
    let is_there = |figure: &Figure| place.pair.base[*figure] > 0 || place.pair.new[*figure] > 0;
    ALWAYS.into_iter().chain(WHERE_THERE.into_iter().filter(is_there)).collect()
}

/// Heading of a device: its name, and in which run it was used.
pub(super) fn place_heading(place: &PlaceDifference) -> String {
    let name = place.name.as_ref().map_or(String::new(), |name| format!(" ({})", words::clean(name)));
    let only = match place.presence {
        Presence::Both => "",
        Presence::New => ", used in NEW only",
        Presence::Gone => ", used in BASE only",
    };
    let of = if place.place == Place::Host { " (pinned and registered)" } else { "" };
    format!("{}{name}{of}{only}", place.place.words())
}

/// One run in a line.
pub(super) fn run(run: &Run) -> String {
    let program = if run.executable.is_empty() { "unknown program" } else { &run.executable };
    let rank = words::rank(run.rank);
    let events = words::count(run.events, "event", "events");
    format!("{}{rank}, {}, {events}", words::clean(program), words::moment(run.duration_ns))
}

/// The call sites that are listed: those with a notable difference.
pub(super) fn notable(difference: &Difference) -> Vec<&SiteDifference> {
    difference.sites.iter().filter(|site| site.is_notable).collect()
}

/// The sentence about the call sites that are not listed; empty where there is none.
pub(super) fn folded(difference: &Difference) -> String {
    let (mut equal, mut small) = (0, 0);
    for site in difference.sites.iter().filter(|site| !site.is_notable) {
        *if site.pair.is_equal() { &mut equal } else { &mut small } += 1;
    }
    let mut parts = Vec::new();
    if equal > 0 {
        parts.push(format!("{} unchanged", words::count(equal, "call site", "call sites")));
    }
    if small > 0 {
        let sites = words::count(small, "call site", "call sites");
        parts.push(format!("{sites} changed by less than the threshold ({})", threshold(difference)));
    }
    if parts.is_empty() { String::new() } else { format!("{}.", parts.join("; ")) }
}

/// The threshold in words.
pub(super) fn threshold(difference: &Difference) -> String {
    let threshold = &difference.threshold;
    format!("{} and {}", words::size(threshold.bytes), words::percent(threshold.share))
}

/// What call sites were matched by, with what that means.
pub(super) fn matched_by(difference: &Difference) -> &'static str {
    match difference.matched_by {
        KnownBy::Function => "by the function that was called",
        KnownBy::Library => "by the function that was called and the library that called it",
        KnownBy::Caller => "by the function that was called and the function that called it",
        KnownBy::Stack => "by the functions and modules of their call stacks",
    }
}

/// What is to be said of a call site: the number that stands first, and the others that changed.
pub(super) struct SiteWords {
    /// The most telling change, with its sign.
    pub(super) change: String,
    /// `peak 1.00 GiB, was 512 MiB; allocations ...`
    pub(super) details: String,
}

/// The words for a call site.
pub(super) fn site(difference: &Difference, site: &SiteDifference) -> SiteWords {
    let named = named(difference, site);
    let first = named.first().copied().unwrap_or(Figure::Peak);
    let detail = |figure: &Figure| {
        let (base, new) = (amount(*figure, site.pair.base[*figure]), amount(*figure, site.pair.new[*figure]));
        let name = if *figure == Figure::Peak { "at the peak" } else { figure.words() };
        match site.presence {
            Presence::Both => format!("{name}: {base}, now {new}"),
            Presence::New => format!("{name}: {new}"),
            Presence::Gone => format!("{name}: {base}"),
        }
    };
    let details: Vec<String> = named.iter().map(detail).collect();
    let unit = match first {
        _ if first.unit() == Unit::Bytes => "",
        _ if first.is_failure() => " refused",
        Figure::Allocations | Figure::Frees => " calls",
        _ => " blocks",
    };
    SiteWords { change: format!("{}{unit}", signed(first, site.pair.change(first))), details: details.join("; ") }
}

/// The figures of a call site that are worth a word, the most telling first.
fn named(difference: &Difference, site: &SiteDifference) -> Vec<Figure> {
    let changed = |figure: &Figure| match site.presence {
        Presence::Both => difference.threshold.is_passed(*figure, &site.pair),
        // What it asked for in all is no news of a call site that is news itself.
        _ => site.pair.change(*figure) != 0 && *figure != Figure::Allocated,
    };
    let mut named: Vec<Figure> = OF_SITES.into_iter().filter(changed).collect();
    if named.contains(&Figure::Ooms) && site.pair.change(Figure::Ooms) == site.pair.change(Figure::Failures) {
        named.retain(|figure| *figure != Figure::Failures);
    }
    if named.is_empty() { Figure::all().filter(changed).collect() } else { named }
}

/// Where a call site's memory lies, and of what kind it is.
pub(super) fn whereabouts(site: &SiteDifference) -> String {
    match site.place {
        Place::Host => site.kind.name().to_owned(),
        device => format!("{} {}", device.words(), site.kind.name()),
    }
}

/// The word for a call site that only one run has.
pub(super) fn presence(presence: Presence) -> &'static str {
    match presence {
        Presence::Both => "",
        Presence::New => "new",
        Presence::Gone => "gone",
    }
}

/// The devices whose numbers did not change, in a sentence.
pub(super) fn unchanged_places(difference: &Difference) -> Option<String> {
    let unchanged = difference.places.iter().filter(|place| !is_notable(place));
    let names: Vec<String> = unchanged.map(place_heading).collect();
    (!names.is_empty()).then(|| format!("Unchanged: {}.", names.join(", ")))
}

/// Whether a device, or a kind of memory on it, has a change to show.
pub(super) fn is_notable(place: &PlaceDifference) -> bool {
    place.is_notable || place.kinds.iter().any(|kind| kind.is_notable)
}

/// All in one or two sentences.
pub(super) fn verdict(difference: &Difference) -> String {
    let mut sentences: Vec<String> = read_only_in_part(difference).into_iter().chain(ends(difference)).collect();
    let runs = if ends(difference).is_some() { "Otherwise the" } else { "The" };
    if difference.is_equal {
        sentences.push(format!(
            "{runs} two runs do not differ in what the program asked for: the same peaks, the same memory at the end, the same calls and \
             the same failures."
        ));
        sentences.extend(in_use(difference));
        return sentences.join(" ");
    }
    if !difference.is_notable {
        sentences.push(format!(
            "{runs} two runs do not differ in what the program asked for by more than the threshold ({}): peaks, memory at the end, calls \
             and failures are the same otherwise.",
            threshold(difference)
        ));
        sentences.extend(in_use(difference));
        return sentences.join(" ");
    }
    // A run that failed is a shorter one: its lower peaks are no gain.
    let failed = failures(difference);
    let is_cut_short = failed.is_some() && ends(difference).is_some();
    sentences.extend(failed.clone().filter(|_| is_cut_short));
    sentences.push(peaks(difference));
    sentences.extend(tensors(difference));
    sentences.extend(padded_peak(difference));
    sentences.extend(leaks(difference));
    sentences.extend(failed.filter(|_| !is_cut_short));
    sentences.extend(in_use(difference));
    sentences.join(" ")
}

/// How much of the device was in use at the most, by readings: what the runtime, libraries and other processes take is in no call of the
/// program.
fn in_use(difference: &Difference) -> Option<String> {
    let changed = difference.places.iter().filter_map(|place| {
        let [base, new] = place.most_in_use?;
        Some((place, base, new)).filter(|_| difference.threshold.is_passed_by_bytes(base.bytes, new.bytes))
    });
    let (place, base, new) = changed.max_by_key(|(_, base, new)| new.bytes.abs_diff(base.bytes))?;
    let whose = if base.of_process { "of this process" } else { "of all processes" };
    let [was, is] = [base.bytes, new.bytes].map(words::size);
    let (by, device) = (base.by, place.place.words());
    Some(format!(
        "The most that {by} counted in use on {device} when it was read, {whose}: {was} in BASE, {is} in NEW."
    ))
}

/// How the runs ended, where that is not the same: a run that was cut short has lower numbers.
fn ends(difference: &Difference) -> Option<String> {
    let end = |run: &Run| match (run.exit_code, run.signal) {
        (Some(status), _) => format!("exited with status {status}"),
        (_, Some(number)) => format!("was ended by {}", words::signal(number)),
        _ => "has no record of its end".to_owned(),
    };
    let [was, is] = [&difference.base, &difference.new].map(end);
    (was != is).then(|| format!("BASE {was}; NEW {is}."))
}

/// What a damaged trace lacks may have been the peak.
fn read_only_in_part(difference: &Difference) -> Option<String> {
    let damaged =
        [("BASE", &difference.base), ("NEW", &difference.new)].map(|(name, run)| (run.damages > 0).then_some(name));
    let names: Vec<&str> = damaged.into_iter().flatten().collect();
    let are = if names.len() == 1 { "is" } else { "are" };
    (!names.is_empty())
        .then(|| format!("{} {are} damaged, so this compares only what could be read.", names.join(" and ")))
}

/// The peak that changed most, growth before decline. It is measured: a modelled number is no headline.
fn peaks(difference: &Difference) -> String {
    match moved_most(difference, Figure::Peak) {
        Some((figure, place)) => peak(difference, figure, place),
        None => {
            let what = match notable(difference).len() as u64 {
                0 => "other numbers".to_owned(),
                sites => format!("numbers of {}", words::count(sites, "call site", "call sites")),
            };
            format!("No peak changed by more than the threshold; {what} did.")
        }
    }
}

/// Where only the padded peak changed: the model says so, behind all that was measured.
fn padded_peak(difference: &Difference) -> Option<String> {
    if moved_most(difference, Figure::Peak).is_some() {
        return None;
    }
    let (figure, place) = moved_most(difference, Figure::PaddedPeak)?;
    Some(format!("Modelled: {}", peak(difference, figure, place)))
}

fn peak(difference: &Difference, figure: Figure, place: &PlaceDifference) -> String {
    let change = place.pair.change(figure);
    let padded = if figure == Figure::PaddedPeak { "padded " } else { "" };
    let grew = if change > 0 { "grew" } else { "fell" };
    let by = words::size(u64::try_from(change.unsigned_abs()).unwrap_or(u64::MAX));
    let share = share(&place.pair, figure);
    let share = if share.is_empty() { share } else { format!(" ({share})") };
    let [was, is] = [place.pair.base, place.pair.new].map(|figures: Figures| words::size(figures[figure]));
    let whose = match place.place {
        Place::Host => "pinned host memory".to_owned(),
        device => device.words(),
    };
    // Of a model's number the place matters less than that it is one.
    let mover = if figure == Figure::Peak { mover(difference, place, figure) } else { String::new() };
    format!("The {padded}peak of {whose} {grew} by {by}{share}, from {was} to {is}{mover}.")
}

/// The device of which a figure changed most, beyond the threshold; one that grew before one that fell.
fn moved_most(difference: &Difference, figure: Figure) -> Option<(Figure, &PlaceDifference)> {
    let passed = difference.places.iter().filter(|place| difference.threshold.is_passed(figure, &place.pair));
    let change = |place: &&PlaceDifference| (place.pair.change(figure) > 0, place.pair.change(figure).unsigned_abs());
    passed.max_by_key(change).map(|place| (figure, place))
}

/// The call site that moved a peak most, where one did.
fn mover(difference: &Difference, place: &PlaceDifference, figure: Figure) -> String {
    let change = place.pair.change(figure);
    let here = difference.sites.iter().filter(|site| site.place == place.place);
    let same_way = here.filter(|site| site.pair.change(figure).signum() == change.signum());
    let Some(most) = same_way.max_by_key(|site| site.pair.change(figure).unsigned_abs()) else {
        return String::new();
    };
    // Whose tensors became more says more than who asked for a segment first, and the next sentence tells it.
    if tensors_moved_most(difference).is_some_and(|(moved, ..)| moved.place == place.place) {
        return String::new();
    }
    let of_segments = if place.has_segments() { OF_SEGMENTS } else { "" };
    let moved = signed(figure, most.pair.change(figure));
    let most_moved = if change > 0 { "grew most" } else { "fell most" };
    format!("; the call site that {most_moved}: {} ({moved}{of_segments})", words::clean(&most.key))
}

/// Whether calls for segments are among a device's calls.
/// The device on which what was in tensors at the most changed most, with both numbers.
fn tensors_moved_most(difference: &Difference) -> Option<(&PlaceDifference, u64, u64)> {
    let changed = difference.places.iter().filter_map(|place| {
        let tensors = place.tensors.as_ref()?;
        let [base, new] = tensors.pair(TensorFigure::Tensors);
        let is_passed = tensors.is_passed(TensorFigure::Tensors, &difference.threshold);
        Some((place, base?, new?)).filter(|_| is_passed)
    });
    changed.max_by_key(|(_, base, new)| (new > base, new.abs_diff(*base)))
}

/// What was in tensors at the most, of the device where that changed most.
fn tensors(difference: &Difference) -> Option<String> {
    let (place, base, new) = tensors_moved_most(difference)?;
    let here = difference.tensor_sites.iter().filter(|site| site.place == place.place);
    let change = |site: &&SiteDifference| site.pair.change(Figure::Peak);
    let mover = match new > base {
        true => here.max_by_key(change).filter(|site| change(site) > 0),
        false => here.min_by_key(change).filter(|site| change(site) < 0),
    };
    let mover = mover.map_or(String::new(), |site| {
        format!(
            "; the call path that changed most: {} ({})",
            words::clean(&site.key),
            signed(Figure::Peak, change(&site))
        )
    });
    let grew = if new > base { "grew" } else { "fell" };
    let [by, was, is] = [new.abs_diff(base), base, new].map(words::size);
    Some(format!("The most in tensors of {} {grew} by {by}, from {was} to {is}{mover}.", place.place.words()))
}

/// Memory that is not given back any more.
fn leaks(difference: &Difference) -> Option<String> {
    let passed = |place: &&PlaceDifference| difference.threshold.is_passed(Figure::End, &place.pair);
    let grown: u64 = difference
        .places
        .iter()
        .filter(passed)
        .fold(0, |sum: u64, place| sum.saturating_add(u64::try_from(place.pair.change(Figure::End)).unwrap_or(0)));
    (grown > 0).then(|| format!("At the end, {} more live than before.", words::size(grown)))
}

fn failures(difference: &Difference) -> Option<String> {
    let sum = |figure| difference.places.iter().map(|place| place.pair.change(figure)).sum::<i128>();
    let more = |figure: Figure| u64::try_from(sum(figure)).ok().filter(|more| *more > 0);
    if let Some(dropped) = more(Figure::Dropped) {
        let one = "more out-of-memory failure is dropped";
        let failures = words::count(dropped, one, "more out-of-memory failures are dropped");
        return Some(format!("{failures}: the program goes on as if nothing had happened."));
    }
    let ooms = more(Figure::Ooms)?;
    Some(words::count(ooms, "more call runs out of memory.", "more calls run out of memory."))
}
