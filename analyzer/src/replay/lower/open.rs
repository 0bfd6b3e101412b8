//! Calls that were recorded before what encloses them.
//!
//! An allocation is recorded when it returns, so the record of a call below comes first. Calls of a thread nest: what began
//! after a call and was recorded before it lies inside it.

use gpuoom_trace::record::{Event, Layer, Record};
use rustc_hash::FxHashMap;

use super::book::Key;
use super::cause::Cause;

/// Calls of one thread that wait; beyond that the oldest ones stay unexplained.
const MAX_OPEN: usize = 1024;
/// Threads that have waiting calls.
const MAX_THREADS: usize = 1 << 16;

/// A block whose enclosing call has not returned yet.
#[derive(Clone, Copy, Debug)]
pub(super) struct Open {
    call: u32,
    at: u64,
    /// Layer of the block.
    pub(super) layer: Layer,
    /// Where the block lies.
    pub(super) key: Key,
    /// Its ordinal: another block may have come to the same place.
    pub(super) entered: u64,
    /// Device of the enclosing call that explains it.
    pub(super) device: u8,
    /// An enclosing call of the same layer gave the same memory.
    pub(super) is_double: bool,
    cause: Option<Cause>,
}

impl Open {
    fn lies_inside(&self, record: &Record) -> bool {
        // The time tells a thread from a later one that has its number.
        self.call.wrapping_sub(record.call) as i32 > 0 && self.at >= record.at
    }
}

/// All calls that wait, by thread.
#[derive(Clone, Debug, Default)]
pub(super) struct OpenCalls {
    threads: FxHashMap<u32, Vec<Open>>,
    /// Calls that wait, of all threads: their lists stay, empty, for the next call.
    count: usize,
}

impl OpenCalls {
    pub(super) fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// A block was given inside a call that is not recorded yet.
    pub(super) fn push(&mut self, record: &Record, layer: Layer, key: Key, entered: u64) {
        if self.threads.len() >= MAX_THREADS && !self.threads.contains_key(&record.thread) {
            return;
        }
        let open = Open {
            call: record.call,
            at: record.at,
            layer,
            key,
            entered,
            device: record.device,
            is_double: false,
            cause: None,
        };
        let calls = self.threads.entry(record.thread).or_default();
        if calls.len() >= MAX_OPEN {
            calls.remove(0);
            self.count -= 1;
        }
        calls.push(open);
        self.count += 1;
    }

    /// A record of a thread explains what lies inside it. What is settled now goes to `settled`.
    pub(super) fn close(&mut self, record: &Record, layer: Layer, settled: &mut Vec<(Open, Cause)>) {
        let Some(calls) = self.threads.get_mut(&record.thread) else { return };
        let inside = calls.iter().rposition(|open| !open.lies_inside(record)).map_or(0, |last| last + 1);
        let asks = matches!(record.event(), Some(Event::Alloc | Event::Pin));
        let gives = asks && record.status == 0;
        for open in &mut calls[inside..] {
            let cause = Cause::inside(record, layer);
            // Within a layer only what is no allocation explains one: a queue, code, a library's handle.
            let explains = layer < open.layer || (layer == open.layer && !asks && cause != Cause::Itself);
            if open.cause.is_none() && explains {
                open.cause = Some(cause);
                open.device = record.device;
            }
            open.is_double |= gives && layer == open.layer && record.address != 0;
        }
        if !record.is_outermost() {
            return;
        }
        self.count -= calls.len();
        settled.extend(calls.drain(..).enumerate().map(|(index, open)| {
            let cause = open.cause.unwrap_or(Cause::Itself);
            (open, if index < inside { cause } else { cause.of_outermost(record) })
        }));
    }

    /// What waits inside a call with no other recorded call of a higher layer in between.
    pub(super) fn directly_inside(&self, record: &Record, layer: Layer) -> impl Iterator<Item = Open> {
        let calls = self.threads.get(&record.thread).map_or(&[][..], Vec::as_slice);
        let direct = move |open: &&Open| open.lies_inside(record) && open.cause.is_none() && open.layer > layer;
        calls.iter().filter(direct).copied()
    }
}
