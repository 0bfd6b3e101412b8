//! Which release of ROCm runs. Until ROCm 7.14 its HIP had the same number; ROCm 10.0 brings HIP 7.15. So the runtime's own
//! number is the last thing that is asked.

use super::{Release, Version, value_in};

/// What tells the release of ROCm, the surest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// `.info/version` of the directory that the loaded runtime lies in.
    Installed,
    /// `torch.version.rocm` of the PyTorch that the loaded runtime came with.
    Torch,
    /// The file name of the loaded runtime.
    FileName,
    /// The number of HIP, of releases for which both are known.
    Hip,
    /// The number of HIP, counted on from the last release for which both are known.
    Inferred,
}

/// The last HIP that had ROCm's number, and the first one of ROCm 10. (ROCm/rocm-systems `projects/clr/CHANGELOG.md`: "HIP
/// 10.0.0 for ROCm 10.0.0"; the runtime of ROCm 10.0.0 says 7.15.26333)
const SAME_NUMBER_UNTIL: Version = Version::new(7, 14);
const OF_ROCM_10: Version = Version::new(7, 15);

/// The release of ROCm that the loaded runtime is of. `runtimes` are the paths of the loaded HIP runtimes, `hip` the number
/// that the runtime says, `kept` the files that the recorder kept.
pub(super) fn release(
    runtimes: &[String],
    hip: Option<Version>,
    kept: &[(String, String)],
) -> Option<(Release, Source)> {
    let found = |of: &dyn Fn(&str) -> Option<Release>| runtimes.iter().find_map(|path| of(path));
    let by_hip = || {
        let (version, source) = by_hip(hip?)?;
        Some((Release { version, patch: None }, source))
    };
    found(&|path| installed(path, kept))
        .map(|release| (release, Source::Installed))
        .or_else(|| Some((found(&|path| with_torch(path, hip, kept))?, Source::Torch)))
        .or_else(|| Some((found(&by_file_name)?, Source::FileName)))
        .or_else(by_hip)
}

/// `.info/version` of the innermost directory that a library lies below: `6.4.1-83`.
fn installed(library: &str, kept: &[(String, String)]) -> Option<Release> {
    let below = kept.iter().filter_map(|(path, text)| {
        let directory = path.strip_suffix(".info/version")?;
        library.starts_with(directory).then_some((directory.len(), text))
    });
    let (_, text) = below.max_by_key(|(depth, _)| *depth)?;
    Release::parse(text)
}

/// `torch.version.rocm`, where the runtime lies in the same `site-packages` (in PyTorch's own directory, or in that of the
/// package `rocm-sdk`) and says the number of HIP that this PyTorch was built for: the package may be of another release.
/// (PyTorch `tools/generate_torch_version.py`, from 2.10 on)
fn with_torch(library: &str, hip: Option<Version>, kept: &[(String, String)]) -> Option<Release> {
    let (path, text) = kept.iter().find(|(path, _)| path.ends_with(super::TORCH_VERSION))?;
    let packages = path.strip_suffix(super::TORCH_VERSION)?;
    let is_beside = library.strip_prefix(packages).is_some_and(|rest| rest.starts_with('/'));
    let is_its_own = is_beside && hip.is_some() && value_in(text, "hip").and_then(Version::parse) == hip;
    is_its_own.then(|| value_in(text, "rocm").and_then(Release::parse))?
}

/// `libamdhip64.so.6.4.60403`: the last number is major, minor and patch of ROCm with two digits each. Distributions put HIP's
/// own patch level there (`5.2.21153`), which says nothing about ROCm's: it does not repeat the first two numbers.
fn by_file_name(path: &str) -> Option<Release> {
    let file = path.rsplit('/').next()?;
    let mut parts = file.strip_prefix("libamdhip64.so.")?.split('.').map(str::parse::<u32>);
    let (major, minor, number) = (parts.next()?.ok()?, parts.next()?.ok()?, parts.next()?.ok()?);
    let repeats = number / 10_000 == major && number / 100 % 100 == minor;
    repeats.then_some(Release { version: Version { major, minor }, patch: Some(number % 100) })
}

