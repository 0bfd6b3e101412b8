//! Whether the recorder is on, and where it is: one page that a forked child finds empty.

use std::sync::atomic::{AtomicPtr, AtomicU32, Ordering};

use super::recorder::Recorder;
use crate::base::guard;

/// Values of `Page::phase`.
mod phase {
    pub(super) const UNUSED: u32 = 0;
    pub(super) const STARTING: u32 = 1;
    pub(super) const ON: u32 = 2;
    pub(super) const OFF: u32 = 3;
}

/// Lives in a page of its own with `MADV_WIPEONFORK`: whatever way a child was made (`fork`, a raw `clone`), it finds
/// zeros here, forgets its parent's file, and makes its own at its first GPU call.
#[repr(C)]
struct Page {
    recorder: AtomicPtr<Recorder>,
    phase: AtomicU32,
}

static PAGE: AtomicPtr<Page> = AtomicPtr::new(std::ptr::null_mut());

/// The recorder of this process, started at the first call; `None` when it is off or the call must not be recorded.
#[inline(always)]
pub(crate) fn recorder() -> Option<&'static Recorder> {
    // Acquire on both: whoever sees a pointer sees what it points at.
    let page = PAGE.load(Ordering::Acquire);
    if !page.is_null() {
        // SAFETY: a page is mapped once and never unmapped; a recorder is never freed.
        if let Some(recorder) = unsafe { (*page).recorder.load(Ordering::Acquire).as_ref() } {
            return Some(recorder);
        }
    }
    start()
}

/// The recorder if it is running; does not start it.
#[inline]
pub(crate) fn running() -> Option<&'static Recorder> {
    let page = PAGE.load(Ordering::Acquire);
    if page.is_null() {
        return None;
    }
    // SAFETY: as in `recorder`.
    unsafe { (*page).recorder.load(Ordering::Acquire).as_ref() }
}

/// Whether nothing was ever recorded in this process, and nothing went wrong either.
pub(crate) fn is_unused() -> bool {
    let page = PAGE.load(Ordering::Acquire);
    // SAFETY: as in `recorder`.
    page.is_null() || unsafe { (*page).phase.load(Ordering::Acquire) } == phase::UNUSED
}

/// Turns the recorder off for good in this process. Records already in the file stay.
pub(crate) fn turn_off() {
    let page = PAGE.load(Ordering::Acquire);
    if !page.is_null() {
        // SAFETY: as in `recorder`. The recorder itself is not freed: other threads may be inside it.
        let page = unsafe { &*page };
        page.phase.store(phase::OFF, Ordering::Release);
        page.recorder.store(std::ptr::null_mut(), Ordering::Release);
    }
}

/// Maps the page. Called before the program runs, and again by `start` if a constructor made a GPU call before that.
pub(crate) fn prepare() {
    guard::on_panic(turn_off);
    if !PAGE.load(Ordering::Acquire).is_null() {
        return;
    }
    // SAFETY: a fresh anonymous mapping; checked below.
    let page = unsafe {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        libc::mmap(std::ptr::null_mut(), 4096, libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0)
    };
    if page == libc::MAP_FAILED {
        return;
    }
    // SAFETY: our own mapping of exactly this length.
    let wiped = unsafe { libc::madvise(page, 4096, libc::MADV_WIPEONFORK) } == 0;
    if !wiped {
        // A kernel before 4.14: the usual forks at least pass through the C library.
        // SAFETY: the handler only stores to atomics.
        unsafe { libc::pthread_atfork(None, None, Some(forget_parent)) };
    }
    let published = PAGE.compare_exchange(std::ptr::null_mut(), page.cast(), Ordering::AcqRel, Ordering::Acquire);
    if published.is_err() {
        // SAFETY: another thread was faster; nobody knows this mapping.
        unsafe { libc::munmap(page, 4096) };
    }
}

extern "C" fn forget_parent() {
    let page = PAGE.load(Ordering::Acquire);
    if !page.is_null() {
        // SAFETY: as in `recorder`.
        let page = unsafe { &*page };
        page.recorder.store(std::ptr::null_mut(), Ordering::Release);
        page.phase.store(phase::UNUSED, Ordering::Release);
    }
}

#[cold]
#[inline(never)]
fn start() -> Option<&'static Recorder> {
    prepare();
    let page = PAGE.load(Ordering::Acquire);
    if page.is_null() {
        return None;
    }
    // SAFETY: as in `recorder`.
    let page = unsafe { &*page };
    if page.phase.load(Ordering::Acquire) == phase::OFF {
        return None;
    }
    // Signals are held back from before the claim on: a handler between claim and start would wait for its own thread.
    let begun = guard::without_signals(|| {
        let order = (Ordering::AcqRel, Ordering::Acquire);
        let claimed = page.phase.compare_exchange(phase::UNUSED, phase::STARTING, order.0, order.1);
        claimed.map(|_| guard::cold(None, || begin(page)))
    });
    match begun {
        Ok(recorder) => recorder,
        Err(phase::STARTING) => wait_for_start(page),
        // Somebody was faster: another thread, or a handler that interrupted this one on its way here.
        // SAFETY: as in `recorder`; null when it is off.
        Err(_) => unsafe { page.recorder.load(Ordering::Acquire).as_ref() },
    }
}

unsafe extern "C" {
    /// Makes the recorder, hands it to `show`, and does what is left to do once other threads see it; false when there is to be
    /// none. `lifecycle::start` has it: it stands above, and the linker binds it, because the first call may come before anything
    /// of ours has run.
    fn gpuoom_begin(show: extern "C" fn(*const ())) -> bool;
}

fn begin(page: &Page) -> Option<&'static Recorder> {
    // SAFETY: a function of this crate with this signature.
    if !unsafe { gpuoom_begin(show) } {
        page.phase.store(phase::OFF, Ordering::Release);
    }
    // SAFETY: as in `recorder`; null when it is off.
    unsafe { page.recorder.load(Ordering::Acquire).as_ref() }
}

/// Other threads may use this recorder from now on.
extern "C" fn show(recorder: *const ()) {
    let page = PAGE.load(Ordering::Acquire);
    if !page.is_null() {
        // SAFETY: as in `recorder`.
        let page = unsafe { &*page };
        page.recorder.store(recorder.cast_mut().cast(), Ordering::Release);
        page.phase.store(phase::ON, Ordering::Release);
    }
}

/// How long the first calls of other threads wait for the file, in steps of 100 microseconds. Making it takes some
/// milliseconds, on a busy disk seconds; what does not wait goes unrecorded.
const START_PATIENCE: u32 = 100_000;

/// Another thread is making the file: its first calls must not be lost, so wait, but never without a bound. (It can't be
/// this very thread, interrupted by a handler: signals are held back while the file is made.)
fn wait_for_start(page: &Page) -> Option<&'static Recorder> {
    for _ in 0..START_PATIENCE {
        if page.phase.load(Ordering::Acquire) != phase::STARTING {
            // SAFETY: as in `recorder`.
            return unsafe { page.recorder.load(Ordering::Acquire).as_ref() };
        }
        guard::sleep_micros(100);
    }
    None
}
