//! The clock that stamps the records.

use std::arch::x86_64::{__cpuid, _rdtsc};

use gpuoom_trace::header::{ClockPoint, clock_source};

/// Where ticks come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Clock {
    /// The processor's cycle counter, where it runs at one rate on all cores.
    Cycles,
    /// The monotonic clock, in nanoseconds.
    Monotonic,
}

impl Clock {
    /// The cycle counter if the processor says that it is invariant (CPUID 0x80000007, EDX bit 8) and the kernel has not
    /// found it unstable, which it shows by choosing another clock source than `tsc` or a hypervisor's.
    pub(crate) fn choose() -> Self {
        let invariant = __cpuid(0x8000_0000).eax >= 0x8000_0007 && __cpuid(0x8000_0007).edx & (1 << 8) != 0;
        let source = std::fs::read_to_string("/sys/devices/system/clocksource/clocksource0/current_clocksource");
        let trusted =
            source.is_ok_and(|name| ["tsc", "kvm-clock", "hyperv_clocksource_tsc_page"].contains(&name.trim()));
        if invariant && trusted { Clock::Cycles } else { Clock::Monotonic }
    }

    /// The number in the file's header.
    pub(crate) fn source(self) -> u32 {
        match self {
            Clock::Cycles => clock_source::CYCLES,
            Clock::Monotonic => clock_source::MONOTONIC,
        }
    }

    /// Ticks now.
    #[inline(always)]
    pub(crate) fn now(self) -> u64 {
        match self {
            // SAFETY: every x86-64 processor has the instruction; a system that forbids it in user mode (PR_SET_TSC) would
            // kill the program, and glibc's own clock would with it.
            Clock::Cycles => unsafe { _rdtsc() },
            Clock::Monotonic => read(libc::CLOCK_MONOTONIC),
        }
    }

    /// All three clocks as close together as the machine allows: the best of a few tries.
    pub(crate) fn point(self) -> ClockPoint {
        let tries = (0..4).map(|_| {
            let before = self.now();
            let monotonic_ns = read(libc::CLOCK_MONOTONIC);
            let after = self.now();
            (after.wrapping_sub(before), before.wrapping_add(after.wrapping_sub(before) / 2), monotonic_ns)
        });
        let (_, ticks, monotonic_ns) = tries.min_by_key(|(width, ..)| *width).unwrap_or_default();
        ClockPoint { ticks, monotonic_ns, wall_ns: read(libc::CLOCK_REALTIME) }
    }
}

fn read(clock: libc::clockid_t) -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: points at a timespec; both clocks exist on every Linux.
    unsafe { libc::clock_gettime(clock, &mut time) };
    (time.tv_sec as u64).wrapping_mul(1_000_000_000).wrapping_add(time.tv_nsec as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clocks_go_forward_together() {
        let clock = Clock::choose();
        let first = clock.point();
        let second = clock.point();
        assert!(second.ticks >= first.ticks && second.monotonic_ns >= first.monotonic_ns);
        assert!(first.wall_ns > 1_600_000_000_000_000_000);
    }
}
