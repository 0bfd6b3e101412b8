//! Free and used memory as everybody reports it. Runtime numbers are read on a thread of the recorder only (`asker.rs`): on
//! ROCm up to 6 the last error is the status of the last call *of a thread*, so a call from a hook would change what the
//! program sees.

mod asker;
mod host;
mod nvml;
mod probe;
mod runtime;
mod sysfs;

use std::path::Path;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use gpuoom_trace::chunk::kind;
use gpuoom_trace::metadata::{self, Quantity, Reading, probe_skipped, trigger};
use gpuoom_trace::payload;
use gpuoom_trace::record::{Event, Kind, MAX_PAYLOAD_BYTES, NO_DEVICE, Record, flag};

use crate::base::config::{self, Probe};
use crate::base::{captures, guard, thread};
use crate::call::{Frame, probed};
use crate::devices;
use crate::record::{Failure, Recorder, Request, state};
use crate::table::Library;
use crate::table::{self, Row};

use asker::{Answer, Device, Question};
pub(crate) use asker::{Asker, Pause, asker, close_runtime};

/// Readings of one moment; each takes 11 bytes, so they fit into a record.
const MAX_READINGS: usize = 96;
/// How long a failing call waits for the readings of its moment.
const FAILURE_PATIENCE_MICROS: i64 = 3_000_000;

/// Devices on which an allocation has succeeded, a bit each; the last bit stands for all beyond and for none.
static KNOWN_DEVICES: AtomicU64 = AtomicU64::new(0);
/// The same for requests to the kernel, which say nothing about a runtime: its own first allocation still counts as one.
static KNOWN_TO_KERNEL: AtomicU64 = AtomicU64::new(0);
/// Devices whose primary context CUDA has given up, and that no allocation has succeeded on since: to ask the runtime would make another.
static RESET_DEVICES: AtomicU64 = AtomicU64::new(0);
/// What is to be done when the program's runtime is up.
static ON_FIRST_USE: OnceLock<fn()> = OnceLock::new();
/// Raised while a probe may hold memory.
static PROBING: AtomicBool = AtomicBool::new(false);
/// Ticks when the latest probe ended.
static PROBE_ENDED_AT: AtomicU64 = AtomicU64::new(0);
/// Raised when the program has used a stream-ordered pool, or a memory node of a graph.
static POOL_USED: AtomicBool = AtomicBool::new(false);
/// Number of the latest failure.
static FAILURES_ASKED: AtomicU64 = AtomicU64::new(0);

fn device_bit(device: u8) -> u64 {
    1 << u32::from(device).min(63)
}

/// Whether an allocation on this device has succeeded before.
#[inline(always)]
pub(crate) fn is_known(device: u8) -> bool {
    KNOWN_DEVICES.load(Ordering::Relaxed) & device_bit(device) != 0
}

/// Says what is to be done when the program's runtime is up: at the first allocation that succeeds.
pub(crate) fn on_first_use(first: fn()) {
    let _ = ON_FIRST_USE.set(first);
}

/// The first allocation on a device succeeded: its runtime is up, so its numbers can be read from now on.
pub(crate) fn first_use(recorder: &'static Recorder, record: &Record, caller: usize) {
    let library = table::row(record.api).library;
    let known = if library == Library::Kernel { &KNOWN_TO_KERNEL } else { &KNOWN_DEVICES };
    let before = known.fetch_or(device_bit(record.device), Ordering::Relaxed);
    RESET_DEVICES.fetch_and(!device_bit(record.device), Ordering::Relaxed);
    if before == 0 {
        // After the runtime's own handlers, so that ours runs before them and stops our calls in time.
        if let Some(first) = ON_FIRST_USE.get() {
            first();
        }
    }
    if before & device_bit(record.device) == 0 && record.device != NO_DEVICE {
        recorder.ask(Request::DeviceUsed { library, device: record.device, caller });
    }
}

/// CUDA gave up the primary context of a device: its runtime is asked again when something has been allocated there.
pub(crate) fn was_reset(device: u8) {
    RESET_DEVICES.fetch_or(device_bit(device), Ordering::Relaxed);
    KNOWN_DEVICES.fetch_and(!device_bit(device), Ordering::Relaxed);
}

fn is_reset(device: u8) -> bool {
    RESET_DEVICES.load(Ordering::Relaxed) & device_bit(device) != 0
}

/// A forked child begins without its parent's devices, captures and probes.
pub(crate) fn forget_parent() {
    KNOWN_DEVICES.store(0, Ordering::Relaxed);
    KNOWN_TO_KERNEL.store(0, Ordering::Relaxed);
    RESET_DEVICES.store(0, Ordering::Relaxed);
    captures::forget_parent();
    PROBING.store(false, Ordering::Release);
    FAILURES_ASKED.store(0, Ordering::Relaxed);
    asker::forget_parent();
}

