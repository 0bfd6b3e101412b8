use super::*;
use crate::replay::timeline::MAX_POINTS;
use crate::testing::{GIB, MIB, TraceBuilder, member};

const START_NS: u64 = 1_795_183_391_000_000_000;
const SECOND: u64 = 1_000_000_000;

/// A process of a job: where, who, and when it began by the wall clock. Its monotonic clock began with the wall clock's
/// `START_NS`.
fn process(host: &str, pid: u32, rank: u32, began_ns: u64) -> TraceBuilder {
    let mut trace = TraceBuilder::default().device(0, "GPU", 16 * GIB);
    trace.header.pid = pid;
    trace.header.clock_first.wall_ns = START_NS + began_ns;
    trace.header.clock_first.monotonic_ns = began_ns;
    trace.header.clock_first.ticks = 0;
    (trace.process.pid, trace.process.rank, trace.process.hostname) = (pid, rank, host.into());
    trace.process.environment.push(("RANK".into(), rank.to_string()));
    trace
}

fn job(traces: &[&TraceBuilder]) -> Job {
    let forwards = assemble(traces.iter().map(|trace| member(trace)).collect(), Vec::new()).0;
    let backwards = assemble(traces.iter().rev().map(|trace| member(trace)).collect(), Vec::new()).0;
    assert_eq!(forwards, backwards, "the order of the arguments matters");
    forwards
}

fn exit(trace: &mut TraceBuilder, status: i32) {
    trace.end(gpuoom_trace::record::process::EXITS, status);
}

/// One that holds 6 GiB from 1 s on, another that holds 5 GiB for a second before that and 2 GiB after it: 8 together,
/// although their own peaks add up to 11.
#[test]
fn the_peak_of_a_device_is_of_one_moment() {
    let mut one = process("atlas", 10, 0, 0);
    one.now_ns = SECOND;
    one.alloc(0x1000, 6 * GIB);
    one.now_ns = 4 * SECOND;
    exit(&mut one, 0);
    let mut other = process("atlas", 11, 1, SECOND / 2);
    other.alloc(0x1000, 5 * GIB);
    other.free(0x1000);
    other.now_ns = 2 * SECOND;
    other.alloc(0x1000, 2 * GIB);
    exit(&mut other, 0);
    let job = job(&[&one, &other]);
    assert_eq!(job.devices.len(), 1);
    let device = &job.devices[0];
    assert_eq!((device.joined_by, device.index, device.users.len()), (JoinedBy::PciBusId, Some(0), 2));
    // The call began 1 ms after `now_ns`, took 1 µs, and the trace half a second after the job.
    let at_ns = SECOND / 2 + 2 * SECOND + 1_001_000;
    // The sizes are whole granules.
    let of = |(process, bytes)| Share { process, requested_bytes: bytes, padded_bytes: bytes };
    let expected = JobPeak {
        at_ns,
        requested_bytes: 8 * GIB,
        padded_bytes: 8 * GIB,
        exact: true,
        resolution_ns: 0,
        processes: [(0, 6 * GIB), (1, 2 * GIB)].map(of).to_vec(),
    };
    assert_eq!(device.peak, expected);
    assert_eq!(job.clocks[0].aligned_by, AlignedBy::MonotonicClock);
}

