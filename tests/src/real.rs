//! Real clients: software that this project did not write, installed and built by `scripts/real-clients`.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use crate::artefacts::{sim_dir, target_dir};
use crate::run::{Client, Finished};

/// Set by `scripts/test --all`: a client that is not there is a failure and not a skip.
const REQUIRED: &str = "REAL_CLIENTS_REQUIRED";

/// Set by `scripts/torch-versions`: the environment of another PyTorch, with the libraries that it wants in `cuda/lib`.
const OTHER_TORCH: &str = "GPUOOM_TEST_TORCH";

/// Set by `scripts/llama-versions`: the folder of another node-llama-cpp, with the libraries that it wants in `cuda/lib`.
const OTHER_LLAMA: &str = "GPUOOM_TEST_LLAMA";

/// Where the stubs of NVIDIA's libraries say that they were called, in the directory of the run.
const STUB_LOG: &str = "stubs.log";

/// Where `scripts/real-clients build` puts what it builds.
pub fn real_clients_dir() -> PathBuf {
    target_dir().join("real-clients")
}

fn is_ready(name: &str, needed: &[&str]) -> bool {
    let missing = needed.iter().find(|path| !real_clients_dir().join(path).exists());
    let Some(missing) = missing else { return true };
    let what = format!("{name} is not built ({missing} is missing)");
    let family = name.split('/').next().unwrap_or(name);
    let is_excused = real_clients_dir().join(format!("{family}.cannot-be-had")).exists();
    assert!(std::env::var_os(REQUIRED).is_none() || is_excused, "{what}: run scripts/real-clients install && build");
    eprintln!("skipped: {what}: scripts/real-clients install, scripts/real-clients build");
    false
}

/// A client on Debian's real HIP over the simulated thunk, which logs to `thunk.log` in the run's directory. `None`, said
/// on stderr, where it is not built.
pub fn rocm_client(name: &str) -> Option<Client> {
    let dir = real_clients_dir();
    is_ready(name, &[name, "thunk/libhsakmt.so.1"]).then(|| {
        let client = Client::new(dir.join(name)).env("SIMTHUNK_LOG", "thunk.log");
        client.env("LD_LIBRARY_PATH", dir.join("thunk"))
    })
}

/// A release of ROCm that runs over the simulated card.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RocmRelease {
    /// This machine's own, of Debian 12, with the thunk that came with it.
    V5_2,
    /// Of Debian 13, with a thunk of its own.
    V5_7,
    /// Of Debian sid: the thunk is part of HSA's runtime.
    V6_4,
}

impl RocmRelease {
    /// All of them, the oldest first.
    pub const ALL: [RocmRelease; 3] = [RocmRelease::V5_2, RocmRelease::V5_7, RocmRelease::V6_4];

    /// Its number.
    pub fn number(self) -> &'static str {
        match self {
            RocmRelease::V5_2 => "5.2.3",
            RocmRelease::V5_7 => "5.7.1",
            RocmRelease::V6_4 => "6.4.3",
        }
    }

    /// The root tree that it is in, by its name in `target/real-clients/rocm6`.
    fn tree(self) -> &'static str {
        match self {
            RocmRelease::V5_2 => "/",
            RocmRelease::V5_7 => "5.7",
            RocmRelease::V6_4 => "6.4",
        }
    }
}

/// Programs of the zoo that run on every release of ROCm, and end the same way each time. `few_mappings` does not: where the last mapping
/// is gone, HIP and HSA end the process by a signal or an exception, or return an error, by which of their own requests came last.
pub const ZOO_ON_ROCM: &[&str] = &[
    "address_reuse",
    "bad_frees",
    "device_reset",
    "eight_threads",
    "huge_sizes",
    "many",
    "pools",
    "threads_leave",
    "vfork_exec",
    "vmm_outlives_handle",
    "waits",
    "who_allocates",
];

/// A client on a release of ROCm over the simulated card of `tests/sim/amdgpu`, which logs to the run's truth: in a root tree
/// of its own, where the card's files are. `None`, said on stderr, where it is not built.
pub fn rocm_on_card(release: RocmRelease, name: &str) -> Option<Client> {
    let tree = release.tree();
    let (program, complete) = (format!("rocm6/bin/{name}"), format!("rocm6/{tree}.complete"));
    let complete = if release == RocmRelease::V5_2 { "/usr" } else { &complete };
    if !is_ready(&format!("rocm6/{tree}/{name}"), &[&program, complete, "rocm6/sim/enter"]) {
        return None;
    }
    let dir = resolved_clients_dir();
    // Programs are linked to HIP 5 or to HIP 6.
    let other_name = if release == RocmRelease::V6_4 { "rocm6/lib" } else { "rocm6/lib5" };
    Some(enter_tree(release).arg(dir.join(program)).env("LD_LIBRARY_PATH", dir.join(other_name)))
}

/// Folders are bound at their own places, so links that lead out of them lead nowhere.
fn resolved_clients_dir() -> PathBuf {
    real_clients_dir().canonicalize().expect("a folder that is there")
}

/// A program of `tests/clients/vulkan` with Mesa's Vulkan over the simulated card, which logs to the run's truth. `None`, said on
/// stderr, where it is not built.
pub fn vulkan_client(name: &str) -> Option<Client> {
    let program = format!("vulkan/{name}");
    is_ready(&program, &[&program, "vulkan/mesa.complete", "rocm6/sim/enter"]).then(|| {
        let dir = resolved_clients_dir();
        let client = enter(&dir.join("vulkan/mesa")).arg(dir.join(program));
        let client = client.env("VK_DRIVER_FILES", "/usr/share/vulkan/icd.d/radeon_icd.json");
        // Its cache would lie in the home of whoever runs this.
        client.env("MESA_SHADER_CACHE_DISABLE", "true")
    })
}

