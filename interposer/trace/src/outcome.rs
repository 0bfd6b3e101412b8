//! What became of an out-of-memory return, by what the same thread did next.
//!
//! The recorder runs this to know when it can stop watching a thread, the analyzer runs it to give the verdict: one set of
//! rules, so that they can't disagree.

/// The four ends of a failed allocation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Outcome {
    /// An allocation of at least that size on that device succeeded afterwards.
    Recovered,
    /// The program let the failure out.
    Propagated,
    /// GPU work went on as if nothing had happened.
    Dropped,
    /// The trace ends before anything is decided.
    Unresolved,
}

/// Why an [`Outcome`] was given.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Because {
    /// The allocation was tried again and succeeded.
    RetrySucceeded,
    /// A C++ exception was thrown.
    Exception,
    /// The error's name or text was asked for.
    ErrorReported,
    /// The last error was read.
    StatusChecked,
    /// The process ended with a failure.
    ProcessExited,
    /// GPU work followed.
    GpuWorkContinued,
    /// The failed call's pointer was given to a GPU call.
    FailedPointerUsed,
    /// The trace ends.
    TraceEnded,
}

impl Outcome {
    /// The word that reports and JSON use.
    pub fn name(self) -> &'static str {
        match self {
            Outcome::Recovered => "recovered",
            Outcome::Propagated => "propagated",
            Outcome::Dropped => "dropped",
            Outcome::Unresolved => "unresolved",
        }
    }
}

impl Because {
    /// The word that reports and JSON use.
    pub fn name(self) -> &'static str {
        match self {
            Because::RetrySucceeded => "retry_succeeded",
            Because::Exception => "exception",
            Because::ErrorReported => "error_reported",
            Because::StatusChecked => "status_checked",
            Because::ProcessExited => "process_exited",
            Because::GpuWorkContinued => "gpu_work_continued",
            Because::FailedPointerUsed => "failed_pointer_used",
            Because::TraceEnded => "trace_ended",
        }
    }

    /// How strongly it shows that the program let the failure out; `None` for what shows something else.
    fn strength(self) -> Option<u8> {
        match self {
            Because::Exception => Some(3),
            Because::ErrorReported => Some(2),
            Because::StatusChecked => Some(1),
            _ => None,
        }
    }
}

/// Stands for the size of something whose size nobody tells, a library's handle for instance.
pub const UNKNOWN_BYTES: u64 = u64::MAX;

/// What a thread did, as far as it matters after a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// An allocation succeeded.
    Allocated {
        /// Its device, `None` where it is not known.
        device: Option<u8>,
        /// Bytes asked for.
        requested_bytes: u64,
    },
    /// The last error was read.
    LastErrorRead,
    /// The name or the text of an error was asked for.
    ErrorText {
        /// The error that was asked about.
        status: i32,
    },
    /// A C++ exception was thrown by the program.
    Thrown,
    /// A launch, copy, memset, graph launch or library call.
    GpuWork {
        /// It was given the pointer of the failed call.
        failed_pointer: bool,
    },
    /// The process ends.
    Ended {
        /// With a status that says failure.
        failure: bool,
    },
}

/// A failed allocation that is being watched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Watched {
    device: Option<u8>,
    requested_bytes: u64,
    status: i32,
    shown: Option<Because>,
}

impl Watched {
    /// Begins to watch the thread whose allocation failed with `status`.
    pub fn new(device: Option<u8>, requested_bytes: u64, status: i32) -> Self {
        Watched { device, requested_bytes, status, shown: None }
    }

    /// A watched failure from the plain numbers that the recorder keeps of it, see [`Watched::shown_strength`].
    pub fn resume(device: Option<u8>, requested_bytes: u64, status: i32, shown_strength: u8) -> Self {
        let all = [Because::StatusChecked, Because::ErrorReported, Because::Exception];
        let shown = all.into_iter().find(|because| because.strength() == Some(shown_strength));
        Watched { shown, ..Watched::new(device, requested_bytes, status) }
    }

    /// How strongly the program has shown the failure so far, 0: not at all.
    pub fn shown_strength(&self) -> u8 {
        self.shown.and_then(Because::strength).unwrap_or(0)
    }

