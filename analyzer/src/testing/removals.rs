//! Traces and evidence from which one thing is taken away: what a recorder may fail to read, to record, or a user to give.

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
    TorchSnapshots,
    Smi,
    KernelLogs,
    Model,
}

impl Given {
    const ALL: [Given; 6] =
        [Given::TorchLogs, Given::RuntimeLogs, Given::TorchSnapshots, Given::Smi, Given::KernelLogs, Given::Model];
}

/// Events whose loss a recorder would count. The others carry what it knows about itself: sites, modules, marks of the process.
fn can_be_lost(record: &Record) -> bool {
    !matches!(record.event(), None | Some(Event::Site | Event::Reading | Event::Process))
        && !record.has(flag::CORRECTION)
}

/// Neighbours of which more than this many differ in nothing but time, call and address stand for each other.
const ALIKE: usize = 64;

/// What a call is, without when it came and where its block lies: the next of a series of like blocks is the same.
fn likeness(record: &Record) -> Record {
    Record { commit: 0, at: 0, duration: 0, call: 0, address: 0, ..*record }
}

/// Of each long series of like calls the first, the last and some between: 28,500 blocks of one size, one after the other,
/// would be judged 28,500 times, and each time the same is missing.
fn without_repeats(numbered: &[(usize, Record)]) -> Vec<usize> {
    let series = numbered.chunk_by(|(_, one), (_, next)| likeness(one) == likeness(next));
    let chosen = |series: &[(usize, Record)]| {
        let last = series.len() - 1;
        let few = last.min(ALIKE);
        (0..=few).map(|step| series[if few == 0 { 0 } else { step * last / few }].0).collect::<Vec<_>>()
    };
    series.flat_map(chosen).collect()
}

fn quantities(payload: &[u8]) -> Vec<Reading> {
    decode(payload::unpack(payload)).unwrap_or_default()
}

impl TraceBuilder {
    /// Everything that can be taken away, with at most `events` of its events, evenly chosen. Of a long series of like calls some.
    pub(crate) fn removals(&self, events: usize) -> Vec<Removal> {
        let numbered = || self.records.iter().enumerate();
        let readings = numbered().filter(|(_, (record, _))| record.event() == Some(Event::Reading));
        let mut read: Vec<u16> =
            readings.clone().flat_map(|(_, (_, payload))| quantities(payload)).map(|one| one.quantity).collect();
        read.sort_unstable();
        read.dedup();
        let lost = numbered().filter(|(_, (record, _))| can_be_lost(record));
        let lossy = without_repeats(&lost.map(|(number, (record, _))| (number, *record)).collect::<Vec<_>>());
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
    fn of_a_long_series_some_are_taken_and_of_a_short_one_all() {
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
        let all = events(trace.removals(usize::MAX));
        let of = |size| {
            let is = |number: &&usize| trace.records[**number].0.requested == size;
            all.iter().filter(is).copied().collect::<Vec<_>>()
        };
        let long: Vec<usize> =
            (0..trace.records.len()).filter(|number| trace.records[*number].0.requested == 4096).collect();
        assert_eq!((of(4096).len(), of(8192).len()), (ALIKE + 1, 10));
        assert_eq!((of(4096).first(), of(4096).last()), (long.first(), long.last()));
    }
}
