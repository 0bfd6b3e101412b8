//! Events become state: one pass over the records, memory that grows with what lives and not with what happened.

pub mod account;
pub mod accounts;
pub mod apis;
pub mod arena;
pub mod balance;
pub mod block;
pub mod blocks;
mod busy;
mod by_address;
pub mod census;
pub mod comparison;
pub mod contexts;
mod counters;
pub mod failures;
pub mod held;
pub mod live;
pub mod lower;
mod memory;
mod objects;
mod observed;
mod pins;
pub mod places;
pub mod purpose;
pub mod readings;
pub mod reservations;
mod resets;
mod shared;
pub mod sites;
pub mod spacing;
pub mod spread;
mod steps;
pub mod tally;
#[cfg(test)]
mod tests;
pub mod thread_names;
pub mod timeline;
mod told;
pub mod tracks;
mod undo;
pub mod unreached;
mod vain;
pub mod vmm;

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use gpuoom_trace::clock::Clock;
use gpuoom_trace::columns::Batch;
use gpuoom_trace::header::{Header, end};
use gpuoom_trace::payload;
use gpuoom_trace::reader::TraceFile;
use gpuoom_trace::record::{Event, GRANULES_SATURATED, Granule, Kind, NO_DEVICE, Record, mark, process};

use accounts::Accounts;
use apis::Apis;
use block::Side;
use blocks::Blocks;
use busy::Busy;
use census::Census;
use comparison::Comparisons;
use failures::below::Below;
use failures::{Evidence, Failures};
use live::LiveSet;
use lower::Lower;
use readings::Readings;
use reservations::Reservations;
use sites::Sites;
use spread::Spread;
use timeline::Timeline;
use tracks::{Tracks, saturate};
use unreached::Unreached;
use vmm::Vmm;

/// Blocks that are looked at to count who held what at failures. A trace with very many failures over very many blocks
/// says it for the first ones only.
const CENSUS_BLOCKS: u64 = 1 << 26;
/// Callers that are kept of all failures together, each with the way to its call.
const CENSUS_ROWS: usize = 1 << 22;

/// Where a replay stops.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Until {
    /// At the end of the trace.
    End,
    /// Right after the refusal with this number, counted from 1; attempts of errors count ([`failures::Oom::ordinal`]).
    Refusal(u64),
    /// Before the first call that returned later than this, in nanoseconds since the trace began.
    Time(u64),
}

/// How to replay.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Granule of the model; the recorded one where it is not given.
    pub granularity_bytes: Option<u64>,
    /// Where to stop.
    pub until: Until,
    /// The numbers that decide along the way.
    pub limits: tracks::Limits,
}

impl Default for Options {
    fn default() -> Self {
        Options { granularity_bytes: None, until: Until::End, limits: tracks::Limits::default() }
    }
}

/// How the process ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// Nobody saw it.
    Unknown,
    /// With an exit status.
    Exited(i32),
    /// By a signal.
    Signaled(i32),
}

impl End {
    fn of_header(header: &Header) -> Self {
        match header.end_kind {
            end::EXITED => End::Exited(header.end_code),
            end::SIGNALED => End::Signaled(header.end_code),
            _ => End::Unknown,
        }
    }

    /// `exited`, `signaled` or `unknown`, with the status or the signal.
    pub fn parts(self) -> (&'static str, Option<i32>, Option<i32>) {
        match self {
            End::Unknown => ("unknown", None, None),
            End::Exited(status) => ("exited", Some(status), None),
            End::Signaled(signal) => ("signaled", None, Some(signal)),
        }
    }

    /// Whether the program ended with a failure of its own; signals by which others end a program are none.
    pub fn is_failure(self) -> bool {
        match self {
            End::Unknown => false,
            End::Exited(status) => status != 0,
            End::Signaled(signal) => ![libc::SIGKILL, libc::SIGTERM, libc::SIGINT, libc::SIGHUP].contains(&signal),
        }
    }
}

/// The format's minor version since which captures, exports and modules are recorded whenever they come (FORMAT.md).
const RARE_SINCE_MINOR: u16 = 3;
/// The minor version of the format since when waits of all threads are kept.
const WAITS_SINCE_MINOR: u16 = 6;

