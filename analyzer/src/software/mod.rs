//! Versions and programs, as far as the trace tells them: from the runtime's own number and from file names.

use std::fmt;

use crate::judgement::check::Holds;

/// Major and minor number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Version {
    /// Major.
    pub major: u32,
    /// Minor.
    pub minor: u32,
}

impl Version {
    /// These numbers.
    pub const fn new(major: u32, minor: u32) -> Self {
        Version { major, minor }
    }

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

/// A version with its patch level, where that is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Release {
    /// Major and minor.
    pub version: Version,
    /// Patch level.
    pub patch: Option<u32>,
}

impl Release {
    /// Whether it is this release or a later one.
    pub fn is_at_least(self, other: Release) -> Holds {
        match (self.patch, other.patch) {
            _ if self.version != other.version => (self.version > other.version).into(),
            (_, None | Some(0)) => Holds::Yes,
            (Some(own), Some(least)) => (own >= least).into(),
            (None, _) => Holds::Unknown("the patch level of the runtime"),
        }
    }
}

impl fmt::Display for Release {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}", self.version)?;
        self.patch.map_or(Ok(()), |patch| write!(formatter, ".{patch}"))
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
    /// Its patch level, where the runtime's file name or directory tells it.
    pub rocm_patch: Option<u32>,
    /// Version of CUDA by its runtime.
    pub cuda: Option<Version>,
    /// Version of PyTorch.
    pub torch: Option<Version>,
    /// ROCm that PyTorch was built for (`torch.version.hip`).
    pub torch_rocm: Option<Version>,
    /// The HIP runtimes that are loaded, by path.
    pub hip_runtimes: Vec<String>,
    /// Programs whose libraries are loaded.
    pub programs: Vec<Program>,
}

impl Versions {
    /// As a trace tells them. `runtimes` are the devices' runtimes with the versions that these report, `modules` the paths of
    /// all loaded libraries, `kept` the files that the recorder kept.
    pub fn of<'a>(
        runtimes: impl Iterator<Item = (&'a str, Option<i32>)> + Clone,
        executable: &str,
        modules: impl Iterator<Item = &'a str> + Clone,
        kept: &[(String, String)],
    ) -> Self {
        let has = |name: &str| runtimes.clone().any(|(other, _)| other == name);
        let runtime = |name: &str| {
            let (_, version) = runtimes.clone().find(|(other, _)| *other == name)?;
            version.and_then(|number| u32::try_from(number).ok())
        };
        let files = || modules.clone().map(|path| path.rsplit('/').next().unwrap_or(path));
        let platform = match (has("hip"), has("cuda")) {
            (true, _) => Some(Platform::Rocm),
            (_, true) => Some(Platform::Cuda),
            _ => by_libraries(files()),
        };
        let is_loaded = |prefixes: &[&str]| files().any(|file| prefixes.iter().any(|prefix| file.starts_with(prefix)));
        // llama.cpp is often linked into its programs as a whole.
        let executable = executable.rsplit('/').next().unwrap_or_default();
        let is_it = |program: Program| {
            program == Program::LlamaCpp && (executable.starts_with("llama-") || executable.starts_with("llama_"))
        };
        let programs = PROGRAMS.iter().filter(|(program, prefixes)| is_loaded(prefixes) || is_it(*program));
        let torch = torch_file(kept);
        let hips = || modules.clone().filter(|path| path.contains("/libamdhip64.so"));
        let rocm = runtime("hip").map(of_hip).or_else(|| files().find_map(of_library));
        let mut hip_runtimes: Vec<String> = hips().map(str::to_owned).collect();
        hip_runtimes.sort_unstable();
        hip_runtimes.dedup();
        Versions {
            platform,
            rocm,
            rocm_patch: files().find_map(patch_of_library).or_else(|| hips().find_map(|path| patch_of(path, kept))),
            cuda: runtime("cuda").map(of_cuda),
            torch: torch.and_then(|text| value_in(text, "__version__")).and_then(Version::parse),
            torch_rocm: torch.and_then(|text| value_in(text, "hip")).and_then(Version::parse),
            hip_runtimes,
            programs: programs.map(|(program, _)| *program).collect(),
        }
    }

    /// The release of ROCm.
    pub fn release(&self) -> Option<Release> {
        self.rocm.map(|version| Release { version, patch: self.rocm_patch })
    }

    /// Frameworks in the process with their versions, and ROCm's, as people read them.
    pub fn words(&self) -> Vec<String> {
        let frameworks = self.programs.iter().map(|program| match (program, self.torch, self.torch_rocm) {
            (Program::Torch, Some(torch), Some(rocm)) => format!("PyTorch {torch} for ROCm {rocm}"),
            (Program::Torch, Some(torch), None) => format!("PyTorch {torch}"),
            (Program::Torch, None, _) => "PyTorch".to_owned(),
            (Program::LlamaCpp, ..) => "llama.cpp".to_owned(),
            (Program::Jax, ..) => "JAX".to_owned(),
            (Program::TensorFlow, ..) => "TensorFlow".to_owned(),
        });
        let rocm = self.rocm.map(|version| match self.rocm_patch {
            Some(patch) => format!("ROCm {version}.{patch}"),
            None => format!("ROCm {version}"),
        });
        frameworks.chain(rocm).collect()
    }

