//! What is answered in the runtime's place: free and total memory by the virtual card, the last error after a failure on
//! request. The runtime is asked first, in each case, and its answer is corrected.

use std::sync::atomic::{AtomicU8, Ordering};

use super::{card, last_error};
use crate::base::thread;
use crate::devices;
use crate::table::Library;
use crate::{link, table};

/// Functions by how they are answered; the answer's number is its place here plus one.
const ANSWERS: [(&[&str], *const ()); 13] = [
    (&["hipMemGetInfo", "cudaMemGetInfo", "cuMemGetInfo_v2"], free_and_total as *const ()),
    (&["cuMemGetInfo"], free_and_total_32 as *const ()),
    (&["hipDeviceTotalMem", "cuDeviceTotalMem_v2"], total as *const ()),
    (&["cuDeviceTotalMem"], total_32 as *const ()),
    (&["hipGetDeviceProperties", "hipGetDevicePropertiesR0000"], properties::<TOTAL_BEHIND_NAME> as *const ()),
    (
        &["hipGetDevicePropertiesR0600", "cudaGetDeviceProperties", "cudaGetDeviceProperties_v2"],
        properties::<TOTAL_BEHIND_IDS> as *const (),
    ),
    (&["hipDeviceGetAttribute"], attribute as *const ()),
    (&["hipDeviceGetLimit"], limit as *const ()),
    (&["hsa_amd_memory_pool_get_info"], pool_info as *const ()),
    (&["hsa_region_get_info"], region_info as *const ()),
    (&["hsa_agent_get_info"], agent_info as *const ()),
    (&["hipGetLastError", "hipPeekAtLastError", "hipExtGetLastError"], last_error_of_hip as *const ()),
    (&["cudaGetLastError", "cudaPeekAtLastError"], last_error_of_cuda as *const ()),
];

/// `totalGlobalMem` of `hipDeviceProp_t` up to ROCm 5 (hip_runtime_api.h): behind a name of 256 bytes.
const TOTAL_BEHIND_NAME: usize = 256;
/// The same since ROCm 6, and of `cudaDeviceProp` since CUDA 10 (driver_types.h): name, UUID, LUID and a mask come first.
const TOTAL_BEHIND_IDS: usize = 288;
/// A value above it is no size of memory, whatever the structure is.
const MOST_TOTAL_BYTES: u64 = 1 << 50;

/// The answer of each row, 0: none.
static ANSWER_OF: [AtomicU8; table::COUNT] = [const { AtomicU8::new(0) }; table::COUNT];

/// Notes which functions are answered. Before the program runs.
pub(super) fn prepare() {
    for (number, (names, _)) in (1u8..).zip(&ANSWERS) {
        for row in names.iter().filter_map(|name| table::number_of(name)) {
            ANSWER_OF[usize::from(row)].store(number, Ordering::Relaxed);
        }
    }
}

/// What to call in the place of `real`, where the program itself asks.
pub(super) fn instead(api: u16, caller: usize, real: *const ()) -> Option<*const ()> {
    let number = usize::from(ANSWER_OF[usize::from(api)].load(Ordering::Relaxed));
    let (_, answer) = ANSWERS.get(number.checked_sub(1)?)?;
    if link::is_runtime_code(caller) {
        return None;
    }
    // SAFETY: this thread's own state. A signal handler that asks the same thing between here and the answer leaves the
    // same value.
    thread::current().answered_real.set(real);
    Some(*answer)
}

/// The real function of the answer that was just entered.
fn real() -> *const () {
    thread::current().answered_real.get()
}

fn thread_device() -> u8 {
    thread::current().device.get()
}

/// Lowers what was answered to `most`.
///
/// # Safety
/// `value` is null or what the real function has just written.
unsafe fn at_most(value: *mut usize, most: u64) {
    // SAFETY: promised by the caller; unaligned, because nobody checks a stranger's pointers.
    unsafe {
        if !value.is_null() && value.read_unaligned() as u64 > most {
            value.write_unaligned(most as usize);
        }
    }
}

