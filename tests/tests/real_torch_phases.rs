//! A failure of PyTorch's says in which phase it came, and from which line of the program. What is true the program says itself:
//! before the call, and where it catches the error.

use std::collections::BTreeMap;

use gpuoom_tests::{Client, Finished, MIB, Report, torch_client};

/// What the program says of the call that ran out of memory.
#[derive(Debug)]
struct Said {
    phase: String,
    function: String,
    line: u32,
}

fn client(program: &str, argument: &str) -> Option<Client> {
    Some(torch_client(program)?.arg(argument).env("SIM_CAPACITY", "1G").env("GPUOOM_PROBE", "off"))
}

fn run(scenario: &str) -> Option<(Finished, Said)> {
    let mut client = client("phases.py", scenario)?;
    if scenario == "loader-pinned" {
        client = client.env("GPUOOM_INJECT", "oom>16M");
    }
    let run = client.run_recorded();
    assert_eq!(run.exit_code(), 0, "{scenario}: {}", run.stderr);
    let line = |begin: &str| run.stdout.lines().rev().find_map(|line| line.strip_prefix(begin).map(str::to_owned));
    let told = line("phase: ").unwrap_or_else(|| panic!("{scenario}: {}{}", run.stdout, run.stderr));
    let caught = line("out of memory in: ").unwrap_or_else(|| panic!("{scenario}: {}{}", run.stdout, run.stderr));
    let parts: Vec<&str> = told.split(", ").collect();
    let number = parts[2].strip_prefix("line ").and_then(|number| number.parse().ok());
    let said =
        Said { phase: parts[0].to_owned(), function: parts[1].to_owned(), line: number.expect("the number of a line") };
    assert!(caught.starts_with(&said.phase), "{scenario}: {told}, {caught}");
    Some((run, said))
}

/// The report of the trace that has a failure, and no other failure than that.
fn report(run: &Finished) -> Report {
    let mut failed: Vec<Report> = run.traces().iter().map(|trace| trace.report()).collect();
    failed.retain(|report| report.count("/ooms") > 0);
    assert_eq!(failed.len(), 1, "{}{}", run.stdout, run.stderr);
    failed.remove(0)
}

fn text<'a>(report: &'a Report, pointer: &str) -> Option<&'a str> {
    report.value(pointer).as_str()
}

/// The phase is the one that the program tells, came by this function of a framework, and from the line that the program tells.
fn assert_phase(scenario: &str, function: Option<&str>, is_from_line: bool) {
    let Some((run, said)) = run(scenario) else { return };
    let report = report(&run);
    let context = format!("{scenario}: {said:?}, {}", report.excerpt("/ooms/0/phase_entry"));
    assert_eq!(text(&report, "/ooms/0/phase"), Some(&*said.phase), "{context}");
    assert_eq!(text(&report, "/ooms/0/phase_entry/function"), function, "{context}");
    let line = format!("{} (phases.py:{})", said.function, said.line);
    let from = text(&report, "/ooms/0/phase_entry/called_from");
    assert_eq!(from, is_from_line.then_some(&*line), "{context}");
}

#[test]
fn a_forward_pass() {
    assert_phase("forward", Some("Net.forward"), true);
    // The gradients that an evaluation takes are no fact of a frame, and neither is a block without them.
    assert_phase("evaluation-with-gradients", Some("Net.forward"), true);
    assert_phase("evaluation-block", Some("Net.forward"), true);
    // The optimizer runs it.
    let Some((run, said)) = run("closure") else { return };
    let report = report(&run);
    assert_eq!((text(&report, "/ooms/0/phase"), &*said.phase), (Some("forward"), "forward"));
    let line = format!("closure.<locals>.again (phases.py:{})", said.line);
    assert_eq!(text(&report, "/ooms/0/phase_entry/called_from"), Some(&*line));
}

/// The engine's threads have no frames of Python: which line waits for them is not known.
#[test]
fn a_backward_pass() {
    for scenario in ["backward", "backward-retained", "backward-function", "gradients"] {
        assert_phase(scenario, None, false);
    }
}

/// Where the trace has no stacks, the engine's threads have their names still.
#[test]
fn a_backward_pass_without_stacks() {
    let Some(client) = client("phases.py", "backward") else { return };
    let run = client.env("GPUOOM_STACKS", "off").run_recorded();
    let report = report(&run);
    assert_eq!(text(&report, "/ooms/0/phase"), Some("backward"), "{}", report.excerpt("/ooms/0"));
    assert_eq!(text(&report, "/ooms/0/thread_name"), Some("pt_autograd_0"));
    assert_eq!(text(&report, "/ooms/0/phase_entry/function"), None);
    let page = run.only_trace().report_text();
    assert!(page.contains("in a backward pass, as the name of the thread says: pt_autograd_0"), "{page}");
}

