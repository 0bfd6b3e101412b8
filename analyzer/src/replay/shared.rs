//! Handles that name the same memory: duplicates of NVIDIA's objects.

use std::collections::BTreeSet;

use rustc_hash::FxHashMap;

/// Which handles name the same memory. Handles that share it with no other are not here.
#[derive(Clone, Debug, Default)]
pub(super) struct Shared {
    numbers: FxHashMap<u64, u64>,
    handles: FxHashMap<u64, BTreeSet<u64>>,
    next: u64,
}

impl Shared {
    /// `handle` becomes one more name of the memory that `other` names.
    pub(super) fn join(&mut self, handle: u64, other: u64) {
        self.leave(handle);
        if handle == other {
            return;
        }
        let next = self.next;
        let number = *self.numbers.entry(other).or_insert(next);
        self.next += u64::from(number == next);
        self.numbers.insert(handle, number);
        self.handles.entry(number).or_default().extend([handle, other]);
    }

    /// `handle` names its memory no more; another handle that still does, the lowest.
    pub(super) fn leave(&mut self, handle: u64) -> Option<u64> {
        let number = self.numbers.remove(&handle)?;
        let handles = self.handles.get_mut(&number)?;
        handles.remove(&handle);
        let other = handles.first().copied();
        if handles.len() < 2 {
            self.handles.remove(&number);
            if let Some(last) = other {
                self.numbers.remove(&last);
            }
        }
        other
    }

    /// Whether another handle names the same memory.
    pub(super) fn has(&self, handle: u64) -> bool {
        self.numbers.contains_key(&handle)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_last_handle_is_alone() {
        let mut shared = Shared::default();
        shared.join(2, 1);
        shared.join(3, 2);
        assert!(shared.has(1) && shared.has(3) && !shared.has(4));
        assert_eq!((shared.leave(1), shared.leave(1)), (Some(2), None));
        assert_eq!((shared.leave(2), shared.has(3), shared.leave(3)), (Some(3), false, None));
        shared.join(7, 7);
        assert!(!shared.has(7));
    }

    proptest! {
        /// Whatever a file says: a handle names one memory, and nothing stays behind.
        #[test]
        fn handles_name_one_memory(steps in prop::collection::vec((0u64..8, 0u64..8, any::<bool>()), 0..64)) {
            let mut shared = Shared::default();
            for (handle, other, joins) in steps {
                if joins {
                    shared.join(handle, other);
                } else {
                    shared.leave(handle);
                }
                for (number, handles) in &shared.handles {
                    prop_assert!(handles.len() > 1);
                    prop_assert!(handles.iter().all(|handle| shared.numbers.get(handle) == Some(number)));
                }
                prop_assert_eq!(shared.handles.values().map(BTreeSet::len).sum::<usize>(), shared.numbers.len());
            }
        }
    }
}
