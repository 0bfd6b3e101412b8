//! What the trace tells beside the calls for memory: refusals, and numbers that were read.

use gpuoom_trace::metadata::{self, Quantity, Reading, trigger};
use gpuoom_trace::outcome::UNKNOWN_BYTES;
use gpuoom_trace::payload;
use gpuoom_trace::record::{Event, Kind, Layer, NO_DEVICE, Record, flag};

use super::Replay;
use super::account::Account;
use super::arena::Arena;
use super::balance::Balance;
use super::block::{Block, Side};
use super::busy::concerns;
use super::census::{self, Census};
use super::comparison::{Comparison, Open};
use super::failures::{Injected, Inside, MAX_LISTED, Oom, RefusedBy};
use super::held::Caller;
use super::purpose::purpose_of;
use super::readings::DeviceReadings;
use super::tracks::around::{Around, PendingFrees};
use super::tracks::between::Done;
use super::tracks::device::DeviceTrack;
use super::tracks::moves::Overlap;
use super::tracks::pools::Number;
use super::tracks::reads::Read;
use super::tracks::saturate;
use super::tracks::waits::Waited;

impl Replay {
    /// A context, a library's handle or a queue of the program: only its failure matters.
    pub(super) fn set_up(&mut self, record: &Record) {
        if record.status == 0 || !self.apis.get(record.api).is_set_up(record) {
            return;
        }
        let inside = if self.failures.has_nested() { self.failures.lowest_nested(record) } else { None };
        self.refused(&Record { requested: 0, ..*record }, &[], record.device, 0, inside);
    }

    /// Takes note of an own allocation that was refused, with what was held when it was: a free is recorded before it is made, and a
    /// refusal only when its stack was read, so that what other threads gave back meanwhile stands before it.
    #[cold]
    pub(super) fn refused(
        &mut self,
        record: &Record,
        payload: &[u8],
        device: u8,
        granules: u32,
        inside: Option<Inside>,
    ) {
        // Of very many refusals the later ones are only counted.
        if self.failures.listed.len() >= MAX_LISTED {
            return self.look_at_refusal(record, payload, device, granules, inside, 0);
        }
        let returned_at = record.at.saturating_add(u64::from(record.duration));
        let later = self.last_frees.after(returned_at, record.thread);
        let held: Vec<Block> = later.into_iter().filter_map(|block| self.hold_for_now(block)).collect();
        let of_device = held.iter().filter(|block| block.device == device && Side::of(block.kind) == Side::Device);
        let held_bytes = of_device.fold(0, |sum: u64, block| sum.saturating_add(block.requested_bytes));
        let returned_bytes = self.tracks.overlap(device, Some(record.thread), record.at).returned_bytes;
        let returning_bytes = returned_bytes.saturating_sub(held_bytes);
        self.look_at_refusal(record, payload, device, granules, inside, returning_bytes);
        for block in held {
            self.live.remove(block.space(), block.address);
            if let Some(account) = self.accounts.of_mut(&block) {
                account.hold_no_more(&block);
            }
        }
    }

    /// A block that is gone lives again, unless another one has its address.
    fn hold_for_now(&mut self, block: Block) -> Option<Block> {
        if self.live.has(block.space(), block.address) {
            return None;
        }
        let account = self.accounts.of_mut(&block)?;
        let (slot, _) = self.live.insert(block);
        let slot = slot?;
        account.hold(slot);
        Some(*slot)
    }

