//! Labels and ranges of the program's: `gpuoom_mark`, and what ROCTX and NVTX tell.

use std::cell::UnsafeCell;
use std::ffi::{c_char, c_int};
use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering};

use gpuoom_trace::payload::{self, MAX_TEXT_BYTES};
use gpuoom_trace::record::{Event, Kind, MAX_PAYLOAD_BYTES, NO_DEVICE, Record, mark};

use crate::base::{guard, thread};
use crate::record::state;
use crate::record::{Clock, Recorder};
use crate::table;

/// What is put on the timeline.
#[derive(Clone, Copy)]
pub(super) struct Mark<'a> {
    /// The function that was called.
    pub(super) api: u16,
    /// What it is: a constant of [`mark`].
    pub(super) what: i32,
    /// The range's number, where it has one.
    pub(super) number: u64,
    /// The label; empty where a range ends.
    pub(super) text: &'a [u8],
}

impl Mark<'_> {
    /// Publishes it, or keeps it until there is a trace. Never begins one.
    pub(super) fn put(self) {
        let state = thread::current();
        if state.is_recorders.get() {
            return;
        }
        guard::cold((), || match state::running() {
            Some(recorder) => self.publish(recorder, recorder.clock.now(), kernel_thread_id(recorder)),
            None => self.keep(),
        });
    }

    fn publish(self, recorder: &Recorder, at: u64, thread: u32) {
        let record = Record {
            at,
            thread,
            api: self.api,
            device: NO_DEVICE,
            status: self.what,
            address: self.number,
            ..Record::new(Event::Mark, Kind::None)
        };
        if matches!(self.what, mark::POP | mark::STOP) {
            recorder.publish(&record);
        } else {
            let mut out = [0; MAX_PAYLOAD_BYTES];
            recorder.publish_long(&record, payload::pack(self.text, &mut out));
        }
    }

    /// Before the trace: labels are kept, and ranges as long as they are open.
    fn keep(self) {
        match self.what {
            mark::LABEL => drop(early::keep(&self, &early::LABELS)),
            mark::PUSH | mark::START => early::open(&self),
            _ => early::close(&self),
        }
        // Another thread may have begun the recording meanwhile, and have looked here before this was there.
        if let Some(recorder) = state::running() {
            publish_early(recorder);
        }
    }
}

/// The thread's number, which the thread's block has if it has recorded something in this process.
fn kernel_thread_id(recorder: &Recorder) -> u32 {
    let state = thread::current();
    if state.pid.get() == recorder.pid { state.thread.get() } else { thread::kernel_thread_id() }
}

/// A text of the program's, cut to what a record holds; empty for null.
///
/// # Safety
/// `text` is null or terminated.
pub(super) unsafe fn label<'a>(text: *const c_char) -> &'a [u8] {
    if text.is_null() {
        return &[];
    }
    // SAFETY: promised by the caller; nothing behind the terminator is read.
    unsafe { std::slice::from_raw_parts(text.cast(), libc::strnlen(text, MAX_TEXT_BYTES)) }
}

/// Puts a label on the timeline. Safe to call whether or not anything is recorded.
///
/// # Safety
/// `label` is null or a terminated string.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn gpuoom_mark(label: *const c_char) {
    if !label.is_null() {
        // SAFETY: promised by the caller.
        let text = unsafe { self::label(label) };
        Mark { api: table::MARK, what: mark::LABEL, number: 0, text }.put();
    }
}

/// Writes what came before the trace was made, in its order.
pub(crate) fn publish_early(recorder: &Recorder) {
    early::take_all(|at, thread, mark| mark.publish(recorder, at, thread));
}

/// What came before the first GPU call: a process without one must leave no file.
mod early {
    use super::*;

    /// Labels, and open ranges, that are kept until the first GPU call makes a trace, and their longest text.
    const KEPT: usize = 32;
    const TEXT_BYTES: usize = 96;

    const FREE: u8 = 0;
    const TAKEN: u8 = 1;
    const WHOLE: u8 = 2;

    pub(super) struct Entry {
        state: AtomicU8,
        api: AtomicU32,
        what: AtomicU32,
        number: AtomicU64,
        pid: AtomicU32,
        thread: AtomicU32,
        at: AtomicU64,
        /// Which one of all.
        order: AtomicU64,
        /// Length and text.
        text: UnsafeCell<(usize, [u8; TEXT_BYTES])>,
    }

    // SAFETY: the text is written and read only by the one thread that has set the state to TAKEN.
    unsafe impl Sync for Entry {}

    impl Entry {
        const fn new() -> Entry {
            Entry {
                state: AtomicU8::new(FREE),
                api: AtomicU32::new(0),
                what: AtomicU32::new(0),
                number: AtomicU64::new(0),
                pid: AtomicU32::new(0),
                thread: AtomicU32::new(0),
                at: AtomicU64::new(0),
                order: AtomicU64::new(0),
                text: UnsafeCell::new((0, [0; TEXT_BYTES])),
            }
        }

        fn take(&self, from: u8) -> bool {
            self.state.compare_exchange(from, TAKEN, Ordering::AcqRel, Ordering::Relaxed).is_ok()
        }

        fn is_whole(&self) -> bool {
            self.state.load(Ordering::Acquire) == WHOLE
        }
    }

    pub(super) static LABELS: [Entry; KEPT] = [const { Entry::new() }; KEPT];
    static RANGES: [Entry; KEPT] = [const { Entry::new() }; KEPT];
    static ORDER: AtomicU64 = AtomicU64::new(0);
    /// A range found no room, so nobody knows which of those that are there the next end belongs to: none is told of.
    static RANGES_MISSING: AtomicU8 = AtomicU8::new(0);

