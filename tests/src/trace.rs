//! A trace, seen through the analyzer: `gpuoom-analyze events` and `report`, both as JSON.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::path::PathBuf;
use std::process::{Command, Output};

use gpuoom_trace::payload;
use gpuoom_trace::reader::TraceFile;
use gpuoom_trace::record;
use serde_json::Value;

use crate::artefacts::analyzer;
use crate::report::Report;

/// A trace file.
#[derive(Debug)]
pub struct Trace {
    /// Where it lies.
    pub path: PathBuf,
}

/// A record with a text, as it lies in the file: a mark, a message, an exception.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Told {
    /// The function that was called.
    pub api: String,
    /// What it is, by its event: a constant of [`record::mark`] or [`record::message`].
    pub status: i32,
    /// Number of a range; the thrown object.
    pub address: u64,
    /// Kernel's number of the thread.
    pub thread: u32,
    /// The label, the message, the type.
    pub text: String,
}

/// One line of `gpuoom-analyze events --format json`.
#[derive(Clone, Debug)]
pub struct Event(Value);

/// Several traces together, by `report` in that format.
pub(crate) fn report_together(traces: &[Trace], format: &str) -> String {
    let paths = traces.iter().map(|trace| &trace.path);
    let output = Command::new(analyzer()).args(["report", "--full", "--format", format]).args(paths).output();
    let output = output.expect("the analyzer starts");
    assert!(output.status.success(), "{}: {}", output.status, String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("the analyzer writes UTF-8")
}

impl Trace {
    /// The trace at that path.
    pub fn new(path: PathBuf) -> Self {
        Self { path }
    }

    /// Every event, in order.
    pub fn events(&self) -> Vec<Event> {
        let text = self.analyze(&["events", "--format", "json"]);
        let events: Vec<_> = text.lines().map(|line| Event(parse(line))).collect();
        for pair in events.windows(2) {
            assert!(pair[0].seq() < pair[1].seq(), "events out of order: {:?} before {:?}", pair[0], pair[1]);
        }
        // What allocators above the runtime tell is no call: see `told_blocks`.
        events.into_iter().filter(|event| event.layer() != "framework").collect()
    }

    /// All records of one of these events, in their order.
    pub fn told(&self, events: &[record::Event]) -> Vec<Told> {
        let mut file = TraceFile::open(&self.path).expect("a trace");
        let apis: Vec<_> = file.metadata.apis.rows.iter().map(|row| row.name.clone()).collect();
        let mut found = Vec::new();
        let read = file.for_each_batch(|batch| {
            let wanted = batch.iter().filter(|(record, _)| events.iter().any(|event| *event as u8 == record.event));
            found.extend(wanted.map(|(record, payload)| Told {
                api: apis[usize::from(record.api)].to_string(),
                status: record.status,
                address: record.address,
                thread: record.thread,
                text: payload::text(payload),
            }));
            Ok::<_, ()>(())
        });
        read.expect("the sink refuses nothing");
        found
    }

    /// The report.
    pub fn report(&self) -> Report {
        Report::new(parse(&self.analyze(&["report", "--format", "json"])))
    }

    /// What would have been, with these arguments.
    pub fn whatif(&self, arguments: &[&str]) -> Report {
        let text = self.analyze(&[&["whatif", "--format", "json"], arguments].concat());
        Report::of_schema(parse(&text), "gpuoom.whatif/1")
    }

    /// What changed since another run.
    pub fn diff(&self, base: &Trace) -> Report {
        let mut command = Command::new(analyzer());
        let output = command.args(["diff", "--format", "json", "--threshold", "0"]);
        let output = output.args([&base.path, &self.path]).output().expect("the analyzer starts");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        Report::of_schema(parse(&String::from_utf8_lossy(&output.stdout)), "gpuoom.diff/1")
    }

    /// The report with more arguments: evidence from beside the trace.
    pub fn report_with(&self, arguments: &[&OsStr]) -> Report {
        let output =
            Command::new(analyzer()).args(["report", "--format", "json"]).args(arguments).arg(&self.path).output();
        let output = output.expect("the analyzer starts");
        assert!(
            output.status.success(),
            "{arguments:?} {}: {}",
            output.status,
            String::from_utf8_lossy(&output.stderr)
        );
        Report::new(parse(&String::from_utf8_lossy(&output.stdout)))
    }

    /// The report as people read it.
    pub fn report_text(&self) -> String {
        self.analyze(&["report", "--full", "--format", "text"])
    }

    /// Runs the analyzer on this trace and takes whatever comes.
    pub fn analyze_anyway(&self, arguments: &[&str]) -> Output {
        Command::new(analyzer()).args(arguments).arg(&self.path).output().expect("the analyzer starts")
    }

    fn analyze(&self, arguments: &[&str]) -> String {
        let output = self.analyze_anyway(arguments);
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{arguments:?} {}: {}\n{stderr}", self.path.display(), output.status);
        String::from_utf8(output.stdout).expect("the analyzer writes UTF-8")
    }

    /// The process that wrote it.
    pub fn pid(&self) -> u64 {
        self.report().number("/process/pid")
    }
}

pub(crate) fn parse(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|error| panic!("no JSON ({error}): {text}"))
}

