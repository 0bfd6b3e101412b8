//! The program's threads have ended, each by itself, and only the recorder's are left: the process ends as it would have without them.
//!
//! A process outlives its first thread where that leaves by `pthread_exit`. The C library calls `exit(0)` when the last thread ends, and
//! that would be one of the recorder's, which never ends. So once the first thread is gone the recorder's thread looks whether
//! anybody else is there. If not, both end, and a thread like the program's own, with its descriptors, its signals and a stack of the
//! usual size, is the last one: on it the program's exit handlers run.

use std::ffi::{c_char, c_int, c_void};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use super::service::IDLE;
use crate::base::{guard, thread};
use crate::record::{Request, state, threads};

/// How often is looked once the first thread is gone.
const PERIOD: Duration = Duration::from_millis(50);
/// So long the thread that asks the runtime may take to come out of the vendor's code.
const PATIENCE: Duration = Duration::from_secs(5);
/// So often, [`LOOK_MICROS`] apart, the last thread looks whether the recorder's are gone.
const LOOKS: u32 = 1000;
const LOOK_MICROS: i64 = 1000;

/// What the first thread alone has a value of, so that its destructor tells when that leaves.
static KEY: OnceLock<Option<libc::pthread_key_t>> = OnceLock::new();
/// The first thread has left by `pthread_exit`. Relaxed everywhere: it says by itself all that it says.
static HAS_LEFT: AtomicBool = AtomicBool::new(false);
/// The signals that it held back, as the kernel has them.
static HELD_BACK: AtomicU64 = AtomicU64::new(0);
/// Nobody but the recorder is left. Its release pairs with the acquire of the thread that is then asked nothing any more.
static IS_OVER: AtomicBool = AtomicBool::new(false);
/// That thread sees to the end. Relaxed: nothing else is handed over.
static ENDS: AtomicBool = AtomicBool::new(false);

/// Has the end of the first thread told, if this is the first one. In a forked child that may be another than its parent's.
pub(super) fn watch_first_thread() {
    if thread::kernel_thread_id() != std::process::id() {
        return;
    }
    let make = || {
        let mut key = 0;
        // SAFETY: a place for the key; the destructor has the signature that is asked for and lives as long as the process.
        (unsafe { libc::pthread_key_create(&mut key, Some(first_thread_leaves)) } == 0).then_some(key)
    };
    if let Some(key) = KEY.get_or_init(make) {
        // SAFETY: a key that was made; the value is only compared with null.
        unsafe { libc::pthread_setspecific(*key, (&raw const KEY).cast()) };
    }
}

/// Notes what the program's threads hold back before any of them has chosen.
pub(super) fn note_signals() {
    HELD_BACK.store(held_back(), Ordering::Relaxed);
}

/// A forked child begins with a first thread of its own.
pub(super) fn forget_parent() {
    [&HAS_LEFT, &IS_OVER, &ENDS].into_iter().for_each(|flag| flag.store(false, Ordering::Relaxed));
    threads::forget_parent();
}

/// `exit` does not call it: the first thread ends, and the process does not.
unsafe extern "C" fn first_thread_leaves(_: *mut c_void) {
    guard::cold((), || {
        note_signals();
        HAS_LEFT.store(true, Ordering::Relaxed);
        if let Some(recorder) = state::running() {
            recorder.ask(Request::FirstThreadLeaves);
        }
    });
}

/// When is looked next whether anybody is left.
pub(super) struct Watch(Instant);

impl Watch {
    pub(super) fn new() -> Self {
        Watch(Instant::now())
    }

    pub(super) fn next_look(&self) -> Instant {
        self.0
    }

    /// The first thread is about to leave.
    pub(super) fn look_now(&mut self) {
        self.0 = Instant::now();
    }

    /// Whether nobody is left, if it is time to look. As long as the first thread is there, it is looked seldom: it may end by the
    /// kernel's own call, or be one that nobody watches.
    pub(super) fn nobody_is_left(&mut self) -> bool {
        if Instant::now() < self.0 {
            return false;
        }
        let first_is_gone = Process::read().is_some_and(|process| process.first_is_gone);
        let soon = first_is_gone || HAS_LEFT.load(Ordering::Relaxed);
        self.0 = Instant::now() + if soon { PERIOD } else { IDLE };
        first_is_gone && all_are_ours()
    }

    /// Waits until nobody is left.
    pub(super) fn wait(&mut self) {
        while !self.nobody_is_left() {
            let left = self.0.saturating_duration_since(Instant::now());
            guard::sleep_micros(i64::try_from(left.as_micros()).unwrap_or(0) + 1);
        }
    }
}

