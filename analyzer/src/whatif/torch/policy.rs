//! The settings of PyTorch's caching allocator, and the sizes that follow from them.
//!
//! Source of the rules: c10/core/AllocatorConfig.{h,cpp} and c10/cuda/CUDACachingAllocator.cpp of PyTorch 2.15. Up to 2.8
//! they were the same but for `large_segment_size_mb` and `per_process_memory_fraction`, which were not there.

use serde::Serialize;
use thiserror::Error;

use crate::options::parse::AllocConf;

const MIB: u64 = 1 << 20;
/// Every size is a multiple of it.
pub const MIN_BLOCK: u64 = 512;
/// Largest request that goes to the pool of small blocks.
pub const SMALL: u64 = MIB;
/// Size of a segment of the small pool.
pub const SMALL_SEGMENT: u64 = 2 * MIB;
/// Requests from here on have a segment of their own size.
const OWN_SEGMENT: u64 = 10 * MIB;
/// Segments of their own size are multiples of it.
const ROUND_SEGMENT: u64 = 2 * MIB;
/// Size of a segment that several requests of the large pool share.
const LARGE_SEGMENT: u64 = 20 * MIB;
/// Ranges of sizes that can be rounded differently: one for each power of two from 1 MiB on.
const ROUNDING_RANGES: usize = 16;

/// Settings.
#[derive(Clone, Debug, PartialEq)]
pub struct Policy {
    /// As they are written in `PYTORCH_ALLOC_CONF`; empty for the defaults.
    pub settings: String,
    /// Segments that grow.
    pub expandable_segments: bool,
    /// Blocks from here on are not split; `u64::MAX` where all are.
    pub max_split_bytes: u64,
    /// How much larger a block that is not split may be than the request.
    pub max_non_split_rounding_bytes: u64,
    /// Steps between powers of two that sizes are rounded up to, by range; 0 and 1 for none.
    pub roundup_power2_divisions: [u64; ROUNDING_RANGES],
    /// Share of what is allowed from which on old cached segments are given back; 0 for never.
    pub garbage_collection_threshold: f64,
    /// Share of the card that is allowed; `None` for all of it.
    pub memory_fraction: Option<f64>,
    /// Size of a segment that several requests of the large pool share.
    pub large_segment_bytes: u64,
    /// Which of several blocks of the same size is taken.
    pub ties: Ties,
}

/// Which of several blocks of the same size is taken. It is no setting: PyTorch's versions differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Ties {
    /// The one of the oldest segment, as in PyTorch 2.15.
    Segment,
    /// The one with the lowest address, as before.
    Address,
}

impl Default for Policy {
    fn default() -> Self {
        Policy {
            settings: String::new(),
            expandable_segments: false,
            max_split_bytes: u64::MAX,
            max_non_split_rounding_bytes: LARGE_SEGMENT,
            roundup_power2_divisions: [0; ROUNDING_RANGES],
            garbage_collection_threshold: 0.0,
            memory_fraction: None,
            large_segment_bytes: LARGE_SEGMENT,
            ties: Ties::Segment,
        }
    }
}

/// Why settings can't be followed.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum PolicyError {
    /// A name that PyTorch does not know either, or that changes nothing that is modelled.
    #[error("'{0}' is no setting of PyTorch's caching allocator that is modelled; known are {KNOWN}")]
    Unknown(String),
    /// A value that does not go with the name.
    #[error("'{value}' is no value for {name}: {wanted}")]
    Value {
        /// Setting.
        name: &'static str,
        /// What was given.
        value: String,
        /// What could be.
        wanted: &'static str,
    },
    /// Another allocator.
    #[error("backend:{0} is another allocator: its pools are the driver's, and this model says nothing about them")]
    Backend(String),
}

/// Settings that change what is modelled.
const KNOWN: &str = "expandable_segments, max_split_size_mb, max_non_split_rounding_mb, roundup_power2_divisions, \
                     garbage_collection_threshold, per_process_memory_fraction, large_segment_size_mb";
/// Settings that change nothing here beside those of pinned memory: locks, captures.
const WITHOUT_EFFECT: [&str; 4] = [
    "release_lock_on_cudamalloc",
    "release_lock_on_hipmalloc",
    "graph_capture_record_stream_reuse",
    "throw_on_cudamalloc_oom",
];

/// What PyTorch says of a size that is too small.
const LEAST_SPLIT: &str =
    "PyTorch takes no less than a large segment has: 20 (MiB), or large_segment_size_mb where that stands before it";

