//! Blocks of allocators above the runtime, as those tell of them: PyTorch's caching allocator, pools of the program's own.
//!
//! A block is a part of memory that some call gave, so nothing here is ever added to an account: it says what a part of it is for.
//! What is kept grows with the blocks that live, or lived at the peak, and not with what happened.

mod buffers;
mod came;
mod device;
mod latest;
mod layout;
mod moment;
mod moments;
mod names;
mod pools;
mod segments;
pub mod steps;
#[cfg(test)]
mod tests;

use gpuoom_trace::meaning::Does;
use gpuoom_trace::payload;
use gpuoom_trace::record::{Event, NO_DEVICE, Record, flag};
use rustc_hash::FxHashMap;

use super::Replay;
use super::account::Account;
use super::purpose::Purpose;
use super::sites::Sites;

use came::AllCame;
pub use came::Came;
pub use device::{Device, Height, Own, State, Told};
pub use layout::{Laid, Layout};
pub use moment::{Age, Moment, OfAllocator, Room, Row, Rows};
pub use moments::{MOST_MARKS, Moments};
use names::Names;
pub use names::{MOST_NAMES, NameNumber};
pub use pools::{Contradictions, Elsewhere, Pool};
use segments::{Segment, Segments};

/// Allocators that are followed, so that a bit of a word stands for each: PyTorch's, and pools by their names.
const MOST_ALLOCATORS: usize = 64;
/// Bytes of a pool's name that are kept.
const MAX_NAME: usize = 256;
/// Rows of call sites that are kept of the ends of all steps together.
const MOST_STEP_ROWS: usize = 1 << 20;

/// A block that an allocator gave out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Given {
    /// Its first address.
    pub address: u64,
    /// Bytes, as the allocator counts them.
    pub size_bytes: u64,
    /// Ordinal (in the replay) of the record that told of it.
    pub entered: u64,
    /// Call site, 0 where it is not known.
    pub site: u32,
    /// How many blocks of PyTorch's had come by that site, this one counted.
    pub nth: u32,
    /// Device, as recorded; a pool's is that of the memory in which it lies, where that is known.
    pub device: u8,
    /// Number of the allocator.
    pub allocator: u8,
    /// What its pool calls it.
    pub name: NameNumber,
    /// The number by which the device's steps follow the call site.
    slot: u16,
    /// What it is for, where that is known.
    pub purpose: Purpose,
}

/// Whose an allocator is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Owner {
    /// PyTorch's caching allocator.
    Torch,
    /// ggml's buffers.
    Ggml,
    /// A pool of the program's own, by its name.
    Pool(String),
}

/// An allocator, and what of it lives, by address.
#[derive(Clone, Debug)]
struct Allocator {
    owner: Owner,
    live: FxHashMap<u64, Given>,
    /// What only a pool of the program's own has.
    pool: Pool,
}

/// All that allocators above the runtime told.
#[derive(Clone, Debug)]
pub struct Blocks {
    allocators: Vec<Allocator>,
    torch: Option<u8>,
    ggml: Option<u8>,
    /// The memory of ggml's buffers, by their handles.
    buffers: FxHashMap<u64, u64>,
    pools: FxHashMap<Box<[u8]>, u8>,
    /// Names of the blocks of pools.
    names: Names,
    devices: Vec<Device>,
    segments: Segments,
    /// What came of PyTorch's blocks.
    came: AllCame,
    /// What was the case at failures and labels.
    pub moments: Moments,
    /// Rows of call sites that may still be kept of the ends of steps.
    rows_left: usize,
    /// Records of allocators that are more than are followed, or that this version does not know.
    pub not_followed: u64,
}

impl Default for Blocks {
    fn default() -> Self {
        Blocks {
            allocators: Vec::new(),
            torch: None,
            ggml: None,
            buffers: FxHashMap::default(),
            pools: FxHashMap::default(),
            names: Names::default(),
            devices: Vec::new(),
            segments: Segments::default(),
            came: AllCame::default(),
            moments: Moments::default(),
            rows_left: MOST_STEP_ROWS,
            not_followed: 0,
        }
    }
}

impl Blocks {
    /// Whether any allocator told anything.
    #[inline]
    pub fn is_used(&self) -> bool {
        !self.allocators.is_empty()
    }

    /// Whose an allocator is.
    pub fn owner(&self, allocator: u8) -> Option<&Owner> {
        self.allocators.get(usize::from(allocator)).map(|known| &known.owner)
    }

