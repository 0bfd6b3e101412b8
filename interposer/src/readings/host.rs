//! What the process itself uses, and its limits.

use std::fs;
use std::path::Path;

use gpuoom_trace::metadata::{Quantity, Reading};
use gpuoom_trace::record::NO_DEVICE;

use crate::base::config::Config;
use crate::devices::gpus::number;

/// Reads the process's numbers; `all`: also those that cost more than a file of one line.
pub(super) fn read(config: &Config, all: bool, readings: &mut Vec<Reading>) {
    let mut push = |quantity: Quantity, value: Option<u64>| {
        if let Some(value) = value {
            readings.push(Reading { quantity: quantity as u16, device: NO_DEVICE, value });
        }
    };
    push(Quantity::ResidentMemory, own_bytes(1));
    let (used, limit) = cgroup(config);
    push(Quantity::CgroupUsed, used);
    push(Quantity::CgroupLimit, limit);
    // The process's, which are the first thread's: the recorder's own thread has a table of its own.
    push(Quantity::OpenDescriptors, fs::read_dir("/proc/self/fd").ok().map(|entries| entries.count() as u64));
    push(Quantity::DescriptorLimit, limit_of(libc::RLIMIT_NOFILE));
    let memory = host_memory(config);
    push(Quantity::HostTotal, meminfo(&memory, "MemTotal:"));
    push(Quantity::HostAvailable, meminfo(&memory, "MemAvailable:"));
    if all {
        let maps = fs::read("/proc/thread-self/maps").ok();
        push(Quantity::MemoryMaps, maps.map(|text| lines(&text)));
        push(Quantity::MemoryMapLimit, number(Path::new("/proc/sys/vm/max_map_count")));
        if let Some(limit) = limit_of(libc::RLIMIT_AS).filter(|limit| *limit != libc::RLIM_INFINITY) {
            push(Quantity::AddressSpace, own_bytes(0));
            push(Quantity::AddressSpaceLimit, Some(limit));
        }
    }
}

/// The memory of the machine that `GPUOOM_SYSROOT` shows, where it shows that; else of the one that this kernel runs on.
fn host_memory(config: &Config) -> String {
    const PATH: &str = "/proc/meminfo";
    fs::read_to_string(config.system_path(PATH)).or_else(|_| fs::read_to_string(PATH)).unwrap_or_default()
}

/// Ends of lines. In stretches whose count fits a byte, so that the processor compares many at once: the file is long.
fn lines(text: &[u8]) -> u64 {
    let count = |stretch: &[u8]| stretch.iter().fold(0u8, |count, byte| count + u8::from(*byte == b'\n'));
    text.chunks(255).map(|stretch| u64::from(count(stretch))).sum()
}

/// The numbers of `/proc/thread-self/statm` in bytes: 0 is what is mapped, 1 what is resident.
fn own_bytes(place: usize) -> Option<u64> {
    let pages: u64 = fs::read_to_string("/proc/thread-self/statm").ok()?.split(' ').nth(place)?.parse().ok()?;
    Some(pages.saturating_mul(4096))
}

fn limit_of(resource: libc::__rlimit_resource_t) -> Option<u64> {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: points at an rlimit.
    (unsafe { libc::getrlimit(resource, &mut limit) } == 0).then_some(limit.rlim_cur)
}

fn meminfo(text: &str, key: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(key))?;
    gpuoom_units::size(line).ok()
}

/// Used memory and limit of the process's cgroup: version 2, else version 1. "max" is no limit.
fn cgroup(config: &Config) -> (Option<u64>, Option<u64>) {
    let text = fs::read_to_string("/proc/thread-self/cgroup").unwrap_or_default();
    for line in text.lines() {
        let mut fields = line.splitn(3, ':');
        let (Some(_), Some(controllers), Some(path)) = (fields.next(), fields.next(), fields.next()) else { continue };
        let (base, used, limit) = match controllers {
            "" => ("/sys/fs/cgroup", "memory.current", "memory.max"),
            _ if controllers.split(',').any(|name| name == "memory") => {
                ("/sys/fs/cgroup/memory", "memory.usage_in_bytes", "memory.limit_in_bytes")
            }
            _ => continue,
        };
        let file = |name: &str| {
            let below = number(&config.system_path(&format!("{base}{path}/{name}")));
            // In a container the path names a place that is mounted as the root.
            below.or_else(|| number(&config.system_path(&format!("{base}/{name}"))))
        };
        if let Some(value) = file(used) {
            // Version 1 says "no limit" with a number near 2^63.
            return (Some(value), file(limit).filter(|limit| *limit < 1 << 62));
        }
    }
    (None, None)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hosts_memory_is_that_of_the_machine_below_the_root() {
        let root = tempfile::tempdir().unwrap();
        let config = Config { sysroot: root.path().into(), ..Config::default() };
        assert!(meminfo(&host_memory(&config), "MemTotal:") > Some(1 << 20), "the root has no such file");
        fs::create_dir(root.path().join("proc")).unwrap();
        fs::write(root.path().join("proc/meminfo"), "MemTotal: 4 kB\nMemAvailable: 1 kB\n").unwrap();
        assert_eq!(meminfo(&host_memory(&config), "MemTotal:"), Some(4096));
    }

    #[test]
    fn this_process_can_be_read() {
        let mut readings = Vec::new();
        read(&Config::default(), true, &mut readings);
        let value = |quantity: Quantity| readings.iter().find(|r| r.quantity == quantity as u16).map(|r| r.value);
        assert!(value(Quantity::ResidentMemory) > Some(1 << 20));
        assert!(value(Quantity::OpenDescriptors) >= Some(3));
        assert!(value(Quantity::HostTotal) >= value(Quantity::HostAvailable));
        assert!(value(Quantity::MemoryMaps) > Some(5));
        assert_eq!((lines(&[b'\n'; 1000]), lines(b"a\nb\n\nc"), lines(b"")), (1000, 3, 0));
        assert_eq!(meminfo("MemTotal:       100 kB\n", "MemTotal:"), Some(102_400));
    }
}
