//! `check`.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use clap::{Args, ValueEnum};

use super::output::Output;
use super::profiles::{read_member, read_profile, thresholds};
use super::report::without_repeats;
use super::symbols::SymbolArgs;
use super::traces::{Input, OpenError, expand};
use super::{UNREADABLE, VIOLATION};
use crate::job::Member;
use crate::passes::profile::Profile;
use crate::policy::{Checked, Jobs, MAX_POLICY_BYTES, Policy, Together, check, is_about, parse_policy};
use crate::report::check::{write_github, write_json, write_junit, write_markdown, write_text};
use crate::report::page::Page;
use crate::symbols::SymbolPlaces;
use crate::thresholds::Thresholds;

#[derive(Debug, Args)]
pub(super) struct CheckArgs {
    /// What the runs may take (TOML; docs/budgets.md shows how it is written)
    #[arg(long, value_name = "FILE")]
    policy: PathBuf,
    /// Trace files, or bundles: each process by itself
    #[arg(value_name = "TRACE", required = true)]
    traces: Vec<PathBuf>,
    /// Trace of the run to compare with, in place of the policy's `baseline`; of several, the one with the same executable
    /// and rank
    #[arg(long, value_name = "TRACE")]
    baseline: Vec<PathBuf>,
    #[command(flatten)]
    symbols: SymbolArgs,
    /// Another number than the default for what growth is laid through and blocks are padded to, such as leak-cycles=8 or
    /// model-granule=2M (may be repeated)
    #[arg(long, value_name = "NAME=VALUE")]
    threshold: Vec<String>,
    /// How to write it
    #[arg(long, value_enum, default_value_t = Format::Text)]
    format: Format,
    /// Write to this file instead of standard output
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Write JUnit XML to this file, too
    #[arg(long, value_name = "FILE")]
    junit: Option<PathBuf>,
    /// Write annotations of GitHub Actions to standard error, too (by itself where GITHUB_ACTIONS is true)
    #[arg(long)]
    github: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Format {
    /// For people
    Text,
    /// For programs
    Json,
    /// For a pull request, or the summary of a job
    Markdown,
}

fn read_policy(path: &Path) -> anyhow::Result<Policy> {
    let name = path.display();
    let mut text = String::new();
    let file = File::open(path).with_context(|| format!("{name}: the policy can't be read"))?;
    let read = file.take(MAX_POLICY_BYTES + 1).read_to_string(&mut text);
    if text.len() as u64 > MAX_POLICY_BYTES {
        bail!("{name}: a policy of more than {} is none", crate::words::size(MAX_POLICY_BYTES));
    }
    read.with_context(|| format!("{name}: the policy can't be read as text"))?;
    parse_policy(&text).with_context(|| name.to_string())
}

/// The traces of all arguments.
fn inputs(paths: &[PathBuf]) -> Result<Vec<Input>, OpenError> {
    let mut inputs = Vec::new();
    for path in without_repeats(paths) {
        inputs.extend(expand(path)?.traces);
    }
    Ok(inputs)
}

/// Traces that were read.
#[derive(Default)]
struct ReadAll {
    profiles: Vec<Profile>,
    /// In the same order; only where a budget is about all of them together.
    members: Vec<Member>,
}

fn read_all(
    paths: &[PathBuf],
    symbols: &SymbolPlaces,
    thresholds: &Thresholds,
    is_job: bool,
) -> Result<ReadAll, OpenError> {
    let mut all = ReadAll::default();
    for input in inputs(paths)? {
        let trace = input.open()?;
        if is_job {
            let (profile, member) = read_member(trace, symbols, thresholds);
            all.profiles.push(profile);
            all.members.push(member);
        } else {
            all.profiles.push(read_profile(trace, symbols, thresholds));
        }
    }
    Ok(all)
}

impl ReadAll {
    fn together(&self) -> Together<'_> {
        Together { profiles: &self.profiles, members: &self.members }
    }
}

/// Where the base runs are: on the command line, else where the policy says, beside the policy.
fn baselines(args: &CheckArgs, policy: &Policy) -> Vec<PathBuf> {
    let beside = args.policy.parent().unwrap_or(Path::new(""));
    match &policy.baseline {
        _ if !args.baseline.is_empty() => args.baseline.clone(),
        Some(baseline) => vec![beside.join(baseline)],
        None => Vec::new(),
    }
}

