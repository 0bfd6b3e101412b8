//! Whether watched calls are to be looked at: one word that their stubs test.

use std::sync::atomic::{AtomicU32, Ordering};

/// Threads that have an undecided failure, and one more where calls may be refused. The stubs of watched functions test it, so
/// it is a plain word at a fixed place.
pub(crate) static WATCHING: AtomicU32 = AtomicU32::new(0);

/// The stubs of watched functions take the long way from now on, in this process and in those that it forks.
pub(crate) fn hold() {
    // Relaxed, as wherever it is changed: a stub that sees it late looks at one call less, of another thread.
    WATCHING.fetch_add(1, Ordering::Relaxed);
}
