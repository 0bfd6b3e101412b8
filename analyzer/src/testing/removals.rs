//! Traces and evidence from which one thing is taken away: what a recorder may fail to read, to record, or a user to give.

use std::collections::BTreeMap;

use gpuoom_trace::metadata::{Reading, decode, encode_readings};
use gpuoom_trace::payload;
use gpuoom_trace::record::{Event, Kind, MAX_PAYLOAD_BYTES, NO_DEVICE, Record, flag};

use super::TraceBuilder;

/// One thing that is taken away.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Removal {
    /// All readings of a quantity: nobody could read it in this run.
    Readings(u16),
    /// One record of readings.
    ReadingRecord(usize),
    /// One event, which the header counts as lost.
    Event(usize),
    /// One file about the machine.
    MachineFile(usize),
    /// The evidence of one sort that was given beside the trace.
    Evidence(Given),
}

/// Sorts of evidence beside a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Given {
    TorchLogs,
    RuntimeLogs,
    ProgramLogs,
    TorchSnapshots,
    Smi,
    KernelLogs,
    Model,
}

impl Given {
    const ALL: [Given; 7] = [
        Given::TorchLogs,
        Given::RuntimeLogs,
        Given::ProgramLogs,
        Given::TorchSnapshots,
        Given::Smi,
        Given::KernelLogs,
        Given::Model,
    ];
}

/// Events whose loss a recorder would count. The others carry what it knows about itself: sites, modules, marks of the process.
fn can_be_lost(record: &Record) -> bool {
    !matches!(record.event(), None | Some(Event::Site | Event::Reading | Event::Process))
        && !record.has(flag::CORRECTION)
}

/// Of like calls so many are taken, where there are more and not all are asked for.
pub(crate) const ALIKE: usize = 128;
/// Of more like calls, also those that are so near to a call that is like few others.
const NEAR: usize = 8;

/// What a call is, without when it came and where its block lies.
fn likeness(record: &Record) -> [u64; 5] {
    let [call, what] =
        [[record.api, u16::from(record.event)], [u16::from(record.kind_flags), u16::from(record.device)]]
            .map(|[high, low]| u64::from(high) << 16 | u64::from(low));
    [call, what, u64::from(record.thread) << 32 | u64::from(record.site), record.requested, record.status as u64]
}

/// Without the most of many like calls: 28,500 blocks of one size would be judged 28,500 times, and each time the same is missing.
/// Those beside a call that is like few others stay, and of the rest some, evenly chosen.
fn without_repeats(numbered: &[(usize, Record)], alike: usize) -> Vec<usize> {
    let mut members: BTreeMap<[u64; 5], usize> = BTreeMap::new();
    numbered.iter().for_each(|(_, record)| *members.entry(likeness(record)).or_default() += 1);
    let members_of = |record: &Record| members[&likeness(record)];
    let is_rare: Vec<bool> = numbered.iter().map(|(_, record)| members_of(record) <= alike).collect();
    let is_near =
        |place: usize| is_rare[place.saturating_sub(NEAR)..(place + NEAR + 1).min(is_rare.len())].contains(&true);
    let mut seen: BTreeMap<[u64; 5], usize> = BTreeMap::new();
    let mut chosen = Vec::new();
    for (place, (number, record)) in numbered.iter().enumerate() {
        let ordinal = seen.entry(likeness(record)).or_default();
        let every = members_of(record).div_ceil(alike);
        if ordinal.is_multiple_of(every) || *ordinal + 1 == members_of(record) || is_near(place) {
            chosen.push(*number);
        }
        *ordinal += 1;
    }
    chosen
}

fn quantities(payload: &[u8]) -> Vec<Reading> {
    decode(payload::unpack(payload)).unwrap_or_default()
}

impl TraceBuilder {
    /// Everything that can be taken away, with at most `events` of its events, evenly chosen; of like calls about `alike`.
    pub(crate) fn removals(&self, events: usize, alike: usize) -> Vec<Removal> {
        let numbered = || self.records.iter().enumerate();
        let readings = numbered().filter(|(_, (record, _))| record.event() == Some(Event::Reading));
        let mut read: Vec<u16> =
            readings.clone().flat_map(|(_, (_, payload))| quantities(payload)).map(|one| one.quantity).collect();
        read.sort_unstable();
        read.dedup();
        let lost = numbered().filter(|(_, (record, _))| can_be_lost(record));
        let lossy = without_repeats(&lost.map(|(number, (record, _))| (number, *record)).collect::<Vec<_>>(), alike);
        let every = lossy.len().div_ceil(events.max(1)).max(1);
        let given = Given::ALL.into_iter().filter(|given| self.has(*given)).map(Removal::Evidence);
        read.into_iter()
            .map(Removal::Readings)
            .chain(readings.map(|(number, _)| Removal::ReadingRecord(number)))
            .chain(lossy.into_iter().rev().step_by(every).map(Removal::Event))
            .chain((0..self.machine.len()).map(Removal::MachineFile))
            .chain(given)
            .collect()
    }