/// The base run of a run: the only one of the only one, else that of the same program and rank.
fn base_of<'a>(new: &Profile, bases: &'a [Profile], only: bool) -> Option<&'a Profile> {
    match bases {
        [base] if only => Some(base),
        _ => bases.iter().find(|base| {
            (&base.run.executable, base.run.rank_or_first()) == (&new.run.executable, new.run.rank_or_first())
        }),
    }
}

fn pair<'a>(
    policy: &Policy,
    news: &'a [Profile],
    bases: &'a [Profile],
) -> anyhow::Result<Vec<(&'a Profile, Option<&'a Profile>)>> {
    let mut pairs = Vec::new();
    for new in news {
        let base = base_of(new, bases, news.len() == 1);
        let needs = policy.budgets.iter().find(|budget| budget.rule.needs_base() && is_about(&budget.rule, &new.run));
        // All processes together have all base runs together.
        let needs = needs.filter(|budget| !budget.rule.scope.job || bases.is_empty());
        if let (Some(budget), None) = (needs, base) {
            let line = budget.line;
            if bases.is_empty() {
                bail!(
                    "line {line} of the policy compares with a base run, and there is none: give its trace with --baseline"
                );
            }
            let (program, rank) = (crate::words::clean(&new.run.executable), crate::words::rank(new.run.rank));
            bail!(
                "line {line} of the policy compares with a base run, and no baseline is of {program}{rank}, as {} is",
                new.run.path
            );
        }
        pairs.push((new, base));
    }
    Ok(pairs)
}

/// What is read is not written over: the policy, traces, bundles and base runs.
fn refuse_to_overwrite(args: &CheckArgs, baselines: &[PathBuf]) -> anyhow::Result<()> {
    for output in args.junit.iter().chain(&args.output) {
        let Ok(output) = std::fs::canonicalize(output) else { continue };
        let is_output = |input: &&PathBuf| std::fs::canonicalize(input).is_ok_and(|input| input == output);
        if is_output(&&args.policy) {
            bail!("{}: this is the policy, which is not overwritten; give the output another name", output.display());
        }
        if args.traces.iter().chain(baselines).any(|input| is_output(&input)) {
            bail!("{}: this is an input, which is not overwritten; give the output another name", output.display());
        }
    }
    Ok(())
}

pub(super) fn run(args: &CheckArgs) -> anyhow::Result<u8> {
    let policy = read_policy(&args.policy)?;
    let baselines = baselines(args, &policy);
    refuse_to_overwrite(args, &baselines)?;
    let thresholds = thresholds(args.threshold.iter())?;
    let (symbols, _) = args.symbols.places();
    let is_job = policy.budgets.iter().any(|budget| budget.rule.scope.job);
    let news = read_all(&args.traces, &symbols, &thresholds, is_job)?;
    let bases = read_all(&baselines, &symbols, &thresholds, is_job)?;
    let pairs = pair(&policy, &news.profiles, &bases.profiles)?;
    let jobs = Jobs { new: news.together(), base: bases.together() };
    let checked = check(&args.policy.display().to_string(), &policy, &pairs, jobs);
    write(args, &checked)?;
    // A gate must not open because of what could not be read.
    let damaged = news.profiles.iter().chain(&bases.profiles).any(|profile| profile.run.damages > 0);
    Ok(match checked.is_kept() {
        false => VIOLATION,
        true if damaged => UNREADABLE,
        true => 0,
    })
}

fn write(args: &CheckArgs, checked: &Checked) -> anyhow::Result<()> {
    if let Some(path) = &args.junit {
        Output::open(Some(path))?.write(|out| write_junit(out, checked))?;
    }
    let output = Output::open(args.output.as_deref())?;
    let mut page = Page::new(output.look());
    output.write(|out| match args.format {
        Format::Json => write_json(out, checked),
        Format::Markdown => out.write_all(write_markdown(checked).as_bytes()),
        Format::Text => {
            write_text(&mut page, checked);
            out.write_all(page.into_text().as_bytes())
        }
    })?;
    if args.github || std::env::var_os("GITHUB_ACTIONS").is_some_and(|value| value == "true") {
        // The runner reads both streams; here the commands are in nobody's way.
        let _ = write_github(&mut io::stderr(), checked);
    }
    Ok(())
}
