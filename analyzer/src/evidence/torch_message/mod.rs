//! PyTorch's out-of-memory messages in a log: every wording that its allocators have had.
//!
//! Sources: THC/THCCachingAllocator.cpp (to 1.0), c10/cuda/CUDACachingAllocator.cpp (since) and
//! c10/cuda/CUDAMallocAsyncAllocator.cpp of PyTorch, and messages that 2.15 printed.

mod find;
mod rules;
mod size;
#[cfg(test)]
mod tests;
mod window;

pub use find::find_all;
pub use rules::{Finding, Judgement, Numbers, exceeds_allowed, judge};
pub use size::Printed;

use serde::Serialize;

/// Which wording a message has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Spelling {
    /// `(GPU 0; ... total capacity; ... already allocated; ... free; ... cached)`
    Cached,
    /// `(GPU 0; ... total capacity; ... already allocated; ... free; ... reserved in total by PyTorch)`
    ReservedInTotal,
    /// `GPU 0 has a total capacty of ...`, with the letter missing.
    TotalCapacty,
    /// `GPU 0 has a total capacity of ... of which ... is free.`
    TotalCapacity,
    /// `Allocation on device 0 would exceed allowed memory. (out of memory)`: the backend `cudaMallocAsync`.
    MallocAsync,
    /// `Tried to allocate more than 1EB memory.`
    MoreThanAnExabyte,
    /// `Allocation was preemptively rejected because it would exceed per_process_memory_fraction limit.`
    Preempted,
    /// Cut off before the numbers that would tell.
    Cut,
    /// The runtime's error code with no numbers: `CUDA error: out of memory`, `cuda runtime error (2) : out of memory`.
    RuntimeError,
}

impl Spelling {
    /// Versions of PyTorch that write like this; none where it says nothing.
    pub fn versions(self) -> Option<&'static str> {
        match self {
            Spelling::Cached => Some("1.3 or older"),
            Spelling::ReservedInTotal => Some("1.4 to 2.0"),
            Spelling::TotalCapacty => Some("2.1"),
            Spelling::TotalCapacity => Some("2.2 or newer"),
            _ => None,
        }
    }
}

/// Whose memory ran out, as the message names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Backend {
    /// `CUDA out of memory`
    Cuda,
    /// `HIP out of memory`
    Hip,
}

/// Memory of a process that the message names. Only NVIDIA's driver is asked for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct ProcessUse {
    /// Process id, in the name space of whoever asked.
    pub pid: u64,
    /// What it holds.
    pub in_use: Printed,
}

/// One message. A field that the message does not have is none.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct TorchMessage {
    /// Where it begins in the log.
    pub offset_bytes: u64,
    /// Line, from 1.
    pub line: u64,
    /// Its wording.
    pub spelling: Spelling,
    /// CUDA or HIP; none where the wording does not say.
    pub backend: Option<Backend>,
    /// The exception that carried it: `torch.OutOfMemoryError`, `torch.cuda.OutOfMemoryError`, `RuntimeError`.
    pub exception: Option<&'static str>,
    /// Device number.
    pub device: Option<u32>,
    /// The request.
    pub tried: Option<Printed>,
    /// What the device has.
    pub total: Option<Printed>,
    /// What the runtime called free.
    pub free: Option<Printed>,
    /// What tensors hold, private pools included.
    pub allocated: Option<Printed>,
    /// What the caching allocator holds and no tensor uses, in wordings that say so.
    pub unallocated: Option<Printed>,
    /// All that the caching allocator holds, in wordings that say so.
    pub reserved: Option<Printed>,
    /// What private pools hold (CUDA graphs).
    pub private_pools: Option<Printed>,
    /// The limit that a memory fraction sets.
    pub allowed: Option<Printed>,
    /// What this process holds, the runtime's own memory included.
    pub this_process: Option<Printed>,
    /// What other processes hold.
    pub other_processes: Vec<ProcessUse>,
    /// The variable for the allocator's options that it advises to set.
    pub advised_variable: Option<&'static str>,
    /// The option that it advises.
    pub advised_option: Option<&'static str>,
}

impl TorchMessage {
    /// What the caching allocator holds and no tensor uses: printed, or what is left of all that it holds.
    pub fn unallocated(&self) -> Option<Printed> {
        self.unallocated.or_else(|| Some(self.reserved?.minus(self.allocated?)))
    }

    /// Whether two texts have the same message, wherever they stand.
    pub fn says_the_same(&self, other: &TorchMessage) -> bool {
        let numbers = |message: &TorchMessage| {
            let TorchMessage { device, tried, total, free, allocated, unallocated, reserved, allowed, .. } =
                message.clone();
            (device, [tried, total, free, allocated, unallocated, reserved, allowed])
        };
        numbers(self) == numbers(other)
    }

    /// Whether it has a number at all.
    pub fn has_numbers(&self) -> bool {
        let fields = [self.tried, self.total, self.free, self.allocated, self.unallocated, self.reserved, self.allowed];
        fields.iter().any(Option::is_some)
    }
}
