//! ggml, the library below llama.cpp, and llama.cpp's own: what their buffers are for, inside which of their functions memory is
//! asked for, and what they say: in their log, and before ggml aborts.
//!
//! Sources: `ggml-backend.h`, `ggml-alloc.h`, `ggml.h` and `llama.h` of llama.cpp, and the exports and references of a prebuilt one of
//! 2026. There `libllama` calls `libggml-base` by references that can be hooked, and so do the functions of `libggml-base` each
//! other. In one shared `libllama` (2023, 2024) the same holds unless it was linked with `-Bsymbolic`; a static build has none.
//!
//! Since when each is there, `since.rs` says, by the headers that `llama-cpp-python` carries. What the history adds: the
//! `ggml_gallocr_alloc_graph` of 2023 makes no buffers (it does since "ggml-alloc v3", February 2024, ggml's pull request 727). All of
//! them, also those that newer ones replace, are still in the headers of April 2026.
//!
//! That llama.cpp makes buffers for tensors (`ggml_backend_alloc_ctx_tensors_from_buft`) in a load for weights alone, and in the making of
//! a context for what that keeps alone, the references of that build show: there `load_tensors` calls it, here the constructors of
//! `llama_kv_cache`, `llama_memory_recurrent` and the like; adapters and saved states have functions of their own. In versions of early
//! 2024 a context's inputs came by it, too, in memory of the host: so only a device's counts there.
//!
//! What is logged passes `ggml_log_internal(level, format, ...)`, or `llama_log_internal` of `libllama`, before it reaches the callback that
//! the program chose; both are exported and called by references that can be hooked in builds of October 2024 (b3889), June 2025 (b5640),
//! March 2026 (b8390) and later. So nothing stands between a log and its callback: `ggml_log_set`, `ggml_log_get` and the callback's
//! arguments are the program's and ggml's own. Before, the CUDA back end wrote to stderr, or through a function of its own that nobody
//! can hook; there, and in static builds, no line is recorded.
//!
//! The parameters of llama.cpp's functions are structures by value, whose size changes from version to version; they lie on the stack.

use gpuoom_trace::meaning::{Codes, Family, Meaning};
use gpuoom_trace::record::Layer;

use super::Library;
use super::macros::rows;

macro_rules! functions {
    ($make:ident) => {
        $make! {
            base: crate::table::GGML, library: Library::Ggml, layer: Layer::Framework, meaning: Meaning::new(Codes::Nothing, Family::Pointers);
            recorded {}
            watched {
                ggml_abort => Message, [];
                ggml_log_internal => Message, [], does(Logs);
                _Z18llama_log_internal14ggml_log_levelPKcz => Message, [], does(Logs);
            }
            told {
                ggml_backend_buffer_free(buffer: u64) => BlockFree, freed(buffer), does(TellsOfBuffer);
                ggml_backend_buffer_set_usage(buffer: u64, usage: i32) => BlockUse, used(buffer, usage), does(TellsOfBuffer);
            }
            scoped {
                ggml_backend_buft_alloc_buffer => buffer, Block, does(TellsOfBuffer);
                ggml_backend_alloc_ctx_tensors_from_buft => in_registers, Scope, does(MakesTensors);
                ggml_gallocr_reserve => in_registers, Scope, does(PlansGraph);
                ggml_gallocr_reserve_n => in_registers, Scope, does(PlansGraph);
                ggml_gallocr_alloc_graph => in_registers, Scope, does(PlansGraph);
                ggml_backend_sched_reserve => in_registers, Scope, does(PlansGraph);
                ggml_backend_sched_alloc_graph => in_registers, Scope, does(PlansGraph);
                llama_load_model_from_file => on_stack, Scope, does(LoadsModel);
                llama_model_load_from_file => on_stack, Scope, does(LoadsModel);
                llama_model_load_from_splits => on_stack, Scope, does(LoadsModel);
                llama_new_context_with_model => on_stack, Scope, does(MakesContext);
                llama_init_from_model => on_stack, Scope, does(MakesContext);
                llama_encode => on_stack, Scope, does(Computes);
                llama_decode => on_stack, Scope, does(Computes);
            }
        }
    };
}

pub(crate) use functions;

functions!(rows);
