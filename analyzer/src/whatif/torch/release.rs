//! How cached memory goes back to the driver.

use super::allocator::{Allocator, Request};
use super::blocks::{Block, BlockId, PoolId};
use super::driver::{CallKind, Driver};

impl<D: Driver> Allocator<D> {
    /// Gives back one cached block that is too large to be split, or several; whether that was enough for a request.
    pub(super) fn release_available(&mut self, request: &Request) -> bool {
        let largest_split = self.policy.max_split_bytes;
        if largest_split == u64::MAX {
            return false;
        }
        let (wanted, stream) = (request.bytes.max(largest_split), request.stream);
        let free = &self.pools[request.pool].free;
        let fits = free.range((stream, wanted, 0, 0, 0)..).next().copied();
        if let Some((of_stream, _, _, _, id)) = fits
            && of_stream == stream
            && self.blocks.get(id).expandable.is_none()
        {
            self.release(id);
            return true;
        }
        let smaller = free.range(..(stream, wanted, 0, 0, 0)).rev();
        let oversize = smaller.take_while(|(of_stream, bytes, ..)| *of_stream == stream && *bytes >= largest_split);
        let candidates: Vec<(u64, BlockId)> = oversize.map(|(_, bytes, _, _, id)| (*bytes, *id)).collect();
        let mut released = 0u64;
        for (bytes, id) in candidates {
            if released >= wanted {
                break;
            }
            if self.blocks.get(id).expandable.is_none() {
                released = released.saturating_add(bytes);
                self.release(id);
            }
        }
        released >= wanted
    }

    /// Gives back all segments that no tensor has a part of: what `empty_cache()` does, and the last way out.
    pub fn release_cached(&mut self) {
        self.complete_all();
        let usual = [0, 1];
        let private: Vec<PoolId> =
            (2..self.pools.len()).filter(|pool| self.freeable.contains(&self.pools[*pool].owner)).collect();
        // Of a graph's pools the small one comes first.
        let mut private: Vec<_> =
            private.into_iter().map(|id| (self.pools[id].owner, !self.pools[id].small, id)).collect();
        private.sort_unstable();
        usual.into_iter().chain(private.into_iter().map(|(_, _, id)| id)).for_each(|pool| self.release_pool(pool));
    }

    fn release_pool(&mut self, pool: PoolId) {
        let all: Vec<BlockId> = self.pools[pool].free.iter().map(|(_, _, _, _, id)| *id).collect();
        let (growing, whole): (Vec<BlockId>, Vec<BlockId>) =
            all.into_iter().partition(|id| self.blocks.get(*id).expandable.is_some());
        for id in whole {
            if self.blocks.get(id).is_whole() {
                self.release(id);
            }
        }
        for id in growing {
            self.unmap(id);
            self.drop_if_empty(id);
        }
    }

    fn release(&mut self, id: BlockId) {
        let Block { address, bytes, stream, .. } = *self.blocks.get(id);
        self.uncache(id);
        self.blocks.forget(id);
        self.gave(CallKind::Free, address, bytes, stream);
    }

    /// Gives back segments that were not used for long, once more is reserved than the threshold allows.
    pub(super) fn collect_garbage(&mut self) {
        let Some(allowed) = self.allowed_bytes() else { return };
        let threshold = (self.policy.garbage_collection_threshold * allowed as f64) as u64;
        let Some(target) = self.sums.reserved.checked_sub(threshold).filter(|bytes| *bytes > 0) else { return };
        let searches = self.pools[0].searches;
        let age = |block: &Block| searches.saturating_sub(block.searches_before);
        let free = self.pools[0].free.iter().map(|(_, _, _, _, id)| *id);
        let mut whole: Vec<BlockId> = free.filter(|id| self.blocks.get(*id).is_whole()).collect();
        let mut total_age: u64 = whole.iter().map(|id| age(self.blocks.get(*id))).sum();
        let mut count = whole.len();
        let (mut reclaimed, mut any) = (0u64, true);
        while reclaimed < target && any && count > 0 {
            let limit = total_age as f64 / count as f64;
            any = false;
            let mut kept = Vec::new();
            for id in std::mem::take(&mut whole) {
                let block = *self.blocks.get(id);
                if block.expandable.is_some() || (age(&block) as f64) < limit {
                    kept.push(id);
                    continue;
                }
                any = true;
                reclaimed = reclaimed.saturating_add(block.bytes);
                total_age -= age(&block);
                count -= 1;
                self.release(id);
            }
            whole = kept;
        }
    }
}
