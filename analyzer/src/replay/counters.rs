//! Which of the driver's counters are of the device whose index they have.
//!
//! A recorder knows the cards of sysfs and KFD by their own numbers, and gives them an index of the program's runtime: by the
//! PCI address that the runtime tells; until then, and without one, by a guess. With several GPUs a guess says nothing.

use std::collections::BTreeSet;

use gpuoom_trace::metadata::{Quantity, Reading};
use gpuoom_trace::reader::TraceFile;

use crate::machine::Machine;
use crate::machine::mapping::{self, Runtime};
use crate::machine::pci::PciAddress;

/// Who counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Counter {
    /// amdgpu, per card.
    Card,
    /// KFD, per GPU.
    Kfd,
}

fn counter_of(quantity: u16) -> Option<Counter> {
    use Quantity as Q;
    let is = |all: &[Quantity]| all.iter().any(|known| *known as u16 == quantity);
    let of_card =
        [Q::VramTotal, Q::VramUsed, Q::VisibleVramTotal, Q::VisibleVramUsed, Q::GttTotal, Q::GttUsed, Q::GraphicsVram];
    let of_kfd = [Q::KfdProcessVram, Q::KfdOthersVram, Q::KfdAvailable];
    match () {
        () if is(&of_card) => Some(Counter::Card),
        () if is(&of_kfd) => Some(Counter::Kfd),
        () => None,
    }
}

/// A device as its runtime tells of it.
#[derive(Clone, Copy, Debug)]
struct Told {
    index: u8,
    is_cuda: bool,
    place: Option<PciAddress>,
}

/// What is known of the places of devices and cards.
#[derive(Clone, Debug, Default)]
pub(super) struct Counters {
    devices: Vec<Told>,
    /// Cards with counters of their memory, by their places.
    cards: Vec<Option<PciAddress>>,
    /// KFD's GPUs, in its order.
    gpus: Vec<Option<PciAddress>>,
    /// What the recorder took each of the program's devices for: positions among KFD's GPUs.
    followed: Vec<usize>,
    /// Devices whose runtime has answered: the recorder knows their places since.
    answered: BTreeSet<u8>,
}

impl Counters {
    pub(super) fn new(trace: &TraceFile) -> Self {
        let machine = Machine::of_trace(trace);
        let facts = trace.metadata.devices.iter();
        let devices = facts.map(|facts| Told {
            index: facts.index,
            is_cuda: Runtime::named(&facts.runtime) == Some(Runtime::Cuda),
            place: PciAddress::parse(&facts.pci_bus_id),
        });
        let with_counters = machine.cards.iter().filter(|card| card.vram_total_bytes.is_some());
        let gpus = machine.nodes.iter().filter(|node| node.is_gpu());
        let gpus: Vec<Option<PciAddress>> = gpus.map(|node| PciAddress::parse(&node.pci_bus_id()?)).collect();
        let environment = &trace.metadata.process.environment;
        let variable =
            |name: &str| environment.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str());
        Counters {
            devices: devices.collect(),
            cards: with_counters.map(|card| PciAddress::parse(card.pci_bus_id.as_deref()?)).collect(),
            followed: mapping::plain_numbers(variable, gpus.len()),
            gpus,
            answered: BTreeSet::new(),
        }
    }

    /// The readings that are of the device whose index they have, or of none.
    pub(super) fn placed(&mut self, mut readings: Vec<Reading>) -> Vec<Reading> {
        let by_runtime = readings.iter().filter(|reading| reading.quantity == Quantity::RuntimeTotal as u16);
        self.answered.extend(by_runtime.map(|reading| reading.device));
        let count = |counter: Counter| {
            let of_counter = readings.iter().filter(|reading| counter_of(reading.quantity) == Some(counter));
            of_counter.map(|reading| reading.device).collect::<BTreeSet<u8>>().len()
        };
        let (cards, gpus) = (count(Counter::Card), count(Counter::Kfd));
        readings.retain(|reading| match counter_of(reading.quantity) {
            None => true,
            Some(Counter::Card) => self.is_card(reading.device, cards),
            Some(Counter::Kfd) => self.is_gpu(reading.device, gpus),
        });
        readings
    }

    fn told(&self, device: u8) -> Option<&Told> {
        self.devices.iter().find(|told| told.index == device)
    }

    /// Whether the counters of a card, one of so many, are of this device.
    fn is_card(&self, device: u8, read: usize) -> bool {
        let told = self.told(device);
        if told.is_some_and(|told| told.is_cuda) {
            return false;
        }
        let place = told.and_then(|told| told.place);
        let is_at = |card: &Option<PciAddress>| place.zip(*card).is_some_and(|(place, card)| place.is(card));
        match self.cards.len().max(read) {
            // The only one; unless both places are known, and differ.
            0 | 1 => {
                let differs = |card: &Option<PciAddress>| place.zip(*card).is_some_and(|(place, card)| !place.is(card));
                !self.cards.iter().any(differs)
            }
            _ => self.cards.iter().any(is_at) && self.answered.contains(&device),
        }
    }

    /// Whether the counters of one of KFD's GPUs are of this device.
    fn is_gpu(&self, device: u8, read: usize) -> bool {
        let told = self.told(device);
        if told.is_some_and(|told| told.is_cuda) {
            return false;
        }
        let place = told.and_then(|told| told.place);
        let followed = self.followed.get(usize::from(device)).and_then(|position| *self.gpus.get(*position)?);
        match (self.gpus.len().max(read), place.zip(followed)) {
            (_, Some((place, followed))) => place.is(followed),
            (0 | 1, None) => true,
            _ => false,
        }
    }
}
