//! AMD's HIP Python and NVIDIA's cuda-bindings: Python packages that reach each function by a look-up of their own. The trace against
//! the log of the simulated HIP and CUDA, against the simulated card's below the real HIP, and against what the programs themselves
//! wrote down of their calls.

use std::collections::BTreeMap;
use std::fs;

use gpuoom_tests::{
    Client, Event, Finished, MIB, Report, assert_addresses_alternate, assert_kernel_agrees, bindings_client,
    hip_python_on_card,
};
use gpuoom_trace::record;

/// The bindings whose functions are reached over a simulated library: folder of packages, program, version of the driver.
const SIMULATED: [(&str, &str, &str); 5] = [
    ("hip", "hip_calls.py", ""),
    ("cuda13", "cuda_driver_calls.py", "13020"),
    ("cuda12", "cuda_driver_calls.py", "12090"),
    ("cuda11", "cuda_driver_calls.py", "11080"),
    // Of the runtimes only this one is the bindings' own work. The later ones are NVIDIA's.
    ("cuda11", "cuda_runtime_calls.py", "11080"),
];

fn client((set, program, version): (&str, &str, &str), scenario: &str) -> Option<Client> {
    let client = bindings_client(set, program)?.arg(scenario).env("GPUOOM_PROBE", "off");
    Some(if version.is_empty() { client } else { client.env("SIM_CUDA_VERSION", version) })
}

/// Each of them that is installed.
fn clients(scenario: &str) -> impl Iterator<Item = Client> {
    SIMULATED.into_iter().filter_map(move |which| client(which, scenario))
}

/// A call for memory as the program wrote it down, or as the trace has it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Call {
    api: String,
    address: u64,
    bytes: u64,
    /// `None` for host memory: it lies on no device.
    device: Option<u64>,
    line: u32,
    status: u64,
}

/// What the program wrote down, in its order.
fn own_calls(run: &Finished) -> Vec<Call> {
    let text = fs::read_to_string(run.cwd().join("calls.txt")).expect("the program's own account");
    let number = |text: &str| text.parse::<u64>().expect("a number");
    let call = |line: &str| {
        let [api, address, bytes, device, line, status] = line.split(' ').collect::<Vec<_>>()[..] else {
            panic!("{line}")
        };
        let is_host = ["Host", "MallocHost"].iter().any(|word| api.contains(word));
        Call {
            api: api.into(),
            address: u64::from_str_radix(&address[2..], 16).expect("an address"),
            bytes: number(bytes),
            device: (!is_host).then(|| number(device)),
            line: number(line) as u32,
            status: number(status),
        }
    };
    text.lines().map(call).collect()
}

/// What the trace has of the program's own calls for memory, in its order.
fn recorded_calls(run: &Finished) -> Vec<Call> {
    let trace = run.only_trace();
    let events: BTreeMap<u64, Event> = trace.events().into_iter().map(|event| (event.seq(), event)).collect();
    let wanted = [Some(record::Event::Alloc), Some(record::Event::Pin)];
    let stacked = trace.stacked_calls().into_iter().filter(|call| wanted.contains(&call.record.event()));
    let calls = stacked.filter_map(|call| {
        let event = &events[&(call.record.commit - 1)];
        let is_own = event.is_programs_own() && event.kind() != "reserved";
        is_own.then(|| Call {
            api: event.api().into(),
            address: event.address().unwrap_or(0),
            bytes: event.requested_bytes(),
            device: event.device(),
            // Compiled code of the bindings has no line of Python's.
            line: call.python.iter().find(|line| line.file.ends_with("_calls.py")).map_or(0, |line| line.line),
            status: event.status(),
        })
    });
    calls.collect()
}

/// Asserts that the trace has each call that the program wrote down, once and no other: function, address, bytes, device,
/// line and status. Answers how many they are.
fn assert_own_calls(run: &Finished) -> usize {
    let (mut own, mut recorded) = (own_calls(run), recorded_calls(run));
    // The runtime of the bindings of CUDA 11 calls the driver, and nothing but that is a call of a library.
    let is_emulated = own.iter().any(|call| call.api.starts_with("cuda"));
    if is_emulated {
        own.iter_mut().chain(&mut recorded).for_each(|call| call.api.clear());
    }
    // Which of two twins a binding calls, the program does not choose: `streams_of_each_thread_are_recorded` does.
    recorded.iter_mut().for_each(|call| call.api = call.api.trim_end_matches("_ptsz").to_owned());
    own.sort();
    recorded.sort();
    assert_eq!(recorded, own);
    own.len()
}

