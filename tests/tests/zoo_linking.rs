//! How a program comes by the library: linked, through a plugin, by name, by version, twice, again.

use std::process::Command;

use gpuoom_tests::{Client, Library, MIB, plain_program, plugin, program, program_with, recorder, sim_dir, zoo_source};

#[test]
fn linked_program_is_recorded_call_by_call() {
    let run = Client::new(program("linked.c")).run_both();
    run.assert_trace_is_true();
    assert_eq!(run.stderr, "", "a healthy run says nothing");

    let events = run.only_trace().events();
    let allocations: Vec<_> = events.iter().filter(|event| event.is_allocation()).collect();
    let sizes: Vec<_> =
        allocations.iter().map(|event| (event.kind(), event.requested_bytes(), event.padded_bytes())).collect();
    let granule = 256 * MIB;
    assert_eq!(
        sizes,
        [
            ("device", 300 * MIB, 2 * granule),
            ("device", 5 * MIB + 1, granule),
            ("device", 1, granule),
            ("host-pinned", 64 << 10, granule)
        ]
    );
    assert!(events.iter().all(|event| event.event() != "gpu_work"), "nothing failed, so no work is of interest");

    let report = run.only_trace().report();
    report.assert_exited(0);
    report.assert_nothing_lost();
    assert_eq!(report.count("/ooms"), 0);
    assert_eq!(report.count("/devices"), 1);
    assert_eq!((report.number("/devices/0/allocations"), report.number("/devices/0/frees")), (3, 3));
    assert_eq!((report.number("/host/allocations"), report.number("/host/frees")), (1, 1));
    assert_eq!(report.number("/devices/0/peak/requested_bytes"), 305 * MIB + 2);
    assert_eq!(report.number("/devices/0/peak/padded_bytes"), 4 * granule);
    assert_eq!(report.number("/devices/0/end/live_allocations"), 0);
    assert!(report.text("/process/executable").ends_with("linked"));
}

#[test]
fn library_behind_a_local_plugin_is_found() {
    let client = Client::new(plain_program("local_plugin.c")).arg(plugin("local_plugin.c", Library::Hip));
    let run = client.run_both();
    assert_eq!(run.exit_code(), 0);
    run.assert_trace_is_true();
    assert_eq!(run.only_trace().report().number("/devices/0/allocations"), 3);
}

#[test]
fn python_extension_is_recorded() {
    let client = python("py_plugin.py").arg(plugin("local_plugin.c", Library::Hip));
    let run = client.run_both();
    assert_eq!(run.exit_code(), 0);
    run.assert_trace_is_true();
    assert_eq!(run.only_trace().report().number("/devices/0/allocations"), 3);
}

fn python(script: &str) -> Client {
    Client::new("python3").arg(zoo_source(script))
}

fn sim_hip() -> std::path::PathBuf {
    sim_dir().join("libamdhip64.so.6")
}

#[test]
fn functions_taken_by_dlsym_are_recorded() {
    let run = Client::new(plain_program("by_dlsym.c")).arg(sim_hip()).run_both();
    assert_eq!(run.exit_code(), 0);
    run.assert_trace_is_true();
    assert_eq!(run.only_trace().report().number("/devices/0/allocations"), 6);
}

#[test]
fn functions_taken_by_proc_address_are_recorded() {
    let run = Client::new(plain_program("by_proc_address.c")).arg(sim_hip()).env("GPUOOM_PROBE", "off").run_both();
    assert_eq!(run.exit_code(), 0);
    run.assert_trace_is_true();
    let report = run.only_trace().report();
    assert_eq!((report.number("/devices/0/allocations"), report.number("/host/allocations")), (1, 1));
    // The error query is a watched function, taken the same way.
    report.assert_only_oom("propagated", "status_checked");
}

