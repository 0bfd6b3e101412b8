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
}

/// Reads what other processes' graphics clients hold; `None` when a bound was met, so that no sum is too low without
/// anybody knowing. `uses_kfd`: what KFD says of a process.
pub fn graphics(proc: &Path, own: u32, uses_kfd: impl Fn(u32) -> bool) -> Option<Graphics> {
    let begun = Instant::now();
    let mut clients: BTreeMap<(String, u64), u64> = BTreeMap::new();
    let entries = fs::read_dir(proc).ok()?;
    let processes = entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<u32>().ok());
    let mut descriptors = MAX_DESCRIPTORS;
    let mut closed_processes = 0;
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
                closed_processes += u64::from(error == ErrorKind::PermissionDenied);
                continue;
            }
        };
        for client in clients_of_process {
            // Several descriptors of one client say the same.
            clients.insert((client.pci_bus_id, client.id), client.vram_bytes);
        }
    }
    let mut sums: BTreeMap<String, u64> = BTreeMap::new();
    for ((pci_bus_id, _), bytes) in clients {
        let sum = sums.entry(pci_bus_id).or_default();
        *sum = sum.saturating_add(bytes);
    }
    Some(Graphics { bytes: sums, closed_processes })
}

/// The clients that a process has open; none if one of its files is KFD's. `None` when too many files were looked at.
fn clients_of(process: &Path, descriptors: &mut usize) -> Option<Result<Vec<Client>, ErrorKind>> {
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
    let texts = nodes.iter().filter_map(|name| fs::read_to_string(process.join("fdinfo").join(name)).ok());
    Some(Ok(texts.filter_map(|text| parse(&text)).collect()))
}

/// The client that a file describes, if it is one of amdgpu.
fn parse(text: &str) -> Option<Client> {
    let value = |key: &str| {
        let of_key = |line: &str| Some(line.strip_prefix(key)?.strip_prefix(':')?.trim().to_owned());
        text.lines().find_map(of_key)
    };
    if value("drm-driver")? != "amdgpu" {
        return None;
    }
    // The newest key first: where both are there, they say the same.
    let vram = value("drm-resident-vram").or_else(|| value("drm-memory-vram"));
    Some(Client {
        pci_bus_id: value("drm-pdev")?.to_ascii_lowercase(),
        id: value("drm-client-id")?.parse().ok()?,
        vram_bytes: vram.and_then(|text| gpuoom_units::size(&text).ok()).unwrap_or(0),
    })
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
        fs::create_dir_all(proc.join("self/fd")).unwrap();
        let graphics = graphics(proc, 105, |process| process == 106).unwrap();
        let expected = [("0000:03:00.0".to_owned(), 5 << 20), ("0000:0a:00.0".to_owned(), 4 << 20)];
        assert_eq!(graphics.bytes.into_iter().collect::<Vec<_>>(), expected);
    }

    #[test]
    fn damaged_files_say_nothing() {
        for text in
            ["", "drm-driver:\tamdgpu\n", "drm-driver amdgpu\n", &EARLY.replace("client-id:\t7", "client-id:\tx")]
        {
            assert_eq!(parse(text), None, "{text}");
        }
        assert_eq!(
            parse(&EARLY.replace("2048 KiB", "99999999999999999999 KiB")).map(|client| client.vram_bytes),
            Some(0)
        );
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
