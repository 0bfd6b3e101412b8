//! What the recorder's thread is asked for.

use crate::table::Library;

/// A failed allocation, as the recorder's thread gets it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Failure {
    pub(crate) number: u64,
    pub(crate) library: Library,
    pub(crate) device: u8,
    pub(crate) requested_bytes: u64,
    pub(crate) seq: u64,
    pub(crate) caller: usize,
    /// A layer below the function that was called refused.
    pub(crate) refused_below: bool,
    pub(crate) wants_probe: bool,
}

/// What the recorder's thread is asked for.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Request {
    /// The ring fills up.
    Drain,
    /// The first allocation on a device succeeded.
    DeviceUsed { library: Library, device: u8, caller: usize },
    /// An allocation failed for want of memory.
    Failure(Failure),
    /// The first thread leaves by `pthread_exit`: it may be the last of the program's.
    FirstThreadLeaves,
}
