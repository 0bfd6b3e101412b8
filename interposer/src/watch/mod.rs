//! After a failed allocation: what the same thread does next.
//!
//! Nothing here runs while no thread has an undecided failure, except one test in each stub.

mod abort;
mod account;
mod directions;
mod empty;
mod exception;
mod failure;
mod last_error;
mod last_words;
mod log_line;
mod printf;
mod stub;
pub(crate) mod waits;

use std::sync::atomic::Ordering;

pub(crate) use account::count_error as error_told;
pub(crate) use failure::{answered, failed, forget_all, is_watched, monotonic_ns, process_ends};
pub(crate) use stub::{slow_path, works_on};

use gpuoom_trace::outcome::{Step, gives_back};
use gpuoom_trace::record::{Event, Record};

use crate::base::guard;
use crate::base::watching::WATCHING;
use crate::call::Frame;
use crate::table;

/// Whether this thread has an undecided failure. A load and a compare while no thread has any.
#[inline(always)]
pub(crate) fn is_awake() -> bool {
    WATCHING.load(Ordering::Relaxed) != 0 && is_watched()
}

/// Bits for the record of an allocation of the program while this thread has an undecided failure. `out`: its pointer
/// variable, of a pin the memory itself.
#[cold]
#[inline(never)]
pub(crate) fn flags_of(out: u64) -> u8 {
    failure::same_variable(out)
}

/// A call inside another one failed.
#[cold]
#[inline(never)]
pub(crate) fn failed_inside(frame: &Frame, status: i32) {
    if table::row(frame.api()).is_out_of_memory(status) {
        frame.is_refused_inside();
    }
}

/// The program gives something back while this thread has an undecided failure.
#[cold]
#[inline(never)]
pub(crate) fn released(record: &Record) {
    if gives_back(record, table::row(record.api).meaning.ends) {
        guard::cold((), || failure::step(Step::GaveBack));
    }
}

/// An allocation of the program succeeded: it may make up for a failed one if this thread [`is_awake`]. The first on a device
/// also makes the recorder's thread look at that device.
#[inline(always)]
pub(crate) fn allocated(frame: &Frame, record: &Record, variable: u64, is_awake: bool) {
    if is_awake && record.event != Event::Import as u8 {
        guard::cold((), || failure::allocated(frame, record, variable));
    }
    if !crate::readings::is_known(record.device) {
        guard::cold((), || {
            crate::readings::first_use(frame.recorder(), record, frame.caller());
        });
    }
}
