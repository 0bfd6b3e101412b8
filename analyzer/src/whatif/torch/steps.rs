//! From the allocator's history to what the program asked of it.
//!
//! The history has what the program did (blocks taken and freed) and what came of it (calls to the driver). What it does
//! not have is who emptied the cache: the program, or the allocator because the driver had refused. The stacks tell: a
//! refusal happens inside a request, so memory is given back at the request's own place in the program.

use rustc_hash::FxHashMap;

use super::allocator::{Allocator, Owner};
use super::blocks::BlockId;
use super::driver::{Call, CallKind, Match, Reserves, Script};
use super::policy::Policy;
use super::told::Stop;
use crate::evidence::torch_snapshot::{Action, Event, Snapshot, StackId};

/// What the program asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// A block; `key` names it.
    Take {
        /// Number of the request.
        key: u64,
        /// Bytes.
        requested: u64,
        /// The least that may have been asked for; less than `requested` where only the size of the block is known.
        least: u64,
        /// Stream.
        stream: u64,
        /// Pool.
        owner: Owner,
    },
    /// The block is not used any more; `waits` where work on another stream still uses it.
    Free {
        /// Number of the request.
        key: u64,
        /// Whether it waits.
        waits: bool,
    },
    /// The work that it waited for is done.
    Completed {
        /// Number of the request.
        key: u64,
    },
    /// A request that ran out of memory.
    Refused {
        /// Bytes.
        requested: u64,
        /// Stream.
        stream: u64,
        /// Pool.
        owner: Owner,
        /// What the driver called free; [`FREE_IS_UNKNOWN`] where nobody told.
        free_bytes: u64,
        /// Microseconds since 1970.
        time_us: u64,
    },
    /// The program emptied the cache.
    EmptyCache,
    /// No graph uses a pool any more.
    Freeable(Owner),
}

/// Stands for what the driver called free where nobody told.
pub const FREE_IS_UNKNOWN: u64 = u64::MAX;

/// What the sizes of a history are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Sizes {
    /// What was asked for.
    #[default]
    Requested,
    /// The blocks that were given: rounded up, and with what was not worth splitting off.
    OfBlocks,
}

/// A history, and how far the model does the same as the allocator did.
#[derive(Clone, Debug, Default)]
pub struct History {
    /// What the sizes of requests are.
    pub sizes: Sizes,
    /// What the program asked.
    pub steps: Vec<Step>,
    /// Blocks that lived before the history began.
    pub before: Vec<Step>,
    /// The driver's calls.
    pub compared: Match,
    /// Requests that were met.
    pub requests: u64,
    /// Of them those that the model put at the recorded address.
    pub placed: u64,
    /// The first request (counted from 1) that is not.
    pub first_misplaced: Option<u64>,
    /// What the allocator had for itself when the driver refused: its own segments and what was free.
    pub usable_bytes: Option<u64>,
    /// Where the driver set address space aside, as far as that was seen.
    pub reserves: Reserves,
    /// Frees of blocks that nobody took.
    pub unknown_frees: u64,
    /// Requests that may have been smaller than the size that is known of them.
    pub rounded: u64,
    /// How many steps the model makes just as they were recorded; `None`: all of them.
    pub agreed_steps: Option<usize>,
}

impl History {
    /// Forgets what comes behind the first step that the model makes in another way.
    pub fn keep_what_agrees(&mut self) {
        self.steps.truncate(self.agreed_steps.unwrap_or(usize::MAX));
        let is_rounded = |step: &&Step| matches!(step, Step::Take { requested, least, .. } if least < requested);
        self.rounded = self.steps.iter().filter(is_rounded).count() as u64;
        // What the model holds where it differs is not what the allocator held.
        let tells = |step: &Step| matches!(step, Step::Refused { free_bytes, .. } if *free_bytes != FREE_IS_UNKNOWN);
        if !self.steps.iter().any(tells) {
            self.usable_bytes = None;
        }
    }

    /// Forgets a request, counted from 1, that the model answers in another way, and all that comes behind it. Says which way that is.
    pub fn keep_before(&mut self, number: u64) -> Stop {
        let is_request = |step: &Step| matches!(step, Step::Take { .. } | Step::Refused { .. });
        let requests = self.steps.iter().enumerate().filter(|(_, step)| is_request(step));
        let nth = usize::try_from(number.saturating_sub(1)).unwrap_or(usize::MAX);
        let at = requests.map(|(index, _)| index).nth(nth).unwrap_or(self.steps.len());
        let failed = matches!(self.steps.get(at), Some(Step::Refused { .. }));
        self.steps.truncate(at);
        if failed { Stop::FailureUnexplained } else { Stop::ModelDiffers }
    }

    /// Requests among the steps, those that failed included.
    pub fn requests_in_steps(&self) -> u64 {
        self.steps.iter().filter(|step| matches!(step, Step::Take { .. } | Step::Refused { .. })).count() as u64
    }
}

