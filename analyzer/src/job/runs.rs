//! Which traces are of one run of a program, and which of runs that followed each other.
//!
//! A glob like `gpuoom-python*.trace.bin` finds the traces of yesterday, too. Nothing in a trace says which job it is of, so
//! traces are of separate runs only where everything says so: no life of one overlaps a life of the other, neither is the
//! other's parent nor has its number, no launcher started both with different ranks, and they have a host in common, because
//! the clocks of two hosts may be apart by more than a run.

use std::collections::BTreeSet;

use serde::Serialize;

use super::{JobProcess, Member};

/// Processes that belong together.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct JobRun {
    /// Indices of its processes.
    pub processes: Vec<usize>,
    /// When its first trace begins, in nanoseconds since the job began.
    pub began_at_ns: u64,
    /// The last sign of life of any of its processes.
    pub ended_at_ns: u64,
}

/// The runs, in the order in which they began; one where the traces are one job.
pub(super) fn find(members: &[Member], processes: &[JobProcess]) -> Vec<JobRun> {
    let mut order: Vec<usize> = (0..processes.len()).collect();
    order.sort_by_key(|index| (processes[*index].began_at_ns, *index));
    let mut runs: Vec<JobRun> = Vec::new();
    for index in order {
        let process = &processes[index];
        let (mut joined, apart): (Vec<JobRun>, Vec<JobRun>) = runs
            .into_iter()
            .partition(|run| run.processes.iter().any(|other| belong(members, processes, index, *other)));
        joined.push(JobRun {
            processes: vec![index],
            began_at_ns: process.began_at_ns,
            ended_at_ns: process.ended_at_ns,
        });
        runs = apart;
        runs.push(together(joined));
    }
    let mut runs = of_common_hosts(processes, runs);
    runs.iter_mut().for_each(|run| run.processes.sort_unstable());
    runs.sort_by_key(|run| (run.began_at_ns, run.processes.first().copied()));
    runs
}

fn together(runs: Vec<JobRun>) -> JobRun {
    JobRun {
        began_at_ns: runs.iter().map(|run| run.began_at_ns).min().unwrap_or(0),
        ended_at_ns: runs.iter().map(|run| run.ended_at_ns).max().unwrap_or(0),
        processes: runs.into_iter().flat_map(|run| run.processes).collect(),
    }
}

/// Whether something says that two processes are of one run.
fn belong(members: &[Member], processes: &[JobProcess], one: usize, other: usize) -> bool {
    let (first, second) = (&processes[one], &processes[other]);
    let overlap = first.began_at_ns <= second.ended_at_ns && second.began_at_ns <= first.ended_at_ns;
    let related = first.parent == Some(other) || second.parent == Some(one);
    let same_parent = first.hostname == second.hostname && first.parent_pid == second.parent_pid;
    // `exec` leaves several traces of one process.
    let same_process = same_parent && first.pid == second.pid;
    let rank = |index: usize| members[index].summary.facts.process.rank;
    let launched = same_parent && rank(one).zip(rank(other)).is_some_and(|(one, other)| one != other);
    overlap || related || same_process || launched
}

/// Runs without a host in common may be one whose hosts' clocks are apart.
fn of_common_hosts(processes: &[JobProcess], runs: Vec<JobRun>) -> Vec<JobRun> {
    let hosts = |run: &JobRun| -> BTreeSet<String> {
        run.processes.iter().map(|index| processes[*index].hostname.clone()).collect()
    };
    let all: Vec<BTreeSet<String>> = runs.iter().map(hosts).collect();
    let apart = all.windows(2).all(|pair| !pair[0].is_disjoint(&pair[1]));
    if apart || runs.len() < 2 { runs } else { vec![together(runs)] }
}
