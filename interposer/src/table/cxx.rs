//! The C++ runtime: an exception that leaves the place of a failure.

use gpuoom_trace::meaning::{Codes, Family, Meaning};
use gpuoom_trace::record::Layer;

use super::Library;
use super::macros::rows;

macro_rules! functions {
    ($make:ident) => {
        $make! {
            base: crate::table::CXX, library: Library::Cxx, layer: Layer::Process, meaning: Meaning::new(Codes::Nothing, Family::Pointers);
            recorded {}
            watched {
                __cxa_throw => Exception, [];
            }
        }
    };
}

pub(crate) use functions;

functions!(rows);
