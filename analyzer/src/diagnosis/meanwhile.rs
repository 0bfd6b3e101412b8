//! What happened around a failure on any thread, and whether readings are of the card that refused: what ties events to it.

use super::case::{Case, Failure};
use crate::judgement::check::{Confidence, Holds, Known};
use crate::passes::libraries::{Libraries, is_runtime};
use crate::replay::tracks::around::Next;
use crate::replay::tracks::between::Done;

/// PyTorch's libraries, by the beginning of their names.
const TORCH_LIBRARIES: [&str; 4] = ["libtorch", "libc10", "libcaffe2", "_C"];

/// What would tell who asked.
pub(super) const WHO_ASKED: &str = "which library made the call (a recorder that keeps call stacks, GPUOOM_STACKS)";

fn is_of_torch(library: &str) -> bool {
    TORCH_LIBRARIES.iter().any(|name| library.starts_with(name))
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
        let missing = failure.shortfall_bytes().or(failure.request_bytes().get()).unwrap_or(0);
        if failure.external_bytes().is(|bytes| bytes < missing) == Holds::Yes {
            return None;
        }
        let after = self.around(failure).and_then(|around| around.read_after?.read.others_vram_bytes);
        match failure.oom.read.others_vram_bytes.zip(after) {
            Some((at, after)) if after >= at => Some(Confidence::Probable),
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
            Some(device) if device.pci_bus_id.is_some() => Holds::No,
            _ => Holds::Unknown(PLACE),
        };
        let read = &failure.oom.read;
        let by_driver = read.vram_total_bytes.or(read.nvml_total_bytes);
        let by_runtime = read.runtime_total_bytes.or(failure.device.and_then(|device| device.total_bytes));
        let both = Known::new(by_runtime, TOTAL).zip(Known::new(by_driver, BY_DRIVER));
        is_placed.and(both.is(|(runtime, driver)| self.thresholds.is_near(runtime, driver)))
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

    fn has_torch_library(&self) -> bool {
        let modules = &self.trace.metadata.modules.modules;
        modules.iter().any(|module| is_of_torch(module.path.rsplit('/').next().unwrap_or_default()))
    }
}
