//! Reading the listed files, with bounds: a machine may have thousands of processes, and a directory that was given for
//! a machine may hold anything.

use std::fs::{self, File};
use std::io::{ErrorKind, Read};
use std::path::{Path, PathBuf};

use crate::files::{CGROUP, CGROUP_V1, GROUPS, Group, Keep, PARAMETERS, PROCESSES, Place};

/// Files that are kept.
pub const MAX_FILES: usize = 1024;
/// Bytes that are read of one file.
pub const MAX_FILE_BYTES: u64 = 16 << 10;
/// Bytes that are kept of all files together.
pub const MAX_TOTAL_BYTES: usize = 512 << 10;
/// Names that are looked at in one directory.
const MAX_NAMES: usize = 2048;
/// Levels of control groups that are followed.
const MAX_LEVELS: usize = 16;

/// Where the machine is found.
#[derive(Clone, Copy, Debug)]
pub struct Roots<'a> {
    /// For devices, drivers and the distribution.
    pub system: &'a Path,
    /// For `/proc`: the kernel and the process.
    pub kernel: &'a Path,
}

impl<'a> Roots<'a> {
    /// Everything below one directory.
    pub fn all(root: &'a Path) -> Self {
        Roots { system: root, kernel: root }
    }

    fn path(&self, place: Place, path: &str) -> PathBuf {
        let path = path.trim_start_matches('/');
        let of_machine = self.system.join(path);
        match place {
            Place::System => of_machine,
            Place::Memory if of_machine.exists() => of_machine,
            Place::Kernel | Place::Memory => self.kernel.join(path),
        }
    }
}

/// What was read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Collected {
    /// Path on the machine, and what was kept of the text; in the order of the list.
    pub files: Vec<(String, String)>,
    /// Paths of files that are there and could not be read.
    pub unreadable: Vec<String>,
    /// Whether a bound cut something off.
    pub cut: bool,
}

/// Reads the listed files.
pub fn collect(roots: Roots<'_>) -> Collected {
    let mut collector = Collector { roots, collected: Collected::default(), bytes: 0 };
    GROUPS.iter().for_each(|group| collector.read_group(group));
    collector.read_cgroups();
    collector.read_group(&PROCESSES);
    collector.collected
}

/// What is kept of one more file, which is on no list because its place is only known at run time; `None` where it can't be
/// read.
pub fn read_one(path: &Path, keep: Keep) -> Option<String> {
    read_text(path).ok().map(|text| kept(&text, keep))
}

struct Collector<'a> {
    roots: Roots<'a>,
    collected: Collected,
    bytes: usize,
}