/// What a process of the job held of the card when another was refused memory is told, as far as the same card is meant.
#[test]
fn what_others_of_the_job_held_then() {
    let refused = |bus: &str| {
        let mut trace = process("atlas", 10, 0, 0).bus_id(bus);
        trace.alloc(0x1000, 2 * GIB);
        trace.now_ns = 3 * SECOND;
        trace.refuse(9 * GIB);
        exit(&mut trace, 1);
        trace
    };
    let holder = |managed: bool| {
        let mut trace = process("atlas", 11, 1, 0).bus_id("0000:03:00.0");
        trace.alloc(0x1000, 5 * GIB);
        trace.alloc(0x2000_0000_0000, GIB);
        if managed {
            let kind = gpuoom_trace::record::Kind::Managed;
            let record = trace.record(gpuoom_trace::record::Event::Alloc, kind, "hipMallocManaged");
            trace.push(gpuoom_trace::record::Record { address: 0x3000_0000_0000, requested: GIB, ..record }, &[]);
        }
        trace.now_ns = 2 * SECOND;
        trace.free(0x2000_0000_0000);
        trace.now_ns = 5 * SECOND;
        exit(&mut trace, 0);
        trace
    };
    let then = |refused: &TraceBuilder, holder: &TraceBuilder| job(&[refused, holder]).verdict.others_then;
    let same = refused("0000:03:00.0");
    let others = then(&same, &holder(false)).unwrap();
    assert_eq!((others.requested_bytes, others.exact, others.processes[0].process), (5 * GIB, true, 1));
    assert!(!then(&same, &holder(true)).unwrap().exact, "pages of managed memory may lie in RAM");
    assert_eq!(then(&refused("0000:43:00.0"), &holder(false)), None, "another card");
    let mut elsewhere = holder(false);
    elsewhere.process.hostname = "boreas".into();
    assert_eq!(then(&same, &elsewhere), None, "another host");
}

/// What a process did not free is free once it has ended: workers that come one after the other do not add up.
#[test]
fn memory_ends_with_its_process() {
    let workers: Vec<TraceBuilder> = (0..3)
        .map(|index| {
            let mut worker = process("atlas", 20 + index, 0, u64::from(index) * SECOND);
            worker.alloc(0x1000, 3 * GIB);
            exit(&mut worker, 0);
            worker
        })
        .collect();
    let job = job(&workers.iter().collect::<Vec<_>>());
    assert_eq!(job.devices[0].peak.requested_bytes, 3 * GIB);
    assert_eq!(job.devices[0].peak.processes.len(), 1);
}

#[test]
fn devices_are_joined_by_bus_id_and_host() {
    let trace = |host: &str, pid, index, bus: &str| {
        let mut trace = process(host, pid, 0, 0);
        trace = trace.device(index, "GPU", 16 * GIB).bus_id(bus);
        let record = trace.record(gpuoom_trace::record::Event::Alloc, gpuoom_trace::record::Kind::Device, "hipMalloc");
        let record = gpuoom_trace::record::Record { device: index, address: 0x1000, requested: GIB, ..record };
        trace.push(record, &[]);
        trace
    };
    let visible = |mut trace: TraceBuilder, devices: &str| {
        trace.process.environment = vec![("HIP_VISIBLE_DEVICES".into(), devices.into())];
        trace
    };
    // Two processes that each see one card as their first: the same only where the bus says so. Who did not learn the bus
    // is joined to those that did if they see the same, and agree.
    let traces = [
        visible(trace("atlas", 1, 0, "0000:03:00.0"), "0"),
        visible(trace("atlas", 2, 0, "0000:43:00.0"), "1"),
        trace("atlas", 3, 1, "0000:43:00.0"),
        visible(trace("atlas", 4, 0, ""), "1"),
        trace("atlas", 5, 0, ""),
        trace("boreas", 1, 0, "0000:03:00.0"),
        trace("boreas", 2, 0, ""),
        trace("boreas", 3, 1, ""),
        visible(trace("boreas", 4, 1, ""), "2"),
    ];
    let job = job(&traces.iter().collect::<Vec<_>>());
    let users: Vec<_> =
        job.devices.iter().map(|device| (device.index, device.joined_by, device.users.clone())).collect();
    let expected = [
        (Some(0), JoinedBy::PciBusId, vec![0]),
        (None, JoinedBy::Index, vec![1, 2, 3]),
        (Some(0), JoinedBy::Index, vec![4]),
        (Some(0), JoinedBy::Index, vec![5, 6]),
        (Some(1), JoinedBy::Index, vec![7]),
        (Some(1), JoinedBy::Index, vec![8]),
    ];
    assert_eq!(users, expected);
    let of_process = |index: usize| job.processes[index].devices[0].device;
    assert_eq!([0, 1, 2, 3, 4, 6].map(of_process), [Some(0), Some(1), Some(1), Some(1), Some(2), Some(3)]);
}

