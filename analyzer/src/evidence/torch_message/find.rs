//! Finds the messages in a log.

use rustc_hash::FxHashSet;

use super::size::{at_end, at_start};
use super::window::Window;
use super::{Backend, ProcessUse, Spelling, TorchMessage};

/// Most messages that are read from one log.
const MOST_MESSAGES: usize = 4000;
/// Most places that are looked at closely, whether or not a message is there.
const MOST_PLACES: usize = 4000;
/// Most other processes that are read from one message.
const MOST_PROCESSES: usize = 1024;

/// What each message has in it.
const ANCHORS: [&str; 3] = ["out of memory", "Tried to allocate", "would exceed allowed memory"];
/// How far before an anchor its message can begin.
const BEFORE: usize = 100;
/// How long a message without its last words can be, without blanks.
const CUT_LENGTH: usize = 400;
/// How long the advice behind the numbers can be, without blanks.
const ADVICE_LENGTH: usize = 400;

/// How a message begins, without blanks, and whose it is.
const BEGINNINGS: [(&str, Option<Backend>); 8] = [
    ("CUDAoutofmemory.", Some(Backend::Cuda)),
    ("HIPoutofmemory.", Some(Backend::Hip)),
    // An allocator that knows no vendor.
    ("Outofmemory.Triedtoallocate", None),
    ("Allocationondevice", None),
    // The words before it are on another line, behind a prefix, or were cut off.
    ("Triedtoallocate", None),
    ("CUDAerror:outofmemory", Some(Backend::Cuda)),
    ("HIPerror:outofmemory", Some(Backend::Hip)),
    ("cudaruntimeerror(2):outofmemory", Some(Backend::Cuda)),
];

/// What stands behind the last number of a message.
const ENDINGS: [&str; 4] = ["butunallocated.", "reservedintotalbyPyTorch)", "cached)", "than1EBmemory."];

const EXCEPTIONS: [&str; 5] = [
    "torch.cuda.OutOfMemoryError",
    "torch.OutOfMemoryError",
    "torch.AcceleratorError",
    "RuntimeError",
    "OutOfMemoryError",
];
const VARIABLES: [&str; 3] = ["PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_HIP_ALLOC_CONF", "PYTORCH_ALLOC_CONF"];
const OPTIONS: [&str; 2] = ["expandable_segments", "max_split_size_mb"];

/// Every out-of-memory message of PyTorch in a log, in order. Never more than four thousand.
pub fn find_all(log: &str) -> Vec<TorchMessage> {
    let mut found = Vec::new();
    let (mut from, mut line, mut counted, mut places) = (0, 1, 0, 0);
    // Anchors of messages that were read. Lines of several processes can stand between each other's.
    let mut taken = FxHashSet::default();
    while let Some(anchor) = next_anchor(log, from)
        && found.len() < MOST_MESSAGES
        && places < MOST_PLACES
    {
        let begin = if taken.contains(&anchor) { None } else { begin_of(log, from, anchor) };
        from = anchor + 1;
        let Some(begin) = begin else { continue };
        places += 1;
        if let Some(message) = read_at(log, &begin, &mut taken) {
            line += log.as_bytes()[counted..begin.at].iter().filter(|byte| **byte == b'\n').count() as u64;
            counted = begin.at;
            found.push(TorchMessage { line, offset_bytes: begin.at as u64, ..message });
        }
    }
    found
}

fn next_anchor(log: &str, from: usize) -> Option<usize> {
    let base = ceil(log, from);
    let rest = &log[base..];
    // Each search looks no further than the nearest hit so far.
    let mut nearest: Option<usize> = None;
    for anchor in ANCHORS {
        let reach = nearest.map_or(rest.len(), |at| ceil(rest, at + anchor.len()));
        nearest = rest[..reach].find(anchor).or(nearest);
    }
    nearest.map(|at| base + at)
}

fn ceil(text: &str, at: usize) -> usize {
    (at..text.len()).find(|at| text.is_char_boundary(*at)).unwrap_or(text.len())
}

