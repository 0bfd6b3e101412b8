//! The thread that may call the vendor's runtime, and the way to it.
//!
//! It shares the program's descriptors, because the runtime reaches the driver through them, and opens none itself. A call
//! that hangs (a free that waits for the GPU) hangs this thread alone: whoever asked goes on without an answer.

use std::sync::atomic::{AtomicBool, Ordering};
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
    for _ in 0..2000 {
        if !INSIDE.load(Ordering::SeqCst) {
            return;
        }
        guard::sleep_micros(100);
    }
}

/// A forked child begins with nobody inside the runtime.
pub(super) fn forget_parent() {
    CLOSED.store(false, Ordering::SeqCst);
    INSIDE.store(false, Ordering::SeqCst);
}

/// Runs a vendor call, unless the process is ending.
fn in_runtime<T>(call: impl FnOnce() -> T) -> Option<T> {
    // SeqCst on both flags: either `close_runtime` sees that we are inside, or we see that it is closed.
    INSIDE.store(true, Ordering::SeqCst);
    let result = (!CLOSED.load(Ordering::SeqCst)).then(call);
    INSIDE.store(false, Ordering::SeqCst);
    result
}

#[cfg(test)]
mod tests {
    use super::*;

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
