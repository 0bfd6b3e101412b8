//! NVIDIA's management library, if the program has loaded it: how much of the card is in use, by everybody. Signatures and
//! layouts: NVIDIA `nvml.h`.
//!
//! Nothing is loaded or set up for this: a program that uses the library has done both, and in all others it answers that
//! it was not set up. Held against an H200 with driver 580.159.04: total, free and reserve are those of `cudaMemGetInfo` and of
//! `nvidia-smi`, and a process's memory is the sum of its resource manager's objects on the card, to the byte.

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::path::Path;

use gpuoom_trace::metadata::{Quantity, Reading};

use super::sysfs;
use crate::link::{Object, loaded_objects};

/// `nvmlDevice_t`
type Handle = *mut c_void;
type ByBusId = unsafe extern "C" fn(*const c_char, *mut Handle) -> c_int;
type MemoryInfo = unsafe extern "C" fn(Handle, *mut Memory) -> c_int;
type Processes = unsafe extern "C" fn(Handle, *mut u32, *mut Process) -> c_int;

/// `nvmlMemory_v2_t`; the first version is the four numbers without `version` and `reserved`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Memory {
    version: u64,
    total: u64,
    reserved: u64,
    free: u64,
    used: u64,
}

/// The size, and the version above it.
const MEMORY_VERSION: u64 = size_of::<Memory>() as u64 | 2 << 24;

/// `nvmlProcessInfo_t` since its second version.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Process {
    pid: u32,
    bytes: u64,
    instances: [u32; 2],
}

/// Processes that are asked for; with more on a card nothing is said about any of them.
const MAX_PROCESSES: usize = 64;
/// `NVML_VALUE_NOT_AVAILABLE`, as an unsigned number.
const NOT_AVAILABLE: u64 = u64::MAX;

/// Reads what the library says of the device with this bus id.
pub(super) fn read(bus_id: impl FnOnce() -> String, device: u8, readings: &mut Vec<Reading>) {
    let Some(library) = loaded() else { return };
    let Some(handle) = handle(&library, &bus_id()) else { return };
    let mut push = |quantity: Quantity, value| readings.push(Reading { quantity: quantity as u16, device, value });
    if let Some(memory) = memory(&library, handle) {
        push(Quantity::NvmlTotal, memory.total);
        // The library's own `used` is without the reserve (so on the card above); here it is with it, as in sysfs.
        push(Quantity::NvmlUsed, memory.total.saturating_sub(memory.free));
        push(Quantity::NvmlReserved, memory.reserved);
    }
    // The processes are listed by their numbers in the initial namespace.
    if sysfs::is_initial_namespace(Path::new("/proc/thread-self/ns/pid"))
        && let Some(listed) = Listed::read(&library, handle, std::process::id())
    {
        listed.own_bytes.into_iter().for_each(|bytes| push(Quantity::NvmlProcess, bytes));
        listed.others_bytes.into_iter().for_each(|bytes| push(Quantity::NvmlOthers, bytes));
    }
}

fn loaded() -> Option<Object> {
    let is_it =
        |object: &Object| object.path.rsplit('/').next().is_some_and(|name| name.starts_with("libnvidia-ml.so"));
    loaded_objects().into_iter().find(is_it)
}

fn find(library: &Object, names: &[&CStr]) -> Option<*const ()> {
    names.iter().find_map(|name| library.symbol(name))
}

fn handle(library: &Object, bus_id: &str) -> Option<Handle> {
    let function = find(library, &[c"nvmlDeviceGetHandleByPciBusId_v2"])?;
    let bus_id = CString::new(bus_id).ok().filter(|bus_id| !bus_id.is_empty())?;
    let mut handle = std::ptr::null_mut();
    // SAFETY: a function of this name has this signature; a terminated text and a place for the answer.
    let status = unsafe { std::mem::transmute::<*const (), ByBusId>(function)(bus_id.as_ptr(), &mut handle) };
    (status == 0).then_some(handle)
}

