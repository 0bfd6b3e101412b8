//! Virtual memory management: physical memory counts from its creation until it is both released and unmapped.

use std::collections::BTreeMap;

use rustc_hash::{FxHashMap, FxHashSet};

use super::block::{Block, Mapping};

/// Handles that are gone and are known by then.
const MOST_GONE: usize = 1 << 16;

/// What physical memory is known by.
pub trait Memory: Copy {
    /// The handle that it was created with.
    fn handle(&self) -> u64;
    /// The device that it lies on.
    fn device(&self) -> u8;
    /// How large it is.
    fn size_bytes(&self) -> u64;
}

/// Physical memory that is given back by half: the card gets it when no handle holds it and nothing maps it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Half {
    /// Its handles are released, and it is mapped, in bytes.
    pub mapped_bytes: u64,
    /// It is not mapped any more, and a handle holds it, in bytes.
    pub held_bytes: u64,
}

impl Memory for Block {
    fn handle(&self) -> u64 {
        self.address
    }

    fn device(&self) -> u8 {
        self.device
    }

    fn size_bytes(&self) -> u64 {
        self.requested_bytes
    }
}

/// Physical memory behind a handle.
#[derive(Clone, Debug)]
struct Physical<B> {
    block: B,
    mappings: u64,
    /// Whether it ever was mapped.
    was_mapped: bool,
    /// How often it must still be released.
    references: u64,
}

/// All physical memory of one layer and its mappings.
#[derive(Clone, Debug)]
pub struct Vmm<B = Block> {
    /// Handles with the number of their memory and how often each must be released. A handle may be given out again while
    /// old mappings exist, so memory has numbers of its own.
    handles: FxHashMap<u64, (u64, u64)>,
    physical: FxHashMap<u64, Physical<B>>,
    /// Handles that are gone, the first of them: HIP takes a second release of one without an error.
    gone: FxHashSet<u64>,
    mappings: BTreeMap<u64, Mapping>,
    next: u64,
    /// Mappings that came (true) or went; kept only where somebody asked for it.
    changes: Option<Vec<(Mapping, bool)>>,
}

/// What an unmap took away.
#[derive(Clone, Debug)]
pub struct Unmapped<B = Block> {
    /// The mappings.
    pub mappings: Vec<Mapping>,
    /// Memory that is gone now, with its number.
    pub gone: Vec<(u64, B)>,
}

impl<B> Default for Unmapped<B> {
    fn default() -> Self {
        Unmapped { mappings: Vec::new(), gone: Vec::new() }
    }
}

impl<B> Default for Vmm<B> {
    fn default() -> Self {
        Vmm {
            handles: FxHashMap::default(),
            physical: FxHashMap::default(),
            gone: FxHashSet::default(),
            mappings: BTreeMap::new(),
            next: 0,
            changes: None,
        }
    }
}

impl<B: Memory> Vmm<B> {
    /// Physical memory was created; returns where it lies now, and the memory whose handle this was if nothing maps that.
    pub fn create(&mut self, block: B) -> (Option<&mut B>, Option<B>) {
        let number = self.next;
        self.next += 1;
        let replaced = self.handles.insert(block.handle(), (number, 1));
        let gone = replaced.and_then(|(old, references)| self.release_number(old, references));
        let physical =
            self.physical.entry(number).or_insert(Physical { block, mappings: 0, was_mapped: false, references: 1 });
        (Some(&mut physical.block), gone)
    }

    /// What of a device is given back by half.
    pub fn half(&self, device: u8) -> Half {
        let mut half = Half::default();
        for physical in self.physical.values().filter(|physical| physical.block.device() == device) {
            let bytes = physical.block.size_bytes();
            if physical.references == 0 {
                half.mapped_bytes = half.mapped_bytes.saturating_add(bytes);
            } else if physical.was_mapped && physical.mappings == 0 {
                half.held_bytes = half.held_bytes.saturating_add(bytes);
            }
        }
        half
    }

    /// A handle is released: `None` when it is not known, else the memory that is gone with it (if nothing maps it).
    pub fn release(&mut self, handle: u64) -> Option<Released<B>> {
        let (number, references) = self.handles.get_mut(&handle)?;
        let number = *number;
        let was_mapped = self.physical.get(&number).is_none_or(|physical| physical.was_mapped);
        *references -= 1;
        if *references == 0 {
            self.handles.remove(&handle);
            if self.gone.len() < MOST_GONE {
                self.gone.insert(handle);
            }
        }
        let gone = self.release_number(number, 1);
        Some(Released { number, handle, was_mapped, gone })
    }

