//! Stacks with names: from a running program to the functions and lines in its report.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};

use gpuoom_tests::{Client, Finished, Library, MIB, Report, copy_program, plugin, program, zoo_source};
use serde_json::Value;

/// The line of the client's source with this remark.
fn line_of(function: &str) -> u64 {
    let source = fs::read_to_string(zoo_source("who_allocates.c")).expect("the client's source");
    let remark = format!("/* line of {function} */");
    let index = source.lines().position(|line| line.contains(&remark)).expect("a remark in the source");
    index as u64 + 1
}

/// Runs a copy of the client that can be moved away.
fn run(directory: &Path) -> (Finished, PathBuf) {
    let copy = directory.join("who_allocates");
    copy_program(&program("who_allocates.c"), &copy);
    let run = Client::new(&copy).run_both();
    (run, copy)
}

/// Function, line and whether it was inlined, of the frames up to `main`.
fn frames(stack: &Value) -> Vec<(String, Option<u64>, bool)> {
    let frames = stack.as_array().expect("a stack").iter().map(|frame| {
        let function = frame["function"].as_str().unwrap_or("?").to_owned();
        (function, frame["line"].as_u64(), frame["inlined"] == true)
    });
    let mut frames: Vec<_> = frames.collect();
    let main = frames.iter().position(|(function, ..)| function == "main").expect("main is on the stack");
    frames.truncate(main + 1);
    frames
}

fn at<'a>(report: &'a Report, pointer: &str) -> &'a Value {
    report.value(pointer)
}

fn assert_named(report: &Report) {
    let stack = frames(at(report, "/ooms/0/stack"));
    let expected = [("take_block", true), ("load_weights", false)];
    for ((function, line, inlined), (name, is_inlined)) in stack.iter().zip(expected) {
        assert_eq!((function.as_str(), *line, *inlined), (name, Some(line_of(name)), is_inlined));
    }
    assert_eq!(stack.len(), 3, "{stack:?}");
    let rows = at(report, "/ledger/0/allocated_by/rows").as_array().expect("callers").clone();
    let row = |index: usize| {
        let row = &rows[index];
        (row["key"].as_str().unwrap_or_default().to_owned(), row["bytes"].as_u64(), row["blocks"].as_u64())
    };
    let chain = |function: &str| format!("who_allocates!{function} < who_allocates!run_model < who_allocates!main");
    assert_eq!(row(0), (chain("load_weights"), Some(768 * MIB), Some(3)));
    assert_eq!(row(1), (chain("grow_cache"), Some(100 * MIB), Some(1)));
    let way = frames(&rows[0]["stack"]);
    let names: Vec<_> = way.iter().map(|(function, ..)| function.as_str()).collect();
    assert_eq!(names, ["take_block", "load_weights", "run_model", "main"]);
    assert_eq!(way[2].1, Some(line_of("run_model")));
}

#[test]
fn a_report_names_functions_and_lines() {
    let directory = tempfile::tempdir().expect("a directory");
    let (run, _) = run(directory.path());
    let trace = run.only_trace();
    assert_named(&trace.report());
    let text = trace.report_text();
    let source = format!("who_allocates  who_allocates.c:{}", line_of("take_block"));
    assert!(text.lines().any(|line| line.contains("asked by  take_block ") && line.contains(&source)), "{text}");
    assert!(text.contains("WHO ALLOCATED GPU 0"), "{text}");

    let events = String::from_utf8(trace.analyze_anyway(&["events", "--stacks"]).stdout).expect("UTF-8");
    assert!(events.contains("from load_weights (who_allocates)"), "{events}");
    let frame = format!("who_allocates.c:{}", line_of("run_model"));
    assert!(events.lines().any(|line| line.trim_start().starts_with("run_model") && line.contains(&frame)), "{events}");
}

/// As with a C library before 2.35, which has no function for the object around an address.
#[test]
fn stacks_are_the_same_with_an_older_c_library() {
    let stack = |client: Client| {
        let run = client.run_both();
        let report = run.only_trace().report();
        assert_eq!(at(&report, "/ooms/0/stack_is_cut"), false);
        let stack = at(&report, "/ooms/0/stack").as_array().expect("a stack").clone();
        stack.iter().map(|frame| (frame["function"].clone(), frame["offset"].clone())).collect::<Vec<_>>()
    };
    let client = || Client::new(program("who_allocates.c"));
    let found = stack(client().preload(plugin("no_find_object.c", Library::None)));
    assert!(found.len() > 3, "{found:?}");
    assert_eq!(found, stack(client()));
}

#[test]
fn a_program_that_was_moved_is_found_where_the_user_says() {
    let directory = tempfile::tempdir().expect("a directory");
    let (run, copy) = run(directory.path());
    let trace = run.only_trace();
    let symbols = directory.path().join("symbols");
    fs::create_dir(&symbols).expect("a directory");
    fs::rename(&copy, symbols.join("who_allocates")).expect("the client moves");

    let text = trace.report_text();
    assert!(text.contains("NAMES MISSING") && text.contains("its file was not found"), "{text}");
    assert_named(&trace.report_with(&[OsStr::new("--symbols"), symbols.as_os_str()]));

    // Another program at the old place is not believed.
    copy_program(&program("linked.c"), &copy);
    let text = trace.report_text();
    assert!(text.contains("is another build"), "{text}");
    assert!(!text.contains("load_weights"), "{text}");
}

/// Functions that were inlined into one have one key, and are different places all the same.
#[test]
fn what_inlined_functions_took_is_not_given_to_one_of_them() {
    let run = Client::new(program("who_inlined.c")).run_both();
    let report = run.only_trace().report();
    let rows = at(&report, "/ledger/0/allocated_by/rows").as_array().expect("callers").clone();
    let row = |row: &Value| {
        let text = |name: &str| row[name].as_str().unwrap_or_default().to_owned();
        (text("label"), row["bytes"].as_u64().unwrap_or(0) / MIB, row["frame"]["line"].is_u64(), text("key"))
    };
    let named = |function: &str, mib, has_line| {
        (format!("{function} (who_inlined)"), mib, has_line, "who_inlined!main".to_owned())
    };
    // A function that asks in two lines has none of them.
    let expected = [named("load_weights", 300, true), named("make_cache", 100, true), named("two_buffers", 50, false)];
    assert_eq!(rows.iter().map(row).collect::<Vec<_>>(), expected);
}
