//! Several processes of one job: a trace each, and one report on all.

use std::collections::BTreeMap;

use gpuoom_tests::{Client, Finished, MIB, Report, TruthLine, program};

/// What the devices' own log says: the most that all processes held of each device together at one moment, and who held
/// how much of it then. For programs whose processes outlive that moment.
fn true_peaks(truth: &[TruthLine]) -> BTreeMap<u64, (u64, BTreeMap<u64, u64>)> {
    let mut lines: Vec<&TruthLine> = truth.iter().filter(|line| ["alloc", "free"].contains(&line.event())).collect();
    lines.sort_by_key(|line| line.at_ns());
    let mut held: BTreeMap<u64, BTreeMap<u64, u64>> = BTreeMap::new();
    let mut peaks = BTreeMap::new();
    for line in lines {
        let of_device = held.entry(line.device()).or_default();
        let of_process = of_device.entry(line.pid()).or_default();
        match line.event() {
            "alloc" => *of_process += line.requested_bytes(),
            _ => *of_process -= line.requested_bytes(),
        }
        let sum: u64 = of_device.values().sum();
        let peak = peaks.entry(line.device()).or_insert((0, BTreeMap::new()));
        if sum > peak.0 {
            *peak =
                (sum, of_device.iter().filter(|(_, bytes)| **bytes > 0).map(|(pid, bytes)| (*pid, *bytes)).collect());
        }
    }
    peaks
}

/// The same by the report.
fn reported_peaks(report: &Report) -> BTreeMap<u64, (u64, BTreeMap<u64, u64>)> {
    let devices = 0..report.count("/job/devices");
    devices
        .map(|device| {
            let peak = format!("/job/devices/{device}/peak");
            assert!(report.flag(&format!("{peak}/exact")));
            let shares = (0..report.count(&format!("{peak}/processes"))).map(|share| {
                let process = report.number(&format!("{peak}/processes/{share}/process"));
                let bytes = report.number(&format!("{peak}/processes/{share}/requested_bytes"));
                (report.number(&format!("/job/processes/{process}/pid")), bytes)
            });
            let sum = report.number(&format!("{peak}/requested_bytes"));
            (report.number(&format!("/job/devices/{device}/index")), (sum, shares.collect()))
        })
        .collect()
}

fn ranks(ranks: u32, fails: u32) -> Client {
    let client = Client::new(program("ranks.c")).arg(ranks.to_string()).arg(fails.to_string());
    client.env("GPUOOM_TRACE", "../trace/%h-%r-%e-%p.trace.bin").env("GPUOOM_PROBE", "off")
}

fn column<T>(report: &Report, count: usize, field: &str, get: impl Fn(&Report, &str) -> T) -> Vec<T> {
    (0..count).map(|process| get(report, &format!("/job/processes/{process}/{field}"))).collect()
}

#[test]
fn the_rank_that_fails_is_named_first() {
    let run = ranks(4, 2).env("SIM_DEVICES", "4").run_both();
    run.assert_trace_is_true();
    let report = run.job();
    assert_eq!((report.count("/traces"), report.count("/job/processes")), (4, 4));
    assert_eq!(column(&report, 4, "rank", Report::number), [0, 1, 2, 3]);
    assert_eq!(column(&report, 4, "exit_code", Report::number), [0, 0, 1, 0]);
    assert_eq!(report.number("/job/verdict/first/process"), 2);
    let counts = ["ran_out", "dropped", "ended_badly"].map(|field| report.number(&format!("/job/verdict/{field}")));
    assert_eq!(counts, [1, 0, 1]);
    assert_eq!(reported_peaks(&report), true_peaks(&run.truth()));
    // Each in its own trace, with the rank in the summary and in the file's name.
    for process in 0..4 {
        assert_eq!(report.number(&format!("/traces/{process}/process/rank")), process);
    }
    let text = run.job_text();
    let verdict = text.split("\n\n").nth(1).unwrap_or_default().split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(verdict.starts_with("VERDICT Rank 2 (pid ") && verdict.contains("1 of 4 processes ran out"), "{text}");
}

#[test]
fn ranks_that_share_a_device_are_added_up_at_one_moment() {
    let run = ranks(4, 9).env("SIM_DEVICES", "2").run_both();
    run.assert_trace_is_true();
    let report = run.job();
    let peaks = reported_peaks(&report);
    assert_eq!(peaks, true_peaks(&run.truth()));
    // Each rank's own peak is 150 MiB; together two of them never held 300.
    assert_eq!(peaks.values().map(|(sum, _)| *sum / MIB).collect::<Vec<_>>(), [100 + 120, 110 + 130]);
    for process in 0..4 {
        assert_eq!(report.number(&format!("/job/processes/{process}/devices/0/peak/requested_bytes")), 150 * MIB);
    }
    assert!(run.job_text().contains("No process ran out of memory."), "{}", run.job_text());
}

