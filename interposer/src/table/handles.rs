//! Handles of the vendors' mathematical libraries: their creation takes memory whose size nobody tells, and is often the
//! call that finds none left. Only the status is known. Sources: `hipblas.h`, `rocblas-functions.h`, `cublas_api.h`,
//! `cudnn.h` / `cudnn_graph.h`, `miopen.h`.

use gpuoom_trace::meaning::{Codes, Family, Meaning, says};
use gpuoom_trace::record::Layer;

use super::Library;
use super::macros::rows;

macro_rules! functions {
    ($make:ident) => {
        $make! {
            base: crate::table::HANDLES, library: Library::Handles, layer: Layer::Runtime, meaning: Meaning::new(Codes::Unknown, Family::Pointers).says(says::LIBRARY_HANDLE);
            recorded {
                hipblasCreate(out: Out) => creation, Module, None, |done| block(done, out, 0), codes(HipBlas);
                rocblas_create_handle(out: Out) => creation, Module, None, |done| block(done, out, 0), codes(RocBlas);
                cublasCreate_v2(out: Out) => creation, Module, None, |done| block(done, out, 0), codes(CuBlas);
                cudnnCreate(out: Out) => creation, Module, None, |done| block(done, out, 0), codes(CuDnn);
                miopenCreate(out: Out) => creation, Module, None, |done| block(done, out, 0), codes(MiOpen);
            }
            watched {}
        }
    };
}

pub(crate) use functions;

functions!(rows);
