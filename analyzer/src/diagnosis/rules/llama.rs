//! How llama.cpp fills a card: the weights first, then the KV cache, then the compute buffer.
//!
//! The weights are one buffer, or in versions up to the beginning of 2024 (before its backends had buffers) one block for
//! each tensor. Those all come from one place of its code (`ggml_cuda_transform_tensor`), and the two halves of the cache,
//! keys and values, from another (`ggml_cuda_assign_buffers_impl`).

use gpuoom_trace::record::NO_DEVICE;

use crate::diagnosis::case::{Case, Failure};
use crate::passes::shape::facts::Facts;
use crate::replay::tracks::calls::{Call, What};

/// Buffers behind the weights before the compute buffer: one cache or two.
const CACHES: usize = 2;

/// What llama.cpp had been given on a device when a request failed.
pub(super) struct Start<'a> {
    /// The weights: one buffer, or a block for each tensor.
    pub(super) weights: Vec<&'a Call>,
    /// Large blocks behind them.
    pub(super) behind: Vec<&'a Call>,
    /// Whether each tensor is a block.
    pub(super) by_tensor: bool,
    /// Whether a block had been given back on the device, as no load does.
    pub(super) has_freed: bool,
    /// Whether the request is for another tensor; `None` where the call sites are not known.
    pub(super) asks_for_tensor: Option<bool>,
}

/// Blocks at the end that are parts of a cache by their sizes alone: two equal ones, or one that is asked for once more, larger
/// than everything before them. For traces without call sites.
fn parts_by_size(given: &[&Call], requested_bytes: u64) -> usize {
    let bytes = |from_end: usize| given.len().checked_sub(from_end).map_or(0, |place| given[place].bytes);
    let is_larger = |parts: usize| given.iter().rev().skip(parts).all(|call| call.bytes < bytes(1));
    match () {
        () if bytes(1) > 0 && bytes(1) == bytes(2) && is_larger(2) => 2,
        () if bytes(1) > 0 && bytes(1) == requested_bytes && is_larger(1) => 1,
        () => 0,
    }
}

impl<'a> Start<'a> {
    /// Sorts what had been given since the program began.
    pub(super) fn of(case: &Case<'_>, failure: &Failure<'_>, facts: &'a Facts) -> Self {
        // Pinned host memory belongs to no device.
        let is_given = |call: &&Call| call.what == What::Given && call.device != NO_DEVICE;
        let given: Vec<&Call> = facts.calls.iter().filter(is_given).collect();
        let has_freed = facts.calls.iter().any(|call| call.what == What::Returned && call.device != NO_DEVICE);
        let place = |site: u32| case.replay.sites.address(site);
        let first = given.first().and_then(|call| place(call.site));
        let tensors = match first {
            Some(_) => given.iter().take_while(|call| place(call.site) == first).count(),
            None => given.len() - parts_by_size(&given, facts.requested_bytes),
        };
        let is_large = |call: &&Call| call.bytes >= case.thresholds.buffer_bytes;
        if (tensors as u64) < case.thresholds.tensors {
            let mut large: Vec<&Call> = given.into_iter().filter(is_large).collect();
            let behind = large.split_off(large.len().min(1));
            return Start { weights: large, behind, by_tensor: false, has_freed, asks_for_tensor: Some(false) };
        }
        let (weights, behind) = given.split_at(tensors);
        let behind: Vec<&Call> = behind.iter().copied().filter(is_large).collect();
        let same = first.zip(place(failure.oom.site)).map(|(first, asked)| first == asked);
        let asks_for_tensor = if behind.is_empty() { same } else { Some(false) };
        Start { weights: weights.to_vec(), behind, by_tensor: true, has_freed, asks_for_tensor }
    }

    /// Bytes of the weights.
    pub(super) fn weights_bytes(&self) -> u64 {
        self.weights.iter().fold(0, |sum, call| sum.saturating_add(call.bytes))
    }

    /// Whether these can be a load with a block for each tensor.
    pub(super) fn is_load_by_tensor(&self) -> bool {
        self.by_tensor && !self.has_freed
    }

    /// Whether what lies behind the weights is no more than a cache: one or two buffers, or equal ones, layer by layer.
    pub(super) fn is_before_compute(&self) -> bool {
        if self.by_tensor && self.has_freed {
            return false;
        }
        let bytes = |wanted: u64| self.behind.iter().filter(|call| call.bytes == wanted).count();
        let mut sizes: Vec<u64> = self.behind.iter().map(|call| call.bytes).collect();
        sizes.sort_unstable();
        sizes.dedup();
        self.behind.len() <= CACHES || (sizes.len() <= CACHES && sizes.into_iter().all(|size| bytes(size) >= 2))
    }

    /// Whether the cache comes in parts: an old version, or equal blocks behind the weights.
    pub(super) fn cache_is_in_parts(&self, requested_bytes: u64) -> bool {
        let sizes = || self.behind.iter().map(|call| call.bytes).chain([requested_bytes]);
        self.by_tensor || sizes().enumerate().any(|(at, size)| sizes().skip(at + 1).any(|other| other == size))
    }
}
