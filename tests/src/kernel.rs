//! The stand-in for the kernel's GPU drivers: a library below the recorder, and a directory with device files and sysfs.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use tempfile::TempDir;

use crate::artefacts::{sim_kernel_source, target_dir};
use crate::run::Client;

/// The library, built on the first call of each test process.
fn library() -> &'static Path {
    static LIBRARY: OnceLock<PathBuf> = OnceLock::new();
    LIBRARY.get_or_init(|| {
        let dir = target_dir().join("sim");
        let status = Command::new(sim_kernel_source().join("build")).arg(&dir).status().expect("sh, for the build");
        assert!(status.success(), "tests/sim/kfd/build failed: {status}");
        dir.join("libsimkernel.so")
    })
}

/// A machine with cards of two makers: its files, and who answers for them.
pub struct SimKernel {
    root: TempDir,
    cards: u32,
    nvidia_version: Option<String>,
}

impl SimKernel {
    /// So many AMD cards (KFD's numbers 0x5A00, 0x5B11, ...), and NVIDIA's nodes.
    pub fn new(cards: u32) -> Self {
        let root = TempDir::new().expect("a scratch directory");
        let kernel = SimKernel { root, cards, nvidia_version: None };
        for node in ["kfd", "nvidiactl", "nvidia0", "nvidia-uvm"] {
            kernel.write(&format!("dev/{node}"), "");
        }
        kernel.write("sys/class/kfd/kfd/topology/nodes/0/gpu_id", "0\n");
        for card in 0..cards {
            let node = format!("sys/class/kfd/kfd/topology/nodes/{}", card + 1);
            kernel.write(&format!("{node}/gpu_id"), &format!("{}\n", 0x5A00 + card * 0x111));
            kernel.write(&format!("{node}/properties"), &format!("drm_render_minor {}\n", 128 + card));
            for name in [format!("renderD{}", 128 + card), format!("card{card}")] {
                kernel.write(&format!("dev/dri/{name}"), "");
                let uevent = format!("DRIVER=amdgpu\nPCI_SLOT_NAME=0000:{card:02x}:00.0\n");
                kernel.write(&format!("sys/class/drm/{name}/device/uevent"), &uevent);
            }
        }
        kernel
    }

    /// NVIDIA's driver of this version (`535.54.03`): some of its structures depend on it.
    pub fn nvidia_version(mut self, version: &str) -> Self {
        self.nvidia_version = Some(version.to_owned());
        self.write("sys/module/nvidia_uvm/version", &format!("{version}\n"));
        self
    }

    fn write(&self, path: &str, text: &str) {
        let path = self.root.path().join(path);
        fs::create_dir_all(path.parent().expect("below the root")).expect("a directory below the root");
        fs::write(path, text).expect("a file below the root");
    }

    /// Lets a client run on this machine.
    pub fn client(&self, client: Client) -> Client {
        let client = match &self.nvidia_version {
            Some(version) => client.env("SIM_NVIDIA_VERSION", version),
            None => client,
        };
        client
            .preload(library())
            .env("SIM_ROOT", self.root.path())
            .env("SIM_DEVICES", self.cards.to_string())
            .env("GPUOOM_SYSROOT", self.root.path())
    }
}
