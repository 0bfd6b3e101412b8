//! Allocations that ran out of memory, and what the thread did next.

pub mod below;
mod evidence;
pub mod framework;
mod oom;
#[cfg(test)]
mod tests;

use gpuoom_trace::meaning::{Does, Family};
use gpuoom_trace::outcome::{Limits, Outcome, Request, Step, Watched};
use gpuoom_trace::record::{Layer, Record};
use rustc_hash::FxHashMap;

pub use evidence::{Evidence, PointerUse};
use framework::{Errors, Place};
pub use oom::{Injected, Inside, Message, Oom, RefusedBy};

use super::apis::Api;

/// Failures that are listed; more are only counted.
pub const MAX_LISTED: usize = 100_000;
/// Events that are kept as evidence of one outcome.
const MAX_EVIDENCE: usize = 16;
/// Failing nested calls that are remembered for a thread.
const MAX_NESTED: usize = 64;
/// Stories of a thread that are followed at once; the two oldest then become one.
const MAX_STORIES: usize = 64;

/// Failures with one fate: one, and the attempts to make up for it.
#[derive(Clone, Debug)]
struct Story {
    watched: Watched,
    /// Indices among the listed ones, in their order.
    members: Vec<usize>,
}

/// The failures of one thread that are not decided.
#[derive(Clone, Debug, Default)]
struct ThreadWatch {
    open: Vec<Story>,
    /// When the last failing call returned, in nanoseconds.
    failed_at_ns: u64,
}

impl ThreadWatch {
    /// Attempts to make up for a failure become part of its story, as soon as the program has shown as much of both.
    fn join(&mut self) {
        self.open.dedup_by(|newer, older| {
            let is_part = older.watched.takes_in(&newer.watched);
            if is_part {
                older.members.append(&mut newer.members);
            }
            is_part
        });
        if self.open.len() > MAX_STORIES {
            let mut oldest = self.open.remove(0);
            oldest.members.append(&mut self.open[0].members);
            self.open[0].members = oldest.members;
        }
    }
}

/// All failures of a trace.
#[derive(Clone, Debug, Default)]
pub struct Failures {
    /// In the order of their records. Until [`Failures::finish`] the attempts of an error are among them.
    pub listed: Vec<Oom>,
    /// All, listed or not: those that reached the program by themselves.
    pub count: u64,
    /// All that began, the attempts of errors included.
    pub begun: u64,
    errors: Errors,
    watches: FxHashMap<u32, ThreadWatch>,
    by_seq: FxHashMap<u64, usize>,
    nested: FxHashMap<u32, Vec<Inside>>,
    limits: Limits,
    /// Whether no record is missing.
    is_whole: bool,
}

impl Failures {
    /// None yet; by `limits` a later request belongs to a failure. `is_whole`: no record is missing.
    pub fn new(limits: Limits, is_whole: bool) -> Self {
        Failures { limits, is_whole, ..Failures::default() }
    }

    /// How long after a failure a request belongs to it that only time and size tie to it.
    pub fn soon_ns(&self) -> u64 {
        self.limits.soon_ns
    }

    /// Notes that a call below another failed.
    pub fn note_nested(&mut self, record: &Record, called: &Api) {
        let (Some(layer), family) = (called.layer, called.family) else { return };
        if self.nested.len() < MAX_LISTED || self.nested.contains_key(&record.thread) {
            let calls = self.nested.entry(record.thread).or_default();
            if calls.len() < MAX_NESTED {
                let (call, api, status, requested_bytes) = (record.call, record.api, record.status, record.requested);
                let is_told = layer == Layer::Hsa || family == Family::Kfd;
                let device = record.device().filter(|_| is_told);
                let kind = record.kind();
                calls.push(Inside { call, layer, api, kind, status, requested_bytes, device });
            }
        }
    }

    /// Whether [`Failures::lowest_nested`] must be asked at the end of an outermost call.
    #[inline]
    pub fn has_nested(&self) -> bool {
        !self.nested.is_empty()
    }

    /// The lowest call that failed inside this outermost call. Forgets what failed inside the thread's calls so far.
    pub fn lowest_nested(&mut self, record: &Record) -> Option<Inside> {
        let calls = self.nested.remove(&record.thread)?;
        // Calls nest: what began after this one and was recorded before it ended lies inside it.
        let inside = calls.into_iter().filter(|inside| inside.call.wrapping_sub(record.call) as i32 > 0);
        inside.max_by_key(|inside| inside.layer)
    }

    /// Begins to watch a failed allocation, which may be an attempt to make up for an earlier one.
    pub fn begin(&mut self, mut oom: Oom, request: Request) {
        self.count += 1;
        self.begun += 1;
        oom.ordinal = self.begun;
        let index = self.listed.len();
        self.errors.refused(&oom, request, (index < MAX_LISTED).then_some(index));
        if index >= MAX_LISTED {
            return;
        }
        let watch = self.watches.entry(oom.thread).or_default();
        let listed = &mut self.listed;
        watch.open.retain_mut(|story| {
            let answer = story.watched.step(Step::Refused(request), &self.limits);
            story.members.iter().for_each(|index| listed[*index].decide(answer));
            answer.is_none()
        });
        let watched = Watched::new(request, oom.status);
        let is_attempt = |story: &&Story| story.watched.last_attempt() == watched.last_attempt();
        oom.story = watch.open.iter().rev().find(is_attempt).map_or(index, |story| self.listed[story.members[0]].story);
        watch.open.push(Story { watched, members: vec![index] });
        watch.failed_at_ns = request.at_ns;
        watch.join();
        self.by_seq.insert(oom.seq, index);
        self.listed.push(oom);
    }

