//! What the end-to-end tests share: where the artefacts lie, how a client is compiled and run with and without the
//! recorder, how its trace is read through the analyzer, and how that is compared with the device's own log.
//!
//! A test reads: build a client, run it both ways, ask the trace.
//!
//! ```no_run
//! use gpuoom_tests::{Client, program};
//! let run = Client::new(program("linked.c")).run_both();
//! run.assert_trace_is_true();
//! assert_eq!(run.only_trace().report().number("/devices/0/allocations"), 3);
//! ```

mod artefacts;
mod blocks;
mod compile;
mod gauntlet;
mod hip_log;
mod kernel;
mod kernel_steps;
mod processor_time;
mod pythons;
mod real;
mod report;
mod run;
mod stacks;
mod thunk;
mod trace;
mod truth;

pub use artefacts::{analyzer, machine_root, recorder, sim_dir, zoo_source};
pub use blocks::{ToldBlocks, told_blocks};
pub use compile::{
    Library, copy_program, plain_program, plugin, program, program_at_fixed_place, program_build, program_with,
};
pub use gauntlet::{GauntletRun, Row};
pub use hip_log::{LoggedCall, logged_allocations, recorded_allocations};
pub use kernel::SimKernel;
pub use kernel_steps::{assert_kernel_agrees, assert_kernel_agrees_in_each};
pub use processor_time::ProcessorTime;
pub use pythons::pythons;
pub use real::{
    RocmRelease, ZOO_ON_ROCM, bindings_client, hip_python_on_card, llama_cuda_client, real_clients_dir, rocm_client,
    rocm_on_card, stubs_called, torch_client, vulkan_client,
};
pub use report::{Diagnosis, Report};
pub use run::{Client, Finished};
pub use stacks::{PythonLine, StackedCall};
pub use thunk::{Explained, ThunkLine, assert_hsa_explains, assert_thunk_agrees};
pub use trace::{Event, Told, Trace, assert_addresses_alternate};
pub use truth::TruthLine;

/// One mebibyte, the unit that the clients count in.
pub const MIB: u64 = 1 << 20;
