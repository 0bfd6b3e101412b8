//! `whatif`.

use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use clap::{Args, ValueEnum};
use gpuoom_trace::columns::Batch;
use gpuoom_trace::reader::TraceFile;

use super::TraceArg;
use super::output::Output;
use super::progress::Progress;
use super::thresholds::ThresholdArgs;
use super::traces;
use super::units::{parse_size, parse_size_or_nothing};
use crate::evidence::{Evidence, Source, load};
use crate::intake::read_through;
use crate::options::{Setup, choose};
use crate::replay::{Options, Replay};
use crate::report::page::Page;
use crate::report::whatif::{write_json, write_text};
use crate::software::{Executable, Versions};
use crate::whatif::overhead::Origin;
use crate::whatif::torch::policy::{Policy, PolicyError};
use crate::whatif::torch::told::Histories;
use crate::whatif::torch::{KnownCard, TorchAnswer, TorchQuestion, ask_snapshot, ask_told};
use crate::whatif::{Answer, Question, ask};
use crate::words::size;

/// No GPU has less.
const SMALLEST_CARD_BYTES: u64 = 1 << 20;
/// Combinations of cards and granules that one call answers.
const MAX_COMBINATIONS: usize = 256;

#[derive(Debug, Args)]
pub(super) struct WhatifArgs {
    #[command(flatten)]
    trace: TraceArg,
    /// Memory of the card, such as 16G; may be given several times
    #[arg(long, value_name = "SIZE", value_parser = parse_card)]
    capacity: Vec<u64>,
    /// Granule that each block is rounded up to, such as 2M; may be given several times (default: as recorded). What the
    /// addresses show is always there beside it
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    granularity: Vec<u64>,
    /// Memory that is in use beside the program's blocks, such as 600M, or none (default: what was measured)
    #[arg(long, value_name = "SIZE", value_parser = parse_overhead)]
    overhead: Option<u64>,
    /// Memory snapshot of PyTorch (torch.cuda.memory._dump_snapshot) with a history, to be replayed in place of what the trace has of
    /// the caching allocator
    #[arg(long, value_name = "FILE")]
    torch_snapshot: Option<PathBuf>,
    /// Settings of PyTorch's caching allocator, such as expandable_segments:True: replays what the program asked of it; may be given
    /// several times
    #[arg(long, value_name = "CONF", value_parser = parse_policy)]
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

/// A card has more than what a number without a unit says.
fn parse_card(text: &str) -> Result<u64, String> {
    match parse_size(text)? {
        bytes if bytes < SMALLEST_CARD_BYTES => {
            Err(format!("no card has {}, and a number without a unit is bytes: do you mean {text}G?", size(bytes)))
        }
        bytes => Ok(bytes),
    }
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
    answer.torch = match &args.torch_snapshot {
        Some(path) => ask_snapshot_of(path, args, &question, &answer)?,
        None if args.torch_alloc_conf.is_empty() && !trace.is_whole() => Vec::new(),
        None => ask_trace(&mut trace, args, &question, &answer)?,
    };
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

fn torch_question(args: &WhatifArgs, question: &Question) -> TorchQuestion {
    TorchQuestion { policies: args.torch_alloc_conf.clone(), capacities_bytes: question.capacities_bytes.clone() }
}

/// What is known of a device from the trace.
fn card(answer: &Answer, device: u32) -> KnownCard {
    let known = answer.devices.iter().find(|known| known.index.map(u32::from) == Some(device));
    let overhead = known.map(|known| known.overhead).filter(|known| known.origin != Origin::Unknown);
    KnownCard {
        total_bytes: known.and_then(|known| known.total_bytes),
        overhead_bytes: overhead.map(|known| known.bytes),
        virtual_bytes: known.and_then(|known| known.virtual_bytes),
    }
}

/// What the caching allocator's history says, of the devices that are asked about.
fn ask_snapshot_of(
    path: &Path,
    args: &WhatifArgs,
    question: &Question,
    answer: &Answer,
) -> anyhow::Result<Vec<TorchAnswer>> {
    let mut evidence = Evidence::default();
    load(&mut evidence, Source::TorchSnapshot, path)?;
    let wanted = torch_question(args, question);
    let mut answers = Vec::new();
    for given in &evidence.torch_snapshots {
        let asked = ask_snapshot(&given.path, &given.content, &wanted, |device| card(answer, device));
        answers.extend(asked.with_context(|| given.path.clone())?);
    }
    answers.retain(|found| is_wanted(args, found));
    if answers.is_empty() {
        bail!(
            "{}: the snapshot has no history to replay; begin it with torch.cuda.memory._record_memory_history()",
            path.display()
        );
    }
    Ok(answers)
}

fn is_wanted(args: &WhatifArgs, found: &TorchAnswer) -> bool {
    args.device.is_none_or(|only| u32::from(only) == found.device)
}

/// The same from what the trace has of the allocator.
fn ask_trace(
    trace: &mut TraceFile,
    args: &WhatifArgs,
    question: &Question,
    answer: &Answer,
) -> anyhow::Result<Vec<TorchAnswer>> {
    let instead = "--torch-snapshot FILE has its history, too";
    if !trace.is_whole() {
        bail!(
            "--torch-alloc-conf: records are missing in the trace, and what PyTorch asked for can't be replayed without them; {instead}"
        );
    }
    let mut replay = Replay::new(trace, Options::default());
    read_through(trace, |_| {}, |batch| replay.batch(batch));
    replay.finish();
    let policy = recorded_options(trace).context("the recorded options of PyTorch's allocator")?;
    let mut histories = Histories::new(&replay, &policy);
    if histories.is_empty() && args.torch_alloc_conf.is_empty() {
        return Ok(Vec::new());
    }
    if histories.is_empty() {
        bail!(
            "--torch-alloc-conf: the trace has no blocks of PyTorch's caching allocator (GPUOOM_FRAMEWORK was off, the recorder or \
             PyTorch is too old, or another allocator is used); {instead}"
        );
    }
    let follow = |batch: &Batch| {
        histories.batch(batch);
        ControlFlow::Continue(())
    };
    read_through(trace, |_| {}, follow);
    let told = histories.finish();
    let mut answers = ask_told(&told, &policy, &torch_question(args, question), |device| card(answer, device));
    answers.retain(|found| is_wanted(args, found));
    if answers.is_empty() && !args.torch_alloc_conf.is_empty() {
        bail!("--torch-alloc-conf: PyTorch's caching allocator gave nothing out on that device");
    }
    Ok(answers)
}

/// PyTorch's options as the recorded environment has them.
fn recorded_options(trace: &TraceFile) -> Result<Policy, PolicyError> {
    let runtimes = trace.metadata.devices.iter().map(|facts| (facts.runtime.as_str(), Some(facts.runtime_version)));
    let modules = trace.metadata.modules.modules.iter().map(|module| module.path.as_str());
    let process = &trace.metadata.process;
    // Which other program it is does not matter to these options.
    let executable = Executable { path: &process.executable, is_ggml_possible: false };
    let versions = Versions::of(runtimes, executable, modules, &trace.metadata.machine.files);
    let setup = Setup { platform: versions.platform, torch: versions.torch, rocm: versions.rocm };
    let variables = &process.environment;
    let value = |name: &str| variables.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str());
    Policy::parse(&choose(value, setup).map_or_else(String::new, |chosen| chosen.text))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_without_a_unit_is_no_card() {
        assert_eq!(parse_card("6G"), Ok(6 << 30));
        assert!(parse_card("6").unwrap_err().contains("do you mean 6G?"));
    }
}
