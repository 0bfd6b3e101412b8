//! What the loader calls: before the program runs, and after it.

use super::{exit, last};
use crate::base::{config, guard, log};
use crate::hooks::nvtx;
use crate::link;
use crate::record::state;
use crate::{faults, stack};

/// Runs before the program: reads the settings while the environment is still the user's.
extern "C" fn load() {
    guard::cold((), || {
        log::remember_stderr();
        guard::quiet_panics();
        config::get();
        state::prepare();
        stack::prepare();
        nvtx::prepare();
        faults::prepare();
        link::fork_gate::install();
        link::bypass::note_first_loaded();
        last::note_signals();
        last::watch_first_thread();
    });
}

/// Runs at the end of the program.
extern "C" fn unload() {
    exit::unloading();
}

#[cfg(not(test))]
#[used]
#[unsafe(link_section = ".init_array")]
static LOAD: extern "C" fn() = load;

#[cfg(not(test))]
#[used]
#[unsafe(link_section = ".fini_array")]
static UNLOAD: extern "C" fn() = unload;
