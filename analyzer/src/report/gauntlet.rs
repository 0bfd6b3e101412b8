//! The gauntlet's table: text, Markdown, JSON.

use std::io::{self, Write};

use serde::Serialize;

use crate::gauntlet::{Counts, Ending, Fate, Gauntlet, Trial};
use crate::report::apart::way;
use crate::report::markdown::page::{Markdown, code, plain};
use crate::report::page::{Look, Page, Paint};
use crate::words::{clean, count, gpu, size};

const SCHEMA: &str = "gpuoom.gauntlet/1";
const BY_TIME_ALONE: &str = "by time alone";
/// What a later call that succeeded is called.
const RETRIED: &str = "retry_succeeded";
const COLUMNS: [&str; 6] = ["#", "call site", "first call", "calls", "outcome", "program"];

/// As JSON.
pub fn json(out: &mut dyn Write, gauntlet: &Gauntlet) -> io::Result<()> {
    #[derive(Serialize)]
    struct One<'a> {
        schema: &'static str,
        #[serde(flatten)]
        gauntlet: &'a Gauntlet,
    }
    serde_json::to_writer_pretty(&mut *out, &One { schema: SCHEMA, gauntlet })?;
    writeln!(out)
}

/// The call site; where several rows have the same name, also what tells it from them: the callers of the function, and the
/// native function that the line of Python called.
fn call_site(trial: &Trial, all: &[Trial]) -> String {
    let name = clean(&trial.place.name);
    let same: Vec<&Trial> =
        all.iter().filter(|other| other.rule != trial.rule && other.place.name == trial.place.name).collect();
    let operator = trial.place.operator.as_ref();
    let differs = same.iter().any(|other| other.place.operator.as_ref() != operator);
    let operator = operator.filter(|_| differs).map(|operator| format!(" > {}", clean(operator))).unwrap_or_default();
    let callers = way(&trial.place.callers, same.iter().map(|other| &other.place.callers[..]));
    format!("{name}{callers}{operator}")
}

/// The table's rows, in the order of the runs.
fn rows(gauntlet: &Gauntlet) -> Vec<[String; 6]> {
    (1..).zip(&gauntlet.trials).map(|(number, trial)| cells(number, trial, &gauntlet.trials)).collect()
}

fn cells(number: usize, trial: &Trial, all: &[Trial]) -> [String; 6] {
    let outcome = match trial.because {
        Some(_) if trial.fell_back_to.is_some() => format!("fell back to {}", gpu(trial.fell_back_to)),
        Some(because) if trial.by_time_alone => format!("{} ({because}, {BY_TIME_ALONE})", trial.fate.name()),
        Some(because) => format!("{} ({because})", trial.fate.name()),
        None => trial.fate.name().to_owned(),
    };
    [
        number.to_string(),
        call_site(trial, all),
        format!("{} {}", clean(&trial.place.api), size(trial.place.requested_bytes)),
        trial.place.calls.to_string(),
        outcome,
        trial.ending.name(),
    ]
}

/// What came of it, in a sentence.
fn sum(gauntlet: &Gauntlet) -> String {
    let Counts { recovered, propagated, dropped, unresolved, not_reached, hung, crashed } = gauntlet.counts;
    let elsewhere = gauntlet.trials.iter().filter(|trial| trial.fell_back_to.is_some()).count();
    let all = [
        (recovered.saturating_sub(elsewhere), "recovered"),
        (elsewhere, "fell back to another device"),
        (propagated, "propagated"),
        (dropped, "DROPPED"),
        (unresolved, "unresolved"),
        (not_reached, "not reached"),
    ];
    let by_time = gauntlet.trials.iter().filter(|trial| trial.by_time_alone && trial.fell_back_to.is_none()).count();
    let of_these = |word| match by_time {
        1.. if word == "recovered" => format!(" ({by_time} {BY_TIME_ALONE})"),
        _ => String::new(),
    };
    let told = all.iter().filter(|(number, _)| *number > 0);
    let outcomes: Vec<String> = told.map(|(number, word)| format!("{number} {word}{}", of_these(*word))).collect();
    let mut text = format!("{} tried", count(gauntlet.trials.len() as u64, "call site", "call sites"));
    if gauntlet.places > gauntlet.trials.len() {
        text.push_str(&format!(" of {}", gauntlet.places));
    }
    if !outcomes.is_empty() {
        text.push_str(&format!(": {}", outcomes.join(", ")));
    }
    for (number, what) in [(hung, "did not end in time"), (crashed, "crashed")] {
        if number > 0 {
            text.push_str(&format!("; in {} the program {what}", count(number as u64, "run", "runs")));
        }
    }
    text.push('.');
    text
}

