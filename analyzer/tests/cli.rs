//! The tool as scripts and people call it: formats, exit statuses, messages.

use std::io::{Read, Write};
use std::mem::offset_of;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

use gpuoom_analyze::testing::{GIB, MIB, TraceBuilder, at};
use gpuoom_trace::header::{Header, end};
use gpuoom_trace::payload::{PythonFrame, stack_flag};
use gpuoom_trace::record::{Event, Kind, Record, flag, process};
use serde_json::Value;

struct Place(tempfile::TempDir);

impl Place {
    fn new() -> Self {
        Place(tempfile::tempdir().unwrap())
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn trace(&self, name: &str, trace: &TraceBuilder) -> PathBuf {
        let path = self.path(name);
        trace.write(&path).unwrap();
        path
    }

    fn run(&self, arguments: &[&str]) -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_gpuoom-analyze"));
        command.args(arguments).current_dir(self.0.path()).env_remove("GPUOOM_TRACE").output().unwrap()
    }

    fn stdout(&self, arguments: &[&str]) -> String {
        let output = self.run(arguments);
        assert_eq!(output.status.code(), Some(0), "{arguments:?}: {}", stderr(&output));
        String::from_utf8(output.stdout).unwrap()
    }

    /// What is printed about a trace that could be read in part.
    fn in_part(&self, arguments: &[&str]) -> String {
        let output = self.run(arguments);
        assert_eq!(output.status.code(), Some(3), "{arguments:?}: {}", stderr(&output));
        assert!(stderr(&output).contains("offset"), "{}", stderr(&output));
        String::from_utf8(output.stdout).unwrap()
    }

