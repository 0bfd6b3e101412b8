//! `whatif`.

use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use clap::{Args, ValueEnum};

use super::TraceArg;
use super::output::Output;
use super::progress::Progress;
use super::thresholds::ThresholdArgs;
use super::traces;
use super::units::{parse_size, parse_size_or_nothing};
use crate::evidence::{Evidence, Source, load};
use crate::report::page::Page;
use crate::report::whatif::{write_json, write_text};
use crate::whatif::overhead::Origin;
use crate::whatif::torch::policy::Policy;
use crate::whatif::torch::{KnownCard, TorchAnswer, TorchQuestion, ask_snapshot};
use crate::whatif::{Answer, Question, ask};

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
    /// Memory snapshot of PyTorch (torch.cuda.memory._dump_snapshot) with a history: replays the caching allocator
    #[arg(long, value_name = "FILE")]
    torch_snapshot: Option<PathBuf>,
    /// Settings of the caching allocator, such as expandable_segments:True; may be given several times
    #[arg(long, value_name = "CONF", value_parser = parse_policy, requires = "torch_snapshot")]
    torch_alloc_conf: Vec<Policy>,
    /// Only this device
    #[arg(long, value_name = "INDEX")]
    device: Option<u8>,
    #[command(flatten)]
    thresholds: ThresholdArgs,
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
    if text == "none" { Ok(0) } else { parse_size_or_nothing(text) }
}

fn parse_policy(text: &str) -> Result<Policy, String> {
    Policy::parse(text).map_err(|error| error.to_string())
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
        thresholds: args.thresholds.values()?,
    };
    let combinations = (question.capacities_bytes.len() + 1) * (question.granularities_bytes.len() + 1);
    if combinations > MAX_COMBINATIONS {
        bail!("{combinations} combinations of cards and granules are too many: ask for at most {MAX_COMBINATIONS}");
    }
    let mut trace = traces::open(&args.trace.trace)?;
    let mut progress = Progress::new(trace.records_in_chunks().saturating_mul(3));
    let mut answer = ask(&mut trace, &question, |records| progress.advance(records));
    drop(progress);
    if let (Some(device), true) = (args.device, answer.devices.is_empty()) {
        bail!("--device {device}: the trace has no allocation on this device");
    }
    if let Some(path) = &args.torch_snapshot {
        answer.torch = ask_torch(path, args, &question, &answer)?;
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

/// What the caching allocator's history says. What is known of a device is known from the trace.
fn ask_torch(path: &Path, args: &WhatifArgs, question: &Question, answer: &Answer) -> anyhow::Result<Vec<TorchAnswer>> {
    let mut evidence = Evidence::default();
    load(&mut evidence, Source::TorchSnapshot, path)?;
    let wanted =
        TorchQuestion { policies: args.torch_alloc_conf.clone(), capacities_bytes: question.capacities_bytes.clone() };
    let card = |device: u32| {
        let known = answer.devices.iter().find(|known| known.index.map(u32::from) == Some(device));
        KnownCard {
            total_bytes: known.and_then(|known| known.total_bytes),
            overhead_bytes: known
                .map(|known| known.overhead)
                .filter(|known| known.origin != Origin::Unknown)
                .map(|known| known.bytes),
        }
    };
    let mut answers = Vec::new();
    for given in &evidence.torch_snapshots {
        let asked = ask_snapshot(&given.path, &given.content, &wanted, card).with_context(|| given.path.clone())?;
        answers
            .extend(asked.into_iter().filter(|found| args.device.is_none_or(|only| u32::from(only) == found.device)));
    }
    if answers.is_empty() {
        bail!(
            "{}: the snapshot has no history to replay; begin it with torch.cuda.memory._record_memory_history()",
            path.display()
        );
    }
    Ok(answers)
}