#[test]
fn a_dropped_failure_decides_and_the_earlier_one_is_named() {
    let mut early = process("atlas", 10, 0, 0);
    early.refuse(20 * GIB);
    early.after(gpuoom_trace::record::Event::Exception, "__cxa_throw", 0, 0);
    exit(&mut early, 1);
    let mut late = process("atlas", 11, 1, SECOND);
    late.refuse(20 * GIB);
    late.after(gpuoom_trace::record::Event::GpuWork, "hipLaunchKernel", 0, 0);
    exit(&mut late, 0);
    let mut fine = process("atlas", 12, 2, 0);
    fine.alloc(0x1000, GIB);
    exit(&mut fine, 0);
    let job = job(&[&fine, &late, &early]);
    let classes: Vec<_> = job.processes.iter().map(|process| process.class).collect();
    assert_eq!(classes, [Class::RanOut, Class::Dropped, Class::Healthy]);
    let verdict = job.verdict;
    assert_eq!((verdict.ran_out, verdict.dropped, verdict.ended_badly), (2, 1, 1));
    let first = FirstFailure { process: 1, oom: 1, at_ns: SECOND + 1_000_000 };
    assert_eq!(verdict.first, Some(first));
    assert_eq!(verdict.earlier, Some(FirstFailure { process: 0, oom: 1, at_ns: 1_000_000 }));
}

/// Of failures of one sort the first on the timeline decides, whatever its process is called.
#[test]
fn the_first_of_equal_failures_decides() {
    let fail = |pid, rank, began_ns| {
        let mut trace = process("atlas", pid, rank, began_ns);
        trace.refuse(20 * GIB);
        trace.after(gpuoom_trace::record::Event::Exception, "__cxa_throw", 0, 0);
        exit(&mut trace, 1);
        trace
    };
    let (one, other) = (fail(10, 0, 5 * SECOND), fail(11, 1, 3 * SECOND));
    let job = job(&[&one, &other]);
    assert_eq!(job.verdict.first.map(|first| first.process), Some(1));
    assert_eq!(job.verdict.earlier, None);
}

#[test]
fn children_stand_behind_their_parents() {
    let mut parent = process("atlas", 100, 0, 0);
    parent.alloc(0x1000, GIB);
    let child_of = |pid, parent_pid, began_ns| {
        let mut child = process("atlas", pid, 0, began_ns);
        child.process.parent_pid = parent_pid;
        child.alloc(0x1000, GIB);
        child
    };
    let (child, grandchild) = (child_of(30, 100, 10), child_of(20, 30, 20));
    // Same number on another host: no relative.
    let mut stranger = process("boreas", 31, 0, 0);
    stranger.process.parent_pid = 100;
    let other_root = process("atlas", 200, 0, 5);
    let job = job(&[&grandchild, &stranger, &other_root, &child, &parent]);
    let rows: Vec<_> = job.processes.iter().map(|one| (one.pid, one.parent, one.generation)).collect();
    let expected = [(100, None, 0), (30, Some(0), 1), (20, Some(1), 2), (200, None, 0), (31, None, 0)];
    assert_eq!(rows, expected);
}

/// Files can say that two processes are each other's parents.
#[test]
fn a_circle_of_parents_is_opened() {
    let mut one = process("atlas", 1, 0, 0);
    one.process.parent_pid = 2;
    let mut other = process("atlas", 2, 0, 0);
    other.process.parent_pid = 1;
    let mut own = process("atlas", 3, 0, 0);
    own.process.parent_pid = 3;
    let job = job(&[&one, &other, &own]);
    let rows: Vec<_> = job.processes.iter().map(|one| (one.pid, one.parent)).collect();
    assert_eq!(rows, [(3, None), (1, None), (2, Some(1))]);
}

