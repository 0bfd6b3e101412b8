//! Which driver a descriptor belongs to: told by what is open, never by a path or by how it was opened.

use std::ffi::CString;
use std::fs;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};

use super::cache::Cache;
use crate::base::config::{self, Config};
use crate::base::guard;

/// Major numbers from Linux `Documentation/admin-guide/devices.txt`.
const DRM_MAJOR: u32 = 226;
const NVIDIA_MAJOR: u32 = 195;
/// How often the nodes are looked for again when a descriptor is of none: the driver may be loaded later.
const MAX_LOOKS: u32 = 8;

/// A driver's node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Node {
    Kfd,
    /// One of amdgpu's, by its minor number.
    Amdgpu(u32),
    Nvidia,
    /// NVIDIA's unified memory.
    Uvm,
}

/// What an open file is: the number of a device, or a file that stands in for one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Identity {
    Device(u64),
    File(u64, u64),
}

impl Identity {
    fn new(stat: &libc::stat) -> Self {
        match stat.st_mode & libc::S_IFMT {
            libc::S_IFCHR => Identity::Device(stat.st_rdev),
            _ => Identity::File(stat.st_dev, stat.st_ino),
        }
    }

    fn of_fd(fd: i32) -> Option<Self> {
        let errno = guard::errno();
        // SAFETY: all zero is a valid value; the call fills it.
        let mut stat = unsafe { std::mem::zeroed() };
        // SAFETY: any number may be asked about.
        let known = unsafe { libc::fstat(fd, &mut stat) } == 0;
        guard::set_errno(errno);
        known.then(|| Identity::new(&stat))
    }

    fn of_path(path: PathBuf) -> Option<Self> {
        let path = CString::new(path.into_os_string().into_vec()).ok()?;
        // SAFETY: all zero is a valid value; the call fills it.
        let mut stat = unsafe { std::mem::zeroed() };
        // SAFETY: a terminated path.
        (unsafe { libc::stat(path.as_ptr(), &mut stat) } == 0).then(|| Identity::new(&stat))
    }

    fn numbers(self) -> Option<(u32, u32)> {
        match self {
            Identity::Device(number) => Some((libc::major(number), libc::minor(number))),
            Identity::File(..) => None,
        }
    }
}

/// The nodes of this machine.
#[derive(Debug, Default)]
struct Nodes {
    kfd: Option<Identity>,
    /// amdgpu's nodes: minor number, and what lies at its path.
    amdgpu: Vec<(u32, Option<Identity>)>,
    /// Files that stand in for NVIDIA's nodes; real ones are known by their major number.
    nvidia: Vec<Identity>,
    /// Its major number differs from boot to boot.
    uvm: Option<Identity>,
}

static NODES: Cache<Nodes> = Cache::new();
static LOOKS: AtomicU32 = AtomicU32::new(0);

/// The node behind a descriptor, if it is one of ours.
pub(crate) fn of(fd: i32) -> Option<Node> {
    let identity = Identity::of_fd(fd)?;
    let look = || Nodes::find(config::get());
    let found = NODES.get(look)?.node(identity);
    if found.is_none() && LOOKS.load(Ordering::Relaxed) < MAX_LOOKS {
        LOOKS.fetch_add(1, Ordering::Relaxed);
        return NODES.renew(look)?.node(identity);
    }
    found
}

impl Nodes {
    fn find(config: &Config) -> Nodes {
        let at = |path: &str| Identity::of_path(config.system_path(path));
        let cards = amdgpu_names(config).into_iter();
        let nvidia = ["/dev/nvidiactl".to_owned()].into_iter().chain((0..16).map(|card| format!("/dev/nvidia{card}")));
        let is_file = |identity: &Identity| matches!(identity, Identity::File(..));
        Nodes {
            kfd: at("/dev/kfd"),
            amdgpu: cards.map(|(name, minor)| (minor, at(&format!("/dev/dri/{name}")))).collect(),
            nvidia: nvidia.filter_map(|path| at(&path)).filter(is_file).collect(),
            uvm: at("/dev/nvidia-uvm"),
        }
    }

