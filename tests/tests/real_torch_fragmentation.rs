//! PyTorch's own memory snapshot beside the trace: what its allocator held at a failure, and whether that is fragmentation.

use std::ffi::OsStr;
use std::fs;

use gpuoom_tests::{Finished, MIB, Report, torch_client};

/// The segments of the program nearly fill it.
const SMALL: &str = "860M";

fn run(keep: &str, capacity: &str, settings: &str) -> Option<Finished> {
    let client = torch_client("fragment.py")?.args(["run.pickle", keep]);
    let client = client.env("SIM_CAPACITY", capacity).env("GPUOOM_PROBE", "off");
    let client = if settings.is_empty() { client } else { client.env("PYTORCH_ALLOC_CONF", settings) };
    let run = client.run_recorded();
    run.only_trace().report().assert_exited(0);
    Some(run)
}

fn printed(run: &Finished, name: &str) -> u64 {
    let line = run.stdout.lines().find_map(|line| line.strip_prefix(&format!("{name}: ")));
    line.and_then(|text| text.parse().ok()).unwrap_or_else(|| panic!("no {name} in {}", run.stdout))
}

fn with_snapshot(run: &Finished) -> Report {
    run.only_trace().report_with(&[OsStr::new("--torch-snapshot"), run.cwd().join("run.pickle").as_os_str()])
}

fn with_both(run: &Finished) -> Report {
    let log = run.cwd().join("log.txt");
    fs::write(&log, &run.stderr).expect("the log is written");
    let pickle = run.cwd().join("run.pickle");
    let given = ["--torch-snapshot".as_ref(), pickle.as_os_str(), "--torch-log".as_ref(), log.as_os_str()];
    run.only_trace().report_with(&given)
}

fn names(report: &Report, id: &str) -> bool {
    report.diagnoses().iter().any(|found| found.id == id)
}

/// By the time of the snapshot all was given back: its segments alone would say so of any failure.
#[test]
fn memory_in_pieces_is_proven_by_the_snapshot() {
    let Some(run) = run("half", SMALL, "") else { return };
    assert_eq!((printed(&run, "granted"), printed(&run, "unused")), (0, 400 * MIB));
    let report = with_snapshot(&run);
    report.assert_cause("caching-fragmentation", "proven");
    assert!(!names(&report, "true-capacity"));
    let evidence = report.excerpt("/diagnoses/0/evidence");
    for said in ["400 MiB in unused blocks", "300 MiB was asked for", "had 20 MiB", "take (", "fragment.py:"] {
        assert!(evidence.contains(said), "{said}: {evidence}");
    }
    // The message was printed by the same allocator at the same moment.
    let report = with_both(&run);
    report.assert_cause("caching-fragmentation", "proven");
    assert!(!report.excerpt("/diagnoses/0/evidence").contains("believed"), "{}", report.excerpt("/diagnoses/0"));
    // Without either the blocks in the trace say so, and the exception's own words.
    run.only_trace().report().assert_cause("caching-fragmentation", "proven");
}

/// No snapshot and no log: the trace has each block, and so the pieces that lie between them when the cache was given back.
#[test]
fn memory_in_pieces_is_proven_by_the_blocks() {
    let Some(run) = run("half", SMALL, "") else { return };
    let report = run.only_trace().report();
    report.assert_cause("caching-fragmentation", "proven");
    let evidence = report.excerpt("/diagnoses/0/evidence");
    for said in ["400 MiB in unused blocks", "300 MiB was asked for", "in 20 pieces", "the largest has 20 MiB"] {
        assert!(evidence.contains(said), "{said}: {evidence}");
    }
    assert!(!evidence.contains("believed"), "{evidence}");
    assert_eq!(report.number("/devices/0/tensors/moments/0/unused_bytes"), printed(&run, "unused"));
}

/// Sequences of changing length, as a cache of a transformer has them: what is unused is in pieces, and no request fits.
#[test]
fn changing_lengths_leave_pieces() {
    let Some(client) = torch_client("lengths.py") else { return };
    let run = client.env("SIM_CAPACITY", "700M").env("GPUOOM_PROBE", "off").run_recorded();
    assert_eq!(run.exit_code(), 0, "{}", run.stderr);
    let report = run.only_trace().report();
    report.assert_cause("caching-fragmentation", "proven");
    let unused = printed(&run, "unused at the error");
    let evidence = report.excerpt("/diagnoses/0/evidence");
    assert!(evidence.contains(&format!("{} MiB in unused blocks", unused / MIB)), "{unused}: {evidence}");
}

#[test]
fn a_full_card_is_no_fragmentation() {
    let Some(run) = run("full", SMALL, "") else { return };
    assert_eq!((printed(&run, "granted"), printed(&run, "unused")), (0, 0));
    for report in [with_snapshot(&run), with_both(&run)] {
        // Equal tensors of one line, none of them given back: whether the program needs them all nobody knows.
        report.assert_cause("true-capacity", "probable");
        let evidence = report.excerpt("/diagnoses/0/evidence");
        assert!(evidence.contains("none of that place was given back"), "{evidence}");
        assert!(!names(&report, "caching-fragmentation"), "{:?}", report.diagnoses());
    }
}

/// Where there is room, pieces hurt nobody; nor where memory is mapped as it is needed, which is what the report advises.
#[test]
fn without_a_failure_there_is_no_cause() {
    for (capacity, settings) in [("16G", ""), (SMALL, "expandable_segments:True")] {
        let Some(run) = run("half", capacity, settings) else { return };
        assert_eq!(printed(&run, "granted"), 1, "{capacity} {settings}: {}", run.stdout);
        let report = with_snapshot(&run);
        assert!(!names(&report, "caching-fragmentation") && !names(&report, "true-capacity"), "{settings}");
        assert!(report.causes().iter().all(|cause| cause != "caching-fragmentation"));
    }
}

/// Of an expandable segment a piece is refused when most of the others are made: they are no block of the program's, and PyTorch gives them back
/// before it throws. They were taken for blocks that the program held, and the small piece for all that it had asked for.
#[test]
fn pieces_made_for_the_refused_request_are_not_in_use() {
    let Some(client) = torch_client("small_pieces.py") else { return };
    let client = client.env("SIM_CAPACITY", "1G").env("GPUOOM_PROBE", "off");
    let run = client.env("PYTORCH_ALLOC_CONF", "expandable_segments:True").run_recorded();
    let free = printed(&run, "free");
    assert!(free >= 100 * MIB, "{free}");
    let report = run.only_trace().report();
    let found = report.diagnoses().iter().map(|found| found.id.clone()).collect::<Vec<_>>();
    assert!(found.iter().any(|id| id == "caching-fragmentation"), "{found:?}");
    let page = run.page().split_whitespace().collect::<Vec<_>>().join(" ");
    let told = format!("{} MiB was free on the card, but for what it had taken for this very request", free / MIB);
    assert!(page.contains(&told), "{told}: {page}");
    assert!(!page.contains("held at least the request in unused blocks"), "{page}");
    assert!(!page.contains("a run with expandable segments"), "that is this run: {page}");
}