/// The wall clock was set while the job ran: processes of one boot keep their order; those of another boot do not share a
/// clock and are placed by the wall clock.
#[test]
fn clocks_are_brought_together() {
    let one = process("atlas", 1, 0, 0);
    let mut set = process("atlas", 2, 0, 3 * SECOND);
    set.header.clock_first.wall_ns -= 5 * SECOND;
    let together = job(&[&one, &set]);
    let began: Vec<_> = together.processes.iter().map(|process| (process.pid, process.began_at_ns)).collect();
    // The one that the wall clock calls first gives the time of day; the distance is the monotonic clock's.
    assert_eq!(began, [(2, 3 * SECOND), (1, 0)]);
    assert_eq!(together.clocks[0].wall_clock_moved_ns, 5 * SECOND);

    let mut rebooted = process("atlas", 2, 0, 100 * SECOND);
    rebooted.header.clock_first.monotonic_ns = SECOND;
    let apart = job(&[&one, &rebooted]);
    assert_eq!(apart.clocks[0].aligned_by, AlignedBy::WallClock);
    assert_eq!(apart.processes[1].began_at_ns, 100 * SECOND);
}

#[test]
fn too_many_changes_are_labelled() {
    let mut busy = process("atlas", 1, 0, 0);
    for _ in 0..MAX_POINTS {
        busy.alloc(0x1000, 3 * MIB);
        busy.free(0x1000);
    }
    let mut calm = process("atlas", 2, 0, 0);
    calm.alloc(0x1000, GIB);
    calm.now_ns = busy.now_ns;
    calm.free(0x1000);
    let alone = &job(&[&busy]).devices[0].peak;
    assert!(alone.exact, "the most of an interval is the peak of a process that is alone");
    assert_eq!(alone.requested_bytes, 3 * MIB);
    let together = &job(&[&busy, &calm]).devices[0].peak;
    assert!(!together.exact && together.resolution_ns > 0);
    assert_eq!(together.requested_bytes, GIB + 3 * MIB);
}

/// A run that finds so much of the card in use when it begins, others' share of it, and how it goes.
fn run(pid: u32, began_ns: u64, used: u64, others: u64, setting: Option<&str>, fails: bool) -> TraceBuilder {
    use gpuoom_trace::metadata::{Quantity, Reading};
    use gpuoom_trace::record::{Event, Kind, Record};
    let mut trace = process("atlas", pid, 0, began_ns);
    trace.process.environment.extend(setting.map(|value| ("HSA_ENABLE_SDMA".to_owned(), value.to_owned())));
    let read = [(Quantity::VramUsed, used), (Quantity::KfdOthersVram, others), (Quantity::GraphicsVram, 0)];
    let readings = read.map(|(quantity, value)| Reading { quantity: quantity as u16, device: 0, value });
    trace.reading(Record { at: 1, ..Record::new(Event::Reading, Kind::None) }, &readings);
    trace.alloc(0x1000, GIB);
    if fails {
        trace.refuse(20 * GIB);
    }
    trace.free(0x1000);
    exit(&mut trace, i32::from(fails));
    trace
}

fn found(traces: &[TraceBuilder]) -> Vec<(&'static str, &'static str)> {
    let job = job(&traces.iter().collect::<Vec<_>>());
    job.diagnoses.iter().map(|finding| (finding.id, finding.confidence.name())).collect()
}

#[test]
fn memory_that_stays_after_each_run_is_the_drivers_unless_somebody_has_it() {
    let runs = |step: u64, others: u64| -> Vec<TraceBuilder> {
        let at =
            |number: u64| run(10 + number as u32, number * SECOND, GIB + number * step, number * others, None, false);
        (0..4).map(at).collect()
    };
    assert_eq!(found(&runs(200 * MIB, 0)), [("driver-stranded-vram", "probable")]);
    assert_eq!(found(&runs(200 * MIB, 200 * MIB)), [], "another process grew by as much");
    assert_eq!(found(&runs(20 * MIB, 0)), [], "noise");
    assert_eq!(found(&runs(200 * MIB, 0)[..2]), [], "two runs are too few");
}

