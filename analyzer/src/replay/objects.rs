//! Objects of NVIDIA's resource manager: with one that is freed goes all that was allocated under it, and memory that has
//! several handles is there until the last of them is gone.

use std::collections::BTreeSet;

use gpuoom_trace::payload;
use gpuoom_trace::record::{Kind, Record};
use rustc_hash::FxHashMap;

use super::Replay;
use super::apis::Family;
use super::block::{Block, Side, Space};
use super::shared::Shared;
use super::undo::Undo;

const SPACE: Space = Space::Kernel(Family::Nvidia);

/// What the program's own memory belongs to. Addresses are `client << 32 | object`, as the recorder makes them.
#[derive(Clone, Debug, Default)]
pub(super) struct Objects {
    under: FxHashMap<u64, BTreeSet<u64>>,
    parents: FxHashMap<u64, u64>,
    shared: Shared,
}

/// A handle that is gone, to undo it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Gone {
    handle: u64,
    parent_object: Option<u64>,
    what: What,
}

/// What went with a handle.
#[derive(Clone, Copy, Debug)]
enum What {
    /// Nothing that is counted.
    Nothing,
    /// Its memory.
    Memory(Block),
    /// One name of memory that this other handle still names.
    Name(u64),
}

impl Objects {
    /// A handle was made under an object; with 0 only its client is known.
    pub(super) fn add(&mut self, handle: u64, parent_object: u64) {
        self.remove(handle);
        self.parents.insert(handle, parent_object);
        for above in Self::above(handle, parent_object) {
            self.under.entry(above).or_default().insert(handle);
        }
    }

    /// The parent and the client, whose object has its own number.
    fn above(handle: u64, parent_object: u64) -> impl Iterator<Item = u64> {
        let client = handle >> 32;
        let both = [client << 32 | (parent_object & 0xFFFF_FFFF), client << 32 | client];
        both.into_iter().filter(move |above| *above != client << 32 && *above != handle)
    }

    /// A handle is gone: its number may be given to something else. Returns its parent, if it was known.
    fn remove(&mut self, handle: u64) -> Option<u64> {
        let parent_object = self.parents.remove(&handle)?;
        for above in Self::above(handle, parent_object) {
            if let Some(under) = self.under.get_mut(&above) {
                under.remove(&handle);
                if under.is_empty() {
                    self.under.remove(&above);
                }
            }
        }
        Some(parent_object)
    }

    /// An object with all that goes with it, in a fixed order.
    fn with_children(&self, object: u64) -> Vec<u64> {
        let under = self.under.get(&object).into_iter().flatten().copied();
        under.filter(|handle| *handle != object).chain([object]).collect()
    }
}

impl Replay {
    /// Memory of the program was allocated: its object says what it goes with.
    #[cold]
    pub(super) fn add_object(&mut self, record: &Record, payload: &[u8]) {
        let parent = payload::unpack_numbers(payload).next().unwrap_or(0);
        // Whoever shared the memory that had this number has it alone now.
        self.pass_on(record.address);
        self.objects.add(record.address, parent);
    }

    /// A second handle of an object; whether that is memory which is known, and counts once.
    #[cold]
    pub(super) fn duplicate_object(&mut self, record: &Record, payload: &[u8]) -> bool {
        let mut numbers = payload::unpack_numbers(payload);
        let (source, parent) = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
        let handle = record.address;
        if handle == source {
            return true;
        }
        self.pass_on(handle);
        if let Some(old) = self.live.remove(SPACE, handle) {
            self.let_go_object(&old, record);
        }
        self.objects.add(handle, parent);
        let known = self.objects.shared.has(source) || self.live.has(SPACE, source);
        if known {
            self.objects.shared.join(handle, source);
        }
        known
    }

    /// A handle is taken away from its memory; the handle that has it now, if there is one.
    fn pass_on(&mut self, handle: u64) -> Option<u64> {
        let other = self.objects.shared.leave(handle)?;
        if let Some(block) = self.live.remove(SPACE, handle) {
            self.live.insert(Block { address: other, ..block });
        }
        Some(other)
    }

    /// An object is freed, and what was allocated under it.
    #[cold]
    pub(super) fn give_back_object(&mut self, record: &Record) -> Undo {
        let handles = self.objects.with_children(record.address).into_iter();
        let gone: Vec<Gone> = handles
            .map(|handle| {
                let parent_object = self.objects.remove(handle);
                let what = match self.pass_on(handle) {
                    Some(other) => What::Name(other),
                    None => self.live.remove(SPACE, handle).map_or(What::Nothing, What::Memory),
                };
                if let What::Memory(block) = &what {
                    self.let_go_object(block, record);
                }
                Gone { handle, parent_object, what }
            })
            .collect();
        Undo::Objects(gone)
    }

    fn let_go_object(&mut self, block: &Block, record: &Record) {
        match self.accounts.of_mut(block) {
            Some(account) => {
                account.let_go(block);
                account.calls.frees += 1;
                self.tracks.returned(block, record, account.held.requested_bytes);
            }
            None => self.count_uncounted(block, false),
        }
    }

    /// The free has failed.
    #[cold]
    pub(super) fn bring_objects_back(&mut self, gone: Vec<Gone>, at: u64) {
        // The last one first: a name may have gone to a handle that went afterwards.
        for Gone { handle, parent_object, what } in gone.into_iter().rev() {
            if let Some(parent_object) = parent_object {
                self.objects.add(handle, parent_object);
            }
            match what {
                What::Nothing => {}
                What::Name(other) => self.objects.shared.join(handle, other),
                What::Memory(block) if matches!(block.kind, Kind::Reserved | Kind::Imported) => {
                    self.count_uncounted(&block, true);
                    self.live.insert(block);
                }
                What::Memory(block) => self.take_back(Side::of(block.kind), block, at),
            }
        }
    }
}

#[cfg(test)]
mod tests;
