//! `report`.

use std::collections::{HashMap, HashSet};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use clap::{Args, ValueEnum};

use gpuoom_trace::metadata::Quantity;
use gpuoom_trace::record::NO_DEVICE;

use super::output::{Output, complain};
use super::progress::Progress;
use super::symbols::SymbolArgs;
use super::thresholds::{OfBundle, ThresholdArgs};
use super::traces::{Input, OpenError, expand};
use super::{UNREADABLE, is_later_command, meant};
use crate::conclusion::{Summary, sum_up};
use crate::evidence::{Evidence, Source, add, load};
use crate::intake::read_through;
use crate::job::{Job, Member, Unreadable, assemble, newest_run};
use crate::passes::map::{DeviceMap, Moment, draw};
use crate::replay::Replay;
use crate::replay::timeline::Timeline;
use crate::report::page::Look;
use crate::report::{json, markdown, short, text};

#[derive(Debug, Args)]
pub(super) struct ReportArgs {
    /// Trace files, or bundles; without one, the newest trace in this directory
    #[arg(value_name = "TRACE")]
    traces: Vec<PathBuf>,
    /// How to write it
    #[arg(long, value_enum, default_value_t = Format::Text)]
    format: Format,
    /// Write to this file instead of standard output
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// All that is known, not the short answer (text; JSON and Markdown always have all)
    #[arg(long)]
    full: bool,
    #[command(flatten)]
    thresholds: ThresholdArgs,
    #[command(flatten)]
    beside: BesideArgs,
}

/// Files that say something beside the traces.
#[derive(Debug, Args)]
#[command(next_help_heading = "Other evidence (each may be given several times)")]
pub(super) struct BesideArgs {
    /// Output of the program: PyTorch's out-of-memory message, llama.cpp's and vLLM's lines about memory, what the GPU runtime wrote
    #[arg(long, visible_alias = "torch-log", value_name = "FILE")]
    log: Vec<PathBuf>,
    /// Memory snapshot of PyTorch (torch.cuda.memory._dump_snapshot)
    #[arg(long, value_name = "FILE")]
    torch_snapshot: Vec<PathBuf>,
    /// Output of amd-smi, rocm-smi or nvidia-smi: text, JSON, XML or CSV
    #[arg(long, visible_aliases = ["rocm-smi", "nvidia-smi"], value_name = "FILE")]
    amd_smi: Vec<PathBuf>,
    /// The kernel's log (dmesg, journalctl -k)
    #[arg(long, value_name = "FILE")]
    kernel_log: Vec<PathBuf>,
    /// The model that runs, a GGUF file: only its header is read
    #[arg(long, value_name = "FILE")]
    gguf: Option<PathBuf>,
    /// Facts of the model that runs, as TOML with the names of --model, or its config.json
    #[arg(long, value_name = "FILE", conflicts_with = "gguf")]
    model_facts: Option<PathBuf>,
    /// Facts of the model: layers=32,kv_heads=8,head_dim=128,context=8192,kv_type=f16; they come before those of files
    #[arg(long, value_name = "FACTS")]
    model: Vec<String>,
    #[command(flatten)]
    symbols: SymbolArgs,
}

impl BesideArgs {
    /// The files that were given, and what each is said to be.
    pub(super) fn given(&self) -> impl Iterator<Item = (Source, &Path)> {
        let given = [
            (Source::TorchLog, &self.log),
            (Source::TorchSnapshot, &self.torch_snapshot),
            (Source::Smi, &self.amd_smi),
            (Source::KernelLog, &self.kernel_log),
        ];
        given.into_iter().flat_map(|(source, paths)| paths.iter().map(move |path| (source, path.as_path())))
    }

