//! The CUDA driver, the runtime over it, and the ways that lead to both: symbols, static linking, look-ups by name.

use std::process::Command;

use gpuoom_tests::{Client, Event, Finished, Library, MIB, Report, Trace, plain_program, program_with, sim_dir};

/// Each allocation and free of the runtime holds exactly one of the driver, on the same address; the count of the
/// program's own calls does not know the latter.
fn assert_runtime_rows_hold_driver_rows(run: &Finished) {
    let events = run.only_trace().events();
    let runtime: Vec<_> = events
        .iter()
        .filter(|event| event.layer() == "runtime" && (event.is_allocation() || event.is_free()))
        .collect();
    assert!(!runtime.is_empty(), "no runtime row in {events:#?}");
    for outer in runtime {
        let inside = |event: &&Event| event.layer() == "driver" && event.parent() == Some(outer.seq());
        let same = |event: &&Event| event.event() == outer.event() && event.address() == outer.address();
        assert_eq!(events.iter().filter(inside).filter(same).count(), 1, "inside {outer:?}: {events:#?}");
    }
}

fn allocations(events: &[Event]) -> Vec<(&str, u64)> {
    events.iter().filter(|event| event.is_allocation()).map(|event| (event.api(), event.requested_bytes())).collect()
}

#[test]
fn driver_is_recorded_call_by_call() {
    let client = Client::new(program_with("cuda_driver_tour.c", Library::CudaDriver))
        .env("SIM_LOW_ADDRESSES", "1")
        .env("SIM_CAPACITY", "200M")
        .env("GPUOOM_PROBE", "off");
    let run = client.run_both();
    run.assert_trace_is_true();
    assert!(run.stdout.contains(&format!("released: {} in use\nunmapped: 0", 20 * MIB)), "{}", run.stdout);
    let events = run.only_trace().events();
    for kind in ["device", "managed", "array", "pool", "host-pinned", "registered", "physical"] {
        assert!(events.iter().any(|event| event.is_allocation() && event.kind() == kind), "no {kind} in {events:#?}");
    }
    assert!(allocations(&events).contains(&("cuMemAlloc", 3 * MIB)), "the 32-bit function");
    assert!(allocations(&events).contains(&("cuArray3DCreate", 32 * 16 * 8 * 4)), "the first drivers' array");
    assert!(allocations(&events).contains(&("cuMemAllocAsync_ptsz", 12 * MIB)), "the twin");
    let report = run.only_trace().report();
    // device, legacy, managed, pitched, 3 arrays, 3 stream-ordered, 1 physical, one in another context
    // and three of the first drivers' kind
    assert_eq!(report.number("/devices/0/allocations"), 15);
    assert_eq!(report.number("/host/allocations"), 4);
    assert_eq!(report.number("/devices/0/end/live_allocations"), 0, "{}", run.only_trace().report_text());
    report.assert_only_oom("propagated", "error_reported");
    assert_eq!(report.text("/ooms/0/status/name"), "CUDA_ERROR_OUT_OF_MEMORY");
}

#[test]
fn runtime_over_the_driver_counts_each_byte_once() {
    let run =
        Client::new(program_with("cuda_runtime13.c", Library::CudaOverDriver)).env("GPUOOM_PROBE", "off").run_both();
    run.assert_trace_is_true();
    assert_runtime_rows_hold_driver_rows(&run);
    let report = run.only_trace().report();
    // block, managed, 2 pitched, 2 arrays, 2 stream-ordered, one lost in the reset, one kept
    assert_eq!(report.number("/devices/0/allocations"), 10);
    assert_eq!(report.number("/devices/0/failures"), 1);
    assert_eq!(report.number("/host/allocations"), 3);
    assert_eq!(report.number("/devices/0/end/live_allocations"), 1);
    assert_eq!(report.number("/devices/0/end/requested_bytes"), 10 * MIB);
    report.assert_only_oom("propagated", "error_reported");
    assert_eq!(report.text("/ooms/0/status/name"), "cudaErrorMemoryAllocation");
}

