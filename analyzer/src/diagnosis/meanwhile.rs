//! What happened around a failure on any thread, and whether readings are of the card that refused: what ties events to it.

use std::collections::HashSet;

use super::case::{Case, Failure};
use gpuoom_trace::record::Kind;

use crate::judgement::check::{Confidence, Holds, Known};
use crate::passes::libraries::{Libraries, is_runtime};
use crate::replay::readings::DeviceReadings;
use crate::replay::tracks::around::Next;
use crate::replay::tracks::between::Done;
use crate::replay::tracks::calls::What;
use crate::replay::tracks::retries::Ending;

/// PyTorch's libraries, by the beginning of their names.
const TORCH_LIBRARIES: [&str; 4] = ["libtorch", "libc10", "libcaffe2", "_C"];

/// What would tell who asked.
pub(super) const WHO_ASKED: &str = "which library made the call (a recorder that keeps call stacks, GPUOOM_STACKS)";

/// What would tell whether others made the room that a request found.
pub(super) const OTHERS_AT_RETRY: &str =
    "what other processes held when the same request succeeded: they may have made the room";

fn is_of_torch(library: &str) -> bool {
    TORCH_LIBRARIES.iter().any(|name| library.starts_with(name))
}

/// Memory of the card in use that is not this process's.
fn external_bytes(read: &DeviceReadings) -> Option<u64> {
    let by_driver = read.vram_used_bytes.zip(read.process_vram_bytes);
    let by_nvml = || read.nvml_others_bytes.or_else(|| read.nvml_beyond_process_bytes());
    by_driver.map(|(used, own)| used.saturating_sub(own)).or_else(by_nvml)
}

impl<'a> Case<'a> {
    /// The next request of the thread that failed, and what was done on that device until then, on any thread.
    pub fn next_request(&self, failure: &Failure<'_>) -> Option<(Next, Done)> {
        let around = self.around(failure)?;
        let next = around.next?;
        Some((next, next.done.since(&around.done)))
    }

    /// What was done on the device from the first failure of a request until it was tried for the last time, on any thread.
    pub fn until_last_try(&self, failure: &Failure<'_>) -> Option<Done> {
        let retry = self.retry(failure)?;
        let around = |index: usize| self.replay.tracks.around.failure(index);
        let (first, last) = (around(retry.failure)?, around(retry.last_failure)?);
        let until = last.next.filter(|next| next.succeeded).map_or(last.done, |next| next.done);
        Some(until.since(&first.done))
    }

    /// The try that was given at least as much, where the thread asked for the same again, with what was done on the device since
    /// the first failure.
    pub fn granted(&self, failure: &Failure<'_>) -> Option<(Next, Done)> {
        let retry = self.retry(failure).filter(|retry| retry.ending == Ending::Succeeded)?;
        let around = |index: usize| self.replay.tracks.around.failure(index);
        let (first, next) = (around(retry.failure)?, around(retry.last_failure)?.next?);
        // What was given in RAM says nothing of the card.
        let is_managed = |kind: Kind| kind == Kind::Managed;
        let is_as_before = is_managed(next.kind) == is_managed(failure.oom.kind);
        let is_it = next.succeeded && next.device == retry.device && next.requested_bytes >= retry.requested_bytes;
        let is_it = is_it && is_as_before;
        is_it.then(|| (next, next.done.since(&first.done)))
    }

    /// Whether something that was done gave memory of the failure's device back, or may have, as far as calls show it. On an APU
    /// the host's memory is the device's.
    pub fn gave_back(&self, failure: &Failure<'_>, done: &Done) -> bool {
        let is_shared = || self.is_integrated(failure.device).get() != Some(false);
        done.gave_back() || (done.returned_host_bytes > 0 && is_shared()) || self.is_free_under_way(failure)
    }

    /// Whether another thread may have been giving memory of the device back when a call failed. A free is recorded before it is
    /// made, and may wait for the device; what its thread asks for or frees next says that it was made. Stream-ordered frees are
    /// another matter: they come when their stream gets there.
    pub(super) fn is_free_under_way(&self, failure: &Failure<'_>) -> bool {
        let Some(around) = self.around(failure) else { return false };
        let window = self.replay.tracks.calls.before(around.calls_before);
        let mut seen = HashSet::from([failure.oom.thread]);
        // However long ago it began: it waits for what the device has to do.
        let mut last_of_threads = window.calls.iter().rev().filter(|call| seen.insert(call.thread));
        last_of_threads
            .any(|call| call.what == What::Returned && Some(call.device) == failure.oom.device && !call.is_of_pool)
    }