/// The state of a trace after the records that were replayed.
pub struct Replay {
    /// Functions by number.
    pub apis: Apis,
    /// Ticks to nanoseconds.
    pub clock: Clock,
    /// Granule of the model.
    pub granularity_bytes: u64,
    /// Records replayed.
    pub events: u64,
    /// Latest moment that any record speaks of, in ticks.
    pub last_at: u64,
    /// The accounts of devices and host.
    pub accounts: Accounts,
    /// What lives.
    pub live: LiveSet,
    /// Physical memory and mappings.
    pub vmm: Vmm,
    /// Blocks of allocators above the runtime.
    pub blocks: Blocks,
    /// Inside which functions of a framework threads ask for memory.
    pub scopes: purpose::Scopes,
    /// What threads are called.
    pub thread_names: thread_names::ThreadNames,
    /// What lower layers hold, and what vendor libraries hold for themselves.
    pub lower: Lower,
    /// What was read, beside what the calls account for, by device.
    pub comparisons: BTreeMap<u8, Comparisons>,
    busy: Busy,
    /// Out-of-memory returns.
    pub failures: Failures,
    /// Refusals below calls that ask for no memory.
    pub below: Below,
    /// Numbers that the recorder read.
    pub readings: Readings,
    /// Reservations of addresses that were refused.
    pub reservations: Reservations,
    /// Calls that were to make memory reachable, and failed.
    pub unreached: Option<Unreached>,
    /// The process that had begun to record in the memory that this one was forked with. `None` also where the recorder did not say so
    /// yet (before 1.7).
    pub forked_from: Option<u32>,
    /// How the process ended.
    pub end: End,
    /// Durations of the program's allocation calls, in ticks.
    pub latency_ticks: Spread,
    /// Sizes that the program asked for, in bytes.
    pub sizes_bytes: Spread,
    /// Frees of addresses that are not known.
    pub unmatched_frees: u64,
    /// The same by function.
    pub unmatched_by: BTreeMap<u16, u64>,
    /// Frees of nothing for which the block around their address was looked for.
    looks_around: u32,
    in_vain: vain::InVain,
    /// Bytes that graphs were told to allocate when they run, by the program. It is no memory yet, and nobody says when it is.
    graph_bytes: u128,
    /// Times that memory of another process was opened.
    pub imports: u64,
    /// Frees whose call failed.
    pub failed_frees: u64,
    /// Call sites by number.
    pub sites: Sites,
    /// What is followed for the rules that explain failures.
    pub tracks: Tracks,
    /// Bytes of each device over time; followed only where somebody has put one here.
    pub timeline: Option<Timeline>,
    /// Pools, memory nodes of graphs, buffers of imported memory: named, with their device, and not counted.
    pools: rustc_hash::FxHashMap<u64, PoolPlace>,
    /// Pools that the program made, with properties of its own: a limit, a place, a sort of memory.
    pub made_pools: u64,
    counters: counters::Counters,
    objects: objects::Objects,
    contexts: contexts::Contexts,
    resets: resets::Resets,
    pins: pins::Pins,
    last_frees: undo::LastFrees,
    /// Bytes that lower layers gave inside the array call with this sequence number.
    inside_array: Option<(u64, u64)>,
    /// The last record of a stream-ordered allocation inside which layers below gave memory of one device, and that device.
    inside_pool: Option<(u64, u8)>,
    census_blocks_left: u64,
    census_rows_left: usize,
    recorded_granularity: bool,
    until: Until,
    stopped: bool,
}

