//! The rounding vectors, allocated for real on a simulated card: each allocation is padded to the granule by itself.
//!
//! Percentages are of what was asked for. GiB = 2^30.

use gpuoom_tests::{Client, Report, Trace, program};

const GRANULE: u64 = 256 << 20;

struct Vector {
    name: &'static str,
    /// (count, bytes)
    live: &'static [(u64, u64)],
    footprint: u64,
    chunks: u64,
    /// The share that is lost, in percent of the footprint.
    lost_percent: f64,
}

/// 7B in Q4_K_M: 4.2 and 2.1 GiB.
const V1: Vector = Vector {
    name: "V1",
    live: &[(1, 4_509_715_661), (1, 2_254_857_830)],
    footprint: 6_764_573_491,
    chunks: 26,
    lost_percent: 3.17,
};

/// 13B in Q6_K: 9.7 and 3.8 GiB. Rounding the sum instead of each would give 54 chunks.
const V2: Vector = Vector {
    name: "V2",
    live: &[(1, 10_415_295_693), (1, 4_080_218_931)],
    footprint: 14_495_514_624,
    chunks: 55,
    lost_percent: 1.85,
};

const V3A: Vector =
    Vector { name: "V3a", live: &[(75, 201_863_463)], footprint: 15_139_759_725, chunks: 75, lost_percent: 32.98 };

const V3B: Vector =
    Vector { name: "V3b", live: &[(76, 199_207_365)], footprint: 15_139_759_740, chunks: 76, lost_percent: 34.75 };

/// The mixed one: 384 MiB blocks leave 128 MiB each that nobody can use.
const V3D: Vector = Vector {
    name: "V3d",
    live: &[(37, 402_653_184), (1, 134_217_728)],
    footprint: 15_032_385_536,
    chunks: 75,
    lost_percent: 33.93,
};

const V5: Vector =
    Vector { name: "V5", live: &[(30, 402_653_184)], footprint: 12_079_595_520, chunks: 60, lost_percent: 33.33 };

fn record(vector: &Vector, granularity: &str) -> (Trace, gpuoom_tests::Finished) {
    let mut client =
        Client::new(program("alloc_list.c")).env("SIM_CAPACITY", "64G").env("GPUOOM_GRANULARITY", granularity);
    for (count, bytes) in vector.live {
        client = client.arg(format!("{count}x{bytes}"));
    }
    let run = client.run_both();
    assert_eq!(run.exit_code(), 0, "{}", run.stderr);
    run.assert_trace_is_true();
    (run.only_trace(), run)
}

fn assert_peak(report: &Report, vector: &Vector, padded_bytes: u64) {
    let name = vector.name;
    assert_eq!(report.number("/devices/0/peak/requested_bytes"), vector.footprint, "{name}");
    assert_eq!(report.number("/devices/0/peak/padded_bytes"), padded_bytes, "{name}");
    let loss = (padded_bytes - vector.footprint) as f64 / vector.footprint as f64;
    let reported = report.ratio("/devices/0/fragmentation/effective_loss");
    assert!((reported - loss).abs() < 1e-6, "{name}: {reported} instead of {loss}");
}

fn check(vector: &Vector) -> (Trace, gpuoom_tests::Finished) {
    let (trace, run) = record(vector, "256M");
    let report = trace.report();
    assert_peak(&report, vector, vector.chunks * GRANULE);
    let percent = report.ratio("/devices/0/fragmentation/effective_loss") * 100.0;
    assert!((percent - vector.lost_percent).abs() < 0.005, "{}: {percent} %", vector.name);
    assert_eq!(report.number("/devices/0/granularity_bytes"), GRANULE);
    (trace, run)
}

#[test]
fn v1_pads_6_3_to_6_5_gib() {
    check(&V1);
    assert_eq!(V1.chunks * GRANULE, 6_979_321_856);
}

#[test]
fn v1_at_2_mib_loses_next_to_nothing() {
    let (trace, _run) = record(&V1, "2M");
    assert_peak(&trace.report(), &V1, 6_767_509_504);
}

#[test]
fn v2_pads_each_block_not_the_sum() {
    check(&V2);
    assert_eq!(V2.chunks * GRANULE, 14_763_950_080);
}

#[test]
fn v3a_prints_33_0_percent() {
    let (trace, _run) = check(&V3A);
    assert_prints(&trace, "33.0");
}

#[test]
fn v3b_prints_34_8_percent() {
    let (trace, _run) = check(&V3B);
    assert_prints(&trace, "34.8");
}

#[test]
fn v3d_prints_33_9_percent() {
    let (trace, _run) = check(&V3D);
    assert_prints(&trace, "33.9");
    // 34 % with no digit after the point.
    assert_eq!(format!("{:.0}", V3D.lost_percent), "34");
}

#[test]
fn v5_pads_11_25_to_15_gib() {
    check(&V5);
    assert_eq!(V5.chunks * GRANULE, 15 << 30);
}

/// 18.9 GiB is not on the grid: a report that prints it has not rounded each block.
fn assert_prints(trace: &Trace, percent: &str) {
    let text = trace.report_text();
    assert!(text.contains(percent), "{percent} % is missing:\n{text}");
    for impossible in ["18.9 GiB", "18.90 GiB"] {
        assert!(!text.contains(impossible), "{impossible}:\n{text}");
    }
}

/// A size is the same number at the recorder's entrance and at the analyzer's, and what is wrong is told in the same words.
#[test]
fn sizes_mean_the_same_everywhere() {
    for (text, bytes) in [("1.5M", 1_572_864), ("0.5 GiB", 512 << 20), ("3.7K", 3788), ("4096", 4096)] {
        let (trace, _run) = record(&V5, text);
        let granularity = |report: &Report| report.number("/devices/0/granularity_bytes");
        assert_eq!(granularity(&trace.report()), bytes, "GPUOOM_GRANULARITY={text}");
        let (other, _other_run) = record(&V5, "256M");
        let threshold = format!("model-granule={text}");
        let by_threshold = other.report_with(&["--threshold".as_ref(), threshold.as_ref()]);
        assert_eq!(granularity(&by_threshold), bytes, "--threshold {threshold}");
        let by_option = other.whatif(&["--granularity", text]);
        let needs = 0..by_option.count("/devices/0/needs");
        let granules = needs.map(|need| by_option.number(&format!("/devices/0/needs/{need}/granularity/bytes")));
        assert!(granules.into_iter().any(|granule| granule == bytes), "--granularity {text}");
    }
    let said = "invalid size '3X': expected bytes, or K, M, G, T (such as 1.5G)";
    let (trace, run) = record(&V5, "3X");
    assert!(run.stderr.contains(said), "{}", run.stderr);
    for arguments in [["map", "--granularity", "3X"], ["report", "--threshold", "model-granule=3X"]] {
        let output = trace.analyze_anyway(&arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        assert!(String::from_utf8_lossy(&output.stderr).contains(said), "{arguments:?}");
    }
}