/// Whether all threads but the first, which is gone, are the recorder's. The kernel counts a thread from before it runs until it is gone,
/// and the first one to the end. One of ours that ended in between would make room for one of the program's: so they are counted twice.
fn all_are_ours() -> bool {
    let own = threads::running();
    Process::read().is_some_and(|process| process.threads == own + 1) && threads::running() == own
}

/// Told before the thread that asks the runtime is asked nothing any more.
pub(super) fn it_is_over() {
    IS_OVER.store(true, Ordering::Release);
}

/// On the recorder's own thread, at the end of its work: leaves the process to the thread that asks the runtime. Where that is not
/// there, or stays in the vendor's code, the process ends from here, where the program's descriptors are not.
pub(super) fn leave() {
    let began = Instant::now();
    while !ENDS.load(Ordering::Relaxed) {
        if threads::running() < 2 || began.elapsed() > PATIENCE {
            // SAFETY: as the C library does when the last thread ends.
            unsafe { libc::exit(0) };
        }
        guard::sleep_micros(LOOK_MICROS);
    }
}

/// On the thread that asks the runtime, when it is asked nothing any more: starts the last thread, if nobody is left.
pub(super) fn end() {
    if !IS_OVER.load(Ordering::Acquire) {
        return;
    }
    ENDS.store(true, Ordering::Relaxed);
    if !threads::start_like_the_programs(last_thread) {
        // SAFETY: as in `leave`; this thread has the program's descriptors.
        unsafe { libc::exit(0) };
    }
}

unsafe extern "C" {
    /// glibc: what the program is called.
    static program_invocation_short_name: *const c_char;
}

extern "C" fn last_thread(_: *mut c_void) -> *mut c_void {
    // SAFETY: a terminated name; a set of the kernel's size that lives during the call.
    unsafe {
        libc::prctl(libc::PR_SET_NAME, program_invocation_short_name);
        let signals = HELD_BACK.load(Ordering::Relaxed);
        change_signals(libc::SIG_SETMASK, &raw const signals, std::ptr::null_mut());
    }
    if HAS_LEFT.load(Ordering::Relaxed) || !is_alone() {
        // SAFETY: what the C library would do at the end of this thread.
        unsafe { libc::exit(0) };
    }
    // The first thread may have ended by the kernel's own call. The C library then takes it for one that runs, calls nothing, and
    // the process ends with that thread's status. It knows best.
    std::ptr::null_mut()
}

/// Waits until the recorder's threads are gone.
fn is_alone() -> bool {
    let is_alone = |_| {
        let alone = guard::cold(None, Process::read).is_some_and(|process| process.threads == 2);
        if !alone {
            guard::sleep_micros(LOOK_MICROS);
        }
        alone
    };
    (0..LOOKS).any(is_alone)
}

/// What the kernel says of this process.
#[derive(Debug, PartialEq, Eq)]
struct Process {
    /// The first thread has ended; it counts all the same.
    first_is_gone: bool,
    threads: usize,
}

impl Process {
    fn read() -> Option<Self> {
        Self::of(&std::fs::read_to_string("/proc/self/stat").ok()?)
    }

    /// By a line of `stat`: the name in it may contain anything, so the fields are counted from its end.
    fn of(line: &str) -> Option<Self> {
        let (_, fields) = line.rsplit_once(") ")?;
        let mut fields = fields.split(' ');
        let first_is_gone = matches!(fields.next()?, "Z" | "X");
        Some(Process { first_is_gone, threads: fields.nth(16)?.parse().ok()? })
    }
}

fn held_back() -> u64 {
    let mut signals = 0;
    // SAFETY: asks only; a place of the kernel's size.
    unsafe { change_signals(libc::SIG_BLOCK, std::ptr::null(), &raw mut signals) };
    signals
}

/// By system call, so that the kernel's own set of 64 signals is all there is to keep.
///
/// # Safety
/// Both sets are null or valid.
unsafe fn change_signals(how: c_int, signals: *const u64, before: *mut u64) {
    // SAFETY: by the contract; the size is the kernel's.
    unsafe { libc::syscall(libc::SYS_rt_sigprocmask, how, signals, before, 8usize) };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_line_is_read_from_the_names_end() {
        let rest = "1 1 1 0 -1 4194560 1 0 0 0 0 0 0 0 20 0 3 0 100";
        let process = |first_is_gone| Some(Process { first_is_gone, threads: 3 });
        assert_eq!(Process::of(&format!("7 (a) Z (b) S {rest}")), process(false));
        assert_eq!(Process::of(&format!("7 (a) Z {rest}")), process(true));
        assert_eq!(Process::of("7 (a) Z 1 1"), None);
        assert!(Process::read().is_some_and(|process| !process.first_is_gone && process.threads >= 1));
    }
}
