//! Where objects lay that were unloaded.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// Stretches of addresses that are kept apart; more are put together with the last one.
pub(super) const RANGES: usize = 64;
/// First address and end.
static TABLE: [[AtomicU64; 2]; RANGES] = [const { [const { AtomicU64::new(0) }; 2] }; RANGES];
static COUNT: AtomicUsize = AtomicUsize::new(0);
/// First address, and bytes from there on, that all of them lie in.
static LOW: AtomicU64 = AtomicU64::new(0);
static BYTES: AtomicU64 = AtomicU64::new(0);

/// An object has gone. Called by one thread at a time.
pub(super) fn add(start: u64, end: u64) {
    if start >= end {
        return;
    }
    let count = COUNT.load(Ordering::Relaxed).min(RANGES);
    let touches = |[known_start, known_end]: [u64; 2]| start <= known_end && known_start <= end;
    let place = (0..count).find(|index| touches(range(*index))).unwrap_or(count.min(RANGES - 1));
    let [known_start, known_end] = if place < count { range(place) } else { [start, end] };
    TABLE[place][0].store(start.min(known_start), Ordering::Relaxed);
    TABLE[place][1].store(end.max(known_end), Ordering::Relaxed);
    COUNT.store(count.max(place + 1), Ordering::Release);
    widen(start, end);
}

/// What is looked at in between is never smaller than it was.
fn widen(start: u64, end: u64) {
    let (low, bytes) = (LOW.load(Ordering::Relaxed), BYTES.load(Ordering::Relaxed));
    let (new_low, new_end) =
        if bytes == 0 { (start, end) } else { (low.min(start), low.saturating_add(bytes).max(end)) };
    if bytes != 0 {
        BYTES.store(new_end - new_low, Ordering::Release);
    }
    LOW.store(new_low, Ordering::Release);
    BYTES.store(new_end - new_low, Ordering::Release);
}

fn range(index: usize) -> [u64; 2] {
    TABLE[index].each_ref().map(|word| word.load(Ordering::Relaxed))
}

/// A new file begins: what was unloaded before is not in it.
pub(super) fn forget() {
    BYTES.store(0, Ordering::Release);
    COUNT.store(0, Ordering::Release);
}

/// Whether something was unloaded.
#[inline(always)]
pub(super) fn is_any() -> bool {
    BYTES.load(Ordering::Relaxed) != 0
}

/// Whether an address may lie where something was unloaded. Never so in nearly all programs.
#[inline(always)]
pub(super) fn may_have(address: u64) -> bool {
    // Relaxed: whoever runs code of an object that was loaded since, has synchronised with the loader.
    address.wrapping_sub(LOW.load(Ordering::Relaxed)) < BYTES.load(Ordering::Relaxed)
}

/// Whether an address lies where something was unloaded.
pub(super) fn has(address: u64) -> bool {
    let count = COUNT.load(Ordering::Acquire).min(RANGES);
    (0..count).map(range).any(|[start, end]| (start..end).contains(&address))
}

#[cfg(test)]
pub(super) fn count() -> usize {
    COUNT.load(Ordering::Relaxed)
}
