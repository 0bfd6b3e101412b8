//! What a run costs in processor time, finer than the kernel's own account of it.
//!
//! Kernels that count time by ticks (`CONFIG_TICK_CPU_ACCOUNTING`, the usual one) split a process's time into user and
//! kernel by what they found 250 times a second: of a run of 0.2 s, whose sum they know exactly, that is 50 looks. Perf's
//! processor clock needs no counters of the hardware, so virtual machines have it too; it looks as often as one asks, and
//! with `exclude_kernel` it counts only what it finds in user mode.

use std::ffi::c_void;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::time::Duration;

use tempfile::TempDir;

use crate::run::{Client, new_scratch};

/// Between two looks, in nanoseconds of processor time: 4000 a second, and no multiple of a tick.
const PERIOD_NS: u64 = 249_989;

/// Processor time that a run took, with its threads and children.
#[derive(Clone, Copy, Debug)]
pub struct ProcessorTime {
    /// In user mode, as the kernel accounts it.
    pub accounted_user: Duration,
    /// In user mode, as it was sampled; `None` where perf's clock can't be had.
    pub sampled_user: Option<Duration>,
    /// In user mode and in the kernel together: exact on every kernel.
    pub total: Duration,
    /// The most memory that the largest of its processes had at once.
    pub most_memory_bytes: u64,
}

impl ProcessorTime {
    /// In user mode, by the finest measure there is.
    pub fn user(&self) -> Duration {
        self.sampled_user.unwrap_or(self.accounted_user)
    }
}

impl Client {
    /// Runs once and answers the processor time that the client and its children took.
    pub fn processor_time(&self, recorded: bool) -> ProcessorTime {
        self.processor_time_and_files(recorded).0
    }

    /// The same, with the directory of the run.
    pub fn processor_time_and_files(&self, recorded: bool) -> (ProcessorTime, TempDir) {
        let scratch = new_scratch();
        let mut command = self.command(scratch.path(), recorded);
        let sampler = Sampler::open();
        let child = command.spawn().expect("the client starts").id() as i32;
        let (mut status, mut usage) = (0, MaybeUninit::<libc::rusage>::zeroed());
        // SAFETY: both pointers are to locals that live through the call; the process is our child and nobody else waits
        // for it.
        let pid = unsafe { libc::wait4(child, &mut status, 0, usage.as_mut_ptr()) };
        assert_eq!(pid, child, "wait4");
        // SAFETY: all zeroes is a valid rusage, and wait4 succeeded.
        let usage = unsafe { usage.assume_init() };
        let time = |value: libc::timeval| {
            Duration::from_secs(value.tv_sec as u64) + Duration::from_micros(value.tv_usec as u64)
        };
        let accounted_user = time(usage.ru_utime);
        let time = ProcessorTime {
            accounted_user,
            sampled_user: sampler.map(|sampler| sampler.user_time()),
            total: accounted_user + time(usage.ru_stime),
            most_memory_bytes: usage.ru_maxrss as u64 * 1024,
        };
        (time, scratch)
    }
}

/// Looks at what this thread's children do from their `exec` on, and at what theirs do. The thread itself is not looked at.
struct Sampler {
    /// One per processor: an event that children inherit can have a buffer only if it stays on one.
    clocks: Vec<Clock>,
}

impl Sampler {
    /// `None` where perf is not there, or not for us (`kernel.perf_event_paranoid` above 2, a container's filter).
    fn open() -> Option<Self> {
        // SAFETY: a number is asked for.
        let processors = unsafe { libc::sysconf(libc::_SC_NPROCESSORS_CONF) } as i32;
        let clocks: Vec<Clock> = (0..processors).filter_map(Clock::open).collect();
        (!clocks.is_empty()).then_some(Self { clocks })
    }

    fn user_time(&self) -> Duration {
        let looks: u64 = self.clocks.iter().map(Clock::looks).sum();
        Duration::from_nanos(looks * PERIOD_NS)
    }
}

/// `struct perf_event_attr` in its first version (Linux `include/uapi/linux/perf_event.h`).
#[repr(C)]
struct Attributes {
    event_type: u32,
    size: u32,
    config: u64,
    sample_period: u64,
    sample_type: u64,
    read_format: u64,
    flags: u64,
    wakeup_events: u32,
    breakpoint_type: u32,
    config1: u64,
}