/// What enters a release's root tree on the simulated card. What it starts there is the next argument.
fn enter_tree(release: RocmRelease) -> Client {
    enter(&resolved_clients_dir().join("rocm6").join(release.tree()))
}

/// The same for any root tree.
fn enter(tree: &Path) -> Client {
    let clients = resolved_clients_dir();
    let dir = clients.join("rocm6");
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the repository").to_owned();
    let bound = std::env::join_paths([sources, target_dir(), clients, std::env::temp_dir()]);
    let client = Client::new(dir.join("sim/enter")).arg(tree).arg(dir.join("mount"));
    let client = client.preload_by("SIM_PRELOAD").preload(dir.join("sim/libsimcard.so"));
    // Kernels do nothing: copies have to go by the copy engine.
    client.env("SIM_BIND", bound.expect("paths without colons")).env("GPU_FORCE_BLIT_COPY_SIZE", "0")
}

fn on_simulated_cuda(client: Client, libraries: &Path) -> Client {
    client.env("LD_LIBRARY_PATH", libraries).env("SIM_STUB_LOG", STUB_LOG)
}

/// A program of `tests/clients/bindings` with the Python packages of that set (`hip`, `cuda11`, ...) over the simulated HIP or CUDA.
/// `None`, said on stderr, where they are not installed.
pub fn bindings_client(set: &str, program: &str) -> Option<Client> {
    let name = format!("bindings/{set}");
    is_ready(&name, &[&format!("{name}/.requirements"), "bindings/python/bin/python"]).then(|| {
        let dir = real_clients_dir().join("bindings");
        let client = Client::new(dir.join("python/bin/python")).arg(clients_dir().join("bindings").join(program));
        let client = client.env("PYTHONPATH", dir.join(set)).env("PYTHONDONTWRITEBYTECODE", "1");
        client.env("LD_LIBRARY_PATH", sim_dir())
    })
}

/// A program of `tests/clients/bindings` on HIP Python and ROCm 6.4.3 over the simulated card, with a Python of the same Debian.
pub fn hip_python_on_card(program: &str) -> Option<Client> {
    let needed =
        ["bindings/hip-newer/.requirements", "bindings/debian.complete", "rocm6/6.4.complete", "rocm6/sim/enter"];
    is_ready("bindings/hip-real", &needed).then(|| {
        let dir = resolved_clients_dir().join("bindings");
        let client = enter_tree(RocmRelease::V6_4).arg(dir.join("debian/usr/bin/python3"));
        let client = client.arg(clients_dir().join("bindings").join(program));
        let client = client.env("PYTHONHOME", dir.join("debian/usr")).env("PYTHONPATH", dir.join("hip-newer"));
        client.env("PYTHONDONTWRITEBYTECODE", "1").env("LD_LIBRARY_PATH", dir.join("lib"))
    })
}

fn clients_dir() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("clients")
}

/// A program of `tests/clients/torch` on PyTorch's own wheel over the simulated CUDA. `None`, said on stderr, where
/// PyTorch is not installed.
pub fn torch_client(program: &str) -> Option<Client> {
    let other = std::env::var_os(OTHER_TORCH).map(PathBuf::from);
    let is_ready = other.is_some() || is_ready("torch", &["torch/.imported", "cuda/lib/libcuda.so.1"]);
    is_ready.then(|| {
        let libraries = other.clone().unwrap_or_else(real_clients_dir).join("cuda/lib");
        let python = other.unwrap_or_else(|| real_clients_dir().join("torch")).join("bin/python");
        let client = Client::new(python).arg(clients_dir().join("torch").join(program));
        // PyTorch's own warnings carry the time, so that no two runs would print the same.
        on_simulated_cuda(client, &libraries).env("TORCH_CPP_LOG_LEVEL", "ERROR").env("PYTHONDONTWRITEBYTECODE", "1")
    })
}

/// `tests/clients/llama_cuda` with llama.cpp's prebuilt CUDA backend over the simulated CUDA. `None`, said on stderr, where
/// it is not installed.
pub fn llama_cuda_client() -> Option<Client> {
    let other = std::env::var_os(OTHER_LLAMA).map(PathBuf::from);
    let needed = ["llama_cuda/.package-lock.json", "llama.gguf", "cuda/lib/libcuda.so.1"];
    let is_ready =
        if other.is_some() { is_ready("llama_cuda", &needed[1..2]) } else { is_ready("llama_cuda", &needed) };
    is_ready.then(|| {
        let dir = real_clients_dir();
        let client = Client::new("node").arg(clients_dir().join("llama_cuda/run.mjs"));
        let client = client.arg(other.clone().unwrap_or_else(|| dir.join("llama_cuda"))).arg(dir.join("llama.gguf"));
        on_simulated_cuda(client, &other.unwrap_or(dir).join("cuda/lib"))
    })
}

/// The functions of NVIDIA's libraries that the run called although nothing stands behind their names.
pub fn stubs_called(run: &Finished) -> BTreeSet<String> {
    let log = fs::read_to_string(run.cwd().join(STUB_LOG)).unwrap_or_default();
    log.lines().map(str::to_owned).collect()
}
