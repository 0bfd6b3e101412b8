//! What PyTorch's blocks came by: how many, how large and when by each call site, of those that live and those that are gone.

use rustc_hash::FxHashMap;

use super::Given;

/// Call sites that are followed. Where there are more, nothing is said of any.
const MOST_SITES: usize = 1 << 16;

/// The blocks that came by one call site.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Came {
    /// Its number, 0 where it is not known.
    pub site: u32,
    /// Ordinal (in the replay) of the record of the first.
    pub first: u64,
    /// Of the last.
    pub last: u64,
    /// How many.
    pub blocks: u64,
    /// The largest, in bytes.
    pub largest_bytes: u64,
}

/// All of them up to now.
#[derive(Clone, Debug, Default)]
pub(super) struct AllCame {
    by_site: FxHashMap<u32, Came>,
    is_cut: bool,
}

impl AllCame {
    /// A block was given out.
    #[inline]
    pub(super) fn note(&mut self, given: &Given) {
        match self.by_site.get_mut(&given.site) {
            Some(known) => {
                known.last = given.entered;
                known.blocks += 1;
                known.largest_bytes = known.largest_bytes.max(given.size_bytes);
            }
            None => self.first(given),
        }
    }

    #[cold]
    fn first(&mut self, given: &Given) {
        self.is_cut |= self.by_site.len() >= MOST_SITES;
        if !self.is_cut {
            let Given { site, entered, size_bytes: largest_bytes, .. } = *given;
            self.by_site.insert(site, Came { site, first: entered, last: entered, blocks: 1, largest_bytes });
        }
    }

    /// How many sites there are.
    pub(super) fn count(&self) -> usize {
        self.by_site.len()
    }

    /// Those up to now, by their sites' numbers; `None` where not all are known.
    pub(super) fn now(&self) -> Option<Vec<Came>> {
        let mut all: Vec<Came> = self.by_site.values().copied().collect();
        all.sort_unstable_by_key(|came| came.site);
        (!self.is_cut).then_some(all)
    }
}
