//! Failures on request: a virtual card that is smaller than the real one (`GPUOOM_CAPACITY`), and injection
//! (`GPUOOM_INJECT`). A call that is refused never reaches the runtime; the program sees what the runtime's own failure
//! would have shown it.
//!
//! Only the program's own, outermost calls are refused and counted: what a runtime does inside a call that was let through
//! is its own affair. Without these settings each hook has one test more, and nothing is stored.

mod answers;
mod blocks;
mod card;
mod contexts;
mod last_error;
pub(crate) mod rules;

use std::sync::atomic::{AtomicBool, Ordering};

use gpuoom_trace::record::{Event, Kind, Record, flag, injected};
use gpuoom_trace::status;

use crate::apis::{self, Row};
use crate::link::Library;
use crate::record::{Described, Frame};
use crate::{config, log, state, watch};

pub(crate) use last_error::Refused;

/// Why a call is refused; the numbers are those of the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Reason {
    /// The virtual card has no room for it.
    Capacity = injected::CAPACITY,
    /// `oom@N`.
    Call = injected::CALL,
    /// `oom>SIZE`.
    Size = injected::SIZE,
    /// `oom%PERCENT`.
    Chance = injected::CHANCE,
    /// `oom@FILE+OFFSET`.
    Site = injected::SITE,
}

static ON: AtomicBool = AtomicBool::new(false);

/// Whether calls may be refused in this process.
#[inline(always)]
pub(crate) fn is_on() -> bool {
    // Relaxed: set before the program runs.
    ON.load(Ordering::Relaxed)
}

/// Sets up what the settings ask for. Before the program runs.
pub(crate) fn prepare() {
    let config = config::get();
    if config.disabled || (config.capacity_bytes.is_none() && config.inject.is_empty()) {
        return;
    }
    if config.capacity_bytes.is_some() && !blocks::prepare() {
        return log::error(format_args!("no memory for the virtual card's table; GPUOOM_CAPACITY is not in force"));
    }
    answers::prepare();
    ON.store(true, Ordering::Relaxed);
    watch::hold();
}

/// Recording begins in this process: calls are counted from 1, and its card is empty.
pub(crate) fn forget_parent() {
    if is_on() {
        rules::forget();
        card::forget_all();
    }
}

/// What a stub is to jump to in the place of `real`.
pub(crate) fn instead(api: u16, caller: usize, real: *const ()) -> Option<*const ()> {
    let is_off = state::running().is_none() && !state::is_unused();
    if is_off { None } else { answers::instead(api, caller, real) }
}

/// Whether a call counts: it asks for memory, and it could be told that there is none.
fn counts(event: Event, what: &Described) -> bool {
    // Where no pointer is given for the answer, the runtime has something else to complain about.
    matches!(event, Event::Alloc | Event::Pin) && what.address != 0
}

/// An allocation while calls may be refused.
#[cold]
#[inline(never)]
pub(crate) fn allocation(
    frame: &Frame,
    event: Event,
    kind: Kind,
    describe: &dyn Fn(bool) -> Described,
    real: &dyn Fn() -> i32,
) -> i32 {
    let what = describe(false);
    if !frame.is_programs_own() || !counts(event, &what) {
        return apis::allocate(frame, event, kind, describe, real);
    }
    let number = rules::number();
    let injected = rules::refuses(number, what.requested, frame.caller());
    let room = match injected {
        Some(reason) => return refuse(frame, event, kind, what, reason, number),
        None => card::reserve(event, kind, &what, frame.thread_device()),
    };
    let room = match room {
        Ok(room) => room,
        Err(full) => {
            // The pool, if one was named, comes first.
            let pool = if what.number_count > 0 { what.numbers[0] } else { 0 };
            let what = Described { numbers: [pool, full.granularity_bytes], number_count: 2, ..what };
            return refuse(frame, event, kind, what, Reason::Capacity, number);
        }
    };
    let status = apis::allocate(frame, event, kind, describe, real);
    if let Some(room) = room {
        match status {
            0 => room.becomes(kind, &describe(true)),
            _ => room.give_back(),
        }
    }
    status
}

/// Fails a call as the runtime would, and records that.
fn refuse(frame: &Frame, event: Event, kind: Kind, mut what: Described, reason: Reason, number: u64) -> i32 {
    let row = apis::row(frame.api());
    let status = status::out_of_memory_codes(row.name, Some(row.layer)).first().copied().unwrap_or(2);
    last_error::leave(row.library, status, frame.caller());
    let out = what.address;
    if clears_pointer(row, event, what.kind.unwrap_or(kind)) {
        // SAFETY: the program's own pointer, into which the runtime would have written the same.
        unsafe { (out as *mut u64).write_unaligned(0) };
    }
    what.address = number << 8 | u64::from(reason as u8);
    let record = frame.record(event, kind, status, &what, true);
    let variable = if watch::is_awake() { watch::flags_of(out) } else { 0 };
    let record = Record { kind_flags: record.kind_flags | flag::INJECTED | variable, ..record };
    let seq = frame.publish(&record, &what);
    watch::failed(frame, &record, seq, out);
    frame.leave();
    status
}

/// Whether the runtime leaves a null pointer behind when there is no memory. HIP stores what its allocator gave it, before
/// it looks (ROCm/clr `hip_memory.cpp`, `ihipMalloc`; `hip_mempool.cpp`); CUDA leaves the variable alone.
fn clears_pointer(row: &Row, event: Event, kind: Kind) -> bool {
    let from_allocator = matches!(kind, Kind::Device | Kind::Managed | Kind::HostPinned | Kind::Pool);
    row.library == Library::Hip && event == Event::Alloc && from_allocator
}

/// A call that gives something back, while calls may be refused.
#[cold]
#[inline(never)]
pub(crate) fn release(frame: &Frame, event: Event, kind: Kind, what: &Described, real: &dyn Fn() -> i32) -> i32 {
    // What ends a context or a device counts whoever asked for it: a runtime may do it for the program.
    let counts = frame.is_programs_own() || event == Event::Device;
    if card::capacity_bytes().is_none() || !counts {
        return real();
    }
    card::release(event, what.kind.unwrap_or(kind), frame.api(), what, frame.thread_device(), real)
}

/// The primary context of a device was asked for.
pub(crate) fn retained(device: u8, context: u64) {
    if is_on() {
        contexts::retained(device, context);
    }
}

/// A call that names something has returned, while calls may be refused.
#[cold]
#[inline(never)]
pub(crate) fn named(frame: &Frame, event: Event, kind: Kind, status: i32, what: &Described) {
    if card::capacity_bytes().is_some() && frame.is_programs_own() && status == 0 {
        card::named(event, kind, what);
    }
}
