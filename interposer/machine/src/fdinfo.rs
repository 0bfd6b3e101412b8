//! Video memory of other processes' graphics clients: what amdgpu says of each open node in `/proc/PID/fdinfo`. Keys: Linux
//! `Documentation/gpu/drm-usage-stats.rst` and `amdgpu_fdinfo.c`, which changed twice; all three generations are read.
//!
//! Only processes that may be looked into are seen, in general the user's own. Processes that use KFD are left out: their
//! compute buffers would appear here and in KFD's own numbers. A buffer that two clients share is counted for both.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::ErrorKind;
use std::path::Path;
use std::time::{Duration, Instant};

/// Bounds of one scan: a machine may have many processes with many files, and a failing call waits for this.
const MAX_PROCESSES: usize = 4096;
const MAX_DESCRIPTORS: usize = 32_768;
const MAX_TIME: Duration = Duration::from_millis(300);

/// A client and what it holds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Client {
    pci_bus_id: String,
    id: u64,
    vram_bytes: u64,
}

/// What other processes' graphics clients hold.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Graphics {
    /// Video memory per card, by its PCI bus id in lower case.
    pub bytes: BTreeMap<String, u64>,
    /// Processes that could not be looked into.
    pub closed_processes: u64,
    /// Processes with a card open of which the kernel does not say what they hold there: older kernels, whose keys are
    /// others, and what can't be read.
    pub silent_processes: u64,
}

/// Reads what other processes' graphics clients hold; `None` when a bound was met, so that no sum is too low without
/// anybody knowing. `uses_kfd`: what KFD says of a process.
pub fn graphics(proc: &Path, own: u32, uses_kfd: impl Fn(u32) -> bool) -> Option<Graphics> {
    let begun = Instant::now();
    let mut clients: BTreeMap<(String, u64), u64> = BTreeMap::new();
    let entries = fs::read_dir(proc).ok()?;
    let processes = entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<u32>().ok());
    let mut descriptors = MAX_DESCRIPTORS;
    let mut found = Graphics::default();
    for (count, process) in processes.filter(|process| *process != own).enumerate() {
        if count >= MAX_PROCESSES || begun.elapsed() > MAX_TIME {
            return None;
        }
        if uses_kfd(process) {
            continue;
        }
        let clients_of_process = match clients_of(&proc.join(process.to_string()), &mut descriptors)? {
            Ok(found) => found,
            Err(error) => {
                found.closed_processes += u64::from(error == ErrorKind::PermissionDenied);
                continue;
            }
        };
        found.silent_processes += u64::from(clients_of_process.contains(&Said::Nothing));
        for said in clients_of_process {
            if let Said::Client(client) = said {
                // Several descriptors of one client say the same.
                clients.insert((client.pci_bus_id, client.id), client.vram_bytes);
            }
        }
    }
    for ((pci_bus_id, _), bytes) in clients {
        let sum = found.bytes.entry(pci_bus_id).or_default();
        *sum = sum.saturating_add(bytes);
    }
    Some(found)
}

/// What the kernel says of an open node of a card.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Said {
    /// It is of amdgpu, and holds so much.
    Client(Client),
    /// It is another driver's.
    OfOthers,
    /// Nothing that tells either.
    Nothing,
}

/// The clients that a process has open; none if one of its files is KFD's. `None` when too many files were looked at.
fn clients_of(process: &Path, descriptors: &mut usize) -> Option<Result<Vec<Said>, ErrorKind>> {
    let entries = match fs::read_dir(process.join("fd")) {
        Ok(entries) => entries,
        Err(error) => return Some(Err(error.kind())),
    };
    let mut nodes = BTreeSet::new();
    for entry in entries.flatten() {
        *descriptors = descriptors.checked_sub(1)?;
        let Ok(target) = fs::read_link(entry.path()) else { continue };
        if target == Path::new("/dev/kfd") {
            return Some(Ok(Vec::new()));
        }
        if target.starts_with("/dev/dri") {
            nodes.insert(entry.file_name());
        }
    }
    let text = |name| fs::read_to_string(process.join("fdinfo").join(name));
    // What was closed meanwhile holds nothing.
    let texts = nodes.iter().map(text).filter(|read| !read.as_ref().is_err_and(|e| e.kind() == ErrorKind::NotFound));
    Some(Ok(texts.map(|text| parse(&text.unwrap_or_default())).collect()))
}