impl Replay {
    /// The state before the first record of a trace.
    pub fn new(trace: &TraceFile, options: Options) -> Self {
        let recorded = trace.header.granularity_bytes;
        let granularity_bytes = options.granularity_bytes.unwrap_or(recorded).max(1);
        Replay {
            apis: Apis::new(&trace.metadata.apis, &trace.metadata.meanings),
            clock: trace.clock(),
            granularity_bytes,
            events: 0,
            last_at: 0,
            accounts: Accounts::new(&trace.metadata.devices, granularity_bytes),
            live: LiveSet::default(),
            vmm: Vmm::default(),
            blocks: Blocks::default(),
            scopes: purpose::Scopes::new(trace.is_whole()),
            thread_names: thread_names::ThreadNames::default(),
            lower: Lower::new(match &trace.metadata.devices[..] {
                [only] => Some(only.index),
                _ => None,
            }),
            comparisons: BTreeMap::new(),
            busy: Busy::default(),
            failures: Failures::new(options.limits.outcomes(), trace.is_whole()),
            below: Below::default(),
            readings: Readings::default(),
            reservations: Reservations::default(),
            unreached: None,
            forked_from: None,
            end: End::of_header(&trace.header),
            latency_ticks: Spread::default(),
            sizes_bytes: Spread::default(),
            unmatched_frees: 0,
            unmatched_by: BTreeMap::new(),
            looks_around: 0,
            in_vain: vain::InVain::default(),
            graph_bytes: 0,
            imports: 0,
            failed_frees: 0,
            sites: Sites::default(),
            tracks: Tracks::new(
                &trace.clock(),
                trace.header.minor >= RARE_SINCE_MINOR,
                trace.header.minor >= WAITS_SINCE_MINOR,
                options.limits,
            ),
            timeline: None,
            pools: rustc_hash::FxHashMap::default(),
            made_pools: 0,
            counters: counters::Counters::new(trace),
            objects: objects::Objects::default(),
            contexts: contexts::Contexts::default(),
            resets: resets::Resets::new(&trace.metadata.devices),
            pins: pins::Pins::default(),
            last_frees: undo::LastFrees::default(),
            inside_array: None,
            inside_pool: None,
            census_blocks_left: CENSUS_BLOCKS,
            census_rows_left: CENSUS_ROWS,
            recorded_granularity: granularity_bytes == recorded,
            until: options.until,
            stopped: false,
        }
    }

    /// Replays a batch. Breaks where the replay stops.
    pub fn batch(&mut self, batch: &Batch) -> ControlFlow<()> {
        self.batch_with(batch, |_, _| ())
    }

    /// The same for somebody who looks at the state after each record.
    #[inline]
    pub fn batch_with(&mut self, batch: &Batch, mut after: impl FnMut(&mut Replay, &Record)) -> ControlFlow<()> {
        for (record, payload) in batch.iter() {
            if self.until != Until::End && self.is_past(record) {
                self.stopped = true;
                return ControlFlow::Break(());
            }
            self.record(record, payload);
            if let Some(timeline) = &mut self.timeline {
                timeline.follow(record.at.saturating_add(u64::from(record.duration)), &mut self.accounts);
            }
            after(self, record);
        }
        ControlFlow::Continue(())
    }

    fn is_past(&self, record: &Record) -> bool {
        match self.until {
            Until::End => false,
            Until::Refusal(number) => self.failures.begun >= number,
            Until::Time(at_ns) => self.clock.at_ns(record.at.saturating_add(u64::from(record.duration))) > at_ns,
        }
    }

    #[inline]
    fn record(&mut self, record: &Record, payload: &[u8]) {
        match record.event() {
            Some(Event::Site) => {
                self.thread_names.came_to(record.site, record.thread);
                return self.sites.introduce(record, payload);
            }
            Some(Event::Thread) => return self.thread_names.names(record, payload),
            Some(Event::Context) => return self.contexts.enters(record.thread, record.address),
            Some(Event::Code) => return self.sites.name_code(record, payload),
            Some(Event::Library) => return self.sites.note_library(record, payload),
            Some(Event::Scope) => return self.scopes.enters(record.thread, payload),
            _ => {}
        }
        self.events += 1;
        let end = record.at.saturating_add(u64::from(record.duration));
        self.last_at = self.last_at.max(end);
        let failures = self.failures.count;
        match record.event() {
            // What these tell is nothing that happens to memory, or inside a call.
            Some(Event::Block | Event::BlockFree | Event::BlockUse) => {
                self.block_told(record, payload);
                if record.event() == Some(Event::Block) {
                    self.told_of_block(record);
                }
            }
            Some(Event::Message) => self.failures.message(record, payload),
            _ => self.record_of_calls(record, payload, end),
        }
        if self.failures.count != failures && self.blocks.is_used() {
            self.keep_at_failure();
        }
    }

