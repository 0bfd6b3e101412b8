//! What programs say: exceptions and last words after a failure, ranges and marks at any time.

use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;

use gpuoom_tests::{
    Client, Finished, Library, Told, plain_program, plugin, program, program_at_fixed_place, program_with, recorder,
};
use gpuoom_trace::payload::MAX_TEXT_BYTES;
use gpuoom_trace::record::{Event, mark, message};

fn marks(run: &Finished) -> Vec<Told> {
    run.only_trace().told(&[Event::Mark])
}

/// Function, sort and text of each.
fn told(marks: &[Told]) -> Vec<(&str, i32, &str)> {
    marks.iter().map(|mark| (mark.api.as_str(), mark.status, mark.text.as_str())).collect()
}

/// The mangled name of each thrown type with what its object says.
fn thrown(run: &Finished) -> Vec<(String, String)> {
    let records = run.only_trace().told(&[Event::Exception, Event::Message]);
    let mut found: Vec<(Told, String)> = Vec::new();
    for record in records {
        match found.last_mut() {
            Some((exception, text)) if record.status == message::EXCEPTION => {
                assert_eq!((record.address, record.thread), (exception.address, exception.thread));
                assert_eq!(text, "", "one message for each exception");
                *text = record.text;
            }
            _ => found.push((record, String::new())),
        }
    }
    found.into_iter().map(|(exception, text)| (exception.text, text)).collect()
}

#[test]
fn exceptions_say_what_they_can_without_code_of_the_program() {
    let [usual, fixed] = [program("exceptions.cpp"), program_at_fixed_place("exceptions.cpp")];
    [usual, fixed].into_iter().for_each(assert_exceptions);
}

fn assert_exceptions(program: PathBuf) {
    let run = Client::new(program).env("GPUOOM_PROBE", "off").run_both();
    assert!(run.stdout.ends_with("\n0 calls of the program's functions\n"), "{}", run.stdout);
    let long = "x".repeat(MAX_TEXT_BYTES);
    let expected = [
        ("St13runtime_error", "of the library"),
        ("7Derived", "derived from it"),
        ("6Second", "a second base"),
        ("3Far", "a virtual base"),
        ("7Farther", "a virtual base of a base"),
        ("6Hidden", "a private base"),
        ("St9bad_alloc", "std::bad_alloc"),
        ("St12system_error", "of the system: Cannot allocate memory"),
        ("St13runtime_error", &long),
        ("3Own", ""),
        ("12OwnOfDerived", ""),
        ("5Plain", ""),
        ("i", ""),
        ("PKc", ""),
        ("P7Derived", ""),
        ("Dn", ""),
        ("N3c105ErrorE", "a short one"),
        ("N3c1016OutOfMemoryErrorE", "CUDA out of memory. Tried to allocate 4096.00 GiB."),
    ];
    assert_eq!(thrown(&run), expected.map(|(name, text)| (name.to_owned(), text.to_owned())));
}

#[test]
fn messages_do_not_depend_on_the_setting_for_frameworks() {
    let run = Client::new(program("throw_caught.cpp")).env("GPUOOM_FRAMEWORK", "off").run_both();
    assert_eq!(thrown(&run), [("St9bad_alloc".to_owned(), "std::bad_alloc".to_owned())]);
}

#[test]
fn last_words_of_ggml_are_kept() {
    let run = Client::new(plain_program("ggml_abort.c")).arg(plugin("ggml_abort.c", Library::Hip)).run_both();
    assert_eq!(run.status.signal(), Some(libc::SIGABRT));
    let messages = run.only_trace().told(&[Event::Message]);
    let text = "ggml-cuda.cu:98: GGML_ASSERT(block != NULL) failed: -3 of 4398046511104, then 0.5";
    assert_eq!(told(&messages), [("ggml_abort", message::ABORT, text)]);
}

const ROCTX: [(&str, i32, &str); 13] = [
    ("roctxMarkA", mark::LABEL, "before all"),
    ("roctxRangePushA", mark::PUSH, "set up"),
    ("roctxRangeStartA", mark::START, "load"),
    ("roctxRangePushA", mark::PUSH, "step"),
    ("roctxRangePushA", mark::PUSH, "other thread"),
    ("roctxRangeStop", mark::STOP, ""),
    ("roctxRangePop", mark::POP, ""),
    ("roctxRangePushA", mark::PUSH, ""),
    ("roctxRangePop", mark::POP, ""),
    ("roctxMarkA", mark::LABEL, "inside"),
    ("roctxRangePop", mark::POP, ""),
    ("roctxRangePop", mark::POP, ""),
    ("roctxRangePop", mark::POP, ""),
];

