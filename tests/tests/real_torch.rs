//! PyTorch's own wheel over the simulated CUDA: with and without the recorder it prints the same, and what was recorded is
//! what the simulated card did, byte by byte.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs;

use gpuoom_tests::{Client, Event, Finished, MIB, Report, TruthLine, stubs_called, torch_client};
use gpuoom_trace::record::{self, mark, message};
use serde_json::Value;

/// Small enough that the caching allocator of `train.py` has to give memory back before it gets more.
const SHORT: &str = "104M";

fn client(program: &str, capacity: &str) -> Option<Client> {
    Some(torch_client(program)?.env("SIM_CAPACITY", capacity).env("GPUOOM_PROBE", "off"))
}

/// Runs both ways and holds the trace against the card's own log.
fn run(client: Client) -> Finished {
    let run = client.run_both();
    run.assert_cuda_trace_is_true();
    assert_eq!(stubs_called(&run), Default::default(), "functions that the simulated CUDA lacks");
    run.only_trace().report().assert_nothing_lost();
    run
}

/// What the program printed in lines `NAME: NUMBER`; of several lines with a name, the last.
fn printed(run: &Finished, name: &str) -> u64 {
    let line = run.stdout.lines().rev().find_map(|line| line.strip_prefix(&format!("{name}: ")));
    let text = line.unwrap_or_else(|| panic!("no {name} in {}", run.stdout));
    text.parse().unwrap_or_else(|_| panic!("{name}: {text} is no number"))
}

fn failures(truth: &[TruthLine]) -> usize {
    truth.iter().filter(|line| line.event() == "failed").count()
}

fn outcomes(report: &Report) -> BTreeMap<(&str, &str), usize> {
    let mut found = BTreeMap::new();
    for index in 0..report.count("/ooms") {
        let text = |field: &str| report.text(&format!("/ooms/{index}/{field}"));
        *found.entry((text("outcome"), text("because"))).or_default() += 1;
    }
    found
}

/// PyTorch's segments are whole granules, so that the card holds just what was asked for.
fn assert_peak_is_true(run: &Finished) {
    let peak = run.truth().iter().map(TruthLine::device_used_bytes).max();
    assert_eq!(Some(run.only_trace().report().number("/devices/0/peak/requested_bytes")), peak);
}

#[test]
fn training_that_fits() {
    let Some(client) = client("train.py", "16G") else { return };
    let run = run(client);
    let report = run.only_trace().report();
    report.assert_exited(0);
    assert_eq!((report.count("/ooms"), printed(&run, "num_ooms")), (0, 0));
    report.assert_no_growth();
    report.assert_no_cause();
    assert!(report.text("/process/torch_version").starts_with("2.15.0"));
    assert_eq!(report.number("/devices/0/allocations"), printed(&run, "num_device_alloc"));
    assert_eq!(report.number("/devices/0/frees"), printed(&run, "num_device_free"));
    assert_eq!(report.number("/devices/0/peak/requested_bytes"), printed(&run, "reserved_bytes.all.peak"));
    assert_eq!(report.number("/devices/0/end/requested_bytes"), 0);
    assert_peak_is_true(&run);
    assert!(run.recorder_lines().is_empty(), "a healthy run prints nothing: {:?}", run.recorder_lines());
}

/// The caching allocator frees what it had kept and asks again; the program never notices.
#[test]
fn retries_inside_the_caching_allocator_are_recovered() {
    let Some(client) = client("train.py", SHORT) else { return };
    let run = run(client);
    let retries = printed(&run, "num_alloc_retries") as usize;
    assert!(retries > 0, "the capacity is to make some: {}", run.stdout);
    let report = run.only_trace().report();
    report.assert_exited(0);
    assert_eq!(printed(&run, "num_ooms"), 0);
    assert_eq!(report.count("/ooms"), failures(&run.truth()));
    assert_eq!(outcomes(&report), BTreeMap::from([(("recovered", "retry_succeeded"), report.count("/ooms"))]));
    assert!(report.count("/ooms") >= retries);
    assert_peak_is_true(&run);
}

/// The runtime's refusals that became errors of PyTorch's.
fn attempts(report: &Report) -> usize {
    (0..report.count("/ooms")).map(|index| report.count(&format!("/ooms/{index}/attempts"))).sum()
}

