//! Which function belongs to which phase: the table. A function that moves away names nothing any more, and never something else.
//! `scripts/frameworks` compares what it says with tracebacks of real packages; which versions were, tests/clients/frameworks/README.md
//! says. By their sources alone: PyTorch 2.0 to 2.14, trl 1.16, vLLM 0.10 and llama.cpp.

use super::Phase;
use crate::symbols::plumbing::is_plumbing;
use crate::symbols::{Frame, FrameKind};

/// Python functions of a package.
struct PythonRow {
    phase: Phase,
    /// Path from where packages lie; all files of a folder where it ends with a slash.
    file: &'static str,
    /// Names without those of the classes around them; all functions of the file where there are none.
    functions: &'static [&'static str],
}

const fn python(phase: Phase, file: &'static str, functions: &'static [&'static str]) -> PythonRow {
    PythonRow { phase, file, functions }
}

/// What moves a module or converts it.
const MOVES: &[&str] = &["to", "cuda", "to_empty", "load_state_dict", "half", "float", "double", "bfloat16", "type"];

const PYTHON: &[PythonRow] = &[
    // `wrapper` is what `profile_hook_step` makes of every optimizer's `step`.
    python(Phase::Optimizer, "torch/optim/optimizer.py", &["wrapper"]),
    python(Phase::State, "torch/optim/optimizer.py", &["load_state_dict"]),
    // DeepSpeed's optimizers around the program's.
    python(Phase::Optimizer, "deepspeed/runtime/zero/stage3.py", &["step"]),
    python(Phase::Optimizer, "deepspeed/runtime/zero/stage_1_and_2.py", &["step"]),
    python(Phase::Backward, "torch/_tensor.py", &["backward"]),
    python(Phase::Backward, "torch/autograd/__init__.py", &["backward", "grad"]),
    python(Phase::Backward, "torch/autograd/graph.py", &["_engine_run_backward"]),
    python(Phase::Load, "torch/nn/modules/module.py", MOVES),
    // What a module makes of its parameters, where they are made on the card.
    python(Phase::Load, "torch/nn/modules/", &["__init__"]),
    python(Phase::Forward, "torch/nn/modules/module.py", CALL),
    python(Phase::File, "torch/serialization.py", &["load"]),
    python(Phase::File, "safetensors/torch.py", &["load_file", "load"]),
    python(Phase::Load, "safetensors/torch.py", &["load_model"]),
    python(Phase::Load, "transformers/modeling_utils.py", &["from_pretrained"]),
    // Its threads, since version 5.
    python(Phase::Load, "transformers/core_model_loading.py", &["_materialize_copy", "shard_tensor"]),
    python(Phase::Load, "accelerate/utils/modeling.py", &["load_checkpoint_in_model", "load_state_dict"]),
    python(Phase::Load, "accelerate/big_modeling.py", &["load_checkpoint_and_dispatch", "dispatch_model"]),
    python(Phase::Load, "vllm/model_executor/model_loader/", &[]),
    python(Phase::Evaluation, "transformers/trainer.py", &["evaluation_loop", "prediction_loop", "prediction_step"]),
    python(Phase::Evaluation, "lightning/pytorch/loops/evaluation_loop.py", &[]),
    python(Phase::Evaluation, "lightning/pytorch/loops/prediction_loop.py", &[]),
    python(Phase::Evaluation, "pytorch_lightning/loops/evaluation_loop.py", &[]),
    python(Phase::Evaluation, "pytorch_lightning/loops/prediction_loop.py", &[]),
    // Up to version 1.9.
    python(Phase::Evaluation, "pytorch_lightning/loops/dataloader/evaluation_loop.py", &[]),
    python(Phase::Evaluation, "pytorch_lightning/loops/dataloader/prediction_loop.py", &[]),
    // A state of all processes, brought to the model's parts.
    python(Phase::Load, "torch/distributed/checkpoint/state_dict.py", &["_load_model_state_dict"]),
    python(Phase::State, "torch/distributed/checkpoint/state_dict.py", &["_load_optim_state_dict"]),
    python(Phase::Data, "accelerate/data_loader.py", &["__iter__", "_fetch_batches"]),
    python(Phase::Collective, "torch/distributed/distributed_c10d.py", COLLECTIVES),
    python(Phase::Collective, "torch/distributed/_functional_collectives.py", COLLECTIVES),
    python(Phase::Collective, "torch/distributed/fsdp/", GATHERS),
    python(Phase::Collective, "torch/distributed/_composable/fsdp/", GATHERS),
    python(Phase::Collective, "torch/distributed/fsdp/", REDUCTIONS),
    python(Phase::Collective, "torch/distributed/_composable/fsdp/", REDUCTIONS),
    python(Phase::Collective, "deepspeed/runtime/zero/partition_parameters.py", ZERO_GATHERS),
    python(Phase::Data, "torch/utils/data/", &["__next__", "fetch", "_worker_loop", "_pin_memory_loop"]),
    python(Phase::Capture, "torch/cuda/graphs.py", &["capture_begin", "capture_end"]),
];

/// Functions that compute a loss by a model and more: where nothing inside them names a phase, this is the one.
const AROUND: &[PythonRow] = &[
    python(Phase::Forward, "transformers/trainer.py", &["compute_loss"]),
    python(Phase::Forward, "trl/trainer/", &["compute_loss"]),
    // Not where the program calls `backward` and `step` itself: that is `manual.py`.
    python(Phase::Forward, "lightning/pytorch/loops/optimization/automatic.py", TRAINING_STEP),
    python(Phase::Forward, "pytorch_lightning/loops/optimization/automatic.py", TRAINING_STEP),
    python(Phase::Forward, "pytorch_lightning/loops/optimization/optimizer_loop.py", TRAINING_STEP),
];
const TRAINING_STEP: &[&str] = &["_training_step"];

/// How a module calls its `forward`.
const CALL: &[&str] = &["_wrapped_call_impl", "_call_impl"];
const COLLECTIVES: &[&str] = &[
    "_all_gather_base",
    "_reduce_scatter_base",
    "all_gather",
    "all_gather_coalesced",
    "all_gather_into_tensor",
    "all_gather_into_tensor_coalesced",
    "all_gather_object",
    "all_gather_single",
    "all_gather_single_coalesced",
    "all_gather_tensor",
    "all_gather_tensor_autograd",
    "all_reduce",
    "all_reduce_coalesced",
    "all_to_all",
    "all_to_all_single",
    "all_to_all_single_autograd",
    "barrier",
    "batch_isend_irecv",
    "broadcast",
    "broadcast_object_list",
    "gather",
    "gather_into_tensor",
    "gather_object",
    "gather_single",
    "irecv",
    "isend",
    "recv",
    "recv_object_list",
    "reduce",
    "reduce_scatter",
    "reduce_scatter_single",
    "reduce_scatter_single_coalesced",
    "reduce_scatter_tensor",
    "reduce_scatter_tensor_autograd",
    "reduce_scatter_tensor_coalesced",
    "scatter",
    "scatter_object_list",
    "send",
    "send_object_list",
];
/// By which FSDP puts parameters together; both of its versions. Not `unshard`: where there is one process it gathers nothing.
pub(in crate::passes) const GATHERS: &[&str] = &[
    "_alloc_padded_unsharded_flat_param",
    "_all_gather_flat_param",
    "foreach_all_gather",
    "foreach_all_gather_copy_out",
    "all_gather_copy_in",
    "all_gather_copy_in_cuda",
];
/// By which the third stage of ZeRO does. They ask for memory only where there are several processes.
const ZERO_GATHERS: &[&str] = &["_all_gather_dtype", "_all_gather_sequential", "_all_gather_coalesced"];
/// By which it adds gradients up.
const REDUCTIONS: &[&str] =
    &["_reduce_grad", "foreach_reduce", "foreach_reduce_scatter_copy_in", "reduce_scatter_copy_in_cuda"];

/// Native functions by what their names begin with, and end with where that is not empty.
const NATIVE: &[(Phase, &str, &str)] = &[
    (Phase::Backward, "torch::autograd::Engine::", ""),
    (Phase::Backward, "torch::autograd::python::PythonEngine::", ""),
    (Phase::Optimizer, "torch::optim::", "::step"),
    (Phase::Optimizer, "at::native::_fused_adam", ""),
    (Phase::Optimizer, "at::native::_fused_sgd", ""),
    (Phase::Optimizer, "at::native::_fused_adagrad", ""),
    (Phase::Forward, "torch::nn::", "Impl::forward"),
    (Phase::Collective, "c10d::ProcessGroupNCCL::", ""),
    (Phase::Collective, "c10d::nccl2::ProcessGroupNCCL::", ""),
    (Phase::Capture, "at::cuda::CUDAGraph::capture_", ""),
    (Phase::Load, "llama_model_load", ""),
    (Phase::Load, "llama_load_model_from_", ""),
    (Phase::Load, "llama_model_loader::", ""),
    (Phase::Load, "llama_model::load_tensors", ""),
    (Phase::Forward, "llama_decode", ""),
    (Phase::Forward, "llama_context::decode", ""),
    (Phase::Forward, "llama_encode", ""),
    (Phase::Forward, "llama_context::encode", ""),
];

/// What libraries call threads that do one thing only, by what the names begin with. Anybody may call a thread so: where a function
/// names a phase, this does not count.
const THREADS: &[(Phase, &str)] = &[
    // `Engine::thread_init` of PyTorch, a thread for each device.
    (Phase::Backward, "pt_autograd_"),
    // `torch/utils/data/_utils`, since version 2.6.
    (Phase::Data, "pt_data_pin"),
    (Phase::Data, "pt_data_worker"),
];

/// The phase that a thread's name tells.
pub(in crate::passes) fn phase_of_thread(name: &str) -> Option<Phase> {
    THREADS.iter().find(|(_, begin)| name.starts_with(begin)).map(|(phase, _)| *phase)
}

/// Functions that only call another one for somebody: who is named is whom they call.
const ADAPTERS: &[(&str, &[&str])] = &[
    ("torch/optim/optimizer.py", &["wrapper", "_use_grad"]),
    ("torch/nn/modules/module.py", CALL),
    ("torch/nn/modules/module.py", &["inner"]),
    (CONTEXTS, &[]),
    ("torch/_dynamo/eval_frame.py", &[]),
    ("torch/amp/autocast_mode.py", &["decorate_autocast"]),
    ("torch/nn/parallel/distributed.py", &["forward", "_run_ddp_forward"]),
    ("torch/distributed/fsdp/fully_sharded_data_parallel.py", &["forward"]),
    ("torch/distributed/fsdp/_fully_shard/_fsdp_common.py", &["wrapper"]),
    ("accelerate/hooks.py", &["new_forward"]),
    ("accelerate/utils/operations.py", &["forward", "__call__"]),
    ("deepspeed/runtime/engine.py", &["forward"]),
    ("deepspeed/utils/nvtx.py", &["wrapped_fn"]),
    ("transformers/utils/deprecation.py", &["wrapped_func"]),
    ("transformers/utils/generic.py", &["wrapper"]),
    ("lightning/pytorch/loops/optimization/automatic.py", TRAINING_STEP),
    ("lightning/pytorch/trainer/call.py", &["_call_strategy_hook"]),
    ("lightning/pytorch/strategies/strategy.py", &["training_step"]),
    ("lightning/fabric/wrappers.py", &["forward"]),
    ("pytorch_lightning/loops/optimization/automatic.py", TRAINING_STEP),
    ("pytorch_lightning/loops/optimization/optimizer_loop.py", TRAINING_STEP),
    ("pytorch_lightning/trainer/call.py", &["_call_strategy_hook"]),
    ("pytorch_lightning/trainer/trainer.py", &["_call_strategy_hook"]),
    ("pytorch_lightning/strategies/strategy.py", &["training_step"]),
];
/// Where the functions lie that set a context around the functions that they decorate.
const CONTEXTS: &str = "torch/utils/_contextlib.py";
/// Contexts without gradients: since PyTorch 2.15 the function around a decorated one has the context's name.
const WITHOUT_GRADIENTS: &[&str] = &["no_grad", "inference_mode"];
/// What programs call their own function that evaluates a model. Behind allocations of PyTorch's alone: elsewhere such a name may mean
/// anything.
const OWN_EVALUATIONS: &[&str] = &[
    "evaluate",
    "evaluation",
    "validate",
    "validation",
    "eval_step",
    "eval_epoch",
    "eval_loop",
    "evaluate_model",
    "run_eval",
    "run_evaluation",
    "run_validation",
    "val_step",
    "val_epoch",
    "val_loop",
    "validate_epoch",
    "validate_model",
    "validation_epoch",
    "valid_step",
    "valid_epoch",
    "valid_loop",
    "val_one_epoch",
    "eval_one_epoch",
    "validate_one_epoch",
    "evaluate_one_epoch",
    "evaluate_epoch",
    "eval_model",
    "test_step",
    "test_epoch",
    "test_loop",
    "test_model",
];
/// What more names of such functions are or begin with, up to a `_`, where they take no gradients: else they are too common.
const WITHOUT_GRADIENTS_EVALUATIONS: &[&str] = &["eval", "evaluate", "predict", "infer", "inference"];
/// The functions that compute a checkpointed forward pass again.
const AGAIN: (&str, &[&str]) = ("torch/utils/checkpoint.py", &["backward", "unpack", "unpack_hook", "recompute_fn"]);

/// Functions of optimizers that make their state, and nothing else.
const STATE: &[(&str, &[&str])] = &[("torch/optim/", &["_init_group"]), ("bitsandbytes/optim/", &["init_state"])];

/// Whether a frame is that of a context without gradients, around a function that it decorates.
pub(crate) fn is_without_gradients(frame: &Frame) -> bool {
    is_one_of(frame, CONTEXTS, WITHOUT_GRADIENTS)
}

/// Whether `torch.autograd` makes the first gradient of a pass there, and not the engine what it runs.
pub(in crate::passes) fn begins_a_backward_pass(frames: &[Frame]) -> bool {
    let has = |file: &str, functions: &[&str]| frames.iter().any(|frame| is_one_of(frame, file, functions));
    has("torch/autograd/__init__.py", &["backward", "grad"])
        && !has("torch/autograd/graph.py", &["_engine_run_backward"])
}

/// Whether a frame makes an optimizer's state.
pub(in crate::passes) fn makes_state(frame: &Frame) -> bool {
    STATE.iter().any(|(folder, functions)| is_one_of(frame, folder, functions))
}

/// The phase that a frame names.
pub(in crate::passes) fn phase_of(frame: &Frame) -> Option<Phase> {
    match frame.kind {
        FrameKind::Python => PYTHON.iter().find(|row| is_one_of(frame, row.file, row.functions)).map(|row| row.phase),
        FrameKind::Native => {
            let name = frame.short()?;
            let is = |(_, begin, end): &&(Phase, &str, &str)| name.starts_with(begin) && name.ends_with(end);
            NATIVE.iter().find(is).map(|(phase, ..)| *phase)
        }
    }
}

/// The phase of a frame inside of which nothing names one.
pub(super) fn phase_around(frame: &Frame) -> Option<Phase> {
    AROUND.iter().find(|row| is_one_of(frame, row.file, row.functions)).map(|row| row.phase)
}

/// Whether an optimizer's step calls what is not its own: a hook, or a closure that it was handed, which may do anything. `inward`:
/// the frames from the one that names the step on.
pub(super) fn leaves_the_step<'a>(inward: impl Iterator<Item = &'a Frame>) -> bool {
    let mut python = inward.filter(|frame| frame.kind == FrameKind::Python && !is_adapter(frame));
    let Some(step) = python.next() else { return false };
    let is_step = is_plumbing(step) || step.function.as_deref().is_some_and(|name| own_name(name) == "step");
    !is_step || python.any(|frame| !is_plumbing(frame) && !is_generated(frame) && !is_beside(step, frame))
}

