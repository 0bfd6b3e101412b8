//! The thread that may call the vendor's runtime, and the way to it.
//!
//! It shares the program's descriptors, because the runtime reaches the driver through them, and opens none itself. A call
//! that hangs (a free that waits for the GPU) hangs this thread alone: whoever asked goes on without an answer.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, Sender, bounded};
use gpuoom_trace::metadata::{DeviceFacts, Reading, probe_skipped};

use super::runtime::Runtime;
use super::{nvml, probe};
use crate::base::guard;
use crate::table::Library;

/// How long an answer is waited for.
const PATIENCE: Duration = Duration::from_millis(2500);

/// Set at the end of the process: no vendor call may begin any more.
static CLOSED: AtomicBool = AtomicBool::new(false);
/// A vendor call is under way.
static INSIDE: AtomicBool = AtomicBool::new(false);
/// Calls of the program under way that end what a device or a context holds. Nobody else may use the device meanwhile (CUDA runtime API,
/// `cudaDeviceReset`): no vendor call of ours may begin.
static PAUSES: AtomicU32 = AtomicU32::new(0);
/// A pause was waited for in vain.
static PAUSE_LASTS: AtomicBool = AtomicBool::new(false);
/// How often somebody looks, 100 µs apart, whether the thread has left the vendor's code.
const LOOKS: u32 = 2000;
/// The same, whether the program's reset is over.
const LOOKS_AT_PAUSE: u32 = 10_000;

/// A device as one copy of a runtime counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Device {
    pub(super) library: Library,
    pub(super) index: u8,
    /// A call site of the program, which tells the copy of the library.
    pub(super) caller: usize,
}

/// What is asked of the runtime.
#[derive(Clone, Copy, Debug)]
pub(super) enum Question {
    /// What the device is.
    Facts,
    /// Free and total memory.
    Memory,
    /// The largest block that can be had, below a size that was refused.
    Largest {
        refused_bytes: u64,
        /// It was refused below the runtime.
        refused_below: bool,
    },
}

/// The answer.
#[derive(Debug)]
pub(super) enum Answer {
    Facts(DeviceFacts),
    Memory(Vec<Reading>),
    Largest(Result<u64, u64>),
    Nothing,
}

struct Asked {
    number: u64,
    device: Device,
    question: Question,
}

/// Asks, and waits for the answer with a bound.
pub(crate) struct Asker {
    questions: Sender<Asked>,
    answers: Receiver<(u64, Answer)>,
    asked: u64,
    answered: u64,
}

/// Answers, on its own thread.
pub(crate) struct Answerer {
    questions: Receiver<Asked>,
    answers: Sender<(u64, Answer)>,
}

/// Both ends.
pub(crate) fn asker() -> (Asker, Answerer) {
    let (to_answerer, questions) = bounded(1);
    let (answers, from_answerer) = bounded(4);
    (Asker { questions: to_answerer, answers: from_answerer, asked: 0, answered: 0 }, Answerer { questions, answers })
}

impl Asker {
    /// Asks one question; [`Answer::Nothing`] when no answer came in time, or an earlier one is still being waited for.
    pub(super) fn ask(&mut self, device: Device, question: Question) -> Answer {
        while let Ok((number, _)) = self.answers.try_recv() {
            self.answered = number;
        }
        if self.answered != self.asked {
            return Answer::Nothing;
        }
        self.asked += 1;
        if self.questions.try_send(Asked { number: self.asked, device, question }).is_err() {
            self.asked -= 1;
            return Answer::Nothing;
        }
        match self.answers.recv_deadline(Instant::now() + PATIENCE) {
            Ok((number, answer)) if number == self.asked => {
                self.answered = number;
                answer
            }
            _ => Answer::Nothing,
        }
    }
}

impl Answerer {
    /// Answers until the other end is gone.
    pub(crate) fn serve(&self) {
        while let Ok(Asked { number, device, question }) = self.questions.recv() {
            let answer = in_runtime(|| answer(device, question)).unwrap_or(Answer::Nothing);
            if self.answers.send((number, answer)).is_err() {
                return;
            }
        }
    }
}

