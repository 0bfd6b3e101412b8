//! `diff`.

use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};

use super::output::{Output, complain};
use super::profiles::{read_profile, thresholds};
use super::symbols::SymbolArgs;
use super::traces::{self, OpenError};
use super::units::parse_size_or_nothing;
use super::{UNREADABLE, VIOLATION};
use crate::compare::{Threshold, compare};
use crate::passes::profile::Profile;
use crate::policy::{Rule, Sides, Verdict, about_nothing, is_about, judge, parse_expression};
use crate::report::check::sentence;
use crate::report::diff::{Conditions, write_json, write_markdown, write_text};
use crate::report::page::Page;
use crate::thresholds::Thresholds;
use crate::words::clean;

#[derive(Debug, Args)]
pub(super) struct DiffArgs {
    /// Trace of the run to compare with, or a bundle with one trace
    #[arg(value_name = "BASE")]
    base: PathBuf,
    /// Trace of the run that is looked at, or a bundle with one trace
    #[arg(value_name = "NEW")]
    new: PathBuf,
    #[command(flatten)]
    symbols: SymbolArgs,
    /// How to write it
    #[arg(long, value_enum, default_value_t = Format::Text)]
    format: Format,
    /// Differences up to this are noise: a size, or a share such as 2%; may be given once each, 0 shows everything
    /// (default: 1M and 1%). Also NAME=VALUE, for what growth is laid through and blocks are padded to, such as leak-cycles=8
    /// or model-granule=2M
    #[arg(long, value_name = "SIZE|SHARE|NAME=VALUE", value_parser = parse_threshold)]
    threshold: Vec<Limit>,
    /// Most call sites that are listed in text and Markdown
    #[arg(long, value_name = "N", default_value_t = 20)]
    sites: usize,
    /// Exit with status 1 where this holds, such as "peak > base + 5%" or "dropped > 0"; may be given several times
    #[arg(long, value_name = "EXPR", value_parser = parse_condition)]
    fail_on: Vec<Rule>,
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
#[derive(Clone, Debug, PartialEq)]
enum Limit {
    /// Everything is shown.
    Nothing,
    Bytes(u64),
    Share(f64),
    /// A threshold of the analysis.
    Named(String),
}

fn parse_threshold(text: &str) -> Result<Limit, String> {
    if text.contains('=') {
        return Ok(Limit::Named(text.to_owned()));
    }
    let Some(number) = text.trim().strip_suffix('%') else {
        let bytes = parse_size_or_nothing(text)?;
        return Ok(if bytes == 0 { Limit::Nothing } else { Limit::Bytes(bytes) });
    };
    let share = number.trim().parse().ok().filter(|percent: &f64| percent.is_finite() && *percent >= 0.0);
    share.map(|percent| Limit::Share(percent / 100.0)).ok_or_else(|| format!("'{text}' is no share: write 2% or 0.5%"))
}

/// A statement about one process against another.
fn parse_condition(text: &str) -> Result<Rule, String> {
    let rule = parse_expression(text)?;
    match rule.scope.job {
        true => {
            Err("job is for several traces, and diff compares two: a policy can have it (gpuoom-analyze check)"
                .to_owned())
        }
        false => Ok(rule),
    }
}

/// What was asked for, over the default.
fn threshold(limits: &[Limit]) -> Threshold {
    let mut threshold = Threshold::default();
    for limit in limits {
        match limit {
            Limit::Nothing => threshold = Threshold::NONE,
            Limit::Bytes(bytes) => threshold.bytes = *bytes,
            Limit::Share(share) => threshold.share = *share,
            Limit::Named(_) => {}
        }
    }
    threshold
}

/// Both runs, read at the same time: each by threads of its own.
fn read_both(args: &DiffArgs, thresholds: &Thresholds) -> Result<(Profile, Profile), OpenError> {
    let (symbols, _) = args.symbols.places();
    let read = |path: &Path| traces::open(path).map(|trace| read_profile(trace, &symbols, thresholds));
    let (base, new) = std::thread::scope(|scope| {
        let base = scope.spawn(|| read(&args.base));
        let new = read(&args.new);
        (base.join(), new)
    });
    Ok((base.unwrap_or_else(|panic| std::panic::resume_unwind(panic))?, new?))
}

/// What came of the conditions. What the traces do not tell is said on stderr, too.
fn conditions(rules: &[Rule], sides: &Sides<'_>) -> Conditions {
    let mut conditions = Conditions::default();
    for rule in rules {
        if !is_about(rule, &sides.new.run) {
            let run = &sides.new.run;
            let rank = run.rank.map_or_else(|| "rank unknown".to_owned(), |rank| format!("rank {rank}"));
            let program = clean(&run.executable);
            conditions.not_judged.push(format!("{}: NEW is of {program}, {rank}", clean(&rule.to_string())));
            continue;
        }
        if let Some(because) = about_nothing(rule, &[sides.difference]) {
            conditions.not_judged.push(format!("{}: {because}", clean(&rule.to_string())));
            continue;
        }
        for judged in judge(rule, sides) {
            match judged.verdict {
                Verdict::True => conditions.failed.push(judged),
                Verdict::False => {}
                Verdict::NotJudged => conditions.not_judged.push(sentence(&judged)),
            }
        }
    }
    conditions.not_judged.iter().for_each(|sentence| complain(&format!("--fail-on was not judged: {sentence}")));
    conditions
}

pub(super) fn run(args: &DiffArgs) -> anyhow::Result<u8> {
    let named = args.threshold.iter().filter_map(|limit| match limit {
        Limit::Named(text) => Some(text),
        _ => None,
    });
    let (base, new) = read_both(args, &thresholds(named)?)?;
    let difference = compare(&base, &new, threshold(&args.threshold));
    let conditions = conditions(&args.fail_on, &Sides { difference: &difference, new: &new, base: Some(&base) });
    let output = Output::open(args.output.as_deref())?;
    let mut page = Page::new(output.look());
    output.write(|out| match args.format {
        Format::Json => write_json(out, &difference, &conditions),
        Format::Markdown => out.write_all(write_markdown(&difference, &conditions, args.sites).as_bytes()),
        Format::Text => {
            write_text(&mut page, &difference, &conditions, args.sites);
            out.write_all(page.into_text().as_bytes())
        }
    })?;
    let damaged = base.run.damages > 0 || new.run.damages > 0;
    Ok(match conditions.failed.is_empty() {
        false => VIOLATION,
        // A gate must not open because of what could not be read.
        true if damaged => UNREADABLE,
        true => 0,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thresholds() {
        for (text, limit) in [
            ("0", Limit::Nothing),
            ("0M", Limit::Nothing),
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