    /// What was told of a device.
    pub fn device(&self, device: u8) -> Option<&Device> {
        self.devices.iter().find(|known| known.index == device)
    }

    /// The devices that something was told of.
    pub fn devices(&self) -> impl Iterator<Item = &Device> {
        self.devices.iter()
    }

    /// The call sites of an allocator's blocks at the moment when most was in them.
    pub fn when_most(&self, allocator: u8, device: u8) -> Rows {
        let told = self.device(device).and_then(|known| known.all().find(|told| told.allocator == allocator));
        let Some(told) = told else { return Rows::new() };
        let still = self.live(allocator, device).filter(|given| given.entered <= told.most_at);
        moment::rows(still.chain(&told.gone_since_most))
    }

    /// What PyTorch's caching allocator told of a device.
    pub fn of_torch(&self, device: u8) -> Option<&Told> {
        let torch = self.torch?;
        self.device(device)?.all().find(|told| told.allocator == torch)
    }

    /// The allocator that a record is of.
    #[inline]
    fn allocator(&mut self, does: Does, payload: &[u8]) -> Option<u8> {
        match does {
            Does::TellsOfTensor => match self.torch {
                Some(known) => Some(known),
                None => {
                    self.torch = self.new_allocator(Owner::Torch);
                    self.torch
                }
            },
            Does::TellsOfBuffer => {
                if self.ggml.is_none() {
                    self.ggml = self.new_allocator(Owner::Ggml);
                }
                self.ggml
            }
            Does::TellsOfPool => {
                let text = payload::unpack(payload);
                let name = text.split(|byte| *byte == 0).next().unwrap_or_default();
                let name = &name[..name.len().min(MAX_NAME)];
                match self.pools.get(name) {
                    Some(known) => Some(*known),
                    None => self.new_pool(name),
                }
            }
            _ => None,
        }
    }

    #[cold]
    fn new_pool(&mut self, name: &[u8]) -> Option<u8> {
        let number = self.new_allocator(Owner::Pool(String::from_utf8_lossy(name).into_owned()))?;
        self.pools.insert(name.into(), number);
        Some(number)
    }

    #[cold]
    fn new_allocator(&mut self, owner: Owner) -> Option<u8> {
        let number = self.allocators.len();
        if number >= MOST_ALLOCATORS {
            return None;
        }
        self.allocators.push(Allocator { owner, live: FxHashMap::default(), pool: Pool::default() });
        Some(number as u8)
    }

    #[inline]
    fn place_of(&mut self, device: u8) -> usize {
        match self.devices.iter().position(|known| known.index == device) {
            Some(place) => place,
            None => self.new_place(device),
        }
    }

    // Out of line: a device is large, and this is asked of each block.
    #[cold]
    #[inline(never)]
    fn new_place(&mut self, device: u8) -> usize {
        self.devices.push(Device::new(device));
        self.devices.len() - 1
    }

    /// A block was given out. What had its address is gone, though nobody told.
    #[inline]
    fn give(&mut self, given: Given, record: &Record, sites: &Sites) {
        let place = self.place_of(given.device);
        let slot = self.devices[place].steps.slot(given.site, sites);
        let given = Given { slot, ..given };
        self.segments.lies_in(&given);
        let nth = if self.torch == Some(given.allocator) { self.came.note(&given) } else { 0 };
        let given = Given { nth, ..given };
        let old = self.allocators[usize::from(given.allocator)].live.insert(given.address, given);
        if let Some(old) = old {
            let place = self.place_of(old.device);
            self.devices[place].lost(&old, record.at, &mut self.rows_left);
        }
        let python = self.devices[place].steps.looked_for_python(&given, sites);
        self.devices[place].given(&given, python);
        self.devices[place].steps.given(&given, record.thread, record.at, &mut self.rows_left);
    }

    /// A block was taken back; answers the device that it lay on.
    #[inline]
    fn take_back(&mut self, record: &Record, allocator: u8) -> u8 {
        let known = self.allocators[usize::from(allocator)].live.remove(&record.address);
        let device = known.map_or(record.device, |given| given.device);
        let place = self.place_of(device);
        match known {
            Some(given) => self.devices[place].taken(&given, record.requested, record.at, &mut self.rows_left),
            None => self.devices[place].told(allocator).unknown_frees += 1,
        }
        device
    }

    /// A segment is gone, and no block of a pool lies there any more.
    fn segment_goes(&mut self, address: u64, at: u64) {
        if let Some(gone) = self.segments.goes(address, &mut self.devices) {
            self.end_pools_below(&gone, at);
        }
    }