    #[inline]
    fn record_of_calls(&mut self, record: &Record, payload: &[u8], end: u64) {
        self.tracks.recorded_at = end;
        let disturbs = self.busy.note(record, end);
        if disturbs {
            self.disturb(record);
        }
        let own = record.is_programs_own();
        let failures = self.failures.count;
        if self.lower.has_open() && record.call != 0 {
            self.close_open_calls(record);
        }
        match record.event() {
            Some(Event::Alloc | Event::Pin) => {
                // One call for both: with two of them the compiler keeps the body out of the pass over the events.
                let moved = self.lies_as(record, payload, own).map(|kind| with_kind(record, kind));
                self.allocation(moved.as_ref().unwrap_or(record), payload, own);
            }
            Some(Event::Free | Event::Unpin) => self.free(record),
            Some(Event::Map | Event::Unmap) => self.mapping(record, payload, own),
            Some(Event::Reserve | Event::Import) => self.reserve_or_import(record, payload, own),
            Some(Event::Module) => self.module(record, own),
            Some(Event::Reading) => self.reading(record, payload),
            Some(Event::Process) => self.process(record),
            Some(Event::Device) => self.device_event(record, own),
            Some(Event::Sync) if own => self.tracks.sync(record, payload, self.apis.get(record.api).does),
            Some(Event::Export) => self.export(record),
            Some(Event::Mark) => self.mark(record, payload),
            _ => {}
        }
        if self.below.is_open() && record.call != 0 {
            self.below.close(record, self.apis.get(record.api), self.failures.count != failures);
        }
        if self.blocks.is_used() {
            self.follow_below_blocks(end);
        }
        if disturbs {
            self.disturbed(record);
        }
        if self.failures.is_watching()
            && own
            && let Some(step) = self.step_of(record)
        {
            let does = self.apis.get(record.api).does;
            self.failures.step(record, step, Self::failed_pointer(record, payload), does);
        }
    }

    fn module(&mut self, record: &Record, own: bool) {
        self.tracks.module(record, self.apis.get(record.api).does);
        if self.apis.get(record.api).retains_primary {
            self.contexts.retained(record);
        }
        if own {
            self.set_up(record);
        }
    }

    #[cold]
    fn mark(&mut self, record: &Record, payload: &[u8]) {
        // The end of a range has no label.
        if matches!(record.status, mark::POP | mark::STOP) || !tracks::marks::is_programs(payload) {
            return;
        }
        self.keep_at_mark(record, payload);
        let held = self.accounts.devices().map(|(device, account)| (device, saturate(account.held.requested_bytes)));
        let held = held.collect();
        self.tracks.marked(record, payload, held);
    }

    fn process(&mut self, record: &Record) {
        self.end = match record.address {
            // Whoever waited for the process wrote of a signal that came behind this record, as from a destructor.
            process::EXITS if matches!(self.end, End::Signaled(_)) => self.end,
            process::EXITS => End::Exited(record.status),
            process::SIGNALS => End::Signaled(record.status),
            process::BEGAN => {
                let parent = u32::try_from(record.requested).ok();
                self.forked_from = parent.filter(|parent| *parent != 0);
                return;
            }
            _ => return,
        };
        let status = if let End::Signaled(signal) = self.end { signal } else { record.status };
        let evidence = Evidence::of_end(record.at, Some(record.seq()), status);
        self.failures.end(self.end.is_failure(), evidence);
    }

    /// Decides what the records left open. After the last batch.
    pub fn finish(&mut self) {
        self.tracks.finish();
        self.below.finish();
        self.blocks.look_back();
        self.comparisons.values_mut().for_each(Comparisons::settle);
        if !self.stopped && self.end != End::Unknown && self.failures.is_watching() {
            let (End::Exited(status) | End::Signaled(status)) = self.end else { return };
            self.failures.end(self.end.is_failure(), Evidence::of_end(self.last_at, None, status));
        }
        let places = self.failures.finish();
        if !places.is_empty() {
            self.tracks.renumber(&places);
        }
    }

    /// Whether no record was left out because the moment to stop at had come.
    pub fn went_to_the_end(&self) -> bool {
        !self.stopped
    }

    /// Blocks of a device that live now.
    pub fn blocks(&self, device: u8) -> impl Iterator<Item = &block::Block> {
        self.blocks_of(Side::Device, device)
    }

