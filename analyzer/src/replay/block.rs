//! What lives in memory at one moment: blocks and mappings.

use gpuoom_trace::record::{Kind, Layer};

use super::apis::Family;

/// Which table an address belongs to: handles and pointers of different sorts may have the same number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Space {
    /// Pointers to device, managed, pool and pinned memory.
    Memory,
    /// Handles of arrays.
    Array,
    /// Host pointers that were pinned.
    Registered,
    /// Reserved address ranges.
    Reserved,
    /// Memory of another process.
    Imported,
    /// Handles of one of the kernel's drivers, whatever lies behind them.
    Kernel(Family),
}

impl Space {
    /// The table for a kind of memory. Physical memory has tables of its own ([`super::vmm`]).
    #[inline]
    pub fn of(kind: Kind, family: Family) -> Self {
        match kind {
            _ if family != Family::Pointers => Space::Kernel(family),
            Kind::Array => Space::Array,
            Kind::Registered => Space::Registered,
            Kind::Reserved => Space::Reserved,
            Kind::Imported => Space::Imported,
            _ => Space::Memory,
        }
    }
}

/// Whose account a kind of memory is written to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// The device's.
    Device,
    /// The host's.
    Host,
    /// Nobody's: address ranges without memory, memory of others.
    Neither,
}

impl Side {
    /// The account for a kind of memory.
    #[inline]
    pub fn of(kind: Kind) -> Self {
        match kind {
            Kind::Device | Kind::Managed | Kind::Array | Kind::Physical | Kind::Pool => Side::Device,
            Kind::HostPinned | Kind::Registered => Side::Host,
            _ => Side::Neither,
        }
    }
}

/// Memory that a call gave and that was not given back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Block {
    /// Pointer or handle.
    pub address: u64,
    /// Bytes asked for.
    pub requested_bytes: u64,
    /// Ordinal (in the replay) of the record that made it live.
    pub entered: u64,
    /// Ticks when the call began.
    pub at: u64,
    /// Granules it takes when padded.
    pub granules: u32,
    /// First granule in the model arena, [`super::arena::NO_PLACE`] where it has none.
    pub place: u32,
    /// Function that gave it.
    pub api: u16,
    /// CUDA context that it belongs to, by its number in the replay; 0 where it is not known.
    pub context: u16,
    /// Pool that it came from, by its number in the replay; 0: the device's own, or no pool.
    pub pool: u16,
    /// Device number as recorded.
    pub device: u8,
    /// Kind of memory.
    pub kind: Kind,
    /// Layer of the function.
    pub layer: Layer,
    /// What its address is.
    pub family: Family,
    /// Call site, 0 where it is not known.
    pub site: u32,
}

impl Block {
    /// Whether `address` is an address in the device's address space (and not a handle).
    pub fn has_address(&self) -> bool {
        matches!(self.kind, Kind::Device | Kind::Managed | Kind::Pool) && self.family == Family::Pointers
    }

    /// Whether blocks of an allocator above the runtime may lie in it: the host's memory has addresses, too.
    pub fn may_hold_blocks(&self) -> bool {
        self.has_address() || Side::of(self.kind) == Side::Host && self.family == Family::Pointers
    }

    /// The table that it belongs to.
    #[inline]
    pub fn space(&self) -> Space {
        Space::of(self.kind, self.family)
    }
}

/// A stretch of addresses with physical memory behind it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mapping {
    /// First address.
    pub address: u64,
    /// Bytes.
    pub size_bytes: u64,
    /// Ordinal of the record that made it.
    pub entered: u64,
    /// Number of the physical memory in [`super::vmm::Vmm`].
    pub physical: u64,
    /// Device of that memory.
    pub device: u8,
}
