//! `check` for people, for programs and for what runs them.

mod github;
mod junit;
mod markdown;
#[cfg(test)]
mod tests;
mod text;
mod words;

use std::io::{self, Write};

use serde::Serialize;

use crate::policy::Checked;

pub use github::write_github;
pub use junit::write_junit;
pub use markdown::write_markdown;
pub use text::write_text;
pub use words::{condition, sentence};

/// Name and version of the JSON.
pub const SCHEMA: &str = "gpuoom.check/1";

#[derive(Serialize)]
struct Document<'a> {
    schema: &'static str,
    kept: bool,
    #[serde(flatten)]
    checked: &'a Checked,
}

/// `check --format json`.
pub fn write_json(out: &mut dyn Write, checked: &Checked) -> io::Result<()> {
    serde_json::to_writer_pretty(&mut *out, &Document { schema: SCHEMA, kept: checked.is_kept(), checked })?;
    writeln!(out)
}
