//! Finds the errors of a text: which lines have a known wording, which of them belong together, which are repeats.

use rustc_hash::FxHashMap;

use super::table::{Limit, Row, Table};
use super::template::Bytes;
use super::torch::of_torch;
use super::{Captured, ErrorText, MOST_CHARACTERS, Quantity, Source, Triage, UnknownLine, judge};
use crate::evidence::torch_message::{self, TorchMessage};
use crate::evidence::{kernel_log, runtime_message};
use crate::thresholds::Thresholds;

/// Most lines with a known wording that are looked at in one text.
const MOST_HITS: usize = 20_000;
/// Most errors of one text that are kept.
const MOST_ERRORS: usize = 1000;
/// Longest part of a line that is compared.
const MOST_BYTES: usize = 8192;
/// How far behind an error a line can add to it.
const NEAR_LINES: u64 = 12;
/// The same, where a line is numbered in a dump of an allocator, which has a row for each of its sizes.
const NEAR_DUMP_LINES: u64 = 4000;
/// So many errors can be added to: those of several processes stand between each other.
const OPEN_ERRORS: usize = 4;
/// Most lines about memory that are kept of a text without a known error.
const MOST_UNKNOWN: usize = 3;

/// What an unknown error about memory is likely to have in it, in small letters.
const HINTS: [&str; 8] = [
    "out of memory",
    "out-of-memory",
    "outofmemory",
    "alloc_failed",
    "cannot allocate",
    "bad_alloc",
    "memoryerror",
    "failed to alloc",
];

/// One line with a known wording.
struct Hit {
    line: u64,
    text: String,
    row: &'static Row,
    captured: Captured,
    torch: Option<TorchMessage>,
    times: u64,
}

/// An error while lines can still add to it.
struct Open {
    hit: Hit,
    last_line: u64,
    purpose: Option<&'static str>,
    next: &'static [String],
    requests: Option<[u64; 2]>,
}

/// All errors of a text.
pub(super) fn find(source: &Source<'_>, thresholds: &Thresholds) -> Triage {
    let (mut hits, mut left_off) = (hits(source.text), 0);
    if hits.len() > MOST_HITS {
        left_off += (hits.len() - MOST_HITS) as u64;
        hits.truncate(MOST_HITS);
    }
    let mut errors = folded(joined(hits));
    if errors.len() > MOST_ERRORS {
        left_off += (errors.len() - MOST_ERRORS) as u64;
        errors.truncate(MOST_ERRORS);
    }
    let errors: Vec<ErrorText> = errors.into_iter().map(|open| explained(open, source.name, thresholds)).collect();
    let unknown = if errors.is_empty() { unknown(source) } else { Vec::new() };
    Triage { errors, unknown, lines: source.text.lines().count() as u64, left_off }
}

/// Lines with a known wording, in order. What the readers of evidence know comes from them.
fn hits(text: &str) -> Vec<Hit> {
    let mut by_line: FxHashMap<u64, Vec<Hit>> = FxHashMap::default();
    let mut add = |hit: Hit| by_line.entry(hit.line).or_default().push(hit);
    let lines: Vec<&str> = text.lines().collect();
    // Of a message that was cut the table can know more.
    let is_better_known = |hit: &Hit| {
        let line = usize::try_from(hit.line).ok().and_then(|number| lines.get(number.checked_sub(1)?));
        hit.row.wording.meaning == "bare-code"
            && line.is_some_and(|line| {
                line_hit(hit.line, clipped(line)).is_some_and(|other| other.row.wording.meaning != "bare-code")
            })
    };
    torch_hits(text).filter(|hit| !is_better_known(hit)).for_each(&mut add);
    runtime_hits(text).for_each(&mut add);
    kernel_hits(text).into_iter().for_each(&mut add);
    for (number, line) in (1..).zip(&lines) {
        // A line that a reader of evidence knows is told once.
        if !by_line.contains_key(&number)
            && let Some(hit) = line_hit(number, clipped(line))
        {
            by_line.entry(number).or_default().push(hit);
        }
    }
    let mut hits: Vec<Hit> = by_line.into_values().flatten().collect();
    hits.sort_by_key(|hit| hit.line);
    hits
}

fn clipped(line: &str) -> &str {
    let end = (0..=line.len().min(MOST_BYTES)).rev().find(|end| line.is_char_boundary(*end)).unwrap_or(0);
    &line[..end]
}

