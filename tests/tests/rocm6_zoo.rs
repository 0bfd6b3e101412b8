//! Programs of the zoo, which elsewhere run on a simulated runtime, on three releases of ROCm itself: they don't notice the
//! recorder, and the trace has each of the kernel's requests once. And a gauntlet on each.

use gpuoom_tests::{GauntletRun, RocmRelease, Row, ZOO_ON_ROCM, assert_kernel_agrees, rocm_on_card};

fn requests_of_the_zoo(release: RocmRelease) -> Option<usize> {
    let mut compared = 0;
    for program in ZOO_ON_ROCM {
        let run = rocm_on_card(release, program)?.env("GPUOOM_PROBE", "off").run_both();
        let events = assert_kernel_agrees(&run);
        run.only_trace().report().assert_nothing_lost();
        compared += events.iter().filter(|event| event.layer() == "kernel" && event.event() == "alloc").count();
    }
    Some(compared)
}

#[test]
fn each_request_of_5_2_is_recorded_once() {
    let Some(compared) = requests_of_the_zoo(RocmRelease::V5_2) else { return };
    assert!(compared > 1000, "{compared} requests for memory");
}

#[test]
fn each_request_of_5_7_is_recorded_once() {
    let Some(compared) = requests_of_the_zoo(RocmRelease::V5_7) else { return };
    assert!(compared > 1000, "{compared} requests for memory");
}

#[test]
fn each_request_of_6_4_is_recorded_once() {
    let Some(compared) = requests_of_the_zoo(RocmRelease::V6_4) else { return };
    assert!(compared > 1000, "{compared} requests for memory");
}

/// Rows without the line numbers of their call sites.
fn outcomes(table: &GauntletRun) -> Vec<String> {
    let place = |name: &str| name.split(" line ").next().unwrap_or_default().to_owned();
    let row = |row: &Row| format!("{}: {}, {}, {}", place(&row.name), row.fate, row.because, row.ending);
    table.rows().iter().map(row).collect()
}

/// The program's own source says what becomes of each call.
#[test]
fn the_gauntlet_finds_the_same_on_each_release() {
    for release in RocmRelease::ALL {
        let Some(client) = rocm_on_card(release, "hip_refusals") else { return };
        let table = client.run_gauntlet(&[]);
        let expected = [
            "load_weights (hip_refusals): propagated, process_exited, exit 70",
            "take_cache (hip_refusals): recovered, fell_back, exit 0",
            "take_cache (hip_refusals): propagated, process_exited, exit 70",
            "take_scratch (hip_refusals): dropped, gpu_work_continued, exit 0",
        ];
        assert_eq!(outcomes(&table), expected, "{release:?}");
    }
}

/// The kernel refuses a pool, HIP 5 says that it succeeded and gives null: that is neither memory nor a failure of the call's own.
#[test]
fn a_pool_that_is_refused_gives_nothing() {
    for release in RocmRelease::ALL {
        let Some(client) = rocm_on_card(release, "hip_refusals") else { return };
        let run = client.env("GPUOOM_PROBE", "off").run_both();
        assert_kernel_agrees(&run);
        let report = run.only_trace().report();
        let is_silent = release != RocmRelease::V6_4;
        assert_eq!(run.stdout, format!("scratch: status {}, no memory\n", if is_silent { 0 } else { 2 }));
        assert_eq!(report.count("/ooms"), if is_silent { 1 } else { 2 }, "{release:?}");
        assert_eq!((report.text("/ooms/0/outcome"), report.text("/ooms/0/because")), ("recovered", "fell_back"));
        let page = run.only_trace().report_text().split_whitespace().collect::<Vec<_>>().join(" ");
        let silent = "inside hipMallocFromPoolAsync, which says that it succeeded, and gave no memory";
        assert_eq!(page.contains(silent), is_silent, "{release:?}: {page}");
    }
}
