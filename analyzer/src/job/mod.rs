//! Several traces as one job: one clock, one order, one verdict, and the devices that its processes share.
//!
//! Nothing here depends on the order in which the traces were given.

pub mod across;
mod clock;
mod devices;
mod family;
mod runs;
mod settled;
#[cfg(test)]
mod tests;
mod verdict;

use gpuoom_trace::header::ClockPoint;
use gpuoom_trace::reader::TraceFile;
use gpuoom_trace::record::NO_DEVICE;
use serde::Serialize;

use crate::conclusion::Summary;
use crate::conclusion::finding::Finding;
use crate::passes::account::PeakSummary;
use crate::passes::facts::Facts;
use crate::passes::outcomes::{Outcomes, count_outcomes};
use crate::passes::time::rfc3339;
use crate::replay::Replay;
use crate::replay::timeline::{Level, Steps};
use across::Run;

pub use clock::{AlignedBy, HostClock};
pub use devices::{JobDevice, JobPeak, JoinedBy, OthersThen, Share};
pub use runs::JobRun;
pub use verdict::{Class, FirstFailure, JobVerdict};

/// What one trace brings to a job.
#[derive(Clone, Debug)]
pub struct Member {
    /// The report on this trace alone.
    pub summary: Summary,
    first: ClockPoint,
    last: Option<ClockPoint>,
    /// Nanoseconds since the trace began at the last sign of life.
    lived_ns: u64,
    bytes: Vec<DeviceBytes>,
}

/// What a process held of one device, over time.
#[derive(Clone, Debug)]
struct DeviceBytes {
    device: u8,
    /// From this moment on, in nanoseconds since the trace began, so much.
    steps: Vec<(u64, Level)>,
    granularity_bytes: u64,
    /// How far apart moments can be that are shown as one; 0 where each change is there by itself.
    resolution_ns: u64,
}

impl Member {
    /// From a trace that was replayed to its end with a timeline.
    pub fn new(trace: &TraceFile, replay: &Replay, summary: Summary) -> Self {
        let last = trace.header.clock_latest();
        let last_ticks = last.map_or(0, |point| point.ticks).max(replay.last_at);
        let followed = replay.timeline.iter().flat_map(|timeline| timeline.devices());
        let known = followed.filter(|(device, _)| *device != NO_DEVICE);
        Member {
            summary,
            first: trace.header.clock_first,
            last,
            lived_ns: replay.clock.at_ns(last_ticks),
            bytes: known.map(|(device, steps)| bytes_of(replay, device, steps)).collect(),
        }
    }
}

fn bytes_of(replay: &Replay, device: u8, steps: &Steps) -> DeviceBytes {
    let mut flat = Vec::with_capacity(steps.points().len());
    for point in steps.points() {
        flat.push((replay.clock.at_ns(point.at), point.most));
        if point.last != point.most {
            flat.push((replay.clock.at_ns(point.at.saturating_add(steps.width())), point.last));
        }
    }
    let resolution_ns = if steps.is_exact() { 0 } else { replay.clock.duration_ns(steps.width()).max(1) };
    DeviceBytes { device, steps: flat, granularity_bytes: replay.granularity_bytes, resolution_ns }
}

/// One process of a job.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct JobProcess {
    /// Index of its report in `traces`.
    pub trace: usize,
    /// The file.
    pub path: String,
    /// Process id.
    pub pid: u32,
    /// Parent process id.
    pub parent_pid: u32,
    /// Index of the parent in this list, where it is there.
    pub parent: Option<usize>,
    /// How many of its ancestors are in this list.
    pub generation: usize,
    /// Rank; null where none is known.
    pub rank: Option<u32>,
    /// Path of the executable.
    pub executable: String,
    /// Host name.
    pub hostname: String,
    /// When its trace begins, in nanoseconds since the job began.
    pub began_at_ns: u64,
    /// Its last sign of life.
    pub ended_at_ns: u64,
    /// `exited`, `signaled`, `unknown`.
    pub end: &'static str,
    /// Exit status.
    pub exit_code: Option<i32>,
    /// Signal number.
    pub signal: Option<i32>,
    /// What decides its place in the verdict.
    pub class: Class,
    /// Out-of-memory returns by outcome.
    pub ooms: Outcomes,
    /// The devices that it used; moments are of its own trace.
    pub devices: Vec<ProcessDevice>,
    /// Peak of pinned and registered host memory.
    pub host_peak: PeakSummary,
}

/// What one process had of one device.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ProcessDevice {
    /// Index as the process counts.
    pub index: Option<u8>,
    /// Index of the physical device in the job's `devices`; `None` for memory whose device is not known.
    pub device: Option<usize>,
    /// Its own peak, at a moment of its own trace.
    pub peak: PeakSummary,
    /// Calls that were refused.
    pub failures: u64,
}

/// A trace that is missing from the job because it could not be read.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Unreadable {
    /// As it was given.
    pub path: String,
    /// What is wrong with it.
    pub reason: String,
}

