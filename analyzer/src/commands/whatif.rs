//! `whatif`.

use std::path::PathBuf;

use anyhow::bail;
use clap::{Args, ValueEnum};
use gpuoom_trace::reader::TraceFile;

use super::TraceArg;
use super::output::Output;
use super::progress::Progress;
use super::units::parse_size;
use crate::report::page::Page;
use crate::report::whatif::{write_json, write_text};
use crate::whatif::{Question, ask};

/// Combinations of cards and granules that one call answers.
const MAX_COMBINATIONS: usize = 256;

#[derive(Debug, Args)]
pub(super) struct WhatifArgs {
    #[command(flatten)]
    trace: TraceArg,
    /// Memory of the card, such as 16G; may be given several times
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    capacity: Vec<u64>,
    /// Granule that each block is rounded up to, such as 2M; may be given several times (default: as recorded). What the
    /// addresses show is always there beside it
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    granularity: Vec<u64>,
    /// Memory that is in use beside the program's blocks, such as 600M, or none (default: what was measured)
    #[arg(long, value_name = "SIZE", value_parser = parse_overhead)]
    overhead: Option<u64>,
    /// Only this device
    #[arg(long, value_name = "INDEX")]
    device: Option<u8>,
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

fn parse_overhead(text: &str) -> Result<u64, String> {
    if text == "none" { Ok(0) } else { parse_size(text) }
}

/// The same size given twice is one question.
fn distinct(sizes: &[u64]) -> Vec<u64> {
    let mut distinct: Vec<u64> = Vec::new();
    for size in sizes {
        if !distinct.contains(size) {
            distinct.push(*size);
        }
    }
    distinct
}

pub(super) fn run(args: &WhatifArgs) -> anyhow::Result<u8> {
    let question = Question {
        capacities_bytes: distinct(&args.capacity),
        granularities_bytes: distinct(&args.granularity),
        device: args.device,
        overhead_bytes: args.overhead,
    };
    let combinations = (question.capacities_bytes.len() + 1) * (question.granularities_bytes.len() + 1);
    if combinations > MAX_COMBINATIONS {
        bail!("{combinations} combinations of cards and granules are too many: ask for at most {MAX_COMBINATIONS}");
    }
    let mut trace = TraceFile::open(&args.trace.trace)?;
    let mut progress = Progress::new(trace.records_in_chunks().saturating_mul(3));
    let answer = ask(&mut trace, &question, |records| progress.advance(records));
    drop(progress);
    if let (Some(device), true) = (args.device, answer.devices.is_empty()) {
        bail!("--device {device}: the trace has no allocation on this device");
    }
    let output = Output::open(args.output.as_deref())?;
    let mut page = Page::new(output.look());
    output.write(|out| match args.format {
        Format::Json => write_json(out, &answer),
        Format::Text => {
            write_text(&mut page, &answer);
            out.write_all(page.into_text().as_bytes())
        }
    })?;
    Ok(super::status_of(&trace))
}
