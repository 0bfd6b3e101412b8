use super::*;

const SITE: &str = "/env/lib/python3.12/site-packages/";

fn native(function: &str) -> Frame {
    Frame { function: Some(function.to_owned()), ..Frame::native(0x1000) }
}

fn package(file: &str, function: &str) -> Frame {
    Frame::python(&format!("{SITE}{file}"), function, 100)
}

fn own(file: &str, function: &str, line: u32) -> Frame {
    Frame::python(&format!("/home/me/{file}"), function, line)
}

fn call() -> [Frame; 2] {
    ["Module._call_impl", "Module._wrapped_call_impl"].map(|name| package("torch/nn/modules/module.py", name))
}

fn step() -> [Frame; 4] {
    [
        package("torch/optim/adam.py", "Adam._init_group"),
        package("torch/optim/adam.py", "Adam.step"),
        package("torch/optim/optimizer.py", "_use_grad_for_differentiable.<locals>._use_grad"),
        package("torch/optim/optimizer.py", "Optimizer.profile_hook_step.<locals>.wrapper"),
    ]
}

fn forward() -> Vec<Frame> {
    let [call, wrapped] = call();
    let linear = package("torch/nn/modules/linear.py", "Linear.forward");
    vec![linear, call.clone(), wrapped.clone(), own("model.py", "Net.forward", 12), call, wrapped]
}

fn words(stack: &[Frame]) -> String {
    Where::of(stack, false).map_or("nobody knows".to_owned(), |at| at.words())
}

fn stack(parts: &[&[Frame]]) -> Vec<Frame> {
    parts.concat()
}

#[test]
fn the_nearest_function_names_the_phase_and_the_outermost_of_its_phase_the_entry() {
    let train = [own("train.py", "train", 31), own("train.py", "<module>", 60)];
    assert_eq!(
        words(&stack(&[&step(), &train])),
        "in the optimizer's step: Adam.step (torch/optim/adam.py), called from train (train.py:31)"
    );
    assert_eq!(
        words(&stack(&[&forward(), &train])),
        "in a forward pass: Net.forward (model.py), called from train (train.py:31)"
    );
    let backward = [
        package("torch/autograd/graph.py", "_engine_run_backward"),
        package("torch/autograd/__init__.py", "backward"),
        package("torch/_tensor.py", "Tensor.backward"),
    ];
    assert_eq!(
        words(&stack(&[&backward, &train])),
        "in a backward pass: Tensor.backward (torch/_tensor.py), called from train (train.py:31)"
    );
    let load =
        [package("torch/nn/modules/module.py", "Module._apply"), package("torch/nn/modules/module.py", "Module.to")];
    assert_eq!(
        words(&stack(&[&load, &train])),
        "while a model was made, loaded, moved or converted: Module.to (torch/nn/modules/module.py), called from train (train.py:31)"
    );
    let gather = [package("torch/distributed/distributed_c10d.py", "all_gather_into_tensor")];
    let of = Where::of(&stack(&[&gather, &forward(), &train]), false).unwrap();
    assert_eq!((of.phase, of.function.as_deref()), (Phase::Collective, Some("all_gather_into_tensor")));
    let data = [own("data.py", "collate", 4), package("torch/utils/data/_utils/fetch.py", "_MapDatasetFetcher.fetch")];
    assert!(words(&stack(&[&data, &train])).starts_with("in the data loader: "));
    assert!(words(&stack(&[&forward(), &data, &train])).starts_with("in a forward pass: "));
}

#[test]
fn a_module_called_in_something_else_belongs_to_that() {
    let engine = [
        native("torch::autograd::Engine::evaluate_function(int)"),
        native("torch::autograd::Engine::thread_main(int)"),
    ];
    assert_eq!(words(&engine), "in a backward pass");
    let again = package("torch/utils/checkpoint.py", "_checkpoint_without_reentrant_generator.<locals>.recompute_fn");
    let interpreter = native("_PyEval_EvalFrameDefault");
    let inside = [&[interpreter][..], &engine].concat();
    let recomputed = stack(&[&inside, &forward(), &[again]]);
    assert_eq!(words(&recomputed), "in a backward pass, where a checkpointed forward pass is computed again");
    let evaluation = [package("transformers/trainer.py", "Trainer.evaluation_loop")];
    assert!(words(&stack(&[&forward(), &evaluation])).starts_with("in an evaluation: Trainer.evaluation_loop"));
    // The optimizer's closure runs a forward pass, with gradients.
    let closure = own("train.py", "closure", 20);
    assert!(words(&stack(&[&forward(), &[closure], &step()])).starts_with("in a forward pass: Net.forward"));
}