struct Reader<'a> {
    snapshot: &'a Snapshot,
    model: Allocator<Script>,
    history: History,
    /// Calls to the driver since the last step, with their stacks.
    calls: Vec<(Call, StackId, Owner)>,
    /// Blocks by recorded address.
    live: FxHashMap<u64, (u64, BlockId)>,
    waiting: FxHashMap<u64, (u64, BlockId)>,
    /// Blocks that do not wait any more since the last step.
    late: Vec<(u64, BlockId)>,
    next_key: u64,
    freeable: Vec<Owner>,
}

/// Reads the history of a device, and replays it with the settings that really were in force.
pub fn read(snapshot: &Snapshot, device: usize, policy: &Policy, card_bytes: u64, sizes: Sizes) -> History {
    let events = snapshot.device_traces.get(device).map_or(&[][..], Vec::as_slice);
    let mappings = events.iter().filter_map(call_of).filter(|call| call.kind == CallKind::Map);
    let mut model = Allocator::new(policy.clone(), Script::new(mappings.collect()), card_bytes);
    model.rounds = sizes == Sizes::Requested;
    let mut reader = Reader {
        snapshot,
        model,
        history: History { sizes, ..History::default() },
        calls: Vec::new(),
        live: FxHashMap::default(),
        waiting: FxHashMap::default(),
        late: Vec::new(),
        next_key: 0,
        freeable: Vec::new(),
    };
    reader.begin(&super::before::blocks_before(snapshot, device as u32, events));
    for (index, event) in events.iter().enumerate() {
        let steps = reader.history.steps.len();
        reader.event(event, events.get(index + 1));
        reader.note_agreement(steps);
    }
    let steps = reader.history.steps.len();
    reader.flush_calls();
    reader.complete_late();
    reader.note_agreement(steps);
    reader.history.compared = reader.model.driver.compared;
    reader.history.reserves = reader.model.driver.reserves.unwrap_or_default();
    reader.history
}

fn call_of(event: &Event) -> Option<Call> {
    let kind = match event.action {
        Action::SegmentAlloc => CallKind::Alloc,
        Action::SegmentFree => CallKind::Free,
        Action::SegmentMap => CallKind::Map,
        Action::SegmentUnmap => CallKind::Unmap,
        _ => return None,
    };
    let Event { address_or_free_bytes: address, size_bytes: bytes, stream, .. } = *event;
    Some(Call { kind, address, bytes, stream })
}