#[test]
fn a_checkpointed_forward_pass_that_is_computed_again_is_of_the_backward_pass() {
    for scenario in ["backward-reentrant", "backward-recomputed"] {
        let Some((run, said)) = run(scenario) else { return };
        assert_eq!((text(&report(&run), "/ooms/0/phase"), &*said.phase), (Some("backward"), "backward"), "{scenario}");
        let page = run.only_trace().report_text();
        let page = page.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(page.contains("in a backward pass, where a checkpointed forward pass is computed again"), "{page}");
        assert!(!page.contains("activation checkpointing"), "it does so already: {page}");
    }
}

#[test]
fn an_optimizers_step() {
    assert_phase("adamw", Some("Adam.step"), true);
    assert_phase("adam-loop", Some("Adam.step"), true);
    assert_phase("adam-fused", Some("Adam.step"), true);
    assert_phase("sgd", Some("SGD.step"), true);
}

#[test]
fn an_evaluation_that_is_decorated() {
    assert_phase("evaluation", Some("evaluate_decorated"), true);
}

#[test]
fn what_is_loaded() {
    assert_phase("model-to", Some("Module.to"), true);
    assert_phase("checkpoint-to-card", Some("load"), true);
    assert_phase("optimizer-state", Some("Optimizer.load_state_dict"), true);
}

#[test]
fn a_capture() {
    let Some((run, said)) = run("capture") else { return };
    let report = report(&run);
    assert_eq!((text(&report, "/ooms/0/phase"), &*said.phase), (Some("capture"), "capture"));
    assert_eq!(report.value("/ooms/0/phase_entry/function"), &serde_json::Value::Null);
}

/// In the program, in its workers and on the thread that pins.
#[test]
fn a_data_loader() {
    assert_phase("loader", Some("_BaseDataLoaderIter.__next__"), true);
    assert_phase("loader-worker", Some("_worker_loop"), false);
    assert_phase("loader-pinned", Some("_pin_memory_loop"), false);
}

#[test]
fn names_that_are_not_pytorchs_name_nothing() {
    for name in ["step", "forward", "backward", "evaluate"] {
        let Some(client) = client("lookalike.py", name) else { return };
        let run = client.run_recorded();
        assert!(run.stdout.contains("none of PyTorch's phases"), "{name}: {}{}", run.stdout, run.stderr);
        let report = report(&run);
        assert_eq!(report.value("/ooms/0/phase"), &serde_json::Value::Null, "{name}");
        let shapes: Vec<String> = report.diagnoses().into_iter().map(|one| one.id).collect();
        let named =
            ["oom-first-forward", "oom-first-backward", "oom-optimizer-step", "oom-eval-batch", "oom-longest-batch"];
        assert!(shapes.iter().all(|id| !named.contains(&&**id)), "{name}: {shapes:?}");
    }
}

/// What the program prints of a training that fits.
fn reserved(case: &str) -> Option<BTreeMap<String, u64>> {
    let run = client("cases.py", case)?.env("SIM_CAPACITY", "16G").run_plain();
    assert_eq!(run.exit_code(), 0, "{}", run.stderr);
    let lines = run.stdout.lines().filter_map(|line| line.strip_prefix("reserved behind ")?.split_once(": "));
    // Of lines that come again the first counts.
    let first = lines.rev().map(|(phase, bytes)| (phase.to_owned(), bytes.parse().expect("a number")));
    Some(first.collect())
}

/// A training on a card with so little more than it had reserved behind a phase.
fn on_card(case: &str, bytes: u64) -> Option<(Report, String)> {
    let run = client("cases.py", case)?.env("SIM_CAPACITY", (bytes / MIB).to_string() + "M").run_recorded();
    let caught = run.stdout.lines().find_map(|line| line.strip_prefix("out of memory in: ")).unwrap_or("nothing");
    Some((run.only_trace().report(), caught.to_owned()))
}

/// The failure is of that phase, and its cause is the full card or this diagnosis, which is found at least so surely.
fn assert_case(case: &str, bytes: u64, phase: &str, id: &str, confidence: &str) {
    let Some((report, caught)) = on_card(case, bytes) else { return };
    assert_eq!(caught, phase, "{case} on {} MiB", bytes / MIB);
    // Before the error PyTorch may have emptied its cache, and got what it asked for.
    let last = report.count("/ooms") - 1;
    assert_eq!(text(&report, &format!("/ooms/{last}/phase")), Some(phase), "{case}");
    // On a busy machine not all ways are asked for Python's frames in time: then a finding is less sure, and never surer.
    let known = report.diagnoses().into_iter().find(|known| known.id == id);
    let sure = known.unwrap_or_else(|| panic!("{case}: no {id}")).confidence;
    assert!(sure == confidence || sure == "probable", "{case}: {id} is {sure}");
    let shapes =
        ["oom-model-load", "oom-first-forward", "oom-first-backward", "oom-optimizer-step", "oom-longest-batch"];
    let shapes = shapes.iter().chain(&["oom-eval-batch", "oom-eval-accumulation"]);
    let found: Vec<String> = report.diagnoses().into_iter().map(|one| one.id).collect();
    let others: Vec<_> = shapes.filter(|other| **other != id && found.iter().any(|found| found == *other)).collect();
    assert!(others.is_empty(), "{case}: {others:?} beside {id}");
}

