//! The largest block that can still be had, by bisection.

use std::time::{Duration, Instant};

use gpuoom_trace::metadata::{Quantity, probe_skipped};

use super::runtime::Runtime;

/// The answer is exact to this: the blocks in which ROCr asks the kernel, and the granularity of CUDA's memory.
const STEP_BYTES: u64 = 2 << 20;
/// The failing call of the program waits for this.
const LIMIT: Duration = Duration::from_secs(2);

/// Measures, between nothing and what has just been refused; else why not, one of [`probe_skipped`].
///
/// The reported free memory is tried first: where it can be had, nothing has to be refused, and a refusal can make the
/// runtime print a line of its own (ROCr does when it was built without `NDEBUG`).
pub(super) fn largest(runtime: &Runtime, device: u8, refused_bytes: u64) -> Result<u64, u64> {
    let mut readings = Vec::new();
    runtime.memory(device, &mut readings);
    if readings.is_empty() {
        // No context on the device: every size would be refused, and 0 be taken for a measurement.
        return Err(probe_skipped::NOT_ASKED);
    }
    let value = |quantity: Quantity| readings.iter().find(|r| r.quantity == quantity as u16).map(|r| r.value);
    let total = value(Quantity::RuntimeTotal).unwrap_or(u64::MAX);
    let free = value(Quantity::RuntimeFree).unwrap_or(0) / STEP_BYTES * STEP_BYTES;
    let can_have = |size| runtime.can_have(size);
    if free != 0 && free < refused_bytes && can_have(free) {
        return Ok(free);
    }
    bisect(refused_bytes.min(total), Instant::now() + LIMIT, can_have).ok_or(probe_skipped::TIMEOUT)
}

fn bisect(limit_bytes: u64, deadline: Instant, can_have: impl Fn(u64) -> bool) -> Option<u64> {
    let (mut had, mut refused) = (0, limit_bytes.div_ceil(STEP_BYTES));
    while refused - had > 1 {
        if Instant::now() > deadline {
            return None;
        }
        let middle = had + (refused - had) / 2;
        if can_have(middle * STEP_BYTES) {
            had = middle;
        } else {
            refused = middle;
        }
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
            assert_eq!(bisect(1 << 34, late, |size| size <= free), Some(expected));
        }
        assert_eq!(bisect(0, late, |_| true), Some(0));
        assert_eq!(bisect(1 << 34, Instant::now() - Duration::from_secs(1), |_| true), None);
    }
}
