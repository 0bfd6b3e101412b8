//! After a failed allocation: what the same thread does next.
//!
//! Nothing here runs while no thread has an undecided failure, except one test in each stub.

mod failure;
mod stub;
pub(crate) mod waits;

use std::sync::atomic::Ordering;

pub(crate) use failure::{failed, forget_all, is_watched, process_ends};
pub(crate) use stub::{slow_path, works_on};

use gpuoom_trace::outcome::Step;
use gpuoom_trace::record::Record;

use crate::base::guard;
use crate::base::watching::WATCHING;
use crate::call::Frame;

/// An allocation of the program succeeded: it may be the retry of a failed one. The first on a device also makes the
/// recorder's thread look at that device.
#[inline(always)]
pub(crate) fn allocated(frame: &Frame, record: &Record) {
    if WATCHING.load(Ordering::Relaxed) != 0 && is_watched() {
        let device = record.device();
        guard::cold((), || failure::step(Step::Allocated { device, requested_bytes: record.requested }));
    }
    if !crate::readings::is_known(record.device) {
        guard::cold((), || {
            crate::readings::first_use(frame.recorder(), record, frame.caller());
        });
    }
}
