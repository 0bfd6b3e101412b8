//! Virtual memory management: physical memory counts from its creation until it is both released and unmapped.

use std::collections::BTreeMap;

use rustc_hash::FxHashMap;

use super::block::{Block, Mapping};

/// Physical memory behind a handle.
#[derive(Clone, Debug)]
struct Physical {
    block: Block,
    mappings: u64,
    /// Releases that are still due: one for the creation, one for each time that the handle was asked for.
    references: u64,
}

/// All physical memory and its mappings.
#[derive(Clone, Debug, Default)]
pub struct Vmm {
    /// A handle's number may be given out again while old mappings exist, so memory has numbers of its own.
    handles: FxHashMap<u64, u64>,
    physical: FxHashMap<u64, Physical>,
    mappings: BTreeMap<u64, Mapping>,
    next: u64,
}

/// What an unmap took away.
#[derive(Clone, Debug, Default)]
pub struct Unmapped {
    /// The mappings.
    pub mappings: Vec<Mapping>,
    /// Memory that is gone now, with its number.
    pub gone: Vec<(u64, Block)>,
}

impl Vmm {
    /// Physical memory was created; returns where it lies now, and the memory whose handle this was if nothing maps that.
    pub fn create(&mut self, block: Block) -> (Option<&mut Block>, Option<Block>) {
        let number = self.next;
        self.next += 1;
        let replaced = self.handles.insert(block.address, number);
        let gone = replaced.and_then(|old| self.forsake(old));
        let physical = self.physical.entry(number).or_insert(Physical { block, mappings: 0, references: 1 });
        (Some(&mut physical.block), gone)
    }

    /// The handle of what is mapped at an address was asked for, which holds the memory as its creation does; whether any
    /// memory is known there.
    pub fn retain(&mut self, handle: u64, address: u64) -> bool {
        let around = self.mappings.range(..=address).next_back().map(|(_, mapping)| mapping);
        let mapped = around.filter(|mapping| address - mapping.address < mapping.size_bytes.max(1));
        let number = mapped.map(|mapping| mapping.physical).or_else(|| self.handles.get(&handle).copied());
        let Some((number, physical)) = number.and_then(|number| Some((number, self.physical.get_mut(&number)?))) else {
            return false;
        };
        physical.references += 1;
        self.handles.insert(handle, number);
        true
    }

    /// A handle is released: `None` when it is not known.
    pub fn release(&mut self, handle: u64) -> Option<Released> {
        let number = *self.handles.get(&handle)?;
        let physical = self.physical.get_mut(&number)?;
        let device = physical.block.device;
        physical.references = physical.references.saturating_sub(1);
        let is_last = physical.references == 0;
        if is_last {
            self.handles.remove(&handle);
        }
        let gone = if is_last { self.forsake(number) } else { None };
        Some(Released { number, handle, device, is_last, gone })
    }

    /// No handle leads to this memory any more: it is gone unless it is mapped.
    fn forsake(&mut self, number: u64) -> Option<Block> {
        let physical = self.physical.get_mut(&number)?;
        physical.references = 0;
        (physical.mappings == 0).then(|| self.physical.remove(&number)).flatten().map(|physical| physical.block)
    }

    /// Undoes a release that failed. The caller takes the block that was gone in again.
    pub fn unrelease(&mut self, released: &Released, back: Option<Block>) {
        self.handles.insert(released.handle, released.number);
        if let Some(block) = back {
            self.physical.insert(released.number, Physical { block, mappings: 0, references: 1 });
        } else if let Some(physical) = self.physical.get_mut(&released.number) {
            physical.references += 1;
        }
    }

    /// Memory is mapped; returns what was mapped at that address before. Unknown handles map nothing that counts.
    pub fn map(&mut self, address: u64, size_bytes: u64, handle: u64, entered: u64) -> Unmapped {
        let mut before = Unmapped::default();
        let Some(number) = self.handles.get(&handle).copied() else { return before };
        let Some(physical) = self.physical.get_mut(&number) else { return before };
        physical.mappings += 1;
        let mapping = Mapping { address, size_bytes, entered, physical: number, device: physical.block.device };
        if let Some(old) = self.mappings.insert(address, mapping) {
            before.mappings.push(old);
            before.gone.extend(self.drop_mapping(old.physical));
        }
        before
    }

    /// An address range is unmapped: all mappings that begin in it go.
    pub fn unmap(&mut self, address: u64, size_bytes: u64) -> Unmapped {
        let end = address.saturating_add(size_bytes.max(1));
        let mappings: Vec<Mapping> = self.mappings.range(address..end).map(|(_, mapping)| *mapping).collect();
        let mut gone = Vec::new();
        for mapping in &mappings {
            self.mappings.remove(&mapping.address);
            gone.extend(self.drop_mapping(mapping.physical));
        }
        Unmapped { mappings, gone }
    }

    fn drop_mapping(&mut self, number: u64) -> Option<(u64, Block)> {
        let physical = self.physical.get_mut(&number)?;
        physical.mappings = physical.mappings.saturating_sub(1);
        let gone = physical.references == 0 && physical.mappings == 0;
        gone.then(|| self.physical.remove(&number)).flatten().map(|physical| (number, physical.block))
    }

    /// Undoes an unmap that failed; the caller takes the blocks that were gone in again.
    pub fn remap(&mut self, mappings: &[Mapping], back: &[(u64, Block)]) {
        for (number, block) in back {
            self.physical.insert(*number, Physical { block: *block, mappings: 0, references: 0 });
        }
        for mapping in mappings {
            if let Some(physical) = self.physical.get_mut(&mapping.physical) {
                physical.mappings += 1;
                self.mappings.insert(mapping.address, *mapping);
            }
        }
    }

    /// Takes all memory of a device away.
    pub fn reset(&mut self, device: u8) -> Unmapped {
        let of_device = |block: &Block| block.device == device;
        let numbers: Vec<u64> = self
            .physical
            .iter()
            .filter(|(_, physical)| of_device(&physical.block))
            .map(|(number, _)| *number)
            .collect();
        let gone = numbers.iter().filter_map(|number| Some((*number, self.physical.remove(number)?.block))).collect();
        self.handles.retain(|_, number| self.physical.contains_key(number));
        let mappings: Vec<Mapping> =
            self.mappings.values().filter(|mapping| mapping.device == device).copied().collect();
        self.mappings.retain(|_, mapping| mapping.device != device);
        Unmapped { mappings, gone }
    }

    /// Physical memory that lives.
    pub fn blocks(&self) -> impl Iterator<Item = &Block> {
        self.physical.values().map(|physical| &physical.block)
    }

    /// The same, to place it.
    pub fn blocks_mut(&mut self) -> impl Iterator<Item = &mut Block> {
        self.physical.values_mut().map(|physical| &mut physical.block)
    }

    /// Mappings that exist, by address.
    pub fn mappings(&self) -> impl Iterator<Item = &Mapping> {
        self.mappings.values()
    }
}

/// A handle that was released.
#[derive(Clone, Copy, Debug)]
pub struct Released {
    /// Number of its memory.
    pub number: u64,
    /// The handle.
    pub handle: u64,
    /// Device of the memory.
    pub device: u8,
    /// Whether no other reference is left.
    pub is_last: bool,
    /// The memory, if it is gone with the handle.
    pub gone: Option<Block>,
}
