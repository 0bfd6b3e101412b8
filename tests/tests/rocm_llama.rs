//! Real llama.cpp on Debian's real HIP runtime, all layers offloaded: a run that fits and four that fail, each in its own
//! place.

use gpuoom_tests::{
    Finished, MIB, ThunkLine, assert_hsa_explains, assert_thunk_agrees, logged_allocations, real_clients_dir,
    recorded_allocations, rocm_client,
};

fn decode(capacity: &str) -> Option<Finished> {
    let model = real_clients_dir().join("llama.gguf");
    let client = rocm_client("llama_decode")?.arg("--model").arg(model);
    let run = client.env("SIMTHUNK_CAPACITY", capacity).env("GPUOOM_PROBE", "off").run_both();
    let events = run.only_trace().events();
    let thunk = ThunkLine::read_all(&run.cwd().join("thunk.log"));
    assert_thunk_agrees(&thunk, &events);
    assert_hsa_explains(&thunk, &events);
    run.only_trace().report().assert_nothing_lost();
    Some(run)
}

/// Bytes of the buffer that llama.cpp computes in.
const COMPUTE: u64 = 152_571_968;

/// `llama_decode` is a forward pass. Whether it is the first one, a pause behind the load tells, and so the time that it took.
const DECODE: &str = "oom-first-forward";

fn assert_fails(
    capacity: &str,
    purpose: &str,
    requested: std::ops::RangeInclusive<u64>,
    refusals: usize,
    cause: (&str, &str),
) {
    let Some(run) = decode(capacity) else { return };
    let report = run.only_trace().report();
    match cause.1 {
        // What it is, the names of functions say, or the model's facts.
        "" => assert!(
            report
                .diagnoses()
                .iter()
                .all(|found| found.confidence != "proven" || [cause.0, DECODE].contains(&found.id.as_str()))
        ),
        sure => report.assert_diagnosed(cause.0, sure),
    }
    report.assert_only_oom("propagated", "error_reported");
    report.assert_exited(1);
    assert_eq!(report.text("/ooms/0/api"), "hipMalloc");
    let size = report.number("/ooms/0/requested_bytes");
    assert!(requested.contains(&size), "{size}");
    // A static build, so only functions on the way to the call say it.
    assert_eq!(report.text("/ooms/0/purpose"), purpose);
    let other = if purpose == "kv-cache" { "oom-model-load" } else { "kv-cache-prealloc" };
    assert!(report.diagnoses().iter().all(|found| found.id != other), "{:?}", report.diagnoses());
    let thunk = ThunkLine::read_all(&run.cwd().join("thunk.log"));
    assert_eq!(thunk.iter().filter(|line| line.status == "no_memory").count(), refusals);
    // A request larger than the card is refused by HIP, and nothing below it is asked.
    assert_eq!(report.text("/ooms/0/refused_by"), if refusals > 0 { "hsa" } else { "runtime" });
    assert!(run.stderr.contains("hipErrorOutOfMemory"), "llama.cpp says it itself: {}", run.stderr);
    if refusals > 0 {
        assert_model_decides(&run, cause.0, size);
    }
}

/// What the model's file says makes it a matter of arithmetic; facts of another model exclude it.
fn assert_model_decides(run: &Finished, id: &str, requested_bytes: u64) {
    let model = real_clients_dir().join("llama.gguf");
    let report = run.only_trace().report_with(&["--gguf".as_ref(), model.as_os_str()]);
    if requested_bytes == COMPUTE {
        // The cache was given: what failed is another buffer.
        assert!(report.diagnoses().iter().all(|found| found.id != id), "{:?}", report.diagnoses());
        return;
    }
    report.assert_cause(id, "proven");
    let others: Vec<_> = report.diagnoses().into_iter().filter(|found| found.id != id).collect();
    assert!(others.iter().all(|found| found.confidence != "proven"), "{others:?}");
    let small = "layers=6,kv_heads=8,head_dim=32,context=2048,weights=1M";
    let report = run.only_trace().report_with(&["--model".as_ref(), small.as_ref()]);
    assert!(report.diagnoses().iter().all(|found| found.id != id), "{:?}", report.diagnoses());
}

