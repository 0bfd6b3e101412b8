//! Requests to the kernel's drivers. They have no exported functions of their own: all go through `ioctl`.
//!
//! `hook.rs` has the exported function, which lets everything else through with a jump. A candidate, by letter and number
//! of the request, becomes a [`Plan`] only if its descriptor belongs to one of the drivers ([`nodes`]) and the size in the
//! request covers the fields that are read; where a request has no size (`uvm.rs`), that of the driver's structure is read. Whoever calls may pass anything: a payload is read as memory that may not be
//! there.

mod cache;
mod calls;
mod devices;
mod drm;
mod hook;
mod kfd;
mod nodes;
mod nvidia;
mod origin;
mod payload;
mod uvm;

use std::ffi::CStr;

use gpuoom_trace::record::{Event, Kind, Layer};

use super::Row;
use crate::link::Library;
use crate::record::Described;
use payload::Payload;

pub(crate) use devices::gpus;

/// Names, events and the kind that is most usual, in the order of [`Request`].
const REQUESTS: [(&CStr, Event, Kind); 29] = [
    (c"AMDKFD_IOC_ALLOC_MEMORY_OF_GPU", Event::Alloc, Kind::Device),
    (c"AMDKFD_IOC_FREE_MEMORY_OF_GPU", Event::Free, Kind::Device),
    (c"AMDKFD_IOC_MAP_MEMORY_TO_GPU", Event::Map, Kind::Device),
    (c"AMDKFD_IOC_UNMAP_MEMORY_FROM_GPU", Event::Unmap, Kind::Device),
    (c"AMDKFD_IOC_IMPORT_DMABUF", Event::Import, Kind::Imported),
    (c"AMDKFD_IOC_IPC_IMPORT_HANDLE", Event::Import, Kind::Imported),
    (c"AMDKFD_IOC_SVM", Event::Map, Kind::Managed),
    (c"AMDKFD_IOC_CREATE_QUEUE", Event::Reserve, Kind::Queue),
    (c"AMDKFD_IOC_DESTROY_QUEUE", Event::Free, Kind::Queue),
    (c"AMDKFD_IOC_SET_SCRATCH_BACKING_VA", Event::Reserve, Kind::Scratch),
    (c"AMDKFD_IOC_AVAILABLE_MEMORY", Event::Reading, Kind::None),
    (c"DRM_IOCTL_AMDGPU_GEM_CREATE", Event::Alloc, Kind::Device),
    (c"DRM_IOCTL_AMDGPU_GEM_USERPTR", Event::Pin, Kind::Registered),
    (c"DRM_IOCTL_GEM_CLOSE", Event::Free, Kind::Device),
    (c"DRM_IOCTL_PRIME_FD_TO_HANDLE", Event::Import, Kind::Imported),
    (c"NV_ESC_RM_ALLOC", Event::Alloc, Kind::Device),
    (c"NV_ESC_RM_VID_HEAP_CONTROL", Event::Alloc, Kind::Device),
    (c"NV_ESC_RM_FREE", Event::Free, Kind::Device),
    (c"NV_ESC_RM_DUP_OBJECT", Event::Import, Kind::Imported),
    (c"UVM_CREATE_EXTERNAL_RANGE", Event::Reserve, Kind::Reserved),
    (c"UVM_MAP_DYNAMIC_PARALLELISM_REGION", Event::Reserve, Kind::Reserved),
    (c"UVM_FREE", Event::Free, Kind::Reserved),
    (c"UVM_MAP_EXTERNAL_ALLOCATION", Event::Map, Kind::Device),
    (c"UVM_ALLOC_DEVICE_P2P", Event::Map, Kind::Device),
    (c"UVM_UNMAP_EXTERNAL", Event::Unmap, Kind::Device),
    (c"UVM_ALLOC_SEMAPHORE_POOL", Event::Alloc, Kind::HostPinned),
    (c"UVM_SET_PREFERRED_LOCATION", Event::Map, Kind::Managed),
    (c"UVM_MIGRATE", Event::Map, Kind::Managed),
    (c"UVM_MIGRATE_RANGE_GROUP", Event::Map, Kind::Managed),
];

