//! Failed allocations whose outcome is open, per thread, and the short account of them for stderr.

use std::fmt::{self, Display, Formatter};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use gpuoom_trace::outcome::{Because, Limits, Outcome, Request, Shown, Step, Watched};
use gpuoom_trace::record::{Event, Kind, NO_DEVICE, Record, flag};

use super::waits;
use crate::base::thread::{self, MAX_OPEN_FAILURES, OpenFailure, ThreadState};
use crate::base::{guard, log, program_memory, watching};
use crate::call::Frame;
use crate::record::state;
use crate::table;
use crate::{faults, readings, stack};

/// Whether a call was given the pointer that a failed one should have set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FailedPointer {
    /// No such pointer.
    No,
    /// This one.
    Left(Left),
}

/// What a failed call left in its pointer variable, and a later call was given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Left {
    /// The null; or what the variable held before, and nobody can read it: it may still be a block of the device that lives, which
    /// the analyzer knows.
    pub(super) pointer: u64,
    /// How many open failures of the thread left it, in variables of their own.
    pub(super) left_by: u8,
    /// Sequence number of the failure that it is held for; `None` where it may be of one or another.
    pub(super) whose: Option<u64>,
    /// Whether that failure's variable holds it to this moment.
    pub(super) is_still_held: bool,
    /// Failures of the process so far beside that one and its attempts: what they left may be around, too.
    pub(super) others: u32,
    /// Where that failure stands among the open ones.
    place: Option<u8>,
}

/// What a pointer that a call was given can be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Side {
    /// Memory of the host only.
    Host,
    /// Of a device, or of whatever else the call takes.
    Any,
}

/// The account of failures, for the lines at the end of the process.
static FAILURES: AtomicU32 = AtomicU32::new(0);
static DROPPED: AtomicU32 = AtomicU32::new(0);
static PROPAGATED: AtomicU32 = AtomicU32::new(0);
static RECOVERED: AtomicU32 = AtomicU32::new(0);
static UNRESOLVED: AtomicU32 = AtomicU32::new(0);
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
    for counter in [&FAILURES, &DROPPED, &PROPAGATED, &RECOVERED, &UNRESOLVED, &NOTICED] {
        counter.store(0, Ordering::Relaxed);
    }
    SUMMARY_PRINTED.store(false, Ordering::Relaxed);
}

/// An allocation of the program failed. Takes the readings and begins to watch, if it was for want of memory. `out`: its
/// pointer variable, of a pin the memory itself.
#[cold]
#[inline(never)]
pub(crate) fn failed(frame: &Frame, record: &Record, seq: Option<u64>, out: u64) {
    guard::cold((), || {
        let row = table::row(record.api);
        if !row.is_out_of_memory(record.status) {
            return;
        }
        // Memory of another process that can't be opened is no memory that this one asked for.
        let counts = record.event != Event::Import as u8;
        if counts && FAILURES.fetch_add(1, Ordering::Relaxed) == 0 {
            let first = [u64::from(record.api), u64::from(record.device), record.requested];
            FIRST.iter().zip(first).for_each(|(to, value)| to.store(value, Ordering::Relaxed));
        }
        let takes_pointer = record.event != Event::Pin as u8;
        let pointer = takes_pointer.then(|| program_memory::word(out)).flatten();
        let request = request_of(frame, record);
        readings::after_failure(frame, record, row, seq);
        waits::matter();
        if counts {
            open(request, record.status, pointer, out, seq);
        }
    });
}

/// What a call asked for, as the rules for outcomes look at it.
fn request_of(frame: &Frame, record: &Record) -> Request {
    Request {
        at_ns: monotonic_ns(),
        requested_bytes: record.requested,
        // Without the number the analyzer does not know the place, and without stacks it stands for no more than that.
        place: if record.site == 0 { 0 } else { frame.caller() as u64 },
        path: if stack::is_wanted() { record.site } else { 0 },
        device: record.device,
        kind: record.kind() as u8,
        same_variable: record.has(flag::SAME_VARIABLE),
    }
}

