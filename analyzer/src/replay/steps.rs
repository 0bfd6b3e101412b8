//! Records as steps of a thread that has an undecided failure.

use gpuoom_trace::outcome::{Request, Step, UNKNOWN_BYTES};
use gpuoom_trace::payload;
use gpuoom_trace::record::{Event, Record, flag};

use super::Replay;

impl Replay {
    /// What one of the program's own records is to the failures of its thread; nothing for most.
    pub(super) fn step_of(&mut self, record: &Record, payload: &[u8]) -> Option<Step> {
        let gave = |bytes| (record.status == 0).then(|| Step::Allocated(self.request_of(record, bytes)));
        match record.event()? {
            _ if self.apis.get(record.api).is_set_up(record) => gave(UNKNOWN_BYTES),
            Event::Alloc | Event::Pin => gave(record.requested),
            Event::ErrorQuery if record.has(flag::ERROR_TEXT) => Some(Step::ErrorText { status: record.status }),
            Event::ErrorQuery => Some(Step::LastErrorRead),
            Event::Exception => Some(Step::Thrown),
            Event::GpuWork => Some(Step::GpuWork { failed_pointer: self.uses_failed_pointer(record, payload) }),
            _ => None,
        }
    }

    /// What a record asked for, as the rules for outcomes look at it.
    pub(super) fn request_of(&self, record: &Record, requested_bytes: u64) -> Request {
        Request {
            at_ns: self.clock.at_ns(record.at.saturating_add(u64::from(record.duration))),
            requested_bytes,
            place: self.sites.address(record.site).unwrap_or(0),
            path: if self.sites.has_way(record.site) { record.site } else { 0 },
            device: record.device,
            kind: record.kind() as u8,
            same_variable: record.has(flag::SAME_VARIABLE),
        }
    }

    /// Whether GPU work was given the pointer of a failed call. The recorder compares numbers; a variable that the failed call
    /// left alone may hold a block that lives, and then the work is on that.
    fn uses_failed_pointer(&mut self, record: &Record, payload: &[u8]) -> bool {
        if !record.has(flag::FAILED_POINTER) {
            return false;
        }
        // Before format 1.6 a record has the first argument only, which need not be the pointer that was meant.
        let pointer = payload::unpack_numbers(payload).next().unwrap_or(record.address);
        pointer == 0 || !self.may_live(pointer)
    }

    /// Whether memory lives at an address, or that could not be looked up any more.
    fn may_live(&mut self, address: u64) -> bool {
        let is_mapped = |replay: &Self| {
            replay.vmm.mappings().any(|mapping| address.wrapping_sub(mapping.address) < mapping.size_bytes)
        };
        let blocks = (self.live.count() + self.vmm.count()) as u64 + 64;
        self.live.at(address).is_some()
            || !self.tracks.may_look_at(blocks)
            || self.live.around(address).is_some()
            || is_mapped(self)
    }
}
