//! Debian's real HIP and HSA: what a reset and the last shutdown really give back, by the log of the thunk below them.

use gpuoom_tests::{Finished, MIB, ThunkLine, rocm_client};

fn ended(how: &str) -> Option<(Finished, Vec<ThunkLine>)> {
    let run = rocm_client("endings")?.arg(how).env("GPUOOM_PROBE", "off").run_both();
    let thunk = ThunkLine::read_all(&run.cwd().join("thunk.log"));
    Some((run, thunk))
}

/// Device bytes that the driver still holds when the program ends.
fn held(thunk: &[ThunkLine]) -> u64 {
    thunk.last().expect("a line").vram_bytes
}

/// HIP 5.2 forgets its memory at a reset, and the driver keeps it: frees are refused, and the report must say that it is there.
#[test]
fn a_reset_of_hip_5_2_gives_nothing_back() {
    let Some((run, thunk)) = ended("hip") else { return };
    assert!(run.stdout.contains("hipDevicePrimaryCtxReset 0\nafter it: 7680 MiB free"), "{}", run.stdout);
    assert!(run.stdout.contains("hipDeviceReset 0\nafter it: 7680 MiB free"), "{}", run.stdout);
    assert!(run.stdout.contains("frees 1 1\nlater 0, free 0\n"), "{}", run.stdout);
    assert!((512 * MIB..520 * MIB).contains(&held(&thunk)), "{}", held(&thunk));
    let report = run.only_trace().report();
    assert_eq!(report.number("/devices/0/end/requested_bytes"), 512 * MIB);
    assert_eq!(report.number("/host/end/requested_bytes"), 64 * MIB);
    assert_eq!((report.number("/failed_frees"), report.number("/unmatched_frees")), (2, 0));
}

/// ROCr unloads at its last shutdown and frees no memory of the program's; and what was locked twice stays locked.
#[test]
fn the_last_shutdown_of_hsa_gives_nothing_back() {
    let Some((run, thunk)) = ended("hsa") else { return };
    assert!(run.stdout.contains("shut down, the last 0\nhsa_init 0\nlater 0\n"), "{}", run.stdout);
    assert_eq!(held(&thunk), (512 + 16) * MIB);
    let unpinned = thunk.iter().filter(|line| line.op == "deregister").count();
    let pinned = thunk.iter().filter(|line| line.op == "register").count();
    assert_eq!((pinned, unpinned), (2, 1));
    let report = run.only_trace().report();
    assert_eq!(report.number("/devices/0/end/requested_bytes"), (512 + 16) * MIB);
    assert_eq!(report.number("/host/end/requested_bytes"), MIB);
    assert_eq!((report.number("/host/allocations"), report.number("/host/frees")), (2, 1));
}