    fn look_at_refusal(
        &mut self,
        record: &Record,
        payload: &[u8],
        device: u8,
        granules: u32,
        inside: Option<Inside>,
        returning_bytes: u64,
    ) {
        let unknown_size = !matches!(record.event(), Some(Event::Alloc | Event::Pin));
        let side = if unknown_size { Side::Device } else { Side::of(record.kind()) };
        let api = self.apis.get(record.api);
        // A context or a handle that can't be made for another reason asked for no memory.
        if unknown_size && !api.is_out_of_memory(record.status) {
            return;
        }
        let layer = api.layer.unwrap_or(Layer::Process);
        let caller = Caller { layer, kind: record.kind(), api: record.api, site: record.site };
        if let Some(account) = self.accounts.side_mut(side, device) {
            account.calls.failures += 1;
            if let Some(tally) = &mut account.tally {
                tally.refused(caller);
            }
        }
        // HIP answers "invalid value" for host memory that the kernel's driver had no room to pin.
        let is_of_memory = |inside: &Inside| self.apis.get(inside.api).is_out_of_memory(inside.status);
        let refused_inside = record.event() == Some(Event::Pin) && inside.as_ref().is_some_and(is_of_memory);
        if !api.is_out_of_memory(record.status) && !refused_inside {
            return;
        }
        let refused_by = match record.has(flag::INJECTED) {
            true => RefusedBy::Injected,
            false => RefusedBy::Layer(inside.map(|inside| inside.layer).or(api.layer)),
        };
        let saw_below = self.lower.gave_below_runtime();
        let census = self.census_at_failure(side, device);
        let account = self.accounts.side_mut(side, device);
        let (held, managed, most, model) = match account {
            Some(account) => {
                let model = account.arena.as_ref().map(Arena::free_space);
                (account.held, account.managed, account.most, model)
            }
            None => Default::default(),
        };
        let is_listed = self.failures.listed.len() < MAX_LISTED;
        if is_listed {
            let pool = (record.kind() == Kind::Pool).then(|| self.pool_number(record, payload));
            let around = self.around_now(record, side, device, held.requested_bytes, pool);
            self.tracks.refused(record, device, around);
        }
        let request = self.request_of(record, if unknown_size { UNKNOWN_BYTES } else { record.requested });
        let scopes = self.scopes.of(record.thread);
        let (purpose, purpose_by) = purpose_of(scopes, &self.apis, side);
        let oom = Oom {
            device: (device != NO_DEVICE).then_some(device),
            unknown_size,
            granules,
            injected: Injected::of(record, payload),
            inside,
            held,
            returning_bytes: if side == Side::Device { returning_bytes } else { 0 },
            held_managed_bytes: managed.requested_bytes,
            held_managed_granules: managed.granules,
            held_managed_blocks: managed.blocks,
            held_host_bytes: self.accounts.host.held.requested_bytes,
            // Of very many refusals the later ones are only counted.
            kernel_host_bytes: if is_listed { self.lower.kernel_host_bytes() } else { 0 },
            most,
            most_host_bytes: self.accounts.host.most.held_bytes,
            census,
            saw_below,
            model,
            purpose,
            purpose_by,
            scopes: scopes.into(),
            thread_name: self.thread_names.of(record.thread).map(Into::into),
            ..Oom::new(record, self.events, refused_by)
        };
        self.failures.begin(oom, request);
    }

    /// What is the case around a failure, before it is listed.
    pub(super) fn around_now(
        &mut self,
        record: &Record,
        side: Side,
        device: u8,
        held_bytes: u128,
        pool: Option<Number>,
    ) -> Around {
        let live_blocks = self.live.count() as u64 + self.vmm.count() as u64;
        // A failure costs something even where nothing lives.
        let blocks = self.live.blocks().chain(self.vmm.blocks()).filter(|block| census::is_of(block, side, device));
        let survivors = self.tracks.survivors(live_blocks + 64, blocks, &self.sites, record.at);
        Around {
            failure: self.failures.listed.len(),
            seq: record.seq(),
            device,
            thread: record.thread,
            calls_before: 0,
            held_bytes: saturate(held_bytes),
            vmm_handles: self.vmm.count() as u64,
            half: self.tracks.may_look_at(self.vmm.count() as u64 + 64).then(|| self.vmm.half(device)),
            live_blocks,
            reserved_bytes: self.reserved_bytes(),
            survivors,
            pending: PendingFrees::default(),
            captured: None,
            pool,
            pooled: None,
            exported_freed_bytes: None,
            done: Done::default(),
            until_read: Overlap::default(),
            moves_before: 0,
            read_before: None,
            read_at: None,
            read_after: None,
            next: None,
            waited_since_free: Waited::Unknown,
            waited_before_next: Waited::Unknown,
        }
    }

