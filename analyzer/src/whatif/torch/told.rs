//! The allocator's history from the trace itself: the blocks that it told of, and the calls for segments around them.
//!
//! What it told has no streams, no pools of graphs, no word of frees that wait for other streams, and of a request only the size of the
//! block that it got. So all blocks are taken for one stream's; whether that explains the run, the replay of the run shows.

#[cfg(test)]
pub(crate) mod tests;

use std::collections::BTreeMap;

use gpuoom_trace::columns::Batch;
use gpuoom_trace::record::{Event as Told, Kind, Record, flag};
use rustc_hash::FxHashMap;
use serde::Serialize;

use super::policy::Policy;
use super::steps::FREE_IS_UNKNOWN;
use crate::evidence::torch_snapshot::{Action, Event, Snapshot, StackId};
use crate::replay::Replay;
use crate::replay::apis::{Apis, Does};
use crate::replay::failures::framework::FrameworkError;
use crate::replay::readings::DeviceReadings;

/// Events that are kept of all devices together.
const MOST_EVENTS: usize = 1 << 22;
/// Devices that have a history: numbers below it.
const MOST_DEVICES: usize = 0x80;
/// The stack of what happens inside a request, and of what the program does before one. Nobody recorded them as stacks of PyTorch's
/// history; all that counts is that they differ.
const INSIDE: StackId = 1;
const BEFORE: StackId = 2;

/// Memory that the allocator can have taken: a segment, or address space.
#[derive(Clone, Copy, Debug)]
struct Stretch {
    end: u64,
    /// The device of the blocks that lie in it; `None`: none did so far.
    device: Option<u8>,
}

/// Why a history says nothing of what comes behind its last event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Stop {
    /// The model does something else than was recorded.
    ModelDiffers,
    /// The model meets a request that failed in the recorded run, under the settings of that run.
    FailureUnexplained,
    /// The blocks do not add up to the allocator's own total.
    TotalsDiffer,
    /// The allocator raised an error although nobody had refused it memory: it had a limit of its own, and nobody told which.
    OwnLimit,
    /// There are more events than are looked at.
    TooLong,
}

#[derive(Clone, Debug, Default)]
struct Device {
    events: Vec<Event>,
    /// Segment calls since the last block, and whether they are known to be this device's.
    calls: Vec<(Event, bool)>,
    /// Whether a call of these was refused.
    refused: bool,
    /// Record from which on its totals and its blocks are not of one mind.
    mismatch: Option<u64>,
    stop: Option<Stop>,
}

/// Makes histories out of records.
#[derive(Debug)]
pub struct Histories<'a> {
    apis: &'a Apis,
    devices: BTreeMap<u8, Device>,
    segments: BTreeMap<u64, Stretch>,
    reservations: BTreeMap<u64, Stretch>,
    /// What was free at errors, with what the allocator gave back before it raised them, by the numbers of their records.
    free_bytes: FxHashMap<u64, u64>,
    kept: usize,
    most: usize,
    policy: &'a Policy,
}

/// The histories of a trace.
#[derive(Clone, Debug)]
pub struct ToldHistory {
    /// As a snapshot that has histories, and nothing else.
    pub snapshot: Snapshot,
    /// Of each device, where its history ends before the run does.
    pub stops: Vec<Option<Stop>>,
}

impl<'a> Histories<'a> {
    /// Of a trace that was replayed to its end, of a run with these options.
    pub fn new(replay: &'a Replay, policy: &'a Policy) -> Self {
        let errors = replay.failures.listed.iter().filter_map(|oom| Some((oom.error.as_deref()?, oom.read)));
        let free = |(error, read): (&FrameworkError, DeviceReadings)| {
            Some((error.seq, read.runtime_free_bytes?.saturating_add(error.half_made_bytes?)))
        };
        let free_bytes = errors.filter_map(free).collect();
        let numbers = (0..MOST_DEVICES as u8).filter_map(|device| Some((device, replay.blocks.of_torch(device)?)));
        let devices =
            numbers.map(|(device, told)| (device, Device { mismatch: told.first_mismatch, ..Device::default() }));
        Histories {
            apis: &replay.apis,
            devices: devices.collect(),
            segments: BTreeMap::new(),
            reservations: BTreeMap::new(),
            free_bytes,
            kept: 0,
            most: MOST_EVENTS,
            policy,
        }
    }

