//! Programs of the zoo, which elsewhere run on a simulated runtime, on three releases of ROCm itself: they don't notice the
//! recorder, and the trace has each of the kernel's requests once. And a gauntlet on each.

use gpuoom_tests::{Client, GauntletRun, RocmRelease, Row, ZOO_ON_ROCM, assert_kernel_agrees, rocm_on_card};

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

/// Programs that ask HIP for other things on 5.2 and 5.7, or that those crash: virtual memory, and sizes beyond all measure.
const OTHER_CALLS: &[&str] = &["huge_sizes", "vmm_outlives_handle", "waits"];

/// HIP 5.2 dies now and then where one thread ends the process and others are inside of it, with older recorders as well: then the run
/// has not come to the call that was to fail, and is made again.
fn rows_that_came_to_their_call(client: &Client) -> Vec<Row> {
    let run = || client.clone().run_gauntlet(&[]).rows();
    let died_before = |row: &Row| row.fate == "not_reached" && row.ending.starts_with("signal");
    (0..5).map(|_| run()).find(|rows| !rows.iter().any(died_before)).unwrap_or_else(run)
}

/// How HIP 6 takes itself down beside other threads is its own affair: it dies of a signal without the recorder, too. So ends are not compared.
#[test]
fn no_program_of_the_zoo_drops_an_error_on_any_release() {
    for name in ZOO_ON_ROCM {
        let mut on_releases: Vec<Vec<(String, String)>> = Vec::new();
        for release in RocmRelease::ALL {
            let Some(client) = rocm_on_card(release, name) else { return };
            let rows = rows_that_came_to_their_call(&client);
            assert!(
                rows.iter().all(|row| row.fate != "dropped" && row.fate != "not_reached"),
                "{release:?}: {rows:#?}"
            );
            on_releases.push(rows.into_iter().map(|row| (row.fate, row.because)).collect());
        }
        let same = on_releases.windows(2).all(|pair| pair[0] == pair[1]);
        assert!(same || OTHER_CALLS.contains(name), "{name}: {on_releases:?}");
    }
}

/// 5.2 crashes on a stream-ordered allocation of this program, whatever failed before: that crash is no reaction.
#[test]
fn a_crash_that_comes_anyway_tells_nothing() {
    let Some(client) = rocm_on_card(RocmRelease::V5_2, "huge_sizes") else { return };
    let rows = client.run_gauntlet(&[]).rows();
    assert!(!rows.is_empty() && rows.iter().all(|row| row.fate == "unresolved"), "{rows:#?}");
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