/// What to do about it: sentences, some with a command behind them.
fn advice(gauntlet: &Gauntlet) -> Vec<(String, Option<String>)> {
    let mut lines = Vec::new();
    if gauntlet.trials.iter().any(|trial| trial.because == Some(RETRIED)) {
        let text = "retry_succeeded: a call for at least as much succeeded later; whether the program took it in place of the refused one \
                    can't be seen.";
        lines.push((text.to_owned(), None));
    }
    if gauntlet.undisturbed == Ending::Hung {
        let text =
            "Without an injected failure the program did not end in time and was killed: --timeout gives it longer.";
        lines.push((text.to_owned(), None));
    } else if gauntlet.undisturbed != Ending::Exited(0) {
        lines.push((
            format!("Without an injected failure the program ends with {}.", gauntlet.undisturbed.name()),
            None,
        ));
    }
    if let Some(first) = gauntlet.trials.iter().find(|trial| trial.fate == Fate::Dropped) {
        let meaning = "DROPPED: GPU work went on without a sign that the program had noticed. See whether it looks at the status of these calls.";
        lines.push((meaning.to_owned(), None));
        let rule = clean(&first.rule);
        let command = format!("GPUOOM_INJECT={rule} gpuoom-analyze record -- COMMAND");
        lines.push(("See one happen:".to_owned(), Some(command)));
    }
    if gauntlet.trials.iter().any(|trial| trial.fell_back_to.is_some()) {
        let meaning = "\"Fell back\" to another device is what the calls show: it got memory there before any GPU work. Nothing shows that the \
                       memory stands in the place of what was refused.";
        lines.push((meaning.to_owned(), None));
    }
    if gauntlet.trials.iter().any(|trial| trial.by_time_alone) {
        let meaning = "\"By time alone\": soon after the failure another request was given memory, and little but the time ties the two: it is \
                       from another place and into another variable, or a trifle, or a card's memory for the host's. Nothing shows that \
                       the failure was noticed. See whether the program looks at the status of these calls.";
        lines.push((meaning.to_owned(), None));
    }
    lines
}

/// As text for people.
pub fn text(gauntlet: &Gauntlet, look: Look) -> String {
    let mut page = Page::new(look);
    let rows = rows(gauntlet);
    let paint = if gauntlet.counts.dropped > 0 { Paint::Dropped } else { Paint::Bold };
    page.headed("GAUNTLET", paint, &sum(gauntlet));
    if !rows.is_empty() {
        page.gap();
    }
    let widths: Vec<usize> = (0..COLUMNS.len())
        .map(|column| {
            let cell = rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
            cell.max(COLUMNS[column].len())
        })
        .collect();
    let line = |cells: &[&str]| {
        let padded: Vec<String> = cells.iter().zip(&widths).map(|(cell, width)| format!("{cell:<width$}")).collect();
        format!("  {}", padded.join("  ")).trim_end().to_owned()
    };
    if !rows.is_empty() {
        page.verbatim(&line(&COLUMNS));
    }
    for row in &rows {
        page.verbatim(&line(&row.each_ref().map(String::as_str)));
    }
    page.gap();
    for (text, command) in advice(gauntlet) {
        page.indented("", "", &text);
        // It is there to be copied.
        command.iter().for_each(|command| page.verbatim(&format!("  {command}")));
    }
    page.into_text()
}