fn answer(device: Device, question: Question) -> Answer {
    let Some(runtime) = Runtime::of(device.library, device.caller) else {
        return match question {
            Question::Largest { .. } => Answer::Largest(Err(probe_skipped::NOT_ASKED)),
            _ => Answer::Nothing,
        };
    };
    match question {
        // The reset came while this question waited for its end.
        _ if super::is_reset(device.index) => Answer::Nothing,
        Question::Facts => Answer::Facts(runtime.facts(device.index)),
        Question::Memory => {
            let mut readings = Vec::new();
            runtime.memory(device.index, &mut readings);
            if device.library != Library::Hip {
                nvml::read(|| runtime.pci_bus_id(device.index), device.index, &mut readings);
            }
            Answer::Memory(readings)
        }
        Question::Largest { .. } if !runtime.last_error_is_per_thread() => {
            Answer::Largest(Err(probe_skipped::RUNTIME_UNVERIFIED))
        }
        Question::Largest { refused_bytes, refused_below } => Answer::Largest(super::while_probing(|| {
            probe::largest(&runtime, device.index, probe::Refused { bytes: refused_bytes, below: refused_below })
        })),
    }
}

/// Called at the end of the process: waits, with a bound, until the thread is out of the vendor's code.
pub(crate) fn close_runtime() {
    CLOSED.store(true, Ordering::SeqCst);
    wait_until_outside();
}

fn wait_until_outside() {
    for _ in 0..LOOKS {
        if !INSIDE.load(Ordering::SeqCst) {
            return;
        }
        guard::sleep_micros(100);
    }
}

/// Keeps the recorder's thread out of the vendor's code while the program ends what a device or a context holds.
pub(crate) struct Pause(());

impl Pause {
    /// Waits, with a bound, until the thread is out.
    pub(crate) fn begin() -> Self {
        PAUSES.fetch_add(1, Ordering::SeqCst);
        wait_until_outside();
        Pause(())
    }
}

impl Drop for Pause {
    fn drop(&mut self) {
        PAUSES.fetch_sub(1, Ordering::SeqCst);
    }
}

/// A forked child begins with nobody inside the runtime.
pub(super) fn forget_parent() {
    CLOSED.store(false, Ordering::SeqCst);
    INSIDE.store(false, Ordering::SeqCst);
    PAUSES.store(0, Ordering::SeqCst);
    PAUSE_LASTS.store(false, Ordering::Relaxed);
}

/// Runs a vendor call, unless the process is ending, or a reset of the program's does not.
fn in_runtime<T>(call: impl FnOnce() -> T) -> Option<T> {
    let result = may_enter().then(call);
    INSIDE.store(false, Ordering::SeqCst);
    result
}

fn may_enter() -> bool {
    // A thread that left its reset by a jump, or was ended in it, ends no pause: that is waited for once. Relaxed: this thread alone
    // reads and writes it.
    let looks = if PAUSE_LASTS.load(Ordering::Relaxed) { 1 } else { LOOKS_AT_PAUSE };
    for _ in 0..looks {
        // SeqCst on all flags: either `close_runtime` and a pause see that we are inside, or we see them.
        INSIDE.store(true, Ordering::SeqCst);
        if CLOSED.load(Ordering::SeqCst) {
            return false;
        }
        if PAUSES.load(Ordering::SeqCst) == 0 {
            PAUSE_LASTS.store(false, Ordering::Relaxed);
            return true;
        }
        INSIDE.store(false, Ordering::SeqCst);
        guard::sleep_micros(100);
    }
    PAUSE_LASTS.store(true, Ordering::Relaxed);
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_asked_while_the_program_resets() {
        static IS_OVER: AtomicBool = AtomicBool::new(false);
        let pause = Pause::begin();
        let asks = std::thread::spawn(|| in_runtime(|| IS_OVER.load(Ordering::SeqCst)));
        IS_OVER.store(true, Ordering::SeqCst);
        drop(pause);
        assert_eq!(asks.join().unwrap(), Some(true));
    }

    #[test]
    fn an_answer_that_does_not_come_is_not_waited_for_twice() {
        let (mut asker, answerer) = asker();
        let device = Device { library: Library::Hsa, index: 0, caller: 0 };
        let thread = std::thread::spawn(move || answerer.serve());
        assert!(matches!(asker.ask(device, Question::Memory), Answer::Nothing), "HSA has no such numbers");
        assert_eq!((asker.asked, asker.answered), (1, 1));
        let largest = asker.ask(device, Question::Largest { refused_bytes: 1, refused_below: false });
        assert!(matches!(largest, Answer::Largest(Err(probe_skipped::NOT_ASKED))), "nobody was asked: it took no time");
        drop(asker);
        thread.join().unwrap();
        let (mut asker, _stuck) = super::asker();
        assert!(matches!(asker.ask(device, Question::Memory), Answer::Nothing));
        assert_eq!((asker.asked, asker.answered), (1, 0));
        assert!(matches!(asker.ask(device, Question::Memory), Answer::Nothing));
        assert_eq!((asker.asked, asker.answered), (1, 0), "the second question was not even sent");
    }
}
