//! Stream-ordered pools: what each gave, how much of that it may keep, its release threshold, and trims.

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use gpuoom_trace::payload;
use gpuoom_trace::record::{NO_DEVICE, Record};
use rustc_hash::FxHashMap;

use crate::replay::apis::Does;

/// A pool that the program made, by its number; 0 is the pool that a device's plain stream-ordered calls use.
pub type Number = u16;

/// Pools that are told apart.
const MOST_POOLS: usize = 1024;
/// The attribute that says how much a pool keeps (`hipMemPoolAttrReleaseThreshold` in hip_runtime_api.h,
/// `CU_MEMPOOL_ATTR_RELEASE_THRESHOLD` in cuda.h: the same number).
const RELEASE_THRESHOLD: u64 = 4;

/// Frees whose stream may not have got to them: a pool can't give back what they free.
#[derive(Clone, Copy, Debug, Default)]
struct Unsettled {
    /// Bytes of all of them.
    bytes: u64,
    /// The last thread that began to wait for the device, and the bytes that were freed since. That the wait has ended is sure
    /// where the same thread goes on.
    waited: Option<(u32, u64)>,
}

impl Unsettled {
    fn freed(&mut self, bytes: u64) {
        self.bytes = self.bytes.saturating_add(bytes);
        if let Some((_, since)) = &mut self.waited {
            *since = since.saturating_add(bytes);
        }
    }

    /// What may be under way, as a thread knows it that does something now.
    fn of(&self, thread: u32) -> u64 {
        self.waited.filter(|(waiter, _)| *waiter == thread).map_or(self.bytes, |(_, since)| since)
    }
}

/// One pool.
#[derive(Clone, Copy, Debug, Default)]
struct Pool {
    device: u8,
    used_bytes: u64,
    peak_bytes: u64,
    /// Most that was in use since it was trimmed, or what it was told to keep then, had the trim taken all that it could.
    untrimmed_peak_bytes: u64,
    /// Most that it can have taken from the card: all that it gave since it was surely empty, as if no piece of it had been given
    /// twice. A piece that was freed need not fit the next request.
    taken_at_most_bytes: u64,
    /// All that it gave.
    given_bytes: u64,
    unsettled: Unsettled,
    /// What it is sure to hold, in use or not, had the program waited for the device at every moment so far: a threshold that
    /// is raised brings nothing back.
    sure_bytes: u64,
    /// The largest block that it gave.
    largest_bytes: u64,
    threshold_bytes: Option<u64>,
    trims: u64,
    given: u64,
    /// The program has destroyed it.
    is_gone: bool,
}

impl Pool {
    /// Most that was in use at once beyond what is in use now.
    fn untrimmed_bytes(&self) -> u64 {
        self.peak_bytes.saturating_sub(self.used_bytes)
    }

    /// The same after trims, had each taken all that it could.
    fn kept_bytes(&self) -> u64 {
        self.untrimmed_peak_bytes.saturating_sub(self.used_bytes)
    }

    /// What it can hold at most beyond what is in use, as a thread knows it.
    fn at_most_bytes(&self, thread: u32) -> u64 {
        match self.is_gone && self.used_bytes == 0 && self.unsettled.of(thread) == 0 {
            true => 0,
            false => self.taken_at_most_bytes.saturating_sub(self.used_bytes),
        }
    }

    /// What its threshold has let it keep, whatever the program waited for.
    fn retained_bytes(&self) -> u64 {
        self.sure_bytes.saturating_sub(self.used_bytes)
    }

    /// A wait may come now: no more than this is sure to stay.
    fn keeps_at_most(&mut self, bytes: u64) {
        self.sure_bytes = self.sure_bytes.min(self.used_bytes.max(bytes));
    }

    /// A trim takes what no stream is at work on, in the pieces in which it came: that nothing is left is sure only where nothing
    /// was in use or under way, and nothing was to be kept (`cudaMemPoolTrimTo`, `hipMemPoolTrimTo`).
    fn trimmed_to(&mut self, keep_bytes: u64, thread: u32) {
        self.trims += 1;
        self.untrimmed_peak_bytes = self.untrimmed_peak_bytes.min(self.used_bytes.max(keep_bytes));
        self.keeps_at_most(keep_bytes);
        if keep_bytes == 0 && self.used_bytes == 0 && self.unsettled.of(thread) == 0 {
            self.taken_at_most_bytes = 0;
        }
    }
}

