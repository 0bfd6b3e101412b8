use std::collections::HashSet;

use super::*;

/// Every id, by chapter. A diagnosis that the data lacks, or that nobody planned, fails here.
const IDS: [(char, &[&str]); 10] = [
    (
        'A',
        &[
            "true-capacity",
            "request-exceeds-device",
            "attention-quadratic",
            "single-alloc-cap",
            "process-fraction-cap",
            "preallocation-by-framework",
            "partition-slice",
            "training-state-exceeds-card",
            "fixed-vs-activation",
            "repeated-large-temporaries",
        ],
    ),
    (
        'B',
        &[
            "caching-fragmentation",
            "cache-greed",
            "reserved-plateau",
            "granularity-waste",
            "mixed-size-padding",
            "map-count-exhaustion",
            "vmm-fd-exhaustion",
            "gpu-va-limit",
        ],
    ),
    (
        'C',
        &[
            "phantom-free",
            "free-overreported-graphics",
            "sysfs-free-overreported",
            "other-process-on-gpu",
            "zombie-vram",
            "driver-stranded-vram",
            "hidden-runtime-memory",
            "async-free-pending",
            "ipc-export-pin",
            "bar-visible-limit",
            "gfx-override-active",
            "sdma-sensitive",
            "reading-mismatch-benign",
        ],
    ),
    (
        'D',
        &[
            "pool-retention",
            "mallocasync-oom",
            "pool-failure-leak",
            "vmm-release-ineffective",
            "expandable-ignored",
            "expandable-with-max-split",
            "expandable-hazard",
            "graph-private-pool",
            "caching-disabled",
        ],
    ),
    ('E', &["live-leak", "model-swap-residual", "module-load-unbalanced", "known-bad-version", "version-mismatch"]),
    (
        'F',
        &["dropped-oom-return", "late-surfacing-oom", "runtime-internal-abort", "library-alloc-failed", "hang-not-oom"],
    ),
    (
        'G',
        &[
            "uma-ttm-limit",
            "uma-param-mismatch",
            "uma-carveout-only",
            "uma-large-carveout-starves-gtt",
            "apu-reporting-inconsistent",
            "uma-runtime-clamp",
            "uma-host-pressure",
            "sysmem-fallback",
            "kfd-system-memory-limit",
            "pinned-host-exhaustion",
            "gtt-exhaustion",
            "device-cgroup-limit",
            "xnack-ineffective",
            "vram-half-cap",
            "missing-libdrm-link",
        ],
    ),
    (
        'H',
        &[
            "oom-model-load",
            "oom-first-forward",
            "oom-first-backward",
            "oom-optimizer-step",
            "oom-longest-batch",
            "oom-eval-accumulation",
            "oom-eval-batch",
            "fsdp-gather-spike",
            "kv-cache-prealloc",
            "kv-cache-incremental",
            "legacy-pool-growth",
        ],
    ),
    ('I', &["host-ram-oom-kill", "cgroup-memory-limit"]),
    ('J', &["retired-pages", "suspect-hardware"]),
];

/// Platforms that entries name.
const PLATFORMS: [&str; 13] = [
    "rocm",
    "cuda",
    "any",
    "linux",
    "windows",
    "torch",
    "apu",
    "rocm-apu",
    "rocm-dgpu",
    "mi300",
    "rdna4",
    "cuda-mig",
    "amd-instinct",
];

#[test]
fn every_planned_diagnosis_is_there_once() {
    assert_eq!(entries().map(|entry| &entry.id).collect::<HashSet<_>>().len(), 80);
    assert_eq!(chapters().len(), IDS.len());
    for (chapter, (letter, ids)) in chapters().iter().zip(IDS) {
        assert_eq!(chapter.letter, letter);
        let found: Vec<&str> = chapter.entries.iter().map(|entry| entry.id.as_str()).collect();
        assert_eq!(found, ids, "chapter {letter}");
    }
}

