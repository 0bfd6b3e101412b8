//! `map`.

use std::path::PathBuf;

use anyhow::bail;
use clap::{Args, ValueEnum};
use gpuoom_trace::reader::TraceFile;
use gpuoom_trace::record::NO_DEVICE;

use super::TraceArg;
use super::output::Output;
use super::progress::Progress;
use super::traces;
use super::units::{At, no_such_failure, parse_at, parse_size};
use crate::intake::read_through;
use crate::passes::map::{DeviceMap, Moment, draw};
use crate::passes::numbered;
use crate::passes::segments::of_device;
use crate::replay::{Options, Replay, Until};
use crate::report::map::{ADDRESS_LEGEND, Document, MODEL_LEGEND, SCHEMA, write_json, write_text};
use crate::report::page::Page;

#[derive(Debug, Args)]
pub(super) struct MapArgs {
    #[command(flatten)]
    trace: TraceArg,
    /// Moment: peak, end, oom:N, or a time such as 1.5s
    #[arg(long, value_name = "MOMENT", default_value = "peak", value_parser = parse_at)]
    at: At,
    /// Bytes of a cell and granule of the model, such as 2M (default: as recorded)
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    granularity: Option<u64>,
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

pub(super) fn run(args: &MapArgs) -> anyhow::Result<u8> {
    let mut trace = traces::open(&args.trace.trace)?;
    let (devices, is_whole) = replay(&mut trace, args)?;
    let document = Document {
        schema: SCHEMA,
        trace: args.trace.trace.display().to_string(),
        moment: match args.at {
            At::Peak => "peak".to_owned(),
            At::Stop(Until::End) => "end".to_owned(),
            At::Oom(number) => format!("oom:{number}"),
            At::Stop(Until::Refusal(number)) => format!("refusal {number}"),
            At::Stop(Until::Time(at_ns)) if is_whole => {
                format!("the end: the trace ends before {} s", at_ns as f64 / 1e9)
            }
            At::Stop(Until::Time(at_ns)) => format!("{} s", at_ns as f64 / 1e9),
        },
        address_space_is: ADDRESS_LEGEND,
        model_is: MODEL_LEGEND,
        devices: &devices,
    };
    let output = Output::open(args.output.as_deref())?;
    let mut page = Page::new(output.look());
    output.write(|out| match args.format {
        Format::Json => write_json(out, &document),
        Format::Text => {
            write_text(&mut page, &document);
            out.write_all(page.into_text().as_bytes())
        }
    })?;
    Ok(super::status_of(&trace))
}

/// The maps, and whether the replay went to the end of the trace.
fn replay(trace: &mut TraceFile, args: &MapArgs) -> anyhow::Result<(Vec<DeviceMap>, bool)> {
    let (until, moment) = match args.at {
        At::Peak => (Until::End, Moment::Peak),
        At::Oom(number) => (Until::Refusal(numbered::refusal_of(trace, number)), Moment::Now),
        At::Stop(until) => (until, Moment::Now),
    };
    let mut replay = Replay::new(trace, Options { granularity_bytes: args.granularity, until, ..Options::default() });
    let mut progress = Progress::new(trace.records_in_chunks());
    read_through(trace, |records| progress.advance(records), |batch| replay.batch(batch));
    drop(progress);
    if let Some(device) = args.device.filter(|device| replay.accounts.device(*device).is_none()) {
        bail!("GPU {device}: the trace has no calls for memory of that device");
    }
    if let At::Oom(number) = args.at
        && matches!(until, Until::Refusal(refusal) if replay.failures.begun < refusal)
    {
        bail!(no_such_failure(number, replay.failures.count))
    }
    let is_whole = trace.is_whole();
    let mut devices = draw(&replay, moment, args.device);
    for device in &mut devices {
        device.allocators = of_device(&replay, device.device.unwrap_or(NO_DEVICE), moment, is_whole);
    }
    Ok((devices, replay.went_to_the_end()))
}
