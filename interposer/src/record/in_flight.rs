//! The table of calls under way in the file, an entry per thread.

use std::sync::atomic::{AtomicU64, Ordering};

use gpuoom_trace::header::{IN_FLIGHT_ENTRIES, InFlight};

use super::recorder::Recorder;

impl Recorder {
    /// Finds a free entry in the table of calls under way, or one of a thread that has ended; null where there is none.
    pub(crate) fn place_in_flight(&self, thread_id: u32) -> *mut InFlight {
        for index in 0..IN_FLIGHT_ENTRIES {
            // SAFETY: the table has this many entries in the mapping; the state word is reached through atomics.
            let (entry, word) = unsafe {
                let entry = self.in_flight.add(index);
                (entry, AtomicU64::from_ptr(&raw mut (*entry).state))
            };
            let held = word.load(Ordering::Relaxed);
            if held as u32 != 0 && thread_lives(self.pid, held as u32) {
                continue;
            }
            let mine = u64::from(thread_id);
            if word.compare_exchange(held, mine, Ordering::AcqRel, Ordering::Relaxed).is_ok() {
                return entry;
            }
        }
        std::ptr::null_mut()
    }
}

fn thread_lives(pid: u32, thread_id: u32) -> bool {
    // SAFETY: numbers only; signal 0 tests and sends nothing.
    unsafe { libc::syscall(libc::SYS_tgkill, pid as libc::pid_t, thread_id as libc::pid_t, 0) == 0 }
}
