//! Versions and programs, as far as the trace tells them: from the runtime's own number and from file names.

pub mod defects;
mod rocm;

use std::fmt;

use crate::judgement::check::Holds;

pub use rocm::Source as RocmSource;

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
    /// Reads the first numbers of a text such as `6.4.1-83`.
    pub fn parse(text: &str) -> Option<Self> {
        let patch = text.trim().split(['.', '-']).nth(2).and_then(|patch| patch.parse().ok());
        Some(Release { version: Version::parse(text)?, patch })
    }

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
const PROGRAMS: [(Program, &[&str]); 5] = [
    (Program::Torch, &["libtorch_hip", "libtorch_cuda", "libc10_hip", "libc10_cuda"]),
    (Program::LlamaCpp, &["libllama", "llama-addon"]),
    (Program::Ggml, &["libggml"]),
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
    /// ggml without llama.cpp: whisper.cpp, stable-diffusion.cpp, or a program that has llama.cpp linked in unseen. It has none of
    /// llama.cpp's options.
    Ggml,
    /// JAX.
    Jax,
    /// TensorFlow.
    TensorFlow,
}

/// The program itself.
#[derive(Clone, Copy, Debug)]
pub struct Executable<'a> {
    /// Its path.
    pub path: &'a str,
    /// Whether ggml may be linked into it: one of its functions that are on the way to a call is ggml's or llama.cpp's, or none has a
    /// name.
    pub is_ggml_possible: bool,
}

impl Executable<'_> {
    /// Whether it has a name such as llama.cpp's programs have. Any program may.
    pub fn is_named_as_llama(self) -> bool {
        let name = self.path.rsplit('/').next().unwrap_or_default();
        name.starts_with("llama-") || name.starts_with("llama_")
    }
}

/// First version of PyTorch whose ROCm builds have expandable segments.
pub const EXPANDABLE_ON_ROCM: Version = Version { major: 2, minor: 12 };

/// What runs, and in which versions.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Versions {
    /// ROCm or CUDA; `None` where the trace has neither.
    pub platform: Option<Platform>,
    /// Release of ROCm.
    pub rocm: Option<Version>,
    /// Its patch level, where the runtime's file name or directory tells it.
    pub rocm_patch: Option<u32>,
    /// What tells the release of ROCm.
    pub rocm_by: Option<RocmSource>,
    /// The number that the HIP runtime says, which is not ROCm's from ROCm 10 on.
    pub hip: Option<Version>,
    /// Version of CUDA by its runtime.
    pub cuda: Option<Version>,
    /// Version of PyTorch.
    pub torch: Option<Version>,
    /// HIP that PyTorch was built for (`torch.version.hip`).
    pub torch_hip: Option<Version>,
    /// The HIP runtimes that are loaded, by path.
    pub hip_runtimes: Vec<String>,
    /// What follows `libhsa-runtime64.so.` in the name of the HSA runtime's file, where that is more than the interface's number:
    /// `1.13.0`. Distributions put HIP and HSA of different releases together.
    pub hsa: Option<String>,
    /// Programs whose libraries are loaded.
    pub programs: Vec<Program>,
}

impl Versions {
    /// As a trace tells them. `runtimes` are the devices' runtimes with the versions that these report, `modules` the paths of
    /// all loaded libraries, `kept` the files that the recorder kept.
    pub fn of<'a>(
        runtimes: impl Iterator<Item = (&'a str, Option<i32>)> + Clone,
        executable: Executable<'_>,
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
        let has_ggml = || is_loaded(&["libggml"]) || executable.is_ggml_possible;
        let is_it = |program: Program| program == Program::LlamaCpp && executable.is_named_as_llama() && has_ggml();
        let runs = |(program, prefixes): &(Program, &[&str])| is_loaded(prefixes) || is_it(*program);
        let mut programs: Vec<Program> = PROGRAMS.iter().copied().filter(runs).map(|(program, _)| program).collect();
        if programs.contains(&Program::LlamaCpp) {
            programs.retain(|program| *program != Program::Ggml);
        }
        let torch = torch_file(kept);
        let mut hip_runtimes: Vec<String> =
            modules.clone().filter(|path| path.contains("/libamdhip64.so")).map(str::to_owned).collect();
        hip_runtimes.sort_unstable();
        hip_runtimes.dedup();
        let hip = runtime("hip").map(of_hip);
        let (rocm, rocm_by) = rocm::release(&hip_runtimes, hip, kept).unzip();
        let hsa = files().find_map(|file| file.strip_prefix("libhsa-runtime64.so."));
        Versions {
            platform,
            rocm: rocm.map(|release| release.version),
            rocm_patch: rocm.and_then(|release| release.patch),
            rocm_by,
            hip,
            cuda: runtime("cuda").map(of_cuda),
            torch: torch.and_then(|text| value_in(text, "__version__")).and_then(Version::parse),
            torch_hip: torch.and_then(|text| value_in(text, "hip")).and_then(Version::parse),
            hip_runtimes,
            hsa: hsa.filter(|version| version.contains('.')).map(str::to_owned),
            programs,
        }
    }

    /// The release of ROCm.
    pub fn release(&self) -> Option<Release> {
        self.rocm.map(|version| Release { version, patch: self.rocm_patch })
    }

