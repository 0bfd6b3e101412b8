//! Refusals for want of memory below calls that ask for none: code that is loaded, queues, what a library sets up for itself. Such a
//! call may fail with a status that says nothing of memory, so the refusal inside is all that tells. So it is of a call that asks for
//! memory, succeeds and gives none: pools of HIP 5 do (ROCm/hip#3223).
//!
//! What is made up for is no failure: a call that succeeds covers what was refused inside it, and memory that the same layer gives
//! after a refusal, elsewhere, covers that refusal.

use gpuoom_trace::record::{Event, Kind, Layer, Record, flag};
use rustc_hash::FxHashMap;

use crate::replay::apis::Api;

/// Refused calls that are remembered for a thread.
const MAX_OPEN: usize = 64;
/// Threads that are followed.
const MAX_THREADS: usize = 1 << 16;

/// A refusal for want of memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// Ordinal of the call within its thread.
    call: u32,
    /// Ticks when it began.
    pub at: u64,
    /// Its layer.
    pub layer: Layer,
    /// Function.
    pub api: u16,
    /// What it returned.
    pub status: i32,
    /// Bytes asked for; 0 where they are not told.
    pub requested_bytes: u64,
    /// Kind of memory.
    pub kind: Kind,
    /// Device, where it is known.
    pub device: Option<u8>,
}

/// A call that failed, or gave no memory, with a refusal inside it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FailedAround {
    /// Ordinal of the call within its thread.
    call: u32,
    /// Function.
    pub api: u16,
    /// What it returned.
    pub status: i32,
    /// The first of the lowest refusals inside it.
    pub refusal: Refusal,
}

/// One thread's refusals, until the call that encloses all is over.
#[derive(Clone, Debug, Default)]
struct Open {
    refusals: Vec<Refusal>,
    failed: Vec<FailedAround>,
}

/// All of a trace.
#[derive(Clone, Debug, Default)]
pub struct Below {
    threads: FxHashMap<u32, Open>,
    /// The first call that failed so.
    pub first: Option<FailedAround>,
    /// How many did.
    pub count: u64,
}

/// Whether `inner`, which was recorded before `outer`, lies inside it.
fn lies_inside(inner: u32, outer: u32) -> bool {
    inner.wrapping_sub(outer) as i32 > 0
}

impl Below {
    /// A call inside another was refused, or failed for another reason.
    #[cold]
    pub(in crate::replay) fn refused(&mut self, record: &Record, api: &Api) {
        let Some(layer) = api.layer.filter(|_| api.is_out_of_memory(record.status)) else { return };
        if self.threads.len() >= MAX_THREADS && !self.threads.contains_key(&record.thread) {
            return;
        }
        let refusals = &mut self.threads.entry(record.thread).or_default().refusals;
        if refusals.len() < MAX_OPEN {
            refusals.push(Refusal {
                call: record.call,
                at: record.at,
                layer,
                api: record.api,
                status: record.status,
                requested_bytes: record.requested,
                kind: record.kind(),
                device: record.device(),
            });
        }
    }

    /// Whether [`Below::close`] must be asked after a call's record.
    #[inline]
    pub(in crate::replay) fn is_open(&self) -> bool {
        !self.threads.is_empty()
    }

    /// A call's record came, after [`Below::refused`] if it was refused itself. `is_counted`: it is one of the failures that are listed.
    #[cold]
    pub(in crate::replay) fn close(&mut self, record: &Record, api: &Api, is_counted: bool) {
        let Some(open) = self.threads.get_mut(&record.thread) else { return };
        let asks = matches!(record.event(), Some(Event::Alloc | Event::Pin));
        let sets_up = matches!(record.event(), Some(Event::Module | Event::Reserve | Event::Import | Event::Map));
        let has_failed = record.status != 0 && !record.has(flag::CORRECTION);
        // HIP calls a registration that the kernel has no memory for an invalid value.
        let is_otherwise_failed = asks && has_failed && !is_counted && record.is_outermost();
        let gave_nothing = asks && record.status == 0 && record.address == 0 && record.requested > 0;
        if (asks || sets_up) && !has_failed && !gave_nothing {
            open.made_up_for(record, api.layer.filter(|_| asks));
        } else if (sets_up && !is_counted) || gave_nothing || is_otherwise_failed {
            open.failed_around(record, api.layer);
        }
        if record.is_outermost() {
            // A failure around them that is listed is told as what it is.
            let failed = self.threads.remove(&record.thread).unwrap_or_default().failed;
            let counts =
                |one: &&FailedAround| !(is_counted && (one.call == record.call || lies_inside(one.call, record.call)));
            failed.iter().filter(counts).for_each(|one| self.count(*one));
        }
    }

