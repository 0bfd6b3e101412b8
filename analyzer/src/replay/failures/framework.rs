//! Errors that an allocator above the runtime raised, with the refusals below that led to them.
//!
//! An allocator asks, is refused, gives back what it has cached, asks again, and raises one error at last. Its report of that comes
//! after the refusals and before the exception. They are its attempts then, and no failures of their own.

use gpuoom_trace::meaning::Does;
use gpuoom_trace::outcome::{Because, Outcome, Request, Step, Watched};
use gpuoom_trace::payload;
use gpuoom_trace::record::{Event, Kind, Record, message};
use rustc_hash::FxHashMap;

use super::{Evidence, Failures, MAX_LISTED, Message, Oom, RefusedBy, Story};
use crate::replay::block::Block;

/// Refusals of a thread that are remembered as attempts of an error that may come; a loop of more belongs to none.
const MAX_ATTEMPTS: usize = 1024;

/// A refused call of the runtime that an allocator made before it raised an error.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attempt {
    /// Sequence number of its record.
    pub seq: u64,
    /// Ticks when it began.
    pub at: u64,
    /// Function.
    pub api: u16,
    /// Call site, 0 where it is not known.
    pub site: u32,
    /// Kind of memory that was asked for.
    pub kind: Kind,
    /// Bytes asked for.
    pub requested_bytes: u64,
    /// What it returned.
    pub status: i32,
    /// Who refused.
    pub refused_by: RefusedBy,
}

impl Attempt {
    fn of(oom: &Oom) -> Self {
        let Oom { seq, at, api, site, kind, requested_bytes, status, refused_by, .. } = *oom;
        Attempt { seq, at, api, site, kind, requested_bytes, status, refused_by }
    }
}

/// What an allocator above the runtime told of an error that it raised.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FrameworkError {
    /// Sequence number of its record.
    pub seq: u64,
    /// Ticks when it was told.
    pub at: u64,
    /// Function.
    pub api: u16,
    /// Call site, 0 where it is not known.
    pub site: u32,
    /// Status of the record.
    pub status: i32,
    /// Bytes that the allocator wanted, after its own rounding.
    pub requested_bytes: u64,
    /// What it had taken in pieces for this very block, never mapped, and gave back between the last refusal and the error. Of an
    /// expandable segment, whose pieces are all created before the first is mapped. `None` where a record that would tell may be missing.
    pub half_made_bytes: Option<u64>,
    /// The refusals that led to it, in their order. Some may be missing where events were lost.
    pub attempts: Vec<Attempt>,
    /// Their places among the listed failures, until they are folded.
    places: Vec<usize>,
}

impl FrameworkError {
    /// Of its record.
    pub fn of(record: &Record) -> Self {
        let Record { at, api, site, status, requested: requested_bytes, .. } = *record;
        let (attempts, places) = Default::default();
        let seq = record.seq();
        FrameworkError { seq, at, api, site, status, requested_bytes, half_made_bytes: Some(0), attempts, places }
    }

    /// Whether a refusal can be an attempt of this: who asks for a segment asks for no less than the block that it is to hold, but for
    /// physical memory, which comes in pieces.
    fn can_follow(&self, refusal: &Refusal) -> bool {
        match refusal.kind {
            Kind::Physical => true,
            _ => refusal.request.requested_bytes >= self.requested_bytes,
        }
    }
}

/// Where a failure is in the list once attempts are folded into their errors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// Its index, or that of the error whose attempt it was.
    pub index: usize,
    /// Whether it was an attempt, and is not listed any more.
    pub is_attempt: bool,
}

/// A refusal that may be an attempt of an error to come.
#[derive(Clone, Copy, Debug)]
struct Refusal {
    /// Place among the listed failures; `None` where it is not listed.
    index: Option<usize>,
    device: u8,
    kind: Kind,
    request: Request,
    /// What the thread released since that it had never mapped.
    released_bytes: u64,
}

/// An exception that was thrown.
#[derive(Clone, Copy, Debug)]
struct Thrown {
    object: u64,
    seq: u64,
}

/// What is remembered of threads for errors to come.
#[derive(Clone, Debug, Default)]
pub(super) struct Errors {
    refusals: FxHashMap<u32, Vec<Refusal>>,
    thrown: FxHashMap<u32, Thrown>,
    /// The last listed failure of each thread.
    last: FxHashMap<u32, usize>,
    /// The last listed error of each thread that was given no block since.
    told: FxHashMap<u32, usize>,
    /// Failures that became attempts.
    folded: bool,
    /// Refusals that became part of an earlier one inside the same call, with the place of that.
    same_call: FxHashMap<usize, usize>,
}

