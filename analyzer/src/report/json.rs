//! `report --format json`.

use std::io::{self, Write};

use serde::Serialize;

use crate::passes::summary::Summary;

/// Name and version of the JSON.
pub const SCHEMA: &str = "gpuoom.report/1";

#[derive(Serialize)]
struct One<'a> {
    schema: &'static str,
    #[serde(flatten)]
    summary: &'a Summary,
}

#[derive(Serialize)]
struct Many<'a> {
    schema: &'static str,
    traces: &'a [Summary],
}

/// One object for one trace, an object with a list for several.
pub fn write(out: &mut dyn Write, summaries: &[Summary], given: usize) -> io::Result<()> {
    match summaries {
        [summary] if given == 1 => serde_json::to_writer_pretty(&mut *out, &One { schema: SCHEMA, summary })?,
        traces => serde_json::to_writer_pretty(&mut *out, &Many { schema: SCHEMA, traces })?,
    }
    writeln!(out)
}
