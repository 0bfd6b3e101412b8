//! Versions and programs, as far as the trace tells them: from the runtime's own number and from file names.

use std::fmt;

use crate::passes::summary::Summary;

/// Major and minor number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Version {
    /// Major.
    pub major: u32,
    /// Minor.
    pub minor: u32,
}

impl Version {
    /// Reads the first two numbers of a text such as `2.15.0+rocm7.0`.
    pub fn parse(text: &str) -> Option<Self> {
        let mut parts = text.split(|c: char| !c.is_ascii_digit());
        Some(Version { major: parts.next()?.parse().ok()?, minor: parts.next().unwrap_or("0").parse().unwrap_or(0) })
    }
}

impl fmt::Display for Version {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}.{}", self.major, self.minor)
    }
}

/// Whose runtime a device belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Platform {
    /// HIP on ROCm.
    Rocm,
    /// CUDA.
    Cuda,
}

impl Platform {
    /// As catalogue entries spell it.
    pub fn name(self) -> &'static str {
        match self {
            Platform::Rocm => "rocm",
            Platform::Cuda => "cuda",
        }
    }
}

/// A program or framework whose libraries are in the process: name, and how the file names of its libraries begin.
const PROGRAMS: [(Program, &[&str]); 4] = [
    (Program::Torch, &["libtorch_hip", "libtorch_cuda", "libc10_hip", "libc10_cuda"]),
    (Program::LlamaCpp, &["libggml", "libllama", "llama-addon"]),
    (Program::Jax, &["libjax", "xla_extension", "xla_rocm_plugin", "xla_cuda_plugin"]),
    (Program::TensorFlow, &["libtensorflow"]),
];

/// A program or framework with options of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Program {
    /// PyTorch.
    Torch,
    /// llama.cpp and what is built on it.
    LlamaCpp,
    /// JAX.
    Jax,
    /// TensorFlow.
    TensorFlow,
}

/// What runs, and in which versions.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Versions {
    /// ROCm or CUDA; `None` where the trace has neither.
    pub platform: Option<Platform>,
    /// Version of ROCm by its HIP runtime.
    pub rocm: Option<Version>,
    /// Version of CUDA by its runtime.
    pub cuda: Option<Version>,
    /// Version of PyTorch.
    pub torch: Option<Version>,
    /// Programs whose libraries are loaded.
    pub programs: Vec<Program>,
}

impl Versions {
    /// As a trace tells them. `modules` are the paths of all loaded libraries.
    pub fn of<'a>(summary: &Summary, modules: impl Iterator<Item = &'a str> + Clone) -> Self {
        let runtime = |name: &str| {
            let device = summary.devices.iter().find(|device| device.runtime.as_deref() == Some(name))?;
            device.runtime_version.and_then(|number| u32::try_from(number).ok())
        };
        let has = |name: &str| summary.devices.iter().any(|device| device.runtime.as_deref() == Some(name));
        let files = || modules.clone().map(|path| path.rsplit('/').next().unwrap_or(path));
        let platform = match (has("hip"), has("cuda")) {
            (true, _) => Some(Platform::Rocm),
            (_, true) => Some(Platform::Cuda),
            _ => None,
        };
        let is_loaded = |prefixes: &[&str]| files().any(|file| prefixes.iter().any(|prefix| file.starts_with(prefix)));
        Versions {
            platform,
            rocm: runtime("hip").map(of_hip).or_else(|| files().find_map(of_library)),
            cuda: runtime("cuda").map(of_cuda),
            torch: None,
            programs: PROGRAMS
                .iter()
                .filter(|(_, prefixes)| is_loaded(prefixes))
                .map(|(program, _)| *program)
                .collect(),
        }
    }

    /// Whether a program's libraries are loaded.
    pub fn has(&self, program: Program) -> bool {
        self.programs.contains(&program)
    }
}

/// `hipRuntimeGetVersion`: major · 10,000,000 + minor · 100,000 + patch. (ROCm/HIP hip_version.h)
fn of_hip(number: u32) -> Version {
    Version { major: number / 10_000_000, minor: number / 100_000 % 100 }
}

/// `cudaRuntimeGetVersion`: major · 1000 + minor · 10. (CUDA runtime API)
fn of_cuda(number: u32) -> Version {
    Version { major: number / 1000, minor: number % 1000 / 10 }
}

/// `libamdhip64.so.6.4.60403`: the last number is major, minor and patch of ROCm with two digits each.
fn of_library(file: &str) -> Option<Version> {
    let number: u32 = file.strip_prefix("libamdhip64.so.")?.rsplit('.').next()?.parse().ok()?;
    (number >= 10_000).then_some(Version { major: number / 10_000, minor: number / 100 % 100 })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_read_as_the_vendors_encode_them() {
        assert_eq!(of_hip(60_443_483), Version { major: 6, minor: 4 });
        assert_eq!(of_hip(50_221_153), Version { major: 5, minor: 2 });
        assert_eq!(of_cuda(13_000), Version { major: 13, minor: 0 });
        assert_eq!(of_cuda(12_040), Version { major: 12, minor: 4 });
        assert_eq!(of_library("libamdhip64.so.6.4.60403"), Some(Version { major: 6, minor: 4 }));
        assert_eq!(of_library("libamdhip64.so.6"), None);
        assert_eq!(Version::parse("2.15.0+rocm7.0"), Some(Version { major: 2, minor: 15 }));
        assert_eq!(Version::parse("nightly"), None);
    }
}
