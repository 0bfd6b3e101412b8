//! A program on Debian's real HSA runtime, without HIP: the trace against the log of the thunk below it.

use gpuoom_tests::{Explained, Finished, MIB, ThunkLine, assert_addresses_alternate, assert_hsa_explains, rocm_client};

fn tour() -> Option<(Finished, Vec<ThunkLine>)> {
    let run = rocm_client("hsa_tour")?.env("SIMTHUNK_CAPACITY", "2G").run_both();
    let thunk = ThunkLine::read_all(&run.cwd().join("thunk.log"));
    Some((run, thunk))
}

#[test]
fn calls_of_hsa_are_the_programs_own() {
    let Some((run, thunk)) = tour() else { return };
    let (report, events) = (run.only_trace().report(), run.only_trace().events());
    report.assert_nothing_lost();
    report.assert_exited(1);
    assert_addresses_alternate(&events);
    assert!(events.iter().filter(|event| event.layer() == "hsa").all(|event| event.parent().is_none()));
    let explained = assert_hsa_explains(&thunk, &events);
    // In MiB: (3 + 8) twice, a region of 5, a copy of 4, eight blocks of 256; 64 bytes twice.
    let asked = 2 * (3 + 8) * MIB + 5 * MIB + 4 * MIB + 8 * 256 * MIB + 2 * 64;
    let own_blocks = 2 * (4 + 8) * MIB + 6 * MIB + 4 * MIB + 8 * 256 * MIB;
    let queues = 2 * 4096;
    assert_eq!(explained, Explained { asked, own_blocks, shared_blocks: 2 * 2 * MIB, code: 0, queues });
    assert_eq!(report.number("/devices/0/allocations"), 2 * 3 + 1 + 1 + 8);
    assert_eq!(report.number("/devices/0/end/live_allocations"), 0);
    assert_eq!(report.number("/devices/0/peak/requested_bytes"), 2048 * MIB);
    assert_eq!(report.number("/host/allocations"), 2 * 3 + 1 + 1 + 3, "pools, a region, a copy; three ways to pin");
    assert_eq!(report.number("/host/end/live_allocations"), 0);
    assert_eq!(report.number("/unmatched_frees"), 0);
}

/// The eighth block is first refused by the driver and then had, once ROCr has given its own cache back: no failure of the
/// program's. The ninth is asked for twice, too, and refused.
#[test]
fn what_rocr_recovers_by_itself_is_no_failure() {
    let Some((run, thunk)) = tour() else { return };
    let report = run.only_trace().report();
    assert_eq!(thunk.iter().filter(|line| line.status == "no_memory").count(), 3);
    report.assert_only_oom("propagated", "error_reported");
    assert_eq!(report.text("/ooms/0/api"), "hsa_amd_memory_pool_allocate");
    assert_eq!(report.text("/ooms/0/status/name"), "HSA_STATUS_ERROR_OUT_OF_RESOURCES");
    assert_eq!((report.text("/ooms/0/refused_by"), report.number("/ooms/0/device")), ("hsa", 0));
    assert_eq!(report.number("/ooms/0/requested_bytes"), 256 * MIB);
}

/// After a shutdown the same handles stand for other pools: what was known of them is forgotten.
#[test]
fn pools_are_told_apart_after_a_shutdown_too() {
    let Some((run, _)) = tour() else { return };
    let events = run.only_trace().events();
    let shut_down = events.iter().position(|event| event.api() == "hsa_shut_down").expect("the tour shuts HSA down");
    for half in [&events[..shut_down], &events[shut_down..]] {
        let pools: Vec<_> = half.iter().filter(|event| event.api() == "hsa_amd_memory_pool_allocate").collect();
        let places: Vec<_> = pools[..6].iter().map(|event| (event.kind(), event.device())).collect();
        assert_eq!(places, [("device", Some(0)), ("host-pinned", None)].repeat(3));
    }
}
