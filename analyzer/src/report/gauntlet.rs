//! The gauntlet's table: text, Markdown, JSON.

use std::io::{self, Write};

use serde::Serialize;

use crate::gauntlet::{Counts, Ending, Fate, Gauntlet, Trial};
use crate::report::page::{Look, Page, Paint};
use crate::words::{clean, count, size};

const SCHEMA: &str = "gpuoom.gauntlet/1";
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

fn cells(number: usize, trial: &Trial) -> [String; 6] {
    let outcome = match trial.because {
        Some(because) => format!("{} ({because})", trial.fate.name()),
        None => trial.fate.name().to_owned(),
    };
    [
        number.to_string(),
        clean(&trial.place.name),
        format!("{} {}", clean(&trial.place.api), size(trial.place.requested_bytes)),
        trial.place.calls.to_string(),
        outcome,
        trial.ending.name(),
    ]
}

/// What came of it, in a sentence.
fn sum(gauntlet: &Gauntlet) -> String {
    let Counts { recovered, propagated, dropped, unresolved, not_reached, hung, crashed } = gauntlet.counts;
    let all = [
        (recovered, "recovered"),
        (propagated, "propagated"),
        (dropped, "DROPPED"),
        (unresolved, "unresolved"),
        (not_reached, "not reached"),
    ];
    let outcomes: Vec<String> =
        all.iter().filter(|(number, _)| *number > 0).map(|(number, word)| format!("{number} {word}")).collect();
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

/// What to do about it.
fn advice(gauntlet: &Gauntlet) -> Vec<String> {
    let mut lines = Vec::new();
    if gauntlet.undisturbed != Ending::Exited(0) {
        lines.push(format!("Without any failure the program ends with {}.", gauntlet.undisturbed.name()));
    }
    if let Some(first) = gauntlet.trials.iter().find(|trial| trial.fate == Fate::Dropped) {
        lines.push(
            "DROPPED: the program went on with GPU work as if it had got the memory. Check the status of these calls."
                .into(),
        );
        lines.push(format!("See one happen: GPUOOM_INJECT={} gpuoom-analyze record -- COMMAND", clean(&first.rule)));
    }
    lines
}

/// As text for people.
pub fn text(gauntlet: &Gauntlet, look: Look) -> String {
    let mut page = Page::new(look);
    let rows: Vec<[String; 6]> = (1..).zip(&gauntlet.trials).map(|(number, trial)| cells(number, trial)).collect();
    let paint = if gauntlet.counts.dropped > 0 { Paint::Dropped } else { Paint::Bold };
    page.headed("GAUNTLET", paint, &sum(gauntlet));
    page.gap();
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
    advice(gauntlet).iter().for_each(|text| page.line(text));
    page.into_text()
}

/// As a table in Markdown.
pub fn markdown(gauntlet: &Gauntlet) -> String {
    let row = |cells: &[String]| {
        let cells: Vec<String> = cells.iter().map(|cell| cell.replace('|', "\\|")).collect();
        format!("| {} |\n", cells.join(" | "))
    };
    let mut page = format!("**{}**\n\n", sum(gauntlet));
    if !gauntlet.trials.is_empty() {
        page.push_str(&row(&COLUMNS.map(str::to_owned)));
        page.push_str(&row(&COLUMNS.map(|_| "---".to_owned())));
    }
    (1..).zip(&gauntlet.trials).for_each(|(number, trial)| page.push_str(&row(&cells(number, trial))));
    advice(gauntlet).iter().for_each(|text| page.push_str(&format!("\n{text}\n")));
    page
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gauntlet::Place;

    fn gauntlet() -> Gauntlet {
        let trial = |offset, nth, fate, because, ending| {
            let place = Place {
                name: "step (train.py) line 12".into(),
                file: "train".into(),
                offset,
                nth,
                api: "hipMalloc".into(),
                requested_bytes: offset << 20,
                calls: 3,
            };
            Trial { rule: place.rule(), place, fate, because, other_failures: 0, ending }
        };
        let trials = vec![
            trial(0x40, 1, Fate::Recovered, Some("retry_succeeded"), Ending::Exited(0)),
            trial(0x40, 7, Fate::Dropped, Some("gpu_work_continued"), Ending::Signaled(11)),
            trial(0x99, 1, Fate::Unresolved, Some("trace_ended"), Ending::Hung),
            trial(0xaa, 1, Fate::NotReached, None, Ending::Exited(0)),
        ];
        Gauntlet::new(vec!["train".into()], Ending::Exited(0), 9, trials)
    }

    #[test]
    fn the_table_for_people() {
        insta::assert_snapshot!(text(&gauntlet(), Look::new(110, false)));
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
        assert_eq!(value["trials"][1]["rule"], "oom@train+0x40#7");
        assert_eq!(value["trials"][1]["ending"]["signal"], 11);
        assert_eq!(value["trials"][1]["offset"], 0x40);
    }
}