    /// Blocks of a device, or of the host, that live now.
    pub fn blocks_of(&self, side: Side, device: u8) -> impl Iterator<Item = &block::Block> {
        self.live.blocks().chain(self.vmm.blocks()).filter(move |block| census::is_of(block, side, device))
    }

    /// Who holds the memory of a device, or of the host, now.
    pub fn census(&self, side: Side, device: u8) -> Census {
        Census::take(self.blocks_of(side, device), self.lower.sums.of(side, device))
    }

    /// Mappings of a device that exist now.
    pub fn mappings(&self, device: u8) -> impl Iterator<Item = &block::Mapping> {
        self.vmm.mappings().filter(move |mapping| mapping.device == device)
    }

    /// Padded bytes of one request, saturated.
    pub fn padded_bytes(&self, granules: u32) -> u64 {
        match granules {
            GRANULES_SATURATED => u64::MAX,
            granules => u64::from(granules).saturating_mul(self.granularity_bytes),
        }
    }

    fn granules(&self, record: &Record) -> u32 {
        match self.recorded_granularity {
            true => record.padded_granules,
            false => self.granules_of(record.requested),
        }
    }

    fn granules_of(&self, bytes: u64) -> u32 {
        Granule::new(self.granularity_bytes).count(bytes)
    }

    /// The pool that stream-ordered memory comes from, by its number.
    #[inline]
    fn pool_number(&mut self, record: &Record, payload: &[u8]) -> tracks::pools::Number {
        if record.kind() != Kind::Pool || (self.pools.is_empty() && payload.is_empty()) {
            return 0;
        }
        match payload::unpack_numbers(payload).next() {
            Some(pool) => self.tracks.pools.number(pool),
            None => self.tracks.pools.chosen(record.device),
        }
    }

    fn pool_device(&self, record: &Record, payload: &[u8]) -> u8 {
        if record.kind() != Kind::Pool || payload.is_empty() || self.pools.is_empty() {
            return record.device;
        }
        let pool = payload::unpack_numbers(payload).next();
        pool.and_then(|pool| self.pools.get(&pool)).map_or(record.device, |place| place.device)
    }

    /// What an allocation counts as, where that is not what its function says: a buffer that moves, physical memory of the host, or a
    /// block of a pool whose memory is not the device's own.
    #[inline]
    fn lies_as(&self, record: &Record, payload: &[u8], own: bool) -> Option<Kind> {
        if own && self.apis.moves(record) {
            return Some(Kind::Managed);
        }
        match record.kind() {
            Kind::Pool | Kind::Physical if !payload.is_empty() => self.lies_elsewhere(record, payload),
            _ => None,
        }
    }

    #[cold]
    fn lies_elsewhere(&self, record: &Record, payload: &[u8]) -> Option<Kind> {
        let kind = match record.kind() {
            Kind::Physical if record.device == NO_DEVICE => PoolPlace::of(record, payload).kind,
            Kind::Physical => return None,
            _ => self.pools.get(&payload::unpack_numbers(payload).next()?)?.kind,
        };
        Some(kind).filter(|kind| *kind != Kind::Pool)
    }
}

fn with_kind(record: &Record, kind: Kind) -> Record {
    Record { kind_flags: record.kind_flags & 0xF0 | kind as u8, ..*record }
}

/// Where the memory of a pool or of a handle lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct PoolPlace {
    /// Device, as recorded.
    device: u8,
    /// What its blocks are: [`Kind::Pool`] on a device, else pinned host memory or managed memory.
    kind: Kind,
}

impl PoolPlace {
    /// As the record of the pool or the handle says: {sort of allocation, sort of place}, as CUDA and HIP number them, where they
    /// are not the usual ones. (`cudaMemAllocationType`, `cudaMemLocationType`: driver_types.h of 13.5; `hipMemAllocationType`, `hipMemLocationType`.)
    fn of(record: &Record, payload: &[u8]) -> Self {
        const MANAGED: u64 = 2;
        const HOST: std::ops::RangeInclusive<u64> = 2..=4;
        let mut numbers = payload::unpack_numbers(payload);
        let kind = match (numbers.next(), numbers.next()) {
            (Some(MANAGED), _) => Kind::Managed,
            (_, Some(place)) if HOST.contains(&place) => Kind::HostPinned,
            _ => Kind::Pool,
        };
        PoolPlace { device: record.device, kind }
    }
}
