//! Notices that an object was unloaded: another may come to the same addresses, and what was read of the first one is wrong
//! for it.

use std::sync::atomic::{AtomicU64, Ordering};

use super::objects;
use crate::{guard, link};

/// Objects unloaded so far, as the loader counts.
static UNLOADS: AtomicU64 = AtomicU64::new(0);

/// How many were unloaded so far.
#[inline(always)]
pub(super) fn count() -> u64 {
    // Relaxed: whoever runs code of an object that was loaded since, has synchronised with the loader.
    UNLOADS.load(Ordering::Relaxed)
}

/// After a call that may have unloaded something. Such a call takes the loader's lock itself, so this may, too.
pub(super) fn look() {
    guard::cold((), || {
        let unloads = link::load_count().unloads;
        if UNLOADS.swap(unloads, Ordering::Relaxed) != unloads && objects::is_listed() {
            objects::list_again();
        }
    });
}

/// The hook on the C library, where `RTLD_NEXT` always answers.
#[cfg(not(test))]
mod hooks {
    use std::ffi::{c_int, c_void};

    redhook::hook! {
        unsafe fn dlclose(handle: *mut c_void) -> c_int => close_library {
            // SAFETY: the C library's own function, with the program's own argument.
            let result = unsafe { redhook::real!(dlclose)(handle) };
            super::look();
            result
        }
    }
}
