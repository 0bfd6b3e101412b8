//! What became of an out-of-memory return, by what the same thread did next.
//!
//! The recorder runs this to know when it can stop watching a thread, the analyzer runs it to give the verdict: one set of
//! rules, so that they can't disagree.
//!
//! A program that asks again and again, for less each time, has one story and not one failure per attempt: a refused request
//! that is an attempt to make up for an open failure joins it ([`Watched::takes_in`]).

mod request;
#[cfg(test)]
mod tests;

pub use request::{Limits, Request, UNKNOWN_BYTES, gives_back};
use request::{Refused, Relation, relation};

/// The four ends of a failed allocation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Outcome {
    /// The thread got memory after all, before any GPU work: the same, or something else in its place.
    Recovered,
    /// The program let the failure out.
    Propagated,
    /// GPU work went on as if nothing had happened.
    Dropped,
    /// The trace ends before anything is decided, or what the thread did can mean one thing or another.
    Unresolved,
}

/// Why an [`Outcome`] was given.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Because {
    /// The allocation was tried again and succeeded.
    RetrySucceeded,
    /// Another call got memory in its place: less, in pieces, of another kind, on another device.
    FellBack,
    /// A C++ exception was thrown.
    Exception,
    /// The error's name or text was asked for.
    ErrorReported,
    /// The last error was read, and no GPU work followed.
    StatusChecked,
    /// The process ended with a failure.
    ProcessExited,
    /// GPU work followed.
    GpuWorkContinued,
    /// The failed call's pointer was given to a GPU call.
    FailedPointerUsed,
    /// The trace ends.
    TraceEnded,
    /// The last error was read, which also clears it, and GPU work went on: whether anybody looked at it can't be seen.
    ErrorRead,
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
            Because::FellBack => "fell_back",
            Because::Exception => "exception",
            Because::ErrorReported => "error_reported",
            Because::StatusChecked => "status_checked",
            Because::ProcessExited => "process_exited",
            Because::GpuWorkContinued => "gpu_work_continued",
            Because::FailedPointerUsed => "failed_pointer_used",
            Because::TraceEnded => "trace_ended",
            Because::ErrorRead => "error_read",
        }
    }
}

/// How the program has shown so far that it knows of a failure, the surest last.
#[repr(u8)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Shown {
    /// Not at all.
    #[default]
    Nothing = 0,
    /// The last error was read. Many do that to clear it, unseen.
    LastErrorRead = 1,
    /// The error's name or text was asked for.
    Reported = 2,
    /// A C++ exception was thrown.
    Thrown = 3,
}

impl Shown {
    /// What became of the failure if nothing that decides came any more.
    fn undecided(self) -> (Outcome, Because) {
        match self {
            Shown::Nothing => (Outcome::Unresolved, Because::TraceEnded),
            Shown::LastErrorRead => (Outcome::Propagated, Because::StatusChecked),
            Shown::Reported => (Outcome::Propagated, Because::ErrorReported),
            Shown::Thrown => (Outcome::Propagated, Because::Exception),
        }
    }

    /// What became of it if GPU work went on.
    fn then_work(self) -> (Outcome, Because) {
        match self {
            Shown::Nothing => (Outcome::Dropped, Because::GpuWorkContinued),
            Shown::LastErrorRead => (Outcome::Unresolved, Because::ErrorRead),
            Shown::Reported | Shown::Thrown => self.undecided(),
        }
    }
}

/// Calls of GPU work that are looked at once a failure is settled: the program may use the failed call's pointer after all.
pub const WORKS_LOOKED_AT: u8 = 32;

/// What settled a failure, unless its pointer is used after all. All zero is nothing.
#[repr(u8)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Settled {
    #[default]
    No = 0,
    ByRetry = 1,
    ByFallBack = 2,
    WorkContinued = 3,
    ErrorRead = 4,
    Reported = 5,
    Thrown = 6,
    /// A fall-back that time alone ties to the failure, of which the program has shown nothing.
    ByTimeAlone = 7,
    /// GPU work followed, and only then came memory for such a request.
    WorkThenGiven = 8,
}