#[test]
fn python_ctypes_is_recorded() {
    let run = python("py_ctypes.py").arg(sim_hip()).run_both();
    assert_eq!(run.exit_code(), 0);
    run.assert_trace_is_true();
    let report = run.only_trace().report();
    assert!(report.number("/devices/0/allocations") > 0);
    // libffi calls on behalf of ctypes, and neither wants memory.
    let holders = report.excerpt("/ledger");
    assert!(!holders.contains("\"library\": \"libffi") && !holders.contains("\"library\": \"_ctypes"), "{holders}");
}

#[test]
fn names_are_found_where_they_would_be_without_the_recorder() {
    let run = Client::new(plain_program("names.c")).arg(sim_hip()).run_both();
    assert_eq!(run.exit_code(), 0);
    assert!(run.traces().is_empty(), "a look-up is no GPU call");
}

#[test]
fn odd_look_ups_find_and_say_what_they_would_without_the_recorder() {
    let client = Client::new(plain_program("odd_look_ups.c")).arg(sim_hip());
    let run = client.arg(plugin("odd_look_ups.c", Library::None)).run_both();
    assert_eq!(run.exit_code(), 0, "{}", run.stderr);
    assert!(run.stdout.contains("null name: signal 11") && run.stdout.lines().count() > 90, "{}", run.stdout);
    assert_eq!(run.only_trace().report().number("/devices/0/allocations"), 2);
}

#[test]
fn bound_at_once_is_recorded_too() {
    let run = Client::new(program("linked.c")).env("LD_BIND_NOW", "1").run_both();
    run.assert_trace_is_true();
    assert_eq!(run.only_trace().report().number("/devices/0/allocations"), 3);
}

#[test]
fn pointers_into_two_copies_go_each_to_its_own() {
    let client =
        Client::new(plain_program("two_handles.c")).arg(sim_hip()).arg(sim_dir().join("bundle/libamdhip64.so"));
    let run = client.env("GPUOOM_PROBE", "off").run_both();
    assert_eq!(run.exit_code(), 0);
    assert!(run.stdout.contains("two functions"), "{}", run.stdout);
    run.assert_trace_is_true();
    run.only_trace().report().assert_only_oom("propagated", "status_checked");
}

#[test]
fn other_preloaded_libraries_find_what_lies_behind_them() {
    let other = plugin("other_preload.c", Library::None);
    let client = program("other_preload.c");
    for order in [[recorder(), other.clone()], [other, recorder()]] {
        let preload = order.map(|path| path.display().to_string()).join(" ");
        let run = Client::new(&client).env("LD_PRELOAD", &preload).run_recorded();
        assert_eq!((run.exit_code(), run.stdout.as_str()), (0, "rand 7, seen 2\n"), "{preload}: {}", run.stderr);
        assert_eq!(run.only_trace().report().number("/devices/0/allocations"), 2, "{preload}");
    }
}

#[test]
fn calls_that_lead_past_the_recorder_are_named() {
    let client = || Client::new(plain_program("deepbind.c")).arg(plugin("deepbind.c", Library::Hip)).arg(sim_hip());
    let run = client().run_both();
    assert_eq!(run.exit_code(), 0);
    assert!(run.traces().is_empty());
    let line = run.recorder_lines().join("\n");
    assert!(line.contains("deepbind") && line.contains("hipMalloc past the recorder"), "{line}");

    let run = client().arg("too").run_both();
    assert_eq!(run.exit_code(), 0);
    let trace = gpuoom_trace::reader::TraceFile::open(&run.only_trace().path).expect("a trace");
    let [bypass] = &trace.metadata.bypasses.bypasses[..] else { panic!("{:?}", trace.metadata.bypasses) };
    assert!(bypass.caller.contains("deepbind") && bypass.target.contains("libamdhip64"), "{bypass:?}");
    assert!(bypass.function == "hipMalloc" && bypass.functions == 2, "{bypass:?}");
    let text = run.only_trace().report_text();
    assert!(text.contains("BYPASSED: HIP"), "{text}");
}

