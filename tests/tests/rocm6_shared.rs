//! Memory that one process shares with another, by real releases of ROCm over the simulated card: each process's layers against the
//! card's own log, and what each page counts as its own.

use gpuoom_tests::{Client, MIB, Report, RocmRelease, Trace, assert_kernel_agrees_in_each, rocm_on_card};

/// ROCm 6.4 shares by dma-bufs where it is told not to share by requests that Linux itself does not have.
fn by_dma_buf(release: RocmRelease) -> Option<Client> {
    Some(rocm_on_card(release, "shared")?.env("GPUOOM_PROBE", "off").env("HSA_ENABLE_IPC_MODE_LEGACY", "0"))
}

fn device_numbers(report: &Report) -> [u64; 3] {
    ["allocations", "peak/requested_bytes", "end/live_allocations"]
        .map(|name| report.number(&format!("/devices/0/{name}")))
}

#[test]
fn what_is_shared_counts_for_the_process_that_made_it() {
    let Some(client) = by_dma_buf(RocmRelease::V6_4) else { return };
    let run = client.run_both();
    let line = |name: &str| run.stdout.lines().find_map(|line| line.strip_prefix(name)).unwrap_or("none").to_owned();
    assert_eq!((line("handle: "), line("opened: ")), ("0".into(), "0".into()), "{}", run.stderr);
    assert_eq!(line("read: "), line("written: "), "the same memory");
    assert_kernel_agrees_in_each(&run);

    let reports: Vec<Report> = run.traces().iter().map(Trace::report).collect();
    let mut held: Vec<[u64; 3]> = reports.iter().map(device_numbers).collect();
    held.sort_unstable();
    assert_eq!(held, [[1, 8 * MIB, 0], [1, 64 * MIB, 0]]);
    for report in &reports {
        report.assert_nothing_lost();
        assert_eq!(report.count("/ooms"), 0);
        assert_eq!(report.diagnoses().len(), 0);
    }
}

/// By the older way Linux has no request. 5.2.3 and 5.7.1 make a handle that nobody can open, 6.4.3 makes none; neither is a lack of
/// memory.
#[test]
fn what_cant_be_shared_is_no_lack_of_memory() {
    let clients = RocmRelease::ALL.into_iter().filter_map(|release| rocm_on_card(release, "shared"));
    for run in clients.map(|client| client.env("GPUOOM_PROBE", "off").run_both()) {
        assert!(run.stdout.contains("handle: ") && !run.stdout.contains("opened: 0"), "{}", run.stdout);
        assert_kernel_agrees_in_each(&run);
        let reports: Vec<Report> = run.traces().iter().map(Trace::report).collect();
        let [made, opened] = [1, 0].map(|count| reports.iter().filter(move |report| report.count("/devices") == count));
        assert_eq!(made.map(device_numbers).collect::<Vec<_>>(), [[1, 64 * MIB, 0]]);
        assert_eq!(opened.count(), reports.len() - 1);
        assert!(reports.iter().all(|report| report.count("/ooms") == 0));
    }
}
