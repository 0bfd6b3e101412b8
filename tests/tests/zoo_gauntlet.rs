//! `gpuoom-analyze gauntlet`: each allocation call site fails once, and the table says what became of it.

use gpuoom_tests::{Client, analyzer, program};

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
        row(5, "recovered", "fell_back", "exit 0"),
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
    assert_eq!((run.rows().len(), run.run.exit_code()), (0, 1), "a gate does not pass on what never ran");
    assert!(run.run.stderr.contains("nothing to try"), "{}", run.run.stderr);
    let broken = Client::new("/bin/sh").arg("-c").arg("echo it is broken >&2; exit 3").run_gauntlet(&[]);
    assert_eq!(broken.run.exit_code(), 1);
    assert!(broken.run.stderr.contains("it wrote: it is broken"), "{}", broken.run.stderr);
}

#[test]
fn what_would_try_nothing_is_an_error() {
    let gauntlet = |options: &[&str]| {
        let run = Client::new(program("gauntlet_many.c")).try_gauntlet(options);
        (run.exit_code(), run.stderr.clone())
    };
    let (status, said) = gauntlet(&["--timeout", "5s", "--only", "nobody"]);
    assert!(
        status == 2 && said.contains("no call site fits --only nobody; there are ") && said.contains("retried"),
        "{said}"
    );
    for options in [["--limit", "0"], ["--timeout", "0s"]] {
        assert_eq!(gauntlet(&options).0, 2, "{options:?}");
    }
}

/// The runs are in groups of their own, which no key reaches: whoever stops the gauntlet stops them.
#[test]
fn a_gauntlet_that_is_stopped_leaves_nothing_running() {
    let place = tempfile::tempdir().expect("a directory");
    let pid = place.path().join("pid");
    let mut command = std::process::Command::new(analyzer());
    command.args(["gauntlet", "--keep"]).arg(place.path().join("runs")).args(["--", "sh", "-c"]);
    let mut gauntlet = command.arg("echo $$ > \"$PID\"; exec sleep 1000").env("PID", &pid).spawn().expect("it starts");
    let child: i32 = loop {
        match std::fs::read_to_string(&pid).ok().and_then(|text| text.strip_suffix('\n')?.parse().ok()) {
            Some(child) => break child,
            None => std::thread::sleep(std::time::Duration::from_millis(5)),
        }
    };
    // SAFETY: signals to processes that this test has started; number 0 only asks.
    unsafe {
        assert_eq!(libc::kill(gauntlet.id() as i32, libc::SIGTERM), 0);
        assert_eq!(gauntlet.wait().expect("it ends").code(), Some(128 + libc::SIGTERM));
        assert_eq!(libc::kill(child, 0), -1, "the program is gone");
    }
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
