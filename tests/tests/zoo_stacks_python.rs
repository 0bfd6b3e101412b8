//! Python frames in the trace, against what Python itself says of the same calls, for each Python that is installed.

use std::path::Path;

use gpuoom_tests::{Client, Finished, MIB, PythonLine, Trace, plain_program, pythons, sim_dir, zoo_source};
use gpuoom_trace::payload::{MAX_PYTHON_FRAMES, Stack, stack_flag};
use gpuoom_trace::record::Event;

/// File, line, function.
type Frame = (String, u32, String);

/// An allocation as the trace has it.
struct Call {
    mebibytes: u64,
    stack: Stack,
    frames: Vec<Frame>,
}

fn calls(trace: &Trace) -> Vec<Call> {
    let taken = trace.stacked_calls().into_iter().filter(|call| call.record.event() == Some(Event::Alloc));
    // Python's own account has a function's name without what is around it.
    let last = |function: String| function.rsplit('.').next().unwrap_or_default().to_owned();
    let frame = |line: PythonLine| (line.file, line.line, last(line.function));
    taken
        .map(|call| Call {
            mebibytes: call.record.requested / MIB,
            stack: call.stack.expect("an allocation has a stack"),
            frames: call.python.into_iter().map(frame).collect(),
        })
        .collect()
}

/// What the program printed: sizes and frames.
fn truth(stdout: &str) -> Vec<(u64, Vec<Frame>)> {
    let frame = |text: &str| {
        let [file, line, function] = text.split('\t').collect::<Vec<_>>()[..] else { panic!("{text}") };
        (file.to_owned(), line.parse().expect("a line"), function.to_owned())
    };
    let line = |line: &str| {
        let mut parts = line.split('\x1f');
        let size = parts.next().expect("a size").parse().expect("a size");
        (size, parts.map(frame).collect())
    };
    stdout.lines().map(line).collect()
}

fn client(python: &Path, kind: &str) -> Client {
    with_program(Client::new(python), kind)
}

fn with_program(client: Client, kind: &str) -> Client {
    let client = client.arg(zoo_source("py_stacks.py"));
    client.arg(sim_dir().join("libamdhip64.so.6")).arg(kind).env("PYTHONDONTWRITEBYTECODE", "1")
}

fn assert_frames(python: &Path, kind: &str, trace: &Trace, expected: &[(u64, Vec<Frame>)]) {
    let found = calls(trace);
    assert_eq!(found.len(), expected.len(), "{python:?}");
    let mut unseen = 0;
    for (call, (mebibytes, frames)) in found.iter().zip(expected) {
        let cut = &frames[..frames.len().min(MAX_PYTHON_FRAMES)];
        let context = format!("{python:?}, {mebibytes} MiB, flags {:x}", call.stack.flags);
        assert_eq!(call.mebibytes, *mebibytes, "{context}");
        // On a machine that is busy elsewhere a call may go on without its frames, if it has to wait for them.
        if !call.stack.has(stack_flag::PYTHON_SEEN) && kind == "releases" {
            unseen += 1;
            continue;
        }
        assert_eq!(call.frames, cut, "{context}");
        assert!(call.stack.has(stack_flag::PYTHON_SEEN), "{context}");
        assert_eq!(call.stack.has(stack_flag::PYTHON_CUT), cut.len() < frames.len(), "{context}");
    }
    assert!(unseen * 2 <= found.len(), "{python:?}: {unseen} of {}", found.len());
}

fn assert_all_frames(kind: &str) {
    let pythons = pythons();
    assert!(!pythons.is_empty(), "python3 is needed");
    for python in pythons {
        assert_frames_of_run(&python, kind, &client(&python, kind).run_recorded());
    }
}

fn assert_frames_of_run(python: &Path, kind: &str, run: &Finished) {
    assert_eq!(run.exit_code(), 0, "{python:?} {}", run.stderr);
    let truth = truth(&run.stdout);
    // The child takes 16 and 17 before the parent goes on.
    let (child, parent): (Vec<_>, Vec<_>) = truth.into_iter().partition(|(size, _)| [16, 17].contains(size));
    let traces = run.traces();
    assert_eq!(traces.len(), 2, "{python:?}: parent and child");
    for trace in traces {
        let is_child = calls(&trace)[0].mebibytes == 16;
        assert_frames(python, kind, &trace, if is_child { &child } else { &parent });
    }
}

/// As in containers that forbid a process to read memory by the kernel.
#[test]
fn frames_are_the_same_where_the_kernel_refuses_reads() {
    for kind in ["keeps", "releases"] {
        let python = Path::new("python3");
        let client = Client::new(plain_program("without_reads.c")).arg(libc::EPERM.to_string());
        assert_frames_of_run(python, kind, &with_program(client.arg(python), kind).run_recorded());
    }
}

#[test]
fn frames_of_calls_that_keep_the_interpreter() {
    assert_all_frames("keeps");
}

#[test]
fn frames_of_calls_that_release_the_interpreter() {
    assert_all_frames("releases");
}

#[test]
fn frames_can_be_turned_off() {
    for (setting, native, python) in [("native", true, false), ("python", false, true)] {
        let run = client(Path::new("python3"), "keeps").env("GPUOOM_STACKS", setting).run_recorded();
        assert_eq!(run.exit_code(), 0, "{}", run.stderr);
        for trace in run.traces() {
            for call in calls(&trace) {
                assert_eq!((call.stack.native.len() > 1, !call.frames.is_empty()), (native, python), "{setting}");
            }
        }
    }
}

#[test]
fn frames_are_those_of_the_thread_that_calls() {
    for python in pythons() {
        let client = Client::new(&python).arg(zoo_source("py_stacks_busy.py"));
        let client = client.arg(sim_dir().join("libamdhip64.so.6")).env("SIM_CAPACITY", "64G");
        let run = client.run_recorded();
        assert_eq!((run.exit_code(), run.stdout.as_str()), (0, "done\n"), "{python:?} {}", run.stderr);
        let calls = calls(&run.only_trace());
        assert!(calls.len() >= 240, "{python:?}");
        let seen: Vec<_> = calls.iter().filter(|call| call.stack.has(stack_flag::PYTHON_SEEN)).collect();
        for call in &seen {
            assert!(call.frames.len() >= 3, "{python:?} {:?}", call.frames);
            assert_eq!(call.frames[0].2, format!("worker_{}", call.mebibytes), "{python:?} {:?}", call.frames);
        }
        assert!(!seen.is_empty(), "{python:?}");
    }
}
