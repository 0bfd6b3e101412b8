//! What a program logs through ggml's functions after a failed allocation, and that nothing stands between a log and its callback.

use gpuoom_tests::{Client, Finished, Library, Told, plain_program, plugin};
use gpuoom_trace::payload::MAX_TEXT_BYTES;
use gpuoom_trace::record::{Event, message};

fn logs(what: &str) -> Client {
    let client = Client::new(plain_program("ggml_log.c")).arg(plugin("ggml_log.c", Library::Hip)).arg(what);
    client.env("GPUOOM_PROBE", "off")
}

fn lines(run: &Finished) -> Vec<Told> {
    let lines = run.only_trace().told(&[Event::Message]);
    assert!(
        lines.iter().all(|line| (line.api.as_str(), line.status) == ("ggml_log_internal", message::LOG)),
        "{lines:?}"
    );
    lines
}

fn first_line(device: u32) -> String {
    format!("fail_and_say: allocating 4194304.00 MiB on device {device}: hipMalloc failed: out of memory")
}

#[test]
fn lines_about_missing_memory_are_kept_as_the_callback_is_given_them() {
    let run = logs("says").run_both();
    assert_eq!(run.exit_code(), 0);
    let lines: Vec<String> = lines(&run).into_iter().map(|line| line.text).collect();
    assert_eq!(
        lines[..2],
        [first_line(0), "failed to fit 1 of 2, 3, 4,   0.2, 4398046511104 of memory: all x%".to_owned()]
    );
    assert_eq!(lines[2], "failed to allocate %e", "another sort of number");
    let counted: Vec<String> = (0..5).map(|line| format!("failed to allocate, line {line}")).collect();
    assert_eq!(lines[3..8], counted, "eight for a failure");
    assert_eq!((lines.len(), lines[9].as_str()), (10, "failed to allocate"));
    assert_eq!(lines[8], format!("out of memory {:0300} {:0300}", 7, 8)[..MAX_TEXT_BYTES.min(615)]);
    // Where nothing was left out, the callback was given the same.
    for line in lines[..2].iter().chain(&lines[3..8]) {
        assert!(run.stdout.contains(&format!(": {line}\n")), "{line}");
    }
    let report = run.only_trace().report();
    assert_eq!((report.text("/ooms/0/message"), report.text("/ooms/0/message_from")), (first_line(0).as_str(), "log"));
    assert!(report.text("/ooms/1/message").starts_with("out of memory 0000"), "the second failure's own");
    report.assert_nothing_lost();
}

#[test]
fn lines_do_not_depend_on_the_setting_for_frameworks() {
    let run = logs("says").env("GPUOOM_FRAMEWORK", "off").run_recorded();
    assert_eq!(lines(&run).len(), 10);
}

/// Callbacks that allocate, fail and log again, set another one, or never return; and what `ggml_log_get` answers.
#[test]
fn callbacks_are_the_programs_own() {
    let run = logs("callbacks").run_both();
    assert_eq!(run.exit_code(), 0, "{}", run.stdout);
    run.assert_trace_is_true();
    let texts: Vec<String> = lines(&run).into_iter().map(|line| line.text).collect();
    let expected = [0, 0, 1, 0, 0, 0, 0].map(first_line);
    assert_eq!(texts, expected);
}

#[test]
fn lines_of_many_threads_stay_apart() {
    let run = logs("threads").run_both();
    assert_eq!((run.exit_code(), run.stdout.as_str()), (0, "1600 lines\n"));
    let lines = lines(&run);
    assert_eq!(lines.len(), 1600);
    let mut devices: Vec<(u64, String)> = lines.into_iter().map(|line| (u64::from(line.thread), line.text)).collect();
    devices.sort();
    devices.dedup();
    assert_eq!(devices.len(), 8, "each thread has its own line: {devices:?}");
    let report = run.only_trace().report();
    report.assert_nothing_lost();
}