/// The program uses a stream-ordered pool, or a graph that allocates.
#[inline(always)]
pub(crate) fn pool_used() {
    // Relaxed: nothing else depends on it. Read first, so that the line stays shared.
    if !POOL_USED.load(Ordering::Relaxed) {
        POOL_USED.store(true, Ordering::Relaxed);
    }
}

/// A call of the program's that asks for memory waits while the probe may hold all of it. It must not be refused inside the runtime: there
/// it may hold locks that the probe's own free needs.
#[inline(always)]
pub(crate) fn unless_probed(frame: &Frame) {
    // Relaxed: a call that just misses the begin is tried again when it fails.
    if PROBING.load(Ordering::Relaxed) && frame.is_programs_own() {
        guard::cold((), || _ = has_probe_ended());
    }
}

/// A call that ran out of memory while the probe held some may have failed because of it: waits for the probe and asks
/// again. Not where the runtime makes the call: to wait there holds up whoever needs the runtime's locks, as the probe does.
#[cold]
#[inline(never)]
pub(crate) fn again_if_probed(frame: &Frame, status: i32, real: &dyn Fn() -> i32) -> i32 {
    if !table::row(frame.api()).is_out_of_memory(status) || !frame.is_programs_own() {
        return status;
    }
    // Acquire pairs with the probe's end: whoever sees no probe any more sees when it ended.
    if !PROBING.load(Ordering::Acquire) {
        let overlapped = PROBE_ENDED_AT.load(Ordering::Acquire) > frame.began_at();
        return if overlapped { real() } else { status };
    }
    if has_probe_ended() { real() } else { status }
}

/// Waits for the end of the probe, with a bound: of one that hangs in the vendor's code, or whose thread is gone, nobody waits again.
fn has_probe_ended() -> bool {
    for _ in 0..FAILURE_PATIENCE_MICROS / 200 {
        if !PROBING.load(Ordering::Acquire) {
            return true;
        }
        guard::sleep_micros(200);
    }
    PROBING.store(false, Ordering::Release);
    false
}

/// Runs the probe, on the thread that asks the runtime: it may go on when nobody waits for its answer any more.
fn while_probing<T>(probe: impl FnOnce() -> T) -> T {
    PROBING.store(true, Ordering::Release);
    let answer = probed::during(probe);
    if let Some(recorder) = state::recorder() {
        PROBE_ENDED_AT.store(recorder.clock.now(), Ordering::Release);
    }
    PROBING.store(false, Ordering::Release);
    answer
}

/// Has the readings of a failure taken, before the program reacts to it. Bounded.
pub(crate) fn after_failure(frame: &Frame, record: &Record, row: &Row, seq: Option<u64>) {
    let recorder = frame.recorder();
    let device = if record.device == NO_DEVICE { frame.thread_device() } else { record.device };
    // The call that failed has made what a reset took away.
    RESET_DEVICES.fetch_and(!device_bit(device), Ordering::Relaxed);
    let failure = Failure {
        number: FAILURES_ASKED.fetch_add(1, Ordering::Relaxed) + 1,
        library: row.library,
        device,
        requested_bytes: record.requested,
        seq: seq.unwrap_or(0),
        caller: frame.caller(),
        refused_below: frame.was_refused_inside(),
        // What was refused on request says nothing about the card.
        wants_probe: row.library != Library::Kernel
            && record.kind_flags & flag::INJECTED == 0
            && Kind::from_number(record.kind_flags & 0x0F) == Some(Kind::Device),
    };
    if !recorder.has_thread() || !recorder.ask(Request::Failure(failure)) {
        return Readings::new(recorder, None).without_runtime(&failure);
    }
    for _ in 0..FAILURE_PATIENCE_MICROS / 50 {
        if recorder.failures_handled.load(Ordering::Acquire) >= failure.number {
            return;
        }
        // The thread that was to answer could not be started.
        if !recorder.has_thread() {
            return Readings::new(recorder, None).without_runtime(&failure);
        }
        guard::sleep_micros(50);
    }
}

/// The readings of one process and what they are read from.
pub(crate) struct Readings {
    recorder: &'static Recorder,
    asker: Option<Asker>,
    cards: Vec<sysfs::Card>,
    /// KFD's numbers of the GPUs and the indices that the program's runtime gives them.
    gpus: Vec<(u64, u8)>,
    used: Vec<Device>,
    probed: Vec<u8>,
}

impl Readings {
    /// Looks for the cards of this machine. Without an asker no runtime is asked.
    pub(crate) fn new(recorder: &'static Recorder, asker: Option<Asker>) -> Self {
        let cards = sysfs::cards(config::get());
        let gpus = devices::gpus::of_kfd(config::get());
        Readings { recorder, asker, cards, gpus, used: Vec::new(), probed: Vec::new() }
    }

    fn ask(&mut self, device: Device, question: Question) -> Answer {
        self.asker.as_mut().map_or(Answer::Nothing, |asker| asker.ask(device, question))
    }

