//! Objects of NVIDIA's resource manager: with one that is freed goes all that was allocated under it.

use std::collections::BTreeSet;

use rustc_hash::FxHashMap;

/// What the program's own memory belongs to. Addresses are `client << 32 | object`, as the recorder makes them.
#[derive(Clone, Debug, Default)]
pub(super) struct Objects {
    under: FxHashMap<u64, BTreeSet<u64>>,
    parents: FxHashMap<u64, u64>,
}

impl Objects {
    /// Memory was allocated under an object; with 0 only its client is known.
    pub(super) fn add(&mut self, memory: u64, parent_object: u64) {
        self.remove(memory);
        self.parents.insert(memory, parent_object);
        for above in Self::above(memory, parent_object) {
            self.under.entry(above).or_default().insert(memory);
        }
    }

    /// The parent and the client, whose object has its own number.
    fn above(memory: u64, parent_object: u64) -> impl Iterator<Item = u64> {
        let client = memory >> 32;
        let both = [client << 32 | (parent_object & 0xFFFF_FFFF), client << 32 | client];
        both.into_iter().filter(move |above| *above != client << 32 && *above != memory)
    }

    /// Memory is gone by itself: its number may be given to something else.
    pub(super) fn remove(&mut self, memory: u64) {
        let Some(parent_object) = self.parents.remove(&memory) else { return };
        for above in Self::above(memory, parent_object) {
            if let Some(under) = self.under.get_mut(&above) {
                under.remove(&memory);
            }
        }
    }

    /// What goes with an object, in a fixed order. It may be gone already.
    pub(super) fn take_under(&mut self, object: u64) -> BTreeSet<u64> {
        self.under.remove(&object).unwrap_or_default()
    }

    /// A free that took these has failed.
    pub(super) fn put_back(&mut self, object: u64, memory: impl Iterator<Item = u64>) {
        self.under.entry(object).or_default().extend(memory);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_goes_with_its_parent_and_with_its_client() {
        let mut objects = Objects::default();
        objects.add(7 << 32 | 20, 3);
        objects.add(7 << 32 | 21, 4);
        objects.add(8 << 32 | 20, 0);
        objects.add(8 << 32 | 21, 5);
        objects.remove(8 << 32 | 21);
        assert!(objects.take_under(8 << 32 | 5).is_empty());
        assert!(objects.take_under(7 << 32 | 9).is_empty());
        assert_eq!(Vec::from_iter(objects.take_under(7 << 32 | 3)), [7 << 32 | 20]);
        assert!(objects.take_under(7 << 32 | 3).is_empty());
        assert_eq!(objects.take_under(7 << 32 | 7).len(), 2);
        assert_eq!(Vec::from_iter(objects.take_under(8 << 32 | 8)), [8 << 32 | 20]);
    }
}
