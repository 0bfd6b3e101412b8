//! Reads the frames of threads that have released the interpreter, on a thread of the recorder.
//!
//! The program's thread waits meanwhile, so its frames stand still, but never for long: it may hold a lock that somebody
//! who holds the interpreter waits for. It then goes on without its frames. The recorder's thread reads only what is still
//! being waited for once it has the interpreter.
//!
//! All waiting together is at most a hundredth of the time that the program runs, after a credit for the start.

use std::cell::UnsafeCell;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicPtr, AtomicU32, Ordering};
use std::time::{Duration, Instant};

use once_cell::sync::OnceCell;

use super::api::{self, Api, Object};
use super::end;
use super::frames::{self, Frames};
use crate::base::guard;
use crate::record::{Recorder, threads};

/// How long an allocation waits, and how long a failed one does.
const PATIENCE: [Duration; 2] = [Duration::from_millis(50), Duration::from_secs(1)];
/// Waiting that is free of charge.
const CREDIT: Duration = Duration::from_millis(500);
/// The share of the run time that may be spent waiting is one in this.
const SHARE: i64 = 100;
/// So many times in a row without an answer, and nobody is asked again.
const MAX_SILENCES: u32 = 8;

/// Values of [`STATE`].
mod state {
    /// Nobody asks.
    pub(super) const FREE: u32 = 0;
    /// Somebody writes a question.
    pub(super) const TAKEN: u32 = 1;
    /// A question is there.
    pub(super) const ASKED: u32 = 2;
    /// The frames are being read.
    pub(super) const READING: u32 = 3;
    /// The answer is there.
    pub(super) const ANSWERED: u32 = 4;
    /// Nobody waits any more for what is being read.
    pub(super) const LEFT: u32 = 5;
}

static STATE: AtomicU32 = AtomicU32::new(state::FREE);
static THREAD_STATE: AtomicPtr<std::ffi::c_void> = AtomicPtr::new(std::ptr::null_mut());
static RECORDER: AtomicPtr<Recorder> = AtomicPtr::new(std::ptr::null_mut());
static THREAD: AtomicU32 = AtomicU32::new(0);

struct Answer(UnsafeCell<Frames>);

// SAFETY: belongs to the reader while `STATE` is READING or LEFT, and to the asker from ANSWERED until it is FREE.
unsafe impl Sync for Answer {}

static ANSWER: Answer = Answer(UnsafeCell::new(Frames::UNKNOWN));

static HAS_THREAD: AtomicBool = AtomicBool::new(false);
static SILENCES: AtomicU32 = AtomicU32::new(0);
/// Nanoseconds that were waited so far.
static WAITED: AtomicI64 = AtomicI64::new(0);
static BEGAN: OnceCell<Instant> = OnceCell::new();

/// A new file begins, maybe in a forked child, where the parent's thread is not.
pub(super) fn forget_parent() {
    STATE.store(state::FREE, Ordering::Release);
    HAS_THREAD.store(false, Ordering::Release);
    SILENCES.store(0, Ordering::Relaxed);
    BEGAN.get_or_init(Instant::now);
}

/// Asks for the frames of the calling thread, and waits for them.
#[cold]
pub(super) fn ask(api: &Api, own: Object, recorder: &Recorder, thread: u32, urgent: bool, out: &mut Frames) {
    // SAFETY: the state is this thread's own, and lives; both functions read one word.
    let is_main = unsafe { (api.interpreter)(own) == (api.main_interpreter)() };
    if is_main && may_wait(urgent) {
        guard::cold((), || guard::without_signals(|| wait_for(own, recorder, thread, urgent, out)));
    }
}

fn may_wait(urgent: bool) -> bool {
    let ran = BEGAN.get_or_init(Instant::now).elapsed() / SHARE as u32 + CREDIT;
    let is_cheap = i128::from(WAITED.load(Ordering::Relaxed)) < ran.as_nanos() as i128;
    SILENCES.load(Ordering::Relaxed) < MAX_SILENCES && (urgent || is_cheap)
}

