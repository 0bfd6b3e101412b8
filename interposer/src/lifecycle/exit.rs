//! How the process ends: an end mark in the file, one or two lines on stderr if something failed.
//!
//! `exit` and a return from `main` pass through `on_exit` with their status; `_exit`, `quick_exit` and `abort` are hooked.
//! Anything else (`SIGKILL`, a crash, `abort` inside the C library) leaves no mark: the trace is complete all the same.

use std::ffi::{c_int, c_void};
use std::sync::atomic::{AtomicBool, Ordering};

use gpuoom_trace::header::end;
use gpuoom_trace::record::{Event, Kind, NO_DEVICE, Record, process};

use super::libraries;
use crate::base::{config, guard, log, thread};
use crate::record::Recorder;
use crate::record::state;
use crate::{link, readings, table, watch};

static ARMED: [AtomicBool; 2] = [const { AtomicBool::new(false) }; 2];

/// Registers the exit handler: when the recording starts, and again once the runtime is up, because handlers run in the
/// reverse order and ours must stop our own calls before the runtime's handlers take it down. The second run of the
/// handler finds its work done. A forked child inherits its parent's registrations.
pub(crate) fn arm(runtime_is_up: bool) {
    if !ARMED[usize::from(runtime_is_up)].swap(true, Ordering::Relaxed) {
        // SAFETY: the handler has the signature that on_exit asks for and lives as long as the process.
        unsafe { on_exit(exiting, std::ptr::null_mut()) };
    }
}

unsafe extern "C" {
    /// glibc: like `atexit`, with the exit status.
    fn on_exit(handler: unsafe extern "C" fn(c_int, *mut c_void), argument: *mut c_void) -> c_int;
}

unsafe extern "C" fn exiting(status: c_int, _: *mut c_void) {
    ends(table::PROCESS, process::EXITS, status);
}

/// Marks the beginning of the recording. `begun_by`: process that began to record in the memory that this one was forked with, 0 for none.
pub(crate) fn record_begin(recorder: &Recorder, begun_by: u32) {
    arm(false);
    let began = mark_of(recorder, table::PROCESS, process::BEGAN, 0);
    recorder.publish(&Record { requested: u64::from(begun_by), ..began });
}

fn mark_of(recorder: &Recorder, api: u16, what: u64, status: i32) -> Record {
    Record {
        at: recorder.clock.now(),
        thread: thread::kernel_thread_id(),
        api,
        device: NO_DEVICE,
        status,
        address: what,
        ..Record::new(Event::Process, Kind::None)
    }
}

/// The process is about to end.
fn ends(api: u16, what: u64, status: i32) {
    guard::cold((), || {
        let Some(recorder) = state::running().filter(|recorder| recorder.pid == std::process::id()) else { return };
        if recorder.live.end_kind().load(Ordering::Acquire) != end::UNKNOWN && api == table::PROCESS {
            return;
        }
        recorder.publish(&mark_of(recorder, api, what, status));
        let kind = if what == process::SIGNALS { end::SIGNALED } else { end::EXITED };
        recorder.live.end_code().store(status & if kind == end::EXITED { 0xFF } else { 0x7F }, Ordering::Relaxed);
        // Release: the code is there when the kind says so.
        recorder.live.end_kind().store(kind, Ordering::Release);
        watch::process_ends(status != 0 || kind == end::SIGNALED);
        recorder.say_what_is_missing();
        if api == table::PROCESS {
            libraries::note(recorder);
            readings::close_runtime();
        } else if kind == end::EXITED {
            recorder.close();
        }
    });
}

/// The library's own end, after the program's exit handlers.
pub(crate) fn unloading() {
    guard::cold((), || {
        readings::close_runtime();
        match state::running().filter(|recorder| recorder.pid == std::process::id()) {
            Some(recorder) => recorder.close(),
            None => say_what_was_bypassed(),
        }
    });
}

/// Nothing was recorded. If that is because all calls led past the hooks, somebody should know.
fn say_what_was_bypassed() {
    if config::get().disabled || !state::is_unused() || !link::modules::any_runtime() {
        return;
    }
    if let Some(bypass) = link::bypass::find().first() {
        log::warn(format_args!(
            "{} calls {} past the recorder (RTLD_DEEPBIND?): nothing was recorded",
            bypass.caller, bypass.function
        ));
    }
}

/// Hooks on the C library, where `RTLD_NEXT` always answers. `redhook` makes the exported function, catches a panic, and
/// calls the real one.
#[cfg(not(test))]
mod hooks {
    use super::*;

    redhook::hook! {
        unsafe fn _exit(status: c_int) -> c_int => exit_at_once {
            ends(table::UNDERSCORE_EXIT, process::EXITS, status);
            // SAFETY: the C library's own function, with the program's own argument.
            unsafe { redhook::real!(_exit)(status) }
        }
    }

    redhook::hook! {
        unsafe fn _Exit(status: c_int) -> c_int => exit_at_once_by_the_standard {
            ends(table::UNDERSCORE_EXIT, process::EXITS, status);
            // SAFETY: the C library's own function, with the program's own argument.
            unsafe { redhook::real!(_Exit)(status) }
        }
    }

    redhook::hook! {
        unsafe fn quick_exit(status: c_int) -> c_int => exit_quickly {
            ends(table::QUICK_EXIT, process::EXITS, status);
            // SAFETY: the C library's own function, with the program's own argument.
            unsafe { redhook::real!(quick_exit)(status) }
        }
    }

    redhook::hook! {
        unsafe fn abort() -> c_int => abort_process {
            ends(table::ABORT, process::SIGNALS, libc::SIGABRT);
            // SAFETY: the C library's own function, with the program's own argument.
            unsafe { redhook::real!(abort)() }
        }
    }
}
