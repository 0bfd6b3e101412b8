//! I. The host's memory.

use gpuoom_trace::metadata::Quantity;

use super::platform::more_than_ram;
use super::{Rule, run};
use crate::diagnosis::case::Case;
use crate::judgement::check::{Basis, Check, Holds, Known};
use crate::replay::End;
use crate::thresholds::{Unit, share};
use crate::words::{gib, percent, size};

pub(super) const RULES: &[Rule] =
    &[run("host-ram-oom-kill", host_ram_oom_kill), run("cgroup-memory-limit", cgroup_memory_limit)];

/// What a shell gives for a process that SIGKILL ended.
const KILLED_STATUS: i32 = 128 + libc::SIGKILL;

/// Whether SIGKILL ended the process. A trace does not see that by itself: whoever waited for the process does.
fn was_killed(case: &Case<'_>) -> Holds {
    match case.replay.end {
        End::Signaled(libc::SIGKILL) | End::Exited(KILLED_STATUS) => Holds::Yes,
        End::Unknown => Holds::Unknown("how the process ended (gpuoom-analyze record sees it)"),
        _ => Holds::No,
    }
}

/// The kernel killed the process because the RAM ran out.
fn host_ram_oom_kill(case: &Case<'_>, check: &mut Check) {
    let (killed, logged) = (was_killed(case), case.kernel_killed_this());
    // Of a trace whose end nobody saw, only the kernel's log tells that there was a kill.
    if !check.applies(killed == Holds::Yes || (killed != Holds::No && logged == Holds::Yes)) {
        return;
    }
    check.must(true, || match killed {
        Holds::Yes => "the process was ended by SIGKILL".to_owned(),
        _ => "the trace ends without an end of the process".to_owned(),
    });
    let alive_ns = case.last_sign_of_life_ns();
    let last = case.facts.ooms.last().map(|oom| oom.at_ns);
    check.must(last.is_none_or(|at_ns| alive_ns.saturating_sub(at_ns) > case.thresholds.quiet_ns), || {
        format!("no GPU call had failed in the last {}", Unit::Time.shown(case.thresholds.quiet_ns as f64))
    });
    let limit = host_limit(case);
    let resident = case.series(Quantity::ResidentMemory).map(|series| series.last.1);
    let both = Known::new(resident, "resident memory near the end (GPUOOM_SAMPLE)").zip(limit);
    let is_full = both.is(|(resident, limit)| share(resident, limit) >= case.thresholds.host_full_share);
    let text = || {
        let (resident, limit) = both.get().unwrap_or((0, 0));
        format!("its resident memory was {} of {} ({})", gib(resident), gib(limit), percent(share(resident, limit)))
    };
    match logged {
        Holds::Yes => check.note(is_full, text),
        _ => check.must(is_full, text),
    }
    check.decides(
        logged,
        || case.kill_text().unwrap_or_default(),
        || "the kernel's log has no kill of this process: somebody else ended it".to_owned(),
    );
}

/// What the process may have of the host's memory at most.
fn host_limit(case: &Case<'_>) -> Known<u64> {
    let group = cgroup_limit(case);
    let both = group.zip(case.ram_bytes()).map(|(group, ram)| group.min(ram));
    both.or(group).or(case.ram_bytes())
}

fn cgroup_limit(case: &Case<'_>) -> Known<u64> {
    let read = case.series(Quantity::CgroupLimit).map(|series| series.last.1).filter(|limit| *limit < 1 << 62);
    let of_machine = case.machine.cgroup_limit().and_then(|level| level.limit_bytes);
    Known::new(read.or(of_machine), "the limit of the control group")
}

/// The container's limit is reached.
fn cgroup_memory_limit(case: &Case<'_>, check: &mut Check) {
    // Files in the page cache are charged, too: a group at its limit is no trouble by itself.
    let host_failure = case.failures().filter(|failure| failure.is_of_host() && !failure.is_injected()).last();
    let troubled =
        was_killed(case) == Holds::Yes || host_failure.is_some() || case.group_limit_killed_this() == Holds::Yes;
    let limit = cgroup_limit(case);
    let Some(limit) = limit.get().filter(|_| troubled) else {
        check.applies(false);
        return;
    };
    check.must(true, || format!("the control group may have {} (memory.max)", gib(limit)));
    let used = case.series(Quantity::CgroupUsed).map(|series| series.most.1);
    let more = host_failure.map_or(0, |failure| failure.oom.requested_bytes);
    let used = Known::new(used, "memory of the control group (memory.current)");
    let is_reached = |used: u64| share(used.saturating_add(more), limit) >= case.thresholds.count_share;
    check.must(used.is(is_reached), || {
        let used = used.get().unwrap_or(0);
        match more {
            0 => format!("it had {} ({})", gib(used), percent(share(used, limit))),
            _ => format!("it had {}, and {} more was asked for", gib(used), size(more)),
        }
    });
    if let Some(failure) = host_failure.as_ref().filter(|_| case.ram_bytes().get().is_some()) {
        more_than_ram(case, failure, check);
    }
    let logged = case.group_limit_killed_this();
    check.must_by(Basis::Given, logged, || case.kill_text().unwrap_or_default());
    if logged != Holds::Yes {
        check.must(is_reached_without_files(case, more, limit), String::new);
    }
}

/// Whether the process itself fills the group. What the group holds may be files that the kernel would rather drop.
fn is_reached_without_files(case: &Case<'_>, more: u64, limit: u64) -> Holds {
    const FILES: &str = "what of the group's memory is no file that the kernel can drop (memory.stat)";
    let resident = case.series(Quantity::ResidentMemory).map_or(0, |series| series.last.1);
    match share(resident.saturating_add(more), limit) >= case.thresholds.count_share {
        true => Holds::Yes,
        false => Holds::Unknown(FILES),
    }
}
