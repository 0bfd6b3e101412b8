//! Stream-ordered pools: what each gave, how much of that it may keep, its release threshold, and trims.

use std::collections::BTreeMap;

use gpuoom_trace::payload;
use gpuoom_trace::record::Record;
use rustc_hash::FxHashMap;

/// A pool that the program made, by its number; 0 is the pool that a device's plain stream-ordered calls use.
pub type Number = u16;

/// Pools that are told apart.
const MOST_POOLS: usize = 1024;
/// The attribute that says how much a pool keeps (`hipMemPoolAttrReleaseThreshold` in hip_runtime_api.h,
/// `CU_MEMPOOL_ATTR_RELEASE_THRESHOLD` in cuda.h: the same number).
const RELEASE_THRESHOLD: u64 = 4;

/// One pool.
#[derive(Clone, Copy, Debug, Default)]
struct Pool {
    device: u8,
    used_bytes: u64,
    peak_bytes: u64,
    /// Most that was in use since it was trimmed, or what it was told to keep then.
    untrimmed_peak_bytes: u64,
    threshold_bytes: Option<u64>,
    trims: u64,
    given: u64,
}

impl Pool {
    /// Most that it can still hold beyond what is in use.
    fn kept_bytes(&self) -> u64 {
        self.untrimmed_peak_bytes.saturating_sub(self.used_bytes)
    }

    /// What of that its threshold lets it keep when the program waits for the device.
    fn retained_bytes(&self) -> u64 {
        let threshold = self.threshold_bytes.unwrap_or(0);
        self.untrimmed_peak_bytes.min(threshold).saturating_sub(self.used_bytes)
    }

    fn trimmed_to(&mut self, keep_bytes: u64) {
        self.trims += 1;
        self.untrimmed_peak_bytes = self.untrimmed_peak_bytes.min(self.used_bytes.max(keep_bytes));
    }
}

/// The pools of one device at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pooled {
    /// Most that they can keep beyond what is in use, in bytes.
    pub kept_bytes: u64,
    /// The same had nobody trimmed them.
    pub untrimmed_bytes: u64,
    /// What of it their release thresholds let them keep, whatever the program waits for; 0 where it is not clear which pool
    /// gave what.
    pub retained_bytes: u64,
    /// The largest release threshold.
    pub threshold_bytes: u64,
    /// Trims that succeeded.
    pub trims: u64,
}

/// All pools.
#[derive(Clone, Debug, Default)]
pub(crate) struct Pools {
    /// Made by the program, by number less one.
    made: Vec<Pool>,
    numbers: FxHashMap<u64, Number>,
    /// The pool that each device has by itself.
    own: BTreeMap<u8, Pool>,
    /// There were more than are told apart.
    is_full: bool,
}

impl Pools {
    /// The program made a pool.
    pub(crate) fn made(&mut self, handle: u64, device: u8) {
        if self.made.len() >= MOST_POOLS {
            self.is_full = true;
            self.numbers.remove(&handle);
            return;
        }
        self.made.push(Pool { device, ..Pool::default() });
        self.numbers.insert(handle, self.made.len() as Number);
    }

    /// A pool is gone: what it kept goes back, what of it is in use does when it is freed.
    pub(crate) fn ended(&mut self, handle: u64) {
        let Some(number) = self.numbers.remove(&handle) else { return };
        let pool = self.pool(number, 0);
        pool.peak_bytes = pool.used_bytes;
        pool.untrimmed_peak_bytes = pool.used_bytes;
    }

    /// The number of a pool by its handle; that of a device's own pool where the program did not make it.
    pub(crate) fn number(&self, handle: u64) -> Number {
        self.numbers.get(&handle).copied().unwrap_or(0)
    }

    fn pool(&mut self, number: Number, device: u8) -> &mut Pool {
        match usize::from(number).checked_sub(1) {
            Some(place) if place < self.made.len() => &mut self.made[place],
            _ => self.own.entry(device).or_insert(Pool { device, ..Pool::default() }),
        }
    }

    pub(super) fn given(&mut self, number: Number, device: u8, bytes: u64) {
        let pool = self.pool(number, device);
        pool.given += 1;
        pool.used_bytes = pool.used_bytes.saturating_add(bytes);
        pool.peak_bytes = pool.peak_bytes.max(pool.used_bytes);
        pool.untrimmed_peak_bytes = pool.untrimmed_peak_bytes.max(pool.used_bytes);
    }

    pub(super) fn returned(&mut self, number: Number, device: u8, bytes: u64) {
        let pool = self.pool(number, device);
        pool.used_bytes = pool.used_bytes.saturating_sub(bytes);
    }

    /// A pool was trimmed, or an attribute of it set. Calls about the memory of graphs name no pool.
    #[cold]
    pub(super) fn set(&mut self, record: &Record, payload: &[u8]) {
        if record.address == 0 {
            return;
        }
        let number = self.number(record.address);
        let pool = self.pool(number, record.device);
        let mut numbers = payload::unpack_numbers(payload);
        match (numbers.next(), numbers.next()) {
            (Some(keep), None) => pool.trimmed_to(keep),
            (Some(RELEASE_THRESHOLD), Some(bytes)) => pool.threshold_bytes = Some(bytes),
            _ => {}
        }
    }