    /// The blocks of an allocator on a device that live.
    fn live(&self, allocator: u8, device: u8) -> impl Iterator<Item = &Given> {
        let known = self.allocators.get(usize::from(allocator));
        known.into_iter().flat_map(|known| known.live.values()).filter(move |given| given.device == device)
    }

    /// What is the case now, on a device.
    pub fn now(&self, device: u8, at: u64) -> Option<Moment> {
        let known = self.device(device)?;
        let of = known.all().map(|told| {
            let (blocks, segments) = self.parts_now(told.allocator, device);
            OfAllocator::describe(told.allocator, told.now, blocks, segments)
        });
        Some(Moment { at, of: of.collect(), ages: Vec::new() })
    }

    /// The same, with how old the blocks are.
    pub fn now_with_ages(&self, device: u8, at: u64) -> Option<Moment> {
        let live = self.allocators.iter().flat_map(|known| known.live.values());
        let ages = moment::ages(live.filter(|given| given.device == device));
        Some(Moment { ages, ..self.now(device, at)? })
    }

    /// The same at the end of a run. Of a call site most of whose blocks are gone there, as where a program cleans up, those count that
    /// lived when most was given out.
    pub fn at_end(&self, device: u8, at: u64) -> Option<Moment> {
        let mut moment = self.now_with_ages(device, at)?;
        let told: Vec<&Told> = self.device(device)?.all().collect();
        let still = told
            .iter()
            .flat_map(|told| self.live(told.allocator, device).filter(|given| given.entered <= told.most_at));
        let gone = told.iter().flat_map(|told| &told.gone_since_most);
        let at_most = moment::ages(still.chain(gone));
        let is_gone = |age: &&Age| moment.age(age.site).is_none_or(|now| now.bytes < age.bytes / 2);
        let gone_since: Vec<Age> = at_most.iter().filter(is_gone).copied().collect();
        moment.ages.retain(|age| gone_since.binary_search_by_key(&age.site, |gone| gone.site).is_err());
        moment.ages.extend(gone_since);
        moment.ages.sort_unstable_by_key(|age| age.site);
        Some(moment)
    }

    /// An allocator's blocks now, and the segments that they lie in where these are known.
    fn parts_now(&self, allocator: u8, device: u8) -> (Vec<Given>, Option<Vec<Segment>>) {
        (self.live(allocator, device).copied().collect(), self.segments.of(allocator, device, u64::MAX, &[]))
    }

    /// The same at the peak of the device, with what was the case then; `None` where that is not known.
    fn parts_at_peak(&self, told: &Told, device: u8) -> Option<(State, Vec<Given>, Option<Vec<Segment>>)> {
        let known = self.device(device)?;
        let peak = known.peak?;
        let allocator = told.allocator;
        let still = self.live(allocator, device).filter(|given| given.entered <= peak.position);
        let gone = known.gone.iter().filter(|given| given.allocator == allocator);
        let segments = self.segments.of(allocator, device, peak.position, &known.gone_segments);
        Some((told.at_peak(peak.number), still.chain(gone).copied().collect(), segments))
    }

    /// What was the case when the device's calls held most, and of such moments, when most of it was given out in blocks; `None`
    /// where that was before any allocator told of blocks there.
    pub fn at_peak(&self, device: u8) -> Option<Moment> {
        let known = self.device(device)?;
        let peak = known.peak?;
        let of = known.all().filter_map(|told| {
            let (state, blocks, segments) = self.parts_at_peak(told, device)?;
            Some(OfAllocator::describe(told.allocator, state, blocks, segments))
        });
        Some(Moment { at: peak.at, of: of.collect(), ages: Vec::new() })
    }

    /// Blocks and segments that are looked at to say what is the case now.
    fn cost(&self) -> u64 {
        let live: usize = self.allocators.iter().map(|known| known.live.len()).sum();
        (live + self.segments.count()) as u64 + 64
    }
}