    fn has(&self, given: Given) -> bool {
        let evidence = &self.evidence;
        match given {
            Given::TorchLogs => !evidence.torch_logs.is_empty(),
            Given::RuntimeLogs => !evidence.runtime_logs.is_empty(),
            Given::ProgramLogs => !evidence.program_logs.is_empty(),
            Given::TorchSnapshots => !evidence.torch_snapshots.is_empty(),
            Given::Smi => !evidence.smi.is_empty(),
            Given::KernelLogs => !evidence.kernel_logs.is_empty(),
            Given::Model => evidence.model.is_some(),
        }
    }

    /// The same trace without one thing.
    pub(crate) fn without(&self, removal: Removal) -> TraceBuilder {
        let mut less = self.clone();
        match removal {
            Removal::Readings(quantity) => {
                for (record, payload) in &mut less.records {
                    if record.event() == Some(Event::Reading) {
                        drop_quantity(payload, quantity);
                    }
                }
            }
            Removal::ReadingRecord(number) => less.blank(number),
            Removal::Event(number) => {
                less.blank(number);
                less.header.events_lost += 1;
            }
            Removal::MachineFile(number) => _ = less.machine.remove(number),
            Removal::Evidence(given) => less.drop_evidence(given),
        }
        less
    }

    /// Puts a reading of nothing in a record's place, so that all others keep their numbers.
    fn blank(&mut self, number: usize) {
        let (record, payload) = &mut self.records[number];
        let Record { commit, at, thread, slots, .. } = *record;
        let nothing = Record::new(Event::Reading, Kind::None);
        *record = Record { commit, at, thread, slots, device: NO_DEVICE, ..nothing };
        payload.fill(0);
    }

    fn drop_evidence(&mut self, given: Given) {
        let evidence = &mut self.evidence;
        match given {
            Given::TorchLogs => evidence.torch_logs.clear(),
            Given::RuntimeLogs => evidence.runtime_logs.clear(),
            Given::ProgramLogs => evidence.program_logs.clear(),
            Given::TorchSnapshots => evidence.torch_snapshots.clear(),
            Given::Smi => evidence.smi.clear(),
            Given::KernelLogs => evidence.kernel_logs.clear(),
            Given::Model => evidence.model = None,
        }
    }
}

fn drop_quantity(payload: &mut Vec<u8>, quantity: u16) {
    let kept: Vec<Reading> = quantities(payload).into_iter().filter(|reading| reading.quantity != quantity).collect();
    let mut bytes = [0; MAX_PAYLOAD_BYTES];
    let used = encode_readings(&kept, &mut bytes);
    let mut room = [0; MAX_PAYLOAD_BYTES];
    let packed = payload::pack(&bytes[..used], &mut room).to_vec();
    let length = payload.len();
    *payload = packed;
    payload.resize(length, 0);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_many_like_calls_some_are_taken_and_of_few_all() {
        let mut trace = TraceBuilder::default().device(0, "card", 1 << 34);
        (0..1000).for_each(|block| _ = trace.alloc(0x1000_0000 + block * 4096, 4096));
        (0..10).for_each(|block| _ = trace.alloc(0x2000_0000 + block * 4096, 8192));
        let events = |removals: Vec<Removal>| {
            let number = |removal| match removal {
                Removal::Event(number) => Some(number),
                _ => None,
            };
            let mut numbers: Vec<usize> = removals.into_iter().filter_map(number).collect();
            numbers.sort_unstable();
            numbers
        };
        // By turns is no other case.
        (0..1000).for_each(|block| {
            trace.alloc(0x3000_0000 + block * 4096, 128);
            trace.alloc(0x4000_0000 + block * 4096, 256);
        });
        assert_eq!(events(trace.removals(usize::MAX, usize::MAX)).len(), trace.records.len());
        let all = events(trace.removals(usize::MAX, ALIKE));
        let sizes: Vec<u64> = trace.records.iter().map(|(record, _)| record.requested).collect();
        let number = |size: u64| (0..sizes.len()).filter(|place| sizes[*place] == size).collect::<Vec<_>>();
        let of = |size| all.iter().filter(|place| sizes[**place] == size).copied().collect::<Vec<_>>();
        assert_eq!(of(8192), number(8192));
        for size in [4096, 128, 256] {
            let taken = of(size);
            assert!((ALIKE..2 * ALIKE).contains(&taken.len()), "{} of {size}", taken.len());
            assert_eq!((taken.first(), taken.last()), (number(size).first(), number(size).last()));
        }
    }
}
