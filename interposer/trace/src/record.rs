//! One event as 64 bytes: the first slot of a record.

use bytemuck::{Pod, Zeroable};

/// Bytes of a slot; also of the first slot of every record.
pub const SLOT_BYTES: usize = 64;
/// Payload bytes of each further slot of a long record (its first 8 bytes are the commit mark).
pub const EXTENSION_BYTES: usize = SLOT_BYTES - 8;
/// Slots of the longest record, and the payload bytes that fit behind its first slot.
pub const MAX_SLOTS: usize = 32;
/// Longest payload of a record, in bytes.
pub const MAX_PAYLOAD_BYTES: usize = (MAX_SLOTS - 1) * EXTENSION_BYTES;
/// `device` of a record that belongs to no device, or to one that is not known.
pub const NO_DEVICE: u8 = 0xFF;
/// `padded_granules` that stands for "more than can be counted".
pub const GRANULES_SATURATED: u32 = u32::MAX;
/// `requested` of an [`Event::ErrorQuery`] whose status is what the last error was.
pub const STATUS_IS_KNOWN: u64 = 1;
/// `parent_distance` that stands for "there is an enclosing call, further back than can be counted".
pub const PARENT_FAR: u16 = u16::MAX;

/// One event. All integers are little-endian, in the order of the fields, without padding.
///
/// ```text
///  0 commit u64        sequence number + 1, once the record is whole
///  8 at u64            clock ticks when the call began
/// 16 duration u32      ticks until it returned, saturated; 0 where it was recorded before the call
/// 20 thread u32        kernel thread id
/// 24 api u16           row of the file's table of functions
/// 26 event u8          [`Event`]
/// 27 kind_flags u8     [`Kind`] in the low four bits, [`flag`] bits in the high four
/// 28 device u8         device index, 0xFF: none
/// 29 slots u8          slots of this record, 1..=32
/// 30 parent_distance   u16: this call's ordinal minus the enclosing call's, 0: outermost
/// 32 status i32        what the call returned, or what an error query asked about
/// 36 call u32          ordinal of the call within its thread
/// 40 padded_granules   u32: requested bytes rounded up, in granules of the file's granularity
/// 44 site u32          call site ([`Event::Site`] says which), 0: not kept
/// 48 address u64       pointer or handle
/// 56 requested u64     bytes asked for
/// ```
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Pod, Zeroable)]
pub struct Record {
    /// Sequence number + 1.
    pub commit: u64,
    /// Clock ticks when the call began.
    pub at: u64,
    /// Ticks until the call returned, saturated.
    pub duration: u32,
    /// Kernel thread id.
    pub thread: u32,
    /// Row of the file's table of functions.
    pub api: u16,
    /// [`Event`] as a number.
    pub event: u8,
    /// [`Kind`] in the low four bits, [`flag`] bits in the high four.
    pub kind_flags: u8,
    /// Device index, [`NO_DEVICE`] where there is none.
    pub device: u8,
    /// Slots of this record, this one included.
    pub slots: u8,
    /// This call's ordinal minus the enclosing call's; 0 for an outermost call.
    pub parent_distance: u16,
    /// What the call returned, or what an error query asked about.
    pub status: i32,
    /// Ordinal of the call within its thread.
    pub call: u32,
    /// Requested bytes rounded up, in granules.
    pub padded_granules: u32,
    /// Call site, 0 where none was kept. An earlier or nearby [`Event::Site`] record has its address.
    pub site: u32,
    /// Pointer or handle.
    pub address: u64,
    /// Bytes asked for.
    pub requested: u64,
}

/// The high four bits of `kind_flags`.
pub mod flag {
    /// The caller is a vendor library: the runtime did this for itself, not the program.
    pub const FROM_RUNTIME: u8 = 0x10;
    /// The record corrects an earlier one of the same call: a free that was recorded before its call and then failed.
    pub const CORRECTION: u8 = 0x20;
    /// GPU work that was given the pointer of a failed allocation.
    pub const FAILED_POINTER: u8 = 0x40;
    /// An error query that asked for a text or a name, not for the last status.
    pub const ERROR_TEXT: u8 = 0x40;
    /// An allocation or pin that writes to the variable of the last failed one of the same thread, while that is undecided.
    pub const SAME_VARIABLE: u8 = 0x40;
    /// A block whose payload has the allocator's own totals, because they do not follow from the last record.
    pub const TOTALS: u8 = 0x40;
    /// The allocation was refused by the recorder on request, not by the runtime.
    pub const INJECTED: u8 = 0x80;
}

