//! How a call is recorded around the real one: before it or after it, and what a failure makes of it.

use gpuoom_trace::meaning::Ends;
use gpuoom_trace::outcome::UNKNOWN_BYTES;
use gpuoom_trace::record::{Event, Kind, Record, flag};

use super::scopes;
use crate::base::{captures, guard, thread};
use crate::call::{Described, Frame, probed};
use crate::devices::contexts::say_context;
use crate::faults::{Reason, Verdict};
use crate::{faults, link, readings, table, watch};

/// A call in one of the functions below.
pub(super) struct Call {
    /// The call under way, `None` when it is only forwarded.
    pub(super) frame: Option<Frame>,
    /// Row of the function.
    pub(super) api: u16,
    /// What it means.
    pub(super) event: Event,
    /// The sort of memory.
    pub(super) kind: Kind,
}

/// The real function for the hook that was just entered.
#[inline(always)]
pub(super) fn real_of(api: u16) -> *const () {
    link::real(api, thread::current().caller.get())
}

/// Allocations: recorded after the call, because only then the address is known, and because another thread can't get the
/// same address before this one frees it. One that a capture made a node of a graph is recorded as such a node.
#[inline(always)]
pub(super) fn allocation(call: Call, describe: impl Fn(bool) -> Described, real: impl Fn() -> i32) -> i32 {
    let Some(frame) = call.frame else {
        let status = real();
        if probed::is_under_way() {
            probed::asked(call.api, describe(false).requested);
            if status == 0 {
                probed::taken(call.api, describe(true).address);
            }
        }
        return status;
    };
    if faults::is_on() {
        return judged(&frame, call.event, call.kind, &describe, &real);
    }
    allocate(&frame, call.event, call.kind, describe, real)
}

/// The same while calls may be refused.
#[cold]
#[inline(never)]
fn judged(
    frame: &Frame,
    event: Event,
    kind: Kind,
    describe: &dyn Fn(bool) -> Described,
    real: &dyn Fn() -> i32,
) -> i32 {
    let what = describe(false);
    match faults::judge(frame, event, kind, &what) {
        Verdict::Refused { reason, number } => refuse(frame, event, kind, what, (reason, number)),
        Verdict::Full { granularity_bytes, number } => {
            // The pool, if one was named, comes first.
            let pool = if what.number_count > 0 { what.numbers[0] } else { 0 };
            let what = Described { numbers: [pool, granularity_bytes], number_count: 2, ..what };
            refuse(frame, event, kind, what, (Reason::Capacity, number))
        }
        Verdict::Made(room) => {
            let status = allocate(frame, event, kind, describe, real);
            if let Some(room) = room {
                faults::made(room, status, kind, describe);
            }
            status
        }
    }
}

/// The call fails in the runtime's place, and is watched like any other that failed.
fn refuse(frame: &Frame, event: Event, kind: Kind, what: Described, why: (Reason, u64)) -> i32 {
    scopes::asked(frame, 0);
    let flags = |out| if watch::is_awake() { watch::flags_of(out) } else { 0 };
    let refusal = faults::refuse(frame, event, kind, what, why, flags);
    watch::failed(frame, &refusal.record, refusal.seq, refusal.out);
    frame.leave();
    refusal.record.status
}

/// The same, once it is clear that the call is made.
#[inline(always)]
fn allocate(
    frame: &Frame,
    event: Event,
    kind: Kind,
    describe: impl Fn(bool) -> Described,
    real: impl Fn() -> i32,
) -> i32 {
    frame.note_under_way(describe(false).requested);
    readings::unless_probed(frame);
    let status = real();
    let status = if status == 0 { 0 } else { readings::again_if_probed(frame, status, &real) };
    if status == 0 {
        say_context(frame);
    }
    let mut what = describe(status == 0);
    let out = what.address;
    if status != 0 && event != Event::Pin {
        what.address = 0;
    }
    scopes::asked(frame, if status == 0 { what.address } else { 0 });
    let is_node = status == 0 && what.is_captured;
    if is_node {
        what.number_count = 0;
    }
    let mut record = frame.record(if is_node { Event::Reserve } else { event }, kind, status, &what, true);
    let is_awake = frame.is_programs_own() && watch::is_awake();
    if is_awake {
        record.kind_flags |= watch::flags_of(describe(false).address);
    }
    let seq = frame.publish(&record, &what);
    frame.clear_under_way();
    if frame.is_programs_own() {
        if is_node {
            // Nothing was given yet: it makes up for no failure.
        } else if status == 0 {
            watch::allocated(frame, &record, if is_awake { describe(false).address } else { 0 }, is_awake);
        } else {
            watch::failed(frame, &record, seq, out);
        }
    } else if status != 0 {
        watch::failed_inside(frame, status);
    }
    if record.kind() == Kind::Pool {
        readings::pool_used();
    }
    frame.leave();
    status
}

/// Frees, unmaps and unpins: recorded before the call, because another thread may get the address as soon as it is free.
/// A free that then fails is corrected by a second record.
#[inline(always)]
pub(super) fn release(call: Call, describe: impl Fn(bool) -> Described, real: impl Fn() -> i32) -> i32 {
    let given_back = || probed::is_under_way().then(|| probed::given_back(call.api, describe(true).address))?;
    let Some(frame) = call.frame.or_else(given_back) else { return real() };
    let what = describe(true);
    let record = frame.record(call.event, call.kind, 0, &what, false);
    frame.publish(&record, &what);
    if frame.is_programs_own() && watch::is_awake() {
        watch::released(&record);
    }
    let status = match faults::is_on() {
        false => real(),
        true => faults::release(&frame, call.event, call.kind, &what, &real),
    };
    if status != 0 {
        let corrected = Record { status, kind_flags: record.kind_flags | flag::CORRECTION, ..record };
        frame.publish(&corrected, &what);
    } else if call.kind == Kind::Pool && call.event == Event::Free {
        watch::waits::deferred();
    }
    frame.leave();
    status
}

