//! What is followed while a trace is replayed, so that rules can look at it afterwards: bytes over time, calls, retries,
//! labels, and what was the case around failures. Memory is bounded, whatever the trace holds.

pub mod around;
pub mod between;
pub mod calls;
pub mod captures;
pub mod device;
pub mod ends;
pub mod exports;
mod limits;
pub mod marks;
pub mod modules;
pub mod moves;
mod orders;
pub mod pools;
pub mod reads;
pub mod retries;
pub mod series;
pub mod survivors;
#[cfg(test)]
mod tests;
pub mod unknown;
pub mod waits;

use gpuoom_trace::clock::Clock;
use gpuoom_trace::record::{Event, Kind, NO_DEVICE, Record, flag};

use super::block::{Block, Side, Space};
use super::failures::framework::Place;
use super::readings::DeviceReadings;
use super::sites::Sites;
use around::{AllAround, Around, AsyncFrees, Next};
use between::Done;
use calls::{Call, Calls, What};
use captures::Captures;
pub use device::DeviceTrack;
use exports::Exports;
pub use limits::{LARGE_FREE_BYTES, Limits};
use marks::Marks;
use modules::Modules;
use moves::{Move, Moves};
use pools::Pools;
use reads::Read;
use retries::Retries;
use survivors::Survivors;
use unknown::Unknown;
use waits::{Waited, Waits};

/// Blocks that are looked at for failures before any call was seen, and for each eight calls one more.
const FREE_LOOKS: u64 = 1 << 20;
/// Place of the host among the tracks of devices.
const HOST: usize = 256;

/// Everything that is followed.
#[derive(Clone, Debug)]
pub struct Tracks {
    devices: Vec<Option<Box<DeviceTrack>>>,
    /// The program's calls for memory.
    pub calls: Calls,
    /// Labels.
    pub marks: Marks,
    /// Failures that were tried again.
    pub retries: Retries,
    /// What was around failures.
    pub around: AllAround,
    /// Loaded code.
    pub modules: Modules,
    pub(super) pools: Pools,
    /// The most that was reserved for the memory nodes of graphs, where the program read it, in bytes.
    pub graph_reserved: Option<u64>,
    captures: Captures,
    exports: Exports,
    moves: Moves,
    /// Whether the recorder keeps captures, exports and modules, and not only what comes after a failure.
    keeps_rare: bool,
    async_frees: AsyncFrees,
    waits: Waits,
    looked_at: u64,
    pending_ticks: u64,
    retry_ticks: u64,
    /// When the call was recorded that is being taken in, in ticks.
    pub(super) recorded_at: u64,
    large_free_bytes: u64,
    much_released_bytes: u64,
    /// What was done on all devices at once.
    done: Done,
}

impl Tracks {
    /// Nothing yet. `keeps_rare`: the recorder kept captures, exports and modules whenever they came; `keeps_waits`: and of the
    /// waits of all threads those that say something.
    pub fn new(clock: &Clock, keeps_rare: bool, keeps_waits: bool, limits: Limits) -> Self {
        Tracks {
            devices: vec![None; HOST + 1],
            calls: Calls::default(),
            marks: Marks::default(),
            retries: Retries::new(ticks_of(clock, limits.retry_ns), &limits),
            around: AllAround::default(),
            modules: Modules::new(keeps_rare),
            pools: Pools::default(),
            graph_reserved: None,
            captures: Captures::default(),
            exports: Exports::default(),
            moves: Moves::default(),
            keeps_rare,
            async_frees: AsyncFrees::default(),
            waits: Waits::new(keeps_waits),
            looked_at: 0,
            pending_ticks: ticks_of(clock, limits.pending_ns),
            retry_ticks: ticks_of(clock, limits.retry_ns),
            recorded_at: 0,
            large_free_bytes: limits.large_free_bytes,
            much_released_bytes: limits.much_released_bytes,
            done: Done::default(),
        }
    }

    /// The track of a device.
    pub fn device(&self, device: u8) -> Option<&DeviceTrack> {
        self.devices[usize::from(device)].as_deref()
    }

    /// The track of the host's pinned and registered memory.
    pub fn host(&self) -> Option<&DeviceTrack> {
        self.devices[HOST].as_deref()
    }