    /// Whether there was room.
    pub(super) fn keep(mark: &Mark<'_>, among: &[Entry; KEPT]) -> bool {
        let Some(entry) = among.iter().find(|entry| entry.take(FREE)) else { return false };
        let length = mark.text.len().min(TEXT_BYTES);
        // SAFETY: the entry is this thread's as long as it is taken.
        let text = unsafe { &mut *entry.text.get() };
        text.0 = length;
        text.1[..length].copy_from_slice(&mark.text[..length]);
        entry.api.store(u32::from(mark.api), Ordering::Relaxed);
        entry.what.store(mark.what as u32, Ordering::Relaxed);
        entry.number.store(mark.number, Ordering::Relaxed);
        entry.pid.store(std::process::id(), Ordering::Relaxed);
        entry.thread.store(thread::kernel_thread_id(), Ordering::Relaxed);
        entry.at.store(Clock::choose().now(), Ordering::Relaxed);
        entry.order.store(ORDER.fetch_add(1, Ordering::Relaxed), Ordering::Relaxed);
        // Release: whoever finds it whole finds all of it.
        entry.state.store(WHOLE, Ordering::Release);
        true
    }

    pub(super) fn open(mark: &Mark<'_>) {
        if !keep(mark, &RANGES) {
            RANGES_MISSING.store(1, Ordering::Relaxed);
        }
    }

    /// Forgets the range that ends. If it is not here, it was published meanwhile, and so must be its end.
    pub(super) fn close(end: &Mark<'_>) {
        let thread = thread::kernel_thread_id();
        let begins = |entry: &Entry| match end.what {
            mark::POP => {
                entry.what.load(Ordering::Relaxed) == mark::PUSH as u32
                    && entry.thread.load(Ordering::Relaxed) == thread
            }
            _ => {
                entry.what.load(Ordering::Relaxed) == mark::START as u32
                    && entry.number.load(Ordering::Relaxed) == end.number
            }
        };
        let open = RANGES.iter().filter(|entry| entry.is_whole() && begins(entry));
        let last = open.max_by_key(|entry| entry.order.load(Ordering::Relaxed));
        match last.filter(|entry| entry.take(WHOLE)) {
            Some(entry) => entry.state.store(FREE, Ordering::Release),
            None => {
                if let Some(recorder) = state::running() {
                    end.publish(recorder, recorder.clock.now(), thread);
                }
            }
        }
    }

    /// Hands over what is there and forgets it. Of a forked child's parent, only labels count.
    pub(super) fn take_all(mut publish: impl FnMut(u64, u32, Mark<'_>)) {
        let pid = std::process::id();
        let all = || LABELS.iter().chain(&RANGES).filter(|entry| entry.is_whole());
        while let Some(entry) = all().min_by_key(|entry| entry.order.load(Ordering::Relaxed)) {
            if !entry.take(WHOLE) {
                continue;
            }
            let what = entry.what.load(Ordering::Relaxed) as i32;
            let is_own = entry.pid.load(Ordering::Relaxed) == pid && RANGES_MISSING.load(Ordering::Relaxed) == 0;
            if what == mark::LABEL || is_own {
                // SAFETY: taken by this thread, and whole before.
                let (length, text) = unsafe { &*entry.text.get() };
                let mark = Mark {
                    api: entry.api.load(Ordering::Relaxed) as u16,
                    what,
                    number: entry.number.load(Ordering::Relaxed),
                    text: &text[..*length],
                };
                publish(entry.at.load(Ordering::Relaxed), entry.thread.load(Ordering::Relaxed), mark);
            }
            entry.state.store(FREE, Ordering::Release);
        }
    }

    #[cfg(test)]
    mod tests {
        use super::*;

        fn mark(what: i32, number: u64, text: &str) -> Mark<'_> {
            Mark { api: 7, what, number, text: text.as_bytes() }
        }

        fn taken() -> Vec<(i32, u64, String)> {
            let mut found = Vec::new();
            take_all(|_, _, mark| {
                found.push((mark.what, mark.number, String::from_utf8_lossy(mark.text).into_owned()));
            });
            found
        }

        // One test: the table is the process's.
        #[test]
        fn labels_stay_and_ranges_as_long_as_they_are_open() {
            open(&mark(mark::PUSH, 0, "outer"));
            open(&mark(mark::START, 5, "long"));
            assert!(keep(&mark(mark::LABEL, 0, "label"), &LABELS));
            for _ in 0..1000 {
                open(&mark(mark::PUSH, 0, "inner"));
                open(&mark(mark::START, 6, "short"));
                close(&mark(mark::POP, 0, ""));
                close(&mark(mark::STOP, 6, ""));
            }
            open(&mark(mark::PUSH, 0, &"x".repeat(500)));
            let expected = [(1, 0, "outer"), (3, 5, "long"), (0, 0, "label"), (1, 0, &"x".repeat(TEXT_BYTES))];
            assert_eq!(taken(), expected.map(|(what, number, text)| (what, number, text.to_owned())));
            assert_eq!(taken(), []);
            close(&mark(mark::POP, 0, ""));
            for _ in 0..=KEPT {
                open(&mark(mark::PUSH, 0, "too deep"));
            }
            keep(&mark(mark::LABEL, 0, "label"), &LABELS);
            assert_eq!(taken(), [(0, 0, "label".to_owned())]);
        }
    }
}

/// Returns 0 once all events recorded so far are in the file's chunks, -1 when that could not be done (they are in its ring
/// all the same).
#[cfg_attr(not(test), unsafe(no_mangle))]
pub extern "C" fn gpuoom_flush() -> c_int {
    guard::cold(-1, || match state::running() {
        Some(recorder) => c_int::from(!recorder.drain(64, 1_000_000)).wrapping_neg(),
        None => 0,
    })
}
