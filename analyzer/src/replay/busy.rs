//! Until when memory came or went on each device: what is read meanwhile may be from before or from after.

use gpuoom_trace::record::{Event, NO_DEVICE, Record};

/// When the last call for memory that succeeded had returned, device by device.
#[derive(Clone, Debug)]
pub(super) struct Busy {
    until: Box<[u64; 256]>,
    /// No reading that can still be disturbed was done later, in ticks.
    pub(super) read_until: u64,
}

impl Default for Busy {
    fn default() -> Self {
        Busy { until: Box::new([0; 256]), read_until: 0 }
    }
}

impl Busy {
    /// Takes a record that ended at a moment. Returns whether a reading that came before it in the file was still under way.
    #[inline]
    pub(super) fn note(&mut self, record: &Record, end: u64) -> bool {
        let moves = matches!(
            record.event(),
            Some(Event::Alloc | Event::Free | Event::Pin | Event::Unpin | Event::Map | Event::Unmap | Event::Import)
        );
        if !moves || record.status != 0 {
            return false;
        }
        let until = &mut self.until[usize::from(record.device)];
        *until = end.max(*until);
        record.at < self.read_until
    }

    /// Ticks when the last such call on a device had returned; one whose device is not known counts for all.
    pub(super) fn until(&self, device: u8) -> u64 {
        self.until[usize::from(device)].max(self.until[usize::from(NO_DEVICE)])
    }
}

/// Whether a call on one device may change what is read of another.
pub(super) fn concerns(call: u8, device: u8) -> bool {
    call == device || call == NO_DEVICE || device == NO_DEVICE
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(event: Event, device: u8, at: u64, status: i32) -> Record {
        Record { at, device, status, duration: 5, ..Record::new(event, gpuoom_trace::record::Kind::Device) }
    }

    #[test]
    fn what_failed_or_moves_no_memory_disturbs_nothing() {
        let mut busy = Busy { read_until: 100, ..Busy::default() };
        assert!(!busy.note(&call(Event::Alloc, 0, 50, 2), 55));
        assert!(!busy.note(&call(Event::GpuWork, 0, 50, 0), 55));
        assert_eq!(busy.until(0), 0);
    }

    #[test]
    fn a_call_counts_for_its_device_and_one_of_an_unknown_device_for_all() {
        let mut busy = Busy::default();
        busy.note(&call(Event::Alloc, 1, 50, 0), 55);
        assert_eq!((busy.until(0), busy.until(1)), (0, 55));
        busy.note(&call(Event::Free, NO_DEVICE, 60, 0), 65);
        assert_eq!((busy.until(0), busy.until(1)), (65, 65));
    }
}