impl Settled {
    const ALL: [Settled; 6] = [
        Settled::ByRetry,
        Settled::ByFallBack,
        Settled::WorkContinued,
        Settled::ErrorRead,
        Settled::Reported,
        Settled::Thrown,
    ];

    fn by(because: Because) -> Self {
        let is_by = |settled: &&Settled| settled.outcome().is_some_and(|(_, by)| by == because);
        Self::ALL.iter().find(is_by).copied().unwrap_or_default()
    }

    fn outcome(self) -> Option<(Outcome, Because)> {
        Some(match self {
            Settled::No => return None,
            Settled::ByRetry => (Outcome::Recovered, Because::RetrySucceeded),
            Settled::ByFallBack | Settled::ByTimeAlone => (Outcome::Recovered, Because::FellBack),
            Settled::WorkContinued | Settled::WorkThenGiven => (Outcome::Dropped, Because::GpuWorkContinued),
            Settled::ErrorRead => (Outcome::Unresolved, Because::ErrorRead),
            Settled::Reported => (Outcome::Propagated, Because::ErrorReported),
            Settled::Thrown => (Outcome::Propagated, Because::Exception),
        })
    }
}

/// What a thread did, as far as it matters after a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// An allocation succeeded.
    Allocated(Request),
    /// Memory of a device was given back.
    GaveBack,
    /// Another allocation ran out of memory.
    Refused(Request),
    /// The last error was read.
    LastErrorRead,
    /// The name or the text of an error was asked for.
    ErrorText {
        /// The error that was asked about.
        status: i32,
    },
    /// A C++ exception was thrown by the program.
    Thrown,
    /// A call of an interface above, inside which memory was refused, has returned to the program.
    Answered {
        /// When it began, on the clock of [`Request::at_ns`]: only what was refused since is meant.
        began_ns: u64,
        /// It says that it failed.
        failure: bool,
    },
    /// A launch, copy, memset, graph launch or library call.
    GpuWork {
        /// It was given the pointer of this failed call, and no other open failure of the thread left the same.
        failed_pointer: bool,
    },
    /// The process ends.
    Ended {
        /// With a status that says failure.
        failure: bool,
    },
}

/// A failed allocation that is being watched, with the attempts to make up for it. All zero is a valid, meaningless one.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Watched {
    /// The last attempt; at first, the failure itself.
    last: Request,
    wanted_bytes: u64,
    /// What other calls gave since, that may be the same in pieces.
    near_bytes: u64,
    status: i32,
    wanted_device: u8,
    wanted_kind: u8,
    shown: Shown,
    /// It was to fill the variable of the thread's failure before it.
    same_variable: bool,
    /// Another request was refused since, so that "the same variable" is not about this one.
    is_past: bool,
    /// What became of it, unless the failed call's pointer is used after all.
    settled: Settled,
    /// Calls of GPU work that are still looked at then.
    works_left: u8,
    /// Memory of a device was given back since the last attempt, before any GPU work.
    gave_back: bool,
}

impl Watched {
    /// Begins to watch the thread whose request failed with `status`.
    pub fn new(request: Request, status: i32) -> Self {
        Watched {
            last: request,
            wanted_bytes: request.requested_bytes,
            near_bytes: 0,
            status,
            wanted_device: request.device,
            wanted_kind: request.kind,
            shown: Shown::Nothing,
            same_variable: request.same_variable,
            is_past: false,
            settled: Settled::No,
            works_left: 0,
            gave_back: false,
        }
    }

    /// More was wanted than this call asked for: of a block in pieces one was refused.
    pub fn wants(&mut self, bytes: u64) {
        self.wanted_bytes = self.wanted_bytes.max(bytes);
        self.last.requested_bytes = self.last.requested_bytes.max(bytes);
    }

