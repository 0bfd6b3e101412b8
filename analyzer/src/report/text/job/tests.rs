//! Whole pages, for the jobs that users meet.

use gpuoom_trace::metadata::Quantity;
use gpuoom_trace::record::{Event, process};

use crate::conclusion::{Summary, sum_up};
use crate::job::{Job, Member, Unreadable, assemble};
use crate::replay::timeline::Timeline;
use crate::replay::{Options, Replay};
use crate::report::page::Look;
use crate::testing::{GIB, TraceBuilder, gib};

const SECOND: u64 = 1_000_000_000;

fn rank(host: &str, pid: u32, rank: u32, bus: u32) -> TraceBuilder {
    let mut trace = TraceBuilder::default().device(0, "AMD Instinct MI300X", 192 * GIB);
    trace = trace.bus_id(&format!("0000:{bus:02x}:00.0"));
    trace.header.pid = pid;
    trace.header.clock_first.monotonic_ns = 7 * SECOND;
    (trace.process.pid, trace.process.rank, trace.process.hostname) = (pid, rank, host.into());
    trace.process.executable = "/usr/bin/python3.12".into();
    trace.process.environment.push(("RANK".into(), rank.to_string()));
    trace
}

fn assembled(traces: &[TraceBuilder], unreadable: &[&str]) -> (Job, Vec<Summary>) {
    let members = traces.iter().map(|trace| {
        let mut file = crate::testing::open(trace);
        let mut replay = Replay::new(&file, Options::default());
        replay.timeline = Some(Timeline::default());
        crate::intake::read_through(&mut file, |_| {}, |batch| replay.batch(batch));
        replay.finish();
        let mut summary = sum_up(&file, &replay, &Default::default());
        summary.facts.trace.path = format!("{}-{}.trace.bin", trace.process.hostname, trace.process.rank);
        Member::new(&file, &replay, summary)
    });
    let missing = unreadable
        .iter()
        .map(|path| Unreadable { path: (*path).to_owned(), reason: format!("{path}: offset 0: not a gpuoom trace") });
    assemble(members.collect(), missing.collect())
}

fn page(traces: &[TraceBuilder], unreadable: &[&str], width: usize) -> String {
    let (job, summaries) = assembled(traces, unreadable);
    let text = super::write_job(&job, &summaries, Look::new(width, false));
    assert!(text.lines().all(|line| line.chars().count() <= width), "a line is too long:\n{text}");
    text
}

fn healthy(host: &str, pid: u32, number: u32, gib_asked: f64) -> TraceBuilder {
    let mut trace = rank(host, pid, number, pid % 8 + 1);
    trace.alloc(0x1000, gib(gib_asked));
    trace.now_ns = 2 * SECOND;
    trace.free(0x1000);
    trace.end(process::EXITS, 0);
    trace
}

fn refused(host: &str, pid: u32, number: u32, at_ns: u64) -> TraceBuilder {
    let mut trace = rank(host, pid, number, pid % 8 + 1);
    trace.alloc(0x1000, gib(180.0));
    trace.now_ns = at_ns;
    let seq = trace.refuse(gib(16.0));
    trace
        .read_at_failure(seq, &[(Quantity::RuntimeTotal as u16, 192 * GIB), (Quantity::RuntimeFree as u16, gib(11.5))]);
    trace
}

#[test]
fn four_ranks_of_which_one_fails() {
    let mut failed = refused("atlas", 4713, 2, SECOND);
    failed.after(Event::Exception, "__cxa_throw", 0, 0);
    failed.end(process::EXITS, 1);
    let mut ended = healthy("atlas", 4714, 3, 150.0);
    ended.now_ns = 3 * SECOND;
    ended.header.closed = 0;
    let mut worker = healthy("atlas", 4720, 0, 1.5);
    worker.process.parent_pid = 4711;
    worker.end(process::SIGNALS, 15);
    let traces = [worker, ended, failed, healthy("atlas", 4711, 0, 150.0), healthy("atlas", 4712, 1, 151.0)];
    for width in [80, 110] {
        insta::assert_snapshot!(format!("four_ranks_{width}"), page(&traces, &["bad.bin"], width));
    }
}