    /// Takes note of memory that other processes may open from now on.
    pub(super) fn export(&mut self, record: &Record) {
        if record.status != 0 || !record.is_outermost() {
            return;
        }
        if record.kind() == Kind::Pool && self.tracks.export_pool(record.address) {
            return;
        }
        let searches = |replay: &mut Self| replay.tracks.may_look_at(replay.live.count() as u64 + 64);
        let block = match record.kind() {
            Kind::Physical => self.vmm.behind(record.address),
            _ if self.live.at(record.address).is_some() => self.live.at(record.address),
            // A part of a block can be exported, too.
            _ if searches(self) => self.live.around(record.address),
            _ => None,
        };
        self.tracks.export(block);
    }

    /// Reserved address ranges of all devices, in bytes.
    fn reserved_bytes(&self) -> u64 {
        let all = self.accounts.devices().map(|(_, account)| account.reserved_bytes);
        saturate(all.fold(0, u128::saturating_add))
    }

    /// Who holds what now, unless that was counted too often already.
    pub(super) fn census_at_failure(&mut self, side: Side, device: u8) -> Option<Box<Census>> {
        // A failure costs something even where nothing lives.
        let blocks = self.live.count() as u64 + self.vmm.count() as u64 + 64;
        self.census_blocks_left = self.census_blocks_left.checked_sub(blocks)?;
        let census = self.census(side, device);
        // The first failures tell by which ways memory was asked for; of very many, the rest tell the places only.
        match self.census_rows_left.checked_sub(census.own.len()) {
            Some(left) => self.census_rows_left = left,
            None => return Some(Box::new(census.by_place(&self.sites))),
        }
        Some(Box::new(census))
    }

    /// Takes what the recorder read.
    pub(super) fn reading(&mut self, record: &Record, payload: &[u8]) {
        // What was read is known when all of it was, and not when the recorder began.
        let began_at = record.at;
        let record = &Record { at: began_at.saturating_add(u64::from(record.duration)), duration: 0, ..*record };
        let readings = self.counters.placed(metadata::decode(payload::unpack(payload)).unwrap_or_default());
        for reading in &readings {
            self.readings.take(reading, record.at);
            if reading.quantity == Quantity::RuntimeTotal as u16 {
                let live = self.live.blocks_mut().chain(self.vmm.blocks_mut());
                self.accounts.total_known(reading.device, reading.value, self.events, live);
            }
        }
        if record.status == trigger::FAILURE {
            self.failures.read_at(record.address, self.clock.at_ns(record.at));
            if let Some(failure) = self.failures.index_of(record.address) {
                self.tracks.failure_read(failure, record.at);
            }
        }
        if record.status == trigger::FAILURE
            && let Some(oom) = self.failures.by_seq(record.address)
        {
            let about = |reading: &&Reading| oom.device.is_none_or(|device| device == reading.device);
            let about: Vec<Reading> = readings.iter().filter(about).copied().collect();
            about.iter().for_each(|reading| oom.read.take(reading));
            oom.read.drop_probe_of_nobody();
            readings.iter().for_each(|reading| oom.process.take(reading));
        }
        self.compare(record, began_at, &readings);
    }

    /// A call for memory was under way while the recorder read.
    #[cold]
    pub(super) fn disturb(&mut self, record: &Record) {
        let concerned = self.comparisons.iter_mut().filter(|(device, _)| concerns(record.device, **device));
        concerned.for_each(|(_, comparisons)| comparisons.disturb(record.at));
    }