    /// Takes the thread's next step; an answer is final.
    pub fn step(&mut self, step: Step) -> Option<(Outcome, Because)> {
        match step {
            Step::Allocated { device, requested_bytes } => {
                // The size of what sets something up is not known: it makes up for its own sort only.
                let comparable = (requested_bytes == UNKNOWN_BYTES) == (self.requested_bytes == UNKNOWN_BYTES);
                let same = device == self.device && comparable && requested_bytes >= self.requested_bytes;
                same.then_some((Outcome::Recovered, Because::RetrySucceeded))
            }
            Step::LastErrorRead => self.show(Because::StatusChecked),
            Step::ErrorText { status } if status == self.status => self.show(Because::ErrorReported),
            Step::ErrorText { .. } => None,
            Step::Thrown => self.show(Because::Exception),
            Step::GpuWork { failed_pointer: true } => Some((Outcome::Dropped, Because::FailedPointerUsed)),
            Step::GpuWork { failed_pointer: false } => Some(match self.shown {
                Some(because) => (Outcome::Propagated, because),
                None => (Outcome::Dropped, Because::GpuWorkContinued),
            }),
            Step::Ended { failure: true } => Some((Outcome::Propagated, self.shown.unwrap_or(Because::ProcessExited))),
            Step::Ended { failure: false } => Some(self.undecided()),
        }
    }

    /// What can be said when nothing more is known of the thread.
    pub fn undecided(&self) -> (Outcome, Because) {
        match self.shown {
            Some(because) => (Outcome::Propagated, because),
            None => (Outcome::Unresolved, Because::TraceEnded),
        }
    }

    fn show(&mut self, because: Because) -> Option<(Outcome, Because)> {
        if because.strength() > self.shown.and_then(Because::strength) {
            self.shown = Some(because);
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OOM: i32 = 2;
    const WORK: Step = Step::GpuWork { failed_pointer: false };

    fn after(steps: &[Step]) -> (Outcome, Because) {
        let mut watched = Watched::new(Some(0), 1000, OOM);
        steps.iter().find_map(|step| watched.step(*step)).unwrap_or_else(|| watched.undecided())
    }

    #[test]
    fn plain_numbers_carry_the_state() {
        for step in [Step::LastErrorRead, Step::ErrorText { status: OOM }, Step::Thrown] {
            let mut watched = Watched::new(Some(1), 5, OOM);
            assert_eq!(Watched::resume(Some(1), 5, OOM, 0), watched);
            watched.step(step);
            assert_eq!(Watched::resume(Some(1), 5, OOM, watched.shown_strength()), watched);
        }
    }

    #[test]
    fn the_rules_of_the_contract() {
        let retried = |requested_bytes| Step::Allocated { device: Some(0), requested_bytes };
        use Because::*;
        use Outcome::*;
        for (steps, expected) in [
            (&[retried(1000)][..], (Recovered, RetrySucceeded)),
            (&[Step::LastErrorRead, Step::Thrown, retried(2000)], (Recovered, RetrySucceeded)),
            (&[retried(999), WORK], (Dropped, GpuWorkContinued)),
            (&[Step::Allocated { device: Some(1), requested_bytes: 5000 }, WORK], (Dropped, GpuWorkContinued)),
            (&[retried(UNKNOWN_BYTES), WORK], (Dropped, GpuWorkContinued)),
            (&[WORK, retried(1000)], (Dropped, GpuWorkContinued)),
            (&[Step::LastErrorRead, WORK], (Propagated, StatusChecked)),
            (&[Step::LastErrorRead, Step::ErrorText { status: OOM }, WORK], (Propagated, ErrorReported)),
            (&[Step::ErrorText { status: 1 }, WORK], (Dropped, GpuWorkContinued)),
            (&[Step::Thrown, Step::LastErrorRead, WORK], (Propagated, Exception)),
            (&[Step::LastErrorRead, Step::GpuWork { failed_pointer: true }], (Dropped, FailedPointerUsed)),
            (&[Step::Ended { failure: true }], (Propagated, ProcessExited)),
            (&[Step::ErrorText { status: OOM }, Step::Ended { failure: true }], (Propagated, ErrorReported)),
            (&[Step::Ended { failure: false }], (Unresolved, TraceEnded)),
            (&[], (Unresolved, TraceEnded)),
            (&[Step::LastErrorRead], (Propagated, StatusChecked)),
        ] {
            assert_eq!(after(steps), expected, "{steps:?}");
        }
    }
}