impl Reader<'_> {
    /// What lived before is asked for anew, in the order of the addresses. Its calls were not recorded.
    fn begin(&mut self, before: &[super::before::Lived]) {
        let mut before = before.to_vec();
        before.sort_unstable_by_key(|lived| lived.address);
        for lived in &before {
            let key = self.key();
            let (requested, stream, owner) = (lived.requested_bytes, lived.stream, lived.pool);
            if let Some(id) = self.model.allocate(requested, stream, owner) {
                self.live.insert(lived.address, (key, id));
            }
            self.history.before.push(Step::Take { key, requested, least: requested, stream, owner });
        }
        self.model.driver.compared = Match::default();
    }

    fn key(&mut self) -> u64 {
        self.next_key += 1;
        self.next_key
    }

    fn event(&mut self, event: &Event, next: Option<&Event>) {
        if let Some(call) = call_of(event) {
            self.calls.push((call, event.stack, event.pool));
            return;
        }
        match event.action {
            Action::Alloc => self.take(event),
            Action::Oom => self.refused(event),
            Action::FreeRequested => {
                self.flush_calls();
                self.complete_late();
                self.free(event, next);
            }
            // The request to come may have waited for it, and not found it free before.
            Action::FreeCompleted => self.late.extend(self.waiting.remove(&event.address_or_free_bytes)),
            _ => {}
        }
    }

    /// Notes the first step that the model makes in another way: up to it the number of steps is this.
    fn note_agreement(&mut self, steps: usize) {
        let history = &mut self.history;
        let differs = self.model.driver.compared.first_difference.is_some()
            || history.first_misplaced.is_some()
            || history.unknown_frees > 0;
        if differs {
            history.agreed_steps.get_or_insert(steps);
        }
    }

    fn push(&mut self, step: Step) {
        self.history.steps.push(step);
    }

    /// Calls that no request made: the cache was emptied.
    fn flush_calls(&mut self) {
        let calls = std::mem::take(&mut self.calls);
        if !calls.is_empty() {
            self.empty_cache(&calls);
        }
    }

    fn empty_cache(&mut self, calls: &[(Call, StackId, Owner)]) {
        self.note_freeable(calls);
        self.model.driver.expect(calls.iter().map(|(call, ..)| *call), false);
        self.model.release_cached();
        self.model.driver.step_is_over();
        self.push(Step::EmptyCache);
    }

    /// A private pool that gives memory back is in use no more.
    fn note_freeable(&mut self, calls: &[(Call, StackId, Owner)]) {
        for (call, _, owner) in calls {
            if call.kind.gives_back() && *owner != (0, 0) && !self.freeable.contains(owner) {
                self.freeable.push(*owner);
                self.model.is_freeable(*owner);
                self.push(Step::Freeable(*owner));
            }
        }
    }

    /// Separates what the program gave back before a request from what the request did itself.
    fn calls_of_request(&mut self, event: &Event, fails: bool) -> Vec<Call> {
        let calls = std::mem::take(&mut self.calls);
        let frees = calls.iter().take_while(|(call, ..)| call.kind.gives_back()).count();
        let takes_nothing = frees == calls.len() && !fails;
        let by_program = match frees {
            0 => 0,
            _ if takes_nothing => frees,
            _ => self.frees_by_program(&calls[..frees], event),
        };
        let (before, own) = calls.split_at(by_program);
        if !before.is_empty() {
            self.empty_cache(before);
        }
        self.note_freeable(own);
        own.iter().map(|(call, ..)| *call).collect()
    }

    fn frees_by_program(&mut self, frees: &[(Call, StackId, Owner)], event: &Event) -> usize {
        let stack = |id: StackId| self.snapshot.stacks.get(id as usize).map_or(&[][..], Vec::as_slice);
        let own = stack(event.stack);
        if !own.is_empty() && frees.iter().all(|(_, id, _)| !stack(*id).is_empty()) {
            return frees.iter().take_while(|(_, id, _)| stack(*id) != own).count();
        }
        // Without stacks: a request that could have been met from the cache did not empty it.
        let Event { size_bytes, stream, pool, .. } = *event;
        if self.model.has_cached(size_bytes, stream, pool) { frees.len() } else { 0 }
    }

    fn take(&mut self, event: &Event) {
        let calls = self.calls_of_request(event, false);
        self.complete_before(&calls, event);
        let Event { address_or_free_bytes: address, size_bytes: requested, stream, pool: owner, .. } = *event;
        let key = self.key();
        self.model.driver.expect(calls, false);
        let takes = self.model.sums.takes;
        let found = self.model.allocate(requested, stream, owner);
        self.model.driver.step_is_over();
        let is_fresh = self.model.sums.takes > takes;
        let least = match self.history.sizes {
            Sizes::Requested => requested,
            Sizes::OfBlocks => self.model.policy.least_request(requested, self.model.was_split, is_fresh),
        };
        self.history.rounded += u64::from(least < requested);
        self.history.requests += 1;
        if let Some(id) = found {
            let is_placed = self.model.address(id) == address;
            self.history.placed += u64::from(is_placed);
            if !is_placed {
                self.history.first_misplaced.get_or_insert(self.history.requests);
            }
            self.live.insert(address, (key, id));
        }
        self.push(Step::Take { key, requested, least, stream, owner });
        self.complete_late();
    }

    fn refused(&mut self, event: &Event) {
        let calls = self.calls_of_request(event, true);
        self.complete_before(&calls, event);
        let Event { size_bytes: requested, stream, pool: owner, address_or_free_bytes: free_bytes, time_us, .. } =
            *event;
        self.model.driver.expect(calls, true);
        if let Some(id) = self.model.allocate(requested, stream, owner) {
            self.model.free(id, None);
        }
        self.model.driver.step_is_over();
        self.model.driver.expect([], false);
        if free_bytes != FREE_IS_UNKNOWN {
            self.history.usable_bytes.get_or_insert(self.model.sums.reserved.saturating_add(free_bytes));
        }
        self.push(Step::Refused { requested, stream, owner, free_bytes, time_us });
        self.complete_late();
    }

    fn free(&mut self, event: &Event, next: Option<&Event>) {
        let address = event.address_or_free_bytes;
        let done = |next: &Event| next.action == Action::FreeCompleted && next.address_or_free_bytes == address;
        let waits = !next.is_some_and(done);
        let Some((key, id)) = self.live.remove(&address) else {
            self.history.unknown_frees += 1;
            return;
        };
        if waits {
            self.waiting.insert(address, (key, id));
        }
        self.model.free(id, waits.then_some(key));
        self.push(Step::Free { key, waits });
    }

    /// Blocks that do not wait any more.
    fn complete_late(&mut self) {
        for (key, id) in std::mem::take(&mut self.late) {
            self.model.completed(id, key);
            self.push(Step::Completed { key });
        }
    }

    /// The same before a request that made these calls: one that gave memory back may have waited for the blocks only
    /// after it had found none.
    fn complete_before(&mut self, calls: &[Call], event: &Event) {
        if self.late.is_empty() || !calls.first().is_some_and(|call| call.kind.gives_back()) {
            return self.complete_late();
        }
        let mut tried = self.model.clone();
        self.late.iter().for_each(|(key, id)| tried.completed(*id, *key));
        if !tried.has_cached(event.size_bytes, event.stream, event.pool) {
            self.complete_late();
        }
    }
}