const PERF_TYPE_SOFTWARE: u32 = 1;
const PERF_COUNT_SW_CPU_CLOCK: u64 = 0;
/// Flags by their bits: `disabled`, `inherit`, `exclude_kernel`, `exclude_hv`, `enable_on_exec`.
const FLAGS: u64 = 1 << 0 | 1 << 1 | 1 << 5 | 1 << 6 | 1 << 12;
const PERF_FLAG_FD_CLOEXEC: libc::c_ulong = 1 << 3;
/// `data_head` in `struct perf_event_mmap_page`.
const DATA_HEAD: usize = 1024;
/// A record without any field is its header.
const RECORD_BYTES: u64 = 8;
/// The page that describes the buffer, and a buffer of one page.
const MAPPED_BYTES: usize = 2 * 4096;

struct Clock {
    page: *const u8,
    _descriptor: OwnedFd,
}

impl Clock {
    fn open(processor: i32) -> Option<Self> {
        let attributes = Attributes {
            event_type: PERF_TYPE_SOFTWARE,
            size: size_of::<Attributes>() as u32,
            config: PERF_COUNT_SW_CPU_CLOCK,
            sample_period: PERIOD_NS,
            sample_type: 0,
            read_format: 0,
            flags: FLAGS,
            wakeup_events: 0,
            breakpoint_type: 0,
            config1: 0,
        };
        // SAFETY: the structure has the size that it says, and lives through the call; the rest are numbers: this thread,
        // a processor, no group.
        let descriptor = unsafe {
            let call = libc::SYS_perf_event_open;
            libc::syscall(call, &raw const attributes, 0, processor, -1, PERF_FLAG_FD_CLOEXEC)
        };
        // SAFETY: a descriptor that nobody else has.
        let descriptor = (descriptor >= 0).then(|| unsafe { OwnedFd::from_raw_fd(descriptor as i32) })?;
        // Mapped for reading only, the kernel writes round and round, and its end counts everything that it ever wrote.
        // SAFETY: a fresh mapping, checked below.
        let page = unsafe {
            let (access, shared) = (libc::PROT_READ, libc::MAP_SHARED);
            libc::mmap(std::ptr::null_mut(), MAPPED_BYTES, access, shared, descriptor.as_raw_fd(), 0)
        };
        (page != libc::MAP_FAILED).then(|| Self { page: page.cast_const().cast(), _descriptor: descriptor })
    }

    fn looks(&self) -> u64 {
        // SAFETY: inside the mapped page, and aligned. Volatile: the kernel writes it.
        let bytes = unsafe { self.page.add(DATA_HEAD).cast::<u64>().read_volatile() };
        bytes / RECORD_BYTES
    }
}

impl Drop for Clock {
    fn drop(&mut self) {
        // SAFETY: mapped in `open` with this length, and used by nobody any more.
        unsafe { libc::munmap(self.page.cast_mut().cast::<c_void>(), MAPPED_BYTES) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs a loop of the shell's, which is all user mode, or one of its system calls.
    fn run(script: &str) -> ProcessorTime {
        Client::new("/bin/sh").args(["-c", script]).processor_time(false)
    }

    #[test]
    fn samples_and_the_kernel_agree_about_work_in_user_mode() {
        let time = run("i=0; while [ $i -lt 400000 ]; do i=$((i+1)); done");
        let Some(sampled) = time.sampled_user else {
            eprintln!("skipped: perf's clock can't be had here");
            return;
        };
        let share = sampled.as_secs_f64() / time.total.as_secs_f64();
        assert!((0.7..=1.1).contains(&share), "{time:?}");
    }

    #[test]
    fn children_count_and_their_time_in_the_kernel_does_not() {
        let time = run("dd if=/dev/zero of=/dev/null bs=4M count=1000 2>&1");
        let Some(sampled) = time.sampled_user else {
            eprintln!("skipped: perf's clock can't be had here");
            return;
        };
        assert!(sampled < time.total / 2, "{time:?}");
        let in_child = run("sh -c 'i=0; while [ $i -lt 400000 ]; do i=$((i+1)); done'; true");
        assert!(in_child.sampled_user.unwrap() > in_child.total * 7 / 10, "{in_child:?}");
    }
}
