//! llama.cpp's prebuilt CUDA backend, loaded into Node, over the simulated CUDA: a run that fits and three that fail, each in
//! its own place.

use std::collections::{BTreeMap, BTreeSet};

use gpuoom_tests::{
    Client, Diagnosis, Event, Finished, MIB, Trace, TruthLine, llama_cuda_client, real_clients_dir, stubs_called,
};
use gpuoom_trace::record::{self, message};

fn generate(capacity: &str) -> Option<Finished> {
    let client = llama_cuda_client()?.env("SIM_CAPACITY", capacity).env("GPUOOM_PROBE", "off");
    let run = client.run_both();
    run.assert_cuda_trace_is_true();
    assert_eq!(stubs_called(&run), Default::default(), "functions that the simulated CUDA lacks");
    main_trace(&run).report().assert_nothing_lost();
    Some(run)
}

/// node-llama-cpp first loads the backend into a process of its own, to see whether it works. That one has a trace too, of a
/// card that nobody took memory from.
fn main_trace(run: &Finished) -> Trace {
    let mut traces = run.traces();
    traces.retain(|trace| trace.events().iter().any(|event| event.event() == "alloc"));
    assert_eq!(traces.len(), 1, "{traces:?}");
    traces.remove(0)
}

/// `shape` is what the model's facts prove; `other` is what nothing may say, with facts or without.
fn assert_fails(
    capacity: &str,
    phase: &str,
    (purpose, requested_bytes): (&str, u64),
    shape: Option<&str>,
    other: &str,
) {
    let Some(run) = generate(capacity) else { return };
    assert!(run.stdout.contains(&format!("failed in {phase}: ")), "{}", run.stdout);
    let report = main_trace(&run).report();
    report.assert_exited(1);
    report.assert_only_oom("propagated", "exception");
    assert_eq!((report.text("/ooms/0/api"), report.text("/ooms/0/refused_by")), ("cudaMalloc", "driver"));
    assert_eq!(report.number("/ooms/0/requested_bytes"), requested_bytes);
    assert_eq!(report.text("/ooms/0/purpose"), purpose);
    let sentence = report.text("/verdict/sentence");
    assert!(sentence.contains(&format!(" MiB {} (cudaMalloc)", what_for(purpose))), "{sentence}");
    // Each of them is more than the whole card, which is small here, and comes where it does.
    report.assert_cause("request-exceeds-device", "proven");
    // llama.cpp's own functions, on the way to the call, say which buffer it is.
    shape.into_iter().for_each(|shape| report.assert_diagnosed(shape, "proven"));
    let is_other = |found: &Diagnosis| found.confidence != "possible" && found.id == other;
    assert!(!report.diagnoses().iter().any(is_other), "{:?}", report.diagnoses());
    // What the file of the model says, or a user, makes it a matter of arithmetic.
    let model = real_clients_dir().join("llama.gguf");
    let report = main_trace(&run).report_with(&["--gguf".as_ref(), model.as_os_str()]);
    shape.into_iter().for_each(|shape| report.assert_diagnosed(shape, "proven"));
    assert!(report.diagnoses().iter().all(|found| found.id != other), "{:?}", report.diagnoses());
    let half = "layers=6,kv_heads=8,head_dim=32,context=4096,weights=6M";
    let report = main_trace(&run).report_with(&["--model".as_ref(), half.as_ref()]);
    assert!(report.diagnoses().iter().all(|found| Some(&found.id[..]) != shape), "{:?}", report.diagnoses());
    assert!(run.stderr.contains("cudaMalloc failed: out of memory"), "llama.cpp says it itself: {}", run.stderr);
    let messages = main_trace(&run).told(&[record::Event::Message]);
    assert_eq!(messages[0].status, message::LOG);
    assert_eq!(report.text("/ooms/0/message_from"), "log");
    let exception = messages.iter().find(|message| message.status == message::EXCEPTION).expect("an exception");
    assert!(exception.text.contains("allocate"), "and in its exceptions: {messages:?}");
    assert_message_is_logged(&run, 0);
}

fn what_for(purpose: &str) -> &'static str {
    match purpose {
        "weights" => "for weights",
        "kv-cache" => "for the KV cache",
        _ => "for a compute buffer",
    }
}

