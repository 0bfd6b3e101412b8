//! `libgpuoom.so`: loaded with `LD_PRELOAD` into a program that uses a GPU, it records every allocation into a trace file
//! that survives any end of the process.
//!
//! One way through: a call enters a stub ([`hooks`]), the real function is found ([`link`]) and called, the event becomes a
//! record in the file's ring ([`record`]); after a failure the thread is watched ([`watch`]) and readings are taken
//! ([`readings`]). No analysis happens here.

// The exported functions and the hooks on the C library are left out of the test program: it must not hook itself.
#![cfg_attr(test, allow(dead_code))]

mod base;
mod call;
mod devices;
mod faults;
mod hooks;
#[cfg(test)]
mod layers;
mod lifecycle;
mod link;
mod readings;
mod record;
mod stack;
mod table;
mod watch;

pub use hooks::marks::{gpuoom_flush, gpuoom_mark};