    /// Whether there is anything to be read.
    pub fn is_empty(&self) -> bool {
        self.devices.is_empty()
    }

    /// The next records.
    pub fn batch(&mut self, batch: &Batch) {
        batch.iter().for_each(|(record, _)| self.record(record));
    }

    fn record(&mut self, record: &Record) {
        let Some(event) = record.event() else { return };
        match event {
            Told::Block | Told::BlockFree if self.apis.get(record.api).does == Does::TellsOfTensor => {
                self.block(event, record);
            }
            _ if !record.is_programs_own() || record.has(flag::CORRECTION) => {}
            Told::Alloc => self.taken(record),
            Told::Free => self.given_back(record.address),
            Told::Reserve if record.kind() == Kind::Reserved && record.status == 0 => {
                let end = record.address.saturating_add(record.requested);
                self.reservations.insert(record.address, Stretch { end, device: None });
            }
            Told::Map if record.status == 0 && record.kind() == Kind::Physical => {
                self.mapped(Action::SegmentMap, record.address, record.requested);
            }
            Told::Unmap => self.mapped(Action::SegmentUnmap, record.address, record.requested),
            _ => {}
        }
    }

    /// A call for memory: a segment, if the next block lies in it.
    fn taken(&mut self, record: &Record) {
        let Some(device) = self.devices.get_mut(&record.device) else { return };
        if record.status != 0 {
            device.refused |= self.apis.get(record.api).is_out_of_memory(record.status);
            return;
        }
        if record.kind() == Kind::Device {
            let end = record.address.saturating_add(record.requested);
            self.segments.insert(record.address, Stretch { end, device: None });
            device.call(Action::SegmentAlloc, record.address, record.requested, false);
        }
    }

    fn given_back(&mut self, address: u64) {
        let Some(segment) = self.segments.remove(&address) else { return };
        let Some(device) = segment.device.and_then(|device| self.devices.get_mut(&device)) else { return };
        device.call(Action::SegmentFree, address, segment.end - address, true);
    }

    /// Memory came behind addresses or went from there. Whose these are, a block shows: the first one may come behind its first mapping.
    fn mapped(&mut self, action: Action, address: u64, bytes: u64) {
        let Some((_, space)) = self.reservations.range(..=address).next_back().filter(|(_, space)| address < space.end)
        else {
            return;
        };
        match space.device {
            Some(device) => {
                if let Some(device) = self.devices.get_mut(&device) {
                    device.call(action, address, bytes, true);
                }
            }
            None => self.devices.values_mut().for_each(|device| device.call(action, address, bytes, false)),
        }
    }

    fn block(&mut self, event: Told, record: &Record) {
        let Some(device) = self.devices.get_mut(&record.device).filter(|device| device.stop.is_none()) else { return };
        let is_alone = record.status != 0 && !device.refused && self.policy.memory_fraction.is_none();
        let stops = [
            (self.kept >= self.most, Stop::TooLong),
            (device.mismatch.is_some_and(|mismatch| record.seq() >= mismatch), Stop::TotalsDiffer),
            (is_alone, Stop::OwnLimit),
        ];
        if let Some((_, stop)) = stops.into_iter().find(|(stops, _)| *stops) {
            (device.stop, device.calls) = (Some(stop), Vec::new());
            return;
        }
        let before = device.events.len();
        match event {
            Told::BlockFree => {
                let calls = std::mem::take(&mut device.calls);
                let calls = calls.into_iter().filter(|call| is_of(call, record.device, &self.reservations));
                device.events.extend(calls.map(|(call, _)| call).filter(|call| call.action != Action::SegmentAlloc));
                for action in [Action::FreeRequested, Action::FreeCompleted] {
                    device.events.push(event_of(action, record.address, record.requested, 0));
                }
            }
            _ => {
                let own = |stretches: &mut BTreeMap<u64, Stretch>| own(stretches, record);
                own(&mut self.segments);
                own(&mut self.reservations);
                let calls = std::mem::take(&mut device.calls);
                let holds = |call: &Event| {
                    record.address.wrapping_sub(call.address_or_free_bytes) < call.size_bytes && record.status == 0
                };
                let is_own = |call: &(Event, bool)| match call.0.action {
                    Action::SegmentAlloc => holds(&call.0),
                    _ => is_of(call, record.device, &self.reservations),
                };
                device.events.extend(calls.into_iter().filter(is_own).map(|(call, _)| call));
                device.events.push(match record.status {
                    0 => event_of(Action::Alloc, record.address, record.requested, INSIDE),
                    _ => {
                        let free = self.free_bytes.get(&record.seq()).copied().unwrap_or(FREE_IS_UNKNOWN);
                        event_of(Action::Oom, free, record.requested, INSIDE)
                    }
                });
            }
        }
        device.refused = false;
        self.kept += device.events.len() - before;
    }

