//! What is read of a machine to explain its GPU memory: a list of small text files, a collector with bounds, and the
//! graphics clients of other processes. The recorder puts the texts into the trace; the analyzer collects them anew for
//! a machine that it runs on. Nothing is interpreted here, and nothing that is not on the list is read.
//!
//! No secret gets in: of the kernel's command line only listed parameters are kept, of files with serial numbers only
//! listed lines ([`files`]).

pub mod collect;
pub mod fdinfo;
pub mod files;

pub use collect::{Collected, Roots, collect, read_one};
