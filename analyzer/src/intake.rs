//! From file to records: one thread reads and decodes, the caller's thread works on what it got.

use std::ops::ControlFlow;

use crossbeam_channel::bounded;
use gpuoom_trace::columns::Batch;
use gpuoom_trace::reader::TraceFile;

/// Batches that wait between the two threads: enough to keep both busy, little enough to stay in the cache.
const WAITING: usize = 4;

/// Reads all records of a trace in order and hands them to `work`, batch by batch, until it breaks.
///
/// `progress` hears the number of records of each batch.
pub fn read_through(
    trace: &mut TraceFile,
    mut progress: impl FnMut(u64),
    mut work: impl FnMut(&Batch) -> ControlFlow<()>,
) {
    let (full_in, full_out) = bounded::<Batch>(WAITING);
    let (empty_in, empty_out) = bounded::<Batch>(WAITING + 2);
    std::thread::scope(|scope| {
        scope.spawn(move || {
            // An error says that nobody listens any more: the work broke off.
            let _ = trace.for_each_batch(|batch| {
                let fresh = empty_out.try_recv().unwrap_or_default();
                full_in.send(std::mem::replace(batch, fresh))
            });
        });
        for mut batch in full_out {
            progress(batch.records.len() as u64);
            if work(&batch).is_break() {
                // Leaving the loop drops the receiver, which ends the reading thread.
                break;
            }
            batch.clear();
            let _ = empty_in.try_send(batch);
        }
    });
}