/// What Lightning's trainer hands an optimizer's step: all that comes before it.
fn closure(inside: &[Frame]) -> Vec<Frame> {
    let closures = [
        package("lightning/pytorch/loops/optimization/automatic.py", "Closure.closure"),
        package("lightning/pytorch/loops/optimization/automatic.py", "Closure.__call__"),
    ];
    stack(&[inside, &closures, &step()[1..], &[own("train.py", "main", 70)]])
}

#[test]
fn a_closure_or_a_hook_of_an_optimizers_step_is_not_the_step() {
    assert_eq!(words(&closure(&[own("train.py", "Trained.on_before_optimizer_step", 49)])), "nobody knows");
    let lbfgs = [package("torch/optim/lbfgs.py", "LBFGS.step"), step()[3].clone()];
    assert_eq!(words(&stack(&[&[own("train.py", "again", 7)], &lbfgs])), "nobody knows");
    assert_eq!(words(&[own("train.py", "before", 3), step()[3].clone()]), "nobody knows");
    // An optimizer of the program's own or of another package, with what it calls.
    let of = |inside: &[Frame], step_of: Frame| words(&stack(&[inside, &[step_of, step()[3].clone()]]));
    let expected = "in the optimizer's step: Lion.step (lion.py)";
    assert_eq!(of(&[own("lion.py", "update", 3)], own("lion.py", "Lion.step", 9)), expected);
    assert_eq!(of(&[own("train.py", "closure", 3)], own("lion.py", "Lion.step", 9)), "nobody knows");
    let adafactor = || package("transformers/optimization.py", "Adafactor.step");
    assert!(of(&[package("transformers/other.py", "rms")], adafactor()).starts_with("in the optimizer's step: Ada"));
    assert_eq!(of(&[package("trl/other.py", "closure")], adafactor()), "nobody knows");
    let compiled = [Frame::python("/tmp/torchinductor_me/ab/cab.py", "call", 40), step()[0].clone()];
    assert!(of(&compiled, step()[1].clone()).starts_with("in the optimizer's step: Adam.step"));
    let zero = [
        package("deepspeed/runtime/zero/stage3.py", "DeepSpeedZeroOptimizer_Stage3._get_norm_groups"),
        package("deepspeed/utils/nvtx.py", "instrument_w_nvtx.<locals>.wrapped_fn"),
        package("deepspeed/runtime/zero/stage3.py", "DeepSpeedZeroOptimizer_Stage3.step"),
    ];
    assert!(words(&zero).starts_with("in the optimizer's step: DeepSpeedZeroOptimizer_Stage3.step"));
}

#[test]
fn a_trainers_loss_is_of_the_forward_pass_where_nothing_inside_it_says_more() {
    let around = [
        own("train.py", "Trained.training_step", 29),
        package("lightning/pytorch/strategies/strategy.py", "Strategy.training_step"),
        package("lightning/pytorch/trainer/call.py", "_call_strategy_hook"),
        package("lightning/pytorch/loops/optimization/automatic.py", "_AutomaticOptimization._training_step"),
    ];
    let expected = "in a forward pass: Trained.training_step (train.py), called from main (train.py:70)";
    assert_eq!(words(&closure(&around)), expected);
    // A module that it calls is named with the line of its call.
    let module = "in a forward pass: Net.forward (model.py), called from Trained.training_step (train.py:29)";
    assert_eq!(words(&closure(&stack(&[&forward(), &around]))), module);
    // An evaluation computes a loss, too.
    let evaluation = ["compute_loss", "prediction_step"].map(|name| package("transformers/trainer.py", name));
    assert!(words(&evaluation[..1]).starts_with("in a forward pass: compute_loss"));
    assert!(words(&evaluation).starts_with("in an evaluation: prediction_step"));
}