/// Why the recorder refused a call: the low byte of `address` of a record with [`flag::INJECTED`]. The bits above it count the
/// process's allocation calls, this one among them.
pub mod injected {
    /// The virtual card had no room for it (`GPUOOM_CAPACITY`).
    pub const CAPACITY: u8 = 1;
    /// It was the call with that number (`oom@N`).
    pub const CALL: u8 = 2;
    /// It asked for more than was allowed (`oom>SIZE`).
    pub const SIZE: u8 = 3;
    /// It was drawn (`oom%PERCENT`).
    pub const CHANCE: u8 = 4;
    /// It came from that place (`oom@FILE+OFFSET`).
    pub const SITE: u8 = 5;
}

/// Where the text of an [`Event::Message`] record comes from: its `status`.
pub mod message {
    /// What the thrown object says of itself (`what()`).
    pub const EXCEPTION: i32 = 1;
    /// What the program aborts with.
    pub const ABORT: i32 = 2;
    /// A line of a log.
    pub const LOG: i32 = 3;
}

/// What a block is for, as ggml counts it: the `status` of an [`Event::BlockUse`] record.
pub mod usage {
    /// Nothing in particular.
    pub const ANY: i32 = 0;
    /// A model's weights.
    pub const WEIGHTS: i32 = 1;
    /// What a graph computes.
    pub const COMPUTE: i32 = 2;
}

/// What an [`Event::Mark`] record is: its `status`.
pub mod mark {
    /// A label at one moment.
    pub const LABEL: i32 = 0;
    /// A range of this thread begins inside those that are open.
    pub const PUSH: i32 = 1;
    /// The thread's innermost open range ends.
    pub const POP: i32 = 2;
    /// A range with the number in `address` begins.
    pub const START: i32 = 3;
    /// The range with the number in `address` ends.
    pub const STOP: i32 = 4;
}

/// What an [`Event::Process`] record says, in its `address`; `status` holds the exit status or the signal.
pub mod process {
    /// The recording began.
    pub const BEGAN: u64 = 0;
    /// The process is about to exit with `status`.
    pub const EXITS: u64 = 1;
    /// The process is about to end itself by the signal in `status` (`abort`).
    pub const SIGNALS: u64 = 2;
}

