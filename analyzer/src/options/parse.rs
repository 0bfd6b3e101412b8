//! The text of an allocator variable: `key:value,key:value`, where a value may be a list in brackets.

use serde::Serialize;

/// Characters that are read of a text; torch's own have some hundred.
const MAX_TEXT: usize = 4096;

/// Keys that some version of PyTorch knows. Source: `CUDAAllocatorConfig.cpp` and `AllocatorConfig.cpp` up to torch 2.14.
pub const KEYS: [&str; 23] = [
    "backend",
    "expandable_segments",
    "expandable_segments_reserve",
    "expandable_segments_reserve_by_class",
    "garbage_collection_threshold",
    "graph_capture_record_stream_reuse",
    "large_segment_size_mb",
    "max_non_split_rounding_mb",
    "max_split_size_mb",
    "per_process_memory_fraction",
    "pinned_free_catch_all",
    "pinned_max_cached_size_mb",
    "pinned_max_round_threshold_mb",
    "pinned_num_register_threads",
    "pinned_reserve_segment_size_mb",
    "pinned_use_background_threads",
    "pinned_use_cuda_host_register",
    "pinned_use_hip_host_register",
    "release_lock_on_cudamalloc",
    "release_lock_on_hipmalloc",
    "roundup_bypass_threshold_mb",
    "roundup_power2_divisions",
    "throw_on_cudamalloc_oom",
];

/// One option.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Setting {
    /// Its key.
    pub key: String,
    /// Its value, without spaces.
    pub value: String,
}

/// The options of a variable, in the order of the text. A key that is there twice counts with its last value.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct AllocConf {
    /// All of them.
    pub settings: Vec<Setting>,
    /// Parts that are no `key:value`.
    pub malformed: Vec<String>,
}

impl AllocConf {
    /// Reads a text. Spaces mean nothing, as in PyTorch.
    pub fn parse(text: &str) -> Self {
        let mut conf = AllocConf::default();
        for part in split(text) {
            match part.split_once(':') {
                Some((key, value)) if !key.is_empty() && !value.is_empty() => {
                    conf.settings.push(Setting { key: key.to_owned(), value: value.to_owned() });
                }
                _ => conf.malformed.push(part),
            }
        }
        conf
    }

    /// The value of a key.
    pub fn get(&self, key: &str) -> Option<&str> {
        self.settings.iter().rev().find(|setting| setting.key == key).map(|setting| setting.value.as_str())
    }

    /// Whether an option is on: exactly `True`, as PyTorch asks for it.
    pub fn is_on(&self, key: &str) -> bool {
        self.get(key) == Some("True")
    }

    /// The number of an option.
    pub fn number(&self, key: &str) -> Option<f64> {
        self.get(key)?.parse().ok().filter(|number: &f64| number.is_finite())
    }

    /// Whether another allocator than PyTorch's own is asked for.
    pub fn is_async(&self) -> bool {
        matches!(self.get("backend"), Some("cudaMallocAsync" | "hipMallocAsync"))
    }
}

/// The parts between commas that are not in brackets.
fn split(text: &str) -> Vec<String> {
    let mut parts = Vec::new();
    let (mut part, mut depth) = (String::new(), 0u32);
    for character in text.chars().take(MAX_TEXT).filter(|character| !character.is_whitespace()) {
        match character {
            '[' => depth += 1,
            ']' => depth = depth.saturating_sub(1),
            ',' if depth == 0 => {
                parts.push(std::mem::take(&mut part));
                continue;
            }
            _ => {}
        }
        part.push(character);
    }
    parts.push(part);
    parts.retain(|part| !part.is_empty());
    parts
}

/// The known name that is nearest to an unknown one, if it is near enough to be meant.
pub fn meant<'a>(unknown: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let ranked = known.into_iter().map(|name| (crate::catalogue::distance(unknown, name), name));
    let (distance, name) = ranked.min()?;
    // A fifth of the name, at least two letters: PYTORCH_HIP_ALLOC_CONFIG, max_split_size.
    (distance <= (name.len() / 5).max(2)).then_some(name)
}
