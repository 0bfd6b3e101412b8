//! Failed allocations whose outcome is open, per thread, and the short account of them for stderr.

use std::fmt::{self, Display, Formatter};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use gpuoom_trace::outcome::{Because, Outcome, Step, Watched};
use gpuoom_trace::record::{Event, NO_DEVICE, Record};

use super::waits;
use crate::base::thread::{self, MAX_OPEN_FAILURES, OpenFailure, ThreadState};
use crate::base::{guard, log, program_memory, watching};
use crate::call::Frame;
use crate::record::state;
use crate::table;
use crate::{faults, readings};

/// The account of failures, for the lines at the end of the process.
static FAILURES: AtomicU32 = AtomicU32::new(0);
static DROPPED: AtomicU32 = AtomicU32::new(0);
static PROPAGATED: AtomicU32 = AtomicU32::new(0);
static RECOVERED: AtomicU32 = AtomicU32::new(0);
/// Open failures, of all threads, that the program has shown to have noticed.
static NOTICED: AtomicU32 = AtomicU32::new(0);
/// Function, device and size of the first failure.
static FIRST: [AtomicU64; 3] = [const { AtomicU64::new(0) }; 3];
static SUMMARY_PRINTED: AtomicBool = AtomicBool::new(false);

fn me() -> &'static ThreadState {
    thread::current()
}

/// A copy of this thread's failures, to be worked on and put back. A handler that comes in between and has failures of its own
/// loses them: they are counted, and stay undecided.
struct Open {
    failures: [OpenFailure; MAX_OPEN_FAILURES],
    open_failures: u8,
}

impl Open {
    fn get() -> Self {
        Open { failures: me().failures.get(), open_failures: me().open_failures.get() }
    }

    fn put_back(self) {
        me().failures.set(self.failures);
        me().open_failures.set(self.open_failures);
    }
}

/// Whether this thread has an undecided failure.
#[inline]
pub(crate) fn is_watched() -> bool {
    me().open_failures.get() != 0 && !me().is_recorders.get()
}

/// A forked child begins without its parent's failures.
pub(crate) fn forget_all() {
    // Where calls may be refused, the stubs always take the long way: see `faults`.
    watching::reset(u32::from(faults::is_on()));
    waits::forget();
    for counter in [&FAILURES, &DROPPED, &PROPAGATED, &RECOVERED, &NOTICED] {
        counter.store(0, Ordering::Relaxed);
    }
    SUMMARY_PRINTED.store(false, Ordering::Relaxed);
}

/// An allocation of the program failed. Takes the readings and begins to watch, if it was for want of memory.
#[cold]
#[inline(never)]
pub(crate) fn failed(frame: &Frame, record: &Record, seq: Option<u64>, out: u64) {
    guard::cold((), || {
        let row = table::row(record.api);
        if !row.is_out_of_memory(record.status) {
            return;
        }
        if FAILURES.fetch_add(1, Ordering::Relaxed) == 0 {
            let first = [u64::from(record.api), u64::from(record.device), record.requested];
            FIRST.iter().zip(first).for_each(|(to, value)| to.store(value, Ordering::Relaxed));
        }
        let takes_pointer = record.event != Event::Pin as u8;
        let pointer = takes_pointer.then(|| program_memory::word(out)).flatten();
        readings::after_failure(frame, record, row, seq);
        waits::matter();
        open(record, pointer);
    });
}

fn open(record: &Record, pointer: Option<u64>) {
    let mut state = Open::get();
    if usize::from(state.open_failures) == MAX_OPEN_FAILURES {
        state.failures.rotate_left(1);
        state.open_failures -= 1;
    }
    if state.open_failures == 0 {
        watching::begin();
        ThreadEnd::arm();
    }
    state.failures[usize::from(state.open_failures)] = OpenFailure {
        requested_bytes: record.requested,
        pointer: pointer.unwrap_or(0),
        status: record.status,
        device: record.device,
        shown: 0,
        pointer_known: pointer.is_some(),
    };
    state.open_failures += 1;
    state.put_back();
}