    fn json(&self, arguments: &[&str]) -> Value {
        serde_json::from_str(&self.stdout(arguments)).unwrap()
    }
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Two blocks, one freed, one failure that the program reports, nested calls below the first.
fn small() -> TraceBuilder {
    let mut trace = TraceBuilder::default().device(0, "card", 16 * GIB);
    let outer = trace.record(Event::Alloc, Kind::Device, "hipMalloc");
    let inner = trace.record(Event::Alloc, Kind::Device, "hsa_amd_memory_pool_allocate");
    trace.push(Record { parent_distance: 1, address: 0x1000, requested: GIB, padded_granules: 4, ..inner }, &[]);
    trace.push(Record { address: 0x1000, requested: GIB, padded_granules: 4, ..outer }, &[]);
    trace.alloc(0x1_0000_0000, 300 * MIB);
    trace.free(0x1_0000_0000);
    trace.refuse(17 * GIB);
    trace.after(Event::ErrorQuery, "hipGetErrorString", 2, flag::ERROR_TEXT);
    let mark = trace.record(Event::Mark, Kind::None, "gpuoom_mark");
    trace.with_text(mark, "epoch \"1\", begin");
    trace.end(process::EXITS, 3);
    trace
}

#[test]
fn the_json_report_has_the_fields_of_the_contract() {
    let place = Place::new();
    place.trace("t.bin", &small());
    let report = place.json(&["report", "--format", "json", "t.bin"]);
    for (pointer, expected) in [
        ("/schema", Value::from("gpuoom.report/1")),
        ("/trace/path", "t.bin".into()),
        ("/trace/format_version", "1.7".into()),
        ("/trace/clean_close", true.into()),
        ("/trace/events", 8.into()),
        ("/trace/events_lost", 0.into()),
        ("/trace/torn_events", 0.into()),
        ("/trace/started_at", "2026-11-20T14:03:11.000Z".into()),
        ("/process/pid", 4711.into()),
        ("/process/end", "exited".into()),
        ("/process/exit_code", 3.into()),
        ("/process/signal", Value::Null),
        ("/devices/0/index", 0.into()),
        ("/devices/0/total_bytes", (16 * GIB).into()),
        ("/devices/0/granularity_bytes", (256 * MIB).into()),
        ("/devices/0/granularity_observed_bytes", Value::Null),
        ("/devices/0/allocations", 2.into()),
        ("/devices/0/frees", 1.into()),
        ("/devices/0/failures", 1.into()),
        ("/devices/0/peak/requested_bytes", (GIB + 300 * MIB).into()),
        ("/devices/0/peak/padded_bytes", (GIB + 512 * MIB).into()),
        ("/devices/0/end/live_allocations", 1.into()),
        ("/devices/0/fragmentation/stranded_bytes", 0.into()),
        ("/devices/0/fragmentation/external", 0.0.into()),
        ("/host/allocations", 0.into()),
        ("/ooms/0/api", "hipMalloc".into()),
        ("/ooms/0/layer", "runtime".into()),
        ("/ooms/0/requested_bytes", (17 * GIB).into()),
        ("/ooms/0/status/code", 2.into()),
        ("/ooms/0/status/name", "hipErrorOutOfMemory".into()),
        ("/ooms/0/outcome", "propagated".into()),
        ("/ooms/0/because", "error_reported".into()),
        ("/ooms/0/refused_by", "runtime".into()),
        ("/ooms/0/evidence/0/event", "error_query".into()),
        ("/ooms/0/free_reported_bytes", Value::Null),
        ("/ooms/0/largest_allocatable_bytes", Value::Null),
        ("/ooms/0/cause", "request-exceeds-device".into()),
        ("/ooms/0/stack", Value::Array(Vec::new())),
        ("/ledger/0/unattributed_bytes", Value::Null),
        ("/diagnoses/0/id", "request-exceeds-device".into()),
        ("/diagnoses/0/confidence", "probable".into()),
        ("/diagnoses/0/modelled", false.into()),
        ("/diagnoses/0/missing/0", "whether the GPU shares the host's memory (KFD's topology)".into()),
        ("/verdict/cause", "request-exceeds-device".into()),
        ("/verdict/confidence", "probable".into()),
        ("/damages", Value::Array(Vec::new())),
        ("/calls_under_way", Value::Array(Vec::new())),
    ] {
        assert_eq!(report.pointer(pointer), Some(&expected), "{pointer} in {report:#}");
    }
}

#[test]
fn events_come_in_order_with_their_enclosing_calls() {
    let place = Place::new();
    place.trace("t.bin", &small());
    let text = place.stdout(&["events", "--format", "json", "t.bin"]);
    let events: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(events.len(), 8);
    assert_eq!(events[0]["parent"], events[1]["seq"]);
    assert_eq!((&events[1]["parent"], &events[1]["address"]), (&Value::Null, &"0x1000".into()));
    assert_eq!(events[3]["event"], "free");
    assert!(events[3].get("status").is_none() && events[3].get("requested_bytes").is_none());
    assert_eq!((&events[4]["oom"], &events[4]["padded_bytes"]), (&1.into(), &(17 * GIB).into()));
    assert_eq!(events[6]["text"], "epoch \"1\", begin");
    insta::assert_snapshot!("events_csv", place.stdout(&["events", "--format", "csv", "t.bin"]));
    insta::assert_snapshot!("events_text", place.stdout(&["events", "t.bin"]));
}

#[test]
fn what_an_allocator_above_the_runtime_tells_is_listed() {
    let place = Place::new();
    let mut trace = small();
    trace.segment(0x9000_0000, GIB);
    trace.tensor(0, 0x9000_0000, 3 * MIB);
    trace.no_tensor(0, 2 * GIB);
    trace.free_tensor(0x9000_0000);
    trace.pool_alloc("kv", "layer 0", 0x9000_0000, MIB);
    trace.pool_free("kv", 0x9000_0000);
    let message = trace.record(Event::Message, Kind::None, "__cxa_throw");
    trace.with_text(Record { status: 1, ..message }, "CUDA out of memory");
    for (status, text) in [(1, "outer"), (2, ""), (3, "inner"), (4, "")] {
        let mark = trace.record(Event::Mark, Kind::None, "nvtxRangePushA");
        trace.with_text(Record { status, address: if status > 2 { 7 } else { 0 }, ..mark }, text);
    }
    place.trace("t.bin", &trace);
    let text = place.stdout(&["events", "--format", "json", "t.bin"]);
    let events: Vec<Value> = text.lines().skip(9).map(|line| serde_json::from_str(line).unwrap()).collect();
    let words = |name: &str| events.iter().map(|event| event[name].as_str().unwrap_or("-")).collect::<Vec<_>>();
    assert_eq!(words("event")[..6], ["alloc", "alloc", "free", "alloc", "free", "message"]);
    assert_eq!(words("layer")[..6], ["framework", "framework", "framework", "framework", "framework", "-"]);
    assert_eq!(words("kind")[..6], ["tensor", "tensor", "tensor", "tensor", "tensor", "-"]);
    assert_eq!(words("address")[..5], ["0x90000000", "-", "0x90000000", "0x90000000", "0x90000000"]);
    assert_eq!(words("text")[3..7], ["kv: layer 0", "kv", "CUDA out of memory", "outer"]);
    assert_eq!(words("range")[6..], ["push", "pop", "start", "stop"]);
    assert_eq!((&events[0]["requested_bytes"], &events[0]["numbers"][0]), (&(3 * MIB).into(), &(3 * MIB).into()));
    assert_eq!((&events[1]["status"]["code"], &events[1]["status"]["name"]), (&1.into(), &"out of memory".into()));
    assert_eq!((&events[9]["numbers"][0], &events[9]["text"]), (&7.into(), &Value::Null));
    assert!(events.iter().all(|event| event.get("duration_ns").is_none() && event["parent"].is_null()));
    for format in ["text", "csv"] {
        assert!(place.stdout(&["events", "--format", format, "t.bin"]).contains("tensor"));
    }
}

#[test]
fn events_around_a_failure() {
    let place = Place::new();
    let mut trace = small();
    for number in 0..200 {
        trace.alloc(0x2_0000_0000 + (number << 30), MIB);
        if number == 100 {
            trace.refuse(2 * GIB);
        }
    }
    place.trace("t.bin", &trace);
    let text = place.stdout(&["events", "--around", "oom:2", "t.bin"]);
    assert_eq!(text.lines().count(), 51);
    assert!(text.lines().nth(25).unwrap().contains("oom:2"), "{text}");
    let output = place.run(&["events", "--around", "oom:3", "t.bin"]);
    assert_eq!(output.status.code(), Some(2));
    let said = "oom:3: 2 calls in this trace ran out of memory, the last of which is oom:2";
    assert!(stderr(&output).contains(said), "{}", stderr(&output));
    place.trace("healthy.bin", &TraceBuilder::default());
    let output = place.run(&["events", "--around", "oom:1", "healthy.bin"]);
    assert!(stderr(&output).contains("oom:1: no call in this trace ran out of memory"), "{}", stderr(&output));
}

#[test]
fn maps_of_any_moment_and_granularity() {
    let place = Place::new();
    place.trace("t.bin", &small());
    let blocks = |arguments: &[&str]| {
        let all = [&["map", "--format", "json", "t.bin"], arguments].concat();
        place.json(&all).pointer("/devices/0/live_allocations").and_then(Value::as_u64)
    };
    assert_eq!(blocks(&["--at", "peak"]), Some(2));
    assert_eq!(blocks(&["--at", "end"]), Some(1));
    assert_eq!(blocks(&["--at", "oom:1"]), Some(1));
    assert_eq!(blocks(&["--at", "2.5ms"]), Some(1));
    let other = place.run(&["map", "--device", "1", "t.bin"]);
    assert_eq!(other.status.code(), Some(2), "{}", stderr(&other));
    let fine = place.json(&["map", "--format", "json", "--granularity", "2M", "t.bin"]);
    assert_eq!(fine.pointer("/devices/0/padded_bytes"), Some(&(GIB + 300 * MIB).into()));
    insta::assert_snapshot!("map_text", place.stdout(&["map", "t.bin"]));
    let output = place.run(&["map", "--at", "oom:2", "t.bin"]);
    assert_eq!(output.status.code(), Some(2), "{}", stderr(&output));
}

#[test]
fn wrong_usage_is_2_and_what_is_not_there_is_not_offered() {
    let place = Place::new();
    place.trace("t.bin", &small());
    for arguments in [
        &["report"][..],
        &["report", "--format", "html", "t.bin"],
        &["map", "--format", "png", "t.bin"],
        &["map", "--granularity", "0", "t.bin"],
        &["map", "--at", "yesterday", "t.bin"],
        &["events", "--around", "2", "t.bin"],
        &["doctor", "t.bin"],
        &["doctor", "--sysroot", "nowhere"],
        &["whatif", "--capacity", "0", "t.bin"],
        &["record"],
    ] {
        let output = place.run(arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {}", stderr(&output));
        assert!(!output.stderr.is_empty());
    }
}

#[test]
fn the_catalogue_is_listed_and_explained() {
    let place = Place::new();
    let list = place.json(&["explain", "--format", "json"]);
    assert_eq!(list["schema"], "gpuoom.explain/1");
    let chapters = list["chapters"].as_array().unwrap();
    let ids: Vec<&str> = chapters
        .iter()
        .flat_map(|chapter| chapter["entries"].as_array().unwrap())
        .map(|entry| entry["id"].as_str().unwrap())
        .collect();
    assert!(chapters.len() >= 10 && ids.len() >= 80);
    let text = place.stdout(&["explain"]);
    assert!(ids.iter().all(|id| text.contains(id)), "{text}");
    let entry = place.json(&["explain", "map-count-exhaustion", "--format", "json"]);
    assert_eq!((&entry["chapter"], &entry["tier"]), (&"B".into(), &"T1".into()));
    assert_eq!(entry["fixes"][0]["command"], "sysctl -w vm.max_map_count=1048576");
    assert_eq!(entry["file"][1]["where"], "ROCm/rocm-systems");
    assert!(place.stdout(&["explain", "map-count-exhaustion"]).contains("sysctl -w vm.max_map_count=1048576"));
    let page = place.stdout(&["explain", "true-capacity"]);
    assert!(page.contains("SOURCES") && !page.contains("user document"), "{page}");
    let page = place.stdout(&["explain", "four", "pools"]);
    assert!(page.contains("CLAIM") && page.contains("Wrong. ") && page.contains("bar-visible-limit"), "{page}");
    let found = place.json(&["explain", "--format", "json", "HSA_XNACK"]);
    assert_eq!((&found["query"], &found["claims"][0]["verdict"]), (&"HSA_XNACK".into(), &"wrong".into()));
    assert_eq!(found["diagnoses"][0]["id"], "xnack-ineffective");
}

#[test]
fn an_unknown_diagnosis_is_2_with_the_nearest() {
    let output = Place::new().run(&["explain", "zombi-vram\x1b[31m"]);
    assert_eq!(output.status.code(), Some(2));
    let message = stderr(&output);
    assert!(output.stdout.is_empty() && message.contains("nearest are zombie-vram, "), "{message}");
    assert!(!message.contains('\x1b'), "{message:?}");
}

#[test]
fn several_traces_are_reported_even_if_one_is_not_readable() {
    let place = Place::new();
    place.trace("a.bin", &small());
    place.trace("b.bin", &small());
    std::fs::write(place.path("bad.bin"), "something else").unwrap();
    let output = place.run(&["--format", "json", "a.bin", "bad.bin", "b.bin", "missing.bin"]);
    assert_eq!(output.status.code(), Some(3));
    let message = stderr(&output);
    assert!(message.contains("bad.bin: offset 0: not a gpuoom trace") && message.contains("missing.bin"), "{message}");
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    let paths: Vec<&Value> = report["traces"].as_array().unwrap().iter().map(|trace| &trace["trace"]["path"]).collect();
    assert_eq!(paths, ["a.bin", "b.bin"]);
    let missing = |index: usize| report["job"]["unreadable"][index]["path"].clone();
    assert_eq!([missing(0), missing(1)], ["bad.bin", "missing.bin"]);
    for arguments in [&["map", "bad.bin"], &["events", "bad.bin"], &["report", "missing.bin"]] {
        assert_eq!(place.run(arguments).status.code(), Some(3), "{arguments:?}");
    }
}

#[test]
fn the_order_of_the_traces_does_not_matter_and_none_counts_twice() {
    let place = Place::new();
    for (name, pid) in [("a.bin", 20), ("b.bin", 10), ("c.bin", 30)] {
        let mut trace = small();
        (trace.header.pid, trace.process.pid) = (pid, pid);
        trace.header.clock_first.wall_ns += u64::from(pid);
        place.trace(name, &trace);
    }
    for format in ["text", "json"] {
        let said = place.stdout(&["report", "--format", format, "a.bin", "b.bin", "c.bin"]);
        for order in [["c.bin", "b.bin", "a.bin"], ["b.bin", "a.bin", "c.bin"]] {
            assert_eq!(place.stdout(&[&["report", "--format", format][..], &order].concat()), said);
        }
    }
    let output = place.run(&["report", "--format", "json", "b.bin", "./b.bin"]);
    assert!(stderr(&output).contains("b.bin: given twice, used once"), "{}", stderr(&output));
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(report["traces"].as_array().map(Vec::len), Some(1));
}

#[test]
fn a_cut_trace_is_read_up_to_the_cut() {
    let place = Place::new();
    let mut trace = small();
    trace.slots_per_chunk = 40;
    for number in 0..200 {
        trace.alloc(0x2_0000_0000 + (number << 30), MIB);
    }
    let bytes = trace.bytes();
    std::fs::write(place.path("t.bin"), &bytes[..bytes.len() - 200]).unwrap();
    let report: Value = serde_json::from_str(&place.in_part(&["report", "--format", "json", "t.bin"])).unwrap();
    assert!(!report["damages"].as_array().unwrap().is_empty());
    assert!(report["trace"]["events"].as_u64().unwrap() > 100);
    let page = place.in_part(&["t.bin"]).split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(page.contains("The file is damaged in 1 place"), "{page}");
}

/// Every command says what is wrong with its trace in one line, once, with status 3; and waits for nobody.
#[test]
fn what_is_no_trace_is_one_line_for_every_command() {
    let place = Place::new();
    place.trace("t.bin", &small());
    std::fs::write(place.path("policy.toml"), "[[budget]]\npeak = 1\n").unwrap();
    std::fs::create_dir(place.path("directory")).unwrap();
    assert!(Command::new("mkfifo").arg(place.path("pipe")).status().unwrap().success());
    let commands: [&[&str]; 8] = [
        &["report"],
        &["map"],
        &["events"],
        &["whatif"],
        &["diff", "t.bin"],
        &["check", "--policy", "policy.toml"],
        &["bundle", "-o", "bug.tar.gz"],
        &["check", "--policy", "policy.toml", "t.bin", "--baseline"],
    ];
    for (name, says) in [
        ("missing.bin", "missing.bin: there is no such file"),
        ("missing.tar.gz", "missing.tar.gz: there is no such file"),
        ("directory", "directory: this is a directory"),
        ("pipe", "pipe: this is a pipe"),
        ("/dev/zero", "/dev/zero: this is a device"),
    ] {
        for command in commands {
            let output = place.run(&[command, &[name]].concat());
            let message = stderr(&output);
            assert_eq!(output.status.code(), Some(3), "{command:?} {name}: {message}");
            assert!(message.contains(says) && message.lines().count() == 1, "{command:?} {name}: {message}");
            assert!(output.stdout.is_empty(), "{command:?} {name}");
        }
    }
    let output = place.run(&["whatif", "--torch-snapshot", "missing.pickle", "t.bin"]);
    assert_eq!(output.status.code(), Some(3), "{}", stderr(&output));
}

#[test]
fn a_name_does_not_drive_the_terminal() {
    let message = stderr(&Place::new().run(&["no\x1b[31m.bin"]));
    assert!(message.contains("no\u{fffd}[31m.bin: there is no such file"), "{message:?}");
}

#[test]
fn damage_is_said_once_however_often_a_trace_is_read() {
    let place = Place::new();
    let mut trace = small();
    trace.slots_per_chunk = 40;
    for number in 0..200 {
        trace.alloc(0x2_0000_0000 + (number << 30), MIB);
    }
    let bytes = trace.bytes();
    std::fs::write(place.path("t.bin"), &bytes[..bytes.len() - 200]).unwrap();
    let message = stderr(&place.run(&["whatif", "--capacity", "8G", "t.bin"]));
    assert_eq!(message.lines().count(), 1, "{message}");
}

#[test]
fn a_file_appears_whole_or_not_at_all() {
    let place = Place::new();
    place.trace("t.bin", &small());
    place.stdout(&["report", "--full", "-o", "report.txt", "t.bin"]);
    assert!(std::fs::read_to_string(place.path("report.txt")).unwrap().contains("VERDICT"));
    let names: Vec<_> = std::fs::read_dir(place.0.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(names.len(), 2, "{names:?}");
    assert_ne!(place.run(&["report", "-o", "no/such/place.txt", "t.bin"]).status.code(), Some(0));
}

/// A file is moved into its place; a pipe or a device must stay what it is, and a link must keep leading somewhere.
#[test]
fn what_is_no_file_is_not_replaced() {
    let place = Place::new();
    place.trace("a.trace.bin", &small());
    let pipe = place.path("pipe");
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let reader = Command::new("cat").arg(&pipe).stdout(Stdio::piped()).spawn().unwrap();
    place.stdout(&["report", "--full", "-o", "pipe", "a.trace.bin"]);
    assert!(String::from_utf8_lossy(&reader.wait_with_output().unwrap().stdout).contains("VERDICT"));
    assert!(!std::fs::metadata(&pipe).unwrap().is_file());

    std::fs::write(place.path("target.txt"), "before").unwrap();
    std::os::unix::fs::symlink("target.txt", place.path("link.txt")).unwrap();
    place.stdout(&["report", "--full", "-o", "link.txt", "a.trace.bin"]);
    assert!(std::fs::symlink_metadata(place.path("link.txt")).unwrap().is_symlink());
    assert!(std::fs::read_to_string(place.path("target.txt")).unwrap().contains("VERDICT"));
}

#[test]
fn a_reader_that_goes_away_is_no_error() {
    let place = Place::new();
    let mut trace = small();
    for number in 0..20_000 {
        trace.alloc(0x2_0000_0000 + (number << 30), MIB);
    }
    place.trace("t.bin", &trace);
    let mut child = Command::new(env!("CARGO_BIN_EXE_gpuoom-analyze"))
        .args(["events", "t.bin"])
        .current_dir(place.0.path())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut first = [0; 10];
    child.stdout.take().unwrap().read_exact(&mut first).unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!((output.status.code(), stderr(&output).as_str()), (Some(0), ""));
}

/// `record` with a recorder of its own (an empty one: the loader says so and goes on).
fn recording(place: &Place, arguments: &[&str]) -> Command {
    std::fs::write(place.path("libgpuoom.so"), "").unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_gpuoom-analyze"));
    command.arg("record").args(arguments).current_dir(place.0.path());
    command.env_remove("GPUOOM_TRACE").env("GPUOOM_LIBRARY", place.path("libgpuoom.so"));
    command
}

fn record(place: &Place, arguments: &[&str]) -> Output {
    recording(place, arguments).output().unwrap()
}

#[test]
fn record_passes_the_exit_status_on() {
    let place = Place::new();
    for (script, status) in [("exit 0", 0), ("exit 7", 7), ("kill -9 $$", 137), ("kill -TERM $$", 143)] {
        let output = record(&place, &["--", "sh", "-c", script]);
        assert_eq!(output.status.code(), Some(status), "{script}");
        assert!(!stderr(&output).contains("gpuoom: trace"), "{}", stderr(&output));
    }
    assert_eq!(record(&place, &["--", "/no/such/program"]).status.code(), Some(127));
    let preload = record(&place, &["-o", "x.bin", "--", "sh", "-c", "echo $LD_PRELOAD $GPUOOM_TRACE"]);
    let said = String::from_utf8(preload.stdout).unwrap();
    assert!(said.contains("libgpuoom.so /") && said.contains("/x.bin"), "{said}");
    // The command may change its directory before the recorder looks.
    let plain = record(&place, &["--", "sh", "-c", "cd /; echo $GPUOOM_TRACE"]);
    let own = place.0.path().canonicalize().unwrap();
    let said = String::from_utf8_lossy(&plain.stdout).into_owned();
    assert_eq!(said.trim(), format!("{}/gpuoom-%e-%p.trace.bin", own.display()));
    assert!(stderr(&plain).contains("no trace: the command made no GPU memory call"), "{}", stderr(&plain));
}

/// A service manager or a container ends the process that it started; that means the command.
#[test]
fn record_passes_signals_on() {
    let place = Place::new();
    let script = "trap 'echo ended; exit 5' TERM; echo ready; while :; do sleep 0.01; done";
    let mut child =
        recording(&place, &["--", "sh", "-c", script]).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut said = [0; 6];
    child.stdout.as_mut().unwrap().read_exact(&mut said).unwrap();
    assert_eq!(&said, b"ready\n");
    let kill = Command::new("kill").args(["-TERM", &child.id().to_string()]).status().unwrap();
    assert!(kill.success());
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(5), "{}", stderr(&output));
    assert_eq!(String::from_utf8_lossy(&output.stdout), "ended\n");
}

#[test]
fn record_names_the_trace_and_notes_how_the_process_ended() {
    let place = Place::new();
    let mut trace = small();
    // Made while the command ran, as far as the clock in the file goes.
    trace.header.clock_first.wall_ns = u64::MAX / 2;
    place.trace("made.bin", &trace);
    let offset = offset_of!(Header, pid);
    let script = format!(
        "cp made.bin run.bin; p=$$; for i in 0 1 2 3; do printf \"\\\\$(printf %03o $((p % 256)))\" | \
         dd of=run.bin bs=1 seek=$(({offset} + i)) conv=notrunc 2>/dev/null; p=$((p / 256)); done; kill -9 $$"
    );
    let output = record(&place, &["-o", "run.bin", "--", "sh", "-c", &script]);
    assert_eq!(output.status.code(), Some(137));
    let said = stderr(&output);
    assert!(said.contains("gpuoom: trace: ") && said.contains("gpuoom-analyze "), "{said}");
    let header: Header =
        bytemuck::pod_read_unaligned(&std::fs::read(place.path("run.bin")).unwrap()[..size_of::<Header>()]);
    assert_eq!((header.end_kind, header.end_code), (end::SIGNALED, 9), "{said}");
}

#[test]
fn a_trace_is_never_overwritten() {
    let place = Place::new();
    let path = place.trace("t.bin", &small());
    std::fs::write(place.path("policy.toml"), "[[budget]]\npeak = \"1G\"\n").unwrap();
    let whole = std::fs::read(&path).unwrap();
    for arguments in [
        &["report", "t.bin", "-o", "t.bin"][..],
        &["map", "t.bin", "-o", "t.bin"],
        &["bundle", "-o", "t.bin", "t.bin"],
        &["check", "--policy", "policy.toml", "--junit", "t.bin", "t.bin"],
    ] {
        let output = place.run(arguments);
        assert!(
            !output.status.success() && stderr(&output).contains("not overwritten"),
            "{arguments:?}: {}",
            stderr(&output)
        );
        assert_eq!(std::fs::read(&path).unwrap(), whole, "{arguments:?}");
    }
}

#[test]
fn large_counts_are_grouped_alike() {
    let place = Place::new();
    let mut trace = TraceBuilder::default().device(0, "card", 16 * GIB);
    for _ in 0..12_000 {
        trace.alloc(0x1000, MIB);
        trace.free(0x1000);
    }
    place.trace("t.bin", &trace);
    let page = place.stdout(&["--full", "t.bin"]);
    assert!(page.contains("12 000 allocations, 12 000 freed; nothing left"), "{page}");
}

#[test]
fn a_pipe_gets_no_colours() {
    let place = Place::new();
    place.trace("t.bin", &small());
    let text = place.stdout(&["--full", "t.bin"]);
    assert!(!text.contains('\x1b'));
    std::io::sink().write_all(text.as_bytes()).unwrap();
}

/// Three layers inside each other, a handle that finds no memory: the list names the enclosing calls and the failures as the
/// report counts them.
#[test]
fn layers_below_have_their_enclosing_calls() {
    let place = Place::new();
    let mut trace = TraceBuilder::default().device(0, "card", 16 * GIB);
    let handle = trace.record(Event::Module, Kind::None, "hipblasCreate");
    trace.push(Record { status: 2, ..handle }, &[]);
    let kernel = at("AMDKFD_IOC_ALLOC_MEMORY_OF_GPU", 9, 2 * MIB);
    let layers = [at("hipMalloc", 0x1000, MIB), at("hsa_amd_memory_pool_allocate", 0x1000, MIB), kernel];
    trace.alloc_through(0, &layers);
    trace.refuse(17 * GIB);
    place.trace("t.bin", &trace);
    let text = place.stdout(&["events", "--format", "json", "t.bin"]);
    let events: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let parents: Vec<&Value> = events.iter().map(|event| &event["parent"]).collect();
    assert_eq!(parents, [&Value::Null, &events[2]["seq"], &events[3]["seq"], &Value::Null, &Value::Null]);
    let layers: Vec<&Value> = events.iter().map(|event| &event["layer"]).collect();
    assert_eq!(layers, ["runtime", "kernel", "hsa", "runtime", "runtime"]);
    assert_eq!((&events[0]["oom"], &events[4]["oom"]), (&1.into(), &2.into()));
    let report = place.json(&["report", "--format", "json", "t.bin"]);
    assert_eq!((&report["ooms"][0]["requested_bytes"], &report["ooms"][0]["unknown_size"]), (&0.into(), &true.into()));
    assert_eq!(report["ooms"].as_array().map(Vec::len), Some(2));
    assert_eq!(report["coverage"]["lowest_layer"], "kernel");
    let map = place.json(&["map", "--format", "json", "--at", "end", "t.bin"]);
    assert_eq!(map["devices"][0]["requested_bytes"], MIB);
}

#[test]
fn events_say_which_stacks_were_inferred() {
    let place = Place::new();
    let mut trace = small();
    trace.stack_with(stack_flag::NATIVE_GUESSED, 2, &[0x5000_0123, 0x5000_0456], &[]);
    trace.site = 2;
    trace.refuse(18 * GIB);
    place.trace("t.bin", &trace);
    let text = place.stdout(&["events", "--stacks", "--around", "oom:2", "t.bin"]);
    let start = text.find("hipMalloc                  18.00").unwrap();
    insta::assert_snapshot!("events_inferred", &text[text[..start].rfind('\n').unwrap() + 1..]);
    let json = place.stdout(&["events", "--stacks", "--format", "json", "t.bin"]);
    let last: Value = serde_json::from_str(json.lines().last().unwrap()).unwrap();
    assert_eq!((&last["stack_is_cut"], &last["stack_is_inferred"]), (&true.into(), &true.into()));
}

#[test]
fn callers_are_named_and_missing_symbols_are_said() {
    let place = Place::new();
    let mut trace = small().library("/gone/libengine.so.3", 0x5000_0000, 1);
    trace.code(1, "/home/me/train.py", "Model.forward").code(2, "", "");
    let python = [PythonFrame { code: 1, line: 41 }, PythonFrame { code: 2, line: 0 }];
    trace.stack(2, &[0x5000_0123, 0x5000_0456], &python);
    trace.site = 2;
    trace.alloc(0x2_0000_0000, GIB);
    trace.refuse(18 * GIB);
    place.trace("t.bin", &trace);
    let text = place.stdout(&["events", "t.bin"]);
    assert!(text.contains("from libengine.so.3+0x123") && !text.contains("train.py"), "{text}");
    let text = place.stdout(&["events", "--stacks", "--around", "oom:2", "t.bin"]);
    let start = text.find("hipMalloc                  18.00").unwrap();
    insta::assert_snapshot!("events_stacks", &text[text[..start].rfind('\n').unwrap() + 1..]);
    let json = place.stdout(&["events", "--stacks", "--format", "json", "t.bin"]);
    let last: Value = serde_json::from_str(json.lines().last().unwrap()).unwrap();
    assert_eq!((&last["site"], last["stack"].as_array().unwrap().len()), (&2.into(), 4));
    assert_eq!((&last["stack"][2]["function"], &last["stack"][2]["line"]), (&"Model.forward".into(), &41.into()));
    assert_eq!((&last["stack_is_cut"], &last["stack_is_inferred"]), (&false.into(), &false.into()));
    let plain = place.stdout(&["events", "--format", "json", "t.bin"]);
    assert!(plain.contains("\"site\":2") && !plain.contains("\"stack\""), "{plain}");

    for command in ["report", "events"] {
        let output = place.run(&[command, "--symbols", "nowhere", "t.bin"]);
        assert_eq!(output.status.code(), Some(3));
        assert!(stderr(&output).contains("nowhere: no such directory"), "{}", stderr(&output));
        assert!(!output.stdout.is_empty());
    }
}
