//! Programs of the zoo, which elsewhere run on a simulated runtime, on ROCm 6.4.3 itself: they don't notice the recorder, and
//! the trace has each of the kernel's requests once.

use gpuoom_tests::{RocmRelease, assert_kernel_agrees, rocm_on_card};

const PROGRAMS: &[&str] = &[
    "address_reuse",
    "bad_frees",
    "device_reset",
    "eight_threads",
    "few_mappings",
    "huge_sizes",
    "many",
    "pools",
    "threads_leave",
    "vfork_exec",
    "vmm_outlives_handle",
    "waits",
    "who_allocates",
];

#[test]
fn each_request_is_recorded_once() {
    let mut compared = 0;
    for program in PROGRAMS {
        let Some(client) = rocm_on_card(RocmRelease::V6_4, program) else { return };
        let run = client.env("GPUOOM_PROBE", "off").run_both();
        let events = assert_kernel_agrees(&run);
        run.only_trace().report().assert_nothing_lost();
        compared += events.iter().filter(|event| event.layer() == "kernel" && event.event() == "alloc").count();
    }
    assert!(compared > 1000, "{compared} requests for memory");
}