    /// Reads the files, and says whether all could be used; what can't is said, and left out. What a bundle brought is there
    /// already: facts of a model that are given here come before those.
    fn load(&self, evidence: &mut Evidence) -> anyhow::Result<bool> {
        let (symbols, mut whole) = self.symbols.places();
        evidence.symbols = symbols;
        whole &= self.load_model(evidence)?;
        for (source, path) in self.given() {
            if let Err(error) = load(evidence, source, path) {
                complain(&error.to_string());
                whole = false;
            }
        }
        Ok(whole)
    }

    /// Whether directories with the names of functions are given.
    pub(super) fn names_symbols(&self) -> bool {
        self.symbols.is_given()
    }

    /// Reads what is said of the model. A file that can't be used is said, and left out.
    pub(super) fn load_model(&self, evidence: &mut Evidence) -> anyhow::Result<bool> {
        let mut whole = true;
        let single = [(Source::Gguf, &self.gguf), (Source::ModelFacts, &self.model_facts)];
        for (source, path) in single.into_iter().filter_map(|(source, path)| Some((source, path.as_ref()?))) {
            if let Err(error) = load(evidence, source, path) {
                complain(&error.to_string());
                whole = false;
            }
        }
        for facts in &self.model {
            evidence.model.get_or_insert_default().add(facts)?;
            evidence.model_from.push(format!("--model {facts}"));
        }
        Ok(whole)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Format {
    /// For people
    Text,
    /// For programs
    Json,
    /// For GitHub and other places that show Markdown
    Markdown,
}

/// How much of it is told in text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Length {
    /// The short answer.
    Short,
    /// All that is known.
    Full,
}

/// A trace that was read, with the maps that its own page draws.
pub(super) struct Read {
    /// Whether nothing of the trace was damaged.
    is_whole: bool,
    member: Member,
    maps: Vec<DeviceMap>,
    /// Readings that the trace has.
    pub(super) quantities: Vec<Quantity>,
}

/// What the names of traces end with, unless they were told otherwise; a second process of one name has its number behind that.
const TRACE_ENDING: &str = ".trace.bin";

/// Readings that trackers ask for.
const ASKED_FOR: [Quantity; 6] = [
    Quantity::RuntimeFree,
    Quantity::VramUsed,
    Quantity::NvmlUsed,
    Quantity::OpenDescriptors,
    Quantity::MemoryMaps,
    Quantity::GraphicsVram,
];

/// Which of them a trace has, of any device.
fn quantities(replay: &Replay) -> Vec<Quantity> {
    let has = |quantity: &Quantity| (0..=NO_DEVICE).any(|device| replay.readings.series(*quantity, device).is_some());
    ASKED_FOR.into_iter().filter(has).collect()
}

/// Adds what lies beside the traces of a bundle. What can't be used is said, and left out.
pub(super) fn add_all(evidence: &mut Evidence, given: Vec<(Source, String, Vec<u8>)>) -> bool {
    let mut whole = true;
    for (source, name, bytes) in given {
        if let Err(error) = add(evidence, source, name, &bytes) {
            complain(&error.to_string());
            whole = false;
        }
    }
    whole
}

/// Replays a trace to its end and sums it up.
pub(super) fn read(input: Input, evidence: &Evidence, among_others: bool) -> Result<Read, OpenError> {
    let mut trace = input.open()?;
    let mut replay = Replay::new(&trace, evidence.thresholds.replay_options());
    replay.timeline = among_others.then(Timeline::default);
    let mut progress = Progress::new(trace.records_in_chunks());
    read_through(&mut trace, |records| progress.advance(records), |batch| replay.batch(batch));
    replay.finish();
    let maps = draw(&replay, Moment::Peak, None);
    let quantities = quantities(&replay);
    let is_whole = super::status_of(&trace) == 0;
    Ok(Read { is_whole, member: Member::new(&trace, &replay, sum_up(&trace, &replay, evidence)), maps, quantities })
}

pub(super) fn run(args: &ReportArgs) -> anyhow::Result<u8> {
    if let Some(path) = args.traces.first().filter(|path| is_later_command(path)) {
        bail!("{}: this command is not in this version", path.display());
    }
    if let Some((path, command)) = args.traces.first().and_then(|path| Some((path, meant(path)?))) {
        bail!("{}: no such file or command; did you mean {command}?", path.display());
    }
    args.thresholds.values()?;
    let traces = match args.traces.is_empty() {
        true => vec![newest_here()?],
        false => args.traces.clone(),
    };
    let (mut evidence, mut evidence_whole) = (Evidence::default(), true);
    let (mut reads, mut unreadable, mut inputs) = (Vec::new(), Vec::new(), Vec::new());
    let mut of_bundles = Vec::new();
    let refused = |unreadable: &mut Vec<Unreadable>, path: &Path, error: OpenError| {
        complain(&error.to_string());
        unreadable.push(Unreadable { path: path.display().to_string(), reason: error.to_string() });
    };
    for path in without_repeats(&traces) {
        match expand(path) {
            Ok(expanded) => {
                inputs.extend(expanded.traces);
                evidence_whole &= add_all(&mut evidence, expanded.evidence);
                let (of_bundle, whole) = OfBundle::read(path, &expanded.thresholds);
                of_bundles.push(of_bundle);
                evidence_whole &= whole;
            }
            Err(error) => refused(&mut unreadable, path, error),
        }
    }
    evidence.thresholds = args.thresholds.over(&of_bundles)?;
    evidence_whole &= args.beside.load(&mut evidence)?;
    let many = traces.len() > 1 || inputs.len() > 1;
    for input in inputs {
        let name = input.name.clone();
        match read(input, &evidence, many) {
            Ok(read) => reads.push(read),
            Err(error) => refused(&mut unreadable, &name, error),
        }
    }
    let traces_whole = unreadable.is_empty() && reads.iter().all(|read| read.is_whole);
    let status = if traces_whole && evidence_whole { 0 } else { UNREADABLE };
    let Some(document) = Document::new(reads, unreadable, many) else { return Ok(status) };
    let output = Output::open(args.output.as_deref())?;
    let look = output.look().full(args.full);
    let length = if args.full { Length::Full } else { Length::Short };
    output.write(|out| document.write(out, args.format, length, look))?;
    Ok(status)
}

/// The newest trace in the working directory, by when it was last written; says which it is.
fn newest_here() -> anyhow::Result<PathBuf> {
    let is_trace = |name: &str| name.ends_with(TRACE_ENDING) || name.contains(&format!("{TRACE_ENDING}."));
    let entries = std::fs::read_dir(".").context("this directory can't be read")?;
    let traces = entries.flatten().filter(|entry| entry.file_name().to_str().is_some_and(is_trace));
    let of_files = traces.filter_map(|entry| Some((entry.metadata().ok().filter(|data| data.is_file())?, entry)));
    let newest = of_files.max_by_key(|(data, entry)| (data.modified().ok(), entry.file_name()));
    let Some((_, entry)) = newest else {
        bail!("there is no trace here (*{TRACE_ENDING}): name one, or make one with gpuoom-analyze record -- COMMAND");
    };
    let path = PathBuf::from(entry.file_name());
    complain(&format!("{}: the newest trace here", path.display()));
    Ok(path)
}

/// The report on one trace, or on several as one job.
pub(super) enum Document {
    One(Box<Read>),
    Job {
        job: Box<Job>,
        summaries: Vec<Summary>,
        /// By the path of the trace.
        maps: HashMap<String, Vec<DeviceMap>>,
        /// The newest run alone, where the traces are of several that followed each other.
        newest: Option<(Box<Job>, Vec<Summary>)>,
    },
}

impl Document {
    /// From what was read; none where that is nothing.
    pub(super) fn new(mut reads: Vec<Read>, unreadable: Vec<Unreadable>, many: bool) -> Option<Self> {
        if !many {
            return reads.pop().map(|read| Document::One(Box::new(read)));
        }
        if reads.is_empty() {
            return None;
        }
        let mut maps: HashMap<String, Vec<DeviceMap>> = HashMap::new();
        let members = reads.into_iter().map(|read| {
            maps.insert(read.member.summary.facts.trace.path.clone(), read.maps);
            read.member
        });
        let members: Vec<Member> = members.collect();
        let (job, summaries) = assemble(members.clone(), unreadable);
        let newest = (job.runs.len() > 1).then(|| assemble(newest_run(&members, &job), Vec::new()));
        let newest = newest.map(|(job, summaries)| (Box::new(job), summaries));
        Some(Document::Job { job: Box::new(job), summaries, maps, newest })
    }

