//! The CUDA driver: `libcuda.so.1`. Signatures: NVIDIA `cuda.h`; the suffixes are those of the exported symbols.

use gpuoom_trace::record::Layer;

use super::describe::{Out, Pointer, block, given};
use super::macros::functions;
use crate::link::Library;

functions! {
    base: crate::apis::CUDA_DRIVER, library: Library::CudaDriver, layer: Layer::Driver;
    recorded {
        cuMemAlloc_v2(out: Out, size: usize) => allocation, Alloc, Device, |done| block(done, out, size);
        cuMemFree_v2(pointer: Pointer) => release, Free, Device, |_done| given(pointer);
    }
    watched {}
}
