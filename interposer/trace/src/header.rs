//! The first page of the file: where things are, how far they got, how the process ended.

use std::sync::atomic::{AtomicI32, AtomicU32, AtomicU64};

use bytemuck::{Pod, Zeroable};

use crate::record::SLOT_BYTES;
use crate::{FORMAT_MAJOR, FORMAT_MINOR};

/// First bytes of every trace file.
pub const MAGIC: [u8; 8] = *b"gpuoom\x1A\n";
/// Bytes of the header page.
pub const HEADER_BYTES: usize = 4096;
/// Entries of the table of calls under way.
pub const IN_FLIGHT_ENTRIES: usize = 256;
/// Slots of the default ring: 4 MiB.
pub const DEFAULT_RING_SLOTS: u64 = 1 << 16;

/// One reading of the three clocks at the same moment.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Pod, Zeroable)]
pub struct ClockPoint {
    /// Ticks of the clock that stamps the records.
    pub ticks: u64,
    /// Nanoseconds of the system's monotonic clock.
    pub monotonic_ns: u64,
    /// Nanoseconds since 1970, UTC.
    pub wall_ns: u64,
}

/// A thread's outermost allocation call that is under way.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Pod, Zeroable)]
pub struct InFlight {
    /// Kernel thread id in the low half, function (row of the table) in bits 32..48, bit 63: under way.
    pub state: u64,
    /// Ticks when the call began.
    pub at: u64,
    /// Bytes asked for.
    pub requested: u64,
    /// Device in the low byte.
    pub device: u64,
    /// Keeps the entries of two threads on cache lines of their own, and off the pairs that processors fetch together.
    pub reserved: [u64; 12],
}

/// Bit of [`InFlight::state`] that says that a call is under way.
pub const IN_FLIGHT: u64 = 1 << 63;

/// How the process ended, as numbers of `end_kind`.
pub mod end {
    /// Nobody saw the end.
    pub const UNKNOWN: u32 = 0;
    /// Exited; `end_code` is the exit status.
    pub const EXITED: u32 = 1;
    /// Ended by a signal; `end_code` is its number.
    pub const SIGNALED: u32 = 2;
}

/// Values of `clock_source`.
pub mod clock_source {
    /// The cycle counter of the processor.
    pub const CYCLES: u32 = 1;
    /// The monotonic clock, in nanoseconds.
    pub const MONOTONIC: u32 = 2;
}

/// The header as bytes. The recorder reaches the counters through [`Live`].
#[repr(C)]
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
pub struct Header {
    /// [`MAGIC`].
    pub magic: [u8; 8],
    /// Format version: a reader refuses a newer major.
    pub major: u16,
    /// Format version: a reader reads every minor of its major.
    pub minor: u16,
    /// [`HEADER_BYTES`].
    pub header_bytes: u32,
    /// Offset of the ring in the file.
    pub ring_offset: u64,
    /// Slots of the ring, a power of two.
    pub ring_slots: u64,
    /// Offset of the first chunk.
    pub chunks_offset: u64,
    /// Granule that requests are padded to.
    pub granularity_bytes: u64,
    /// Process that recorded.
    pub pid: u32,
    /// One of [`clock_source`].
    pub clock_source: u32,
    /// Offset of the table of calls under way.
    pub in_flight_offset: u64,
    /// Entries of that table.
    pub in_flight_entries: u32,
    /// Which of `clock_last` is whole.
    pub clock_last_index: u32,
    /// The clocks when the file was made.
    pub clock_first: ClockPoint,
    /// The clocks later; two entries, so that one is whole whenever the process dies.
    pub clock_last: [ClockPoint; 2],
    /// Estimated ticks per second from the beginning, for a trace that has only one clock point.
    pub ticks_per_second: u64,
    /// One of [`end`].
    pub end_kind: u32,
    /// Exit status or signal number.
    pub end_code: i32,
    /// 1 once the recorder has closed the file.
    pub closed: u32,
    /// Chunks could not be written (1: disk full, 2: file size limit, 3: descriptor lost, 4: other); 0: all is well.
    pub trouble: u32,
    reserved: [u8; 88],
    /// Next sequence number to claim. On cache lines of its own: every thread writes it.
    pub head: u64,
    head_line: [u8; 120],
    /// Everything below was compacted into chunks or dropped.
    pub tail: u64,
    tail_line: [u8; 120],
    /// End of the last whole chunk.
    pub chunks_end: u64,
    /// Events that did not get in, or were dropped because no chunk could be written.
    pub events_lost: u64,
    /// Claimed numbers that were passed over by the drainer.
    pub torn: u64,
    rest: [u8; HEADER_BYTES - 536],
}

