//! A row for each process; of many, the healthy ones share one.

use std::collections::BTreeMap;

use super::{MOST_IN_FULL, end, has_ranks, host, urgency};
use crate::job::{Class, Job, JobProcess};
use crate::report::page::{Page, Paint};
use crate::words::{clean, count, gib_number, gpu, shorten};

/// Lines of processes that were put together.
const MOST_FOLDED: usize = 8;
/// Runs of ranks that are named.
const MOST_RUNS: usize = 6;

pub(super) fn write(page: &mut Page, job: &Job) {
    let text = "each one's own peak, of its own calls, in GiB as asked and padded (model)";
    page.headed("PROCESSES", Paint::Bold, text);
    let columns = Columns { ranks: has_ranks(job), devices: has_devices(job) };
    let shown = shown(job);
    if !shown.is_empty() {
        page.line(&columns.line("rank", "pid", "program", "device", "asked", "padded", "end"));
    }
    let mut on = None;
    for index in &shown {
        let process = &job.processes[*index];
        if job.clocks.len() > 1 && on != Some(&process.hostname) {
            page.line(&format!("  on {}", host(&process.hostname)));
            on = Some(&process.hostname);
        }
        write_one(page, &columns, process);
    }
    write_folded(page, job, &shown);
    page.gap();
}

/// The processes that have a row, in the job's order.
fn shown(job: &Job) -> Vec<usize> {
    let mut shown: Vec<usize> = (0..job.processes.len()).collect();
    if shown.len() > MOST_IN_FULL {
        shown.retain(|index| super::is_news(&job.processes[*index]));
        shown.sort_by_key(|index| urgency(job, *index));
        shown.truncate(MOST_IN_FULL);
        shown.sort_unstable();
    }
    shown
}

fn has_devices(job: &Job) -> bool {
    job.processes.iter().any(|process| !process.devices.is_empty())
}

/// Which columns there are.
struct Columns {
    ranks: bool,
    devices: bool,
}

impl Columns {
    #[expect(clippy::too_many_arguments, reason = "one per column")]
    fn line(&self, rank: &str, pid: &str, program: &str, device: &str, asked: &str, padded: &str, end: &str) -> String {
        let rank = if self.ranks { format!("{rank:>4}  ") } else { String::new() };
        let device = if self.devices { format!("  {device:<7} {asked:>8} {padded:>8}") } else { String::new() };
        format!("  {rank}{pid:<11} {:<15}{device}  {end}", shorten(program, 15))
    }

    fn width(&self) -> usize {
        self.line("", "", "", "", "", "", "").chars().count()
    }
}

fn write_one(page: &mut Page, columns: &Columns, process: &JobProcess) {
    let program = clean(process.executable.rsplit('/').next().unwrap_or_default());
    let pid = match process.generation {
        0 => process.pid.to_string(),
        depth => format!("{}└ {}", " ".repeat((depth - 1).min(2)), process.pid),
    };
    let rows = rows(process);
    let first = rows.first().cloned().unwrap_or_default();
    let rank = process.rank.map_or_else(String::new, |rank| rank.to_string());
    let line = columns.line(&rank, &pid, &program, &first[0], &first[1], &first[2], "");
    let indent = " ".repeat(columns.width());
    page.indented(&line, &indent, &ending(process));
    for row in rows.iter().skip(1) {
        page.line(&columns.line("", "", "", &row[0], &row[1], &row[2], ""));
    }
}

/// Device, asked and padded, a row each; pinned memory of the host last.
fn rows(process: &JobProcess) -> Vec<[String; 3]> {
    let numbers = |asked, padded| [gib_number(asked), gib_number(padded)];
    let mut rows = Vec::new();
    for device in &process.devices {
        let [asked, padded] = numbers(device.peak.requested_bytes, device.peak.padded_bytes);
        let name = device.index.map_or("unknown".to_owned(), |index| gpu(Some(index)));
        rows.push([name, asked, padded]);
    }
    if process.host_peak.requested_bytes > 0 {
        let [asked, padded] = numbers(process.host_peak.requested_bytes, process.host_peak.padded_bytes);
        rows.push(["pinned".to_owned(), asked, padded]);
    }
    rows
}

/// What became of a process, in a few words.
pub(in crate::report) fn ending(process: &JobProcess) -> String {
    let ooms = &process.ooms;
    let outcomes = [
        (ooms.dropped, "dropped"),
        (ooms.propagated, "propagated"),
        (ooms.unresolved, "unresolved"),
        (ooms.recovered, "recovered"),
    ];
    let mut parts = vec![end(process)];
    parts.extend(outcomes.iter().filter(|(number, _)| *number > 0).map(|(number, what)| format!("{number} {what}")));
    parts.join(", ")
}

/// The processes without a row, put together by what became of them.
fn write_folded(page: &mut Page, job: &Job, shown: &[usize]) {
    let mut groups: BTreeMap<(Class, String), Vec<&JobProcess>> = BTreeMap::new();
    for (index, process) in job.processes.iter().enumerate() {
        if shown.binary_search(&index).is_err() {
            // How often each of them ran out is in the JSON: here it would make a group of each.
            groups.entry((process.class, end(process))).or_default().push(process);
        }
    }
    let folded = groups.len();
    for ((class, end), group) in groups.into_iter().take(MOST_FOLDED) {
        let more = if shown.is_empty() { "" } else { "more " };
        let processes = count(group.len() as u64, &format!("{more}process"), &format!("{more}processes"));
        let whose = if has_ranks(job) { format!(" (ranks {})", ranks(&group)) } else { String::new() };
        page.indented("  ", "    ", &format!("{processes}{whose}: {}, {end}; {}", words(class), peaks(&group)));
    }
    if folded > MOST_FOLDED {
        page.line(&format!("  and {} more kinds of ends, in the JSON", folded - MOST_FOLDED));
    }
}

fn words(class: Class) -> &'static str {
    match class {
        Class::Dropped => "went on after a failure",
        Class::RanOut => "ran out of memory",
        Class::Survived => "ran out of memory and went on",
        Class::EndedBadly => "did not run out of memory",
        Class::Recovered => "ran out of memory and recovered",
        Class::EndNotSeen => "did not run out of memory",
        Class::Healthy => "healthy",
    }
}

fn peaks(group: &[&JobProcess]) -> String {
    let peaks = || group.iter().flat_map(|process| &process.devices).map(|device| device.peak.requested_bytes);
    match peaks().min().zip(peaks().max()) {
        Some((least, most)) => format!("peaks {} to {} GiB asked", gib_number(least), gib_number(most)),
        None => "no device memory".to_owned(),
    }
}

/// Ranks as runs: `0-2, 4, 6-63`.
fn ranks(group: &[&JobProcess]) -> String {
    let mut ranks: Vec<u32> = group.iter().filter_map(|process| process.rank).collect();
    ranks.sort_unstable();
    ranks.dedup();
    let runs: Vec<String> = ranks
        .chunk_by(|one, next| one + 1 == *next)
        .map(|run| match run {
            [only] => only.to_string(),
            [first, .., last] => format!("{first}-{last}"),
            [] => String::new(),
        })
        .collect();
    match runs.len() {
        0..=MOST_RUNS => runs.join(", "),
        _ => format!("{} and others", runs[..MOST_RUNS].join(", ")),
    }
}