/// A number of MiB that PyTorch takes: its parser refuses less.
fn mebibytes(name: &'static str, value: &str, least: u64, wanted: &'static str) -> Result<u64, PolicyError> {
    let wrong = |wanted| PolicyError::Value { name, value: value.to_owned(), wanted };
    let form = || wrong("write a number of MiB, such as 128");
    let number: u64 = value.parse().map_err(|_| form())?;
    if number < least / MIB {
        return Err(wrong(wanted));
    }
    number.checked_mul(MIB).ok_or_else(form)
}

fn share(name: &'static str, value: &str) -> Result<f64, PolicyError> {
    let number: Option<f64> = value.parse().ok().filter(|share| (0.0..=1.0).contains(share));
    number.ok_or_else(|| PolicyError::Value { name, value: value.to_owned(), wanted: "write a share from 0 to 1" })
}

impl Policy {
    /// From the text of `PYTORCH_ALLOC_CONF`.
    pub fn parse(text: &str) -> Result<Self, PolicyError> {
        let mut policy = Policy { settings: text.trim().to_owned(), ..Policy::default() };
        let conf = AllocConf::parse(text);
        if let Some(part) = conf.malformed.first() {
            return Err(PolicyError::Unknown(part.clone()));
        }
        for setting in &conf.settings {
            policy.set(&setting.key, &setting.value)?;
        }
        Ok(policy)
    }

    fn set(&mut self, name: &str, value: &str) -> Result<(), PolicyError> {
        match name {
            "expandable_segments" => {
                self.expandable_segments = match value {
                    "True" => true,
                    "False" => false,
                    _ => {
                        let (name, wanted) = ("expandable_segments", "write True or False");
                        return Err(PolicyError::Value { name, value: value.to_owned(), wanted });
                    }
                }
            }
            "max_split_size_mb" => {
                let least = self.large_segment_bytes;
                self.max_split_bytes = mebibytes("max_split_size_mb", value, least, LEAST_SPLIT)?;
            }
            "max_non_split_rounding_mb" => {
                let least = self.large_segment_bytes;
                self.max_non_split_rounding_bytes = mebibytes("max_non_split_rounding_mb", value, least, LEAST_SPLIT)?;
            }
            "large_segment_size_mb" => {
                let (name, wanted) = ("large_segment_size_mb", "PyTorch takes more than 10 (MiB)");
                self.large_segment_bytes = mebibytes(name, value, OWN_SEGMENT + MIB, wanted)?;
            }
            "garbage_collection_threshold" => {
                let name = "garbage_collection_threshold";
                let share = share(name, value)?;
                if share == 0.0 || share == 1.0 {
                    let wanted = "PyTorch takes a share above 0 and below 1";
                    return Err(PolicyError::Value { name, value: value.to_owned(), wanted });
                }
                self.garbage_collection_threshold = share;
            }
            "per_process_memory_fraction" => self.memory_fraction = Some(share("per_process_memory_fraction", value)?),
            "roundup_power2_divisions" => self.set_divisions(value)?,
            "backend" if value != "native" => return Err(PolicyError::Backend(value.to_owned())),
            "backend" => {}
            _ if name.starts_with("pinned_") || WITHOUT_EFFECT.contains(&name) => {}
            _ => return Err(PolicyError::Unknown(name.to_owned())),
        }
        Ok(())
    }

