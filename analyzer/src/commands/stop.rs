//! A command that starts programs of its own in groups of their own: whoever asks it to stop means these, too.

use std::ffi::c_int;
use std::sync::atomic::{AtomicI32, Ordering};

use thiserror::Error;

/// Somebody asked the command to stop.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("stopped by {}", crate::words::signal(self.0))]
pub(super) struct Stopped(c_int);

impl Stopped {
    /// The exit status that a shell has for it.
    pub(super) fn status(self) -> u8 {
        u8::try_from(self.0).unwrap_or(0).saturating_add(128)
    }
}

static SIGNAL: AtomicI32 = AtomicI32::new(0);

extern "C" fn note(signal: c_int) {
    SIGNAL.store(signal, Ordering::Relaxed);
}

/// From now on a request to stop is only noted.
pub(super) fn catch_signals() {
    for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP] {
        // SAFETY: both structures are plain data, zero is a valid value of each field, and the handler only stores a number.
        unsafe {
            let mut before: libc::sigaction = std::mem::zeroed();
            libc::sigaction(signal, std::ptr::null(), &mut before);
            // What `nohup` made it ignore stays ignored.
            if before.sa_sigaction != libc::SIG_IGN {
                let mut action: libc::sigaction = std::mem::zeroed();
                action.sa_sigaction = note as extern "C" fn(c_int) as usize;
                action.sa_flags = libc::SA_RESTART;
                libc::sigaction(signal, &action, std::ptr::null_mut());
            }
        }
    }
}

/// Whether somebody has asked.
pub(super) fn asked() -> Option<Stopped> {
    match SIGNAL.load(Ordering::Relaxed) {
        0 => None,
        signal => Some(Stopped(signal)),
    }
}