/// # Safety
/// As [`at_most`].
unsafe fn at_most_32(value: *mut u32, most: u64) {
    // SAFETY: as in `at_most`.
    unsafe {
        if !value.is_null() && u64::from(value.read_unaligned()) > most {
            value.write_unaligned(most as u32);
        }
    }
}

/// `hipMemGetInfo`, `cudaMemGetInfo`, `cuMemGetInfo_v2` (size_t *free, size_t *total).
unsafe extern "C-unwind" fn free_and_total(free: *mut usize, total: *mut usize) -> i32 {
    // SAFETY: a function of this signature with the program's own arguments, and what it wrote.
    unsafe {
        let real: unsafe extern "C-unwind" fn(*mut usize, *mut usize) -> i32 = std::mem::transmute(real());
        let status = real(free, total);
        if let Some(capacity) = card::capacity_bytes().filter(|_| status == 0) {
            at_most(free, card::free_bytes(capacity, thread_device()));
            at_most(total, capacity);
        }
        status
    }
}

/// `cuMemGetInfo` (unsigned *free, unsigned *total).
unsafe extern "C-unwind" fn free_and_total_32(free: *mut u32, total: *mut u32) -> i32 {
    // SAFETY: as above.
    unsafe {
        let real: unsafe extern "C-unwind" fn(*mut u32, *mut u32) -> i32 = std::mem::transmute(real());
        let status = real(free, total);
        if let Some(capacity) = card::capacity_bytes().filter(|_| status == 0) {
            at_most_32(free, card::free_bytes(capacity, thread_device()));
            at_most_32(total, capacity);
        }
        status
    }
}

/// `hipDeviceTotalMem`, `cuDeviceTotalMem_v2` (size_t *bytes, int device).
unsafe extern "C-unwind" fn total(bytes: *mut usize, device: i32) -> i32 {
    // SAFETY: as above.
    unsafe {
        let real: unsafe extern "C-unwind" fn(*mut usize, i32) -> i32 = std::mem::transmute(real());
        let status = real(bytes, device);
        if let Some(capacity) = card::capacity_bytes().filter(|_| status == 0) {
            at_most(bytes, capacity);
        }
        status
    }
}

/// `cuDeviceTotalMem` (unsigned *bytes, int device).
unsafe extern "C-unwind" fn total_32(bytes: *mut u32, device: i32) -> i32 {
    // SAFETY: as above.
    unsafe {
        let real: unsafe extern "C-unwind" fn(*mut u32, i32) -> i32 = std::mem::transmute(real());
        let status = real(bytes, device);
        if let Some(capacity) = card::capacity_bytes().filter(|_| status == 0) {
            at_most_32(bytes, capacity);
        }
        status
    }
}

/// `hipGetDeviceProperties`, `cudaGetDeviceProperties` (structure, int device).
unsafe extern "C-unwind" fn properties<const TOTAL: usize>(structure: *mut u8, device: i32) -> i32 {
    // SAFETY: as above; the structure has the total at this offset.
    unsafe {
        let real: unsafe extern "C-unwind" fn(*mut u8, i32) -> i32 = std::mem::transmute(real());
        let status = real(structure, device);
        if let Some(capacity) = card::capacity_bytes().filter(|_| status == 0 && !structure.is_null()) {
            let total: *mut usize = structure.add(TOTAL).cast();
            if total.read_unaligned() as u64 <= MOST_TOTAL_BYTES {
                at_most(total, capacity);
            }
        }
        status
    }
}

/// `hipDeviceAttributeTotalGlobalMem` (hip_runtime_api.h, HIP 5 to 7); AMD's runtime answers it up to the largest int, or not at
/// all before ROCm 6.
const TOTAL_AS_ATTRIBUTE: i32 = 84;
/// `hipLimitMallocHeapSize`: up to ROCm 5 AMD's runtime answers the card's whole memory (ROCm/clr `hip_device_runtime.cpp`).
const HEAP_LIMIT: i32 = 2;