/// As a table in Markdown.
pub fn markdown(gauntlet: &Gauntlet) -> String {
    let mut page = Markdown::default();
    page.paragraph(&format!("**{}**", plain(&sum(gauntlet))));
    let cells = |row: [String; 6]| row.iter().map(|cell| plain(cell)).collect();
    page.table(&COLUMNS, &rows(gauntlet).into_iter().map(cells).collect::<Vec<_>>());
    for (text, command) in advice(gauntlet) {
        let command = command.map(|command| format!(" {}", code(&command))).unwrap_or_default();
        page.paragraph(&format!("{}{command}", plain(&text)));
    }
    page.into_text()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gauntlet::Place;

    fn gauntlet() -> Gauntlet {
        let trial = |name: &str, operator: Option<&str>, callers: &str, offset, nth| {
            let place = Place {
                name: name.into(),
                operator: operator.map(str::to_owned),
                key: callers.into(),
                callers: callers.into(),
                file: "libc10.so".into(),
                offset,
                nth,
                api: "hipMalloc".into(),
                requested_bytes: offset << 20,
                calls: 3,
            };
            let rule = place.rule();
            move |fate, because, ending| Trial {
                rule,
                place,
                fate,
                because,
                fell_back_to: None,
                by_time_alone: false,
                other_failures: 0,
                ending,
            }
        };
        let step = "step (train.py) line 12";
        let (linear, norm) = ("at::native::linear (libtorch_hip.so)", "at::native::layer_norm<a|b> (libtorch_hip.so)");
        let of_step = "train.py!step < train.py!main";
        let trials = vec![
            trial(step, Some(linear), of_step, 0x40, 1)(Fate::Recovered, Some("retry_succeeded"), Ending::Exited(0)),
            trial(step, Some(norm), of_step, 0x40, 7)(Fate::Dropped, Some("gpu_work_continued"), Ending::Signaled(11)),
            trial("allocate (app) line 3", None, "app!allocate < app!load", 0x99, 1)(
                Fate::Unresolved,
                Some("trace_ended"),
                Ending::Hung,
            ),
            trial("allocate (app) line 3", None, "app!allocate < app!grow", 0xaa, 1)(
                Fate::NotReached,
                None,
                Ending::Exited(0),
            ),
        ];
        Gauntlet::new(vec!["train".into()], Ending::Exited(0), 9, trials)
    }

    #[test]
    fn the_table_for_people() {
        insta::assert_snapshot!(text(&gauntlet(), Look::new(110, false)));
    }

    /// Memory of another device is told as what the calls show.
    #[test]
    fn a_fall_back_to_another_device_is_named() {
        let mut gauntlet = gauntlet();
        gauntlet.trials[0].fell_back_to = Some(1);
        let text = text(&gauntlet, Look::new(200, false));
        assert!(text.contains("of 9: 1 fell back to another device, 1 DROPPED"), "{text}");
        assert!(text.contains("fell back to GPU 1") && text.contains("what the calls show"), "{text}");
    }

    /// What nothing but time ties to a failure is told as that.
    #[test]
    fn a_fault_fails_the_gate_and_an_abort_does_not() {
        let with = |number| {
            let mut gauntlet = gauntlet();
            gauntlet.trials.retain(|trial| trial.fate != Fate::Dropped);
            gauntlet.trials[0].ending = Ending::Signaled(number);
            Gauntlet::new(vec!["train".into()], Ending::Exited(0), 9, gauntlet.trials)
        };
        assert!(with(libc::SIGSEGV).is_bad() && !with(libc::SIGABRT).is_bad());
    }

    #[test]
    fn a_fall_back_by_time_alone_is_told_as_such() {
        let mut gauntlet = gauntlet();
        (gauntlet.trials[0].because, gauntlet.trials[0].by_time_alone) = (Some("fell_back"), true);
        let text = text(&gauntlet, Look::new(400, false));
        assert!(text.contains("of 9: 1 recovered (1 by time alone), 1 DROPPED"), "{text}");
        assert!(text.contains("recovered (fell_back, by time alone)"), "{text}");
        let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(text.contains("Nothing shows that the failure was noticed"), "{text}");
    }

    /// What to do is read to its end, however narrow the terminal is.
    #[test]
    fn no_sentence_is_cut() {
        for width in [40, 80, 110] {
            let text = text(&gauntlet(), Look::new(width, false));
            assert!(text.contains("GPUOOM_INJECT=oom@libc10.so+0x40#7 gpuoom-analyze record -- COMMAND"), "{text}");
            assert!(
                text.split_whitespace().collect::<Vec<_>>().join(" ").contains("the status of these calls."),
                "{text}"
            );
        }
    }

    #[test]
    fn the_table_in_markdown() {
        insta::assert_snapshot!(markdown(&gauntlet()));
    }

    #[test]
    fn the_fields_in_json() {
        let mut out = Vec::new();
        json(&mut out, &gauntlet()).unwrap();
        let value: serde_json::Value = serde_json::from_slice(&out).unwrap();
        assert_eq!(value["schema"], SCHEMA);
        assert_eq!((&value["counts"]["dropped"], &value["counts"]["hung"]), (&1.into(), &1.into()));
        assert_eq!(value["trials"][1]["fate"], "dropped");
        assert_eq!(value["trials"][1]["rule"], "oom@libc10.so+0x40#7");
        assert_eq!(value["trials"][1]["ending"]["signal"], 11);
        assert_eq!(value["trials"][1]["offset"], 0x40);
        assert_eq!(value["trials"][1]["operator"], "at::native::layer_norm<a|b> (libtorch_hip.so)");
        assert_eq!(value["trials"][1]["key"], "train.py!step < train.py!main");
    }
}
