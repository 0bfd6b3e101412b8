//! The recorder's own thread: drains, samples, answers failures.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, RecvTimeoutError, bounded};
use gpuoom_trace::metadata::trigger;

use super::Recorder;
use crate::link::Library;
use crate::{config, guard, log, readings, thread};

/// Requests that may wait; a full queue only means that the thread is behind, and it drains anyway.
const QUEUE: usize = 64;
/// How often the thread looks after things when sampling is off.
const IDLE: Duration = Duration::from_secs(1);

/// What the recorder's thread is asked for.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Request {
    /// The ring fills up.
    Drain,
    /// The first allocation on a device succeeded.
    DeviceUsed { library: Library, device: u8, caller: usize },
    /// An allocation failed for want of memory.
    Failure(readings::Failure),
}

/// Starts the thread; without it (no resources) the recording threads drain, and no runtime is asked.
pub(super) fn spawn(recorder: &'static Recorder) {
    let (sender, receiver) = bounded(QUEUE);
    let start = Box::new(Start { recorder, receiver });
    if !create_thread(start) {
        log::debug(format_args!("no thread of its own: recording threads write the chunks"));
        return;
    }
    let _ = recorder.requests.set(sender);
}

struct Start {
    recorder: &'static Recorder,
    receiver: Receiver<Request>,
}

fn create_thread(start: Box<Start>) -> bool {
    let argument = Box::into_raw(start);
    // SAFETY: plain pthread calls on valid memory; the argument goes to the thread if there is one. All signals are held
    // back, so that the new thread inherits a full mask: it must never run the program's handlers, and SIGXFSZ or SIGPIPE
    // must never reach it.
    guard::without_signals(|| unsafe {
        let mut attributes = std::mem::zeroed();
        libc::pthread_attr_init(&mut attributes);
        libc::pthread_attr_setdetachstate(&mut attributes, libc::PTHREAD_CREATE_DETACHED);
        libc::pthread_attr_setstacksize(&mut attributes, 512 << 10);
        let mut thread = std::mem::zeroed();
        let created = libc::pthread_create(&mut thread, &attributes, run, argument.cast()) == 0;
        libc::pthread_attr_destroy(&mut attributes);
        if !created {
            drop(Box::from_raw(argument));
        }
        created
    })
}

extern "C" fn run(argument: *mut libc::c_void) -> *mut libc::c_void {
    // SAFETY: made by `create_thread` for this thread alone.
    let start = unsafe { Box::from_raw(argument.cast::<Start>()) };
    // SAFETY: this thread's own state; a terminated name of at most 15 bytes.
    unsafe {
        (*thread::current()).is_recorders = true;
        libc::prctl(libc::PR_SET_NAME, c"gpuoom".as_ptr());
    }
    guard::cold((), || serve(start.recorder, &start.receiver));
    std::ptr::null_mut()
}

fn serve(recorder: &'static Recorder, requests: &Receiver<Request>) {
    let period = config::get().sample;
    let mut readings = readings::Readings::new(recorder);
    let mut next_sample = Instant::now() + period.unwrap_or(IDLE);
    readings.take(trigger::START, None);
    loop {
        let wait = period.map_or(IDLE, |_| next_sample.saturating_duration_since(Instant::now()));
        match requests.recv_timeout(wait) {
            Ok(Request::Drain) => {
                recorder.drain_asked.store(false, Ordering::Relaxed);
                recorder.drain(4, 1000);
            }
            Ok(Request::DeviceUsed { library, device, caller }) => readings.device_used(library, device, caller),
            Ok(Request::Failure(failure)) => readings.failure(&failure),
            Err(RecvTimeoutError::Timeout) => {
                look_after(recorder, &mut readings, period.is_some());
                next_sample = Instant::now() + period.unwrap_or(IDLE);
            }
            Err(RecvTimeoutError::Disconnected) => return,
        }
    }
}

fn look_after(recorder: &'static Recorder, readings: &mut readings::Readings, sampling: bool) {
    if crate::state::running().is_none() {
        // Turned off after an internal error: nothing is touched any more.
        loop {
            guard::sleep_micros(1_000_000_000);
        }
    }
    recorder.mark_clock();
    if sampling {
        readings.take(trigger::PERIOD, None);
    }
    readings.look_for_new_modules();
    recorder.drain(8, 1000);
}
