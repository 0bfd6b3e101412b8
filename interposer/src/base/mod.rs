//! What needs no hook and knows nobody above: settings, lines on stderr, guards, a thread's block, memory that may not be there, and a
//! reserve for where the process has none left.

pub(crate) mod captures;
pub(crate) mod config;
pub(crate) mod guard;
pub(crate) mod inject;
pub(crate) mod log;
pub(crate) mod program_memory;
mod reserve;
pub(crate) mod thread;
#[cfg(not(test))]
mod thread_locals;
pub(crate) mod watching;
