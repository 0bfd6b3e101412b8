//! Which card of the machine a device of the program is. Where it can't be told, nobody may say anything of a card.

use std::collections::BTreeMap;

use crate::machine::Machine;
use crate::machine::card::Card;
use crate::machine::kfd::KfdNode;
use crate::machine::mapping::{self, Runtime};
use crate::machine::pci::PciAddress;
use crate::passes::device::DeviceSummary;

/// The program's devices beside the machine's cards.
#[derive(Clone, Copy)]
pub struct Cards<'a> {
    /// The machine.
    pub machine: &'a Machine,
    /// The recorded environment, whose variables choose and order devices.
    pub environment: &'a BTreeMap<String, String>,
    /// The program's devices.
    pub devices: &'a [DeviceSummary],
}

impl<'a> Cards<'a> {
    /// The card of a device: by its place on the bus, or the only GPU there is.
    pub fn card(&self, device: &DeviceSummary) -> Option<&'a Card> {
        match self.place(device) {
            Some(place) => self.machine.cards.iter().find(|card| is_at(card.pci_bus_id.as_deref(), place)),
            None => self.machine.cards.first().filter(|_| self.is_only(device)),
        }
    }

    /// KFD's node of a device.
    pub fn node(&self, device: &DeviceSummary) -> Option<&'a KfdNode> {
        let mut gpus = self.machine.nodes.iter().filter(|node| node.is_gpu());
        match self.place(device) {
            Some(place) => gpus.find(|node| is_at(node.pci_bus_id().as_deref(), place)),
            None => gpus.next().filter(|_| self.is_only(device)),
        }
    }

    /// Where a device is on the bus: as its runtime tells, else as the environment chooses it from the machine's GPUs.
    pub fn place(&self, device: &DeviceSummary) -> Option<PciAddress> {
        if let Some(told) = device.pci_bus_id.as_deref() {
            return PciAddress::parse(told);
        }
        let variable = |name: &str| self.environment.get(name).filter(|value| !value.is_empty()).cloned();
        // Several devices on a machine that shows one GPU: it does not show all.
        let shows_all = self.devices.iter().filter(|device| device.index.is_some()).count()
            <= mapping::gpu_count(self.machine, runtime_of(device));
        mapping::place(self.machine, runtime_of(device)?, variable, device.index?.into()).filter(|_| shows_all)
    }

    /// Whether a device is the machine's only GPU. That of another vendor's runtime is none of its.
    fn is_only(&self, device: &DeviceSummary) -> bool {
        let is_alone = self.devices.iter().all(|other| other.index.is_none() || other.index == device.index);
        let is_told = device.pci_bus_id.is_some();
        is_alone
            && !is_told
            && device.index == Some(0)
            && !self.machine.cut
            && mapping::gpu_count(self.machine, runtime_of(device)) == 1
    }

    /// Whether the machine has but one GPU that a device could be, so that whoever names none means it.
    pub fn has_one_gpu(&self, device: &DeviceSummary) -> bool {
        !self.machine.cut && mapping::gpu_count(self.machine, runtime_of(device)) == 1
    }
}

/// The runtime that counts a device.
pub fn runtime_of(device: &DeviceSummary) -> Option<Runtime> {
    Runtime::named(device.runtime.as_deref()?)
}

fn is_at(address: Option<&str>, place: PciAddress) -> bool {
    address.and_then(PciAddress::parse).is_some_and(|address| address.is(place))
}