impl Errors {
    /// A call of the runtime was refused, or an error without one was raised.
    pub(super) fn refused(&mut self, oom: &Oom, request: Request, index: Option<usize>) {
        if let Some(index) = index {
            self.last.insert(oom.thread, index);
            if oom.error.is_some() {
                self.told.insert(oom.thread, index);
            }
        }
        let Some(device) = oom.device.filter(|_| oom.error.is_none() && !oom.unknown_size) else { return };
        // What caching allocators take segments from.
        if !matches!(oom.kind, Kind::Device | Kind::Physical | Kind::Pool) {
            return;
        }
        let refusals = self.refusals.entry(oom.thread).or_default();
        if refusals.len() == MAX_ATTEMPTS {
            refusals.remove(0);
        }
        refusals.push(Refusal { index, device, kind: oom.kind, request, released_bytes: 0 });
    }

    /// A thread did something after a refusal.
    pub(super) fn step(&mut self, record: &Record, step: Step) {
        match step {
            // The program was told of the refusal, or went on: it led to no error that comes later.
            Step::Thrown => {
                self.refusals.remove(&record.thread);
                self.thrown.insert(record.thread, Thrown { object: record.address, seq: record.seq() });
            }
            Step::ErrorText { .. } | Step::GpuWork { .. } => _ = self.refusals.remove(&record.thread),
            _ => {}
        }
    }

    /// The refusals that led to an error, which belong to no other.
    fn take(&mut self, thread: u32, device: u8, error: &FrameworkError) -> Vec<Refusal> {
        let Some(refusals) = self.refusals.remove(&thread) else { return Vec::new() };
        refusals.into_iter().filter(|refusal| refusal.device == device && error.can_follow(refusal)).collect()
    }
}

impl Failures {
    /// Whether any thread has a refusal that may be an attempt.
    #[inline]
    pub fn has_refusals(&self) -> bool {
        !self.errors.refusals.is_empty()
    }

    /// Whether any thread was given no block since an error.
    #[inline]
    pub fn has_told(&self) -> bool {
        !self.errors.told.is_empty()
    }

    /// An allocator of a framework gave out a block: what was refused before led to no error, and the program went on after one.
    #[cold]
    pub fn block_given(&mut self, record: &Record, does: Does) {
        // A pool of the program's own is another allocator.
        if does != Does::TellsOfTensor {
            return;
        }
        self.went_on(record, does);
        let Some(refusals) = self.errors.refusals.get_mut(&record.thread) else { return };
        refusals.retain(|refusal| refusal.device != record.device);
        if refusals.is_empty() {
            self.errors.refusals.remove(&record.thread);
        }
    }

    /// The thread released physical memory that it had never mapped. Whether that was a piece of what the last refusal cut short.
    #[cold]
    pub fn released_unmapped(&mut self, thread: u32, block: &Block) -> bool {
        let last = self.errors.refusals.get_mut(&thread).and_then(|refusals| refusals.last_mut());
        let Some(last) = last.filter(|last| last.kind == Kind::Physical && last.device == block.device) else {
            return false;
        };
        last.released_bytes = last.released_bytes.saturating_add(block.requested_bytes);
        true
    }

    /// Whoever caught an error and asks on was told of it: the outcome stays, and the first block is evidence beside it.
    fn went_on(&mut self, record: &Record, does: Does) {
        let Some(index) = self.errors.told.get(&record.thread).copied() else { return };
        let Some(oom) = self.listed.get_mut(index) else { return };
        if oom.evidence.iter().any(|evidence| evidence.event == Event::Exception) {
            let gave = Some((record.kind(), record.requested, record.device()));
            // No step of the watch: memory of an allocator that raised an error makes up for no refused call.
            oom.evidence.push(Evidence { gave, ..Evidence::of(record, Step::Thrown, None, does) });
            self.errors.told.remove(&record.thread);
        }
    }

