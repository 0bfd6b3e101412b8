//! Which device a CUDA driver context belongs to, which ones a thread has put aside, and which one its allocations are in.
//! HIP's contexts are devices in other words (ROCm/clr `hip_context.cpp`): of these only the device is followed.

use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, AtomicUsize, Ordering};

use gpuoom_trace::record::{Event, Kind, NO_DEVICE, Record};

use crate::base::thread;
use crate::call::Frame;

/// Contexts that are remembered: programs have one per device, rarely a few more.
const CONTEXTS: usize = 64;

static HANDLES: [AtomicU64; CONTEXTS] = [const { AtomicU64::new(0) }; CONTEXTS];
static DEVICES: [AtomicU8; CONTEXTS] = [const { AtomicU8::new(NO_DEVICE) }; CONTEXTS];

/// HIP's contexts by device, which is as many as there can be: each is the device's own object and stays for good.
static HIP: [AtomicU64; CONTEXTS] = [const { AtomicU64::new(0) }; CONTEXTS];

/// Where the next context is put: a place that was given up is used late, because threads may still have it on their stacks.
static NEXT: AtomicUsize = AtomicUsize::new(0);

/// Whether the process ever had a context: without one, none is ever spoken of.
static ANY: AtomicBool = AtomicBool::new(false);

/// A context exists. A handle that is given out again may belong to another device then.
pub(crate) fn remember(context: u64, device: u8) {
    // Relaxed: who has the context current has it from a call that came after this.
    ANY.store(true, Ordering::Relaxed);
    let first = NEXT.fetch_add(1, Ordering::Relaxed);
    let claims =
        |place: &usize| HANDLES[*place].compare_exchange(0, context, Ordering::AcqRel, Ordering::Acquire).is_ok();
    let place = index_of(context).or_else(|| (0..CONTEXTS).map(|step| (first + step) % CONTEXTS).find(claims));
    if let Some(place) = place {
        DEVICES[place].store(device, Ordering::Release);
    }
}

fn index_of(context: u64) -> Option<usize> {
    HANDLES.iter().position(|handle| context != 0 && handle.load(Ordering::Acquire) == context)
}

/// The device of a context that was seen when it was made.
pub(crate) fn device_of(context: u64) -> Option<u8> {
    Some(DEVICES[index_of(context)?].load(Ordering::Acquire)).filter(|device| *device != NO_DEVICE)
}

/// What a thread remembers of its current context.
pub(crate) fn place_of(context: u64) -> u8 {
    index_of(context).map_or(0, |index| index as u8 + 1)
}

/// A context is there still.
pub(crate) fn put_back(context: u64, device: u8, place: u8) {
    let before = usize::from(place).checked_sub(1).and_then(|index| HANDLES.get(index));
    let claim = |handle: &AtomicU64| handle.compare_exchange(0, context, Ordering::AcqRel, Ordering::Acquire).is_ok();
    if !before.is_some_and(claim) {
        remember(context, device);
    }
}

/// A context is gone: nothing may be asked of it any more.
pub(crate) fn forget(context: u64) {
    for handle in &HANDLES {
        let _ = handle.compare_exchange(context, 0, Ordering::AcqRel, Ordering::Relaxed);
    }
}

/// A context of the program on a device.
pub(crate) fn context_on(device: u8) -> Option<u64> {
    let contexts = HANDLES.iter().zip(&DEVICES);
    let mut on_device = contexts.filter(|(_, known)| known.load(Ordering::Acquire) == device);
    on_device.find_map(|(handle, _)| Some(handle.load(Ordering::Acquire)).filter(|context| *context != 0))
}

/// The calling thread's context, 0 where it is not known.
pub(crate) fn current_context() -> u64 {
    let place = usize::from(thread::current().context.get()).checked_sub(1);
    place.and_then(|place| HANDLES.get(place)).map_or(0, |handle| handle.load(Ordering::Acquire))
}

/// The calling thread's context and its device are these from now on; the ones before are kept below them.
pub(crate) fn push(context: u64, device: u8) {
    let state = thread::current();
    state.devices_below.set(state.devices_below.get() << 8 | u64::from(state.device.get()));
    state.contexts_below.set(state.contexts_below.get() << 8 | u64::from(state.context.get()));
    state.device.set(device);
    state.context.set(place_of(context));
    state.context_changed.set(true);
}

/// The context below is the thread's again, and so is its device.
pub(crate) fn pop() {
    let state = thread::current();
    state.device.set(state.devices_below.get() as u8);
    state.context.set(state.contexts_below.get() as u8);
    state.context_changed.set(true);
    state.devices_below.set(state.devices_below.get() >> 8);
    state.contexts_below.set(state.contexts_below.get() >> 8);
}