const _: () = assert!(std::mem::size_of::<Header>() == HEADER_BYTES);
const _: () = assert!(std::mem::offset_of!(Header, head) == 256);
const _: () = assert!(std::mem::offset_of!(Header, tail) == 384);
const _: () = assert!(std::mem::offset_of!(Header, chunks_end) == 512);

impl Header {
    /// A header for a new file with the usual layout: header, calls under way, ring, chunks.
    pub fn new(ring_slots: u64, granularity_bytes: u64, pid: u32) -> Self {
        let in_flight_bytes = (IN_FLIGHT_ENTRIES * std::mem::size_of::<InFlight>()) as u64;
        let ring_offset = HEADER_BYTES as u64 + in_flight_bytes;
        let chunks_offset = ring_offset + ring_slots * SLOT_BYTES as u64;
        Header {
            magic: MAGIC,
            major: FORMAT_MAJOR,
            minor: FORMAT_MINOR,
            header_bytes: HEADER_BYTES as u32,
            ring_offset,
            ring_slots,
            chunks_offset,
            granularity_bytes,
            pid,
            in_flight_offset: HEADER_BYTES as u64,
            in_flight_entries: IN_FLIGHT_ENTRIES as u32,
            chunks_end: chunks_offset,
            ..Header::zeroed()
        }
    }

    /// The latest whole clock point, if there is one later than the first.
    pub fn clock_latest(&self) -> Option<ClockPoint> {
        let point = self.clock_last[(self.clock_last_index & 1) as usize];
        (point.ticks > self.clock_first.ticks).then_some(point)
    }
}

/// The header's changing fields in a shared mapping.
#[derive(Clone, Copy)]
pub struct Live {
    base: *mut Header,
}

// SAFETY: every access goes through atomics, except the clock points, which only the holder of the drain lock writes.
unsafe impl Send for Live {}
// SAFETY: as above.
unsafe impl Sync for Live {}

macro_rules! atomic_fields {
    ($($(#[$doc:meta])* $field:ident: $atomic:ident),+ $(,)?) => {
        $($(#[$doc])*
        #[inline]
        pub fn $field(&self) -> &'static $atomic {
            // SAFETY: `base` points at a mapped header for as long as the process lives (the recorder never unmaps it),
            // the field is aligned, and it is reached through atomics only.
            unsafe { $atomic::from_ptr(&raw mut (*self.base).$field) }
        })+
    };
}

impl Live {
    /// A view of the header at the start of a mapping.
    ///
    /// # Safety
    /// `base` must point at a writable, page-aligned mapping of at least [`HEADER_BYTES`] that is never unmapped.
    pub const unsafe fn new(base: *mut Header) -> Self {
        Live { base }
    }

    atomic_fields! {
        /// Next sequence number.
        head: AtomicU64,
        /// Everything below was drained.
        tail: AtomicU64,
        /// End of the last whole chunk.
        chunks_end: AtomicU64,
        /// Lost events.
        events_lost: AtomicU64,
        /// Numbers passed over.
        torn: AtomicU64,
        /// One of [`end`].
        end_kind: AtomicU32,
        /// Exit status or signal.
        end_code: AtomicI32,
        /// 1: closed.
        closed: AtomicU32,
        /// Why chunks could not be written.
        trouble: AtomicU32,
        /// Which late clock point is whole.
        clock_last_index: AtomicU32,
    }

    /// Stores a clock point so that one whole point exists at every moment. The caller holds the drain lock.
    pub fn set_clock(&self, point: ClockPoint) {
        use std::sync::atomic::Ordering;
        let next = (self.clock_last_index().load(Ordering::Relaxed) + 1) & 1;
        // SAFETY: in range of the mapped header; the caller is the only writer, and readers look at the other entry until
        // the index below changes.
        unsafe { (&raw mut (*self.base).clock_last[next as usize]).write(point) };
        // Release: the point is whole before the index names it.
        self.clock_last_index().store(next, Ordering::Release);
    }
}