    /// One number, or a list such as `[256:1,512:2,>:4]`: sizes in MiB, each with its number; `>` is all above.
    fn set_divisions(&mut self, value: &str) -> Result<(), PolicyError> {
        let wrong = || PolicyError::Value {
            name: "roundup_power2_divisions",
            value: value.to_owned(),
            wanted: "write a power of two, or a list such as [256:1,512:2,>:4]",
        };
        let power = |text: &str| text.trim().parse::<u64>().ok().filter(|number| number.is_power_of_two());
        let Some(list) = value.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) else {
            self.roundup_power2_divisions = [power(value).ok_or_else(wrong)?; ROUNDING_RANGES];
            return Ok(());
        };
        if list.is_empty() {
            return Ok(());
        }
        let mut last = None;
        for entry in list.split(',') {
            let (size, divisions) = entry.split_once(':').ok_or_else(wrong)?;
            // 0 is for no rounding there.
            let divisions = if divisions.trim() == "0" { 0 } else { power(divisions).ok_or_else(wrong)? };
            if size.trim() == ">" {
                let from = last.map_or(0, |last: usize| last + 1).min(ROUNDING_RANGES);
                self.roundup_power2_divisions[from..].fill(divisions);
                continue;
            }
            let range = power(size).ok_or_else(wrong)?.ilog2() as usize;
            if last.is_none() {
                self.roundup_power2_divisions[..range.min(ROUNDING_RANGES)].fill(divisions);
            }
            if let Some(slot) = self.roundup_power2_divisions.get_mut(range) {
                *slot = divisions;
            }
            last = Some(range);
        }
        Ok(())
    }

    /// The size of the block for a request.
    pub fn block_bytes(&self, requested: u64) -> u64 {
        if requested < MIN_BLOCK {
            return MIN_BLOCK;
        }
        let range = requested.ilog2().saturating_sub(MIB.ilog2()) as usize;
        let divisions = self.roundup_power2_divisions[range.min(ROUNDING_RANGES - 1)];
        if divisions > 1 && requested > MIN_BLOCK.saturating_mul(divisions) {
            return round_between_powers(requested, divisions);
        }
        requested.checked_next_multiple_of(MIN_BLOCK).unwrap_or(u64::MAX - (MIN_BLOCK - 1))
    }

    /// The size of the segment that a block of this size begins.
    pub fn segment_bytes(&self, block: u64) -> u64 {
        match block {
            _ if block <= SMALL => SMALL_SEGMENT,
            _ if block < OWN_SEGMENT => self.large_segment_bytes,
            _ => block.checked_next_multiple_of(ROUND_SEGMENT).unwrap_or(u64::MAX - (ROUND_SEGMENT - 1)),
        }
    }

    /// The unit in which expandable segments of a pool are mapped.
    pub fn mapping_bytes(&self, small: bool) -> u64 {
        if small { SMALL_SEGMENT } else { self.large_segment_bytes }
    }

    /// Whether a block is split when this much of it would remain.
    pub fn splits(&self, small: bool, wanted: u64, remaining: u64) -> bool {
        match small || self.expandable_segments {
            true => remaining >= MIN_BLOCK,
            false => wanted < self.max_split_bytes && remaining > SMALL,
        }
    }

    /// The least that may have been asked for where a block of this size was given: one that was not split may have more than that,
    /// and sizes are rounded up. `is_fresh`: its segment was taken for it. What is rounded to [`MIN_BLOCK`] is left as it is: every
    /// policy rounds to that.
    pub fn least_request(&self, block: u64, was_split: bool, is_fresh: bool) -> u64 {
        let spare = match block {
            _ if was_split || block <= SMALL || self.expandable_segments => 0,
            // A new segment has no more than its size is rounded up by.
            _ if block >= self.max_split_bytes && is_fresh => ROUND_SEGMENT - MIN_BLOCK,
            _ if block >= self.max_split_bytes => self.max_non_split_rounding_bytes.max(SMALL),
            _ => SMALL,
        };
        // What needs less goes to another pool, or to a segment that is shared.
        let smallest = if is_fresh && block >= OWN_SEGMENT { OWN_SEGMENT } else { SMALL + MIN_BLOCK };
        let least = if spare == 0 { block } else { block.saturating_sub(spare).max(smallest).min(block) };
        let rounds = self.roundup_power2_divisions.iter().any(|divisions| *divisions > 1);
        if rounds { self.least_rounded_to(least) } else { least }
    }

    /// The least multiple of [`MIN_BLOCK`] that is rounded up to at least this.
    fn least_rounded_to(&self, bytes: u64) -> u64 {
        let (mut low, mut high) = (1, (bytes / MIN_BLOCK).max(1));
        while low < high {
            let middle = low + (high - low) / 2;
            match self.block_bytes(middle.saturating_mul(MIN_BLOCK)) >= bytes {
                true => high = middle,
                false => low = middle + 1,
            }
        }
        high.saturating_mul(MIN_BLOCK).min(bytes)
    }

    /// Whether the pair is set that the catalogue warns of.
    pub fn is_expandable_with_max_split(&self) -> bool {
        self.expandable_segments && self.max_split_bytes != u64::MAX
    }

    /// Whether a threshold is set that never acts, because no share of the card is.
    pub fn has_inert_threshold(&self) -> bool {
        self.garbage_collection_threshold > 0.0 && self.memory_fraction.is_none()
    }
}

