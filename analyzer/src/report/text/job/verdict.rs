//! Who failed first, in sentences.

use super::{end, name};
use crate::conclusion::Summary;
use crate::conclusion::sentence::{failure, reaction};
use crate::conclusion::verdict::Happened;
use crate::job::{Class, FirstFailure, Job, Share};
use crate::passes::oom::OomReport;
use crate::report::page::{Page, Paint};
use crate::words::{count, moment, percent, size};

/// Processes that are named in a sentence.
const MOST_NAMED: usize = 3;

pub(super) fn write(page: &mut Page, job: &Job, summaries: &[Summary]) {
    let verdict = &job.verdict;
    let paint = match (verdict.dropped, verdict.first) {
        (1.., _) => Paint::Dropped,
        (0, Some(_)) => Paint::Failure,
        _ => Paint::Bold,
    };
    page.headed("VERDICT", paint, &sentences(job, summaries).join(" "));
    page.gap();
}

/// Who failed first, sentence by sentence.
pub(in crate::report) fn sentences(job: &Job, summaries: &[Summary]) -> Vec<String> {
    let mut sentences = match job.verdict.first {
        Some(first) => failed(job, summaries, first),
        None => healthy(job),
    };
    sentences.extend(bad_ends(job));
    sentences.extend(gaps(job, summaries));
    sentences
}

fn failed(job: &Job, summaries: &[Summary], first: FirstFailure) -> Vec<String> {
    let (summary, process) = (&summaries[first.process], &job.processes[first.process]);
    let who = capital(&name(job, first.process));
    let when = moment(first.at_ns);
    // A process that recovered ran out of memory, too.
    let began = |index: usize| job.processes[index].began_at_ns;
    let is_first = summaries
        .iter()
        .enumerate()
        .all(|(index, other)| other.facts.ooms.iter().all(|oom| began(index).saturating_add(oom.at_ns) >= first.at_ns));
    let ran_out =
        if is_first { "ran out of memory first" } else { "was the first to run out of memory without recovering" };
    let mut sentences = vec![match (process.class, job.verdict.earlier) {
        (Class::Dropped, None) => format!("{who} {ran_out}, at {when}, and went on with GPU work."),
        (Class::Dropped, Some(_)) => format!("{who} ran out of memory at {when} and went on with GPU work."),
        (Class::Recovered | Class::EndedBadly, _) => format!("{who} ran out of memory at {when}."),
        (_, None) => format!("{who} {ran_out}, at {when}."),
        (_, Some(_)) => format!("{who} ran out of memory at {when}, which ended it."),
    }];
    let verdict = &summary.conclusion.verdict;
    if let Happened::OutOfMemory { oom } = verdict.happened {
        sentences.push(failure(&summary.facts, &summary.facts.ooms[oom]));
        sentences.push(verdict.why.clone());
        sentences.extend(others_then(job, &summary.facts.ooms[oom]));
        sentences.push(reaction(&summary.facts.ooms));
    }
    if let Some(earlier) = job.verdict.earlier {
        sentences.push(format!(
            "Before that, at {}, {} ran out of memory: {}.",
            moment(earlier.at_ns),
            name(job, earlier.process),
            oom_of(summaries, earlier).map_or("not known", |oom| oom.outcome.name())
        ));
    }
    let all = count(job.processes.len() as u64, "process", "processes");
    if job.processes.len() > 1 {
        let dropped = match job.verdict.dropped {
            0 => String::new(),
            number if number == job.verdict.ran_out => " and went on with GPU work".to_owned(),
            number => format!(", {number} of them went on with GPU work"),
        };
        sentences.push(format!("{} of {all} ran out of memory{dropped}.", job.verdict.ran_out));
    }
    sentences
}