    /// Whether a handle of that number was known, and has been released as often as it was given.
    pub fn was_released(&self, handle: u64) -> bool {
        self.gone.contains(&handle) && !self.handles.contains_key(&handle)
    }

    fn release_number(&mut self, number: u64, times: u64) -> Option<B> {
        let physical = self.physical.get_mut(&number)?;
        physical.references = physical.references.saturating_sub(times);
        let gone = physical.mappings == 0 && physical.references == 0;
        gone.then(|| self.physical.remove(&number)).flatten().map(|physical| physical.block)
    }

    /// Undoes a release that failed. The caller takes the block that was gone in again.
    pub fn unrelease(&mut self, released: &Released<B>, back: Option<B>) {
        self.handles.entry(released.handle).or_insert((released.number, 0)).1 += 1;
        if let Some(block) = back {
            let was_mapped = released.was_mapped;
            self.physical.insert(released.number, Physical { block, mappings: 0, was_mapped, references: 1 });
        } else if let Some(physical) = self.physical.get_mut(&released.number) {
            physical.references += 1;
        }
    }

    /// The handle of what is mapped at an address was asked for, which holds the memory as its creation does; whether any
    /// memory is known there.
    pub fn retain(&mut self, handle: u64, address: u64) -> bool {
        let around = self.mappings.range(..=address).next_back().map(|(_, mapping)| mapping);
        let mapped = around.filter(|mapping| address - mapping.address < mapping.size_bytes.max(1));
        let number = mapped.map(|mapping| mapping.physical).or_else(|| self.number_of(handle));
        let Some((number, physical)) = number.and_then(|number| Some((number, self.physical.get_mut(&number)?))) else {
            return false;
        };
        let held = self.handles.entry(handle).or_insert((number, 0));
        if held.0 != number {
            return false;
        }
        held.1 += 1;
        physical.references += 1;
        true
    }

    /// Memory is mapped; returns what was mapped at that address before. Unknown handles map nothing that counts.
    pub fn map(&mut self, address: u64, size_bytes: u64, handle: u64, entered: u64) -> Unmapped<B> {
        let mut before = Unmapped::default();
        let Some((number, _)) = self.handles.get(&handle).copied() else { return before };
        let Some(physical) = self.physical.get_mut(&number) else { return before };
        physical.mappings += 1;
        physical.was_mapped = true;
        let mapping = Mapping { address, size_bytes, entered, physical: number, device: physical.block.device() };
        if let Some(old) = self.put(mapping) {
            before.mappings.push(old);
            before.gone.extend(self.drop_mapping(old.physical));
        }
        before
    }

    /// Puts a mapping where it belongs; answers the one that was there.
    fn put(&mut self, mapping: Mapping) -> Option<Mapping> {
        let old = self.mappings.insert(mapping.address, mapping);
        if let Some(old) = &old {
            self.changed(old, false);
        }
        self.changed(&mapping, true);
        old
    }

    fn changed(&mut self, mapping: &Mapping, comes: bool) {
        if let Some(changes) = &mut self.changes {
            changes.push((*mapping, comes));
        }
    }

    /// Keeps which mappings come and go from now on, for [`Vmm::changes`].
    pub fn list_changes(&mut self) {
        self.changes.get_or_insert_default();
    }

    /// The mappings that came (true) and went since this was last asked.
    pub fn changes(&mut self) -> impl Iterator<Item = (Mapping, bool)> {
        self.changes.iter_mut().flat_map(|changes| changes.drain(..))
    }

    /// An address range is unmapped: all mappings that begin in it go.
    pub fn unmap(&mut self, address: u64, size_bytes: u64) -> Unmapped<B> {
        let end = address.saturating_add(size_bytes.max(1));
        let mappings: Vec<Mapping> = self.mappings.range(address..end).map(|(_, mapping)| *mapping).collect();
        let mut gone = Vec::new();
        for mapping in &mappings {
            self.mappings.remove(&mapping.address);
            self.changed(mapping, false);
            gone.extend(self.drop_mapping(mapping.physical));
        }
        Unmapped { mappings, gone }
    }

    fn drop_mapping(&mut self, number: u64) -> Option<(u64, B)> {
        let physical = self.physical.get_mut(&number)?;
        physical.mappings = physical.mappings.saturating_sub(1);
        let gone = physical.references == 0 && physical.mappings == 0;
        gone.then(|| self.physical.remove(&number)).flatten().map(|physical| (number, physical.block))
    }

