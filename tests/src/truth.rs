//! The simulated device's own log, and its comparison with a trace.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use serde_json::Value;

use crate::trace::{ENDS, Event};

/// One line of `SIM_LOG`.
#[derive(Debug)]
pub struct TruthLine(Value);

impl TruthLine {
    /// Every line, in the order in which it happened. A run that never reached the device has none.
    pub fn read_all(path: &Path) -> Vec<Self> {
        let text = fs::read_to_string(path).unwrap_or_default();
        let parse = |line| serde_json::from_str(line).unwrap_or_else(|error| panic!("truth ({error}): {line}"));
        text.lines().map(|line| Self(parse(line))).collect()
    }

    fn number(&self, field: &str) -> u64 {
        self.0[field].as_u64().unwrap_or_else(|| panic!("no {field} in {}", self.0))
    }

    fn text(&self, field: &str) -> &str {
        self.0[field].as_str().unwrap_or_else(|| panic!("no {field} in {}", self.0))
    }

    /// `alloc`, `free`, `failed`, `map`, `unmap`, `reserve` or `unreserve`.
    pub fn event(&self) -> &str {
        self.text("event")
    }

    /// The outermost function that was called.
    pub fn api(&self) -> &str {
        self.text("api")
    }

    /// Nanoseconds of the machine's monotonic clock.
    pub fn at_ns(&self) -> u64 {
        self.number("at_ns")
    }

    /// The process.
    pub fn pid(&self) -> u64 {
        self.number("pid")
    }

    /// The device's number.
    pub fn device(&self) -> u64 {
        self.number("device")
    }

    /// Kernel's number of the thread.
    pub fn thread(&self) -> u64 {
        self.number("thread")
    }

    /// Where it is; 0 for a failure.
    pub fn address(&self) -> u64 {
        self.hexadecimal("address")
    }

    /// What lies there, where it is a mapping; the same as the address of a block.
    pub fn handle(&self) -> u64 {
        self.hexadecimal("handle")
    }

    fn hexadecimal(&self, field: &str) -> u64 {
        u64::from_str_radix(&self.text(field)[2..], 16).unwrap_or_else(|_| panic!("no {field} in {}", self.0))
    }

    /// Bytes asked for.
    pub fn requested_bytes(&self) -> u64 {
        self.number("requested_bytes")
    }

    /// Device memory in use after the call.
    pub fn device_used_bytes(&self) -> u64 {
        self.number("device_used_bytes")
    }

    /// Whether somebody asked for this memory: not what a context takes for itself.
    fn is_requested(&self) -> bool {
        self.text("kind") != "context"
    }

    /// `device`, `host-pinned`, ...
    pub fn kind(&self) -> &str {
        self.text("kind")
    }

    /// The card, -1 for none.
    pub fn card(&self) -> i64 {
        self.0["device"].as_i64().unwrap_or_else(|| panic!("no device in {}", self.0))
    }

    /// What the caller was answered.
    pub fn status(&self) -> u64 {
        self.number("status")
    }

    /// An array's size is the library's affair: the caller cannot know it.
    fn has_known_size(&self) -> bool {
        self.text("kind") != "array"
    }
}

/// What is compared of a call. A missing size means that nobody but the library knows it.
type Call = (String, u64, u64, Option<u64>);

fn count(calls: impl Iterator<Item = Call>) -> BTreeMap<Call, usize> {
    let mut counts = BTreeMap::new();
    calls.for_each(|call| *counts.entry(call).or_default() += 1);
    counts
}

fn assert_same(what: &str, truth: BTreeMap<Call, usize>, trace: BTreeMap<Call, usize>) {
    let only = |one: &BTreeMap<Call, usize>, other: &BTreeMap<Call, usize>| -> Vec<String> {
        let differing = one.iter().filter(|(call, count)| other.get(call) != Some(count));
        differing
            .map(|((api, thread, address, size), n)| format!("{n}x {api} thread {thread} {address:#x} {size:?}"))
            .collect()
    };
    let (missing, extra) = (only(&truth, &trace), only(&trace, &truth));
    assert!(
        missing.is_empty() && extra.is_empty(),
        "{what} differ.\nonly the device has:\n  {}\nonly the trace has:\n  {}",
        missing.join("\n  "),
        extra.join("\n  ")
    );
}

/// Names of the driver's functions by thread, by the call of the runtime that they were made in, and by address. Where the simulated
/// runtime stands on the simulated driver, it is the driver that keeps the log.
fn driver_names(events: &[Event]) -> BTreeMap<(u64, u64, u64), &str> {
    let made_inside = events.iter().filter(|event| event.layer() == "driver" && !event.failed());
    made_inside.filter_map(|event| Some(((event.thread(), event.parent()?, event.address()?), event.api()))).collect()
}

/// Asserts that the trace holds each allocation and each free that the device made: function, thread, address and, for
/// allocations, size. None is missing, none is there twice, none is invented; a call of the runtime and the driver's call
/// inside it are one.
pub(crate) fn assert_agrees(truth: &[TruthLine], events: &[Event]) {
    let driver_names = driver_names(events);
    let name = |event: &Event, address: u64| -> String {
        (*driver_names.get(&(event.thread(), event.seq(), address)).unwrap_or(&event.api())).to_owned()
    };
    let allocated = truth.iter().filter(|line| line.event() == "alloc" && line.is_requested());
    let allocated = count(allocated.map(|line| {
        let size = line.has_known_size().then(|| line.requested_bytes());
        (line.api().into(), line.thread(), line.address(), size)
    }));
    let recorded = count(events.iter().filter(|event| event.is_allocation()).map(|event| {
        let address = event.address().expect("an allocation has one");
        let size = (event.kind() != "array").then(|| event.requested_bytes());
        (name(event, address), event.thread(), address, size)
    }));
    assert!(!truth.is_empty(), "the device saw nothing: nothing was compared");
    assert_same("allocations", allocated, recorded);

    let freed = truth.iter().filter(|line| line.event() == "free" && line.is_requested());
    let freed = freed.filter(|line| !ENDS.iter().any(|end| line.api().contains(end)));
    let freed = count(freed.map(|line| (line.api().into(), line.thread(), line.address(), None)));
    let recorded = count(events.iter().filter(|event| event.is_free()).map(|event| {
        let address = event.address().expect("a free has one");
        (name(event, address), event.thread(), address, None)
    }));
    assert_same("frees", freed, recorded);
}

/// Asserts the same of the allocations that the simulated CUDA driver refused.
pub(crate) fn assert_refusals_agree(truth: &[TruthLine], events: &[Event]) {
    let refused = truth.iter().filter(|line| line.event() == "failed");
    let refused = count(refused.map(|line| (line.api().into(), line.thread(), 0, Some(line.requested_bytes()))));
    let recorded =
        events.iter().filter(|event| event.event() == "alloc" && event.layer() == "driver" && event.failed());
    let recorded = count(recorded.map(|event| (event.api().into(), event.thread(), 0, Some(event.requested_bytes()))));
    assert_same("refusals", refused, recorded);
}
