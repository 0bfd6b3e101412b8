//! From a record to the file: clock, ring, drain, file. The hot path of the recorder.

mod clock;
mod drain;
mod drainer;
mod file;
mod in_flight;
mod make;
mod modules;
mod recorder;
mod request;
pub(crate) mod state;
pub(crate) mod threads;

pub(crate) use clock::Clock;
pub(crate) use recorder::Recorder;
pub(crate) use request::{Failure, Request};
