//! Requests to the kernel's drivers. They have no exported functions of their own: all go through `ioctl`.

use std::ffi::CStr;

use gpuoom_trace::meaning::{Codes, Family, Meaning};
use gpuoom_trace::record::{Event, Kind, Layer};

use super::{Library, Row};

/// Whose status and numbers the requests of each driver have.
const KFD: Meaning = Meaning::new(Codes::Errno, Family::Kfd);
const DRM: Meaning = Meaning::new(Codes::Errno, Family::Drm);
const NVIDIA: Meaning = Meaning::new(Codes::NvStatus, Family::Nvidia);
const UVM: Meaning = Meaning::new(Codes::NvStatus, Family::Uvm);

/// Names, events and the kind that is most usual, in the order of [`Request`].
const REQUESTS: [(&CStr, Event, Kind, Meaning); 29] = [
    (c"AMDKFD_IOC_ALLOC_MEMORY_OF_GPU", Event::Alloc, Kind::Device, KFD),
    (c"AMDKFD_IOC_FREE_MEMORY_OF_GPU", Event::Free, Kind::Device, KFD),
    (c"AMDKFD_IOC_MAP_MEMORY_TO_GPU", Event::Map, Kind::Device, KFD),
    (c"AMDKFD_IOC_UNMAP_MEMORY_FROM_GPU", Event::Unmap, Kind::Device, KFD),
    (c"AMDKFD_IOC_IMPORT_DMABUF", Event::Import, Kind::Imported, KFD),
    (c"AMDKFD_IOC_IPC_IMPORT_HANDLE", Event::Import, Kind::Imported, KFD),
    (c"AMDKFD_IOC_SVM", Event::Map, Kind::Managed, KFD),
    (c"AMDKFD_IOC_CREATE_QUEUE", Event::Reserve, Kind::Queue, KFD),
    (c"AMDKFD_IOC_DESTROY_QUEUE", Event::Free, Kind::Queue, KFD),
    (c"AMDKFD_IOC_SET_SCRATCH_BACKING_VA", Event::Reserve, Kind::Scratch, KFD),
    (c"AMDKFD_IOC_AVAILABLE_MEMORY", Event::Reading, Kind::None, KFD),
    (c"DRM_IOCTL_AMDGPU_GEM_CREATE", Event::Alloc, Kind::Device, DRM),
    (c"DRM_IOCTL_AMDGPU_GEM_USERPTR", Event::Pin, Kind::Registered, DRM),
    (c"DRM_IOCTL_GEM_CLOSE", Event::Free, Kind::Device, DRM),
    (c"DRM_IOCTL_PRIME_FD_TO_HANDLE", Event::Import, Kind::Imported, DRM),
    (c"NV_ESC_RM_ALLOC", Event::Alloc, Kind::Device, NVIDIA),
    (c"NV_ESC_RM_VID_HEAP_CONTROL", Event::Alloc, Kind::Device, NVIDIA),
    (c"NV_ESC_RM_FREE", Event::Free, Kind::Device, NVIDIA),
    (c"NV_ESC_RM_DUP_OBJECT", Event::Import, Kind::Imported, NVIDIA),
    (c"UVM_CREATE_EXTERNAL_RANGE", Event::Reserve, Kind::Reserved, UVM),
    (c"UVM_MAP_DYNAMIC_PARALLELISM_REGION", Event::Reserve, Kind::Reserved, UVM),
    (c"UVM_FREE", Event::Free, Kind::Reserved, UVM),
    (c"UVM_MAP_EXTERNAL_ALLOCATION", Event::Map, Kind::Device, UVM),
    (c"UVM_ALLOC_DEVICE_P2P", Event::Map, Kind::Device, UVM),
    (c"UVM_UNMAP_EXTERNAL", Event::Unmap, Kind::Device, UVM),
    (c"UVM_ALLOC_SEMAPHORE_POOL", Event::Alloc, Kind::HostPinned, UVM),
    (c"UVM_SET_PREFERRED_LOCATION", Event::Map, Kind::Managed, UVM),
    (c"UVM_MIGRATE", Event::Map, Kind::Managed, UVM),
    (c"UVM_MIGRATE_RANGE_GROUP", Event::Map, Kind::Managed, UVM),
];

/// The rows of this table, by their place in [`REQUESTS`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u16)]
pub(crate) enum Request {
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

const fn row((name, event, kind, meaning): (&'static CStr, Event, Kind, Meaning)) -> Row {
    Row { library: Library::Kernel, layer: Layer::Kernel, event, kind, meaning, ..Row::named(name) }
}

impl Request {
    /// Its number among all functions.
    pub(crate) fn api(self) -> u16 {
        super::KERNEL as u16 + self as u16
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
