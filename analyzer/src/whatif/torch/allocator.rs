//! The caching allocator as a model: what it hands out, keeps, splits and joins.
//!
//! Rules after c10/cuda/CUDACachingAllocator.cpp of PyTorch 2.15. Requests go to a pool by size; a pool gives its smallest
//! block that fits, of the same stream; what is larger is split; neighbours that are free are joined again.

use rustc_hash::{FxHashMap, FxHashSet};

use super::blocks::{Block, BlockId, Blocks, FreeKey, Pool, PoolId, State};
use super::driver::{Call, CallKind, Driver};
use super::policy::{MIN_BLOCK, Policy, SMALL, Ties};

/// No card is larger: address space is set aside for all of it.
const MAX_CARD_BYTES: u64 = 1 << 44;
/// No request is larger.
const MAX_REQUEST_BYTES: u64 = 1 << 50;

/// A pool of a graph, or of the program; (0, 0) is the usual one.
pub type Owner = (u64, u64);

/// What the allocator holds and held.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sums {
    /// Bytes of all segments.
    pub reserved: u64,
    /// Most of it.
    pub peak_reserved: u64,
    /// Bytes of blocks that tensors hold.
    pub allocated: u64,
    /// Most of it.
    pub peak_allocated: u64,
    /// Most bytes that tensors held while the reserved bytes were at their most.
    pub allocated_at_peak: u64,
    /// Times that memory was taken from the driver.
    pub takes: u64,
    /// Times that memory was given back.
    pub gives: u64,
    /// Times that the driver refused and everything cached was given back to ask again.
    pub retries: u64,
}

/// A request.
#[derive(Clone, Copy, Debug)]
pub(super) struct Request {
    pub(super) bytes: u64,
    pub(super) stream: u64,
    pub(super) pool: PoolId,
}

/// An expandable segment.
#[derive(Clone, Copy, Debug)]
pub(super) struct Expandable {
    pub(super) base: u64,
    pub(super) bytes: u64,
    pub(super) unit: u64,
}

/// The allocator.
#[derive(Clone, Debug)]
pub struct Allocator<D> {
    /// Its settings.
    pub policy: Policy,
    /// What stands below it.
    pub driver: D,
    /// What it holds.
    pub sums: Sums,
    /// Memory of the card, by which address ranges are sized.
    pub(super) card_bytes: u64,
    pub(super) blocks: Blocks,
    pub(super) pools: Vec<Pool>,
    by_owner: FxHashMap<(Owner, bool), PoolId>,
    /// Pools that no graph uses any more.
    pub(super) freeable: FxHashSet<Owner>,
    pub(super) segments: Vec<Expandable>,
    segments_taken: u64,
    /// Whether sizes of requests are rounded up; not where they are those of blocks that its policy gave.
    pub(super) rounds: bool,
    /// Whether the block that was handed out last was split off a larger one.
    pub(super) was_split: bool,
    /// Blocks that wait for work on other streams, with the name that they were freed under.
    pub(super) pending: FxHashMap<BlockId, u64>,
}

impl<D: Driver> Allocator<D> {
    /// An allocator that holds nothing, on a card of this size.
    pub fn new(policy: Policy, driver: D, card_bytes: u64) -> Self {
        let mut allocator = Allocator {
            policy,
            driver,
            sums: Sums::default(),
            card_bytes: card_bytes.min(MAX_CARD_BYTES),
            blocks: Blocks::default(),
            pools: Vec::new(),
            by_owner: FxHashMap::default(),
            freeable: FxHashSet::default(),
            segments: Vec::new(),
            segments_taken: 0,
            rounds: true,
            was_split: false,
            pending: FxHashMap::default(),
        };
        // The usual pools come first: large, then small, the order in which they give memory back.
        allocator.pool((0, 0), false);
        allocator.pool((0, 0), true);
        allocator
    }

    fn pool(&mut self, owner: Owner, small: bool) -> PoolId {
        let pools = &mut self.pools;
        *self.by_owner.entry((owner, small)).or_insert_with(|| {
            pools.push(Pool { small, owner, ..Pool::default() });
            pools.len() - 1
        })
    }

    fn request(&mut self, requested: u64, stream: u64, owner: Owner) -> Request {
        let requested = requested.min(MAX_REQUEST_BYTES);
        let bytes = if self.rounds { self.policy.block_bytes(requested) } else { requested.max(MIN_BLOCK) };
        Request { bytes, stream, pool: self.pool(owner, bytes <= SMALL) }
    }