impl Event {
    fn optional_number(&self, field: &str) -> Option<u64> {
        self.0.get(field).and_then(Value::as_u64)
    }

    fn number(&self, field: &str) -> u64 {
        self.optional_number(field).unwrap_or_else(|| panic!("no {field} in {}", self.0))
    }

    fn text(&self, field: &str) -> &str {
        self.0.get(field).and_then(Value::as_str).unwrap_or("")
    }

    /// Position in the process's one order.
    pub fn seq(&self) -> u64 {
        self.number("seq")
    }

    /// When the call began, in nanoseconds since the trace began.
    pub fn at_ns(&self) -> u64 {
        self.number("at_ns")
    }

    /// Kernel's number of the thread.
    pub fn thread(&self) -> u64 {
        self.number("thread")
    }

    /// `alloc`, `free`, ...
    pub fn event(&self) -> &str {
        self.text("event")
    }

    /// The function that was called.
    pub fn api(&self) -> &str {
        self.text("api")
    }

    /// `runtime`, `hsa`, ...
    pub fn layer(&self) -> &str {
        self.text("layer")
    }

    /// `device`, `host-pinned`, ...
    pub fn kind(&self) -> &str {
        self.text("kind")
    }

    /// The device's number.
    pub fn device(&self) -> Option<u64> {
        self.optional_number("device")
    }

    /// The address, where there is one and it is not null.
    pub fn address(&self) -> Option<u64> {
        let text = self.0.get("address")?.as_str()?;
        let digits = text.strip_prefix("0x").unwrap_or_else(|| panic!("address without 0x in {}", self.0));
        let address = u64::from_str_radix(digits, 16).unwrap_or_else(|_| panic!("no address in {}", self.0));
        (address != 0).then_some(address)
    }

    /// Bytes that the program asked for.
    pub fn requested_bytes(&self) -> u64 {
        self.number("requested_bytes")
    }

    /// The same, rounded up to the granule.
    pub fn padded_bytes(&self) -> u64 {
        self.number("padded_bytes")
    }

    /// Whether the call failed; one without a status did not, as far as anybody knows.
    pub fn failed(&self) -> bool {
        self.0.pointer("/status/code").and_then(Value::as_u64).unwrap_or(0) != 0
    }

    /// Code of the status, 0 where there is none.
    pub fn status(&self) -> u64 {
        self.0.pointer("/status/code").and_then(Value::as_u64).unwrap_or(0)
    }

    /// Further numbers of the record.
    pub fn numbers(&self) -> Vec<u64> {
        let numbers = self.0.get("numbers").and_then(Value::as_array);
        numbers.into_iter().flatten().filter_map(Value::as_u64).collect()
    }

