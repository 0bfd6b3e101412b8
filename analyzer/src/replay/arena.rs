//! The model of a card as an arena of granules: first fit of contiguous granules on bitmaps.
//!
//! It is a model that was asked for, not the hardware: real drivers scatter a buffer over physical memory.

/// Place of a block that holds no granule of the arena.
pub const NO_PLACE: u32 = u32::MAX;
/// Granules of the largest arena that is modelled: 8 MiB of bitmap.
pub const MAX_GRANULES: u64 = 1 << 26;

const BITS: u64 = 64;
/// Classes of stretches by length; the last one holds all that are longer.
const CLASSES: usize = 13;
/// Neighbours of a freed stretch are looked at this far: more changes no class.
const LONG: u64 = 1 << (CLASSES - 1);

/// A card of equal granules; a set bit is a granule in use.
#[derive(Clone, Debug)]
pub struct Arena {
    used: Vec<u64>,
    /// One bit per word of `used` that is full, so that a search passes over 64 full words at once.
    full: Vec<u64>,
    granules: u64,
    free: u64,
    /// For each class `c`: no free stretch of `2^c` granules or more begins before this granule.
    first: [u64; CLASSES],
}

/// What is free in an arena.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FreeSpace {
    /// Free granules.
    pub total_granules: u64,
    /// Granules of the longest free stretch.
    pub largest_granules: u64,
}

impl Arena {
    /// An empty arena; `None` for none or more granules than are modelled.
    pub fn new(granules: u64) -> Option<Self> {
        if granules == 0 || granules > MAX_GRANULES {
            return None;
        }
        let words = granules.div_ceil(BITS) as usize;
        let mut arena = Arena {
            used: vec![0; words],
            full: vec![0; words.div_ceil(BITS as usize)],
            granules,
            free: granules,
            first: [0; CLASSES],
        };
        // Granules behind the end of the card and words behind the last one are never free.
        for granule in granules..words as u64 * BITS {
            arena.used[words - 1] |= 1 << (granule % BITS);
        }
        for word in words..arena.full.len() * BITS as usize {
            arena.full[word / 64] |= 1 << (word % 64);
        }
        Some(arena)
    }

    /// Granules of the whole card.
    pub fn granules(&self) -> u64 {
        self.granules
    }

    /// Places a block at the first stretch that is long enough and returns its first granule, [`NO_PLACE`] when there is
    /// none (or nothing to place).
    pub fn place(&mut self, granules: u32) -> u32 {
        let wanted = u64::from(granules);
        if wanted == 0 || wanted > self.free {
            return NO_PLACE;
        }
        match self.first_fit(wanted) {
            Some(start) => {
                self.mark(start, wanted, true);
                start as u32
            }
            None => NO_PLACE,
        }
    }

    /// Gives the granules of a placed block back.
    pub fn release(&mut self, place: u32, granules: u32) {
        if place != NO_PLACE {
            self.mark(u64::from(place), u64::from(granules), false);
        }
    }

    /// Marks the granules of a block whose place is known.
    pub fn occupy(&mut self, place: u32, granules: u32) {
        if place != NO_PLACE {
            self.mark(u64::from(place), u64::from(granules), true);
        }
    }

    fn first_fit(&mut self, wanted: u64) -> Option<u64> {
        let class = class_of(wanted);
        let from = self.first[class];
        let mut word = (from / BITS) as usize;
        // What lies before `from` in its word is passed over as if it were in use.
        let mut hidden = (1u64 << (from % BITS)) - 1;
        let (mut start, mut run, mut first) = (0, 0, None);
        while let Some(used) = self.used.get(word).map(|used| used | hidden) {
            hidden = 0;
            if used == u64::MAX {
                run = 0;
                word = self.next_open_word(word + 1);
                continue;
            }
            let mut bit = 0u32;
            while bit < 64 {
                let free = (used >> bit).trailing_zeros().min(64 - bit);
                if free > 0 && run == 0 {
                    start = word as u64 * BITS + u64::from(bit);
                }
                run += u64::from(free);
                bit += free;
                if run >= 1 << class {
                    first.get_or_insert(start);
                }
                if run >= wanted {
                    self.first[class] = first.filter(|first| *first != start).unwrap_or(start + wanted);
                    return Some(start);
                }
                if bit < 64 {
                    bit += (used >> bit).trailing_ones();
                    run = 0;
                }
            }
            word += 1;
        }
        self.first[class] = first.unwrap_or(self.granules);
        None
    }

    /// Lets searches begin at a stretch that was freed, as far as it is long enough for them with its neighbours.
    fn note_freed(&mut self, start: u64, end: u64) {
        let begin = start - self.free_before(start);
        let length = end - begin + self.free_after(end);
        for (class, first) in self.first.iter_mut().enumerate() {
            if length >= 1 << class {
                *first = begin.min(*first);
            }
        }
    }

    /// Free granules right before one, at most about [`LONG`]. A longer stretch was long before: every class knows it.
    fn free_before(&self, granule: u64) -> u64 {
        let mut at = granule;
        while at > 0 && granule - at < LONG {
            let bit = ((at - 1) % BITS) as u32;
            let free = (self.used[((at - 1) / BITS) as usize] << (63 - bit)).leading_zeros().min(bit + 1);
            at -= u64::from(free);
            if free <= bit {
                break;
            }
        }
        granule - at
    }