fn wait_for(own: Object, recorder: &Recorder, thread: u32, urgent: bool, out: &mut Frames) {
    if !HAS_THREAD.swap(true, Ordering::AcqRel) && !threads::start_plain(c"gpuoom-python", serve) {
        SILENCES.store(MAX_SILENCES, Ordering::Relaxed);
        return;
    }
    let began = Instant::now();
    let deadline = began + PATIENCE[usize::from(urgent)];
    while STATE.compare_exchange(state::FREE, state::TAKEN, Ordering::Acquire, Ordering::Relaxed).is_err() {
        // Another thread asks just now.
        if Instant::now() >= deadline {
            return;
        }
        guard::sleep_micros(20);
    }
    THREAD_STATE.store(own, Ordering::Relaxed);
    RECORDER.store(std::ptr::from_ref(recorder).cast_mut(), Ordering::Relaxed);
    THREAD.store(thread, Ordering::Relaxed);
    STATE.store(state::ASKED, Ordering::Release);
    wake();
    let answered = is_answered(deadline);
    if answered {
        // SAFETY: see `Answer`.
        *out = unsafe { *ANSWER.0.get() };
        STATE.store(state::FREE, Ordering::Release);
    }
    SILENCES.store(if answered { 0 } else { SILENCES.load(Ordering::Relaxed) + 1 }, Ordering::Relaxed);
    charge(began);
}

fn charge(began: Instant) {
    WAITED.fetch_add(i64::try_from(began.elapsed().as_nanos()).unwrap_or(i64::MAX), Ordering::Relaxed);
}

/// What takes as long as to ask is done out of the same share of the run time.
pub(super) fn charged<T>(work: impl FnOnce() -> Option<T>) -> Option<T> {
    if !may_wait(false) {
        return None;
    }
    let began = Instant::now();
    let done = work();
    charge(began);
    done
}

/// Waits for the answer; takes the question back at the deadline.
fn is_answered(deadline: Instant) -> bool {
    loop {
        let now = STATE.load(Ordering::Acquire);
        let left = deadline.saturating_duration_since(Instant::now());
        match now {
            state::ANSWERED => return true,
            _ if !left.is_zero() => wait(now, Some(left)),
            _ => {
                let after = if now == state::READING { state::LEFT } else { state::FREE };
                if STATE.compare_exchange(now, after, Ordering::AcqRel, Ordering::Relaxed).is_ok() {
                    return false;
                }
            }
        }
    }
}

/// The thread. Python ends threads that wait for the interpreter while it is taken down (up to 3.13 by `pthread_exit`), so
/// nothing on this stack has a destructor.
extern "C-unwind" fn serve() {
    loop {
        let now = STATE.load(Ordering::Acquire);
        match now {
            state::ASKED => answer(),
            _ => wait(now, None),
        }
    }
}

fn answer() {
    let Some(api) = api::get().filter(|api| api.is_up()) else {
        // Python is going: whoever asked takes the question back.
        return wait(state::ASKED, Some(PATIENCE[0]));
    };
    // SAFETY: this thread is none of Python's, so it gets a state of its own for the time being; it is given back below.
    let held = unsafe { (api.ensure)() };
    // Whoever asked may have gone on meanwhile.
    if STATE.compare_exchange(state::ASKED, state::READING, Ordering::AcqRel, Ordering::Relaxed).is_ok() {
        // SAFETY: the interpreter is held, and the asker waits (or has left us its frames, which stand still as long as
        // nobody else holds the interpreter); a recorder is never freed; see `Answer`.
        unsafe {
            let recorder = &*RECORDER.load(Ordering::Relaxed);
            let thread = THREAD.load(Ordering::Relaxed);
            frames::read(api, THREAD_STATE.load(Ordering::Relaxed), recorder, thread, &mut *ANSWER.0.get());
        }
        let order = (Ordering::AcqRel, Ordering::Relaxed);
        if STATE.compare_exchange(state::READING, state::ANSWERED, order.0, order.1).is_err() {
            // Nobody waits any more.
            STATE.store(state::FREE, Ordering::Release);
        }
        wake();
        // SAFETY: the interpreter is held, by a state without an error.
        unsafe { end::watch(api) };
    }
    // SAFETY: as above.
    unsafe { (api.release)(held) };
}

/// Wakes whoever waits for another state.
fn wake() {
    // SAFETY: a word of our own; wakes all that wait there.
    unsafe { libc::syscall(libc::SYS_futex, STATE.as_ptr(), libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG, i32::MAX) };
}

/// Waits until the state is another one, or the time is over.
fn wait(now: u32, most: Option<Duration>) {
    let errno = guard::errno();
    let most = most.map(|most| libc::timespec { tv_sec: most.as_secs() as i64, tv_nsec: most.subsec_nanos().into() });
    let time = most.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
    // SAFETY: a word of our own and a time that lives during the call.
    unsafe { libc::syscall(libc::SYS_futex, STATE.as_ptr(), libc::FUTEX_WAIT | libc::FUTEX_PRIVATE_FLAG, now, time) };
    guard::set_errno(errno);
}