fn assert_roctx(run: &Finished) {
    let marks = marks(run);
    assert_eq!(told(&marks), ROCTX);
    assert_eq!((marks[2].address, marks[5].address), (2, 2), "the number of the range");
    let threads: Vec<_> = marks.iter().map(|mark| mark.thread).collect();
    assert!(threads[4] == threads[6] && threads.iter().filter(|thread| **thread == threads[4]).count() == 3);
    assert_eq!(threads[1], threads[12], "a mark from before the trace has its thread");
}

#[test]
fn ranges_of_roctx_reach_their_library_and_the_trace() {
    assert_roctx(&Client::new(program_with("roctx.c", Library::Roctx)).run_both());
}

#[test]
fn ranges_of_a_roctx_in_local_scope_do_too() {
    let client = Client::new(plain_program("local_plugin.c")).arg(plugin("roctx.c", Library::Roctx));
    assert_roctx(&client.env("GPUOOM_FRAMEWORK", "off").run_both());
}

#[test]
fn a_roctx_that_is_not_there_hurts_nobody() {
    let run = Client::new(program("roctx_absent.c")).run_both();
    assert_eq!((marks(&run).len(), run.stderr.as_str()), (2000, ""));
}

const NVTX: [(&str, i32, &str); 12] = [
    ("nvtxMarkA", mark::LABEL, "before all"),
    ("nvtxRangePushA", mark::PUSH, "set up"),
    ("nvtxRangeStartA", mark::START, "load"),
    ("nvtxRangePushW", mark::PUSH, "schön"),
    ("nvtxRangePop", mark::POP, ""),
    ("nvtxRangePushEx", mark::PUSH, "with attributes"),
    ("nvtxRangePop", mark::POP, ""),
    ("nvtxDomainRangePushEx", mark::PUSH, "registered"),
    ("nvtxDomainMarkEx", mark::LABEL, "registered"),
    ("nvtxDomainRangePop", mark::POP, ""),
    ("nvtxRangeEnd", mark::STOP, ""),
    ("nvtxRangePop", mark::POP, ""),
];

#[test]
fn ranges_of_nvtx_are_recorded_and_the_environment_is_the_programs() {
    let run = Client::new(program("nvtx.c")).without_env("NVTX_INJECTION64_PATH").run_both();
    assert!(!run.stdout.contains("variable"), "{}", run.stdout);
    let marks = marks(&run);
    assert_eq!(told(&marks), NVTX);
    assert_eq!(marks[2].address, marks[10].address);
    assert_ne!(marks[2].address, 0);
}

#[test]
fn another_tool_of_nvtx_is_left_alone() {
    let client = Client::new(program("nvtx.c")).env("NVTX_INJECTION64_PATH", plugin("nvtx.c", Library::None));
    let run = client.run_both();
    assert!(run.stdout.contains("tool: set up\n") && run.stdout.contains("a variable\n"), "{}", run.stdout);
    assert_eq!(marks(&run), []);
    let run = Client::new(program("nvtx.c")).env("NVTX_INJECTION64_PATH", "./.").run_both();
    assert_eq!(marks(&run), [], "that is how a user asks for no tool");
}

/// A tool's file in the user's directory asks NVTX to take it from the driver, but only if no variable names another.
#[test]
fn a_tool_in_the_driver_is_left_alone() {
    let directory = tempfile::tempdir().expect("a directory");
    let folder = directory.path().join("nvidia/nvtx");
    std::fs::create_dir_all(&folder).expect("a folder");
    std::fs::write(folder.join("nvtx-cuda.yaml"), "").expect("a file");
    let client = Client::new(program("nvtx.c")).without_env("NVTX_INJECTION64_PATH");
    let run = client.env("XDG_RUNTIME_DIR", directory.path()).run_both();
    assert_eq!(marks(&run), []);
}

#[test]
fn ranges_alone_make_no_trace() {
    let run = Client::new(program("nvtx.c")).arg("silent").without_env("NVTX_INJECTION64_PATH").run_both();
    assert_eq!(run.traces().len(), 0);
}

#[test]
fn a_storm_of_ranges_loses_none() {
    let run = Client::new(program("nvtx.c")).arg("storm").without_env("NVTX_INJECTION64_PATH").run_both();
    assert_eq!(marks(&run).len(), 600_000);
    run.only_trace().report().assert_nothing_lost();
}

/// The loader finds the recorder under the name by which it was preloaded.
#[test]
fn a_recorder_by_another_name_is_found_again() {
    let client = Client::new(program("nvtx.c")).without_env("NVTX_INJECTION64_PATH");
    let link: PathBuf = std::env::temp_dir().join(format!("gpuoom-{}.so", std::process::id()));
    std::os::unix::fs::symlink(recorder(), &link).expect("a link");
    let run = client.env("LD_PRELOAD", &link).run_recorded();
    std::fs::remove_file(&link).expect("the link");
    assert_eq!(told(&marks(&run)), NVTX);
}