    /// No graph uses a pool any more: it gives memory back with the others.
    pub fn is_freeable(&mut self, owner: Owner) {
        self.freeable.insert(owner);
    }

    /// Whether a request would be met without the driver.
    pub fn has_cached(&mut self, requested: u64, stream: u64, owner: Owner) -> bool {
        let request = self.request(requested, stream, owner);
        self.find(&request).is_some()
    }

    /// Hands out a block; `None` where memory is out.
    pub fn allocate(&mut self, requested: u64, stream: u64, owner: Owner) -> Option<BlockId> {
        let request = self.request(requested, stream, owner);
        if self.collects_garbage() {
            self.pools[request.pool].searches += 1;
        }
        let found = match self.find(&request) {
            Some(id) => {
                self.uncache(id);
                Some(id)
            }
            None => self.take(&request),
        };
        let id = self.hand_out(found?, request.bytes);
        let bytes = self.blocks.get(id).bytes;
        let sums = &mut self.sums;
        sums.allocated = sums.allocated.saturating_add(bytes);
        sums.peak_allocated = sums.peak_allocated.max(sums.allocated);
        let at_peak = (sums.reserved, sums.allocated);
        if at_peak > (sums.peak_reserved, sums.allocated_at_peak) {
            (sums.peak_reserved, sums.allocated_at_peak) = at_peak;
        }
        Some(id)
    }

    /// A new segment, if need be after others were given back.
    fn take(&mut self, request: &Request) -> Option<BlockId> {
        if self.collects_garbage() {
            self.collect_garbage();
        }
        if let Some(id) = self.take_segment(request) {
            return Some(id);
        }
        if self.release_available(request)
            && let Some(id) = self.take_segment(request)
        {
            return Some(id);
        }
        self.release_cached();
        self.sums.retries += 1;
        self.take_segment(request)
    }

    pub(super) fn allowed_bytes(&self) -> Option<u64> {
        self.policy.memory_fraction.map(|share| (share * self.card_bytes as f64) as u64)
    }

    fn collects_garbage(&self) -> bool {
        self.policy.garbage_collection_threshold > 0.0 && self.policy.memory_fraction.is_some()
    }

    fn take_segment(&mut self, request: &Request) -> Option<BlockId> {
        let Request { bytes, stream, pool } = *request;
        let wanted = self.policy.segment_bytes(bytes);
        if self.allowed_bytes().is_some_and(|allowed| self.sums.reserved.saturating_add(wanted) > allowed) {
            return None;
        }
        if self.policy.expandable_segments {
            return self.take_expandable(request);
        }
        let address = self.driver.segment(wanted, stream, self.sums.reserved)?;
        self.took(wanted);
        let (state, segment) = (State::Allocated, self.next_segment());
        Some(self.blocks.add(Block { address, bytes: wanted, stream, pool, state, segment, ..Block::EMPTY }))
    }

    /// The number of a new segment.
    pub(super) fn next_segment(&mut self) -> u64 {
        self.segments_taken += 1;
        if self.policy.ties == Ties::Segment { self.segments_taken } else { 0 }
    }

    pub(super) fn took(&mut self, bytes: u64) {
        self.sums.takes += 1;
        self.sums.reserved = self.sums.reserved.saturating_add(bytes);
        if self.sums.reserved > self.sums.peak_reserved {
            (self.sums.peak_reserved, self.sums.allocated_at_peak) = (self.sums.reserved, self.sums.allocated);
        }
    }

    pub(super) fn gave(&mut self, kind: CallKind, address: u64, bytes: u64, stream: u64) {
        self.sums.gives += 1;
        self.sums.reserved = self.sums.reserved.saturating_sub(bytes);
        self.driver.give_back(Call { kind, address, bytes, stream });
    }

    /// The smallest cached block that a request may have.
    fn find(&self, request: &Request) -> Option<BlockId> {
        let Request { bytes, stream, pool } = *request;
        let mut rest = self.pools[pool].free.range((stream, bytes, 0, 0, 0)..).copied();
        let of_stream = |entry: FreeKey| (entry.0 == stream).then_some(entry.4);
        let mut id = of_stream(rest.next()?)?;
        if self.blocks.get(id).expandable.is_some() {
            if self.policy.expandable_segments {
                // What counts is the size that a block can grow to.
                while let Some(next) = rest.next().and_then(of_stream)
                    && self.blocks.get(id).expandable.is_some()
                    && self.can_grow_to(next) < self.can_grow_to(id)
                {
                    id = next;
                }
            } else {
                id = rest.map_while(of_stream).find(|id| self.blocks.get(*id).expandable.is_none())?;
            }
        }
        let has = self.blocks.get(id).bytes;
        let largest_split = self.policy.max_split_bytes;
        let oversize = bytes < largest_split && has >= largest_split;
        let rounding = self.policy.max_non_split_rounding_bytes;
        let wasteful = bytes >= largest_split && has >= bytes.saturating_add(rounding);
        (!oversize && !wasteful).then_some(id)
    }