macro_rules! numbered {
    ($(#[$doc:meta])* $name:ident { $($(#[$vdoc:meta])* $variant:ident = $number:literal $text:literal),+ $(,)? }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[repr(u8)]
        pub enum $name { $($(#[$vdoc])* $variant = $number),+ }

        impl $name {
            /// All values, in the order of their numbers.
            pub const ALL: &'static [$name] = &[$($name::$variant),+];

            /// The value with this number, if the format knows one.
            #[inline]
            pub fn from_number(number: u8) -> Option<Self> {
                match number { $($number => Some($name::$variant),)+ _ => None }
            }

            /// The word that reports and JSON use.
            pub fn name(self) -> &'static str {
                match self { $($name::$variant => $text),+ }
            }
        }
    };
}

pub(crate) use numbered;

numbered! {
    /// What happened.
    Event {
        /// Memory was asked for.
        Alloc = 1 "alloc",
        /// Memory is given back (recorded before the call).
        Free = 2 "free",
        /// Physical memory was mapped into an address range.
        Map = 3 "map",
        /// An address range is unmapped (recorded before the call).
        Unmap = 4 "unmap",
        /// An address range was reserved, or given back ([`Event::Free`] with [`Kind::Reserved`]).
        Reserve = 5 "reserve",
        /// Existing host memory was pinned.
        Pin = 6 "pin",
        /// Pinned host memory is released (recorded before the call).
        Unpin = 7 "unpin",
        /// Memory of another process was opened.
        Import = 8 "import",
        /// The last error, an error's name or an error's text was asked for.
        ErrorQuery = 9 "error_query",
        /// A C++ exception was thrown.
        Exception = 10 "exception",
        /// A launch, copy, memset, graph launch or library call.
        GpuWork = 11 "gpu_work",
        /// The program waited for the GPU; a stream's capture began or ended; a pool was trimmed or set.
        Sync = 12 "sync",
        /// Numbers that the recorder read, or a query of free memory by the program.
        Reading = 13 "reading",
        /// Code was loaded or unloaded; a graph was made ready to launch or destroyed; something else was set up.
        Module = 14 "module",
        /// A label set by the program.
        Mark = 15 "mark",
        /// The process began or ended.
        Process = 16 "process",
        /// The program chose another device for a thread, or reset one.
        Device = 17 "device",
        /// Not a call: the number in `site` stands for the return address in `address`, and the way there, from here on.
        Site = 18 "site",
        /// Not a call: what `thread` allocates from here on belongs to the CUDA context in `address`.
        Context = 19 "context",
        /// Memory was made ready for other processes to open.
        Export = 20 "export",
        /// Not a call: the number in `site` stands for a Python code object from here on.
        Code = 21 "code",
        /// Not a call: the `requested` bytes from `address` on belong to the library in the payload from here on, where another
        /// lay before; without a payload: to none.
        Library = 22 "library",
        /// An allocator above the runtime gave a block out, or (with a status that is not 0) had no memory for one and said so.
        Block = 23 "block",
        /// An allocator above the runtime took a block back.
        BlockFree = 24 "block_free",
        /// A text that belongs to what the thread did just before: what an exception says, what a program aborts with.
        Message = 25 "message",
        /// An allocator above the runtime says what a block is for.
        BlockUse = 26 "block_use",
        /// Not a call: from here on `thread` asks for memory inside the framework's functions that the payload lists.
        Scope = 27 "scope",
        /// Not a call: what the thread is called from here on.
        Thread = 28 "thread",
        /// A call of an interface above, inside which memory was refused, has returned to the program.
        Answer = 29 "answer",
    }
}

numbered! {
    /// What sort of memory a record is about.
    Kind {
        /// Not about memory.
        None = 0 "none",
        /// Device memory.
        Device = 1 "device",
        /// Host memory allocated pinned.
        HostPinned = 2 "host-pinned",
        /// Existing host memory that was pinned.
        Registered = 3 "registered",
        /// Managed (migrating) memory.
        Managed = 4 "managed",
        /// An array or mipmap, its true size known to lower layers only.
        Array = 5 "array",
        /// Physical memory without an address (a VMM handle).
        Physical = 6 "physical",
        /// An address range without memory.
        Reserved = 7 "reserved",
        /// Memory of a stream-ordered pool, or the pool itself.
        Pool = 8 "pool",
        /// Memory of another process.
        Imported = 9 "imported",
        /// Code objects.
        Code = 10 "code",
        /// Queues.
        Queue = 11 "queue",
        /// Kernel scratch.
        Scratch = 12 "scratch",
        /// A block of an allocator above the runtime.
        Tensor = 13 "tensor",
    }
}

numbered! {
    /// The interface a call belongs to, top to bottom.
    Layer {
        /// HIP, CUDA runtime.
        Runtime = 0 "runtime",
        /// CUDA driver.
        Driver = 1 "driver",
        /// ROCr.
        Hsa = 2 "hsa",
        /// KFD, DRM, NVIDIA RM.
        Kernel = 3 "kernel",
        /// Not a GPU interface: the recorder itself, the C++ runtime, the C library.
        Process = 4 "process",
        /// Allocators above the runtime, in the program or a framework: they give out blocks of what the runtime gave them.
        Framework = 5 "framework",
    }
}

impl Record {
    /// A record of one slot with everything else empty.
    pub fn new(event: Event, kind: Kind) -> Self {
        Record { event: event as u8, kind_flags: kind as u8, device: NO_DEVICE, slots: 1, ..Record::zeroed() }
    }

    /// Sequence number of a whole record.
    pub fn seq(&self) -> u64 {
        self.commit.wrapping_sub(1)
    }

    /// The event, `None` for a number that this version does not know.
    #[inline]
    pub fn event(&self) -> Option<Event> {
        Event::from_number(self.event)
    }

    /// The kind of memory, [`Kind::None`] for a number that this version does not know.
    #[inline]
    pub fn kind(&self) -> Kind {
        Kind::from_number(self.kind_flags & 0x0F).unwrap_or(Kind::None)
    }

    /// Whether all bits of a [`flag`] are set.
    pub fn has(&self, flag: u8) -> bool {
        self.kind_flags & flag == flag
    }

    /// Device index, `None` where there is none.
    pub fn device(&self) -> Option<u8> {
        (self.device != NO_DEVICE).then_some(self.device)
    }

    /// Requested bytes rounded up to the granule that the file was recorded with, saturated; never below the request.
    pub fn padded_bytes(&self, granule: Granule) -> u64 {
        match self.padded_granules {
            GRANULES_SATURATED => granule.pad(self.requested),
            granules => u64::from(granules).saturating_mul(granule.bytes()),
        }
    }

    /// Whether the record says what later ones mean, and is not about a call.
    pub fn is_note(&self) -> bool {
        matches!(
            self.event(),
            Some(Event::Site | Event::Context | Event::Code | Event::Library | Event::Scope | Event::Thread)
        )
    }

    /// Ordinal of the enclosing call within the thread: `None` for an outermost call or one too far back to tell.
    pub fn parent_call(&self) -> Option<u32> {
        match self.parent_distance {
            0 | PARENT_FAR => None,
            distance => Some(self.call.wrapping_sub(u32::from(distance))),
        }
    }

    /// Whether no recorded call encloses this one.
    pub fn is_outermost(&self) -> bool {
        self.parent_distance == 0
    }

    /// Whether the program itself made this call: nothing recorded encloses it, and no vendor library made it.
    pub fn is_programs_own(&self) -> bool {
        self.is_outermost() && !self.has(flag::FROM_RUNTIME)
    }
}

/// The granule that requests are padded to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Granule {
    bytes: u64,
    /// Base-2 logarithm, 64 where the granule is no power of two: the hot path shifts where it can.
    shift: u32,
}

impl Granule {
    /// A granule of this size; 0 counts as 1.
    pub fn new(bytes: u64) -> Self {
        let bytes = bytes.max(1);
        Granule { bytes, shift: if bytes.is_power_of_two() { bytes.trailing_zeros() } else { 64 } }
    }

    /// Its size.
    pub fn bytes(self) -> u64 {
        self.bytes
    }

    /// How many granules a request occupies when it is padded, saturated at [`GRANULES_SATURATED`].
    #[inline]
    pub fn count(self, requested_bytes: u64) -> u32 {
        let whole = if self.shift < 64 { requested_bytes >> self.shift } else { requested_bytes / self.bytes };
        let rest = u64::from(whole.wrapping_mul(self.bytes) != requested_bytes);
        u32::try_from(whole.saturating_add(rest)).unwrap_or(GRANULES_SATURATED)
    }

    /// A request rounded up to whole granules, saturated.
    pub fn pad(self, requested_bytes: u64) -> u64 {
        requested_bytes.div_ceil(self.bytes).saturating_mul(self.bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GIB: f64 = (1u64 << 30) as f64;

    #[test]
    fn a_record_fills_a_slot() {
        assert_eq!(std::mem::size_of::<Record>(), SLOT_BYTES);
    }

    #[test]
    fn numbers_and_values_agree() {
        for event in Event::ALL {
            assert_eq!(Event::from_number(*event as u8), Some(*event));
        }
        for kind in Kind::ALL {
            assert!((*kind as u8) < 0x10, "a kind takes four bits");
            assert_eq!(Kind::from_number(*kind as u8), Some(*kind));
        }
        assert_eq!(Event::from_number(0), None);
    }

    #[test]
    fn padding_rounds_each_request_up_and_saturates() {
        let granule = Granule::new(256 << 20);
        let padded = |gib: f64| granule.count((gib * GIB) as u64);
        assert_eq!(padded(4.2) + padded(2.1), 26);
        assert_eq!(padded(9.7) + padded(3.8), 55);
        assert_eq!((granule.count(0), granule.count(1), granule.count(1 << 28)), (0, 1, 1));
        assert_eq!(Granule::new(4096).count(u64::MAX), GRANULES_SATURATED);
        assert_eq!(Granule::new(1).count(u64::MAX), GRANULES_SATURATED);
        let odd = Granule::new(3 << 20);
        assert_eq!((odd.count(3 << 20), odd.count((3 << 20) + 1), odd.pad(1)), (1, 2, 3 << 20));
        assert_eq!(Granule::new(0).count(5), 5);
    }

    #[test]
    fn a_saturated_count_still_pads_upwards() {
        for granule in [1, 4096, 3 << 20, 256 << 20].map(Granule::new) {
            for requested in [0, 1, 5 << 30, 1 << 62, u64::MAX] {
                let record = Record { requested, padded_granules: granule.count(requested), ..Record::default() };
                assert_eq!(record.padded_bytes(granule), granule.pad(requested), "{granule:?} {requested}");
                assert!(record.padded_bytes(granule) >= requested);
            }
        }
    }
}
