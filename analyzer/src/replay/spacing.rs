//! The granularity of the driver, inferred from the addresses it gives out.

/// Distinct blocks that must have been seen before anything is inferred.
const ENOUGH: usize = 8;

/// Blocks below this size may share a piece of this size that the driver took for several of them, and lie closer together than
/// what it takes. On an H200 (driver 580.159.04) blocks of less than 1 MiB do, 512 bytes apart; larger ones have 2 MiB each.
pub const SHARED_BYTES: u64 = 2 << 20;

/// What the addresses of a device's blocks say about what each takes.
#[derive(Clone, Debug, Default)]
pub struct AddressSpacing {
    all: Differences,
    /// Of those of [`SHARED_BYTES`] and more.
    large: Differences,
}

impl AddressSpacing {
    /// Takes the address of a block.
    #[inline]
    pub fn see(&mut self, address: u64, size_bytes: u64) {
        self.all.see(address);
        if size_bytes >= SHARED_BYTES {
            self.large.see(address);
        }
    }

    /// The granularity of blocks that share nothing with others, at most; `None` where that cannot be told.
    pub fn granularity_bytes(&self) -> Option<u64> {
        // Few large blocks of one size may lie further apart than the granularity; all blocks together tell it better.
        let apart = self.all.granularity_bytes().filter(|granularity| *granularity >= SHARED_BYTES);
        apart.or_else(|| self.large.granularity_bytes())
    }

    /// Whether blocks of this size may share pieces that the driver took: what they take is not told by their addresses.
    pub fn may_share(&self, size_bytes: u64) -> bool {
        let are_close = self.all.granularity_bytes().is_some_and(|granularity| granularity < SHARED_BYTES);
        size_bytes < SHARED_BYTES && are_close
    }
}

/// What all differences between addresses have in common.
#[derive(Clone, Debug, Default)]
struct Differences {
    seen: [u64; ENOUGH],
    count: usize,
    /// All differences to the first address, or-ed together: its trailing zeros divide each of them.
    differences: u64,
}

impl Differences {
    #[inline]
    fn see(&mut self, address: u64) {
        self.differences |= address.wrapping_sub(self.seen[0]) & self.after_first();
        if self.count < ENOUGH && !self.seen[..self.count].contains(&address) {
            self.seen[self.count] = address;
            self.count += 1;
        }
    }

    fn after_first(&self) -> u64 {
        if self.count == 0 { 0 } else { u64::MAX }
    }

    /// The greatest power of two that divides all differences of at least eight distinct addresses.
    fn granularity_bytes(&self) -> Option<u64> {
        (self.count == ENOUGH && self.differences != 0).then(|| 1 << self.differences.trailing_zeros())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn eight_blocks_two_mebibytes_apart() {
        let mut spacing = AddressSpacing::default();
        for number in 0..8 {
            assert_eq!(spacing.granularity_bytes(), None);
            spacing.see(0x7f00_0000_1000 + number * (2 << 20), 1);
            spacing.see(0x7f00_0000_1000, 1);
        }
        assert_eq!((spacing.granularity_bytes(), spacing.may_share(1)), (Some(2 << 20), false));
    }

    /// As on a card: the small ones lie 512 bytes apart within 2 MiB that the driver took once.
    #[test]
    fn small_blocks_say_nothing_about_large_ones() {
        let mut spacing = AddressSpacing::default();
        (0..9).for_each(|number| spacing.see(0x7f00_0000_0000 + number * 512, 512));
        assert_eq!((spacing.granularity_bytes(), spacing.may_share(512)), (None, true));
        (0..8).for_each(|number| spacing.see(0x7f10_0000_0000 + number * (4 << 20), 3 << 20));
        assert_eq!(spacing.granularity_bytes(), Some(4 << 20));
        assert!(spacing.may_share(512) && !spacing.may_share(2 << 20));
    }

    /// Blocks of 3 MiB lie 4 MiB apart where the granularity is 2 MiB.
    #[test]
    fn blocks_of_one_size_do_not_spoil_what_the_others_show() {
        let mut spacing = AddressSpacing::default();
        (0..10).for_each(|number| spacing.see(0x7f00_0000_0000 + number * (4 << 20), 3 << 20));
        (0..9).for_each(|number| spacing.see(0x7f10_0000_0000 + number * (2 << 20), 700 << 10));
        assert_eq!((spacing.granularity_bytes(), spacing.may_share(700 << 10)), (Some(2 << 20), false));
    }

    proptest! {
        #[test]
        fn it_divides_every_difference(addresses in prop::collection::vec(any::<u64>(), 0..20)) {
            let mut spacing = Differences::default();
            addresses.iter().for_each(|address| spacing.see(*address));
            if let Some(granularity) = spacing.granularity_bytes() {
                prop_assert!(addresses.iter().all(|address| address.wrapping_sub(addresses[0]) % granularity == 0));
            }
        }
    }
}
