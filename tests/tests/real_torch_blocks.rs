//! Each block of PyTorch's caching allocator is in the trace, as PyTorch's own account has it.

use std::collections::HashMap;
use std::os::unix::process::ExitStatusExt;

use gpuoom_tests::{Finished, ToldBlocks, told_blocks, torch_client};
use serde_json::Value;

const NATIVE: &str = "backend:native";
const EXPANDABLE: &str = "expandable_segments:True";

fn run(scenario: &str, setting: &str) -> Option<(Finished, ToldBlocks)> {
    let client = torch_client("blocks.py")?.arg(scenario).arg("account.json").env("PYTORCH_CUDA_ALLOC_CONF", setting);
    let run = client.env("SIM_CAPACITY", "4G").env("SIM_DEVICES", "2").env("GPUOOM_PROBE", "off").run_recorded();
    if run.stderr.contains("Unrecognized CachingAllocator option") {
        println!("told: {setting}: this version has no such setting");
        return None;
    }
    assert_eq!(run.exit_code(), 0, "{scenario} {setting}: {}", run.stderr);
    let told = told_blocks(&run.only_trace().path);
    Some((run, told))
}

/// PyTorch's own account.
fn account(run: &Finished) -> Value {
    let text = std::fs::read_to_string(run.cwd().join("account.json")).expect("PyTorch's account");
    serde_json::from_str(&text).expect("JSON")
}

fn assert_account(scenario: &str, setting: &str) {
    let Some((run, told)) = run(scenario, setting) else { return };
    let account = account(&run);
    let context = format!("{scenario}, {setting}");
    assert_eq!((told.mismatches, told.strange), (0, 0), "{context}");
    let number = |value: &Value| value.as_u64().unwrap_or_else(|| panic!("{context}: {value}"));
    let own: HashMap<(u8, u64), u64> = account["blocks"]
        .as_array()
        .expect("blocks")
        .iter()
        .map(|block| ((number(&block["device"]) as u8, number(&block["address"])), number(&block["bytes"])))
        .collect();
    assert_eq!(told.live, own, "{context}: block by block");
    assert_eq!((told.given, told.taken), (number(&account["given"]), number(&account["taken"])), "{context}");
    for (device, totals) in account["totals"].as_object().expect("devices") {
        let own = (number(&totals[0]), number(&totals[1]));
        let device: u8 = device.parse().expect("an index");
        assert_eq!(told.totals[&device].0, own.0, "{context}, device {device}: allocated");
    }
    assert_eq!(told.with_native, told.given, "{context}");
    println!(
        "told: {context}: {} blocks given, {} taken back, {} of them with Python frames",
        told.given, told.taken, told.with_python
    );
    // A stack that is new is asked for within a share of the run time; on a busy machine that is few.
    assert!(told.with_python * 2 >= told.given, "{context}: {} of {}", told.with_python, told.given);
}

#[test]
fn blocks_are_those_of_the_native_allocator() {
    assert_account("all", NATIVE);
}

#[test]
fn blocks_are_those_of_expandable_segments() {
    assert_account("all", EXPANDABLE);
}

/// There each block is a call of the runtime anyway.
#[test]
fn the_asynchronous_back_end_tells_nothing() {
    let Some((run, told)) = run("training", "backend:cudaMallocAsync") else { return };
    assert_eq!(told, ToldBlocks::default());
    assert!(run.only_trace().report().number("/devices/0/allocations") > 50);
}

/// Threads that are in the middle of an allocation when Python goes.
#[test]
fn threads_that_python_leaves_behind_are_left_in_peace() {
    // PyTorch's own threads end such a program by `terminate`, without the recorder, too.
    for _ in 0..3 {
        let Some(client) = torch_client("blocks.py") else { return };
        let run = client.arg("daemons").arg("account.json").env("SIM_CAPACITY", "4G").run_recorded();
        let ending = (run.status.code(), run.status.signal());
        assert!([(Some(0), None), (None, Some(libc::SIGABRT))].contains(&ending), "{ending:?} {}", run.stderr);
        let told = told_blocks(&run.only_trace().path);
        assert_eq!((told.mismatches, told.strange), (0, 0));
        assert!(told.given > 0);
    }
}

/// One process has memory of another one's, which is no block of its own.
#[test]
fn each_process_tells_of_its_own_blocks() {
    let Some(client) = torch_client("processes.py") else { return };
    let run = client.env("SIM_CAPACITY", "4G").run_recorded();
    assert_eq!(run.exit_code(), 0, "{}", run.stderr);
    assert!(run.stdout.contains("children: [0, 0]"), "{}", run.stdout);
    let said = run.stdout.lines().filter_map(|line| line.split_once(": ")).filter(|(who, _)| *who != "children");
    let traces = run.traces();
    let mut processes = 0;
    for (who, numbers) in said {
        let numbers: Vec<u64> = numbers.split(' ').map(|number| number.parse().expect("a number")).collect();
        let name = format!("-{}.trace.bin", numbers[0]);
        let trace = traces.iter().find(|trace| trace.path.to_string_lossy().ends_with(&name));
        let told = told_blocks(&trace.unwrap_or_else(|| panic!("{who} has a trace")).path);
        assert_eq!((told.mismatches, told.strange, told.given), (0, 0, numbers[1]), "{who}");
        // The children give back what they kept before they end.
        let taken_at_least = numbers[2];
        assert!(told.taken >= taken_at_least, "{who}: {} of {taken_at_least}", told.taken);
        processes += 1;
    }
    assert_eq!((processes, traces.len()), (3, 3));
}
