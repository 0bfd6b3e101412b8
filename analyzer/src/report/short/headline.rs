//! The first and the last paragraph: what happened to which program, and what it made of it.

use gpuoom_trace::outcome::Outcome;

use crate::conclusion::Summary;
use crate::conclusion::sentence::which;
use crate::conclusion::verdict::Happened;
use crate::passes::facts::ProcessSummary;
use crate::passes::oom::OomReport;
use crate::passes::outcomes::count_outcomes;
use crate::report::page::{Page, Paint};
use crate::report::text::head::set_by_hand;
use crate::words::{clean, count, gpu, grouped, moment, size};

/// Interpreters, whose first argument that is a file names the program.
const INTERPRETERS: [&str; 4] = ["python", "perl", "ruby", "bash"];

/// What the page begins and ends with.
pub(super) struct Sentences {
    /// What happened, and what was refused.
    pub first: Vec<String>,
    /// What the program made of it, how it ended, and what is missing.
    pub last: Vec<String>,
}

pub(super) fn sentences(summary: &Summary) -> Sentences {
    let mut told = of_run(summary);
    // First, so that it is never left out.
    told.last.splice(0..0, set_by_hand(summary).map(|text| format!("{text}.")));
    told
}

fn of_run(summary: &Summary) -> Sentences {
    let verdict = &summary.conclusion.verdict;
    let program = program(&summary.facts.process);
    let Happened::OutOfMemory { oom } = verdict.happened else {
        let (mut first, last) = split(summary);
        if let Some(start) = first.first_mut() {
            *start = format!("{program}: {start}");
        }
        return Sentences { first, last };
    };
    let (mut told, mut last) = split(summary);
    // The first sentence says already which failure decides.
    let which = which(&summary.facts, &summary.facts.ooms[oom]);
    told.iter_mut().for_each(|sentence| *sentence = sentence.strip_prefix(&which).unwrap_or(sentence).to_owned());
    let mut first = vec![got_error(summary, &program, &summary.facts.ooms[oom])];
    first.extend(told);
    last.push(format!("{} lost.", count(summary.facts.trace.events_lost, "event", "events")));
    Sentences { first, last }
}

pub(super) fn write(page: &mut Page, summary: &Summary, text: &str) {
    let paint = match summary.conclusion.verdict.happened {
        Happened::OutOfMemory { .. } if count_outcomes(&summary.facts.ooms).dropped > 0 => Paint::Dropped,
        Happened::OutOfMemory { .. } => Paint::Failure,
        _ => Paint::Bold,
    };
    match text.split_once(' ') {
        Some((word, rest)) => page.painted("", word, paint, rest),
        None => page.line(text),
    }
}

/// The verdict's sentences before the one that says why, and those behind it.
fn split(summary: &Summary) -> (Vec<String>, Vec<String>) {
    let verdict = &summary.conclusion.verdict;
    let place = verdict.sentences.iter().position(|sentence| *sentence == verdict.why);
    match place {
        Some(place) => (verdict.sentences[..place].to_vec(), verdict.sentences[place + 1..].to_vec()),
        None => (verdict.sentences.clone(), Vec::new()),
    }
}

/// Who got an error, where and when; whether it went on.
fn got_error(summary: &Summary, program: &str, oom: &OomReport) -> String {
    let facts = &summary.facts;
    let is_of_host = matches!(oom.kind, "host-pinned" | "registered");
    let device = facts.device_of(oom);
    let card = device.map_or_else(String::new, |device| {
        let total = device.total_bytes.map(size);
        let parts: Vec<String> = device.name.as_deref().map(clean).into_iter().chain(total).collect();
        if parts.is_empty() { String::new() } else { format!(" ({})", parts.join(", ")) }
    });
    let place = if is_of_host { "the host".to_owned() } else { format!("{}{card}", gpu(oom.device)) };
    let at = moment(oom.at_ns);
    let phase = oom.phase_entry.as_ref().map_or_else(String::new, |entry| format!(", {}", clean(&entry.words())));
    let all_made_up_for = facts.ooms.iter().all(|oom| oom.outcome == Outcome::Recovered);
    let end = match (all_made_up_for, facts.oom_count) {
        (false, _) => "",
        (true, 0 | 1) => ", and a later call succeeded",
        (true, _) => ", each followed by a call that succeeded",
    };
    match facts.oom_count {
        0 | 1 => format!("{program} got an out-of-memory error on {place} at {at}{phase}{end}."),
        all => format!(
            "{program} got {} out-of-memory errors{end}. #{} decides: on {place} at {at}{phase}.",
            grouped(all),
            oom.number
        ),
    }
}

/// What people call the program: a script by its own name.
pub(in crate::report) fn program(process: &ProcessSummary) -> String {
    let file = |path: &str| path.rsplit('/').next().unwrap_or(path).to_owned();
    let Some(first) = process.command_line.first() else {
        return if process.executable.is_empty() {
            "The program".to_owned()
        } else {
            clean(&file(&process.executable))
        };
    };
    let name = file(first);
    if !INTERPRETERS.iter().any(|interpreter| name.starts_with(interpreter)) {
        return clean(&name);
    }
    let mut arguments = process.command_line.iter().skip(1);
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "-m" => return arguments.next().map_or(name, |module| clean(module)),
            "-c" => return clean(&name),
            // Python's options that take a value of their own.
            "-X" | "-W" => _ = arguments.next(),
            option if option.starts_with('-') => {}
            script => return clean(&file(script)),
        }
    }
    clean(&name)
}
