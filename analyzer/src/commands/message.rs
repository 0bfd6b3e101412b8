//! `message`.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};
use gpuoom_trace::header::MAGIC;

use super::output::Output;
use super::thresholds::ThresholdArgs;
use crate::evidence::EvidenceError;
use crate::evidence::text::text_of;
use crate::message::{Source, triage};
use crate::report::message::{write, write_json};
use crate::report::page::{Look, Page};

/// Largest text that is read.
const LIMIT_BYTES: u64 = 64 << 20;
/// Bytes by which a text is told from something else.
const LOOKED_AT: usize = 4096;
/// Widest page: it is pasted into issues.
const MOST_COLUMNS: usize = 100;
/// How standard input is called.
const STANDARD_INPUT: &str = "standard input";

#[derive(Debug, Args)]
pub(super) struct MessageArgs {
    /// Files with an error text: a program's output, a kernel's log; - or none: standard input
    #[arg(value_name = "FILE")]
    files: Vec<PathBuf>,
    /// How to write it
    #[arg(long, value_enum, default_value_t = Format::Text)]
    format: Format,
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

pub(super) fn run(args: &MessageArgs) -> anyhow::Result<u8> {
    let thresholds = args.thresholds.values()?;
    let input = [PathBuf::from("-")];
    let files = if args.files.is_empty() { &input[..] } else { &args.files };
    let read: Vec<(String, Vec<u8>)> = files.iter().map(|file| read(file)).collect::<Result<_, _>>()?;
    let texts: Vec<_> = read.iter().map(|(name, bytes)| (name, text_of(bytes).text)).collect();
    let sources: Vec<Source<'_>> = texts.iter().map(|(name, text)| Source { name, text }).collect();
    let found = triage(&sources, &thresholds);
    let output = Output::open(None)?;
    let look = output.look();
    let mut page = Page::new(Look { width: look.width.min(MOST_COLUMNS), ..look });
    output.write(|out| match args.format {
        Format::Json => write_json(out, &found),
        Format::Text => {
            write(&mut page, &found);
            out.write_all(page.into_text().as_bytes())
        }
    })?;
    Ok(0)
}

/// A file's name and bytes, if it can be a text.
fn read(path: &Path) -> Result<(String, Vec<u8>), EvidenceError> {
    let is_input = path == Path::new("-");
    let name = if is_input { STANDARD_INPUT.to_owned() } else { path.display().to_string() };
    let bytes = match is_input {
        true => bounded(&name, io::stdin().lock()),
        false if path.is_dir() => Err(nothing(&name, "this is a directory; name the file in it")),
        false => File::open(path)
            .map_err(|reason| EvidenceError::Io { path: name.clone(), reason })
            .and_then(|file| bounded(&name, file)),
    }?;
    match no_text(&bytes) {
        Some(reason) => Err(nothing(&name, reason)),
        None => Ok((name, bytes)),
    }
}

fn nothing(name: &str, reason: &'static str) -> EvidenceError {
    EvidenceError::Nothing { path: name.to_owned(), reason }
}

fn bounded(name: &str, from: impl Read) -> Result<Vec<u8>, EvidenceError> {
    let mut bytes = Vec::new();
    let read = from.take(LIMIT_BYTES + 1).read_to_end(&mut bytes);
    read.map_err(|reason| EvidenceError::Io { path: name.to_owned(), reason })?;
    match bytes.len() as u64 > LIMIT_BYTES {
        true => Err(EvidenceError::TooLarge { path: name.to_owned(), what: "an error text", limit_bytes: LIMIT_BYTES }),
        false => Ok(bytes),
    }
}

/// Why bytes are no error text.
fn no_text(bytes: &[u8]) -> Option<&'static str> {
    let start = &bytes[..bytes.len().min(LOOKED_AT)];
    match () {
        () if start.starts_with(&MAGIC) => Some("this is a trace; `gpuoom-analyze report` reads it"),
        () if start.starts_with(&[0x1f, 0x8b]) => Some(
            "this is a compressed file; `gpuoom-analyze report` reads a bundle, other files must be unpacked first",
        ),
        () if start.starts_with(b"\x7fELF") => {
            Some("this is a program, not its output; run it and give what it prints")
        }
        () if is_binary(start) => Some("this is not a text; give the output of the program, or the kernel's log"),
        () => None,
    }
}

/// Whether much of a text is none. UTF-16, and a log that begins with zeros, are texts.
fn is_binary(start: &[u8]) -> bool {
    let text = text_of(start).text;
    let is_odd = |character: &char| {
        *character == '\u{fffd}' || (character.is_control() && !"\n\r\t\u{1b}\u{8}".contains(*character))
    };
    let odd = text.chars().filter(is_odd).count();
    odd * 10 > text.chars().count()
}
