//! HIP's hooks. What they are, [`crate::table::hip`] says.

use std::ffi::c_char;

use super::contexts::{hip_current, of_hip_context};
use super::describe::{
    Extent, IpcHandle, Out, Pointer, advised, array, attribute, block, captured, device_number, driver_array, external,
    external_array, external_buffer, from_pool, given, graph_attribute, graph_memory, graph_node, instantiated, limit,
    mapping, of_device, ordered, physical, pitched, place, pool, pool_at, pool_of, resource_memory, resources,
    retained, sent, trimmed, volume,
};
use super::handed::entry_points::NOT_SAID;
use super::legacy::pool_for;
use super::macros::entries;
use crate::call::Described;
use crate::table::hip::{Number, functions};

functions!(entries);