/// The message of the report's failure is a line of llama.cpp's own log, about this failure.
fn assert_message_is_logged(run: &Finished, failure: usize) {
    let report = main_trace(run).report();
    let at = |name: &str| format!("/ooms/{failure}/{name}");
    let message = report.text(&at("message"));
    assert!(run.stderr.lines().any(|line| line.ends_with(&format!(": {message}"))), "{message}: {}", run.stderr);
    let mib = report.number(&at("requested_bytes")) as f64 / MIB as f64;
    let said =
        format!("allocating {mib:.2} MiB on device {}: cudaMalloc failed: out of memory", report.number(&at("device")));
    assert!(message.ends_with(&said), "{message}, and not {said}");
}

/// llama.cpp's own words: "CUDA0 model buffer size = 12.51 MiB", by what the buffer is for. In 2024 the word "model" was missing.
fn logged(stderr: &str, card: usize) -> BTreeMap<String, String> {
    let kinds = [(" model", "weights"), ("", "weights"), (" KV", "kv-cache"), (" compute", "compute")];
    let mut found = BTreeMap::new();
    for (word, kind) in kinds {
        let lines = stderr.lines().filter(|line| line.contains(&format!("CUDA{card}{word} buffer size =")));
        let sizes: Vec<f64> =
            lines.map(|line| line.split_whitespace().rev().nth(1).expect("a size").parse().unwrap()).collect();
        assert!(sizes.len() < 2, "{sizes:?}");
        sizes.into_iter().for_each(|size| _ = found.insert(kind.to_owned(), format!("{size:.2}")));
    }
    found
}

fn in_mib(buffers: BTreeMap<String, u64>) -> BTreeMap<String, String> {
    buffers.into_iter().map(|(kind, bytes)| (kind, format!("{:.2}", bytes as f64 / MIB as f64))).collect()
}

/// What ggml tells, and what only the ways to the calls say, is what llama.cpp logs of its buffers.
#[test]
fn buffers_are_for_what_llama_cpp_says_they_are() {
    for (capacity, moment, buffers) in
        [("4M", "oom:1", 0), ("34M", "oom:1", 1), ("100M", "oom:1", 2), ("1G", "peak", 3)]
    {
        for setting in ["on", "off"] {
            let Some(client) = llama_cuda_client() else { return };
            let client =
                client.env("SIM_CAPACITY", capacity).env("GPUOOM_PROBE", "off").env("GPUOOM_FRAMEWORK", setting);
            let run = client.env("LLAMA_LOG_LEVEL", "info").run_recorded();
            let logged = logged(&run.stderr, 0);
            assert_eq!(logged.len(), buffers, "{}", run.stderr);
            let report = main_trace(&run).report();
            assert_eq!(in_mib(report.buffers(0, moment)), logged, "{capacity} {setting}");
            if buffers > 0 {
                assert_eq!(report.flag("/devices/0/tensors/by_call_paths"), setting == "off");
            }
        }
    }
}

/// Layers are spread over both cards, and so is the cache. Each card has a buffer to compute in.
#[test]
fn each_card_has_the_buffers_that_llama_cpp_says() {
    for setting in ["on", "off"] {
        let Some(client) = two_cards() else { return };
        let run = client.env("GPUOOM_FRAMEWORK", setting).run_recorded();
        assert_eq!(run.exit_code(), 0, "{}", run.stderr);
        let report = main_trace(&run).report();
        for card in 0..2 {
            let logged = logged(&run.stderr, card);
            assert_eq!(logged.len(), 3, "{}", run.stderr);
            assert_eq!(in_mib(report.buffers(card, "peak")), logged, "card {card}, {setting}");
        }
    }
}

fn two_cards() -> Option<Client> {
    let client = llama_cuda_client()?.env("SIM_CAPACITY", "1G").env("SIM_DEVICES", "2").env("GPUOOM_PROBE", "off");
    Some(client.env("LLAMA_LOG_LEVEL", "info"))
}

