//! `libgpuoom.so`: loaded with `LD_PRELOAD` into a program that uses a GPU, it records every allocation into a trace file
//! that survives any end of the process.
//!
//! One way through: a call enters a stub ([`hooks`]), the real function is found ([`link`]) and called, the event becomes a
//! record in the file's ring ([`record`]); after a failure the thread is watched ([`watch`]) and readings are taken
//! ([`readings`]). No analysis happens here.

// The exported functions and the hooks on the C library are left out of the test program: it must not hook itself.
#![cfg_attr(test, allow(dead_code))]

mod config;
mod faults;
mod guard;
mod hooks;
mod link;
mod log;
mod process;
mod program_memory;
mod readings;
mod record;
mod stack;
mod state;
mod table;
mod thread;
mod watch;

pub use process::marks::{gpuoom_flush, gpuoom_mark};

/// Runs before the program: reads the settings while the environment is still the user's.
extern "C" fn load() {
    guard::cold((), || {
        log::remember_stderr();
        guard::quiet_panics();
        config::get();
        state::prepare();
        stack::prepare();
        faults::prepare();
        link::fork_gate::install();
        link::bypass::note_first_loaded();
    });
}

/// Runs at the end of the program.
extern "C" fn unload() {
    process::exit::unloading();
}

#[cfg(not(test))]
#[used]
#[unsafe(link_section = ".init_array")]
static LOAD: extern "C" fn() = load;

#[cfg(not(test))]
#[used]
#[unsafe(link_section = ".fini_array")]
static UNLOAD: extern "C" fn() = unload;
