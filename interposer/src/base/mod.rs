//! What needs no hook and knows nobody above: settings, lines on stderr, guards, a thread's block, memory that may not be there.

pub(crate) mod config;
pub(crate) mod guard;
pub(crate) mod inject;
pub(crate) mod log;
pub(crate) mod program_memory;
pub(crate) mod thread;
pub(crate) mod watching;