    /// What other processes gave back between the last reading before a failure and its own, in bytes.
    pub fn others_gave_back_before(&self, failure: &Failure<'_>) -> Known<u64> {
        let before = self.around(failure).and_then(|around| around.read_before?.read.others_vram_bytes);
        let both = before.zip(failure.oom.read.others_vram_bytes);
        Known::new(
            both.map(|(before, at)| before.saturating_sub(at)),
            "what other processes held right before the failure, and at it (KFD)",
        )
    }

    /// How sure it can be at most that it was not other processes who made the room that a request found when it was tried again;
    /// `None` where what they hold is too little for that.
    pub fn unless_others_made_room(&self, failure: &Failure<'_>) -> Option<Confidence> {
        let missing = failure.least_shortfall_bytes();
        if failure.external_bytes().is(|bytes| bytes < missing) == Holds::Yes {
            return None;
        }
        // A reading from before the success does not say who made the room for it.
        let given_at = self.retry(failure).map_or(u64::MAX, |retry| retry.ended_at);
        let after = self.around(failure).and_then(|around| around.read_after).filter(|read| read.at >= given_at);
        let at = &failure.oom.read;
        let has_shrunk = |of: fn(&DeviceReadings) -> Option<u64>| {
            let after = after.and_then(|after| of(&after.read));
            of(at).zip(after).map(|(at, after)| after < at)
        };
        match (has_shrunk(|read| read.others_vram_bytes), has_shrunk(external_bytes)) {
            (Some(false), None | Some(false)) => Some(Confidence::Probable),
            _ => Some(Confidence::Possible),
        }
    }

    /// What other threads did on the device between a failure and the moment of which its readings are.
    pub fn before_reading(&self, failure: &Failure<'_>) -> Option<Done> {
        let around = self.around(failure)?;
        Some(around.read_at?.done.since(&around.done))
    }

    /// Whether what the driver's files say is of the card that refused, and of all of it. A card at another place of the bus, or
    /// with another amount of memory (a slice of a board), has other counters.
    pub fn is_read_of_card(&self, failure: &Failure<'_>) -> Holds {
        const PLACE: &str = "which card of the machine the device is (its place on the bus)";
        const TOTAL: &str = "the size of the device by its runtime";
        const BY_DRIVER: &str =
            "what the driver counts in use (amdgpu's mem_info files, or NVML), beside the runtime's number";
        let is_placed = match failure.device {
            // NVML names the card itself.
            _ if self.machine.cards.is_empty() => Holds::Yes,
            Some(device) if self.card(device).is_some() => Holds::Yes,
            Some(device) if device.pci_bus_id.is_some() && self.knows_all_places() => Holds::No,
            _ => Holds::Unknown(PLACE),
        };
        let read = &failure.oom.read;
        let by_driver = read.vram_total_bytes.or(read.nvml_total_bytes);
        let by_runtime = read.runtime_total_bytes.or(failure.device.and_then(|device| device.runtime_total_bytes()));
        let both = Known::new(by_runtime, TOTAL).zip(Known::new(by_driver, BY_DRIVER));
        is_placed.and(both.is(|(runtime, driver)| self.thresholds.is_near(runtime, driver)))
    }

    /// Whether the place of each of the machine's cards is known: only then a device that is at none of them is another card.
    fn knows_all_places(&self) -> bool {
        self.machine.cards.iter().all(|card| card.pci_bus_id.is_some())
    }

    /// Whether PyTorch's own library asked, by the library that a call site lies in. Where PyTorch has no library of its own
    /// (linked into the program), nobody can tell.
    pub fn asked_by_torch(&self, site: u32) -> Holds {
        let libraries = Libraries::new(self.trace, self.replay);
        match libraries.of_site(site) {
            Some(library) if is_of_torch(library) => Holds::Yes,
            Some(library) if !is_runtime(library) && self.has_torch_library() => Holds::No,
            _ => Holds::Unknown(WHO_ASKED),
        }
    }

    /// The library that asked, where it is known and none of PyTorch's although PyTorch has one.
    pub fn asked_by_another(&self, failure: &Failure<'_>) -> Option<String> {
        let libraries = Libraries::new(self.trace, self.replay);
        let library = libraries.of_site(failure.oom.site)?;
        (self.asked_by_torch(failure.oom.site) == Holds::No).then(|| library.to_owned())
    }

    /// Whether a library of PyTorch's is in the process.
    pub fn has_torch_library(&self) -> bool {
        let modules = &self.trace.metadata.modules.modules;
        modules.iter().any(|module| is_of_torch(module.path.rsplit('/').next().unwrap_or_default()))
    }
}
