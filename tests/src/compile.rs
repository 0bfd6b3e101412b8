//! Compiles clients at test time into `target/zoo`. What is newer than its sources stays; several test processes may
//! want the same program at once.

use std::ffi::OsString;
use std::fs::{self, File};
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::SystemTime;

use crate::artefacts::{sim_dir, target_dir, zoo_headers, zoo_source};

/// What a client is linked to.
#[derive(Clone, Copy, PartialEq)]
pub enum Library {
    /// Nothing: it loads what it needs itself, or needs nothing.
    None,
    /// The simulated `libamdhip64.so.6`.
    Hip,
    /// The same once more, under the bare name that PyTorch's wheels bundle it with.
    HipBundled,
    /// The simulated `libcudart.so.12`, which has its device in itself.
    Cuda,
    /// The simulated driver, `libcuda.so.1`.
    CudaDriver,
    /// The simulated `libcudart.so.13`, which finds the driver by itself.
    CudaOverDriver,
    /// Both of them.
    CudaAndDriver,
    /// The same runtime, linked into the program.
    CudaStatic,
    /// The simulated `libhsa-runtime64.so.1`.
    Hsa,
    /// The libraries that make handles.
    Handles,
    /// The simulated HIP and `libroctx64.so.4`.
    Roctx,
}

/// A program of the zoo, linked to the simulated HIP.
pub fn program(source: &str) -> PathBuf {
    program_with(source, Library::Hip)
}

/// A program of the zoo that is not linked to any GPU library.
pub fn plain_program(source: &str) -> PathBuf {
    program_with(source, Library::None)
}

/// A program of the zoo, linked to that library.
pub fn program_with(source: &str, library: Library) -> PathBuf {
    build(source, library, &stem(source), &[])
}

/// Another build of a program of the zoo, linked to the simulated HIP: with that macro, in a file with its name behind.
pub fn program_build(source: &str, macro_name: &str) -> PathBuf {
    let output = format!("{}-{}", stem(source), macro_name.to_lowercase());
    build(source, Library::Hip, &output, &[&format!("-D{macro_name}")])
}

/// The same as a program that is not position-independent.
pub fn program_at_fixed_place(source: &str) -> PathBuf {
    build(source, Library::Hip, &format!("{}-fixed", stem(source)), &["-fno-pie", "-no-pie"])
}

/// The plugin half of a source that has one: a shared object, compiled with `-DPLUGIN`.
pub fn plugin(source: &str, library: Library) -> PathBuf {
    let suffix = if library == Library::HipBundled { "bundled.so" } else { "so" };
    build(source, library, &format!("{}.{suffix}", stem(source)), &["-DPLUGIN", "-shared", "-fPIC"])
}

fn stem(source: &str) -> String {
    Path::new(source).file_stem().expect("a file name").to_string_lossy().into_owned()
}

fn beside(output: &Path, extension: &str) -> PathBuf {
    let mut path = output.as_os_str().to_owned();
    path.push(".");
    path.push(extension);
    path.into()
}

fn link_arguments(library: Library) -> Vec<OsString> {
    let (dir, names): (_, &[&str]) = match library {
        Library::None => return Vec::new(),
        Library::Hip => (sim_dir().to_path_buf(), &["-l:libamdhip64.so.6"]),
        Library::HipBundled => (sim_dir().join("bundle"), &["-l:libamdhip64.so"]),
        Library::Cuda => (sim_dir().to_path_buf(), &["-l:libcudart.so.12"]),
        Library::CudaDriver => (sim_dir().to_path_buf(), &["-l:libcuda.so.1"]),
        // The runtime's own search for the driver follows the program's path only if that one is of the old kind.
        Library::CudaOverDriver => (sim_dir().to_path_buf(), &["-l:libcudart.so.13", "-Wl,--disable-new-dtags"]),
        Library::CudaAndDriver => {
            (sim_dir().to_path_buf(), &["-l:libcudart.so.13", "-l:libcuda.so.1", "-Wl,--disable-new-dtags"])
        }
        Library::CudaStatic => (sim_dir().to_path_buf(), &["-l:libcudart_static.a", "-ldl"]),
        Library::Hsa => (sim_dir().to_path_buf(), &["-l:libhsa-runtime64.so.1"]),
        Library::Roctx => (sim_dir().to_path_buf(), &["-l:libamdhip64.so.6", "-l:libroctx64.so.4"]),
        Library::Handles => (sim_dir().to_path_buf(), HANDLE_LIBRARIES),
    };
    let mut rpath = OsString::from("-Wl,-rpath,");
    rpath.push(&dir);
    let mut search = OsString::from("-L");
    search.push(&dir);
    [search, rpath].into_iter().chain(names.iter().map(OsString::from)).collect()
}

const HANDLE_LIBRARIES: &[&str] =
    &["-l:libhipblas.so.2", "-l:librocblas.so.4", "-l:libMIOpen.so.1", "-l:libcublas.so.13", "-l:libcudnn.so.9"];

fn build(source: &str, library: Library, output: &str, flags: &[&str]) -> PathBuf {
    let source = zoo_source(source);
    let dir = target_dir().join("zoo");
    fs::create_dir_all(&dir).expect("target/zoo");
    let output = dir.join(output);
    let is_cpp = source.extension().is_some_and(|extension| extension == "cpp");
    let mut command = Command::new(if is_cpp { "c++" } else { "cc" });
    // -Wno-unused-result: ignoring what a call returns is the very subject of some clients.
    command.args(["-O1", "-g", "-Wall", "-Wextra", "-Wno-unused-result", "-pthread"]).args(flags).arg(&source);
    command.args(link_arguments(library));

    let _guard = lock(&beside(&output, "lock"));
    let recipe = format!("{command:?}");
    let recipe_file = beside(&output, "cmd");
    if is_fresh(&output, &source) && fs::read_to_string(&recipe_file).is_ok_and(|old| old == recipe) {
        return output;
    }
    // Beside its place and renamed into it: a test that runs the old one meanwhile keeps it.
    let fresh = beside(&output, "new");
    let status = command.arg("-o").arg(&fresh).status().expect("a C compiler");
    assert!(status.success(), "{recipe}: {status}");
    fs::rename(&fresh, &output).expect("the compiled client");
    fs::write(&recipe_file, recipe).expect("the recipe of the client");
    output
}

/// Copies a program to a place of its own. By another process: while this one had the copy open for writing, another
/// test's thread could fork, and the copy could not be run (`ETXTBSY`) until that child has left the descriptor behind.
///
/// # Panics
///
/// Where it can't be copied.
pub fn copy_program(from: &Path, to: &Path) {
    let status = Command::new("cp").args([from, to]).status().expect("cp");
    assert!(status.success(), "cp {} {}: {status}", from.display(), to.display());
}

/// Held until dropped: the lock goes with the descriptor.
fn lock(path: &Path) -> File {
    let file = File::create(path).expect("a lock file");
    // SAFETY: flock on a descriptor that `file` owns and keeps open.
    let status = unsafe { libc::flock(file.as_raw_fd(), libc::LOCK_EX) };
    assert_eq!(status, 0, "flock {}", path.display());
    file
}

fn is_fresh(output: &Path, source: &Path) -> bool {
    let changed = |path: &Path| fs::metadata(path).and_then(|data| data.modified()).unwrap_or(SystemTime::UNIX_EPOCH);
    let newest_input = zoo_headers().iter().map(|header| changed(header)).chain([changed(source)]).max();
    output.exists() && newest_input.is_some_and(|newest| newest < changed(output))
}
