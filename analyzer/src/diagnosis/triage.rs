//! The order of questions: of two diagnoses that are equally sure, the one whose question comes first is named first.

use super::finding::{Finding, Role};

/// Ids in the order in which they are asked. What resolves an umbrella stands before it; what is only the end state of
/// another (a full card at the end of a leak) stands behind it.
const ORDER: &[&str] = &[
    // The process died without a failing call.
    "host-ram-oom-kill",
    "cgroup-memory-limit",
    "runtime-internal-abort",
    "uma-host-pressure",
    "hang-not-oom",
    "expandable-hazard",
    // What sort of call failed.
    "library-alloc-failed",
    "late-surfacing-oom",
    "gpu-va-limit",
    "vmm-fd-exhaustion",
    "pool-failure-leak",
    "kfd-system-memory-limit",
    "gtt-exhaustion",
    "pinned-host-exhaustion",
    // The request against limits.
    "apu-reporting-inconsistent",
    "uma-carveout-only",
    "uma-large-carveout-starves-gtt",
    "uma-runtime-clamp",
    "uma-ttm-limit",
    "single-alloc-cap",
    "process-fraction-cap",
    "request-exceeds-device",
    // Enough was free.
    "map-count-exhaustion",
    "free-overreported-graphics",
    "device-cgroup-limit",
    "ipc-export-pin",
    "async-free-pending",
    "mallocasync-oom",
    "vmm-release-ineffective",
    "expandable-with-max-split",
    "phantom-free",
    // Others hold it.
    "other-process-on-gpu",
    "preallocation-by-framework",
    "zombie-vram",
    "driver-stranded-vram",
    "hidden-runtime-memory",
    "sysfs-free-overreported",
    // The program's own: cached.
    "caching-fragmentation",
    "graph-private-pool",
    "pool-retention",
    // The program's own: growing.
    "live-leak",
    "model-swap-residual",
    "module-load-unbalanced",
    "oom-eval-accumulation",
    "kv-cache-incremental",
    "legacy-pool-growth",
    // The program's own: one step that is too large.
    "attention-quadratic",
    "oom-longest-batch",
    "oom-eval-batch",
    "fsdp-gather-spike",
    "training-state-exceeds-card",
    "true-capacity",
    "oom-optimizer-step",
    "oom-first-backward",
    "kv-cache-prealloc",
    "oom-model-load",
    "oom-first-forward",
    "fixed-vs-activation",
    "repeated-large-temporaries",
    "vram-half-cap",
    "sdma-sensitive",
    "cache-greed",
    "granularity-waste",
    "mixed-size-padding",
    // What the program did with it.
    "dropped-oom-return",
    // What else is there.
    "known-bad-version",
    "expandable-ignored",
    "caching-disabled",
    "uma-param-mismatch",
    "partition-slice",
    "bar-visible-limit",
    "gfx-override-active",
    "xnack-ineffective",
    "version-mismatch",
    "sysmem-fallback",
    "missing-libdrm-link",
    "reserved-plateau",
    "reading-mismatch-benign",
    "retired-pages",
    "suspect-hardware",
];

/// The place of an id in the order of questions.
pub fn place(id: &str) -> usize {
    ORDER.iter().position(|known| *known == id).unwrap_or(ORDER.len())
}

/// The most telling first: causes before conditions, the surer before the less sure, then the order of questions.
pub fn sort(found: &mut [Finding]) {
    found.sort_by_key(|finding| {
        let is_background = matches!(finding.role, Role::Condition | Role::Refutation);
        (is_background, std::cmp::Reverse(finding.confidence), finding.role == Role::Severity, place(finding.id))
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_entry_of_the_catalogue_has_its_place_once() {
        let mut known: Vec<&str> = crate::catalogue::entries().map(|entry| entry.id.as_str()).collect();
        let mut placed = ORDER.to_vec();
        known.sort_unstable();
        placed.sort_unstable();
        assert_eq!(known, placed);
    }
}