/// Whether one of the pointers is what a failed call left behind.
pub(super) fn uses_failed_pointer(pointers: impl Iterator<Item = u64>) -> bool {
    let state = Open::get();
    let open = &state.failures[..usize::from(state.open_failures)];
    pointers.into_iter().any(|pointer| open.iter().any(|failure| failure.pointer_known && failure.pointer == pointer))
}

/// Takes one step of this thread with every open failure, and closes those that are decided.
pub(super) fn step(step: Step) {
    let mut state = Open::get();
    let mut kept = 0;
    for index in 0..usize::from(state.open_failures) {
        let mut failure = state.failures[index];
        let was_noticed = failure.shown != 0;
        match failure.step(step) {
            Some((outcome, _)) => {
                NOTICED.fetch_sub(u32::from(was_noticed), Ordering::Relaxed);
                count(outcome);
            }
            None => {
                NOTICED.fetch_add(u32::from(!was_noticed && failure.shown != 0), Ordering::Relaxed);
                state.failures[kept] = failure;
                kept += 1;
            }
        }
    }
    state.open_failures = kept as u8;
    state.put_back();
    if kept == 0 {
        stop_watching();
    }
}

fn stop_watching() {
    watching::end();
}

fn count(outcome: Outcome) {
    let counter = match outcome {
        Outcome::Recovered => &RECOVERED,
        Outcome::Propagated => &PROPAGATED,
        Outcome::Dropped => &DROPPED,
        Outcome::Unresolved => return,
    };
    counter.fetch_add(1, Ordering::Relaxed);
}

impl OpenFailure {
    fn step(&mut self, step: Step) -> Option<(Outcome, Because)> {
        let mut watched = Watched::resume(self.device(), self.requested_bytes, self.status, self.shown);
        let decided = watched.step(step);
        self.shown = watched.shown_strength();
        decided
    }

    fn device(&self) -> Option<u8> {
        (self.device != NO_DEVICE).then_some(self.device)
    }
}

/// Tells when a watched thread ends, so that the others do not pay for watching it for good.
struct ThreadEnd;

impl ThreadEnd {
    fn key() -> libc::pthread_key_t {
        static KEY: once_cell::sync::OnceCell<libc::pthread_key_t> = once_cell::sync::OnceCell::new();
        *KEY.get_or_init(|| {
            let mut key = 0;
            // SAFETY: points at a key; the destructor only counts down.
            unsafe { libc::pthread_key_create(&mut key, Some(thread_ended)) };
            key
        })
    }

    fn arm() {
        // SAFETY: a key made above; the value only has to differ from null.
        unsafe { libc::pthread_setspecific(Self::key(), std::ptr::from_ref(me()).cast()) };
    }
}

unsafe extern "C" fn thread_ended(_: *mut libc::c_void) {
    // Runs on the ending thread, whose block is still there.
    if me().open_failures.get() != 0 {
        me().open_failures.set(0);
        stop_watching();
    }
}

/// The process is about to end: says on stderr what failed, once, and only if something did. No heap: a crash handler may
/// end the process in the middle of `malloc`.
pub(crate) fn process_ends(failure: bool) {
    if is_watched() {
        step(Step::Ended { failure });
    }
    let account = Account::at_the_end(failure);
    if account.failures == 0 || SUMMARY_PRINTED.swap(true, Ordering::Relaxed) {
        return;
    }
    let Some(recorder) = state::running() else { return };
    let path = recorder.path().display();
    log::warn(format_args!("{account}. Trace: {path}"));
    log::warn(format_args!("explain it with: gpuoom-analyze {path}"));
}

/// The failures of this process, counted.
struct Account {
    failures: u32,
    dropped: u32,
    propagated: u32,
    recovered: u32,
    api: u16,
    device: u8,
    requested: Size,
}

impl Account {
    /// What is still open, of whatever thread, is judged as the analyzer does: a process that ends with a failure has let
    /// it out, and one that has noticed has too.
    fn at_the_end(failure: bool) -> Self {
        let mut account = Account::now();
        let undecided = account.undecided();
        let noticed = NOTICED.load(Ordering::Relaxed);
        account.propagated += if failure { undecided } else { noticed.min(undecided) };
        account
    }

