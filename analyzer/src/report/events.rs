//! The list of events: text for people, JSON lines, CSV.

use std::io::{self, Write};

use crate::passes::rows::EventRow;

/// One JSON object on a line.
pub fn write_json(out: &mut dyn Write, row: &EventRow) -> io::Result<()> {
    serde_json::to_writer(&mut *out, row)?;
    writeln!(out)
}
