//! What the readers of settings share.

/// What is wrong with a value, where there is more to say than what was expected.
pub(crate) type Wrong = Option<String>;
