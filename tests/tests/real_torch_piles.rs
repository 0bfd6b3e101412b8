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

#[test]
fn an_evaluation_that_keeps_its_graphs() {
    let Some((run, kept)) = run("graphs") else { return };
    assert!(kept > 10, "{kept}");
    assert_eq!(run.confidence("oom-first-forward").as_deref(), Some("probable"), "{}", run.page());
    let page = run.page();
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
    assert_eq!(run.confidence("oom-eval-accumulation").as_deref(), Some("probable"), "{}", run.page());
    assert_eq!(run.confidence("oom-first-forward"), None);
    let page = run.page();
    assert!(page.contains("the call comes from evaluate") && page.contains(".cpu(): move what is kept"), "{page}");
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
    assert_eq!(run.confidence("live-leak").as_deref(), Some("probable"), "{}", run.page());
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
    assert_eq!(run.confidence("oom-eval-accumulation"), None, "{}", run.page());
    assert!(run.page().contains("that function may compute its loss"), "{}", run.page());
}

/// Whether equal tensors of one line are needed or forgotten no call tells.
#[test]
fn a_card_full_of_equal_tensors_is_not_proven_to_be_needed() {
    let Some((run, kept)) = run("garbage") else { return };
    assert_eq!(run.confidence("true-capacity").as_deref(), Some("probable"), "{}", run.page());
    let told = format!("{kept} tensors of one size by Holder.__init__ (piles.py:");
    assert!(run.page().contains(&told), "{told}: {}", run.page());
}

/// Nothing is kept for a backward pass, and none comes.
#[test]
fn one_large_input_is_no_pass_that_keeps_activations() {
    let Some((run, _)) = run("image") else { return };
    let sure = run.confidence("oom-first-forward");
    assert!(sure.as_deref().is_none_or(|sure| sure == "possible"), "{sure:?}: {}", run.page());
}

/// One pass that is larger than all before it is no several passes, and its layers are no steps.
#[test]
fn one_larger_batch_is_one_pass() {
    let Some((run, _)) = run("larger") else { return };
    assert_eq!(run.confidence("oom-first-forward"), None, "{}", run.page());
    assert_eq!(run.confidence("live-leak"), None, "{}", run.page());
    assert!(!run.page().contains("GROWTH"), "{}", run.page());
}

/// Each epoch's outputs went at its end; the last is only longer.
#[test]
fn what_is_dropped_at_the_end_of_each_epoch_is_no_leak() {
    let Some((run, _)) = run("rounds") else { return };
    let sure = run.confidence("live-leak");
    assert!(sure.as_deref().is_none_or(|sure| sure == "possible"), "{sure:?}: {}", run.page());
}

/// Where PyTorch tells of its blocks and of the ways to them, what no function names is no cache of keys and values.
#[test]
fn an_image_that_grows_is_no_cache_of_a_language_model() {
    let Some((run, kept)) = run("mosaic") else { return };
    assert!(kept >= 30, "{kept}");
    assert_eq!(run.confidence("kv-cache-incremental"), None, "{}", run.page());
    assert!(!run.page().contains("KV cache"), "{}", run.page());
}

/// Entries are replaced at random, and there are ever more of them: that is no acquittal, and the line is named.
#[test]
fn a_dict_of_ever_more_users_is_a_leak_as_far_as_is_known() {
    let Some((run, kept)) = run("users") else { return };
    assert!(kept > 100, "{kept}");
    let page = run.page();
    assert_eq!(run.confidence("live-leak").as_deref(), Some("possible"), "{page}");
    assert!(page.contains("older ones are replaced, and there are more and more of them"), "{page}");
    let report = run.only_trace().report();
    let label = report.text("/tensor_growth/0/turning/0/label");
    assert!(label.starts_with("Net.forward (piles.py:"), "{label}");
    assert!(page.contains("whether the number of what these lines keep has a bound"), "{page}");
}

/// A function's name makes no evaluation: all backward passes are its own.
#[test]
fn a_step_that_is_called_validate_evaluates_nothing() {
    let Some((run, _)) = run("validates") else { return };
    assert_eq!(run.confidence("oom-eval-batch"), None, "{}", run.page());
    assert!(!run.page().contains("inference_mode"), "{}", run.page());
}

/// One load takes little: what fills the card are the models before it.
#[test]
fn older_models_are_more_of_a_reason_than_the_load_that_failed() {
    let Some((run, kept)) = run("reloads") else { return };
    assert!(kept >= 5, "{kept}");
    let sure = run.confidence("oom-model-load");
    assert!(sure.as_deref().is_none_or(|sure| sure == "possible"), "{sure:?}: {}", run.page());
}

