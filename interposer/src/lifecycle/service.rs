//! The recorder's own thread: drains, samples, answers failures.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, RecvTimeoutError, bounded};
use gpuoom_trace::metadata::trigger;

use super::machine::Machine;
use super::{last, libraries};
use crate::base::{config, log};
use crate::readings::{self, Asker, Readings};
use crate::record::{Recorder, Request, state, threads};

/// Requests that may wait; a full queue only means that the thread is behind, and it drains anyway.
const QUEUE: usize = 64;
/// How often the thread looks after things when sampling is off.
pub(super) const IDLE: Duration = Duration::from_secs(1);

/// The list of libraries that was made at the start is good for so long.
const SETTLED: Duration = Duration::from_millis(100);

/// Opens the way to the thread. Before other threads see the recorder: what they ask then waits for the thread, and is not lost.
pub(super) fn open(recorder: &Recorder) -> Receiver<Request> {
    let (sender, requests) = bounded(QUEUE);
    let _ = recorder.requests.set(sender);
    requests
}

/// Starts two threads: this one, with descriptors of its own, and the one that may call the vendor's runtime, which needs
/// the program's. Without them (no resources) the recording threads drain, and no runtime is asked.
pub(super) fn spawn(recorder: &'static Recorder, requests: Receiver<Request>) {
    let (asker, answerer) = readings::asker();
    let kept = recorder.drainer.file().number();
    let started = threads::start(c"gpuoom", move || {
        threads::forget_descriptors(kept);
        serve(recorder, &requests, asker);
        recorder.is_unserved.store(true, Ordering::Relaxed);
        last::leave();
    });
    if !started {
        recorder.is_unserved.store(true, Ordering::Relaxed);
        log::debug(format_args!("no thread of its own: recording threads write the chunks"));
        return;
    }
    threads::start(c"gpuoom-runtime", move || {
        answerer.serve();
        last::end();
    });
}

/// Serves until nobody is left to be served.
fn serve(recorder: &'static Recorder, requests: &Receiver<Request>, asker: Asker) {
    let period = config::get().sample;
    let mut readings = Readings::new(recorder, Some(asker));
    let began = Instant::now();
    let mut next_look = Instant::now() + period.unwrap_or(IDLE);
    readings.take(trigger::START, None);
    // Before any request is answered: whoever waits for the readings of a failure then has the machine's facts as well.
    let mut machine = Machine::record(recorder);
    let mut watch = last::Watch::new();
    while !watch.nobody_is_left() {
        let next = next_look.min(watch.next_look());
        match requests.recv_timeout(next.saturating_duration_since(Instant::now())) {
            Ok(Request::Drain) => {
                recorder.drain_asked.store(false, Ordering::Relaxed);
                recorder.drain(4, 1000);
            }
            Ok(Request::DeviceUsed { library, device, caller }) => readings.device_used(library, device, caller),
            Ok(Request::Failure(failure)) => readings.failure(&failure),
            Ok(Request::FirstThreadLeaves) => watch.look_now(),
            Err(RecvTimeoutError::Timeout) => {}
            // The other end is never dropped.
            Err(RecvTimeoutError::Disconnected) => watch.wait(),
        }
        if state::running().is_none() {
            // Turned off after an internal error: nothing is touched any more.
            watch.wait();
            break;
        }
        if Instant::now() >= next_look {
            look_after(recorder, &mut readings, &mut machine, period.is_some(), began);
            next_look = Instant::now() + period.unwrap_or(IDLE);
        }
    }
    // Whoever answers is asked nothing any more once the readings, which ask, are gone.
    last::it_is_over();
}

fn look_after(
    recorder: &'static Recorder,
    readings: &mut Readings,
    machine: &mut Machine,
    sampling: bool,
    began: Instant,
) {
    recorder.mark_clock();
    if sampling {
        readings.take(trigger::PERIOD, None);
    }
    if began.elapsed() > SETTLED && libraries::note(recorder) {
        machine.libraries_were_loaded(recorder);
    }
    recorder.drain(8, 1000);
}
