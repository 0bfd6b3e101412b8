//! Requests that failed and were tried again, with what was freed and waited for in between: what caching allocators do on the
//! same thread, and what may explain a success that another thread has made room for.

use gpuoom_trace::record::NO_DEVICE;
use rustc_hash::FxHashMap;

use super::Limits;
use super::ends::Ends;
use crate::replay::block::Block;
use crate::replay::failures::framework::Place;

/// How long after a failure frees and another try belong to it where nobody says otherwise, in nanoseconds.
pub const WITHIN_NS: u64 = gpuoom_trace::outcome::Limits::DEFAULT.soon_ns;
/// Retries that are listed of the beginning, and as many of the end.
const LISTED: usize = 512;
/// Threads that are watched at once.
const MOST_THREADS: usize = 4096;
/// Sizes this close are the same request, rounded otherwise, unless set.
pub const SAME_REQUEST_BYTES: u64 = 2 << 20;
/// The same as a share of the larger one.
pub const SAME_REQUEST_SHARE: f64 = 0.10;

/// How it went on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// The same size was given.
    Succeeded,
    /// It was tried again, and failed each time.
    Failed,
    /// It was not tried again.
    NotTried,
}

/// A failure with what the same thread did about it in time after each failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Retry {
    /// Index of the first failure among those that are listed.
    pub failure: usize,
    /// Index of the last failure of the same request.
    pub last_failure: usize,
    /// Kernel thread id.
    pub thread: u32,
    /// Device, [`gpuoom_trace::record::NO_DEVICE`] where it is not known.
    pub device: u8,
    /// Bytes asked for.
    pub requested_bytes: u64,
    /// Ticks of the first failure.
    pub at: u64,
    /// Ticks of the last failure or of the success.
    pub ended_at: u64,
    /// Failed tries, the first one included.
    pub failed_tries: u32,
    /// Bytes that the thread freed on that device in between, of blocks that lived at the first failure.
    pub freed_bytes: u64,
    /// Of them those that came before the last try that failed.
    pub freed_in_vain_bytes: u64,
    /// Blocks that it freed.
    pub freed_blocks: u64,
    /// Bytes that other threads freed on that device in between.
    pub freed_by_others_bytes: u64,
    /// Blocks that they freed.
    pub freed_by_others_blocks: u64,
    /// Waits for the device in between, of any thread, as far as they were recorded: the recorder keeps those of threads with an
    /// undecided failure.
    pub waits: u32,
    /// Times that frees were followed by another try: more than one is a release in steps.
    pub releases: u32,
    /// How it went on.
    pub ending: Ending,
}

impl Retry {
    /// An allocator's retry: memory was released, and the same request then succeeded.
    pub fn is_release_and_success(&self) -> bool {
        self.ending == Ending::Succeeded && self.freed_bytes > 0
    }

    /// Bytes that any thread freed on that device in between.
    pub fn freed_by_all_bytes(&self) -> u64 {
        self.freed_bytes.saturating_add(self.freed_by_others_bytes)
    }
}

#[derive(Clone, Copy, Debug)]
struct Open {
    retry: Retry,
    /// Blocks that the thread freed since the last try.
    freed_since: u32,
}

/// All retries of a trace.
#[derive(Clone, Debug)]
pub struct Retries {
    listed: Ends<Retry>,
    succeeded: u64,
    open: FxHashMap<u32, Open>,
    within_ticks: u64,
    limits: Limits,
    /// Ticks until which anything can belong to a failure.
    until: u64,
}

impl Retries {
    /// No retries yet; `within_ticks`: how long after a failure another try belongs to it.
    pub(super) fn new(within_ticks: u64, limits: &Limits) -> Self {
        let (listed, open, limits) = (Ends::new(LISTED), FxHashMap::default(), *limits);
        Retries { listed, succeeded: 0, open, within_ticks, limits, until: 0 }
    }

    /// Whether any thread is watched at this moment.
    #[inline]
    pub(super) fn is_watching(&self, at: u64) -> bool {
        !self.open.is_empty() && at <= self.until
    }

    /// A request was refused.
    pub(super) fn refused(&mut self, failure: usize, thread: u32, device: u8, bytes: u64, at: u64) {
        self.until = self.until.max(at.saturating_add(self.within_ticks));
        let again = self.open_for(thread, device, bytes, at);
        if let Some(open) = again {
            let retry = &mut open.retry;
            (retry.last_failure, retry.ended_at, retry.ending) = (failure, at, Ending::Failed);
            retry.failed_tries = retry.failed_tries.saturating_add(1);
            retry.freed_in_vain_bytes = retry.freed_bytes;
            retry.releases += u32::from(std::mem::take(&mut open.freed_since) > 0);
            return;
        }
        self.close(thread);
        if self.open.len() >= MOST_THREADS {
            return;
        }
        let retry = Retry {
            failure,
            last_failure: failure,
            thread,
            device,
            requested_bytes: bytes,
            at,
            ended_at: at,
            failed_tries: 1,
            freed_bytes: 0,
            freed_in_vain_bytes: 0,
            freed_blocks: 0,
            freed_by_others_bytes: 0,
            freed_by_others_blocks: 0,
            waits: 0,
            releases: 0,
            ending: Ending::NotTried,
        };
        self.open.insert(thread, Open { retry, freed_since: 0 });
    }

