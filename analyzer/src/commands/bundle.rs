//! `bundle`.

use std::fs::File;
use std::path::{Path, PathBuf};

use anyhow::bail;
use clap::{Args, ValueEnum};
use gpuoom_trace::metadata::{MachineFacts, Quantity};
use gpuoom_trace::reader::{Damage, TraceFile};
use gpuoom_trace::rewrite;

use super::UNREADABLE;
use super::output::{Output, complain, is_trace};
use super::report::{BesideArgs, Document, Format, Length, Read, read, without_repeats};
use super::thresholds::{OfBundle, ThresholdArgs};
use super::traces::{Input, expand};
use crate::bundle::issue::{Known, fill};
use crate::bundle::layout::{DAMAGES, THRESHOLDS, evidence_name, trace_name};
use crate::bundle::pack::{Content, Pack};
use crate::bundle::redact::{Keep, Redactor};
use crate::evidence::text::text_of;
use crate::evidence::{Evidence, EvidenceError, Source, add};
use crate::report::bundle::redacted::Redacted;
use crate::report::bundle::{issue, machine, redacted};
use crate::report::page::Look;

/// Width of texts in a bundle.
const WIDTH: usize = 110;

#[derive(Debug, Args)]
pub(super) struct BundleArgs {
    /// Trace files, or bundles
    #[arg(value_name = "TRACE", required = true)]
    traces: Vec<PathBuf>,
    /// The bundle; a file that is there already is not replaced
    #[arg(short, long, value_name = "FILE.tar.gz")]
    output: PathBuf,
    /// What is not redacted, with commas between: without this, names of accounts and machines, paths, values on the command
    /// line, values of variables, labels, and most lines of logs are replaced
    #[arg(long, value_enum, value_name = "WHAT", value_delimiter = ',')]
    keep: Vec<KeepArg>,
    #[command(flatten)]
    thresholds: ThresholdArgs,
    #[command(flatten)]
    beside: BesideArgs,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum KeepArg {
    /// Names of accounts
    User,
    /// Names of machines, and network addresses
    Host,
    /// Paths and names of files
    Paths,
    /// Values on the command line
    Arguments,
    /// Values of variables
    Environment,
    /// Labels, and names of functions in the program's own code
    Marks,
    /// All lines of logs, and memory snapshots of PyTorch (they hold source paths and are not redacted)
    Evidence,
    /// All of these
    All,
}

impl KeepArg {
    fn add_to(self, keep: &mut Keep) {
        match self {
            KeepArg::User => keep.user = true,
            KeepArg::Host => keep.host = true,
            KeepArg::Paths => keep.paths = true,
            KeepArg::Arguments => keep.arguments = true,
            KeepArg::Environment => keep.environment = true,
            KeepArg::Marks => keep.marks = true,
            KeepArg::Evidence => keep.evidence = true,
            KeepArg::All => *keep = Keep::ALL,
        }
    }
}

/// The words of `--keep` that are in force.
fn words(keep: Keep) -> Vec<&'static str> {
    let Keep { user, host, paths, arguments, environment, marks, evidence } = keep;
    let all = [
        (user, "user"),
        (host, "host"),
        (paths, "paths"),
        (arguments, "arguments"),
        (environment, "environment"),
        (marks, "marks"),
        (evidence, "evidence"),
    ];
    all.into_iter().filter(|(kept, _)| *kept).map(|(_, word)| word).collect()
}

/// A file beside the traces.
type Beside = (Source, String, Vec<u8>);

/// A trace without what is nobody's business.
struct Copied {
    name: String,
    file: File,
    machine: MachineFacts,
    /// What could not be read of the original.
    damages: Vec<Damage>,
}

/// What was collected so far.
struct Work {
    redactor: Redactor,
    pack: Pack,
    /// Parts of the originals that could not be read.
    unreadable: Vec<String>,
    status: u8,
}

impl Work {
    fn refuse(&mut self, message: &str) {
        complain(message);
        self.status = UNREADABLE;
    }

    fn check(&mut self, done: Result<(), EvidenceError>) {
        if let Err(error) = done {
            self.refuse(&error.to_string());
        }
    }
}

