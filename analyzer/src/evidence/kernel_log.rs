//! The kernel's log (`dmesg`, `journalctl -k`): kills for want of memory, what amdgpu and NVIDIA's driver complain about,
//! crashes.
//!
//! Sources: mm/oom_kill.c, arch/x86/mm/fault.c, drivers/gpu/drm/amd (amdgpu_cs.c, amdgpu_job.c, amdgpu_device.c,
//! amdgpu_ttm.c, amdgpu_vram_mgr.c, amdgpu_ras_eeprom.c, amdkfd/kfd_svm.c) and drivers/gpu/drm/ttm of Linux; NVIDIA's
//! list of Xid errors.

use serde::Serialize;

use crate::machine::pci::PciAddress;

/// Most entries that are kept.
const MOST_EVENTS: usize = 1000;
/// Longest part of a line that is kept.
const MOST_CHARACTERS: usize = 300;

/// What a line says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum KernelEventKind {
    /// The kernel killed a process because the machine's memory ran out.
    OomKill,
    /// The kernel killed a process because a control group's memory ran out.
    CgroupOomKill,
    /// Whose limit it was (`oom-kill:constraint=...`).
    OomConstraint,
    /// amdgpu: no memory for a command submission.
    CommandSubmission,
    /// amdgpu: a mapping of system memory exceeds the limit for resident memory.
    SvmMapping,
    /// amdgpu or TTM: an allocation failed.
    AllocationFailed,
    /// amdgpu: a ring timed out.
    RingTimeout,
    /// amdgpu: the GPU is reset; memory can be lost.
    GpuReset,
    /// amdgpu: pages of VRAM are bad.
    BadPages,
    /// amdgpu: an option that is deprecated or does not fit TTM's limit.
    GttSize,
    /// amdgpu: how much VRAM there is, and how much of it the CPU can reach.
    VramAndBar,
    /// amdgpu: how much VRAM or GTT is ready.
    MemoryReady,
    /// NVIDIA: an Xid error.
    Xid,
    /// A process crashed.
    Segfault,
}

/// A line, or several alike.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct KernelEvent {
    /// Line, from 1.
    pub line: u64,
    /// When, as the log writes it.
    pub stamp: Option<String>,
    /// What it says.
    pub kind: KernelEventKind,
    /// Process.
    pub pid: Option<u64>,
    /// Its name.
    pub process: Option<String>,
    /// The card that it is about, where the line has its address.
    #[serde(skip)]
    pub place: Option<PciAddress>,
    /// Number of an Xid error.
    pub code: Option<u64>,
    /// Sizes that it names, in bytes.
    pub sizes: Vec<(&'static str, u64)>,
    /// The line, without what comes before the message.
    pub text: String,
    /// Lines after it that say the same.
    pub repeated: u64,
}

/// What lines have in them: all of these words. The first row that fits counts.
const ROWS: [(&[&str], KernelEventKind); 20] = [
    (&["Memory cgroup out of memory", "Kill"], KernelEventKind::CgroupOomKill),
    (&["Out of memory", "Kill"], KernelEventKind::OomKill),
    (&["oom-kill:constraint="], KernelEventKind::OomConstraint),
    (&["Killed process ", "total-vm:"], KernelEventKind::OomKill),
    (&["Not enough memory for command submission"], KernelEventKind::CommandSubmission),
    (&["SVM mapping failed"], KernelEventKind::SvmMapping),
    (&["timeout, signaled seq"], KernelEventKind::RingTimeout),
    (&["timeout, but soft recovered"], KernelEventKind::RingTimeout),
    (&["amdgpu", "GPU reset begin"], KernelEventKind::GpuReset),
    (&["VRAM is lost due to GPU reset"], KernelEventKind::GpuReset),
    (&["Saved bad pages"], KernelEventKind::BadPages),
    (&["amdgpu", "bad page"], KernelEventKind::BadPages),
    (&["gttsize", "deprecated"], KernelEventKind::GttSize),
    (&["GTT size has been set as", "TTM size"], KernelEventKind::GttSize),
    (&["Detected VRAM RAM="], KernelEventKind::VramAndBar),
    (&["memory ready", "amdgpu"], KernelEventKind::MemoryReady),
    (&["amdgpu", "Failed to alloc"], KernelEventKind::AllocationFailed),
    (&["[TTM]", "Failed"], KernelEventKind::AllocationFailed),
    (&["NVRM: Xid ("], KernelEventKind::Xid),
    (&[": segfault at "], KernelEventKind::Segfault),
];

