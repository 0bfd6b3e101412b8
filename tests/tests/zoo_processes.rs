//! How processes begin, multiply and end.

use gpuoom_tests::{Client, Event, Finished, MIB, Report, Trace, program};

fn allocated_sizes(trace: &Trace) -> Vec<u64> {
    let events = trace.events();
    events.iter().filter(|event| event.is_allocation()).map(Event::requested_bytes).collect()
}

/// The sizes that each trace holds, smallest trace first.
fn sizes_by_trace(run: &Finished) -> Vec<Vec<u64>> {
    let mut all: Vec<_> = run.traces().iter().map(allocated_sizes).collect();
    all.sort();
    all
}

#[test]
fn forked_child_has_a_trace_of_its_own() {
    let run = Client::new(program("fork_child.c")).run_both();
    run.assert_trace_is_true();
    assert_eq!(sizes_by_trace(&run), [vec![5 * MIB, 6 * MIB, 7 * MIB], vec![100 * MIB, 200 * MIB]]);
    let mut pids: Vec<_> = run.traces().iter().map(Trace::pid).collect();
    pids.dedup();
    assert_eq!(pids.len(), 2, "each trace names its own process");
    for trace in run.traces() {
        trace.report().assert_exited(0);
    }
}

#[test]
fn forks_under_load_neither_hang_nor_mix() {
    let run = Client::new(program("fork_under_load.c")).run_both();
    assert_eq!(run.stdout, "10 children\n");
    run.assert_trace_is_true();
    let mut of_children: Vec<_> = sizes_by_trace(&run).into_iter().filter(|sizes| sizes.len() == 1).collect();
    of_children.sort();
    assert_eq!(of_children, (1..=10).map(|number| vec![number * 7 * MIB]).collect::<Vec<_>>());
}

#[test]
fn child_of_a_bare_clone_does_not_write_into_the_parents_trace() {
    let run = Client::new(program("raw_clone.c")).run_both();
    assert_eq!(run.stdout, "child 0\n");
    run.assert_trace_is_true();
    assert_eq!(sizes_by_trace(&run), [[10 * MIB], [33 * MIB]]);
}

#[test]
fn vfork_and_exec_leave_the_parent_whole() {
    let run = Client::new(program("vfork_exec.c")).run_both();
    assert_eq!(run.stdout, "child 5\n");
    run.assert_trace_is_true();
    assert_eq!(allocated_sizes(&run.only_trace()), [8 * MIB, 9 * MIB]);
}

#[test]
fn program_after_exec_does_not_overwrite_the_one_before() {
    let run = Client::new(program("exec_again.c")).run_both();
    assert_eq!(run.stdout, "first\nsecond\n");
    let mut sizes = sizes_by_trace(&run).concat();
    sizes.sort();
    assert_eq!(sizes, [64 * MIB, 96 * MIB]);
}

#[test]
fn exit_inside_a_handler_closes_the_trace() {
    let client = Client::new(program("exit_in_handler.c")).env("SIM_SLOW_AT", "2").env("SIM_SLOW_US", "20000000");
    let run = client.run_both();
    assert_eq!(run.exit_code(), 3);
    let trace = run.only_trace();
    assert_eq!(allocated_sizes(&trace), [12 * MIB]);
    let report = trace.report();
    assert_eq!((report.text("/process/end"), report.number("/process/exit_code")), ("exited", 3));
}

#[test]
fn abort_is_told_by_its_signal() {
    let run = Client::new(program("abort_after_alloc.c")).run_both();
    let trace = run.only_trace();
    assert_eq!(allocated_sizes(&trace), [31 * MIB, 32 * MIB]);
    let report = trace.report();
    assert_eq!((report.text("/process/end"), report.number("/process/signal")), ("signaled", libc::SIGABRT as u64));
    assert_eq!(report.number("/devices/0/end/live_allocations"), 2);
}

/// A way out that nothing announces may be unknown to the trace; it must not be told wrong.
fn assert_end_is_not_wrong(report: &Report, code: u64) {
    match report.text("/process/end") {
        "unknown" => {}
        end => assert_eq!((end, report.number("/process/exit_code")), ("exited", code)),
    }
}

#[test]
fn underscore_exit_keeps_the_trace() {
    for way in ["_exit", "_Exit"] {
        let run = Client::new(program("leave_at_once.c")).arg(way).run_both();
        assert_eq!(run.exit_code(), 4);
        assert_eq!(allocated_sizes(&run.only_trace()), [21 * MIB]);
        let report = run.only_trace().report();
        assert_eq!((report.text("/process/end"), report.number("/process/exit_code")), ("exited", 4), "{way}");
    }
}

#[test]
fn quick_exit_keeps_the_trace() {
    let run = Client::new(program("leave_at_once.c")).arg("quick_exit").run_both();
    assert_eq!(run.exit_code(), 4);
    assert_eq!(allocated_sizes(&run.only_trace()), [21 * MIB]);
    assert_end_is_not_wrong(&run.only_trace().report(), 4);
}

#[test]
fn program_without_gpu_calls_leaves_nothing() {
    let run = Client::new(program("no_gpu.c")).without_env("GPUOOM_TRACE").run_both();
    assert!(run.files_in_cwd().is_empty(), "{:?}", run.files_in_cwd());
    assert_eq!(run.stderr, "");
}

#[test]
fn daemon_is_recorded_apart_from_its_parent() {
    let run = Client::new(program("daemon.c")).run_both();
    assert_eq!(run.stdout, "daemon ended with 0\n");
    run.assert_trace_is_true();
    assert_eq!(sizes_by_trace(&run), [(1..=5).map(|i| i * 2 * MIB).collect(), vec![40 * MIB]]);
}

#[test]
fn marks_survive_a_kill_right_after_the_flush() {
    let run = Client::new(program("marks.c")).run_both();
    let trace = run.only_trace();
    let events = trace.events();
    let seen: Vec<_> = events.iter().map(Event::event).filter(|event| ["mark", "alloc"].contains(event)).collect();
    assert_eq!(seen, ["mark", "alloc", "mark"]);
    let report = trace.report();
    assert_eq!(report.text("/process/end"), "unknown");
    assert!(!report.flag("/trace/clean_close"));
}

#[test]
fn a_storm_of_marks_loses_none() {
    let run = Client::new(program("mark_storm.c")).run_both();
    let trace = run.only_trace();
    let marks = trace.events().iter().filter(|event| event.event() == "mark").count();
    assert_eq!(marks, 300_000);
    trace.report().assert_nothing_lost();
}