    /// Nothing follows: what encloses the rest never returned.
    pub(in crate::replay) fn finish(&mut self) {
        let mut left: Vec<FailedAround> = self.threads.drain().flat_map(|(_, open)| open.failed).collect();
        left.sort_by_key(|one| one.refusal.at);
        left.into_iter().for_each(|one| self.count(one));
    }

    fn count(&mut self, one: FailedAround) {
        self.count += 1;
        self.first.get_or_insert(one);
    }
}

impl Open {
    /// A call succeeded; `gave`: the layer at which it gave memory.
    fn made_up_for(&mut self, record: &Record, gave: Option<Layer>) {
        let has_replaced =
            |one: &Refusal| gave == Some(one.layer) && one.requested_bytes <= record.requested && record.address != 0;
        self.refusals.retain(|one| !lies_inside(one.call, record.call) && !has_replaced(one));
        self.failed.retain(|one| !lies_inside(one.call, record.call));
    }

    /// A call failed that asked for no memory itself, or gave none although it says that it succeeded.
    fn failed_around(&mut self, record: &Record, layer: Option<Layer>) {
        let is_told = self.failed.iter().any(|one| lies_inside(one.call, record.call));
        let inside = self.refusals.iter().filter(|one| lies_inside(one.call, record.call) && Some(one.layer) > layer);
        // Of several of a layer the last is the maximum: so the other way round.
        let lowest = inside.rev().max_by_key(|one| one.layer).copied();
        let Some(refusal) = lowest.filter(|_| !is_told && self.failed.len() < MAX_OPEN) else { return };
        self.failed.push(FailedAround { call: record.call, api: record.api, status: record.status, refusal });
    }
}

#[cfg(test)]
mod tests {
    use gpuoom_trace::record::{Event, Kind, NO_DEVICE, Record, flag};

    use crate::replay::{Options, Replay};
    use crate::testing::{GIB, MIB, TraceBuilder, replay};

    const KFD: &str = "AMDKFD_IOC_ALLOC_MEMORY_OF_GPU";
    const HSA: &str = "hsa_amd_memory_pool_allocate";
    const LOAD: &str = "hsa_executable_load_agent_code_object";
    const NO_MEMORY: i32 = 12;
    const OUT_OF_RESOURCES: i32 = 0x1008;

    /// Calls inside each other or one after the other, each with its distance from the outermost.
    struct Calls {
        trace: TraceBuilder,
        outer: Option<Record>,
    }

    impl Calls {
        fn new() -> Self {
            Calls { trace: TraceBuilder::default().device(0, "card", 16 * GIB), outer: None }
        }

        fn inside(mut self, event: Event, kind: Kind, api: &str) -> Self {
            self.outer = Some(self.trace.record(event, kind, api));
            self
        }

        /// A call for memory inside the outermost one that is under way.
        fn asks(mut self, api: &str, kind: Kind, status: i32) -> Self {
            let record = self.trace.record(Event::Alloc, kind, api);
            let outer = self.outer.expect("a call under way");
            let address = if status == 0 { 0x4321_0000_0000 + u64::from(record.call) } else { 0 };
            let parent_distance = (record.call - outer.call) as u16;
            self.trace.push(Record { parent_distance, status, address, requested: MIB, ..record }, &[]);
            self
        }

        /// The outermost call asks for so much itself.
        fn wants(mut self, bytes: u64) -> Self {
            let outer = self.outer.take().expect("a call under way");
            self.outer = Some(Record { requested: bytes, ..outer });
            self
        }

        fn returns(mut self, status: i32, flags: u8) -> Self {
            let outer = self.outer.take().expect("a call under way");
            self.trace.push(Record { status, kind_flags: outer.kind_flags | flags, ..outer }, &[]);
            self
        }

        fn replay(&self) -> Replay {
            replay(&self.trace, Options::default())
        }

        fn count(&self) -> u64 {
            self.replay().below.count
        }
    }

    fn load() -> Calls {
        Calls::new().inside(Event::Module, Kind::Code, LOAD)
    }

    #[test]
    fn code_that_finds_no_memory_was_refused_it() {
        let calls = load().asks(KFD, Kind::Device, NO_MEMORY).asks(KFD, Kind::Device, NO_MEMORY);
        let replay = calls.returns(OUT_OF_RESOURCES, flag::FROM_RUNTIME).replay();
        assert_eq!((replay.below.count, replay.failures.count, replay.lower.failures), (1, 0, 0));
        let one = replay.below.first.expect("the load");
        assert_eq!((replay.apis.get(one.api).name.as_str(), one.status), (LOAD, OUT_OF_RESOURCES));
        let refusal = one.refusal;
        assert_eq!((replay.apis.get(refusal.api).name.as_str(), refusal.status), (KFD, NO_MEMORY));
        assert_eq!((refusal.requested_bytes, refusal.device), (MIB, Some(0)));
    }