#[test]
fn what_the_dma_engines_decide_needs_both_sides_twice() {
    let side = |pids: std::ops::Range<u32>, setting: Option<&'static str>, fails: bool| -> Vec<TraceBuilder> {
        pids.map(|pid| run(pid, u64::from(pid) * SECOND, GIB, 0, setting, fails)).collect()
    };
    let both = |with: Vec<TraceBuilder>, without: Vec<TraceBuilder>| found(&[with, without].concat());
    assert_eq!(both(side(1..3, None, true), side(3..5, Some("0"), false)), [("sdma-sensitive", "proven")]);
    assert_eq!(both(side(1..3, None, true), side(3..4, Some("0"), false)), [("sdma-sensitive", "possible")]);
    assert_eq!(both(side(1..3, None, true), side(3..5, Some("0"), true)), [], "it fails on both sides");
    assert_eq!(both(side(1..3, None, false), side(3..5, Some("0"), false)), [], "it fails on neither side");
}

#[test]
fn runs_that_differ_in_more_than_the_dma_engines_prove_nothing() {
    let one = |pid: u32, used: u64, setting: Option<&'static str>| {
        run(pid, u64::from(pid) * SECOND, used, 0, setting, setting.is_none())
    };
    let told = |change: &dyn Fn(&mut TraceBuilder), used_later: u64| {
        let mut traces = vec![one(1, GIB, None), one(2, GIB, None)];
        for pid in 3..5 {
            let mut trace = one(pid, used_later, Some("0"));
            change(&mut trace);
            traces.push(trace);
        }
        let job = job(&traces.iter().collect::<Vec<_>>());
        let found = job.diagnoses.iter().find(|finding| finding.id == "sdma-sensitive").expect("it looks like it");
        let texts: Vec<&str> = found.evidence.iter().map(|evidence| evidence.text.as_str()).collect();
        (found.confidence.name(), texts.join("; "))
    };
    assert_eq!(told(&|_| (), GIB).0, "proven");
    let (sure, text) = told(&|_| (), 6 * GIB);
    assert!(
        sure == "possible" && text.contains("differ in more than HSA_ENABLE_SDMA: memory in use at the start"),
        "{text}"
    );
    let (sure, text) = told(&|trace| trace.process.environment.push(("HSA_XNACK".into(), "1".into())), GIB);
    assert!(sure == "possible" && text.contains("HSA_XNACK"), "{text}");
    let (sure, text) = told(&|trace| *trace = std::mem::take(trace).runtime_version(70_051_831), GIB);
    assert!(sure == "possible" && text.contains("the version of the runtime"), "{text}");
    let (sure, text) = told(&|trace| trace.process.hostname = "rhea".into(), GIB);
    assert!(sure == "possible" && text.contains("the host"), "{text}");
}

/// Which processes are of which run, by process id.
fn runs_of(traces: &[&TraceBuilder]) -> Vec<Vec<u32>> {
    let job = job(traces);
    let pids = |run: &JobRun| run.processes.iter().map(|index| job.processes[*index].pid).collect();
    job.runs.iter().map(pids).collect()
}

/// A glob finds the traces of earlier runs, too.
#[test]
fn runs_that_follow_each_other_are_no_job() {
    let at = |pid: u32, began_ns: u64| {
        let mut trace = process("atlas", pid, 0, began_ns);
        trace.now_ns = SECOND;
        trace.alloc(0x1000, GIB);
        exit(&mut trace, 0);
        trace
    };
    let (old, new) = (at(20, 0), at(10, 5 * SECOND));
    assert_eq!(runs_of(&[&old, &new]), [vec![20], vec![10]], "the newest stands last");
    assert_eq!(runs_of(&[&old, &at(10, SECOND / 2)]), [vec![20, 10]], "they lived at the same time");
    let mut child = at(30, 9 * SECOND);
    child.process.parent_pid = 10;
    assert_eq!(runs_of(&[&old, &new, &child]), [vec![20], vec![10, 30]], "one started the other");
    let mut after_exec = at(10, 9 * SECOND);
    after_exec.process.parent_pid = new.process.parent_pid;
    assert_eq!(runs_of(&[&new, &after_exec]), [vec![10, 10]], "one process that called exec");
}

