//! Ledgers and coverage of traces that were built: sums that close, and each sign of a bypass with what refutes it.

mod coverage;
mod ledger;
mod stack;
mod tensors;

use gpuoom_trace::metadata::{Quantity, Reading, trigger};
use gpuoom_trace::record::{Event, Kind, NO_DEVICE, Record};

use crate::testing::{GIB, TraceBuilder};

fn builder() -> TraceBuilder {
    TraceBuilder::default().device(0, "card", 16 * GIB)
}

/// Periodic readings about device 0.
fn read(trace: &mut TraceBuilder, readings: &[(Quantity, u64)]) {
    let readings: Vec<Reading> = readings
        .iter()
        .map(|(quantity, value)| Reading { quantity: *quantity as u16, device: 0, value: *value })
        .collect();
    let record = trace.record(Event::Reading, Kind::None, "gpuoom_reading");
    trace.reading(Record { status: trigger::PERIOD, device: NO_DEVICE, call: 0, ..record }, &readings);
}
