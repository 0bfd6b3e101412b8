//! The short account of this process's failures that is printed on stderr where it ends.

use std::fmt::{self, Display, Formatter};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use gpuoom_trace::outcome::{Because, Outcome};
use gpuoom_trace::record::{Layer, NO_DEVICE, Record};

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
    let told = [u64::from(record.api), u64::from(record.device), record.requested];
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
    for counter in [&FAILURES, &DROPPED, &PROPAGATED, &RECOVERED, &UNRESOLVED, &NOTICED, &ERRORS, &OWN, &ELSEWHERE] {
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

/// The failures of this process, counted.
struct Account {
    failures: u32,
    errors: u32,
    own: u32,
    dropped: u32,
    propagated: u32,
    recovered: u32,
    /// Of those, by memory of another device.
    elsewhere: u32,
    other_device: u32,
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
            unresolved: count(&UNRESOLVED),
            api: api as u16,
            device: device as u8,
            requested: Size(size),
        }
    }
}

impl Account {
    /// What failed, counted: where an allocator above the runtime told of errors, these reached the program.
    fn fmt_count(&self, out: &mut Formatter<'_>) -> fmt::Result {
        let Account { failures, errors, own, .. } = *self;
        let many = |count: u32| if count == 1 { "" } else { "s" };
        match (errors, failures.saturating_sub(own)) {
            (0, _) => write!(out, "{failures} out-of-memory return{}, ", many(failures)),
            (_, 0) => write!(out, "{errors} out-of-memory error{} of {ALLOCATOR}, ", many(errors)),
            (_, refused) => {
                write!(out, "{errors} out-of-memory error{} of {ALLOCATOR}, {refused} refused call", many(errors))?;
                write!(out, "{} below, ", many(refused))
            }
        }
    }
}

impl Account {
    /// Each failure was made up for. Memory of another device need not be in the place of what was refused.
    fn fmt_recovered(&self, out: &mut Formatter<'_>) -> fmt::Result {
        match self.elsewhere {
            0 => write!(out, "recovered: a later request was given memory"),
            all if all >= self.recovered => {
                write!(out, "recovered: fell back to GPU {}, as far as its calls show", self.other_device)
            }
            some => write!(
                out,
                "recovered: a later request was given memory; {some} fell back to another device (the first: GPU {}), as far as \
                 its calls show",
                self.other_device
            ),
        }
    }
}

/// The only allocator above the runtime that tells of errors.
const ALLOCATOR: &str = "PyTorch's allocator";

impl Display for Account {
    fn fmt(&self, out: &mut Formatter<'_>) -> fmt::Result {
        let Account { failures, dropped, propagated, recovered, unresolved, .. } = *self;
        let undecided = self.undecided();
        self.fmt_count(out)?;
        match dropped {
            0 if recovered == failures => self.fmt_recovered(out)?,
            0 if propagated == failures => write!(
                out,
                "propagated: the program read or reported the error, threw an exception or ended with a failure"
            )?,
            // Nobody reacted before the process ended well.
            0 if undecided == failures => write!(out, "unresolved when the process ended")?,
            0 if unresolved == failures => write!(out, "whose error was read before GPU work went on")?,
            0 => {
                let of_calls = if self.errors > 0 { "of those " } else { "" };
                write!(out, "{of_calls}{recovered} recovered, {propagated} propagated")?;
                // What was read and what was still open when the process ended: of neither it is known what became of it.
                if unresolved + undecided > 0 {
                    write!(out, ", {} unresolved", unresolved + undecided)?;
                }
            }
            _ if dropped == failures => write!(out, "DROPPED as far as its calls show: GPU work went on")?,
            _ => write!(out, "{dropped} of them DROPPED as far as its calls show: GPU work went on")?,
        }
        // Of several, what became of this one is not said here.
        let told = if self.errors > 0 { self.errors } else { failures };
        let first = if told == 1 { "" } else { "the first: " };
        match self.device {
            NO_DEVICE => write!(out, " ({first}host, ")?,
            device => write!(out, " ({first}GPU {device}, ")?,
        }
        let row = table::row(self.api);
        // Its own function has a name for linkers, not for people.
        let name = if row.layer == Layer::Framework { ALLOCATOR } else { row.name };
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
            Account {
                failures,
                errors: 0,
                own: 0,
                dropped,
                propagated,
                recovered,
                elsewhere: 0,
                other_device: 0,
                unresolved: 0,
                api: 0,
                device,
                requested,
            }
        };
        let cleared = Account { unresolved: 1, ..account(1, 0, 0, 0) }.to_string();
        assert!(
            cleared.contains("1 out-of-memory return, whose error was read before GPU work went on (GPU"),
            "{cleared}"
        );
        let mixed = Account { unresolved: 1, ..account(3, 0, 1, 0) }.to_string();
        assert!(mixed.contains("0 recovered, 1 propagated, 2 unresolved (the first: GPU"), "{mixed}");
        let elsewhere = Account { elsewhere: 2, other_device: 1, ..account(2, 0, 0, 2) }.to_string();
        assert!(
            elsewhere.contains("recovered: fell back to GPU 1, as far as its calls show (the first: GPU 0"),
            "{elsewhere}"
        );
        let one_of_two = Account { elsewhere: 1, other_device: 1, ..account(2, 0, 0, 2) }.to_string();
        assert!(
            one_of_two.contains("given memory; 1 fell back to another device (the first: GPU 1), as far"),
            "{one_of_two}"
        );
        let told = Account { errors: 3, ..account(6, 0, 6, 0) }.to_string();
        assert!(
            told.starts_with("3 out-of-memory errors of PyTorch's allocator, 6 refused calls below, propagated: "),
            "{told}"
        );
        let got_over = Account { errors: 1, ..account(3, 0, 2, 1) }.to_string();
        assert!(
            got_over.starts_with(
                "1 out-of-memory error of PyTorch's allocator, 3 refused calls below, of those 1 recovered, 2"
            ),
            "{got_over}"
        );
        let limit = Account { errors: 2, own: 1, api: table::FRAMEWORK as u16, ..account(1, 0, 1, 0) }.to_string();
        assert!(limit.starts_with("2 out-of-memory errors of PyTorch's allocator, propagated: "), "{limit}");
        assert!(limit.ends_with("(the first: GPU 0, PyTorch's allocator 512 MiB)"), "{limit}");
        let account =
            |failures, dropped, propagated, recovered| account(failures, dropped, propagated, recovered).to_string();
        assert_eq!(
            account(1, 1, 0, 0),
            "1 out-of-memory return, DROPPED as far as its calls show: GPU work went on (GPU 0, hipMalloc 512 MiB)"
        );
        assert!(
            account(3, 1, 1, 1)
                .starts_with("3 out-of-memory returns, 1 of them DROPPED as far as its calls show: GPU work went on")
        );
        assert!(account(2, 0, 2, 0).contains(
            "propagated: the program read or reported the error, threw an exception or ended with a failure"
        ));
        assert!(account(3, 0, 1, 2).contains("2 recovered, 1 propagated (the first: GPU"));
        assert!(account(1, 0, 0, 0).contains("1 out-of-memory return, unresolved when the process ended"));
        assert!(account(3, 0, 1, 1).contains("1 recovered, 1 propagated, 1 unresolved (the first: GPU"));
    }
}
