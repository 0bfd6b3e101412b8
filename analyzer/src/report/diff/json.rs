//! `diff --format json`: every number, also those that did not change.

use std::io::{self, Write};

use serde::Serialize;

use crate::compare::Difference;
use crate::policy::Judged;

/// Name and version of the JSON.
pub const SCHEMA: &str = "gpuoom.diff/1";

#[derive(Serialize)]
struct Document<'a> {
    schema: &'static str,
    #[serde(flatten)]
    difference: &'a Difference,
    /// Conditions of `--fail-on` that hold.
    failed: &'a [Judged],
}

/// One object.
pub fn write_json(out: &mut dyn Write, difference: &Difference, failed: &[Judged]) -> io::Result<()> {
    serde_json::to_writer_pretty(&mut *out, &Document { schema: SCHEMA, difference, failed })?;
    writeln!(out)
}
