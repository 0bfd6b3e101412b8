//! How a planned request is recorded around the real one. As `describe.rs` does for functions, but `ioctl` answers -1 and
//! `errno`, some drivers put their status elsewhere, and a call that was only interrupted says nothing about memory.

use std::ffi::c_int;

use gpuoom_trace::metadata::{self, Quantity, Reading, trigger};
use gpuoom_trace::payload as packed;
use gpuoom_trace::record::{Event, Kind, MAX_PAYLOAD_BYTES, Record, flag};

use super::payload::Payload;
use super::plan::{How, Plan};
use crate::base::guard;
use crate::call::Frame;
use crate::watch;

/// `NV_ERR_NO_MEMORY` and `NV_ERR_GENERIC` (`nvstatuscodes.h`), for requests that failed before NVIDIA's driver set a status.
const NV_ERR_NO_MEMORY: i32 = 0x51;
const NV_ERR_GENERIC: i32 = 0xFFFF;

/// What came of a request.
enum Outcome {
    Succeeded,
    Failed(i32),
    /// To be asked again by the caller.
    Interrupted,
}

/// The outcome, and the payload with the driver's answer.
fn outcome(plan: &Plan, payload: &Payload, result: c_int) -> (Outcome, Payload) {
    let errno = guard::errno();
    if result != 0 {
        let failed = match errno {
            libc::EINTR | libc::EAGAIN => Outcome::Interrupted,
            libc::ENOMEM if plan.status_at.is_some() => Outcome::Failed(NV_ERR_NO_MEMORY),
            _ if plan.status_at.is_some() => Outcome::Failed(NV_ERR_GENERIC),
            _ => Outcome::Failed(errno.max(1)),
        };
        return (failed, *payload);
    }
    let Some(after) = payload.again() else { return (Outcome::Failed(libc::EFAULT), *payload) };
    match plan.status_at.map(|at| after.u32(at).unwrap_or(0)) {
        None | Some(0) => (Outcome::Succeeded, after),
        Some(status) => (Outcome::Failed(status as i32), after),
    }
}

/// Makes the request, and records it in the way of its plan. `errno` is the request's afterwards.
pub(super) fn make(frame: &Frame, plan: &Plan, payload: &Payload, real: impl Fn() -> c_int) -> c_int {
    match plan.how {
        How::Gives => give(frame, plan, payload, real),
        How::Takes | How::Asks | How::Tells => take(frame, plan, payload, real),
    }
}

fn take(frame: &Frame, plan: &Plan, payload: &Payload, real: impl Fn() -> c_int) -> c_int {
    let errno_before = guard::errno();
    let is_allocation = matches!(plan.event, Event::Alloc | Event::Pin);
    if is_allocation {
        frame.note_under_way(plan.what.requested);
    }
    guard::set_errno(errno_before);
    let result = real();
    let errno = guard::errno();
    let (outcome, after) = outcome(plan, payload, result);
    match outcome {
        Outcome::Interrupted => {}
        Outcome::Succeeded if plan.how == How::Asks => told(frame, plan, &after),
        Outcome::Succeeded => taken(frame, plan, 0, Some(&after)),
        Outcome::Failed(_) if plan.how == How::Asks => {}
        Outcome::Failed(status) => taken(frame, plan, status, None),
    }
    if is_allocation {
        frame.clear_under_way();
    }
    frame.leave();
    guard::set_errno(errno);
    result
}

fn taken(frame: &Frame, plan: &Plan, status: i32, after: Option<&Payload>) {
    let mut what = plan.what;
    if let Some(after) = after {
        (plan.complete)(&mut what, after);
    }
    let record = frame.record(plan.event, plan.kind, status, &what, true);
    let seq = frame.publish(&record, &what);
    if !matches!(plan.event, Event::Alloc | Event::Pin) {
        return;
    }
    if !frame.is_programs_own() {
        if status != 0 {
            watch::failed_inside(frame, status);
        }
        return;
    }
    if status == 0 {
        watch::allocated(frame, &record, 0, watch::is_awake());
    } else {
        watch::failed(frame, &record, seq, 0);
    }
}

/// The program or its runtime was told how much is left: a reading that costs nothing.
fn told(frame: &Frame, plan: &Plan, after: &Payload) {
    let mut what = plan.what;
    (plan.complete)(&mut what, after);
    let device = what.device.unwrap_or(0);
    let reading = Reading { quantity: Quantity::KfdAvailable as u16, device, value: what.requested };
    let mut bytes = [0; 64];
    let used = metadata::encode_readings(&[reading], &mut bytes);
    let mut out = [0; MAX_PAYLOAD_BYTES];
    what.requested = 0;
    let record = frame.record(Event::Reading, Kind::None, trigger::PROGRAM, &what, true);
    frame.recorder().publish_long(&record, packed::pack(&bytes[..used], &mut out));
}

fn give(frame: &Frame, plan: &Plan, payload: &Payload, real: impl Fn() -> c_int) -> c_int {
    let errno_before = guard::errno();
    let record = frame.record(plan.event, plan.kind, 0, &plan.what, false);
    frame.publish(&record, &plan.what);
    guard::set_errno(errno_before);
    let result = real();
    let errno = guard::errno();
    let status = match outcome(plan, payload, result).0 {
        Outcome::Succeeded => 0,
        Outcome::Failed(status) => status,
        Outcome::Interrupted => errno,
    };
    if status != 0 {
        let corrected = Record { status, kind_flags: record.kind_flags | flag::CORRECTION, ..record };
        frame.publish(&corrected, &plan.what);
    }
    frame.leave();
    guard::set_errno(errno);
    result
}
