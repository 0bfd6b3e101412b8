//! The command line: what the tool is asked to do, and its exit status.

mod bundle;
mod check;
mod diff;
mod doctor;
mod events;
mod explain;
mod gauntlet;
mod map;
mod message;
mod output;
mod preloadable;
mod profiles;
mod progress;
mod record;
mod recorded;
mod report;
mod stop;
mod symbols;
mod thresholds;
mod traces;
mod units;
mod whatif;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Args, CommandFactory as _, Parser, Subcommand};
use gpuoom_trace::reader::{ReadError, TraceFile};

use self::traces::OpenError;
use crate::bundle::BundleError;
use crate::evidence::EvidenceError;

/// `check` or `diff --fail-on` found a violation.
const VIOLATION: u8 = 1;
/// Wrong usage.
const USAGE: u8 = 2;
/// A trace could not be read.
const UNREADABLE: u8 = 3;

/// Commands that a later version brings, so that nobody takes their names for traces.
const LATER: [&str; 7] = ["collect", "estimate", "export", "fleet", "live", "run", "try"];
/// Of so many letters one may be wrong in a command that was meant: missing, too much, another, or in its neighbour's place.
const LETTERS_PER_SLIP: usize = 3;

/// Explains why a program ran out of GPU memory, from the trace that libgpuoom.so recorded.
#[derive(Debug, Parser)]
#[command(name = "gpuoom-analyze", version, args_conflicts_with_subcommands = true)]
#[command(
    after_help = "Exit status: 0 done, 1 doctor found a problem, check or diff --fail-on a violation, gauntlet a dropped failure, \
                  2 wrong usage, 3 a trace or other file could not be read."
)]
struct Cli {
    #[command(subcommand)]
    command: Option<Command>,
    #[command(flatten)]
    report: report::ReportArgs,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// The verdict, out-of-memory returns, peaks and fragmentation (also without the word `report`)
    Report(report::ReportArgs),
    /// The fragmentation map at one moment
    Map(map::MapArgs),
    /// The same run on another card or with another granule
    Whatif(whatif::WhatifArgs),
    /// Every event, in order, one line each
    Events(events::EventsArgs),
    /// What changed between two runs: peaks, memory at the end, calls and failures, by device and by call site
    Diff(diff::DiffArgs),
    /// Check runs against a policy, for continuous integration; status 1 if a budget is exceeded
    Check(check::CheckArgs),
    /// Run a command with the recorder loaded; its exit status is passed through
    #[command(override_usage = "gpuoom-analyze record [OPTIONS] -- <COMMAND>...")]
    Record(record::RecordArgs),
    /// What a bug report needs, in one archive, redacted: report, traces, machine, and what the right tracker asks for
    Bundle(bundle::BundleArgs),
    /// Run a program once per allocation call site with that call failing; status 1 if it drops a failure
    #[command(override_usage = "gpuoom-analyze gauntlet [OPTIONS] -- <COMMAND>...")]
    Gauntlet(gauntlet::GauntletArgs),
    /// Check this machine before a run: limits, who holds GPU memory, options; status 1 if something is wrong
    Doctor(doctor::DoctorArgs),
    /// The diagnosis catalogue: all entries, or one with what proves and refutes it, what to do, and sources
    Explain(explain::ExplainArgs),
    /// What an error text says, without a trace: which limit, what its numbers exclude, what is missing, what to do next
    Message(message::MessageArgs),
}

/// One trace.
#[derive(Debug, Args)]
struct TraceArg {
    /// Trace file, or a bundle with one trace
    #[arg(value_name = "TRACE")]
    trace: PathBuf,
}

/// Runs the tool.
pub fn main() -> ExitCode {
    let cli = Cli::parse();
    let done = match &cli.command {
        None => report::run(&cli.report),
        Some(Command::Report(args)) => report::run(args),
        Some(Command::Map(args)) => map::run(args),
        Some(Command::Whatif(args)) => whatif::run(args),
        Some(Command::Events(args)) => events::run(args),
        Some(Command::Diff(args)) => diff::run(args),
        Some(Command::Check(args)) => check::run(args),
        Some(Command::Record(args)) => record::run(args),
        Some(Command::Bundle(args)) => bundle::run(args),
        Some(Command::Gauntlet(args)) => gauntlet::run(args),
        Some(Command::Doctor(args)) => doctor::run(args),
        Some(Command::Explain(args)) => explain::run(args),
        Some(Command::Message(args)) => message::run(args),
    };
    match done {
        Ok(status) => ExitCode::from(status),
        Err(error) => {
            output::complain(&format!("{error:#}"));
            let unreadable = error.is::<ReadError>()
                || error.is::<OpenError>()
                || error.is::<BundleError>()
                || error.is::<EvidenceError>();
            ExitCode::from(if unreadable { UNREADABLE } else { USAGE })
        }
    }
}

/// Says what could not be read of a trace whose readable part was used. The exit status for it says so, too: whoever only looks at
/// that must not take a part for the whole.
fn status_of(trace: &TraceFile) -> u8 {
    for damage in trace.damages() {
        output::complain(&format!("{}: offset {}: {}", trace.path().display(), damage.offset, damage.reason));
    }
    if trace.damages().is_empty() { 0 } else { UNREADABLE }
}

/// The command that was probably meant by a path that does not exist.
fn meant(path: &Path) -> Option<String> {
    let word = path.to_str().filter(|_| !path.exists())?;
    let command = Cli::command();
    let names = command.get_subcommands().map(|command| command.get_name());
    let (slips, best) = names.map(|name| (strsim::damerau_levenshtein(word, name), name)).min()?;
    (slips <= word.chars().count() / LETTERS_PER_SLIP).then(|| best.to_owned())
}

/// Whether a path that does not exist is the name of a command that this version does not have.
fn is_later_command(path: &Path) -> bool {
    path.to_str().is_some_and(|name| LATER.contains(&name)) && !path.exists()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mistyped_command_is_no_file() {
        for (word, command) in [("repot", "report"), ("mpa", "map"), ("evnets", "events"), ("whatiff", "whatif")] {
            assert_eq!(meant(Path::new(word)).as_deref(), Some(command), "{word}");
        }
        for word in ["x", "t.bin", "trace.bin", "train.py", "gpuoom-python3-4711.trace.bin", "../report/1"] {
            assert_eq!(meant(Path::new(word)), None, "{word}");
        }
    }
}