    /// The devices that have a track, by number.
    pub fn devices(&self) -> impl Iterator<Item = (u8, &DeviceTrack)> {
        (0..=u8::MAX).zip(&self.devices).filter_map(|(device, track)| Some((device, track.as_deref()?)))
    }

    /// What was done on a device so far.
    pub(super) fn done(&self, device: u8) -> Done {
        let own = self.device(device).map_or_else(Done::default, |track| track.done);
        let all = &self.done;
        Done {
            waits: own.waits + all.waits,
            loads: all.loads,
            releases: own.releases + all.releases,
            ends: own.ends + all.ends,
            returned_host_bytes: self.host().map_or(0, |track| track.done.returned_bytes),
            ..own
        }
    }

    #[inline]
    fn track(&mut self, side: Side, device: u8) -> &mut DeviceTrack {
        let place = if side == Side::Host { HOST } else { usize::from(device) };
        // Out of line, because this is called for every event, and a track is large.
        self.devices[place].get_or_insert_with(new_track)
    }

    /// The program was given a block; `held_bytes` is what the account then holds.
    #[inline]
    pub(super) fn given(&mut self, block: &Block, thread: u32, held_bytes: u128) {
        let side = Side::of(block.kind);
        let (at, bytes, device) = (block.at, block.requested_bytes, block.device);
        let track = self.track(side, device);
        track.live.follow(at, saturate(held_bytes), bytes);
        track.done.given_bytes = track.done.given_bytes.saturating_add(bytes);
        track.done.given_blocks += 1;
        self.calls.push(call(block, thread, at, What::Given));
        self.moved(block, thread, false);
        self.captures.given(block, thread);
        if matches!(block.kind, Kind::Pool | Kind::Physical) {
            self.given_apart(block);
        }
        if self.retries.is_watching(at) {
            self.retries.given(thread, device, bytes, at);
        }
        if self.around.is_waiting() {
            // Without what this call itself was given.
            let mut done = self.done(device);
            done.given_bytes = done.given_bytes.saturating_sub(bytes);
            done.given_blocks = done.given_blocks.saturating_sub(1);
            let next = Next {
                api: block.api,
                site: block.site,
                kind: block.kind,
                at,
                requested_bytes: bytes,
                device,
                succeeded: true,
                same_variable: false,
                done,
            };
            self.around.asked(thread, next, &self.waits);
        }
    }

    /// Memory of pools and physical memory have sums of their own.
    fn given_apart(&mut self, block: &Block) {
        let bytes = block.requested_bytes;
        let track = self.track(Side::Device, block.device);
        if block.kind == Kind::Physical {
            track.vmm_created_bytes = track.vmm_created_bytes.saturating_add(bytes);
            return track.reads.created(bytes);
        }
        self.pools.given(block.pool, block.device, bytes);
        let pool = &mut self.track(Side::Device, block.device).pool;
        pool.given += 1;
        pool.given_bytes = pool.given_bytes.saturating_add(bytes);
        pool.largest_bytes = pool.largest_bytes.max(bytes);
        pool.peak_bytes = pool.peak_bytes.max(pool.given_bytes.saturating_sub(pool.returned_bytes));
    }

    /// The program gave a block back.
    #[inline]
    pub(super) fn returned(&mut self, block: &Block, record: &Record, held_bytes: u128) {
        let side = Side::of(block.kind);
        let (bytes, device) = (block.requested_bytes, block.device);
        let large_free_bytes = self.large_free_bytes;
        let track = self.track(side, device);
        track.live.follow(record.at, saturate(held_bytes), 0);
        track.reads.fell_to(saturate(held_bytes));
        track.done.returned_bytes = track.done.returned_bytes.saturating_add(bytes);
        if bytes > large_free_bytes && track.first_large_free_at.is_none() {
            track.first_large_free_at = Some(record.at);
        }
        let of_free =
            Call { site: record.site, api: record.api, ..call(block, record.thread, record.at, What::Returned) };
        self.calls.push(of_free);
        self.moved(block, record.thread, true);
        self.captures.returned(block);
        if let Some(bytes) = self.exports.returned(block) {
            self.track(side, device).reads.freed_exported(bytes);
        }
        match (block.kind, record.kind()) {
            // What a reset takes away was not released: how well a release works it does not show.
            (Kind::Physical, _) if record.event() == Some(Event::Device) => {}
            (Kind::Physical, _) => self.track(side, device).reads.released(bytes),
            (Kind::Pool, _) => self.returned_to_pool(block, record),
            // A plain free waits for the device.
            (Kind::Device, Kind::Device) => self.async_frees.synchronised(device),
            _ => {}
        }
        if self.retries.is_watching(record.at) {
            self.retries.returned(record.thread, block, record.at);
        }
    }