#[test]
fn static_runtime_is_seen_in_the_driver() {
    let program = program_with("cuda_static.c", Library::CudaStatic);
    let symbols = Command::new("nm").arg("-D").arg(&program).output().expect("binutils").stdout;
    let symbols = String::from_utf8_lossy(&symbols).into_owned();
    assert!(!symbols.lines().any(|line| line.contains(" cu")), "the runtime is not all inside: {symbols}");

    let run = Client::new(program).env("SIM_CAPACITY", "1000M").env("GPUOOM_PROBE", "off").run_both();
    assert_eq!((run.exit_code(), run.stdout.as_str()), (0, "through the device\n"));
    run.assert_trace_is_true();
    let events = run.only_trace().events();
    let expected = [
        ("cuMemAlloc_v2", 100 * MIB),
        ("cuMemHostAlloc", MIB),
        ("cuMemAllocAsync", 8 * MIB),
        ("cuMemAlloc_v2", 950 * MIB),
    ];
    assert_eq!(allocations(&events), expected);
    run.only_trace().report().assert_only_oom("recovered", "retry_succeeded");
}

#[test]
fn functions_handed_out_by_name_are_recorded() {
    let client = Client::new(program_with("cuda_entry_points.c", Library::CudaOverDriver))
        .env("SIM_CAPACITY", "200M")
        .env("GPUOOM_PROBE", "off");
    let run = client.run_both();
    assert_eq!((run.exit_code(), run.stdout.as_str()), (0, "unknown: null, found 1\n"));
    run.assert_trace_is_true();
    let events = run.only_trace().events();
    assert_eq!(events.iter().filter(|event| event.event() == "map").count(), 8);
    let report = run.only_trace().report();
    assert_eq!(report.number("/devices/0/allocations"), 9);
    assert_eq!(report.number("/devices/0/peak/requested_bytes"), 160 * MIB);
    assert_eq!(report.number("/devices/0/end/requested_bytes"), 80 * MIB);
    assert_eq!(report.number("/ooms/0/requested_bytes"), 60 * MIB);
    report.assert_only_oom("recovered", "retry_succeeded");
}

#[test]
fn twins_for_the_per_thread_stream_are_recorded() {
    let run = Client::new(program_with("cuda_ptsz.c", Library::CudaOverDriver)).run_both();
    assert_eq!(run.stdout, "two functions, one twin\n");
    run.assert_trace_is_true();
    let events = run.only_trace().events();
    let expected = [
        ("cudaMallocAsync_ptsz", 8 * MIB),
        ("cudaMallocFromPoolAsync_ptsz", 5 * MIB),
        ("cuMemAllocAsync", 3 * MIB),
        ("cuMemAllocAsync_ptsz", 7 * MIB),
    ];
    assert_eq!(allocations(&events), expected);
    assert_runtime_rows_hold_driver_rows(&run);
}

#[test]
fn driver_and_runtime_taken_by_dlsym_are_one_account() {
    let client = Client::new(plain_program("cuda_by_name.c"))
        .arg(sim_dir().join("libcuda.so.1"))
        .arg(sim_dir().join("libcudart.so.13"));
    let run = client.env("LD_LIBRARY_PATH", sim_dir()).run_both();
    assert_eq!(run.exit_code(), 0, "{}", run.stderr);
    run.assert_trace_is_true();
    assert_runtime_rows_hold_driver_rows(&run);
    let report = run.only_trace().report();
    assert_eq!((report.number("/devices/0/allocations"), report.number("/devices/0/frees")), (2, 2));
    assert_eq!(report.number("/devices/0/end/live_allocations"), 0);
}

#[test]
fn capture_is_not_disturbed_by_readings() {
    let client = Client::new(program_with("cuda_capture.c", Library::CudaOverDriver)).env("SIM_CAPACITY", "300M");
    let run = client.run_both();
    assert_eq!(run.stdout, "state 1, 2 nodes, byte 7, ran 2 times\n", "{}", run.stderr);
    run.assert_trace_is_true();
    let report = run.only_trace().report();
    assert_eq!(report.number("/devices/0/allocations"), 2);
    report.assert_only_oom("recovered", "fell_back");
}

#[test]
fn allocations_are_on_the_device_of_the_current_context() {
    let client = Client::new(program_with("cuda_contexts.c", Library::CudaAndDriver)).env("SIM_DEVICES", "2");
    let run = client.run_both();
    run.assert_trace_is_true();
    let events = run.only_trace().events();
    let on = |device: u64| -> Vec<u64> {
        let there = events.iter().filter(|event| event.is_allocation() && event.device() == Some(device));
        there.map(|event| event.requested_bytes() / MIB).collect()
    };
    assert_eq!((on(0), on(1)), (vec![20, 40, 60, 80], vec![10, 30, 50, 70]));
}