    /// An allocator raised an error. Gives it back where no refusal led to it: then it is a failure of its own.
    pub fn raised(
        &mut self,
        thread: u32,
        device: u8,
        mut error: FrameworkError,
    ) -> Result<Vec<Attempt>, FrameworkError> {
        let refusals = self.errors.take(thread, device, &error);
        if refusals.is_empty() {
            return Err(error);
        }
        self.count = self.count.saturating_sub(refusals.len() as u64 - 1);
        let in_pieces = refusals.last().filter(|last| last.kind == Kind::Physical);
        error.half_made_bytes = in_pieces.map_or(Some(0), |last| self.is_whole.then_some(last.released_bytes));
        error.places = refusals.iter().filter_map(|refusal| refusal.index).collect();
        error.attempts = error.places.iter().map(|place| Attempt::of(&self.listed[*place])).collect();
        let earlier = error.attempts.split_last().map_or_else(Vec::new, |(_, earlier)| earlier.to_vec());
        // Beyond what is listed, errors are only counted.
        let listed = |refusal: &Refusal| Some((refusal.index?, refusal.request));
        let Some((place, request)) = refusals.iter().rev().find_map(listed) else { return Ok(earlier) };
        let wanted_bytes = match self.listed[place].kind {
            Kind::Physical => request.requested_bytes.max(error.requested_bytes),
            _ => request.requested_bytes,
        };
        let request = Request { requested_bytes: wanted_bytes, ..request };
        self.errors.folded = true;
        self.errors.last.insert(thread, place);
        self.errors.told.insert(thread, place);
        self.join_attempts(thread, place, &error.places, request);
        self.by_seq.insert(error.seq, place);
        let oom = &mut self.listed[place];
        oom.refused_by = refused_by(&error.attempts);
        (oom.outcome, oom.because) = (Outcome::Unresolved, Because::TraceEnded);
        oom.error = Some(Box::new(error));
        Ok(earlier)
    }

    /// A call of an interface above has returned, as this record says: what was refused inside it is one failure, the first with what the
    /// interface then tried.
    pub(super) fn answered(&mut self, record: &Record) {
        // Whatever a file says, the work stays bounded.
        let last = self.listed.len().saturating_sub(MAX_ATTEMPTS);
        let Errors { same_call, folded, .. } = &mut self.errors;
        let is_of_call = |oom: &Oom| oom.at >= record.at && oom.thread == record.thread && oom.error.is_none();
        let places = (last..self.listed.len())
            .filter(|place| is_of_call(&self.listed[*place]) && !same_call.contains_key(place));
        let places: Vec<usize> = places.collect();
        let Some((first, later)) = places.split_first() else { return };
        for place in later {
            let attempt = Attempt::of(&self.listed[*place]);
            self.listed[*first].same_call.push(attempt);
            same_call.insert(*place, *first);
            self.count = self.count.saturating_sub(1);
            *folded = true;
        }
    }

    /// The record of the failure that stands for the error with this record.
    pub fn error_at(&self, seq: u64) -> Option<u64> {
        self.by_seq.get(&seq).and_then(|place| self.listed.get(*place)).map(|oom| oom.seq)
    }

    /// The attempts of an error have one story, which goes on with the last one.
    fn join_attempts(&mut self, thread: u32, last: usize, all: &[usize], request: Request) {
        let story = self.listed[all[0]].story;
        // An attempt may itself make up for an earlier failure.
        self.listed[last].story = if all.contains(&story) { last } else { story };
        let status = self.listed[last].status;
        let watch = self.watches.entry(thread).or_default();
        for story in &mut watch.open {
            story.members.retain(|member| *member == last || !all.contains(member));
        }
        watch.open.retain(|story| !story.members.is_empty());
        let fresh = || Watched::new(request, status);
        match watch.open.iter_mut().find(|story| story.members.contains(&last)) {
            // Memory came, and yet the program got an error.
            Some(story) if story.watched.settled().is_some() => story.watched = fresh(),
            // A piece was refused, and the next one that is given makes up for no block.
            Some(story) => story.watched.wants(request.requested_bytes),
            None => watch.open.push(Story { watched: fresh(), members: vec![last] }),
        }
    }

    /// A text of what the thread did just before. The first one that belongs to a failure is kept.
    #[cold]
    pub fn message(&mut self, record: &Record, payload: &[u8]) {
        let belongs_to = match record.status {
            message::EXCEPTION => self.thrown_after(record),
            message::ABORT | message::LOG => self.said_after(record),
            _ => None,
        };
        let Some(oom) = belongs_to.and_then(|index| self.listed.get_mut(index)) else { return };
        if oom.message.is_none() {
            oom.message = Some(Message { from: record.status, text: payload::text(payload).into() });
        }
    }

