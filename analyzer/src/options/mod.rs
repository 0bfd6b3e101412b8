//! PyTorch's allocator options: which variable wins, what its text says, and what of it takes effect, by version.
//! Sources: pytorch/pytorch `c10/core/AllocatorConfig.cpp`, `c10/cuda/CUDAAllocatorConfig.cpp`,
//! `c10/cuda/CUDACachingAllocator.cpp`, `docs/source/notes/hip.rst`, and the pull requests named beside the rules.

pub mod effect;
pub mod parse;

#[cfg(test)]
mod tests;

use serde::Serialize;

use crate::software::{Platform, Version};

/// The three names, in the order in which a torch that knows all of them looks: the first that is set counts, even where it
/// is empty. (Tried with the CUDA wheels of 2.10 to 2.15: `_snapshot()["allocator_settings"]` with each name set to another value.)
pub const VARIABLES: [&str; 3] = ["PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_HIP_ALLOC_CONF", COMMON_NAME];
/// The name for all backends.
const COMMON_NAME: &str = "PYTORCH_ALLOC_CONF";
/// Variables that turn PyTorch's cache off, whatever the options say.
pub const NO_CACHING: [&str; 2] = ["PYTORCH_NO_HIP_MEMORY_CACHING", "PYTORCH_NO_CUDA_MEMORY_CACHING"];

/// First torch that reads the common name: the wheel of 2.9.1 ignores it (tried; pytorch/pytorch#183387).
const COMMON_NAME_SINCE: Version = Version::new(2, 10);
/// First torch for which the common name is the one to print.
const COMMON_NAME_PRINTED_SINCE: Version = Version::new(2, 12);

/// For whom options are judged; what is `None` is not known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Setup {
    /// What PyTorch computes on.
    pub platform: Option<Platform>,
    /// Version of PyTorch.
    pub torch: Option<Version>,
    /// Version of ROCm.
    pub rocm: Option<Version>,
}

/// The variable that counts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Chosen {
    /// Its name.
    pub variable: &'static str,
    /// Its text.
    pub text: String,
    /// Others that are set and say something else, but are not looked at; they are not merged.
    pub ignored: Vec<&'static str>,
    /// Whether this holds for every version that the setup allows.
    pub is_certain: bool,
}

/// The variable that a program with this environment obeys; `None` when none is set.
pub fn choose<'a>(lookup: impl Fn(&str) -> Option<&'a str>, setup: Setup) -> Option<Chosen> {
    let set: Vec<(&'static str, &str)> = VARIABLES
        .into_iter()
        .filter_map(|name| Some((name, lookup(name)?)))
        .filter(|(name, _)| reads(name, setup))
        .collect();
    let (variable, text) = *set.first()?;
    let others = set.iter().skip(1).filter(|(_, other)| other.trim() != text.trim());
    let ignored: Vec<_> = others.map(|(name, _)| *name).collect();
    // Without the version nobody knows whether the common name is known at all; before it, on ROCm, who of the old two is first
    // was not tried.
    let is_certain = ignored.is_empty() && (variable != COMMON_NAME || setup.torch.is_some())
        || setup.torch.is_some_and(|torch| torch >= COMMON_NAME_SINCE);
    Some(Chosen { variable, text: text.to_owned(), ignored, is_certain })
}

/// Whether some version that the setup allows reads this variable.
fn reads(variable: &str, setup: Setup) -> bool {
    let known = setup.torch.is_none_or(|torch| torch >= COMMON_NAME_SINCE);
    match variable {
        COMMON_NAME => known,
        // A CUDA build before the common name knows nothing of HIP's.
        "PYTORCH_HIP_ALLOC_CONF" => setup.platform != Some(Platform::Cuda) || known,
        _ => true,
    }
}

/// The variable to set: one that counts already, as a later name would be ignored beside it; else the backend's own name up to
/// torch 2.11, the common one from 2.12. Without a version: the backend's own, which every version reads.
pub fn variable_to_set(chosen: Option<&Chosen>, setup: Setup) -> &'static str {
    if let Some(chosen) = chosen {
        return chosen.variable;
    }
    if setup.torch.is_some_and(|torch| torch >= COMMON_NAME_PRINTED_SINCE) {
        return COMMON_NAME;
    }
    match setup.platform {
        Some(Platform::Rocm) => "PYTORCH_HIP_ALLOC_CONF",
        _ => "PYTORCH_CUDA_ALLOC_CONF",
    }
}
