//! Where the things under test lie.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// `target/<profile>`: test binaries lie in its `deps`.
fn profile_dir() -> PathBuf {
    let exe = std::env::current_exe().expect("the test binary's own path");
    let dir = exe.parent().expect("the test binary's directory");
    let dir = if dir.ends_with("deps") { dir.parent().expect("a profile above deps") } else { dir };
    dir.to_path_buf()
}

/// `target`, for what the tests build themselves.
pub(crate) fn target_dir() -> PathBuf {
    profile_dir().parent().expect("a target directory above the profile").to_path_buf()
}

fn artefact(name: &str) -> PathBuf {
    let path = profile_dir().join(name);
    assert!(
        path.exists(),
        "{} is missing: build the whole workspace first (cargo build --workspace, with --release if the tests have it)",
        path.display()
    );
    path
}

/// The recorder, `libgpuoom.so`, of the profile that the tests run in.
pub fn recorder() -> PathBuf {
    artefact("libgpuoom.so")
}

/// The analyzer, `gpuoom-analyze`, of the same profile.
pub fn analyzer() -> PathBuf {
    artefact("gpuoom-analyze")
}

fn tests_dir() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// The sources of the stand-in for the kernel's drivers.
pub(crate) fn sim_kernel_source() -> PathBuf {
    tests_dir().join("sim/kfd")
}

/// The files of a machine, by the name of its folder in `analyzer/tests/roots`.
pub fn machine_root(name: &str) -> PathBuf {
    let root = tests_dir().join("../analyzer/tests/roots").join(name);
    assert!(root.is_dir(), "no machine {name}");
    root
}

/// A source file of the zoo; `../demo/...` reaches the demo.
pub fn zoo_source(name: &str) -> PathBuf {
    tests_dir().join("clients/zoo").join(name)
}

/// Every file below `tests/clients/zoo` that programs include.
pub(crate) fn zoo_headers() -> Vec<PathBuf> {
    let entries = std::fs::read_dir(tests_dir().join("clients/zoo")).expect("the zoo");
    let paths = entries.map(|entry| entry.expect("a zoo entry").path());
    paths.filter(|path| path.extension().is_some_and(|extension| extension == "h")).collect()
}

/// The simulated runtime libraries, built on the first call of each test process.
pub fn sim_dir() -> &'static Path {
    static DIR: OnceLock<PathBuf> = OnceLock::new();
    DIR.get_or_init(|| {
        let dir = target_dir().join("sim");
        let status = Command::new(tests_dir().join("sim/build")).arg(&dir).status().expect("sh, for tests/sim/build");
        assert!(status.success(), "tests/sim/build failed: {status}");
        dir
    })
}