impl Collector<'_> {
    fn read_group(&mut self, group: &Group) {
        for directory in self.expand(group.place, group.directory) {
            for name in group.files {
                for path in self.expand(group.place, &format!("{directory}/{name}")) {
                    self.read(group.place, path, group.keep);
                }
            }
        }
    }

    /// The paths that a pattern stands for, in natural order. One without signs stands for itself.
    fn expand(&mut self, place: Place, pattern: &str) -> Vec<String> {
        let mut found = vec![String::new()];
        for name in pattern.split('/').filter(|name| !name.is_empty()) {
            if name.contains(['*', '#']) {
                found = found.iter().flat_map(|directory| self.names(place, directory, name)).collect();
            } else {
                found.iter_mut().for_each(|path| path.extend(["/", name]));
            }
        }
        found
    }

    fn names(&mut self, place: Place, directory: &str, pattern: &str) -> Vec<String> {
        let Ok(entries) = fs::read_dir(self.roots.path(place, directory)) else { return Vec::new() };
        let mut names: Vec<String> = Vec::new();
        for (count, entry) in entries.flatten().enumerate() {
            if count == MAX_NAMES {
                self.collected.cut = true;
                break;
            }
            names.extend(entry.file_name().into_string().ok().filter(|name| matches(pattern, name)));
        }
        // `card2` before `card10`.
        names.sort_by(|left, right| left.len().cmp(&right.len()).then_with(|| left.cmp(right)));
        names.into_iter().map(|name| format!("{directory}/{name}")).collect()
    }

    fn read(&mut self, place: Place, path: String, keep: Keep) -> Option<&str> {
        if self.collected.files.len() >= MAX_FILES || self.bytes >= MAX_TOTAL_BYTES {
            // Files that are not there don't matter.
            self.collected.cut |= self.roots.path(place, &path).exists();
            return None;
        }
        match read_text(&self.roots.path(place, &path)) {
            Ok(text) => {
                let text = kept(&text, keep);
                self.bytes += path.len() + text.len();
                self.collected.files.push((path, text));
                self.collected.files.last().map(|(_, text)| text.as_str())
            }
            Err(error) => {
                // Some attributes answer with an error where the card has no such thing.
                if error.kind() == ErrorKind::PermissionDenied {
                    self.collected.unreadable.push(path);
                }
                None
            }
        }
    }

    /// The limits along the path of the process's own control group, from the group itself up to the root.
    fn read_cgroups(&mut self) {
        let own = self.collected.files.iter().find(|(path, _)| path == "/proc/self/cgroup");
        let Some(groups) = own.map(|(_, text)| text.clone()) else { return };
        for line in groups.lines() {
            let mut fields = line.splitn(3, ':').skip(1);
            let (Some(controllers), Some(path)) = (fields.next(), fields.next()) else { continue };
            if controllers.is_empty() {
                self.read_levels("/sys/fs/cgroup", path, &CGROUP);
                self.read(Place::System, "/sys/fs/cgroup/dmem.capacity".into(), Keep::Whole);
            } else if controllers.split(',').any(|name| name == "memory") {
                self.read_levels("/sys/fs/cgroup/memory", path, &CGROUP_V1);
            }
        }
    }

    fn read_levels(&mut self, base: &str, path: &str, names: &[&str]) {
        // In a container the path may name a place outside (`/../..`): then its own group is mounted as the root.
        let inside: Vec<&str> = path.split('/').filter(|name| !name.is_empty()).collect();
        let inside = if inside.contains(&"..") { &[] } else { &inside[..inside.len().min(MAX_LEVELS)] };
        for depth in (0..=inside.len()).rev() {
            let level: String = inside[..depth].iter().flat_map(|name| ["/", name]).collect();
            for name in names {
                self.read(Place::System, format!("{base}{level}/{name}"), Keep::Whole);
            }
        }
    }
}