/// Whether two functions are of one package, or of one file of the program.
fn is_beside(one: &Frame, other: &Frame) -> bool {
    let package = |frame: &Frame| frame.package_path.as_deref().map(|path| path.split('/').next().map(str::to_owned));
    package(one) == package(other) && (one.package_path.is_some() || one.file == other.file)
}

/// Whether PyTorch's compilers wrote or run it.
fn is_generated(frame: &Frame) -> bool {
    let is_triton = frame.package_path.as_deref().is_some_and(|path| path.starts_with("triton/"));
    is_triton || frame.file.as_deref().is_some_and(|file| file.starts_with('<') || file.contains("/torchinductor_"))
}

/// Whether a frame is one of these Python functions.
pub(in crate::passes) fn is_one_of(frame: &Frame, file: &str, functions: &[&str]) -> bool {
    let lies = |path: &str| if file.ends_with('/') { path.starts_with(file) } else { path == file };
    frame.package_path.as_deref().is_some_and(lies)
        && (functions.is_empty() || frame.function.as_deref().is_some_and(|name| functions.contains(&own_name(name))))
}

/// A function's name without those around it: `step` of `Adam.step`.
fn own_name(function: &str) -> &str {
    function.rsplit('.').next().unwrap_or(function)
}

/// Whether a function only calls another one for somebody.
pub(crate) fn is_adapter(frame: &Frame) -> bool {
    ADAPTERS.iter().any(|(file, functions)| is_one_of(frame, file, functions))
}