/// The simulated driver refuses one call after the other, whatever it is for: llama.cpp says which card that was of, and how much.
#[test]
fn a_failure_of_either_card_is_that_cards() {
    let mut found = BTreeMap::new();
    for number in 1..18 {
        let Some(client) = two_cards() else { return };
        let run = client.env("SIM_FAIL_AT", number.to_string()).run_recorded();
        let Some(line) = run.stderr.lines().find(|line| line.contains("cudaMalloc failed: out of memory")) else {
            continue;
        };
        assert_message_is_logged(&run, 0);
        let report = main_trace(&run).report();
        assert!(line.ends_with(report.text("/ooms/0/message")), "the first of its lines: {line}");
        let failed = (report.number("/ooms/0/device"), report.text("/ooms/0/purpose").to_owned());
        // Versions of 2026 then do with less of it, where they can.
        let outcome = if run.stderr.contains("retrying without pipeline") { "recovered" } else { "propagated" };
        assert_eq!(report.text("/ooms/0/outcome"), outcome, "{failed:?}");
        found.insert(failed, number);
    }
    let each = ["weights", "kv-cache", "compute"].iter().flat_map(|what| [0, 1].map(|card| (card, (*what).to_owned())));
    assert_eq!(found.keys().cloned().collect::<BTreeSet<_>>(), each.collect::<BTreeSet<_>>(), "{found:?}");
}

/// What comes after its buffers (here cuBLAS's work space) ggml can't do without: it aborts.
#[test]
fn last_words_of_an_abort_are_kept() {
    let Some(client) = llama_cuda_client() else { return };
    // Node's logger and the abort race on stderr, so two runs may print differently. Without a backtrace: no debugger is started.
    let client = client.env("SIM_CAPACITY", "216M").env("GPUOOM_PROBE", "off").env("GGML_NO_BACKTRACE", "1");
    let run = client.run_recorded();
    let messages = main_trace(&run).told(&[record::Event::Message]);
    let last = messages.last().expect("ggml's last words");
    assert_eq!((last.api.as_str(), last.status), ("ggml_abort", message::ABORT));
    assert!(last.text.contains("ggml-cuda.cu:") && last.text.ends_with(": CUDA error"), "{}", last.text);
}

const WEIGHTS: u64 = 13_120_512;
const KV_CACHE: u64 = 50_331_648;
const COMPUTE: u64 = 157_298_688;

#[test]
fn a_model_that_fits_has_no_failure() {
    let Some(run) = generate("1G") else { return };
    assert!(run.stdout.contains("tokens: 8\n"), "{}", run.stdout);
    let report = main_trace(&run).report();
    report.assert_exited(0);
    report.assert_no_growth();
    report.assert_no_cause();
    assert_eq!(report.count("/ooms"), 0);
    assert_eq!(report.number("/devices/0/end/requested_bytes"), 0, "all given back");
    let events = main_trace(&run).events();
    let buffers = events.iter().filter(|event| event.api() == "cudaMalloc").map(Event::requested_bytes);
    let buffers: Vec<_> = buffers.collect();
    assert_eq!(buffers[..3], [WEIGHTS, KV_CACHE, COMPUTE], "and cuBLAS's work space: {buffers:?}");
    assert!(run.recorder_lines().is_empty(), "a healthy run prints nothing: {:?}", run.recorder_lines());
}

/// The pool takes physical memory, maps it and releases the handle at once: the memory lives until it is unmapped.
#[test]
fn the_pool_of_virtual_memory_lives_until_it_is_unmapped() {
    let Some(run) = generate("1G") else { return };
    let events = main_trace(&run).events();
    let position = |api: &str| events.iter().position(|event| event.api() == api);
    let order: Vec<_> = ["cuMemCreate", "cuMemMap", "cuMemRelease", "cuMemUnmap"].map(position).into();
    assert!(order.iter().all(Option::is_some) && order.is_sorted(), "{order:?}");
    let peak = run.truth().iter().map(TruthLine::device_used_bytes).max().expect("a log");
    let report = main_trace(&run).report();
    let padded = report.number("/devices/0/peak/requested_bytes").next_multiple_of(2 * MIB);
    assert!(padded <= peak && peak - padded < 8 * MIB, "peak {padded} with each request rounded up, the card's {peak}");
}

#[test]
fn weights_that_do_not_fit() {
    assert_fails("4M", "load", ("weights", WEIGHTS), Some("oom-model-load"), "kv-cache-prealloc");
}

#[test]
fn a_kv_cache_that_does_not_fit() {
    assert_fails("34M", "context", ("kv-cache", KV_CACHE), Some("kv-cache-prealloc"), "oom-model-load");
}

#[test]
fn a_compute_buffer_that_does_not_fit() {
    assert_fails("100M", "context", ("compute", COMPUTE), None, "kv-cache-prealloc");
}