/// `hipDeviceGetAttribute` (int *value, attribute, int device).
unsafe extern "C-unwind" fn attribute(value: *mut i32, which: i32, device: i32) -> i32 {
    // SAFETY: as above.
    unsafe {
        let real: unsafe extern "C-unwind" fn(*mut i32, i32, i32) -> i32 = std::mem::transmute(real());
        let status = real(value, which, device);
        let is_total = status == 0 && which == TOTAL_AS_ATTRIBUTE && !value.is_null();
        if let Some(capacity) = card::capacity_bytes().filter(|_| is_total) {
            let most = i32::try_from(capacity).unwrap_or(i32::MAX);
            value.write_unaligned(value.read_unaligned().min(most));
        }
        status
    }
}

/// `hipDeviceGetLimit` (size_t *value, limit).
unsafe extern "C-unwind" fn limit(value: *mut usize, which: i32) -> i32 {
    // SAFETY: as above.
    unsafe {
        let real: unsafe extern "C-unwind" fn(*mut usize, i32) -> i32 = std::mem::transmute(real());
        let status = real(value, which);
        if let Some(capacity) = card::capacity_bytes().filter(|_| status == 0 && which == HEAP_LIMIT) {
            at_most(value, capacity);
        }
        status
    }
}

type Info = unsafe extern "C-unwind" fn(u64, i32, *mut usize) -> i32;

/// Asks HSA about a handle, and lowers the answer if it is `attribute` of a device's memory.
unsafe fn info(handle: u64, attribute: i32, value: *mut usize, lowered: &[i32], most: fn(u64, u8) -> u64) -> i32 {
    // SAFETY: as above; all these attributes are of 64 bits (hsa.h, hsa_ext_amd.h).
    unsafe {
        let status = std::mem::transmute::<*const (), Info>(real())(handle, attribute, value);
        let capacity = card::capacity_bytes().filter(|_| status == 0 && lowered.contains(&attribute));
        if let Some((capacity, device)) = capacity.zip(devices::places::device_of_holder(handle)) {
            at_most(value, most(capacity, device));
        }
        status
    }
}

fn all(capacity_bytes: u64, _device: u8) -> u64 {
    capacity_bytes
}

/// `HSA_AMD_MEMORY_POOL_INFO_SIZE` and `HSA_AMD_MEMORY_POOL_INFO_ALLOC_MAX_SIZE`.
unsafe extern "C-unwind" fn pool_info(pool: u64, attribute: i32, value: *mut usize) -> i32 {
    // SAFETY: as in `info`.
    unsafe { info(pool, attribute, value, &[2, 16], all) }
}

/// `HSA_REGION_INFO_SIZE` and `HSA_REGION_INFO_ALLOC_MAX_SIZE`.
unsafe extern "C-unwind" fn region_info(region: u64, attribute: i32, value: *mut usize) -> i32 {
    // SAFETY: as in `info`.
    unsafe { info(region, attribute, value, &[2, 4], all) }
}

/// `HSA_AMD_AGENT_INFO_MEMORY_AVAIL`.
unsafe extern "C-unwind" fn agent_info(agent: u64, attribute: i32, value: *mut usize) -> i32 {
    // SAFETY: as in `info`.
    unsafe { info(agent, attribute, value, &[0xA015], card::free_bytes) }
}

unsafe extern "C-unwind" fn last_error_of_hip() -> i32 {
    // SAFETY: a function of this signature.
    last_error::translate(Library::Hip, unsafe { std::mem::transmute::<*const (), extern "C" fn() -> i32>(real())() })
}

unsafe extern "C-unwind" fn last_error_of_cuda() -> i32 {
    // SAFETY: as above.
    let told = unsafe { std::mem::transmute::<*const (), extern "C" fn() -> i32>(real())() };
    last_error::translate(Library::CudaRuntime, told)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_function_that_is_answered_is_hooked_and_the_other_way_round() {
        let named: Vec<&str> = ANSWERS.iter().flat_map(|(names, _)| names.iter().copied()).collect();
        for name in &named {
            assert!(table::number_of(name).is_some_and(|row| table::row(row).is_tail_called), "{name}");
        }
        for row in table::rows().filter(|row| row.is_answered) {
            assert!(named.contains(&row.name), "{} has no answer", row.name);
        }
    }
}
