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
/// The same as a share of the card: what a reading may be off on a large one. (Catalogue.)
pub const GAP_NOISE_SHARE: f64 = 0.02;
/// Difference from which on a warning is due even where it explains no failure. (User document 000.)
pub const GAP_NOTABLE_BYTES: u64 = GIB / 2;
/// Difference below which nobody asks why two tools disagree: the accounting of one call. (Ours.)
pub const GAP_UNSEEN_BYTES: u64 = 64 * MIB;
/// Share of a difference that a reason must account for. (Catalogue.)
pub const EXPLAINED_SHARE: f64 = 0.8;
/// Memory without an owner, before the program began, that is worth a word. (Catalogue.)
pub const UNOWNED_BYTES: u64 = GIB / 2;
/// Memory of the runtime and of libraries that is worth a word, and the same as a share of the card. (Catalogue.)
pub const HIDDEN_BYTES: u64 = GIB / 2;
/// See [`HIDDEN_BYTES`].
pub const HIDDEN_SHARE: f64 = 0.03;
/// What the processor may miss of a card's memory without a limit on its window. (Catalogue.)
pub const VISIBLE_SLACK_BYTES: u64 = 64 * MIB;
/// Share of the board from which on a device is no slice of it, but for what firmware keeps. (Ours.)
pub const SLICE_SHARE: f64 = 0.75;
/// Share of the card that one burst must take to be a framework's own pool, and the time of a burst. (Catalogue; ours.)
pub const BURST_SHARE: f64 = 0.6;
/// See [`BURST_SHARE`].
pub const BURST_NS: u64 = 1_000_000_000;
/// Smallest request that a buffer of attention scores is looked for in. (Catalogue.)
pub const ATTENTION_LEAST_BYTES: u64 = GIB;
/// Weights, gradients and Adam's state for each parameter. (User document 004; Hugging Face, model memory anatomy.)
pub const STATE_BYTES_PER_PARAMETER: u64 = 18;
/// Share of the card that such a state may take. (Catalogue.)
pub const STATE_SHARE: f64 = 0.95;
/// Share of the card from which on the difference of peak and floor is the larger part. (Catalogue.)
pub const ACTIVATION_SHARE: f64 = 0.5;
/// Swings of memory from here on are cycles. (Ours: what is called a large free in shapes.)
pub const LARGE_CYCLE_BYTES: u64 = 64 * MIB;
/// Cycles that make many, and how much more than its result a cycle of temporaries holds. (Catalogue.)
pub const MANY_CYCLES: u64 = 10;
/// See [`MANY_CYCLES`].
pub const TEMPORARY_FACTOR: u64 = 3;
/// Differences up to here are constant sizes. (Catalogue.)
pub const VARIATION: f64 = 0.05;
/// Unused share of what PyTorch reserved below which fragmentation is no reason. (Catalogue.)
pub const FEW_UNUSED_SHARE: f64 = 0.1;
/// Distinct sizes of segments, holding 80 % of the bytes, that make a fragmented cache. (Catalogue.)
pub const MANY_SIZES: u64 = 8;
/// Share of an address limit that counts as reached. (Catalogue.)
pub const ADDRESS_SHARE: f64 = 0.9;
/// Open descriptors that most systems allow a process.
pub const USUAL_DESCRIPTORS: u64 = 1024;
/// Share of a request that must be gone after its failure. (ROCm/rocm-systems#11642)
pub const FAILURE_LEAK_SHARE: f64 = 0.5;
/// Age of a reading that can still be set beside a failure. (Ours.)
pub const POOL_LEAK_NS: u64 = 1_000_000_000;
/// Share of released memory that comes back at most where a release has no effect. (Catalogue.)
pub const STUCK_SHARE: f64 = 0.2;
/// Share of the card that handles of virtual memory hold where nothing bounds them. (pytorch/pytorch#193400)
pub const HANDLES_SHARE: f64 = 0.9;
/// Unused share of what PyTorch reserved. (User document 003.)
pub const UNUSED_SHARE: f64 = 0.30;
/// What stays on a card after each of several runs. (rocm-systems#8263, llama.cpp#24330; catalogue)
pub const STRANDED_PER_RUN_BYTES: u64 = 100 * MIB;
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

/// Share of freed exports by which free memory must rise if they are not pinned. (Catalogue.)
pub const EXPORT_RISE_SHARE: f64 = 0.8;

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
