//! What scripts rely on: every promised field of the JSON is there, with its type and its words, for every recorded trace.

use std::path::{Path, PathBuf};
use std::process::Command;

use gpuoom_analyze::testing::{GIB, MIB, TraceBuilder};
use gpuoom_trace::record::{Event, Kind};
use serde_json::Value;

/// What a field holds: one of the types (`string`, `integer`, `number`, `bool`, `list`, `object`; a `?` behind it: or null),
/// or one of the words that it may be, with bars between.
type Promise = (&'static str, &'static str);

/// Fields of `report --format json`. `[]` stands for each element.
const REPORT: [Promise; 93] = [
    ("schema", "gpuoom.report/1|"),
    ("verdict.sentence", "string"),
    ("verdict.cause", "string?"),
    ("verdict.confidence", "proven|probable|?"),
    ("trace.path", "string"),
    ("trace.format_version", "string"),
    ("trace.clean_close", "bool"),
    ("trace.events", "integer"),
    ("trace.events_lost", "integer"),
    ("trace.torn_events", "integer"),
    ("trace.duration_ns", "integer"),
    ("trace.started_at", "string"),
    ("process.pid", "integer"),
    ("process.executable", "string"),
    ("process.command_line", "list"),
    ("process.hostname", "string"),
    ("process.end", "exited|signaled|unknown"),
    ("process.exit_code", "integer?"),
    ("process.signal", "integer?"),
    ("devices", "list"),
    ("devices[].index", "integer"),
    ("devices[].name", "string"),
    ("devices[].total_bytes", "integer?"),
    ("devices[].granularity_bytes", "integer"),
    ("devices[].granularity_observed_bytes", "integer?"),
    ("devices[].allocations", "integer"),
    ("devices[].frees", "integer"),
    ("devices[].failures", "integer"),
    ("devices[].peak.at_ns", "integer"),
    ("devices[].peak.requested_bytes", "integer"),
    ("devices[].peak.padded_bytes", "integer"),
    ("devices[].end.live_allocations", "integer"),
    ("devices[].end.requested_bytes", "integer"),
    ("devices[].end.padded_bytes", "integer"),
    ("devices[].fragmentation.effective_loss", "number?"),
    ("devices[].fragmentation.stranded_bytes", "integer?"),
    ("devices[].fragmentation.largest_free_block_bytes", "integer?"),
    ("devices[].fragmentation.external", "number?"),
    ("devices[].tensors", "object?"),
    ("host.allocations", "integer"),
    ("host.frees", "integer"),
    ("host.failures", "integer"),
    ("host.peak.at_ns", "integer"),
    ("host.peak.requested_bytes", "integer"),
    ("host.peak.padded_bytes", "integer"),
    ("host.end.live_allocations", "integer"),
    ("host.end.requested_bytes", "integer"),
    ("host.end.padded_bytes", "integer"),
    ("ooms", "list"),
    ("ooms[].at_ns", "integer"),
    ("ooms[].thread", "integer"),
    ("ooms[].api", "string"),
    ("ooms[].layer", "runtime|driver|hsa|kernel|framework"),
    ("ooms[].attempts", "list"),
    ("ooms[].message", "string?"),
    ("ooms[].phase", "string?"),
    ("ooms[].device", "integer?"),
    ("ooms[].requested_bytes", "integer"),
    ("ooms[].padded_bytes", "integer"),
    ("ooms[].status.code", "integer"),
    ("ooms[].status.name", "string?"),
    ("ooms[].outcome", "recovered|propagated|dropped|unresolved"),
    (
        "ooms[].because",
        "retry_succeeded|fell_back|error_read|exception|error_reported|status_checked|process_exited|gpu_work_continued|failed_pointer_used|\
         trace_ended",
    ),
    ("ooms[].evidence", "list"),
    ("ooms[].evidence[].at_ns", "integer"),
    ("ooms[].evidence[].event", "string"),
    ("ooms[].refused_by", "runtime|driver|hsa|kernel|injected|?"),
    ("ooms[].free_reported_bytes", "integer?"),
    ("ooms[].largest_allocatable_bytes", "integer?"),
    ("ooms[].cause", "string?"),
    ("ooms[].stack", "list"),
    ("ledger", "list"),
    ("ledger[].device", "integer"),
    ("ledger[].rows[].layer", "string?"),
    ("ledger[].rows[].owner", "string"),
    ("ledger[].rows[].kind", "string"),
    ("ledger[].rows[].bytes", "integer"),
    ("ledger[].unattributed_bytes", "integer?"),
    ("diagnoses", "list"),
    ("diagnoses[].id", "string"),
    ("diagnoses[].title", "string"),
    ("diagnoses[].confidence", "proven|probable|possible"),
    ("diagnoses[].evidence", "list"),
    ("diagnoses[].refuters_checked", "list"),
    ("diagnoses[].missing", "list"),
    ("diagnoses[].fix", "list"),
    ("diagnoses[].fix[].rung", "integer?"),
    ("diagnoses[].fix[].command", "string"),
    ("diagnoses[].fix[].why", "string"),
    ("diagnoses[].fix[].cost", "string"),
    ("diagnoses[].modelled", "bool"),
    ("diagnoses[].sources", "list"),
    ("damages", "list"),
];

