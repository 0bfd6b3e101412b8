//! `whatif` for people and for programs.

mod cards;
#[cfg(test)]
mod tests;
mod torch;

use std::io::{self, Write};

use serde::Serialize;

use crate::report::page::Page;
use crate::whatif::Answer;

/// Name and version of the JSON.
pub const SCHEMA: &str = "gpuoom.whatif/1";

#[derive(Serialize)]
struct Document<'a> {
    schema: &'static str,
    #[serde(flatten)]
    answer: &'a Answer,
}

/// `whatif --format json`.
pub fn write_json(out: &mut dyn Write, answer: &Answer) -> io::Result<()> {
    serde_json::to_writer_pretty(&mut *out, &Document { schema: SCHEMA, answer })?;
    writeln!(out)
}

/// `whatif --format text`.
pub fn write_text(page: &mut Page, answer: &Answer) {
    if answer.devices.is_empty() {
        page.indented("", "", "No device memory is known from the trace: there is nothing to ask.");
    }
    for (number, device) in answer.devices.iter().enumerate() {
        if number > 0 {
            page.gap();
        }
        cards::write(page, device);
    }
    for device in &answer.torch {
        page.gap();
        torch::write(page, device);
    }
}
