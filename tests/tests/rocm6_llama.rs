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

/// Memory of the card, what failed, how large that may be, and who refused.
type Case = (&'static str, &'static str, std::ops::RangeInclusive<u64>, &'static str);

fn assert_fails(release: RocmRelease, (capacity, purpose, requested, refused_by): Case) {
    let Some(run) = decode(release, capacity) else { return };
    let report = run.only_trace().report();
    report.assert_only_oom("propagated", "error_reported");
    report.assert_exited(1);
    let found = (report.text("/ooms/0/api"), report.text("/ooms/0/purpose"), report.text("/ooms/0/refused_by"));
    assert_eq!(found, ("hipMalloc", purpose, refused_by), "{release:?} {capacity}");
    let size = report.number("/ooms/0/requested_bytes");
    assert!(requested.contains(&size), "{release:?} {capacity}: {size}");
}

#[test]
fn weights_and_cache_are_refused_by_the_kernel() {
    for release in [RocmRelease::V5_7, RocmRelease::V6_4] {
        assert_fails(release, ("17M", "weights", 1..=8 * MIB, "kernel"));
        assert_fails(release, ("34M", "kv-cache", 24 * MIB..=24 * MIB, "kernel"));
    }
}

/// HIP 5.2 asks the kernel for it. Newer ones have no room by their own count, and ask nobody.
#[test]
fn the_compute_buffer_is_refused_by_hip_itself() {
    const COMPUTE: u64 = 152_571_968;
    assert_fails(RocmRelease::V5_2, ("190M", "compute", COMPUTE..=COMPUTE, "kernel"));
    assert_fails(RocmRelease::V5_7, ("190M", "compute", COMPUTE..=COMPUTE, "runtime"));
    assert_fails(RocmRelease::V6_4, ("190M", "compute", COMPUTE..=COMPUTE, "runtime"));
}
