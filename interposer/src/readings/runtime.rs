//! The runtime's own numbers, asked on the recorder's thread.

use std::ffi::{CStr, c_char, c_int};

use gpuoom_trace::metadata::{DeviceFacts, Quantity, Reading};

use crate::devices;
use crate::link;
use crate::table::Library;

type SetDevice = unsafe extern "C" fn(c_int) -> c_int;
type SetContext = unsafe extern "C" fn(u64) -> c_int;
type MemGetInfo = unsafe extern "C" fn(*mut usize, *mut usize) -> c_int;
type Malloc = unsafe extern "C" fn(*mut u64, usize) -> c_int;
type Free = unsafe extern "C" fn(u64) -> c_int;
type PoolAllocate = unsafe extern "C" fn(u64, usize, u32, *mut u64) -> c_int;
type Version = unsafe extern "C" fn(*mut c_int) -> c_int;
type Text = unsafe extern "C" fn(*mut c_char, c_int, c_int) -> c_int;
type Properties = unsafe extern "C" fn(*mut u8, c_int) -> c_int;

/// The names of the functions that are asked, per runtime.
struct Names {
    runtime: &'static str,
    /// Makes a device the thread's: `hipSetDevice`; for the driver, whose devices have contexts, `cuCtxSetCurrent`.
    choose: &'static CStr,
    memory: &'static CStr,
    malloc: &'static CStr,
    free: &'static CStr,
    runtime_version: &'static CStr,
    driver_version: &'static CStr,
    pci_bus_id: &'static CStr,
}

const HIP: Names = Names {
    runtime: "hip",
    choose: c"hipSetDevice",
    memory: c"hipMemGetInfo",
    malloc: c"hipMalloc",
    free: c"hipFree",
    runtime_version: c"hipRuntimeGetVersion",
    driver_version: c"hipDriverGetVersion",
    pci_bus_id: c"hipDeviceGetPCIBusId",
};

const CUDA: Names = Names {
    runtime: "cuda",
    choose: c"cudaSetDevice",
    memory: c"cudaMemGetInfo",
    malloc: c"cudaMalloc",
    free: c"cudaFree",
    runtime_version: c"cudaRuntimeGetVersion",
    driver_version: c"cudaDriverGetVersion",
    pci_bus_id: c"cudaDeviceGetPCIBusId",
};

/// For programs that have the CUDA runtime linked in, or none.
const CUDA_DRIVER: Names = Names {
    runtime: "cuda",
    choose: c"cuCtxSetCurrent",
    memory: c"cuMemGetInfo_v2",
    malloc: c"cuMemAlloc_v2",
    free: c"cuMemFree_v2",
    runtime_version: c"cuDriverGetVersion",
    driver_version: c"cuDriverGetVersion",
    pci_bus_id: c"cuDeviceGetPCIBusId",
};

/// The functions of one copy of a runtime.
pub(super) struct Runtime {
    library: Library,
    caller: usize,
    names: &'static Names,
    choose: *const (),
    memory: MemGetInfo,
    malloc: Malloc,
    free: Free,
    version: c_int,
}

impl Runtime {
    /// The runtime that a caller uses; `None` for HSA and where a function is missing.
    pub(super) fn of(library: Library, caller: usize) -> Option<Self> {
        let names = match library {
            Library::Hip => &HIP,
            Library::CudaRuntime => &CUDA,
            Library::CudaDriver => &CUDA_DRIVER,
            _ => return None,
        };
        let find = |name| link::find(library, name, caller).map(|found| found.function);
        // SAFETY: functions of these names have these signatures (hip_runtime_api.h, cuda_runtime_api.h).
        let mut runtime = unsafe {
            Runtime {
                library,
                caller,
                names,
                choose: find(names.choose)?,
                memory: std::mem::transmute::<*const (), MemGetInfo>(find(names.memory)?),
                malloc: std::mem::transmute::<*const (), Malloc>(find(names.malloc)?),
                free: std::mem::transmute::<*const (), Free>(find(names.free)?),
                version: 0,
            }
        };
        runtime.version = runtime.number(names.runtime_version);
        Some(runtime)
    }

    /// Makes a device the calling thread's. The driver's needs one of the program's contexts: making one of our own would
    /// take memory.
    fn choose(&self, device: u8) -> bool {
        // SAFETY: as in `of`: one of two signatures.
        unsafe {
            match self.library {
                Library::CudaDriver => devices::contexts::context_on(device)
                    .is_some_and(|context| std::mem::transmute::<*const (), SetContext>(self.choose)(context) == 0),
                _ => std::mem::transmute::<*const (), SetDevice>(self.choose)(c_int::from(device)) == 0,
            }
        }
    }

    fn find(&self, name: &CStr) -> Option<*const ()> {
        link::find(self.library, name, self.caller).map(|found| found.function)
    }

    fn number(&self, name: &CStr) -> c_int {
        let mut value = 0;
        if let Some(function) = self.find(name) {
            // SAFETY: as in `of`; points at an int.
            unsafe { std::mem::transmute::<*const (), Version>(function)(&mut value) };
        }
        value
    }

