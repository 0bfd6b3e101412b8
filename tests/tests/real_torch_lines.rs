//! Whose line a tensor is of. The program prints each of its lines with the bytes that PyTorch gave there.

use gpuoom_tests::torch_client;

#[test]
fn what_a_package_asks_for_is_the_programs_line() {
    let Some(client) = torch_client("packages.py") else { return };
    let run = client.env("SIM_CAPACITY", "1G").env("GPUOOM_PROBE", "off").run_recorded();
    assert_eq!(run.exit_code(), 0, "{}", run.stderr);
    let mut said: Vec<(String, u64)> = Vec::new();
    for line in run.stdout.lines().filter(|line| line.contains("packages.py:")) {
        let [whose, place, bytes] = line.split(' ').collect::<Vec<_>>()[..] else { panic!("{line}") };
        let asked = if whose == "own" { "" } else { ", in zoo __init__.py:7 Model.weights" };
        said.push((format!("main ({place}{asked})"), bytes.parse().expect("bytes")));
    }
    assert_eq!(said.len(), 3, "{}", run.stdout);
    let report = run.only_trace().report();
    let rows = report.value("/devices/0/tensors/moments/0/allocated_by/rows");
    let rows: Vec<(String, u64)> = rows
        .as_array()
        .expect("rows")
        .iter()
        .map(|row| (row["label"].as_str().expect("a label").to_owned(), row["bytes"].as_u64().expect("bytes")))
        .collect();
    assert_eq!(rows, said);
    let failure = report.excerpt("/ooms/0/stack");
    assert!(failure.contains("Model.weights") && failure.contains("packages.py"), "{failure}");
}