/// Several traces together. All moments are nanoseconds since the job began, which is when its first trace began.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Job {
    /// When the first trace began.
    pub started_at: String,
    /// Until the last sign of life of any process.
    pub duration_ns: u64,
    /// The runs that followed each other, in order; one where the traces are one job.
    pub runs: Vec<JobRun>,
    /// Who failed first; of several runs, in the newest.
    pub verdict: JobVerdict,
    /// How the clocks of the traces were brought together, by host.
    pub clocks: Vec<HostClock>,
    /// The processes: by host and rank, children behind their parents.
    pub processes: Vec<JobProcess>,
    /// The physical devices.
    pub devices: Vec<JobDevice>,
    /// What only the runs together show.
    pub diagnoses: Vec<Finding>,
    /// What could not be read.
    pub unreadable: Vec<Unreadable>,
}

/// Of traces of several runs that followed each other, those of the newest one; all where they are one job.
pub fn newest_run(members: &[Member], job: &Job) -> Vec<Member> {
    let Some(newest) = job.runs.last() else { return Vec::new() };
    let paths: Vec<&str> = newest.processes.iter().map(|index| job.processes[*index].path.as_str()).collect();
    members.iter().filter(|member| paths.contains(&member.summary.facts.trace.path.as_str())).cloned().collect()
}

/// Puts traces together. Returns them in the job's order, which `traces` in the JSON has too.
pub fn assemble(mut members: Vec<Member>, mut unreadable: Vec<Unreadable>) -> (Job, Vec<Summary>) {
    members.sort_by(|one, other| family::rank_of(one).cmp(&family::rank_of(other)));
    let (parents, order) = family::order(&members);
    let mut place = vec![0; members.len()];
    order.iter().enumerate().for_each(|(new, old)| place[*old] = new);
    let parents: Vec<Option<usize>> = order.iter().map(|old| parents[*old].map(|parent| place[parent])).collect();
    let mut slots: Vec<Option<Member>> = members.into_iter().map(Some).collect();
    let mut members: Vec<Member> = order.iter().filter_map(|old| slots[*old].take()).collect();
    unreadable.sort();

    let aligned = clock::align(&members);
    let began: &[u64] = &aligned.began_ns;
    let (devices, index_of) = devices::describe(&members, began);
    let processes: Vec<JobProcess> = (0..members.len())
        .map(|index| describe_process(&members[index], index, &parents, began[index], &index_of))
        .collect();
    settled::settle(&mut members, &processes, &aligned.hosts);
    let runs = members.iter().zip(&processes).map(|(member, process)| Run {
        summary: &member.summary,
        began_at_ns: process.began_at_ns,
        ended_at_ns: process.ended_at_ns,
    });
    let diagnoses = across::diagnose(&runs.collect::<Vec<_>>());
    let runs = runs::find(&members, &processes);
    let newest: &[usize] = runs.last().map_or(&[], |run| &run.processes);
    let job = Job {
        started_at: rfc3339(aligned.started_at_ns),
        duration_ns: processes.iter().map(|process| process.ended_at_ns).max().unwrap_or(0),
        verdict: verdict::judge(&members, &processes, &aligned.hosts, newest),
        runs,
        clocks: aligned.hosts,
        processes,
        devices,
        diagnoses,
        unreadable,
    };
    (job, members.into_iter().map(|member| member.summary).collect())
}

/// The physical devices that traces used, with what they held of each together, and which of them a trace (by its place in
/// the list) means by an index.
pub fn devices_of(members: &[Member]) -> (Vec<JobDevice>, impl Fn(usize, Option<u8>) -> Option<usize> + use<>) {
    devices::describe(members, &clock::align(members).began_ns)
}

fn describe_process(
    member: &Member,
    index: usize,
    parents: &[Option<usize>],
    began_at_ns: u64,
    device_of: &dyn Fn(usize, Option<u8>) -> Option<usize>,
) -> JobProcess {
    let Facts { trace, process, devices, host, ooms, .. } = &member.summary.facts;
    let used = devices.iter().filter(|device| device.account.allocations + device.account.failures > 0);
    let ancestors = std::iter::successors(parents[index], |parent| parents[*parent]);
    JobProcess {
        trace: index,
        path: trace.path.clone(),
        pid: process.pid,
        parent_pid: process.parent_pid,
        parent: parents[index],
        // Parents stand before their children, so the chain ends.
        generation: ancestors.count(),
        rank: process.rank,
        executable: process.executable.clone(),
        hostname: process.hostname.clone(),
        began_at_ns,
        ended_at_ns: began_at_ns.saturating_add(member.lived_ns),
        end: process.end,
        exit_code: process.exit_code,
        signal: process.signal,
        class: verdict::class_of(&member.summary),
        ooms: count_outcomes(ooms),
        devices: used
            .map(|device| ProcessDevice {
                index: device.index,
                device: device_of(index, device.index),
                peak: device.account.peak,
                failures: device.account.failures,
            })
            .collect(),
        host_peak: host.peak,
    }
}
