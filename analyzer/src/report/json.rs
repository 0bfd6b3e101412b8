//! `report --format json`.

use std::io::{self, Write};

use serde::Serialize;

use crate::passes::job::Job;
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
    job: &'a Job,
    traces: &'a [Summary],
}

/// One object for one trace.
pub fn write_one(out: &mut dyn Write, summary: &Summary) -> io::Result<()> {
    serde_json::to_writer_pretty(&mut *out, &One { schema: SCHEMA, summary })?;
    writeln!(out)
}

/// An object with the job and a list for several.
pub fn write_job(out: &mut dyn Write, job: &Job, traces: &[Summary]) -> io::Result<()> {
    serde_json::to_writer_pretty(&mut *out, &Many { schema: SCHEMA, job, traces })?;
    writeln!(out)
}
