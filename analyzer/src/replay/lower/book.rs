//! What lives in one layer below the program's own calls.

use gpuoom_trace::record::{Kind, Layer};
use rustc_hash::FxHashMap;

use super::cause::Cause;
use crate::replay::apis::Family;
use crate::replay::block::{Mapping, Side, Space};
use crate::replay::contexts::{End, Fate};
use crate::replay::shared::Shared;
use crate::replay::vmm::{Memory, Released, Reset, Unmapped, Vmm};

/// Memory that a call gave which is not the program's own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LowerBlock {
    /// Pointer or handle.
    pub address: u64,
    /// Bytes asked for.
    pub bytes: u64,
    /// Ordinal (in the replay) of the record that made it live.
    pub entered: u64,
    /// Object that it goes with (NVIDIA), 0 where there is none.
    pub parent: u64,
    /// Call site of an outermost call, 0 where it is not known.
    pub site: u32,
    /// Function that gave it.
    pub api: u16,
    /// CUDA context that it belongs to, by its number in the replay; 0 where it is not known.
    pub context: u16,
    /// Device number as recorded.
    pub device: u8,
    /// Kind of memory.
    pub kind: Kind,
    /// Layer of the function.
    pub layer: Layer,
    /// What its address is.
    pub family: Family,
    /// Nothing recorded encloses the call that gave it.
    pub is_outermost: bool,
    /// Why it exists.
    pub cause: Cause,
}

impl LowerBlock {
    /// Whose memory it is.
    pub fn side(&self) -> Side {
        Side::of(self.kind)
    }

    fn space(&self) -> Space {
        Space::of(self.kind, self.family)
    }
}

impl Memory for LowerBlock {
    fn handle(&self) -> u64 {
        self.address
    }

    fn device(&self) -> u8 {
        self.device
    }

    fn size_bytes(&self) -> u64 {
        self.bytes
    }
}

/// Where a block of a book is found again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Key {
    /// By address.
    Address(Space, u64),
    /// By its number among the physical memory.
    Physical(u64),
}

/// What a free took away, to undo it.
#[derive(Clone, Debug, Default)]
pub(super) enum Taken {
    /// Nothing.
    #[default]
    Nothing,
    /// One of several pins of the memory at an address.
    Pin(u64),
    /// Blocks.
    Blocks(Vec<Gone>),
    /// A handle.
    Handle(Released<LowerBlock>),
    /// Everything of a device: blocks, and physical memory by layer.
    Device(Vec<Gone>, Vec<(Layer, Reset<LowerBlock>)>),
    /// Mappings and the memory that was gone with them.
    Mappings(Box<Unmapped<LowerBlock>>),
}

/// A block that is gone. Where another handle has its memory now, only a name of that is.
#[derive(Clone, Copy, Debug)]
pub(super) struct Gone {
    /// The block.
    pub(super) block: LowerBlock,
    /// The handle that has its memory.
    pub(super) other: Option<u64>,
}

const OBJECTS: Space = Space::Kernel(Family::Nvidia);

/// All blocks of one layer.
#[derive(Clone, Debug, Default)]
pub(super) struct Book {
    blocks: FxHashMap<(Space, u64), LowerBlock>,
    vmm: Vmm<LowerBlock>,
    /// How many blocks go with an object or a client of NVIDIA's resource manager.
    dependants: FxHashMap<u64, u64>,
    /// Handles of NVIDIA's that name the same memory. One of them has it; the others are imports without a size.
    shared: Shared,
}

/// The object and the client that a block goes with.
fn depends_on(block: &LowerBlock) -> impl Iterator<Item = u64> {
    let client = block.address >> 32;
    let both = [block.parent, client << 32 | client];
    both.into_iter().filter(|object| *object != 0).take(if block.family == Family::Nvidia { 2 } else { 0 })
}

impl Book {
    /// Takes a block in; returns where it is found, and what was gone with it (an address lives once).
    pub(super) fn insert(&mut self, block: LowerBlock) -> (Key, Option<LowerBlock>) {
        if block.kind == Kind::Physical && block.family == Family::Pointers {
            let (_, gone) = self.vmm.create(block);
            return (Key::Physical(self.vmm.number_of(block.address).unwrap_or(u64::MAX)), gone);
        }
        if block.family == Family::Nvidia {
            self.pass_on(block.address);
        }
        let gone = self.blocks.insert((block.space(), block.address), block);
        gone.iter().for_each(|gone| self.forget_dependence(gone));
        depends_on(&block).for_each(|object| *self.dependants.entry(object).or_default() += 1);
        (Key::Address(block.space(), block.address), gone)
    }

    /// The block at a key.
    pub(super) fn get_mut(&mut self, key: Key) -> Option<&mut LowerBlock> {
        match key {
            Key::Address(space, address) => self.blocks.get_mut(&(space, address)),
            Key::Physical(number) => self.vmm.block_mut(number),
        }
    }

    fn forget_dependence(&mut self, gone: &LowerBlock) {
        for object in depends_on(gone) {
            if let Some(count) = self.dependants.get_mut(&object) {
                *count -= 1;
                if *count == 0 {
                    self.dependants.remove(&object);
                }
            }
        }
    }

    /// A handle of NVIDIA's becomes one more name of the memory that another names, if that is known.
    pub(super) fn join(&mut self, handle: u64, other: u64) {
        if self.has(OBJECTS, other) {
            self.shared.join(handle, other);
        }
    }

