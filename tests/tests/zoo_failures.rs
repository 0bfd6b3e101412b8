//! What becomes of an out-of-memory return, one program per way.

use std::os::unix::process::ExitStatusExt;

use gpuoom_tests::{Client, Finished, Library, MIB, Report, analyzer, program, program_with, sim_dir};

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
    let run = Client::new(program("oom_checked.c")).run_both();
    assert!(run.recorder_lines()[0].contains("propagated: the program read or reported the error"), "{}", run.stderr);
    let report = report_of(&run);
    report.assert_only_oom("propagated", "status_checked");
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

/// The recorder says it at the end of the program, and `record` says it of all traces together.
#[test]
fn how_to_read_the_trace_is_said_once() {
    let said = |client: Client| {
        let run = client.run_recorded();
        assert!(run.recorder_lines().iter().any(|line| line.contains("propagated")), "{}", run.stderr);
        run.recorder_lines().iter().filter(|line| line.contains("explain it with")).count()
    };
    assert_eq!(said(Client::new(program("oom_exit_one.c"))), 1);
    assert_eq!(said(Client::new(analyzer()).args(["record", "--"]).arg(program("oom_exit_one.c"))), 1);
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

/// The variable ties the two, however long the program waits.
#[test]
fn a_late_retry_for_the_same_variable_is_recovered() {
    let run = Client::new(program("oom_retried.c")).arg("late").env("SIM_CAPACITY", "1G").run_both();
    report_of(&run).assert_only_oom("recovered", "retry_succeeded");
    assert!(run.recorder_lines()[0].contains("recovered"), "{}", run.stderr);
}

#[test]
fn a_smaller_block_in_its_place_is_a_fall_back() {
    let client = Client::new(program("oom_smaller.c")).env("SIM_CAPACITY", "1G");
    run_and_expect(client, "recovered", "fell_back");
}

fn falls_back(way: &str) -> Finished {
    let client = Client::new(program("oom_falls_back.c")).arg(way).env("SIM_CAPACITY", "1G").env("SIM_DEVICES", "2");
    client.run_both()
}

#[test]
fn another_call_that_gets_memory_is_a_fall_back() {
    for way in ["smaller", "same_variable", "pieces", "pinned", "managed", "device", "joint"] {
        let run = falls_back(way);
        let report = report_of(&run);
        report.assert_only_oom("recovered", "fell_back");
        assert_ne!(report.count("/ooms/0/evidence"), 0, "{way}: an outcome rests on events");
        let how = match way {
            "device" => "recovered: fell back to GPU 1, as far as its calls show",
            // Other sizes, from other places, for other variables; or a trifle in the same one.
            "smaller" | "same_variable" | "pieces" | "managed" => {
                "recovered as far as its calls show: another request soon after was given memory, and nothing shows that"
            }
            _ => "recovered: a later request was given memory",
        };
        let line = format!("1 out-of-memory return, {how}");
        assert!(run.recorder_lines()[0].contains(&line), "{way}: {}", run.stderr);
        assert!(report.diagnoses().iter().all(|found| found.id != "dropped-oom-return"), "{way}");
    }
}

/// What another call got was for something else: the program copies to what it did not get.
#[test]
fn a_failed_pointer_that_is_used_after_other_memory_came_is_dropped() {
    let run = falls_back("null");
    report_of(&run).assert_only_oom("dropped", "failed_pointer_used");
    assert!(run.recorder_lines()[0].contains("DROPPED"), "{}", run.stderr);
    let text = words_of(&run);
    assert!(text.contains("was given a null pointer"), "{text}");
    assert!(text.contains("which may be the one that the failed call left behind"), "{text}");
    assert!(!text.contains("trusted"), "{text}");
}

/// What the outcome says and what rules the diagnosis out stand on one page: they must not contradict each other.
#[test]
fn a_smaller_request_after_gpu_work_is_a_dropped_outcome_and_no_diagnosis() {
    let run = Client::new(program("oom_smaller_after_work.c")).env("SIM_CAPACITY", "1G").run_both();
    let report = report_of(&run);
    report.assert_only_oom("dropped", "gpu_work_continued");
    assert!(report.diagnoses().iter().all(|found| found.id != "dropped-oom-return"));
    assert!(run.recorder_lines()[0].contains("; a request like it was given memory later"), "{}", run.stderr);
    let text = words_of(&run);
    assert!(text.contains("by the order of calls alone: the thread asked for less from the same place"), "{text}");
    assert!(text.contains("its outcome is called dropped because GPU work went on before memory came"), "{text}");
}

/// The outcome is about one thread; the diagnosis is about the program.
#[test]
fn what_another_thread_got_may_make_up_for_a_failure() {
    for (way, confidence) in [("", None), ("other", Some("possible")), ("trifle", Some("possible"))] {
        let client = Client::new(program("oom_helped.c")).arg(way).env("SIM_CAPACITY", "1G");
        let report = run_and_expect(client, "dropped", "gpu_work_continued");
        match confidence {
            Some(confidence) => report.assert_diagnosed("dropped-oom-return", confidence),
            None => assert!(report.diagnoses().iter().all(|found| found.id != "dropped-oom-return"), "{way}"),
        }
    }
}

/// The report's text, without its line ends.
fn words_of(run: &Finished) -> String {
    run.only_trace().report_text().split_whitespace().collect::<Vec<_>>().join(" ")
}

fn uses_a_null(way: &str) -> Finished {
    let client = Client::new(program("oom_nulls.c")).arg(way).env("SIM_CAPACITY", "1G");
    client.env("SIM_PINNED_LIMIT", "1G").run_both()
}

#[test]
fn a_failed_pointer_is_looked_for_after_other_work_too() {
    for way in ["launch", "text", "pinned"] {
        let run = uses_a_null(way);
        let report = report_of(&run);
        report.assert_only_oom("dropped", "failed_pointer_used");
        report.assert_diagnosed("dropped-oom-return", "probable");
        assert!(run.recorder_lines()[0].contains("DROPPED"), "{way}: {}", run.stderr);
        assert!(words_of(&run).contains("can't be trusted"), "{way}");
    }
}

/// Nobody can tell whose it is, and the program may well have meant it.
#[test]
fn a_null_that_is_of_another_is_no_failed_pointer() {
    for way in ["host", "host2d"] {
        let run = uses_a_null(way);
        report_of(&run).assert_only_oom("dropped", "gpu_work_continued");
        assert!(!words_of(&run).contains("null pointer"), "{way}");
    }
    report_of(&uses_a_null("again")).assert_only_oom("recovered", "fell_back");
    let run = uses_a_null("two");
    let report = report_of(&run);
    for index in 0..2 {
        assert_eq!(report.text(&format!("/ooms/{index}/because")), "gpu_work_continued");
    }
    let text = words_of(&run);
    assert!(text.contains("one that 2 failed calls left behind, this one among them"), "{text}");
    report.assert_diagnosed("dropped-oom-return", "probable");
    assert!(!text.contains("trusted"), "{text}");
}

/// Also where another failure came in between.
#[test]
fn a_variable_that_was_filled_again_left_no_null() {
    let run = uses_a_null("refilled");
    let report = report_of(&run);
    let because = [0, 1].map(|index| report.text(&format!("/ooms/{index}/because")).to_owned());
    assert_eq!(because, ["gpu_work_continued", "failed_pointer_used"]);
    let text = words_of(&run);
    assert!(
        !text.contains("which may be the one that this call left") && !text.contains("this one among them"),
        "{text}"
    );
}

/// Smaller requests for another variable may be attempts to make up for a failure, and yet its own variable still holds the null.
#[test]
fn a_null_is_of_the_variable_that_got_nothing() {
    let run = uses_a_null("shrunk");
    let report = report_of(&run);
    let because = |index: usize| {
        let [outcome, because] =
            ["outcome", "because"].map(|key| report.text(&format!("/ooms/{index}/{key}")).to_owned());
        (outcome, because)
    };
    assert_eq!(because(0), ("dropped".to_owned(), "failed_pointer_used".to_owned()));
    for index in 1..report.count("/ooms") {
        assert_eq!(because(index), ("recovered".to_owned(), "fell_back".to_owned()), "#{index}");
    }
    let text = words_of(&run);
    assert!(text.contains("may be the one") && !text.contains("trusted"), "{text}");
    assert!(run.recorder_lines()[0].contains("1 of them DROPPED"), "{}", run.stderr);
}

#[test]
fn a_null_that_may_be_of_another_proves_nothing() {
    for way in ["wrapper", "copied"] {
        let run = uses_a_null(way);
        let report = report_of(&run);
        report.assert_only_oom("dropped", "failed_pointer_used");
        report.assert_diagnosed("dropped-oom-return", "probable");
        let text = words_of(&run);
        assert!(text.contains("may be the one") && !text.contains("trusted"), "{way}: {text}");
    }
}

#[test]
fn another_call_that_gets_memory_for_something_else_is_no_fall_back() {
    for way in ["trifle", "late", "larger"] {
        let run = falls_back(way);
        report_of(&run).assert_only_oom("dropped", "gpu_work_continued");
        assert!(run.recorder_lines()[0].contains("DROPPED"), "{way}: {}", run.stderr);
        let text = words_of(&run);
        assert!(text.contains("before it asked for the error or threw; it had got"), "{text}");
        assert!(!text.contains("trusted") && !text.contains("or got other memory"), "{text}");
    }
}

/// Each attempt is refused and cleared, as in many programs; together they are one story that ends well.
#[test]
fn forty_attempts_are_one_fall_back() {
    let run = falls_back("shrinking");
    let report = report_of(&run);
    let refused = report.count("/ooms");
    assert!(refused > 40, "{refused}");
    for index in 0..refused {
        assert_eq!(report.text(&format!("/ooms/{index}/outcome")), "recovered", "{index}");
        assert_eq!(report.text(&format!("/ooms/{index}/because")), "fell_back", "{index}");
        if index > 1 {
            // The last ones are small enough to be attempts for the first failure, too.
            assert!(report.number(&format!("/ooms/{index}/attempt_of")) <= 2, "{index}");
        }
    }
    let line = format!("{refused} out-of-memory returns, recovered: a later request was given memory");
    assert!(run.recorder_lines()[0].contains(&line), "{}", run.stderr);
    assert!(report.diagnoses().iter().all(|found| found.id != "dropped-oom-return"), "{:?}", report.diagnoses());
}

#[test]
fn an_error_that_is_cleared_before_work_is_unresolved() {
    let client = Client::new(program("oom_cleared.c"));
    let run = client.run_both();
    report_of(&run).assert_only_oom("unresolved", "error_read");
    assert!(run.recorder_lines()[0].contains("whose error was read before GPU work went on"), "{}", run.stderr);
    let text = run.only_trace().report_text();
    assert!(text.contains("can't be seen") && !text.contains("noticed"), "{text}");
}

#[test]
fn a_copy_of_nothing_is_no_work_that_went_on() {
    run_and_expect(Client::new(program("oom_nothing.c")), "unresolved", "trace_ended");
}

#[test]
fn what_the_variable_of_a_failed_call_held_before_may_be_a_block() {
    let client = || Client::new(program_with("oom_own_block.c", Library::Cuda));
    run_and_expect(client(), "dropped", "gpu_work_continued");
    run_and_expect(client().arg("cleared"), "unresolved", "error_read");
    let report = run_and_expect(client().arg("garbage"), "dropped", "failed_pointer_used");
    report.assert_diagnosed("dropped-oom-return", "probable");
}

#[test]
fn a_program_of_the_driver_interface_is_told_of_its_own_results() {
    let client = Client::new(program_with("oom_driver_only.c", Library::CudaDriver));
    let run = client.run_both();
    let report = report_of(&run);
    report.assert_only_oom("dropped", "gpu_work_continued");
    let diagnoses = report.excerpt("/diagnoses");
    assert!(diagnoses.contains("look at the CUresult"), "{diagnoses}");
    let text = run.only_trace().report_text();
    assert!(!text.contains("GetLastError") && !diagnoses.contains("GetLastError"), "{text}\n{diagnoses}");
}

#[test]
fn a_retry_that_another_thread_made_room_for_is_a_retry() {
    let client = Client::new(program("oom_other_frees.c")).env("SIM_CAPACITY", "1G");
    let run = client.run_both();
    report_of(&run).assert_only_oom("recovered", "retry_succeeded");
    assert!(!run.only_trace().report_text().contains("freed anything on the device in between"));
}

#[test]
fn work_after_an_exception_is_no_drop_and_another_block_no_fall_back() {
    run_and_expect(Client::new(program("oom_throw_on.cpp")), "propagated", "exception");
    run_and_expect(Client::new(program("oom_throw_on.cpp")).arg("more"), "propagated", "exception");
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
    assert!(run.recorder_lines()[0].contains("unresolved"), "{}", run.stderr);
    let run = client().arg("fail").run_both();
    run.only_trace().report().assert_only_oom("propagated", "process_exited");
    assert!(
        run.recorder_lines()[0]
            .contains("propagated: the program read or reported the error, threw an exception or ended with a failure"),
        "{}",
        run.stderr
    );
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

/// What the recorder says on stderr when these are the outcomes.
fn last_words(report: &Report) -> String {
    let total = report.count("/ooms");
    let count = |outcome: &str, because: &str| {
        let is_it = |index: &usize| {
            report.text(&format!("/ooms/{index}/outcome")) == outcome
                && (because.is_empty() || report.text(&format!("/ooms/{index}/because")) == because)
        };
        (0..total).filter(is_it).count()
    };
    let [recovered, propagated, dropped] = ["recovered", "propagated", "dropped"].map(|outcome| count(outcome, ""));
    let [unresolved, undecided] = ["error_read", "trace_ended"].map(|because| count("unresolved", because));
    let what = match dropped {
        0 if recovered == total => "recovered: a later request was given memory".to_owned(),
        0 if propagated == total => {
            "propagated: the program read or reported the error, threw an exception or ended with a failure".to_owned()
        }
        0 if undecided == total => "unresolved when the process ended".to_owned(),
        0 if unresolved == total => "whose error was read before GPU work went on".to_owned(),
        0 => {
            let more = match unresolved + undecided {
                0 => String::new(),
                open => format!(", {open} unresolved"),
            };
            format!("{recovered} recovered, {propagated} propagated{more}")
        }
        _ if dropped == total => "DROPPED as far as its calls show: GPU work went on".to_owned(),
        _ => format!("{dropped} of them DROPPED as far as its calls show: GPU work went on"),
    };
    format!("{total} out-of-memory return{}, {what} (", if total == 1 { "" } else { "s" })
}

/// The recorder and the analyzer count the same outcomes, whatever order things come in.
#[test]
fn recorder_and_analyzer_agree() {
    for seed in 0..12 {
        let client = Client::new(program("oom_walk.c")).arg(seed.to_string()).env("SIM_CAPACITY", "1G");
        let run = client.env("GPUOOM_PROBE", "off").run_recorded();
        let report = report_of(&run);
        assert!(report.count("/ooms") > 20, "seed {seed}");
        let words = last_words(&report);
        let counted = without_details(run.recorder_lines()[0]);
        assert!(counted.contains(&words), "seed {seed}: {words}\n{}", run.stderr);
    }
}

/// The last words without what they add to the counts.
fn without_details(line: &str) -> String {
    let mut line = line.to_owned();
    for (from, to) in [
        ("; a request like it", "was given memory later"),
        ("; after ", " of these a request like it was given memory later"),
        (" (of ", " nothing shows that the failure was noticed)"),
    ] {
        let Some(start) = line.find(from) else { continue };
        let Some(end) = line[start..].find(to).map(|at| start + at + to.len()) else { continue };
        line.replace_range(start..end, "");
    }
    line
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

/// Pools of HIP 5 say that they succeeded, and give null, where there is no memory: nothing came.
#[test]
fn a_success_without_memory_makes_up_for_nothing() {
    let client = |argument: &[&str]| {
        let client = argument.iter().fold(Client::new(program("hip_refusals.c")), |client, one| client.arg(*one));
        let client = client.env("LD_LIBRARY_PATH", sim_dir()).env("SIM_CAPACITY", "8000M");
        client.env("SIM_HIP_VERSION", "50700000")
    };
    let run = client(&["nothing smaller"]).run_both();
    assert_eq!(run.stdout, "scratch: status 0, no memory\n");
    assert!(run.recorder_lines()[0].contains("DROPPED"), "{}", run.stderr);
    report_of(&run).assert_only_oom("dropped", "gpu_work_continued");
    run_and_expect(client(&[]), "recovered", "fell_back");
}
