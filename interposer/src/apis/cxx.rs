//! The C++ runtime: an exception that leaves the place of a failure.

use gpuoom_trace::record::Layer;

use super::macros::functions;
use crate::link::Library;

functions! {
    base: crate::apis::CXX, library: Library::Cxx, layer: Layer::Process;
    recorded {}
    watched {
        __cxa_throw => Exception, [];
    }
}