/// The rows of this table, by their place in [`REQUESTS`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u16)]
enum Request {
    KfdAlloc,
    KfdFree,
    KfdMap,
    KfdUnmap,
    KfdImport,
    KfdIpcImport,
    KfdSvm,
    KfdCreateQueue,
    KfdDestroyQueue,
    KfdScratch,
    KfdAvailable,
    GemCreate,
    GemUserptr,
    GemClose,
    PrimeImport,
    NvAlloc,
    NvHeap,
    NvFree,
    NvDup,
    UvmCreateRange,
    UvmMapParallelism,
    UvmFree,
    UvmMap,
    UvmMapP2p,
    UvmUnmap,
    UvmSemaphores,
    UvmPrefer,
    UvmMigrate,
    UvmMigrateGroup,
}

/// Rows of this table.
pub(super) const COUNT: usize = REQUESTS.len();

/// The table.
pub(super) const ROWS: [Row; COUNT] = {
    let mut rows = [row(REQUESTS[0]); COUNT];
    let mut index = 0;
    while index < COUNT {
        rows[index] = row(REQUESTS[index]);
        index += 1;
    }
    rows
};

const fn row((name, event, _kind): (&'static CStr, Event, Kind)) -> Row {
    Row {
        #[cfg(test)]
        kind: _kind,
        ..Row::without_hook(name, event, Library::Kernel, Layer::Kernel)
    }
}

/// How a request is recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum How {
    /// It takes memory or names something: after the call.
    Takes,
    /// It gives something back: before the call.
    Gives,
    /// It asks how much is there: after the call, and only where a recording is under way.
    Asks,
    /// It is no event; what it says is remembered.
    Tells,
}

/// What a request is about, as its payload says before the call.
#[derive(Clone, Copy, Debug)]
struct Plan {
    request: Request,
    how: How,
    event: Event,
    kind: Kind,
    what: Described,
    /// Completes `what` with what the driver has answered.
    complete: fn(&mut Described, &Payload),
    /// Where the driver puts a status of its own; `None`: it fails with `errno`.
    status_at: Option<usize>,
}

impl Plan {
    /// A request whose payload says everything before the call.
    fn new(request: Request, how: How, kind: Kind, what: Described) -> Plan {
        let event = REQUESTS[request as usize].1;
        Plan { request, how, event, kind, what, complete: |_, _| {}, status_at: None }
    }

    /// Its number among all functions.
    fn api(&self) -> u16 {
        super::KERNEL as u16 + self.request as u16
    }

    /// Whether it is worth a file: what gives back or asks says nothing by itself.
    fn starts_recording(&self) -> bool {
        self.how == How::Takes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_and_requests_are_in_one_order() {
        assert_eq!(REQUESTS[Request::KfdUnmap as usize].0, c"AMDKFD_IOC_UNMAP_MEMORY_FROM_GPU");
        assert_eq!(REQUESTS[Request::KfdDestroyQueue as usize].0, c"AMDKFD_IOC_DESTROY_QUEUE");
        assert_eq!(REQUESTS[Request::GemClose as usize].0, c"DRM_IOCTL_GEM_CLOSE");
        assert_eq!(REQUESTS[Request::NvFree as usize].0, c"NV_ESC_RM_FREE");
        assert_eq!(REQUESTS[Request::NvDup as usize].0, c"NV_ESC_RM_DUP_OBJECT");
        assert_eq!(REQUESTS[Request::UvmMap as usize].0, c"UVM_MAP_EXTERNAL_ALLOCATION");
        assert_eq!(REQUESTS[Request::UvmMigrateGroup as usize].0, c"UVM_MIGRATE_RANGE_GROUP");
        assert_eq!(Request::UvmMigrateGroup as usize + 1, COUNT);
    }
}
