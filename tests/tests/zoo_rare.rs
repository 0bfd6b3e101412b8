//! Captures, graphs, exports, modules, trims: what takes no memory by itself and explains where memory went.

use gpuoom_tests::{Client, Event, Finished, Library, MIB, TruthLine, program, program_with};

/// Words of the device's log for these calls.
const LOGGED: [&str; 6] = ["capture", "graph", "export", "module", "trim", "attribute"];
/// Parts of the names of these calls.
const NAMES: [&str; 13] = [
    "BeginCapture",
    "EndCapture",
    "GraphInstantiate",
    "GraphExecDestroy",
    "GraphDestroy",
    "IpcGetMemHandle",
    "ExportTo",
    "ExportPointer",
    "ModuleLoad",
    "ModuleUnload",
    "Library",
    "TrimTo",
    "PoolSetAttribute",
];

/// Function and address.
type Call = (String, u64);

fn of_device(run: &Finished) -> Vec<Call> {
    let truth = run.truth();
    let logged = truth.iter().filter(|line| LOGGED.contains(&line.event()));
    logged.map(|line: &TruthLine| (line.api().to_owned(), line.address())).collect()
}

fn is_rare(event: &Event) -> bool {
    NAMES.iter().any(|part| event.api().contains(part)) || event.api().ends_with("GraphMemTrim")
}

/// What succeeded, as far as the trace tells, of one layer.
fn of_trace(events: &[Event], layer: &str) -> Vec<Call> {
    let mut calls: Vec<Call> = Vec::new();
    for event in events.iter().filter(|event| event.layer() == layer && is_rare(event)) {
        let call = (event.api().to_owned(), event.address().unwrap_or(0));
        if event.is_correction() {
            assert_eq!(calls.pop(), Some(call), "a correction follows its call");
        } else if !event.failed() {
            calls.push(call);
        }
    }
    calls
}

fn assert_told(run: &Finished, layer: &str, least: usize) -> Vec<Event> {
    let events = run.only_trace().events();
    let (expected, told) = (of_device(run), of_trace(&events, layer));
    assert!(expected.len() >= least, "{expected:?}");
    assert_eq!(told, expected);
    events
}

fn one<'a>(events: &'a [Event], api: &str, failed: bool) -> &'a Event {
    let found = events.iter().find(|event| event.api() == api && event.failed() == failed);
    found.unwrap_or_else(|| panic!("no {api} that failed: {failed}"))
}

#[test]
fn hip_calls_that_take_no_memory_are_told_with_what_they_are_about() {
    let run = Client::new(program("rare_calls.c")).env("GPUOOM_PROBE", "off").run_both();
    assert_eq!(run.exit_code(), 0, "{}", run.stderr);
    run.assert_trace_is_true();
    let events = assert_told(&run, "runtime", 40);
    let captured = one(&events, "hipStreamEndCapture", false);
    assert_eq!(captured.address(), one(&events, "hipStreamBeginCapture", false).address());
    let executable = one(&events, "hipGraphInstantiate", false);
    assert_eq!((captured.numbers().len(), executable.numbers()), (1, captured.numbers()), "the graph");
    assert_eq!(one(&events, "hipGraphInstantiate", true).address(), None);
    assert_eq!(one(&events, "hipModuleLoadData", true).address(), None);
    let threshold: Vec<_> = events.iter().filter(|event| event.api() == "hipMemPoolSetAttribute").collect();
    assert_eq!(threshold[0].numbers(), [4, 64 * MIB]);
    assert_eq!((threshold[1].numbers(), threshold[2].failed()), (vec![2, 0], true));
    assert_eq!(one(&events, "hipMemPoolTrimTo", false).numbers(), [8 * MIB]);
    for (api, word) in [
        ("hipStreamBeginCapture", "sync"),
        ("hipGraphInstantiate", "module"),
        ("hipIpcGetMemHandle", "map"),
        ("hipModuleLoad", "module"),
        ("hipMemPoolTrimTo", "sync"),
    ] {
        assert_eq!(one(&events, api, false).event(), word);
    }
}

#[test]
fn they_are_no_allocations_and_decide_no_failure() {
    let run = Client::new(program("rare_calls.c")).env("GPUOOM_PROBE", "off").run_recorded();
    let report = run.only_trace().report();
    report.assert_nothing_lost();
    report.assert_only_oom("unresolved", "trace_ended");
    // A block in the capture; a block, physical memory and a block of a pool that are exported, twice.
    assert_eq!((report.number("/devices/0/allocations"), report.number("/devices/0/frees")), (7, 6));
    assert_eq!(report.number("/devices/0/peak/requested_bytes"), (24 + 96 + 4) * MIB);
    assert_eq!((report.number("/unmatched_frees"), report.number("/failed_frees")), (0, 0));
}

#[test]
fn cuda_calls_are_told_by_the_runtime_and_by_the_driver_below_it() {
    let client = Client::new(program_with("cuda_rare_calls.c", Library::CudaAndDriver)).env("GPUOOM_PROBE", "off");
    let run = client.run_both();
    assert_eq!(run.exit_code(), 0, "{}", run.stderr);
    run.assert_trace_is_true();
    let events = assert_told(&run, "driver", 40);
    for outer in events.iter().filter(|event| event.layer() == "runtime" && is_rare(event)) {
        let inside = |event: &&Event| event.layer() == "driver" && event.parent() == Some(outer.seq());
        let inner: Vec<_> = events.iter().filter(inside).collect();
        let [inner] = inner[..] else { panic!("inside {outer:?}: {inner:?}") };
        assert_eq!((inner.event(), inner.address()), (outer.event(), outer.address()), "{outer:?}");
    }
    run.only_trace().report().assert_only_oom("unresolved", "trace_ended");
}

/// Memory that a capture makes a node of the graph is not taken yet: not on the page, not on the virtual card, which the four nodes
/// would fill.
fn assert_nodes_are_not_held(client: Client) {
    let client = client.env("GPUOOM_PROBE", "off").env("SIM_CAPACITY", "1G").env("GPUOOM_CAPACITY", "500M");
    let run = client.run_both();
    assert_eq!((run.exit_code(), run.stdout.as_str()), (0, "end of none: 1\ndone\n"), "{}", run.stderr);
    let report = run.only_trace().report();
    report.assert_nothing_lost();
    assert_eq!((report.number("/devices/0/allocations"), report.number("/devices/0/frees")), (2, 2));
    assert_eq!(report.number("/devices/0/peak/requested_bytes"), 160 * MIB);
    assert_eq!((report.number("/unmatched_frees"), report.number("/failed_frees")), (0, 0));
    assert_eq!(report.number("/graph_node_bytes"), 512 * MIB);
}

#[test]
fn hip_memory_of_a_capture_is_not_held() {
    assert_nodes_are_not_held(Client::new(program("captured_pool.c")));
}

#[test]
fn cuda_memory_of_a_capture_is_not_held() {
    assert_nodes_are_not_held(Client::new(program_with("cuda_captured_pool.c", Library::CudaOverDriver)));
}