#[test]
fn versioned_references_are_recorded() {
    let run = Client::new(program("versioned.c")).run_both();
    run.assert_trace_is_true();
    let events = run.only_trace().events();
    let apis: Vec<_> = events.iter().filter(|event| event.is_allocation()).map(|event| event.api()).collect();
    assert_eq!(apis, ["hipMalloc", "hipMallocAsync"]);
}

#[test]
fn two_copies_of_the_library_are_kept_apart() {
    let client = Client::new(plain_program("two_copies.c"))
        .arg(plugin("two_copies.c", Library::Hip))
        .arg(plugin("two_copies.c", Library::HipBundled));
    let run = client.run_both();
    assert_eq!(run.exit_code(), 0, "{}", run.stderr);
    run.assert_trace_is_true();
    let report = run.only_trace().report();
    assert_eq!((report.number("/devices/0/allocations"), report.number("/devices/0/frees")), (4, 4));
    assert_eq!(report.number("/devices/0/end/live_allocations"), 0);
}

#[test]
fn library_that_is_closed_and_opened_again_is_found_again() {
    let client = Client::new(plain_program("dlclose_reopen.c")).arg(plugin("dlclose_reopen.c", Library::Hip));
    let run = client.run_both();
    assert_eq!(run.exit_code(), 0);
    run.assert_trace_is_true();
    assert_eq!(run.only_trace().report().number("/devices/0/allocations"), 6);
}

#[test]
fn cuda_runtime_is_recorded() {
    let client = Client::new(program_with("cuda_tour.c", Library::Cuda)).env("GPUOOM_PROBE", "off");
    let run = client.run_both();
    run.assert_trace_is_true();
    let trace = run.only_trace();
    assert!(trace.events().iter().filter(|event| event.is_allocation()).all(|event| event.api().starts_with("cuda")));
    // Up to CUDA 12 the third argument is a device, from 13 on a location: by the name of the loaded file this is 12.
    let events = trace.events();
    let sent = events.iter().filter(|event| event.api() == "cudaMemPrefetchAsync").map(|event| event.device());
    assert_eq!(sent.collect::<Vec<_>>(), [Some(0), None]);
    let report = trace.report();
    report.assert_only_oom("propagated", "error_reported");
    assert_eq!(report.text("/ooms/0/status/name"), "cudaErrorMemoryAllocation");
    assert_eq!(report.number("/devices/0/allocations"), 6);
    assert_eq!(report.number("/host/allocations"), 2);
    assert_eq!(report.number("/devices/0/end/live_allocations"), 0);
}

/// The stand-in must be linked to like the real library, or tests of symbol look-up prove nothing.
#[test]
fn simulated_hip_has_the_versions_and_self_calls_of_the_real_one() {
    let library = sim_dir().join("libamdhip64.so.6");
    let symbols = tool_output(Command::new("nm").args(["-D", "--with-symbol-versions"]).arg(&library));
    for wanted in
        ["hipMalloc@@hip_4.2", "hipArrayDestroy@@hip_4.3", "hipMallocAsync@@hip_5.1", "hipExtGetLastError@@hip_6.0"]
    {
        assert!(symbols.lines().any(|line| line.ends_with(wanted)), "{wanted} is not exported");
    }
    let relocations = tool_output(Command::new("readelf").arg("-rW").arg(&library));
    let own = |line: &&str| line.contains("JUMP_SLO") && line.contains("@@hip_");
    let self_calls: Vec<_> = relocations.lines().filter(own).collect();
    assert_eq!(self_calls.len(), 2, "hipMemGetInfo and hipMallocPitch alone: {self_calls:#?}");
}

fn tool_output(command: &mut Command) -> String {
    let output = command.output().expect("binutils, which every C compiler brings");
    assert!(output.status.success(), "{command:?}: {}", output.status);
    String::from_utf8_lossy(&output.stdout).into_owned()
}
