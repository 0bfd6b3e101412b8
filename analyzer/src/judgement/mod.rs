//! How a rule is put to the test, whoever asks: what holds, what is not known, how sure that makes it, and which part a
//! diagnosis plays. Nothing here knows a trace.

pub mod check;
mod known;
pub mod role;
