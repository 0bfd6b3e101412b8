//! The virtual card (`GPUOOM_CAPACITY`): what the program's own allocations hold of each device, and whether more fits.
//!
//! It holds what the record says that the program holds: its own, outermost allocations of device memory. Managed memory is
//! left out, because its pages move to the host, and so is what the runtime takes for itself. Each process has a card of its
//! own.
//!
//! Each block counts padded to `GPUOOM_GRANULARITY` where that is set, else to the granularity seen when the block came. It is
//! seen from addresses: what divides the differences of all addresses on a device is an upper bound of what the driver rounds
//! to. Equal large blocks lie at multiples of their size, so it is believed up to 2 MiB only, which is also what counts until a
//! second address is known. Where a runtime packs small blocks into pages that a large one has for itself (CUDA), a block
//! counts up to a page too little.

use std::sync::atomic::{AtomicU64, Ordering};

use gpuoom_trace::meaning::Does;
use gpuoom_trace::record::{Event, Kind, NO_DEVICE};

use super::blocks::{self, Block, Blocks};
use super::contexts::{self, End};
use crate::base::{config, log};
use crate::call::Described;
use crate::devices;
use crate::record::state;
use crate::table;

/// The most that blocks are padded to where nobody says: pages of NVIDIA's and large fragments of AMD's cards.
const MOST_GRANULARITY_BYTES: u64 = 2 << 20;
/// The least: below that the cards' own accounts are not exact, and `GPUOOM_GRANULARITY` does not go either.
const LEAST_GRANULARITY_BYTES: u64 = 512;

/// Padded bytes in use, per device.
static USED: [AtomicU64; 256] = [const { AtomicU64::new(0) }; 256];
/// The first address that was given out, per device; 0: none yet.
static FIRST_ADDRESS: [AtomicU64; 256] = [const { AtomicU64::new(0) }; 256];
/// The bits in which later addresses differ from it, or-ed together.
static DIFFERENCES: [AtomicU64; 256] = [const { AtomicU64::new(0) }; 256];

/// Room that was taken for a call before it is made.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Room {
    device: u8,
    bytes: u64,
}

/// Bytes of the card, where there is one.
pub(super) fn capacity_bytes() -> Option<u64> {
    config::get().capacity_bytes
}

/// A new process begins, with nothing on its card.
pub(super) fn forget_all() {
    [&USED, &FIRST_ADDRESS, &DIFFERENCES].into_iter().flatten().for_each(|number| number.store(0, Ordering::Relaxed));
    blocks::forget_all();
}

/// What is free on the card.
pub(super) fn free_bytes(capacity_bytes: u64, device: u8) -> u64 {
    // A forked child that has not begun to record holds nothing yet.
    let used = state::running().map_or(0, |_| USED[usize::from(device)].load(Ordering::Relaxed));
    capacity_bytes.saturating_sub(used)
}

/// Whether memory of this kind lies on a device for good.
fn is_limited(event: Event, kind: Kind) -> bool {
    event == Event::Alloc && matches!(kind, Kind::Device | Kind::Array | Kind::Physical | Kind::Pool)
}

/// What a block on this device is padded to now.
fn granularity_bytes(device: u8) -> u64 {
    let seen = || {
        // Relaxed: each bit only ever lowers the answer, and nothing else is read by it.
        let differences = DIFFERENCES[usize::from(device)].load(Ordering::Relaxed);
        1 << (differences | MOST_GRANULARITY_BYTES).trailing_zeros()
    };
    config::get().granularity_bytes.unwrap_or_else(seen).max(LEAST_GRANULARITY_BYTES)
}

/// Takes note of an address that was given out.
fn see_address(device: u8, kind: Kind, address: u64) {
    // Arrays and physical memory are named by handles, which lie on the host.
    if !matches!(kind, Kind::Device | Kind::Pool) {
        return;
    }
    // Relaxed: whichever address comes first, the differences to it have the same lowest bit.
    let first = FIRST_ADDRESS[usize::from(device)].compare_exchange(0, address, Ordering::Relaxed, Ordering::Relaxed);
    if let Err(first) = first {
        DIFFERENCES[usize::from(device)].fetch_or(address ^ first, Ordering::Relaxed);
    }
}

