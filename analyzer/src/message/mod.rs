//! Triage of an error text without a trace: which limit it speaks of, what its numbers decide and exclude, what it lacks.
//!
//! The wordings are data ([`table`]): each has where it comes from. [`find`] looks for them, and uses the readers of evidence for
//! PyTorch's messages, the HSA runtime's and the kernel's lines; [`judge`] compares the numbers. Nothing here prints.

mod find;
mod judge;
mod quantity;
mod table;
mod template;
#[cfg(test)]
mod tests;
mod torch;

pub use quantity::{Captured, Name, Quantity};
pub use table::{Limit, Next};

use serde::Serialize;

use crate::judgement::check::Confidence;
use crate::thresholds::Thresholds;

/// Longest part of a text that is kept.
pub const MOST_CHARACTERS: usize = 600;

/// A text and what it is called.
#[derive(Clone, Copy, Debug)]
pub struct Source<'a> {
    /// The file, as it was given.
    pub name: &'a str,
    /// What it says.
    pub text: &'a str,
}

/// A diagnosis of the catalogue that a text supports.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Diagnosis {
    /// Its id in the catalogue.
    pub id: &'static str,
    /// How sure the text makes it.
    pub confidence: Confidence,
    /// What in the text speaks for it.
    pub because: String,
}

/// What the numbers of a text exclude.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Excluded {
    /// What can't be the cause: `fragmentation`, `other processes`.
    pub what: &'static str,
    /// By which numbers.
    pub because: String,
}

/// One error.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ErrorText {
    /// The text, as far as it is kept.
    pub text: String,
    /// The file that it stands in.
    pub source: String,
    /// Its first line there, from 1.
    pub line: u64,
    /// How often it stands there; equal texts are one.
    pub times: u64,
    /// The wording that was found.
    pub wording: &'static str,
    /// Where that wording can be read.
    pub origin: &'static [String],
    /// Who printed it; none: the text does not tell.
    pub program: Option<&'static str>,
    /// Whether it is about memory at all; none: not known.
    pub is_memory: Option<bool>,
    /// What it means, as a sentence.
    pub says: String,
    /// Which limit was met; none where it is not about memory.
    pub limit: Option<Limit>,
    /// What the refused memory was for; none: not told.
    pub purpose: Option<&'static str>,
    /// The request in bytes; none: the text does not tell.
    pub requested_bytes: Option<u64>,
    /// Where a program tried with several sizes: the smallest and the largest, in bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub requests_bytes: Option<[u64; 2]>,
    /// Numbers and names of the text.
    #[serde(flatten)]
    pub captured: Captured,
    /// What the numbers decide.
    pub reasons: Vec<String>,
    /// What the text supports.
    pub diagnoses: Vec<Diagnosis>,
    /// Diagnoses that the text can't tell from the first one.
    pub not_told_apart: Vec<&'static str>,
    /// What the numbers exclude.
    pub excluded: Vec<Excluded>,
    /// What else is needed.
    pub missing: Vec<String>,
    /// What to do next.
    pub next: Vec<Next>,
}

/// A line that speaks of memory in words that the table does not have.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct UnknownLine {
    /// The line, as far as it is kept.
    pub text: String,
    /// The file that it stands in.
    pub source: String,
    /// Its number there, from 1.
    pub line: u64,
}

/// What was found in all texts.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Triage {
    /// Errors, in the order of the texts.
    pub errors: Vec<ErrorText>,
    /// Of texts without a known error: lines that speak of memory.
    pub unknown: Vec<UnknownLine>,
    /// Lines that were looked at.
    pub lines: u64,
    /// Errors that were found and not kept, because there are too many.
    pub left_off: u64,
}

/// Explains all errors of these texts.
pub fn triage(sources: &[Source<'_>], thresholds: &Thresholds) -> Triage {
    let mut triage = Triage::default();
    for source in sources {
        let found = find::find(source, thresholds);
        triage.errors.extend(found.errors);
        triage.unknown.extend(found.unknown);
        triage.lines += found.lines;
        triage.left_off += found.left_off;
    }
    triage
}
