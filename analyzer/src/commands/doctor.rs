//! `doctor`.

use std::collections::BTreeMap;
use std::path::PathBuf;

use anyhow::bail;
use clap::{Args, ValueEnum};

use super::output::Output;
use super::thresholds::ThresholdArgs;
use crate::doctor::examine;
use crate::doctor::finding::Severity;
use crate::doctor::subject::Subject;
use crate::report::doctor::{Origin, write, write_json};
use crate::report::page::Page;

/// Something is wrong with the machine.
const SOMETHING_IS_WRONG: u8 = 1;

#[derive(Debug, Args)]
pub(super) struct DoctorArgs {
    /// How to write it
    #[arg(long, value_enum, default_value_t = Format::Text)]
    format: Format,
    /// Directory that stands for /, with copies of proc, sys and etc; the environment stays that of this command
    #[arg(long, value_name = "DIR", default_value = "/")]
    sysroot: PathBuf,
    #[command(flatten)]
    thresholds: ThresholdArgs,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Format {
    /// For people
    Text,
    /// For programs
    Json,
}

pub(super) fn run(args: &DoctorArgs) -> anyhow::Result<u8> {
    if !args.sysroot.is_dir() {
        bail!("{}: no such directory; --sysroot takes one that holds proc, sys and etc", args.sysroot.display());
    }
    let variables = std::env::vars_os().filter_map(|(name, value)| {
        let name = name.into_string().ok()?;
        Some((name, value.to_string_lossy().into_owned()))
    });
    let thresholds = args.thresholds.values()?;
    let subject = Subject::of_root(&args.sysroot, variables.collect::<BTreeMap<_, _>>());
    let subject = Subject { thresholds, ..subject };
    let examination = examine(&subject);
    let root = std::fs::canonicalize(&args.sysroot).unwrap_or_else(|_| args.sysroot.clone());
    let origin =
        Origin { root: args.sysroot.display().to_string(), is_this_machine: root == std::path::Path::new("/") };
    let output = Output::open(None)?;
    let mut page = Page::new(output.look());
    output.write(|out| match args.format {
        Format::Json => write_json(out, &examination, &origin),
        Format::Text => {
            write(&mut page, &examination, &origin);
            out.write_all(page.into_text().as_bytes())
        }
    })?;
    Ok(if examination.count(Severity::Problem) > 0 { SOMETHING_IS_WRONG } else { 0 })
}
