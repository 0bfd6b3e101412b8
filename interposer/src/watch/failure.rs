//! Failed allocations whose outcome is open, per thread.

use gpuoom_trace::outcome::{Limits, Request, Shown, Step, Watched};
use gpuoom_trace::record::{Event, Kind, Record, flag};

use super::{account, log_line, waits};
use crate::base::thread::{self, MAX_OPEN_FAILURES, OpenFailure, ThreadState};
use crate::base::{guard, program_memory, watching};
use crate::call::Frame;
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
    account::reset();
}

/// An allocation of the program failed. Takes the readings and begins to watch, if it was for want of memory. `out`: its
/// pointer variable, of a pin the memory itself.
#[cold]
#[inline(never)]
pub(crate) fn failed(frame: &Frame, record: &Record, seq: Option<u64>, out: u64) {
    guard::cold((), || {
        let row = table::row(record.api);
        // HIP answers "invalid value" for host memory that the kernel's driver had no room to pin.
        let refused_inside = record.event == Event::Pin as u8 && frame.was_refused_inside();
        if !row.is_out_of_memory(record.status) && !refused_inside {
            return;
        }
        // Memory of another process that can't be opened is no memory that this one asked for.
        let counts = record.event != Event::Import as u8;
        if counts {
            account::count(record);
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
    me().refusals.set(me().refusals.get().wrapping_add(1));
    step(Step::Refused(request));
    me().lines_said.set(0);
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

/// Number of the record of this thread's last open failure, plus one; 0: not known.
pub(super) fn last_record() -> u64 {
    let state = Open::get();
    state.failures[..usize::from(state.open_failures)].last().map_or(0, |failure| failure.record)
}

/// Whether another line of a log is kept for this thread's last failure.
pub(super) fn may_say_more() -> bool {
    me().lines_said.get() < log_line::MOST_LINES
}

/// A line was kept.
pub(super) fn said() {
    me().lines_said.set(me().lines_said.get() + 1);
}

/// The flag of an allocation that writes to the variable of the last failed one.
pub(super) fn same_variable(out: u64) -> u8 {
    let state = Open::get();
    let last = state.failures[..usize::from(state.open_failures)].last();
    let is_same = out != 0 && last.is_some_and(|failure| failure.variable == out);
    if is_same { flag::SAME_VARIABLE } else { 0 }
}

/// An allocation succeeded; its result went to `variable`, 0 where there is none.
pub(super) fn allocated(frame: &Frame, record: &Record, variable: u64) {
    let mut state = Open::get();
    let open = usize::from(state.open_failures);
    let is_there = |failure: &&mut OpenFailure| variable != 0 && failure.variable == variable;
    // Every failure that left something there, not only the last one: the program may come back to an older one.
    state.failures[..open].iter_mut().filter(is_there).for_each(|failure| failure.overwritten_by = record.address);
    state.put_back();
    // Success and null is what HIP before 6 answers for pools that are out of memory: nothing came.
    let gave_nothing = record.event() == Some(Event::Alloc) && record.address == 0;
    if !gave_nothing {
        step(Step::Allocated(request_of(frame, record)));
    }
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
        others: account::failures().saturating_sub(failure.map_or(0, |failure| failure.count)),
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
        let step = step_of(index);
        let answer = failure.watched.step(step, &Limits::DEFAULT);
        account::keep(&before, &failure, answer);
        if let Step::Allocated(request) = step {
            account::note_device(&before, &failure, answer, request.device);
        }
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

/// A call inside which requests were refused since `began_ns` has returned. `is_handle`: what the program gets of it is a handle, of a
/// call that failed a null.
pub(crate) fn answered(began_ns: u64, failure: bool, is_handle: bool) {
    step(Step::Answered { began_ns, failure });
    if !(failure && is_handle) {
        return;
    }
    let mut state = Open::get();
    let open = usize::from(state.open_failures);
    let inside = |open: &&mut OpenFailure| open.watched.last_attempt().at_ns >= began_ns;
    state.failures[..open].iter_mut().filter(inside).for_each(|failure| {
        (failure.pointer, failure.pointer_known, failure.variable) = (0, true, 0);
    });
    state.put_back();
}

/// The monotonic clock, in nanoseconds.
pub(crate) fn monotonic_ns() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: points at a timespec; the clock exists on every Linux.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut time) };
    (time.tv_sec as u64).wrapping_mul(1_000_000_000).wrapping_add(time.tv_nsec as u64)
}

impl OpenFailure {
    /// Whether the program has shown that it knows of it.
    pub(super) fn is_noticed(&self) -> bool {
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

/// The process is about to end: the failures of this thread that are still open end with it.
pub(crate) fn process_ends(failure: bool) {
    if is_watched() {
        step(Step::Ended { failure });
    }
    account::print(failure);
}
