//! `gpuoom-analyze gauntlet`: each allocation call site fails once, and the table says what became of it.

use gpuoom_tests::{Client, program};

/// Sizes in MiB, what became of the failure, and how the program ended.
fn table(source: &str, options: &[&str]) -> (Vec<(u64, String, String, String)>, i32) {
    let run = Client::new(program(source)).run_gauntlet(options);
    let rows = run.rows().into_iter().map(|row| (row.requested_bytes >> 20, row.fate, row.because, row.ending));
    (rows.collect(), run.run.exit_code())
}

fn row(mib: u64, fate: &str, because: &str, ending: &str) -> (u64, String, String, String) {
    (mib, fate.into(), because.into(), ending.into())
}

#[test]
fn each_way_to_treat_a_failure_is_told_apart() {
    let (rows, status) = table("gauntlet_many.c", &["--timeout", "5s"]);
    let expected = [
        row(6, "recovered", "retry_succeeded", "exit 0"),
        row(5, "propagated", "error_reported", "exit 0"),
        row(4, "dropped", "gpu_work_continued", "exit 0"),
        row(3, "propagated", "process_exited", "signal 11"),
        row(2, "unresolved", "trace_ended", "hung"),
        row(1, "propagated", "process_exited", "exit 6"),
    ];
    assert_eq!(rows, expected);
    assert_eq!(status, 1, "one was dropped");
}

#[test]
fn a_program_that_ignores_one_failing_call_is_caught_at_that_site() {
    let run = Client::new(program("inject_sites.c")).run_gauntlet(&[]);
    let rows = run.rows();
    let found: Vec<_> = rows.iter().map(|row| (row.name.split(' ').next().unwrap_or(""), &row.fate[..])).collect();
    // `ignored` is called from two places, but allocates in one.
    let dropped: Vec<_> = found.iter().filter(|(_, fate)| *fate == "dropped").collect();
    assert!(!dropped.is_empty() && dropped.iter().all(|(name, _)| *name == "ignored"), "{found:?}");
    assert!(found.iter().all(|(name, fate)| (*name == "ignored") == (*fate == "dropped")), "{found:?}");
    assert_eq!(run.count("dropped") as usize, dropped.len());
    assert_eq!(run.run.exit_code(), 1);
}

#[test]
fn options_narrow_what_is_tried() {
    assert_eq!(table("gauntlet_many.c", &["--limit", "2"]).0.len(), 2);
    let (rows, status) = table("gauntlet_many.c", &["--only", "retried"]);
    assert_eq!(rows, [row(6, "recovered", "retry_succeeded", "exit 0")]);
    assert_eq!(status, 0, "nothing was dropped");
}

#[test]
fn a_program_without_allocations_has_an_empty_table() {
    let run = Client::new("/bin/true").run_gauntlet(&[]);
    assert_eq!((run.rows().len(), run.run.exit_code()), (0, 0));
    assert!(run.run.stderr.contains("nothing to try"), "{}", run.run.stderr);
}

/// The rules that the table names work by hand, too: each call from there, or one of them.
#[test]
fn a_place_fails_by_file_and_offset() {
    let client = || Client::new(program("inject_sites.c")).env("GPUOOM_PROBE", "off");
    let table = client().run_gauntlet(&[]);
    let rule = |mib: u64| {
        let rows = table.rows();
        let row = rows.iter().find(|row| row.requested_bytes == mib << 20).expect("a call of that size");
        row.rule.split('#').next().unwrap_or_default().to_owned()
    };
    let refused = |rule: String| {
        let run = client().env("GPUOOM_INJECT", rule).run_recorded();
        let events = run.only_trace().events();
        let sizes = events.iter().filter(|event| event.is_injected()).map(|event| event.requested_bytes() >> 20);
        (sizes.collect::<Vec<_>>(), run.exit_code())
    };
    assert_eq!(refused(rule(32)), (vec![32, 8], 0), "each call from there");
    assert_eq!(refused(rule(32) + "#2"), (vec![8], 0));
    assert_eq!(refused(rule(64)), (vec![64], 2));
}