/// The verdict says what other processes of the job held of the card, and whether that is more than what was missing.
#[test]
fn the_verdict_says_what_others_of_the_job_held() {
    let mut failed = rank("node", 4711, 0, 1);
    failed.now_ns = SECOND;
    let seq = failed.refuse(gib(100.0));
    failed
        .read_at_failure(seq, &[(Quantity::RuntimeTotal as u16, 192 * GIB), (Quantity::RuntimeFree as u16, gib(42.0))]);
    failed.end(process::EXITS, 1);
    let mut holder = rank("node", 4712, 1, 1);
    holder.alloc(0x1000, gib(150.0));
    holder.now_ns = 3 * SECOND;
    holder.end(process::EXITS, 0);
    let page = page(&[failed, holder], &[], 100);
    let verdict: Vec<&str> = page.split_whitespace().collect();
    let told = "Other processes of this job held 150.00 GiB of that card then, by their own traces (rank 1 (pid 4712): 150.00 GiB), more than the 58.00 \
                GiB that was missing.";
    assert!(verdict.join(" ").contains(told), "{page}");
}

#[test]
fn who_recovered_ran_out_before_who_did_not() {
    let mut recovered = rank("node", 4711, 0, 1);
    recovered.alloc(0x1000, gib(180.0));
    recovered.refuse(2 << 30);
    recovered.free(0x1000);
    recovered.alloc(0x2000, 2 << 30);
    recovered.end(process::EXITS, 0);
    let page = page(&[recovered, refused("node", 4712, 1, 9 * SECOND)], &[], 100);
    let verdict: Vec<&str> = page.split_whitespace().collect();
    assert!(verdict.join(" ").contains("was the first to run out of memory without recovering"), "{page}");
}

#[test]
fn sixty_four_ranks_are_readable() {
    let mut traces: Vec<TraceBuilder> =
        (0..64).map(|number| healthy(&format!("node{}", number / 8), 4700 + number, number, 100.0)).collect();
    let text = page(&traces, &[], 100);
    assert!(text.lines().count() < 40, "{text}");
    assert!(text.contains("64 processes (ranks 0-63): healthy, exit 0; peaks 100.00 to 100.00 GiB asked"), "{text}");

    let mut failed = refused("node3", 4729, 29, SECOND);
    failed.after(Event::GpuWork, "hipLaunchKernel", 0, 0);
    failed.end(process::EXITS, 0);
    traces[29] = failed;
    insta::assert_snapshot!("one_of_sixty_four", page(&traces, &[], 100));
    let (job, _) = assembled(&traces, &[]);
    assert_eq!(super::reported(&job), [29]);

    let all_failed: Vec<TraceBuilder> = (0..64u32)
        .map(|number| {
            let mut trace = refused("node0", 4700 + number, number, SECOND + u64::from(number));
            trace.after(Event::Exception, "__cxa_throw", 0, 0);
            trace.end(process::EXITS, 1);
            trace
        })
        .collect();
    let text = page(&all_failed, &[], 100);
    assert!(text.lines().count() < 64, "{text}");
    assert!(text.contains("48 more processes (ranks 16-63): ran out of memory, exit 1"), "{text}");
    let (job, _) = assembled(&all_failed, &[]);
    assert_eq!(super::reported(&job), [0, 1, 2, 3, 4, 5, 6, 7]);
}

#[test]
fn no_gpu_and_no_rank() {
    let mut one = TraceBuilder::default();
    one.end(process::EXITS, 0);
    let mut other = TraceBuilder::default();
    other.process.hostname = "\x1b[31mboreas".into();
    other.process.pid = 12;
    let text = page(&[one, other], &[], 80);
    assert!(text.contains("none got memory of a GPU"), "{text}");
    assert!(!text.contains('\x1b') && !text.contains("rank"), "{text}");
}

#[test]
fn runs_that_followed_each_other() {
    let began = |mut trace: TraceBuilder, ns: u64| {
        trace.header.clock_first.monotonic_ns += ns;
        trace.header.clock_first.wall_ns += ns;
        trace.process.command_line = vec!["python".into(), "train.py".into()];
        trace
    };
    let mut failed = refused("atlas", 4711, 0, SECOND);
    failed.after(Event::Exception, "__cxa_throw", 0, 0);
    failed.end(process::EXITS, 1);
    let runs = [began(healthy("atlas", 4712, 0, 150.0), 60 * SECOND), began(failed, 0)];
    let (job, summaries) = assembled(&runs, &["bad.bin"]);
    assert_eq!(job.runs.len(), 2);
    insta::assert_snapshot!(super::write_runs(&job, &summaries, Look::new(100, false)));
    insta::assert_snapshot!(crate::report::markdown::write_runs(&job, &summaries));
}
