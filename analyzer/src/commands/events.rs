//! `events`.

use std::io::{self, Write};
use std::ops::ControlFlow;
use std::path::PathBuf;

use anyhow::bail;
use clap::{Args, ValueEnum};
use gpuoom_trace::reader::TraceFile;

use super::TraceArg;
use super::UNREADABLE;
use super::output::Output;
use super::symbols::SymbolArgs;
use super::traces;
use super::units::{no_such_failure, parse_oom};
use crate::intake::read_through;
use crate::passes::around::Around;
use crate::passes::numbered;
use crate::passes::rows::{EventRow, Rows};
use crate::report::events;
use crate::report::page::Look;

#[derive(Debug, Args)]
pub(super) struct EventsArgs {
    #[command(flatten)]
    trace: TraceArg,
    /// How to write it
    #[arg(long, value_enum, default_value_t = Format::Text)]
    format: Format,
    /// Only the events around an out-of-memory return: oom:N, counted from 1
    #[arg(long, value_name = "oom:N", value_parser = parse_oom)]
    around: Option<u64>,
    /// Also the whole way to each call: all frames, with source lines where the files of the program tell them
    #[arg(long)]
    stacks: bool,
    #[command(flatten)]
    symbols: SymbolArgs,
    /// Write to this file instead of standard output
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Format {
    /// For people
    Text,
    /// One object per line
    Json,
    /// For tables
    Csv,
}

pub(super) fn run(args: &EventsArgs) -> anyhow::Result<u8> {
    if args.stacks && args.format == Format::Csv {
        bail!(
            "--stacks: a table has no room for stacks; --format text and --format json have them, and the column 'caller' has the last function"
        );
    }
    let mut trace = traces::open(&args.trace.trace)?;
    let output = Output::open(args.output.as_deref())?;
    // A list that goes to a file or a pipe is not cut: other programs read it.
    let look = output.is_terminal().then(|| output.look());
    let mut around = args.around.map(Around::new);
    let (places, places_there) = args.symbols.places();
    let numbers = numbered::by_record(&mut trace);
    let rows = Rows::new(&trace, &places, args.stacks).numbered(numbers);
    output.write(|out| write_rows(out, &mut trace, rows, args.format, look, around.as_mut()))?;
    match around {
        Some(around) if !around.found() => {
            bail!(no_such_failure(args.around.unwrap_or(0), around.seen))
        }
        _ if !places_there => Ok(UNREADABLE),
        _ => Ok(super::status_of(&trace)),
    }
}

fn write_rows(
    out: &mut dyn Write,
    trace: &mut TraceFile,
    mut rows: Rows,
    format: Format,
    look: Option<Look>,
    mut around: Option<&mut Around>,
) -> io::Result<()> {
    if format == Format::Csv {
        events::write_csv_head(out)?;
    }
    let mut written = Ok(());
    let mut write = |row: EventRow| {
        let one = match format {
            Format::Text => events::write_text(out, &row, look),
            Format::Json => events::write_json(out, &row),
            Format::Csv => events::write_csv(out, &row),
        };
        stop_at_error(&mut written, one)
    };
    let mut sink = |row: EventRow| match &mut around {
        Some(around) => around.take(row, &mut write),
        None => write(row),
    };
    let mut flow = ControlFlow::Continue(());
    read_through(
        trace,
        |_| {},
        |batch| {
            flow = rows.batch(batch, &mut sink);
            flow
        },
    );
    if flow.is_continue() {
        let _ = rows.finish(&mut sink);
    }
    written
}

/// Stops at the first row that can't be written.
fn stop_at_error(all: &mut io::Result<()>, one: io::Result<()>) -> ControlFlow<()> {
    match one {
        Ok(()) => ControlFlow::Continue(()),
        Err(error) => {
            *all = Err(error);
            ControlFlow::Break(())
        }
    }
}