    fn returned_to_pool(&mut self, block: &Block, record: &Record) {
        self.pools.returned(block.pool, block.device, block.requested_bytes);
        let track = self.track(Side::Device, block.device);
        let done = &mut track.done;
        done.returned_to_pools_bytes = done.returned_to_pools_bytes.saturating_add(block.requested_bytes);
        let pool = &mut track.pool;
        pool.returned += 1;
        pool.returned_bytes = pool.returned_bytes.saturating_add(block.requested_bytes);
        if record.kind() == Kind::Pool {
            self.async_frees.push(record, block);
        }
    }

    /// The bytes of an account changed without a call of the program: a free that failed, a reset.
    pub(super) fn changed(&mut self, side: Side, device: u8, at: u64, held_bytes: u128) {
        let track = self.track(side, device);
        track.live.follow(at, saturate(held_bytes), 0);
        track.reads.fell_to(saturate(held_bytes));
        if side == Side::Device && held_bytes == 0 {
            self.captures.forget(device);
        }
    }

    /// A label.
    pub(super) fn marked(&mut self, record: &Record, payload: &[u8], held_bytes: Vec<(u8, u64)>) {
        self.marks.push(record, payload, self.calls.count(), held_bytes);
    }

    /// Whether the recorder kept waits of all threads, so that [`Around::waited_since_free`] and [`Around::waited_before_next`]
    /// are known.
    ///
    /// # Errors
    /// The trace is of a recorder that kept waits only after a failure.
    pub fn waits_are_kept(&self) -> Result<(), Unknown> {
        if self.waits.are_kept { Ok(()) } else { Err(Unknown::Synchronisations) }
    }

    /// Stream captures.
    ///
    /// # Errors
    /// The trace is of a recorder that did not keep them.
    pub fn captures(&self) -> Result<&Captures, Unknown> {
        if self.keeps_rare { Ok(&self.captures) } else { Err(Unknown::Captures) }
    }

    /// Memory that other processes may open.
    ///
    /// # Errors
    /// The trace is of a recorder that did not keep exports.
    pub fn exports(&self) -> Result<&Exports, Unknown> {
        if self.keeps_rare { Ok(&self.exports) } else { Err(Unknown::IpcExports) }
    }

    /// A request ran out of memory. Keeps the calls that led to it.
    pub(super) fn refused(&mut self, record: &Record, device: u8, around: Around) {
        self.calls.keep();
        let (bytes, at) = (record.requested, record.at);
        if self.around.is_waiting() {
            let done = self.done(device);
            let next = Next {
                api: record.api,
                site: record.site,
                kind: record.kind(),
                at,
                requested_bytes: bytes,
                device,
                succeeded: false,
                same_variable: record.has(flag::SAME_VARIABLE),
                done,
            };
            self.around.asked(record.thread, next, &self.waits);
        }
        if bytes > 0 {
            self.retries.refused(around.failure, record.thread, device, bytes, at);
        }
        self.note_around(record, device, around);
        let (thread, site, api) = (record.thread, record.site, record.api);
        let (is_of_pool, what) = (record.kind() == Kind::Pool, What::Refused);
        let is_managed = record.kind() == Kind::Managed;
        self.calls.push(Call { at, bytes, address: 0, thread, site, api, device, is_of_pool, is_managed, what });
    }

    /// An allocator above the runtime raised an error without a refusal: no call for memory failed.
    pub(super) fn raised(&mut self, record: &Record, device: u8, around: Around) {
        self.calls.keep();
        self.note_around(record, device, around);
    }