fn assert_propagated_by_exception(run: &Finished) {
    let report = run.only_trace().report();
    assert!(report.count("/ooms") > 0);
    // Each refusal of the card is an attempt of an error that reached the program.
    assert_eq!(attempts(&report), failures(&run.truth()));
    assert_eq!(report.text("/ooms/0/layer"), "framework");
    assert!(report.text("/ooms/0/message").starts_with("CUDA out of memory. Tried to allocate"));
    assert_eq!(report.text("/ooms/0/refused_by"), "driver");
    assert_eq!(outcomes(&report), BTreeMap::from([(("propagated", "exception"), report.count("/ooms"))]));
    assert_peak_is_true(run);
}

#[test]
fn an_out_of_memory_error_that_ends_the_program() {
    let Some(client) = client("oom.py", "1G") else { return };
    let run = run(client.arg("uncaught"));
    let said = run.recorder_lines()[0];
    assert!(said.contains("1 out-of-memory error of PyTorch's allocator, 2 refused calls below, propagated"), "{said}");
    assert!(run.stderr.contains("torch.OutOfMemoryError: CUDA out of memory."), "{}", run.stderr);
    run.only_trace().report().assert_exited(1);
    // Equal tensors of one line: whether all are needed nobody knows.
    assert_card_is_full(&run, "probable");
    assert_propagated_by_exception(&run);
}

/// What PyTorch keeps unused inside its segments its blocks and its exception tell; a log adds nothing.
fn assert_card_is_full(run: &Finished, confidence: &str) {
    run.only_trace().report().assert_cause("true-capacity", confidence);
    let directory = tempfile::tempdir().expect("a directory");
    let log = directory.path().join("stderr.txt");
    fs::write(&log, &run.stderr).expect("a file");
    let report = run.only_trace().report_with(&["--torch-log".as_ref(), log.as_os_str()]);
    report.assert_cause("true-capacity", confidence);
}

#[test]
fn an_out_of_memory_error_that_is_survived() {
    let Some(client) = client("oom.py", "1G") else { return };
    let run = run(client.arg("caught"));
    run.only_trace().report().assert_exited(0);
    run.only_trace().report().assert_cause("true-capacity", "probable");
    assert_eq!(run.only_trace().report().count("/ooms"), printed(&run, "num_ooms") as usize);
    assert_eq!(printed(&run, "blocks") * 64 * MIB, 1 << 30);
    assert_propagated_by_exception(&run);
}

#[test]
fn a_request_that_is_larger_than_the_card() {
    let Some(client) = client("oom.py", "1G") else { return };
    let run = run(client.arg("oversized"));
    run.only_trace().report().assert_exited(0);
    let report = run.only_trace().report();
    assert_eq!(report.number("/ooms/0/requested_bytes"), (1 << 30) + 64 * MIB);
    report.assert_cause("request-exceeds-device", "proven");
    assert_propagated_by_exception(&run);
}

/// The driver's functions for virtual memory are handed to PyTorch one by one, by `cudaGetDriverEntryPointByVersion`.
#[test]
fn expandable_segments() {
    let Some(client) = client("train.py", "16G") else { return };
    let run = run(client.env("PYTORCH_ALLOC_CONF", "expandable_segments:True"));
    let events = run.only_trace().events();
    let calls = |api: &str| events.iter().filter(|event| event.api() == api && !event.failed()).count();
    assert!(calls("cuMemCreate") > 0, "no physical memory was seen");
    assert_eq!(calls("cuMemCreate"), calls("cuMemRelease"));
    assert_eq!(calls("cuMemMap"), calls("cuMemUnmap"));
    let report = run.only_trace().report();
    report.assert_exited(0);
    report.assert_no_cause();
    assert_eq!(report.number("/devices/0/end/requested_bytes"), 0);
    assert_peak_is_true(&run);
}

#[test]
fn expandable_segments_that_run_out() {
    let Some(client) = client("oom.py", "1G") else { return };
    let run = run(client.arg("uncaught").env("PYTORCH_CUDA_ALLOC_CONF", "expandable_segments:True"));
    let report = run.only_trace().report();
    report.assert_exited(1);
    // A block is mapped in steps. The step that fails makes PyTorch give back the steps before it and begin again: the
    // first of them succeeds, at the size that had failed, and a later one fails for good. Both are attempts of one error.
    assert_eq!(outcomes(&report), BTreeMap::from([(("propagated", "exception"), 1)]));
    assert_eq!((failures(&run.truth()), attempts(&report)), (2, 2));
    assert_eq!(report.text("/ooms/0/attempts/0/api"), "cuMemCreate");
    assert_card_is_full(&run, "proven");
    assert_peak_is_true(&run);
}

