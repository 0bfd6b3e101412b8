//! What the runtime gives back while the recorder probes it: HIP 6.4 gives up what its pools keep before it says that there is no more.
//!
//! Those blocks were the program's, and are gone. The probe's own blocks come and go in the same way and are not recorded: what came since
//! the probe began is remembered. There is one thread that probes.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use gpuoom_trace::record::Layer;

use super::Frame;
use crate::base::thread;
use crate::record::state;
use crate::table::row;

/// Blocks that one probe may take, in all layers. It asks some forty times, mostly for the same addresses.
const BLOCKS: usize = 256;

// Relaxed throughout: one thread alone reads and writes these. They are atomics so that they may be statics.
static TAKEN: [AtomicU64; BLOCKS] = [const { AtomicU64::new(0) }; BLOCKS];
static COUNT: AtomicUsize = AtomicUsize::new(0);
/// More came than are remembered: what is given back may be any of them.
static IS_FULL: AtomicBool = AtomicBool::new(false);

/// The most that the runtime asked HSA for at once.
static ASKED_BELOW: AtomicU64 = AtomicU64::new(0);

/// Runs a probe on the recorder's thread that may ask the runtime.
pub(crate) fn during<T>(probe: impl FnOnce() -> T) -> T {
    COUNT.store(0, Ordering::Relaxed);
    IS_FULL.store(false, Ordering::Relaxed);
    let thread = thread::current();
    thread.is_probing.set(true);
    let answer = probe();
    thread.is_probing.set(false);
    answer
}

/// Whether this thread is inside a probe.
#[inline(always)]
pub(crate) fn is_under_way() -> bool {
    thread::current().is_probing.get()
}

/// Function `api` was asked for so many bytes while the runtime is probed.
#[cold]
#[inline(never)]
pub(crate) fn asked(api: u16, size_bytes: u64) {
    if row(api).layer == Layer::Hsa {
        ASKED_BELOW.fetch_max(size_bytes, Ordering::Relaxed);
    }
}

/// Nothing was asked yet.
pub(crate) fn forget_asked() {
    ASKED_BELOW.store(0, Ordering::Relaxed);
}

/// The most that was asked for at once since then, by the runtime of HSA.
pub(crate) fn asked_below() -> u64 {
    ASKED_BELOW.load(Ordering::Relaxed)
}

/// A block that a call of function `api` gave while the runtime is probed: it is the probe's.
#[cold]
#[inline(never)]
pub(crate) fn taken(api: u16, address: u64) {
    let (key, count) = (key(api, address), COUNT.load(Ordering::Relaxed));
    if has(key) {
        return;
    }
    match TAKEN.get(count) {
        Some(place) => {
            place.store(key, Ordering::Relaxed);
            COUNT.store(count + 1, Ordering::Relaxed);
        }
        None => IS_FULL.store(true, Ordering::Relaxed),
    }
}

/// The call of function `api` that gives back what is at this address, if that is recorded: none of the probe's blocks.
#[cold]
#[inline(never)]
pub(crate) fn given_back(api: u16, address: u64) -> Option<Frame> {
    if IS_FULL.load(Ordering::Relaxed) || has(key(api, address)) {
        return None;
    }
    Some(Frame::while_probed(state::running()?, api))
}

fn has(key: u64) -> bool {
    TAKEN.iter().take(COUNT.load(Ordering::Relaxed)).any(|taken| taken.load(Ordering::Relaxed) == key)
}

/// The kernel's handles and the runtime's addresses may be the same numbers: each layer has its own functions.
fn key(api: u16, address: u64) -> u64 {
    address ^ u64::from(row(api).layer as u8) << 56
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One test, because there is one probe at a time.
    #[test]
    fn what_came_during_the_probe_is_not_the_programs() {
        during(|| {
            assert!(is_under_way());
            taken(0, 0x1000);
            taken(0, 0x1000);
            assert!(COUNT.load(Ordering::Relaxed) == 1 && has(key(0, 0x1000)) && !has(key(0, 0x2000)));
            (0..BLOCKS as u64).for_each(|block| taken(0, 0x10_0000 + block));
            assert!(IS_FULL.load(Ordering::Relaxed), "one more than there are places");
        });
        assert!(!is_under_way());
        during(|| assert!(!has(key(0, 0x1000)) && !IS_FULL.load(Ordering::Relaxed), "another probe, other blocks"));
    }
}
