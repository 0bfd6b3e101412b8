//! What becomes of an out-of-memory return, one program per way.

use std::os::unix::process::ExitStatusExt;

use gpuoom_tests::{Client, Finished, MIB, Report, program};

const TOO_BIG: u64 = 4096 << 30;

fn report_of(run: &Finished) -> Report {
    run.only_trace().report()
}

fn run_and_expect(client: Client, outcome: &str, because: &str) -> Report {
    let report = report_of(&client.run_both());
    report.assert_only_oom(outcome, because);
    report
}

#[test]
fn checked_failure_is_propagated() {
    let report = run_and_expect(Client::new(program("oom_checked.c")), "propagated", "status_checked");
    assert_eq!(report.text("/ooms/0/api"), "hipMalloc");
    assert_eq!(report.text("/ooms/0/layer"), "runtime");
    assert_eq!(report.text("/ooms/0/refused_by"), "runtime");
    assert_eq!(report.number("/ooms/0/device"), 0);
    assert_eq!((report.number("/ooms/0/requested_bytes"), report.number("/ooms/0/padded_bytes")), (TOO_BIG, TOO_BIG));
    assert_eq!(report.number("/ooms/0/status/code"), 2);
    assert_eq!(report.text("/ooms/0/status/name"), "hipErrorOutOfMemory");
    assert_eq!(report.number("/devices/0/failures"), 1);
    assert_ne!(report.count("/ooms/0/evidence"), 0, "an outcome rests on events");
}

#[test]
fn failure_ignored_before_a_launch_is_dropped() {
    run_and_expect(Client::new(program("oom_ignored_launch.c")), "dropped", "gpu_work_continued");
}

#[test]
fn failed_pointer_in_a_copy_is_dropped() {
    run_and_expect(Client::new(program("oom_null_copy.c")), "dropped", "failed_pointer_used");
}

#[test]
fn failed_pointer_in_a_prefetch_is_dropped() {
    run_and_expect(Client::new(program("oom_null_prefetch.c")), "dropped", "failed_pointer_used");
}

#[test]
fn retry_after_a_free_is_recovered() {
    let client = Client::new(program("oom_retried.c")).env("SIM_CAPACITY", "1G");
    let report = run_and_expect(client, "recovered", "retry_succeeded");
    // The card had 424 MiB left in granules of 2 MiB. Both readings may be missing; neither may be wrong.
    if let Some(free) = report.number_or_null("/ooms/0/free_reported_bytes") {
        assert_eq!(free, 424 * MIB);
    }
    if let Some(largest) = report.number_or_null("/ooms/0/largest_allocatable_bytes") {
        assert!((422 * MIB..=424 * MIB).contains(&largest), "{largest}");
    }
}

#[test]
fn smaller_success_is_no_recovery() {
    let client = Client::new(program("oom_smaller.c")).env("SIM_CAPACITY", "1G");
    run_and_expect(client, "dropped", "gpu_work_continued");
}

#[test]
fn reported_failure_is_propagated() {
    run_and_expect(Client::new(program("oom_error_string.c")), "propagated", "error_reported");
}

#[test]
fn another_threads_work_is_not_the_reaction() {
    run_and_expect(Client::new(program("oom_other_thread.c")), "unresolved", "trace_ended");
}

/// The last words on stderr are said by another thread than the one that failed; they agree with the report.
#[test]
fn last_words_know_of_other_threads() {
    let client = || Client::new(program("oom_other_thread.c")).env("GPUOOM_PROBE", "off");
    let run = client().run_both();
    assert!(run.recorder_lines()[0].contains("undecided"), "{}", run.stderr);
    let run = client().arg("fail").run_both();
    run.only_trace().report().assert_only_oom("propagated", "process_exited");
    assert!(run.recorder_lines()[0].contains("propagated by the program"), "{}", run.stderr);
}

#[test]
fn exit_with_a_failure_is_propagated() {
    let report = run_and_expect(Client::new(program("oom_exit_one.c")), "propagated", "process_exited");
    report.assert_exited(1);
}

#[test]
fn exit_without_a_word_is_unresolved() {
    let report = run_and_expect(Client::new(program("oom_exit_zero.c")), "unresolved", "trace_ended");
    report.assert_exited(0);
}

#[test]
fn refused_pinned_memory_is_judged_like_device_memory() {
    let client = Client::new(program("oom_pinned.c")).env("SIM_FAIL_AT", "2");
    let report = run_and_expect(client, "dropped", "gpu_work_continued");
    assert_eq!(report.text("/ooms/0/api"), "hipHostMalloc");
    assert_eq!(report.number("/host/failures"), 1);
    assert_eq!(report.number("/devices/0/failures"), 0);
}

#[test]
fn caught_exception_is_propagated() {
    let report = run_and_expect(Client::new(program("throw_caught.cpp")), "propagated", "exception");
    report.assert_exited(0);
    assert_eq!(report.number("/devices/0/allocations"), 1);
}

#[test]
fn uncaught_exception_is_propagated() {
    let client = Client::new(program("throw_uncaught.cpp"));
    let run = client.run_both();
    assert_eq!(run.status.signal(), Some(libc::SIGABRT));
    let report = report_of(&run);
    report.assert_only_oom("propagated", "exception");
    assert_ne!(report.text("/process/end"), "exited");
    assert_eq!(report.number("/devices/0/end/live_allocations"), 1);
}

#[test]
fn absurd_sizes_do_not_wrap_around() {
    let run = Client::new(program("huge_sizes.c")).env("GPUOOM_PROBE", "off").run_both();
    run.assert_trace_is_true();
    let report = report_of(&run);
    assert_eq!(report.count("/ooms"), 8);
    assert_eq!(report.number("/ooms/0/requested_bytes"), u64::MAX);
    for index in 0..8 {
        let (requested, padded) = (
            report.number(&format!("/ooms/{index}/requested_bytes")),
            report.number(&format!("/ooms/{index}/padded_bytes")),
        );
        assert!(padded >= requested, "{requested} padded to {padded}");
    }
    assert_eq!(report.number("/devices/0/peak/requested_bytes"), 28 * MIB);
    assert_eq!(report.number("/devices/0/peak/padded_bytes"), 256 * MIB);
}

#[test]
fn calls_of_the_library_on_itself_are_neither_counted_nor_a_reaction() {
    let client = Client::new(program("self_calls.c")).env("SIM_SELF_CALL", "1").env("GPUOOM_PROBE", "off");
    let run = client.run_both();
    run.assert_trace_is_true();
    let events = run.only_trace().events();
    let outer = events.iter().find(|event| event.api() == "hipMemAllocPitch").expect("the program's own call");
    for inner in events.iter().filter(|event| event.api() == "hipMallocPitch") {
        assert_eq!(inner.parent(), Some(outer.seq()));
    }
    let report = report_of(&run);
    assert_eq!(report.number("/devices/0/allocations"), 1);
    assert_eq!(report.number("/devices/0/peak/requested_bytes"), 4096 * 1000);
    report.assert_only_oom("dropped", "gpu_work_continued");
}
