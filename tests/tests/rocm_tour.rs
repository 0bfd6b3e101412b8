//! A program on Debian's real HIP and HSA runtime: the trace against the log of the thunk below them.

use gpuoom_tests::{
    Client, Event, Finished, MIB, ThunkLine, assert_addresses_alternate, assert_hsa_explains, assert_thunk_agrees,
    rocm_client,
};

/// The tour, ending in that way after the real out-of-memory. Without the probe, so that the thunk sees the program alone.
fn tour(then: &str) -> Option<Client> {
    Some(rocm_client("hip_tour")?.args(["--then", then]).env("GPUOOM_PROBE", "off"))
}

fn thunk_of(run: &Finished) -> Vec<ThunkLine> {
    ThunkLine::read_all(&run.cwd().join("thunk.log"))
}

fn run_tour(then: &str, outcome: &str, because: &str) -> Option<Finished> {
    let run = tour(then)?.run_both();
    let trace = run.only_trace();
    let (report, events) = (trace.report(), trace.events());
    report.assert_only_oom(outcome, because);
    report.assert_nothing_lost();
    assert_eq!(report.text("/ooms/0/status/name"), "hipErrorOutOfMemory");
    assert_eq!(report.number("/ooms/0/requested_bytes"), 512 * MIB);
    assert_eq!(report.number("/devices/0/total_bytes"), 8 << 30);
    assert_addresses_alternate(&events);
    assert_thunk_agrees(&thunk_of(&run), &events);
    assert_hsa_explains(&thunk_of(&run), &events);
    assert_eq!(report.text("/ooms/0/refused_by"), "hsa");
    Some(run)
}

#[test]
fn a_reported_failure_is_propagated() {
    let Some(run) = run_tour("report", "propagated", "error_reported") else { return };
    let report = run.only_trace().report();
    assert_eq!(report.number("/devices/0/end/live_allocations"), 0, "the tour frees everything");
    assert_eq!(report.number("/host/end/live_allocations"), 0);
    assert!(report.number("/devices/0/peak/requested_bytes") >= 15 * 512 * MIB);
    let refused = thunk_of(&run).into_iter().filter(|line| line.status == "no_memory").count();
    assert_eq!(refused, 2, "ROCr trims its caches and asks twice");
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
fn a_silent_exit_propagates() {
    let Some(run) = run_tour("exit", "propagated", "process_exited") else { return };
    run.only_trace().report().assert_exited(3);
}

#[test]
fn an_abort_propagates() {
    let Some(run) = run_tour("abort", "propagated", "process_exited") else { return };
    let report = run.only_trace().report();
    assert_eq!((report.text("/process/end"), report.number("/process/signal")), ("signaled", 6));
}

#[test]
fn an_exception_propagates() {
    run_tour("throw", "propagated", "exception");
}

/// The probe allocates on the recorder's own thread: the program's output, which holds its last error, stays the same, and
/// what was probed is given back.
#[test]
fn the_probe_leaves_no_mark_on_the_program() {
    let Some(client) = rocm_client("hip_tour") else { return };
    let client = client.args(["--then", "report"]);
    let (plain, probed) = (client.run_plain(), client.run_recorded());
    assert_eq!((&probed.stdout, probed.status), (&plain.stdout, plain.status));
    let report = probed.only_trace().report();
    let free = report.number_or_null("/ooms/0/free_reported_bytes").expect("hipMemGetInfo answers");
    let largest = report.number_or_null("/ooms/0/largest_allocatable_bytes").expect("it was probed");
    assert!(largest < 512 * MIB && largest <= free && largest + 8 * MIB > free, "{largest} of {free}");
    let end = |run: &Finished| thunk_of(run).last().expect("the thunk saw calls").vram_bytes;
    assert_eq!(end(&probed), end(&plain));
}

/// What a call on another thread does to the last error decides whether the probe may run there.
#[test]
fn the_last_error_belongs_to_the_thread() {
    let Some(client) = rocm_client("last_error") else { return };
    // Not `run_both`: Debian's ROCr prints a line of its own for each refusal, also for those that the probe meets.
    let run = client.env("GPUOOM_PROBE", "all").run_recorded();
    assert_eq!(run.exit_code(), 0);
    assert_eq!(run.stdout.lines().last(), Some("the last error belongs to the thread"));
}

/// What HIP asks of HSA for each call of the program: one block of the same address, of the kind and on the device where it
/// lies.
#[test]
fn hsa_rows_lie_inside_their_hip_rows() {
    let Some(run) = tour("report").map(|client| client.run_recorded()) else { return };
    let events = run.only_trace().events();
    let below = |row: &Event, event: &str| -> Vec<Event> {
        let inside = events.iter().filter(|other| other.parent() == Some(row.seq()) && other.layer() == "hsa");
        inside.filter(|other| other.event() == event).cloned().collect()
    };
    let asked = ["hipMalloc", "hipMallocPitch", "hipMalloc3D", "hipMallocManaged", "hipHostMalloc", "hipHostRegister"];
    for api in asked {
        let rows: Vec<&Event> = events.iter().filter(|row| row.api() == api && row.is_allocation()).collect();
        assert!(!rows.is_empty(), "the tour calls {api}");
        for row in rows {
            let [lower] = &below(row, row.event())[..] else { panic!("not one row of HSA inside {row:?}") };
            assert_eq!((lower.address(), lower.thread()), (row.address(), row.thread()));
            assert!(lower.requested_bytes() >= row.requested_bytes(), "{lower:?} for {row:?}");
            // Without the kernel's migration of pages, managed memory is host memory.
            let expected = match row.kind() {
                "device" => ("device", Some(0)),
                "registered" => ("registered", None),
                _ => ("host-pinned", None),
            };
            assert_eq!((lower.kind(), lower.device()), expected, "{lower:?}");
        }
    }
    let frees: Vec<&Event> = events.iter().filter(|row| row.api() == "hipFree" && row.address().is_some()).collect();
    for row in frees {
        let [lower] = &below(row, "free")[..] else { panic!("not one row of HSA inside {row:?}") };
        assert_eq!((lower.api(), lower.address()), ("hsa_amd_memory_pool_free", row.address()));
    }
}

/// A request that HIP refuses by itself has no row below it.
#[test]
fn what_hip_refuses_never_reaches_hsa() {
    let Some(client) = rocm_client("last_error") else { return };
    let run = client.env("GPUOOM_PROBE", "off").run_recorded();
    let report = run.only_trace().report();
    assert!(report.count("/ooms") > 0);
    for number in 0..report.count("/ooms") {
        assert_eq!(report.text(&format!("/ooms/{number}/refused_by")), "runtime");
    }
}

/// Staging behind copies pins host memory below HIP: seen, and not counted as the program's own.
#[test]
fn pinning_below_hip_is_recorded_as_the_runtimes() {
    let Some(run) = tour("report").map(|client| client.run_recorded()) else { return };
    let events = run.only_trace().events();
    let locks = events.iter().filter(|event| event.api() == "hsa_amd_memory_lock_to_pool").count();
    assert!(locks > 0, "hipHostRegister locks memory through HSA");
    let report = run.only_trace().report();
    assert!(report.number("/host/allocations") < 10, "only the program's own calls count");
}