/// An error below PyTorch's own limit has no refused call, and what piled up is named all the same, although Python gives most of it back at
/// its end.
#[test]
fn what_fills_a_limit_of_pytorchs_own_is_named() {
    let Some((run, kept)) = run("limited") else { return };
    assert!(kept > 50, "{kept}");
    let page = run.page();
    assert_eq!(run.confidence("process-fraction-cap").as_deref(), Some("proven"), "{page}");
    assert_eq!(run.confidence("live-leak").as_deref(), Some("probable"), "{page}");
    let label = run.only_trace().report().text("/tensor_growth/0/lines/0/label").to_owned();
    assert!(label.starts_with("Net.forward (piles.py:"), "{label}");
}

/// PyTorch's message counts what such a pool keeps as allocated, and names CUDA graphs as an example.
#[test]
fn a_pool_of_the_programs_own_is_no_captured_graph() {
    let Some((run, _)) = run("pool") else { return };
    let page = run.page();
    assert_eq!(run.confidence("graph-private-pool").as_deref(), Some("proven"), "{page}");
    assert!(page.contains("they are pools that the program made (torch.cuda.MemPool)"), "{page}");
    assert!(!page.contains("captures") && !page.contains("captured graphs"), "{page}");
    // Its largest piece is smaller than the request: other requests have no use for it.
    assert!(page.contains("drop the pool") && !page.contains("use_on_oom"), "{page}");
    // What lies unused in it is as much as was asked for.
    assert_eq!(run.confidence("true-capacity").as_deref(), Some("probable"), "{page}");
    assert!(page.contains("not ruled out: PyTorch's allocator held at least the request in unused blocks"), "{page}");
    assert!(!page.contains("the tensors and the request are more than the card"), "{page}");
}

/// What lies between tensors would hold the request in no pool: the pool is not why.
#[test]
fn pieces_in_a_pool_of_the_programs_own_are_pieces() {
    let Some((run, kept)) = run("pool_in_pieces") else { return };
    assert_eq!(kept, 12);
    let page = run.page();
    assert_eq!(run.confidence("graph-private-pool"), None, "{page}");
    assert!(page.contains("pieces between tensors, the largest 16 MiB: none would hold the request"), "{page}");
    assert!(run.confidence("caching-fragmentation").is_some(), "{page}");
}

#[test]
fn a_leak_is_more_of_a_reason_than_a_small_pool() {
    let Some((run, kept)) = run("pool_and_leak") else { return };
    assert!(kept > 50, "{kept}");
    assert_eq!(run.confidence("graph-private-pool").as_deref(), Some("possible"), "{}", run.page());
    assert_eq!(run.confidence("live-leak").as_deref(), Some("probable"), "{}", run.page());
    assert!(run.page().contains("(live-leak, probable)"), "{}", run.page());
}

/// Buffers of a module are moved by the same functions as its weights.
#[test]
fn data_that_a_module_moves_are_not_proven_to_be_weights() {
    let Some((run, _)) = run("bank") else { return };
    assert_eq!(run.confidence("oom-model-load").as_deref(), Some("probable"), "{}", run.page());
    assert!(run.page().contains("whether what is loaded there are weights"), "{}", run.page());
}

/// What a module's buffers hold beside a model is no weight that is trained: without it the first step might have fitted.
#[test]
fn a_first_step_beside_a_bank_of_data_is_not_sure() {
    let Some((run, _)) = run("bank_and_step") else { return };
    assert_eq!(run.confidence("oom-optimizer-step").as_deref(), Some("possible"), "{}", run.page());
    assert!(run.page().contains("live that no gradient shows to be weights"), "{}", run.page());
}

/// What a module of PyTorch's makes for itself on the card are weights as much as those that are moved there.
#[test]
fn weights_made_on_the_card_are_a_models() {
    let Some((run, _)) = run("made_on_the_card") else { return };
    assert_eq!(run.confidence("oom-optimizer-step").as_deref(), Some("proven"), "{}", run.page());
    assert!(run.page().contains("of a model's load"), "{}", run.page());
}

/// Of one layer nobody can tell kept results from what a backward pass would need.
#[test]
fn kept_results_of_one_layer_are_not_called_activations() {
    let Some((run, kept)) = run("one_layer") else { return };
    assert!(kept > 40, "{kept}");
    assert_ne!(run.confidence("oom-first-forward").as_deref(), Some("probable"), "{}", run.page());
}

/// Nothing is uploaded where a model on the card gets another type.
#[test]
fn a_model_that_is_converted_is_hardly_a_load() {
    let Some((run, kept)) = run("converts") else { return };
    assert_eq!(kept, 1);
    assert_eq!(run.confidence("oom-model-load").as_deref(), Some("possible"), "{}", run.page());
    assert!(run.page().contains("that a load had brought were given back before"), "{}", run.page());
}

/// Each gradient was a backward pass, and no function names the forward passes between them.
#[test]
fn gradients_one_after_the_other_are_no_first_backward_pass() {
    let Some((run, kept)) = run("forces") else { return };
    assert!(kept > 5, "{kept}");
    let sure = run.confidence("oom-first-backward");
    assert!(sure.as_deref().is_none_or(|sure| sure == "possible"), "{sure:?}: {}", run.page());
    let page = run.page();
    assert!(
        !page.contains("a step of an optimizer had been") || page.contains("not ruled out: a step of an optimizer"),
        "{page}"
    );
}