fn parse(text: &str) -> Said {
    let value = |key: &str| {
        let of_key = |line: &str| Some(line.strip_prefix(key)?.strip_prefix(':')?.trim().to_owned());
        text.lines().find_map(of_key)
    };
    match value("drm-driver") {
        None => return Said::Nothing,
        Some(driver) if driver != "amdgpu" => return Said::OfOthers,
        Some(_) => {}
    }
    let client = || {
        // The newest key first: where both are there, they say the same.
        let vram = value("drm-resident-vram").or_else(|| value("drm-memory-vram"))?;
        Some(Client {
            pci_bus_id: value("drm-pdev")?.to_ascii_lowercase(),
            id: value("drm-client-id")?.parse().ok()?,
            vram_bytes: gpuoom_units::size(&vram).ok()?,
        })
    };
    client().map_or(Said::Nothing, Said::Client)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    const EARLY: &str = "pos:\t0\ndrm-driver:\tamdgpu\ndrm-pdev:\t0000:03:00.0\ndrm-client-id:\t7\npasid:\t32770\n\
                         drm-memory-vram:\t2048 KiB\ndrm-memory-gtt: \t512 KiB\namd-memory-visible-vram:\t2048 KiB\n";
    const MIDDLE: &str = "drm-driver:\tamdgpu\ndrm-client-id:\t8\ndrm-pdev:\t0000:03:00.0\n\
                          drm-shared-vram:\t16 MiB\ndrm-memory-vram:\t3 MiB\n";
    const RECENT: &str = "drm-driver:\tamdgpu\ndrm-client-id:\t9\ndrm-pdev:\t0000:0A:00.0\ndrm-total-vram:\t9000 KiB\n\
                          drm-resident-vram:\t4096 KiB\ndrm-memory-vram:\t4096 KiB\namd-evicted-vram:\t0 KiB\n";

    fn open(proc: &Path, process: u32, descriptor: u32, target: &str, text: &str) {
        let of_process = proc.join(process.to_string());
        for name in ["fd", "fdinfo"] {
            fs::create_dir_all(of_process.join(name)).unwrap();
        }
        symlink(target, of_process.join("fd").join(descriptor.to_string())).unwrap();
        fs::write(of_process.join("fdinfo").join(descriptor.to_string()), text).unwrap();
    }

    #[test]
    fn all_generations_are_read_and_each_client_counts_once() {
        let directory = tempfile::tempdir().unwrap();
        let proc = directory.path();
        open(proc, 100, 5, "/dev/dri/renderD128", EARLY);
        open(proc, 100, 6, "/dev/dri/renderD128", EARLY);
        open(proc, 101, 9, "/dev/dri/card0", MIDDLE);
        open(proc, 102, 4, "/dev/dri/renderD129", RECENT);
        open(proc, 102, 5, "/dev/null", RECENT);
        open(proc, 103, 4, "/dev/dri/renderD130", &RECENT.replace("amdgpu", "i915"));
        open(proc, 104, 4, "/dev/dri/renderD129", &RECENT.replace("\t9\n", "\t10\n"));
        open(proc, 104, 5, "/dev/kfd", "");
        open(proc, 105, 4, "/dev/dri/renderD129", &RECENT.replace("\t9\n", "\t11\n"));
        open(proc, 106, 4, "/dev/dri/renderD129", &RECENT.replace("\t9\n", "\t12\n"));
        fs::create_dir_all(proc.join("107")).unwrap();
        open(proc, 108, 4, "/dev/dri/renderD128", "pos:\t0\npdev:\t0000:03:00.0\npasid:\t32770\nvram mem:\t2048 kB\n");
        fs::create_dir_all(proc.join("self/fd")).unwrap();
        let graphics = graphics(proc, 105, |process| process == 106).unwrap();
        let expected = [("0000:03:00.0".to_owned(), 5 << 20), ("0000:0a:00.0".to_owned(), 4 << 20)];
        assert_eq!((graphics.closed_processes, graphics.silent_processes), (0, 1));
        assert_eq!(graphics.bytes.into_iter().collect::<Vec<_>>(), expected);
    }

    #[test]
    fn damaged_files_say_nothing() {
        let without_vram = EARLY.replace("drm-memory-vram", "drm-memory-cpu");
        let damaged = [
            "",
            "drm-driver:\tamdgpu\n",
            "drm-driver amdgpu\n",
            &EARLY.replace("client-id:\t7", "client-id:\tx"),
            &EARLY.replace("2048 KiB", "99999999999999999999 KiB"),
            &without_vram,
        ];
        for text in damaged {
            assert_eq!(parse(text), Said::Nothing, "{text}");
        }
    }

    #[test]
    fn a_sum_that_is_not_whole_is_none() {
        let directory = tempfile::tempdir().unwrap();
        open(directory.path(), 100, 5, "/dev/dri/renderD128", EARLY);
        let mut none_left = 0;
        assert_eq!(clients_of(&directory.path().join("100"), &mut none_left), None);
        assert_eq!(graphics(&directory.path().join("nowhere"), 1, |_| false), None);
    }
}
