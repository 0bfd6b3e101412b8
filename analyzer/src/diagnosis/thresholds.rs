//! The numbers by which rules decide. Each says where it comes from; none was measured by us on a card.

/// One mebibyte.
pub const MIB: u64 = 1 << 20;
/// One gibibyte.
pub const GIB: u64 = 1 << 30;

/// The program's own share of the card from which on its memory is the proven reason. (User document 000, relaxed.)
pub const CAPACITY_HIGH: f64 = 0.90;
/// The same for a probable reason.
pub const CAPACITY_MEDIUM: f64 = 0.75;
/// Share of the card that others must hold to be a reason.
pub const OTHERS_SHARE: f64 = 0.10;
/// Difference between the runtime's and sysfs's free memory that deserves a warning. (User document 000.)
pub const GAP_WARNING_BYTES: u64 = 3 * GIB / 2;
/// Difference that is nothing: upstream measured 130 to 280 MiB on a 16 GB card, idle and loaded.
pub const GAP_NOISE_BYTES: u64 = 300 * MIB;
/// Unused share of what PyTorch reserved. (User document 003.)
pub const UNUSED_SHARE: f64 = 0.30;
/// Time in which a release and a second try belong to a failure: PyTorch releases its cache and tries again at once.
pub const RETRY_NS: u64 = 1_000_000_000;
/// Share of a count limit (mappings, descriptors) that counts as reached.
pub const COUNT_SHARE: f64 = 0.95;
/// Live device allocations that may reach the limit of mappings: two mappings each, 65,530 by default.
pub const MANY_ALLOCATIONS: u64 = 28_000;
/// What ROCr rounds blocks of video memory to. (ROCr amd_memory_region.cpp)
pub const ROCR_BLOCK_BYTES: u64 = 2 * MIB;
/// What rounding must waste to be worth a word.
pub const WASTE_SHARE: f64 = 0.10;
/// Measured granularity from which on the 256 MiB model is more than a model.
pub const GRANULARITY_LARGE_BYTES: u64 = 64 * MIB;
/// Memory of an APU's host that must stay free. (User document 002: 4 to 8 GiB.)
pub const HOST_RESERVE_BYTES: u64 = 8 * GIB;

/// Time without an answer from which on a program hangs. (User document 003.)
pub const HANG_NS: u64 = 60_000_000_000;
/// Free memory below which the runtime itself may find none: one block of ROCr's small-block cache and code objects. (Ours.)
pub const ABORT_FREE_BYTES: u64 = 64 * MIB;

/// Share of the RAM from which on a TTM limit was raised: half is what TTM gives by itself. (Catalogue.)
pub const HALF_OF_RAM_SHARE: f64 = 0.6;
/// Share of all memory from which on an APU's carve-out is large. (Catalogue.)
pub const CARVE_OUT_SHARE: f64 = 0.5;
/// GTT up to here is small: 15 to 16 GiB in the reports. (ROCm/TheRock#1054)
pub const SMALL_GTT_BYTES: u64 = 16 * GIB + GIB / 2;
/// Share of the RAM above which GPU memory leaves the host too little. (Catalogue.)
pub const HOST_SHARE: f64 = 0.8;
/// Available RAM below which a host is under pressure. (Catalogue.)
pub const HOST_LEAST_BYTES: u64 = 2 * GIB;
/// Per cent of the time in which all tasks wait for memory (PSI, full) that count as pressure. (Catalogue.)
pub const PRESSURE_PERCENT: f64 = 10.0;
/// Share of a card that is free although only half of it could be used. (Catalogue.)
pub const HALF_FREE_SHARE: f64 = 0.4;

/// Share of the host's memory from which on a process may have been killed for it. (Catalogue.)
pub const HOST_FULL_SHARE: f64 = 0.9;
/// Time before the end of a process in which no GPU call failed. (Catalogue.)
pub const QUIET_NS: u64 = 1_000_000_000;
/// Share of a card below which a failure is strange. (Catalogue.)
pub const LOW_USE_SHARE: f64 = 0.5;

/// Code objects loaded and not unloaded that are many. (Catalogue.)
pub const UNBALANCED_MODULES: u64 = 50;
/// Blocks from here on are buffers of a model and not odds and ends. (Ours.)
pub const BUFFER_BYTES: u64 = MIB;

/// Whether free memory was enough: above the rounding of one call and the page-table reserve.
pub fn is_enough(free_bytes: u64, request_bytes: u64) -> bool {
    free_bytes >= request_bytes.saturating_add(request_bytes / 10).saturating_add(64 * MIB)
}

/// Whether two sizes are the same but for accounting: within 2 % or 64 MiB.
pub fn is_near(left: u64, right: u64) -> bool {
    left.abs_diff(right) <= (left.max(right) / 50).max(64 * MIB)
}

/// A share of a whole; 0 of nothing.
pub fn share(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 / whole as f64 }
}
