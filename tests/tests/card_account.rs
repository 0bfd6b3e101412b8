//! The simulated card with `SIM_CARD=h200` against the accounts of a real H200: the same programs, call by call. And the recorder on
//! these programs, as `scripts/gpu-acceptance` holds it against their accounts on a card.

use std::path::{Path, PathBuf};
use std::process::Command;

use gpuoom_tests::{Client, Finished, Library, analyzer, program_with};

/// What `cuMemGetInfo` calls the total of an H200.
const TOTAL_BYTES: &str = "150109880320";
const TOURS: [(&str, Library); 3] =
    [("driver_tour", Library::CudaDriver), ("full", Library::CudaDriver), ("runtime_tour", Library::CudaAndDriver)];

fn clients() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("clients/gpu")
}

fn tour(name: &str, library: Library) -> Client {
    let client = Client::new(program_with(&format!("../gpu/{name}.c"), library));
    client.env("SIM_CARD", "h200").env("SIM_CAPACITY", TOTAL_BYTES)
}

fn python(script: &str, arguments: &[&Path]) {
    let output = Command::new("python3").arg(clients().join(script)).args(arguments).output().expect("python3");
    let text = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{script}: {text}");
}

#[test]
fn the_simulated_card_answers_as_the_real_one() {
    for (name, library) in TOURS {
        let run = tour(name, library).run_plain();
        assert_eq!(run.exit_code(), 0, "{name}: {}", run.stderr);
        let account = run.cwd().join("account.jsonl");
        std::fs::write(&account, &run.stdout).expect("the account");
        python("compare_accounts.py", &[&clients().join(format!("h200/{name}.account.jsonl")), &account]);
    }
}

/// As on the card: the same output without the recorder, and a trace that agrees with the account.
fn assert_agrees(name: &str, plain: &Finished, recorded: &Finished) {
    let dir = tempfile::tempdir().expect("a scratch directory");
    for (suffix, run) in [("-plain", plain), ("", recorded)] {
        let write = |kind: &str, text: &str| std::fs::write(dir.path().join(format!("{name}{suffix}.{kind}")), text);
        write("stdout", &run.stdout).expect("the output");
        write("status", &run.exit_code().to_string()).expect("the status");
    }
    let traces = recorded.traces();
    let own = traces.iter().max_by_key(|trace| trace.events().len()).expect("a trace");
    std::fs::copy(&own.path, dir.path().join(format!("{name}.trace.bin"))).expect("a copy of the trace");
    python("compare_tour.py", &[&analyzer(), dir.path(), Path::new(name)]);
}

#[test]
fn traces_agree_with_the_programs_accounts() {
    for (name, library) in TOURS {
        let plain = tour(name, library).run_plain();
        let recorded = tour(name, library).run_recorded();
        assert_agrees(name, &plain, &recorded);
    }
}

/// What was planned and left no trace, or ended otherwise, is no agreement.
#[test]
fn the_judge_asks_for_each_run_that_was_planned() {
    let dir = tempfile::tempdir().expect("a scratch directory");
    let pack = dir.path().join("pack");
    std::fs::create_dir(&pack).expect("a pack");
    std::os::unix::fs::symlink(analyzer(), pack.join("gpuoom-analyze")).expect("the analyzer in it");
    let write = |name: &str, text: &str| std::fs::write(dir.path().join(name), text).expect("a file");
    let (name, library) = TOURS[2];
    let (plain, recorded) = (tour(name, library).run_plain(), tour(name, library).run_recorded());
    for (suffix, run) in [("-plain", &plain), ("", &recorded)] {
        write(&format!("runtime_tour{suffix}.stdout"), &run.stdout);
        write(&format!("runtime_tour{suffix}.status"), "0\n");
    }
    let trace = dir.path().join("runtime_tour.trace.bin");
    std::fs::copy(&recorded.only_trace().path, &trace).expect("a copy of the trace");
    let judge = || {
        let mut command = Command::new("python3");
        let output =
            command.arg(clients().join("judge.py")).args([pack.as_path(), dir.path()]).output().expect("python3");
        (output.status.code(), String::from_utf8_lossy(&output.stdout).into_owned())
    };
    assert_eq!(judge().0, Some(1), "nothing was planned");
    write("runs.tsv", "runtime_tour\ttour\t0\n");
    let (status, text) = judge();
    assert!(status == Some(0) && text.contains("all 1 runs agree"), "{text}");
    write("runtime_tour.status", "139\n");
    let (status, text) = judge();
    assert!(status == Some(1) && text.contains("it ended with 139, not 0"), "{text}");
    write("runtime_tour.status", "0\n");
    std::fs::remove_file(trace).expect("the trace goes");
    let (status, text) = judge();
    assert!(status == Some(1) && text.contains("runtime_tour.trace.bin is missing or empty"), "{text}");
}
