//! One run with one failing call, and what became of it.

use std::path::Path;

use gpuoom_trace::outcome::{Because, Outcome};
use gpuoom_trace::reader::{ReadError, TraceFile};
use gpuoom_trace::record::injected;
use serde::{Serialize, Serializer};

use super::Place;
use crate::intake::read_through;
use crate::replay::failures::{Injected, Oom};
use crate::replay::{Options, Replay};

/// What became of the failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Fate {
    /// The program never came to that call in this run.
    NotReached,
    /// The same request succeeded afterwards.
    Recovered,
    /// The program let it out.
    Propagated,
    /// The trace ends before anything tells.
    Unresolved,
    /// GPU work went on as if nothing had been.
    Dropped,
}

impl Fate {
    /// In a word.
    pub fn name(self) -> &'static str {
        match self {
            Fate::NotReached => "not reached",
            Fate::Recovered => "recovered",
            Fate::Propagated => "propagated",
            Fate::Unresolved => "unresolved",
            Fate::Dropped => "DROPPED",
        }
    }

    fn of(outcome: Outcome) -> Self {
        match outcome {
            Outcome::Recovered => Fate::Recovered,
            Outcome::Propagated => Fate::Propagated,
            Outcome::Unresolved => Fate::Unresolved,
            Outcome::Dropped => Fate::Dropped,
        }
    }
}

/// How the program ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// By itself, with this status.
    Exited(i32),
    /// By this signal.
    Signaled(i32),
    /// Not in time: it was killed.
    Hung,
}

impl Ending {
    /// In words.
    pub fn name(self) -> String {
        match self {
            Ending::Exited(code) => format!("exit {code}"),
            Ending::Signaled(number) => crate::words::signal(number),
            Ending::Hung => "hung".to_owned(),
        }
    }
}

impl Serialize for Ending {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        struct Fields {
            end: &'static str,
            exit_code: Option<i32>,
            signal: Option<i32>,
        }
        let (end, exit_code, signal) = match *self {
            Ending::Exited(code) => ("exited", Some(code), None),
            Ending::Signaled(number) => ("signaled", None, Some(number)),
            Ending::Hung => ("hung", None, None),
        };
        Fields { end, exit_code, signal }.serialize(serializer)
    }
}

/// One run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Trial {
    /// The call that was to fail.
    #[serde(flatten)]
    pub place: Place,
    /// The rule by which it failed, as `GPUOOM_INJECT` takes it.
    pub rule: String,
    /// What became of the failure.
    pub fate: Fate,
    /// Why that is so; null where the call was not reached.
    pub because: Option<&'static str>,
    /// The device that gave memory in its place, where that is another one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fell_back_to: Option<u8>,
    /// Whether time alone ties what made up for the failure to it: nothing shows that the program had noticed.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub by_time_alone: bool,
    /// Further out-of-memory returns of the same run, which the program brought on itself.
    pub other_failures: usize,
    /// How the program ended.
    pub ending: Ending,
}

/// What the trace of one process tells of the failure.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Told {
    /// The failure on request: what became of it, and why. Of several the worst.
    pub injected: Option<(Fate, &'static str)>,
    /// The device that gave memory in its place, where that is another one.
    pub fell_back_to: Option<u8>,
    /// Whether time alone ties that memory to the failure.
    pub by_time_alone: bool,
    /// Failures beside those.
    pub others: usize,
}

impl Told {
    /// Reads a trace.
    ///
    /// # Errors
    /// When it can't be read at all.
    pub fn of(path: &Path) -> Result<Self, ReadError> {
        let mut trace = TraceFile::open(path)?;
        let mut replay = Replay::new(&trace, Options::default());
        read_through(&mut trace, |_| (), |batch| replay.batch(batch));
        replay.finish();
        let mut told = Told::default();
        for oom in &replay.failures.listed {
            match oom.injected {
                Some(Injected { reason: injected::SITE, .. }) => {
                    let by_time_alone = oom.because == Because::FellBack && oom.is_made_up_by_time_alone;
                    told.note((Fate::of(oom.outcome), oom.because.name()), other_device(oom), by_time_alone);
                }
                _ => told.others += 1,
            }
        }
        Ok(told)
    }

    /// What became of the failure, and why, in a run that ended so. A crash that comes without the failure as well is no reaction to it.
    pub fn fate(&self, ending: Ending, undisturbed: Ending) -> (Fate, Option<&'static str>) {
        let crashes_anyway = matches!(ending, Ending::Signaled(_)) && ending == undisturbed;
        match self.injected {
            Some((_, because)) if because == Because::ProcessExited.name() && crashes_anyway => {
                (Fate::Unresolved, Some(Because::TraceEnded.name()))
            }
            Some((fate, because)) => (fate, Some(because)),
            None => (Fate::NotReached, None),
        }
    }

    fn note(&mut self, fate: (Fate, &'static str), fell_back_to: Option<u8>, by_time_alone: bool) {
        let is_worse = self.injected.is_none_or(|known| (known.0, self.by_time_alone) < (fate.0, by_time_alone));
        if is_worse {
            (self.injected, self.fell_back_to, self.by_time_alone) = (Some(fate), fell_back_to, by_time_alone);
        }
    }

    /// Adds what another process of the run tells.
    pub fn and(mut self, other: Told) -> Self {
        other.injected.into_iter().for_each(|fate| self.note(fate, other.fell_back_to, other.by_time_alone));
        self.others += other.others;
        self
    }
}

/// The device whose memory made up for a failure of another one.
fn other_device(oom: &Oom) -> Option<u8> {
    let wanted = oom.device.filter(|_| oom.because == Because::FellBack)?;
    let gave = oom.evidence.iter().filter_map(|evidence| evidence.gave);
    gave.filter_map(|(.., device)| device).find(|device| *device != wanted)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_crash_that_comes_anyway_is_no_reaction() {
        let told = Told { injected: Some((Fate::Propagated, "process_exited")), ..Told::default() };
        let crash = Ending::Signaled(11);
        assert_eq!(told.fate(crash, Ending::Exited(0)), (Fate::Propagated, Some("process_exited")));
        assert_eq!(told.fate(crash, crash), (Fate::Unresolved, Some("trace_ended")));
        let status = Ending::Exited(70);
        assert_eq!(told.fate(status, status), (Fate::Propagated, Some("process_exited")), "the failure brought it on");
        let checked = Told { injected: Some((Fate::Propagated, "status_checked")), ..Told::default() };
        assert_eq!(checked.fate(crash, crash), (Fate::Propagated, Some("status_checked")));
        assert_eq!(Told::default().fate(crash, crash), (Fate::NotReached, None));
    }

    #[test]
    fn the_worst_of_several_processes_counts() {
        let of = |fate| Told { injected: Some((fate, "why")), others: 1, ..Told::default() };
        let all = of(Fate::Propagated).and(of(Fate::Dropped)).and(of(Fate::Recovered)).and(Told::default());
        assert_eq!((all.injected.map(|fate| fate.0), all.others), (Some(Fate::Dropped), 3));
        let by_time = Told { by_time_alone: true, ..of(Fate::Recovered) };
        assert!(of(Fate::Recovered).and(by_time).by_time_alone && by_time.and(of(Fate::Recovered)).by_time_alone);
        assert!(!by_time.and(of(Fate::Propagated)).by_time_alone);
    }
}
