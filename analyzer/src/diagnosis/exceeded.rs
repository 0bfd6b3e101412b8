//! A limit that was exceeded before is not what refuses: what the process had of a device at once, by its own calls and by the
//! recorder's probe.

use super::case::{Case, Failure};
use crate::judgement::check::{Check, Confidence};
use crate::passes::fragmentation::saturate;
use crate::thresholds::MIB;
use crate::words::size;

/// What would tell whether more than a limit is given all the same.
pub(super) const PROBE: &str = "the largest block that could be allocated after the failure (GPUOOM_PROBE)";
/// The probe looks for the largest block below the request, in steps of this size.
const PROBE_STEP_BYTES: u64 = 2 * MIB;
/// Of a pool that the program made nobody knows whether its memory is the device's.
const POOLS: &str = "what sort of memory the pools give that the program made";

impl<'a> Case<'a> {
    /// What the process held at the failure with the largest block that the recorder's probe was given right after it. What
    /// other threads gave back until then is left out.
    fn tried_bytes(&self, failure: &Failure<'_>) -> Option<u64> {
        let largest = failure.oom.read.largest_allocatable_bytes.filter(|_| !failure.moved.is_unsized)?;
        Some(failure.own_bytes().saturating_sub(failure.moved.returned_bytes).saturating_add(largest))
    }

    /// Whether the recorder's probe was given all that had been refused but for its own step, although the program had given
    /// nothing back.
    pub fn probe_gave_request(&self, failure: &Failure<'_>) -> bool {
        let both = failure.request_bytes().get().zip(failure.oom.read.largest_allocatable_bytes);
        // A request below the probe's step is not given by a probe that was given nothing.
        both.is_some_and(|(request, largest)| largest > 0 && largest.saturating_add(PROBE_STEP_BYTES) >= request)
            && self.is_probe_of_failure(failure)
    }

    /// Whether nothing was given back between the failure and the probe.
    pub fn is_probe_of_failure(&self, failure: &Failure<'_>) -> bool {
        self.before_reading(failure).is_none_or(|done| !self.gave_back(failure, &done))
    }
}

/// A limit of so many bytes of the device's memory for the process is not why a call failed if the process had more before the
/// failure, or right after it.
pub(super) fn unless_exceeded(case: &Case<'_>, failure: &Failure<'_>, limit_bytes: u64, check: &mut Check) {
    let held = saturate(failure.oom.most.held_bytes);
    let tried = case.tried_bytes(failure);
    let is_exceeded = held.max(tried.unwrap_or(0)) > limit_bytes;
    let text = || {
        let limit = size(limit_bytes);
        match (is_exceeded, tried) {
            (true, _) if held > limit_bytes => format!("the process had held {} before, more than {limit}", size(held)),
            (true, Some(tried)) => format!(
                "a block could be allocated right after the failure with which the process held {}, more than {limit}",
                size(tried)
            ),
            (_, Some(_)) => format!("the process had more than {limit} at once, before the failure or right after it"),
            // Nobody looked at what came right after it.
            (_, None) => format!("the process had held more than {limit} before"),
        }
    };
    if is_exceeded && check.is_unsure() {
        // Of what is not known to have the shape nothing need be ruled out.
        check.applies(false);
    } else if is_exceeded && case.replay.made_pools > 0 {
        check.at_most(Confidence::Possible);
        check.would_settle(POOLS);
    } else {
        check.unless(is_exceeded, text);
    }
    needs_probe(failure, check);
}

/// The recorder's probe finds the largest block that is given: without it nobody tried whether more is.
pub(super) fn needs_probe(failure: &Failure<'_>, check: &mut Check) {
    if failure.oom.read.largest_allocatable_bytes.is_none() {
        check.at_most(Confidence::Probable);
        check.would_settle(PROBE);
    }
}
