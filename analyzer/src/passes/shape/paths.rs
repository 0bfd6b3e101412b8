//! What the way to a call names: functions of frameworks that do one thing only, and are called by nobody else.

use crate::passes::phase::{Phase, Where, table};
use crate::replay::purpose::Purpose;
use crate::symbols::own::is_own;
use crate::symbols::{Frame, FrameKind};

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
            // Before llama.cpp had backends with buffers (2023): the buffer that all nodes of a graph lie in.
            "ggml_cuda_assign_scratch_offset",
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

/// The program's own function on a way that is called after an evaluation.
pub fn own_evaluation(stack: &[Frame]) -> Option<&Frame> {
    stack.iter().filter(|frame| is_own(frame)).find(|frame| table::is_own_evaluation(frame))
}

/// Functions of ggml that make memory for tensors, of which they know nothing but their sizes; in 2023 for one tensor at a time.
const MAKES_TENSORS: &[&str] = &[
    "ggml_backend_alloc_ctx_tensors_from_buft",
    "ggml_cuda_assign_buffers_impl",
    "ggml_cuda_assign_buffers_no_scratch",
    "ggml_cuda_transform_tensor",
];
/// Functions of llama.cpp that load a model: what they make for tensors is for its weights.
const LOADS_MODEL: &[&str] = &[
    "llama_model_load",
    "llama_model_load_from_file",
    "llama_model_load_from_file_impl",
    "llama_model_load_from_splits",
    "llama_load_model_from_file",
    "llm_load_tensors",
    "load_tensors",
];
/// Functions of llama.cpp that make a context: what they make for tensors on a device is what the context keeps.
const MAKES_CONTEXT: &[&str] = &["llama_init_from_model", "llama_new_context_with_model"];

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
    for frame in stack.iter().filter(|frame| !is_recorders(frame)) {
        let Some(thing) = of_file(frame).or_else(|| of_function(frame)) else { continue };
        if found.iter().all(|known| known.thing != thing) {
            let function = frame.function.as_deref().or(frame.symbol.as_deref()).unwrap_or_default();
            found.push(Named { thing, function: short(function).to_owned(), is_frameworks: is_frameworks(frame) });
        }
    }
    found
}

/// What ggml's memory is for, by the way to the call, and the function that says so: the innermost one that does one thing only.
pub fn purpose(stack: &[Frame]) -> Option<(Purpose, String)> {
    let mut for_tensors = false;
    for frame in stack.iter().filter(|frame| frame.kind == FrameKind::Native && !is_recorders(frame)) {
        let is_one_of = |names: &[&str]| words(frame).any(|word| names.contains(&word));
        let purpose = match of_function(frame).filter(|_| is_frameworks(frame)) {
            Some(Thing::KvCache) => Some(Purpose::KvCache),
            Some(Thing::ComputeBuffer) => Some(Purpose::Compute),
            _ if for_tensors && is_one_of(LOADS_MODEL) => Some(Purpose::Weights),
            _ if for_tensors && is_one_of(MAKES_CONTEXT) => Some(Purpose::KvCache),
            _ => None,
        };
        if let Some(purpose) = purpose {
            let function = frame.function.as_deref().or(frame.symbol.as_deref()).unwrap_or_default();
            return Some((purpose, short(function).to_owned()));
        }
        for_tensors |= is_one_of(MAKES_TENSORS);
    }
    None
}

/// What is known of a failed call beside the functions on the way to it goes before what these name: its memory is for one thing.
pub fn with_purpose(mut path: Vec<Named>, purpose: Purpose, by: &str) -> Vec<Named> {
    const BUFFERS: [Thing; 3] = [Thing::KvCache, Thing::ComputeBuffer, Thing::Phase(Phase::Load)];
    let thing = match purpose {
        Purpose::Unknown => return path,
        Purpose::Weights => Thing::Phase(Phase::Load),
        Purpose::KvCache => Thing::KvCache,
        Purpose::Compute => Thing::ComputeBuffer,
    };
    path.retain(|named| named.thing == thing && named.is_frameworks || !BUFFERS.contains(&named.thing));
    if path.iter().all(|named| named.thing != thing) {
        path.insert(0, Named { thing, function: by.to_owned(), is_frameworks: true });
    }
    path
}

