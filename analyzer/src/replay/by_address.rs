//! Blocks by their address.

use std::hash::BuildHasher;

use hashbrown::HashTable;
use hashbrown::hash_table::Entry;
use rustc_hash::FxBuildHasher;

use super::block::Block;

/// A block that has a cache line to itself. A replay waits longer for these lines than for anything else: a map from addresses
/// would have each address twice, and each of its entries in two lines.
#[derive(Clone, Debug)]
#[repr(align(64))]
struct Line(Block);

const _: () = assert!(size_of::<Line>() == 64, "a block has outgrown a cache line");

/// A set of blocks with different addresses.
#[derive(Clone, Debug, Default)]
pub(super) struct ByAddress {
    lines: HashTable<Line>,
}

#[inline]
fn hash(address: u64) -> u64 {
    FxBuildHasher.hash_one(address)
}

impl ByAddress {
    /// Takes a block in; returns where it lies now and the block that had its address.
    #[inline]
    pub(super) fn insert(&mut self, block: Block) -> (&mut Block, Option<Block>) {
        let has_address = |line: &Line| line.0.address == block.address;
        match self.lines.entry(hash(block.address), has_address, |line| hash(line.0.address)) {
            Entry::Occupied(entry) => {
                let line = entry.into_mut();
                let old = std::mem::replace(&mut line.0, block);
                (&mut line.0, Some(old))
            }
            Entry::Vacant(entry) => (&mut entry.insert(Line(block)).into_mut().0, None),
        }
    }

    /// Takes the block at an address out.
    #[inline]
    pub(super) fn remove(&mut self, address: u64) -> Option<Block> {
        let entry = self.lines.find_entry(hash(address), |line| line.0.address == address).ok()?;
        Some(entry.remove().0.0)
    }

    /// The block at an address.
    #[inline]
    pub(super) fn get(&self, address: u64) -> Option<&Block> {
        self.lines.find(hash(address), |line| line.0.address == address).map(|line| &line.0)
    }

    /// Takes those out that `goes` names, in no order.
    pub(super) fn take_where(&mut self, mut goes: impl FnMut(&Block) -> bool) -> impl Iterator<Item = Block> {
        self.lines.extract_if(move |line| goes(&line.0)).map(|line| line.0)
    }

    /// All blocks, in no order.
    pub(super) fn iter(&self) -> impl Iterator<Item = &Block> {
        self.lines.iter().map(|line| &line.0)
    }

    /// The same, to place them.
    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Block> {
        self.lines.iter_mut().map(|line| &mut line.0)
    }

    /// How many there are.
    pub(super) fn len(&self) -> usize {
        self.lines.len()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use gpuoom_trace::record::{Kind, Layer};
    use proptest::prelude::*;

    use super::super::apis::Family;
    use super::*;

    fn block(address: u64, entered: u64) -> Block {
        Block {
            address,
            requested_bytes: 1,
            entered,
            at: 0,
            granules: 0,
            place: 0,
            api: 0,
            context: 0,
            pool: 0,
            device: (entered % 2) as u8,
            kind: Kind::Device,
            layer: Layer::Runtime,
            family: Family::Pointers,
            site: 0,
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(32))]
        #[test]
        fn it_agrees_with_an_ordered_map(steps in prop::collection::vec((0u64..200, 0u8..20), 0..2000)) {
            let (mut set, mut map) = (ByAddress::default(), BTreeMap::new());
            for (number, (address, step)) in (0..).zip(steps) {
                match step {
                    0 => {
                        let mut taken: Vec<Block> = set.take_where(|block| block.device == 1).collect();
                        taken.sort_by_key(|block| block.address);
                        let gone: Vec<Block> = map.extract_if(.., |_, block: &mut Block| block.device == 1).map(|(_, block)| block).collect();
                        prop_assert_eq!(taken, gone);
                    }
                    1..8 => prop_assert_eq!(set.remove(address), map.remove(&address)),
                    8..11 => set.iter_mut().for_each(|block| block.site += 1),
                    _ => prop_assert_eq!(set.insert(block(address, number)).1, map.insert(address, block(address, number))),
                }
                if (8..11).contains(&step) {
                    map.values_mut().for_each(|block| block.site += 1);
                }
                prop_assert_eq!((set.len(), set.get(address)), (map.len(), map.get(&address)));
            }
            let mut all: Vec<Block> = set.iter().copied().collect();
            all.sort_by_key(|block| block.address);
            prop_assert_eq!(all, map.into_values().collect::<Vec<_>>());
        }
    }
}