    fn can_grow_to(&self, id: BlockId) -> u64 {
        let block = self.blocks.get(id);
        let behind = block.after.map(|after| self.blocks.get(after)).filter(|after| !after.mapped);
        block.bytes.saturating_add(behind.map_or(0, |after| after.bytes))
    }

    /// Puts a free block into its pool.
    pub(super) fn cache(&mut self, id: BlockId) {
        let block = *self.blocks.get(id);
        let pool = &mut self.pools[block.pool];
        pool.free.insert(block.free_key(id));
        self.blocks.get_mut(id).searches_before = pool.searches;
    }

    /// Takes a block out of its pool.
    pub(super) fn uncache(&mut self, id: BlockId) {
        let block = *self.blocks.get(id);
        let pool = &mut self.pools[block.pool];
        match block.mapped {
            true => pool.free.remove(&block.free_key(id)),
            false => pool.unmapped.remove(&(block.stream, block.address, id)),
        };
    }

    /// Splits a block that is in no pool, if it is to be split, and makes it a tensor's.
    fn hand_out(&mut self, id: BlockId, bytes: u64) -> BlockId {
        let whole = *self.blocks.get(id);
        let remaining = whole.bytes.saturating_sub(bytes);
        self.was_split = self.policy.splits(self.pools[whole.pool].small, bytes, remaining);
        if !self.was_split {
            self.blocks.get_mut(id).state = State::Allocated;
            return id;
        }
        let front = self.blocks.add(Block { bytes, state: State::Allocated, ..whole });
        self.blocks.link(front, whole.before, Some(id));
        let rest = self.blocks.get_mut(id);
        (rest.address, rest.bytes, rest.state) = (whole.address.saturating_add(bytes), remaining, State::Free);
        self.cache(id);
        front
    }

    /// A tensor is gone. Its block is cached, unless work on another stream still uses it: then it waits under a name.
    pub fn free(&mut self, id: BlockId, waits_as: Option<u64>) {
        let bytes = self.blocks.get(id).bytes;
        self.sums.allocated = self.sums.allocated.saturating_sub(bytes);
        self.blocks.get_mut(id).state = State::Pending;
        match waits_as {
            Some(name) => {
                self.pending.insert(id, name);
            }
            None => self.cache_freed(id),
        }
    }

    /// The work that a freed block waited for is done. Somebody may have waited for it before.
    pub fn completed(&mut self, id: BlockId, name: u64) {
        if self.pending.get(&id) == Some(&name) {
            self.pending.remove(&id);
            self.cache_freed(id);
        }
    }

    /// All that freed blocks wait for is done.
    pub(super) fn complete_all(&mut self) {
        let mut ids: Vec<BlockId> = self.pending.drain().map(|(id, _)| id).collect();
        ids.sort_unstable();
        ids.into_iter().for_each(|id| self.cache_freed(id));
    }

    fn cache_freed(&mut self, id: BlockId) {
        self.blocks.get_mut(id).state = State::Free;
        self.join_neighbours(id);
        self.cache(id);
    }

    /// Joins a block that is in no pool with what is free beside it.
    pub(super) fn join_neighbours(&mut self, id: BlockId) {
        for is_before in [true, false] {
            let block = *self.blocks.get(id);
            let Some(other) = (if is_before { block.before } else { block.after }) else { continue };
            let neighbour = *self.blocks.get(other);
            if neighbour.state != State::Free || neighbour.mapped != block.mapped {
                continue;
            }
            self.uncache(other);
            self.blocks.forget(other);
            let joined = self.blocks.get_mut(id);
            joined.bytes = joined.bytes.saturating_add(neighbour.bytes);
            if is_before {
                joined.address = neighbour.address;
            }
        }
    }

    /// The address of a block.
    pub fn address(&self, id: BlockId) -> u64 {
        self.blocks.get(id).address
    }

    /// Bytes that tensors hold or that wait for other streams.
    #[cfg(test)]
    pub(super) fn bytes_in_use(&self) -> u64 {
        self.blocks
            .ids()
            .map(|id| self.blocks.get(id))
            .filter(|block| block.state != State::Free)
            .map(|b| b.bytes)
            .sum()
    }
}
