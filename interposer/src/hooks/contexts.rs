//! Hooks on what makes, chooses and ends contexts.

use gpuoom_trace::record::NO_DEVICE;

use super::around::{Call, creation, ending, selection};
use super::describe::{Out, Pointer, block, device_number, given};
use crate::base::thread;
use crate::call::Described;
use crate::devices::contexts;
use crate::faults;

/// A context that is set up for a device. `cuCtxCreate` also makes it the thread's.
#[inline(always)]
pub(super) fn context(call: Call, describe: impl Fn(bool) -> Described, real: impl Fn() -> i32) -> i32 {
    let status = creation(call, &describe, real);
    if status == 0 {
        let what = describe(true);
        contexts::remember(what.address, what.device.unwrap_or(NO_DEVICE));
        match what.requested {
            0 => faults::retained(what.device.unwrap_or(NO_DEVICE), what.address),
            _ => contexts::push(what.address, what.device.unwrap_or(NO_DEVICE)),
        }
    }
    status
}

/// A context takes the place of the thread's current one.
#[inline(always)]
pub(super) fn context_selected(call: Call, describe: impl Fn(bool) -> Described, real: impl Fn() -> i32) -> i32 {
    let is_ours = call.frame.is_some();
    let status = selection(call, &describe, real);
    if is_ours && status == 0 {
        contexts::select(describe(true).address);
    }
    status
}

/// A context becomes the thread's, with the one before kept below it.
#[inline(always)]
pub(super) fn context_pushed(call: Call, describe: impl Fn(bool) -> Described, real: impl Fn() -> i32) -> i32 {
    let Some(frame) = call.frame else { return real() };
    let status = real();
    let what = describe(true);
    if status == 0 {
        // Also one that is not known: it is popped like any other.
        contexts::push(what.address, what.device.unwrap_or(NO_DEVICE));
    }
    frame.leave();
    status
}

/// A context is destroyed, with all that it holds. The thread's current one is taken away with that.
#[inline(always)]
pub(super) fn context_destroyed(call: Call, describe: impl Fn(bool) -> Described, real: impl Fn() -> i32) -> i32 {
    let context = describe(false).address;
    let call_is_ours = call.frame.is_some();
    let was_current = call_is_ours && contexts::is_current(context);
    let (device, place) = (contexts::device_of(context), contexts::place_of(context));
    contexts::forget(context);
    let status = ending(call, describe, real);
    match device {
        // The place that threads have on their stacks, if nobody took it meanwhile.
        Some(device) if status != 0 => contexts::put_back(context, device, place),
        _ if status == 0 && was_current => contexts::pop(),
        _ => {}
    }
    if call_is_ours && status == 0 {
        contexts::deselect(place);
    }
    status
}

/// The thread's context is taken away, and the one below it counts again.
#[inline(always)]
pub(super) fn context_popped(call: Call, _describe: impl Fn(bool) -> Described, real: impl Fn() -> i32) -> i32 {
    let Some(frame) = call.frame else { return real() };
    let status = real();
    if status == 0 {
        contexts::pop();
    }
    frame.leave();
    status
}

/// HIP names a device's context. That makes it nobody's current one, `hipCtxCreate` included.
#[inline(always)]
pub(super) fn hip_context(call: Call, describe: impl Fn(bool) -> Described, real: impl Fn() -> i32) -> i32 {
    let Some(frame) = call.frame else { return real() };
    let status = real();
    let what = describe(status == 0);
    if let (0, Some(device)) = (status, what.device) {
        contexts::remember_hip(device, what.address);
    }
    frame.leave();
    status
}

/// A context of HIP's that becomes the thread's: its device does, and stays so when the context is popped.
pub(super) fn of_hip_context(context: Pointer) -> Described {
    Described { device: contexts::device_of_hip(context), ..given(context) }
}

/// The context of the thread's own device.
///
/// # Safety
/// As [`block`].
pub(super) unsafe fn hip_current(done: bool, out: Out) -> Described {
    // SAFETY: promised by the caller; this thread's own state.
    unsafe { Described { device: Some(thread::current().device.get()), ..block(done, out, 0) } }
}

/// A context for a device; `is_current`: it becomes the thread's.
///
/// # Safety
/// As [`block`].
pub(super) unsafe fn context_of(done: bool, out: Out, device: i32, is_current: bool) -> Described {
    // SAFETY: promised by the caller.
    unsafe { Described { device: Some(device_number(device)), ..block(done, out, usize::from(is_current)) } }
}

/// The device of a context.
pub(super) fn of_context(context: Pointer) -> Described {
    Described { device: contexts::device_of(context), ..given(context) }
}