    /// All histories.
    pub fn finish(self) -> ToldHistory {
        // Below a limit of its own the allocator gives memory back although nobody refused it: then these look alike.
        let may_collect = self.policy.memory_fraction.is_some();
        let before = if may_collect { Vec::new() } else { vec![1] };
        let mut snapshot = Snapshot { stacks: vec![Vec::new(), vec![0], before], ..Snapshot::default() };
        let mut stops = Vec::new();
        for (index, device) in self.devices {
            snapshot.device_traces.resize(usize::from(index) + 1, Vec::new());
            stops.resize(usize::from(index) + 1, None);
            (snapshot.device_traces[usize::from(index)], stops[usize::from(index)]) = (device.events, device.stop);
        }
        ToldHistory { snapshot, stops }
    }
}

impl ToldHistory {
    /// The options of the run: what is set while a program runs is in no variable, but what is mapped shows that segments grow.
    pub fn policy(&self, of_environment: &Policy) -> Policy {
        let takes = |event: &&Event| matches!(event.action, Action::SegmentAlloc | Action::SegmentMap);
        let first = self.snapshot.device_traces.iter().flatten().find(takes);
        let expandable_segments =
            first.map_or(of_environment.expandable_segments, |first| first.action == Action::SegmentMap);
        Policy { expandable_segments, ..of_environment.clone() }
    }
}

impl Device {
    /// Mappings that lie beside each other are one call of the allocator's, which maps and unmaps piece by piece.
    fn call(&mut self, action: Action, address: u64, bytes: u64, is_own: bool) {
        let in_pieces = matches!(action, Action::SegmentMap | Action::SegmentUnmap);
        let stack = if self.refused { INSIDE } else { BEFORE };
        if let Some((last, last_is_own)) = self.calls.last_mut().filter(|_| in_pieces)
            && (last.action, last.address_or_free_bytes.wrapping_add(last.size_bytes), last.stack)
                == (action, address, stack)
            && *last_is_own == is_own
        {
            last.size_bytes = last.size_bytes.saturating_add(bytes);
            return;
        }
        self.calls.push((event_of(action, address, bytes, stack), is_own));
    }
}

/// Whether a call that is no segment's is about memory that this device's blocks lie in. Address space may be given back and set aside
/// anew behind a call: then whose it was is known from before.
fn is_of((call, is_own): &(Event, bool), device: u8, reservations: &BTreeMap<u64, Stretch>) -> bool {
    if *is_own {
        return true;
    }
    let space = reservations.range(..=call.address_or_free_bytes).next_back();
    match call.action {
        Action::SegmentMap | Action::SegmentUnmap => space.is_some_and(|(_, space)| space.device == Some(device)),
        _ => true,
    }
}

/// The stretch that a block lies in is its allocator's.
fn own(stretches: &mut BTreeMap<u64, Stretch>, record: &Record) {
    if record.status == 0
        && let Some((_, stretch)) = stretches.range_mut(..=record.address).next_back()
        && record.address < stretch.end
    {
        stretch.device = Some(record.device);
    }
}

fn event_of(action: Action, address_or_free_bytes: u64, size_bytes: u64, stack: StackId) -> Event {
    Event { action, address_or_free_bytes, size_bytes, stream: 0, time_us: 0, pool: (0, 0), stack }
}
