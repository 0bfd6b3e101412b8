//! A small library that is compiled for a test.

use std::path::{Path, PathBuf};
use std::process::Command;

use gpuoom_trace::metadata::Module;
use tempfile::TempDir;

use super::elf::Elf;

/// Two functions that call each other, one of which is inlined into its caller.
const SOURCE: &str = "\
static inline __attribute__((always_inline)) int inner(int value) {
    return work(value) + 1;
}
__attribute__((noinline)) static int middle(int value) {
    return inner(value) * 2;
}
__attribute__((noinline)) int outer(int value) {
    return middle(value) + 3;
}
";

/// A library that was made for one test.
pub(crate) struct Library {
    /// Where its source and file are.
    pub(crate) directory: TempDir,
    /// Its file.
    pub(crate) path: PathBuf,
    /// Its build id in hexadecimal.
    pub(crate) build_id: String,
}

/// Runs a tool of the compiler's.
pub(crate) fn run(program: &str, arguments: &[&str]) {
    let status = Command::new(program).args(arguments).status().unwrap();
    assert!(status.success(), "{program} {arguments:?}");
}

/// A path as text.
pub(crate) fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

impl Library {
    /// Compiles [`SOURCE`] after `before`, with these options.
    pub(crate) fn compile(before: &str, options: &[&str]) -> Library {
        let directory = tempfile::tempdir().unwrap();
        let source = directory.path().join("layers.c");
        let work = "__attribute__((noinline)) int work(int value) { __asm__(\"\"); return value; }\n";
        std::fs::write(&source, format!("{before}{work}{SOURCE}")).unwrap();
        let path = directory.path().join("liblayers.so.1.2");
        let fixed = ["-O1", "-shared", "-fPIC", "-Wl,--build-id=sha1", "-o", text(&path), text(&source)];
        run("cc", &[&fixed[..], options].concat());
        let build_id = Elf::open(&path).unwrap().build_id;
        Library { directory, path, build_id }
    }

    /// It as the trace of a program that has loaded it says.
    pub(crate) fn module(&self) -> Module {
        let (start, end) = (0x7f00_0000_0000, 0x7f00_0010_0000);
        let path = text(&self.path).to_owned();
        Module { path, build_id: self.build_id.clone(), start, end, vendor: false }
    }

    /// The address behind the first call in a function, as a program that has loaded the library would record it.
    pub(crate) fn return_address_in(&self, function: &str) -> u64 {
        let listing = Command::new("objdump").args(["-d", "--no-show-raw-insn", text(&self.path)]).output().unwrap();
        let listing = String::from_utf8(listing.stdout).unwrap();
        let lines = listing.lines().skip_while(|line| !line.ends_with(&format!("<{function}>:")));
        let mut lines = lines.skip_while(|line| !line.contains("call"));
        lines.next().unwrap();
        let next = lines.next().unwrap().trim().split(':').next().unwrap();
        self.module().start + u64::from_str_radix(next, 16).unwrap()
    }

    /// Takes symbols out of it.
    pub(crate) fn strip(&self, options: &[&str]) {
        run("strip", &[options, &[text(&self.path)]].concat());
    }
}