    /// "No kernel image" says nothing of memory.
    #[test]
    fn a_status_that_is_about_something_else_hides_no_refusal() {
        let calls = Calls::new().inside(Event::Module, Kind::Code, "hipModuleLoadData");
        assert_eq!(calls.asks(HSA, Kind::Device, OUT_OF_RESOURCES).returns(209, 0).count(), 1);
    }

    #[test]
    fn what_is_made_up_for_is_no_failure() {
        let refused = || load().asks(KFD, Kind::Device, NO_MEMORY);
        assert_eq!(refused().returns(0, flag::FROM_RUNTIME).count(), 0, "the call succeeded");
        let elsewhere = refused().asks(KFD, Kind::HostPinned, 0);
        assert_eq!(elsewhere.returns(1, flag::FROM_RUNTIME).count(), 0, "memory came from elsewhere");
        let queue = Calls::new().inside(Event::Reserve, Kind::Queue, "hsa_queue_create");
        let queue = queue.asks(KFD, Kind::Device, NO_MEMORY).asks(KFD, Kind::HostPinned, 0);
        assert_eq!(queue.returns(0, flag::FROM_RUNTIME).count(), 0);
    }

    #[test]
    fn other_failures_inside_are_none_of_memory() {
        let invalid = load().asks(KFD, Kind::Device, 22);
        assert_eq!(invalid.returns(OUT_OF_RESOURCES, flag::FROM_RUNTIME).count(), 0);
        assert_eq!(load().returns(OUT_OF_RESOURCES, flag::FROM_RUNTIME).count(), 0, "nobody refused");
    }

    #[test]
    fn a_failed_allocation_is_told_as_what_it_is() {
        let calls = Calls::new().inside(Event::Alloc, Kind::Device, "hipMalloc");
        let replay = calls.asks(KFD, Kind::Device, NO_MEMORY).returns(2, 0).replay();
        assert_eq!((replay.below.count, replay.failures.count), (0, 1));
    }

    #[test]
    fn a_registration_that_is_called_invalid_hides_no_refusal() {
        const INVALID_VALUE: i32 = 1;
        let register = || Calls::new().inside(Event::Pin, Kind::Registered, "hipHostRegister").wants(GIB);
        let replay = register().asks(KFD, Kind::Registered, NO_MEMORY).returns(INVALID_VALUE, 0).replay();
        assert_eq!((replay.below.count, replay.failures.count), (0, 1), "it is a failure of its own");
        let replay = register().returns(INVALID_VALUE, 0).replay();
        assert_eq!((replay.below.count, replay.failures.count), (0, 0), "nobody refused");
    }

    /// Success and null, from a pool of HIP 5.
    #[test]
    fn a_success_that_gives_no_memory_hides_no_refusal() {
        let pool = || Calls::new().inside(Event::Alloc, Kind::Pool, "hipMallocFromPoolAsync").wants(GIB);
        let replay = pool().asks(KFD, Kind::Device, NO_MEMORY).returns(0, 0).replay();
        assert_eq!((replay.below.count, replay.failures.count), (1, 0));
        assert_eq!(replay.below.first.expect("the call").status, 0);
        assert_eq!(pool().asks(KFD, Kind::Device, 0).returns(0, 0).count(), 0, "nobody refused");
    }

    /// A refusal in a free, whose record comes first, is inside no later call.
    #[test]
    fn calls_one_after_the_other_have_nothing_to_do_with_each_other() {
        let calls = Calls::new().inside(Event::Free, Kind::Device, "hipFree");
        let mut calls = calls.asks(KFD, Kind::Device, NO_MEMORY);
        calls.outer = None;
        let calls = calls.inside(Event::Module, Kind::Code, LOAD);
        assert_eq!(calls.returns(OUT_OF_RESOURCES, flag::FROM_RUNTIME).count(), 0);
    }

    /// The program ended inside the call around it.
    #[test]
    fn what_never_returned_tells_what_was_refused_inside() {
        let mut calls = Calls::new().inside(Event::Module, Kind::Code, "hipModuleLoad");
        let outer = calls.outer.expect("a call under way");
        let load = calls.trace.record(Event::Module, Kind::Code, LOAD);
        calls = calls.asks(KFD, Kind::Device, NO_MEMORY);
        let distance = (load.call - outer.call) as u16;
        let device = NO_DEVICE;
        calls.trace.push(Record { parent_distance: distance, status: OUT_OF_RESOURCES, device, ..load }, &[]);
        assert_eq!(calls.count(), 1);
    }
}