/// A training on cards that are too small for one phase after the other.
#[test]
fn each_phase_of_a_training_is_diagnosed_by_its_frames() {
    let Some(reserved) = reserved("train") else { return };
    let behind = |phase: &str| reserved[phase];
    assert!(behind("loading") < behind("forward") && behind("forward") < behind("backward"), "{reserved:?}");
    let more = 12 * MIB;
    assert_case("train", behind("loading") - more, "loading", "oom-model-load", "probable");
    assert_case("train", behind("loading") + 64 * MIB, "forward", "oom-first-forward", "probable");
    assert_case("train", behind("forward") + more, "backward", "oom-first-backward", "proven");
    assert_case("train", behind("backward") + more, "optimizer", "oom-optimizer-step", "proven");
}

/// On a card that another process shares, the same phases end for want of what that process holds.
#[test]
fn a_phase_is_not_blamed_for_what_another_process_holds() {
    let Some(reserved) = reserved("train") else { return };
    for phase in ["forward", "backward"] {
        let others = reserved["optimizer"];
        let Some(client) = client("cases.py", "train") else { return };
        let client = client.env("SIM_OTHERS", others.to_string());
        let bytes = others + reserved[phase] + 12 * MIB;
        let run = client.env("SIM_CAPACITY", (bytes / MIB).to_string() + "M").run_recorded();
        let report = run.only_trace().report();
        assert!(report.count("/ooms") > 0, "{phase}: {}", run.stdout);
        let of_a_phase = report.diagnoses().into_iter().filter(|found| found.id.starts_with("oom-"));
        let sure: Vec<_> = of_a_phase.filter(|found| found.confidence != "possible").collect();
        assert!(sure.is_empty(), "{phase}: {sure:?}");
        report.assert_diagnosed("other-process-on-gpu", "probable");
    }
}

#[test]
fn a_batch_that_is_longer_than_all_before_it() {
    let Some(reserved) = reserved("longest") else { return };
    assert_case("longest", reserved["optimizer"] + 40 * MIB, "forward", "oom-longest-batch", "probable");
}

#[test]
fn an_evaluation_that_takes_more_than_the_training() {
    let Some(reserved) = reserved("train") else { return };
    // The first layer asks for what does not fit: nothing that the model was given before tells a larger batch.
    assert_case("evaluation", reserved["optimizer"] + 100 * MIB, "evaluation", "oom-eval-batch", "possible");
    assert_case("predictions", reserved["optimizer"] + 100 * MIB, "evaluation", "oom-eval-accumulation", "probable");
}

/// The forward pass is all that the frames tell where `no_grad` is no decorator; the program's function is called `validate`.
#[test]
fn an_evaluation_in_a_block_without_gradients() {
    let Some(reserved) = reserved("train") else { return };
    // Its batch has 256 MiB.
    let Some((report, caught)) = on_card("validation", reserved["optimizer"] + 300 * MIB) else { return };
    assert_eq!(caught, "evaluation");
    let last = report.count("/ooms") - 1;
    assert_eq!(text(&report, &format!("/ooms/{last}/phase")), Some("forward"));
    report.assert_diagnosed("oom-eval-batch", "probable");
}

/// No forward pass asks for what does not fit, but the program's own function, which is decorated.
#[test]
fn results_that_an_evaluation_puts_together() {
    let Some(reserved) = reserved("together") else { return };
    assert_case("together", reserved["results"] + 40 * MIB, "evaluation", "oom-eval-accumulation", "probable");
}

#[test]
fn a_healthy_training_has_no_cause() {
    let Some((report, caught)) = on_card("healthy", 16 << 30) else { return };
    assert_eq!(caught, "nothing");
    report.assert_no_cause();
    let rows = report.value("/devices/0/tensors/moments").as_array().expect("moments");
    let peak = rows.iter().find(|moment| moment["at"] == "peak").expect("a peak");
    let phases = peak["allocated_by"]["phases"].as_array().expect("phases");
    let of = |phase: &str| {
        phases.iter().find(|row| row["phase"] == phase).map_or(0, |row| row["bytes"].as_u64().unwrap_or(0))
    };
    // Six matrices of 16 MiB, and Adam keeps two numbers for each of theirs.
    assert_eq!(of("loading"), 96 * MIB, "{phases:?}");
    assert!(of("optimizer") >= 192 * MIB, "{phases:?}");
    let sum: u64 = phases.iter().filter_map(|row| row["bytes"].as_u64()).sum();
    assert_eq!(Some(sum), peak["allocated_bytes"].as_u64());
}