fn assert_simulator_agrees(run: &Finished) {
    run.only_trace().report().assert_nothing_lost();
    match run.truth().iter().any(|line| line.api().starts_with("hip")) {
        true => run.assert_trace_is_true(),
        false => run.assert_cuda_trace_is_true(),
    }
}

#[test]
fn each_way_to_memory_is_recorded_on_each_device() {
    for client in clients("every") {
        let run = client.env("SIM_DEVICES", "2").run_both();
        assert_eq!(run.exit_code(), 0, "{}", run.stderr);
        assert_simulator_agrees(&run);
        let calls = assert_own_calls(&run);
        assert!(calls == 18 || calls == 16, "{calls}: virtual memory is no part of the runtime of CUDA 11");
        let report = run.only_trace().report();
        for device in ["/devices/0", "/devices/1", "/host"] {
            assert_eq!(report.number(&format!("{device}/end/live_allocations")), 0);
        }
    }
}

#[test]
fn each_thread_is_recorded() {
    for client in
        SIMULATED.into_iter().filter(|which| !which.1.contains("runtime")).filter_map(|which| client(which, "threads"))
    {
        let run = client.run_both();
        assert_eq!(run.exit_code(), 0, "{}", run.stderr);
        assert_simulator_agrees(&run);
        assert_eq!(assert_own_calls(&run), 100);
    }
}

/// The bindings look functions up by other flags or names then.
#[test]
fn streams_of_each_thread_are_recorded() {
    for which in SIMULATED.into_iter().filter(|which| which.0 != "hip") {
        let Some(client) = client(which, "every") else { return };
        let run = client.env("CUDA_PYTHON_CUDA_PER_THREAD_DEFAULT_STREAM", "1").run_both();
        assert_eq!(run.exit_code(), 0, "{}", run.stderr);
        assert_simulator_agrees(&run);
        assert_own_calls(&run);
        let twins = recorded_calls(&run).into_iter().filter(|call| call.api.ends_with("_ptsz"));
        assert_eq!(twins.count(), 2, "{which:?}");
    }
}

/// What nothing may say of such a program: it has no model, no framework and no leak.
fn assert_nothing_untrue(report: &Report) {
    let other = report.diagnoses().into_iter().filter(|found| found.confidence != "possible").map(|found| found.id);
    let known = ["true-capacity", "request-exceeds-device", "dropped-oom-return"];
    let other: Vec<String> = other.filter(|id| !known.contains(&&id[..])).collect();
    assert_eq!(other, [""; 0]);
    report.assert_no_growth();
    let text = report.excerpt("/verdict/sentence");
    for name in ["PyTorch", "llama", "JAX", "Triton", "KV cache", "weights", "batch", "leak"] {
        assert!(!text.contains(name), "{text}");
    }
}

/// Asserts that the failure has the line of the program that asked, and no name in compiled code that the code does not have.
fn assert_failure_has_line(run: &Finished, report: &Report) {
    let line = own_calls(run).into_iter().find(|call| call.status != 0).expect("a call that was refused").line;
    let stack = report.excerpt("/ooms/0/stack");
    assert!(stack.contains("_calls.py") && stack.contains(&format!("\"line\": {line},")), "line {line} in {stack}");
    assert!(!stack.contains("\"_init\""), "a neighbour's name: {stack}");
}

/// The last two: the cause, and how sure it is.
fn assert_failure(run: &Finished, outcome: &str, because: &str, cause: &str, confidence: &str) {
    assert_simulator_agrees(run);
    let report = run.only_trace().report();
    report.assert_only_oom(outcome, because);
    report.assert_cause(cause, confidence);
    assert_nothing_untrue(&report);
    assert_failure_has_line(run, &report);
}