    /// Undoes an unmap that failed; the caller takes the blocks that were gone in again.
    pub fn remap(&mut self, mappings: &[Mapping], back: &[(u64, B)]) {
        for (number, block) in back {
            self.physical.insert(*number, Physical { block: *block, mappings: 0, was_mapped: true, references: 0 });
        }
        for mapping in mappings {
            if let Some(physical) = self.physical.get_mut(&mapping.physical) {
                physical.mappings += 1;
                self.put(*mapping);
            }
        }
    }

    /// Takes all memory of a device away, in the order in which it came.
    pub fn reset(&mut self, device: u8) -> Reset<B> {
        let of_device = |physical: &Physical<B>| physical.block.device() == device;
        let mut physical: Vec<(u64, Physical<B>)> =
            self.physical.extract_if(|_, physical| of_device(physical)).collect();
        physical.sort_unstable_by_key(|(number, _)| *number);
        let handles = self.handles.extract_if(|_, (number, _)| !self.physical.contains_key(number)).collect();
        let mappings: Vec<Mapping> =
            self.mappings.values().filter(|mapping| mapping.device == device).copied().collect();
        self.mappings.retain(|_, mapping| mapping.device != device);
        mappings.iter().for_each(|mapping| self.changed(mapping, false));
        Reset { handles, physical, mappings }
    }

    /// Undoes a reset that failed; the caller takes the blocks in again. What came since stays where it is.
    pub fn unreset(&mut self, reset: Reset<B>) {
        self.physical.extend(reset.physical);
        for (handle, held) in reset.handles {
            self.handles.entry(handle).or_insert(held);
        }
        for mapping in reset.mappings {
            match self.mappings.get(&mapping.address) {
                Some(other) if *other != mapping => _ = self.drop_mapping(mapping.physical),
                Some(_) => {}
                None => _ = self.put(mapping),
            }
        }
    }

    /// How many pieces of physical memory live.
    pub fn count(&self) -> usize {
        self.physical.len()
    }

    /// Physical memory that lives.
    pub fn blocks(&self) -> impl Iterator<Item = &B> {
        self.physical.values().map(|physical| &physical.block)
    }

    /// The same, to place it.
    pub fn blocks_mut(&mut self) -> impl Iterator<Item = &mut B> {
        self.physical.values_mut().map(|physical| &mut physical.block)
    }

    /// Physical memory by its number, to change what is known about it.
    pub fn block_mut(&mut self, number: u64) -> Option<&mut B> {
        self.physical.get_mut(&number).map(|physical| &mut physical.block)
    }

    /// The memory behind a handle.
    pub fn behind(&self, handle: u64) -> Option<&B> {
        self.physical.get(&self.number_of(handle)?).map(|physical| &physical.block)
    }

    /// The number of the memory behind a handle.
    pub fn number_of(&self, handle: u64) -> Option<u64> {
        self.handles.get(&handle).map(|(number, _)| *number)
    }

    /// Mappings that exist, by address.
    pub fn mappings(&self) -> impl Iterator<Item = &Mapping> {
        self.mappings.values()
    }
}

/// All memory of a device, as a reset took it away.
#[derive(Clone, Debug)]
pub struct Reset<B = Block> {
    handles: Vec<(u64, (u64, u64))>,
    physical: Vec<(u64, Physical<B>)>,
    mappings: Vec<Mapping>,
}

impl<B> Reset<B> {
    /// The memory.
    pub fn blocks(&self) -> impl Iterator<Item = &B> {
        self.physical.iter().map(|(_, physical)| &physical.block)
    }

    /// How many blocks of memory.
    pub fn count(&self) -> usize {
        self.physical.len()
    }

    /// The same, to take it in again.
    pub fn blocks_mut(&mut self) -> impl Iterator<Item = &mut B> {
        self.physical.iter_mut().map(|(_, physical)| &mut physical.block)
    }

    /// Its mappings.
    pub fn mappings(&self) -> &[Mapping] {
        &self.mappings
    }

    /// The same, to take them in again at this place in the trace.
    pub fn enter_mappings(&mut self, position: u64) {
        self.mappings.iter_mut().for_each(|mapping| mapping.entered = position);
    }

    /// Whether it took nothing.
    pub fn is_empty(&self) -> bool {
        self.physical.is_empty() && self.mappings.is_empty()
    }
}

/// A handle that was released.
#[derive(Clone, Copy, Debug)]
pub struct Released<B = Block> {
    /// Number of its memory.
    pub number: u64,
    /// The handle.
    pub handle: u64,
    /// Whether the memory ever was mapped.
    pub was_mapped: bool,
    /// The memory, if it is gone with the handle.
    pub gone: Option<B>,
}
