//! Which device an HSA agent is, and where the memory of a pool or region lies. All three are only numbers; HSA itself is
//! asked once what they stand for.
//!
//! This is the one place where a hook calls the vendor's library beside the call that it stands for: these functions look
//! things up and change nothing, and HSA has no last error that they could overwrite.

use std::ffi::{CStr, c_int, c_void};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use gpuoom_trace::record::{Kind, NO_DEVICE};

use crate::base::{guard, thread};
use crate::link;
use crate::table::Library;

/// Where memory lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    /// [`Kind::Device`] or [`Kind::HostPinned`].
    pub(crate) kind: Kind,
    /// Index as the program counts; [`NO_DEVICE`] for the host and for devices that the program does not see.
    pub(crate) device: u8,
}

impl Place {
    const HOST: Place = Place { kind: Kind::HostPinned, device: NO_DEVICE };
    /// Set in every packed place: an unused entry is zero.
    const USED: u64 = 1 << 15;

    fn pack(self) -> u64 {
        (Self::USED | u64::from(self.kind == Kind::Device) << 8 | u64::from(self.device)) << HANDLE_BITS
    }

    fn unpack(entry: u64) -> Self {
        let packed = entry >> HANDLE_BITS;
        let kind = if packed & 1 << 8 != 0 { Kind::Device } else { Kind::HostPinned };
        Place { kind, device: packed as u8 }
    }
}

/// Handles are addresses of ROCr's objects, so the upper bits of an entry are free for the place.
const HANDLE_BITS: u32 = 48;
const HANDLE: u64 = (1 << HANDLE_BITS) - 1;
const ENTRIES: usize = 512;
/// Agents that are looked at; those beyond stay unknown.
const MAX_AGENTS: usize = 128;
/// After so many questions without an answer none is asked any more.
const MAX_FRUITLESS: u32 = 64;

/// Handle and place in one word each, so that an entry is never half written.
static PLACES: [AtomicU64; ENTRIES] = [const { AtomicU64::new(0) }; ENTRIES];
static FRUITLESS: AtomicU32 = AtomicU32::new(0);

/// The pool that each device's last large block was asked from, 0: none.
static POOLS: [AtomicU64; DEVICES] = [const { AtomicU64::new(0) }; DEVICES];
const DEVICES: usize = 64;
/// Smaller ones may be of a pool that the runtime keeps for itself.
const LARGE_BYTES: u64 = 1 << 20;

/// A block of so many bytes was asked for from a pool of this device.
#[inline]
pub(crate) fn note_pool(device: u8, pool: u64, size_bytes: u64) {
    if let Some(place) = POOLS.get(usize::from(device)).filter(|_| size_bytes >= LARGE_BYTES) {
        place.store(pool, Ordering::Relaxed);
    }
}

/// The pool that a device's large blocks come from, if any was seen to.
pub(crate) fn pool_of(device: u8) -> Option<u64> {
    POOLS.get(usize::from(device)).map(|pool| pool.load(Ordering::Relaxed)).filter(|pool| *pool != 0)
}

/// The place of an agent, a pool or a region; `None` where HSA does not know the handle.
#[inline]
pub(crate) fn place_of(handle: u64) -> Option<Place> {
    known(handle).or_else(|| learn(handle))
}

/// The device that an agent, a pool or a region belongs to, if that is a device's memory.
pub(crate) fn device_of_holder(holder: u64) -> Option<u8> {
    place_of(holder).filter(|place| place.kind == Kind::Device).map(|place| place.device)
}

/// All handles become invalid: HSA is about to shut down.
pub(crate) fn forget() {
    // Relaxed, here and below: an entry is one word and nothing else depends on it.
    PLACES.iter().for_each(|entry| entry.store(0, Ordering::Relaxed));
    FRUITLESS.store(0, Ordering::Relaxed);
    POOLS.iter().for_each(|pool| pool.store(0, Ordering::Relaxed));
}

fn entries_from(handle: u64) -> impl Iterator<Item = &'static AtomicU64> {
    let start = (handle.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 55) as usize;
    (0..ENTRIES).map(move |step| &PLACES[(start + step) % ENTRIES])
}

