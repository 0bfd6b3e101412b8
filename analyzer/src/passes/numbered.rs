//! The numbers of failures (`oom:N`) by their records. Which refusals are attempts of one error is known only once that was raised, so
//! a trace that may have such errors is read once more.

use gpuoom_trace::reader::TraceFile;
use gpuoom_trace::record::Layer;
use rustc_hash::FxHashMap;

use crate::intake::read_through;
use crate::replay::failures::Oom;
use crate::replay::{Options, Replay};

/// Numbers by the sequence number of the record: of an error that of the allocator, of any other failure that of the call.
pub type Numbers = FxHashMap<u64, u64>;

/// The numbers of the listed failures; `None` where each refusal has its own.
pub fn by_record(trace: &mut TraceFile) -> Option<Numbers> {
    let replay = replay(trace)?;
    let seq = |oom: &Oom| oom.error.as_ref().map_or(oom.seq, |error| error.seq);
    Some(replay.failures.listed.iter().map(seq).zip(1..).collect())
}

/// Which refusal, counted from 1, the failure with this number ends with.
pub fn refusal_of(trace: &mut TraceFile, number: u64) -> u64 {
    let Some(replay) = replay(trace) else { return number };
    let failures = &replay.failures;
    let listed = usize::try_from(number.saturating_sub(1)).ok().and_then(|index| failures.listed.get(index));
    match listed {
        Some(oom) => oom.ordinal,
        None if number <= failures.count => number.saturating_add(failures.begun.saturating_sub(failures.count)),
        None => u64::MAX,
    }
}

/// The trace to its end, if an allocator above the runtime may have told of errors.
fn replay(trace: &mut TraceFile) -> Option<Replay> {
    let is_framework = |layer: u8| Layer::from_number(layer) == Some(Layer::Framework);
    if !trace.metadata.apis.rows.iter().any(|row| is_framework(row.layer)) {
        return None;
    }
    let mut replay = Replay::new(trace, Options::default());
    read_through(trace, |_| {}, |batch| replay.batch(batch));
    replay.finish();
    Some(replay)
}
