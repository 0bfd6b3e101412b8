//! What PyTorch's blocks came by: how many, how large and when by each call site, of those that live and those that are gone.

use std::cmp::Ordering;

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
    /// Ordinal of the record of the first that was so large.
    pub largest_at: u64,
    /// How many were so large.
    pub largest_blocks: u64,
    /// The largest before that one.
    pub smaller_bytes: u64,
}

impl Came {
    /// A size that none had surpassed up to a record with this ordinal; `None` where none had come.
    pub fn largest_until(&self, ordinal: u64) -> Option<u64> {
        match self.largest_at <= ordinal {
            true => Some(self.largest_bytes),
            false => (self.first <= ordinal && self.smaller_bytes > 0).then_some(self.smaller_bytes),
        }
    }
}

/// All of them up to now.
#[derive(Clone, Debug, Default)]
pub(super) struct AllCame {
    by_site: FxHashMap<u32, Came>,
    is_cut: bool,
}

impl AllCame {
    /// A block was given out; returns how many came by its site, 0 where those are not followed.
    #[inline]
    pub(super) fn note(&mut self, given: &Given) -> u32 {
        match self.by_site.get_mut(&given.site) {
            Some(known) => {
                known.last = given.entered;
                known.blocks += 1;
                match given.size_bytes.cmp(&known.largest_bytes) {
                    Ordering::Less => {}
                    Ordering::Equal => known.largest_blocks += 1,
                    Ordering::Greater => {
                        (known.smaller_bytes, known.largest_blocks) = (known.largest_bytes, 1);
                        (known.largest_bytes, known.largest_at) = (given.size_bytes, given.entered);
                    }
                }
                u32::try_from(known.blocks).unwrap_or(0)
            }
            None => self.first(given),
        }
    }

    #[cold]
    fn first(&mut self, given: &Given) -> u32 {
        self.is_cut |= self.by_site.len() >= MOST_SITES;
        if !self.is_cut {
            let Given { site, entered, size_bytes: largest_bytes, .. } = *given;
            let first = Came {
                site,
                first: entered,
                last: entered,
                blocks: 1,
                largest_bytes,
                largest_at: entered,
                largest_blocks: 1,
                smaller_bytes: 0,
            };
            self.by_site.insert(site, first);
        }
        u32::from(!self.is_cut)
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::replay::blocks::NameNumber;
    use crate::replay::purpose::Purpose;

    #[test]
    fn what_none_had_surpassed_is_known_where_one_larger_came_since() {
        let mut all = AllCame::default();
        let given = |entered, size_bytes| Given {
            address: 1,
            size_bytes,
            entered,
            site: 7,
            nth: 0,
            device: 0,
            allocator: 0,
            name: NameNumber::NONE,
            slot: 0,
            purpose: Purpose::Unknown,
        };
        let nth = [(10, 4), (20, 6), (30, 5), (40, 9), (50, 9)].map(|(at, bytes)| all.note(&given(at, bytes)));
        assert_eq!(nth, [1, 2, 3, 4, 5]);
        let came = all.now().unwrap()[0];
        assert_eq!((came.first, came.last, came.blocks), (10, 50, 5));
        assert_eq!((came.largest_bytes, came.largest_blocks), (9, 2));
        assert_eq!([45, 35].map(|at| came.largest_until(at)), [Some(9), Some(6)]);
        // Before 15 none had more than 4, and that is not kept: none had more than 6 is as true.
        assert_eq!((came.largest_until(15), came.largest_until(5)), (Some(6), None));
    }
}
