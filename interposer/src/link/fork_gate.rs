//! Keeps forks and our use of the loader's list apart.
//!
//! glibc does not reset the lock of that list in a forked child. If another thread of ours held it at that moment, the
//! child would wait for good as soon as it walks the list itself: at its first recorded call, or, with an older C++
//! runtime, when it throws. So a fork waits until nobody of us is inside, and nobody goes inside during a fork.

use std::sync::atomic::{AtomicU32, Ordering};

use crate::base::guard;

/// Threads of ours that walk the list.
static INSIDE: AtomicU32 = AtomicU32::new(0);
/// Forks under way.
static FORKS: AtomicU32 = AtomicU32::new(0);
/// Bound of both waits, in steps of 20 microseconds: a handler may fork above its own thread's walk.
const STEPS: u32 = 5000;

/// Makes forks wait. Called before the program runs.
pub(crate) fn install() {
    // SAFETY: the handlers only use atomics and sleep.
    unsafe { libc::pthread_atfork(Some(before_fork), Some(after_fork), Some(in_child)) };
}

/// Walks the list with no fork under way.
pub(super) fn outside_forks<T>(walk: impl FnOnce() -> T) -> T {
    for _ in 0..STEPS {
        // SeqCst here and below: either the fork sees us inside, or we see the fork.
        INSIDE.fetch_add(1, Ordering::SeqCst);
        if FORKS.load(Ordering::SeqCst) == 0 {
            let result = walk();
            INSIDE.fetch_sub(1, Ordering::SeqCst);
            return result;
        }
        INSIDE.fetch_sub(1, Ordering::SeqCst);
        guard::sleep_micros(20);
    }
    walk()
}

extern "C" fn before_fork() {
    FORKS.fetch_add(1, Ordering::SeqCst);
    for _ in 0..STEPS {
        if INSIDE.load(Ordering::SeqCst) == 0 {
            return;
        }
        guard::sleep_micros(20);
    }
}

extern "C" fn after_fork() {
    FORKS.fetch_sub(1, Ordering::SeqCst);
}

extern "C" fn in_child() {
    FORKS.store(0, Ordering::SeqCst);
    INSIDE.store(0, Ordering::SeqCst);
}
