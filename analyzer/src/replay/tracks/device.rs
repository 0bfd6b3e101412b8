//! What is followed of one device.

use super::between::Done;
use super::reads::Reads;
use super::series::Series;

/// Stream-ordered memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PoolTrack {
    /// Bytes that were given.
    pub given_bytes: u64,
    /// Bytes that were given back.
    pub returned_bytes: u64,
    /// Calls that gave.
    pub given: u64,
    /// Calls that gave back.
    pub returned: u64,
    /// The largest request that was granted, in bytes.
    pub largest_bytes: u64,
    /// Most bytes that were in use at once.
    pub peak_bytes: u64,
}

/// One device, or the host.
#[derive(Clone, Debug, Default)]
pub struct DeviceTrack {
    /// Bytes of the program's blocks over time.
    pub live: Series,
    /// Stream-ordered memory.
    pub pool: PoolTrack,
    /// Ticks of the first large free ([`super::Limits::large_free_bytes`]).
    pub first_large_free_at: Option<u64>,
    /// What was read of it.
    pub reads: Reads,
    /// Physical memory (VMM) that was created, in bytes.
    pub vmm_created_bytes: u64,
    /// What was done on it so far.
    pub done: Done,
}
