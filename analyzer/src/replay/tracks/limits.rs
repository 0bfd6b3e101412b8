//! The numbers that decide while a trace is replayed.

use gpuoom_trace::outcome;

use super::around::PENDING_NS;
use super::{reads, retries};

/// A free of more than this is a large one, in bytes, unless set.
pub const LARGE_FREE_BYTES: u64 = 64 << 20;

/// The numbers that decide while a trace is replayed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Limits {
    /// How long after a failure frees and another try belong to it, in nanoseconds.
    pub retry_ns: u64,
    /// How far back frees by stream-ordered calls may still be pending, in nanoseconds.
    pub pending_ns: u64,
    /// A free of more than this is a large one, in bytes.
    pub large_free_bytes: u64,
    /// Memory from elsewhere counts as a fall-back from this share on: one part in so many of what was asked for.
    pub fall_back_part: u64,
    /// Physical or exported memory that must be given back between two readings to be listed, in bytes.
    pub much_released_bytes: u64,
    /// By how many bytes a request that is tried again may differ.
    pub same_request_bytes: u64,
    /// By which share of the larger one it may differ.
    pub same_request_share: f64,
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            retry_ns: retries::WITHIN_NS,
            pending_ns: PENDING_NS,
            large_free_bytes: LARGE_FREE_BYTES,
            fall_back_part: outcome::Limits::DEFAULT.least_part,
            much_released_bytes: reads::MUCH_RELEASED_BYTES,
            same_request_bytes: retries::SAME_REQUEST_BYTES,
            same_request_share: retries::SAME_REQUEST_SHARE,
        }
    }
}

impl Limits {
    /// The numbers by which a later request belongs to a failure.
    pub fn outcomes(&self) -> outcome::Limits {
        outcome::Limits { soon_ns: self.retry_ns, least_part: self.fall_back_part }
    }
}
