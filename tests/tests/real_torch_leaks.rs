//! Tensors that PyTorch programs keep of each step, inside of the segments of its allocator, and programs that only look like it. What is
//! true the program itself counts: `torch.cuda.memory_allocated()` after each step.

use gpuoom_tests::{Finished, MIB, Report, torch_client};
use serde_json::Value;

/// Steps of each program.
const STEPS: &str = "48";
/// A card that is large enough for all of them.
const LARGE: &str = "16G";

fn run(scenario: &str, capacity: &str, steps: &str) -> Option<(Finished, Report)> {
    let client = torch_client("leaks.py")?.args([scenario, steps]);
    let run = client.env("SIM_CAPACITY", capacity).env("GPUOOM_PROBE", "off").run_recorded();
    let report = run.only_trace().report();
    Some((run, report))
}

/// What PyTorch says that its tensors hold after each step.
fn counted(run: &Finished) -> Vec<i64> {
    let lines = run.stdout.lines().filter_map(|line| line.strip_prefix("allocated: "));
    lines.map(|text| text.parse().expect("a number")).collect()
}

/// By how much that rises from step to step, once it runs.
fn counted_per_step(run: &Finished) -> f64 {
    let mut rises: Vec<i64> = counted(run).windows(2).skip(2).map(|two| two[1] - two[0]).collect();
    rises.sort_unstable();
    rises[rises.len() / 2] as f64
}

fn of_tensors(report: &Report) -> &Value {
    report.value("/tensor_growth/0")
}

fn leak(report: &Report) -> Option<String> {
    report.diagnoses().into_iter().find(|found| found.id == "live-leak").map(|found| found.confidence)
}

/// What tensors hold rises by what PyTorch counts, line by line, and the right line is named.
fn assert_leak(scenario: &str, function: &str) {
    let Some((run, report)) = run(scenario, LARGE, STEPS) else { return };
    let (growth, counted) = (of_tensors(&report), counted_per_step(&run));
    assert!(counted >= MIB as f64, "{scenario}: {counted}");
    assert_eq!(growth["significant"], true, "{scenario}: {growth:#}");
    assert_eq!(growth["per_step"]["bytes"].as_f64(), Some(counted), "{scenario}: {growth:#}");
    let lines = growth["lines"].as_array().expect("lines");
    let sum: f64 = lines.iter().filter_map(|line| line["per_step"]["bytes"].as_f64()).sum();
    assert!((sum - counted).abs() <= 0.02 * counted, "{scenario}: {sum} of {counted}");
    for line in lines {
        assert_eq!(line["freed_blocks"], 0, "{scenario}: {line:#}");
        let stack = line["stack"].to_string();
        assert!(stack.contains(function), "{scenario}: {stack}");
    }
    // Nothing failed: a buffer that is not full yet, and a list that goes with its function, look the same.
    assert_eq!(leak(&report).as_deref(), Some("possible"), "{scenario}: {:?}", report.diagnoses());
    let evidence = report.excerpt("/diagnoses/0/evidence");
    assert!(
        evidence.contains("leaks.py:") && evidence.contains("no tensor from these calls is freed"),
        "{scenario}: {evidence}"
    );
}

#[test]
fn losses_that_keep_their_graphs() {
    assert_leak("losses_with_graphs", "losses_with_graphs");
}

#[test]
fn a_global_list() {
    assert_leak("global_list", "keep_features");
    assert_leak("sgd_global_list", "keep_features");
}

#[test]
fn a_hook_and_a_closure() {
    assert_leak("hook", "register_probe");
    assert_leak("closure", "make_callback");
}

#[test]
fn a_list_of_a_program_that_does_not_train() {
    assert_leak("no_training_list", "keep_features");
}

/// The segments of the allocator fill up, and what fills them is named.
#[test]
fn a_leak_up_to_a_full_card_is_its_cause() {
    let Some((run, report)) = run("global_list", "500M", "400") else { return };
    assert!(run.stderr.contains("OutOfMemoryError"), "{}", run.stderr);
    report.assert_cause("live-leak", "probable");
    assert_eq!(of_tensors(&report)["per_step"]["bytes"].as_f64(), Some(counted_per_step(&run)));
    let evidence = report.excerpt("/diagnoses/0/evidence");
    assert!(evidence.contains("grow by 4 MiB with each backward pass"), "{evidence}");
    assert!(evidence.contains("the request would have fitted"), "{evidence}");
}

/// Gradients that are asked for inside a step end none: what it holds for its end rises with each of them.
#[test]
fn gradients_inside_a_step_are_no_steps() {
    let Some((run, report)) = run("inner_gradients", "500M", "100") else { return };
    assert!(run.stderr.contains("OutOfMemoryError"), "{}", run.stderr);
    assert_eq!(leak(&report).as_deref(), Some("possible"), "{:?}", report.diagnoses());
    assert_eq!(of_tensors(&report)["by"], "cycles");
    report.assert_cause("true-capacity", "probable");
}

/// Nothing of these is a leak, and no more than possible is said of one.
#[test]
fn what_only_looks_like_a_leak() {
    let programs = [
        "floats",
        "cache_that_fills",
        "cache_just_full",
        "sweep",
        "replay_buffer",
        "growing_batch",
        "warm_up",
        "evaluations",
        "accumulation",
        "requests",
        "one_growing_tensor",
    ];
    for scenario in programs {
        let Some((run, report)) = run(scenario, LARGE, STEPS) else { return };
        assert_eq!(run.exit_code(), 0, "{scenario}: {}", run.stderr);
        assert_eq!(leak(&report), None, "{scenario}: {:?}", report.diagnoses());
        assert!(
            report.diagnoses().iter().all(|found| found.confidence == "possible"),
            "{scenario}: {:?}",
            report.diagnoses()
        );
    }
}

/// What a backward pass and an optimizer's step keep grows with the parameters that are trained.
#[test]
fn layers_that_are_unfrozen_are_at_most_a_possible_leak() {
    let Some((run, report)) = run("unfreezing", LARGE, STEPS) else { return };
    assert_eq!(run.exit_code(), 0, "{}", run.stderr);
    assert_eq!(of_tensors(&report)["significant"], true);
    assert_eq!(leak(&report).as_deref(), Some("possible"), "{:?}", report.diagnoses());
    let evidence = report.excerpt("/diagnoses/0/evidence");
    assert!(evidence.contains("more parameters that are trained"), "{evidence}");
}

/// What the steps held is what PyTorch counts after each of them, to the byte.
#[test]
fn the_ends_of_steps_are_those_that_pytorch_counts() {
    let Some((run, report)) = run("cache_that_fills", LARGE, STEPS) else { return };
    let counted = counted(&run);
    let floors = of_tensors(&report)["floors"].as_array().expect("floors");
    let told: Vec<i64> = floors.iter().filter_map(|floor| floor["bytes"].as_i64()).collect();
    // A backward pass ends within its step: what the step keeps comes behind it, and the first one is left out.
    let kept: Vec<i64> = told.windows(2).map(|two| two[1] - two[0]).collect();
    let by_pytorch: Vec<i64> = counted.windows(2).map(|two| two[1] - two[0]).collect();
    assert_eq!(kept, by_pytorch[..kept.len()].to_vec());
}
