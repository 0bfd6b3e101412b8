//! Frees below the program's own: what they take away, and how to undo one whose call fails.

use std::collections::BTreeMap;

use gpuoom_trace::record::{Event, Kind, Layer, Record};

use super::book::{Gone, LowerBlock, Taken};
use super::{BOOKS, Lower};
use crate::replay::accounts::Accounts;
use crate::replay::apis::{Api, Family};
use crate::replay::block::Space;
use crate::replay::pins::Pins;
use crate::replay::vain::InVain;
use crate::replay::vmm::{Reset, Unmapped};

/// Threads and layers that are remembered at once; two in the same slot displace each other, which matters only between
/// a free and the return of its call.
const SLOTS: usize = 4096;

#[derive(Clone, Debug, Default)]
struct Slot {
    thread: u32,
    call: u32,
    address: u64,
    is_unmatched: bool,
    taken: Taken,
}

/// The last free of each thread and layer, and frees of what no recorded call gave.
#[derive(Clone, Debug, Default)]
pub(super) struct LowerFrees {
    /// Made when the first is needed: most traces have no lower layers.
    slots: Vec<Slot>,
    unmatched: BTreeMap<u16, u64>,
    /// By layer.
    in_vain: [InVain; BOOKS],
}

impl LowerFrees {
    fn slot(&mut self, thread: u32, layer: Layer) -> &mut Slot {
        if self.slots.is_empty() {
            self.slots.resize_with(SLOTS, Slot::default);
        }
        &mut self.slots[(thread as usize * BOOKS + layer as usize) % SLOTS]
    }

    /// A free that was counted as one of nothing was none.
    fn uncount(&mut self, counted_by: Option<u16>) {
        if let Some(count) = counted_by.and_then(|api| self.unmatched.get_mut(&api)) {
            *count = count.saturating_sub(1);
        }
    }
}

impl Lower {
    /// Frees of what no recorded call gave, by function.
    pub fn unmatched(&self) -> impl Iterator<Item = (u16, u64)> {
        self.frees.unmatched.iter().filter(|(_, count)| **count > 0).map(|(api, count)| (*api, *count))
    }

    /// Something is given back at a layer. Returns whether the book of that layer knew it.
    ///
    /// `explained` says that the free needs no match: the caller found it elsewhere, or will look there. `position`: the ordinal of its
    /// record.
    pub fn free(
        &mut self,
        record: &Record,
        api: &Api,
        explained: bool,
        position: u64,
        accounts: &mut Accounts,
    ) -> bool {
        let Some(layer) = api.layer.filter(|layer| (*layer as usize) < BOOKS) else { return false };
        let kind = if record.event() == Some(Event::Unpin) { Kind::Registered } else { record.kind() };
        // What gives a range of NVIDIA's unified memory back gives a pool of semaphores back, too.
        let is_range = kind == Kind::Reserved && api.family != Family::Uvm;
        if is_range || matches!(kind, Kind::Queue | Kind::Scratch | Kind::Code) {
            return true;
        }
        let is_pinned_still = Pins::counts(record.event(), api.layer) && self.pins.take(record.address);
        let taken = match is_pinned_still {
            true => Taken::Pin(record.address),
            false => self.take_out(record, layer, kind, api.family, accounts),
        };
        let found = !matches!(taken, Taken::Nothing);
        if !found && self.was_freed_above(record, layer) {
            return true;
        }
        // Handles of the kernel's drivers come from requests that are no memory, too: doorbells, shared buffers, contexts.
        let is_unmatched = !found && !explained && api.family == Family::Pointers;
        if is_unmatched {
            self.frees.in_vain[layer as usize].note(record.address, position, Some(record.api));
            *self.frees.unmatched.entry(record.api).or_default() += 1;
        }
        let (thread, call, address) = (record.thread, record.call, record.address);
        *self.frees.slot(thread, layer) = Slot { thread, call, address, is_unmatched, taken };
        found
    }

    /// Remembers what the end of a context or a reset took, should the call fail.
    pub(super) fn remember_taken(
        &mut self,
        record: &Record,
        api: &Api,
        blocks: Vec<LowerBlock>,
        physical: Vec<(Layer, Reset<LowerBlock>)>,
    ) {
        let Some(layer) = api.layer.filter(|layer| (*layer as usize) < BOOKS) else { return };
        let (thread, call, address) = (record.thread, record.call, record.address);
        let gone: Vec<Gone> = blocks.into_iter().map(|block| Gone { block, other: None }).collect();
        let taken = match (gone.is_empty(), physical.is_empty()) {
            (true, true) => Taken::Nothing,
            (_, true) => Taken::Blocks(gone),
            _ => Taken::Device(gone, physical),
        };
        *self.frees.slot(thread, layer) = Slot { thread, call, address, is_unmatched: false, taken };
    }

