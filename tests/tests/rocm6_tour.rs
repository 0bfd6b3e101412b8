//! Three releases of ROCm over the simulated card: 5.2.3 and 5.7.1 with their own thunk, 6.4.3 with the thunk inside HSA's
//! runtime. The trace of all layers against the log of what stands in for the kernel below them.

use gpuoom_tests::{
    Client, Event, Finished, MIB, RocmRelease, TruthLine, assert_addresses_alternate, assert_kernel_agrees,
    rocm_on_card,
};

const RELEASES: [RocmRelease; 3] = [RocmRelease::V5_2, RocmRelease::V5_7, RocmRelease::V6_4];

/// The unit in which ROCr takes device memory from the driver.
const ROCR_BLOCK: u64 = 2 * MIB;

/// The tour, ending in that way after the real out-of-memory. Without the probe, so that the card sees the program alone.
fn tour(release: RocmRelease, then: &str) -> Option<Client> {
    Some(rocm_on_card(release, "hip_tour")?.args(["--then", then]).env("GPUOOM_PROBE", "off"))
}

fn refusals(run: &Finished) -> usize {
    run.truth().iter().filter(|line| line.event() == "failed").count()
}

/// The tour on each release.
fn run_tours(then: &str, outcome: &str, because: &str) -> Vec<Finished> {
    let run = |release| {
        let run = tour(release, then)?.run_both();
        let report = run.only_trace().report();
        report.assert_only_oom(outcome, because);
        report.assert_nothing_lost();
        assert_eq!(report.text("/ooms/0/status/name"), "hipErrorOutOfMemory", "{release:?}");
        assert_eq!(report.number("/ooms/0/requested_bytes"), 512 * MIB);
        assert_eq!(report.text("/ooms/0/refused_by"), "kernel", "{release:?}");
        assert_eq!(refusals(&run), 2, "ROCr trims its caches and asks twice");
        assert_addresses_alternate(&assert_kernel_agrees(&run));
        Some(run)
    };
    RELEASES.into_iter().filter_map(run).collect()
}

/// What the card held at the end, by its own count.
fn held_at_the_end(run: &Finished) -> u64 {
    run.truth().last().map_or(0, TruthLine::device_used_bytes)
}

#[test]
fn a_reported_failure_is_propagated() {
    for run in run_tours("report", "propagated", "error_reported") {
        let report = run.only_trace().report();
        assert_eq!(report.number("/devices/0/end/live_allocations"), 0, "the tour frees everything");
        assert_eq!(report.number("/host/end/live_allocations"), 0);
        assert_eq!(report.number("/devices/0/total_bytes"), 8 << 30);
        assert!(report.number("/devices/0/peak/requested_bytes") >= 15 * 512 * MIB);
    }
}

#[test]
fn an_ignored_failure_is_dropped() {
    run_tours("ignore", "dropped", "gpu_work_continued");
}

#[test]
fn a_retry_recovers() {
    run_tours("retry", "recovered", "retry_succeeded");
}

#[test]
fn a_silent_exit_propagates() {
    for run in run_tours("exit", "propagated", "process_exited") {
        run.only_trace().report().assert_exited(3);
    }
}

#[test]
fn an_abort_propagates() {
    run_tours("abort", "propagated", "process_exited");
}

#[test]
fn an_exception_propagates() {
    run_tours("throw", "propagated", "exception");
}

#[test]
fn a_run_without_a_failure_has_no_cause() {
    for release in RELEASES {
        let Some(client) = tour(release, "nothing") else { return };
        let run = client.run_both();
        assert_kernel_agrees(&run);
        let report = run.only_trace().report();
        assert_eq!((run.exit_code(), report.count("/ooms"), refusals(&run)), (0, 0, 0), "{release:?}");
        report.assert_no_cause();
        report.assert_nothing_lost();
    }
}

/// Debian's files are named after HIP's own patch number, so ROCm's patch level is not known.
#[test]
fn the_page_names_the_release() {
    for (release, rocm, file) in [
        (RocmRelease::V5_7, "ROCm 5.7,", "libamdhip64.so.5.7.31921"),
        (RocmRelease::V6_4, "ROCm 6.4,", "libamdhip64.so.6.4.43484"),
    ] {
        let Some(client) = tour(release, "report") else { return };
        let page = client.run_recorded().only_trace().report_text();
        assert!(page.contains(file) && page.contains(rocm), "{page}");
    }
}