    fn note_around(&mut self, record: &Record, device: u8, around: Around) {
        let pending = self.async_frees.since(record.at.saturating_sub(self.pending_ticks), device, &self.pools);
        let done = self.done(device);
        let until_read = self.overlap(device, Some(record.thread), record.at);
        // Whoever is refused has returned from what it freed.
        self.moves.push(Move { device, thread: record.thread, recorded_at: self.recorded_at, ..Move::default() });
        let waited_since_free = match self.async_frees.last(device) {
            Some(seq) => self.waits.since(seq, device),
            None => Waited::Unknown,
        };
        let read_before = self.device(device).and_then(|track| track.reads.last);
        let captured = self.keeps_rare.then(|| self.captures.on(device, record.thread));
        let pooled = self.keeps_rare.then(|| self.pools.on(device, record.thread, around.pool));
        let exported_freed_bytes = self.keeps_rare.then_some(self.exports.freed_bytes);
        let calls_before = self.calls.count();
        self.around.push(Around {
            pending,
            waited_since_free,
            read_before,
            captured,
            pooled,
            exported_freed_bytes,
            calls_before,
            done,
            until_read,
            moves_before: self.moves.count(),
            ..around
        });
    }

    /// The failures are elsewhere in their list from now on, or are attempts of another one.
    pub(super) fn renumber(&mut self, places: &[Place]) {
        self.around.renumber(places);
        self.retries.renumber(places);
    }

    /// What lives, grouped, unless that many blocks were looked at too often already.
    pub(super) fn survivors<'a>(
        &mut self,
        count: u64,
        blocks: impl Iterator<Item = &'a Block>,
        sites: &Sites,
        now: u64,
    ) -> Option<Box<Survivors>> {
        self.may_look_at(count).then(|| Box::new(Survivors::of(blocks, sites, self.first_at(), now)))
    }

    /// Whether that many blocks may be looked at: the work of a replay is bounded, whatever the trace holds.
    pub(super) fn may_look_at(&mut self, count: u64) -> bool {
        let looked_at = self.looked_at + count;
        let may = looked_at <= FREE_LOOKS + self.calls.count() / 8;
        if may {
            self.looked_at = looked_at;
        }
        may
    }

    /// Ticks of the program's first call for memory.
    pub fn first_at(&self) -> u64 {
        self.calls.first().first().map_or(0, |call| call.at)
    }

    /// The recorder's readings of a failure were done.
    pub(super) fn failure_read(&mut self, failure: usize, at: u64) {
        self.retries.read_at(failure, at);
    }

    /// A device was read.
    pub(super) fn read(&mut self, device: u8, of_failure: Option<u64>, read: Read) {
        if device == NO_DEVICE || read.read == DeviceReadings::default() {
            return;
        }
        let much_released_bytes = self.much_released_bytes;
        let read = Read { done: self.done(device), ..read };
        self.track(Side::Device, device).reads.take(read, much_released_bytes);
        self.around.read(device, of_failure, read, &self.moves);
    }

    /// A call for memory of a device was under way while it was read, and gave so much.
    pub(super) fn disturb_reads(&mut self, device: u8, at: u64, held_bytes: u64, given_bytes: u64) {
        self.track(Side::Device, device).reads.disturb(at, held_bytes);
        self.around.disturb(device, at, given_bytes);
    }

    /// After the last record.
    pub(super) fn finish(&mut self) {
        self.retries.finish();
    }
}

#[cold]
fn new_track() -> Box<DeviceTrack> {
    Box::default()
}

/// What a block is found by: handles of physical memory and pointers may have the same number.
type Key = (Space, bool, u64);

#[inline]
fn key(block: &Block) -> Key {
    (block.space(), block.kind == Kind::Physical, block.address)
}

#[inline]
fn call(block: &Block, thread: u32, at: u64, what: What) -> Call {
    Call {
        at,
        bytes: block.requested_bytes,
        address: block.address,
        thread,
        site: block.site,
        api: block.api,
        device: block.device,
        is_of_pool: block.kind == Kind::Pool,
        is_managed: block.kind == Kind::Managed,
        what,
    }
}

/// Bytes, as many as 64 bits can say.
#[inline]
pub(super) fn saturate(bytes: u128) -> u64 {
    u64::try_from(bytes).unwrap_or(u64::MAX)
}

/// Ticks of a number of nanoseconds, at least one.
fn ticks_of(clock: &Clock, ns: u64) -> u64 {
    let ns_of_many = clock.duration_ns(1 << 32).max(1);
    (u128::from(ns) * (1 << 32) / u128::from(ns_of_many)).clamp(1, u128::from(u64::MAX)) as u64
}