fn floor(text: &str, at: usize) -> usize {
    (0..=at.min(text.len())).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0)
}

/// Where a message begins.
struct Begin {
    at: usize,
    words: &'static str,
    backend: Option<Backend>,
}

/// Where the message of an anchor begins: the first place from which the text, blanks left out, reads like a beginning.
fn begin_of(log: &str, from: usize, anchor: usize) -> Option<Begin> {
    let earliest = ceil(log, anchor.saturating_sub(BEFORE).max(from));
    let until = ceil(log, anchor + 1);
    let places = log.get(earliest..until)?.char_indices().filter(|(_, character)| "CHOATc".contains(*character));
    let begin = places.map(|(at, _)| earliest + at).find_map(|at| {
        let (words, backend) = BEGINNINGS.iter().find(|(words, _)| begins_with(&log[at..], words))?;
        Some(Begin { at, words, backend: *backend })
    })?;
    // `NPU out of memory. Tried to allocate`: a device of another kind.
    let before = without_blanks(&log[floor(log, begin.at.saturating_sub(32))..begin.at]);
    (begin.words != "Triedtoallocate" || !before.ends_with("outofmemory.")).then_some(begin)
}

fn without_blanks(text: &str) -> String {
    text.split_whitespace().collect()
}

/// Whether a text, blanks left out, begins with these words.
fn begins_with(text: &str, words: &str) -> bool {
    let mut characters = text.chars().take(BEFORE).filter(|character| !character.is_whitespace());
    let same = words.chars().all(|wanted| characters.next() == Some(wanted));
    // `Tried to allocate` goes on with a size, or with `more than 1EB`.
    same && (!words.ends_with("Triedtoallocate")
        || characters.next().is_some_and(|next| next.is_ascii_digit() || next == 'm'))
}

/// The message that begins here. The anchors that belong to it are taken.
fn read_at(log: &str, begin: &Begin, taken: &mut FxHashSet<usize>) -> Option<TorchMessage> {
    let line = log[..begin.at].rfind('\n').map_or(0, |at| at + 1);
    let window = Window::read(log, line, begin.at);
    let exception = exception_before(&log[floor(log, begin.at.saturating_sub(BEFORE))..begin.at]);
    let own = own_text(&window.text, begin.words);
    let end = end_of_numbers(own);
    let mut message = read(&own[..end], begin.backend, exception);
    let first = |words: &[&'static str]| words.iter().copied().find(|word| own[end..].contains(word));
    (message.advised_variable, message.advised_option) = (first(&VARIABLES), first(&OPTIONS));
    let is_one = match message.spelling {
        // llama.cpp and others print this too; PyTorch's has an exception before it.
        Spelling::RuntimeError => exception.is_some() || begin.words.contains("(2)"),
        Spelling::Cut => exception.is_some() || message.has_numbers(),
        _ => true,
    };
    let anchors = ANCHORS
        .iter()
        .flat_map(|anchor| own[..end].match_indices(&without_blanks(anchor)).map(|(at, _)| at).collect::<Vec<_>>());
    taken.extend(anchors.map(|at| window.offset(at)));
    is_one.then_some(message)
}

fn exception_before(before: &str) -> Option<&'static str> {
    let before = before.trim_end_matches(['"', '\'', '(']).trim_end();
    let before = before.strip_suffix(':').unwrap_or(before);
    EXCEPTIONS.iter().copied().find(|name| before.ends_with(name))
}

/// The text up to where another message begins, with some of the advice.
fn own_text<'a>(text: &'a str, words: &str) -> &'a str {
    // A message that was only guessed at by its first words can have lost them in its window.
    let rest = text.get(words.len()..).unwrap_or_default();
    let marks = ["outofmemory.", "Allocationondevice", "error:outofmemory", "Triedtoallocate"];
    let own_marks = ["Triedtoallocate", "wouldexceedallowedmemory.(outofmemory)"];
    let own = own_marks.iter().filter_map(|mark| rest[..floor(rest, 64)].find(mark).map(|at| at + mark.len())).max();
    let own = own.unwrap_or(0);
    let next = marks.iter().filter_map(|mark| rest[own..].find(mark)).min();
    let own = &text[..next.map_or(text.len(), |at| text.len() - rest.len() + own + at)];
    &own[..floor(own, end_of_numbers(own) + ADVICE_LENGTH)]
}