/// What NVIDIA's Xid numbers that have to do with memory mean; none for others.
pub fn xid_meaning(code: u64) -> Option<&'static str> {
    Some(match code {
        13 => "an exception in the graphics engine, often an access out of bounds",
        31 => "a page fault of the GPU: an illegal address",
        43 => "the GPU stopped processing; the program's fault",
        45 => "work was cleaned up after an earlier error",
        48 => "an ECC error that could not be corrected",
        63 => "a page was retired or a row remapped",
        64 => "a page could not be retired or a row not be remapped",
        79 => "the GPU has fallen off the bus",
        94 => "an ECC error that was contained",
        95 => "an ECC error that was not contained",
        119 | 120 => "the GPU's system processor does not answer",
        _ => return None,
    })
}

/// Reads a log.
pub fn read(log: &str) -> Vec<KernelEvent> {
    let mut events: Vec<KernelEvent> = Vec::new();
    for (number, line) in log.lines().enumerate() {
        let row = ROWS.iter().find(|(words, _)| words.iter().all(|word| line.contains(word)));
        let Some((_, kind)) = row else { continue };
        let event = event(number as u64 + 1, line, *kind);
        let same = |last: &&mut KernelEvent| {
            let who = |event: &KernelEvent| (event.kind, event.pid, event.place, event.code);
            who(last) == who(&event) && last.sizes == event.sizes
        };
        if let Some(last) = events.last_mut().filter(same) {
            last.repeated += 1;
        } else if events.len() < MOST_EVENTS {
            events.push(event);
        }
    }
    events
}

/// Whether a text looks like a kernel's log at all: times in brackets, or `kernel:` behind the time.
pub fn is_kernel_log(log: &str) -> bool {
    log.lines().take(2000).any(|line| stamp(line).is_some())
}

fn event(line: u64, text: &str, kind: KernelEventKind) -> KernelEvent {
    let (pid, process) = process_of(text, kind);
    let stamp = stamp(text);
    let message = text.split_once("kernel: ").map_or(text, |(_, message)| message);
    let message = stamp
        .and_then(|stamp| message.strip_prefix('[')?.strip_prefix(stamp))
        .map_or(message, |message| message.trim_start_matches(']'));
    KernelEvent {
        line,
        stamp: stamp.map(str::to_owned),
        kind,
        pid,
        process,
        place: PciAddress::in_text(text),
        code: (kind == KernelEventKind::Xid).then(|| xid_of(text)).flatten(),
        sizes: sizes_of(text, kind),
        text: message.trim().chars().take(MOST_CHARACTERS).collect(),
        repeated: 0,
    }
}

/// `[  834.741245]`, `[Sun Mar 30 08:24:00 2025]`, `May 15 23:09:30 host kernel:`, `2024-04-29T14:55:41,678625+02:00`.
fn stamp(line: &str) -> Option<&str> {
    if let Some((before, _)) = line.split_once(" kernel: ") {
        return Some(before);
    }
    if let Some(rest) = line.trim_start().strip_prefix('[') {
        let inner = rest.split_once(']')?.0;
        return inner
            .contains([':', '.'])
            .then_some(inner)
            .filter(|inner| inner.bytes().any(|byte| byte.is_ascii_digit()));
    }
    let first = line.split(' ').next()?;
    let is_time = first.contains('T') && first.contains(':') && first.starts_with(|c: char| c.is_ascii_digit());
    is_time.then_some(first)
}

fn number_at(text: &str) -> Option<u64> {
    let length = text.bytes().take_while(u8::is_ascii_digit).count();
    text[..length].parse().ok()
}

fn behind<'a>(text: &'a str, word: &str) -> Option<&'a str> {
    text.split_once(word).map(|(_, rest)| rest)
}

fn process_of(text: &str, kind: KernelEventKind) -> (Option<u64>, Option<String>) {
    let named = |text: &str| Some(text.split_once('(')?.1.split_once(')')?.0.to_owned());
    let field = |word: &str| behind(text, word).map(|rest| rest.split([',', ' ']).next().unwrap_or_default());
    match kind {
        KernelEventKind::OomKill | KernelEventKind::CgroupOomKill => {
            let rest = behind(text, "Killed process ").or_else(|| behind(text, "Kill process "));
            // A name can have brackets of its own: `(resolved)`.
            (rest.and_then(number_at), rest.and_then(named).map(|name| name.trim_start_matches('(').to_owned()))
        }
        KernelEventKind::OomConstraint => (field(",pid=").and_then(number_at), field(",task=").map(str::to_owned)),
        KernelEventKind::Xid => {
            let name = field("name=").filter(|name| !name.starts_with('<'));
            (field("pid=").map(|pid| pid.trim_matches('\'')).and_then(number_at), name.map(str::to_owned))
        }
        KernelEventKind::Segfault => {
            let before = text.split_once("]: segfault at ").map_or("", |(before, _)| before);
            let (name, pid) = before.rsplit_once('[').unwrap_or_default();
            let name = name.rsplit([' ', ']']).next().unwrap_or_default();
            (number_at(pid), Some(name.to_owned()).filter(|name| !name.is_empty()))
        }
        _ => (None, None),
    }
}