    fn take_out(
        &mut self,
        record: &Record,
        layer: Layer,
        kind: Kind,
        family: Family,
        accounts: &mut Accounts,
    ) -> Taken {
        let book = &mut self.books[layer as usize];
        let mut space = Space::of(kind, family);
        if kind == Kind::Physical && family == Family::Pointers {
            if let Some(released) = book.release(record.address) {
                released.gone.iter().for_each(|gone| self.let_go(gone, accounts));
                return Taken::Handle(released);
            }
            // Imported handles are released by the same function.
            space = Space::Imported;
        }
        let gone = book.remove(space, record.address);
        gone.iter().for_each(|gone| self.let_go(&gone.block, accounts));
        if gone.is_empty() { Taken::Nothing } else { Taken::Blocks(gone) }
    }

    /// Whether an enclosing free of this or a higher layer is about the same address: a function that calls its like.
    fn was_freed_above(&mut self, record: &Record, layer: Layer) -> bool {
        Layer::ALL[..=layer as usize].iter().any(|above| {
            let slot = self.frees.slot(record.thread, *above);
            let encloses = record.call.wrapping_sub(slot.call) as i32 > 0;
            slot.thread == record.thread && slot.address == record.address && encloses && !record.is_outermost()
        })
    }

    /// Physical memory is mapped or unmapped at a layer.
    pub fn map_or_unmap(&mut self, record: &Record, handle: u64, api: &Api, position: u64, accounts: &mut Accounts) {
        let Some(layer) = api.layer.filter(|layer| (*layer as usize) < BOOKS) else { return };
        if record.kind() != Kind::Physical || api.family != Family::Pointers {
            return;
        }
        let book = &mut self.books[layer as usize];
        if record.event() == Some(Event::Map) {
            let gone = book.map(record.address, record.requested, handle, position);
            gone.iter().for_each(|gone| self.let_go(gone, accounts));
            return;
        }
        let unmapped = book.unmap(record.address, record.requested);
        unmapped.gone.iter().for_each(|(_, gone)| self.let_go(gone, accounts));
        let (thread, call, address) = (record.thread, record.call, record.address);
        let taken = Taken::Mappings(Box::new(unmapped));
        *self.frees.slot(thread, layer) = Slot { thread, call, address, is_unmatched: false, taken };
    }

    /// Blocks that were taken out are in their books again.
    fn put_back(&mut self, gone: Vec<Gone>, position: u64, accounts: &mut Accounts) {
        // The last one first: memory may have gone to a handle that went afterwards.
        for Gone { mut block, other } in gone.into_iter().rev() {
            block.entered = position;
            // The end of a context takes from several layers.
            let book = &mut self.books[block.layer as usize];
            let (_, old) = book.insert(block);
            other.iter().for_each(|other| book.join(block.address, *other));
            old.iter().for_each(|old| self.let_go(old, accounts));
            self.count(&block, accounts);
        }
    }

    /// A free or unmap that was recorded before its call has failed: what it took away is still there.
    #[cold]
    pub fn correct(&mut self, record: &Record, api: &Api, position: u64, accounts: &mut Accounts) {
        let Some(layer) = api.layer.filter(|layer| (*layer as usize) < BOOKS) else { return };
        let slot = self.frees.slot(record.thread, layer);
        if slot.thread != record.thread || slot.call != record.call || record.status == 0 {
            return;
        }
        let Slot { is_unmatched, address, taken, .. } = std::mem::take(slot);
        self.frees.uncount(is_unmatched.then_some(record.api));
        match taken {
            Taken::Nothing => self.frees.in_vain[layer as usize].failed(address),
            Taken::Pin(address) => self.pins.add(address),
            Taken::Blocks(gone) => {
                if let [only] = &gone[..]
                    && let Some(counted_by) =
                        self.frees.in_vain[layer as usize].took(only.block.address, only.block.entered)
                {
                    return self.frees.uncount(counted_by);
                }
                self.put_back(gone, position, accounts);
            }
            Taken::Device(gone, physical) => {
                self.put_back(gone, position, accounts);
                for (layer, mut reset) in physical {
                    reset.enter_mappings(position);
                    for block in reset.blocks_mut() {
                        block.entered = position;
                        self.count(&block.clone(), accounts);
                    }
                    self.books[layer as usize].unreset(reset);
                }
            }
            Taken::Handle(mut released) => {
                if let Some(block) = &mut released.gone {
                    block.entered = position;
                    self.count(&block.clone(), accounts);
                }
                self.books[layer as usize].unrelease(&released);
            }
            Taken::Mappings(unmapped) => {
                let Unmapped { mut mappings, mut gone } = *unmapped;
                mappings.iter_mut().for_each(|mapping| mapping.entered = position);
                for (_, block) in &mut gone {
                    block.entered = position;
                    self.count(&block.clone(), accounts);
                }
                self.books[layer as usize].remap(&mappings, &gone);
            }
        }
    }
}