    /// The thread's last failure, if this is the exception that was thrown after it.
    fn thrown_after(&self, record: &Record) -> Option<usize> {
        let thrown = self.errors.thrown.get(&record.thread).filter(|thrown| thrown.object == record.address)?;
        let last = *self.errors.last.get(&record.thread)?;
        let shows = |evidence: &Evidence| evidence.event == Event::Exception && evidence.seq == Some(thrown.seq);
        self.listed.get(last)?.evidence.iter().any(shows).then_some(last)
    }

    /// The failure whose record the text names, unless the thread was given memory for it before: then it speaks of something else.
    fn said_after(&self, record: &Record) -> Option<usize> {
        let index = *self.by_seq.get(&record.address.checked_sub(1)?)?;
        let oom = self.listed.get(index)?;
        (oom.thread == record.thread && !self.is_made_up(index)).then_some(index)
    }

    /// Whether memory came after this failure that makes up for it, as far as the thread is still watched.
    fn is_made_up(&self, index: usize) -> bool {
        let oom = &self.listed[index];
        let stories = self.watches.get(&oom.thread).map_or(&[][..], |watch| &watch.open);
        let story = stories.iter().find(|story| story.members.contains(&index));
        oom.outcome == Outcome::Recovered || story.is_some_and(|story| story.watched.is_made_up())
    }

    /// Takes the attempts of errors out of the list. Answers where each failure is then; nothing where all are where they were.
    pub(super) fn fold(&mut self) -> Vec<Place> {
        let errors = std::mem::take(&mut self.errors);
        if !errors.folded {
            return Vec::new();
        }
        let mut folded: FxHashMap<usize, usize> = errors.same_call;
        for (index, oom) in self.listed.iter().enumerate() {
            let places = oom.error.iter().flat_map(|error| &error.places);
            folded.extend(places.filter(|place| **place != index).map(|place| (*place, index)));
        }
        self.keep_readings(&folded);
        let mut kept = 0..;
        let own: Vec<Option<usize>> =
            (0..self.listed.len()).map(|index| if folded.contains_key(&index) { None } else { kept.next() }).collect();
        let place = |index: usize| Place {
            index: own[index].or_else(|| own[*folded.get(&index)?]).unwrap_or(index),
            is_attempt: own[index].is_none(),
        };
        let places: Vec<Place> = (0..self.listed.len()).map(place).collect();
        let mut next = places.iter();
        self.listed.retain_mut(|oom| {
            let Some(place) = next.next() else { return false };
            // A story begins with its first failure, whatever became of that.
            oom.story = places[oom.story].index.min(place.index);
            !place.is_attempt
        });
        self.by_seq.values_mut().for_each(|index| *index = places[*index].index);
        places
    }

    /// What was measured at an earlier attempt is kept where nobody measured it at the last one, and as much was free at both.
    fn keep_readings(&mut self, folded: &FxHashMap<usize, usize>) {
        let mut attempts: Vec<(usize, usize)> = folded.iter().map(|(attempt, error)| (*attempt, *error)).collect();
        attempts.sort_unstable_by(|one, other| other.cmp(one));
        for (attempt, error) in attempts {
            let (earlier, held_up_ns) = (self.listed[attempt].clone(), self.listed[attempt].held_up_ns);
            let oom = &mut self.listed[error];
            oom.held_up_ns = oom.held_up_ns.saturating_add(held_up_ns);
            let as_free = oom.read.runtime_free_bytes.is_some_and(|free| earlier.read.runtime_free_bytes == Some(free));
            let held_the_same = oom.held.requested_bytes == earlier.held.requested_bytes;
            if oom.read.largest_allocatable_bytes.is_none() && as_free && held_the_same {
                oom.read.largest_allocatable_bytes = earlier.read.largest_allocatable_bytes;
                oom.read.probe_skipped = earlier.read.probe_skipped;
            }
            let measured = earlier.read.largest_allocatable_bytes.map(|bytes| (earlier.at, bytes));
            oom.probed_before = oom.probed_before.or(measured);
        }
    }
}

/// Who refused: the lowest layer of all attempts; the recorder where it refused the last one.
fn refused_by(attempts: &[Attempt]) -> RefusedBy {
    let layer = |attempt: &Attempt| match attempt.refused_by {
        RefusedBy::Layer(layer) => layer,
        RefusedBy::Injected => None,
    };
    match attempts.last().map(|attempt| attempt.refused_by) {
        Some(RefusedBy::Injected) => RefusedBy::Injected,
        _ => RefusedBy::Layer(attempts.iter().filter_map(layer).max()),
    }
}

const _: () = assert!(MAX_ATTEMPTS < MAX_LISTED);
