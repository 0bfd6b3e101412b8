//! The short account of this process's failures that is printed on stderr where it ends.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use gpuoom_trace::outcome::{Because, Outcome};
use gpuoom_trace::record::{Kind, Layer, NO_DEVICE, Record};

use super::last_words::{Account, Size};
use crate::base::thread::OpenFailure;
use crate::base::{config, log};
use crate::record::state;
use crate::table;

/// Failures of all threads, by what became of them. Relaxed: each is a count of its own, and is read where the process ends.
static FAILURES: AtomicU32 = AtomicU32::new(0);
static DROPPED: AtomicU32 = AtomicU32::new(0);
static PROPAGATED: AtomicU32 = AtomicU32::new(0);
static RECOVERED: AtomicU32 = AtomicU32::new(0);
static UNRESOLVED: AtomicU32 = AtomicU32::new(0);
/// Of those recovered: what time alone ties to the memory that came. Nothing shows that the program had noticed.
static BY_TIME_ALONE: AtomicU32 = AtomicU32::new(0);
/// Of those dropped: where memory for such a request came after the work.
static GIVEN_AFTER_WORK: AtomicU32 = AtomicU32::new(0);
/// Of those recovered: what another device gave memory in place of, and the first such device.
static ELSEWHERE: AtomicU32 = AtomicU32::new(0);
static OTHER_DEVICE: AtomicU32 = AtomicU32::new(0);
/// Open failures, of all threads, that the program has shown to have noticed.
static NOTICED: AtomicU32 = AtomicU32::new(0);
/// Errors that an allocator above the runtime told of: what reached the program, where the failures below are calls of that allocator's.
static ERRORS: AtomicU32 = AtomicU32::new(0);
/// Of the failures, those that such an allocator told of where nothing had failed below.
static OWN: AtomicU32 = AtomicU32::new(0);
/// Function, device and size of the first failure.
static FIRST: [AtomicU64; 3] = [const { AtomicU64::new(0) }; 3];
/// The same of the first error.
static FIRST_ERROR: [AtomicU64; 3] = [const { AtomicU64::new(0) }; 3];
static SUMMARY_PRINTED: AtomicBool = AtomicBool::new(false);

/// An allocator above the runtime has no memory for a block.
pub(crate) fn count_error(record: &Record) {
    if ERRORS.fetch_add(1, Ordering::Relaxed) == 0 {
        keep_as(&FIRST_ERROR, record);
    }
}

fn keep_as(first: &[AtomicU64; 3], record: &Record) {
    // Pinned and registered memory is the host's, whichever device the thread had chosen.
    let is_of_host = matches!(record.kind(), Kind::HostPinned | Kind::Registered);
    let device = if is_of_host { NO_DEVICE } else { record.device };
    let told = [u64::from(record.api), u64::from(device), record.requested];
    first.iter().zip(told).for_each(|(to, value)| to.store(value, Ordering::Relaxed));
}

/// Another failure.
pub(super) fn count(record: &Record) {
    OWN.fetch_add(u32::from(table::row(record.api).layer == Layer::Framework), Ordering::Relaxed);
    if FAILURES.fetch_add(1, Ordering::Relaxed) == 0 {
        keep_as(&FIRST, record);
    }
}

/// How many there were so far.
pub(super) fn failures() -> u32 {
    FAILURES.load(Ordering::Relaxed)
}

/// A forked child begins with none.
pub(super) fn reset() {
    for counter in [&FAILURES, &DROPPED, &PROPAGATED, &RECOVERED, &UNRESOLVED, &NOTICED, &ERRORS, &OWN] {
        counter.store(0, Ordering::Relaxed);
    }
    for counter in [&ELSEWHERE, &BY_TIME_ALONE, &GIVEN_AFTER_WORK] {
        counter.store(0, Ordering::Relaxed);
    }
    SUMMARY_PRINTED.store(false, Ordering::Relaxed);
}

/// Counts what a step made of a failure. What is settled counts at once, because its thread may end before anything else is known.
pub(super) fn keep(before: &OpenFailure, after: &OpenFailure, answer: Option<(Outcome, Because)>) {
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
    keep_what_ties(before, after, answer);
}

/// Counts what is to be said of what settled a failure, as long as that is what became of it.
fn keep_what_ties(before: &OpenFailure, after: &OpenFailure, answer: Option<(Outcome, Because)>) {
    let stands = answer.is_none() || answer == after.watched.settled();
    let follow = |counter: &AtomicU32, was: bool, is: bool| match (was, stands && is) {
        (false, true) => _ = counter.fetch_add(before.count, Ordering::Relaxed),
        (true, false) => _ = counter.fetch_sub(before.count, Ordering::Relaxed),
        _ => {}
    };
    let (was, is) = (&before.watched, &after.watched);
    follow(&BY_TIME_ALONE, was.is_made_up_by_time_alone(), is.is_made_up_by_time_alone());
    follow(&GIVEN_AFTER_WORK, was.was_given_after_work(), is.was_given_after_work());
}

/// A call that gave memory on this device made up for a failure: takes note where that was of another one.
pub(super) fn note_device(before: &OpenFailure, after: &OpenFailure, answer: Option<(Outcome, Because)>, device: u8) {
    let fell_back = answer.or(after.watched.settled()) == Some((Outcome::Recovered, Because::FellBack));
    let wanted = after.watched.wanted_device();
    if !fell_back || before.watched.is_made_up() || device == wanted || device == NO_DEVICE || wanted == NO_DEVICE {
        return;
    }
    if ELSEWHERE.fetch_add(after.count, Ordering::Relaxed) == 0 {
        OTHER_DEVICE.store(u32::from(device), Ordering::Relaxed);
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

/// The process is about to end: says on stderr what failed, once, and only if something did. No heap: a crash handler may
/// end the process in the middle of `malloc`.
pub(super) fn print(failure: bool) {
    let account = Account::at_the_end(failure);
    if account.failures == 0 || SUMMARY_PRINTED.swap(true, Ordering::Relaxed) {
        return;
    }
    let Some(recorder) = state::running() else { return };
    let path = recorder.path().display();
    log::warn(format_args!("{account}. Trace: {path}"));
    if config::get().explain {
        log::warn(format_args!("explain it with: gpuoom-analyze {path}"));
    }
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

    fn now() -> Self {
        let count = |counter: &AtomicU32| counter.load(Ordering::Relaxed);
        // What reached the program, where anything did: a refusal below may be one that the allocator got over.
        let first = if count(&ERRORS) == 0 { &FIRST } else { &FIRST_ERROR };
        let [api, device, size] = first.each_ref().map(|value| value.load(Ordering::Relaxed));
        Account {
            failures: count(&FAILURES),
            errors: count(&ERRORS),
            own: count(&OWN),
            dropped: count(&DROPPED),
            propagated: count(&PROPAGATED),
            recovered: count(&RECOVERED),
            elsewhere: count(&ELSEWHERE),
            other_device: count(&OTHER_DEVICE),
            by_time_alone: count(&BY_TIME_ALONE),
            given_after_work: count(&GIVEN_AFTER_WORK),
            unresolved: count(&UNRESOLVED),
            api: api as u16,
            device: device as u8,
            requested: Size(size),
        }
    }
}
