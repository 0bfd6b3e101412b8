//! `report`.

use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};
use gpuoom_trace::reader::{ReadError, TraceFile};

use super::UNREADABLE;
use super::output::{Output, complain};
use super::progress::Progress;
use crate::intake::read_through;
use crate::passes::summary::{Summary, sum_up};
use crate::replay::{Options, Replay};
use crate::report::json;

#[derive(Debug, Args)]
pub(super) struct ReportArgs {
    /// Trace files
    #[arg(value_name = "TRACE", required = true)]
    traces: Vec<PathBuf>,
    /// How to write it
    #[arg(long, value_enum, default_value_t = Format::Text)]
    format: Format,
    /// Write to this file instead of standard output
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Format {
    /// For people
    Text,
    /// For programs
    Json,
}

/// Replays a trace to its end and sums it up.
fn summarise(path: &Path) -> Result<Summary, ReadError> {
    let mut trace = TraceFile::open(path)?;
    let mut replay = Replay::new(&trace, Options::default());
    let mut progress = Progress::new(trace.records_in_chunks());
    read_through(&mut trace, |records| progress.advance(records), |batch| replay.batch(batch));
    replay.finish();
    Ok(sum_up(&trace, &replay))
}

pub(super) fn run(args: &ReportArgs) -> anyhow::Result<u8> {
    let mut status = 0;
    let mut summaries = Vec::new();
    for path in &args.traces {
        match summarise(path) {
            Ok(summary) => summaries.push(summary),
            Err(error) => {
                complain(&error.to_string());
                status = UNREADABLE;
            }
        }
    }
    if summaries.is_empty() {
        return Ok(status);
    }
    let output = Output::open(args.output.as_deref())?;
    output.write(|out| match args.format {
        Format::Json | Format::Text => json::write(out, &summaries, args.traces.len()),
    })?;
    Ok(status)
}