fn by_hip(hip: Version) -> Option<(Version, Source)> {
    match hip {
        hip if hip <= SAME_NUMBER_UNTIL => Some((hip, Source::Hip)),
        OF_ROCM_10 => Some((Version::new(10, 0), Source::Hip)),
        Version { major: 7, minor } => Some((Version::new(10, minor - OF_ROCM_10.minor), Source::Inferred)),
        // What numbers a later HIP will have, nobody knows today.
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(library: &str, hip: (u32, u32), kept: &[(&str, &str)]) -> Option<(String, Source)> {
        let kept: Vec<_> = kept.iter().map(|(path, text)| ((*path).to_owned(), (*text).to_owned())).collect();
        let found = release(&[library.to_owned()], Some(Version::new(hip.0, hip.1)), &kept)?;
        Some((found.0.to_string(), found.1))
    }

    fn is(text: &str, source: Source) -> Option<(String, Source)> {
        Some((text.to_owned(), source))
    }

    #[test]
    fn the_installed_version_counts_first_and_the_innermost_directory() {
        let kept = [("/opt/rocm/.info/version", "7.2.4-1\n"), ("/opt/rocm/core-10.0/.info/version", "10.0.0-31\n")];
        let library = "/opt/rocm/core-10.0/lib/libamdhip64.so.7.15.26333";
        assert_eq!(of(library, (7, 15), &kept), is("10.0.0", Source::Installed));
        assert_eq!(of("/opt/rocm/lib/libamdhip64.so.7", (7, 2), &kept), is("7.2.4", Source::Installed));
        assert_eq!(of("/usr/lib/libamdhip64.so.7", (7, 2), &kept), is("7.2", Source::Hip), "another one is loaded");
    }

    #[test]
    fn pytorchs_number_counts_for_the_runtime_that_it_came_with() {
        let kept =
            [("/v/site-packages/torch/version.py", "hip: Optional[str] = '7.16.1'\nrocm: Optional[str] = '10.1.0'\n")];
        let own = ["/v/site-packages/torch/lib/libamdhip64.so", "/v/site-packages/_rocm_sdk_core/lib/libamdhip64.so.7"];
        for library in own {
            assert_eq!(of(library, (7, 16), &kept), is("10.1.0", Source::Torch), "{library}");
        }
        assert_eq!(of("/opt/rocm/lib/libamdhip64.so.7", (7, 15), &kept), is("10.0", Source::Hip));
        assert_eq!(of(own[1], (7, 15), &kept), is("10.0", Source::Hip), "the package is of another release");
        let old = [("/v/site-packages/torch/version.py", "hip: Optional[str] = '6.4.43482'\n")];
        assert_eq!(of(own[0], (6, 4), &old), is("6.4", Source::Hip));
    }

    #[test]
    fn file_names_tell_the_patch_level_where_it_is_rocms() {
        assert_eq!(of("/x/libamdhip64.so.6.4.60403", (6, 4), &[]), is("6.4.3", Source::FileName));
        assert_eq!(of("/x/libamdhip64.so.5.2.21153", (5, 2), &[]), is("5.2", Source::Hip), "Debian's number is HIP's");
        assert_eq!(of("/x/libamdhip64.so.7.15.26333", (7, 15), &[]), is("10.0", Source::Hip));
    }

    #[test]
    fn hips_number_is_rocms_up_to_7_14() {
        assert_eq!(of("/x/libamdhip64.so.7", (7, 14), &[]), is("7.14", Source::Hip));
        assert_eq!(of("/x/libamdhip64.so.7", (7, 15), &[]), is("10.0", Source::Hip));
        assert_eq!(of("/x/libamdhip64.so.7", (7, 17), &[]), is("10.2", Source::Inferred));
        assert_eq!(of("/x/libamdhip64.so.8", (8, 0), &[]), None);
        assert_eq!(release(&[], None, &[]), None);
    }
}