/// The beginning of a plain file. Pipes and devices are not opened: reading them could wait for ever.
fn read_text(path: &Path) -> std::io::Result<String> {
    if !fs::metadata(path)?.is_file() {
        return Err(ErrorKind::NotFound.into());
    }
    let mut bytes = Vec::new();
    File::open(path)?.take(MAX_FILE_BYTES).read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

fn kept(text: &str, keep: Keep) -> String {
    match keep {
        Keep::Whole => text.to_owned(),
        Keep::Lines(beginnings) => {
            let wanted = |line: &&str| beginnings.iter().any(|beginning| line.starts_with(beginning));
            text.split_inclusive('\n').filter(wanted).collect()
        }
        Keep::Parameters => {
            let words: Vec<&str> = text.split_ascii_whitespace().filter(|word| is_listed(word)).collect();
            words.join(" ")
        }
    }
}

/// Whether a word of the kernel's command line is one that is kept. The kernel takes `-` for `_` in names.
fn is_listed(word: &str) -> bool {
    let name = word.split('=').next().unwrap_or_default().replace('-', "_");
    PARAMETERS.iter().any(|listed| {
        let listed = listed.replace('-', "_");
        if listed.ends_with(['.', '_']) { name.starts_with(&listed) } else { name == listed }
    })
}

/// Whether a name fits a pattern with `*` and `#`.
fn matches(pattern: &str, name: &str) -> bool {
    let Some(sign) = pattern.find(['*', '#']) else { return pattern == name };
    let Some(rest) = name.strip_prefix(&pattern[..sign]) else { return false };
    let behind = &pattern[sign + 1..];
    let is_digits = pattern.as_bytes()[sign] == b'#';
    let possible = rest.char_indices().map(|(at, _)| at).chain([rest.len()]);
    let fits = |at: usize| !is_digits || (at > 0 && rest[..at].bytes().all(|byte| byte.is_ascii_digit()));
    possible.into_iter().any(|at| fits(at) && matches(behind, &rest[at..]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::files::PYTORCH_LINES;

    fn put(root: &Path, path: &str, text: &str) {
        let path = root.join(path.trim_start_matches('/'));
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    fn text<'a>(collected: &'a Collected, path: &str) -> Option<&'a str> {
        collected.files.iter().find(|(known, _)| known == path).map(|(_, text)| text.as_str())
    }

    #[test]
    fn names_fit_patterns() {
        for (pattern, name, fits) in [
            ("card#", "card10", true),
            ("card#", "card0-DP-1", false),
            ("card#", "card", false),
            ("vram_#", "vram_51312", true),
            ("rocm*", "rocm", true),
            ("rocm*", "rocm-6.4.1", true),
            ("#", "12", true),
            ("#", "1a", false),
            ("a#b*", "a7bé", true),
        ] {
            assert_eq!(matches(pattern, name), fits, "{pattern} {name}");
        }
    }

    #[test]
    fn listed_files_are_read_in_natural_order() {
        let root = tempfile::tempdir().unwrap();
        for card in [10, 2] {
            put(root.path(), &format!("/sys/class/drm/card{card}/device/vendor"), "0x1002\n");
        }
        put(root.path(), "/sys/class/drm/card2-DP-1/device/vendor", "0x1002\n");
        put(root.path(), "/sys/class/drm/card2/device/unlisted", "no");
        let collected = collect(Roots::all(root.path()));
        let paths: Vec<_> = collected.files.iter().map(|(path, _)| path.as_str()).collect();
        assert_eq!(paths, ["/sys/class/drm/card2/device/vendor", "/sys/class/drm/card10/device/vendor"]);
        assert!(!collected.cut && collected.unreadable.is_empty());
    }

    #[test]
    fn the_hosts_memory_is_the_machines_where_that_has_it() {
        let (machine, kernel) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let read = || collect(Roots { system: machine.path(), kernel: kernel.path() });
        put(kernel.path(), "/proc/meminfo", "MemTotal: 1 kB\n");
        put(kernel.path(), "/proc/sys/kernel/osrelease", "6.12.0\n");
        assert_eq!(text(&read(), "/proc/meminfo"), Some("MemTotal: 1 kB\n"));
        put(machine.path(), "/proc/meminfo", "MemTotal: 2 kB\n");
        put(machine.path(), "/proc/sys/kernel/osrelease", "5.15.0\n");
        assert_eq!(text(&read(), "/proc/meminfo"), Some("MemTotal: 2 kB\n"));
        assert_eq!(text(&read(), "/proc/sys/kernel/osrelease"), Some("6.12.0\n"), "calls go to this kernel");
    }

    #[test]
    fn of_the_command_line_only_listed_parameters_are_kept() {
        let root = tempfile::tempdir().unwrap();
        let line = "BOOT_IMAGE=/vmlinuz root=UUID=abc rd.luks.uuid=secret ttm.pages_limit=5 amdgpu.gttsize=1 iommu=pt \
                    amdttm.pages_limit=7 password=x nvidia-drm.modeset=1 memtest=1 mem=64G pcie_aspm=off\n";
        put(root.path(), "/proc/cmdline", line);
        let collected = collect(Roots::all(root.path()));
        let expected = "ttm.pages_limit=5 amdgpu.gttsize=1 iommu=pt amdttm.pages_limit=7 nvidia-drm.modeset=1 mem=64G";
        assert_eq!(text(&collected, "/proc/cmdline"), Some(expected));
    }

    #[test]
    fn serial_numbers_stay_where_they_are() {
        let root = tempfile::tempdir().unwrap();
        put(root.path(), "/sys/class/kfd/kfd/topology/nodes/1/properties", "simd_count 192\nunique_id 123456\n");
        put(root.path(), "/proc/driver/nvidia/gpus/0000:01:00.0/information", "Model: X\nGPU UUID: GPU-9\n");
        let texts: String = collect(Roots::all(root.path())).files.into_iter().map(|(_, text)| text).collect();
        assert_eq!(texts, "Model: X\nsimd_count 192\n");
    }

    #[test]
    fn control_groups_are_followed_to_the_root() {
        let root = tempfile::tempdir().unwrap();
        put(root.path(), "/proc/self/cgroup", "1:name=systemd:/x\n4:memory,cpu:/pod/a\n0::/pod/a\n");
        for (path, value) in [
            ("/sys/fs/cgroup/pod/a/memory.max", "max\n"),
            ("/sys/fs/cgroup/pod/memory.max", "1024\n"),
            ("/sys/fs/cgroup/dmem.capacity", "drm/0000:03:00.0/vram 8\n"),
            ("/sys/fs/cgroup/memory/pod/memory.limit_in_bytes", "2048\n"),
        ] {
            put(root.path(), path, value);
        }
        let collected = collect(Roots::all(root.path()));
        let paths: Vec<_> = collected.files.iter().skip(1).map(|(path, _)| path.as_str()).collect();
        assert_eq!(
            paths,
            [
                "/sys/fs/cgroup/memory/pod/memory.limit_in_bytes",
                "/sys/fs/cgroup/pod/a/memory.max",
                "/sys/fs/cgroup/pod/memory.max",
                "/sys/fs/cgroup/dmem.capacity"
            ]
        );
        put(root.path(), "/proc/self/cgroup", "0::/../../etc\n");
        put(root.path(), "/sys/fs/cgroup/memory.max", "7\n");
        let collected = collect(Roots::all(root.path()));
        assert_eq!(text(&collected, "/sys/fs/cgroup/memory.max"), Some("7\n"));
    }

    #[test]
    fn pipes_are_not_waited_for_and_bounds_hold() {
        let root = tempfile::tempdir().unwrap();
        for process in 0..MAX_FILES + 5 {
            put(root.path(), &format!("/sys/class/kfd/kfd/proc/{process}/vram_1"), "5\n");
        }
        put(root.path(), "/proc/meminfo", &"MemTotal: 1 kB\n".repeat(1 << 17));
        fs::create_dir_all(root.path().join("proc/self/limits")).unwrap();
        put(root.path(), "/proc/self/cgroup", "0::/\n");
        put(root.path(), "/sys/fs/cgroup/memory.max", "7\n");
        let collected = collect(Roots::all(root.path()));
        assert!(collected.cut);
        assert_eq!(collected.files.len(), MAX_FILES);
        assert_eq!(text(&collected, "/sys/fs/cgroup/memory.max"), Some("7\n"), "processes come last");
        assert_eq!(text(&collected, "/proc/meminfo").map(|text| text.len() as u64 <= MAX_FILE_BYTES), Some(true));
    }

    #[test]
    fn of_one_more_file_only_the_wanted_lines_are_kept() {
        let root = tempfile::tempdir().unwrap();
        put(root.path(), "/torch/version.py", "from typing import x\n__version__ = '2.15.0'\ngit_version = 'abc'\n");
        let path = root.path().join("torch/version.py");
        assert_eq!(read_one(&path, Keep::Lines(&PYTORCH_LINES)).as_deref(), Some("__version__ = '2.15.0'\n"));
        assert_eq!(read_one(&root.path().join("none"), Keep::Whole), None);
    }

    #[test]
    fn this_machine_can_be_read() {
        let collected = collect(Roots::all(Path::new("/")));
        assert!(text(&collected, "/proc/meminfo").is_some_and(|text| text.starts_with("MemTotal:")));
        assert!(text(&collected, "/proc/self/limits").is_some_and(|text| text.contains("Max open files")));
    }
}
