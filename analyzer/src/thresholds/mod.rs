//! The numbers by which rules decide: data, each with its unit, its origin and the diagnoses that use it. All are options
//! (`report --threshold NAME=VALUE`); none was measured by us on a card.

mod setting;

pub use setting::{Change, Threshold, Unit, WrongThreshold, all, named, used_by};

use setting::Given;

use gpuoom_trace::outcome;
use serde::Serialize;

use crate::machine::uma::HostKeeps;
use crate::passes::trend;
use crate::replay::Options;
use crate::replay::tracks::around::PENDING_NS;
use crate::replay::tracks::reads::MUCH_RELEASED_BYTES;
use crate::replay::tracks::retries::{SAME_REQUEST_BYTES, SAME_REQUEST_SHARE, WITHIN_NS};
use crate::replay::tracks::{LARGE_FREE_BYTES, Limits};
use crate::words::percent;

/// One mebibyte.
pub const MIB: u64 = 1 << 20;
/// One gibibyte.
pub const GIB: u64 = 1 << 30;

/// What uses a threshold beside the diagnoses.
const COVERAGE: &str = "the line `Coverage:`";
const JOBS: &str = "a job of several traces";

/// Declares the values, their defaults, and the table that options, `explain` and the report are made of.
macro_rules! thresholds {
    ($(#[doc = $meaning:literal] $field:ident: $type:ty = $default:expr, $unit:ident, $origin:literal, $used_by:expr;)*) => {
        /// What rules compare with. The value that a rule gets is the default or what the user set.
        #[derive(Clone, Copy, Debug, PartialEq, Serialize)]
        pub struct Thresholds {
            $(#[doc = $meaning] pub $field: $type,)*
            /// Which of them the user set.
            #[serde(skip)]
            given: Given,
        }

        impl Default for Thresholds {
            fn default() -> Self {
                Thresholds { $($field: $default,)* given: Given::default() }
            }
        }

        const TABLE: &[Threshold] = &[$(Threshold {
            field: stringify!($field),
            unit: Unit::$unit,
            meaning: $meaning,
            origin: $origin,
            used_by: &$used_by,
            get: |thresholds| thresholds.$field as f64,
            set: |thresholds, value| thresholds.$field = value as $type,
        },)*];
    };
}

thresholds! {
    /// The program's own share of the card from which on its memory is the proven reason.
    capacity_high_share: f64 = 0.90, Share, "ours", ["true-capacity"];
    /// The program's own share of the card from which on its memory is a probable reason.
    capacity_medium_share: f64 = 0.75, Share, "ours", ["true-capacity", "other-process-on-gpu"];
    /// What must be free beyond a request to be enough, as a share of the request.
    free_margin_share: f64 = 0.10, Share, "catalogue: above the rounding of one call", ["phantom-free", "true-capacity", "process-fraction-cap", "other-process-on-gpu", "vmm-fd-exhaustion", "mallocasync-oom", "library-alloc-failed", "oom-model-load", "kv-cache-prealloc", "reading-mismatch-benign"];
    /// What must be free beyond a request and its share to be enough.
    free_margin_bytes: u64 = 64 * MIB, Bytes, "catalogue: the reserve for page tables", ["phantom-free", "single-alloc-cap", "true-capacity", "process-fraction-cap", "other-process-on-gpu", "vmm-fd-exhaustion", "mallocasync-oom", "library-alloc-failed", "oom-model-load", "kv-cache-prealloc", "reading-mismatch-benign"];
    /// Share by which two sizes that are the same may differ.
    near_share: f64 = 0.02, Share, "catalogue", ["request-exceeds-device", "uma-ttm-limit", "uma-param-mismatch", "uma-carveout-only", "uma-large-carveout-starves-gtt", "uma-runtime-clamp", "vram-half-cap", "suspect-hardware"];
    /// Bytes by which two sizes that are the same may differ at least.
    near_bytes: u64 = 64 * MIB, Bytes, "catalogue", ["request-exceeds-device", "uma-ttm-limit", "uma-param-mismatch", "uma-carveout-only", "uma-large-carveout-starves-gtt", "uma-runtime-clamp", "vram-half-cap", "suspect-hardware"];
    /// Share of the card that others must hold to be a reason.
    others_share: f64 = 0.10, Share, "catalogue", ["true-capacity", "other-process-on-gpu", "zombie-vram", "oom-model-load", "live-leak", "legacy-pool-growth", "kv-cache-prealloc", "oom-first-forward", "oom-first-backward", "oom-optimizer-step", "oom-longest-batch", "oom-eval-accumulation", "oom-eval-batch", "fsdp-gather-spike", "kv-cache-incremental"];
    /// Difference between the runtime's and sysfs's free memory that deserves a strong warning.
    gap_warning_bytes: u64 = 3 * GIB / 2, Bytes, "ours: five times the noise", ["free-overreported-graphics", "sysfs-free-overreported"];
    /// Difference between two readings that is nothing.
    gap_noise_bytes: u64 = 300 * MIB, Bytes, "upstream measured 130 to 280 MiB on a 16 GB card, idle and loaded", ["free-overreported-graphics", "sysfs-free-overreported", "reading-mismatch-benign", "sdma-sensitive", "caching-fragmentation", "graph-private-pool"];
    /// The same as a share of the card: what a reading may be off on a large one.
    gap_noise_share: f64 = 0.02, Share, "catalogue", ["free-overreported-graphics"];
    /// Difference from which on a warning is due even where it explains no failure.
    gap_notable_bytes: u64 = GIB / 2, Bytes, "ours: above the noise", ["free-overreported-graphics"];
    /// Difference below which nobody asks why two tools disagree.
    gap_unseen_bytes: u64 = 64 * MIB, Bytes, "ours", ["reading-mismatch-benign"];
    /// Share of a difference that a reason must account for.
    explained_share: f64 = 0.8, Share, "catalogue", ["free-overreported-graphics", "sysfs-free-overreported", "hidden-runtime-memory", "reading-mismatch-benign", "granularity-waste", "mixed-size-padding"];
    /// Memory without an owner, before the program began, that is worth a word.
    unowned_bytes: u64 = GIB / 2, Bytes, "catalogue", ["zombie-vram"];
    /// Memory of the runtime and of libraries that is worth a word.
    hidden_bytes: u64 = GIB / 2, Bytes, "catalogue", ["hidden-runtime-memory", "true-capacity", "process-fraction-cap", "late-surfacing-oom", COVERAGE];
    /// The same as a share of the card.
    hidden_share: f64 = 0.03, Share, "catalogue", ["hidden-runtime-memory", "true-capacity", "process-fraction-cap"];
    /// What the processor may miss of a card's memory without a limit on its window.
    visible_slack_bytes: u64 = 64 * MIB, Bytes, "catalogue", ["bar-visible-limit"];
    /// Share of the board from which on a device is no slice of it.
    slice_share: f64 = 0.75, Share, "ours", ["partition-slice"];
    /// Share of the card that one burst must take to be a framework's own pool.
    burst_share: f64 = 0.6, Share, "catalogue", ["preallocation-by-framework"];
    /// Time of such a burst.
    burst_ns: u64 = 1_000_000_000, Time, "ours", ["preallocation-by-framework"];
    /// Smallest request that a buffer of attention scores is looked for in.
    attention_least_bytes: u64 = GIB, Bytes, "catalogue", ["attention-quadratic"];
    /// Bytes of weights, gradients and Adam's state for each parameter.
    state_per_parameter: u64 = 18, Count, "Hugging Face, model memory anatomy", ["training-state-exceeds-card"];
    /// Exponent of growth, with the sequence length or the batch, up to which it is linear.
    linear_exponent: f64 = 1.3, Number, "catalogue", ["attention-quadratic", "fixed-vs-activation"];
    /// Least exponent of growth with the sequence length that is a square.
    square_exponent_least: f64 = 1.7, Number, "catalogue", ["attention-quadratic"];
    /// Greatest exponent of growth with the sequence length that is a square.
    square_exponent_most: f64 = 2.3, Number, "catalogue", ["attention-quadratic"];
    /// Share of the card that such a state may take.
    state_share: f64 = 0.95, Share, "catalogue", ["training-state-exceeds-card"];
    /// Share of the card from which on the difference of peak and floor is the larger part.
    activation_share: f64 = 0.5, Share, "catalogue", ["fixed-vs-activation"];
    /// Swings of memory from here on are cycles.
    large_cycle_bytes: u64 = 64 * MIB, Bytes, "ours: what is called a large free in shapes", ["fixed-vs-activation", "repeated-large-temporaries"];
    /// Cycles that make many.
    many_cycles: u64 = 10, Count, "catalogue", ["repeated-large-temporaries"];
    /// How many times its result a cycle of temporaries holds.
    temporary_factor: u64 = 3, Count, "catalogue", ["repeated-large-temporaries"];
    /// Share of the cycles that must be of temporaries.
    temporary_share: f64 = 0.9, Share, "ours", ["repeated-large-temporaries"];
    /// How many times larger or smaller a request of the same family may be.
    family_factor: u64 = 2, Count, "ours", ["repeated-large-temporaries"];
    /// Share of what was taken since the last cycle that must be in blocks of the cycles' sizes.
    under_way_share: f64 = 0.5, Share, "ours", ["repeated-large-temporaries"];
    /// Least exponent of growth with the batch that is a growth with it.
    batch_exponent_least: f64 = 0.7, Number, "ours: as far below 1 as the greatest is above", ["fixed-vs-activation"];
    /// Differences up to here are constant sizes.
    variation_share: f64 = 0.05, Share, "catalogue", ["fixed-vs-activation", "repeated-large-temporaries"];
    /// Unused share of what PyTorch reserved from which on it is fragmented.
    unused_share: f64 = 0.30, Share, "ours", ["caching-fragmentation"];
    /// Unused share of what PyTorch reserved below which fragmentation is no reason.
    few_unused_share: f64 = 0.1, Share, "catalogue", ["caching-fragmentation", "cache-greed", "true-capacity", "oom-model-load", "oom-first-forward", "oom-first-backward", "oom-optimizer-step"];
    /// Distinct sizes of segments, holding 80 % of the bytes, that make a fragmented cache.
    many_sizes: u64 = 8, Count, "catalogue", ["caching-fragmentation"];
    /// Share of an address limit that counts as reached.
    address_share: f64 = 0.9, Share, "catalogue", ["gpu-va-limit"];
    /// Largest request that a lack of mappings fails in the way that the rule knows.
    small_request_bytes: u64 = 64 * MIB, Bytes, "catalogue", ["map-count-exhaustion"];
    /// How many times a small request must be free.
    room_factor: u64 = 10, Count, "catalogue", ["map-count-exhaustion"];
    /// Share by which live handles may differ from the usual limit of descriptors.
    usual_descriptors_share: f64 = 0.05, Share, "catalogue", ["vmm-fd-exhaustion"];
    /// Share of the open descriptors that live handles must account for.
    handles_of_open_share: f64 = 0.5, Share, "ours", ["vmm-fd-exhaustion", "map-count-exhaustion"];
    /// How many times as much as any step before a step must take to be a reason of its own.
    unusual_step_factor: f64 = 2.0, Number, "ours", ["live-leak"];
    /// Open descriptors that most systems allow a process.
    usual_descriptors: u64 = 1024, Count, "the limit of most systems", ["vmm-fd-exhaustion"];
    /// Share of a request that must be gone after its failure.
    failure_leak_share: f64 = 0.5, Share, "ROCm/rocm-systems#11642", ["pool-failure-leak"];
    /// Age of a reading that can still be set beside a failure.
    pool_leak_ns: u64 = 1_000_000_000, Time, "ours", ["pool-failure-leak"];
    /// Share of released memory that comes back at most where a release has no effect.
    stuck_share: f64 = 0.2, Share, "catalogue", ["vmm-release-ineffective"];
    /// Time in which nothing else may be recorded after a mapping that never returned.
    mapping_quiet_ns: u64 = 1_000_000_000, Time, "ours", ["expandable-hazard"];
    /// Share of what handles of virtual memory hold that tensors have at most where they are not the reason.
    few_tensors_share: f64 = 0.5, Share, "ours: the catalogue says far below", ["expandable-with-max-split"];
    /// Share of the card that handles of virtual memory hold where nothing bounds them.
    handles_share: f64 = 0.9, Share, "pytorch/pytorch#193400", ["expandable-with-max-split"];
    /// What stays on a card after each of several runs.
    stranded_per_run_bytes: u64 = 100 * MIB, Bytes, "rocm-systems#8263, llama.cpp#24330; catalogue", ["driver-stranded-vram"];
    /// Runs of one card, one after the other, that show a floor which rises.
    runs_of_a_card: u64 = 3, Count, "catalogue", ["driver-stranded-vram"];
    /// Runs on each side of a comparison.
    runs_on_each_side: u64 = 2, Count, "catalogue", ["sdma-sensitive"];
    /// Time after a failure in which frees, another try or a smaller request belong to it.
    retry_ns: u64 = WITHIN_NS, Time, "PyTorch releases its cache and tries again at once", ["dropped-oom-return", "cache-greed", "caching-fragmentation", "true-capacity", "async-free-pending"];
    /// Share of a refused request that memory from elsewhere must reach to have taken its place.
    fall_back_share: f64 = 1.0 / outcome::Limits::DEFAULT.least_part as f64, Share, "ours: a program that falls back asks for a half or a quarter; a buffer for something else is a trifle beside it", ["dropped-oom-return"];
    /// Time before a failure in which stream-ordered frees may still be pending.
    pending_ns: u64 = PENDING_NS, Time, "catalogue", ["async-free-pending"];
    /// Time after a failing call in which PyTorch's allocator notes its error.
    noted_ns: u64 = 2_000_000_000, Time, "ours: it releases its cache and tries again in between", ["caching-fragmentation", "graph-private-pool", "attention-quadratic"];
    /// Time by which the clocks of a trace and of PyTorch's snapshot may differ.
    clocks_differ_ns: u64 = 200_000_000, Time, "ours", ["caching-fragmentation", "graph-private-pool", "attention-quadratic"];
    /// Share by which a snapshot's segments may differ from what the trace had at a failure to be of about that moment.
    same_moment_share: f64 = 0.05, Share, "ours", ["caching-fragmentation", "graph-private-pool", "reading-mismatch-benign"];
    /// Share of a limit (mappings, descriptors, a group's memory, GTT) that counts as reached.
    count_share: f64 = 0.95, Share, "kernel limits; ROCm 7.14 reports", ["map-count-exhaustion", "vmm-fd-exhaustion", "cgroup-memory-limit", "gtt-exhaustion"];
    /// Live device allocations that may reach the limit of mappings.
    many_allocations: u64 = 28_000, Count, "two mappings each, 65,530 by default", ["map-count-exhaustion"];
    /// What ROCr rounds blocks of video memory to.
    rocr_block_bytes: u64 = 2 * MIB, Bytes, "ROCr amd_memory_region.cpp; CUDA maps as much", ["sysfs-free-overreported", "hidden-runtime-memory", "live-leak"];
    /// What rounding must waste to be worth a word.
    waste_share: f64 = 0.10, Share, "catalogue", ["granularity-waste", "mixed-size-padding"];
    /// Share by which sizes of one family of blocks may differ.
    family_share: f64 = 0.25, Share, "ours: quantised tensors of one kind have a few sizes close to each other", ["mixed-size-padding"];
    /// What the model of the card rounds each block to, where this is set; else what the recorder was told.
    model_granule_bytes: u64 = 256 * MIB, Bytes, "a model, and not measured", ["granularity-waste", "mixed-size-padding"];
    /// Granularity of the addresses from which on the 256 MiB model is more than a model.
    granularity_large_bytes: u64 = 64 * MIB, Bytes, "catalogue", ["granularity-waste", "mixed-size-padding"];
    /// Time without an answer from which on a program hangs.
    hang_ns: u64 = 60_000_000_000, Time, "catalogue", ["hang-not-oom", "expandable-hazard", "repeated-large-temporaries"];
    /// Free memory below which the runtime itself may find none.
    abort_free_bytes: u64 = 64 * MIB, Bytes, "ours: one block of ROCr's small-block cache and code objects", ["runtime-internal-abort"];
    /// Share of the RAM from which on a TTM limit was raised.
    half_of_ram_share: f64 = 0.6, Share, "catalogue: half is what TTM gives by itself", ["uma-ttm-limit"];
    /// Share of all memory from which on an APU's carve-out is large.
    carve_out_share: f64 = 0.5, Share, "catalogue", ["uma-large-carveout-starves-gtt"];
    /// GTT as a share of the carve-out from which on it is not starved.
    starved_gtt_share: f64 = 0.5, Share, "ours: the catalogue says far below", ["uma-large-carveout-starves-gtt"];
    /// A carve-out up to this share of GTT is far below it.
    small_carve_out_share: f64 = 0.5, Share, "ours: the catalogue says far below", ["uma-carveout-only"];
    /// Share of a carve-out up to which most of it is unused.
    used_carve_out_share: f64 = 0.5, Share, "ours: the catalogue says mostly unused", ["uma-large-carveout-starves-gtt"];
    /// GTT up to here is small.
    small_gtt_bytes: u64 = 16 * GIB + GIB / 2, Bytes, "ROCm/TheRock#1054: 15 to 16 GiB in the reports", ["uma-large-carveout-starves-gtt"];
    /// Share of the RAM above which GPU memory leaves the host too little.
    host_share: f64 = 0.8, Share, "catalogue", ["uma-host-pressure"];
    /// Available RAM below which a host is under pressure.
    host_least_bytes: u64 = 2 * GIB, Bytes, "catalogue", ["uma-host-pressure"];
    /// Per cent of the time in which all tasks wait for memory (PSI, full) that count as pressure.
    pressure_percent: f64 = 10.0, Percent, "catalogue", ["uma-host-pressure"];
    /// How many times as long steps take where memory spills to the host.
    slower_factor: f64 = 3.0, Number, "catalogue", ["sysmem-fallback"];
    /// Share of a card that is free although only half of it could be used.
    half_free_share: f64 = 0.4, Share, "catalogue", ["vram-half-cap"];
    /// Share of the host's memory from which on a process may have been killed for it.
    host_full_share: f64 = 0.9, Share, "catalogue", ["host-ram-oom-kill"];
    /// Time before the end of a process in which no GPU call failed.
    quiet_ns: u64 = 1_000_000_000, Time, "catalogue", ["host-ram-oom-kill"];
    /// Share of a card below which a failure is strange.
    low_use_share: f64 = 0.5, Share, "catalogue", ["suspect-hardware"];
    /// Share of freed exports by which free memory must rise if they are not pinned.
    export_rise_share: f64 = 0.8, Share, "catalogue", ["ipc-export-pin"];
    /// Code objects loaded and not unloaded that are many.
    unbalanced_modules: u64 = 50, Count, "catalogue", ["module-load-unbalanced"];
    /// Share by which a buffer may differ from what a model's facts make of it.
    model_share: f64 = 0.05, Share, "catalogue", ["kv-cache-prealloc", "oom-model-load"];
    /// Share of the greatest peak below which a swing of memory is no cycle.
    swing_share: f64 = 1.0 / 1024.0, Share, "ours", ["live-leak", "model-swap-residual", "reserved-plateau", "oom-optimizer-step", "oom-longest-batch", "oom-eval-accumulation"];
    /// Smaller cycles behind the great ones that make a phase of their own.
    phase_cycles: u64 = 5, Count, "ours", ["live-leak", "oom-longest-batch", "oom-eval-accumulation", "oom-eval-batch"];
    /// Share of a device's peak below which its last bytes are the end of the program and no floor.
    end_share: f64 = 0.05, Share, "ours: programs give all back then", ["live-leak", "model-swap-residual", "reserved-plateau"];
    /// Share of the rise that tensors from one place must make up.
    dominant_share: f64 = 0.5, Share, "ours: the catalogue says one dominant size or call site", ["true-capacity", "live-leak", "legacy-pool-growth", "oom-model-load", "oom-first-forward", "oom-first-backward", "oom-optimizer-step"];
    /// Share of the rise that must come by one call path where a rise is to be the reason for the full card that it ends in.
    one_path_share: f64 = 0.8, Share, "ours: the keys and values of a cache come by two paths", ["true-capacity"];
    /// Share of all requests that must be whole segments of 2 MiB where an allocator with a cache is at work.
    segments_share: f64 = 0.95, Share, "ours", ["live-leak", "oom-model-load", "oom-first-forward", "oom-first-backward", "oom-optimizer-step", "oom-longest-batch", "oom-eval-accumulation"];
    /// Cycles or labels from which on what stays between them has a trend.
    leak_cycles: u64 = 5, Count, "ours", ["live-leak"];
    /// Share of a run, at its end, in which a trend is judged.
    stretch_share: f64 = 0.5, Share, "ours", ["live-leak", "oom-eval-accumulation", "oom-longest-batch", "oom-eval-batch"];
    /// Cycles or labels in which a trend is judged at least; with fewer, it rests on few.
    stretch_cycles: u64 = 10, Count, "ours", ["live-leak", "oom-eval-accumulation", "oom-longest-batch", "oom-eval-batch"];
    /// Share of a rise above which a single step of it makes it one step and no trend.
    step_share: f64 = 0.67, Share, "ours", ["live-leak", "oom-eval-accumulation", "oom-longest-batch", "oom-eval-batch"];
    /// Share of a rise below which each step of it is where it is gradual.
    gradual_share: f64 = 0.3, Share, "ours: of three steps up one has a third", ["live-leak", "oom-eval-accumulation", "oom-longest-batch", "oom-eval-batch"];
    /// How many times as long as ever before a rise must pause to be over.
    rise_pause_factor: f64 = 2.0, Number, "ours", ["live-leak", "oom-eval-accumulation", "oom-longest-batch", "oom-eval-batch"];
    /// Share of a stretch from which on a pause at its end leaves open whether a rise goes on, however long it paused before.
    rise_pause_share: f64 = 0.15, Share, "ours", ["live-leak", "oom-eval-accumulation", "oom-longest-batch", "oom-eval-batch"];
    /// Share of an average step of a rise that a level must be above the last high to be a new one.
    new_high_share: f64 = 0.5, Share, "ours: levels that waver are no rise", ["live-leak", "oom-eval-accumulation", "oom-longest-batch", "oom-eval-batch"];
    /// Share of a rise that was given back after an earlier rise, from which on it is taken to come and go.
    returned_share: f64 = 0.5, Share, "ours", ["live-leak", "oom-eval-accumulation", "oom-longest-batch", "oom-eval-batch"];
    /// The same of returns to the floor of all levels, where there were two or more.
    often_returned_share: f64 = 0.1, Share, "ours: rounds of which the last is longer", ["live-leak"];
    /// Stairs from which on they are more than one step up.
    least_stairs: u64 = 2, Count, "ours: what each evaluation of a training keeps", ["true-capacity", "caching-fragmentation"];
    /// Share of the highest stair that each is at least.
    stair_height_share: f64 = 0.5, Share, "ours", ["true-capacity", "caching-fragmentation"];
    /// Share of a rise from which on one step of it is a stair.
    stair_share: f64 = 0.1, Share, "ours: what each evaluation of a training keeps", ["true-capacity", "caching-fragmentation"];
    /// Share of a rise that stairs make up, where there is no other.
    stairs_share: f64 = 0.9, Share, "ours", ["true-capacity", "caching-fragmentation"];
    /// Share of a round's height above the lowest level that is its floor still.
    floor_share: f64 = 0.02, Share, "ours", ["live-leak"];
    /// How many times the largest step from level to level a fall is that ends a round, and is no noise.
    round_steps: f64 = 2.0, Number, "ours", ["live-leak"];
    /// How much a step goes against the one before, from which on levels waver around a line (noise: 0.5) and do not wander.
    wavering_correlation: f64 = 0.25, Number, "ours: between noise and a sum of independent steps", ["live-leak"];
    /// Share of the time that a rise took; what is given back faster behind its last step is a clean-up where the program ends.
    cleanup_share: f64 = 0.1, Share, "ours", ["live-leak"];
    /// Share of a stretch's first slope below which its second half slows down.
    slowing_share: f64 = 0.5, Share, "ours", ["live-leak"];
    /// Share of all steps from which on a level stretch before a rise is a bound that something had.
    bound_share: f64 = 0.25, Share, "ours: a window or a cache", ["live-leak"];
    /// Points of a stretch from which on its quarters and its halves are compared; with fewer, each point is a part of its own.
    parted_points: u64 = 8, Count, "ours: a quarter has two", ["live-leak", "oom-eval-accumulation", "oom-longest-batch", "oom-eval-batch"];
    /// Steps that recorded calls must cover for what they show of blocks that stay.
    covered_steps: u64 = 4, Count, "ours", ["live-leak"];
    /// Blocks of a call path that went, as a share of those of it that came to stay, from which on one takes the other's place.
    replaced_share: f64 = 0.9, Share, "ours: a cache that grows frees the old block for each new one", ["live-leak"];
    /// Steps of which a block must stay for it to be more than a block that is replaced.
    keeping_steps: u64 = 3, Count, "ours", ["live-leak"];
    /// Probability that all earlier blocks of a place are gone while later ones stay, below which that is no accident.
    all_gone_chance: f64 = 0.01, Share, "ours", ["live-leak"];
    /// Share of a run's stretches in which blocks of one origin must have come to be named as what stays.
    suspect_share: f64 = 0.5, Share, "ours", ["live-leak"];
    /// Share of a cycle's rise up to which what the program holds is its floor, where memory in use is read there.
    floor_margin_share: f64 = 1.0 / 16.0, Share, "ours: a reading before the fall shows the peak", ["model-swap-residual"];
    /// Share of what a cycle is given above which what stays may be a part of a load, and the cycle no step.
    filling_share: f64 = 0.33, Share, "ours", ["live-leak"];
    /// Share of a rise up to which what was there before is little: the rise may then be the load itself.
    filling_base_share: f64 = 0.20, Share, "ours", ["live-leak"];
    /// What a leak must come to in all.
    leak_total_bytes: u64 = 16 * MIB, Bytes, "ours: a trend is judged against its noise, and less than this is not worth a word", ["live-leak", "oom-longest-batch", "oom-eval-batch"];
    /// Times what a step was ever given that must have come since the last one, so that no step explains it.
    beyond_factor: f64 = 1.5, Number, "ours", ["true-capacity"];
    /// Cycles that a plateau takes.
    plateau_least_cycles: u64 = 6, Count, "ours", ["reserved-plateau"];
    /// What must have risen before a plateau.
    plateau_rise_bytes: u64 = 64 * MIB, Bytes, "ours", ["reserved-plateau"];
    /// Cycles within which a plateau is reached.
    plateau_cycles: u64 = 20, Count, "catalogue", ["reserved-plateau"];
    /// Share by which what stays may differ on a plateau.
    flat_share: f64 = 0.01, Share, "catalogue", ["reserved-plateau"];
    /// Loads and unloads that make a swap of models.
    swaps: u64 = 3, Count, "catalogue", ["model-swap-residual"];
    /// What must come with each load of a model.
    swap_bytes: u64 = GIB, Bytes, "catalogue", ["model-swap-residual"];
    /// Share of it that must go with the unload.
    swap_fall_share: f64 = 0.80, Share, "catalogue", ["model-swap-residual"];
    /// What one swap of models must leave behind.
    swap_residue_bytes: u64 = 100 * MIB, Bytes, "catalogue", ["model-swap-residual"];
    /// Times the median pause between two calls from which on a pause separates bursts.
    pause_factor: u64 = 5, Count, "catalogue", ["oom-model-load", "oom-first-forward", "oom-first-backward"];
    /// A pause that separates bursts is at least so long: what a machine does in less says nothing of a program.
    least_pause_ns: u64 = 10_000_000, Time, "ours", ["oom-model-load", "oom-first-forward", "oom-first-backward", "oom-eval-batch"];
    /// Calls that a burst has at least.
    burst_calls: u64 = 4, Count, "ours", ["oom-model-load", "oom-first-forward", "oom-first-backward"];
    /// Times a stretch of calls must come to be a repetition.
    repetitions: u64 = 3, Count, "catalogue", ["oom-model-load", "oom-first-forward", "oom-first-backward", "oom-optimizer-step", "legacy-pool-growth", "kv-cache-prealloc"];
    /// Share of the calls that may differ from one repetition to the next.
    repetition_share: f64 = 0.10, Share, "catalogue", ["oom-model-load", "oom-first-forward", "oom-first-backward", "oom-optimizer-step", "legacy-pool-growth", "kv-cache-prealloc"];
    /// Share of what a repetition is given that must come back within it: equal layers of a load are none.
    repetition_return_share: f64 = 0.5, Share, "ours", ["oom-model-load", "oom-first-forward", "oom-first-backward", "oom-optimizer-step", "legacy-pool-growth", "kv-cache-prealloc"];
    /// A free of more than this is none of a load.
    large_free_bytes: u64 = LARGE_FREE_BYTES, Bytes, "catalogue", ["oom-model-load", "kv-cache-prealloc"];
    /// Share of the peak by which memory may fall in a load.
    load_fall_share: f64 = 0.02, Share, "ours", ["oom-model-load"];
    /// Share by which more may come than the optimizer's state takes.
    optimizer_share: f64 = 0.25, Share, "catalogue", ["oom-optimizer-step"];
    /// Steps from which on a failure is none of the optimizer's first step.
    later_steps: u64 = 3, Count, "catalogue", ["oom-optimizer-step", "legacy-pool-growth"];
    /// Steps that a training has had before an evaluation.
    trained_steps: u64 = 3, Count, "ours", ["oom-eval-batch"];
    /// Height of an evaluation's cycles, as a share of those of the training, below which they lack a backward pass.
    forward_share: f64 = 0.75, Share, "ours", ["oom-eval-accumulation"];
    /// Share of what had piled up by which less is held where it was given back.
    given_back_share: f64 = 0.10, Share, "ours", ["oom-eval-accumulation", "live-leak"];
    /// Pause before an evaluation, as a share of a step.
    pause_share: f64 = 0.5, Share, "ours", ["oom-eval-batch"];
    /// Forward passes' worth of blocks of each line from which on several passes are told from one that is longer.
    least_passes: u64 = 2, Count, "ours", ["oom-first-forward", "oom-eval-accumulation"];
    /// Blocks of a forward pass, kept, from which on it keeps them for a backward pass. Without gradients few live at once.
    passes_blocks: u64 = 4, Count, "ours: without gradients the input and output of a layer live, and what goes around it", ["oom-first-forward", "oom-eval-batch"];
    /// Share of the live blocks of a forward pass that must have come by ways of which no block is gone, where it is the first.
    kept_pass_share: f64 = 0.33, Share, "ours: of a layer and its activation one keeps what came, and the other half of it", ["oom-first-forward"];
    /// How many times the gradients an optimizer's state takes at most, as a rule.
    state_factor: f64 = 2.0, Number, "Adam keeps two averages of each gradient (docs.pytorch.org/docs/stable/generated/torch.optim.Adam.html)", ["oom-optimizer-step"];
    /// Equal blocks that each way of a load brought, from which on they may be of as many models.
    equal_loads: u64 = 3, Count, "ours: a model has some block without its like, as of an embedding", ["oom-model-load"];
    /// Equal blocks of one line that may be a pile.
    pile_blocks: u64 = 16, Count, "ours", ["true-capacity"];
    /// How many times the bytes of all else that lives the gradients of one pass take at most.
    gradient_factor: f64 = 4.0, Number, "ours: weights of 1 byte, gradients of 4", ["true-capacity", "oom-first-backward"];
    /// How many times these bytes the gradients and an optimizer's state take at most.
    trained_factor: f64 = 16.0, Number, "ours: weights of 1 byte, a gradient, two averages and a copy of 4", ["live-leak"];
    /// First gradients of backward passes from which on the first pass is over: several losses of one pass have one each.
    begun_passes: u64 = 4, Count, "ours", ["oom-first-backward"];
    /// Floors behind the last backward pass from which on they are no parts of one pass that is under way.
    open_step_floors: u64 = 32, Count, "ours: a pass has about one for each layer", ["live-leak"];
    /// Share of what was held at a failure that is given back later, from which on the program was not done with it.
    emptied_share: f64 = 0.5, Share, "ours", ["live-leak"];
    /// Steps of a run that counts as stable.
    stable_cycles: u64 = 20, Count, "ours: low enough for short runs", ["oom-longest-batch"];
    /// Variation of the steps' peaks from which on batches differ (standard deviation over mean).
    peak_variation_share: f64 = 0.05, Share, "catalogue", ["oom-longest-batch"];
    /// Share by which a long batch asks for more than all before it.
    longer_share: f64 = 0.05, Share, "catalogue", ["oom-longest-batch", "oom-eval-batch"];
    /// Share of the load's blocks whose sizes must come again.
    matching_share: f64 = 0.60, Share, "catalogue", ["oom-first-forward", "oom-first-backward", "oom-optimizer-step"];
    /// Rank correlation against the load's order from which on the order is the reverse.
    reversed_share: f64 = 0.30, Number, "catalogue", ["oom-first-backward"];
    /// Times a block must be replaced by a larger one for a cache that grows.
    growing_pairs: u64 = 16, Count, "catalogue", ["kv-cache-incremental"];
    /// Sizes that a cache which grows has had.
    growing_sizes: u64 = 3, Count, "ours", ["kv-cache-incremental"];
    /// Share of the kernel's limit that the program's own part must come to for others to be worth a word.
    kfd_own_share: f64 = 0.5, Share, "ours", ["kfd-system-memory-limit"];
    /// Share of the blocks of a cache's sizes given back that must be replaced by larger ones.
    growing_share: f64 = 0.5, Share, "ours: most of them", ["kv-cache-incremental"];
    /// What a pool that keeps each peak must hold.
    kept_bytes: u64 = GIB / 2, Bytes, "catalogue", ["legacy-pool-growth"];
    /// Buffers of one family that such a pool must have kept.
    kept_buffers: u64 = 4, Count, "ours", ["legacy-pool-growth"];
    /// Share by which the next buffer of a family is larger at most.
    kept_larger_share: f64 = 0.20, Share, "catalogue", ["legacy-pool-growth"];
    /// Share by which the next buffer of a family is larger at least.
    kept_least_share: f64 = 0.001, Share, "catalogue", ["legacy-pool-growth"];
    /// Time for which a gathered part lives at most.
    gathered_for_ns: u64 = 100_000_000, Time, "catalogue", ["fsdp-gather-spike"];
    /// Gathered parts that live at once.
    gathers_at_once: u64 = 2, Count, "catalogue", ["fsdp-gather-spike"];
    /// Size of a gathered part at least.
    gathered_bytes: u64 = MIB, Bytes, "ours", ["fsdp-gather-spike"];
    /// Blocks of one size that must live shortly for gathers.
    gathers: u64 = 8, Count, "ours", ["fsdp-gather-spike"];
    /// Blocks from one place from which on they are tensors of a model.
    tensors: u64 = 16, Count, "ours: the smallest models have more", ["kv-cache-prealloc", "oom-model-load"];
    /// Blocks from here on are buffers of a model and not odds and ends.
    buffer_bytes: u64 = MIB, Bytes, "ours", ["kv-cache-prealloc"];
    /// Memory that neither PyTorch's allocator holds nor the runtime calls free, from which on it counts, by its message.
    outside_bytes: u64 = GIB, Bytes, "ours", ["other-process-on-gpu", "hidden-runtime-memory"];
    /// Total of a card below which it is an APU's carve-out, by PyTorch's message.
    small_card_bytes: u64 = 2 * GIB, Bytes, "ours", ["uma-carveout-only"];
    /// Bytes by which a request that is tried again may differ.
    same_request_bytes: u64 = SAME_REQUEST_BYTES, Bytes, "ours: what PyTorch rounds large requests to", ["cache-greed", "caching-fragmentation", "true-capacity"];
    /// Share by which a request that is tried again may differ.
    same_request_share: f64 = SAME_REQUEST_SHARE, Share, "ours", ["cache-greed", "caching-fragmentation", "true-capacity"];
    /// Physical or exported memory that must be given back between two readings to be set beside them.
    much_released_bytes: u64 = MUCH_RELEASED_BYTES, Bytes, "ours", ["vmm-release-ineffective", "ipc-export-pin"];
    /// Open descriptors that a process should be allowed where each handle of virtual memory holds one.
    good_descriptors: u64 = 65_536, Count, "ROCm/ROCm#6661", ["vmm-fd-exhaustion"];
    /// Mappings that a process should be allowed.
    good_mappings: u64 = 262_144, Count, "pytorch/pytorch#175431: 65,530 were not enough", ["map-count-exhaustion"];
    /// Memory that a process should be allowed to lock.
    good_locked_bytes: u64 = 8 * MIB, Bytes, "what systemd gives every process", ["pinned-host-exhaustion"];
    /// Address space that a process should be allowed: runtimes reserve addresses for the memory of all devices.
    good_address_space_bytes: u64 = 1024 * GIB, Bytes, "ours", ["gpu-va-limit"];
    /// RAM below which a host that shares it with a GPU may freeze.
    host_keeps_least_bytes: u64 = 4 * GIB, Bytes, "ours, from reports of users with APUs: no vendor states one", ["uma-host-pressure", "uma-ttm-limit"];
    /// RAM that a host should keep for itself beside a GPU.
    host_keeps_bytes: u64 = 8 * GIB, Bytes, "ours, from reports of users with APUs: no vendor states one", ["uma-host-pressure", "uma-ttm-limit"];
    /// Value of amdgpu.vm_size from which on its unit, GiB, was taken for MiB.
    absurd_vm_size: u64 = 4096, Count, "Linux amdgpu_drv.c: the unit is GiB, so this is 4 TiB", ["uma-param-mismatch"];
    /// Share of PyTorch's unused memory that a request must be within for that memory to be in too small pieces.
    request_of_unused_share: f64 = 0.5, Share, "catalogue", ["caching-fragmentation"];
    /// Share of the waste that must go without one family of sizes.
    family_waste_share: f64 = 0.5, Share, "catalogue", ["mixed-size-padding"];
    /// What the kernel may count more for a process than its calls to the kernel come to.
    kernel_gap_bytes: u64 = 64 * MIB, Bytes, "ours: page tables and queues", [COVERAGE];
    /// The same as a share of what is in use.
    kernel_gap_share: f64 = 0.02, Share, "ours", [COVERAGE];
    /// The same where calls to the kernel were not seen: contexts, code, scratch and rounding are missing then.
    upper_gap_bytes: u64 = GIB, Bytes, "ours", [COVERAGE];
    /// The same as a share of what is in use.
    upper_gap_share: f64 = 0.10, Share, "ours", [COVERAGE];
    /// How far the wall clock may seem to have moved against the monotonic one among traces of one boot of one machine.
    same_boot_ns: u64 = 10_000_000_000, Time, "ours: time services step a clock by less", [JOBS];
    /// Steps of each sort whose durations are compared.
    steps_compared: u64 = 3, Count, "ours", ["sysmem-fallback"];
}

impl Thresholds {
    /// Whether free memory was enough: above the rounding of one call and the page-table reserve.
    pub fn is_enough(&self, free_bytes: u64, request_bytes: u64) -> bool {
        let share = (request_bytes as f64 * self.free_margin_share) as u64;
        free_bytes >= request_bytes.saturating_add(share).saturating_add(self.free_margin_bytes)
    }

    /// What a runtime usually holds for a process on a card of this size: contexts, code, queues.
    pub fn usual_overhead_bytes(&self, total_bytes: u64) -> u64 {
        self.hidden_bytes.max((total_bytes as f64 * self.hidden_share) as u64)
    }

    /// What the model of the card rounds each block to, where the user set it. Else a trace says by itself what its blocks are
    /// rounded to: the default here is that of the recorder, and not of every trace.
    pub fn model_granule(&self) -> Option<u64> {
        self.is_set("model_granule_bytes").then_some(self.model_granule_bytes)
    }

    /// How a trace is replayed by these numbers.
    pub fn replay_options(&self) -> Options {
        let limits = Limits {
            retry_ns: self.retry_ns,
            pending_ns: self.pending_ns,
            large_free_bytes: self.large_free_bytes,
            fall_back_part: (1.0 / self.fall_back_share).round() as u64,
            much_released_bytes: self.much_released_bytes,
            same_request_bytes: self.same_request_bytes,
            same_request_share: self.same_request_share,
        };
        Options { granularity_bytes: self.model_granule(), limits, ..Options::default() }
    }

    /// The share of a card that others must hold, as a sentence has it.
    pub fn much_of_a_card(&self) -> String {
        if self.others_share == 0.10 { "a tenth".to_owned() } else { percent(self.others_share) }
    }

    /// Cycles from which on a line is laid through them: three points at least, or any line would fit.
    pub fn least_cycles(&self) -> usize {
        usize::try_from(self.leak_cycles).unwrap_or(usize::MAX).max(3)
    }

    /// Whether a value of `amdgpu.vm_size` was meant in another unit.
    pub fn is_absurd_vm_size(&self, gib: i64) -> bool {
        u64::try_from(gib).is_ok_and(|gib| gib >= self.absurd_vm_size)
    }

    /// What a host keeps for itself beside a GPU.
    pub fn host_keeps(&self) -> HostKeeps {
        HostKeeps { least_bytes: self.host_keeps_least_bytes, good_bytes: self.host_keeps_bytes }
    }

    /// The numbers by which a trend is judged.
    pub fn trend_limits(&self) -> trend::Limits {
        trend::Limits {
            least_points: self.least_cycles(),
            stretch_points: usize::try_from(self.stretch_cycles).unwrap_or(usize::MAX),
            stretch_share: self.stretch_share,
            step_share: self.step_share,
            gradual_share: self.gradual_share,
            pause_factor: self.rise_pause_factor,
            pause_share: self.rise_pause_share,
            returned_share: self.returned_share,
            often_returned_share: self.often_returned_share,
            floor_share: self.floor_share,
            round_steps: self.round_steps,
            least_stairs: usize::try_from(self.least_stairs).unwrap_or(usize::MAX).max(1),
            stair_height_share: self.stair_height_share,
            stair_share: self.stair_share,
            stairs_share: self.stairs_share,
            // The table has no negative numbers.
            wanders_above: -self.wavering_correlation,
            slowing_share: self.slowing_share,
            bound_share: self.bound_share,
            new_high_share: self.new_high_share,
            parted_points: usize::try_from(self.parted_points).unwrap_or(usize::MAX).max(4),
        }
    }

    /// Whether two sizes are the same but for accounting.
    pub fn is_near(&self, left: u64, right: u64) -> bool {
        let share = (left.max(right) as f64 * self.near_share) as u64;
        left.abs_diff(right) <= share.max(self.near_bytes)
    }
}

/// A share of a whole; 0 of nothing.
pub fn share(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 / whole as f64 }
}
