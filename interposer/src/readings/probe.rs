//! The largest block that can still be had, by asking for it.
//!
//! HIP is not asked where HSA below it can be. What HIP does at a block that it refuses and at a free changes what the program has: 6.4
//! gives up what its stream-ordered pools keep, and a free waits for all streams, and keeps its block meanwhile. HSA does neither.
//!
//! But HSA knows nothing of the most that HIP gives in one block (`GPU_SINGLE_ALLOC_PERCENT`, `GPU_MAX_HEAP_SIZE`). Where HSA refused, HIP
//! had passed the request on, and passes on all that are smaller. Where HIP refused by itself, HIP is asked, unless the program uses pools:
//! first for a little more than HSA has, which it can't give. If it passes that on, its most is not below what HSA has, and nothing
//! had to be given back.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use gpuoom_trace::metadata::{Quantity, probe_skipped};

use super::runtime::Runtime;
use crate::call::probed;

/// The answer is exact to this: the blocks in which ROCr asks the kernel, and the granularity of CUDA's memory.
const STEP_BYTES: u64 = 2 << 20;
/// The failing call of the program waits for this.
const LIMIT: Duration = Duration::from_secs(2);

/// What was refused.
#[derive(Clone, Copy, Debug)]
pub(super) struct Refused {
    pub(super) bytes: u64,
    /// A layer below the runtime refused it.
    pub(super) below: bool,
}

/// Measures, between nothing and what has just been refused; else why not, one of [`probe_skipped`].
///
/// The reported free memory is tried first: where it can be had, nothing has to be refused, and a refusal can make the
/// runtime print a line of its own (ROCr does when it was built without `NDEBUG`). Then a little less, and ever less: on an H200
/// (driver 580.159.04) all but the last 3.1 MiB of what is free can be had in one block, and asking for 70 GiB takes up to 0.27 s,
/// whether it is given or refused: halving from the whole card took longer than [`LIMIT`].
pub(super) fn largest(runtime: &Runtime, device: u8, refused: Refused) -> Result<u64, u64> {
    let refused_bytes = refused.bytes;
    let mut readings = Vec::new();
    runtime.memory(device, &mut readings);
    if readings.is_empty() {
        // No context on the device: every size would be refused, and 0 be taken for a measurement.
        return Err(probe_skipped::NOT_ASKED);
    }
    let value = |quantity: Quantity| readings.iter().find(|r| r.quantity == quantity as u16).map(|r| r.value);
    let total = value(Quantity::RuntimeTotal).unwrap_or(u64::MAX);
    let free = value(Quantity::RuntimeFree).unwrap_or(0) / STEP_BYTES * STEP_BYTES;
    let below = runtime.below(device);
    let is_decided_below = refused.below && below.is_some();
    if !is_decided_below && super::POOL_USED.load(Ordering::Relaxed) {
        return Err(probe_skipped::POOLS);
    }
    let deadline = Instant::now() + LIMIT;
    let limit = refused_bytes.min(total);
    let can_have = |size| below.as_ref().map_or_else(|| runtime.can_have(size), |below| below.can_have(size));
    let largest = match free != 0 && free < refused_bytes && can_have(free) {
        true => Some(free),
        false => search(free.min(limit), limit, deadline, can_have),
    };
    let largest = largest.ok_or(probe_skipped::TIMEOUT)?;
    if is_decided_below || below.is_none() || passes_on(runtime, largest + STEP_BYTES) || runtime.can_have(largest) {
        return Ok(largest);
    }
    search(largest, largest, deadline, |size| runtime.can_have(size)).ok_or(probe_skipped::TIMEOUT)
}

/// Whether HIP leaves it to HSA to refuse a block of this size, or gives it.
fn passes_on(runtime: &Runtime, size_bytes: u64) -> bool {
    probed::forget_asked();
    runtime.can_have(size_bytes) || probed::asked_below() >= size_bytes
}

/// Between nothing and a limit that cannot be had: downwards from `start_bytes` in steps that double, then by halves.
fn search(start_bytes: u64, limit_bytes: u64, deadline: Instant, can_have: impl Fn(u64) -> bool) -> Option<u64> {
    let can_have = |steps: u64| (Instant::now() <= deadline).then(|| can_have(steps * STEP_BYTES));
    let (mut had, mut refused) = (0, limit_bytes.div_ceil(STEP_BYTES));
    let (start, mut less) = (start_bytes / STEP_BYTES, 1);
    while less < start {
        if can_have(start - less)? {
            had = start - less;
            break;
        }
        refused = start - less;
        less *= 2;
    }
    while refused - had > 1 {
        let middle = had + (refused - had) / 2;
        if can_have(middle)? { had = middle } else { refused = middle }
    }
    Some(had * STEP_BYTES)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_largest_block_is_found() {
        let late = Instant::now() + Duration::from_secs(60);
        for free in [0, STEP_BYTES, 5 * STEP_BYTES, 700 * STEP_BYTES + 5] {
            let expected = free / STEP_BYTES * STEP_BYTES;
            for start in [0, STEP_BYTES, 6 * STEP_BYTES, 703 * STEP_BYTES, 1 << 34] {
                assert_eq!(search(start, 1 << 34, late, |size| size <= free), Some(expected), "{free} from {start}");
            }
        }
        assert_eq!(search(0, 0, late, |_| true), Some(0));
        assert_eq!(search(1 << 20, 1 << 34, Instant::now() - Duration::from_secs(1), |_| true), None);
    }

    /// Large blocks take their time on a card: where nearly all that is free is there in one piece, few are asked for.
    #[test]
    fn few_are_asked_for_where_little_is_missing() {
        let late = Instant::now() + Duration::from_secs(60);
        let [free, largest] = [36_000 * STEP_BYTES, 35_998 * STEP_BYTES];
        let asked = std::cell::Cell::new(0);
        let can_have = |size: u64| {
            asked.set(asked.get() + 1);
            size <= largest
        };
        assert_eq!(search(free, 80_000 * STEP_BYTES, late, can_have), Some(largest));
        assert_eq!(asked.get(), 2);
    }
}
