//! The CUDA runtime's hooks. What they are, [`crate::table::cuda_runtime`] says.

use std::ffi::c_char;

use super::describe::{
    Extent, IpcHandle, Out, Pointer, advised, array, attribute, block, captured, device_number, external,
    external_array, external_buffer, from_pool, given, graph_attribute, graph_memory, graph_node, instantiated, limit,
    of_device, ordered, pitched, place, pool, pool_at, pool_of, resource_memory, resources, sent, trimmed, volume,
};
use super::handed::entry_points::NOT_SAID;
use super::legacy::pool_for;
use super::macros::entries;
use crate::call::Described;
use crate::link;
use crate::table::Library;
use crate::table::cuda_runtime::{Number, functions};

functions!(entries);

/// Where managed memory is to go, as the functions without a suffix take it: which form that is depends on the release.
fn device_or_place(target: u64) -> u8 {
    match link::major_version(Library::CudaRuntime) {
        13.. => place(target),
        // An int in a register: the upper half means nothing.
        _ => device_number(target as i32),
    }
}
