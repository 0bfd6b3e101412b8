//! OpenCL of ROCm 6.4.3 over the simulated card: what its calls make HSA and the kernel do is recorded, and of the calls themselves what they
//! answer where memory was refused.

use gpuoom_tests::{Client, Event, Finished, MIB, RocmRelease, assert_kernel_agrees, rocm_on_card};

const BUFFER: u64 = 256 * MIB;

/// A card of 1 GiB, and 1 GiB of host memory for it.
fn tour() -> Option<Client> {
    let client = rocm_on_card(RocmRelease::V6_4, "opencl_tour")?.env("SIM_CAPACITY", "1G").env("SIM_GTT", "1G");
    Some(client.env("GPUOOM_PROBE", "off"))
}

#[test]
fn what_is_below_opencl_is_seen() {
    let Some(client) = tour() else { return };
    let run = client.run_both();
    assert_eq!(run.exit_code(), 0);
    assert!(run.stdout.contains("buffer of 8388608: copied there and back"), "{}", run.stdout);
    let events = assert_kernel_agrees(&run);
    let report = run.only_trace().report();
    report.assert_nothing_lost();
    assert_eq!(report.number("/devices/0/end/live_allocations"), 0);
    let hsa = |event: &&Event| event.layer() == "hsa" && event.event() == "alloc" && event.requested_bytes() == BUFFER;
    let given = |kind: &str| events.iter().filter(hsa).filter(|row| !row.failed() && row.kind() == kind).count();
    let refused = events.iter().filter(hsa).filter(|row| row.failed()).count();
    // Three on the card, three in host memory instead, and one that neither has room for: it is refused twice.
    assert_eq!((given("device"), given("host-pinned"), refused), (3, 3, 5));
    assert!(run.stdout.contains("6 buffers of 268435456, then clCreateBuffer: -4"), "{}", run.stdout);
}

/// A program that does so after clCreateBuffer failed.
fn refused(then: &str) -> Option<Finished> {
    let client = rocm_on_card(RocmRelease::V6_4, "opencl_refused")?.env("SIM_CAPACITY", "1G").env("SIM_GTT", "1G");
    Some(client.arg(then).run_recorded())
}

#[test]
fn what_a_program_makes_of_opencls_error_is_followed() {
    for (then, outcome, because) in [
        ("ends", "propagated", "process_exited"),
        ("smaller", "recovered", "fell_back"),
        ("null", "dropped", "failed_pointer_used"),
        ("goes-on", "dropped", "gpu_work_continued"),
    ] {
        let Some(run) = refused(then) else { return };
        assert!(run.stdout.starts_with("6 taken, then -4\n"), "{}", run.stdout);
        let report = run.only_trace().report();
        // Three that OpenCL made up for by itself, and one that it told the program of: the card and the host were refused inside one call.
        assert_eq!(report.count("/ooms"), 4, "{then}");
        for number in 0..3 {
            let oom = |name: &str| report.text(&format!("/ooms/{number}/{name}")).to_owned();
            assert_eq!((oom("outcome"), oom("because")), ("recovered".into(), "fell_back".into()), "{then}");
        }
        let oom = |name: &str| report.text(&format!("/ooms/3/{name}")).to_owned();
        assert_eq!((oom("outcome"), oom("because")), (outcome.into(), because.into()), "{then}");
        assert_eq!((oom("kind"), oom("same_call/0/kind")), ("device".into(), "host-pinned".into()));
        let page = run.page();
        assert!(page.contains("clCreateBuffer, inside which that was, succeeded"), "{page}");
        let answer = "clCreateBuffer, inside which that was, answered CL_MEM_OBJECT_ALLOCATION_FAILURE (-4)";
        assert!(page.split_whitespace().collect::<Vec<_>>().join(" ").contains(answer), "{page}");
        assert!(!page.contains("what OpenCL refuses by itself is in no record"), "{page}");
    }
}

/// An error about something else than memory is not an out-of-memory failure.
#[test]
fn what_opencl_refuses_for_another_reason_is_not_told() {
    let Some(run) = refused("too-large") else { return };
    assert!(run.stdout.contains("answered: -61"), "{}", run.stdout);
    assert_eq!(run.only_trace().report().count("/ooms"), 0);
}