    /// The device that it was to be on, as records have it.
    pub fn wanted_device(&self) -> u8 {
        self.wanted_device
    }

    /// What became of it, where only a use of the failed call's pointer could still tell otherwise.
    pub fn settled(&self) -> Option<(Outcome, Because)> {
        self.settled.outcome()
    }

    /// Whether the thread got memory after all, as far as is known.
    pub fn is_made_up(&self) -> bool {
        self.settled().is_some_and(|(outcome, _)| outcome == Outcome::Recovered)
    }

    /// Whether all that ties the memory that came to the failure is that it came soon: nothing shows that the program had noticed.
    pub fn is_made_up_by_time_alone(&self) -> bool {
        self.settled == Settled::ByTimeAlone && self.shown == Shown::Nothing
    }

    /// Whether GPU work went on, and memory came only then for the same request or for one in its place.
    pub fn was_given_after_work(&self) -> bool {
        self.settled == Settled::WorkThenGiven
    }

    /// How the program has shown the failure so far.
    pub fn shown(&self) -> Shown {
        self.shown
    }

    /// The last attempt to make up for the failure; the failed request itself where there was none.
    pub fn last_attempt(&self) -> &Request {
        &self.last
    }

    /// The thread was held up by the recorder after its last attempt.
    pub fn held_up(&mut self, ns: u64) {
        self.last.at_ns = self.last.at_ns.saturating_add(ns);
    }

    /// Whether a newer failure of the thread is an attempt to make up for this one for the same variable, and the program has
    /// shown as much of both: from here on they have one fate. What another variable is left with may be used by itself.
    pub fn takes_in(&self, newer: &Watched) -> bool {
        let is_open = self.settled == Settled::No && newer.settled == Settled::No;
        is_open
            && newer.same_variable
            && (self.last, self.shown, self.status) == (newer.last, newer.shown, newer.status)
    }

    /// Takes the thread's next step; an answer is final.
    pub fn step(&mut self, step: Step, limits: &Limits) -> Option<(Outcome, Because)> {
        if let Some(settled) = self.settled() {
            return self.step_of_settled(step, settled, limits);
        }
        match step {
            Step::Allocated(by) => {
                let settled = self.given(&by, limits)?;
                self.settle(settled)
            }
            Step::GaveBack => {
                self.gave_back = true;
                None
            }
            Step::Refused(by) => self.refused_again(by, limits),
            Step::LastErrorRead => self.show(Shown::LastErrorRead),
            Step::ErrorText { status } if status == self.status => self.show(Shown::Reported),
            Step::ErrorText { .. } => None,
            Step::Thrown => self.show(Shown::Thrown),
            Step::Answered { began_ns, failure: false } if self.last.at_ns >= began_ns => {
                self.settle(Settled::ByFallBack)
            }
            Step::Answered { .. } => None,
            Step::GpuWork { failed_pointer: true } => Some((Outcome::Dropped, Because::FailedPointerUsed)),
            Step::GpuWork { failed_pointer: false } => self.settle(Settled::by(self.shown.then_work().1)),
            Step::Ended { failure: true } if self.shown == Shown::Nothing => {
                Some((Outcome::Propagated, Because::ProcessExited))
            }
            Step::Ended { .. } => Some(self.undecided()),
        }
    }

    /// Not final: the pointer that the failed call should have set may be used after all. That holds also where memory came to the
    /// same address: a wrapper's own variable is another one in each call.
    fn settle(&mut self, settled: Settled) -> Option<(Outcome, Because)> {
        self.settled = settled;
        self.works_left = WORKS_LOOKED_AT;
        None
    }

