//! Evaluations of PyTorch programs that fill the card, and what is only called so.

use gpuoom_tests::{Finished, torch_client};

fn run(scenario: &str) -> Option<Finished> {
    let client = torch_client("evaluations.py")?.arg(scenario);
    let run = client.env("SIM_CAPACITY", "512M").env("GPUOOM_PROBE", "off").run_recorded();
    assert!(run.stdout.contains("kept: "), "{}{}", run.stdout, run.stderr);
    Some(run)
}

/// Between two evaluations no step of the training keeps anything: a slope over steps is none, and the pile is there.
#[test]
fn what_each_epochs_evaluation_keeps_is_not_denied() {
    let Some(run) = run("epochs") else { return };
    let page = run.page();
    assert_eq!(run.only_trace().report().text("/verdict/cause"), "oom-eval-accumulation", "{page}");
    assert!(page.contains("in stairs with level stretches between them"), "{page}");
    assert!(page.contains("not ruled out: a leak"), "{page}");
    assert_ne!(run.confidence("true-capacity").as_deref(), Some("proven"), "{page}");
    let policy = run.cwd().join("policy.toml");
    std::fs::write(&policy, "[[budget]]\ngrowth_per_second = \"1M\"\n").expect("a policy");
    let checked = run.only_trace().analyze_anyway(&["check", "--policy", policy.to_str().expect("plain")]);
    let said = String::from_utf8_lossy(&checked.stdout);
    assert!(said.contains("NOT JUDGED") && said.contains("in stairs"), "{said}");
}

/// What falls where the program ends, and rises with a model that is loaded again, hides no cycles.
#[test]
fn what_a_service_keeps_that_loads_its_model_each_time_is_seen() {
    let Some(run) = run("offload") else { return };
    let page = run.page();
    assert!(!page.contains("none of them leaks"), "{page}");
    assert!(!page.contains("hold does not rise with it"), "{page}");
    assert!(run.confidence("live-leak").is_some(), "{page}");
}

/// What the first layer got in this very pass shows no earlier batch of that size.
#[test]
fn a_larger_evaluation_batch_is_told_from_its_second_layer_on() {
    let Some(run) = run("larger") else { return };
    assert_eq!(run.confidence("oom-eval-batch").as_deref(), Some("probable"), "{}", run.page());
}

/// The layers of one pass are no batches that pile up, and what the first of them got was given to no earlier batch.
#[test]
fn what_an_evaluation_keeps_of_one_batch_does_not_pile_up() {
    for scenario in ["features", "again"] {
        let Some(run) = run(scenario) else { return };
        let page = run.page();
        for id in ["oom-eval-accumulation", "oom-first-forward"] {
            let sure = run.confidence(id);
            assert!(sure.as_deref().is_none_or(|sure| sure == "possible"), "{scenario}: {id} {sure:?}: {page}");
        }
        assert!(scenario != "features" || !page.contains("not oom-eval-batch"), "{page}");
    }
}

#[test]
fn what_calls_no_model_makes_no_predictions() {
    let Some(run) = run("archive") else { return };
    assert_eq!(run.confidence("oom-eval-accumulation"), None, "{}", run.page());
    assert!(!run.page().contains("in an evaluation"), "{}", run.page());
}

#[test]
fn a_loss_of_many_forward_passes_is_no_evaluation() {
    let Some(run) = run("critic") else { return };
    assert_eq!(run.confidence("oom-eval-accumulation"), None, "{}", run.page());
    assert_eq!(run.confidence("oom-first-forward").as_deref(), Some("probable"), "{}", run.page());
}

/// The last forward pass before a backward pass is of that step, whatever its function is called.
#[test]
fn an_evaluation_of_a_policy_is_a_step_of_its_training() {
    let Some(run) = run("policy") else { return };
    assert_eq!(run.confidence("oom-eval-batch"), None, "{}", run.page());
    assert!(run.page().contains("it is a part of a step"), "{}", run.page());
}

/// The modules' lines tell one pass from another, whoever calls the model.
#[test]
fn forward_passes_without_a_backward_pass_are_told_by_the_models_lines() {
    let Some(run) = run("test") else { return };
    assert_eq!(run.confidence("oom-first-forward").as_deref(), Some("probable"), "{}", run.page());
    assert!(run.page().contains("torch.no_grad() or torch.inference_mode() around a pass"), "{}", run.page());
}

/// What is called a validation trains: its forward passes are followed by backward passes of its own.
#[test]
fn what_a_validation_keeps_that_trains_is_a_leak() {
    let Some(run) = run("probe") else { return };
    assert_eq!(run.confidence("live-leak").as_deref(), Some("probable"), "{}", run.page());
    assert!(!run.page().contains("or in what is called one"), "{}", run.page());
}

/// An evaluation needs something while it runs; what lives of it is a trifle beside what every epoch keeps.
#[test]
fn what_every_epoch_keeps_is_a_leak_wherever_memory_runs_out() {
    let Some(run) = run("snapshots") else { return };
    assert_eq!(run.only_trace().report().text("/verdict/cause"), "live-leak", "{}", run.page());
}

/// It keeps what a backward pass needs, and nobody has seen yet whether one follows.
#[test]
fn a_part_of_the_loss_may_be_called_an_evaluation() {
    let Some(run) = run("regulariser") else { return };
    let sure = run.confidence("oom-eval-batch");
    assert!(sure.as_deref().is_none_or(|sure| sure == "possible"), "{sure:?}: {}", run.page());
    assert_eq!(run.only_trace().report().text("/verdict/cause"), "true-capacity", "{}", run.page());
}

/// An optimizer's step is decorated with `no_grad` and turns gradients on again for what it calls.
#[test]
fn a_closure_of_an_optimizers_step_is_no_evaluation() {
    let Some(run) = run("sharpness") else { return };
    assert_eq!(run.confidence("oom-eval-batch"), None, "{}", run.page());
    assert!(run.page().contains("in a forward pass: Sequential.forward"), "{}", run.page());
    assert!(!run.page().contains("of an evaluation"), "{}", run.page());
}
