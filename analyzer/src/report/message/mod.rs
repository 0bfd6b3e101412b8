//! `message`: what an error text says, for people and for programs.

mod text;

use std::io::{self, Write};

use serde::Serialize;

pub use text::write;

use crate::message::Triage;

/// Name and version of the JSON.
pub const SCHEMA: &str = "gpuoom.message/1";

#[derive(Serialize)]
struct Document<'a> {
    schema: &'static str,
    #[serde(flatten)]
    triage: &'a Triage,
}

/// Everything, for programs.
pub fn write_json(out: &mut dyn Write, triage: &Triage) -> io::Result<()> {
    serde_json::to_writer_pretty(&mut *out, &Document { schema: SCHEMA, triage })?;
    writeln!(out)
}
