//! OpenCL of ROCm 6.4.3 over the simulated card: its own calls are not recorded, what they make HSA and the kernel do is.

use gpuoom_tests::{Client, Event, MIB, RocmRelease, assert_kernel_agrees, rocm_on_card};

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
