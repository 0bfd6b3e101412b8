//! Plugins that come to the place of others: each stack has the names of the library that was there.

use gpuoom_tests::{Client, Finished, Library, MIB, Report, Trace, plugin, program};
use serde_json::Value;

/// Allocations and frees of `replaced.c`: its plugins allocate in turns, and free every second block.
const ROUNDS: [(u64, &str); 5] = [
    (1, "first_plugin_allocates"),
    (2, "other_plugin_allocates"),
    (4, "first_plugin_allocates"),
    (8, "other_plugin_allocates"),
    (16, "first_plugin_allocates"),
];

fn run(settings: &[(&str, &str)]) -> Finished {
    run_by(|client| settings.iter().fold(client, |client, (name, value)| client.env(name, *value)))
}

/// Tries in which the plugins may lie elsewhere: a thread that begins just then may take the place of the one that left.
const TRIES: usize = 20;

fn run_by(settings: impl Fn(Client) -> Client) -> Finished {
    let mut places = Vec::new();
    for _ in 0..TRIES {
        let plugins = ["replaced.c", "replaced_other.c"].map(|source| plugin(source, Library::Hip));
        let client = settings(Client::new(program("replaced.c")));
        let run = plugins.into_iter().fold(client, Client::arg).run_recorded();
        assert_eq!(run.exit_code(), 0, "{}", run.stderr);
        places = run.stdout.lines().filter_map(|line| line.split(' ').next().map(str::to_owned)).collect();
        if places.len() == 6 && places.iter().all(|place| *place == places[0]) {
            return run;
        }
    }
    panic!("other places: {places:?}")
}

/// Each row of `events` as JSON, with stacks.
fn events(trace: &Trace) -> Vec<Value> {
    let output = trace.analyze_anyway(&["events", "--stacks", "--format", "json"]);
    let text = String::from_utf8(output.stdout).expect("UTF-8");
    text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect()
}

fn callers(report: &Report) -> Vec<(String, u64)> {
    let rows = report.value("/ledger/0/allocated_by/rows").as_array().expect("callers").clone();
    let key = |row: &Value| row["key"].as_str().unwrap_or_default().split(" < ").next().unwrap_or_default().to_owned();
    rows.iter().map(|row| (key(row), row["bytes"].as_u64().unwrap_or(0) / MIB)).collect()
}

#[test]
fn each_plugin_has_its_own_names() {
    for settings in [&[][..], &[("GPUOOM_STACKS", "native")], &[("GPUOOM_STACKS", "off")]] {
        let run = run(settings);
        let trace = run.only_trace();
        let rows = events(&trace);
        let of = |api: &str| rows.iter().filter(|row| row["api"] == api).collect::<Vec<_>>();
        let (allocated, freed) = (of("hipMalloc"), of("hipFree"));
        assert_eq!((allocated.len(), freed.len()), (11, 5));
        for ((mebibytes, function), calls) in ROUNDS.iter().zip(allocated.chunks(2)) {
            for call in calls {
                assert_eq!(call["requested_bytes"], mebibytes * MIB);
                let caller = call["caller"].as_str().unwrap_or_default();
                assert!(caller.starts_with(function), "{settings:?} {mebibytes} MiB: {caller}");
                let stack = call["stack"].as_array().expect("a stack");
                assert!(stack.iter().any(|frame| frame["function"] == *function), "{stack:?}");
            }
        }
        for ((_, function), call) in ROUNDS.iter().zip(&freed) {
            let caller = call["caller"].as_str().unwrap_or_default();
            assert!(caller.starts_with(function), "{settings:?}: freed by {caller}, not {function}");
        }
    }
}

/// A C library before 2.35 does not tell of a new plugin at once: it may have no name then, but never a wrong one.
#[test]
fn with_an_older_c_library_no_plugin_has_the_name_of_another() {
    let client = |client: Client| client.preload(plugin("no_find_object.c", Library::None));
    let run = run_by(client);
    let trace = run.only_trace();
    let allocated = events(&trace).into_iter().filter(|row| row["api"] == "hipMalloc").collect::<Vec<_>>();
    assert_eq!(allocated.len(), 11);
    let mut named = 0;
    for ((mebibytes, function), calls) in ROUNDS.iter().zip(allocated.chunks(2)) {
        for call in calls {
            let caller = call["caller"].as_str().unwrap_or_default();
            named += usize::from(caller.starts_with(function));
            assert!(!caller.contains("plugin_allocates") || caller.starts_with(function), "{mebibytes} MiB: {caller}");
        }
    }
    assert!(named >= 2, "the first plugin has its names");
}

#[test]
fn callers_and_failures_are_those_of_the_plugin_that_was_there() {
    let run = run(&[]);
    let trace = run.only_trace();
    let report = trace.report();
    let expected = [("replaced.so!first_plugin_allocates", 21), ("replaced_other.so!other_plugin_allocates", 10)];
    assert_eq!(callers(&report), expected.map(|(key, mebibytes)| (key.to_owned(), mebibytes)));
    assert_eq!(report.value("/ooms/0/stack/0/function"), "other_plugin_allocates");
    let text = trace.report_text();
    assert!(text.lines().any(|line| line.contains("asked by  other_plugin_allocates  replaced_other.so")), "{text}");
    assert!(text.contains("replaced.so") && !text.contains("NAMES MISSING"), "{text}");
}

#[test]
fn a_plugin_that_comes_back_has_no_new_sites() {
    let run = run(&[]);
    let rows = events(&run.only_trace());
    let sites = |mebibytes: u64| {
        let calls = rows.iter().filter(|row| row["api"] == "hipMalloc" && row["requested_bytes"] == mebibytes * MIB);
        calls.map(|call| call["site"].as_u64().expect("a site")).collect::<Vec<_>>()
    };
    // The first time its place was nobody's else.
    assert_ne!(sites(1), sites(2));
    assert_eq!((sites(4), sites(2)), (sites(16), sites(8)));
}
