//! ROCm 6.4.3 of a newer Debian over the simulated card: its thunk is part of HSA's runtime, so that below it there is only
//! the kernel. The trace of all layers against the log of what stands in for it.

use gpuoom_tests::{
    Client, Finished, MIB, TruthLine, assert_addresses_alternate, assert_kernel_agrees, rocm6_client,
};

/// The tour, ending in that way after the real out-of-memory. Without the probe, so that the card sees the program alone.
fn tour(then: &str) -> Option<Client> {
    Some(rocm6_client("hip_tour")?.args(["--then", then]).env("GPUOOM_PROBE", "off"))
}

fn run_tour(then: &str, outcome: &str, because: &str) -> Option<Finished> {
    let run = tour(then)?.run_both();
    let report = run.only_trace().report();
    report.assert_only_oom(outcome, because);
    report.assert_nothing_lost();
    assert_eq!(report.text("/ooms/0/status/name"), "hipErrorOutOfMemory");
    assert_eq!(report.number("/ooms/0/requested_bytes"), 512 * MIB);
    assert_eq!(report.text("/ooms/0/refused_by"), "kernel");
    assert_addresses_alternate(&assert_kernel_agrees(&run));
    Some(run)
}

fn refusals(run: &Finished) -> Vec<TruthLine> {
    run.truth().into_iter().filter(|line| line.event() == "failed").collect()
}

#[test]
fn a_reported_failure_is_propagated() {
    let Some(run) = run_tour("report", "propagated", "error_reported") else { return };
    assert_eq!(refusals(&run).len(), 2, "ROCr trims its caches and asks twice");
    let report = run.only_trace().report();
    assert_eq!(report.number("/devices/0/end/live_allocations"), 0, "the tour frees everything");
    assert_eq!(report.number("/devices/0/total_bytes"), 8 << 30);
    assert!(report.number("/devices/0/peak/requested_bytes") >= 15 * 512 * MIB);
}

#[test]
fn an_ignored_failure_is_dropped() {
    run_tour("ignore", "dropped", "gpu_work_continued");
}

#[test]
fn a_retry_recovers() {
    run_tour("retry", "recovered", "retry_succeeded");
}

#[test]
fn an_abort_propagates() {
    run_tour("abort", "propagated", "process_exited");
}
