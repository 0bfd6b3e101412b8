//! The recorder of one process, and how a record gets into its ring.

use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crossbeam_channel::Sender;
use gpuoom_trace::header::Live;
use gpuoom_trace::record::{Granule, Record};
use gpuoom_trace::ring::Ring;
use once_cell::sync::OnceCell;

use super::clock::Clock;
use super::drainer::Drainer;
use super::request::Request;
use crate::base::guard;

/// The recorder of one process. Made once, never freed.
pub(crate) struct Recorder {
    pub(crate) pid: u32,
    pub(crate) clock: Clock,
    pub(crate) live: Live,
    pub(super) ring: Ring<'static>,
    pub(crate) granule: Granule,
    pub(crate) drainer: Drainer,
    /// Set while the ring is nearly full and nobody can drain: new events are counted as lost without claiming a number.
    pub(super) choked: AtomicBool,
    /// A quarter of the ring, in slots.
    pub(super) quarter: u64,
    /// The recorder's thread was asked to drain and has not begun yet.
    pub(crate) drain_asked: AtomicBool,
    /// The table of calls under way in the mapping.
    pub(super) in_flight: *mut gpuoom_trace::header::InFlight,
    /// To the recorder's own thread.
    pub(crate) requests: OnceCell<Sender<Request>>,
    /// That thread could not be started.
    pub(crate) is_unserved: AtomicBool,
    /// Failures that the writer has dealt with, see `readings::failure`.
    pub(crate) failures_handled: AtomicU64,
}

// SAFETY: everything in it is either immutable after start, atomic, or behind the drain lock; `in_flight` points into a
// mapping that stays for good and whose entries belong to one thread each.
unsafe impl Sync for Recorder {}
// SAFETY: as above.
unsafe impl Send for Recorder {}

impl Recorder {
    /// Where the trace is written.
    pub(crate) fn path(&self) -> &Path {
        self.drainer.path()
    }

    /// Whether the recorder has a thread of its own, or is about to have one.
    pub(crate) fn has_thread(&self) -> bool {
        // Relaxed: whoever sees it late asks in vain, and does the work itself.
        self.requests.get().is_some() && !self.is_unserved.load(Ordering::Relaxed)
    }

    /// Hands a request to the recorder's thread; `false` when there is none or it is far behind.
    pub(crate) fn ask(&self, request: Request) -> bool {
        // The channel takes a lock to wake the thread: a handler of the program that interrupted us there and came to the
        // same place would wait for good.
        let send = |requests: &Sender<Request>| guard::without_signals(|| requests.try_send(request).is_ok());
        self.requests.get().is_some_and(send)
    }

    /// Publishes a record and returns its sequence number; `None` when it was lost (and counted).
    #[inline(always)]
    pub(crate) fn publish(&self, record: &Record) -> Option<u64> {
        if self.is_choked() {
            return self.lose();
        }
        match self.ring.publish(record) {
            Ok(seq) => self.keep_up(seq),
            Err(_) => self.lose(),
        }
    }

    /// Publishes a record with a payload.
    #[cold]
    pub(crate) fn publish_long(&self, record: &Record, payload: &[u8]) -> Option<u64> {
        if self.is_choked() {
            return self.lose();
        }
        match self.ring.publish_long(record, payload) {
            Ok(seq) => self.keep_up(seq),
            Err(_) => self.lose(),
        }
    }

    /// Whether nothing can be published, even after an attempt to drain.
    #[inline(always)]
    fn is_choked(&self) -> bool {
        self.choked.load(Ordering::Relaxed) && {
            self.relieve();
            self.choked.load(Ordering::Relaxed)
        }
    }

    /// Whoever publishes sees to it that the ring does not fill up.
    #[inline(always)]
    fn keep_up(&self, seq: u64) -> Option<u64> {
        let ahead = self.ring.ahead(seq);
        if ahead >= self.quarter && (ahead >= 2 * self.quarter || !self.drain_asked.load(Ordering::Relaxed)) {
            self.relieve();
        }
        Some(seq)
    }

    #[cold]
    fn lose(&self) -> Option<u64> {
        self.live.events_lost().fetch_add(1, Ordering::Relaxed);
        None
    }
}