    /// The record that disturbed a reading was taken: the device holds what came or went with it.
    #[cold]
    pub(super) fn disturbed(&mut self, record: &Record) {
        let devices: Vec<u8> = self.tracks.devices().map(|(device, _)| device).collect();
        for device in devices.into_iter().filter(|device| concerns(record.device, *device)) {
            let held = self.accounts.device(device).map_or(0, |account| account.held.requested_bytes);
            let given = if record.event() == Some(Event::Alloc) { record.requested } else { 0 };
            self.tracks.disturb_reads(device, record.at, saturate(held), given);
        }
    }

    fn note_read(&mut self, record: &Record, began_at: u64, device: u8, read: DeviceReadings, is_disturbed: bool) {
        let of_failure = (record.status == trigger::FAILURE).then_some(record.address);
        let held = self.accounts.device(device).map_or(0, |account| account.held.requested_bytes);
        let most = self.accounts.device(device).map_or(0, |account| account.peak.held.requested_bytes);
        let (held_bytes, reserved_bytes) = (saturate(held), self.reserved_bytes());
        self.tracks.read(
            device,
            of_failure,
            Read {
                at: record.at,
                read,
                held_bytes,
                least_held_bytes: held_bytes,
                most_held_bytes: if is_disturbed { saturate(most) } else { held_bytes },
                is_disturbed,
                within: self.tracks.overlap(device, None, began_at),
                reserved_bytes,
                ..Read::default()
            },
        );
    }

    /// Sets what was read of each device beside what the calls account for, unless memory came or went meanwhile.
    fn compare(&mut self, record: &Record, began_at: u64, readings: &[Reading]) {
        let mut devices: Vec<u8> = readings.iter().map(|reading| reading.device).collect();
        devices.sort_unstable();
        devices.dedup();
        for device in devices {
            let mut read = DeviceReadings::default();
            readings.iter().filter(|reading| reading.device == device).for_each(|reading| read.take(reading));
            let is_disturbed = self.busy.until(device) > began_at;
            self.note_read(record, began_at, device, read, is_disturbed);
            self.busy.read_until = record.at;
            read.runtime_total_bytes = read.runtime_total_bytes.or(self.accounts.total_bytes(device));
            let Some(in_use) = read.in_use() else { continue };
            let comparisons = self.comparisons.entry(device).or_default();
            comparisons.settle();
            let others_moved = comparisons.others_moved(read.others_vram_bytes) && !in_use.of_process;
            if is_disturbed || others_moved {
                comparisons.disturbed += 1;
                continue;
            }
            // A card that the program does not use is read too, and has no account.
            let (unused, account) = (Account::default(), self.accounts.device(device));
            let account = account.unwrap_or(&unused);
            let balance = Balance::of(&account.holdings, &self.lower.sums.of(Side::Device, device));
            let (held, peak) = (account.held, &account.peak);
            let (accounted_bytes, lowest) = (balance.total_bytes(), balance.lowest());
            comparisons.take(Open {
                comparison: Comparison {
                    at: record.at,
                    in_use,
                    accounted_bytes,
                    lowest,
                    managed_bytes: account.holdings.bytes_of(Kind::Managed),
                    kept_by_pools_bytes: kept_by_pools(self.tracks.device(device), account),
                },
                trigger: record.status,
                held,
                read,
                peak: (held == peak.held).then_some(peak.position),
            });
        }
    }
}

/// The most that stream-ordered pools gave at once, less what they give now; 0 where nothing was ever given back to them.
fn kept_by_pools(track: Option<&DeviceTrack>, account: &Account) -> u64 {
    let Some(track) = track.filter(|track| track.pool.returned > 0) else { return 0 };
    track.pool.peak_bytes.saturating_sub(u64::try_from(account.holdings.bytes_of(Kind::Pool)).unwrap_or(u64::MAX))
}
