//! `diff`.

use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};

use super::output::{Output, complain};
use super::traces::{self, OpenError};
use super::units::parse_size;
use crate::compare::{Threshold, compare};
use crate::intake::read_through;
use crate::passes::profile::{Profile, profile};
use crate::replay::{Options, Replay};
use crate::report::diff::{write_json, write_markdown, write_text};
use crate::report::page::Page;

#[derive(Debug, Args)]
pub(super) struct DiffArgs {
    /// Trace of the run to compare with, or a bundle with one trace
    #[arg(value_name = "BASE")]
    base: PathBuf,
    /// Trace of the run that is looked at, or a bundle with one trace
    #[arg(value_name = "NEW")]
    new: PathBuf,
    /// How to write it
    #[arg(long, value_enum, default_value_t = Format::Text)]
    format: Format,
    /// Differences up to this are noise: a size, or a share such as 2%; may be given once each, 0 shows everything
    /// (default: 1M and 1%)
    #[arg(long, value_name = "SIZE|SHARE", value_parser = parse_threshold)]
    threshold: Vec<Limit>,
    /// Most call sites that are listed in text and Markdown
    #[arg(long, value_name = "N", default_value_t = 20)]
    sites: usize,
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
    /// For a pull request
    Markdown,
}

/// One limit of the threshold.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Limit {
    /// Everything is shown.
    Nothing,
    Bytes(u64),
    Share(f64),
}

fn parse_threshold(text: &str) -> Result<Limit, String> {
    if text.trim() == "0" {
        return Ok(Limit::Nothing);
    }
    let Some(number) = text.trim().strip_suffix('%') else { return parse_size(text).map(Limit::Bytes) };
    let share = number.trim().parse().ok().filter(|percent: &f64| percent.is_finite() && *percent >= 0.0);
    share.map(|percent| Limit::Share(percent / 100.0)).ok_or_else(|| format!("'{text}' is no share: write 2% or 0.5%"))
}

/// What was asked for, over the default.
fn threshold(limits: &[Limit]) -> Threshold {
    let mut threshold = Threshold::default();
    for limit in limits {
        match limit {
            Limit::Nothing => threshold = Threshold::NONE,
            Limit::Bytes(bytes) => threshold.bytes = *bytes,
            Limit::Share(share) => threshold.share = *share,
        }
    }
    threshold
}

/// Replays a trace to its end. What could not be read of it is said.
pub(super) fn read_profile(path: &Path) -> Result<Profile, OpenError> {
    let mut trace = traces::open(path)?;
    let mut replay = Replay::new(&trace, Options::default());
    replay.accounts.keep_tallies();
    read_through(&mut trace, |_| {}, |batch| replay.batch(batch));
    replay.finish();
    for damage in trace.damages() {
        complain(&format!("{}: offset {}: {}", trace.path().display(), damage.offset, damage.reason));
    }
    Ok(profile(&trace, &replay))
}

pub(super) fn run(args: &DiffArgs) -> anyhow::Result<u8> {
    // Each trace is read by two threads of its own.
    let (base, new) = std::thread::scope(|scope| {
        let base = scope.spawn(|| read_profile(&args.base));
        let new = read_profile(&args.new);
        (base.join(), new)
    });
    let base = base.unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
    let difference = compare(&base, &new?, threshold(&args.threshold));
    let output = Output::open(args.output.as_deref())?;
    let mut page = Page::new(output.look());
    output.write(|out| match args.format {
        Format::Json => write_json(out, &difference),
        Format::Markdown => out.write_all(write_markdown(&difference, args.sites).as_bytes()),
        Format::Text => {
            write_text(&mut page, &difference, args.sites);
            out.write_all(page.into_text().as_bytes())
        }
    })?;
    Ok(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thresholds() {
        for (text, limit) in [
            ("0", Limit::Nothing),
            ("4M", Limit::Bytes(4 << 20)),
            ("5%", Limit::Share(0.05)),
            ("0.5 %", Limit::Share(0.005)),
        ] {
            assert_eq!(parse_threshold(text), Ok(limit));
        }
        for text in ["", "%", "-1%", "NaN%", "inf%", "x", "-4M"] {
            assert!(parse_threshold(text).is_err(), "{text}");
        }
        let both = threshold(&[Limit::Share(0.2), Limit::Bytes(7)]);
        assert_eq!(both, Threshold { bytes: 7, share: 0.2 });
    }
}