    fn undecided(&self) -> u32 {
        self.failures.saturating_sub(self.dropped + self.propagated + self.recovered)
    }

    fn now() -> Self {
        let count = |counter: &AtomicU32| counter.load(Ordering::Relaxed);
        let [api, device, size] = FIRST.each_ref().map(|value| value.load(Ordering::Relaxed));
        Account {
            failures: count(&FAILURES),
            dropped: count(&DROPPED),
            propagated: count(&PROPAGATED),
            recovered: count(&RECOVERED),
            api: api as u16,
            device: device as u8,
            requested: Size(size),
        }
    }
}

impl Display for Account {
    fn fmt(&self, out: &mut Formatter<'_>) -> fmt::Result {
        let Account { failures, dropped, propagated, recovered, .. } = *self;
        let undecided = self.undecided();
        write!(out, "{failures} out-of-memory return{}, ", if failures == 1 { "" } else { "s" })?;
        match dropped {
            0 if recovered == failures => write!(out, "recovered by the program")?,
            0 if propagated == failures => write!(out, "propagated by the program")?,
            // Nobody reacted before the process ended well.
            0 if undecided == failures => write!(out, "undecided when the process ended")?,
            0 if undecided > 0 => write!(
                out,
                "{recovered} recovered, {propagated} propagated, {undecided} undecided when the process ended"
            )?,
            0 => write!(out, "{recovered} recovered, {propagated} propagated")?,
            _ if dropped == failures => write!(out, "DROPPED by the program")?,
            _ => write!(out, "{dropped} of them DROPPED by the program")?,
        }
        match self.device {
            NO_DEVICE => write!(out, " (host, ")?,
            device => write!(out, " (GPU {device}, ")?,
        }
        let name = table::row(self.api).name;
        match &self.requested {
            // A library's handle: nobody tells how much it takes.
            Size(u64::MAX) => write!(out, "{name})"),
            size => write!(out, "{name} {size})"),
        }
    }
}

/// Bytes as people read them.
struct Size(u64);

impl Display for Size {
    fn fmt(&self, out: &mut Formatter<'_>) -> fmt::Result {
        const UNITS: [(&str, u32); 4] = [("GiB", 30), ("MiB", 20), ("KiB", 10), ("bytes", 0)];
        let (unit, shift) = UNITS.into_iter().find(|(_, shift)| self.0 >> shift != 0).unwrap_or(("bytes", 0));
        let decimals = if self.0 & ((1 << shift) - 1) == 0 { 0 } else { 2 };
        write!(out, "{:.decimals$} {unit}", self.0 as f64 / (1u64 << shift) as f64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_read_well() {
        assert_eq!(Size(512 << 20).to_string(), "512 MiB");
        assert_eq!(Size(1_514_000_000).to_string(), "1.41 GiB");
        assert_eq!(Size(7).to_string(), "7 bytes");
        assert_eq!(Size(0).to_string(), "0 bytes");
    }

    #[test]
    fn the_account_reads_well() {
        let account = |failures, dropped, propagated, recovered| {
            let (device, requested) = (0, Size(512 << 20));
            Account { failures, dropped, propagated, recovered, api: 0, device, requested }.to_string()
        };
        assert_eq!(account(1, 1, 0, 0), "1 out-of-memory return, DROPPED by the program (GPU 0, hipMalloc 512 MiB)");
        assert!(account(3, 1, 1, 1).starts_with("3 out-of-memory returns, 1 of them DROPPED by the program"));
        assert!(account(2, 0, 2, 0).contains("propagated by the program"));
        assert!(account(3, 0, 1, 2).contains("2 recovered, 1 propagated (GPU"));
        assert!(account(1, 0, 0, 0).contains("1 out-of-memory return, undecided when the process ended"));
        assert!(account(3, 0, 1, 1).contains("1 recovered, 1 propagated, 1 undecided"));
    }
}
