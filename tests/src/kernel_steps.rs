//! The comparison of a trace with the log of the stand-in for the kernel's drivers, step by step.

use std::collections::BTreeMap;

use crate::run::Finished;
use crate::trace::{Event, Trace};
use crate::truth::TruthLine;

/// What is compared: event, function, kind, card, address, bytes.
type Step = (String, String, String, i64, u64, u64);

/// A line of the stand-in's log in the words of a trace; `None` for what is no event.
fn expected(line: &TruthLine) -> Option<Step> {
    let (event, address) = match (line.event(), line.kind()) {
        ("alloc" | "failed", "registered") => ("pin", line.address()),
        ("failed" | "alloc", _) => ("alloc", line.address()),
        ("reserve", _) => ("reserve", line.address()),
        // The stand-in logs what the request had, the register without the lower 16 bits of the address.
        ("scratch", _) => ("reserve", line.address() << 16),
        ("create_queue", _) => ("reserve", 1 << 32 | line.address()),
        ("destroy_queue", _) => ("free", 1 << 32 | line.address()),
        ("prefetch" | "prefer", _) => ("map", line.address()),
        (event @ ("free" | "import" | "map" | "unmap"), _) => (event, line.address()),
        _ => return None,
    };
    let (api, kind) = (line.api().to_owned(), line.kind().to_owned());
    // The request to destroy a queue does not say which card it is on.
    let card = if line.event() == "destroy_queue" { -1 } else { line.card() };
    Some((event.to_owned(), api, kind, card, address, line.requested_bytes()))
}

/// The records of the kernel's layer about memory, by thread, without those that say that a driver refused what makes no
/// sense, and without frees that were taken back.
fn recorded(events: &[Event]) -> BTreeMap<u64, Vec<Step>> {
    let mut threads: BTreeMap<u64, Vec<Step>> = BTreeMap::new();
    let words = ["alloc", "pin", "free", "import", "reserve", "map", "unmap"];
    for event in events.iter().filter(|event| words.contains(&event.event()) && event.layer() == "kernel") {
        let steps = threads.entry(event.thread()).or_default();
        if event.is_correction() {
            let address = event.address().expect("a free has one");
            let taken_back = steps.iter().rposition(|step| step.0 == event.event() && step.4 == address);
            steps.remove(taken_back.expect("the record that it corrects"));
            continue;
        }
        if event.failed() && event.status_name() != "ENOMEM" && event.status_name() != "out of memory" {
            continue;
        }
        let device = event.device().map_or(-1, |device| device as i64);
        let (word, api, kind) = (event.event().into(), event.api().into(), event.kind().into());
        let bytes = if event.event() == "free" { 0 } else { event.requested_bytes() };
        steps.push((word, api, kind, device, event.address().unwrap_or(0), bytes));
    }
    threads.retain(|_, steps| !steps.is_empty());
    threads
}

/// What the stand-in's log says of memory, by thread.
fn logged(lines: &[TruthLine]) -> BTreeMap<u64, Vec<Step>> {
    let mut threads: BTreeMap<u64, Vec<Step>> = BTreeMap::new();
    let mut doorbells = Vec::new();
    for line in lines {
        // Doorbells are no memory, but they are given back like memory.
        let is_doorbell = doorbells.contains(&line.address());
        match line.event() {
            "registers" => doorbells.push(line.address()),
            "map" | "unmap" if is_doorbell => {}
            "free" if is_doorbell => doorbells.retain(|known| *known != line.address()),
            _ => threads.entry(line.thread()).or_default().extend(expected(line)),
        }
    }
    threads.retain(|_, steps| !steps.is_empty());
    threads
}

/// Asserts that each thread's requests in the trace are those of the stand-in's log, in their order, with none missing
/// and none there twice. Answers the trace's events.
pub fn assert_kernel_agrees(run: &Finished) -> Vec<Event> {
    assert_all_agree(run, run.only_trace().events())
}

/// The same for all processes of a run, which have a trace each.
pub fn assert_kernel_agrees_in_each(run: &Finished) -> Vec<Event> {
    assert_all_agree(run, run.traces().iter().flat_map(Trace::events).collect())
}

fn assert_all_agree(run: &Finished, events: Vec<Event>) -> Vec<Event> {
    let (mut truth, mut trace) = (logged(&run.truth()), recorded(&events));
    assert!(!truth.is_empty(), "the driver did nothing: nothing was compared");
    // A free says by its address alone what is given back.
    let steps = truth.values_mut().chain(trace.values_mut()).flatten();
    steps.filter(|step| step.0 == "free").for_each(|step| step.2 = String::new());
    for (thread, truth) in &truth {
        let trace = trace.remove(thread).unwrap_or_default();
        for (index, (truth, trace)) in truth.iter().zip(&trace).enumerate() {
            assert_eq!(truth, trace, "step {index} of thread {thread}");
        }
        assert_eq!(truth.len(), trace.len(), "{:#?}", (truth.last(), trace.last()));
    }
    assert!(trace.is_empty(), "threads that made no request by the stand-in's log: {trace:#?}");
    events
}
