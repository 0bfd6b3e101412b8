//! Whether watched calls are to be looked at: words that their stubs test. Plain words at fixed places.
//!
//! Relaxed throughout: a stub that sees a word late looks at one call less, or at one more, of another thread. Who must see it is
//! the thread that changed it, or one that has synchronised with it since.

use std::sync::atomic::{AtomicU32, Ordering};

/// Threads that have an undecided failure, and one more where calls may be refused.
pub(crate) static WATCHING: AtomicU32 = AtomicU32::new(0);

/// The same for calls that wait for the device: one more once something was freed that is given back later.
pub(crate) static WAITS: AtomicU32 = AtomicU32::new(0);

/// The stubs of watched functions take the long way from now on, in this process and in those that it forks.
pub(crate) fn hold() {
    begin();
}

/// One thread more has an undecided failure.
pub(crate) fn begin() {
    WATCHING.fetch_add(1, Ordering::Relaxed);
    WAITS.fetch_add(1, Ordering::Relaxed);
}

/// One thread less.
pub(crate) fn end() {
    for word in [&WATCHING, &WAITS] {
        let _ = word.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |threads| threads.checked_sub(1));
    }
}

/// Waits are looked at from now on.
pub(crate) fn look_at_waits() {
    WAITS.fetch_add(1, Ordering::Relaxed);
}

/// A forked child begins anew, with `held` that stays.
pub(crate) fn reset(held: u32) {
    WATCHING.store(held, Ordering::Relaxed);
    WAITS.store(held, Ordering::Relaxed);
}
