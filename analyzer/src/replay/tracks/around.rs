//! What was the case around each failure: before it, at it, and after it.

use std::collections::{BTreeMap, VecDeque};

use gpuoom_trace::record::{Kind, NO_DEVICE, Record};

use super::between::Done;
use super::captures::Captured;
use super::ends::Ends;
use super::moves::{Moves, Overlap};
use super::pools::{Number, Pooled, Pools};
use super::reads::Read;
use super::survivors::Survivors;
use super::waits::{Waited, Waits};
use crate::replay::block::Block;
use crate::replay::failures::framework::Place;
use crate::replay::vmm::Half;

/// Failures that are described of the beginning, and as many of the end.
const LISTED: usize = 256;
/// Failures that wait for a reading or for the thread's next request.
const MOST_WAITING: usize = 64;
/// How far back frees by stream-ordered calls may still be pending, in nanoseconds, unless set.
pub const PENDING_NS: u64 = 2_000_000_000;
/// Stream-ordered frees that are remembered.
const ASYNC_FREES: usize = 1024;

/// Memory that was given back by stream-ordered calls shortly before a failure, with no wait by the program recorded since.
///
/// Before format 1.6 waits are recorded only after a failure: that none is recorded does not say that there was none
/// ([`super::unknown::Unknown::Synchronisations`]). A wait for one stream counts for all of the device. A plain free of device memory on the device waits for it, and counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PendingFrees {
    /// Bytes.
    pub bytes: u64,
    /// Frees.
    pub frees: u64,
    /// Of the bytes what release thresholds let their pools keep, whatever the program waits for.
    pub kept_bytes: u64,
    /// Whether all frees of that time are among them; else there were more than are remembered.
    pub is_complete: bool,
}

/// A thread's next request for memory after its failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Next {
    /// Function.
    pub api: u16,
    /// Call site, 0 where it is not known.
    pub site: u32,
    /// Kind of memory that was asked for.
    pub kind: Kind,
    /// Ticks when it began.
    pub at: u64,
    /// Bytes asked for.
    pub requested_bytes: u64,
    /// Device.
    pub device: u8,
    /// Whether memory was given.
    pub succeeded: bool,
    /// Of one that was refused, too: it was to write to the same variable.
    pub same_variable: bool,
    /// What had been done on that device before it, on any thread.
    pub done: Done,
}

/// One failure.
#[derive(Clone, Debug)]
pub struct Around {
    /// Index among the failures that are listed.
    pub failure: usize,
    /// Sequence number of its record.
    pub seq: u64,
    /// Device, [`NO_DEVICE`] where it is not known.
    pub device: u8,
    /// Kernel thread id.
    pub thread: u32,
    /// What had been done on that device before it, on any thread.
    pub done: Done,
    /// What other threads may have done on that device after the refusal and before the reading that belongs to it was done.
    pub until_read: Overlap,
    /// Calls that gave device memory or gave it back until then, on any device.
    pub moves_before: u64,
    /// Number of calls for memory before it, for [`super::calls::Calls::before`].
    pub calls_before: u64,
    /// Bytes that the program held on that device, or on the host where that was asked.
    pub held_bytes: u64,
    /// Physical memory (VMM handles) that lives, of all devices.
    pub vmm_handles: u64,
    /// What of that device is given back by half; `None` where so much lived at so many failures that it was not counted.
    pub half: Option<Half>,
    /// Blocks that live, of all devices and of the host.
    pub live_blocks: u64,
    /// Sum of the reserved address ranges, in bytes.
    pub reserved_bytes: u64,
    /// What lives on the device by origin and size; `None` where so many blocks lived at so many failures that it was not
    /// counted.
    pub survivors: Option<Box<Survivors>>,
    /// Frees that may still be pending.
    pub pending: PendingFrees,
    /// What was taken during stream captures; `None` where the recorder did not keep them.
    pub captured: Option<Captured>,
    /// The pool that was asked, by its number; `None` where no pool was.
    pub pool: Option<Number>,
    /// What stream-ordered pools of the device hold; `None` where the recorder did not keep trims and attributes.
    pub pooled: Option<Pooled>,
    /// Exported memory that was freed, of all devices, in bytes; `None` where the recorder did not keep exports.
    pub exported_freed_bytes: Option<u64>,
    /// The last reading of the device before the failure.
    pub read_before: Option<Read>,
    /// The reading that belongs to it: what it says of memory may be of before and of after what other threads did meanwhile.
    pub read_at: Option<Read>,
    /// The first reading of the device after the failure, beside the one that belongs to it.
    pub read_after: Option<Read>,
    /// The thread's next request.
    pub next: Option<Next>,
    /// Whether any thread began to wait for the device between the last stream-ordered free on it and this failure. Unknown where
    /// there was no such free.
    pub waited_since_free: Waited,
    /// Whether any thread began to wait for the device between this failure and the thread's next request. Unknown where there was
    /// none.
    pub waited_before_next: Waited,
}

#[derive(Clone, Copy, Debug)]
struct AsyncFree {
    at: u64,
    bytes: u64,
    device: u8,
    pool: Number,
}

/// The last frees by stream-ordered calls.
#[derive(Clone, Debug, Default)]
pub(super) struct AsyncFrees {
    frees: VecDeque<AsyncFree>,
    /// Ticks of the newest free that was pushed out.
    forgotten_at: Option<u64>,
    /// Sequence numbers of the last free by device.
    last: BTreeMap<u8, u64>,
}