fn padded(bytes: u64, device: u8) -> u64 {
    let granularity = granularity_bytes(device);
    bytes.div_ceil(granularity).saturating_mul(granularity)
}

/// A request that does not fit; so many bytes each block is padded to.
#[derive(Clone, Copy, Debug)]
pub(super) struct Full {
    pub(super) granularity_bytes: u64,
}

/// Takes room for a request. `Ok(None)`: the card has nothing to do with it.
pub(super) fn reserve(event: Event, kind: Kind, what: &Described, thread_device: u8) -> Result<Option<Room>, Full> {
    let kind = what.kind.unwrap_or(kind);
    let device = what.device.or_else(|| device_of_pool(kind, what)).unwrap_or(thread_device);
    let Some(capacity) = capacity_bytes().filter(|_| is_limited(event, kind) && device != NO_DEVICE) else {
        return Ok(None);
    };
    let bytes = padded(what.requested, device);
    let fits = |used: u64| used.checked_add(bytes).filter(|after| *after <= capacity);
    // Relaxed: a sum, by which nothing else is published. One step, so that a request that does not fit is not in the way
    // of one that does.
    let taken = USED[usize::from(device)].fetch_update(Ordering::Relaxed, Ordering::Relaxed, fits);
    taken.map(|_| Some(Room { device, bytes })).map_err(|_| Full { granularity_bytes: granularity_bytes(device) })
}

/// The device of the pool that a request names.
fn device_of_pool(kind: Kind, what: &Described) -> Option<u8> {
    let names_one = kind == Kind::Pool && what.number_count > 0;
    blocks::table().filter(|_| names_one)?.device_of_pool(what.numbers[0])
}

fn give(device: u8, bytes: u64) {
    let less = |used: u64| Some(used.saturating_sub(bytes));
    let _ = USED[usize::from(device)].fetch_update(Ordering::Relaxed, Ordering::Relaxed, less);
}

impl Room {
    /// The call has failed, or gave nothing.
    pub(super) fn give_back(self) {
        give(self.device, self.bytes);
    }

    /// The call has succeeded: the room belongs to what it gave, whose real size is known now.
    pub(super) fn becomes(self, kind: Kind, what: &Described) {
        let Some(table) = blocks::table().filter(|_| what.address != 0) else { return self.give_back() };
        let kind = what.kind.unwrap_or(kind);
        see_address(self.device, kind, what.address);
        let bytes = padded(what.requested, self.device);
        if bytes >= self.bytes {
            USED[usize::from(self.device)].fetch_add(bytes - self.bytes, Ordering::Relaxed);
        } else {
            give(self.device, self.bytes - bytes);
        }
        let entered = match kind {
            Kind::Physical => table.add_physical(what.address, bytes, self.device),
            _ => {
                // What a call took away that nobody saw: the address is free, or it would not have been given out.
                table.remove(what.address).iter().for_each(leaves);
                let is_pooled = kind == Kind::Pool;
                let context = devices::contexts::current_context();
                table.add(what.address, Block { bytes, device: self.device, is_pooled, context })
            }
        };
        if !entered {
            log::debug(format_args!("the virtual card does not count {bytes} bytes: too many blocks"));
            give(self.device, bytes);
        }
    }
}

fn leaves(block: &Block) {
    give(block.device, block.bytes);
}

