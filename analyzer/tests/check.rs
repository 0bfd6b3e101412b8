//! `check` and `diff --fail-on` as continuous integration calls them.

use std::path::PathBuf;
use std::process::{Command, Output};

use gpuoom_analyze::testing::{GIB, MIB, TraceBuilder};
use gpuoom_trace::record::{Event, Kind};
use serde_json::Value;

struct Place(tempfile::TempDir);

impl Place {
    fn new() -> Self {
        Place(tempfile::tempdir().unwrap())
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn write(&self, name: &str, text: &str) {
        std::fs::write(self.path(name), text).unwrap();
    }

    /// A run that holds so many bytes, by a program with that name.
    fn trace(&self, name: &str, bytes: u64, executable: &str) {
        let mut trace = TraceBuilder::default().device(0, "card", 16 * GIB);
        trace.process.executable = format!("/usr/bin/{executable}");
        trace.alloc(0x1000, bytes);
        trace.free(0x1000);
        trace.write(&self.path(name)).unwrap();
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_gpuoom-analyze"));
        command.args(arguments).current_dir(self.0.path()).env_remove("GITHUB_ACTIONS");
        command
    }

    fn run(&self, arguments: &[&str]) -> Output {
        self.command(arguments).output().unwrap()
    }

    /// What `check` says, and its status.
    fn check(&self, policy: &str, arguments: &[&str]) -> (i32, String, String) {
        self.write("policy.toml", policy);
        let output = self.run(&[&["check", "--policy", "policy.toml"], arguments].concat());
        (output.status.code().unwrap(), text(&output.stdout), text(&output.stderr))
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn the_status_says_whether_budgets_are_kept() {
    let place = Place::new();
    place.trace("run.bin", 2 * GIB, "train");
    let kept = place.check("[[budget]]\npeak = \"2G\"\ndropped = 0\nevents_lost = 0\n", &["run.bin"]);
    assert_eq!((kept.0, kept.2.as_str()), (0, ""), "{}", kept.1);
    assert!(kept.1.starts_with("VERDICT  3 budgets are kept."), "{}", kept.1);
    let (status, out, _) = place.check("[[budget]]\npeak = \"1G\"\nallocations = 1\n", &["run.bin"]);
    assert_eq!(status, 1);
    assert!(out.contains("peak of GPU 0 is 2.00 GiB, 1.00 GiB (100.0 %) too much: at most 1.00 GiB allowed"), "{out}");
    assert!(out.contains("hipMalloc: 2.00 GiB") && out.contains("policy.toml, line 2"), "{out}");
}

#[test]
fn each_format_has_what_was_exceeded() {
    let place = Place::new();
    place.trace("run.bin", 2 * GIB, "train");
    place.write("policy.toml", "[[budget]]\nname = \"small card\"\npeak = \"1G\"\n");
    let of = |format: &str| {
        let output =
            place.run(&["check", "--policy", "policy.toml", "--format", format, "run.bin", "--junit", "junit.xml"]);
        assert_eq!(output.status.code(), Some(1));
        text(&output.stdout)
    };
    assert!(of("markdown").contains("budgets exceeded"));
    let json: Value = serde_json::from_str(&of("json")).unwrap();
    for (pointer, expected) in [
        ("/schema", Value::from("gpuoom.check/1")),
        ("/kept", false.into()),
        ("/runs/0/run/executable", "train".into()),
        ("/runs/0/findings/0/name", "small card".into()),
        ("/runs/0/findings/0/outcome", "exceeded".into()),
        ("/runs/0/findings/0/value", (2 * GIB).into()),
        ("/runs/0/findings/0/limit", GIB.into()),
    ] {
        assert_eq!(json.pointer(pointer), Some(&expected), "{pointer}");
    }
    let junit = std::fs::read_to_string(place.path("junit.xml")).unwrap();
    assert!(junit.contains("failures=\"1\"") && junit.contains("small card"), "{junit}");
}

#[test]
fn limits_that_no_trace_can_judge_fail_only_where_the_policy_says_so() {
    let place = Place::new();
    place.trace("run.bin", 2 * GIB, "train");
    let budget = "[[budget]]\ngrowth_per_mark = \"1M\"\n";
    let (status, out, _) = place.check(budget, &["run.bin"]);
    assert_eq!(status, 0);
    assert!(out.starts_with("VERDICT  1 budget is NOT JUDGED.") && out.contains("unjudged = \"fail\""), "{out}");
    let (status, out, _) = place.check(&format!("unjudged = \"fail\"\n{budget}"), &["run.bin"]);
    assert_eq!(status, 1);
    assert!(out.starts_with("VERDICT  1 budget is NOT JUDGED, which fails the check."), "{out}");
    let (status, out, _) =
        place.check("unjudged = \"fail\"\n[[budget]]\nprocess = \"serve*\"\npeak = 1\n", &["run.bin"]);
    assert_eq!(status, 1);
    assert!(out.contains("no trace is of such a process"), "{out}");
}

#[test]
fn all_traces_together_have_a_budget_of_their_own() {
    let place = Place::new();
    place.trace("one.bin", 2 * GIB, "train");
    place.trace("two.bin", 2 * GIB, "train");
    let policy = "[[budget]]\njob = true\npeak = \"3G\"\nallocations = 2\n[[budget]]\npeak = \"2G\"\n";
    let (status, out, _) = place.check(policy, &["one.bin", "two.bin"]);
    assert_eq!(status, 1);
    let expected = "EXCEEDED peak of GPU 0 (2 processes together) is 4.00 GiB, 1.00 GiB (33.3 %) too much";
    assert!(out.contains(expected) && out.contains("all traces together (2 processes)"), "{out}");
    let (status, out, _) = place.check(policy, &["one.bin", "two.bin", "--format", "json"]);
    assert_eq!(status, 1);
    let json: Value = serde_json::from_str(&out).unwrap();
    let value = |pointer: &str| json.pointer(pointer).cloned();
    assert_eq!(value("/job/processes"), Some(2.into()));
    assert_eq!(value("/job/findings/0/value"), Some((4 * GIB).into()));
    assert_eq!(value("/runs/1/findings/0/outcome"), Some("kept".into()));
    let grown = "[[budget]]\njob = true\npeak = { max_growth = \"5%\" }\n";
    let (status, out, _) = place.check(grown, &["one.bin", "two.bin", "--baseline", "one.bin"]);
    assert_eq!(status, 1, "{out}");
    assert!(out.contains("the base run has 2.00 GiB"), "{out}");
}

#[test]
fn a_python_program_is_called_by_its_script() {
    let place = Place::new();
    let mut trace = TraceBuilder::default().device(0, "card", 16 * GIB);
    trace.process.executable = "/usr/bin/python3.11".into();
    trace.process.command_line = ["python3.11", "-u", "/home/me/train.py"].map(String::from).to_vec();
    trace.alloc(0x1000, 2 * GIB);
    trace.write(&place.path("run.bin")).unwrap();
    let (status, out, _) = place.check("[[budget]]\nprocess = \"train.py\"\npeak = \"1G\"\n", &["run.bin"]);
    assert_eq!(status, 1);
    assert!(out.contains("python3.11 train.py (run.bin)"), "{out}");
}

#[test]
fn annotations_are_written_where_they_are_read() {
    let place = Place::new();
    place.trace("run.bin", 2 * GIB, "train");
    place.write("policy.toml", "[[budget]]\npeak = \"1G\"\n");
    let arguments = ["check", "--policy", "policy.toml", "run.bin"];
    let annotated = |output: Output| {
        text(&output.stderr).contains("::error file=policy.toml,line=2,title=GPU memory%3A peak <= 1G::")
    };
    assert!(annotated(place.command(&arguments).env("GITHUB_ACTIONS", "true").output().unwrap()));
    assert!(annotated(place.run(&[&arguments[..], &["--github"]].concat())));
    assert!(!annotated(place.run(&arguments)));
}

#[test]
fn a_baseline_comes_from_the_policy_or_the_command_line() {
    let place = Place::new();
    std::fs::create_dir(place.path("traces")).unwrap();
    place.trace("base.bin", 2 * GIB, "train");
    place.trace("new.bin", 3 * GIB, "train");
    let relative = "[[budget]]\npeak = { max_growth = \"10%\" }\n";
    let (status, _, err) = place.check(relative, &["new.bin"]);
    assert_eq!(status, 2);
    assert!(
        err.contains(
            "line 2 of the policy compares with a base run, and there is none: give its trace with --baseline"
        ),
        "{err}"
    );
    let (status, out, _) = place.check(relative, &["new.bin", "--baseline", "base.bin"]);
    assert_eq!(status, 1, "{out}");
    assert!(out.contains("grew most") && out.contains("hipMalloc: 3.00 GiB, was 2.00 GiB"), "{out}");
    // Beside the policy, wherever one stands.
    place.write("traces/policy.toml", &format!("baseline = \"../base.bin\"\n{relative}"));
    let output = place.run(&["check", "--policy", "traces/policy.toml", "base.bin"]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
}

#[test]
fn processes_are_judged_by_themselves_and_find_their_own_baseline() {
    let place = Place::new();
    for (name, bytes, program) in [("a.bin", GIB, "train"), ("b.bin", 2 * GIB, "serve"), ("a2.bin", GIB, "train")] {
        place.trace(name, bytes, program);
    }
    let (status, out, _) = place.check("[[budget]]\nprocess = \"tr*\"\npeak = \"1G\"\n", &["a.bin", "b.bin"]);
    assert_eq!(status, 0, "{out}");
    let (status, out, _) = place.check("[[budget]]\npeak = \"1G\"\n", &["a.bin", "b.bin"]);
    assert_eq!((status, out.contains("serve (b.bin)")), (1, true), "{out}");
    let (status, out, _) = place.check("[[budget]]\nprocess = \"other\"\npeak = 1\n", &["a.bin"]);
    assert_eq!((status, out.contains("no trace is of such a process")), (0, true), "{out}");
    let growth = "[[budget]]\npeak = { max_growth = 0 }\n";
    let (status, _, err) = place.check(growth, &["a2.bin", "b.bin", "--baseline", "a.bin"]);
    assert_eq!(status, 2);
    assert!(err.contains("no baseline is of serve, as b.bin is"), "{err}");
    let (status, out, _) = place.check(growth, &["a2.bin", "b.bin", "--baseline", "a.bin", "--baseline", "b.bin"]);
    assert_eq!(status, 0, "{out}");
}

#[test]
fn what_is_read_is_not_written_over() {
    let place = Place::new();
    place.trace("run.bin", GIB, "train");
    place.write("run.tar.gz", "no bundle");
    let policy = "[[budget]]\npeak = \"2G\"\n";
    for (output, what) in
        [("policy.toml", "this is the policy"), ("./run.tar.gz", "this is an input"), ("run.bin", "this is")]
    {
        for option in ["--junit", "-o"] {
            let before = std::fs::read(place.path("run.tar.gz")).unwrap();
            let (status, _, err) = place.check(policy, &["run.bin", "--baseline", "run.tar.gz", option, output]);
            assert_eq!((status, err.contains(what), err.contains("not overwritten")), (2, true, true), "{err}");
            assert_eq!(std::fs::read_to_string(place.path("policy.toml")).unwrap(), policy);
            assert_eq!(std::fs::read(place.path("run.tar.gz")).unwrap(), before);
        }
    }
    let (status, _, err) = place.check(policy, &["run.bin", "--junit", "junit.xml"]);
    assert_eq!((status, place.path("junit.xml").exists()), (0, true), "{err}");
}

#[test]
fn leaks_from_mark_to_mark_are_found() {
    let place = Place::new();
    let mut trace = TraceBuilder::default().device(0, "card", 16 * GIB);
    for step in 0..20 {
        trace.alloc((step + 1) << 32, 3 * MIB);
        let mark = trace.record(Event::Mark, Kind::None, "gpuoom_mark");
        trace.with_text(mark, "step");
    }
    trace.write(&place.path("run.bin")).unwrap();
    let (status, out, _) = place.check("[[budget]]\ngrowth_per_mark = \"1M\"\nmark = \"step\"\n", &["run.bin"]);
    assert_eq!(status, 1);
    assert!(out.contains("growth per mark of GPU 0 is 3 MiB, 2 MiB (200.0 %) too much"), "{out}");
    let (status, out, _) = place.check("[[budget]]\ngrowth_per_second = 0\n", &["run.bin"]);
    assert_eq!((status, out.contains("growth per second of GPU 0 is")), (1, true), "labels make the steps: {out}");
}

#[test]
fn a_policy_that_is_none_ends_in_a_sentence() {
    let place = Place::new();
    place.trace("run.bin", GIB, "train");
    let huge = "# a comment\n".repeat(200_000);
    let deep = format!("baseline = {}", "[".repeat(50_000));
    for (policy, says) in [
        ("[[budget]]\npeek = 1\n", "policy.toml: line 2: unknown key 'peek': do you mean 'peak'?"),
        ("[[budget]]\npeak = -1\n", "policy.toml: line 2: peak: invalid size '-1'"),
        ("[[budget]]\npeak = nan\n", "invalid size 'nan'"),
        ("[[budget]]\npeak = \"12 parsecs\"\n", "invalid size '12 parsecs'"),
        ("[[budget]]\npeak = \"5%\"\n", "'5%' is a share of nothing"),
        ("not toml", "policy.toml: line 1: no TOML"),
        ("", "the policy limits nothing"),
        (&huge, "a policy of more than 1 MiB is none"),
        (&deep, "line 1: no TOML"),
    ] {
        let (status, out, err) = place.check(policy, &["run.bin"]);
        assert_eq!((status, out.as_str()), (2, ""), "{says}: {err}");
        assert!(err.contains(says) && err.lines().count() == 1, "{says}: {err}");
    }
    std::fs::write(place.path("binary.toml"), [0xff, 0xfe, 0]).unwrap();
    for policy in ["missing.toml", "binary.toml", "."] {
        let output = place.run(&["check", "--policy", policy, "run.bin"]);
        assert_eq!(output.status.code(), Some(2), "{policy}: {}", text(&output.stderr));
    }
    let (status, _, err) = place.check("[[budget]]\npeak = 1\n", &["missing.bin"]);
    assert_eq!(status, 3, "{err}");
    let (status, _, err) = place.check("baseline = \"missing.bin\"\n[[budget]]\npeak = 1\n", &["run.bin"]);
    assert_eq!(status, 3, "{err}");
}

/// What is missing may have been more: a gate does not open because a file was cut.
#[test]
fn a_damaged_trace_keeps_no_budget() {
    let place = Place::new();
    let mut trace = TraceBuilder::default().device(0, "card", 16 * GIB);
    trace.slots_per_chunk = 40;
    trace.process.executable = "/usr/bin/train".to_owned();
    for number in 0..200 {
        trace.alloc(0x2_0000_0000 + (number << 30), MIB);
    }
    let bytes = trace.bytes();
    std::fs::write(place.path("whole.bin"), &bytes).unwrap();
    std::fs::write(place.path("cut.bin"), &bytes[..bytes.len() - 200]).unwrap();
    let policy = "[[budget]]\npeak = \"1G\"\nallocations = { min = 100 }\n";
    let (status, out, err) = place.check(policy, &["cut.bin"]);
    assert_eq!(status, 3, "{out}{err}");
    assert!(out.starts_with("VERDICT  1 budget is kept, 1 NOT JUDGED."), "{out}");
    let joined = out.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(joined.contains("note: The trace is damaged: its numbers are of what could be read."), "{out}");
    assert!(joined.contains("part of the trace is missing, and with it there may have been more"), "{out}");
    assert_eq!(place.check(policy, &["whole.bin"]).0, 0);

    // What could be read is enough to exceed a budget.
    assert_eq!(place.check("[[budget]]\npeak = \"10M\"\n", &["cut.bin"]).0, 1);
    let (status, out, _) = place.check("[[budget]]\nevents_lost = 0\n", &["cut.bin"]);
    assert_eq!(status, 1);
    assert!(out.contains("number of lost events is 1, 1 too much"), "{out}");

    let gate = |new: &str| place.run(&["diff", "whole.bin", new, "--fail-on", "peak > base"]).status.code();
    assert_eq!((gate("whole.bin"), gate("cut.bin")), (Some(0), Some(3)));
    let output = place.run(&["diff", "whole.bin", "cut.bin"]);
    assert_eq!(output.status.code(), Some(3));
    let text = String::from_utf8_lossy(&output.stdout).split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(text.contains("NEW is damaged, so this compares only what could be read."), "{text}");
}

#[test]
fn of_several_runs_each_note_says_whose_it_is_and_none_counts_twice() {
    let place = Place::new();
    place.trace("one.bin", GIB, "train");
    let mut other = TraceBuilder::default().device(0, "card", 16 * GIB);
    other.header.events_lost = 3;
    other.process.executable = String::new();
    other.write(&place.path("two.bin")).unwrap();
    let (_, out, err) = place.check("[[budget]]\npeak = \"2G\"\n", &["one.bin", "two.bin", "./one.bin"]);
    assert!(err.contains("one.bin: given twice, used once"), "{err}");
    assert!(out.starts_with("VERDICT  1 budget is kept, 1 NOT JUDGED."), "{out}");
    assert!(out.contains("note: unknown program (two.bin): The trace lost 3 events"), "{out}");
    let text = text(&place.run(&["diff", "one.bin", "two.bin"]).stdout);
    assert!(text.contains("The programs have different names: train and unknown."), "{text}");
}

#[test]
fn a_difference_can_fail() {
    let place = Place::new();
    place.trace("base.bin", 2 * GIB, "train");
    place.trace("new.bin", 3 * GIB, "train");
    let status = |expressions: &[&str]| {
        let mut arguments = vec!["diff", "base.bin", "new.bin"];
        expressions.iter().for_each(|expression| arguments.extend(["--fail-on", expression]));
        let output = place.run(&arguments);
        (output.status.code().unwrap(), text(&output.stdout), text(&output.stderr))
    };
    assert_eq!(status(&["dropped > 0", "peak > base + 60%"]).0, 0);
    let (code, out, _) = status(&["dropped > 0", "peak > base + 5%"]);
    assert_eq!(code, 1);
    assert!(out.contains("FAILED   peak > base + 5%: peak of GPU 0 is 3.00 GiB, 2.00 GiB in the base run"), "{out}");
    assert_eq!(status(&["live_at_end > base", "allocations > base", "peak[site=hip*] >= 3G"]).0, 1);
    let (code, _, err) = status(&["peek > 1"]);
    assert_eq!((code, err.contains("do you mean 'peak'?")), (2, true), "{err}");
    let (code, _, err) = status(&["growth_per_second > 0"]);
    assert_eq!((code, err.contains("--fail-on was not judged")), (0, true), "{err}");
    let json = place.run(&["diff", "base.bin", "new.bin", "--format", "json", "--fail-on", "peak > 1G"]);
    let json: Value = serde_json::from_slice(&json.stdout).unwrap();
    assert_eq!(json.pointer("/failed/0/rule"), Some(&"peak > 1G".into()));
}