/// Only the version that tells the reserve: what is in use cannot be told from it otherwise.
fn memory(library: &Object, handle: Handle) -> Option<Memory> {
    let function = find(library, &[c"nvmlDeviceGetMemoryInfo_v2"])?;
    let mut memory = Memory { version: MEMORY_VERSION, ..Memory::default() };
    // SAFETY: as above; the structure says how large it is.
    let status = unsafe { std::mem::transmute::<*const (), MemoryInfo>(function)(handle, &mut memory) };
    (status == 0).then_some(memory)
}

/// What the library says of the processes on a card.
#[derive(Debug, PartialEq, Eq)]
struct Listed {
    /// `None` where this process is not listed, or not its memory.
    own_bytes: Option<u64>,
    /// All others together; `None` where one of the lists, or one process's memory, is not known.
    others_bytes: Option<u64>,
}

impl Listed {
    /// `None` without a list of the processes that compute.
    fn read(library: &Object, handle: Handle, own: u32) -> Option<Listed> {
        let compute = [c"nvmlDeviceGetComputeRunningProcesses_v3", c"nvmlDeviceGetComputeRunningProcesses_v2"];
        let graphics = [c"nvmlDeviceGetGraphicsRunningProcesses_v3", c"nvmlDeviceGetGraphicsRunningProcesses_v2"];
        let compute = processes(library, handle, &compute)?;
        Some(Listed::of(&compute, processes(library, handle, &graphics).as_deref(), own))
    }

    /// A process that computes and draws is in both lists, with all its memory in each.
    fn of(compute: &[Process], graphics: Option<&[Process]>, own: u32) -> Listed {
        let known = |process: &&Process| process.bytes != NOT_AVAILABLE;
        let own_bytes = compute.iter().find(|process| process.pid == own).filter(known).map(|process| process.bytes);
        let drawing_only = |process: &&Process| !compute.iter().any(|other| other.pid == process.pid);
        let drawing = graphics.map(|graphics| graphics.iter().filter(drawing_only));
        let others = drawing.map(|drawing| compute.iter().chain(drawing).filter(|process| process.pid != own));
        let others_bytes = others.and_then(|mut others| {
            others.try_fold(0u64, |sum, process| known(&process).then(|| sum.saturating_add(process.bytes)))
        });
        Listed { own_bytes, others_bytes }
    }
}

fn processes(library: &Object, handle: Handle, names: &[&CStr]) -> Option<Vec<Process>> {
    let function = find(library, names)?;
    let mut processes = vec![Process::default(); MAX_PROCESSES];
    let mut count = MAX_PROCESSES as u32;
    // SAFETY: as above; room for as many as the count says.
    let status =
        unsafe { std::mem::transmute::<*const (), Processes>(function)(handle, &mut count, processes.as_mut_ptr()) };
    processes.truncate(count as usize);
    (status == 0).then_some(processes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn layouts_are_those_of_the_header() {
        assert_eq!(MEMORY_VERSION, 0x0200_0028);
        assert_eq!(size_of::<Process>(), 24);
    }

    #[test]
    fn others_are_all_that_are_listed_or_unknown() {
        let process = |pid, bytes| Process { pid, bytes, instances: [0; 2] };
        let compute = [process(7, 100), process(8, 30), process(9, 5)];
        let listed = |graphics: Option<&[Process]>| Listed::of(&compute, graphics, 7);
        assert_eq!(listed(Some(&[])), Listed { own_bytes: Some(100), others_bytes: Some(35) });
        let drawing = [process(8, 30), process(10, 2), process(7, 100)];
        assert_eq!(listed(Some(&drawing)), Listed { own_bytes: Some(100), others_bytes: Some(37) });
        assert_eq!(listed(None).others_bytes, None, "who draws is not known");
        assert_eq!(listed(Some(&[process(11, NOT_AVAILABLE)])).others_bytes, None);
        assert_eq!(
            Listed::of(&[process(7, NOT_AVAILABLE)], Some(&[]), 7),
            Listed { own_bytes: None, others_bytes: Some(0) }
        );
        assert_eq!(Listed::of(&[], Some(&[]), 7), Listed { own_bytes: None, others_bytes: Some(0) });
    }

    #[test]
    fn a_library_that_is_not_loaded_says_nothing() {
        let mut readings = Vec::new();
        read(|| unreachable!("nobody is asked"), 0, &mut readings);
        assert!(readings.is_empty());
    }
}
