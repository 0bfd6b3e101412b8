//! Events become state: one pass over the records, memory that grows with what lives and not with what happened.

pub mod account;
pub mod accounts;
pub mod apis;
pub mod arena;
pub mod block;
pub mod failures;
pub mod internals;
pub mod live;
mod memory;
pub mod readings;
pub mod spacing;
pub mod spread;
#[cfg(test)]
mod tests;
pub mod timeline;
mod undo;
pub mod vmm;

use std::ops::ControlFlow;

use gpuoom_trace::clock::Clock;
use gpuoom_trace::columns::Batch;
use gpuoom_trace::header::{Header, end};
use gpuoom_trace::metadata::{self, Quantity, Reading, trigger};
use gpuoom_trace::outcome::{Because, Outcome};
use gpuoom_trace::payload;
use gpuoom_trace::reader::TraceFile;
use gpuoom_trace::record::{Event, GRANULES_SATURATED, Kind, NO_DEVICE, Record, flag, process};

use accounts::Accounts;
use apis::Apis;
use arena::Arena;
use block::Side;
use failures::{Evidence, Failures, Oom, RefusedBy};
use internals::Internals;
use live::LiveSet;
use readings::Readings;
use spread::Spread;
use timeline::Timeline;
use vmm::Vmm;

/// Where a replay stops.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Until {
    /// At the end of the trace.
    End,
    /// Right after the out-of-memory return with this number, counted from 1.
    Oom(u64),
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
}