    fn open_for(&mut self, thread: u32, device: u8, bytes: u64, at: u64) -> Option<&mut Open> {
        let (within, limits) = (self.within_ticks, self.limits);
        let open = self.open.get_mut(&thread)?;
        let retry = &open.retry;
        let in_time = at.saturating_sub(retry.ended_at) <= within;
        (in_time && retry.device == device && is_same(&limits, retry.requested_bytes, bytes)).then_some(open)
    }

    /// A request was granted.
    #[cold]
    pub(super) fn given(&mut self, thread: u32, device: u8, bytes: u64, at: u64) {
        let Some(open) = self.open_for(thread, device, bytes, at) else { return };
        (open.retry.ending, open.retry.ended_at) = (Ending::Succeeded, at);
        open.retry.releases += u32::from(open.freed_since > 0);
        self.close(thread);
    }

    /// Memory was given back. What came after the refusal made no room for another try when it went.
    #[cold]
    pub(super) fn returned(&mut self, thread: u32, block: &Block, at: u64) {
        let (device, bytes, within) = (block.device, block.requested_bytes, self.within_ticks);
        if self.open.get(&thread).is_some_and(|open| at.saturating_sub(open.retry.ended_at) > within) {
            self.close(thread);
        }
        for (of, open) in &mut self.open {
            let retry = &mut open.retry;
            if retry.device != device || block.at > retry.at || at.saturating_sub(retry.ended_at) > within {
                continue;
            }
            if *of == thread {
                retry.freed_bytes = retry.freed_bytes.saturating_add(bytes);
                retry.freed_blocks += 1;
                open.freed_since = open.freed_since.saturating_add(1);
            } else {
                retry.freed_by_others_bytes = retry.freed_by_others_bytes.saturating_add(bytes);
                retry.freed_by_others_blocks += 1;
            }
        }
    }

    /// What the thread gave back last was part of the refused block itself: that makes no room for another try.
    #[cold]
    pub(in crate::replay) fn was_half_made(&mut self, thread: u32, bytes: u64) {
        let Some(open) = self.open.get_mut(&thread).filter(|open| open.freed_since > 0) else { return };
        open.freed_since -= 1;
        open.retry.freed_blocks = open.retry.freed_blocks.saturating_sub(1);
        open.retry.freed_bytes = open.retry.freed_bytes.saturating_sub(bytes);
    }

    /// A thread waited for a device, or for all ([`gpuoom_trace::record::NO_DEVICE`]).
    #[cold]
    pub(super) fn waited(&mut self, device: u8, at: u64) {
        let within = self.within_ticks;
        for open in self.open.values_mut() {
            let is_of_device = device == NO_DEVICE || open.retry.device == device;
            if is_of_device && at.saturating_sub(open.retry.ended_at) <= within {
                open.retry.waits = open.retry.waits.saturating_add(1);
            }
        }
    }

    /// The recorder's readings of a thread's last failure were done at this moment: until then the thread was held up.
    pub(super) fn read_at(&mut self, failure: usize, at: u64) {
        for open in self.open.values_mut().filter(|open| open.retry.last_failure == failure) {
            open.retry.ended_at = open.retry.ended_at.max(at);
            self.until = self.until.max(at.saturating_add(self.within_ticks));
        }
    }

    fn close(&mut self, thread: u32) {
        let Some(open) = self.open.remove(&thread) else { return };
        // A failure that nobody did anything about is none.
        if open.retry.freed_bytes > 0 || open.retry.ending != Ending::NotTried {
            self.succeeded += u64::from(open.retry.is_release_and_success());
            self.listed.push(open.retry);
        }
    }

    /// After the last record.
    pub(super) fn finish(&mut self) {
        let mut threads: Vec<(usize, u32)> =
            self.open.values().map(|open| (open.retry.failure, open.retry.thread)).collect();
        threads.sort_unstable();
        threads.into_iter().for_each(|(_, thread)| self.close(thread));
    }

    /// The failures are elsewhere in their list from now on. What succeeded after an attempt of an error, and did not keep the
    /// allocator from the next attempt and the error, was a part of what it wanted, and no success.
    pub(super) fn renumber(&mut self, places: &[Place]) {
        let now = |index: usize| places.get(index).map_or(index, |place| place.index);
        for retry in self.listed.iter_mut() {
            if retry.ending == Ending::Succeeded && places.get(retry.last_failure).is_some_and(|place| place.is_attempt)
            {
                self.succeeded -= u64::from(retry.is_release_and_success());
                (retry.ending, retry.freed_in_vain_bytes) = (Ending::Failed, retry.freed_bytes);
            }
            (retry.failure, retry.last_failure) = (now(retry.failure), now(retry.last_failure));
        }
    }

    /// In the order in which they ended. Beginning and end of a long list.
    pub fn listed(&self) -> &Ends<Retry> {
        &self.listed
    }

    /// Times that memory was released and the same request then succeeded, listed or not: PyTorch's `num_alloc_retries`.
    pub fn succeeded(&self) -> u64 {
        self.succeeded
    }

    /// What was done about a failure.
    pub fn of_failure(&self, failure: usize) -> Option<&Retry> {
        self.listed.iter().find(|retry| (retry.failure..=retry.last_failure).contains(&failure))
    }
}

fn is_same(limits: &Limits, one: u64, other: u64) -> bool {
    let near = one.abs_diff(other);
    near < limits.same_request_bytes && near as f64 <= one.max(other) as f64 * limits.same_request_share
}