fn open(request: Request, status: i32, pointer: Option<u64>, variable: u64, seq: Option<u64>) {
    step(Step::Refused(request));
    let mut state = Open::get();
    if usize::from(state.open_failures) == MAX_OPEN_FAILURES {
        let [first, second, ..] = &mut state.failures;
        // What was made up for is counted already.
        second.count += if first.watched.settled().is_some() { 0 } else { first.count };
        state.failures.rotate_left(1);
        state.open_failures -= 1;
    }
    if state.open_failures == 0 {
        watching::begin();
        ThreadEnd::arm();
    }
    state.failures[usize::from(state.open_failures)] = OpenFailure {
        watched: Watched::new(request, status),
        pointer: pointer.unwrap_or(0),
        variable,
        record: seq.map_or(0, |seq| seq + 1),
        overwritten_by: 0,
        count: 1,
        pointer_known: pointer.is_some(),
    };
    state.open_failures += 1;
    // The readings took their time, which is not the program's.
    let waited_ns = monotonic_ns().saturating_sub(request.at_ns);
    let open = usize::from(state.open_failures);
    state.failures[..open].iter_mut().for_each(|failure| failure.watched.held_up(waited_ns));
    join(&mut state);
    state.put_back();
}

/// Attempts to make up for a failure become part of it, as soon as the program has shown as much of both.
fn join(state: &mut Open) {
    let mut kept = 0;
    for index in 0..usize::from(state.open_failures) {
        let newer = state.failures[index];
        if kept > 0 && state.failures[kept - 1].watched.takes_in(&newer.watched) {
            state.failures[kept - 1].take_in(&newer);
        } else {
            state.failures[kept] = newer;
            kept += 1;
        }
    }
    state.open_failures = kept as u8;
}

/// The flag of an allocation that writes to the variable of the last failed one.
pub(super) fn same_variable(out: u64) -> u8 {
    let state = Open::get();
    let last = state.failures[..usize::from(state.open_failures)].last();
    let is_same = out != 0 && last.is_some_and(|failure| failure.variable == out);
    if is_same { flag::SAME_VARIABLE } else { 0 }
}

/// An allocation succeeded.
pub(super) fn allocated(frame: &Frame, record: &Record) {
    let mut state = Open::get();
    let open = usize::from(state.open_failures);
    if let Some(last) = state.failures[..open].last_mut().filter(|_| record.has(flag::SAME_VARIABLE)) {
        last.overwritten_by = record.address;
        state.put_back();
    }
    step(Step::Allocated(request_of(frame, record)));
}

/// Whether one of the pointers is what a failed call left behind, and which call that was.
pub(super) fn uses_failed_pointer(pointers: impl Iterator<Item = (u64, Side)>) -> FailedPointer {
    let state = Open::get();
    let open = &state.failures[..usize::from(state.open_failures)];
    let mut stale = FailedPointer::No;
    for (pointer, side) in pointers {
        match left_by(open, pointer, side) {
            left @ FailedPointer::Left(_) if pointer == 0 => return left,
            // Memory of the program, and nothing that the failed call should have set.
            FailedPointer::Left(_) if program_memory::word(pointer).is_some() => {}
            FailedPointer::No => {}
            left => stale = left,
        }
    }
    stale
}

/// Which of the open failures left this pointer. What memory came for since is the last to be thought of; among others nobody can
/// tell, unless they had one variable.
fn left_by(open: &[OpenFailure], pointer: u64, side: Side) -> FailedPointer {
    let is_left = |failure: &OpenFailure| {
        failure.pointer_known
            && failure.pointer == pointer
            && (side == Side::Any || failure.is_of_host())
            && !failure.is_overwritten()
    };
    let is_last = |place: usize, failure: &OpenFailure| {
        failure.variable == 0 || open[place + 1..].iter().all(|newer| newer.variable != failure.variable)
    };
    let mut left = [0u8; 2];
    let mut last = [None; 2];
    for (place, failure) in
        open.iter().enumerate().filter(|(place, failure)| is_left(failure) && is_last(*place, failure))
    {
        let sort = usize::from(failure.watched.is_made_up());
        left[sort] += 1;
        last[sort] = Some(place);
    }
    let place = match left {
        [0, 0] => return FailedPointer::No,
        [0, _] => last[1],
        [1, _] => last[0],
        _ => None,
    };
    let failure = place.map(|place| open[place]);
    FailedPointer::Left(Left {
        pointer,
        left_by: left[0] + left[1],
        whose: failure.and_then(|failure| failure.record.checked_sub(1)),
        others: FAILURES.load(Ordering::Relaxed).saturating_sub(failure.map_or(0, |failure| failure.count)),
        is_still_held: failure.is_some_and(|failure| program_memory::word(failure.variable) == Some(pointer)),
        place: place.map(|place| place as u8),
    })
}

