//! What an option does in a given setup.

use serde::Serialize;

use super::Setup;
use super::parse::{AllocConf, KEYS, meant};
use crate::software::{Platform, Version};

/// First torch in which ROCm has expandable segments (pull requests 173330, 177974), and the ROCm that it takes (179781).
pub const ROCM_EXPANDABLE_SINCE: (Version, Version) = (Version::new(2, 12), Version::new(7, 0));
/// First torch in which the pair of options lets the reserved memory grow to the whole card (issue 193400).
const PAIR_GROWS_SINCE: Version = Version::new(2, 12);
/// The ROCm on which a live allocation was seen to read zeros with the pair (ROCm/ROCm#6603).
const PAIR_READS_ZEROS: Version = Version::new(7, 14);
/// First ROCm whose asynchronous allocator is not refused memory that the card has.
pub const ASYNC_SOUND_SINCE: Version = Version::new(7, 0);

/// What comes of an option.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Effect {
    /// It does what it says.
    Works,
    /// It may or may not do something: the version decides, and is not known.
    DependsOnVersion,
    /// It is read and does nothing.
    NoEffect,
    /// PyTorch stops with an error.
    Refused,
    /// It can do harm.
    Harmful,
}

/// A judgement about one option, or about two together.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Judgement {
    /// The option as it is written.
    pub option: String,
    /// What comes of it.
    pub effect: Effect,
    /// Why, as half a sentence; empty for what works.
    pub why: String,
    /// The catalogue's entry about it.
    pub diagnosis: Option<&'static str>,
}

/// Judges each option, in the order of the text.
pub fn judge(conf: &AllocConf, setup: Setup) -> Vec<Judgement> {
    let malformed = conf.malformed.iter().map(|part| Judgement {
        option: part.clone(),
        effect: Effect::Refused,
        why: "is no key:value".into(),
        diagnosis: None,
    });
    let settings = conf.settings.iter().map(|setting| {
        let (effect, why, diagnosis) = one(conf, &setting.key, &setting.value, setup);
        Judgement { option: format!("{}:{}", setting.key, setting.value), effect, why, diagnosis }
    });
    settings.chain(malformed).collect()
}

type Verdict = (Effect, String, Option<&'static str>);

fn works() -> Verdict {
    (Effect::Works, String::new(), None)
}

fn one(conf: &AllocConf, key: &str, value: &str, setup: Setup) -> Verdict {
    if !KEYS.contains(&key) {
        let hint = meant(key, KEYS).map_or(String::new(), |name| format!("; {name} is meant?"));
        return (Effect::Refused, format!("no version of PyTorch known here has this option{hint}"), None);
    }
    if conf.is_async() && key != "backend" && !key.starts_with("pinned_") {
        return (Effect::NoEffect, "belongs to PyTorch's own allocator, and another one is asked for".into(), None);
    }
    match key {
        "expandable_segments" => expandable(value, setup),
        "max_split_size_mb" => max_split(conf, value, setup),
        "garbage_collection_threshold" if conf.get("per_process_memory_fraction").is_none() => (
            Effect::NoEffect,
            "acts only when the program sets a memory fraction (torch.cuda.set_per_process_memory_fraction)".into(),
            None,
        ),
        "backend" => backend(value, setup),
        _ => works(),
    }
}

fn expandable(value: &str, setup: Setup) -> Verdict {
    const IGNORED: Option<&str> = Some("expandable-ignored");
    let (torch, rocm) = ROCM_EXPANDABLE_SINCE;
    match (value, setup) {
        ("True", Setup { platform: Some(Platform::Cuda), .. }) | ("False", _) => works(),
        ("True", Setup { torch: Some(version), platform: Some(Platform::Rocm), .. }) if version < torch => (
            Effect::NoEffect,
            "PyTorch's own wheels for ROCm have it from 2.12 (some of AMD's builds from 2.9 on): before, it is ignored \
             with a warning"
                .into(),
            IGNORED,
        ),
        ("True", Setup { rocm: Some(version), platform: Some(Platform::Rocm), .. }) if version < rocm => {
            (Effect::NoEffect, "it takes ROCm 7.0.2 or newer".into(), IGNORED)
        }
        // Its patch level decides.
        ("True", Setup { rocm: Some(version), platform: Some(Platform::Rocm), .. }) if version == rocm => {
            (Effect::DependsOnVersion, "it takes ROCm 7.0.2 or newer".into(), IGNORED)
        }
        ("True", Setup { torch: Some(_), rocm: Some(_), .. }) => works(),
        ("True", _) => (
            Effect::DependsOnVersion,
            "on ROCm it takes torch 2.12 and ROCm 7.0.2 or newer; before, it is ignored with a warning".into(),
            IGNORED,
        ),
        _ => (Effect::Refused, "takes True or False, with a capital letter".into(), None),
    }
}

fn max_split(conf: &AllocConf, value: &str, setup: Setup) -> Verdict {
    const PAIR: Option<&str> = Some("expandable-with-max-split");
    match value.parse::<u64>() {
        Err(_) => return (Effect::Refused, "takes a whole number of MiB".into(), None),
        // Half of the smallest large block; older versions say "too small" and stop.
        Ok(number) if number < 20 => return (Effect::Refused, "must be at least 20 (MiB)".into(), None),
        Ok(_) => {}
    }
    if !conf.is_on("expandable_segments") {
        return works();
    }
    if setup.rocm == Some(PAIR_READS_ZEROS) {
        let why = "with expandable_segments:True memory in use was seen to read zeros on ROCm 7.14 (ROCm/ROCm#6603)";
        return (Effect::Harmful, why.into(), PAIR);
    }
    match setup.torch {
        Some(torch) if torch < PAIR_GROWS_SINCE && setup.platform == Some(Platform::Cuda) => {
            (Effect::NoEffect, "with expandable_segments:True the split size is not looked at".into(), PAIR)
        }
        Some(torch) if torch < PAIR_GROWS_SINCE => works(),
        _ => (
            Effect::Harmful,
            "with expandable_segments:True the split size is not looked at, and from torch 2.12 the reserved memory \
             grows to the whole card (pytorch#193400); on ROCm 7.14 memory in use was seen to read zeros \
             (ROCm/ROCm#6603)"
                .into(),
            PAIR,
        ),
    }
}

fn backend(value: &str, setup: Setup) -> Verdict {
    match value {
        "native" => works(),
        "cudaMallocAsync" | "hipMallocAsync" => match (setup.platform, setup.rocm) {
            (Some(Platform::Rocm), Some(rocm)) if rocm < ASYNC_SOUND_SINCE => (
                Effect::Harmful,
                "before ROCm 7.0 hipMallocAsync can run out of memory where hipMalloc would not".into(),
                Some("mallocasync-oom"),
            ),
            _ => works(),
        },
        _ => (Effect::Refused, "takes native, cudaMallocAsync or (on ROCm) hipMallocAsync".into(), None),
    }
}