impl AsyncFrees {
    pub(super) fn push(&mut self, record: &Record, block: &Block) {
        let (at, bytes, device, pool) = (record.at, block.requested_bytes, block.device, block.pool);
        self.last.insert(device, record.seq());
        if self.frees.len() == ASYNC_FREES {
            self.forgotten_at = self.frees.pop_front().map(|free| free.at);
        }
        self.frees.push_back(AsyncFree { at, bytes, device, pool });
    }

    /// The program waited for a device, or for all.
    #[inline]
    pub(super) fn synchronised(&mut self, device: u8) {
        if !self.frees.is_empty() {
            self.frees.retain(|free| device != NO_DEVICE && free.device != device);
        }
    }

    /// The sequence number of the last free on a device; on any where that is not known.
    pub(super) fn last(&self, device: u8) -> Option<u64> {
        match device {
            NO_DEVICE => self.last.values().copied().max(),
            device => self.last.get(&device).copied(),
        }
    }

    pub(super) fn since(&self, from: u64, device: u8, pools: &Pools) -> PendingFrees {
        let counts = |free: &&AsyncFree| free.at >= from && (device == NO_DEVICE || free.device == device);
        let mut pending =
            PendingFrees { is_complete: self.forgotten_at.is_none_or(|at| at < from), ..PendingFrees::default() };
        let mut by_pool: BTreeMap<(u8, Number), u64> = BTreeMap::new();
        for free in self.frees.iter().filter(counts) {
            pending.bytes = pending.bytes.saturating_add(free.bytes);
            pending.frees += 1;
            let of_pool = by_pool.entry((free.device, free.pool)).or_default();
            *of_pool = of_pool.saturating_add(free.bytes);
        }
        let kept = by_pool.iter().map(|((device, pool), bytes)| pools.retained_bytes(*device, *pool).min(*bytes));
        pending.kept_bytes = kept.fold(0, u64::saturating_add);
        pending
    }
}

/// All failures that are described.
#[derive(Clone, Debug)]
pub struct AllAround {
    listed: Ends<Around>,
    /// Failures whose thread has not asked again.
    asking: VecDeque<(u32, usize)>,
    /// Failures after which nothing was read yet.
    unread: VecDeque<usize>,
}

impl Default for AllAround {
    fn default() -> Self {
        AllAround { listed: Ends::new(LISTED), asking: VecDeque::new(), unread: VecDeque::new() }
    }
}

impl AllAround {
    pub(super) fn push(&mut self, around: Around) {
        for list_is_full in [self.asking.len() >= MOST_WAITING, self.unread.len() >= MOST_WAITING] {
            if list_is_full {
                self.asking.pop_front();
                self.unread.pop_front();
            }
        }
        self.asking.push_back((around.thread, around.failure));
        self.unread.push_back(around.failure);
        self.listed.push(around);
    }

    /// Whether any thread's next request is waited for.
    #[inline]
    pub(super) fn is_waiting(&self) -> bool {
        !self.asking.is_empty()
    }

    /// A thread asked for memory.
    #[cold]
    pub(super) fn asked(&mut self, thread: u32, next: Next, waits: &Waits) {
        let listed = &mut self.listed;
        self.asking.retain(|(of, failure)| {
            if *of != thread {
                return true;
            }
            if let Some(around) = listed.find_mut(*failure, |around| around.failure) {
                around.next = Some(next);
                around.waited_before_next = waits.since(around.seq, around.device);
            }
            false
        });
    }

    /// A device was read; `of_failure` is the failure's sequence number if it was because of one.
    pub(super) fn read(&mut self, device: u8, of_failure: Option<u64>, read: Read, moves: &Moves) {
        let listed = &mut self.listed;
        self.unread.retain(|failure| {
            let Some(around) = listed.find_mut(*failure, |around| around.failure) else { return false };
            let is_own = of_failure == Some(around.seq);
            if is_own && around.device == device {
                around.read_at = Some(read);
                around.until_read.add(&moves.since(around.moves_before, device));
                around.moves_before = moves.count();
            }
            if is_own || (around.device != device && around.device != NO_DEVICE) {
                return true;
            }
            // A reading of the sampling period, or of another failure, may come in before its own, which is still to come then.
            around.read_after = around.read_after.or(Some(read));
            around.read_at.is_none()
        });
    }

    /// A call that began at a moment gave memory of a device, and was recorded only when the device had been read: the readings may be of
    /// before or of after.
    pub(super) fn disturb(&mut self, device: u8, at: u64, given_bytes: u64) {
        let reads = self.listed.iter_mut().filter(|around| around.device == device || around.device == NO_DEVICE);
        for around in reads {
            let Some(read) = around.read_at.as_mut().filter(|read| read.at > at) else { continue };
            let late = Overlap { given_bytes, ..Overlap::default() };
            read.is_disturbed = true;
            read.within.add(&late);
            around.until_read.add(&late);
        }
    }

    /// The failures are elsewhere in their list from now on; what was around attempts of others is forgotten.
    pub(super) fn renumber(&mut self, places: &[Place]) {
        self.listed.retain_mut(|around| match places.get(around.failure) {
            Some(place) => {
                around.failure = place.index;
                !place.is_attempt
            }
            None => false,
        });
    }

    /// In the order of the failures; the first and the last of many.
    pub fn listed(&self) -> &Ends<Around> {
        &self.listed
    }

    /// What was around the failure with this index, where it is described.
    pub fn failure(&self, index: usize) -> Option<&Around> {
        self.listed.find(index, |around| around.failure)
    }
}