/// Calls that end all that a device or a context holds. The recorder's thread stays out of the vendor's code meanwhile.
#[inline(always)]
pub(super) fn ending(call: Call, describe: impl Fn(bool) -> Described, real: impl Fn() -> i32) -> i32 {
    let Some(frame) = call.frame.filter(Frame::is_programs_own) else { return release(call, describe, real) };
    let _pause = guard::cold(None, || Some(readings::Pause::begin()));
    let device = describe(true).device.unwrap_or(frame.thread_device());
    let ends = table::row(call.api).meaning.ends;
    let status = release(call, describe, real);
    // Where only the last of several references ends it, or another context than the runtime's, the runtime's own stays.
    if status == 0 && matches!(ends, Ends::Primary | Ends::CudaDevice) {
        readings::was_reset(device);
    }
    status
}

/// Calls that name something and take no memory that anybody counts (a pool, an address range, a mapping, a module), or
/// that tell something of what is there (an export, a trim).
#[inline(always)]
pub(super) fn naming(call: Call, describe: impl Fn(bool) -> Described, real: impl Fn() -> i32) -> i32 {
    let Some(frame) = call.frame else { return real() };
    // Mapping memory is what drivers were seen to hang in.
    let maps = call.event == Event::Map && call.kind == Kind::Physical;
    if maps {
        frame.note_under_way(describe(false).requested);
    }
    let status = real();
    let mut what = describe(status == 0);
    if status != 0 && (matches!(call.event, Event::Reserve | Event::Module) || call.kind == Kind::Imported) {
        // Only the place for the answer is known; where the program itself gives the address, that stays.
        what.address = 0;
    }
    frame.publish(&frame.record(call.event, call.kind, status, &what, true), &what);
    if faults::is_on() {
        faults::named(&frame, call.event, call.kind, status, &what);
    }
    if call.event == Event::Reserve && call.kind == Kind::Pool {
        readings::pool_used();
    }
    if maps {
        frame.clear_under_way();
    }
    frame.leave();
    status
}

/// Managed memory is sent somewhere: GPU work for a failure that is open on this thread, and a record of its own anyway.
#[inline(always)]
pub(super) fn migration(call: Call, describe: impl Fn(bool) -> Described, real: impl Fn() -> i32) -> i32 {
    if let Some(frame) = &call.frame {
        let what = describe(false);
        if what.requested != 0 {
            watch::works_on(frame, &[what.address]);
        }
    }
    naming(call, describe, real)
}

/// Calls that set something up whose memory nobody counts (a library's handle, a context): the status is what matters.
#[inline(always)]
pub(super) fn creation(call: Call, describe: impl Fn(bool) -> Described, real: impl Fn() -> i32) -> i32 {
    let Some(frame) = call.frame else { return real() };
    frame.note_under_way(0);
    let status = real();
    let mut what = Described { requested: 0, ..describe(status == 0) };
    let out = what.address;
    if status != 0 {
        what.address = 0;
        scopes::asked(&frame, 0);
    }
    let record = frame.record(call.event, call.kind, status, &what, true);
    let seq = frame.publish(&record, &what);
    frame.clear_under_way();
    if frame.is_programs_own() {
        // How much it takes is not known: only its own success, or another's of its sort, makes up for its failure.
        let record = Record { requested: UNKNOWN_BYTES, ..record };
        if status == 0 {
            let variable = describe(false).address;
            watch::allocated(&frame, &record, variable, watch::is_awake());
        } else {
            watch::failed(&frame, &record, seq, out);
        }
    }
    frame.leave();
    status
}

/// A node of a graph of any sort: only one that allocates is recorded. A graph has thousands of the others.
#[inline(always)]
pub(super) fn graph_node(call: Call, describe: impl Fn(bool) -> Described, real: impl Fn() -> i32) -> i32 {
    if call.frame.is_some() && describe(false).requested == 0 {
        if let Some(frame) = call.frame {
            frame.leave();
        }
        return real();
    }
    naming(call, describe, real)
}

/// The choice of a device for the thread: remembered, and recorded only after a failure.
#[inline(always)]
pub(super) fn selection(call: Call, describe: impl Fn(bool) -> Described, real: impl Fn() -> i32) -> i32 {
    let status = real();
    let Some(frame) = call.frame else { return status };
    let what = describe(true);
    if let (0, Some(device)) = (status, what.device) {
        thread::current().device.set(device);
    }
    if watch::is_watched() {
        frame.publish(&frame.record(call.event, call.kind, status, &what, true), &what);
    }
    frame.leave();
    status
}

/// The capture of a stream begins: while it lasts, an allocation by anybody would break it, so nothing is probed.
#[inline(always)]
pub(super) fn capture_begun(call: Call, describe: impl Fn(bool) -> Described, real: impl Fn() -> i32) -> i32 {
    capture(call, describe, real, true)
}

/// The capture of a stream ends.
#[inline(always)]
pub(super) fn capture_ended(call: Call, describe: impl Fn(bool) -> Described, real: impl Fn() -> i32) -> i32 {
    capture(call, describe, real, false)
}

#[inline(always)]
fn capture(call: Call, describe: impl Fn(bool) -> Described, real: impl Fn() -> i32, begins: bool) -> i32 {
    let is_programs_own = call.frame.is_some_and(|frame| frame.is_programs_own());
    let stream = describe(false).address;
    let status = naming(call, describe, real);
    if is_programs_own && !begins {
        captures::end(stream, status);
    } else if is_programs_own && status == 0 {
        captures::begin(stream);
    }
    status
}