#[inline]
fn known(handle: u64) -> Option<Place> {
    let in_use = entries_from(handle).map(|entry| entry.load(Ordering::Relaxed)).take_while(|entry| *entry != 0);
    in_use.into_iter().find(|entry| entry & HANDLE == handle).map(Place::unpack)
}

fn remember(handle: u64, place: Place) {
    if handle == 0 || handle > HANDLE {
        return;
    }
    let packed = handle | place.pack();
    for entry in entries_from(handle) {
        match entry.compare_exchange(0, packed, Ordering::Relaxed, Ordering::Relaxed) {
            Err(other) if other & HANDLE != handle => {}
            _ => return,
        }
    }
}

#[cold]
#[inline(never)]
fn learn(handle: u64) -> Option<Place> {
    if handle == 0 || FRUITLESS.load(Ordering::Relaxed) >= MAX_FRUITLESS {
        return None;
    }
    // The look-up of functions uses the heap: see `link::real`.
    guard::cold((), || guard::without_signals(ask_hsa));
    let place = known(handle);
    if place.is_none() {
        FRUITLESS.fetch_add(1, Ordering::Relaxed);
    }
    place
}

type Visit = extern "C" fn(u64, *mut c_void) -> c_int;
type IterateAgents = unsafe extern "C" fn(Visit, *mut c_void) -> c_int;
type IterateOfAgent = unsafe extern "C" fn(u64, Visit, *mut c_void) -> c_int;
type AgentInfo = unsafe extern "C" fn(u64, c_int, *mut c_void) -> c_int;

/// `HSA_AGENT_INFO_DEVICE` and its value for a GPU.
const AGENT_INFO_DEVICE: c_int = 17;
const DEVICE_TYPE_GPU: u32 = 1;

/// Agents in the order in which HSA names them.
struct Agents {
    handles: [u64; MAX_AGENTS],
    count: usize,
}

/// Asks for all agents with their pools and regions. Signatures: ROCm/rocm-systems rocr-runtime `inc/hsa.h`,
/// `inc/hsa_ext_amd.h`; a handle is a structure of one u64, passed like one.
fn ask_hsa() {
    let caller = thread::current().caller.get();
    let find = |name: &CStr| link::find(Library::Hsa, name, caller).map(|found| found.function);
    let (Some(agents_of), Some(info_of)) = (find(c"hsa_iterate_agents"), find(c"hsa_agent_get_info")) else { return };
    let holders = [c"hsa_amd_agent_iterate_memory_pools", c"hsa_agent_iterate_regions"].map(find);
    // SAFETY: functions of these names have these signatures.
    let (agents_of, info_of) = unsafe {
        let agents_of = std::mem::transmute::<*const (), IterateAgents>(agents_of);
        (agents_of, std::mem::transmute::<*const (), AgentInfo>(info_of))
    };
    let mut agents = Agents { handles: [0; MAX_AGENTS], count: 0 };
    // SAFETY: the callback gets the list as its data, and only while this call lasts.
    unsafe { agents_of(note_agent, (&raw mut agents).cast()) };
    let agents = &agents.handles[..agents.count];
    let is_gpu = |agent: u64| {
        let mut device_type = 0u32;
        // SAFETY: the attribute is a 32-bit number.
        unsafe {
            info_of(agent, AGENT_INFO_DEVICE, (&raw mut device_type).cast()) == 0 && device_type == DEVICE_TYPE_GPU
        }
    };
    let count = agents.iter().filter(|agent| is_gpu(**agent)).count();
    let visible = visible_to_hip();
    let mut ordinals = 0..;
    for agent in agents {
        let device = |ordinal| Place { kind: Kind::Device, device: index_in(visible, ordinal, count) };
        let mut place = if is_gpu(*agent) { ordinals.next().map_or(Place::HOST, device) } else { Place::HOST };
        remember(*agent, place);
        for holder in holders.into_iter().flatten() {
            // SAFETY: as above; the callback gets the place as its data.
            unsafe {
                let of_agent = std::mem::transmute::<*const (), IterateOfAgent>(holder);
                of_agent(*agent, note_holder, (&raw mut place).cast());
            }
        }
    }
}