pub(super) fn run(args: &BundleArgs) -> anyhow::Result<u8> {
    if args.beside.names_symbols() {
        bail!(
            "--symbols: the report in a bundle names no functions of your own files; whoever reads the bundle gives --symbols"
        );
    }
    refuse_to_replace(&args.output)?;
    let mut keep = Keep::default();
    args.keep.iter().for_each(|word| word.add_to(&mut keep));
    let mut work = Work { redactor: Redactor::new(keep), pack: Pack::default(), unreadable: Vec::new(), status: 0 };
    let (mut traces, beside, of_bundles) = open(args, &mut work);
    let thresholds = args.thresholds.over(&of_bundles)?;
    if traces.is_empty() {
        return Ok(UNREADABLE);
    }
    learn(&mut work.redactor, &traces, &beside);
    let mut copies = Vec::new();
    for (index, trace) in traces.iter_mut().enumerate() {
        copies.push(copy(trace, trace_name(index + 1), &mut work)?);
    }
    let (evidence, attached) = redact_evidence(beside, &mut work);
    let evidence = Evidence { thresholds, ..evidence };
    let set: String = thresholds.texts().into_iter().map(|text| text + "\n").collect();
    if !set.is_empty() {
        work.pack.add(THRESHOLDS, Content::Bytes(set.into_bytes()));
    }
    let mut reads = Vec::new();
    for copied in &copies {
        let input = Input::unpacked(copied.name.clone().into(), copied.file.try_clone()?, copied.damages.clone());
        reads.push(read(input, &evidence, copies.len() > 1)?);
    }
    describe(&mut work, &copies, reads, &attached)?;
    let damages = copies.iter().flat_map(|copied| copied.damages.iter().map(|damage| (&copied.name, damage)));
    let damages: String =
        damages.map(|(name, damage)| format!("{name} {} {}\n", damage.offset, damage.reason)).collect();
    if !damages.is_empty() {
        work.pack.add(DAMAGES, Content::Bytes(damages.into_bytes()));
    }
    for Copied { name, file, .. } in copies {
        work.pack.add(&name, Content::File(file));
    }
    let count = work.redactor.log().rows().map(|(.., count)| count).sum::<u64>();
    let redactions = crate::words::count(count, "redaction", "redactions");
    let output = Output::open(Some(&args.output))?;
    output.write(|out| work.pack.write(out))?;
    let evidence = if attached.is_empty() { " and issue.md" } else { ", issue.md and evidence/" };
    complain(&format!(
        "{}: written, {redactions}; look at REDACTED.md{evidence} in it before you send it",
        args.output.display()
    ));
    Ok(work.status)
}

/// A bundle is there to be kept: the one that lies there already may be of another run. What is no file can't be replaced.
fn refuse_to_replace(output: &Path) -> anyhow::Result<()> {
    // A trace has a sentence of its own, when the output is opened.
    if output.is_file() && !is_trace(output) {
        bail!("{}: there is a file of this name already; choose another name with -o, or remove it", output.display());
    }
    Ok(())
}

/// Opens all traces, and reads what lies beside them. What can't be used is said, and left out.
fn open(args: &BundleArgs, work: &mut Work) -> (Vec<TraceFile>, Vec<Beside>, Vec<OfBundle>) {
    let (mut traces, mut beside, mut of_bundles) = (Vec::new(), Vec::new(), Vec::new());
    let mut model = Evidence::default();
    for path in without_repeats(&args.traces) {
        let expanded = match expand(path) {
            Ok(expanded) => expanded,
            Err(error) => {
                work.refuse(&error.to_string());
                continue;
            }
        };
        for (source, name, bytes) in expanded.evidence {
            match source {
                // What is given here is laid over what a bundle brought.
                Source::ModelFacts => work.check(add(&mut model, source, name, &bytes)),
                _ => beside.push((source, name, bytes)),
            }
        }
        let (of_bundle, whole) = OfBundle::read(path, &expanded.thresholds);
        of_bundles.push(of_bundle);
        work.status = if whole { work.status } else { UNREADABLE };
        for input in expanded.traces {
            match input.open() {
                Ok(trace) => traces.push(trace),
                Err(error) => work.refuse(&error.to_string()),
            }
        }
    }
    match args.beside.load_model(&mut model) {
        Ok(whole) => work.status = if whole { work.status } else { UNREADABLE },
        Err(error) => work.refuse(&error.to_string()),
    }
    if let Some(facts) = model.model.map(|facts| facts.to_toml()).filter(|facts| !facts.is_empty()) {
        beside.push((Source::ModelFacts, "facts of the model".to_owned(), facts.into_bytes()));
    }
    for (source, path) in args.beside.given() {
        match crate::evidence::read(source, path) {
            Ok(bytes) => beside.push((source, path.display().to_string(), bytes)),
            Err(error) => work.refuse(&error.to_string()),
        }
    }
    (traces, beside, of_bundles)
}