/// Fields of each event; those that do not apply are left out, but for the first ones.
const ALWAYS: usize = 5;
const EVENT: [Promise; 14] = [
    ("seq", "integer"),
    ("at_ns", "integer"),
    ("thread", "integer"),
    (
        "event",
        "alloc|free|map|unmap|reserve|pin|unpin|import|error_query|exception|gpu_work|sync|reading|module|mark|process|message",
    ),
    ("parent", "integer?"),
    ("duration_ns", "integer"),
    ("api", "string"),
    ("layer", "runtime|driver|hsa|kernel|framework"),
    ("device", "integer"),
    ("kind", "device|host-pinned|registered|managed|array|physical|reserved|pool|imported|code|queue|scratch|tensor"),
    ("address", "string"),
    ("requested_bytes", "integer"),
    ("padded_bytes", "integer"),
    ("status", "object"),
];

/// Fields of `devices[].tensors`, which is null where no allocator above the runtime was seen.
const TENSORS: [Promise; 15] = [
    ("framework", "string"),
    ("moments", "list"),
    ("moments[].at", "string"),
    ("moments[].at_ns", "integer"),
    ("moments[].allocated_bytes", "integer"),
    ("moments[].reserved_bytes", "integer?"),
    ("moments[].unused_bytes", "integer?"),
    ("moments[].largest_unused_bytes", "integer?"),
    ("moments[].unused_pieces", "integer?"),
    ("moments[].allocated_by.rows", "list"),
    ("moments[].allocated_by.rows[].label", "string"),
    ("moments[].allocated_by.rows[].bytes", "integer"),
    ("moments[].allocated_by.rows[].blocks", "integer"),
    ("moments[].allocated_by.rows[].key", "string?"),
    ("moments[].allocated_by.rows[].stack", "list"),
];

fn traces() -> Vec<PathBuf> {
    let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fixtures");
    let folders = std::fs::read_dir(fixtures).unwrap().map(|entry| entry.unwrap().path());
    let mut traces: Vec<PathBuf> = folders
        .filter(|path| path.is_dir())
        .flat_map(|folder| std::fs::read_dir(folder).unwrap())
        .map(|entry| entry.unwrap().path())
        .collect();
    traces.sort();
    traces
}