/// What the other processes of the job held of that card then. A request that would have fitted without it is told so.
fn others_then(job: &Job, oom: &OomReport) -> Option<String> {
    let others = job.verdict.others_then.as_ref()?;
    let one = |share: &Share| format!("{}: {}", name(job, share.process), size(share.requested_bytes));
    let who = match others.processes.len() {
        number if number > MOST_NAMED => format!("{number} of them, most {}", one(&others.processes[0])),
        _ => others.processes.iter().map(one).collect::<Vec<String>>().join(", "),
    };
    let enough = match others.more_than_missing(oom) {
        Some(missing) => format!(", more than the {} that was missing", size(missing)),
        None => String::new(),
    };
    let at_most = if others.exact { "" } else { "at most " };
    Some(format!(
        "Other processes of this job held {at_most}{} of that card then, by their own traces ({who}){enough}.",
        size(others.requested_bytes)
    ))
}

fn oom_of(summaries: &[Summary], failure: FirstFailure) -> Option<&OomReport> {
    summaries[failure.process].facts.ooms.iter().find(|oom| oom.number == failure.oom)
}

fn healthy(job: &Job) -> Vec<String> {
    let fullest = job.devices.iter().max_by_key(|device| device.peak.requested_bytes);
    let Some(device) = fullest.filter(|device| device.peak.requested_bytes > 0) else {
        return vec!["No process ran out of memory, and none got memory of a GPU.".to_owned()];
    };
    let share = device.total_bytes.filter(|total| *total > 0).map_or(String::new(), |total| {
        format!(" of {} ({})", size(total), percent(device.peak.requested_bytes as f64 / total as f64))
    });
    vec![
        "No process ran out of memory.".to_owned(),
        format!(
            "Most was held of {}: {}{}{share} at {}.",
            super::devices::title(job, device),
            super::devices::at_most(&device.peak),
            size(device.peak.requested_bytes),
            moment(device.peak.at_ns)
        ),
    ]
}

/// Processes that ended badly, other than the one that the verdict is about.
fn bad_ends(job: &Job) -> Option<String> {
    let decides = |index: usize| job.verdict.first.is_some_and(|first| first.process == index);
    let badly = |index: &usize| {
        let process = &job.processes[*index];
        process.end != "unknown" && process.exit_code != Some(0) && !decides(*index)
    };
    let mut ended: Vec<usize> = (0..job.processes.len()).filter(badly).collect();
    ended.sort_by_key(|index| (job.processes[*index].ended_at_ns, *index));
    let named = ended.iter().take(MOST_NAMED).map(|index| {
        let process = &job.processes[*index];
        format!("{} at {} ({})", name(job, *index), moment(process.ended_at_ns), end(process))
    });
    let named: Vec<String> = named.collect();
    let others = if job.verdict.first.is_some() { "other " } else { "" };
    let how_many = count(
        ended.len() as u64,
        &format!("{others}process ended with a failure"),
        &format!("{others}processes ended with a failure"),
    );
    let first = if ended.len() > MOST_NAMED { "first " } else { "" };
    (!ended.is_empty()).then(|| format!("{how_many}: {first}{}.", named.join(", ")))
}

/// What the traces do not tell.
fn gaps(job: &Job, summaries: &[Summary]) -> Vec<String> {
    let count_where = |is: &dyn Fn(&Summary) -> bool| summaries.iter().filter(|summary| is(summary)).count() as u64;
    let lost = count_where(&|summary| summary.facts.trace.events_lost > 0 || !summary.facts.damages.is_empty());
    let vendor: u64 = summaries.iter().map(|summary| summary.facts.vendor_ooms).fold(0, u64::saturating_add);
    let mut sentences = Vec::new();
    if vendor > 0 {
        let calls = count(vendor, "allocation", "allocations");
        sentences.push(format!("{calls} that GPU libraries made for themselves ran out of memory."));
    }
    if lost > 0 {
        let verb = count(lost, "trace is damaged or lost events", "traces are damaged or lost events");
        sentences.push(format!("{verb}."));
    }
    match job.unreadable.len() as u64 {
        0 => {}
        number => sentences.push(format!(
            "{} could not be read and {} missing here.",
            count(number, "trace", "traces"),
            if number == 1 { "is" } else { "are" }
        )),
    }
    sentences
}

pub(in crate::report) fn capital(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map_or(String::new(), |first| first.to_uppercase().chain(letters).collect())
}
