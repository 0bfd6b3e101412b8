//! Memory that piles up from batch to batch where PyTorch's backward passes are no steps of it, or where its name hides what it is. The
//! program says how many tensors it kept.

use gpuoom_tests::{Finished, MIB, torch_client};

fn run(scenario: &str) -> Option<(Finished, u64)> {
    let client = torch_client("piles.py")?.arg(scenario);
    let run = client.env("SIM_CAPACITY", "512M").env("GPUOOM_PROBE", "off").run_recorded();
    let kept = run.stdout.lines().find_map(|line| line.strip_prefix("kept: ")?.parse().ok());
    let kept = kept.unwrap_or_else(|| panic!("{}{}", run.stdout, run.stderr));
    Some((run, kept))
}

fn confidence(run: &Finished, id: &str) -> Option<String> {
    let found = run.only_trace().report().diagnoses().into_iter().find(|found| found.id == id);
    found.map(|found| found.confidence)
}

fn page(run: &Finished) -> String {
    run.only_trace().report_text().split_whitespace().collect::<Vec<_>>().join(" ")
}

#[test]
fn an_evaluation_that_keeps_its_graphs() {
    let Some((run, kept)) = run("graphs") else { return };
    assert!(kept > 10, "{kept}");
    assert_eq!(confidence(&run, "oom-first-forward").as_deref(), Some("probable"), "{}", page(&run));
    let page = page(&run);
    assert!(page.contains("since the last of at least 12 backward passes forward passes came"), "{page}");
    assert!(page.contains("1 torch.no_grad() or torch.inference_mode() around a pass"), "{page}");
    // What the evaluation keeps no step of the training shows.
    assert!(
        !page.contains("; a leak: blocks that stay become more") || page.contains("not ruled out: a leak"),
        "{page}"
    );
}

#[test]
fn predictions_that_pile_up_in_a_function_of_the_programs() {
    let Some((run, kept)) = run("predictions") else { return };
    assert_eq!(confidence(&run, "oom-eval-accumulation").as_deref(), Some("probable"), "{}", page(&run));
    assert_eq!(confidence(&run, "oom-first-forward"), None);
    let page = page(&run);
    assert!(page.contains("the call comes from evaluate") && page.contains(".cpu(): move each output"), "{page}");
    // The pass that failed has made one already that nobody keeps.
    let told = page
        .split(" of it live that came by Net.forward (piles.py:")
        .next()
        .and_then(|before| before.rsplit("; ").next());
    let blocks = |more: u64| format!("{} blocks ({} MiB)", kept + more, 4 * (kept + more));
    assert!(told == Some(&*blocks(0)) || told == Some(&*blocks(1)), "{kept} kept: {told:?}");
}

#[test]
fn a_hook_that_keeps_gradients_is_a_leak() {
    let Some((run, kept)) = run("hook") else { return };
    assert_eq!(confidence(&run, "live-leak").as_deref(), Some("probable"), "{}", page(&run));
    let report = run.only_trace().report();
    assert!(
        report.text("/tensor_growth/0/lines/0/label").starts_with("spy (piles.py:"),
        "{}",
        report.excerpt("/tensor_growth")
    );
    let bytes = report.number_or_null("/tensor_growth/0/lines/0/bytes").expect("bytes");
    // As of the last step that was over; on a busy machine not all ways are asked for Python's frames in time.
    assert!(bytes <= kept * MIB && bytes >= kept * MIB / 4 * 3, "{bytes} of {kept} MiB");
}

#[test]
fn a_thread_of_the_programs_own_trains_nothing_whatever_it_is_called() {
    let Some((run, _)) = run("thread") else { return };
    let report = run.only_trace().report();
    assert_eq!(report.text("/ooms/0/thread_name"), "pt_autograd_0");
    assert!(report.value("/ooms/0/phase").is_null(), "{}", report.excerpt("/ooms/0"));
}

/// All forward passes of the training come by a function that is called like an evaluation's.
#[test]
fn a_loss_that_is_called_evaluate_is_no_evaluation() {
    let Some((run, _)) = run("loss") else { return };
    assert_eq!(confidence(&run, "oom-eval-accumulation"), None, "{}", page(&run));
    assert!(page(&run).contains("that function may compute its loss"), "{}", page(&run));
}

/// Whether equal tensors of one line are needed or forgotten no call tells.
#[test]
fn a_card_full_of_equal_tensors_is_not_proven_to_be_needed() {
    let Some((run, kept)) = run("garbage") else { return };
    assert_eq!(confidence(&run, "true-capacity").as_deref(), Some("probable"), "{}", page(&run));
    let told = format!("{kept} tensors of one size by Holder.__init__ (piles.py:");
    assert!(page(&run).contains(&told), "{told}: {}", page(&run));
}

/// Nothing is kept for a backward pass, and none comes.
#[test]
fn one_large_input_is_no_pass_that_keeps_activations() {
    let Some((run, _)) = run("image") else { return };
    let sure = confidence(&run, "oom-first-forward");
    assert!(sure.as_deref().is_none_or(|sure| sure == "possible"), "{sure:?}: {}", page(&run));
}

/// One pass that is larger than all before it is no several passes, and its layers are no steps.
#[test]
fn one_larger_batch_is_one_pass() {
    let Some((run, _)) = run("larger") else { return };
    assert_eq!(confidence(&run, "oom-first-forward"), None, "{}", page(&run));
    assert_eq!(confidence(&run, "live-leak"), None, "{}", page(&run));
    assert!(!page(&run).contains("GROWTH"), "{}", page(&run));
}

/// Each epoch's outputs went at its end; the last is only longer.
#[test]
fn what_is_dropped_at_the_end_of_each_epoch_is_no_leak() {
    let Some((run, _)) = run("rounds") else { return };
    let sure = confidence(&run, "live-leak");
    assert!(sure.as_deref().is_none_or(|sure| sure == "possible"), "{sure:?}: {}", page(&run));
}
