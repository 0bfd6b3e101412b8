//! Which process failed first.

use serde::Serialize;

use gpuoom_trace::outcome::Outcome;

use super::devices::{self, OthersThen};
use super::{AlignedBy, HostClock, JobProcess, Member};
use crate::conclusion::Summary;
use crate::passes::oom::deciding;

/// How bad it is with a process, worst first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Class {
    /// GPU work went on after an out-of-memory return, without a sign that it was noticed.
    Dropped,
    /// It ran out of memory and did not end well, or nobody saw its end.
    RanOut,
    /// It ran out of memory, let the failure out, and exited with 0.
    Survived,
    /// It ended with a failure or by a signal, and no allocation of its own ran out of memory.
    EndedBadly,
    /// It ran out of memory and each time got memory after all.
    Recovered,
    /// Nothing of that, but nobody saw its end: it was killed, or still runs.
    EndNotSeen,
    /// Nothing ran out of memory, and it exited with 0.
    Healthy,
}

/// The failure that decides.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct FirstFailure {
    /// Index of the process.
    pub process: usize,
    /// Number of the out-of-memory return in its trace, counted from 1.
    pub oom: u64,
    /// When, since the job began.
    pub at_ns: u64,
}

/// What happened to the job.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct JobVerdict {
    /// Processes with an out-of-memory return.
    pub ran_out: usize,
    /// Processes in which GPU work went on after one, without a sign that it was noticed.
    pub dropped: usize,
    /// Processes that ended with a failure or by a signal.
    pub ended_badly: usize,
    /// The failure that decides: dropped ones before those that ended a process, those before all others, each time the
    /// first. `None` where nothing ran out of memory.
    pub first: Option<FirstFailure>,
    /// The first failure that was not recovered, where that is another process's and came before `first`.
    pub earlier: Option<FirstFailure>,
    /// What the job's other processes held of that device at the `first` failure, by their own traces. `None` where they held nothing,
    /// where the card is not known by its place on the bus, and where nothing tells how the traces' clocks lie.
    pub others_then: Option<OthersThen>,
}

/// The class of a process.
pub(super) fn class_of(summary: &Summary) -> Class {
    let outcomes = || summary.facts.ooms.iter().map(|oom| oom.outcome);
    let well = summary.facts.process.exit_code == Some(0);
    let seen = summary.facts.process.end != "unknown";
    if outcomes().any(|outcome| outcome == Outcome::Dropped) {
        return Class::Dropped;
    }
    match outcomes().any(|outcome| outcome != Outcome::Recovered) {
        true if well => Class::Survived,
        true => Class::RanOut,
        false if seen && !well => Class::EndedBadly,
        false if !summary.facts.ooms.is_empty() => Class::Recovered,
        false if !seen => Class::EndNotSeen,
        false => Class::Healthy,
    }
}

/// What others held of the device of a failure, where their clock is that of the process that failed.
pub(super) fn others_then(
    members: &[Member],
    processes: &[JobProcess],
    clocks: &[HostClock],
    failure: FirstFailure,
) -> Option<OthersThen> {
    let process = &processes[failure.process];
    let is_shared = |clock: &HostClock| clock.aligned_by == AlignedBy::MonotonicClock;
    clocks.iter().find(|clock| clock.hostname == process.hostname).filter(|clock| is_shared(clock))?;
    let ooms = &members[failure.process].summary.facts.ooms;
    let index = ooms.iter().find(|oom| oom.number == failure.oom)?.device?;
    let device = process.devices.iter().find(|device| device.index == Some(index))?.device?;
    let began_ns: Vec<u64> = processes.iter().map(|process| process.began_at_ns).collect();
    devices::others_then(members, &began_ns, device, failure.process, failure.at_ns)
}

/// What happened to these `of` the processes.
pub(super) fn judge(members: &[Member], processes: &[JobProcess], clocks: &[HostClock], of: &[usize]) -> JobVerdict {
    let mut failures: Vec<(Class, FirstFailure)> = Vec::new();
    for (process, member) in of.iter().map(|index| (&processes[*index], &members[*index])) {
        let ooms = &member.summary.facts.ooms;
        if let Some(index) = deciding(ooms.iter().map(|oom| oom.outcome)) {
            let at_ns = process.began_at_ns.saturating_add(ooms[index].at_ns);
            failures.push((process.class, FirstFailure { process: process.trace, oom: ooms[index].number, at_ns }));
        }
    }
    // A process that ended badly for another reason may have recovered from all its failures before.
    let severity = |class: Class| if class == Class::EndedBadly { Class::Recovered } else { class };
    let first = failures.iter().min_by_key(|(class, failure)| (severity(*class), failure.at_ns, failure.process));
    let first = first.map(|(_, failure)| *failure);
    let not_recovered = failures.iter().filter(|(class, _)| severity(*class) < Class::Recovered);
    let earliest = not_recovered.map(|(_, failure)| *failure).min_by_key(|failure| (failure.at_ns, failure.process));
    let badly = |process: &&JobProcess| process.end != "unknown" && process.exit_code != Some(0);
    JobVerdict {
        ran_out: failures.len(),
        dropped: failures.iter().filter(|(class, _)| *class == Class::Dropped).count(),
        ended_badly: of.iter().map(|index| &processes[*index]).filter(badly).count(),
        first,
        earlier: earliest.filter(|earlier| {
            first.is_some_and(|first| earlier.at_ns < first.at_ns && earlier.process != first.process)
        }),
        others_then: first.and_then(|first| others_then(members, processes, clocks, first)),
    }
}