/// The context that a frame sets around the function that it decorates; empty where its name is not told.
pub(super) fn context_of(frame: &Frame) -> Option<&str> {
    let name = frame.function.as_deref().unwrap_or_default();
    is_one_of(frame, CONTEXTS, &[]).then(|| own_name(name))
}

/// Whether a context takes no gradients.
pub(super) fn takes_no_gradients(context: &str) -> bool {
    WITHOUT_GRADIENTS.contains(&context)
}

/// Whether a function of the program is called after an evaluation, whatever else it does.
pub(in crate::passes) fn is_own_evaluation(frame: &Frame) -> bool {
    frame
        .function
        .as_deref()
        .is_some_and(|name| OWN_EVALUATIONS.iter().any(|known| words(name).any(|word| word == *known)))
}

/// The same of a function that takes no gradients.
pub(in crate::passes) fn is_called_evaluation(frame: &Frame) -> bool {
    let begin = |word: &str| word.trim_start_matches('_').split('_').next().unwrap_or_default().to_owned();
    let is = |name: &str| words(name).any(|word| WITHOUT_GRADIENTS_EVALUATIONS.contains(&&*begin(word)));
    is_own_evaluation(frame) || frame.function.as_deref().is_some_and(is)
}

/// The words of a Python function's name with those around it.
fn words(function: &str) -> impl Iterator<Item = &str> {
    function.split(|c: char| !c.is_alphanumeric() && c != '_')
}

/// Whether a checkpointed forward pass is computed again in a frame.
pub(super) fn computes_again(frame: &Frame) -> bool {
    is_one_of(frame, AGAIN.0, AGAIN.1)
}
