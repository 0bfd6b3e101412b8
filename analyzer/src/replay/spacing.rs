//! The granularity of the driver, inferred from the addresses it gives out.

/// Distinct blocks that must have been seen before anything is inferred.
const ENOUGH: usize = 8;

/// What all differences between addresses have in common.
#[derive(Clone, Debug, Default)]
pub struct AddressSpacing {
    seen: [u64; ENOUGH],
    count: usize,
    /// All differences to the first address, or-ed together: its trailing zeros divide each of them.
    differences: u64,
}

impl AddressSpacing {
    /// Takes the address of a block.
    #[inline]
    pub fn see(&mut self, address: u64) {
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
    pub fn granularity_bytes(&self) -> Option<u64> {
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
            spacing.see(0x7f00_0000_1000 + number * (2 << 20));
            spacing.see(0x7f00_0000_1000);
        }
        assert_eq!(spacing.granularity_bytes(), Some(2 << 20));
    }

    proptest! {
        #[test]
        fn it_divides_every_difference(addresses in prop::collection::vec(any::<u64>(), 0..20)) {
            let mut spacing = AddressSpacing::default();
            addresses.iter().for_each(|address| spacing.see(*address));
            if let Some(granularity) = spacing.granularity_bytes() {
                prop_assert!(addresses.iter().all(|address| address.wrapping_sub(addresses[0]) % granularity == 0));
            }
        }
    }
}
