//! HSA as of ROCm 7, call by call: virtual memory, shared virtual memory, memory of other processes, queues, code.

use std::collections::BTreeSet;
use std::path::Path;

use gpuoom_tests::{Client, Event, Finished, Library, MIB, Trace, TruthLine, program_with};

const OUT_OF_RESOURCES: u64 = 0x1008;

fn tour() -> Finished {
    let client =
        Client::new(program_with("hsa_tour.c", Library::Hsa)).env("SIM_DEVICES", "2").env("SIM_CAPACITY", "1G");
    let run = client.env("GPUOOM_PROBE", "off").run_both();
    assert_eq!(run.exit_code(), 0, "{}", run.stderr);
    run
}

/// The traces of the process that makes the tour, and of the one that gives it memory.
fn traces(run: &Finished) -> [Trace; 2] {
    let mut traces = run.traces();
    traces.sort_by_key(|trace| trace.events().iter().any(|event| event.api() == "hsa_amd_ipc_memory_attach"));
    let [giver, tour] = <[Trace; 2]>::try_from(traces).expect("two processes");
    [tour, giver]
}

/// What happened to memory, in the words of the device's log. A missing size or device means that the caller is not told.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Step {
    what: String,
    api: String,
    address: u64,
    bytes: Option<u64>,
    device: Option<u64>,
}

fn has_size(what: &str) -> bool {
    ["alloc", "failed", "map", "reserve"].contains(&what)
}

fn has_device(what: &str, kind: &str) -> bool {
    what == "alloc" && ["device", "physical"].contains(&kind)
}

/// The device's own log of one process. Only the lack of memory is a failure that it logs as one.
fn steps_of_device(truth: &[TruthLine], pid: u64) -> Vec<Step> {
    let of_process = truth.iter().filter(|line| line.pid() == pid && line.kind() != "code");
    let counts = |line: &&TruthLine| line.event() != "failed" || line.status() == 2;
    let steps = of_process.filter(counts).map(|line| {
        let bytes = has_size(line.event()).then(|| line.requested_bytes());
        let device = has_device(line.event(), line.kind()).then(|| line.device());
        Step { what: line.event().into(), api: line.api().into(), address: line.address(), bytes, device }
    });
    steps.collect()
}

fn word(event: &Event) -> Option<&'static str> {
    let fails = event.status() == OUT_OF_RESOURCES;
    match (event.event(), event.kind()) {
        (_, "queue" | "code" | "managed" | "none") => None,
        ("alloc" | "pin" | "reserve", _) if event.failed() => fails.then_some("failed"),
        _ if event.failed() => None,
        _ if event.api().contains("export") || event.api() == "hsa_amd_ipc_memory_create" => Some("export"),
        ("alloc" | "pin", _) => Some("alloc"),
        ("free", "reserved") => Some("unreserve"),
        // A handle is released in the same way, whoever owns what lies behind it.
        ("free", "imported") => Some("close"),
        ("free" | "unpin", _) => Some("free"),
        ("import", "physical") => Some("retain"),
        ("map", _) => Some("map"),
        ("unmap", _) => Some("unmap"),
        ("import", _) => Some("import"),
        ("reserve", _) => Some("reserve"),
        _ => None,
    }
}

/// The same as the trace tells it.
fn steps_of_trace(events: &[Event]) -> Vec<Step> {
    let mut steps: Vec<Step> = Vec::new();
    for event in events {
        if event.is_correction() && event.kind() != "queue" {
            let taken_back = steps.pop().expect("a correction follows its call");
            assert_eq!((taken_back.api.as_str(), Some(taken_back.address)), (event.api(), event.address()));
            continue;
        }
        let Some(what) = word(event).filter(|what| *what != "free" || event.address().is_some()) else { continue };
        let bytes = has_size(what).then(|| event.requested_bytes());
        let device = event.device().filter(|_| has_device(what, event.kind()));
        let (address, api) = (event.address().unwrap_or(0), event.api().to_owned());
        steps.push(Step { what: what.into(), api, address, bytes, device });
    }
    steps
}

#[test]
fn every_step_of_the_device_is_recorded_in_its_order() {
    let run = tour();
    for trace in traces(&run) {
        let (truth, events) = (run.truth(), trace.events());
        let (expected, recorded) = (steps_of_device(&truth, trace.pid()), steps_of_trace(&events));
        for (expected, recorded) in expected.iter().zip(&recorded) {
            assert_eq!(expected, recorded);
        }
        assert_eq!(expected.len(), recorded.len(), "{expected:#?}");
        trace.report().assert_nothing_lost();
        trace.report().assert_accounts();
    }
}

/// The functions of the recorder's table for HSA: the page is held to the table by a test of its own.
fn functions_of_the_table() -> BTreeSet<String> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../interposer/COVERAGE.md");
    let page = std::fs::read_to_string(path).expect("the page of what is recorded");
    let section = page.split("\n## ").find(|section| section.starts_with("HSA\n")).expect("a section for HSA");
    // What the virtual card answers leaves no event; `zoo_virtual_card` calls it.
    let recorded = section.lines().filter(|line| !line.contains("| virtual card |"));
    let names = recorded.filter_map(|line| line.strip_prefix("| `")?.split('`').next());
    names.map(str::to_owned).collect()
}