    /// The recorder's readings of a failure were done at this moment, for which the thread was held up.
    pub fn read_at(&mut self, seq: u64, at_ns: u64) {
        let Some(oom) = self.by_seq.get(&seq).and_then(|index| self.listed.get_mut(*index)) else { return };
        let Some(watch) = self.watches.get_mut(&oom.thread) else { return };
        let held_up_ns = at_ns.saturating_sub(watch.failed_at_ns);
        oom.held_up_ns = oom.held_up_ns.saturating_add(held_up_ns);
        watch.open.iter_mut().for_each(|story| story.watched.held_up(held_up_ns));
        // A second reading would count the same time twice.
        watch.failed_at_ns = watch.failed_at_ns.max(at_ns);
    }

    /// Whether any thread has an undecided failure.
    #[inline]
    pub fn is_watching(&self) -> bool {
        !self.watches.is_empty()
    }

    /// The place among the listed failures of the one with this sequence number.
    pub fn index_of(&self, seq: u64) -> Option<usize> {
        self.by_seq.get(&seq).copied()
    }

    /// The failure that a reading belongs to.
    pub fn by_seq(&mut self, seq: u64) -> Option<&mut Oom> {
        self.by_seq.get(&seq).and_then(|index| self.listed.get_mut(*index))
    }

    /// Feeds a step of the program, which this record tells of, to the failures of its thread; `pointer`: of a failed call, that it
    /// was given; `does`: what its function does.
    pub fn step(&mut self, record: &Record, step: Step, pointer: Option<PointerUse>, does: Does) {
        let Some(watch) = self.watches.get_mut(&record.thread) else { return };
        self.errors.step(record, step);
        apply(&mut self.listed, watch, step, &self.limits, Evidence::of(record, step, pointer, does));
        if watch.open.is_empty() {
            self.watches.remove(&record.thread);
        }
        if matches!(step, Step::Answered { .. }) {
            self.answered(record);
        }
    }

    /// The process ends: the last step of every thread.
    pub fn end(&mut self, failure: bool, evidence: Evidence) {
        for (_, mut watch) in std::mem::take(&mut self.watches) {
            apply(&mut self.listed, &mut watch, Step::Ended { failure }, &self.limits, evidence);
        }
    }

    /// Nothing more is known. Answers where each listed failure is from now on; nothing where all are where they were.
    pub fn finish(&mut self) -> Vec<Place> {
        self.close();
        self.fold()
    }

    /// What is still open is judged by what was seen.
    fn close(&mut self) {
        for (_, watch) in std::mem::take(&mut self.watches) {
            for (story, index) in
                watch.open.iter().flat_map(|story| story.members.iter().map(move |index| (story, *index)))
            {
                self.listed[index].decide(Some(story.watched.undecided()));
            }
        }
    }
}

/// Whether GPU work with this pointer used that of a story. Where nobody wrote down whose it is, that is known of a thread with one
/// story only.
fn uses_pointer_of(listed: &[Oom], story: &Story, stories: usize, pointer: PointerUse) -> bool {
    match (pointer.whose, pointer.left_by) {
        (Some(seq), _) => story.members.iter().any(|index| listed[*index].has_record(seq)),
        (None, None | Some(1)) => stories == 1,
        (None, Some(_)) => false,
    }
}

/// Whether the call inside which the story's last request was refused has returned.
fn is_answer_to(watched: &Watched, step: Step) -> bool {
    matches!(step, Step::Answered { began_ns, .. } if watched.last_attempt().at_ns >= began_ns)
}

fn apply(listed: &mut [Oom], watch: &mut ThreadWatch, step: Step, limits: &Limits, evidence: Evidence) {
    let stories = watch.open.len();
    watch.open.retain_mut(|story| {
        let known = |watched: &Watched| (watched.shown(), watched.settled());
        let before = known(&story.watched);
        let step = match evidence.pointer {
            Some(pointer) => Step::GpuWork { failed_pointer: uses_pointer_of(listed, story, stories, pointer) },
            None => step,
        };
        // A null that another's failed call left, and is known to have left, is nothing to this one.
        let is_perhaps_its =
            |pointer: &PointerUse| pointer.whose.is_none() || matches!(step, Step::GpuWork { failed_pointer: true });
        let evidence = Evidence { pointer: evidence.pointer.filter(is_perhaps_its), ..evidence };
        let answer = story.watched.step(step, limits);
        let is_made_up_by_time_alone = story.watched.is_made_up_by_time_alone();
        let counts_for_nothing = evidence.is_block() && story.watched.settled().is_none();
        // How a program ends says nothing more of a failure that it made up for, or was told of and went on from.
        let is_over = before.1.is_some_and(|(outcome, _)| matches!(outcome, Outcome::Recovered | Outcome::Propagated));
        let ended_badly = matches!(step, Step::Ended { failure: true }) && !is_over;
        let decides = match answer {
            // What settled it is its evidence, and not what ended the watch.
            Some(_) => answer != before.1 || ended_badly,
            None => known(&story.watched) != before || evidence.pointer.is_some() || is_answer_to(&story.watched, step),
        };
        for index in &story.members {
            let oom = &mut listed[*index];
            oom.error_was_read |= evidence.clears_error;
            oom.is_made_up_by_time_alone = is_made_up_by_time_alone;
            if counts_for_nothing {
                oom.other_memory.add(evidence);
            }
            oom.is_watched_on &= answer.is_none() || !matches!(step, Step::GpuWork { .. });
            if decides && oom.evidence.len() < MAX_EVIDENCE {
                oom.evidence.push(evidence);
            }
            oom.decide(answer);
        }
        answer.is_none()
    });
    watch.join();
}
