//! Programs that look at each status and do without what was refused, and others of which calls show less than they seem to: nothing is
//! said of them that only one of several explanations would bear out.

use gpuoom_tests::{Client, Finished, program};

fn run(way: &str) -> Finished {
    Client::new(program("oom_handled.c")).arg(way).env("SIM_CAPACITY", "1G").run_recorded()
}

/// A look at the status leaves no trace: GPU work that goes on shows nothing by itself.
#[test]
fn who_looks_at_the_status_and_does_without_is_not_told_that_it_drops_errors() {
    for way in ["arena", "rollback", "service", "queue", "logger"] {
        let run = run(way);
        run.only_trace().report().assert_exited(0);
        let sure = run.confidence("dropped-oom-return");
        assert!(sure.as_deref().is_none_or(|sure| sure == "possible"), "{way}: {sure:?}");
        let page = run.page();
        let may_have = ["whether it looked at the status can't be seen", "the program may well have noticed"];
        assert!(may_have.iter().any(|open| page.contains(open)), "{way}: {page}");
        assert!(!page.contains("1 check the return value of every call"), "{way}: {page}");
        let rolls_back = page.contains("MiB back, as one does that has noticed");
        assert_eq!(rolls_back, way == "rollback", "{way}: {page}");
    }
}

/// What a bounded queue keeps rises up to its bound, and is given back as the program goes on.
#[test]
fn a_queue_that_is_worked_off_is_hardly_a_leak() {
    let run = run("queue");
    assert_eq!(run.confidence("live-leak").as_deref(), Some("possible"), "{}", run.page());
    assert!(
        run.page().contains("the program went on, and held 992 MiB less later than at the failure"),
        "{}",
        run.page()
    );
}

/// A pool that the program made may have a limit of its own, which no reading of the card shows.
#[test]
fn the_limit_of_a_pool_is_no_phantom() {
    let run = run("pool");
    assert_eq!(run.confidence("phantom-free").as_deref(), Some("possible"), "{}", run.page());
    assert!(run.page().contains("the limit of the pool that was asked"), "{}", run.page());
}

/// The next call that got memory may be for something else altogether.
#[test]
fn memory_that_came_next_may_be_for_something_else() {
    for way in ["unchecked", "wrapper"] {
        let run = run(way);
        run.only_trace().report().assert_only_oom("recovered", "fell_back");
        let page = run.page();
        assert!(page.contains("that is as far as calls show: nothing shows that the failure was noticed"), "{page}");
    }
}

/// What the program's own pool keeps is no other process's.
#[test]
fn what_the_own_pool_keeps_is_nobody_elses() {
    let run = run("pooled");
    let report = run.only_trace().report();
    report.assert_cause("pool-retention", "probable");
    assert_eq!(run.confidence("other-process-on-gpu"), None, "{}", run.page());
}

/// A defect of memory of other processes concerns who opens such memory.
#[test]
fn another_name_of_the_own_memory_is_no_import() {
    let run = run("retained");
    assert_eq!(run.confidence("known-bad-version"), None, "{}", run.page());
}

/// Any program may be called as llama.cpp's are. Only where none of its functions has a name, as in a stripped build, its own name counts.
#[test]
fn a_program_that_is_called_like_llama_cpps_is_none() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("llama-server");
    std::fs::copy(program("oom_handled.c"), &path).expect("a copy of the program");
    let software = || {
        let run = Client::new(path.clone()).arg("queue").env("SIM_CAPACITY", "1G").run_recorded();
        run.only_trace().report().value("/software").to_string()
    };
    assert!(!software().contains("llama.cpp"), "{}", software());
    let status = std::process::Command::new("strip").arg(&path).status().expect("strip");
    assert!(status.success());
    assert!(software().contains("llama.cpp"), "{}", software());
}

/// An error that is asked for after another failure may be about that one.
#[test]
fn a_look_at_an_error_may_be_about_a_later_failure() {
    let run = run("twice");
    let page = run.page();
    assert_eq!(page.matches("whether that was about this failure or #2 can't be seen").count(), 1, "{page}");
}
