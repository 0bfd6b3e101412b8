//! `diff` for people, for pull requests and for programs.

mod json;
pub(super) mod markdown;
#[cfg(test)]
mod tests;
mod text;
mod words;

pub use json::{SCHEMA, write_json};
pub use markdown::write_markdown;
pub use text::write_text;