    /// The reports on the traces.
    pub(super) fn summaries(&self) -> &[Summary] {
        match self {
            Document::One(read) => std::slice::from_ref(&read.member.summary),
            Document::Job { summaries, .. } => summaries,
        }
    }

    pub(super) fn write(&self, out: &mut dyn Write, format: Format, length: Length, look: Look) -> io::Result<()> {
        let text = match (self, format) {
            (Document::One(read), Format::Json) => return json::write_one(out, &read.member.summary),
            (Document::Job { job, summaries, .. }, Format::Json) => return json::write_job(out, job, summaries),
            (Document::One(read), Format::Text) => page(&read.member.summary, &read.maps, length, look),
            (Document::One(read), Format::Markdown) => markdown::write(&read.member.summary, &read.maps, 1),
            (Document::Job { job, summaries, maps, newest: None }, format) => {
                job_page(job, summaries, maps, format, (length, look))
            }
            (Document::Job { job: all, summaries, maps, newest: Some((job, newest)) }, format) => {
                let runs = match format {
                    Format::Markdown => markdown::write_runs(all, summaries),
                    _ => text::write_runs(all, summaries, look),
                };
                let newest = match &newest[..] {
                    [only] => process_page(only, maps, format, (length, look)),
                    _ => job_page(job, newest, maps, format, (length, look)),
                };
                // The text's section ends with a gap.
                let gap = if format == Format::Markdown { "\n" } else { "" };
                format!("{runs}{gap}{newest}")
            }
        };
        out.write_all(text.as_bytes())
    }
}

/// The job first, then the reports on its processes.
fn job_page(
    job: &Job,
    summaries: &[Summary],
    maps: &HashMap<String, Vec<DeviceMap>>,
    format: Format,
    (length, look): (Length, Look),
) -> String {
    let mut text = match format {
        Format::Markdown => markdown::write_job(job, summaries),
        _ => text::write_job(job, summaries, look),
    };
    for index in text::reported(job) {
        text.push('\n');
        text.push_str(&process_page(&summaries[index], maps, format, (length, look)));
    }
    text
}

fn process_page(
    summary: &Summary,
    maps: &HashMap<String, Vec<DeviceMap>>,
    format: Format,
    (length, look): (Length, Look),
) -> String {
    let maps = maps.get(&summary.facts.trace.path).map_or(&[][..], Vec::as_slice);
    match format {
        Format::Markdown => markdown::write(summary, maps, 2),
        _ => page(summary, maps, length, look),
    }
}

fn page(summary: &Summary, maps: &[DeviceMap], length: Length, look: Look) -> String {
    match length {
        Length::Short => short::write(summary, look),
        Length::Full => text::write(summary, maps, look),
    }
}

/// The paths without those that lead to a file that another leads to: its process would count twice.
pub(super) fn without_repeats(paths: &[PathBuf]) -> Vec<&PathBuf> {
    let mut seen = HashSet::new();
    let mut sorted: Vec<&PathBuf> = paths.iter().collect();
    // Of two names of one file the same one stays, however they were given.
    sorted.sort();
    sorted.retain(|path| {
        let fresh = path.canonicalize().map_or(true, |real| seen.insert(real));
        if !fresh {
            complain(&format!("{}: given twice, used once", path.display()));
        }
        fresh
    });
    sorted
}
