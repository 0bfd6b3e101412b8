//! `diff` for people, for pull requests and for programs.

mod json;
mod markdown;
#[cfg(test)]
mod tests;
mod text;
mod words;

pub use json::{SCHEMA, write_json};
use serde::Serialize;

use crate::policy::Judged;

pub use markdown::write_markdown;
pub use text::write_text;

/// What came of the conditions of `--fail-on`.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Conditions {
    /// Those that hold.
    pub failed: Vec<Judged>,
    /// Those that the traces do not decide: a sentence each.
    pub not_judged: Vec<String>,
}
