//! What goes with a CUDA context that ends, and what stays: the account against the device's own log.

use std::collections::BTreeMap;

use gpuoom_tests::{Client, Finished, Library, MIB, Report, TruthLine, program_with};

const STEPS: usize = 10;

fn run(steps: usize) -> Finished {
    let client = Client::new(program_with("cuda_context_ends.c", Library::CudaAndDriver)).arg(steps.to_string());
    let run = client.env("SIM_DEVICES", "2").env("GPUOOM_PROBE", "off").run_both();
    assert_eq!(run.exit_code(), 0, "{}", run.stderr);
    run
}

/// Blocks and bytes by place: a device's number, or none for the host.
type Held = BTreeMap<Option<u64>, (u64, u64)>;

fn held_by_device(truth: &[TruthLine]) -> Held {
    let mut live = BTreeMap::new();
    for line in truth.iter().filter(|line| line.kind() != "context") {
        let on_host = ["host-pinned", "registered"].contains(&line.kind());
        match line.event() {
            "alloc" => live.insert(line.address(), ((!on_host).then(|| line.device()), line.requested_bytes())),
            "free" => Some(live.remove(&line.address()).expect("it was given")),
            _ => None,
        };
    }
    let mut held = Held::new();
    for (place, bytes) in live.into_values() {
        let sum = held.entry(place).or_default();
        *sum = (sum.0 + 1, sum.1 + bytes);
    }
    held
}

fn held_by_account(report: &Report) -> Held {
    let held = |base: &str| {
        (report.number(&format!("{base}/end/live_allocations")), report.number(&format!("{base}/end/requested_bytes")))
    };
    let devices = (0..report.count("/devices")).map(|index| {
        let base = format!("/devices/{index}");
        (Some(report.number(&format!("{base}/index"))), held(&base))
    });
    devices.chain([(None, held("/host"))]).filter(|(_, (blocks, _))| *blocks > 0).collect()
}

#[test]
fn after_each_end_the_account_holds_what_the_device_holds() {
    for steps in 1..=STEPS {
        let run = run(steps);
        run.assert_trace_is_true();
        let report = run.only_trace().report();
        assert_eq!(held_by_account(&report), held_by_device(&run.truth()), "after {steps} steps");
        assert_eq!(report.number("/contexts_unclear/blocks"), 0, "after {steps} steps");
        assert_eq!(report.number("/unmatched_frees"), 0);
        report.assert_nothing_lost();
    }
}

#[test]
fn pools_physical_memory_and_other_contexts_outlive_a_context() {
    let sum = |steps| held_by_account(&run(steps).only_trace().report());
    let (before, after) = (sum(2), sum(3));
    // 10, 12 and 2 of the thread itself, 18 of another one; 14 from a pool and 16 of physical memory stay.
    assert_eq!(before[&Some(0)].1 - after[&Some(0)].1, (10 + 12 + 2 + 18) * MIB);
    assert_eq!(before[&Some(1)], after[&Some(1)]);
    assert!(before.contains_key(&None) && !after.contains_key(&None), "pinned and registered memory goes, too");
}

/// Behind a reset nobody asks the runtime until the program has allocated again: to ask would make a context that it does not want.
#[test]
fn a_device_that_was_reset_is_left_alone() {
    let client = Client::new(program_with("cuda_reset.c", Library::Cuda)).env("GPUOOM_SAMPLE", "1ms");
    let run = client.run_recorded();
    assert_eq!(run.exit_code(), 0, "{}", run.stderr);
    let (mut reset_at, mut asked) = (None, [0, 0]);
    for event in run.only_trace().events() {
        match event.api() {
            "cudaDeviceReset" => reset_at = Some(event.at_ns()),
            "cudaMalloc" => reset_at = None,
            _ if event.reading("runtime_free_bytes").is_some() => {
                // A reading stands where it ended, with the time when it began.
                asked[usize::from(reset_at.is_some_and(|at| at < event.at_ns()))] += 1;
            }
            _ => {}
        }
    }
    assert_eq!(asked[1], 0, "asked {} times while something was allocated", asked[0]);
    assert!(asked[0] > 0);
}