extern "C" fn note_agent(agent: u64, data: *mut c_void) -> c_int {
    // SAFETY: the list that `ask_hsa` passed, which nobody else touches meanwhile.
    let agents = unsafe { &mut *data.cast::<Agents>() };
    if let Some(place) = agents.handles.get_mut(agents.count) {
        *place = agent;
        agents.count += 1;
    }
    0
}

extern "C" fn note_holder(pool: u64, data: *mut c_void) -> c_int {
    // SAFETY: the place that `ask_hsa` passed.
    remember(pool, unsafe { *data.cast::<Place>() });
    0
}

/// The list of devices that HIP goes by; `None` where it shows all, or where the process has no HIP.
fn visible_to_hip() -> Option<&'static [u8]> {
    if !link::is_loaded(Library::Hip) {
        return None;
    }
    let variable = |name: &CStr| {
        // SAFETY: as HIP itself reads it; a program that changes its environment meanwhile breaks both.
        let value = unsafe { libc::getenv(name.as_ptr()) };
        // SAFETY: a terminated text of the environment.
        let text = (!value.is_null()).then(|| unsafe { CStr::from_ptr(value) }.to_bytes());
        text.filter(|text| !text.is_empty())
    };
    variable(c"HIP_VISIBLE_DEVICES").or_else(|| variable(c"CUDA_VISIBLE_DEVICES"))
}

/// The index that HIP gives the GPU with this ordinal, of `count` GPUs: its place in the list. HIP takes the entries up to
/// the first one that is no plain number of a GPU (tried on 5.2.3); what that leaves out is not known by an index.
fn index_in(visible: Option<&[u8]>, ordinal: usize, count: usize) -> u8 {
    let Some(visible) = visible else { return index(ordinal) };
    let entries = visible.split(|byte| *byte == b',').map_while(|entry| number(entry).filter(|number| *number < count));
    entries.into_iter().position(|number| number == ordinal).map_or(NO_DEVICE, index)
}

fn index(position: usize) -> u8 {
    u8::try_from(position).unwrap_or(NO_DEVICE)
}

/// A plain number without sign, blanks or leading zeros.
fn number(text: &[u8]) -> Option<usize> {
    let plain = text == b"0" || !text.starts_with(b"0") && text.iter().all(u8::is_ascii_digit);
    std::str::from_utf8(text).ok().filter(|_| plain)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hip_counts_by_its_list_of_devices() {
        let count = |list: &str| [0, 1, 2].map(|ordinal| index_in(Some(list.as_bytes()), ordinal, 3));
        assert_eq!([0, 1, 2].map(|ordinal| index_in(None, ordinal, 3)), [0, 1, 2]);
        assert_eq!(count("1"), [NO_DEVICE, 0, NO_DEVICE]);
        assert_eq!(count("2,0"), [1, NO_DEVICE, 0]);
        assert_eq!(count("0,7,1"), [0, NO_DEVICE, NO_DEVICE], "nothing counts behind a number without a device");
        for nothing in ["-1", "x", " 0", "00", "GPU-1234", ","] {
            assert_eq!(count(nothing), [NO_DEVICE; 3], "{nothing}");
        }
        assert_eq!(index_in(None, 300, 400), NO_DEVICE);
    }

    #[test]
    fn places_are_found_again_until_they_are_forgotten() {
        let device = |number: u64| Place { kind: Kind::Device, device: number as u8 };
        for number in 1..=100 {
            remember(number * 4096, device(number));
        }
        remember(7, Place::HOST);
        remember(7, device(3));
        remember(HANDLE + 1, device(3));
        for number in 1..=100 {
            assert_eq!(known(number * 4096), Some(device(number)));
        }
        assert_eq!(known(7), Some(Place::HOST), "the first word counts");
        assert_eq!(known(HANDLE + 1), None);
        forget();
        assert_eq!(known(4096), None);
    }
}
