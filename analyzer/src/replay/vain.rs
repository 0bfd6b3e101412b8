//! Frees that found nothing at their address, because another free had taken the block and its call was still to come.
//!
//! A free is recorded before its call. Where two threads free one address at about the same time, by a mistake of the program, the one
//! whose record comes first may be the one whose call comes last, and fails. Then the block went with the other one, and must not come
//! back with the correction.

use rustc_hash::FxHashMap;

/// Addresses that are remembered at once; beyond that all are forgotten, which matters only for such a mistake.
const MOST: usize = 4096;

/// Such frees, by address.
#[derive(Clone, Debug, Default)]
pub(super) struct InVain {
    last: FxHashMap<u64, Last>,
}

/// The last one at an address.
#[derive(Clone, Copy, Debug)]
struct Last {
    /// Ordinal of its record.
    position: u64,
    /// The function under which it was counted as a free of nothing, if it was.
    counted_by: Option<u16>,
}

impl InVain {
    /// Nothing was found at an address.
    #[cold]
    pub(super) fn note(&mut self, address: u64, position: u64, counted_by: Option<u16>) {
        if self.last.len() >= MOST {
            self.last.clear();
        }
        self.last.insert(address, Last { position, counted_by });
    }

    /// A free that found nothing has failed itself, so it took nothing.
    #[cold]
    pub(super) fn failed(&mut self, address: u64) {
        self.last.remove(&address);
    }

    /// Whether what came to live at an address at that ordinal went with such a free: then the function under which that was counted as
    /// one of nothing. Asked when the free that took the block has failed.
    #[cold]
    pub(super) fn took(&mut self, address: u64, entered: u64) -> Option<Option<u16>> {
        let last = self.last.get(&address).filter(|last| last.position > entered)?.counted_by;
        self.last.remove(&address);
        Some(last)
    }
}
