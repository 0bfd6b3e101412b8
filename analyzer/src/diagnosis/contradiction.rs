//! Two readings of one card at one moment that can't both be right.
//!
//! What is said of AMD's cards where HIP and sysfs differ has rules of its own (chapter C): there the difference has known reasons.

use super::case::{Case, Failure};
use crate::judgement::check::Holds;
use crate::words::size;

/// What would show which of them is right.
pub(super) const BOTH_AGAIN: &str =
    "the same two readings where no memory comes or goes (nvidia-smi beside the program, GPUOOM_SAMPLE)";

/// Diagnoses that rest on how much memory was free, and on who held the rest.
pub(super) const OF_FREE_MEMORY: [&str; 13] = [
    "true-capacity",
    "preallocation-by-framework",
    "training-state-exceeds-card",
    "fixed-vs-activation",
    "caching-fragmentation",
    "granularity-waste",
    "mixed-size-padding",
    "phantom-free",
    "other-process-on-gpu",
    "zombie-vram",
    "hidden-runtime-memory",
    "pool-retention",
    "live-leak",
];

/// Whether what a diagnosis says rests on the readings of a failure.
pub(super) fn rests_on_readings(id: &str, failure: &Failure<'_>) -> bool {
    OF_FREE_MEMORY.contains(&id) && failure.is_real_of_device() && !failure.is_of_allocator_alone()
}

impl Case<'_> {
    /// What NVML and the runtime say of the memory in use, where they are further apart than anything known explains: what the driver
    /// keeps for itself, what came or went while both were read.
    pub fn contradiction(&self, failure: &Failure<'_>) -> Option<String> {
        let read = &failure.oom.read;
        let total = read.runtime_total_bytes.or(failure.device.and_then(|device| device.runtime_total_bytes()))?;
        let free = read.runtime_free_bytes?;
        let (nvml_total, nvml_used) = read.nvml_total_bytes.zip(read.nvml_used_bytes)?;
        if self.is_read_of_card(failure) != Holds::Yes || read.vram_used_bytes.is_some() {
            return None;
        }
        let by_runtime = total.saturating_sub(free);
        // Versions of NVML count what the driver keeps for itself among what is used, or beside it.
        let with_reserved = nvml_used.saturating_add(read.nvml_reserved_bytes.unwrap_or(0));
        let apart = by_runtime.abs_diff(nvml_used).min(by_runtime.abs_diff(with_reserved));
        let apart = apart.saturating_sub(total.abs_diff(nvml_total)).saturating_sub(self.read_apart_bytes(failure)?);
        let share = (total as f64 * self.thresholds.gap_noise_share) as u64;
        (apart >= self.thresholds.gap_warning_bytes.max(share)).then(|| {
            format!(
                "the readings contradict each other: at this failure {} of {} were in use by the runtime, and {} of {} by NVML",
                size(by_runtime),
                size(total),
                size(nvml_used),
                size(nvml_total)
            )
        })
    }
}