    /// Frameworks in the process with their versions, ROCm's and its HSA runtime's, as people read them.
    pub fn words(&self) -> Vec<String> {
        let frameworks = self.programs.iter().map(|program| match (program, self.torch, self.torch_hip) {
            (Program::Torch, Some(torch), Some(hip)) => format!("PyTorch {torch} for HIP {hip}"),
            (Program::Torch, Some(torch), None) => format!("PyTorch {torch}"),
            (Program::Torch, None, _) => "PyTorch".to_owned(),
            (Program::LlamaCpp, ..) => "llama.cpp".to_owned(),
            (Program::Ggml, ..) => "ggml".to_owned(),
            (Program::Jax, ..) => "JAX".to_owned(),
            (Program::TensorFlow, ..) => "TensorFlow".to_owned(),
        });
        let hsa = self.hsa.as_ref().map(|version| format!("HSA runtime {version}"));
        frameworks.chain(self.rocm_words()).chain(hsa).collect()
    }

    /// ROCm and, where its number is another, HIP: `ROCm 10.0.0 (HIP 7.15)`.
    fn rocm_words(&self) -> Option<String> {
        let hip = self.hip.map(|hip| format!("HIP {hip}"));
        let Some(release) = self.release() else { return hip };
        let inferred = if self.rocm_by == Some(RocmSource::Inferred) { ", from which ROCm's is inferred" } else { "" };
        Some(match hip.filter(|_| self.hip != self.rocm) {
            Some(hip) => format!("ROCm {release} ({hip}{inferred})"),
            None => format!("ROCm {release}"),
        })
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_read_as_the_vendors_encode_them() {
        assert_eq!(of_hip(60_443_483), Version { major: 6, minor: 4 });
        assert_eq!(of_hip(50_221_153), Version { major: 5, minor: 2 });
        assert_eq!(of_cuda(13_000), Version { major: 13, minor: 0 });
        assert_eq!(of_cuda(12_040), Version { major: 12, minor: 4 });
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
    fn ggml_alone_is_not_llama_cpp() {
        let program = |path, is_ggml_possible, files: &[&str]| {
            let executable = Executable { path, is_ggml_possible };
            Versions::of(std::iter::empty(), executable, files.iter().copied(), &[]).words()
        };
        let of = |path, files: &[&str]| program(path, false, files);
        assert_eq!(of("/usr/bin/whisper-cli", &["/usr/lib/libwhisper.so.1", "/usr/lib/libggml-hip.so"]), ["ggml"]);
        assert_eq!(of("/usr/bin/python3", &["/x/libggml-base.so", "/x/libllama.so"]), ["llama.cpp"]);
        assert_eq!(of("/usr/bin/llama-server", &["/usr/lib/libggml-hip.so"]), ["llama.cpp"]);
        // By its name alone it may be anything.
        assert_eq!(of("/usr/bin/llama-server", &["/usr/lib/libc.so.6"]), [""; 0]);
        assert_eq!(program("/usr/bin/llama-server", true, &["/usr/lib/libc.so.6"]), ["llama.cpp"]);
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
    fn a_patch_level_decides_only_where_it_is_known() {
        let at = |patch| Release { version: Version { major: 6, minor: 4 }, patch };
        assert_eq!(at(Some(1)).is_at_least(at(Some(2))), Holds::No);
        assert_eq!(at(None).is_at_least(at(Some(0))), Holds::Yes);
        assert!(matches!(at(None).is_at_least(at(Some(2))), Holds::Unknown(_)));
        assert_eq!(Release::parse("6.4.1-83\n"), Some(at(Some(1))));
        assert_eq!(Release::parse("6.4"), Some(at(None)));
    }

    #[test]
    fn the_hsa_runtime_is_named_by_its_file() {
        let words = |module: &str| {
            let executable = Executable { path: "/bin/x", is_ggml_possible: false };
            Versions::of([("hip", Some(50_731_921))].into_iter(), executable, [module].into_iter(), &[]).words()
        };
        assert_eq!(words("/usr/lib/libhsa-runtime64.so.1.13.0"), ["ROCm 5.7", "HSA runtime 1.13.0"]);
        assert_eq!(words("/usr/lib/libhsa-runtime64.so.1"), ["ROCm 5.7"]);
    }

    #[test]
    fn rocm_10_is_named_apart_from_its_hip() {
        let words = |hip: i32, kept: &[(String, String)]| {
            let module = "/opt/rocm/core-10.0/lib/libamdhip64.so.7";
            let executable = Executable { path: "/bin/x", is_ggml_possible: false };
            Versions::of([("hip", Some(hip))].into_iter(), executable, [module].into_iter(), kept).words()
        };
        let kept = [("/opt/rocm/core-10.0/.info/version".to_owned(), "10.0.0-31\n".to_owned())];
        assert_eq!(words(71_526_333, &kept), ["ROCm 10.0.0 (HIP 7.15)"]);
        assert_eq!(words(71_600_001, &[]), ["ROCm 10.1 (HIP 7.16, from which ROCm's is inferred)"]);
        assert_eq!(words(70_200_001, &[]), ["ROCm 7.2"]);
        assert_eq!(words(80_000_000, &[]), ["HIP 8.0"]);
    }
}
