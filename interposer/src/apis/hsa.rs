//! HSA: the pinning of host memory behind copies. Signatures: ROCm/rocm-systems rocr-runtime `inc/hsa_ext_amd.h`.

use gpuoom_trace::record::Layer;

use super::describe::{Pointer, given};
use super::macros::functions;
use crate::link::Library;
use crate::record::Described;

functions! {
    base: crate::apis::HSA, library: Library::Hsa, layer: Layer::Hsa;
    recorded {
        hsa_amd_memory_lock(host: Pointer, size: usize, agents: Pointer, count: i32, out: Pointer) => allocation, Pin, Registered,
            |_done| Described::new(host, size as u64);
        hsa_amd_memory_lock_to_pool(host: Pointer, size: usize, agents: Pointer, count: i32, pool: u64, flags: u32, out: Pointer)
            => allocation, Pin, Registered, |_done| Described::new(host, size as u64);
        hsa_amd_memory_unlock(host: Pointer) => release, Unpin, Registered, |_done| given(host);
    }
    watched {}
}