    /// Whether a program's libraries are loaded.
    pub fn has(&self, program: Program) -> bool {
        self.programs.contains(&program)
    }
}

/// Where no runtime was asked (a program that only has host memory, or was too short for it), its libraries tell, if they are
/// of one vendor.
fn by_libraries<'a>(files: impl Iterator<Item = &'a str> + Clone) -> Option<Platform> {
    let has = |names: [&str; 2]| files.clone().any(|file| names.iter().any(|name| file.starts_with(name)));
    match (has(["libamdhip64.so", "libhsa-runtime64.so"]), has(["libcudart.so", "libcuda.so"])) {
        (true, false) => Some(Platform::Rocm),
        (false, true) => Some(Platform::Cuda),
        _ => None,
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

/// Where PyTorch keeps its version, below the directory that it is installed in.
const TORCH_VERSION: &str = "/torch/version.py";

fn torch_file(kept: &[(String, String)]) -> Option<&str> {
    kept.iter().find(|(path, _)| path.ends_with(TORCH_VERSION)).map(|(_, text)| text.as_str())
}

/// PyTorch's whole version, such as `2.15.0+cu132`, by the files that the recorder kept.
pub fn torch_version(kept: &[(String, String)]) -> Option<&str> {
    value_in(torch_file(kept)?, "__version__")
}

/// What a Python file sets a name to: `hip: Optional[str] = '6.4.43482'`. (PyTorch tools/generate_torch_version.py)
fn value_in<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    let line = text.lines().find(|line| {
        let rest = line.strip_prefix(name);
        rest.is_some_and(|rest| rest.starts_with([' ', ':', '=']))
    })?;
    let value = line.split_once('=')?.1.trim();
    value.strip_prefix(['\'', '"'])?.split(['\'', '"']).next()
}

/// The patch level in a library's file name, see [`of_library`].
fn patch_of_library(file: &str) -> Option<u32> {
    of_library(file)?;
    file.rsplit('.').next()?.parse::<u32>().ok().map(|number| number % 100)
}

/// The patch level of the ROCm below whose directory a library lies: `6.4.1-83` in its `.info/version`.
fn patch_of(library: &str, kept: &[(String, String)]) -> Option<u32> {
    let of = |(path, text): &(String, String)| {
        let directory = path.strip_suffix(".info/version")?;
        library.starts_with(directory).then(|| text.split(['.', '-']).nth(2)?.trim().parse().ok())?
    };
    kept.iter().find_map(of)
}

/// `libamdhip64.so.6.4.60403`: the last number is major, minor and patch of ROCm with two digits each. Distributions put HIP's
/// own patch level there (`5.2.21153`), which says nothing about ROCm's: it does not repeat the first two numbers.
fn of_library(file: &str) -> Option<Version> {
    let mut parts = file.strip_prefix("libamdhip64.so.")?.split('.').map(str::parse::<u32>);
    let (major, minor, number) = (parts.next()?.ok()?, parts.next()?.ok()?, parts.next()?.ok()?);
    (number / 10_000 == major && number / 100 % 100 == minor).then_some(Version { major, minor })
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

    #[test]
    fn libraries_tell_the_vendor_where_no_runtime_was_asked() {
        let of = |files: &[&str]| by_libraries(files.iter().copied());
        assert_eq!(of(&["libc.so.6", "libamdhip64.so.7"]), Some(Platform::Rocm));
        assert_eq!(of(&["libcuda.so.1"]), Some(Platform::Cuda));
        assert_eq!(of(&["libcudart.so.12", "libamdhip64.so.6"]), None);
        assert_eq!(of(&["libc.so.6"]), None);
    }

    #[test]
    fn pytorch_says_what_it_was_built_for() {
        let text = "__all__ = ['__version__', 'hip']\n__version__ = '2.15.0+rocm7.0'\ncuda: Optional[str] = None\n\
                    hip: Optional[str] = '7.0.51831-a3e329ad8'\n";
        assert_eq!(value_in(text, "__version__"), Some("2.15.0+rocm7.0"));
        assert_eq!(value_in(text, "hip").and_then(Version::parse), Some(Version { major: 7, minor: 0 }));
        assert_eq!((value_in(text, "cuda"), value_in(text, "rocm")), (None, None));
    }

    #[test]
    fn patch_levels_come_from_file_names_and_directories() {
        let kept = [("/opt/rocm-6.4.1/.info/version".to_owned(), "6.4.1-83\n".to_owned())];
        assert_eq!(patch_of("/opt/rocm-6.4.1/lib/libamdhip64.so.6", &kept), Some(1));
        assert_eq!(patch_of("/usr/lib/libamdhip64.so.6", &kept), None);
        assert_eq!(patch_of_library("libamdhip64.so.6.4.60403"), Some(3));
        assert_eq!(patch_of_library("libamdhip64.so.5.2.21153"), None, "Debian's number is HIP's");
        let at = |patch| Release { version: Version { major: 6, minor: 4 }, patch };
        assert_eq!(at(Some(1)).is_at_least(at(Some(2))), Holds::No);
        assert_eq!(at(None).is_at_least(at(Some(0))), Holds::Yes);
        assert!(matches!(at(None).is_at_least(at(Some(2))), Holds::Unknown(_)));
    }
}
