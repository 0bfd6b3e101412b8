//! Draining the ring into chunks of the file: by the recorder's thread, or by a recording thread when that one is missing
//! or behind. Allocates nothing; waits for nobody without a bound.

use std::sync::atomic::Ordering;

use gpuoom_trace::chunk::ChunkMaker;
use gpuoom_trace::record::Record;

use super::drainer::{Locked, Memory};
use super::file::Trouble;
use super::recorder::Recorder;
use super::request::Request;
use crate::base::{guard, log};

/// A recording thread that finds the ring this full (in quarters) helps to drain it.
const HELP_QUARTERS: u64 = 2;
/// Beyond this, new events are refused: the rest is room for threads between that test and their claim.
const CHOKE_QUARTERS: u64 = 3;
/// How often a blocked drainer looks again before it passes over a number that is claimed and not committed.
const PATIENCE: u32 = 200;
/// The same at the end, when no ring fills meanwhile: on a busy machine the claimant may only be waiting for a processor.
const LAST_PATIENCE: u32 = 2000;

/// What a round of draining came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Round {
    /// The ring is empty.
    Empty,
    /// A stretch was moved or dropped; there may be more.
    Moved,
    /// A number is claimed and not committed.
    Blocked,
    /// The file takes no more, and there is still room in the ring.
    Stuck,
}

impl Recorder {
    /// Called by a recording thread that finds the ring a quarter full: wakes the recorder's thread, and helps when the
    /// ring is half full or there is no such thread. Bounded; marks the ring as choked when it could not be drained.
    #[cold]
    #[inline(never)]
    pub(super) fn relieve(&self) {
        guard::cold((), || {
            if self.quarters() < HELP_QUARTERS && self.has_thread() {
                self.drain_asked.store(true, Ordering::Relaxed);
                self.ask(Request::Drain);
                return;
            }
            // A handler that interrupted the draining and found the ring full could not wait for the thread below it.
            guard::without_signals(|| self.drain(1, 5_000));
            self.choked.store(self.quarters() >= CHOKE_QUARTERS, Ordering::Relaxed);
        });
    }

    fn quarters(&self) -> u64 {
        self.ring.fill_level() / (self.ring.capacity() / 4)
    }

    /// Moves up to `rounds` stretches from the ring into the file. Returns whether the ring was left empty.
    pub(crate) fn drain(&self, rounds: usize, patience_micros: i64) -> bool {
        self.drain_with(rounds, patience_micros, PATIENCE)
    }

    fn drain_with(&self, rounds: usize, patience_micros: i64, most_looks: u32) -> bool {
        self.drainer.lock(patience_micros).is_some_and(|mut locked| self.drain_locked(&mut locked, rounds, most_looks))
    }

    fn drain_locked(&self, locked: &mut Locked, rounds: usize, most_looks: u32) -> bool {
        for _ in 0..rounds {
            match self.round(locked.memory(), most_looks) {
                Round::Empty => return true,
                Round::Moved => {}
                Round::Blocked => guard::sleep_micros(20),
                Round::Stuck => return false,
            }
        }
        self.ring.fill_level() == 0
    }

    fn round(&self, memory: &mut Memory, most_looks: u32) -> Round {
        let skip = memory.blocked_looks >= most_looks;
        let taken = self.ring.take(&mut memory.slots, skip);
        if taken.until == taken.from {
            return match taken.blocked {
                true => memory.look_again(taken.from),
                false => Round::Empty,
            };
        }
        memory.blocked_looks = 0;
        let chunk = memory.maker.events(&memory.slots[..taken.slots], &taken, self.granule);
        if let Err(trouble) = self.append(chunk) {
            if self.quarters() < CHOKE_QUARTERS {
                return Round::Stuck;
            }
            // The newest events explain a failure better than the oldest: make room.
            let firsts =
                memory.slots[..taken.slots].iter().filter(|words| words[0] & gpuoom_trace::ring::EXTENSION == 0);
            self.live.events_lost().fetch_add(firsts.count() as u64, Ordering::Relaxed);
            self.live.trouble().store(trouble as u32, Ordering::Relaxed);
        }
        self.live.torn().fetch_add(taken.torn, Ordering::Relaxed);
        self.ring.give_back(&taken);
        self.choked.store(false, Ordering::Relaxed);
        Round::Moved
    }

