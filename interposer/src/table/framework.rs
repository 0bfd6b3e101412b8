//! Allocators above the runtime that tell of their blocks: PyTorch's caching allocator.
//!
//! Sources: `c10/core/Allocator.h` and `c10/cuda/CUDACachingAllocator.cpp` (PyTorch 2.0 to 2.15). The totals were `int64_t` up to
//! [`since`](super::since), `size_t` since then: the same registers. `c10::Device` is two signed bytes, passed in one register. The
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
