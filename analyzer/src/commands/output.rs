//! Where output goes: standard output, or a file that appears whole.

use std::fs::File;
use std::io::{self, BufWriter, IsTerminal, Read, Write};
use std::path::{Path, PathBuf};

use anstream::{AutoStream, ColorChoice};
use anyhow::Context;
use gpuoom_trace::header::MAGIC;

use crate::report::page::Look;
use crate::words::clean;

/// Width of a page where no terminal says one.
const UNKNOWN_WIDTH: usize = 110;

/// Says something about the work itself. Names of files may hold anything; a terminal must not obey them.
pub(super) fn complain(message: &str) {
    let lines: Vec<String> = message.split('\n').map(clean).collect();
    let _ = writeln!(io::stderr(), "gpuoom-analyze: {}", lines.join("\n"));
}

/// Whether a file is a trace: perhaps the only one of a failure, and what was meant as the input.
pub(super) fn is_trace(path: &Path) -> bool {
    let mut start = [0; MAGIC.len()];
    File::open(path).and_then(|mut file| file.read_exact(&mut start)).is_ok() && start == MAGIC
}

/// Standard output or a file.
pub(super) enum Output {
    Standard(BufWriter<io::Stdout>),
    /// A device or a pipe: there is nothing to replace.
    Stream(BufWriter<File>, PathBuf),
    File {
        writer: BufWriter<File>,
        temporary: PathBuf,
        path: PathBuf,
    },
}

impl Output {
    /// Opens what was asked for. A file is written beside its place and moved there when it is whole; a link is followed
    /// first, and what is no file (`/dev/null`, a pipe) is written to and stays what it is.
    pub(super) fn open(path: Option<&Path>) -> anyhow::Result<Self> {
        let Some(path) = path else { return Ok(Output::Standard(BufWriter::with_capacity(1 << 16, io::stdout()))) };
        let resolved = std::fs::canonicalize(path);
        let path = resolved.as_deref().unwrap_or(path);
        if std::fs::metadata(path).is_ok_and(|existing| !existing.is_file() && !existing.is_dir()) {
            let stream = File::options().write(true).open(path);
            let stream = stream.with_context(|| format!("{}: can't be written", path.display()))?;
            return Ok(Output::Stream(BufWriter::new(stream), path.to_owned()));
        }
        if is_trace(path) {
            anyhow::bail!(
                "{}: this is a trace, which is not overwritten; give the output another name",
                path.display()
            );
        }
        let mut name = path.file_name().with_context(|| format!("{}: not a file name", path.display()))?.to_owned();
        name.push(format!(".{}.part", std::process::id()));
        let temporary = path.with_file_name(name);
        let file = File::create(&temporary).with_context(|| format!("{}: can't be written", path.display()))?;
        Ok(Output::File { writer: BufWriter::new(file), temporary, path: path.to_owned() })
    }

    /// Whether a person watches.
    pub(super) fn is_terminal(&self) -> bool {
        matches!(self, Output::Standard(_)) && io::stdout().is_terminal()
    }

    /// How text looks there: as wide as the terminal, and coloured if it is one that shows colours.
    pub(super) fn look(&self) -> Look {
        if !self.is_terminal() {
            return Look::new(UNKNOWN_WIDTH, false);
        }
        let width = terminal_size::terminal_size().map_or(UNKNOWN_WIDTH, |(width, _)| usize::from(width.0));
        Look::new(width, AutoStream::choice(&io::stdout()) != ColorChoice::Never)
    }

    /// Writes with `write` and finishes. A reader that went away is no error.
    pub(super) fn write(mut self, write: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> anyhow::Result<()> {
        let written = match &mut self {
            Output::Standard(out) => write(out).and_then(|()| out.flush()),
            Output::Stream(out, _) => write(out).and_then(|()| out.flush()),
            Output::File { writer, .. } => write(writer).and_then(|()| writer.flush()),
        };
        match (&self, written) {
            (Output::Standard(_) | Output::Stream(..), Err(error)) if error.kind() == io::ErrorKind::BrokenPipe => {
                Ok(())
            }
            (Output::Standard(_), written) => written.context("standard output can't be written"),
            (Output::Stream(_, path), written) => {
                written.with_context(|| format!("{}: can't be written", path.display()))
            }
            (Output::File { temporary, path, .. }, written) => {
                let moved = written.and_then(|()| std::fs::rename(temporary, path));
                if moved.is_err() {
                    let _ = std::fs::remove_file(temporary);
                }
                moved.with_context(|| format!("{}: can't be written", path.display()))
            }
        }
    }
}