fn analyze(arguments: &[&str], traces: &[PathBuf]) -> String {
    let mut command = Command::new(env!("CARGO_BIN_EXE_gpuoom-analyze"));
    let output = command.args(arguments).args(traces).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// Whether a value keeps a promise.
fn keeps(value: &Value, promised: &str) -> bool {
    let (promised, or_null) = match promised.strip_suffix('?') {
        Some(promised) => (promised, true),
        None => (promised, false),
    };
    match promised {
        _ if value.is_null() => or_null,
        "string" => value.is_string(),
        "integer" => value.is_i64() || value.is_u64(),
        "number" => value.is_number(),
        "bool" => value.is_boolean(),
        "list" => value.is_array(),
        "object" => value.is_object(),
        words => value.as_str().is_some_and(|word| words.split('|').any(|known| known == word)),
    }
}

/// Follows a path and checks what is there.
fn check(value: &Value, path: &str, promised: &str, whose: &str) {
    let (first, rest) = path.split_once('.').map_or((path, None), |(first, rest)| (first, Some(rest)));
    let (name, is_list) = first.strip_suffix("[]").map_or((first, false), |name| (name, true));
    let Some(found) = value.get(name) else { panic!("{whose}: {path} is missing in {value}") };
    match (is_list, rest) {
        (true, Some(rest)) => {
            found.as_array().unwrap().iter().for_each(|element| check(element, rest, promised, whose));
        }
        (false, Some(rest)) => check(found, rest, promised, whose),
        _ => assert!(keeps(found, promised), "{whose}: {path} is {found}, and {promised} was promised"),
    }
}

#[test]
fn every_report_has_the_promised_fields() {
    for trace in traces() {
        let whose = trace.display().to_string();
        let text = analyze(&["report", "--no-local-symbols", "--format", "json"], std::slice::from_ref(&trace));
        let report: Value = serde_json::from_str(&text).unwrap();
        for (path, promised) in REPORT {
            check(&report, path, promised, &whose);
        }
    }
}

/// Of PyTorch's allocator with totals, of one whose totals do not agree, and of a pool.
#[test]
fn tensors_have_the_promised_fields() {
    let mut agreeing = TraceBuilder::new(MIB).device(0, "card", 16 * GIB);
    agreeing.segment(0x7f00_0000_0000, 20 * MIB);
    agreeing.tensor(0, 0x7f00_0000_0000, 4 * MIB);
    agreeing.refuse(99 * GIB);
    let mark = agreeing.record(Event::Mark, Kind::None, "gpuoom_mark");
    agreeing.with_text(mark, "step 1");
    let mut differing = agreeing.clone();
    differing.hostile_tensor(false, 0, 0x7f00_0040_0000, MIB, Some([GIB, GIB]));
    let mut pool = TraceBuilder::new(MIB).device(0, "card", 16 * GIB);
    pool.alloc(0x7f00_0000_0000, 20 * MIB);
    pool.pool_alloc("arena", "kv cache", 0x7f00_0000_0000, MIB);
    let folder = tempfile::tempdir().unwrap();
    for (name, trace, framework, moments) in [
        ("agreeing", &agreeing, "pytorch", &["oom:1", "peak", "end", "mark:step 1"][..]),
        ("differing", &differing, "pytorch", &["oom:1", "peak", "end", "mark:step 1"]),
        ("pool", &pool, "arena", &["peak", "end"]),
    ] {
        let path = folder.path().join(name);
        trace.write(&path).unwrap();
        let text = analyze(&["report", "--no-local-symbols", "--format", "json"], &[path]);
        let report: Value = serde_json::from_str(&text).unwrap();
        let tensors = &report["devices"][0]["tensors"];
        TENSORS.iter().for_each(|(path, promised)| check(tensors, path, promised, name));
        assert_eq!(tensors["framework"], framework, "{name}");
        let found: Vec<&str> =
            tensors["moments"].as_array().unwrap().iter().filter_map(|one| one["at"].as_str()).collect();
        assert_eq!(found, moments, "{name}");
    }
}

#[test]
fn several_traces_are_an_object_with_a_report_each() {
    let traces = traces();
    let text = analyze(&["report", "--no-local-symbols", "--format", "json"], &traces);
    let all: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(all["schema"], "gpuoom.report/1");
    let reports = all["traces"].as_array().unwrap();
    assert_eq!(reports.len(), traces.len());
    for report in reports {
        for (path, promised) in REPORT.iter().filter(|(path, _)| *path != "schema") {
            check(report, path, promised, "a trace among others");
        }
    }
}

#[test]
fn every_event_has_the_promised_fields() {
    for trace in traces() {
        let whose = trace.display().to_string();
        let text = analyze(&["events", "--no-local-symbols", "--format", "json"], std::slice::from_ref(&trace));
        for line in text.lines() {
            let event: Value = serde_json::from_str(line).unwrap();
            for (index, (path, promised)) in EVENT.iter().enumerate() {
                if index < ALWAYS || event.get(path).is_some() {
                    check(&event, path, promised, &whose);
                }
            }
            if let Some(address) = event.get("address").and_then(Value::as_str) {
                let digits = address.strip_prefix("0x").unwrap_or_default();
                assert!(u64::from_str_radix(digits, 16).is_ok(), "{whose}: {address}");
            }
            if let Some(status) = event.get("status") {
                assert!(status["code"].is_i64(), "{whose}: {status}");
            }
        }
    }
}
