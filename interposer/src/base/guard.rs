//! What keeps the recorder from showing in the program: `errno`, panics, and turning itself off.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::OnceLock;

/// What turns the recorder off, once there is something to turn off.
static ON_PANIC: OnceLock<fn()> = OnceLock::new();

/// Says what turns the recorder off after a panic.
pub(crate) fn on_panic(turn_off: fn()) {
    let _ = ON_PANIC.set(turn_off);
}

fn turn_off() {
    if let Some(turn_off) = ON_PANIC.get() {
        turn_off();
    }
}

/// Runs something that may fail in any way, leaves `errno` as it was, and turns the recorder off if it panicked.
#[cold]
#[inline(never)]
pub(crate) fn cold<T>(default: T, work: impl FnOnce() -> T) -> T {
    let errno = errno();
    let cancellation = hold_cancellation();
    let result = catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|_| {
        turn_off();
        default
    });
    let_cancellation_go(&cancellation);
    set_errno(errno);
    result
}

/// Runs something that only computes and publishes, and turns the recorder off if it panicked. Nobody cancels the thread meanwhile:
/// what unwinds then is no panic, and the process ends where that is caught.
pub(crate) fn caught<T>(default: T, work: impl FnOnce() -> T) -> T {
    let cancellation = hold_cancellation();
    let result = catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|_| {
        turn_off();
        default
    });
    let_cancellation_go(&cancellation);
    result
}

/// How a thread may be cancelled, see `pthread_setcancelstate` and `pthread_setcanceltype`.
struct Cancellation {
    state: libc::c_int,
    kind: libc::c_int,
}

/// The first of the states, and of the kinds.
const ENABLED: libc::c_int = 0;
const DEFERRED: libc::c_int = 0;
const DISABLED: libc::c_int = 1;

// A thread that may be cancelled anywhere is unwound from inside the second one, if somebody cancelled it while that was held back.
unsafe extern "C-unwind" {
    fn pthread_setcancelstate(state: libc::c_int, before: *mut libc::c_int) -> libc::c_int;
    fn pthread_setcanceltype(kind: libc::c_int, before: *mut libc::c_int) -> libc::c_int;
}

/// Keeps `pthread_cancel` from ending this thread: the recorder waits and writes where the vendor's function would not have, and a
/// cancellation there would take the call's result from the program. The kind is held, too, because the handler of a request that
/// is on its way already looks at nothing else (glibc 2.36).
#[inline(never)]
fn hold_cancellation() -> Cancellation {
    let mut before = Cancellation { state: ENABLED, kind: DEFERRED };
    // SAFETY: a kind and a state that there are, and places for the old ones.
    unsafe {
        pthread_setcanceltype(DEFERRED, &mut before.kind);
        pthread_setcancelstate(DISABLED, &mut before.state);
    }
    before
}

/// What was so before is so again.
#[inline(never)]
fn let_cancellation_go(before: &Cancellation) {
    let mut held = 0;
    // SAFETY: what these functions have answered, and a place for what holds now.
    unsafe {
        pthread_setcancelstate(before.state, &mut held);
        pthread_setcanceltype(before.kind, &mut held);
    }
}

/// The calling thread's `errno`.
pub(crate) fn errno() -> i32 {
    // SAFETY: glibc returns a valid pointer to the thread's errno.
    unsafe { *libc::__errno_location() }
}

/// Sets the calling thread's `errno`.
pub(crate) fn set_errno(value: i32) {
    // SAFETY: as above.
    unsafe { *libc::__errno_location() = value }
}

/// Replaces the panic message of this library's own copy of the Rust runtime by one line; the program's is untouched.
pub(crate) fn quiet_panics() {
    std::panic::set_hook(Box::new(|info| {
        let place = info.location().map_or_else(String::new, |place| format!(" at {}:{}", place.file(), place.line()));
        super::log::error(format_args!("internal error{place}, recording is off from here on; the program goes on"));
    }));
}

/// Runs something with all signals of this thread held back, so that no handler of the program can call a hook in the
/// middle of it. Signals arrive right after.
pub(crate) fn without_signals<T>(work: impl FnOnce() -> T) -> T {
    // SAFETY: all zero is a valid set; both calls get valid sets and can't fail.
    unsafe {
        let mut all = std::mem::zeroed();
        let mut before = std::mem::zeroed();
        libc::sigfillset(&mut all);
        libc::pthread_sigmask(libc::SIG_SETMASK, &all, &mut before);
        let result = work();
        libc::pthread_sigmask(libc::SIG_SETMASK, &before, std::ptr::null_mut());
        result
    }
}

/// Sleeps without leaving a trace in `errno`. May return early. By system call: the C library's function is a place where
/// `pthread_cancel` ends a thread.
pub(crate) fn sleep_micros(micros: i64) {
    let errno = errno();
    let time = libc::timespec { tv_sec: micros / 1_000_000, tv_nsec: micros % 1_000_000 * 1000 };
    // SAFETY: points at a valid timespec; the remainder is not asked for.
    unsafe { libc::syscall(libc::SYS_nanosleep, &raw const time, std::ptr::null_mut::<libc::timespec>()) };
    set_errno(errno);
}
