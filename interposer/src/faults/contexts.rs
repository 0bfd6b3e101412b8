//! What a call that ends a context or a device takes off the virtual card.
//!
//! As a real card has it: with a CUDA context goes what was allocated in it, but for pools and physical memory, which belong to
//! none (NVIDIA CUDA driver API, `cuCtxDestroy`; CUDA runtime API, `cudaDeviceReset`). HIP's `hipDeviceReset` takes all of the
//! device; its `hipDevicePrimaryCtxReset` does nothing (ROCm/clr `hip_context.cpp`).

use std::ffi::{c_int, c_uint};
use std::sync::atomic::{AtomicU64, Ordering};

use gpuoom_trace::meaning::Ends;

use crate::base::{guard, thread};
use crate::call::Described;
use crate::devices;
use crate::link;
use crate::table::Library;

/// The primary context of each device, 0 where none was seen.
static PRIMARY: [AtomicU64; 256] = [const { AtomicU64::new(0) }; 256];

/// What ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    /// Nothing that holds memory.
    Nothing,
    /// All of a device.
    Device(u8),
    /// A context.
    Context { context: u64 },
    /// One reference to the primary context: it ends if that was the last one.
    Reference { device: u8, context: u64 },
    /// The primary context, with memory of the device whose context nobody saw.
    Primary { device: u8, context: u64 },
}

/// The primary context of a device was asked for, by the program or by its runtime.
pub(super) fn retained(device: u8, context: u64) {
    // Relaxed: a handle that never changes while the process lives.
    PRIMARY[usize::from(device)].store(context, Ordering::Relaxed);
}

/// What a call is about to end. Which context is current is known before the call only.
pub(super) fn end_of(ends: Ends, what: &Described, thread_device: u8) -> End {
    let device = what.device.unwrap_or(thread_device);
    let context = PRIMARY[usize::from(device)].load(Ordering::Relaxed);
    match ends {
        Ends::Nothing => End::Nothing,
        Ends::HipDevice => End::Device(device),
        Ends::Context => End::Context { context: what.address },
        Ends::Reference => End::Reference { device, context },
        Ends::Primary => End::Primary { device, context },
        Ends::CudaDevice => match devices::contexts::current_context() {
            // With another context current, the runtime forgets only what it knows of that one.
            current if current != 0 && context != 0 && current != context => End::Nothing,
            _ => End::Primary { device, context },
        },
    }
}

type GetState = unsafe extern "C" fn(c_int, *mut c_uint, *mut c_int) -> c_int;

/// Whether the primary context of a device still lives: the driver is asked, because the runtime may hold references that
/// nobody saw. Where it can't be asked, memory stays.
pub(super) fn is_alive(device: u8) -> bool {
    guard::cold(true, || {
        let caller = thread::current().caller.get();
        let name = c"cuDevicePrimaryCtxGetState";
        let found = guard::without_signals(|| link::find(Library::CudaDriver, name, caller));
        let Some(found) = found else { return true };
        let (mut flags, mut active) = (0, 1);
        // SAFETY: a function of this name has this signature (cuda.h); it looks up and changes nothing, and the driver has no
        // last error.
        let status = unsafe {
            std::mem::transmute::<*const (), GetState>(found.function)(
                c_int::from(device),
                &raw mut flags,
                &raw mut active,
            )
        };
        status != 0 || active != 0
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table;

    #[test]
    fn each_call_ends_what_its_vendor_says() {
        retained(3, 0x77);
        let end = |name| {
            let ends = table::number_of(name).map(|row| table::row(row).meaning.ends).unwrap();
            end_of(ends, &Described { device: Some(3), ..Described::new(0x99, 0) }, 0)
        };
        assert_eq!(end("hipDeviceReset"), End::Device(3));
        assert_eq!(end("hipDevicePrimaryCtxReset"), End::Nothing);
        assert_eq!(end("cuCtxDestroy_v2"), End::Context { context: 0x99 });
        assert_eq!(end("cuDevicePrimaryCtxRelease_v2"), End::Reference { device: 3, context: 0x77 });
        assert_eq!(end("cuDevicePrimaryCtxReset"), End::Primary { device: 3, context: 0x77 });
        assert_eq!(end("cudaDeviceReset"), End::Primary { device: 3, context: 0x77 });
        assert_eq!(end("hsa_shut_down"), End::Nothing);
    }
}
