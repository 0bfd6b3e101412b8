//! ggml, the library below llama.cpp: what it says before it aborts (`ggml.h`).

use gpuoom_trace::meaning::{Codes, Family, Meaning};
use gpuoom_trace::record::Layer;

use super::Library;
use super::macros::rows;

macro_rules! functions {
    ($make:ident) => {
        $make! {
            base: crate::table::GGML, library: Library::Ggml, layer: Layer::Process, meaning: Meaning::new(Codes::Nothing, Family::Pointers);
            recorded {}
            watched {
                ggml_abort => Message, [];
            }
        }
    };
}

pub(crate) use functions;

functions!(rows);
