//! What fills the card, beside causes that are easier to see: each program knows which of the two it is.

use gpuoom_tests::{Finished, torch_client};

fn run(scenario: &str) -> Option<Finished> {
    let client = torch_client("causes.py")?.arg(scenario);
    let run = client.env("SIM_CAPACITY", "512M").env("GPUOOM_PROBE", "off").run_recorded();
    assert!(run.stdout.contains("kept: "), "{}{}", run.stdout, run.stderr);
    Some(run)
}

fn cause(run: &Finished) -> String {
    run.only_trace().report().value("/verdict/cause").as_str().unwrap_or_default().to_owned()
}

fn is_at_most_possible(run: &Finished, id: &str) -> bool {
    run.confidence(id).as_deref().is_none_or(|sure| sure == "possible")
}

/// What lies between its tensors brings the end nearer; one line fills a card of any size.
#[test]
fn pieces_between_what_one_line_keeps_are_no_cause() {
    let Some(run) = run("odd") else { return };
    assert!(is_at_most_possible(&run, "caching-fragmentation"), "{}", run.page());
    let report = run.only_trace().report();
    assert_eq!(report.text("/diagnoses/0/id"), "true-capacity", "{}", run.page());
    assert!(run.page().contains("tensors of one size by odd (causes.py:"), "{}", run.page());
}

#[test]
fn pieces_between_what_a_training_keeps_are_no_cause() {
    let Some(run) = run("odd_leak") else { return };
    assert_eq!(cause(&run), "live-leak", "{}", run.page());
    assert!(is_at_most_possible(&run, "caching-fragmentation"), "{}", run.page());
}

#[test]
fn what_a_captured_graph_needs_is_not_proven_to_be_too_much() {
    let Some(run) = run("graphs") else { return };
    assert!(is_at_most_possible(&run, "graph-private-pool"), "{}", run.page());
    assert_ne!(run.only_trace().report().text("/diagnoses/0/id"), "graph-private-pool", "{}", run.page());
}

/// Weights that are made on the card are a model's, too.
#[test]
fn a_wider_model_is_no_longer_batch() {
    let Some(run) = run("widths") else { return };
    assert!(is_at_most_possible(&run, "oom-longest-batch"), "{}", run.page());
    assert_eq!(cause(&run), "true-capacity", "{}", run.page());
}

#[test]
fn labels_made_in_a_step_are_no_evaluation() {
    let Some(run) = run("teacher") else { return };
    assert_eq!(run.confidence("oom-eval-batch"), None, "{}", run.page());
}

/// Of the allocator's own retry nobody asked what its tensors held: the failure behind it tells the lines.
#[test]
fn a_leak_between_labels_has_its_line() {
    let Some(run) = run("labels") else { return };
    assert_eq!(cause(&run), "live-leak", "{}", run.page());
    assert!(run.page().contains("tensors allocated in step (causes.py:"), "{}", run.page());
}

#[test]
fn a_model_that_is_converted_says_so() {
    let Some(run) = run("double") else { return };
    assert!(run.page().contains("converted: Module.double (torch/nn/modules/module.py)"), "{}", run.page());
}

/// An error of a backward pass is raised again in the thread that waits for it.
#[test]
fn what_a_failed_backward_pass_took_may_be_kept_by_its_error() {
    let Some(run) = run("retry") else { return };
    assert!(run.page().contains("try again outside of the except block"), "{}", run.page());
}

/// Less between its blocks would have made room for that one request, and not for its batch: the same had failed without any.
#[test]
fn a_batch_that_never_fits_is_no_matter_of_pieces() {
    let Some(run) = run("skipped") else { return };
    assert!(is_at_most_possible(&run, "caching-fragmentation"), "{}", run.page());
}

/// The last layer's result is needed by no backward pass of its own.
#[test]
fn passes_whose_graphs_are_kept_need_no_name() {
    let Some(run) = run("scores") else { return };
    assert_eq!(run.confidence("oom-first-forward").as_deref(), Some("probable"), "{}", run.page());
    assert!(run.page().contains("torch.no_grad() or torch.inference_mode() around a pass"), "{}", run.page());
}