/// A call that gives memory back: its block leaves the card if the real call succeeds.
pub(super) fn release(event: Event, kind: Kind, api: u16, what: &Described, device: u8, real: &dyn Fn() -> i32) -> i32 {
    let Some(table) = blocks::table() else { return real() };
    match (event, kind) {
        (Event::Free, Kind::Pool) if table::row(api).meaning.does == Does::EndsPool => {
            after(real, || table.remove_pool(what.address))
        }
        // Out of the table before the call: another thread may get the address as soon as it is free.
        (Event::Free, Kind::Device | Kind::Pool | Kind::Array | Kind::Managed) => {
            let block = table.remove(what.address);
            let status = real();
            match (status, block) {
                (0, Some(block)) => leaves(&block),
                (_, Some(block)) => _ = table.add(what.address, block),
                (0, None) if what.address != 0 && kind != Kind::Array => {
                    table.remove_around(what.address).iter().for_each(leaves);
                }
                _ => {}
            }
            status
        }
        (Event::Free, Kind::Physical) => after(real, || table.release(what.address).iter().for_each(leaves)),
        (Event::Unmap, Kind::Physical) => {
            after(real, || table.unmap(what.address, what.requested, |block| leaves(&block)))
        }
        (Event::Device, _) => {
            let end = contexts::end_of(table::row(api).meaning.ends, what, device);
            after(real, || ends(table, end))
        }
        _ => real(),
    }
}

fn after(real: &dyn Fn() -> i32, then: impl FnOnce()) -> i32 {
    let status = real();
    if status == 0 {
        then();
    }
    status
}

/// What ends takes its memory along.
fn ends(table: Blocks, end: End) {
    match end {
        End::Nothing => {}
        End::Device(device) => {
            table.remove_all(|block| block.device == device, |block| leaves(&block));
            table.remove_physical(device, |block| leaves(&block));
        }
        End::Reference { device, .. } if contexts::is_alive(device) => {}
        End::Context { context } | End::Reference { context, .. } => table
            .remove_all(|block| context != 0 && block.context == context && !block.is_pooled, |block| leaves(&block)),
        End::Primary { device, context } => table.remove_all(
            |block| {
                let is_of_it = block.context == 0 || block.context == context;
                block.device == device && is_of_it && !block.is_pooled
            },
            |block| leaves(&block),
        ),
    }
}

/// A call that names something has succeeded.
pub(super) fn named(event: Event, kind: Kind, what: &Described) {
    let Some(table) = blocks::table() else { return };
    match (event, kind) {
        (Event::Map, Kind::Physical) => table.map(what.address, what.requested, what.numbers[0]),
        (Event::Import, Kind::Physical) => table.retain(what.address),
        // The node of a graph has a size, and is no pool.
        (Event::Reserve, Kind::Pool) if what.requested == 0 && what.address != 0 => {
            table.add_pool(what.address, what.device.unwrap_or(NO_DEVICE));
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Devices that no other test uses: the addresses of a process stay.
    fn after(device: u8, addresses: impl IntoIterator<Item = u64>) -> u64 {
        addresses.into_iter().for_each(|address| see_address(device, Kind::Device, address));
        granularity_bytes(device)
    }

    #[test]
    fn blocks_are_padded_to_what_addresses_show() {
        const BASE: u64 = 0x7f00_0000_1000;
        let every = |bytes: u64| (0..60).map(move |number| BASE + number * bytes);
        assert_eq!((after(200, []), after(200, [BASE])), (2 << 20, 2 << 20), "one address shows nothing");
        assert_eq!(after(201, every(64 << 10)), 64 << 10);
        assert_eq!(after(202, every(20 << 20)), 2 << 20, "equal large blocks show their size");
        assert_eq!(after(202, [BASE + 4096]), 4096, "a later address may show less");
        assert_eq!(after(202, every(20 << 20)), 4096);
        assert_eq!(after(203, every(16)), 512);
        see_address(204, Kind::Array, BASE);
        see_address(204, Kind::Physical, 1);
        assert_eq!(after(204, [BASE]), 2 << 20, "handles are no addresses");
        assert_eq!((padded(1, 201), padded(64 << 10, 201), padded(u64::MAX, 201)), (64 << 10, 64 << 10, u64::MAX));
    }
}
