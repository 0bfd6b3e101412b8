//! Real functions by call site, for libraries of which each caller may have its own copy.

use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering};

const ENTRIES: usize = 1024;
/// Entries that are tried from the hashed place on; a site that finds no room is looked up each time.
const TRIES: usize = 16;

struct Entry {
    key: AtomicU64,
    real: AtomicPtr<()>,
}

static ENTRIES_TABLE: [Entry; ENTRIES] =
    [const { Entry { key: AtomicU64::new(0), real: AtomicPtr::new(std::ptr::null_mut()) } }; ENTRIES];

fn key(api: u16, caller: usize) -> u64 {
    // User addresses have 47 bits; the row takes the rest. Row 0 at address 0 can't call.
    (caller as u64 & 0xFFFF_FFFF_FFFF) | u64::from(api) << 48
}

fn places(key: u64) -> impl Iterator<Item = &'static Entry> {
    let start = (key.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 54) as usize;
    (0..TRIES).map(move |step| &ENTRIES_TABLE[(start + step) % ENTRIES])
}

/// The real function that was found for this call site.
pub(super) fn get(api: u16, caller: usize) -> Option<*const ()> {
    let key = key(api, caller);
    let entry = places(key).find(|entry| entry.key.load(Ordering::Acquire) == key)?;
    let real = entry.real.load(Ordering::Acquire);
    (!real.is_null()).then_some(real.cast_const())
}

/// Remembers the real function of a call site.
pub(super) fn set(api: u16, caller: usize, real: *const ()) {
    let key = key(api, caller);
    for entry in places(key) {
        let claimed = entry.key.compare_exchange(0, key, Ordering::AcqRel, Ordering::Acquire);
        if claimed.is_ok() || claimed == Err(key) {
            entry.real.store(real.cast_mut(), Ordering::Release);
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sites_keep_their_own_function() {
        for site in 1..200usize {
            set(7, site * 4096, (site * 16) as *const ());
        }
        for site in 1..200usize {
            assert_eq!(get(7, site * 4096), Some((site * 16) as *const ()));
            assert_eq!(get(8, site * 4096), None);
        }
    }
}
