//! `diff --format json`: every number, also those that did not change.

use std::io::{self, Write};

use serde::Serialize;

use super::Conditions;
use crate::compare::Difference;

/// Name and version of the JSON.
pub const SCHEMA: &str = "gpuoom.diff/1";

#[derive(Serialize)]
struct Document<'a> {
    schema: &'static str,
    #[serde(flatten)]
    difference: &'a Difference,
    #[serde(flatten)]
    conditions: &'a Conditions,
}

/// One object.
pub fn write_json(out: &mut dyn Write, difference: &Difference, conditions: &Conditions) -> io::Result<()> {
    serde_json::to_writer_pretty(&mut *out, &Document { schema: SCHEMA, difference, conditions })?;
    writeln!(out)
}
