//! Waits for the device, of any thread: since format 1.6 whether one began between a free that takes effect later and a failure, or
//! between a failure and what came next, is in the trace.

use std::collections::VecDeque;

use gpuoom_trace::record::{NO_DEVICE, Record};

use crate::replay::apis::Does;

/// Waits that are remembered; of older ones only that there were some.
const REMEMBERED: usize = 4096;

/// A wait that began. Whether it ended is not recorded: a later record of its thread says so.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wait {
    /// Sequence number of its record.
    pub seq: u64,
    /// Ticks when it began.
    pub at: u64,
    /// Kernel thread id.
    pub thread: u32,
    /// Function.
    pub api: u16,
    /// The device that was waited for; for a stream or an event, the thread's device, which need not be theirs.
    pub device: u8,
    /// What was waited for: a device, a stream or an event.
    pub does: Does,
    /// The stream or the event.
    pub handle: u64,
}

impl Wait {
    /// Whether it may have waited for what was to be done on a device.
    pub fn may_cover(&self, device: u8) -> bool {
        // An event or a stream of another device can be waited for from anywhere.
        self.does != Does::WaitsForDevice || self.device == device || NO_DEVICE == device || self.device == NO_DEVICE
    }

    /// Whether it waits for all that was ordered on a device before it.
    pub fn covers(&self, device: u8) -> bool {
        self.does == Does::WaitsForDevice && self.device == device && device != NO_DEVICE
    }
}

/// Whether any thread began to wait in a stretch of the trace.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Waited {
    /// The recorder that made the trace did not keep waits, or they are not remembered so far back, or the stretch has no end.
    #[default]
    Unknown,
    /// None did.
    No,
    /// One may have waited for that device: the last one that did, and rather one for the whole device.
    Yes(Wait),
}

/// The waits of a trace, as they come.
#[derive(Clone, Debug, Default)]
pub(super) struct Waits {
    /// The recorder kept waits of all threads.
    pub(super) are_kept: bool,
    last: VecDeque<Wait>,
    /// Sequence number of the newest one that is not remembered.
    forgotten_seq: Option<u64>,
}

impl Waits {
    pub(super) fn new(are_kept: bool) -> Self {
        Waits { are_kept, ..Waits::default() }
    }

    pub(super) fn push(&mut self, record: &Record, does: Does) {
        if self.last.len() == REMEMBERED {
            self.forgotten_seq = self.last.pop_front().map(|wait| wait.seq);
        }
        self.last.push_back(Wait {
            seq: record.seq(),
            at: record.at,
            thread: record.thread,
            api: record.api,
            device: record.device,
            does,
            handle: record.address,
        });
    }

    /// Whether any thread began to wait for a device behind the record with this number.
    pub(super) fn since(&self, seq: u64, device: u8) -> Waited {
        if !self.are_kept {
            return Waited::Unknown;
        }
        let behind = self.last.iter().rev().take_while(|wait| wait.seq > seq);
        let counts = behind.filter(|wait| wait.may_cover(device));
        let best = counts.fold(None, |best: Option<&Wait>, wait| match best {
            Some(best) if best.covers(device) || !wait.covers(device) => Some(best),
            _ => Some(wait),
        });
        match best {
            Some(wait) => Waited::Yes(*wait),
            None if self.forgotten_seq.is_some_and(|forgotten| forgotten > seq) => Waited::Unknown,
            None => Waited::No,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn push(waits: &mut Waits, seq: u64, does: Does, device: u8) {
        waits.push(&Record { commit: seq + 1, device, ..Record::default() }, does);
    }

    #[test]
    fn the_last_wait_for_the_whole_device_is_told() {
        let mut waits = Waits::new(true);
        assert_eq!(waits.since(0, 0), Waited::No);
        push(&mut waits, 5, Does::WaitsForDevice, 0);
        push(&mut waits, 6, Does::WaitsForStream, 0);
        push(&mut waits, 7, Does::WaitsForDevice, 1);
        let seq = |waited| match waited {
            Waited::Yes(wait) => Some(wait.seq),
            _ => None,
        };
        assert_eq!(
            (seq(waits.since(4, 0)), seq(waits.since(5, 0)), seq(waits.since(6, 1))),
            (Some(5), Some(6), Some(7))
        );
        assert_eq!(waits.since(6, 0), Waited::No, "another device's");
        assert_eq!(Waits::new(false).since(0, 0), Waited::Unknown);
    }

    #[test]
    fn what_is_not_remembered_is_not_known() {
        let mut waits = Waits::new(true);
        for seq in 0..=REMEMBERED as u64 {
            push(&mut waits, seq, Does::WaitsForDevice, 1);
        }
        assert_eq!((waits.since(0, 0), waits.since(0, 1) == Waited::No), (Waited::No, false));
        push(&mut waits, 9000, Does::WaitsForDevice, 1);
        assert_eq!((waits.since(0, 0), waits.since(1, 0)), (Waited::Unknown, Waited::No));
    }
}
