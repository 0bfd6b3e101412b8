//! Allocators above the runtime that tell of their blocks: PyTorch's caching allocator.
//!
//! Sources: `c10/core/Allocator.h` and `c10/cuda/CUDACachingAllocator.cpp`, and the exports of the 2.15 wheel. The totals are `size_t`
//! since PyTorch 2.0 (`mm`); in 1.10 to 1.13 they were `int64_t` (`ll`), in the same registers, and the pointer may have been one to
//! the allocator's own structure there. Before 1.10 there were no totals: not hooked. `c10::Device` is two signed bytes, passed in one
//! register: type and index. ROCm's builds say HIP (6) up to 2.10 and CUDA (1) since, by their sources; none was tried. The
//! allocator calls these with its lock held. Its `cudaMallocAsync` back end and pluggable allocators do not call them.

use gpuoom_trace::meaning::{Codes, Family, Meaning};
use gpuoom_trace::record::Layer;

use super::Library;
use super::macros::rows;

macro_rules! functions {
    ($make:ident) => {
        $make! {
            base: crate::table::FRAMEWORK, library: Library::Torch, layer: Layer::Framework, meaning: Meaning::new(Codes::Framework, Family::Pointers);
            recorded {}
            watched {}
            told {
                _ZN3c1027reportMemoryUsageToProfilerEPvlmmNS_6DeviceE(block: Pointer, change: i64, allocated: u64, reserved: u64, device: u16) => Block, tensor(block, change, [allocated, reserved], device), does(TellsOfTensor);
                _ZN3c1027reportMemoryUsageToProfilerEPvlllNS_6DeviceE(block: Pointer, change: i64, allocated: u64, reserved: u64, device: u16) => Block, tensor(block, change, [allocated, reserved], device), does(TellsOfTensor);
                _ZN3c1027reportOutOfMemoryToProfilerElmmNS_6DeviceE(requested: i64, allocated: u64, reserved: u64, device: u16) => Block, no_tensor(requested, [allocated, reserved], device), does(TellsOfTensor);
                _ZN3c1027reportOutOfMemoryToProfilerElllNS_6DeviceE(requested: i64, allocated: u64, reserved: u64, device: u16) => Block, no_tensor(requested, [allocated, reserved], device), does(TellsOfTensor);
            }
        }
    };
}

pub(crate) use functions;

functions!(rows);