    /// Whether it takes back what an earlier record said.
    pub fn is_correction(&self) -> bool {
        let marks = self.0.get("marks").and_then(Value::as_array);
        marks.is_some_and(|marks| marks.iter().any(|mark| mark == "correction"))
    }

    /// Whether the recorder itself refused this call, on request.
    pub fn is_injected(&self) -> bool {
        let marks = self.0.get("marks").and_then(Value::as_array);
        marks.is_some_and(|marks| marks.iter().any(|mark| mark == "injected"))
    }

    /// A number that the recorder, or the program, read.
    pub fn reading(&self, quantity: &str) -> Option<u64> {
        let readings = self.0.get("readings").and_then(Value::as_array)?;
        readings.iter().find(|reading| reading["quantity"] == quantity)?["value"].as_u64()
    }

    /// Name of the status, empty where there is none.
    pub fn status_name(&self) -> &str {
        self.0.pointer("/status/name").and_then(Value::as_str).unwrap_or("")
    }

    /// `seq` of the call that this one was made by.
    pub fn parent(&self) -> Option<u64> {
        self.optional_number("parent")
    }

    /// Whether the program itself made this call, and no vendor library.
    pub fn is_programs_own(&self) -> bool {
        let marks = self.0.get("marks").and_then(Value::as_array);
        self.parent().is_none() && !marks.is_some_and(|marks| marks.iter().any(|mark| mark == "from_runtime"))
    }

    /// Whether this is a call of the program that gave it memory: not a failed one, not one made by another call, not
    /// an address range without memory.
    pub fn is_allocation(&self) -> bool {
        let allocates = matches!(self.event(), "alloc" | "pin") && self.kind() != "reserved";
        allocates && !self.failed() && self.is_programs_own() && self.address().is_some()
    }

    /// Whether this is a call of the program that gave memory back. Address ranges, pools and queues are objects, not memory.
    pub fn is_free(&self) -> bool {
        // The end of a context has no kind.
        let of_object = matches!(self.kind(), "reserved" | "queue" | "")
            || ["AddressFree", "PoolDestroy", "MemFreeNode", "UnmapResources"]
                .iter()
                .any(|end| self.api().ends_with(end));
        let frees = matches!(self.event(), "free" | "unpin") && !of_object;
        frees && !self.failed() && self.is_programs_own() && self.address().is_some()
    }
}

/// Functions that end a device's or a context's life: they take memory back without a free.
pub(crate) const ENDS: &[&str] = &["DeviceReset", "PrimaryCtxReset", "PrimaryCtxRelease", "CtxDestroy"];

/// Asserts that no address is given out twice without a free between, and none freed twice without an allocation. What
/// lived when a device was reset or a context ended may be gone with that, or not.
pub fn assert_addresses_alternate(events: &[Event]) {
    let mut live: HashMap<u64, (&Event, usize)> = HashMap::new();
    let mut ends = 0;
    for event in events {
        ends += usize::from(ENDS.iter().any(|end| event.api().contains(end)));
        if event.is_allocation() {
            let address = event.address().expect("an allocation has one");
            match live.insert(address, (event, ends)) {
                Some((earlier, before)) if before == ends => {
                    panic!("{address:#x} given out twice: {earlier:?}, {event:?}")
                }
                _ => {}
            }
        } else if event.is_free() {
            let address = event.address().expect("a free has one");
            assert!(live.remove(&address).is_some(), "freed but not live: {event:?}");
        }
    }
}

/// The same for any rows that give memory out or take it back.
pub(crate) fn assert_alternate<'a>(rows: impl Iterator<Item = &'a Event>, gives: impl Fn(&Event) -> bool) {
    let mut live: HashMap<u64, &Event> = HashMap::new();
    for event in rows {
        let address = event.address().expect("both kinds have one");
        if gives(event) {
            if let Some(earlier) = live.insert(address, event) {
                panic!("{address:#x} given out twice: {earlier:?}, then {event:?}");
            }
        } else {
            assert!(live.remove(&address).is_some(), "freed but not live: {event:?}");
        }
    }
}
