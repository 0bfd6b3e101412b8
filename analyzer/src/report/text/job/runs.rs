//! Traces of runs that followed each other: a line for each, and which one the page behind is about.

use super::{across, processes::ending};
use crate::conclusion::Summary;
use crate::job::{Class, Job, JobRun};
use crate::report::page::{Look, Page, Paint};
use crate::words::{clean, count, moment, shorten};

/// The newest runs that have a line.
const MOST_RUNS: usize = 16;
/// Traces that could not be read and are named.
const MOST_MISSING: usize = 8;
/// Characters of a command line.
const COMMAND: usize = 48;

/// The page in front of the newest run's, where the traces are of several runs.
pub fn write_runs(job: &Job, summaries: &[Summary], look: Look) -> String {
    let mut page = Page::new(look);
    page.headed("RUNS", Paint::Bold, &introduction(job));
    let lines = lines(job, summaries);
    for line in &lines {
        page.indented("  ", "      ", line);
    }
    if let more @ 1.. = job.runs.len().saturating_sub(lines.len()) {
        page.line(&format!("  and {}", count(more as u64, "earlier run", "earlier runs")));
    }
    for unreadable in job.unreadable.iter().take(MOST_MISSING) {
        page.indented("  missing: ", "    ", &clean(&unreadable.reason));
    }
    if let more @ 1.. = job.unreadable.len().saturating_sub(MOST_MISSING) {
        let more = count(more as u64, "more trace", "more traces");
        page.line(&format!("  missing: {more} that could not be read"));
    }
    page.gap();
    across(&mut page, job);
    page.into_text()
}

/// How many, how that is known, and what follows.
pub(in crate::report) fn introduction(job: &Job) -> String {
    format!(
        "{} separate runs, not one job: each began after the last sign of life of the one before, and no trace names another as \
         its parent. The report is on the newest; gpuoom-analyze FILE reports on another.",
        job.runs.len()
    )
}

/// A line for each run, the newest first.
pub(in crate::report) fn lines(job: &Job, summaries: &[Summary]) -> Vec<String> {
    let newest_first = job.runs.iter().rev().take(MOST_RUNS);
    newest_first.map(|run| line(job, summaries, run)).collect()
}

fn line(job: &Job, summaries: &[Summary], run: &JobRun) -> String {
    let first = run.processes.iter().min_by_key(|index| job.processes[**index].began_at_ns);
    let Some(facts) = first.map(|index| &summaries[*index].facts) else { return String::new() };
    let started = facts.trace.started_at.replace('T', " ");
    let command = match facts.process.command_line.is_empty() {
        true => clean(&facts.process.executable),
        false => clean(&facts.process.command_line.join(" ")),
    };
    let ran = moment(run.ended_at_ns.saturating_sub(run.began_at_ns));
    let what = match run.processes[..] {
        [only] => format!("{}; {}", ending(&job.processes[only]), clean(&job.processes[only].path)),
        _ => processes(job, run),
    };
    let started = started.split('.').next().unwrap_or(&started);
    format!("{started} UTC  {}, ran {ran}: {what}", shorten(&command, COMMAND))
}

/// What became of the processes of a run that has several.
fn processes(job: &Job, run: &JobRun) -> String {
    let all = || run.processes.iter().map(|index| &job.processes[*index]);
    let ran_out = all().filter(|process| process.ooms.total() > 0).count();
    let badly = all().filter(|process| process.class == Class::EndedBadly).count();
    let mut text =
        format!("{}, {ran_out} of them ran out of memory", count(all().count() as u64, "process", "processes"));
    if badly > 0 {
        text.push_str(&format!(", {badly} ended badly without"));
    }
    let path = all().next().map_or_else(String::new, |process| format!("; {} and others", clean(&process.path)));
    text + &path
}
