//! The replays of a question: one that learns how things ended, one that measures, and one for the models.

use gpuoom_trace::metadata::DeviceFacts;
use gpuoom_trace::reader::TraceFile;
use gpuoom_trace::record::NO_DEVICE;
use rustc_hash::FxHashMap;

use super::Answer;
use super::cards::{Basis, CardModel, Change, DeviceAnswer, DeviceModel, Granularity, Refused};
use super::overhead::{Overhead, Recorded, measured};
use crate::intake::read_through;
use crate::passes::fragmentation::saturate;
use crate::passes::growth;
use crate::passes::libraries::Libraries;
use crate::passes::tensor_growth::{self, TensorGrowth, Until};
use crate::replay::block::Block;
use crate::replay::{Options, Replay};
use crate::symbols::{Stacks, SymbolPlaces};
use crate::thresholds::Thresholds;

/// What is asked.
#[derive(Clone, Debug, Default)]
pub struct Question {
    /// Sizes of cards.
    pub capacities_bytes: Vec<u64>,
    /// Granules.
    pub granularities_bytes: Vec<u64>,
    /// Only this device.
    pub device: Option<u8>,
    /// What is in use beside the program's blocks; measured where it is not given.
    pub overhead_bytes: Option<u64>,
    /// The numbers that decide.
    pub thresholds: Thresholds,
}

/// Asks a trace. It is read two or three times; `progress` hears the number of records of each batch.
pub fn ask(trace: &mut TraceFile, question: &Question, mut progress: impl FnMut(u64)) -> Answer {
    let known = replay(trace, None, &mut progress);
    let mut models = Models::new(trace, &known, question, &mut progress);
    let mut third = Replay::new(trace, Options::default());
    third.accounts.lists_changes = true;
    read_through(trace, &mut progress, |batch| third.batch_with(batch, |replay, _| models.follow(replay)));
    let devices = models.finish();
    Answer { trace: trace.path().display().to_string(), devices, torch: Vec::new() }
}

fn replay(trace: &mut TraceFile, granularity_bytes: Option<u64>, progress: &mut impl FnMut(u64)) -> Replay {
    let mut replay = Replay::new(trace, Options { granularity_bytes, ..Options::default() });
    read_through(trace, progress, |batch| replay.batch(batch));
    replay.finish();
    replay
}

/// The models of all devices, and how each recorded failure ended.
struct Models {
    devices: FxHashMap<u8, DeviceModel>,
    /// By the sequence numbers of their refusals. Attempts of an error that were not its last are none.
    failures: FxHashMap<u64, (u8, Refused)>,
    seen: usize,
}

impl Models {
    fn new(trace: &mut TraceFile, known: &Replay, question: &Question, progress: &mut impl FnMut(u64)) -> Self {
        let wanted = |device: u8| device != NO_DEVICE && question.device.is_none_or(|only| only == device);
        let used = known
            .accounts
            .devices()
            .filter(|(device, account)| wanted(*device) && account.calls.allocations + account.calls.failures > 0);
        let inferred: Vec<(u8, Option<u64>)> =
            used.map(|(device, account)| (device, account.spacing.granularity_bytes())).collect();
        let mut measurements = FxHashMap::default();
        let devices = inferred.into_iter().map(|(device, inferred_bytes)| {
            let inferred = match inferred_bytes {
                Some(bytes) => Granularity { bytes, basis: Basis::Inferred },
                None => Granularity { bytes: 1, basis: Basis::None },
            };
            let overhead = question.overhead_bytes.map(Overhead::given).unwrap_or_else(|| {
                let replay =
                    measurements.entry(inferred.bytes).or_insert_with(|| replay(trace, Some(inferred.bytes), progress));
                measured(replay, &Libraries::new(trace, replay), device)
            });
            let facts = trace.metadata.devices.iter().find(|facts| facts.index == device);
            (device, model(trace, known, question, device, facts, inferred, overhead))
        });
        let devices = devices.collect();
        let number = |(number, oom): (u64, &crate::replay::failures::Oom)| {
            let refused = Refused::new(number, known.clock.at_ns(oom.at), oom, &question.thresholds);
            Some((oom.seq, (oom.device?, refused)))
        };
        Models { devices, failures: (1..).zip(&known.failures.listed).filter_map(number).collect(), seen: 0 }
    }

    /// What changed with the last record.
    fn follow(&mut self, replay: &mut Replay) {
        while let Some(device) = replay.accounts.next_touched() {
            let changes = replay.accounts.take_changes(device);
            let Some(model) = self.devices.get_mut(&device) else { continue };
            for change in &changes {
                match change.comes {
                    true => model.comes(&change.block, || named(replay, &change.block)),
                    false => model.goes(&change.block),
                }
            }
        }
        while self.seen < replay.failures.listed.len() {
            let oom = &replay.failures.listed[self.seen];
            let (api, refused) = (oom.api, self.failures.get(&oom.seq).copied());
            self.seen += 1;
            let Some((device, refused)) = refused else { continue };
            if let Some(model) = self.devices.get_mut(&device) {
                model.failed(&refused, || refused.as_change(&replay.apis.get(api).readable_name()));
            }
        }
    }