#[test]
fn other_chips_make_no_difference() {
    for (release, chip) in RELEASES.into_iter().flat_map(|release| ["gfx90a", "gfx906"].map(|chip| (release, chip))) {
        let Some(client) = tour(release, "report") else { return };
        let run = client.env("SIM_GFX", chip).run_both();
        assert!(run.stdout.contains(chip), "{release:?}: {}", run.stdout);
        assert_kernel_agrees(&run);
        assert_eq!(run.only_trace().report().count("/ooms"), 1);
    }
}

/// What lies inside a row.
fn below<'a>(events: &'a [Event], row: &Event) -> Vec<&'a Event> {
    events.iter().filter(|event| event.parent() == Some(row.seq())).collect()
}

/// The only row of these that gives memory.
fn only_allocation<'a>(rows: &[&'a Event], of: &Event) -> &'a Event {
    let allocations: Vec<&Event> = rows.iter().copied().filter(|row| row.event() == "alloc").collect();
    let [row] = allocations[..] else { panic!("not one allocation in {of:?}: {rows:#?}") };
    row
}

/// A call of the program, HSA's call that it makes, and the kernel's request that this one makes: one block.
#[test]
fn each_block_is_seen_at_each_layer() {
    for release in RELEASES {
        let Some(client) = tour(release, "report") else { return };
        let events = client.run_recorded().only_trace().events();
        let of_its_own =
            |row: &&Event| row.api() == "hipMalloc" && row.is_allocation() && row.requested_bytes() > ROCR_BLOCK;
        let rows: Vec<&Event> = events.iter().filter(of_its_own).collect();
        assert_eq!(rows.len(), 17, "{release:?}: two copied, and what filled the card");
        for row in rows {
            let hsa = only_allocation(&below(&events, row), row);
            assert_eq!((hsa.layer(), hsa.address(), hsa.thread()), ("hsa", row.address(), row.thread()));
            let kernel = only_allocation(&below(&events, hsa), hsa);
            assert_eq!((kernel.layer(), kernel.kind(), kernel.device()), ("kernel", "device", Some(0)));
            assert_eq!(kernel.requested_bytes(), hsa.requested_bytes().next_multiple_of(ROCR_BLOCK));
        }
    }
}

/// The probe allocates on the recorder's own thread: what was probed is given back.
#[test]
fn the_probe_leaves_no_mark_on_the_card() {
    for release in RELEASES {
        let Some(client) = rocm_on_card(release, "hip_tour") else { return };
        let client = client.args(["--then", "report"]);
        let (plain, probed) = (client.run_plain(), client.run_recorded());
        assert_eq!((&probed.stdout, probed.status), (&plain.stdout, plain.status));
        let report = probed.only_trace().report();
        let free = report.number_or_null("/ooms/0/free_reported_bytes").expect("hipMemGetInfo answers");
        let largest = report.number_or_null("/ooms/0/largest_allocatable_bytes").expect("it was probed");
        // HIP 5.2 counts what the program has, and not the runtime's own blocks of 2 MiB.
        assert!(largest < 512 * MIB && largest <= free && largest + 16 * MIB > free, "{largest} of {free}");
        assert_eq!(held_at_the_end(&probed), held_at_the_end(&plain));
    }
}

/// HSA without HIP. The last block is refused by the card, which ROCr asks twice.
#[test]
fn hsa_alone_is_seen_down_to_the_kernel() {
    for (release, chip) in [
        (RocmRelease::V5_7, "gfx1030"),
        (RocmRelease::V6_4, "gfx1030"),
        (RocmRelease::V6_4, "gfx1100"),
        (RocmRelease::V6_4, "gfx942"),
    ] {
        let Some(client) = rocm_on_card(release, "hsa_tour") else { return };
        let client = client.arg("--once").env("SIM_CAPACITY", "2G").env("SIM_GFX", chip).env("GPUOOM_PROBE", "off");
        let run = client.run_both();
        assert_eq!(run.exit_code(), 1, "{}", run.stdout);
        assert_kernel_agrees(&run);
        let report = run.only_trace().report();
        assert_eq!((report.count("/ooms"), refusals(&run)), (1, 2));
        assert_eq!(report.text("/ooms/0/refused_by"), "kernel");
        assert_eq!(report.number("/ooms/0/requested_bytes"), 256 * MIB);
        assert_eq!(report.number("/devices/0/end/live_allocations"), 0);
    }
}

/// HSA comes up only once in a process of 6.4: nothing is asked of the kernel for the second time.
#[test]
fn hsa_6_4_is_refused_for_the_second_time() {
    let Some(client) = rocm_on_card(RocmRelease::V6_4, "hsa_tour") else { return };
    let run = client.env("GPUOOM_PROBE", "off").run_both();
    assert_eq!(run.stdout.lines().last(), Some("FAILED hsa_init: 0x1008"));
    assert_kernel_agrees(&run);
}