#[test]
fn the_asynchronous_allocator() {
    let Some(client) = client("train.py", "16G") else { return };
    let run = run(client.env("PYTORCH_ALLOC_CONF", "backend:cudaMallocAsync"));
    assert!(run.stdout.contains("backend: cudaMallocAsync"), "{}", run.stdout);
    let events = run.only_trace().events();
    assert!(events.iter().any(|event| event.api() == "cudaMallocAsync" && event.kind() == "pool"));
    run.only_trace().report().assert_exited(0);
    run.only_trace().report().assert_no_cause();
    assert_eq!(run.only_trace().report().number("/devices/0/end/requested_bytes"), 0);
}

#[test]
fn the_asynchronous_allocator_when_it_runs_out() {
    let Some(client) = client("oom.py", "1G") else { return };
    let run = run(client.arg("caught").env("PYTORCH_ALLOC_CONF", "backend:cudaMallocAsync"));
    let report = run.only_trace().report();
    report.assert_exited(0);
    assert_eq!(report.text("/ooms/0/api"), "cudaMallocAsync");
    report.assert_cause("true-capacity", "probable");
    assert!(
        !run.only_trace().report_text().contains("NO_CUDA_MEMORY_CACHING"),
        "each tensor is a call of its own here"
    );
    assert_eq!(report.count("/ooms"), failures(&run.truth()));
    assert_eq!(outcomes(&report), BTreeMap::from([(("propagated", "exception"), report.count("/ooms"))]));
}

#[test]
fn pinned_and_registered_memory() {
    let Some(client) = client("pinned.py", "16G") else { return };
    let run = run(client);
    let events = run.only_trace().events();
    for kind in ["host-pinned", "registered"] {
        assert!(events.iter().any(|event| event.kind() == kind && event.is_allocation()), "no {kind} memory");
    }
    run.only_trace().report().assert_exited(0);
    run.only_trace().report().assert_no_cause();
}

/// Workers that never touch the card leave no trace, and the trace of the process that forked them goes on.
#[test]
fn a_data_loader_with_forked_workers() {
    let Some(client) = client("loader.py", "16G") else { return };
    let run = run(client);
    assert_eq!(printed(&run, "batches"), 8);
    run.only_trace().report().assert_exited(0);
    run.only_trace().report().assert_no_cause();
    assert_peak_is_true(&run);
}

/// `torch.cuda.nvtx` is NVTX, compiled into PyTorch, and finds the recorder as it would find a profiler.
#[test]
fn ranges_and_the_error_that_they_explain() {
    let Some(client) = client("ranges.py", "16G") else { return };
    let run = run(client.without_env("NVTX_INJECTION64_PATH"));
    let told = run.only_trace().told(&[record::Event::Mark]);
    let told: Vec<_> = told.iter().map(|mark| (mark.status, mark.text.as_str())).collect();
    let steps = ["step 0", "step 1", "step 2"];
    let steps = steps.map(|step| [(mark::PUSH, step), (mark::PUSH, "forward"), (mark::POP, ""), (mark::POP, "")]);
    let before =
        [(mark::PUSH, "set up"), (mark::LABEL, "before the first call"), (mark::POP, ""), (mark::START, "all steps")];
    let after = [(mark::STOP, ""), (mark::PUSH, "too much"), (mark::POP, "")];
    assert_eq!(told, [&before[..], steps.as_flattened(), &after[..]].concat());
    let messages = run.only_trace().told(&[record::Event::Message]);
    let first = messages.first().expect("the error says something");
    assert_eq!(first.status, message::EXCEPTION);
    assert!(first.text.starts_with("CUDA out of memory. Tried to allocate 1024.00 GiB."), "{}", first.text);
    assert!(!first.text.contains("Exception raised from"), "no backtrace was made: {}", first.text);
}

fn live_blocks(events: &[Event]) -> BTreeMap<u64, u64> {
    let mut live = BTreeMap::new();
    for event in events.iter().filter(|event| event.kind() == "device") {
        let address = event.address().expect("blocks have addresses");
        if event.is_allocation() {
            live.insert(address, event.requested_bytes());
        } else if event.is_free() {
            live.remove(&address);
        }
    }
    live
}