/// The bindings answer the status, and Python raises nothing by itself.
#[test]
fn an_exception_propagates() {
    for client in clients("uncaught") {
        let run = client.env("SIM_CAPACITY", "1G").run_both();
        assert_eq!(run.exit_code(), 1, "{}", run.stderr);
        assert_failure(&run, "propagated", "process_exited", "true-capacity", "probable");
        assert_eq!(run.only_trace().report().number("/ooms/0/requested_bytes"), 64 * MIB);
        assert_eq!(assert_own_calls(&run), 16 + 1);
    }
}

#[test]
fn a_smaller_request_recovers() {
    for client in clients("caught") {
        let run = client.env("SIM_CAPACITY", "1G").run_both();
        assert_eq!(run.exit_code(), 0, "{}", run.stderr);
        assert_failure(&run, "recovered", "fell_back", "true-capacity", "probable");
        assert_eq!(assert_own_calls(&run), 16 + 2);
    }
}

#[test]
fn a_status_that_nobody_looks_at_is_dropped() {
    for client in clients("ignored") {
        let run = client.run_both();
        assert_eq!(run.exit_code(), 0, "{}", run.stderr);
        // A card of AMD's may share the host's memory, which nothing tells here.
        let confidence = if own_calls(&run)[0].api.starts_with("hip") { "probable" } else { "proven" };
        assert_failure(&run, "dropped", "gpu_work_continued", "request-exceeds-device", confidence);
        assert_eq!(assert_own_calls(&run), 2);
    }
}

/// NVIDIA's own runtime is linked into these bindings. It wants private tables of the driver, which the simulated one does not have,
/// and takes no memory: the recorder changes nothing of that and invents nothing.
#[test]
fn nvidias_own_runtime_does_not_start_here() {
    for (set, version) in [("cuda12", "12090"), ("cuda13", "13020")] {
        let Some(client) = client((set, "cuda_runtime_calls.py", version), "start") else { return };
        let run = client.run_both();
        assert_eq!(run.exit_code(), 0, "{}", run.stderr);
        assert!(run.stdout.contains("memory <cudaError_t.cudaErrorSymbolNotFound: 500> None"), "{}", run.stdout);
        for trace in run.traces() {
            let report = trace.report();
            assert_eq!((report.count("/ooms"), report.count("/diagnoses")), (0, 0), "{}", trace.report_text());
            assert!(trace.events().iter().all(|event| event.event() != "alloc"));
        }
    }
}

fn on_card(scenario: &str) -> Option<Client> {
    Some(hip_python_on_card("hip_calls.py")?.arg(scenario).env("GPUOOM_PROBE", "off"))
}

/// HIP Python on ROCm 6.4.3: the kernel's requests against the card's log, HIP's calls against the program's account.
#[test]
fn the_real_hip_is_recorded_down_to_the_card() {
    for (scenario, cards, calls) in [("every", "2", 18), ("threads", "1", 100)] {
        let Some(client) = on_card(scenario) else { return };
        let run = client.env("SIM_DEVICES", cards).run_both();
        assert_eq!(run.exit_code(), 0, "{}", run.stderr);
        assert_addresses_alternate(&assert_kernel_agrees(&run));
        assert_eq!(assert_own_calls(&run), calls);
        run.only_trace().report().assert_nothing_lost();
    }
}

#[test]
fn the_real_hip_refuses() {
    for (scenario, code, outcome, because) in
        [("uncaught", 1, "propagated", "process_exited"), ("caught", 0, "recovered", "fell_back")]
    {
        let Some(client) = on_card(scenario) else { return };
        let run = client.env("SIM_CAPACITY", "1G").run_both();
        assert_eq!(run.exit_code(), code, "{}", run.stderr);
        assert_addresses_alternate(&assert_kernel_agrees(&run));
        let report = run.only_trace().report();
        report.assert_only_oom(outcome, because);
        report.assert_cause("true-capacity", "probable");
        assert_eq!(report.text("/ooms/0/refused_by"), "kernel");
        assert_nothing_untrue(&report);
        assert_failure_has_line(&run, &report);
        assert_eq!(assert_own_calls(&run), if code == 0 { 16 + 2 } else { 16 + 1 });
    }
}
