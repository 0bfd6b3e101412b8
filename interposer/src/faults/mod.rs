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
mod rules;

use std::sync::atomic::{AtomicBool, Ordering};

use gpuoom_trace::record::{Event, Kind, Record, flag};

use crate::base::{config, log, watching};
use crate::call::{Described, Frame};
use crate::record::state;
use crate::table::Library;
use crate::table::{self, Row};

pub(crate) use rules::Reason;

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
    watching::hold();
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

/// What becomes of an allocation while calls may be refused.
pub(crate) enum Verdict {
    /// It is made, and counts on the virtual card, if there is one.
    Made(Option<card::Room>),
    /// It fails in the runtime's place.
    Refused { reason: Reason, number: u64 },
    /// It fails because the virtual card has no room for it, rounded to this granularity.
    Full { granularity_bytes: u64, number: u64 },
}

/// Decides about an allocation before it is made.
#[cold]
#[inline(never)]
pub(crate) fn judge(frame: &Frame, event: Event, kind: Kind, what: &Described) -> Verdict {
    if !frame.is_programs_own() || !counts(event, what) {
        return Verdict::Made(None);
    }
    let number = rules::number();
    if let Some(reason) = rules::refuses(number, what.requested, frame.caller()) {
        return Verdict::Refused { reason, number };
    }
    if what.is_captured {
        return Verdict::Made(None);
    }
    match card::reserve(event, kind, what, frame.thread_device()) {
        Ok(room) => Verdict::Made(room),
        Err(full) => Verdict::Full { granularity_bytes: full.granularity_bytes, number },
    }
}

/// An allocation that was let through has returned.
#[cold]
pub(crate) fn made(room: card::Room, status: i32, kind: Kind, describe: &dyn Fn(bool) -> Described) {
    match status {
        0 => room.becomes(kind, &describe(true)),
        _ => room.give_back(),
    }
}

/// A call that was refused: what is in the file, under which number, and where the program's pointer variable lies.
pub(crate) struct Refusal {
    pub(crate) record: Record,
    pub(crate) seq: Option<u64>,
    pub(crate) out: u64,
}

/// Fails a call as the runtime would, and records that; `flags` are those of its record, by its pointer variable.
pub(crate) fn refuse(
    frame: &Frame,
    event: Event,
    kind: Kind,
    mut what: Described,
    (reason, number): (Reason, u64),
    flags: impl Fn(u64) -> u8,
) -> Refusal {
    let row = table::row(frame.api());
    let status = row.meaning.codes.out_of_memory().first().copied().unwrap_or(2);
    last_error::leave(row.library, status, frame.caller());
    let out = what.address;
    if clears_pointer(row, event, what.kind.unwrap_or(kind)) {
        // SAFETY: the program's own pointer, into which the runtime would have written the same.
        unsafe { (out as *mut u64).write_unaligned(0) };
    }
    what.address = number << 8 | u64::from(reason as u8);
    let record = frame.record(event, kind, status, &what, true);
    let record = Record { kind_flags: record.kind_flags | flag::INJECTED | flags(out), ..record };
    let seq = frame.publish(&record, &what);
    Refusal { record, seq, out }
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
