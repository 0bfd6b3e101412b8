//! Blocks of allocators above the runtime, as those tell of them.
//!
//! An allocator tells with its own lock held, so nothing here waits for anybody who may want that lock, but for a bounded time: see
//! [`crate::stack`].

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use gpuoom_trace::payload;
use gpuoom_trace::record::{Event, MAX_PAYLOAD_BYTES, Record, flag};

use crate::base::config;
use crate::call::{Described, Frame};
use crate::record::state;
use crate::watch;

/// `c10::DeviceType` of what lives on a GPU that is recorded here: CUDA, by which ROCm's builds call theirs, and HIP.
const GPU_TYPES: [u8; 2] = [1, 6];
/// The status of a block that there was no memory for: the recorder's own.
pub(super) const NO_MEMORY: i32 = 1;
/// Devices that an index can name.
const DEVICES: usize = 0x80;

/// What an allocator tells.
pub(super) struct Told {
    event: Event,
    status: i32,
    address: u64,
    size_bytes: u64,
    /// What the allocator has given out and reserved, this change included.
    totals: Totals,
    /// `None`: on no GPU that is recorded here.
    device: Option<u8>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
struct Totals {
    allocated: u64,
    reserved: u64,
}

/// A block of PyTorch's: given out, or taken back where the change is negative.
#[inline(always)]
pub(super) fn tensor(block: u64, change: i64, [allocated, reserved]: [u64; 2], device: u16) -> Told {
    let event = if change < 0 { Event::BlockFree } else { Event::Block };
    Told {
        event,
        status: 0,
        address: block,
        size_bytes: change.unsigned_abs(),
        totals: Totals { allocated, reserved },
        device: gpu(device),
    }
}

/// An out-of-memory error of PyTorch's.
#[inline(always)]
pub(super) fn no_tensor(requested: i64, [allocated, reserved]: [u64; 2], device: u16) -> Told {
    Told {
        event: Event::Block,
        status: NO_MEMORY,
        address: 0,
        size_bytes: u64::try_from(requested).unwrap_or(0),
        totals: Totals { allocated, reserved },
        device: gpu(device),
    }
}

/// `c10::Device`: type and index, a signed byte each.
#[inline(always)]
fn gpu(device: u16) -> Option<u8> {
    let [kind, index] = device.to_le_bytes();
    (GPU_TYPES.contains(&kind) && usize::from(index) < DEVICES).then_some(index)
}

/// Records what an allocator tells. It begins no recording: what lies on a GPU was asked for before.
#[inline(always)]
pub(super) fn told(api: u16, told: impl Fn() -> Told) {
    if !config::get().framework || state::running().is_none() {
        return;
    }
    let told = told();
    let Some(device) = told.device else { return };
    let Some(frame) = Frame::enter(api) else { return };
    let what = Described { device: Some(device), ..Described::new(told.address, told.size_bytes) };
    let record = frame.told(told.event, told.status, &what);
    let seq = LAST[usize::from(device) % DEVICES].publish(&frame, record, &told);
    if told.status != 0 {
        watch::error_told(&record);
    }
    if told.status != 0 && !watch::is_watched() {
        // The allocator had a limit of its own: no call failed below it, so nobody watches what becomes of this.
        watch::failed(&frame, &record, seq, 0);
    }
    frame.leave();
}

/// The totals of one device as of the last record, by the allocator's own word. Its lock orders what is read and written here, so
/// relaxed loads and stores do; without that lock the totals would not agree, and then they are in the record.
struct Last {
    /// Process whose file has them, 0: no file has.
    pid: AtomicU32,
    allocated: AtomicU64,
    reserved: AtomicU64,
}

static LAST: [Last; DEVICES] =
    [const { Last { pid: AtomicU32::new(0), allocated: AtomicU64::new(0), reserved: AtomicU64::new(0) } }; DEVICES];

impl Last {
    #[inline(always)]
    fn publish(&self, frame: &Frame, record: Record, told: &Told) -> Option<u64> {
        let pid = frame.recorder().pid;
        let follows = self.pid.load(Ordering::Relaxed) == pid && self.next(told) == told.totals;
        let seq = match follows {
            true => frame.recorder().publish(&record),
            false => with_totals(frame, record, told.totals),
        };
        self.allocated.store(told.totals.allocated, Ordering::Relaxed);
        self.reserved.store(told.totals.reserved, Ordering::Relaxed);
        self.pid.store(if seq.is_some() { pid } else { 0 }, Ordering::Relaxed);
        seq
    }

    /// What the totals are if nothing but this block has changed.
    #[inline(always)]
    fn next(&self, told: &Told) -> Totals {
        let allocated = self.allocated.load(Ordering::Relaxed);
        Totals {
            allocated: match (told.event, told.status) {
                (Event::BlockFree, _) => allocated.wrapping_sub(told.size_bytes),
                (_, 0) => allocated.wrapping_add(told.size_bytes),
                _ => allocated,
            },
            reserved: self.reserved.load(Ordering::Relaxed),
        }
    }
}

#[cold]
#[inline(never)]
fn with_totals(frame: &Frame, record: Record, totals: Totals) -> Option<u64> {
    let mut out = [0; MAX_PAYLOAD_BYTES];
    let record = Record { kind_flags: record.kind_flags | flag::TOTALS, ..record };
    frame.recorder().publish_long(&record, payload::numbers(&[totals.allocated, totals.reserved], &mut out))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_is_a_type_and_an_index() {
        assert_eq!(gpu(u16::from_le_bytes([1, 3])), Some(3));
        assert_eq!(gpu(u16::from_le_bytes([6, 0])), Some(0));
        assert_eq!(gpu(u16::from_le_bytes([0, 0xFF])), None, "the processor");
        assert_eq!(gpu(u16::from_le_bytes([1, 0xFF])), None, "no index");
        assert_eq!(gpu(u16::from_le_bytes([12, 0])), None, "an XPU");
    }

    #[test]
    fn the_sign_says_whether_a_block_is_given_or_taken() {
        let device = u16::from_le_bytes([1, 0]);
        let given = tensor(0x1000, 512, [512, 1024], device);
        assert!(given.event == Event::Block && given.size_bytes == 512 && given.status == 0);
        let taken = tensor(0x1000, -512, [0, 1024], device);
        assert!(taken.event == Event::BlockFree && taken.size_bytes == 512 && taken.address == 0x1000);
        let refused = no_tensor(7, [0, 0], device);
        assert!(refused.event == Event::Block && refused.status == NO_MEMORY && refused.address == 0);
    }

    #[test]
    fn totals_follow_from_the_last_ones() {
        let last = Last { pid: AtomicU32::new(1), allocated: AtomicU64::new(100), reserved: AtomicU64::new(300) };
        let device = u16::from_le_bytes([1, 0]);
        let is_next = |told: Told| last.next(&told) == told.totals;
        assert!(is_next(tensor(1, 50, [150, 300], device)));
        assert!(is_next(tensor(1, -50, [50, 300], device)));
        assert!(is_next(no_tensor(50, [100, 300], device)));
        assert!(!is_next(tensor(1, 50, [150, 400], device)), "more is reserved");
        assert!(!is_next(tensor(1, 50, [151, 300], device)), "something was not told");
    }
}
