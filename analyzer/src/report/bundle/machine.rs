//! `machine.json`: what is known of the machine, and the files that tell it.

use std::collections::BTreeMap;
use std::io::{self, Write};

use gpuoom_trace::metadata::MachineFacts;
use serde::Serialize;

use crate::machine::Machine;

/// Name and version of the JSON.
const SCHEMA: &str = "gpuoom.machine/1";

/// The machine of one trace.
#[derive(Debug, Serialize)]
pub struct OfTrace<'a> {
    /// The trace's name in the bundle.
    pub trace: &'a str,
    /// The machine, as it was read from the files.
    #[serde(flatten)]
    pub machine: &'a Machine,
    /// The files, as the recorder kept them, by path.
    pub files: BTreeMap<&'a str, &'a str>,
}

impl<'a> OfTrace<'a> {
    /// A machine with its files.
    pub fn new(trace: &'a str, machine: &'a Machine, facts: &'a MachineFacts) -> Self {
        let files = facts.files.iter().map(|(path, text)| (path.as_str(), text.as_str()));
        OfTrace { trace, machine, files: files.collect() }
    }
}

#[derive(Serialize)]
struct Document<'a> {
    schema: &'static str,
    machines: &'a [OfTrace<'a>],
}

/// Writes the machines.
///
/// # Errors
/// `out` can't be written.
pub fn write(out: &mut dyn Write, machines: &[OfTrace<'_>]) -> io::Result<()> {
    serde_json::to_writer_pretty(&mut *out, &Document { schema: SCHEMA, machines })?;
    writeln!(out)
}
