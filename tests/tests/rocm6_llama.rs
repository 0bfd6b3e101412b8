//! Real llama.cpp, built for ROCm 5.2, on newer releases over the simulated card: where it fails, and who refused.

use gpuoom_tests::{Finished, MIB, RocmRelease, assert_kernel_agrees, real_clients_dir, rocm_on_card};

fn decode(release: RocmRelease, capacity: &str) -> Option<Finished> {
    let model = real_clients_dir().join("llama.gguf").canonicalize().ok()?;
    let client = rocm_on_card(release, "llama_decode")?.arg("--model").arg(model);
    let run = client.env("SIM_CAPACITY", capacity).env("GPUOOM_PROBE", "off").run_both();
    assert_kernel_agrees(&run);
    run.only_trace().report().assert_nothing_lost();
    Some(run)
}

#[test]
fn a_model_that_fits_has_no_failure() {
    for release in [RocmRelease::V5_7, RocmRelease::V6_4] {
        let Some(run) = decode(release, "512M") else { return };
        let report = run.only_trace().report();
        report.assert_exited(0);
        assert_eq!(report.count("/ooms"), 0, "{release:?}");
        report.assert_no_cause();
    }
}

#[test]
fn each_phase_fails_by_the_kernels_refusal() {
    let places =
        [("17M", "weights", 1..=8 * MIB), ("34M", "kv-cache", 24 * MIB..=24 * MIB), ("190M", "compute", 1..=u64::MAX)];
    for release in [RocmRelease::V5_7, RocmRelease::V6_4] {
        for (capacity, purpose, requested) in places.clone() {
            let Some(run) = decode(release, capacity) else { return };
            let report = run.only_trace().report();
            report.assert_only_oom("propagated", "error_reported");
            report.assert_exited(1);
            let found = (report.text("/ooms/0/api"), report.text("/ooms/0/purpose"), report.text("/ooms/0/refused_by"));
            assert_eq!(found, ("hipMalloc", purpose, "kernel"), "{release:?} {capacity}");
            let size = report.number("/ooms/0/requested_bytes");
            assert!(requested.contains(&size), "{release:?} {capacity}: {size}");
        }
    }
}
