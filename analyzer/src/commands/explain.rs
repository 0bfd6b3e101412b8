//! `explain`.

use anyhow::bail;
use clap::{Args, ValueEnum};

use super::output::Output;
use crate::catalogue::entry::Entry;
use crate::catalogue::search::{Found, search};
use crate::catalogue::{chapters, find, nearest};
use crate::report::explain::{
    write_entry, write_entry_json, write_found, write_found_json, write_list, write_list_json, write_thresholds,
    write_thresholds_json,
};
use crate::report::page::Page;
use crate::words::clean;

#[derive(Debug, Args)]
pub(super) struct ExplainArgs {
    /// Diagnosis to show, or words to find some by: a symptom, a variable, an error text, folklore; without one, all are listed
    #[arg(value_name = "ID|WORD")]
    words: Vec<String>,
    /// List the numbers by which diagnoses decide: name, default, origin, and who uses it
    #[arg(long, conflicts_with = "words")]
    thresholds: bool,
    /// How to write it
    #[arg(long, value_enum, default_value_t = Format::Text)]
    format: Format,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Format {
    /// For people
    Text,
    /// For programs
    Json,
}

pub(super) fn run(args: &ExplainArgs) -> anyhow::Result<u8> {
    let asked = args.words.join(" ");
    let answer = Answer::to(&asked)?;
    let output = Output::open(None)?;
    let mut page = Page::new(output.look());
    output.write(|out| {
        match (args.format, &answer) {
            (Format::Json, _) if args.thresholds => return write_thresholds_json(out),
            (Format::Text, _) if args.thresholds => write_thresholds(&mut page),
            (Format::Json, Answer::All) => return write_list_json(out, chapters()),
            (Format::Json, Answer::One(entry)) => return write_entry_json(out, entry),
            (Format::Json, Answer::Found(found)) => return write_found_json(out, &asked, found),
            (Format::Text, Answer::All) => write_list(&mut page, chapters()),
            (Format::Text, Answer::One(entry)) => write_entry(&mut page, entry),
            (Format::Text, Answer::Found(found)) => write_found(&mut page, &asked, found),
        }
        out.write_all(page.into_text().as_bytes())
    })?;
    Ok(0)
}

/// What is shown.
enum Answer {
    /// The list of all.
    All,
    /// One diagnosis.
    One(&'static Entry),
    /// What fits the words.
    Found(Found),
}

impl Answer {
    fn to(asked: &str) -> anyhow::Result<Self> {
        if asked.is_empty() {
            return Ok(Answer::All);
        }
        if let Some(entry) = find(asked) {
            return Ok(Answer::One(entry));
        }
        match search(asked) {
            found if !found.is_empty() => Ok(Answer::Found(found)),
            _ => bail!(
                "{}: no diagnosis has this name, and none mentions it. The nearest are {}; `gpuoom-analyze explain` lists all",
                clean(asked),
                nearest(asked).join(", ")
            ),
        }
    }
}
