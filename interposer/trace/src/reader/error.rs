//! Why a file can't be read: one sentence each, with the file, the offset and the next step.

use std::path::PathBuf;

use crate::header::HEADER_BYTES;
use crate::{FORMAT_MAJOR, FORMAT_MINOR};

/// Why a file can't be read at all.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// There is no such file.
    #[error("{path}: there is no such file; a process that makes no GPU call leaves no trace")]
    Missing {
        /// The file.
        path: PathBuf,
    },
    /// The path leads to something that is no file.
    #[error("{path}: this is {what}, and a trace is a file; {next}")]
    NotAFile {
        /// The path.
        path: PathBuf,
        /// What it is.
        what: &'static str,
        /// What to do.
        next: &'static str,
    },
    /// The file can't be opened or read. What the system said is part of the sentence, so it is not a source as well.
    #[error("{path}: {error}")]
    Io {
        /// The file.
        path: PathBuf,
        /// What the system said.
        error: std::io::Error,
    },
    /// The file does not begin like a trace.
    #[error(
        "{path}: offset 0: not a gpuoom trace (it does not begin with the magic bytes); was it written by another tool?"
    )]
    NotATrace {
        /// The file.
        path: PathBuf,
    },
    /// The file is empty, or its header was not written yet.
    #[error("{path}: offset 0: the file is still empty: the process ended while it was making the trace")]
    Unfinished {
        /// The file.
        path: PathBuf,
    },
    /// The file ends inside its header.
    #[error(
        "{path}: offset {length}: the file ends inside the header ({HEADER_BYTES} bytes); nothing was recorded yet"
    )]
    TooShort {
        /// The file.
        path: PathBuf,
        /// Its length in bytes.
        length: u64,
    },
    /// The file was written by a later major version.
    #[error(
        "{path}: offset 8: the trace has format {major}.{minor}, this version reads up to {FORMAT_MAJOR}.{FORMAT_MINOR}; use a newer gpuoom-analyze"
    )]
    Newer {
        /// The file.
        path: PathBuf,
        /// Its version.
        major: u16,
        /// Its version.
        minor: u16,
    },
    /// The header contradicts itself.
    #[error("{path}: offset {offset}: the header is damaged: {reason}")]
    BadHeader {
        /// The file.
        path: PathBuf,
        /// Where.
        offset: u64,
        /// What is wrong.
        reason: String,
    },
}
