//! Handles of the vendors' mathematical libraries: their creation takes memory whose size nobody tells, and is often the
//! call that finds none left. Only the status is known. Sources: `hipblas.h`, `rocblas-functions.h`, `cublas_api.h`,
//! `cudnn.h` / `cudnn_graph.h`, `miopen.h`.

use gpuoom_trace::record::Layer;

use super::describe::{Out, block};
use super::macros::functions;
use crate::link::Library;

functions! {
    base: crate::apis::HANDLES, library: Library::Handles, layer: Layer::Runtime;
    recorded {
        hipblasCreate(out: Out) => creation, Module, None, |done| block(done, out, 0);
        rocblas_create_handle(out: Out) => creation, Module, None, |done| block(done, out, 0);
        cublasCreate_v2(out: Out) => creation, Module, None, |done| block(done, out, 0);
        cudnnCreate(out: Out) => creation, Module, None, |done| block(done, out, 0);
        miopenCreate(out: Out) => creation, Module, None, |done| block(done, out, 0);
    }
    watched {}
}