    /// The program uses a device: notes what the runtime says of it, and reads for the first time.
    pub(crate) fn device_used(&mut self, library: Library, device: u8, caller: usize) {
        let device = Device { library, index: device, caller };
        // After a reset it is used anew, by whichever call site.
        if self.used.iter().any(|known| (known.library, known.index) == (device.library, device.index)) {
            return;
        }
        if let Answer::Facts(facts) = self.ask(device, Question::Facts) {
            sysfs::assign(&mut self.cards, device.index, &facts.pci_bus_id);
            self.recorder.append_metadata(|maker| maker.metadata(kind::DEVICE, &facts));
        }
        if is_reset(device.index) {
            return;
        }
        self.used.push(device);
        self.take(trigger::START, None);
    }

    /// Reads everything and records it.
    pub(crate) fn take(&mut self, reason: i32, failure: Option<&Failure>) {
        let began_at = self.recorder.clock.now();
        let mut readings = Vec::with_capacity(MAX_READINGS);
        for device in self.used.clone().into_iter().filter(|device| !is_reset(device.index)) {
            readings.extend(self.memory(device));
        }
        self.read_system(reason, &mut readings);
        self.publish(&readings, reason, failure, began_at);
    }

    fn memory(&mut self, device: Device) -> Vec<Reading> {
        match self.ask(device, Question::Memory) {
            Answer::Memory(readings) => readings,
            _ => Vec::new(),
        }
    }

    /// Reads what no runtime has to be asked for.
    fn read_system(&self, reason: i32, readings: &mut Vec<Reading>) {
        sysfs::read(config::get(), &self.cards, &self.gpus, readings);
        if reason != trigger::PERIOD {
            sysfs::read_graphics(config::get(), &self.cards, Path::new("/proc"), readings);
        }
        host::read(config::get(), reason != trigger::PERIOD, readings);
        readings.truncate(MAX_READINGS);
    }

    /// Records what was read. A call for memory that was under way while the recorder read may be in one number and not in another: so
    /// the record says from when to when that was.
    fn publish(&self, readings: &[Reading], reason: i32, failure: Option<&Failure>, began_at: u64) {
        let mut bytes = [0; MAX_PAYLOAD_BYTES];
        let used = metadata::encode_readings(readings, &mut bytes);
        let mut out = [0; MAX_PAYLOAD_BYTES];
        let record = Record {
            at: began_at,
            duration: u32::try_from(self.recorder.clock.now().saturating_sub(began_at)).unwrap_or(u32::MAX),
            thread: thread::kernel_thread_id(),
            api: table::READING,
            status: reason,
            device: failure.map_or(NO_DEVICE, |failure| failure.device),
            address: failure.map_or(0, |failure| failure.seq),
            ..Record::new(Event::Reading, Kind::None)
        };
        self.recorder.publish_unless_closed(&record, payload::pack(&bytes[..used], &mut out));
    }

    /// Reads at a failure, and measures the largest block that can still be had.
    pub(crate) fn failure(&mut self, failure: &Failure) {
        let device = Device { library: failure.library, index: failure.device, caller: failure.caller };
        let began_at = self.recorder.clock.now();
        let mut readings = self.memory(device);
        // Before the probe: what it asks for and gives back makes a runtime release what its pools kept.
        self.read_system(trigger::FAILURE, &mut readings);
        let (quantity, value) = match self.probe(device, failure) {
            Ok(largest) => (Quantity::LargestAllocatable, largest),
            Err(why) => (Quantity::ProbeSkipped, why),
        };
        readings.insert(0, Reading { quantity: quantity as u16, device: failure.device, value });
        readings.truncate(MAX_READINGS);
        self.publish(&readings, trigger::FAILURE, Some(failure), began_at);
        self.recorder.failures_handled.fetch_max(failure.number, Ordering::Release);
    }

    fn without_runtime(&self, failure: &Failure) {
        let quantity = Quantity::ProbeSkipped as u16;
        let mut readings = vec![Reading { quantity, device: failure.device, value: probe_skipped::NO_THREAD }];
        let began_at = self.recorder.clock.now();
        self.read_system(trigger::FAILURE, &mut readings);
        self.publish(&readings, trigger::FAILURE, Some(failure), began_at);
    }

    /// The largest block that can be had, or one of [`probe_skipped`].
    fn probe(&mut self, device: Device, failure: &Failure) -> Result<u64, u64> {
        let asked = match config::get().probe {
            Probe::Off => false,
            Probe::First => !self.probed.contains(&failure.device),
            Probe::All => true,
        };
        if !asked || !failure.wants_probe {
            return Err(probe_skipped::NOT_ASKED);
        }
        if captures::is_any() {
            return Err(probe_skipped::CAPTURE);
        }
        self.probed.push(failure.device);
        let Failure { requested_bytes: refused_bytes, refused_below, .. } = *failure;
        match self.ask(device, Question::Largest { refused_bytes, refused_below }) {
            Answer::Largest(result) => result,
            _ => Err(probe_skipped::TIMEOUT),
        }
    }
}
