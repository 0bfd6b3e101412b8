//! `events`.

use std::io;
use std::ops::ControlFlow;

use clap::{Args, ValueEnum};
use gpuoom_trace::reader::TraceFile;

use super::TraceArg;
use super::output::Output;
use crate::intake::read_through;
use crate::passes::rows::{EventRow, Rows};
use crate::report::events;

#[derive(Debug, Args)]
pub(super) struct EventsArgs {
    #[command(flatten)]
    trace: TraceArg,
    /// How to write it
    #[arg(long, value_enum, default_value_t = Format::Text)]
    format: Format,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Format {
    /// For people
    Text,
    /// One object per line
    Json,
    /// For tables
    Csv,
}

pub(super) fn run(args: &EventsArgs) -> anyhow::Result<u8> {
    let mut trace = TraceFile::open(&args.trace.trace)?;
    let mut rows = Rows::new(&trace);
    let output = Output::open(None)?;
    output.write(|out| {
        let mut written = Ok(());
        let mut sink = |row: EventRow| write_row(&mut written, events::write_json(out, &row));
        read_through(&mut trace, |_| {}, |batch| rows.batch(batch, &mut sink));
        let _ = rows.finish(&mut sink);
        written
    })?;
    Ok(0)
}

/// Stops at the first row that can't be written.
fn write_row(all: &mut io::Result<()>, one: io::Result<()>) -> ControlFlow<()> {
    match one {
        Ok(()) => ControlFlow::Continue(()),
        Err(error) => {
            *all = Err(error);
            ControlFlow::Break(())
        }
    }
}