    fn node(&self, identity: Identity) -> Option<Node> {
        if self.kfd == Some(identity) {
            return Some(Node::Kfd);
        }
        if self.uvm == Some(identity) {
            return Some(Node::Uvm);
        }
        if self.nvidia.contains(&identity) {
            return Some(Node::Nvidia);
        }
        let is_minor = |minor: u32| self.amdgpu.iter().any(|(known, _)| *known == minor);
        match identity.numbers() {
            Some((NVIDIA_MAJOR, _)) => Some(Node::Nvidia),
            Some((DRM_MAJOR, minor)) if is_minor(minor) => Some(Node::Amdgpu(minor)),
            _ => {
                let node = self.amdgpu.iter().find(|(_, at)| *at == Some(identity));
                node.map(|(minor, _)| Node::Amdgpu(*minor))
            }
        }
    }
}

/// Names and minor numbers of amdgpu's nodes (`card0`, `renderD128`), by the driver that sysfs names.
pub(crate) fn amdgpu_names(config: &Config) -> Vec<(String, u32)> {
    let Ok(entries) = fs::read_dir(config.system_path("/sys/class/drm")) else { return Vec::new() };
    let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    let numbered = names.filter_map(|name| {
        let digits = name.strip_prefix("renderD").or_else(|| name.strip_prefix("card"))?;
        let minor = digits.parse().ok()?;
        Some((name, minor))
    });
    let mut nodes: Vec<(String, u32)> =
        numbered.filter(|(name, _)| uevent(config, name).lines().any(|line| line == "DRIVER=amdgpu")).collect();
    nodes.sort_unstable_by_key(|(_, minor)| *minor);
    nodes
}

/// What sysfs says of the device behind a node.
pub(crate) fn uevent(config: &Config, name: &str) -> String {
    fs::read_to_string(config.system_path(&format!("/sys/class/drm/{name}/device/uevent"))).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::os::fd::AsRawFd;
    use std::path::Path;

    use super::*;

    fn tree(root: &Path) -> Config {
        fs::create_dir_all(root.join("dev/dri")).unwrap();
        for (name, driver) in [("card0", "amdgpu"), ("renderD128", "amdgpu"), ("renderD129", "i915")] {
            let device = root.join(format!("sys/class/drm/{name}/device"));
            fs::create_dir_all(&device).unwrap();
            fs::write(device.join("uevent"), format!("DRIVER={driver}\n")).unwrap();
            fs::write(root.join("dev/dri").join(name), "").unwrap();
        }
        fs::create_dir_all(root.join("sys/class/drm/card0-DP-1")).unwrap();
        for name in ["kfd", "nvidiactl", "nvidia0", "nvidia-uvm", "other"] {
            fs::write(root.join("dev").join(name), "").unwrap();
        }
        Config { sysroot: root.into(), ..Config::default() }
    }

    #[test]
    fn descriptors_are_known_by_what_they_are() {
        let directory = tempfile::tempdir().unwrap();
        let nodes = Nodes::find(&tree(directory.path()));
        let node = |path: &str| {
            let file = File::open(directory.path().join(path)).unwrap();
            let copy = file.try_clone().unwrap();
            drop(file);
            nodes.node(Identity::of_fd(copy.as_raw_fd()).unwrap())
        };
        assert_eq!(node("dev/kfd"), Some(Node::Kfd));
        assert_eq!(node("dev/dri/renderD128"), Some(Node::Amdgpu(128)));
        assert_eq!(node("dev/dri/card0"), Some(Node::Amdgpu(0)));
        assert_eq!(node("dev/dri/renderD129"), None);
        assert_eq!((node("dev/nvidiactl"), node("dev/nvidia0")), (Some(Node::Nvidia), Some(Node::Nvidia)));
        assert_eq!(node("dev/nvidia-uvm"), Some(Node::Uvm));
        assert_eq!(node("dev/other"), None);
    }

    #[test]
    fn real_nodes_are_known_by_their_numbers() {
        let nodes = Nodes { amdgpu: vec![(129, None)], ..Nodes::default() };
        let device = |major, minor| nodes.node(Identity::Device(libc::makedev(major, minor)));
        assert_eq!((device(226, 129), device(226, 128)), (Some(Node::Amdgpu(129)), None));
        assert_eq!((device(195, 255), device(195, 3), device(5, 0)), (Some(Node::Nvidia), Some(Node::Nvidia), None));
        assert_eq!(Identity::of_fd(-1), None);
        assert_eq!(nodes.node(Identity::File(0, 0)), None, "an absent node is nobody's");
    }
}
