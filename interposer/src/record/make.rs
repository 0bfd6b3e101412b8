//! A new file with its ring, and the recorder on it.

use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::time::Instant;

use gpuoom_trace::header::{DEFAULT_RING_SLOTS, Header, Live};
use gpuoom_trace::record::Granule;
use gpuoom_trace::ring::{Ring, Slot};
use once_cell::sync::OnceCell;

use super::clock::Clock;
use super::drainer::Drainer;
use super::file::{File, Trouble};
use super::recorder::Recorder;
use crate::base::{config, log};

/// The smallest ring that is worth having when there is no room for the usual one: 64 KiB.
const SMALLEST_RING_SLOTS: u64 = 1 << 10;

impl Recorder {
    /// Makes the file, without a name so far, and maps its ring; `None`, with one line on stderr, when that can't be done.
    /// `prepare` writes what stands before the first event.
    pub(crate) fn make(
        path: &Path,
        granularity_bytes: u64,
        pid: u32,
        prepare: impl FnOnce(&Recorder),
    ) -> Option<Box<Recorder>> {
        let file = File::create(path, pid).map_err(|error| not_recorded("can't create", path, &error)).ok()?;
        let clock = Clock::choose();
        let first = clock.point();
        let started = Instant::now();
        let Some((header, base)) = lay_out(&file, granularity_bytes, pid) else {
            log::error(format_args!("no room for {}; {}", path.display(), without_a_trace()));
            file.remove();
            return None;
        };
        // SAFETY: `base` is a fresh shared mapping of header, table and ring, laid out as the header says, and it is never
        // unmapped; the ring offset is a multiple of 64.
        let (live, slots, in_flight) = unsafe {
            let mut header = header;
            (header.clock_source, header.clock_first) = (clock.source(), first);
            base.cast::<Header>().write(header);
            let slots = base.add(header.ring_offset as usize).cast::<Slot>();
            let slots = std::slice::from_raw_parts(slots, header.ring_slots as usize);
            (Live::new(base.cast()), slots, base.add(header.in_flight_offset as usize).cast())
        };
        let ring = Ring::new(slots, live.head(), live.tail())?;
        ring.initialise();
        let mut recorder = Recorder {
            pid,
            clock,
            live,
            ring,
            granule: Granule::new(granularity_bytes),
            drainer: Drainer::new(file),
            choked: AtomicBool::new(false),
            quarter: header.ring_slots / 4,
            drain_asked: AtomicBool::new(false),
            in_flight,
            requests: OnceCell::new(),
            is_unserved: AtomicBool::new(false),
            failures_handled: AtomicU64::new(0),
        };
        prepare(&recorder);
        recorder.estimate_rate(base, first.ticks, started);
        if let Err(error) = recorder.drainer.publish(pid) {
            not_recorded("can't name", path, &error);
            return None;
        }
        Some(Box::new(recorder))
    }

    /// A first estimate of the clock's rate from the time that the set-up took: enough for a trace that is cut at once.
    fn estimate_rate(&self, base: *mut u8, first_ticks: u64, started: Instant) {
        let ticks = self.clock.now().saturating_sub(first_ticks);
        let seconds = started.elapsed().as_secs_f64();
        if self.clock == Clock::Cycles && seconds > 0.0 {
            // SAFETY: the mapped header; nobody else has it yet.
            unsafe { (*base.cast::<Header>()).ticks_per_second = (ticks as f64 / seconds) as u64 };
        }
    }
}

/// Says why there is no trace, and what helps.
fn not_recorded(what: &str, path: &Path, error: &std::io::Error) {
    let path = path.display();
    let follows = without_a_trace();
    log::error(format_args!("{what} {path}: {error}; {follows}; GPUOOM_TRACE says where a trace goes"));
}

/// What follows where there is no trace: refusals on request are part of the recording.
fn without_a_trace() -> &'static str {
    let config = config::get();
    match (config.capacity_bytes.is_some(), !config.inject.is_empty()) {
        (true, true) => "nothing is recorded, and GPUOOM_CAPACITY and GPUOOM_INJECT do not apply",
        (true, false) => "nothing is recorded, and GPUOOM_CAPACITY does not apply",
        (false, true) => "nothing is recorded, and GPUOOM_INJECT does not apply",
        (false, false) => "nothing is recorded",
    }
}

/// Allocates and maps header, table and ring: the usual ring, or a smaller one where the disk is nearly full.
fn lay_out(file: &File, granularity_bytes: u64, pid: u32) -> Option<(Header, *mut u8)> {
    let mut slots = DEFAULT_RING_SLOTS;
    loop {
        let header = Header::new(slots, granularity_bytes, pid);
        match file.allocate(header.chunks_offset) {
            Ok(()) => return Some((header, file.map(header.chunks_offset as usize)?)),
            Err(Trouble::DiskFull | Trouble::SizeLimit) if slots > SMALLEST_RING_SLOTS => slots /= 4,
            Err(_) => return None,
        }
    }
}