#[test]
fn every_entry_can_be_decided_and_acted_on() {
    for entry in entries() {
        let id = &entry.id;
        assert!(!entry.title.is_empty() && !entry.sources.is_empty(), "{id}");
        assert!(!entry.proves.is_empty() || !entry.any_proves.is_empty(), "{id}: nothing proves it");
        assert!(!entry.platforms.is_empty(), "{id}");
        for platform in &entry.platforms {
            assert!(PLATFORMS.contains(&platform.as_str()), "{id}: platform {platform}");
        }
        for fix in &entry.fixes {
            assert!(!fix.text.is_empty(), "{id}: {fix:?}");
            assert!(fix.rungs.iter().all(|&rung| rung <= 11), "{id}: {fix:?}");
        }
    }
}

/// With both set, a live allocation was seen to read back zeros.
#[test]
fn no_fix_names_the_dangerous_pair() {
    for entry in entries() {
        for fix in &entry.fixes {
            let pair = ["expandable_segments", "max_split_size_mb"];
            let whole = format!("{} {}", fix.command, fix.text);
            assert!(!pair.iter().all(|option| whole.contains(option)), "{}: {whole}", entry.id);
        }
    }
}

/// What the catalogue warns about when it is set is never advised.
#[test]
fn no_fix_is_one_of_the_unsafe_ones() {
    let unsafe_ones = [
        "pkill",
        "killall",
        "HSA_XNACK=1",
        "HSA_OVERRIDE_GFX_VERSION=",
        "> /sys/kernel/debug",
        "NO_HIP_MEMORY_CACHING=1",
    ];
    for entry in entries() {
        for fix in &entry.fixes {
            assert!(!unsafe_ones.iter().any(|bad| fix.command.contains(bad)), "{}: {}", entry.id, fix.command);
        }
    }
}

/// Nobody measured one: the rates that circulate have no source.
#[test]
fn no_text_names_a_silent_failure_rate_or_a_folk_number() {
    for (letter, _, data) in FILES {
        for rate in ["34 %", "66 %", "95 %", "85-90 %", "1 in 200", "20 to 30 %", "1.2 GB", "2.4 GB", "#2578", "18.9"] {
            assert!(!data.contains(rate), "chapter {letter}: {rate}");
        }
    }
}

#[test]
fn an_entry_without_a_rule_of_its_own_has_the_default_one() {
    assert!(entries().all(|entry| !entry.confidence.is_empty()));
    let data = r#"
        [[entry]]
        id = "a"
        title = "t"
        platforms = ["any"]
        tier = "T0"
        proves = ["p"]
    "#;
    assert_eq!(read('Z', "z", data).entries[0].confidence, DEFAULT_CONFIDENCE);
}

#[test]
fn a_mistyped_id_is_understood() {
    assert_eq!(distance("kitten", "sitting"), 3);
    assert_eq!(distance("", "abc"), 3);
    assert_eq!(nearest("true-capasity")[0], "true-capacity");
    assert_eq!(nearest("ttm")[0], "uma-ttm-limit");
    assert_eq!(nearest(&"x".repeat(1 << 20)).len(), 3);
}

/// Words of PyTorch, of training and of language models. Advice with them is for programs in which such a thing was seen; a
/// diagnosis that is itself about a model has said so.
#[test]
fn advice_for_frameworks_is_for_their_programs() {
    const WORDS: [&str; 14] = [
        "torch",
        "transformers",
        "lora",
        "zero 1",
        "fsdp",
        "adafactor",
        "micro-batch",
        "autocast",
        "checkpointing",
        "device_map",
        "kv cache",
        "flashattention",
        "layers",
        "sequences",
    ];
    const OF_MODELS: [&str; 2] = ["training-state-exceeds-card", "attention-quadratic"];
    let mut wrong = Vec::new();
    for entry in chapters().iter().filter(|chapter| "AIJ".contains(chapter.letter)).flat_map(|chapter| &chapter.entries)
    {
        for fix in entry.fixes.iter().filter(|fix| fix.only.program.is_none()) {
            let text = fix.text.to_lowercase();
            let named = WORDS.iter().find(|word| text.contains(*word));
            if named.is_some() && !OF_MODELS.contains(&&entry.id[..]) {
                wrong.push(format!("{}: {} ({named:?})", entry.id, fix.text));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}
