//! One allocation call after the other made to fail: which places of a program allocate, and what became of a failure there.
//!
//! The plan comes from a recorded run without failures; each further run fails one call of the plan, named by the place that
//! it returns to and by how many calls came from there before it. That survives address randomisation, and other threads
//! do not change it.

pub mod plan;
pub mod trial;

use serde::Serialize;

pub use plan::{Place, Plan};
pub use trial::{Ending, Fate, Trial};

/// All trials of a program.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Gauntlet {
    /// The command and its arguments.
    pub command: Vec<String>,
    /// How the program ended when nothing failed.
    pub undisturbed: Ending,
    /// Places that were found.
    pub places: usize,
    /// The trials, in the order in which the program first came to each place.
    pub trials: Vec<Trial>,
    /// How many trials ended in each way.
    pub counts: Counts,
}

/// How many trials ended in each way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Counts {
    /// Tried again with success.
    pub recovered: usize,
    /// Let out.
    pub propagated: usize,
    /// Ignored.
    pub dropped: usize,
    /// Not known.
    pub unresolved: usize,
    /// The program never came to that call.
    pub not_reached: usize,
    /// Of all of these: the program did not end in time.
    pub hung: usize,
    /// Of all of these: a signal ended it, and without the failure none did.
    pub crashed: usize,
}

impl Gauntlet {
    /// Counts the trials.
    pub fn new(command: Vec<String>, undisturbed: Ending, places: usize, trials: Vec<Trial>) -> Self {
        let mut counts = Counts::default();
        for trial in &trials {
            *match trial.fate {
                Fate::Recovered => &mut counts.recovered,
                Fate::Propagated => &mut counts.propagated,
                Fate::Dropped => &mut counts.dropped,
                Fate::Unresolved => &mut counts.unresolved,
                Fate::NotReached => &mut counts.not_reached,
            } += 1;
            counts.hung += usize::from(trial.ending == Ending::Hung);
            let crashed = matches!(trial.ending, Ending::Signaled(_)) && trial.ending != undisturbed;
            counts.crashed += usize::from(crashed);
        }
        Gauntlet { command, undisturbed, places, trials, counts }
    }

    /// Whether the program dropped a failure, or a fault of its own ended it for one. An abort, as by an exception that nobody catches, is
    /// none.
    pub fn is_bad(&self) -> bool {
        const FAULTS: [i32; 4] = [libc::SIGSEGV, libc::SIGBUS, libc::SIGFPE, libc::SIGILL];
        let faulted = |trial: &Trial| {
            trial.ending != self.undisturbed
                && matches!(trial.ending, Ending::Signaled(number) if FAULTS.contains(&number))
        };
        self.counts.dropped > 0 || self.trials.iter().any(faulted)
    }
}
