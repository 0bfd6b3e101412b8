//! The CUDA driver's hooks. What they are, [`crate::table::cuda_driver`] says.

use std::ffi::c_char;

use super::contexts::{context_of, of_context};
use super::describe::{
    IpcHandle, Out, Pointer, advised, attribute, block, captured, device_number, driver_array, external,
    external_array, external_buffer, from_pool, given, graph_attribute, graph_memory, graph_node, instantiated, limit,
    mapping, of_device, ordered, physical, pitched, place, pool, pool_at, pool_of, resource_memory, resources,
    retained, sent, trimmed,
};
use super::legacy::{pool_for, small_array, small_block, small_pitched};
use super::macros::entries;
use crate::call::Described;
use crate::table::cuda_driver::{Number, functions};

functions!(entries);