    /// Whether a call on this thread leaves the program's last error alone. CUDA documents it, its driver has none; for HIP it was tried on
    /// 5.2.3 and holds in the sources of 5.x to 7.x. Before 5.0 (versions are major * 10,000,000) nobody has looked.
    pub(super) fn last_error_is_per_thread(&self) -> bool {
        self.library != Library::Hip || self.version >= 50_000_000
    }

    /// What the runtime says of a device.
    pub(super) fn facts(&self, device: u8) -> DeviceFacts {
        let mut readings = Vec::new();
        self.memory(device, &mut readings);
        let total = readings.iter().find(|reading| reading.quantity == Quantity::RuntimeTotal as u16);
        DeviceFacts {
            index: device,
            name: self.name(device),
            runtime: self.names.runtime.into(),
            runtime_version: self.version,
            driver_version: self.number(self.names.driver_version),
            total_bytes: total.map_or(0, |reading| reading.value),
            pci_bus_id: self.pci_bus_id(device),
        }
    }

    /// Where the device is plugged in, empty where the runtime does not tell.
    pub(super) fn pci_bus_id(&self, device: u8) -> String {
        self.text(self.names.pci_bus_id, device)
    }

    fn text(&self, name: &CStr, device: u8) -> String {
        let mut out = [0u8; 256];
        let Some(function) = self.find(name) else { return String::new() };
        // SAFETY: as in `of`; the buffer's length, less the byte that stays zero, is passed along.
        unsafe {
            let function = std::mem::transmute::<*const (), Text>(function);
            function(out.as_mut_ptr().cast(), out.len() as c_int - 1, c_int::from(device));
        }
        terminated(&out)
    }

    /// The device's name: `hipDeviceGetName`, or the first 256 bytes of CUDA's properties, in all versions.
    fn name(&self, device: u8) -> String {
        match self.library {
            Library::Hip => return self.text(c"hipDeviceGetName", device),
            Library::CudaDriver => return self.text(c"cuDeviceGetName", device),
            _ => {}
        }
        let names = [c"cudaGetDeviceProperties_v2", c"cudaGetDeviceProperties"];
        let Some(function) = names.iter().find_map(|name| self.find(name)) else { return String::new() };
        // The structure has about 1 KiB in every version so far.
        let mut out = [0u8; 8192];
        // SAFETY: as in `of`; room for eight times the structure.
        unsafe { std::mem::transmute::<*const (), Properties>(function)(out.as_mut_ptr(), c_int::from(device)) };
        terminated(&out[..256])
    }

    /// Free and total memory of a device that the program uses.
    pub(super) fn memory(&self, device: u8, readings: &mut Vec<Reading>) {
        let (mut free, mut total) = (0usize, 0usize);
        // SAFETY: as in `of`; points at two sizes.
        let read = self.choose(device) && unsafe { (self.memory)(&mut free, &mut total) } == 0;
        if read {
            for (quantity, value) in [(Quantity::RuntimeTotal, total), (Quantity::RuntimeFree, free)] {
                readings.push(Reading { quantity: quantity as u16, device, value: value as u64 });
            }
        }
    }

    /// What HIP itself asks for a device's memory, where the program's blocks were seen to come from there.
    pub(super) fn below(&self, device: u8) -> Option<Below> {
        let pool = devices::places::pool_of(device).filter(|_| self.library == Library::Hip)?;
        let find = |name| link::find(Library::Hsa, name, self.caller).map(|found| found.function);
        // SAFETY: functions of these names have these signatures (hsa_ext_amd.h).
        unsafe {
            Some(Below {
                pool,
                allocate: std::mem::transmute::<*const (), PoolAllocate>(find(c"hsa_amd_memory_pool_allocate")?),
                free: std::mem::transmute::<*const (), Free>(find(c"hsa_amd_memory_pool_free")?),
            })
        }
    }

    /// Whether a block of this size can be had on the device chosen by [`Runtime::memory`]; it is given back at once.
    pub(super) fn can_have(&self, size_bytes: u64) -> bool {
        let mut pointer = 0;
        // SAFETY: as in `of`; what is freed was just allocated.
        unsafe {
            let had = (self.malloc)(&mut pointer, size_bytes as usize) == 0 && pointer != 0;
            if had {
                (self.free)(pointer);
            }
            had
        }
    }
}

/// HSA's pool of a device.
pub(super) struct Below {
    pool: u64,
    allocate: PoolAllocate,
    free: Free,
}

impl Below {
    /// Whether a block of this size can be had; it is given back at once, without waiting for anything.
    pub(super) fn can_have(&self, size_bytes: u64) -> bool {
        let mut pointer = 0;
        // SAFETY: as in `Runtime::below`; what is freed was just allocated.
        unsafe {
            let had = (self.allocate)(self.pool, size_bytes as usize, 0, &mut pointer) == 0 && pointer != 0;
            if had {
                (self.free)(pointer);
            }
            had
        }
    }
}

fn terminated(bytes: &[u8]) -> String {
    let length = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
    String::from_utf8_lossy(&bytes[..length]).into_owned()
}
