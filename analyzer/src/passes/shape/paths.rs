//! What the way to a call names: functions of frameworks that do one thing only, and are called by nobody else.

use crate::passes::phase::{Phase, Where, table};
use crate::symbols::Frame;

/// What a function or a source file stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Thing {
    /// A part of a training or of an evaluation, or the load of a model.
    Phase(Phase),
    /// The cache of keys and values.
    KvCache,
    /// A buffer for what a graph computes.
    ComputeBuffer,
    /// The pool of ggml's backend that has no virtual memory.
    LegacyPool,
    /// Parameters that FSDP gathers.
    Gather,
}

/// A function on the way to a call that names something.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Named {
    /// What.
    pub thing: Thing,
    /// The function, for people.
    pub function: String,
    /// Whether it is a framework's own, and not one that any program may call so.
    pub is_frameworks: bool,
}

/// What the names of functions begin with that only their framework has.
const FRAMEWORKS: &[&str] = &["llama_", "ggml_"];
/// Packages of Python frameworks.
const FRAMEWORK_PACKAGES: &[&str] =
    &["torch/", "transformers/", "vllm/", "lightning/", "pytorch_lightning/", "accelerate/"];

/// Functions, by a name that is one whole word of theirs: `llama_kv_cache` stands in `llama_kv_cache::llama_kv_cache(...)`.
const FUNCTIONS: &[(Thing, &[&str])] = &[
    (
        Thing::KvCache,
        &[
            "llama_kv_cache_init",
            "llama_kv_cache",
            "llama_kv_cache_unified",
            "llama_kv_cache_unified_iswa",
            "llama_kv_cache_iswa",
            "llama_kv_cache_find_slot",
            "DynamicCache",
            "StaticCache",
            "_allocate_kv_cache_tensors",
            "initialize_kv_cache",
            "_allocate_kv_cache",
        ],
    ),
    (
        Thing::ComputeBuffer,
        &[
            "ggml_gallocr_reserve",
            "ggml_gallocr_reserve_n",
            "ggml_gallocr_alloc_graph",
            "ggml_backend_sched_reserve",
            "ggml_backend_sched_alloc_graph",
            "graph_reserve",
        ],
    ),
    (Thing::LegacyPool, &["ggml_cuda_pool_leg", "ggml_cuda_pool_malloc", "ggml_cuda_pool_malloc_leg"]),
    // Where no framework's function names a phase, a program's own may.
    (
        Thing::Phase(Phase::Load),
        &[
            "load_tensors",
            "ggml_cuda_transform_tensor",
            "load_state_dict",
            "from_pretrained",
            "load_weights",
            "load_checkpoint",
        ],
    ),
    (Thing::Phase(Phase::Evaluation), &["evaluation_loop", "prediction_loop", "prediction_step", "validation_step"]),
];

/// Python files whose functions stand for one thing: all of them, or those that are named.
const FILES: &[(Thing, &str, &[&str])] = &[
    (Thing::Gather, "torch/distributed/fsdp/", table::GATHERS),
    (Thing::Gather, "torch/distributed/_composable/fsdp/", table::GATHERS),
    (Thing::KvCache, "transformers/cache_utils.py", &[]),
];

/// Everything that the way to a call names, the innermost function first; a phase that functions of frameworks name before all.
pub fn named(stack: &[Frame]) -> Vec<Named> {
    let phase = Where::of(stack, false).map(|at| Named {
        thing: Thing::Phase(at.phase),
        function: at.entry().to_owned(),
        is_frameworks: true,
    });
    let mut found: Vec<Named> = phase.into_iter().collect();
    for frame in stack {
        let Some(thing) = of_file(frame).or_else(|| of_function(frame)) else { continue };
        if found.iter().all(|known| known.thing != thing) {
            let function = frame.function.as_deref().or(frame.symbol.as_deref()).unwrap_or_default();
            found.push(Named { thing, function: short(function).to_owned(), is_frameworks: is_frameworks(frame) });
        }
    }
    found
}

/// The words of a frame's names, without what is passed to it.
fn words(frame: &Frame) -> impl Iterator<Item = &str> {
    let names = [frame.function.as_deref(), frame.symbol.as_deref()];
    let is_between = |c: char| !c.is_alphanumeric() && c != '_';
    names.into_iter().flatten().flat_map(move |name| before_arguments(name).split(is_between))
}

fn is_frameworks(frame: &Frame) -> bool {
    let is_in = |path: &str| FRAMEWORK_PACKAGES.iter().any(|folder| path.starts_with(folder));
    words(frame).any(|word| FRAMEWORKS.iter().any(|begin| word.starts_with(begin)))
        || frame.package_path.as_deref().is_some_and(is_in)
}

fn of_function(frame: &Frame) -> Option<Thing> {
    let has = |wanted: &&str| words(frame).any(|word| word == *wanted);
    FUNCTIONS.iter().find(|(_, words)| words.iter().any(has)).map(|(thing, _)| *thing)
}

fn of_file(frame: &Frame) -> Option<Thing> {
    let is = |(_, file, functions): &&(Thing, &str, &[&str])| table::is_one_of(frame, file, functions);
    FILES.iter().find(is).map(|(thing, ..)| *thing)
}

/// A C++ name without its arguments: what is passed to a function is not what it does.
fn before_arguments(name: &str) -> &str {
    name.split('(').next().unwrap_or(name)
}

fn short(function: &str) -> &str {
    before_arguments(function).trim()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn native(function: &str) -> Frame {
        Frame { function: Some(function.to_owned()), ..Frame::native(0x1000) }
    }

    fn things(stack: &[Frame]) -> Vec<Thing> {
        named(stack).into_iter().map(|named| named.thing).collect()
    }

    #[test]
    fn functions_name_what_they_do() {
        assert_eq!(
            things(&[native("cudaMalloc"), native("llama_kv_cache::llama_kv_cache(llama_model const&, int)")]),
            [Thing::KvCache]
        );
        assert_eq!(things(&[native("graph_reserve(llama_kv_cache*)")]), [Thing::ComputeBuffer]);
        assert!(
            things(&[native("forward_kinematics"), native("evaluate_forces"), native("my_llama_kv_cache_test")])
                .is_empty()
        );
        let python = |file: &str, function: &str| Frame::python(file, function, 7);
        let optimizer = [python("/env/site-packages/torch/optim/optimizer.py", "wrapper"), python("train.py", "main")];
        assert_eq!(things(&optimizer), [Thing::Phase(Phase::Optimizer)]);
        assert_eq!(things(&[python("/env/site-packages/transformers/cache_utils.py", "update")]), [Thing::KvCache]);
        assert!(things(&[python("optim.py", "step"), python("forward.py", "forward")]).is_empty());
        let own = |frame: Frame| named(&[frame]).iter().map(|named| !named.is_frameworks).collect::<Vec<_>>();
        assert_eq!(own(native("load_weights(Graph&)")), [true], "a road network has weights, too");
        assert_eq!(own(native("llama_model_loader::load_tensors()")), [false]);
        assert_eq!(own(python("serve.py", "from_pretrained")), [true]);
        assert_eq!(own(python("/env/site-packages/transformers/modeling_utils.py", "from_pretrained")), [false]);
        assert_eq!(own(python("/home/me/transformers/roads.py", "from_pretrained")), [true], "a folder of one's own");
        assert_eq!(own(python("/env/site-packages/roads/torch/map.py", "load_weights")), [true]);
    }
}
