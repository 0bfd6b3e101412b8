//! From a row of [`crate::table`] to an exported function: what runs around a call, and how its arguments are read.

mod around;
mod contexts;
mod cuda_driver;
mod cuda_runtime;
mod cxx;
mod describe;
mod handles;
mod hip;
mod hsa;
mod kernel;
mod legacy;
mod macros;

pub(crate) use around::allocate;
pub(crate) use contexts::{context_on, current_context};
pub(crate) use hsa::device_of_holder;
pub(crate) use kernel::gpus;
