//! A few of the generator's runs (`scripts/truth`): nothing untrue is proven, and nothing is named where nothing is wrong.

use std::process::Command;

/// Enough for most causes to come once, and few enough to be waited for.
const RUNS: &str = "60";
const SEED: &str = "20261122";

#[test]
fn what_is_proven_is_true_and_healthy_runs_have_no_cause() {
    let output = Command::new(env!("CARGO_BIN_EXE_truth"))
        .args(["--runs", RUNS, "--seed", SEED])
        .output()
        .expect("the generator starts");
    let text = String::from_utf8_lossy(&output.stdout);
    println!("{text}");
    assert!(text.contains("| **all** | 60 |"), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "a run was told something untrue:\n{text}");
}