    /// What the pools of a device hold now.
    pub(super) fn on(&self, device: u8) -> Pooled {
        let of_device = |pool: &&Pool| pool.device == device;
        // A pool that gave nothing by its name may have become the device's own (`hipDeviceSetMemPool`), and a handle that
        // nobody made may be another device's.
        let made_idle = self.made.iter().filter(of_device).any(|pool| pool.given == 0);
        let is_clear = !made_idle && !self.is_full && self.own.len() <= 1;
        let mut sum = Pooled::default();
        for pool in self.made.iter().chain(self.own.values()).filter(of_device) {
            let untrimmed = pool.peak_bytes.saturating_sub(pool.used_bytes);
            let kept = if is_clear { pool.kept_bytes() } else { untrimmed };
            sum.kept_bytes = sum.kept_bytes.saturating_add(kept);
            sum.untrimmed_bytes = sum.untrimmed_bytes.saturating_add(untrimmed);
            let retained = if is_clear { pool.retained_bytes() } else { 0 };
            sum.retained_bytes = sum.retained_bytes.saturating_add(retained);
            sum.threshold_bytes = sum.threshold_bytes.max(pool.threshold_bytes.unwrap_or(0));
            sum.trims += pool.trims;
        }
        sum
    }
}

#[cfg(test)]
mod tests {
    use gpuoom_trace::record::{Event, Kind};

    use super::*;
    use crate::testing::GIB;

    fn set(pools: &mut Pools, handle: u64, numbers: &[u64]) {
        let record = Record { address: handle, device: 0, ..Record::new(Event::Sync, Kind::Pool) };
        pools.set(&record, payload::numbers(numbers, &mut [0; gpuoom_trace::record::MAX_PAYLOAD_BYTES]));
    }

    /// The device's own pool gave 6 GiB, of which 1 is in use.
    fn own() -> Pools {
        let mut pools = Pools::default();
        pools.given(0, 0, 6 * GIB);
        pools.returned(0, 0, 5 * GIB);
        pools
    }

    #[test]
    fn a_threshold_says_what_stays() {
        let mut pools = own();
        assert_eq!((pools.on(0).kept_bytes, pools.on(0).retained_bytes), (5 * GIB, 0));
        set(&mut pools, 0xD, &[RELEASE_THRESHOLD, 4 * GIB]);
        assert_eq!((pools.on(0).retained_bytes, pools.on(0).threshold_bytes), (3 * GIB, 4 * GIB));
        set(&mut pools, 0xD, &[RELEASE_THRESHOLD, u64::MAX]);
        assert_eq!(pools.on(0).retained_bytes, 5 * GIB);
        set(&mut pools, 0xD, &[2, 0]);
        assert_eq!(pools.on(0).threshold_bytes, u64::MAX, "another attribute");
    }

    #[test]
    fn a_trim_gives_back() {
        let mut pools = own();
        set(&mut pools, 0xD, &[3 * GIB]);
        assert_eq!((pools.on(0).kept_bytes, pools.on(0).untrimmed_bytes, pools.on(0).trims), (2 * GIB, 5 * GIB, 1));
        set(&mut pools, 0xD, &[0]);
        assert_eq!(pools.on(0).kept_bytes, 0);
        pools.given(0, 0, 2 * GIB);
        pools.returned(0, 0, 2 * GIB);
        assert_eq!(pools.on(0).kept_bytes, 2 * GIB, "what came since");
    }

    #[test]
    fn pools_are_told_apart_as_far_as_that_is_clear() {
        let mut pools = own();
        pools.made(0xA, 0);
        let number = pools.number(0xA);
        set(&mut pools, 0xA, &[RELEASE_THRESHOLD, u64::MAX]);
        set(&mut pools, 0xA, &[0]);
        let unclear = pools.on(0);
        assert_eq!((unclear.kept_bytes, unclear.retained_bytes), (5 * GIB, 0), "it may be the device's own now");
        pools.given(number, 0, GIB);
        pools.returned(number, 0, GIB);
        assert_eq!((pools.on(0).kept_bytes, pools.on(0).retained_bytes), (6 * GIB, GIB));
        pools.ended(0xA);
        assert_eq!((pools.on(0).kept_bytes, pools.number(0xA)), (5 * GIB, 0));
        assert_eq!(pools.on(1), Pooled::default());
    }

    #[test]
    fn more_pools_than_are_told_apart_prove_nothing() {
        let mut pools = own();
        (1..=MOST_POOLS as u64 + 1).for_each(|handle| pools.made(handle, 1));
        set(&mut pools, 0xD0D0, &[RELEASE_THRESHOLD, u64::MAX]);
        assert_eq!((pools.made.len(), pools.on(0).retained_bytes), (MOST_POOLS, 0));
    }
}