/// Pools of one device at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Kept {
    /// What they hold beyond what is in use, in bytes: the most that was in use at once less what is now, and each trim took all
    /// that it could. They may hold more, because a piece that was freed need not fit the next request, and less.
    pub bytes: u64,
    /// The same had nobody trimmed them.
    pub untrimmed_bytes: u64,
    /// No more than this, whatever the streams had got to and whichever pieces fitted.
    pub at_most_bytes: u64,
    /// What of it their release thresholds let them keep, whatever the program waits for; 0 where it is not clear which pool
    /// gave what.
    pub retained_bytes: u64,
    /// The largest release threshold.
    pub threshold_bytes: u64,
    /// Trims that succeeded.
    pub trims: u64,
    /// Pools that gave something.
    pub pools: u64,
}

impl Kept {
    fn add(&mut self, pool: &Pool, thread: u32, is_clear: bool) {
        let kept = if is_clear { pool.kept_bytes() } else { pool.untrimmed_bytes() };
        self.bytes = self.bytes.saturating_add(kept);
        self.untrimmed_bytes = self.untrimmed_bytes.saturating_add(pool.untrimmed_bytes());
        // A trim may have been of another pool than the one that it seems.
        let untrimmed_at_most = || pool.given_bytes.saturating_sub(pool.used_bytes);
        let at_most = if is_clear { pool.at_most_bytes(thread) } else { untrimmed_at_most() };
        self.at_most_bytes = self.at_most_bytes.saturating_add(at_most);
        let retained = if is_clear { pool.retained_bytes() } else { 0 };
        self.retained_bytes = self.retained_bytes.saturating_add(retained);
        let threshold = pool.threshold_bytes.filter(|_| !pool.is_gone);
        self.threshold_bytes = self.threshold_bytes.max(threshold.unwrap_or(0));
        self.trims += pool.trims;
        self.pools += u64::from(pool.given > 0);
    }
}

/// All pools of a device at one moment, and those of them that a call did not ask.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pooled {
    /// All.
    pub all: Kept,
    /// All but the one that was asked; all where none was. `None` where it is not clear which pool gave what.
    pub elsewhere: Option<Kept>,
}

/// All pools.
#[derive(Clone, Debug, Default)]
pub(crate) struct Pools {
    /// Made by the program, by number less one.
    made: Vec<Pool>,
    numbers: FxHashMap<u64, Number>,
    /// The pool that each device has by itself.
    own: BTreeMap<u8, Pool>,
    /// The devices of those that the program asked for, by handle.
    owners: BTreeMap<u64, u8>,
    /// The pools that the program gave to devices in place of their own.
    chosen: BTreeMap<u8, Number>,
    /// There were more than are told apart.
    is_full: bool,
    /// Plain calls of a device may have been of a pool that is not known to be its.
    is_mixed: bool,
    /// A pool was set up or trimmed that nobody was seen to make or to ask for.
    has_strangers: bool,
}

impl Pools {
    /// The program made a pool, asked for that of a device, or gave a device one. A trace of 1.6 may not say which.
    pub(crate) fn appears(&mut self, does: Does, handle: u64, device: u8) {
        let number = self.numbers.get(&handle).copied();
        match (does, number) {
            (Does::NamesPool, Some(_)) => {}
            // One that nobody made is the device's own, unless it was given another one that nobody saw.
            (Does::NamesPool, None) => _ = self.owners.insert(handle, device),
            (Does::ChoosesPool, None) if self.owners.get(&handle) == Some(&device) => {
                self.chosen.remove(&device);
            }
            (Does::ChoosesPool, None) => self.is_mixed = true,
            (Does::ChoosesPool, Some(number)) => _ = self.chosen.insert(device, number),
            (Does::MakesPool, _) => self.made(handle, device),
            // It may have been made or given to the device.
            _ => {
                self.is_mixed = true;
                self.made(handle, device);
            }
        }
    }

    fn made(&mut self, handle: u64, device: u8) {
        self.owners.remove(&handle);
        if self.made.len() >= MOST_POOLS {
            self.is_full = true;
            self.numbers.remove(&handle);
            return;
        }
        self.made.push(Pool { device, ..Pool::default() });
        self.numbers.insert(handle, self.made.len() as Number);
    }

    /// A pool is gone: what it kept goes back, as soon as no block of it is in use and no stream is at work on one.
    pub(crate) fn ended(&mut self, handle: u64) {
        let Some(number) = self.numbers.remove(&handle) else { return };
        // The device has its own pool again.
        self.chosen.retain(|_, chosen| *chosen != number);
        let pool = self.pool(number, 0);
        pool.peak_bytes = pool.used_bytes;
        pool.untrimmed_peak_bytes = pool.used_bytes;
        pool.keeps_at_most(0);
        pool.is_gone = true;
    }

    /// A device was reset: its pools have nothing any more. What the program made of them is gone, its own pool is as at first.
    pub(crate) fn reset(&mut self, device: u8) {
        let pools = self.made.iter_mut().chain(self.own.values_mut());
        pools.filter(|pool| pool.device == device).for_each(|pool| *pool = Pool { device, ..Pool::default() });
        self.chosen.remove(&device);
    }

