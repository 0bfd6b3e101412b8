//! Threads that are cancelled, or end, in the middle of what is recorded, with their allocator's lock held: nothing hangs, nothing
//! breaks, and what the others do is recorded.

use std::collections::HashMap;

use gpuoom_tests::{Client, Finished, Library, plain_program, plugin};
use gpuoom_trace::record::Event;

const BLOCKS: usize = 2000;
const KILLED: usize = 60;

fn run(what: &str) -> Finished {
    let program = plain_program("killed_threads.cpp");
    let run = Client::new(program)
        .arg(plugin("killed_threads.cpp", Library::Hip))
        .arg(what)
        .env("GPUOOM_PROBE", "off")
        .run_both();
    assert_eq!((run.exit_code(), run.stdout.as_str()), (0, "all told\n"), "{what}: {}", run.stderr);
    run
}

/// How many blocks each thread told of that it was given, and that it gave back.
fn told(run: &Finished) -> HashMap<u32, [usize; 2]> {
    let mut found: HashMap<u32, [usize; 2]> = HashMap::new();
    for (place, event) in [Event::Block, Event::BlockFree].into_iter().enumerate() {
        run.only_trace().told(&[event]).iter().for_each(|told| found.entry(told.thread).or_default()[place] += 1);
    }
    found
}

fn assert_survivor_told(run: &Finished, what: &str) -> HashMap<u32, [usize; 2]> {
    let told = told(run);
    assert!(told.values().any(|counts| *counts == [BLOCKS; 2]), "{what}: the thread that lives: {told:?}");
    told
}

fn assert_all_told(run: &Finished, what: &str) {
    assert_eq!(run.recorder_lines(), Vec::<&str>::new(), "{what}");
    let told = assert_survivor_told(run, what);
    assert!(told.len() > KILLED / 2, "{what}: and those that were ended: {}", told.len());
    // Ended between a block and its end at most.
    assert!(told.values().all(|[given, taken]| given - taken <= 1), "{what}: {told:?}");
}

#[test]
fn threads_that_are_cancelled_where_they_wait() {
    let run = run("deferred");
    run.only_trace().report().assert_nothing_lost();
    assert_all_told(&run, "deferred");
}

/// Such a thread may end between the claim of a record and its publication: that record is torn, and the report says so.
#[test]
fn threads_that_are_cancelled_anywhere() {
    for _ in 0..5 {
        let run = run("asynchronous");
        let report = run.only_trace().report();
        assert_eq!(report.number("/trace/events_lost"), 0);
        assert!(report.number("/trace/torn_events") <= KILLED as u64);
        assert_survivor_told(&run, "asynchronous");
    }
}

#[test]
fn threads_that_end_themselves() {
    for what in ["exit", "raw"] {
        let run = run(what);
        run.only_trace().report().assert_nothing_lost();
        assert_all_told(&run, what);
        assert!(told(&run).values().filter(|counts| **counts == [6; 2]).count() == KILLED, "{what}");
    }
}

/// The runtime holds a lock while it works, so the program holds cancellation back there; so it stays, also while a failure is read.
#[test]
fn threads_that_are_cancelled_between_calls_of_the_runtime() {
    let run = run("runtime");
    run.assert_trace_is_true();
    run.only_trace().report().assert_nothing_lost();
    assert!(told(&run).values().any(|counts| *counts == [BLOCKS; 2]));
}
