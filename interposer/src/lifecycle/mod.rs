//! The recorder's own life: its beginning, the thread that serves it, its end. Knows everybody; nobody knows it. What lies below
//! and has to call up here is given a function when the recording starts, or is bound by the linker (`start.rs`).

mod exit;
mod facts;
mod last;
mod libraries;
mod load;
mod machine;
mod service;
mod start;
