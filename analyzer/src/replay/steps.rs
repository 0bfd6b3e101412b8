//! Records as steps of a thread that has an undecided failure.

use gpuoom_trace::outcome::{Request, Step, UNKNOWN_BYTES, gives_back};
use gpuoom_trace::payload;
use gpuoom_trace::record::{Event, Record, STATUS_IS_KNOWN, flag};

use super::Replay;
use super::failures::PointerUse;

/// No process has addresses from here on: those of five levels of page tables end at 2^56 (Linux, Documentation/arch/x86/x86_64/mm.rst).
const BEYOND_ADDRESSES: u64 = 1 << 56;

impl Replay {
    /// What one of the program's own records is to the failures of its thread; nothing for most.
    pub(super) fn step_of(&mut self, record: &Record) -> Option<Step> {
        let gave = |bytes| (record.status == 0).then(|| Step::Allocated(self.request_of(record, bytes)));
        match record.event()? {
            _ if gives_back(record, self.apis.get(record.api).ends) => Some(Step::GaveBack),
            _ if self.apis.get(record.api).is_set_up(record) => gave(UNKNOWN_BYTES),
            // Success and null is what HIP before 6 answers for pools that are out of memory: nothing came.
            Event::Alloc | Event::Pin if record.address == 0 => None,
            Event::Alloc | Event::Pin => gave(record.requested),
            Event::ErrorQuery if record.has(flag::ERROR_TEXT) => Some(Step::ErrorText { status: record.status }),
            // Nothing was told: HIP before 7 answers with the status of the thread's last call, whatever failed before.
            Event::ErrorQuery if record.requested == STATUS_IS_KNOWN && record.status == 0 => None,
            Event::ErrorQuery => Some(Step::LastErrorRead),
            Event::Exception => Some(Step::Thrown),
            Event::Answer => {
                Some(Step::Answered { began_ns: self.clock.at_ns(record.at), failure: record.status != 0 })
            }
            // Whose pointer it was given is asked of each failure.
            Event::GpuWork => Some(Step::GpuWork { failed_pointer: false }),
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

    /// The pointer of a failed call that GPU work was given. The recorder compares numbers; a variable that the failed call
    /// left alone may hold memory that lives: a block, or what no recorded call gave, such as a variable in a module. So beside the
    /// null only a number that is no address of any process shows it.
    pub(super) fn failed_pointer(record: &Record, payload: &[u8]) -> Option<PointerUse> {
        if record.event() != Some(Event::GpuWork) || !record.has(flag::FAILED_POINTER) {
            return None;
        }
        let mut numbers = payload::unpack_numbers(payload);
        // Before format 1.6 a record has the first argument only, which need not be the pointer that was meant.
        let pointer = numbers.next().unwrap_or(record.address);
        let left_by = numbers.next();
        let whose = numbers.next().and_then(|seq| seq.checked_sub(1));
        let is_still_held = numbers.next() == Some(1);
        let others = numbers.next();
        matches!(pointer, 0 | BEYOND_ADDRESSES..).then_some(PointerUse { left_by, whose, is_still_held, others })
    }
}

#[cfg(test)]
mod tests {
    use gpuoom_trace::outcome::{Because, Outcome};
    use gpuoom_trace::record::{Event, Kind, Record};

    use crate::replay::Options;
    use crate::testing::{GIB, TraceBuilder, replay};

    /// A refused block, then a pool that answers success with this address, then GPU work.
    fn outcome(address: u64) -> (Outcome, Because) {
        let mut trace = TraceBuilder::default().device(0, "card", 8 * GIB);
        let refused = trace.record(Event::Alloc, Kind::Device, "hipMalloc");
        trace.push(Record { status: 2, requested: 9 * GIB, ..refused }, &[]);
        let answered = trace.record(Event::Alloc, Kind::Pool, "hipMallocFromPoolAsync");
        trace.push(Record { requested: GIB, address, ..answered }, &[]);
        trace.after(Event::GpuWork, "hipMemcpy", 0, 0);
        let replay = replay(&trace, Options::default());
        let failure = &replay.failures.listed[0];
        (failure.outcome, failure.because)
    }

    #[test]
    fn a_success_without_memory_makes_up_for_nothing() {
        assert_eq!(outcome(0), (Outcome::Dropped, Because::GpuWorkContinued));
        assert_eq!(outcome(0x7f00_0000_0000).0, Outcome::Recovered);
    }
}
