//! HSA's hooks. What they are, [`crate::table::hsa`] says.

use gpuoom_trace::record::{Kind, NO_DEVICE};

use super::describe::{Out, Pointer, block, field, given, mapping, read, retained};
use super::macros::entries;
use crate::call::Described;
use crate::devices::places;
use crate::table::hsa::{Number, functions};

functions!(entries);

/// Bytes of a packet of the queue's language (AQL).
const PACKET_BYTES: usize = 64;
/// Attributes that are looked through; nobody has more of them than there are sorts and agents.
const MAX_ATTRIBUTES: usize = 256;
/// `HSA_AMD_SVM_ATTRIB_PREFERRED_LOCATION`, `HSA_AMD_SVM_ATTRIB_PREFETCH_LOCATION`: their value is an agent.
const LOCATIONS: [u64; 2] = [4, 5];

/// Memory from a pool or region, which decides the device and the kind.
#[inline(always)]
fn lying_in(holder: u64, what: Described) -> Described {
    match places::place_of(holder) {
        Some(place) => Described { kind: Some(place.kind), device: Some(place.device), ..what },
        None => Described { device: Some(NO_DEVICE), ..what },
    }
}

/// Memory from a pool.
#[inline(always)]
fn of_pool(pool: u64, what: Described) -> Described {
    let what = lying_in(pool, what);
    if let (Some(Kind::Device), Some(device)) = (what.kind, what.device) {
        places::note_pool(device, pool, what.requested);
    }
    what
}

/// Something of an agent, a pool or a region, which decides the device only.
#[inline(always)]
fn of_holder(holder: u64, what: Described) -> Described {
    Described { device: Some(places::place_of(holder).map_or(NO_DEVICE, |place| place.device)), ..what }
}

/// Something for several agents: on the device of the first.
///
/// # Safety
/// `agents` points at `count` agents when `done`.
unsafe fn of_first(done: bool, count: u32, agents: *const u64, what: Described) -> Described {
    // SAFETY: promised by the caller.
    let first = if done && count > 0 { unsafe { read(agents) } } else { 0 };
    of_holder(first, what)
}

/// A buffer of another interface; HSA says how large it is.
///
/// # Safety
/// As [`block`], for all pointers.
unsafe fn shared(done: bool, out: Out, size: *const usize, count: u32, agents: *const u64) -> Described {
    // SAFETY: promised by the caller.
    unsafe { of_first(done, count, agents, block(done, out, if done { read(size) } else { 0 })) }
}

/// Memory that is given back: which pool it is of, its address alone does not tell.
fn of_unknown_place(memory: u64) -> Described {
    Described { device: Some(NO_DEVICE), ..given(memory) }
}

/// Memory that others may open; which device has it is known of the block.
fn exported(memory: u64, size: usize) -> Described {
    Described { device: Some(NO_DEVICE), ..Described::new(memory, size as u64) }
}

/// Code that becomes part of an executable; `source` is a reader or a code object.
fn loading(executable: u64, source: u64) -> Described {
    Described { numbers: [source, 0], number_count: 1, ..given(executable) }
}

/// Where managed memory is to lie: {attribute, value} of the location, or of the first attribute where there is none.
///
/// # Safety
/// `attributes` points at `count` pairs of u64 when `done`.
unsafe fn attributes_of(done: bool, pointer: Pointer, size: usize, attributes: *const u8, count: usize) -> Described {
    let count = if done { count.min(MAX_ATTRIBUTES) } else { 0 };
    // SAFETY: promised by the caller: pairs of 16 bytes.
    let pair =
        |index: usize| unsafe { [field::<u64>(attributes, index * 16), field::<u64>(attributes, index * 16 + 8)] };
    let location = (0..count).map(pair).find(|[attribute, _]| LOCATIONS.contains(attribute));
    let numbers = location.or_else(|| (count > 0).then(|| pair(0)));
    let what = Described {
        numbers: numbers.unwrap_or_default(),
        number_count: if numbers.is_some() { 2 } else { 0 },
        ..Described::new(pointer, size as u64)
    };
    of_holder(location.map_or(0, |[_, agent]| agent), what)
}
