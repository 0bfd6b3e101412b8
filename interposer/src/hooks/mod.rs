//! From a row of [`crate::table`] to an exported function: what runs around a call, and how its arguments are read. Beside them
//! the hooks on the C library.

mod around;
mod blocks;
mod contexts;
mod cuda_driver;
mod cuda_runtime;
mod cxx;
mod describe;
mod framework;
mod ggml;
mod handed;
mod handles;
mod hip;
mod how;
mod hsa;
mod kernel;
mod legacy;
mod macros;
pub(crate) mod marks;
pub(crate) mod nvtx;
mod opencl;
mod pools;
mod roctx;
mod scopes;
mod unload;
