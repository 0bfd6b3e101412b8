//! Why a bundle can't be read: one sentence each, with the file and the next step.

use std::path::PathBuf;

use thiserror::Error;

use super::layout::ROOT;

/// Why a bundle can't be read.
#[derive(Debug, Error)]
pub enum BundleError {
    /// The file can't be opened, or there is no room for what is in it.
    #[error("{path}: {error}")]
    Io {
        /// The archive.
        path: PathBuf,
        /// What the system said; part of the sentence, so not a source as well.
        error: std::io::Error,
    },
    /// It is another sort of file.
    #[error("{path}: {found}, and no bundle; {next}")]
    Other {
        /// The file.
        path: PathBuf,
        /// What it is.
        found: &'static str,
        /// What to do.
        next: &'static str,
    },
    /// It ends too early, or its bytes are not what was written.
    #[error("{path}: the archive is cut off or damaged ({reason}); copy it again, and compare the sizes")]
    Damaged {
        /// The archive.
        path: PathBuf,
        /// What was found.
        reason: String,
    },
    /// It holds something that `gpuoom-analyze bundle` never writes.
    #[error(
        "{path}: entry {entry}: {why}; nothing of this archive was used, because gpuoom-analyze does not write such a bundle"
    )]
    Entry {
        /// The archive.
        path: PathBuf,
        /// Name of the entry, shortened.
        entry: String,
        /// What is wrong with it.
        why: &'static str,
    },
    /// It unpacks to more than a bundle can hold.
    #[error("{path}: {why}; nothing of this archive was used")]
    TooLarge {
        /// The archive.
        path: PathBuf,
        /// Which limit was met.
        why: String,
    },
    /// There is no trace in it.
    #[error(
        "{path}: no trace is in this archive ({ROOT}/traces is empty or missing); was it made by gpuoom-analyze bundle?"
    )]
    NoTrace {
        /// The archive.
        path: PathBuf,
    },
    /// A command that takes one trace was given several.
    #[error("{path}: the bundle holds {count} traces, and this command takes one: write {path}:{first}")]
    Several {
        /// The archive.
        path: PathBuf,
        /// Traces in it.
        count: usize,
        /// Name of the first one.
        first: String,
    },
    /// It has no trace with the name that was asked for.
    #[error("{path}: no trace {wanted} is in this bundle; it holds {held}")]
    NoSuchTrace {
        /// The archive.
        path: PathBuf,
        /// What was asked for.
        wanted: String,
        /// The traces that are there.
        held: String,
    },
}
