//! The texts of a bundle that are no report: the issue, what was redacted, the machine.

pub mod issue;
pub mod machine;
pub mod redacted;
#[cfg(test)]
mod tests;
