//! Blocks and the pools that they are cached in.

use std::collections::BTreeSet;

/// Number of a block.
pub type BlockId = u32;
/// Number of a pool.
pub type PoolId = usize;

/// What a block is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// Cached.
    Free,
    /// A tensor's.
    Allocated,
    /// Freed, and waits for work on other streams.
    Pending,
}

/// A part of a segment.
#[derive(Clone, Copy, Debug)]
pub struct Block {
    /// First address.
    pub address: u64,
    /// Bytes.
    pub bytes: u64,
    /// Stream that it was allocated on.
    pub stream: u64,
    /// Its pool.
    pub pool: PoolId,
    /// What it is.
    pub state: State,
    /// Whether there is memory behind it; only in expandable segments there may be none.
    pub mapped: bool,
    /// Its neighbours in the segment.
    pub before: Option<BlockId>,
    /// The one behind.
    pub after: Option<BlockId>,
    /// The expandable segment that it lies in.
    pub expandable: Option<usize>,
    /// Number of its segment, in the order in which they were taken; 0 where the order plays no part.
    pub segment: u64,
    /// How often the pool had been searched when it came there.
    pub searches_before: u64,
}

impl Block {
    /// A block of nothing, to be filled.
    pub const EMPTY: Block = Block {
        address: 0,
        bytes: 0,
        stream: 0,
        pool: 0,
        state: State::Free,
        mapped: true,
        before: None,
        after: None,
        expandable: None,
        segment: 0,
        searches_before: 0,
    };

    /// Whether it is a whole segment.
    pub fn is_whole(&self) -> bool {
        self.before.is_none() && self.after.is_none()
    }

    /// Its place among the cached blocks.
    pub fn free_key(&self, id: BlockId) -> FreeKey {
        (self.stream, self.bytes, self.segment, self.address, id)
    }

    /// The address behind it.
    pub fn end(&self) -> u64 {
        self.address.saturating_add(self.bytes)
    }
}

/// Stream, size, segment and address of a cached block, and its number.
pub type FreeKey = (u64, u64, u64, u64, BlockId);

/// A pool of cached blocks.
#[derive(Clone, Debug, Default)]
pub struct Pool {
    /// Whether it is for small blocks.
    pub small: bool,
    /// Graph or user pool that it belongs to; (0, 0) is none.
    pub owner: (u64, u64),
    /// Cached blocks, by stream, size, segment and address.
    pub free: BTreeSet<FreeKey>,
    /// Address space without memory, by stream and address.
    pub unmapped: BTreeSet<(u64, u64, BlockId)>,
    /// How often it was searched.
    pub searches: u64,
}

/// All blocks, by number.
#[derive(Clone, Debug, Default)]
pub struct Blocks {
    blocks: Vec<Block>,
    unused: Vec<BlockId>,
}

impl Blocks {
    /// Adds a block.
    pub fn add(&mut self, block: Block) -> BlockId {
        match self.unused.pop() {
            Some(id) => {
                self.blocks[id as usize] = block;
                id
            }
            None => {
                self.blocks.push(block);
                (self.blocks.len() - 1) as BlockId
            }
        }
    }

    /// A block.
    pub fn get(&self, id: BlockId) -> &Block {
        &self.blocks[id as usize]
    }

    /// A block, to be changed.
    pub fn get_mut(&mut self, id: BlockId) -> &mut Block {
        &mut self.blocks[id as usize]
    }

    /// Forgets a block, and takes it out from between its neighbours.
    pub fn forget(&mut self, id: BlockId) {
        let Block { before, after, .. } = *self.get(id);
        if let Some(before) = before {
            self.get_mut(before).after = after;
        }
        if let Some(after) = after {
            self.get_mut(after).before = before;
        }
        self.unused.push(id);
    }

    /// Puts a block between two.
    pub fn link(&mut self, id: BlockId, before: Option<BlockId>, after: Option<BlockId>) {
        if let Some(before) = before {
            self.get_mut(before).after = Some(id);
        }
        if let Some(after) = after {
            self.get_mut(after).before = Some(id);
        }
        let block = self.get_mut(id);
        (block.before, block.after) = (before, after);
    }

    /// Numbers that blocks had or have.
    #[cfg(test)]
    pub fn ids(&self) -> impl Iterator<Item = BlockId> + '_ {
        (0..self.blocks.len() as BlockId).filter(|id| !self.unused.contains(id))
    }
}