/// GPU work with this pointer as a step. A stale pointer may be a block that lives, so it shows nothing here.
pub(super) fn works(pointer: FailedPointer) {
    let place = match pointer {
        FailedPointer::Left(Left { pointer: 0, place, .. }) => place,
        _ => None,
    };
    each(|index| Step::GpuWork { failed_pointer: place == Some(index as u8) });
}

/// Takes one step of this thread with every open failure, and closes those that are decided.
pub(super) fn step(step: Step) {
    each(|_| step);
}

/// Takes a step with every open failure, by its place.
fn each(step_of: impl Fn(usize) -> Step) {
    let mut state = Open::get();
    if state.open_failures == 0 {
        return;
    }
    let mut kept = 0;
    for index in 0..usize::from(state.open_failures) {
        let mut failure = state.failures[index];
        let before = failure;
        let answer = failure.watched.step(step_of(index), &Limits::DEFAULT);
        keep_account(&before, &failure, answer);
        if answer.is_none() {
            state.failures[kept] = failure;
            kept += 1;
        }
    }
    state.open_failures = kept as u8;
    join(&mut state);
    state.put_back();
    if kept == 0 {
        watching::end();
    }
}

/// Counts what a step made of a failure. What is settled counts at once, because its thread may end before anything else is known.
fn keep_account(before: &OpenFailure, after: &OpenFailure, answer: Option<(Outcome, Because)>) {
    let counters = |failure: &OpenFailure, answer: Option<(Outcome, Because)>| match answer {
        Some((outcome, because)) => counter(outcome, because),
        None => match failure.watched.settled() {
            Some((outcome, because)) => counter(outcome, because),
            None => failure.is_noticed().then_some(&NOTICED),
        },
    };
    if let Some(counter) = counters(before, None) {
        counter.fetch_sub(before.count, Ordering::Relaxed);
    }
    if let Some(counter) = counters(after, answer) {
        counter.fetch_add(before.count, Ordering::Relaxed);
    }
}

fn counter(outcome: Outcome, because: Because) -> Option<&'static AtomicU32> {
    match outcome {
        Outcome::Recovered => Some(&RECOVERED),
        Outcome::Propagated => Some(&PROPAGATED),
        Outcome::Dropped => Some(&DROPPED),
        Outcome::Unresolved if because == Because::ErrorRead => Some(&UNRESOLVED),
        Outcome::Unresolved => None,
    }
}

fn monotonic_ns() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: points at a timespec; the clock exists on every Linux.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut time) };
    (time.tv_sec as u64).wrapping_mul(1_000_000_000).wrapping_add(time.tv_nsec as u64)
}

impl OpenFailure {
    /// Whether the program has shown that it knows of it.
    fn is_noticed(&self) -> bool {
        self.watched.shown() != Shown::Nothing
    }

    /// Whether it was to give memory that the host has a pointer to.
    fn is_of_host(&self) -> bool {
        [Kind::HostPinned, Kind::Registered, Kind::Managed]
            .map(|kind| kind as u8)
            .contains(&self.watched.last_attempt().kind)
    }

    /// Whether a later call has written to its variable, which still holds that. A wrapper's own variable has one address in each
    /// call: there the place soon holds something else.
    fn is_overwritten(&self) -> bool {
        self.overwritten_by != 0 && program_memory::word(self.variable) == Some(self.overwritten_by)
    }