#[test]
fn every_function_of_the_table_is_called_and_recorded() {
    let events: Vec<Event> = traces(&tour()).iter().flat_map(Trace::events).collect();
    let called: BTreeSet<String> = events.iter().map(|event| event.api().to_owned()).collect();
    let table = functions_of_the_table();
    assert!(table.len() > 40, "{table:?}");
    let never: Vec<_> = table.difference(&called).collect();
    assert!(never.is_empty(), "never executed by any test: {never:?}");
}

#[test]
fn the_books_close_on_both_gpus() {
    let run = tour();
    let [tour, giver] = traces(&run);
    let report = tour.report();
    let used = |device: u64| -> u64 {
        let here = |line: &&TruthLine| line.pid() == tour.pid() && line.device() == device;
        run.truth().iter().filter(here).map(TruthLine::device_used_bytes).max().expect("lines of both devices")
    };
    let device = |index: u64, field: &str| report.number(&format!("/devices/{index}/{field}"));
    assert_eq!((device(0, "peak/requested_bytes"), used(0)), (1024 * MIB, 1024 * MIB));
    assert_eq!((device(1, "peak/requested_bytes"), used(1)), (32 * MIB, 32 * MIB), "neither twice mapped nor imported");
    // From pools 5 MiB + 1, 4 and 4 for the copies, the whole card; 2 of physical memory.
    assert_eq!((device(0, "allocations"), device(0, "frees")), (5, 5));
    // From a pool 8, from a region 6, 32 of physical memory; 9 at the end.
    assert_eq!((device(1, "allocations"), device(1, "frees"), device(1, "end/live_allocations")), (4, 3, 1));
    assert_eq!((device(0, "end/live_allocations"), device(1, "end/live_allocations")), (0, 1));
    assert_eq!(device(1, "end/requested_bytes"), 9 * MIB);
    assert_eq!((report.number("/host/allocations"), report.number("/host/end/live_allocations")), (5, 0));
    assert_eq!(report.number("/unmatched_frees"), 0, "{}", tour.report_text());
    let report = giver.report();
    assert_eq!((report.count("/devices"), report.number("/devices/0/index")), (1, 1));
    assert_eq!(report.number("/devices/0/peak/requested_bytes"), 26 * MIB);
    assert_eq!(report.number("/devices/0/end/live_allocations"), 0);
}

#[test]
fn shared_virtual_memory_is_named_with_its_place_and_not_counted() {
    let run = tour();
    let events = traces(&run)[0].events();
    let calls = |api: &str| -> Vec<&Event> { events.iter().filter(|event| event.api() == api).collect() };
    let told = |event: &Event| (event.kind().to_owned(), event.device(), event.requested_bytes(), event.failed());
    let managed = |device, bytes, failed| ("managed".to_owned(), device, bytes, failed);
    let set: Vec<_> = calls("hsa_amd_svm_attributes_set").into_iter().map(told).collect();
    let size = 16 * MIB;
    assert_eq!(set, [managed(Some(1), size, false), managed(None, size, false), managed(None, size, true)]);
    let numbers: Vec<_> = calls("hsa_amd_svm_attributes_set").iter().map(|event| event.numbers().len()).collect();
    assert_eq!(numbers, [2, 2, 0], "the place, or the first attribute; nothing of a list that was refused");
    let sent: Vec<_> = calls("hsa_amd_svm_prefetch_async").into_iter().map(told).collect();
    assert_eq!(sent, [managed(Some(0), size, false), managed(None, size, true)]);
}

#[test]
fn each_refusal_is_named_with_what_came_of_it() {
    let run = tour();
    let report = traces(&run)[0].report();
    let rows: Vec<(String, u64, String)> = (0..report.count("/ooms"))
        .map(|index| {
            let text = |field: &str| report.text(&format!("/ooms/{index}/{field}")).to_owned();
            (text("api"), report.number(&format!("/ooms/{index}/device")), text("outcome"))
        })
        .collect();
    let row = |api: &str, device, outcome: &str| (api.to_owned(), device, outcome.to_owned());
    let pool = |outcome| row("hsa_amd_memory_pool_allocate", 0, outcome);
    // A queue of another GPU was had; the program asked for the reason and went on; it went on with other work.
    let mut expected = vec![row("hsa_queue_create", 0, "recovered"), pool("propagated")];
    expected.extend(vec![pool("dropped"); 6]);
    // Nothing of that size was asked for again; the code was loaded when there was room.
    expected.push(row("hsa_amd_vmem_handle_create", 1, "unresolved"));
    expected.push(row("hsa_executable_load_agent_code_object", 0, "recovered"));
    assert_eq!(rows, expected);
}