#[test]
fn a_gather_is_one_only_where_processes_exchange_something() {
    let main = [own("train.py", "main", 70)];
    let fsdp = |name: &str| package("torch/distributed/fsdp/_fully_shard/_fsdp_param_group.py", name);
    let alone = [fsdp("FSDPParamGroup.wait_for_unshard"), fsdp("FSDPModule.unshard")];
    assert_eq!(words(&stack(&[&alone, &main])), "nobody knows");
    let gather = package("torch/distributed/fsdp/_fully_shard/_fsdp_collectives.py", "foreach_all_gather");
    assert!(words(&stack(&[&[gather], &alone, &main])).starts_with("in a collective operation: foreach_all_gather"));
    let zero = package("deepspeed/runtime/zero/partition_parameters.py", "Init._all_gather_sequential");
    assert!(words(&stack(&[&[zero], &forward(), &main])).starts_with("in a collective operation"));
}

#[test]
fn what_only_calls_a_module_for_somebody_is_not_named() {
    let [call, wrapped] = call();
    let main = [call, wrapped, own("train.py", "main", 70)];
    for (file, function) in [
        ("accelerate/utils/operations.py", "convert_outputs_to_fp32.<locals>.forward"),
        ("accelerate/hooks.py", "add_hook_to_module.<locals>.new_forward"),
        ("torch/nn/parallel/distributed.py", "DistributedDataParallel.forward"),
        ("torch/distributed/fsdp/fully_sharded_data_parallel.py", "FullyShardedDataParallel.forward"),
        ("torch/_dynamo/eval_frame.py", "_TorchDynamoContext.__call__.<locals>.compile_wrapper"),
    ] {
        assert_eq!(
            words(&stack(&[&forward(), &[package(file, function)], &main])),
            "in a forward pass: Net.forward (model.py), called from main (train.py:70)",
            "{file}"
        );
    }
}

#[test]
fn a_line_is_the_programs_own_where_one_is_there() {
    // On the program's own thread the engine calls back, and nobody tells where among the frames of Python it lies.
    let inside = [native("_PyEval_EvalFrameDefault"), native("torch::autograd::Engine::evaluate_function(int)")];
    let backward = [
        own("model.py", "Doubled.backward", 9),
        package("torch/autograd/graph.py", "_engine_run_backward"),
        package("torch/_tensor.py", "Tensor.backward"),
        own("train.py", "train", 31),
    ];
    assert_eq!(
        words(&stack(&[&inside, &backward])),
        "in a backward pass: Tensor.backward (torch/_tensor.py), called from train (train.py:31)"
    );
    // On the engine's thread, what a checkpointed function calls is called by no line of the program.
    let again = [
        package("torch/autograd/__init__.py", "backward"),
        package("torch/utils/checkpoint.py", "CheckpointFunction.backward"),
    ];
    assert_eq!(words(&stack(&[&inside, &again])), "in a backward pass");
    let trainer = [package("accelerate/optimizer.py", "AcceleratedOptimizer.step"), own("train.py", "train", 31)];
    assert!(words(&stack(&[&step(), &trainer])).ends_with(", called from train (train.py:31)"));
    let process = Frame::python("/usr/lib/python3.12/multiprocessing/spawn.py", "spawn_main", 122);
    let worker =
        [package("torch/utils/data/_utils/worker.py", "_worker_loop"), process, own("<string>", "<module>", 1)];
    assert_eq!(words(&worker), "in the data loader: _worker_loop (torch/utils/data/_utils/worker.py)");
}

