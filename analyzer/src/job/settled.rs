//! Whose memory stood in the way of a process is settled by the traces of the others.

use super::devices::OthersThen;
use super::verdict::{self, FirstFailure};
use super::{HostClock, JobProcess, Member};
use crate::conclusion::settled::Told;
use crate::words::size;

/// The finding, and what it lacks where nobody but the job tells.
const ID: &str = "other-process-on-gpu";
const LACKED: &str = "whose memory that was";

/// Tells each process that ran out of memory what the others held of that card then, where that is what its report lacks.
pub(super) fn settle(members: &mut [Member], processes: &[JobProcess], clocks: &[HostClock]) {
    let told: Vec<(usize, Told)> =
        (0..members.len()).filter_map(|index| Some((index, told(members, processes, clocks, index)?))).collect();
    for (index, told) in told {
        members[index].summary.settle(told);
    }
}

/// What the others held, where it was enough at each failure of the finding.
fn told(members: &[Member], processes: &[JobProcess], clocks: &[HostClock], process: usize) -> Option<Told> {
    let summary = &members[process].summary;
    let numbers = summary.lacks_only(ID, LACKED)?;
    let mut last = None;
    for number in numbers {
        let oom = summary.facts.ooms.iter().find(|oom| oom.number == *number)?;
        let at_ns = processes[process].began_at_ns.saturating_add(oom.at_ns);
        let failure = FirstFailure { process, oom: *number, at_ns };
        let others = verdict::others_then(members, processes, clocks, failure)?;
        others.more_than_missing(oom)?;
        last = Some(others);
    }
    let OthersThen { requested_bytes, processes: shares, .. } = last?;
    let pids: Vec<String> = shares.iter().take(3).map(|share| processes[share.process].pid.to_string()).collect();
    let pids = pids.join(", ");
    let fact =
        format!("by their own traces other processes held {} of that card then (pid {pids})", size(requested_bytes));
    Some(Told { id: ID, lacked: LACKED, fact })
}