    fn finish(self) -> Vec<DeviceAnswer> {
        let mut devices: Vec<(u8, DeviceModel)> = self.devices.into_iter().collect();
        devices.sort_unstable_by_key(|(device, _)| *device);
        devices.into_iter().map(|(_, model)| model.finish()).collect()
    }
}

fn named(replay: &Replay, block: &Block) -> Change {
    Change {
        at_ns: replay.clock.at_ns(block.at),
        api: replay.apis.get(block.api).readable_name(),
        requested_bytes: block.requested_bytes,
        failure: None,
    }
}

fn model(
    trace: &TraceFile,
    known: &Replay,
    question: &Question,
    device: u8,
    facts: Option<&DeviceFacts>,
    inferred: Granularity,
    overhead: Overhead,
) -> DeviceModel {
    let total_bytes = known.accounts.total_bytes(device);
    let mut granularities = vec![inferred];
    let (given, basis) = match question.granularities_bytes.is_empty() {
        true => (vec![known.granularity_bytes], Basis::Recorded),
        false => (question.granularities_bytes.clone(), Basis::Given),
    };
    for bytes in given {
        if granularities.iter().all(|known| known.bytes != bytes) {
            granularities.push(Granularity { bytes, basis });
        }
    }
    let recorded = total_bytes.map(|total_bytes| Recorded { total_bytes, peak_bytes: peak_on_card(known, device) });
    let virtual_bytes = virtual_card(trace).filter(|bytes| total_bytes.is_none_or(|total| *bytes < total));
    // The recorded card is always there. A virtual one counts the program's own blocks alone.
    let mut capacities: Vec<(u64, bool, Overhead)> = Vec::new();
    capacities.extend(virtual_bytes.map(|bytes| (bytes, true, Overhead::given(0))));
    capacities.extend(total_bytes.map(|bytes| (bytes, virtual_bytes.is_none(), overhead)));
    let is_there = |bytes: &&u64| Some(**bytes) == total_bytes || Some(**bytes) == virtual_bytes;
    let others = question.capacities_bytes.iter().filter(|bytes| !is_there(bytes));
    capacities.extend(others.map(|bytes| (*bytes, false, overhead)));
    let cards = capacities.iter().flat_map(|(bytes, is_recorded, beside)| {
        granularities.iter().map(|granularity| CardModel::new(*bytes, *granularity, *is_recorded, *beside, recorded))
    });
    let name = facts.map(|facts| facts.name.clone()).filter(|name| !name.is_empty());
    let grows = grows(trace, known, device, &question.thresholds);
    let answer = DeviceAnswer {
        index: Some(device),
        name,
        total_bytes,
        virtual_bytes,
        allocations: 0,
        failures: 0,
        absurd_failures: 0,
        own_limit_failures: 0,
        failures_in_pieces: 0,
        managed_bytes: 0,
        returned_to_pools_bytes: known.tracks.device(device).map_or(0, |track| track.done.returned_to_pools_bytes),
        grows_bytes_per_step: grows.filter(|grows| !grows.may_be_a_load).map(|grows| grows.bytes_per_step),
        may_grow_bytes_per_step: grows.filter(|grows| grows.may_be_a_load).map(|grows| grows.bytes_per_step),
        overhead,
        needs: Vec::new(),
        cards: Vec::new(),
        modelled: true,
    };
    DeviceModel::new(answer, &granularities, cards.collect(), recorded)
}

/// The size of the virtual card that the recorder was told to play.
fn virtual_card(trace: &TraceFile) -> Option<u64> {
    let variables = &trace.metadata.process.environment;
    let (_, value) = variables.iter().find(|(name, _)| name == "GPUOOM_CAPACITY")?;
    // "off" is not a size, and the recorder leaves out a setting that it can't read.
    gpuoom_units::size(value).ok().filter(|bytes| *bytes > 0)
}

/// A rise where a run ends.
#[derive(Clone, Copy)]
struct Grows {
    bytes_per_step: u64,
    may_be_a_load: bool,
}

/// By how much what stays rises after each step where the run ends. What blocks inside of a cache hold counts as well: the cache shows
/// that late.
fn grows(trace: &TraceFile, known: &Replay, device: u8, thresholds: &Thresholds) -> Option<Grows> {
    let of_calls = || {
        let cycles = growth::cycles_of(known.tracks.device(device)?, thresholds);
        let growth = growth::of_device(known, device, &cycles, thresholds).filter(|growth| growth.significant)?;
        Some(Grows { bytes_per_step: growth.per_cycle.bytes as u64, may_be_a_load: false })
    };
    let of_blocks = || {
        let stacks = Stacks::new(trace, known, &SymbolPlaces::default());
        let run = tensor_growth::Run { replay: known, stacks: &stacks, is_whole: trace.is_whole(), thresholds };
        let growth = TensorGrowth::of(&run, device, Until::End)?;
        let may_be_a_load = growth.may_be_a_load(thresholds);
        growth.significant.then_some(Grows { bytes_per_step: growth.per_step.bytes as u64, may_be_a_load })
    };
    of_calls().or_else(of_blocks)
}

/// The most that lived at once of what belongs on the card, as far as the peak of all blocks tells.
fn peak_on_card(known: &Replay, device: u8) -> u64 {
    let peak = known.accounts.device(device).map_or_else(Default::default, |account| account.peak);
    saturate(peak.held.requested_bytes.saturating_sub(peak.managed.requested_bytes))
}