#[test]
fn a_model_that_fits_has_no_failure() {
    let Some(run) = decode("512M") else { return };
    let report = run.only_trace().report();
    report.assert_exited(0);
    assert_eq!(report.count("/ooms"), 0);
    report.assert_no_cause();
    assert_eq!(report.number("/devices/0/failures"), 0);
    let events = run.only_trace().events();
    let blocks = events.iter().filter(|event| event.api() == "hipMalloc" && event.parent().is_none()).count();
    assert_eq!(blocks, 65, "56 tensors, two halves of the KV cache, one scratch buffer, six blocks of ggml's pool");
    assert!(run.recorder_lines().is_empty(), "a healthy run prints nothing: {:?}", run.recorder_lines());
}

/// What the ways to the calls say is what llama.cpp logs of its memory on the card.
#[test]
fn memory_is_for_what_llama_cpp_says_it_is() {
    let words = [("weights", "VRAM used:"), ("kv-cache", "VRAM kv self ="), ("compute", "VRAM scratch buffer:")];
    for (capacity, moment, sorts) in [("34M", "oom:1", 1), ("190M", "oom:1", 2), ("512M", "peak", 3)] {
        let Some(run) = decode(capacity) else { return };
        let report = run.only_trace().report();
        assert!(report.flag("/devices/0/tensors/by_call_paths"));
        let found = report.buffers(0, moment);
        assert_eq!(found.len(), sorts, "{found:?}");
        for (kind, bytes) in found {
            let (_, word) = words.iter().find(|(known, _)| *known == kind).expect("one of the three");
            let line = run.stderr.lines().find(|line| line.contains(word)).expect("a line of llama.cpp's");
            let logged = line.split(word).nth(1).and_then(|rest| rest.split_whitespace().next()).expect("a size");
            let (logged, found) = (logged.parse::<f64>().unwrap(), bytes as f64 / MIB as f64);
            match kind.as_str() {
                // It counts tensors, and asks for each with its last row padded: half a KiB more.
                "weights" => assert!((logged - 0.01..logged + 56.0 / 1024.0).contains(&found), "{found} {logged}"),
                _ => assert_eq!(format!("{found:.2}"), format!("{logged:.2}"), "{kind}"),
            }
        }
    }
}

#[test]
fn weights_that_do_not_fit() {
    assert_fails("8M", "weights", 1..=MIB * 8, 2, ("oom-model-load", "proven"));
}

/// This llama.cpp asks for each tensor by itself, and for the cache in two halves: only the call site tells them apart.
#[test]
fn a_kv_cache_that_does_not_fit() {
    assert_fails("34M", "kv-cache", 25_165_824..=25_165_824, 2, ("kv-cache-prealloc", "proven"));
}

#[test]
fn a_kv_cache_whose_second_half_does_not_fit() {
    assert_fails("55M", "kv-cache", 25_165_824..=25_165_824, 2, ("kv-cache-prealloc", "proven"));
}

#[test]
fn a_compute_buffer_that_the_driver_refuses() {
    assert_fails("190M", "compute", COMPUTE..=COMPUTE, 2, ("kv-cache-prealloc", ""));
}

/// The simulated machine does not tell whether its GPU shares the RAM, so the size of the card is not known to be its limit.
#[test]
fn a_compute_buffer_larger_than_the_card_never_reaches_the_driver() {
    assert_fails("120M", "compute", COMPUTE..=COMPUTE, 0, ("request-exceeds-device", "probable"));
}

/// HIP's own log names each call, its size, its status and its pointer: the trace has the same, call by call.
#[test]
fn every_call_is_as_hip_logs_it() {
    for capacity in ["8M", "34M", "190M", "512M"] {
        let Some(client) = rocm_client("llama_decode") else { return };
        let client = client.arg("--model").arg(real_clients_dir().join("llama.gguf")).env("GPUOOM_PROBE", "off");
        let run = client.env("SIMTHUNK_CAPACITY", capacity).env("AMD_LOG_LEVEL", "3").run_recorded();
        let logged = logged_allocations(&run.stderr);
        assert!(logged.len() > 2, "HIP logged nothing: {}", run.stderr);
        assert_eq!(recorded_allocations(&run.only_trace().events()), logged, "with {capacity}");
    }
}
