//! Room for walking a stack, so that a hook needs little of the program's: a signal handler may have 16 KiB.

use std::cell::UnsafeCell;
use std::sync::atomic::{AtomicBool, Ordering};

use gpuoom_trace::record::MAX_PAYLOAD_BYTES;

use super::cfi;
use super::walk::Walk;

/// Threads that walk at the same time. Whoever finds no room keeps the return address alone.
const ROOMS: usize = 64;

/// What a walk needs.
pub(super) struct Work {
    pub(super) walk: Walk,
    pub(super) cfi: cfi::Room,
    pub(super) payload: [u8; MAX_PAYLOAD_BYTES],
}

struct Room {
    is_taken: AtomicBool,
    work: UnsafeCell<Work>,
}

// SAFETY: the content belongs to whoever has set `is_taken`.
unsafe impl Sync for Room {}

static TABLE: [Room; ROOMS] = [const {
    Room {
        is_taken: AtomicBool::new(false),
        work: UnsafeCell::new(Work { walk: Walk::EMPTY, cfi: cfi::Room::EMPTY, payload: [0; MAX_PAYLOAD_BYTES] }),
    }
}; ROOMS];

/// Lends a room; `None` where all are taken. One that is left by `longjmp` stays taken.
pub(super) fn with<T>(work: impl FnOnce(&mut Work) -> T) -> Option<T> {
    let take = |room: &&Room| !room.is_taken.swap(true, Ordering::Acquire);
    let room = TABLE.iter().find(take)?;
    // SAFETY: taken just now, so nobody else has it, a handler that interrupts us included.
    let result = work(unsafe { &mut *room.work.get() });
    room.is_taken.store(false, Ordering::Release);
    Some(result)
}

/// In a forked child the parent's other threads are not there any more.
pub(super) fn free_all() {
    TABLE.iter().for_each(|room| room.is_taken.store(false, Ordering::Release));
}