impl Replay {
    /// What an allocator above the runtime tells.
    #[inline]
    pub(super) fn block_told(&mut self, record: &Record, payload: &[u8]) {
        let was_used = self.blocks.is_used();
        let does = self.apis.get(record.api).does;
        let Some(allocator) = self.blocks.allocator(does, payload) else {
            self.blocks.not_followed += 1;
            return;
        };
        if !was_used {
            self.begin_blocks();
        }
        match does {
            Does::TellsOfBuffer => return self.buffer_told(record, payload, allocator),
            Does::TellsOfPool => return self.pool_told(record, payload, allocator),
            _ => {}
        }
        let mut device = record.device;
        match record.event() {
            Some(Event::BlockFree) => device = self.blocks.take_back(record, allocator),
            _ if record.status != 0 => {}
            _ => {
                let (address, size_bytes, entered, site) = (record.address, record.requested, self.events, record.site);
                let (purpose, name) = (Purpose::Unknown, NameNumber::NONE);
                let given =
                    Given { address, size_bytes, entered, site, nth: 0, device, allocator, name, slot: 0, purpose };
                self.blocks.give(given, record, &self.sites);
            }
        }
        let place = self.blocks.place_of(device);
        let known = &mut self.blocks.devices[place];
        known.told(allocator).events += 1;
        known.follow(allocator, record, record.has(flag::TOTALS).then(|| payload::unpack_numbers(payload)));
        self.look_for_peak_on(device, record);
    }

    #[inline]
    fn look_for_peak_on(&mut self, device: u8, record: &Record) {
        let at = record.at.saturating_add(u64::from(record.duration));
        let height = self.accounts.device(device).map(Account::height).unwrap_or_default();
        let place = self.blocks.place_of(device);
        self.blocks.devices[place].look_for_peak(height, self.events, at);
    }

    /// The first record of an allocator: from here on the driver's blocks are followed by address.
    #[cold]
    fn begin_blocks(&mut self) {
        self.live.list_changes();
        self.vmm.list_changes();
        let blocks = self.live.blocks().filter(|block| block.may_hold_blocks());
        blocks.for_each(|block| self.blocks.segments.block_comes(block));
        self.vmm.mappings().for_each(|mapping| self.blocks.segments.mapping_comes(mapping));
    }

    /// After a record of another layer, once blocks are followed: what came and went below them.
    pub(super) fn follow_below_blocks(&mut self, at: u64) {
        self.end_buffers_below(at);
        let blocks = &mut self.blocks;
        for (block, comes) in self.live.changes() {
            match comes {
                true => blocks.segments.block_comes(&block),
                false => blocks.segment_goes(block.address, at),
            }
        }
        for (mapping, comes) in self.vmm.changes() {
            match comes {
                true => blocks.segments.mapping_comes(&mapping),
                false => blocks.segment_goes(mapping.address, at),
            }
        }
        for known in &mut blocks.devices {
            let height = self.accounts.device(known.index).map(Account::height).unwrap_or_default();
            known.look_for_peak(height, self.events, at);
        }
    }

    /// Keeps what is the case on a device at its latest failure.
    #[cold]
    pub(super) fn keep_at_failure(&mut self) {
        if let Some(oom) = self.failures.listed.last() {
            self.keep_at(oom.seq, oom.at, oom.device.unwrap_or(NO_DEVICE));
        }
    }

    /// Keeps what is the case on a device at a failure, or at the error that a refusal led to: by then the allocator has given back
    /// what it had unused, and its own word says so.
    #[cold]
    pub(super) fn keep_at(&mut self, seq: u64, at: u64, device: u8) {
        if self.blocks.moments.affords(self.blocks.cost())
            && let Some(moment) = self.blocks.now_with_ages(device, at)
        {
            self.blocks.moments.failed(seq, moment);
            if self.blocks.moments.affords(self.blocks.came.count() as u64) {
                self.blocks.moments.came_before(seq, self.blocks.came.now());
            }
            return;
        }
        self.blocks.look_back_later(seq, at, device, self.events);
    }

    /// Keeps what is the case at a label, on each device, if its turn comes.
    pub(super) fn keep_at_mark(&mut self, record: &Record, payload: &[u8]) {
        if !self.blocks.is_used() {
            return;
        }
        let label = super::tracks::marks::label(payload);
        for known in &mut self.blocks.devices {
            known.steps.marked(&label, record.at, &mut self.blocks.rows_left);
        }
        if !self.blocks.moments.keeps_next_mark() {
            return;
        }
        // The blocks of all devices are looked at for each.
        let cost = self.blocks.cost().saturating_mul(self.blocks.devices.len() as u64);
        if !self.blocks.moments.affords(cost) {
            return;
        }
        let devices: Vec<u8> = self.blocks.devices.iter().map(|known| known.index).collect();
        let now = devices.into_iter().filter_map(|device| Some((device, self.blocks.now(device, record.at)?)));
        let now = now.collect();
        self.blocks.moments.marked(label, now);
    }
}
