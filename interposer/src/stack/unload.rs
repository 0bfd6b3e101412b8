//! Notices that an object was unloaded: another may come to the same addresses, and what was read of the first one is wrong
//! for it.

use std::sync::atomic::{AtomicU64, Ordering};

use super::objects;
use crate::base::guard;
use crate::link;
use crate::record::state;

/// Objects unloaded so far, as the loader counts.
static UNLOADS: AtomicU64 = AtomicU64::new(0);
/// Objects that had been loaded when the list of objects was last made, as the loader counts.
static LISTED_AT: AtomicU64 = AtomicU64::new(0);

/// How many were unloaded so far.
#[inline(always)]
pub(super) fn count() -> u64 {
    // Relaxed: whoever runs code of an object that was loaded since, has synchronised with the loader.
    UNLOADS.load(Ordering::Relaxed)
}

/// A new file begins.
pub(super) fn begin() {
    let at = link::load_count();
    UNLOADS.store(at.unloads, Ordering::Relaxed);
    LISTED_AT.store(at.loads, Ordering::Relaxed);
    objects::begin();
}

/// Before a call that may unload something: what goes must stand in the file, and in the list of objects, while it is there.
/// Such a call takes the loader's lock itself, so this may, too.
pub(crate) fn prepare() {
    guard::cold((), || {
        let Some(recorder) = state::running() else { return };
        let loads = link::load_count().loads;
        if LISTED_AT.swap(loads, Ordering::Relaxed) != loads {
            objects::list_again();
            recorder.note_unlisted_modules();
        }
    });
}

/// After such a call.
pub(crate) fn look() {
    guard::cold((), || {
        let unloads = link::load_count().unloads;
        if count() != unloads {
            // First what is gone: whoever sees the number must know it.
            objects::list_again();
            UNLOADS.store(unloads, Ordering::Release);
        }
    });
}
