//! Several traces together: the job first, then the reports on its processes.

mod devices;
mod processes;
pub(in crate::report) mod runs;
#[cfg(test)]
mod tests;
pub(in crate::report) mod verdict;

pub(in crate::report) use processes::ending;
pub use runs::write_runs;

use crate::conclusion::Summary;
use crate::job::{AlignedBy, Class, HostClock, Job, JobProcess};
use crate::report::page::{Look, Page, Paint};
use crate::report::text::diagnoses;
use crate::words::{clean, count, moment, span};

/// Up to so many processes have a row and a report each; of more, only those that something happened to.
const MOST_IN_FULL: usize = 16;
/// Of so many processes, at most so many reports follow.
const MOST_REPORTS: usize = 8;

/// The page about the job.
pub fn write_job(job: &Job, summaries: &[Summary], look: Look) -> String {
    let mut page = Page::new(look);
    head(&mut page, job);
    verdict::write(&mut page, job, summaries);
    clock(&mut page, &job.clocks);
    processes::write(&mut page, job);
    devices::write(&mut page, job);
    across(&mut page, job);
    reports(&mut page, job);
    page.into_text()
}

/// The processes whose own reports follow, in the job's order.
pub fn reported(job: &Job) -> Vec<usize> {
    if job.processes.len() <= MOST_IN_FULL {
        return (0..job.processes.len()).collect();
    }
    let mut chosen: Vec<usize> = (0..job.processes.len()).filter(|index| is_news(&job.processes[*index])).collect();
    chosen.sort_by_key(|index| urgency(job, *index));
    chosen.truncate(MOST_REPORTS);
    chosen.sort_unstable();
    chosen
}

/// Whether something happened to a process that its owner wants to read about.
fn is_news(process: &JobProcess) -> bool {
    process.class < Class::Recovered
}

/// The more urgent, the smaller.
fn urgency(job: &Job, index: usize) -> (bool, Class, u64, usize) {
    let process = &job.processes[index];
    let decides = job.verdict.first.is_some_and(|first| first.process == index);
    (!decides, process.class, process.ended_at_ns, index)
}

fn head(page: &mut Page, job: &Job) {
    let hosts = count(job.clocks.len() as u64, "host", "hosts");
    let traces = count(job.processes.len() as u64, "trace", "traces");
    let started = job.started_at.replace('T', " ");
    let started = started.split('.').next().unwrap_or(&started);
    page.two_sides(
        &format!("JOB  {traces}, {hosts}, ran {}", moment(job.duration_ns)),
        &format!("started {started} UTC"),
    );
    for unreadable in job.unreadable.iter().take(MOST_REPORTS) {
        page.indented("  missing: ", "    ", &clean(&unreadable.reason));
    }
    if job.unreadable.len() > MOST_REPORTS {
        let more = (job.unreadable.len() - MOST_REPORTS) as u64;
        page.line(&format!("  missing: {} that could not be read", count(more, "more trace", "more traces")));
    }
    page.gap();
}

fn clock(page: &mut Page, clocks: &[HostClock]) {
    let mut parts = Vec::new();
    let by_wall: Vec<&HostClock> = clocks.iter().filter(|clock| clock.aligned_by == AlignedBy::WallClock).collect();
    let shared = clocks.iter().filter(|clock| clock.aligned_by == AlignedBy::MonotonicClock && clock.traces > 1);
    if let Some(moved) = shared.map(|clock| clock.wall_clock_moved_ns).max() {
        let whose = if clocks.len() == 1 { "Its" } else { "A host's" };
        parts.push(format!(
            "Moments count from the beginning of the first trace. {whose} processes share one monotonic clock; the wall clock moved by at most {} \
             against it.",
            span(moved)
        ));
    } else {
        parts.push("Moments count from the beginning of the first trace.".to_owned());
    }
    for clock in by_wall.iter().take(3) {
        parts.push(format!(
            "The traces of {} are placed by the wall clock: it moved by {} against the monotonic one (it was set, the host \
             was started anew, or several machines have that name).",
            host(&clock.hostname),
            span(clock.wall_clock_moved_ns)
        ));
    }
    if clocks.len() > 1 {
        parts.push(
            "Between hosts, moments are only as aligned as their wall clocks; the traces can't tell how well those agree."
                .to_owned(),
        );
    }
    let estimated: usize = clocks.iter().map(|clock| clock.estimated_rates).sum();
    if estimated > 0 {
        let whose = count(estimated as u64, "trace has no measured clock rate", "traces have no measured clock rate");
        parts.push(format!("{whose}: later moments of it are estimates."));
    }
    page.headed("CLOCK", Paint::Bold, &parts.join(" "));
    page.gap();
}

/// What only the runs together show.
fn across(page: &mut Page, job: &Job) {
    if job.diagnoses.is_empty() {
        return;
    }
    page.headed("WHY", Paint::Bold, "what only the runs together show");
    for finding in &job.diagnoses {
        diagnoses::tell(page, &diagnoses::numbers(&finding.ooms), finding);
        for fix in &finding.fix {
            let command = if fix.command.is_empty() { String::new() } else { format!("{}: ", fix.command) };
            page.indented("      - ", "        ", &clean(&format!("{command}{}", fix.why)));
        }
    }
    page.gap();
}

fn reports(page: &mut Page, job: &Job) {
    let shown = reported(job).len();
    let all = job.processes.len();
    let others = "gpuoom-analyze FILE shows any other, and --format json has all";
    let text = match shown {
        _ if shown == all => "each process by itself; moments are of its own trace".to_owned(),
        0 => format!("none of {all}: nothing happened that would need one; {others}"),
        _ => format!("the {shown} most urgent of {all}; moments are of each one's own trace; {others}"),
    };
    page.headed("REPORTS", Paint::Bold, &text);
}

/// Whether the traces tell ranks apart.
fn has_ranks(job: &Job) -> bool {
    job.processes.iter().any(|process| process.rank.is_some_and(|rank| rank != 0))
}

/// A process, as it is called in sentences.
fn name(job: &Job, index: usize) -> String {
    let process = &job.processes[index];
    let on = if job.clocks.len() > 1 { format!(" on {}", host(&process.hostname)) } else { String::new() };
    match process.rank.filter(|_| has_ranks(job)) {
        Some(rank) => format!("rank {rank} (pid {}{on})", process.pid),
        None => format!("pid {}{on}", process.pid),
    }
}

fn host(hostname: &str) -> String {
    if hostname.is_empty() { "a host without a name".to_owned() } else { clean(hostname) }
}

/// How a process ended.
pub(in crate::report) fn end(process: &JobProcess) -> String {
    match (process.exit_code, process.signal) {
        (Some(code), _) => format!("exit {code}"),
        (_, Some(number)) => crate::words::signal(number),
        _ => "end not seen".to_owned(),
    }
}