/// PyTorch's own account of its segments, in the snapshot that it dumps, is a second truth.
#[test]
fn the_snapshot_that_pytorch_dumps_has_the_same_segments() {
    let Some(client) = client("snapshot.py", "16G") else { return };
    let run = run(client.args(["snapshot.pickle", "segments.json"]));
    let text = fs::read_to_string(run.cwd().join("segments.json")).expect("the client wrote it");
    let segments: Vec<Value> = serde_json::from_str(&text).expect("a list of segments");
    let number = |segment: &Value, field: &str| segment[field].as_u64().expect("a number");
    let segments: BTreeMap<_, _> =
        segments.iter().map(|segment| (number(segment, "address"), number(segment, "bytes"))).collect();
    assert!(segments.len() > 1);
    // Nothing is freed after the snapshot: what it lists lives to the end.
    assert_eq!(live_blocks(&run.only_trace().events()), segments);
}

/// PyTorch's snapshot, read by the analyzer itself and joined with the trace: every byte of every segment is a traced one.
fn assert_joined(run: &Finished, trace_bytes: &str) {
    let snapshot = run.cwd().join("snapshot.pickle");
    let report = run.only_trace().report_with(&[OsStr::new("--torch-snapshot"), snapshot.as_os_str()]);
    let number = |field: &str| report.number(&format!("/other_evidence/torch_snapshots/0/devices/0/{field}"));
    let reserved = printed(run, "bytes");
    assert!(reserved > 0);
    assert_eq!((number("sums/reserved_bytes"), number("sums/segments")), (reserved, printed(run, "segments")));
    assert_eq!(number("sums/events"), printed(run, "events"));
    assert_eq!(number("sums/allocated_bytes"), printed(run, "allocated_bytes.all.current"));
    assert_eq!((number("common_bytes"), number("only_in_snapshot_bytes")), (reserved, 0));
    assert_eq!(number("whole_segments"), printed(run, "segments"));
    assert_eq!((number("traced_bytes"), number("only_in_trace_bytes")), (reserved, 0), "{trace_bytes}");
}

#[test]
fn the_snapshot_is_joined_with_the_trace() {
    let Some(client) = client("snapshot.py", "16G") else { return };
    assert_joined(&run(client.args(["snapshot.pickle", "segments.json"])), "blocks");
}

/// What PyTorch's host allocator pinned and keeps is in the snapshot where it was asked for; its own statistics say the same.
#[test]
fn the_snapshot_says_what_the_host_allocator_keeps_pinned() {
    let Some(client) = client("snapshot.py", "16G") else { return };
    let run = run(client.args(["snapshot.pickle", "segments.json", "pinned"]));
    let snapshot = run.cwd().join("snapshot.pickle");
    let given = [OsStr::new("--torch-snapshot"), snapshot.as_os_str()];
    let report = run.only_trace().report_with(&given);
    let number = |field: &str| report.number(&format!("/other_evidence/torch_snapshots/0/host/{field}"));
    let (pinned, used) = (printed(&run, "pinned"), printed(&run, "pinned in use"));
    assert!(used > 0 && pinned > used, "{pinned} {used}");
    assert_eq!((number("reserved_bytes"), number("allocated_bytes")), (pinned, used));
    assert_eq!((number("unused_bytes"), number("in_trace_bytes")), (pinned - used, pinned));
}

/// Segments are stretches of a reservation here, and the trace has mappings of physical memory.
#[test]
fn the_snapshot_of_expandable_segments_is_joined_with_the_trace() {
    let Some(client) = client("snapshot.py", "16G") else { return };
    let client = client.env("PYTORCH_ALLOC_CONF", "expandable_segments:True");
    assert_joined(&run(client.args(["snapshot.pickle", "segments.json"])), "mappings");
}

/// The error that ends the program, as the analyzer reads it from the program's own output.
#[test]
fn the_message_of_the_error_is_read_from_the_log() {
    let Some(client) = client("oom.py", "1G") else { return };
    let run = run(client.arg("uncaught"));
    let log = run.cwd().join("log.txt");
    fs::write(&log, &run.stderr).expect("the log is written");
    let report = run.only_trace().report_with(&[OsStr::new("--torch-log"), log.as_os_str()]);
    let at = |field: &str| format!("/other_evidence/torch_logs/0/messages/0/{field}");
    assert_eq!(report.number(&at("tried/bytes")), 64 * MIB);
    assert_eq!(report.number(&at("total/bytes")), 1 << 30);
    assert_eq!(report.number(&at("allocated/bytes")), 1 << 30);
    assert_eq!(report.text(&at("findings/0/id")), "true-capacity");
}