/// Learns all names before anything is replaced.
fn learn(redactor: &mut Redactor, traces: &[TraceFile], beside: &[Beside]) {
    // In order, so that what is sorted by the names of machines stays sorted.
    let mut hosts: Vec<&str> = traces.iter().map(|trace| trace.metadata.process.hostname.as_str()).collect();
    hosts.sort_unstable();
    hosts.into_iter().for_each(|host| redactor.learn_host(host));
    traces.iter().for_each(|trace| redactor.learn_trace(&trace.metadata));
    for (source, _, bytes) in beside {
        if *source != Source::TorchSnapshot {
            redactor.learn_text(&text_of(bytes).text);
        }
    }
    // Whoever makes the bundle is often who ran the program.
    for name in ["USER", "LOGNAME", "SUDO_USER"] {
        if let Ok(user) = std::env::var(name) {
            redactor.learn_user(&user);
        }
    }
}

fn copy(trace: &mut TraceFile, name: String, work: &mut Work) -> anyhow::Result<Copied> {
    let file = tempfile::tempfile()?;
    let done = rewrite::copy(trace, &mut work.redactor, &file)?;
    let damages = trace.damages().to_vec();
    if !damages.is_empty() {
        work.status = UNREADABLE;
    }
    for damage in &damages {
        work.unreadable.push(format!("{name}: offset {} of the original: {}", damage.offset, damage.reason));
    }
    if done.left_out > 0 {
        work.unreadable.push(format!("{name}: {} events with impossible numbers", done.left_out));
    }
    let machine = TraceFile::from_file(file.try_clone()?, name.as_ref())?.metadata.machine;
    Ok(Copied { name, file, machine, damages })
}

/// What stays of the files beside the traces: as evidence for the report, and as names of what is attached.
fn redact_evidence(beside: Vec<Beside>, work: &mut Work) -> (Evidence, Vec<(Source, String)>) {
    let (mut evidence, mut attached) = (Evidence::default(), Vec::new());
    let mut numbers = [
        (Source::TorchLog, 0),
        (Source::TorchSnapshot, 0),
        (Source::Smi, 0),
        (Source::KernelLog, 0),
        (Source::ModelFacts, 0),
    ];
    for (source, path, bytes) in beside {
        let Some((_, number)) = numbers.iter_mut().find(|(known, _)| *known == source) else { continue };
        let name = evidence_name(source, *number + 1);
        let whole = source == Source::TorchSnapshot;
        let kept = match whole {
            true => bytes,
            false => work.redactor.evidence(source, &name, &text_of(&bytes).text).text.into_bytes(),
        };
        if let Err(error) = add(&mut evidence, source, name.clone(), &kept) {
            // The user knows the file by its own name.
            work.refuse(&format!("{path}: {}", error.to_string().trim_start_matches(&format!("{name}: "))));
            continue;
        }
        *number += 1;
        if whole && !work.redactor.keep().evidence {
            work.redactor.left_out("memory snapshots of PyTorch");
            continue;
        }
        work.pack.add(&name, Content::Bytes(kept));
        attached.push((source, name));
    }
    (evidence, attached)
}

/// Everything in a bundle that people read.
fn describe(work: &mut Work, copies: &[Copied], reads: Vec<Read>, attached: &[(Source, String)]) -> anyhow::Result<()> {
    let mut readings: Vec<Quantity> = reads.iter().flat_map(|read| read.quantities.iter().copied()).collect();
    readings.sort_unstable();
    readings.dedup();
    let Some(document) = Document::new(reads, Vec::new(), copies.len() > 1) else { return Ok(()) };
    for (name, format) in [("report.md", Format::Markdown), ("report.json", Format::Json)] {
        let mut bytes = Vec::new();
        document.write(&mut bytes, format, Length::Full, Look::new(WIDTH, false))?;
        work.pack.add(name, Content::Bytes(bytes));
    }
    let of_trace = |copied: &'_ Copied| {
        let summary = document.summaries().iter().find(|summary| summary.facts.trace.path == copied.name);
        summary.map(|summary| &summary.facts.machine)
    };
    let machines: Vec<machine::OfTrace<'_>> = copies
        .iter()
        .filter_map(|copied| Some(machine::OfTrace::new(&copied.name, of_trace(copied)?, &copied.machine)))
        .collect();
    let mut bytes = Vec::new();
    machine::write(&mut bytes, &machines)?;
    work.pack.add("machine.json", Content::Bytes(bytes));
    let (log, kept) = (work.redactor.log(), words(work.redactor.keep()));
    let page = redacted::write(&Redacted { log, kept: &kept, unreadable: &work.unreadable });
    work.pack.add("REDACTED.md", Content::Bytes(page.into_bytes()));
    if let Some(filled) = fill(&Known { summaries: document.summaries(), readings: &readings, evidence: attached }) {
        let names: Vec<&str> = work.pack.names().chain(copies.iter().map(|copied| copied.name.as_str())).collect();
        let page = issue::write(&filled, &names);
        work.pack.add("issue.md", Content::Bytes(page.into_bytes()));
    }
    Ok(())
}