fn kept(text: &str) -> String {
    text.trim().chars().take(MOST_CHARACTERS).collect()
}

fn line_hit(number: u64, line: &str) -> Option<Hit> {
    let bytes = Bytes::of(line);
    let found = |row: &'static Row| {
        let captured = match row.templates.iter().find_map(|template| template.find_in(line, bytes)) {
            Some((_, captured)) if row.wording.reader.is_empty() => captured,
            _ if row.is_line(line) => Captured::default(),
            _ => return None,
        };
        Some((row, captured))
    };
    let (row, mut captured) = Table::get().rows.iter().find_map(found)?;
    captured.size_shapes();
    Some(Hit { line: number, text: kept(line), row, captured, torch: None, times: 1 })
}

/// The wording that a reader of evidence calls so, where its text fits as well.
fn row_of(reader: &str, kind: &str, line: &str) -> Option<&'static Row> {
    let name = format!("{reader}:{kind}");
    let fits = |row: &&Row| {
        row.wording.reader.contains(&name)
            && (row.templates.is_empty() || row.templates.iter().any(|template| template.find(line).is_some()))
    };
    Table::get().rows.iter().find(fits)
}

/// What a value is called in JSON, which is what the table calls it.
fn name_of(value: &impl serde::Serialize) -> String {
    serde_json::to_value(value).ok().and_then(|name| Some(name.as_str()?.to_owned())).unwrap_or_default()
}

fn torch_hits(text: &str) -> impl Iterator<Item = Hit> {
    let hit = |message: TorchMessage| {
        let row = row_of("torch", &name_of(&message.spelling), "")?;
        let captured = Captured::of_torch(&message);
        let text = kept(&text_of(text, &message));
        Some(Hit { line: message.line, text, row, captured, torch: Some(message), times: 1 })
    };
    torch_message::find_all(text).into_iter().filter_map(hit)
}

/// PyTorch's message as one line: what stands before it on its line belongs to it.
fn text_of(text: &str, message: &TorchMessage) -> String {
    let at = usize::try_from(message.offset_bytes).unwrap_or(usize::MAX).min(text.len());
    let begin = text[..at].rfind('\n').map_or(0, |end| end + 1);
    let begin = if at - begin > MOST_CHARACTERS / 2 { at } else { begin };
    let lines = if message.spelling == torch_message::Spelling::MallocAsync { 6 } else { 1 };
    text[begin..].lines().take(lines).map(|line| clipped(line).trim()).collect::<Vec<_>>().join(" ")
}

fn runtime_hits(text: &str) -> impl Iterator<Item = Hit> {
    runtime_message::find_all(text).into_iter().filter_map(|message| {
        let row = row_of("runtime", &name_of(&message.says), &message.text)?;
        Some(Hit { line: message.line, text: message.text, row, captured: Captured::default(), torch: None, times: 1 })
    })
}

fn kernel_hits(text: &str) -> Vec<Hit> {
    let events = kernel_log::read(text);
    let hit = |event: kernel_log::KernelEvent| {
        let row = row_of("kernel", &name_of(&event.kind), &event.text)?;
        let captured = Captured::of_kernel(&event);
        Some(Hit { line: event.line, text: event.text, row, captured, torch: None, times: event.repeated + 1 })
    };
    events.into_iter().filter_map(hit).collect()
}

/// Lines of one error together.
fn joined(hits: Vec<Hit>) -> Vec<Open> {
    let mut errors: Vec<Open> = Vec::new();
    for hit in hits {
        let from = errors.len().saturating_sub(OPEN_ERRORS);
        match errors[from..].iter_mut().rev().find(|open| belongs(open, &hit)) {
            Some(open) => {
                open.last_line = hit.line;
                if open.purpose.is_none() {
                    (open.purpose, open.next) = (purpose(hit.row), &hit.row.wording.next);
                }
                open.hit.captured.fill(hit.captured);
            }
            None if hit.row.wording.alone => {
                let (last_line, purpose) = (hit.line, purpose(hit.row));
                let next = &hit.row.wording.next;
                errors.push(Open { hit, last_line, purpose, next, requests: None });
            }
            None => {}
        }
    }
    errors
}