fn xid_of(text: &str) -> Option<u64> {
    number_at(behind(behind(text, "NVRM: Xid (")?, "): ")?)
}

/// The size at the beginning of a text: `4096M, BAR=256M`.
fn size_at(text: &str) -> Option<u64> {
    let end = text.find(|c: char| !c.is_ascii_alphanumeric()).unwrap_or(text.len());
    gpuoom_units::size(&text[..end]).ok()
}

fn sizes_of(text: &str, kind: KernelEventKind) -> Vec<(&'static str, u64)> {
    let size_behind = |name: &'static str, word: &str| Some((name, size_at(behind(text, word)?)?));
    let kib = |name: &'static str| size_behind(name, &format!("{name}:"));
    let found = match kind {
        KernelEventKind::OomKill | KernelEventKind::CgroupOomKill => {
            vec![kib("total-vm"), kib("anon-rss"), kib("file-rss"), kib("shmem-rss")]
        }
        KernelEventKind::VramAndBar => vec![size_behind("vram", "VRAM RAM="), size_behind("bar", "BAR=")],
        KernelEventKind::MemoryReady => {
            let name = if text.contains("GTT") { "gtt" } else { "vram" };
            let size = text.find("M of ").and_then(|end| text[..=end].split_whitespace().last());
            vec![size.and_then(size_at).map(|bytes| (name, bytes))]
        }
        _ => Vec::new(),
    };
    found.into_iter().flatten().collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn one(line: &str) -> KernelEvent {
        let mut events = read(line);
        assert_eq!(events.len(), 1, "{line}: {events:?}");
        events.remove(0)
    }

    #[test]
    fn kills_for_want_of_memory() {
        let event = one(
            "[2059991.491542] Out of memory: Killed process 25315 (python3) total-vm:53312244kB, anon-rss:31451456kB, \
             file-rss:74816kB, shmem-rss:12296kB, UID:0 pgtables:69068kB oom_score_adj:0",
        );
        assert_eq!((event.kind, event.pid), (KernelEventKind::OomKill, Some(25315)));
        assert_eq!((event.process.as_deref(), event.stamp.as_deref()), (Some("python3"), Some("2059991.491542")));
        assert_eq!(event.sizes[1], ("anon-rss", 31_451_456 * 1024));
        assert!(event.text.starts_with("Out of memory"), "{}", event.text);
        let event = one(
            "[18026.221140] Memory cgroup out of memory: Killed process 140339 (python3) total-vm:120832kB, anon-rss:15596kB, \
             file-rss:8924kB, shmem-rss:0kB, UID:0 pgtables:276kB oom_score_adj:-997",
        );
        assert_eq!((event.kind, event.pid), (KernelEventKind::CgroupOomKill, Some(140_339)));
        let event = one(
            "May 15 23:09:30 ubuntu-s-1vcpu-2gb-ams3-01 kernel: [  518.061172] Out of memory: Killed process 15925 \
             ((resolved)) total-vm:168424kB, anon-rss:4064kB, file-rss:3584kB, shmem-rss:0kB",
        );
        assert_eq!(event.process.as_deref(), Some("resolved"));
        assert_eq!(event.stamp.as_deref(), Some("May 15 23:09:30 ubuntu-s-1vcpu-2gb-ams3-01"));
        let event =
            one("[ 4018.450000] Killed process 935 (python) total-vm:113656kB, anon-rss:102104kB, file-rss:0kB");
        assert_eq!((event.kind, event.pid), (KernelEventKind::OomKill, Some(935)));
        let event = one(
            "[Sun Mar 30 08:24:00 2025] oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=/,mems_allowed=0,\
             oom_memcg=/docker/1,task_memcg=/docker/1,task=python,pid=7899,uid=0",
        );
        assert_eq!((event.kind, event.pid), (KernelEventKind::OomConstraint, Some(7899)));
        assert_eq!(event.process.as_deref(), Some("python"));
    }

    #[test]
    fn what_amdgpu_says() {
        for (line, kind) in [
            (
                "[drm:amdgpu_cs_ioctl [amdgpu]] *ERROR* Not enough memory for command submission!",
                KernelEventKind::CommandSubmission,
            ),
            (
                "[85392.497777] amdgpu 0000:04:00.0: amdgpu: [drm] *ERROR* Not enough memory for command submission!",
                KernelEventKind::CommandSubmission,
            ),
            (
                "Jul 04 18:18:52 hostname kernel: amdgpu: SVM mapping failed, exceeds resident system memory limit",
                KernelEventKind::SvmMapping,
            ),
            (
                "amdgpu 0000:03:00.0: amdgpu: ring gfx_0.0.0 timeout, signaled seq=7073226, emitted seq=7073228",
                KernelEventKind::RingTimeout,
            ),
            ("amdgpu 0000:03:00.0: amdgpu: GPU reset begin!. Source:  4", KernelEventKind::GpuReset),
            ("[drm] VRAM is lost due to GPU reset!", KernelEventKind::GpuReset),
            ("amdgpu 0000:03:00.0: amdgpu: Saved bad pages 8 reaches threshold value 256", KernelEventKind::BadPages),
        ] {
            assert_eq!(one(line).kind, kind, "{line}");
        }
        let event = one("[    1.726967] [drm] Detected VRAM RAM=4096M, BAR=256M");
        assert_eq!(event.sizes, [("vram", 4096 << 20), ("bar", 256 << 20)]);
        let event = one("[  114.884837] [drm] amdgpu: 32570M of GTT memory ready.");
        assert_eq!((event.kind, event.sizes.as_slice()), (KernelEventKind::MemoryReady, &[("gtt", 32_570 << 20)][..]));
        assert_eq!(read("[    0.492316] [drm] radeon: 512M of GTT memory ready."), [], "another driver");
    }

    #[test]
    fn what_nvidias_driver_says() {
        let event = one(
            "NVRM: Xid (PCI:0000:00:06): 31, pid=79749, name=exe, Ch 0000000a, intr 00000000. MMU Fault: ENGINE GRAPHICS GPC2 \
             GPCCLIENT_T1_7 faulted @ 0x2b57_b3000000.",
        );
        assert_eq!((event.code, event.pid, event.process.as_deref()), (Some(31), Some(79_749), Some("exe")));
        let event =
            one("Okt 06 17:59:27 balrog kernel: NVRM: Xid (PCI:0000:01:00): 79, pid=1122, GPU has fallen off the bus.");
        assert_eq!((event.code, event.pid, event.process), (Some(79), Some(1122), None));
        assert_eq!(one("NVRM: Xid (PCI:0000:3b:00): 79, GPU has fallen off the bus.").pid, None);
        assert!(xid_meaning(79).is_some() && xid_meaning(7777).is_none());
    }

    #[test]
    fn crashes() {
        let event = one(
            "[  512.7] python3[4711]: segfault at 10 ip 00007f1 sp 00007ffd error 4 in libamdhip64.so.6[7f00+1000]",
        );
        assert_eq!((event.kind, event.pid), (KernelEventKind::Segfault, Some(4711)));
        assert_eq!(event.process.as_deref(), Some("python3"));
    }

    #[test]
    fn lines_alike_are_one_and_others_are_left_out() {
        let line = "[108159.803872] [drm:amdgpu_cs_ioctl [amdgpu]] *ERROR* Not enough memory for command submission!\n";
        let events = read(&("usb 1-1: new device\n".to_owned() + &line.repeat(500)));
        assert_eq!((events.len(), events[0].repeated, events[0].line), (1, 499, 2));
        assert!(is_kernel_log(line) && !is_kernel_log("Traceback (most recent call last):\n"));
    }

    proptest! {
        #[test]
        fn no_text_makes_it_panic(parts in prop::collection::vec(prop_oneof![
            Just("[ 1.2] "), Just("Killed process "), Just("Out of memory"), Just("total-vm:"), Just("NVRM: Xid ("), Just("): "),
            Just("oom-kill:constraint="), Just(",pid="), Just("7"), Just("é"), Just("("), Just(")"), Just("[x"), Just("]: segfault at "),
            Just("amdgpu"), Just("M of "), Just("memory ready"), Just("\n"), Just(" kernel: "), Just("Detected VRAM RAM="),
        ], 0..40)) {
            let log = parts.concat();
            read(&log);
            is_kernel_log(&log);
        }
    }
}
