//! Several traces together: the job first.

use super::diagnoses;
use super::page::{Markdown, code, plain};
use crate::conclusion::Summary;
use crate::job::{Job, JobProcess};
use crate::report::text::diagnoses::numbers;
use crate::report::text::job::{end, ending, runs, verdict};
use crate::words::{count, gpu, moment, size};

/// Processes that have a row.
const MOST_ROWS: usize = 64;

/// The page about the job; the reports on its processes follow behind it.
pub fn write_job(job: &Job, summaries: &[Summary]) -> String {
    let mut page = Markdown::default();
    let traces = count(job.processes.len() as u64, "trace", "traces");
    page.heading(1, &format!("GPU memory: {traces}, ran {}", moment(job.duration_ns)));
    page.paragraph(&format!("**{}**", plain(&verdict::sentences(job, summaries).join(" "))));
    let missing = job.unreadable.iter().map(|unreadable| format!("missing: {}", plain(&unreadable.reason)));
    page.list(false, &missing.take(MOST_ROWS).collect::<Vec<_>>());
    page.heading(2, "Processes");
    let rows: Vec<Vec<String>> = job.processes.iter().take(MOST_ROWS).flat_map(rows).collect();
    page.table(&[">rank", ">pid", "host", "program", "device", ">peak asked", ">peak padded (model)", "end"], &rows);
    if job.processes.len() > MOST_ROWS {
        page.paragraph(&format!("{} more: the JSON lists them.", job.processes.len() - MOST_ROWS));
    }
    across(&mut page, job);
    page.into_text()
}

/// The page in front of the newest run's, where the traces are of several runs that followed each other.
pub fn write_runs(job: &Job, summaries: &[Summary]) -> String {
    let mut page = Markdown::default();
    page.heading(1, &format!("GPU memory: {} separate runs", job.runs.len()));
    page.paragraph(&plain(&runs::introduction(job)));
    let lines: Vec<String> = runs::lines(job, summaries).iter().map(|line| plain(line)).collect();
    page.list(false, &lines);
    if let more @ 1.. = job.runs.len().saturating_sub(lines.len()) {
        page.paragraph(&format!("{} more: the JSON lists them.", more));
    }
    let missing = job.unreadable.iter().map(|unreadable| format!("missing: {}", plain(&unreadable.reason)));
    page.list(false, &missing.take(MOST_ROWS).collect::<Vec<_>>());
    across(&mut page, job);
    page.into_text()
}

fn across(page: &mut Markdown, job: &Job) {
    if !job.diagnoses.is_empty() {
        page.heading(2, "Why: what only the runs together show");
        job.diagnoses.iter().for_each(|finding| diagnoses::tell(page, &numbers(&finding.ooms), finding));
    }
}

fn rows(process: &JobProcess) -> Vec<Vec<String>> {
    let program = process.executable.rsplit('/').next().unwrap_or_default();
    let row = |device: String, asked: u64, padded: u64, end: String| {
        vec![
            process.rank.map_or_else(String::new, |rank| rank.to_string()),
            process.pid.to_string(),
            plain(&process.hostname),
            code(program),
            device,
            size(asked),
            size(padded),
            end,
        ]
    };
    let mut rows: Vec<Vec<String>> = process
        .devices
        .iter()
        .map(|device| {
            row(gpu(device.index), device.peak.requested_bytes, device.peak.padded_bytes, plain(&ending(process)))
        })
        .collect();
    if rows.is_empty() {
        rows.push(row("none".to_owned(), 0, 0, plain(&end(process))));
    }
    rows
}