    /// Stands for a newer failure, too.
    fn take_in(&mut self, newer: &OpenFailure) {
        self.count += newer.count;
        if newer.variable != 0 {
            self.variable = newer.variable;
        }
        (self.record, self.overwritten_by) = (newer.record, newer.overwritten_by);
        if newer.pointer_known {
            (self.pointer, self.pointer_known) = (newer.pointer, true);
        }
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
        watching::end();
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
    unresolved: u32,
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
        self.failures.saturating_sub(self.dropped + self.propagated + self.recovered + self.unresolved)
    }

    fn now() -> Self {
        let count = |counter: &AtomicU32| counter.load(Ordering::Relaxed);
        let [api, device, size] = FIRST.each_ref().map(|value| value.load(Ordering::Relaxed));
        Account {
            failures: count(&FAILURES),
            dropped: count(&DROPPED),
            propagated: count(&PROPAGATED),
            recovered: count(&RECOVERED),
            unresolved: count(&UNRESOLVED),
            api: api as u16,
            device: device as u8,
            requested: Size(size),
        }
    }
}

impl Display for Account {
    fn fmt(&self, out: &mut Formatter<'_>) -> fmt::Result {
        let Account { failures, dropped, propagated, recovered, unresolved, .. } = *self;
        let undecided = self.undecided();
        write!(out, "{failures} out-of-memory return{}, ", if failures == 1 { "" } else { "s" })?;
        match dropped {
            0 if recovered == failures => write!(out, "recovered: a later request was given memory")?,
            0 if propagated == failures => {
                write!(out, "propagated: the program reported the error, threw an exception or ended with a failure")?
            }
            // Nobody reacted before the process ended well.
            0 if undecided == failures => write!(out, "unresolved when the process ended")?,
            0 if unresolved == failures => write!(out, "whose error was read before GPU work went on")?,
            0 => {
                write!(out, "{recovered} recovered, {propagated} propagated")?;
                // What was read and what was still open when the process ended: of neither it is known what became of it.
                if unresolved + undecided > 0 {
                    write!(out, ", {} unresolved", unresolved + undecided)?;
                }
            }
            _ if dropped == failures => write!(out, "DROPPED: GPU work went on before any sign of notice")?,
            _ => write!(out, "{dropped} of them DROPPED: GPU work went on before any sign of notice")?,
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
        for bytes in [0, 7, 4096, 512 << 20, 3 << 29] {
            assert_eq!(gpuoom_units::size(&Size(bytes).to_string()), Ok(bytes), "what is printed is read");
        }
    }

    #[test]
    fn the_account_reads_well() {
        let account = |failures, dropped, propagated, recovered| {
            let (device, requested) = (0, Size(512 << 20));
            Account { failures, dropped, propagated, recovered, unresolved: 0, api: 0, device, requested }
        };
        let cleared = Account { unresolved: 1, ..account(1, 0, 0, 0) }.to_string();
        assert!(
            cleared.contains("1 out-of-memory return, whose error was read before GPU work went on (GPU"),
            "{cleared}"
        );
        let mixed = Account { unresolved: 1, ..account(3, 0, 1, 0) }.to_string();
        assert!(mixed.contains("0 recovered, 1 propagated, 2 unresolved (GPU"), "{mixed}");
        let account =
            |failures, dropped, propagated, recovered| account(failures, dropped, propagated, recovered).to_string();
        assert_eq!(
            account(1, 1, 0, 0),
            "1 out-of-memory return, DROPPED: GPU work went on before any sign of notice (GPU 0, hipMalloc 512 MiB)"
        );
        assert!(
            account(3, 1, 1, 1)
                .starts_with("3 out-of-memory returns, 1 of them DROPPED: GPU work went on before any sign of notice")
        );
        assert!(
            account(2, 0, 2, 0)
                .contains("propagated: the program reported the error, threw an exception or ended with a failure")
        );
        assert!(account(3, 0, 1, 2).contains("2 recovered, 1 propagated (GPU"));
        assert!(account(1, 0, 0, 0).contains("1 out-of-memory return, unresolved when the process ended"));
        assert!(account(3, 0, 1, 1).contains("1 recovered, 1 propagated, 1 unresolved (GPU"));
    }
}
