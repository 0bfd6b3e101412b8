//! Memory that other threads were given between a failure and the GPU work after it: it may have come in place of what was refused.

use gpuoom_trace::outcome::UNKNOWN_BYTES;
use gpuoom_trace::record::Event;

use crate::diagnosis::case::{Case, Failure};
use crate::judgement::check::{Check, Confidence};
use crate::replay::tracks::calls::{Call, What};
use crate::words::size;

/// What would show it, where their calls are not kept.
const OTHER_CALLS: &str =
    "the calls of other threads between the failure and the GPU work: there were too many to keep";

/// What other threads were given meanwhile.
enum Meanwhile {
    /// Too little to stand for what was refused.
    Nothing,
    /// Enough for that; nothing shows what for.
    Enough,
    /// The block that the work after the failure was given.
    Used { thread: u32, bytes: u64 },
    /// Not all calls were kept.
    Unknown,
}

/// What it does to the diagnosis that the failure was dropped.
pub(super) fn may_have_made_up(case: &Case<'_>, failure: &Failure<'_>, check: &mut Check) {
    match meanwhile(case, failure) {
        // A launch does not say what its kernel works on: that no such block was used is never known, so it is no refuter elsewhere.
        Meanwhile::Used { thread, bytes } => check.unless(true, || {
            format!(
                "thread {thread} was given {} after the failure, and that block is what the work used; the outcome is called dropped \
                 by what the thread of the failure did alone",
                size(bytes)
            )
        }),
        Meanwhile::Enough => {
            check.at_most(Confidence::Possible);
            check.would_settle(
                "whether another thread got the memory for this one: it was given as much, or a part of it, before the GPU work",
            );
        }
        Meanwhile::Unknown => check.would_settle(OTHER_CALLS),
        Meanwhile::Nothing => {}
    }
}

fn meanwhile(case: &Case<'_>, failure: &Failure<'_>) -> Meanwhile {
    let seen = failure.oom.evidence.iter().find(|evidence| evidence.event == Event::GpuWork);
    let Some((work, around)) = seen.zip(case.around(failure)) else { return Meanwhile::Unknown };
    let calls = &case.replay.tracks.calls;
    let worth = case.thresholds.fall_back_share * failure.oom.requested_bytes as f64;
    let mut given_bytes: u64 = 0;
    let mut used = None;
    for number in around.calls_before + 1..calls.count() {
        let Some(call) = calls.get(number) else { return Meanwhile::Unknown };
        if call.at >= work.at {
            break;
        }
        // What was given back since is no block that the work was given, though the address is the same.
        if call.what == What::Returned && used.is_some_and(|used: &Call| used.address == call.address) {
            used = None;
        }
        if call.what != What::Given || call.thread == failure.oom.thread || call.bytes == UNKNOWN_BYTES {
            continue;
        }
        // A trifle, or memory of another sort, is not in the place of what was refused.
        if holds(call, work.address) && call.device == around.device && call.bytes as f64 >= worth {
            used = Some(call);
        }
        given_bytes = given_bytes.saturating_add(call.bytes);
    }
    match used {
        Some(call) => Meanwhile::Used { thread: call.thread, bytes: call.bytes },
        None if given_bytes > 0 && given_bytes as f64 >= worth => Meanwhile::Enough,
        None => Meanwhile::Nothing,
    }
}

/// Whether an address lies in the block that a call gave.
fn holds(call: &Call, address: u64) -> bool {
    address != 0 && address.checked_sub(call.address).is_some_and(|offset| offset < call.bytes)
}
