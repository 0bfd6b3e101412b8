//! One timeline for all traces.
//!
//! The processes of one host share its monotonic clock, which nobody sets; the wall clock says what time that is, and how
//! hosts lie to each other.

use gpuoom_trace::header::ClockPoint;
use serde::Serialize;

use super::Member;

/// What the traces of a host were aligned by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum AlignedBy {
    /// The host's monotonic clock, which all its processes share.
    MonotonicClock,
    /// The wall clock, as each trace read it.
    WallClock,
}

/// The clock of one host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct HostClock {
    /// Host name.
    pub hostname: String,
    /// Its traces.
    pub traces: usize,
    /// What they were aligned by.
    pub aligned_by: AlignedBy,
    /// How far the wall clock moved against the monotonic one between the readings of the traces.
    pub wall_clock_moved_ns: u64,
    /// Traces whose clock's rate was not measured over the run, so that their later moments are estimates.
    pub estimated_rates: usize,
}

/// All traces on one timeline.
pub(super) struct Aligned {
    /// Wall time when the first trace began.
    pub(super) started_at_ns: u64,
    /// When each trace begins, in nanoseconds since then.
    pub(super) began_ns: Vec<u64>,
    /// The hosts, by name.
    pub(super) hosts: Vec<HostClock>,
}

/// Brings the traces together.
pub(super) fn align(members: &[Member]) -> Aligned {
    let mut hosts: Vec<&str> = members.iter().map(|member| member.summary.facts.process.hostname.as_str()).collect();
    hosts.sort_unstable();
    hosts.dedup();
    let mut origins = vec![0i128; members.len()];
    let hosts = hosts.into_iter().map(|host| align_host(members, host, &mut origins)).collect();
    let first = origins.iter().min().copied().unwrap_or(0);
    let clamp = |ns: i128| u64::try_from(ns.max(0)).unwrap_or(u64::MAX);
    Aligned {
        started_at_ns: clamp(first),
        began_ns: origins.iter().map(|origin| clamp(*origin - first)).collect(),
        hosts,
    }
}

fn align_host(members: &[Member], host: &str, origins: &mut [i128]) -> HostClock {
    let of_host = || (0..members.len()).filter(|index| members[*index].summary.facts.process.hostname == host);
    let points = of_host().flat_map(|index| [Some(members[index].first), members[index].last]).flatten();
    let offsets: Vec<i128> = points.map(offset).collect();
    let moved = offsets.iter().max().zip(offsets.iter().min()).map_or(0, |(most, least)| most - least);
    let moved = u64::try_from(moved).unwrap_or(u64::MAX);
    let earliest = of_host().map(|index| members[index].first).min_by_key(|first| (first.wall_ns, first.monotonic_ns));
    // Where the wall clock seems to have moved further, the traces are of different boots or of machines that have one name: they
    // share no monotonic clock.
    let same_boot_ns = of_host().next().map_or(0, |index| members[index].summary.facts.thresholds.same_boot_ns);
    let aligned_by = if moved <= same_boot_ns { AlignedBy::MonotonicClock } else { AlignedBy::WallClock };
    for index in of_host() {
        let first = members[index].first;
        origins[index] = match (aligned_by, earliest) {
            (AlignedBy::MonotonicClock, Some(earliest)) => i128::from(first.monotonic_ns) + offset(earliest),
            _ => i128::from(first.wall_ns),
        };
    }
    HostClock {
        hostname: host.to_owned(),
        traces: of_host().count(),
        aligned_by,
        wall_clock_moved_ns: moved,
        estimated_rates: of_host().filter(|index| !members[*index].summary.facts.trace.clock_measured).count(),
    }
}

/// How far the wall clock is ahead of the monotonic one.
fn offset(point: ClockPoint) -> i128 {
    i128::from(point.wall_ns) - i128::from(point.monotonic_ns)
}