    /// The next step of a thread whose failure is settled: the same null left behind by two failures can't be told apart, so a newer
    /// failure ends this.
    fn step_of_settled(
        &mut self,
        step: Step,
        settled: (Outcome, Because),
        limits: &Limits,
    ) -> Option<(Outcome, Because)> {
        match step {
            Step::GpuWork { failed_pointer: true } => Some((Outcome::Dropped, Because::FailedPointerUsed)),
            Step::GpuWork { failed_pointer: false } => {
                self.works_left = self.works_left.saturating_sub(1);
                (self.works_left == 0).then_some(settled)
            }
            Step::Refused(_) | Step::Ended { .. } => Some(settled),
            // Too late to change what became of it, and yet worth telling.
            Step::LastErrorRead => self.show(Shown::LastErrorRead),
            Step::ErrorText { status } if status == self.status => self.show(Shown::Reported),
            Step::Thrown => self.show(Shown::Thrown),
            Step::Allocated(by) => {
                let is_such = || matches!(self.relation(&by, limits), Relation::Retry | Relation::FallBack);
                if self.settled == Settled::WorkContinued && is_such() {
                    self.settled = Settled::WorkThenGiven;
                }
                None
            }
            Step::Answered { began_ns, failure } if self.last.at_ns >= began_ns => {
                self.answered(failure);
                None
            }
            Step::GaveBack | Step::ErrorText { .. } | Step::Answered { .. } => None,
        }
    }

    /// The call inside which the thread got memory after all says how that went: where it failed, the memory was not for the program.
    fn answered(&mut self, failure: bool) {
        match (failure, self.settled) {
            (true, Settled::ByRetry | Settled::ByFallBack | Settled::ByTimeAlone) => {
                (self.settled, self.near_bytes) = (Settled::No, 0);
            }
            (false, Settled::ByTimeAlone) => self.settled = Settled::ByFallBack,
            _ => {}
        }
    }

    /// What can be said when nothing more is known of the thread.
    pub fn undecided(&self) -> (Outcome, Because) {
        self.settled().unwrap_or(self.shown.undecided())
    }

    fn relation(&self, by: &Request, limits: &Limits) -> Relation {
        let refused = Refused {
            wanted_bytes: self.wanted_bytes,
            wanted_sort: (self.wanted_device, self.wanted_kind),
            last: &self.last,
            is_past: self.is_past,
            was_thrown: self.shown == Shown::Thrown,
            gave_back: self.gave_back,
        };
        relation(&refused, by, limits)
    }

    fn given(&mut self, by: &Request, limits: &Limits) -> Option<Settled> {
        match self.relation(by, limits) {
            Relation::Retry => Some(Settled::ByRetry),
            Relation::FallBack => Some(Settled::ByFallBack),
            Relation::Weak => Some(self.by_little()),
            Relation::Near => {
                self.near_bytes = self.near_bytes.saturating_add(by.requested_bytes);
                self.is_worth(self.near_bytes, limits).then_some(self.by_little())
            }
            Relation::Unrelated => None,
        }
    }

    /// What memory settles that little ties to the failure. Who gives memory back makes room, as one does that has noticed.
    fn by_little(&self) -> Settled {
        let has_reacted = self.shown != Shown::Nothing || self.gave_back;
        if has_reacted { Settled::ByFallBack } else { Settled::ByTimeAlone }
    }

    fn refused_again(&mut self, by: Request, limits: &Limits) -> Option<(Outcome, Because)> {
        // The room that was made was for that one.
        self.gave_back = false;
        let is_attempt = match self.relation(&by, limits) {
            Relation::Retry | Relation::FallBack | Relation::Weak => true,
            Relation::Near => self.is_worth(by.requested_bytes, limits),
            Relation::Unrelated => false,
        };
        self.is_past = !is_attempt;
        if is_attempt {
            (self.last, self.near_bytes) = (by, 0);
        }
        None
    }

    /// Whether so many bytes can stand for what was asked for last, and are no trifle beside it.
    fn is_worth(&self, bytes: u64, limits: &Limits) -> bool {
        bytes >= self.last.requested_bytes / limits.least_part.max(1)
    }

    fn show(&mut self, shown: Shown) -> Option<(Outcome, Because)> {
        self.shown = self.shown.max(shown);
        None
    }
}