    /// A handle is taken away from its memory; the handle that has it now, if there is one.
    fn pass_on(&mut self, handle: u64) -> Option<u64> {
        let other = self.shared.leave(handle)?;
        let (from, to) = (self.blocks.get(&(OBJECTS, handle)).copied()?, self.blocks.get(&(OBJECTS, other)).copied()?);
        if from.kind != Kind::Imported {
            // Address and parent are the handle's, all else is the memory's.
            self.blocks.insert((OBJECTS, other), LowerBlock { address: to.address, parent: to.parent, ..from });
            self.blocks.insert((OBJECTS, handle), LowerBlock { address: from.address, parent: from.parent, ..to });
        }
        Some(other)
    }

    /// Lets the block at an address go, and with an object of NVIDIA's resource manager what belongs to it.
    pub(super) fn remove(&mut self, space: Space, address: u64) -> Vec<Gone> {
        let mut addresses = vec![address];
        if space == OBJECTS && self.dependants.contains_key(&address) {
            let goes = |block: &&LowerBlock| depends_on(block).any(|object| object == address);
            let mut under: Vec<&LowerBlock> = self.blocks.values().filter(goes).collect();
            under.sort_by_key(|block| (block.entered, block.address));
            addresses.extend(under.iter().map(|block| block.address).filter(|below| *below != address));
        }
        let gone = addresses.into_iter().filter_map(|address| {
            let other = if space == OBJECTS { self.pass_on(address) } else { None };
            let block = self.blocks.remove(&(space, address))?;
            self.forget_dependence(&block);
            Some(Gone { block, other })
        });
        gone.collect()
    }

    /// Takes one block away by its key.
    pub(super) fn drop_key(&mut self, key: Key) -> Option<LowerBlock> {
        match key {
            Key::Address(space, address) => self.remove(space, address).into_iter().next().map(|gone| gone.block),
            Key::Physical(number) => {
                let handle = self.vmm.block_mut(number)?.address;
                self.vmm.release(handle).and_then(|released| released.gone)
            }
        }
    }

    /// Whether something lives at an address.
    pub(super) fn has(&self, space: Space, address: u64) -> bool {
        self.blocks.contains_key(&(space, address))
    }

    /// Drops a handle of physical memory.
    pub(super) fn release(&mut self, handle: u64) -> Option<Released<LowerBlock>> {
        self.vmm.release(handle)
    }

    /// Undoes that.
    pub(super) fn unrelease(&mut self, released: &Released<LowerBlock>) {
        self.vmm.unrelease(released, released.gone);
    }

    /// Maps physical memory; returns what is gone.
    pub(super) fn map(&mut self, address: u64, bytes: u64, handle: u64, entered: u64) -> Vec<LowerBlock> {
        self.vmm.map(address, bytes, handle, entered).gone.into_iter().map(|(_, block)| block).collect()
    }

    /// Unmaps a range.
    pub(super) fn unmap(&mut self, address: u64, bytes: u64) -> Unmapped<LowerBlock> {
        self.vmm.unmap(address, bytes)
    }

    /// Undoes that.
    pub(super) fn remap(&mut self, mappings: &[Mapping], back: &[(u64, LowerBlock)]) {
        self.vmm.remap(mappings, back);
    }

    /// One more reference to what is mapped at an address.
    pub(super) fn retain(&mut self, handle: u64, address: u64) -> bool {
        self.vmm.retain(handle, address)
    }

    /// Takes everything of a device away: blocks in the order in which they came, and physical memory.
    pub(super) fn reset(&mut self, device: u8) -> (Vec<LowerBlock>, Reset<LowerBlock>) {
        let of_device = |block: &LowerBlock| block.device == device && block.side() == Side::Device;
        let mut gone: Vec<LowerBlock> =
            self.blocks.extract_if(|_, block| of_device(block)).map(|(_, block)| block).collect();
        gone.iter().for_each(|gone| self.forget_dependence(gone));
        gone.sort_by_key(|block| block.entered);
        (gone, self.vmm.reset(device))
    }

    /// Undoes what a reset did to physical memory.
    pub(super) fn unreset(&mut self, reset: Reset<LowerBlock>) {
        self.vmm.unreset(reset);
    }

    /// Takes out what belongs to a context that ends; physical memory belongs to none.
    pub(super) fn end(&mut self, end: &End) -> Vec<LowerBlock> {
        let goes = |block: &LowerBlock| end.fate(block.kind, block.layer, block.device, block.context) == Fate::Gone;
        let mut gone: Vec<LowerBlock> =
            self.blocks.extract_if(|_, block| goes(block)).map(|(_, block)| block).collect();
        gone.iter().for_each(|gone| self.forget_dependence(gone));
        gone.sort_by_key(|block| block.entered);
        gone
    }

    /// The block at an address.
    pub(super) fn get(&self, space: Space, address: u64) -> Option<&LowerBlock> {
        self.blocks.get(&(space, address))
    }

    /// How many blocks have an address.
    pub(super) fn count(&self) -> usize {
        self.blocks.len()
    }

    /// All blocks.
    pub(super) fn blocks(&self) -> impl Iterator<Item = &LowerBlock> {
        self.blocks.values().chain(self.vmm.blocks())
    }
}