/// A hook is called as the function that it stands for, and called nothing by itself.
fn is_recorders(frame: &Frame) -> bool {
    frame.module.as_deref().is_some_and(|module| module.ends_with("libgpuoom.so"))
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
    fn the_innermost_function_of_one_purpose_says_what_memory_is_for() {
        let of = |stack: &[&str]| {
            let stack: Vec<Frame> = stack.iter().map(|function| native(function)).collect();
            purpose(&stack).map(|(purpose, by)| (purpose.name().unwrap(), by))
        };
        let says = |purpose: &'static str, by: &str| Some((purpose, by.to_owned()));
        let tensors = "ggml_backend_alloc_ctx_tensors_from_buft";
        assert_eq!(
            of(&[tensors, "llama_kv_cache::llama_kv_cache(llama_model const&)", "llama_init_from_model"]),
            says("kv-cache", "llama_kv_cache::llama_kv_cache")
        );
        assert_eq!(of(&[tensors, "llama_init_from_model"]), says("kv-cache", "llama_init_from_model"), "inlined");
        let update = "llama_kv_cache::update(llama_context*)";
        assert_eq!(of(&["ggml_backend_sched_alloc_graph", update]), says("compute", "ggml_backend_sched_alloc_graph"));
        assert_eq!(
            of(&[tensors, "llama_model::load_tensors(llama_model_loader&)", "llama_model_load_from_file"]),
            says("weights", "llama_model::load_tensors")
        );
        assert_eq!(of(&["ggml_cuda_transform_tensor", "llm_load_tensors(int)"]), says("weights", "llm_load_tensors"));
        assert_eq!(
            of(&["ggml_cuda_assign_buffers_impl(ggml_tensor*)", "llama_new_context_with_model"]),
            says("kv-cache", "llama_new_context_with_model")
        );
        assert_eq!(
            of(&["ggml_cuda_assign_scratch_offset", "llama_decode"]),
            says("compute", "ggml_cuda_assign_scratch_offset")
        );
        for other in [
            &[tensors, "main"][..],
            &["ggml_backend_buft_alloc_buffer", "llama_new_context_with_model"],
            &["ggml_cuda_pool_vmm::alloc", "llama_decode"],
            &["llama_model_load_from_file"],
            &["graph_reserve(llama_kv_cache*)"],
        ] {
            assert_eq!(of(other), None, "{other:?}");
        }
    }

    /// The recorder's hooks have the names of the functions that they stand for.
    #[test]
    fn a_hook_of_the_recorder_says_nothing() {
        let hook = |function: &str| Frame { module: Some("libgpuoom.so".to_owned()), ..native(function) };
        let names =
            ["ggml_gallocr_reserve_n", "ggml_backend_alloc_ctx_tensors_from_buft", "llama_model_load_from_file"];
        assert!(named(&names.map(hook)).iter().all(|named| matches!(named.thing, Thing::Phase(_))));
        assert_eq!(purpose(&names.map(hook)), None);
        assert_eq!(purpose(&[&names.map(hook)[..2], &[native(names[2])]].concat()), None, "no tensors are made there");
        assert_eq!(
            purpose(&names[1..].iter().map(|name| native(name)).collect::<Vec<_>>()).map(|(p, _)| p),
            Some(Purpose::Weights)
        );
    }

    #[test]
    fn one_call_is_for_one_thing() {
        let path = || named(&[native("ggml_gallocr_reserve_n"), native("llama_kv_cache::llama_kv_cache()")]);
        let things = |purpose| -> Vec<Thing> {
            with_purpose(path(), purpose, "f").into_iter().map(|named| named.thing).collect()
        };
        assert_eq!(things(Purpose::Unknown), [Thing::ComputeBuffer, Thing::KvCache]);
        assert_eq!(things(Purpose::Compute), [Thing::ComputeBuffer]);
        assert_eq!(things(Purpose::KvCache), [Thing::KvCache]);
        assert_eq!(things(Purpose::Weights), [Thing::Phase(Phase::Load)]);
        assert_eq!(with_purpose(Vec::new(), Purpose::KvCache, "f")[0].function, "f");
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