fn round_between_powers(size: u64, divisions: u64) -> u64 {
    let floor = 1u64 << size.ilog2();
    if floor == size {
        return size;
    }
    match floor >> divisions.ilog2() {
        0 => floor.saturating_mul(2),
        step => size.checked_next_multiple_of(step).unwrap_or(!(step - 1)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_without_settings() {
        let policy = Policy::default();
        assert_eq!([1, 512, 513, 5 * MIB + 1].map(|size| policy.block_bytes(size)), [512, 512, 1024, 5 * MIB + 512]);
        let segments = [512, MIB, MIB + 512, 10 * MIB - 512, 10 * MIB, 11 * MIB].map(|size| policy.segment_bytes(size));
        assert_eq!(segments, [2 * MIB, 2 * MIB, 20 * MIB, 20 * MIB, 10 * MIB, 12 * MIB]);
        assert_eq!(policy.block_bytes(u64::MAX) % MIN_BLOCK, 0);
    }

    /// The example of PyTorch's documentation: with 4 divisions 1200 is rounded to 1280.
    #[test]
    fn divisions_between_powers_of_two() {
        let policy = Policy::parse("roundup_power2_divisions:4").unwrap();
        assert_eq!(policy.block_bytes(1200 * MIB), 1280 * MIB);
        assert_eq!(policy.block_bytes(1024 * MIB), 1024 * MIB);
        assert_eq!(policy.block_bytes(1000), 1024);
        let policy = Policy::parse("roundup_power2_divisions:[64:8,128:2,256:4,>:1]").unwrap();
        assert_eq!(policy.roundup_power2_divisions, [8, 8, 8, 8, 8, 8, 8, 2, 4, 1, 1, 1, 1, 1, 1, 1]);
    }

    /// What was asked for lies between the least and the block, for every policy and size.
    #[test]
    fn a_block_stands_for_requests_down_to_the_least() {
        let texts = ["", "roundup_power2_divisions:4", "roundup_power2_divisions:[64:8,>:1]", "max_split_size_mb:30"];
        for policy in texts.map(|text| Policy::parse(text).unwrap()) {
            for requested in (1..200u64).flat_map(|number| [number * 512, number * 3 * 65_536, number * MIB - 5]) {
                let bytes = policy.block_bytes(requested);
                // Split off, with a rest that is not worth it, and as a segment of its own.
                let whole = policy.segment_bytes(bytes);
                let is_kept = !policy.splits(bytes <= SMALL, bytes, whole - bytes);
                for (block, was_split, is_fresh) in [(bytes, true, false), (bytes, false, false), (whole, false, true)]
                    .into_iter()
                    .take(2 + usize::from(is_kept))
                {
                    let least = policy.least_request(block, was_split, is_fresh);
                    let rounded = requested.next_multiple_of(MIN_BLOCK);
                    assert!(least <= rounded.min(block), "{policy:?} {requested} {block}");
                    assert!(block - least <= 20 * MIB || policy.roundup_power2_divisions[0] > 1);
                }
            }
        }
        let policy = Policy::default();
        assert_eq!(policy.least_request(512, false, true), 512);
        assert_eq!(policy.least_request(5 * MIB, true, false), 5 * MIB);
        assert_eq!(policy.least_request(5 * MIB, false, false), 4 * MIB);
        assert_eq!(
            (policy.least_request(10 * MIB, false, true), policy.least_request(12 * MIB, false, true)),
            (10 * MIB, 11 * MIB)
        );
    }

    #[test]
    fn settings_are_understood_or_named() {
        let policy = Policy::parse(" max_split_size_mb:20, garbage_collection_threshold:0.8,backend:native").unwrap();
        assert_eq!((policy.max_split_bytes, policy.garbage_collection_threshold), (20 * MIB, 0.8));
        let without_small = Policy::parse("roundup_power2_divisions:[64:0,>:2]").unwrap();
        assert_eq!(without_small.roundup_power2_divisions[5..8], [0, 0, 2]);
        assert!(policy.has_inert_threshold() && !policy.is_expandable_with_max_split());
        for text in [
            "expandable_segments:yes",
            "max_split_size_mb:-1",
            "max_split_size_mb:5",
            "max_split_size_mb:19",
            "max_non_split_rounding_mb:0",
            "garbage_collection_threshold:0",
            "garbage_collection_threshold:1",
            "roundup_power2_divisions:0",
            "large_segment_size_mb:10",
            "large_segment_size_mb:32,max_split_size_mb:30",
            "garbage_collection_threshold:2",
            "roundup_power2_divisions:3",
            "roundup_power2_divisions:[1:2",
            "backend:cudaMallocAsync",
            "max_split:3",
        ] {
            assert!(Policy::parse(text).is_err(), "{text}");
        }
    }
}
