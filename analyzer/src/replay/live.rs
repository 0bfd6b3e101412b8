//! The blocks that live, by address.

use super::block::{Block, Space};
use super::by_address::ByAddress;

/// One table for each [`Space`].
#[derive(Clone, Debug, Default)]
pub struct LiveSet {
    memory: ByAddress,
    arrays: ByAddress,
    registered: ByAddress,
    reserved: ByAddress,
    imported: ByAddress,
    kernel: [ByAddress; 4],
    /// Blocks with addresses that came (true) or went; kept only where somebody asked for it.
    changes: Option<Vec<(Block, bool)>>,
}

impl LiveSet {
    #[inline]
    fn table(&mut self, space: Space) -> &mut ByAddress {
        match space {
            Space::Memory => &mut self.memory,
            Space::Array => &mut self.arrays,
            Space::Registered => &mut self.registered,
            Space::Reserved => &mut self.reserved,
            Space::Imported => &mut self.imported,
            Space::Kernel(family) => &mut self.kernel[(family as usize).saturating_sub(1)],
        }
    }

    fn table_of(&self, space: Space) -> &ByAddress {
        match space {
            Space::Memory => &self.memory,
            Space::Array => &self.arrays,
            Space::Registered => &self.registered,
            Space::Reserved => &self.reserved,
            Space::Imported => &self.imported,
            Space::Kernel(family) => &self.kernel[(family as usize).saturating_sub(1)],
        }
    }

    /// Takes a block in; returns where it lies now and the block that had its address.
    // Always in line, as `remove`: a block is a cache line, and a call would copy it once more at every event.
    #[inline(always)]
    pub fn insert(&mut self, block: Block) -> (Option<&mut Block>, Option<Block>) {
        if self.changes.is_some() {
            self.comes(&block);
        }
        let (slot, old) = self.table(block.space()).insert(block);
        (Some(slot), old)
    }

    /// Lets the block at an address go.
    #[inline(always)]
    pub fn remove(&mut self, space: Space, address: u64) -> Option<Block> {
        if self.changes.is_some() {
            self.goes(space, address);
        }
        self.table(space).remove(address)
    }

    // Out of line, and before the table changes: a reference to what the table gives back would keep the block from registers
    // in every trace, also where nobody asked for changes.
    #[inline(never)]
    fn comes(&mut self, block: &Block) {
        self.goes(block.space(), block.address);
        self.changed(std::iter::once(block), true);
    }

    #[inline(never)]
    fn goes(&mut self, space: Space, address: u64) {
        let gone = self.get(space, address).copied();
        self.changed(gone.iter(), false);
    }

    /// Keeps what comes and goes from now on, for [`LiveSet::changes`].
    pub fn list_changes(&mut self) {
        self.changes.get_or_insert_default();
    }

    /// What came (true) and went since this was last asked.
    pub fn changes(&mut self) -> impl Iterator<Item = (Block, bool)> {
        self.changes.iter_mut().flat_map(|changes| changes.drain(..))
    }

    /// The same, which stay to be asked for.
    pub fn latest_changes(&self) -> impl Iterator<Item = &(Block, bool)> {
        self.changes.iter().flatten()
    }

    #[cold]
    fn changed<'a>(&mut self, blocks: impl Iterator<Item = &'a Block>, come: bool) {
        if let Some(changes) = &mut self.changes {
            changes.extend(blocks.filter(|block| block.may_hold_blocks()).map(|block| (*block, come)));
        }
    }

    /// The block at an address.
    pub fn get(&self, space: Space, address: u64) -> Option<&Block> {
        self.table_of(space).get(address)
    }

    /// Whether a block lives at an address.
    pub fn has(&self, space: Space, address: u64) -> bool {
        self.table_of(space).get(address).is_some()
    }

    /// The block of memory that begins at an address.
    pub fn at(&self, address: u64) -> Option<&Block> {
        self.memory.get(address)
    }

    /// The block of memory that an address lies in. Looks at all of them.
    pub fn around(&self, address: u64) -> Option<&Block> {
        self.memory.iter().find(|block| address.wrapping_sub(block.address) < block.requested_bytes)
    }

    /// Takes all device memory of a device out.
    pub fn remove_device(&mut self, device: u8) -> Vec<Block> {
        let of_device =
            |block: &Block| block.device == device && super::block::Side::of(block.kind) == super::block::Side::Device;
        let mut gone: Vec<Block> = Vec::new();
        for table in [&mut self.memory, &mut self.arrays].into_iter().chain(&mut self.kernel) {
            gone.extend(table.take_where(of_device));
        }
        // The order of a hash table is not the order of anything.
        gone.sort_by_key(|block| block.entered);
        self.changed(gone.iter(), false);
        gone
    }

    /// Takes the memory above the kernel out that `goes`, by the order in which it came.
    pub fn remove_where(&mut self, mut goes: impl FnMut(&Block) -> bool) -> Vec<Block> {
        let mut gone: Vec<Block> = Vec::new();
        for table in [&mut self.memory, &mut self.arrays, &mut self.registered] {
            gone.extend(table.take_where(&mut goes));
        }
        gone.sort_by_key(|block| block.entered);
        self.changed(gone.iter(), false);
        gone
    }

    /// Blocks of device, managed, pool, pinned and registered memory and arrays.
    pub fn blocks(&self) -> impl Iterator<Item = &Block> {
        let tables = [&self.memory, &self.arrays, &self.registered].into_iter().chain(&self.kernel);
        tables.flat_map(ByAddress::iter)
    }

    /// The same, to place them.
    pub fn blocks_mut(&mut self) -> impl Iterator<Item = &mut Block> {
        let tables = [&mut self.memory, &mut self.arrays, &mut self.registered].into_iter().chain(&mut self.kernel);
        tables.flat_map(ByAddress::iter_mut)
    }

    /// How many blocks [`LiveSet::blocks`] yields.
    pub fn count(&self) -> usize {
        let tables = [&self.memory, &self.arrays, &self.registered].into_iter().chain(&self.kernel);
        tables.map(ByAddress::len).sum()
    }
}