/// A context that is gone may lie below the current one, too. It stays there, as in the driver, but is not to be taken for
/// another one that has its place later.
fn forget_below(place: u8) {
    let below = &thread::current().contexts_below;
    for shift in (0..u64::BITS).step_by(8) {
        if place != 0 && (below.get() >> shift) as u8 == place {
            below.set(below.get() & !(0xFF << shift));
        }
    }
}

pub(crate) fn is_current(context: u64) -> bool {
    let current = thread::current().context.get();
    current != 0 && current == place_of(context)
}

/// Says in the file which context this thread's allocations belong to from now on, if that is another than before. Said
/// only when the thread allocates: a library may change the context for every call that it makes.
#[inline(always)]
pub(crate) fn say_context(frame: &Frame) {
    if thread::current().context_changed.get() {
        say(frame);
    }
}

#[cold]
#[inline(never)]
fn say(frame: &Frame) {
    let context = current_context();
    let state = thread::current();
    let is_news = state.context_said.get() != context && (context != 0 || ANY.load(Ordering::Relaxed));
    let record = Record {
        at: frame.began_at(),
        thread: state.thread.get(),
        device: state.device.get(),
        address: context,
        ..Record::new(Event::Context, Kind::None)
    };
    // Where it is lost, the next allocation tries again.
    if is_news && frame.recorder().publish(&record).is_none() {
        return;
    }
    if is_news {
        state.context_said.set(context);
    }
    state.context_changed.set(false);
}

/// HIP names a device's context.
pub(crate) fn remember_hip(device: u8, context: u64) {
    if let Some(place) = HIP.get(usize::from(device)) {
        // Relaxed: who chooses the context has it from a call that came after this.
        place.store(context, Ordering::Relaxed);
    }
}

/// The device of a context of HIP's.
pub(crate) fn device_of_hip(context: u64) -> Option<u8> {
    let device = HIP.iter().position(|known| context != 0 && known.load(Ordering::Relaxed) == context);
    device.map(|device| device as u8)
}

/// Makes a context the thread's current one; 0 for an unknown context.
pub(crate) fn select(context: u64) {
    thread::current().context.set(place_of(context));
    thread::current().context_changed.set(true);
}

/// A context that had this place is gone: it is nobody's current one on this thread.
pub(crate) fn deselect(place: u8) {
    forget_below(place);
    if place != 0 && thread::current().context.get() == place {
        thread::current().context.set(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_context_of_hip_is_its_device() {
        assert_eq!(device_of_hip(0x55), None);
        remember_hip(2, 0x55);
        assert_eq!((device_of_hip(0x55), device_of_hip(0)), (Some(2), None));
    }

    #[test]
    fn a_place_that_was_given_up_is_not_taken_for_another_context() {
        let places = [0x201, 0x202, 0x203].map(|context| {
            remember(context, 1);
            remember(context, 1);
            place_of(context)
        });
        assert!(places.iter().all(|place| *place != 0) && places[0] != places[1] && places[1] != places[2]);
        push(0x202, 1);
        push(0x203, 2);
        forget(0x202);
        remember(0x204, 7);
        assert_ne!(place_of(0x204), places[1], "places come again late");
        forget_below(places[1]);
        put_back(0x202, 1, places[1]);
        assert_eq!(place_of(0x202), places[1], "as after a destruction that failed");
        pop();
        assert!(!is_current(0x202) && !is_current(0x203));
        pop();
        [0x201, 0x202, 0x203, 0x204].into_iter().for_each(forget);
    }

    #[test]
    fn contexts_lead_to_devices_and_come_back() {
        remember(0x77, 3);
        remember(0x88, 5);
        assert_eq!((device_of(0x77), device_of(0x88), device_of(0), device_of(0x99)), (Some(3), Some(5), None, None));
        remember(0x77, 4);
        assert_eq!(device_of(0x77), Some(4));
        let device = || thread::current().device.get();
        assert_eq!((context_on(5), context_on(9)), (Some(0x88), None));
        forget(0x88);
        assert_eq!((device_of(0x88), context_on(5)), (None, None));
        push(0x77, 3);
        push(0x99, 5);
        assert_eq!((device(), is_current(0x77), is_current(0x99)), (5, false, false));
        pop();
        assert!(is_current(0x77) && !is_current(0));
        assert_eq!(device(), 3);
        pop();
        assert_eq!(device(), 0);
    }
}