fn purpose(row: &'static Row) -> Option<&'static str> {
    Some(row.wording.purpose.as_str()).filter(|purpose| !purpose.is_empty())
}

/// Whether a line adds to an error: close behind it, of a family that it follows, and with no number that speaks against it.
fn belongs(open: &Open, hit: &Hit) -> bool {
    let reach = if hit.row.wording.alone { NEAR_LINES } else { NEAR_DUMP_LINES };
    let is_near = hit.line <= open.last_line.saturating_add(reach);
    let own = &open.hit;
    // The same line again is the same error again.
    let is_again = own.row.wording.id == hit.row.wording.id && own.text == hit.text;
    let follows = hit.row.wording.follows.contains(&own.row.wording.family) && !is_again;
    let same_size = match (own.captured.size(Quantity::Requested), hit.captured.size(Quantity::Requested)) {
        (Some(own), Some(other)) => own.least() <= other.most() && other.least() <= own.most(),
        _ => true,
    };
    let same_names =
        hit.captured.names.iter().all(|(name, text)| own.captured.names.get(name).is_none_or(|own| own == text));
    is_near && follows && same_size && same_names
}

/// Equal errors as one. Of a program that tries with other sizes all are equal.
fn folded(errors: Vec<Open>) -> Vec<Open> {
    let mut kept: Vec<Open> = Vec::new();
    let mut places: FxHashMap<String, usize> = FxHashMap::default();
    for open in errors {
        match places.get(&key(&open)) {
            Some(place) => {
                let first = &mut kept[*place];
                first.hit.times += open.hit.times;
                first.requests = range(first, &open);
            }
            None => {
                places.insert(key(&open), kept.len());
                kept.push(open);
            }
        }
    }
    kept
}

fn range(first: &Open, other: &Open) -> Option<[u64; 2]> {
    let requested = |open: &Open| open.hit.captured.size(Quantity::Requested).map(|size| size.bytes);
    let (own, other) = (requested(first)?, requested(other)?);
    let [least, most] = first.requests.unwrap_or([own, own]);
    (own != other || first.requests.is_some()).then(|| [least.min(other), most.max(other)])
}

fn key(open: &Open) -> String {
    let wording = &open.hit.row.wording;
    let sizes = if wording.retries { String::new() } else { format!("{:?}", open.hit.captured) };
    // The word `CUDA` on a second print of one code is no other error.
    let which = if wording.meaning == "bare-code" { &wording.meaning } else { &wording.id };
    format!("{which} {sizes} {:?}", open.purpose)
}

fn explained(open: Open, source: &str, thresholds: &Thresholds) -> ErrorText {
    let Open { hit, purpose, next, requests, .. } = open;
    let (table, wording) = (Table::get(), &hit.row.wording);
    let meaning = table.meaning(wording);
    // In RAM a smaller part on the GPU is no help.
    let next = if next.is_empty() || meaning.limit == Limit::Host { &meaning.next[..] } else { next };
    let mut error = ErrorText {
        text: hit.text,
        source: source.to_owned(),
        line: hit.line,
        times: hit.times,
        wording: &wording.id,
        origin: &wording.origin,
        program: Some(wording.program.as_str()).filter(|program| !program.is_empty()),
        is_memory: Some(meaning.memory),
        says: meaning.says.clone(),
        limit: meaning.memory.then_some(meaning.limit),
        purpose,
        requested_bytes: hit.captured.size(Quantity::Requested).map(|size| size.bytes),
        requests_bytes: requests,
        captured: hit.captured,
        reasons: Vec::new(),
        diagnoses: judge::supported(meaning),
        not_told_apart: Vec::new(),
        excluded: Vec::new(),
        missing: meaning.missing.iter().map(|name| table.missing(name)).collect(),
        next: next.iter().map(|name| table.next(name)).collect(),
    };
    match &hit.torch {
        Some(message) => of_torch(&mut error, message, thresholds),
        None => judge::numbers(&mut error, thresholds),
    }
    error
}

/// Lines about memory in other words.
fn unknown(source: &Source<'_>) -> Vec<UnknownLine> {
    let is_about_memory = |line: &str| {
        let small = line.to_ascii_lowercase();
        HINTS.iter().any(|hint| small.contains(hint))
    };
    let lines = (1..).zip(source.text.lines()).filter(|(_, line)| is_about_memory(clipped(line)));
    let unknown =
        |(line, text): (u64, &str)| UnknownLine { text: kept(clipped(text)), source: source.name.to_owned(), line };
    lines.take(MOST_UNKNOWN).map(unknown).collect()
}