    /// The number of a pool by its handle; that of a device's own pool where the program did not make it.
    pub(crate) fn number(&mut self, handle: u64) -> Number {
        let number = self.numbers.get(&handle).copied();
        // A pool that nobody was seen to make, and no device's.
        self.is_mixed |= number.is_none() && !self.owners.contains_key(&handle);
        number.unwrap_or(0)
    }

    /// The number of the pool that a device's plain calls use.
    pub(crate) fn chosen(&self, device: u8) -> Number {
        self.chosen.get(&device).copied().unwrap_or(0)
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
        // No piece that it keeps is as large: for a new one it may have had to give them up.
        if bytes > pool.largest_bytes {
            pool.sure_bytes = pool.sure_bytes.min(pool.used_bytes);
            pool.largest_bytes = bytes;
        }
        pool.peak_bytes = pool.peak_bytes.max(pool.used_bytes);
        pool.untrimmed_peak_bytes = pool.untrimmed_peak_bytes.max(pool.used_bytes);
        pool.sure_bytes = pool.sure_bytes.max(pool.used_bytes);
        pool.taken_at_most_bytes = pool.taken_at_most_bytes.saturating_add(bytes);
        pool.given_bytes = pool.given_bytes.saturating_add(bytes);
    }

    pub(super) fn returned(&mut self, number: Number, device: u8, bytes: u64) {
        let pool = self.pool(number, device);
        pool.used_bytes = pool.used_bytes.saturating_sub(bytes);
        pool.unsettled.freed(bytes);
        pool.keeps_at_most(pool.threshold_bytes.unwrap_or(0));
    }

    /// A thread began to wait for a device.
    pub(super) fn waited(&mut self, device: u8, thread: u32) {
        let pools = self.made.iter_mut().chain(self.own.values_mut());
        let of_device = pools.filter(|pool| pool.device == device && device != NO_DEVICE);
        of_device.for_each(|pool| {
            let bytes = pool.unsettled.of(thread);
            pool.unsettled = Unsettled { bytes, waited: Some((thread, 0)) };
        });
    }

    /// A pool was trimmed, or an attribute of it set; whether that may give memory back. Calls about the memory of graphs name no
    /// pool.
    #[cold]
    pub(super) fn set(&mut self, record: &Record, payload: &[u8]) -> bool {
        let mut numbers = payload::unpack_numbers(payload);
        let numbers = (numbers.next(), numbers.next());
        if record.address == 0 {
            // A trim has no number, an attribute two.
            return numbers.0.is_none();
        }
        let number = self.numbers.get(&record.address).copied().unwrap_or(0);
        self.has_strangers |= number == 0 && !self.owners.contains_key(&record.address);
        let device = self.owners.get(&record.address).copied().unwrap_or(record.device);
        let pool = self.pool(number, device);
        match numbers {
            (Some(keep), None) => pool.trimmed_to(keep, record.thread),
            (Some(RELEASE_THRESHOLD), Some(bytes)) => {
                pool.threshold_bytes = Some(bytes);
                pool.keeps_at_most(bytes);
            }
            _ => return false,
        }
        true
    }

    /// What the release threshold of a pool lets it keep; 0 where it is not clear which pool gave what.
    pub(super) fn retained_bytes(&self, device: u8, number: Number) -> u64 {
        let pool = match usize::from(number).checked_sub(1) {
            Some(place) => self.made.get(place),
            None => self.own.get(&device),
        };
        pool.filter(|_| self.is_clear()).map_or(0, Pool::retained_bytes)
    }

    /// Whether it is known which pool gave what.
    fn is_clear(&self) -> bool {
        // A handle that nobody asked for may be another device's.
        !self.is_full && !self.is_mixed && (!self.has_strangers || self.own.len() <= 1)
    }

    /// What the pools of a device hold when a thread asks one of them, or none.
    pub(super) fn on(&self, device: u8, thread: u32, asked: Option<Number>) -> Pooled {
        let of_device = |pool: &&Pool| pool.device == device;
        let is_clear = self.is_clear();
        let (mut all, mut elsewhere) = (Kept::default(), Kept::default());
        let numbered = (1..).zip(&self.made).chain(self.own.values().map(|pool| (0, pool)));
        for (number, pool) in numbered.filter(|(_, pool)| of_device(pool)) {
            all.add(pool, thread, is_clear);
            if asked != Some(number) {
                elsewhere.add(pool, thread, is_clear);
            }
        }
        Pooled { all, elsewhere: (is_clear || asked.is_none()).then_some(elsewhere) }
    }
}
