//! Two runs of real programs set beside each other: what is a change, and what is none.

use std::path::Path;
use std::process::Command;

use gpuoom_tests::{Client, MIB, Report, Trace, analyzer, program, program_build};

/// The call sites that are not the same in both runs: key and change of the peak in bytes.
fn changed(difference: &Report) -> Vec<(String, i64)> {
    let sites = (0..difference.count("/sites")).map(|site| format!("/sites/{site}"));
    let notable = sites.filter(|site| difference.flag(&format!("{site}/is_notable")));
    let change = |site: &str| {
        let of = |run: &str| difference.number(&format!("{site}/{run}/peak_bytes")) as i64;
        of("new") - of("base")
    };
    notable.map(|site| (difference.text(&format!("{site}/key")).to_owned(), change(&site))).collect()
}

fn record(client: &Path, stacks: &str) -> gpuoom_tests::Finished {
    Client::new(client).env("GPUOOM_STACKS", stacks).run_both()
}

#[test]
fn what_doubles_is_a_change_and_what_moves_is_none() {
    let (first, second) = (program("builds.c"), program_build("builds.c", "SECOND"));
    let (base, new) = (record(&first, "native"), record(&second, "native"));
    let difference = new.only_trace().diff(&base.only_trace());
    assert_eq!(difference.text("/matched_by"), "call stack");
    let changed = changed(&difference);
    let [(key, change)] = &changed[..] else { panic!("one call site changed: {changed:?}") };
    assert!(key.starts_with("hipMalloc < ") && key.contains("!make_cache < "), "{key}");
    assert_eq!(*change, 64 * MIB as i64);
    assert_eq!(difference.count("/sites"), 2, "{}", difference.excerpt("/sites"));
}

#[test]
fn without_stacks_the_function_that_called_is_known() {
    let (first, second) = (program("builds.c"), program_build("builds.c", "SECOND"));
    let (base, new) = (record(&first, "off"), record(&second, "native"));
    let difference = new.only_trace().diff(&base.only_trace());
    assert_eq!(difference.text("/matched_by"), "caller");
    let changed = changed(&difference);
    let [(key, _)] = &changed[..] else { panic!("one call site changed: {changed:?}") };
    assert!(key.ends_with("!make_cache"), "{key}");
    assert!(difference.excerpt("/notes").contains("BASE (format"), "{}", difference.excerpt("/notes"));
}

#[test]
fn two_runs_of_one_program_do_not_differ() {
    for source in ["builds.c", "alloc_list.c", "eight_threads.c"] {
        let arguments: &[&str] = if source == "alloc_list.c" { &["3x1000000", "2x5000"] } else { &[] };
        let run = || {
            let client = Client::new(program(source));
            arguments.iter().fold(client, |client, argument| client.arg(argument)).run_recorded()
        };
        let (base, new) = (run(), run());
        let difference = new.only_trace().diff(&base.only_trace());
        if source == "eight_threads.c" {
            // Threads race for the peak; what they ask for is the same all the same.
            assert_eq!(difference.number("/places/0/base/allocations"), difference.number("/places/0/new/allocations"));
            continue;
        }
        assert!(difference.flag("/is_equal"), "{source}: {}", difference.excerpt("/sites"));
    }
}

#[test]
fn each_process_has_its_own_difference_and_its_own_budget() {
    let client = || Client::new(program("fork_child.c")).run_recorded();
    let (base, new) = (client(), client());
    let by_peak = |run: &gpuoom_tests::Finished| {
        let mut traces: Vec<Trace> = run.traces();
        traces.sort_by_cached_key(|trace| trace.report().number("/devices/0/peak/requested_bytes"));
        traces
    };
    let (base_traces, new_traces) = (by_peak(&base), by_peak(&new));
    assert_eq!(new_traces.len(), 2);
    for (base, new) in base_traces.iter().zip(&new_traces) {
        let difference = new.diff(base);
        assert!(difference.flag("/is_equal"), "{}", difference.excerpt("/sites"));
    }
    // Parent and child do not have the same.
    assert!(!new_traces[0].diff(&base_traces[1]).flag("/is_equal"));

    let policy = new.cwd().join("policy.toml");
    let check = |text: &str| {
        std::fs::write(&policy, text).expect("the policy");
        let mut command = Command::new(analyzer());
        command.args(["check", "--policy"]).arg(&policy).args(new_traces.iter().map(|trace| &trace.path));
        let output = command.output().expect("the analyzer starts");
        (output.status.code(), String::from_utf8_lossy(&output.stdout).into_owned())
    };
    let (status, text) = check("[[budget]]\npeak = \"300M\"\ndropped = 0\n");
    assert_eq!(status, Some(0), "{text}");
    // The child holds 18 MiB, the parent 300 MiB.
    let (status, text) = check("[[budget]]\npeak = \"20M\"\n");
    assert_eq!((status, text.matches("EXCEEDED").count()), (Some(1), 1), "{text}");
    assert!(text.contains("main"), "who asked is named: {text}");
}
