//! Failures on request in real programs: PyTorch's wheel and llama.cpp, on virtual cards and through the gauntlet.

use gpuoom_tests::{
    Client, Finished, GauntletRun, MIB, Row, llama_cuda_client, real_clients_dir, rocm_client, torch_client,
};

/// No failure on request is dropped by these programs, and no run hangs.
fn assert_none_dropped(gauntlet: &GauntletRun, at_least: usize) {
    let rows = gauntlet.rows();
    assert!(rows.len() >= at_least, "{rows:#?}");
    for row in &rows {
        println!(
            "| {} > {} | {} MiB | {} ({}) | {} |",
            row.name,
            row.operator,
            row.requested_bytes / MIB,
            row.fate,
            row.because,
            row.ending
        );
        assert!(!matches!(&row.fate[..], "dropped" | "not_reached") && row.ending != "hung", "{row:#?}");
    }
    assert_eq!(gauntlet.run.exit_code(), 0);
}

fn assert_all_by_the_virtual_card(run: &Finished) -> usize {
    let traces = run.traces();
    let events: Vec<_> = traces.iter().flat_map(|trace| trace.events()).collect();
    let refused = events.iter().filter(|event| event.event() == "alloc" && event.is_programs_own() && event.failed());
    let refused: Vec<_> = refused.collect();
    assert!(refused.iter().all(|event| event.is_injected()), "{refused:#?}");
    let reached = run.truth().iter().filter(|line| line.event() == "failed").count();
    assert_eq!(reached, 0, "nothing that was refused reached the device");
    refused.len()
}

/// The program says the same on a virtual card as on a simulated card that is so small: its own out-of-memory error.
#[test]
fn torch_runs_out_of_memory_on_a_virtual_card_as_on_a_real_one() {
    let Some(client) = torch_client("oom.py") else { return };
    let small = client.arg("uncaught").env("SIM_CAPACITY", "128M").env("GPUOOM_PROBE", "off").run_plain();
    let Some(client) = torch_client("oom.py") else { return };
    let client = client
        .arg("uncaught")
        .env("SIM_CAPACITY", "16G")
        .env("GPUOOM_CAPACITY", "128M")
        .env("GPUOOM_GRANULARITY", "2M");
    let virtual_card = client.env("GPUOOM_PROBE", "off").run_recorded();
    assert_eq!(virtual_card.stdout, small.stdout, "{}", virtual_card.stderr);
    assert_eq!(virtual_card.status, small.status);
    let message = |run: &Finished| {
        run.program_stderr().lines().find(|line| line.contains("OutOfMemoryError")).unwrap_or_default().to_owned()
    };
    assert!(message(&virtual_card).contains("Tried to allocate"), "{}", virtual_card.stderr);
    // Whose process is named there depends on the run.
    let start = |text: String| text.split(" Process ").next().unwrap_or_default().to_owned();
    assert_eq!(start(message(&virtual_card)), start(message(&small)));
    assert!(assert_all_by_the_virtual_card(&virtual_card) > 0);
    let report = virtual_card.only_trace().report();
    assert_eq!(report.text("/ooms/0/refused_by"), "injected");
    let causes = report.causes();
    assert!(!causes.is_empty() && causes.iter().all(|cause| cause == "requested-refusal"), "{causes:?}");
}

#[test]
fn torch_lets_out_each_failure_that_it_does_not_mend() {
    let Some(client) = torch_client("train.py") else { return };
    let gauntlet = client.env("SIM_CAPACITY", "16G").run_gauntlet(&["--limit", "4"]);
    assert_none_dropped(&gauntlet, 1);
    // The rows name the program's own lines, beside them what these called. A backward pass runs on a thread of PyTorch's
    // without Python.
    let lines = |row: &&Row| row.name.starts_with("train (train.py) line ") && !row.operator.is_empty();
    assert!(gauntlet.rows().iter().filter(lines).count() >= 3, "{:#?}", gauntlet.rows());
}

fn llama_cuda() -> Option<Client> {
    Some(llama_cuda_client()?.env("SIM_CAPACITY", "1G"))
}

#[test]
fn llama_on_cuda_lets_out_each_failure() {
    let Some(client) = llama_cuda() else { return };
    assert_none_dropped(&client.run_gauntlet(&["--limit", "8"]), 3);
}

#[test]
fn llama_on_cuda_meets_the_end_of_a_virtual_card() {
    let Some(client) = llama_cuda() else { return };
    let run = client.env("GPUOOM_CAPACITY", "100M").env("GPUOOM_GRANULARITY", "2M").run_recorded();
    assert!(run.stdout.contains("failed in "), "{} {}", run.stdout, run.stderr);
    assert!(assert_all_by_the_virtual_card(&run) > 0);
}

#[test]
fn llama_on_rocm_lets_out_each_failure() {
    let Some(client) = rocm_client("llama_decode") else { return };
    let client = client.arg("--model").arg(real_clients_dir().join("llama.gguf")).env("SIMTHUNK_CAPACITY", "512M");
    assert_none_dropped(&client.run_gauntlet(&["--limit", "8"]), 3);
}

#[test]
fn the_hip_tour_under_the_gauntlet() {
    let Some(client) = rocm_client("hip_tour") else { return };
    let gauntlet = client.args(["--then", "report"]).run_gauntlet(&["--limit", "12"]);
    let rows = gauntlet.rows();
    assert!(rows.len() >= 3, "{rows:#?}");
    for row in &rows {
        println!(
            "| {} | {} MiB | {} ({}) | {} |",
            row.name,
            row.requested_bytes / MIB,
            row.fate,
            row.because,
            row.ending
        );
        assert!(row.fate != "not_reached" && row.ending != "hung", "{row:#?}");
    }
}