impl Default for Options {
    fn default() -> Self {
        Options { granularity_bytes: None, until: Until::End }
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

    /// Whether the program ended with a failure of its own; signals by which others end a program are none.
    pub fn is_failure(self) -> bool {
        match self {
            End::Unknown => false,
            End::Exited(status) => status != 0,
            End::Signaled(signal) => ![libc::SIGKILL, libc::SIGTERM, libc::SIGINT, libc::SIGHUP].contains(&signal),
        }
    }
}

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
    /// Memory that vendor libraries hold for themselves.
    pub internals: Internals,
    /// Out-of-memory returns.
    pub failures: Failures,
    /// Numbers that the recorder read.
    pub readings: Readings,
    /// How the process ended.
    pub end: End,
    /// Durations of the program's allocation calls, in ticks.
    pub latency_ticks: Spread,
    /// Sizes that the program asked for, in bytes.
    pub sizes_bytes: Spread,
    /// Frees of addresses that are not known.
    pub unmatched_frees: u64,
    /// Frees whose call failed.
    pub failed_frees: u64,
    /// Return addresses by call site.
    pub sites: rustc_hash::FxHashMap<u32, u64>,
    /// Bytes of each device over time; followed only where somebody has put one here.
    pub timeline: Option<Timeline>,
    pools: rustc_hash::FxHashMap<u64, u8>,
    last_frees: undo::LastFrees,
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
            apis: Apis::new(&trace.metadata.apis),
            clock: trace.clock(),
            granularity_bytes,
            events: 0,
            last_at: 0,
            accounts: Accounts::new(&trace.metadata.devices, granularity_bytes),
            live: LiveSet::default(),
            vmm: Vmm::default(),
            internals: Internals::default(),
            failures: Failures::default(),
            readings: Readings::default(),
            end: End::of_header(&trace.header),
            latency_ticks: Spread::default(),
            sizes_bytes: Spread::default(),
            unmatched_frees: 0,
            failed_frees: 0,
            sites: rustc_hash::FxHashMap::default(),
            timeline: None,
            pools: rustc_hash::FxHashMap::default(),
            last_frees: undo::LastFrees::default(),
            recorded_granularity: granularity_bytes == recorded,
            until: options.until,
            stopped: false,
        }
    }

    /// Replays a batch. Breaks where the replay stops.
    pub fn batch(&mut self, batch: &Batch) -> ControlFlow<()> {
        for (record, payload) in batch.iter() {
            if self.until != Until::End && self.is_past(record) {
                self.stopped = true;
                return ControlFlow::Break(());
            }
            self.record(record, payload);
            if let Some(timeline) = &mut self.timeline {
                timeline.follow(record.at.saturating_add(u64::from(record.duration)), &mut self.accounts);
            }
        }
        ControlFlow::Continue(())
    }

    fn is_past(&self, record: &Record) -> bool {
        match self.until {
            Until::End => false,
            Until::Oom(number) => self.failures.count >= number,
            Until::Time(at_ns) => self.clock.at_ns(record.at.saturating_add(u64::from(record.duration))) > at_ns,
        }
    }

    #[inline]
    fn record(&mut self, record: &Record, payload: &[u8]) {
        if record.event() == Some(Event::Site) {
            self.sites.insert(record.site, record.address);
            return;
        }
        self.events += 1;
        self.last_at = self.last_at.max(record.at.saturating_add(u64::from(record.duration)));
        let own = record.is_programs_own();
        match record.event() {
            Some(Event::Alloc | Event::Pin) => self.allocation(record, payload, own),
            Some(Event::Free | Event::Unpin) => self.free(record),
            Some(Event::Map | Event::Unmap) => self.mapping(record, payload, own),
            Some(Event::Reserve | Event::Import) if own => self.reserve_or_import(record, payload),
            Some(Event::Reading) => self.reading(record, payload),
            Some(Event::Process) => self.process(record),
            Some(Event::Device) if own => self.device_event(record),
            _ => {}
        }
        if self.failures.is_watching() && own {
            self.failures.step(record);
        }
    }

    /// Takes note of an own allocation that was refused.
    #[cold]
    fn refused(&mut self, record: &Record, device: u8, granules: u32, lowest: Option<gpuoom_trace::record::Layer>) {
        let side = Side::of(record.kind());
        if let Some(account) = self.accounts.side_mut(side, device) {
            account.calls.failures += 1;
        }
        let api = self.apis.get(record.api);
        if !api.is_out_of_memory(record.status) {
            return;
        }
        let refused_by = match record.has(flag::INJECTED) {
            true => RefusedBy::Injected,
            false => RefusedBy::Layer(lowest.or(api.layer)),
        };
        let account = self.accounts.side_mut(side, device);
        let (held, holdings, model) = match account {
            Some(account) => {
                (account.held, Some(Box::new(account.holdings)), account.arena.as_ref().map(Arena::free_space))
            }
            None => Default::default(),
        };
        self.failures.begin(Oom {
            position: self.events,
            seq: record.seq(),
            at: record.at,
            thread: record.thread,
            api: record.api,
            device: (device != NO_DEVICE).then_some(device),
            kind: record.kind(),
            requested_bytes: record.requested,
            granules,
            status: record.status,
            refused_by,
            outcome: Outcome::Unresolved,
            because: Because::TraceEnded,
            evidence: Vec::new(),
            read: failures::ReadAtFailure::default(),
            held,
            holdings,
            internals: self.internals.of_device(device),
            model,
        });
    }

    fn reading(&mut self, record: &Record, payload: &[u8]) {
        let readings: Vec<Reading> = metadata::decode(payload::unpack(payload)).unwrap_or_default();
        for reading in &readings {
            self.readings.take(reading, record.at);
            if reading.quantity == Quantity::RuntimeTotal as u16 {
                let live = self.live.blocks_mut().chain(self.vmm.blocks_mut());
                self.accounts.total_known(reading.device, reading.value, self.events, live);
            }
        }
        if record.status == trigger::FAILURE
            && let Some(oom) = self.failures.by_seq(record.address)
        {
            let about = |reading: &&Reading| oom.device.is_none_or(|device| device == reading.device);
            let about: Vec<Reading> = readings.iter().filter(about).copied().collect();
            about.iter().for_each(|reading| oom.read.take(reading));
        }
    }

    fn process(&mut self, record: &Record) {
        self.end = match record.address {
            process::EXITS => End::Exited(record.status),
            process::SIGNALS => End::Signaled(record.status),
            _ => return,
        };
        let evidence = Evidence {
            at: record.at,
            seq: Some(record.seq()),
            event: Event::Process,
            api: None,
            status: record.status,
            asks_text: false,
        };
        self.failures.end(self.end.is_failure(), evidence);
    }

    /// Decides what the records left open. After the last batch.
    pub fn finish(&mut self) {
        if !self.stopped && self.end != End::Unknown && self.failures.is_watching() {
            let (End::Exited(status) | End::Signaled(status)) = self.end else { return };
            let (at, event) = (self.last_at, Event::Process);
            let evidence = Evidence { at, seq: None, event, api: None, status, asks_text: false };
            self.failures.end(self.end.is_failure(), evidence);
        }
        self.failures.close();
    }

    /// Blocks of a device that live now.
    pub fn blocks(&self, device: u8) -> impl Iterator<Item = &block::Block> {
        let of_device = move |block: &&block::Block| block.device == device && Side::of(block.kind) == Side::Device;
        self.live.blocks().chain(self.vmm.blocks()).filter(of_device)
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
        if self.recorded_granularity {
            return record.padded_granules;
        }
        u32::try_from(record.requested.div_ceil(self.granularity_bytes)).unwrap_or(GRANULES_SATURATED)
    }

    fn pool_device(&self, record: &Record, payload: &[u8]) -> u8 {
        if record.kind() != Kind::Pool || payload.is_empty() || self.pools.is_empty() {
            return record.device;
        }
        let pool = payload::unpack_numbers(payload).next();
        pool.and_then(|pool| self.pools.get(&pool).copied()).unwrap_or(record.device)
    }
}