#[test]
fn what_is_decorated_without_gradients_is_an_evaluation_where_it_runs_a_forward_pass() {
    let main = [own("eval.py", "main", 50)];
    let context = |name: &str| package("torch/utils/_contextlib.py", name);
    let run = |contexts: &[&str]| {
        let mut frames = forward();
        for name in contexts {
            frames.extend([own("eval.py", "evaluate", 7), context(name)]);
        }
        words(&stack(&[&frames, &main]))
    };
    assert_eq!(
        run(&["no_grad"]),
        "in a forward pass: evaluate (eval.py), which is decorated with no_grad, called from main (eval.py:50)"
    );
    assert!(run(&["inference_mode"]).contains(", which is decorated with inference_mode, "));
    // An optimizer's step is decorated, and calls a closure with gradients.
    let wrapper = package("torch/optim/optimizer.py", "Optimizer.profile_hook_step.<locals>.wrapper");
    let step = [own("sam.py", "closure", 3), own("sam.py", "SAM.step", 7), context("no_grad"), wrapper];
    let in_closure = words(&stack(&[&forward(), &step, &main]));
    assert!(in_closure.starts_with("in a forward pass: ") && !in_closure.contains("decorated"), "{in_closure}");
    // Up to PyTorch 2.14 nobody tells which context it is, and the nearest one counts.
    for contexts in [&["decorate_context"][..], &["enable_grad"], &["enable_grad", "no_grad"]] {
        assert!(run(contexts).starts_with("in a forward pass: "), "{contexts:?}");
    }
    // The optimizer's step is decorated, too.
    let decorated = [own("eval.py", "copy", 7), context("no_grad"), own("eval.py", "main", 50)];
    assert_eq!(words(&decorated), "nobody knows");
    let named =
        |function: &str, context_of: &str| words(&[own("eval.py", function, 7), context(context_of), main[0].clone()]);
    let of_no_pass =
        "in an evaluation: Trainer.evaluate (eval.py), which is decorated with no_grad, called from main (eval.py:50)";
    assert_eq!(named("Trainer.evaluate", "no_grad"), of_no_pass);
    for function in ["predict", "_eval_once", "evaluate_all", "validate.<locals>.<listcomp>"] {
        assert!(named(function, "inference_mode").starts_with("in an evaluation: "), "{function}");
    }
    for (function, context) in [
        ("evaluate", "enable_grad"),
        ("evaluate", "decorate_context"),
        ("evaluation_weights", "no_grad"),
        ("reval", "no_grad"),
    ] {
        assert_eq!(named(function, context), "nobody knows", "{function}");
    }
    let in_torch =
        stack(&[&forward(), &[package("torch/optim/lbfgs.py", "LBFGS.directional"), context("no_grad")], &main]);
    assert!(words(&in_torch).starts_with("in a forward pass: "));
}

#[test]
fn a_capture_under_way_decides() {
    let train = [own("train.py", "train", 31)];
    let at = Where::of(&stack(&[&forward(), &train]), true).unwrap();
    assert_eq!(
        (at.phase.name(), at.words()),
        ("capture", "while a stream was captured, at Net.forward (model.py:12)".to_owned())
    );
    assert_eq!(Where::of(&[], true).map(|at| at.words()), Some("while a stream was captured".to_owned()));
}

#[test]
fn a_threads_name_tells_where_no_function_does() {
    let words = |name: &str| Where::by_thread(name).map(|at| (at.phase.name(), at.words()));
    let backward = "in a backward pass, as the name of the thread says: pt_autograd_1".to_owned();
    assert_eq!(words("pt_autograd_1"), Some(("backward", backward)));
    assert_eq!(words("pt_data_worker").map(|(phase, _)| phase), Some("loading"));
    for name in ["python", "", "my_pt_autograd_0", "pt_nccl_watchdg"] {
        assert_eq!(words(name), None);
    }
}

#[test]
fn functions_that_are_only_called_so_name_nothing() {
    for stack in [
        [own("optim/adam.py", "step", 3), own("torch/optim/adam.py", "Adam.step", 4)],
        [package("roads/torch/optim/adam.py", "Adam.step"), package("torch/optim/lr_scheduler.py", "zero_grad")],
        [native("my_llama_decode"), native("Engine::evaluate_function")],
        [own("module.py", "_call_impl", 3), native("ncclCommInitRank")],
    ] {
        assert_eq!(words(&stack), "nobody knows");
    }
    assert_eq!(
        words(&[native("llama_context::decode(llama_batch const&)")]),
        "in a forward pass: llama_context::decode"
    );
    assert_eq!(
        words(&[native("llama_model_load_from_file")]),
        "while a model was made, loaded, moved or converted: llama_model_load_from_file"
    );
}