/// Nothing comes between them, so no forward pass tells one load from the next.
#[test]
fn a_list_of_models_is_no_proven_load() {
    let Some((run, kept)) = run("models") else { return };
    let page = run.page();
    assert_eq!(run.confidence("oom-model-load").as_deref(), Some("probable"), "{page}");
    assert!(page.contains(&format!("at least {kept} equal ones: of several models")), "{kept}: {page}");
    assert!(page.contains("del model: drop the model that was loaded before"), "{page}");
}

/// Expandable segments would only put it off.
#[test]
fn a_list_that_is_cloned_and_grows_is_no_proven_fragmentation() {
    let Some((run, kept)) = run("cloned") else { return };
    assert!(kept > 20, "{kept}");
    let sure = run.confidence("caching-fragmentation");
    assert!(sure.as_deref() != Some("proven"), "{}", run.page());
    assert!(!run.page().contains("true-capacity, proven"), "{}", run.page());
}

/// A buffer with a bound rises like a leak until it is full; without the pieces it would have come to that.
#[test]
fn what_rises_beside_much_unused_memory_may_have_had_room() {
    let Some((run, kept)) = run("buffer") else { return };
    assert!(kept > 10 && kept < 40, "{kept}");
    let page = run.page();
    // What rises may have an end or not: nothing that was recorded tells.
    assert_eq!(run.confidence("caching-fragmentation").as_deref(), Some("possible"), "{page}");
    assert_eq!(run.confidence("live-leak").as_deref(), Some("possible"), "{page}");
    assert!(page.contains("Why is not known"), "{page}");
    let client = torch_client("piles.py").expect("as above").arg("buffer").env("SIM_CAPACITY", "640M");
    // The control: in one piece there is room for all of it, and nothing ends the loop but the time.
    let whole = client.env("PYTORCH_ALLOC_CONF", "expandable_segments:True").arg("1000").run_recorded();
    assert!(whole.stdout.contains("kept: 1000"), "{}{}", whole.stdout, whole.stderr);
}

/// Only the sum of the losses is kept, and with it the graph of each pass: no prediction that could go to the host.
#[test]
fn an_evaluation_that_sums_its_losses_keeps_activations() {
    let Some((run, kept)) = run("summed") else { return };
    assert!(kept > 5, "{kept}");
    let page = run.page();
    assert_eq!(run.confidence("oom-eval-accumulation").as_deref(), Some("probable"), "{page}");
    assert!(page.contains("1 torch.no_grad() or torch.inference_mode() around a pass"), "{page}");
    assert!(!page.contains(".cpu()") && !page.contains("eval_accumulation_steps"), "{page}");
}

/// Too few for a trend.
#[test]
fn a_few_steps_that_keep_all_are_no_proven_full_card() {
    for capacity in ["512M", "400M"] {
        let Some(client) = torch_client("piles.py") else { return };
        let run = client.arg("few").env("SIM_CAPACITY", capacity).env("GPUOOM_PROBE", "off").run_recorded();
        let sure = run.confidence("true-capacity");
        assert!(["possible", "probable"].contains(&sure.as_deref().unwrap_or_default()), "{}", run.page());
        let page = run.page();
        assert!(page.contains("tensors held more") || page.contains("live-leak, possible"), "{page}");
    }
}

/// What the failed passes took would be gone, were their errors not kept: the smaller batch fits then.
#[test]
fn an_exception_that_is_kept_keeps_the_pass_that_failed() {
    let Some((run, kept)) = run("exceptions") else { return };
    assert!(kept > 1, "{kept}");
    let page = run.page();
    assert!(!page.contains("(true-capacity, proven)"), "{page}");
    assert!(page.contains("whether the exception of an earlier error is kept"), "{page}");
    let forgetful =
        torch_client("piles.py").expect("as above").arg("forgets").env("SIM_CAPACITY", "512M").run_recorded();
    assert!(forgetful.stdout.contains("fits"), "{}{}", forgetful.stdout, forgetful.stderr);
}

/// Weights, gradients and Adam's state take 128 MiB: it is the data that fill the card.
#[test]
fn an_optimizers_step_beside_much_larger_data_is_only_possibly_the_cause() {
    for (scenario, capacity, expected) in [("dataset", "420M", "possible"), ("adam", "116M", "proven")] {
        let Some(client) = torch_client("piles.py") else { return };
        let run = client.arg(scenario).env("SIM_CAPACITY", capacity).env("GPUOOM_PROBE", "off").run_recorded();
        assert!(run.stdout.contains("kept: 0"), "{scenario}: {}{}", run.stdout, run.stderr);
        assert_eq!(run.confidence("oom-optimizer-step").as_deref(), Some(expected), "{scenario}: {}", run.page());
    }
}