#[test]
fn forked_workers_stand_behind_their_parent_and_end_with_their_memory() {
    let run = Client::new(program("fork_workers.c")).run_both();
    run.assert_trace_is_true();
    let report = run.job();
    assert_eq!(report.count("/job/processes"), 7);
    assert_eq!(column(&report, 7, "generation", Report::number), [0, 1, 1, 1, 1, 1, 1]);
    let parents = column(&report, 7, "parent", Report::number_or_null);
    assert_eq!(parents, [None, Some(0), Some(0), Some(0), Some(0), Some(0), Some(0)]);
    assert_eq!(report.number("/job/devices/0/peak/requested_bytes"), (10 + 20 + 40 + 60) * MIB);
    assert_eq!(report.count("/job/devices/0/peak/processes"), 4);
    assert_eq!(report.text("/job/clocks/0/aligned_by"), "monotonic_clock");
}

/// The moments of all traces lie on one line: the order in which the ranks took memory is the true one.
#[test]
fn moments_of_several_traces_are_in_the_true_order() {
    let run = ranks(4, 9).env("SIM_DEVICES", "1").run_both();
    let report = run.job();
    let mut of_job: Vec<(u64, u64)> = Vec::new();
    for trace in run.traces() {
        let process = (0..4)
            .find(|process| report.text(&format!("/job/processes/{process}/path")) == trace.path.to_string_lossy())
            .expect("a process for each trace");
        let began = report.number(&format!("/job/processes/{process}/began_at_ns"));
        let pid = report.number(&format!("/job/processes/{process}/pid"));
        let allocations = trace.events().into_iter().filter(gpuoom_tests::Event::is_allocation);
        // When the call had returned; the device logs it before that.
        of_job.extend(allocations.map(|event| (began + event.at_ns(), pid)));
    }
    of_job.sort_unstable();
    let mut truth: Vec<(u64, u64)> =
        run.truth().iter().filter(|line| line.event() == "alloc").map(|line| (line.at_ns(), line.pid())).collect();
    truth.sort_unstable();
    let pids = |moments: &[(u64, u64)]| moments.iter().map(|(_, pid)| *pid).collect::<Vec<_>>();
    assert_eq!(pids(&of_job), pids(&truth));
}

fn names(run: &Finished) -> Vec<String> {
    let name = |path: &std::path::Path| path.file_name().expect("a name").to_string_lossy().into_owned();
    run.traces().iter().map(|trace| name(&trace.path)).collect()
}

#[test]
fn placeholders_stand_for_what_they_should() {
    let run = ranks(2, 9).run_both();
    let expected: Vec<String> = run
        .traces()
        .iter()
        .map(|trace| {
            let report = trace.report();
            let of = |field: &str| report.text(&format!("/process/{field}")).to_owned();
            let number = |field: &str| report.number(&format!("/process/{field}"));
            format!("{}-{}-ranks-{}.trace.bin", of("hostname"), number("rank"), number("pid"))
        })
        .collect();
    assert_eq!(names(&run), expected);
    assert!(expected[0].contains("-0-ranks-") && expected[1].contains("-1-ranks-"), "{expected:?}");
}

#[test]
fn a_path_that_is_taken_gets_the_process_id_behind_it() {
    let run = ranks(3, 9).env("GPUOOM_TRACE", "../trace/all.bin").run_both();
    let traces = run.traces();
    assert_eq!(names(&run)[0], "all.bin");
    let pids: Vec<u64> = traces.iter().map(gpuoom_tests::Trace::pid).collect();
    let mut expected: Vec<String> = pids[1..].iter().map(|pid| format!("all.bin.{pid}")).collect();
    expected.sort();
    assert_eq!(names(&run)[1..], expected);
    let mut ranks = column(&run.job(), 3, "rank", Report::number);
    ranks.sort_unstable();
    assert_eq!(ranks, [0, 1, 2]);
}

#[test]
fn the_rank_is_found_where_the_launchers_put_it() {
    for (variables, rank) in [
        (&[("SLURM_PROCID", "5")][..], Some(5)),
        (&[("OMPI_COMM_WORLD_RANK", "4"), ("SLURM_PROCID", "5")], Some(4)),
        (&[("RANK", "3"), ("OMPI_COMM_WORLD_RANK", "4")], Some(3)),
        (&[("RANK", "0")], Some(0)),
        // The file's name needs a number.
        (&[], None),
    ] {
        let mut client = Client::new(program("linked.c")).env("GPUOOM_TRACE", "../trace/r%r.bin");
        for name in ["RANK", "OMPI_COMM_WORLD_RANK", "SLURM_PROCID"] {
            client = client.without_env(name);
        }
        for (name, value) in variables {
            client = client.env(name, *value);
        }
        let run = client.run_recorded();
        assert_eq!(names(&run), [format!("r{}.bin", rank.unwrap_or(0))]);
        assert_eq!(run.only_trace().report().number_or_null("/process/rank"), rank);
    }
}