#[test]
fn threads_that_race_for_the_driver_lose_nothing() {
    for library in [Library::CudaOverDriver, Library::CudaStatic] {
        let run = Client::new(program_with("cuda_threads.c", library)).run_both();
        assert_eq!(run.exit_code(), 0, "{}", run.stderr);
        run.assert_trace_is_true();
        let report = run.only_trace().report();
        report.assert_nothing_lost();
        assert_eq!(report.number("/devices/0/allocations"), 8 * 200 * 3);
        assert_eq!(report.number("/devices/0/end/live_allocations"), 0);
    }
}

#[test]
fn imported_memory_belongs_to_others() {
    let run = Client::new(program_with("cuda_imports.c", Library::CudaDriver)).run_both();
    assert_eq!(run.exit_code(), 0, "{}", run.stderr);
    let mut traces = run.traces();
    assert_eq!(traces.len(), 2, "{traces:?}");
    // The child has the higher number, unless the numbers began anew: its trace is the one with imports.
    let imports = |trace: &Trace| trace.events().iter().filter(|event| event.event() == "import").count();
    traces.sort_by_key(imports);
    let (exporter, importer) = (traces[0].report(), traces[1].report());
    assert_eq!((imports(&traces[0]), imports(&traces[1])), (0, 3));
    let counts = |report: &Report| {
        let number = |field: &str| report.number(&format!("/devices/0/{field}"));
        [number("allocations"), number("frees"), number("peak/requested_bytes"), number("end/live_allocations")]
    };
    assert_eq!(counts(&exporter), [2, 2, 50 * MIB, 0]);
    assert_eq!(counts(&importer), [1, 1, 7 * MIB, 0], "{}", traces[1].report_text());
}

const CREATIONS: [&str; 5] =
    ["hipblasCreate", "rocblas_create_handle", "miopenCreate", "cublasCreate_v2", "cudnnCreate"];

#[test]
fn handles_that_find_no_memory_are_failures() {
    let client = Client::new(program_with("handles.c", Library::Handles)).env("SIM_HANDLE_FAIL_AT", "2");
    let run = client.run_both();
    assert_eq!(run.exit_code(), 0);
    let events = run.only_trace().events();
    for name in CREATIONS {
        let calls: Vec<_> = events.iter().filter(|event| event.api() == name).map(Event::status_name).collect();
        assert_eq!(calls, ["", "an allocation failed"], "{name}");
    }
    let said = run.recorder_lines().join("\n");
    assert!(said.contains("5 out-of-memory returns") && said.contains("(the first: GPU 0, hipblasCreate)"), "{said}");
}

/// The stand-in must be reached as NVIDIA's library is, or tests of the way prove nothing.
#[test]
fn simulated_cuda_is_linked_like_the_real_one() {
    let symbols = |library: &str| {
        let output = Command::new("nm").args(["-D", "--with-symbol-versions"]).arg(sim_dir().join(library)).output();
        String::from_utf8_lossy(&output.expect("binutils, which every C compiler brings").stdout).into_owned()
    };
    let runtime = symbols("libcudart.so.13");
    assert!(runtime.lines().any(|line| line.ends_with("T cudaMalloc@@libcudart.so.13")), "{runtime}");
    let driver = symbols("libcuda.so.1");
    assert!(driver.lines().any(|line| line.ends_with("T cuMemAlloc_v2")), "no versions: {driver}");
    for (library, symbols) in [("libcudart.so.13", runtime), ("libcuda.so.1", driver)] {
        let undefined = symbols.lines().filter(|line| line.contains(" U cu")).collect::<Vec<_>>();
        assert!(undefined.is_empty(), "{library} needs {undefined:?}");
        let relocations = Command::new("readelf").arg("-rW").arg(sim_dir().join(library)).output().expect("binutils");
        let relocations = String::from_utf8_lossy(&relocations.stdout).into_owned();
        let own = relocations.lines().filter(|line| line.contains("JUMP_SLO") && line.contains(" cu"));
        assert_eq!(own.count(), 0, "{library} calls itself through the PLT");
    }
}