    /// Free granules from one on, at most about [`LONG`].
    fn free_after(&self, granule: u64) -> u64 {
        let mut at = granule;
        while at < self.granules && at - granule < LONG {
            let bit = (at % BITS) as u32;
            let free = (self.used[(at / BITS) as usize] >> bit).trailing_zeros().min(64 - bit);
            at += u64::from(free);
            if free < 64 - bit {
                break;
            }
        }
        at - granule
    }

    /// The first word at or after `word` that is not full.
    fn next_open_word(&self, word: usize) -> usize {
        let mut group = word / 64;
        let mut below = (1u64 << (word % 64)) - 1;
        while group < self.full.len() {
            let open = !(self.full[group] | below);
            if open != 0 {
                return group * 64 + open.trailing_zeros() as usize;
            }
            below = 0;
            group += 1;
        }
        self.used.len()
    }

    fn mark(&mut self, start: u64, count: u64, used: bool) {
        let end = start.saturating_add(count).min(self.granules);
        let mut at = start;
        while at < end {
            let word = (at / BITS) as usize;
            let until = end.min((word as u64 + 1) * BITS);
            let mask = bits(at % BITS, until - at);
            let before = self.used[word];
            self.used[word] = if used { before | mask } else { before & !mask };
            let changed = u64::from((before ^ self.used[word]).count_ones());
            self.free = if used { self.free - changed } else { self.free + changed };
            let full = 1u64 << (word % 64);
            if self.used[word] == u64::MAX {
                self.full[word / 64] |= full;
            } else {
                self.full[word / 64] &= !full;
            }
            at = until;
        }
        if !used && start < end {
            self.note_freed(start, end);
        }
    }

    /// Free granules and the longest free stretch.
    pub fn free_space(&self) -> FreeSpace {
        let (mut largest, mut run) = (0, 0u64);
        for used in &self.used {
            let (mut used, mut left) = (*used, 64u32);
            while left > 0 {
                let free = used.trailing_zeros().min(left);
                run += u64::from(free);
                largest = largest.max(run);
                left -= free;
                if left == 0 {
                    break;
                }
                used >>= free;
                let taken = used.trailing_ones().min(left);
                run = 0;
                left -= taken;
                used = used.checked_shr(taken).unwrap_or(0);
            }
        }
        FreeSpace { total_granules: self.free, largest_granules: largest }
    }
}

/// The class of a length of at least one granule.
fn class_of(granules: u64) -> usize {
    (granules.ilog2() as usize).min(CLASSES - 1)
}

/// `count` (1..=64) bits from `from` on.
fn bits(from: u64, count: u64) -> u64 {
    (u64::MAX >> (BITS - count)) << from
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Free granules as a plain list, by which the bitmap is judged.
    struct Naive(Vec<bool>);

    impl Naive {
        fn place(&mut self, count: usize) -> u32 {
            if count == 0 || count > self.0.len() {
                return NO_PLACE;
            }
            let found = (0..=self.0.len() - count).find(|at| self.0[*at..at + count].iter().all(|used| !used));
            match found {
                Some(at) => {
                    self.0[at..at + count].fill(true);
                    at as u32
                }
                None => NO_PLACE,
            }
        }

        fn free_space(&self) -> FreeSpace {
            let runs = self.0.split(|used| *used).map(<[bool]>::len);
            FreeSpace {
                total_granules: self.0.iter().filter(|used| !**used).count() as u64,
                largest_granules: runs.max().unwrap_or(0) as u64,
            }
        }
    }

    fn size() -> impl Strategy<Value = u32> {
        prop_oneof![4 => 0u32..5, 4 => 0u32..200, 2 => 2000u32..9000]
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(48))]

        #[test]
        fn first_fit_agrees_with_a_plain_list(
            granules in 1usize..12_000,
            steps in prop::collection::vec((any::<bool>(), size(), any::<prop::sample::Index>()), 0..200),
        ) {
            let mut arena = Arena::new(granules as u64).unwrap();
            let mut naive = Naive(vec![false; granules]);
            let mut placed: Vec<(u32, u32)> = Vec::new();
            for (free, count, which) in steps {
                if free && !placed.is_empty() {
                    let (place, count) = placed.swap_remove(which.index(placed.len()));
                    arena.release(place, count);
                    naive.0[place as usize..(place + count) as usize].fill(false);
                } else {
                    let place = arena.place(count);
                    prop_assert_eq!(place, naive.place(count as usize));
                    if place != NO_PLACE {
                        placed.push((place, count));
                    }
                }
                prop_assert_eq!(arena.free_space(), naive.free_space());
            }
        }
    }

    #[test]
    fn a_checkerboard_refuses_what_is_free_in_sum() {
        let mut arena = Arena::new(64).unwrap();
        let places: Vec<u32> = (0..64).map(|_| arena.place(1)).collect();
        for place in places.iter().step_by(7).take(9) {
            arena.release(*place, 1);
        }
        assert_eq!(arena.free_space(), FreeSpace { total_granules: 9, largest_granules: 1 });
        assert_eq!(arena.place(2), NO_PLACE);
    }

    #[test]
    fn impossible_arenas_are_not_modelled() {
        assert!(Arena::new(0).is_none());
        assert!(Arena::new(u64::MAX).is_none());
        assert_eq!(Arena::new(10).unwrap().place(u32::MAX), NO_PLACE);
    }
}