#[test]
fn what_may_be_one_job_is_one() {
    let mut died_early = process("atlas", 10, 0, 0);
    exit(&mut died_early, 1);
    let mut late = process("atlas", 11, 1, 5 * SECOND);
    exit(&mut late, 1);
    assert_eq!(runs_of(&[&died_early, &late]), [vec![10, 11]], "two ranks of one launcher");
    let mut elsewhere = process("boreas", 11, 0, 5 * SECOND);
    exit(&mut elsewhere, 1);
    assert_eq!(runs_of(&[&died_early, &elsewhere]), [vec![10, 11]], "clocks of two hosts may be apart");
}

/// An earlier run's failure is none of the newest one's.
#[test]
fn the_verdict_is_of_the_newest_run() {
    let mut old = process("atlas", 10, 0, 0);
    old.refuse(20 * GIB);
    exit(&mut old, 1);
    let mut new = process("atlas", 11, 0, 5 * SECOND);
    new.alloc(0x1000, GIB);
    exit(&mut new, 0);
    let verdict = job(&[&old, &new]).verdict;
    assert_eq!((verdict.ran_out, verdict.ended_badly, verdict.first), (0, 0, None));
}

/// Whose memory stood in the way is settled by the trace of the process that held it, and by nothing less.
#[test]
fn traces_of_a_job_settle_whose_memory_stood_in_the_way() {
    use gpuoom_trace::metadata::Quantity::{RuntimeFree, RuntimeTotal};
    let mut refused = process("atlas", 10, 0, SECOND).bus_id("0000:03:00.0");
    let record =
        refused.record(gpuoom_trace::record::Event::Reading, gpuoom_trace::record::Kind::None, "gpuoom_reading");
    let record = gpuoom_trace::record::Record {
        status: gpuoom_trace::metadata::trigger::PERIOD,
        device: gpuoom_trace::record::NO_DEVICE,
        ..record
    };
    let read = [(RuntimeTotal, 16 * GIB), (RuntimeFree, 9 * GIB)];
    let read =
        read.map(|(quantity, value)| gpuoom_trace::metadata::Reading { quantity: quantity as u16, device: 0, value });
    refused.reading(record, &read);
    refused.alloc(0x1000, 4 * GIB);
    let seq = refused.refuse(6 * GIB);
    refused.read_at_failure(seq, &[(RuntimeTotal as u16, 16 * GIB), (RuntimeFree as u16, 5 * GIB)]);
    exit(&mut refused, 1);
    let holder = |bus: &str| {
        let mut trace = process("atlas", 11, 1, 0).bus_id(bus);
        trace.alloc(0x1000, 7 * GIB);
        trace.now_ns = 9 * SECOND;
        exit(&mut trace, 0);
        trace
    };
    let concluded = |traces: &[&TraceBuilder]| {
        let (_, summaries) = assemble(traces.iter().map(|trace| member(trace)).collect(), Vec::new());
        summaries.into_iter().find(|summary| summary.facts.process.pid == 10).unwrap().conclusion
    };
    let alone = concluded(&[&refused]);
    assert_eq!((alone.verdict.cause, alone.perhaps().map(|found| found.id)), (None, Some("other-process-on-gpu")));
    assert_eq!(concluded(&[&refused, &holder("0000:43:00.0")]).verdict.cause, None, "another card");
    let settled = concluded(&[&refused, &holder("0000:03:00.0")]);
    let sure = Some(crate::judgement::check::Confidence::Probable);
    assert_eq!((settled.verdict.cause, settled.verdict.confidence), (Some("other-process-on-gpu"), sure));
    assert_eq!(settled.causes, [Some("other-process-on-gpu")]);
    assert!(settled.would_settle.is_empty() && settled.ladder.steps[0].fix.why.contains("end the other process"));
    assert!(settled.findings[0].evidence.last().unwrap().text.contains("held 7.00 GiB of that card then (pid 11)"));
}
