//! `report`.

use std::path::{Path, PathBuf};

use anyhow::bail;
use clap::{Args, ValueEnum};
use gpuoom_trace::reader::{ReadError, TraceFile};

use super::output::{Output, complain};
use super::progress::Progress;
use super::{UNREADABLE, is_later_command};
use crate::intake::read_through;
use crate::passes::map::{DeviceMap, Moment, draw};
use crate::passes::summary::{Summary, sum_up};
use crate::replay::{Options, Replay};
use crate::report::{json, text};

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
fn summarise(path: &Path) -> Result<(Summary, Vec<DeviceMap>), ReadError> {
    let mut trace = TraceFile::open(path)?;
    let mut replay = Replay::new(&trace, Options::default());
    let mut progress = Progress::new(trace.records_in_chunks());
    read_through(&mut trace, |records| progress.advance(records), |batch| replay.batch(batch));
    replay.finish();
    Ok((sum_up(&trace, &replay), draw(&replay, Moment::Peak, None)))
}

pub(super) fn run(args: &ReportArgs) -> anyhow::Result<u8> {
    if let Some(path) = args.traces.first().filter(|path| is_later_command(path)) {
        bail!("{}: this command is not in this version", path.display());
    }
    let mut status = 0;
    let (mut summaries, mut maps) = (Vec::new(), Vec::new());
    for path in &args.traces {
        match summarise(path) {
            Ok((summary, map)) => {
                summaries.push(summary);
                maps.push(map);
            }
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
    let look = output.look();
    output.write(|out| match args.format {
        Format::Json => json::write(out, &summaries, args.traces.len()),
        Format::Text => {
            let pages: Vec<String> =
                summaries.iter().zip(&maps).map(|(summary, maps)| text::write(summary, maps, look)).collect();
            out.write_all(pages.join("\n").as_bytes())
        }
    })?;
    Ok(status)
}
