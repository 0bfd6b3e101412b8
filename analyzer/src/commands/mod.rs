//! The command line: what the tool is asked to do, and its exit status.

mod events;
mod output;
mod progress;
mod report;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Parser, Subcommand};

/// Wrong usage.
const USAGE: u8 = 2;
/// A trace could not be read.
const UNREADABLE: u8 = 3;

/// Explains why a program ran out of GPU memory, from the trace that libgpuoom.so recorded.
#[derive(Debug, Parser)]
#[command(name = "gpuoom-analyze", version, args_conflicts_with_subcommands = true, arg_required_else_help = true)]
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
    /// Every event, in order, one line each
    Events(events::EventsArgs),
}

/// One trace.
#[derive(Debug, Args)]
struct TraceArg {
    /// Trace file
    #[arg(value_name = "TRACE")]
    trace: PathBuf,
}

/// Runs the tool.
pub fn main() -> ExitCode {
    let cli = Cli::parse();
    let done = match cli.command {
        None => report::run(&cli.report),
        Some(Command::Report(args)) => report::run(&args),
        Some(Command::Events(args)) => events::run(&args),
    };
    match done {
        Ok(status) => ExitCode::from(status),
        Err(error) => {
            output::complain(&format!("{error:#}"));
            ExitCode::from(if error.is::<gpuoom_trace::reader::ReadError>() { UNREADABLE } else { USAGE })
        }
    }
}
