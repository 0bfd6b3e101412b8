//! The trace file of gpuoom, as `FORMAT.md` describes it: a ring of 64-byte slots that survives any end of the process,
//! compressed chunks behind it, and cold metadata.
//!
//! The writer side ([`ring`], [`chunk`], [`columns`]) is used by the recorder inside a stranger's process, so it
//! allocates nothing after start and never panics on what it is given. The reader side ([`reader`], [`rewrite`]) trusts nothing in a
//! file. Neither knows a vendor's functions: their names travel in the file itself ([`metadata::ApiTable`]), and so does what
//! they mean ([`metadata::ApiMeanings`], in the words of [`meaning`]).

pub mod chunk;
pub mod clock;
pub mod columns;
pub mod header;
pub mod meaning;
pub mod metadata;
pub mod outcome;
pub mod payload;
pub mod reader;
pub mod record;
pub mod rewrite;
pub mod ring;
mod sync;
mod varint;

/// Version of the format that this crate writes. A reader refuses a newer major and reads every older minor.
pub const FORMAT_MAJOR: u16 = 1;
/// See [`FORMAT_MAJOR`].
pub const FORMAT_MINOR: u16 = 7;
