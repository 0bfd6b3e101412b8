//! `explain`.

use anyhow::bail;
use clap::{Args, ValueEnum};

use super::output::Output;
use crate::catalogue::entry::Entry;
use crate::catalogue::{chapters, find, nearest};
use crate::report::explain::{
    write_entry, write_entry_json, write_list, write_list_json, write_thresholds, write_thresholds_json,
};
use crate::report::page::Page;
use crate::words::clean;

#[derive(Debug, Args)]
pub(super) struct ExplainArgs {
    /// Diagnosis to show; without one, all are listed
    #[arg(value_name = "ID")]
    id: Option<String>,
    /// List the numbers by which diagnoses decide: name, default, origin, and who uses it
    #[arg(long, conflicts_with = "id")]
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
    let entry = args.id.as_deref().map(look_up).transpose()?;
    let output = Output::open(None)?;
    let mut page = Page::new(output.look());
    output.write(|out| {
        match (args.format, entry) {
            (Format::Json, _) if args.thresholds => return write_thresholds_json(out),
            (Format::Text, _) if args.thresholds => write_thresholds(&mut page),
            (Format::Json, None) => return write_list_json(out, chapters()),
            (Format::Json, Some(entry)) => return write_entry_json(out, entry),
            (Format::Text, None) => write_list(&mut page, chapters()),
            (Format::Text, Some(entry)) => write_entry(&mut page, entry),
        }
        out.write_all(page.into_text().as_bytes())
    })?;
    Ok(0)
}

fn look_up(id: &str) -> anyhow::Result<&'static Entry> {
    match find(id) {
        Some(entry) => Ok(entry),
        None => bail!(
            "{}: no such diagnosis. The nearest are {}; `gpuoom-analyze explain` lists all",
            clean(id),
            nearest(id).join(", ")
        ),
    }
}