/// Where the numbers end. Behind them is advice.
fn end_of_numbers(text: &str) -> usize {
    let ending = ENDINGS.iter().filter_map(|ending| text.find(ending).map(|at| at + ending.len())).min();
    ending.unwrap_or_else(|| floor(text, CUT_LENGTH))
}

/// Reads a message whose text has no blanks.
fn read(text: &str, backend: Option<Backend>, exception: Option<&'static str>) -> TorchMessage {
    let behind = |phrase: &str| text.find(phrase).and_then(|at| at_start(&text[at + phrase.len()..]));
    let before = |phrase: &str| text.find(phrase).and_then(|at| at_end(&text[..at]));
    let first_behind = |phrases: &[&str]| phrases.iter().find_map(|phrase| behind(phrase));
    TorchMessage {
        offset_bytes: 0,
        line: 1,
        spelling: spelling_of(text),
        backend,
        exception,
        device: device_of(text),
        tried: first_behind(&["Triedtoallocate", "Requested:", "Requestedsize:"]),
        total: first_behind(&["totalcapacityof", "totalcapactyof", "Devicelimit:"]).or_else(|| before("totalcapacity")),
        free: behind("Free(accordingtoCUDA):").or_else(|| before("isfree")).or_else(|| before("free;")),
        allocated: first_behind(&["Oftheallocatedmemory", "Currentlyallocated:"])
            .or_else(|| before("alreadyallocated")),
        unallocated: before("isreservedbyPyTorchbutunallocated").or_else(|| before("cached)")),
        reserved: before("reservedintotalbyPyTorch"),
        private_pools: before("allocatedinprivatepools"),
        allowed: behind("user-suppliedmemoryfraction):").or_else(|| before("allowed;")),
        this_process: behind("thisprocesshas"),
        other_processes: processes_of(text),
        advised_variable: None,
        advised_option: None,
    }
}

fn spelling_of(text: &str) -> Spelling {
    let has = |phrase: &str| text.contains(phrase);
    match () {
        () if has("Triedtoallocatemorethan1EBmemory") => Spelling::MoreThanAnExabyte,
        () if has("preemptivelyrejected") => Spelling::Preempted,
        () if has("wouldexceedallowedmemory") => Spelling::MallocAsync,
        () if has("totalcapactyof") => Spelling::TotalCapacty,
        () if has("totalcapacityof") => Spelling::TotalCapacity,
        () if has("reservedintotalbyPyTorch") => Spelling::ReservedInTotal,
        () if has("cached)") => Spelling::Cached,
        () if has("error:outofmemory") || has("runtimeerror(2)") => Spelling::RuntimeError,
        () => Spelling::Cut,
    }
}

fn device_of(text: &str) -> Option<u32> {
    let marks = ["(GPU", ".GPU", "Allocationondevice", ".Device", "GPU"];
    let digits = |text: &str| {
        let length = text.bytes().take_while(u8::is_ascii_digit).count();
        text[..length].parse().ok()
    };
    marks.iter().find_map(|mark| text.find(mark).and_then(|at| digits(&text[at + mark.len()..])))
}

fn processes_of(text: &str) -> Vec<ProcessUse> {
    let mut processes = Vec::new();
    for part in text.split("Process").skip(1).take(MOST_PROCESSES) {
        let length = part.bytes().take_while(u8::is_ascii_digit).count();
        let Some(size) = part[length..].strip_prefix("has") else { continue };
        if let (Ok(pid), Some(in_use)) = (part[..length].parse(), at_start(size)) {
            processes.push(ProcessUse { pid, in_use });
        }
    }
    processes
}