    /// Appends a whole chunk and moves the end of the chunks behind it. The caller holds the drain lock.
    fn append(&self, chunk: &[u8]) -> Result<(), Trouble> {
        if chunk.is_empty() {
            return Err(Trouble::Other);
        }
        let end = self.live.chunks_end().load(Ordering::Relaxed);
        self.drainer.file().write_at(chunk, end)?;
        // Release: in the file, the chunk is whole before the end says so.
        self.live.chunks_end().store(end + chunk.len() as u64, Ordering::Release);
        self.live.trouble().store(0, Ordering::Relaxed);
        self.live.set_clock(self.clock.point());
        Ok(())
    }

    /// Says at the end what is missing from the file: the thread that notices has no stderr of its own.
    pub(crate) fn say_what_is_missing(&self) {
        let lost = self.live.events_lost().load(Ordering::Relaxed);
        let why = match self.live.trouble().load(Ordering::Relaxed) {
            0 if lost == 0 => return,
            0 => "the ring was full",
            1 => "no space was left on the device",
            2 => "the file size limit was reached",
            3 => "the program closed the trace's descriptor and its path leads elsewhere now",
            _ => "writing failed",
        };
        log::warn(format_args!("{why}: {lost} events are missing from {}", self.path().display()));
    }

    /// Appends a chunk of metadata.
    pub(crate) fn append_metadata(&self, make: impl for<'a> FnOnce(&'a mut ChunkMaker) -> &'a [u8]) -> bool {
        let Some(mut locked) = self.drainer.lock(100_000) else { return false };
        let chunk = make(&mut locked.memory().maker);
        self.append(chunk).is_ok()
    }

    /// Stores a clock point, if nobody is draining.
    pub(crate) fn mark_clock(&self) {
        if let Some(_locked) = self.drainer.try_lock() {
            self.live.set_clock(self.clock.point());
        }
    }

    /// Moves everything into chunks and closes the file; the mapping stays, so later events are kept in the ring.
    pub(crate) fn close(&self) {
        let mut locked = self.drainer.lock(200_000);
        let emptied = locked.as_mut().is_some_and(|locked| {
            let emptied = self.drain_locked(locked, 10_000, LAST_PATIENCE);
            self.live.set_clock(self.clock.point());
            emptied
        });
        // Before the lock is let go, where we have it: see `publish_unless_closed`.
        self.live.closed().store(1, Ordering::Release);
        drop(locked);
        if emptied && self.ring.fill_level() == 0 {
            log::debug(format_args!("closed {}", self.path().display()));
        }
    }

    /// Publishes a record with a payload that no call of the program made, unless the file is closed. Nobody waits at exit for
    /// the thread that reads: where the process ended it between claim and commit, a whole trace would hold torn numbers.
    pub(crate) fn publish_unless_closed(&self, record: &Record, payload: &[u8]) {
        guard::without_signals(|| {
            // Whoever has to wait longer than this publishes all the same: the readings of a failure are worth more.
            let _locked = self.drainer.lock(500_000);
            if self.live.closed().load(Ordering::Acquire) == 0 {
                self.publish_long(record, payload);
            }
        });
    }
}

impl Memory {
    fn look_again(&mut self, at: u64) -> Round {
        if self.blocked_at != at {
            self.blocked_at = at;
            self.blocked_looks = 0;
        }
        self.blocked_looks += 1;
        Round::Blocked
    }
}

#[cfg(test)]
mod tests {
    use gpuoom_trace::record::{Event, Kind};

    use super::*;

    #[test]
    fn what_no_call_made_is_not_published_once_the_file_is_closed() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("trace.bin");
        let recorder = Recorder::make(&path, 256 << 20, std::process::id(), |_| {}).unwrap();
        let reading = Record::new(Event::Reading, Kind::None);
        recorder.publish_unless_closed(&reading, &[1; 100]);
        assert!(recorder.live.head().load(Ordering::Relaxed) > 0);
        recorder.close();
        let claimed = recorder.live.head().load(Ordering::Relaxed);
        assert_eq!(recorder.live.tail().load(Ordering::Relaxed), claimed);
        recorder.publish_unless_closed(&reading, &[1; 100]);
        assert_eq!(recorder.live.head().load(Ordering::Relaxed), claimed, "nobody would drain it");
        recorder.publish(&reading);
        assert_eq!(
            recorder.live.head().load(Ordering::Relaxed),
            claimed + 1,
            "the program's own calls stay in the ring"
        );
    }
}
