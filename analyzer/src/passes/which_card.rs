//! Which card of the machine a device of the program is. Where it can't be told, it is none.

use std::collections::BTreeMap;

use crate::machine::Machine;
use crate::machine::card::{Card, NVIDIA};
use crate::machine::kfd::KfdNode;
use crate::machine::mapping::{self, Chosen, Runtime};
use crate::machine::pci::PciAddress;
use crate::passes::device::DeviceSummary;

/// What decides it: the machine, the `*_VISIBLE_DEVICES` variables, and all devices of the program.
#[derive(Clone, Copy, Debug)]
pub struct WhichCard<'f> {
    /// The machine that the trace was recorded on.
    pub machine: &'f Machine,
    /// The recorded environment.
    pub environment: &'f BTreeMap<String, String>,
    /// The program's devices.
    pub devices: &'f [DeviceSummary],
}

impl<'f> WhichCard<'f> {
    /// The card of a device: by its place on the bus, or the only GPU there is.
    pub fn card(&self, device: &DeviceSummary) -> Option<&'f Card> {
        match self.place(device) {
            Some(place) => self.machine.cards.iter().find(|card| is_at(card.pci_bus_id.as_deref(), place)),
            None => self.machine.cards.first().filter(|_| self.is_only(device)),
        }
    }

    /// The video memory of a device by sysfs, in bytes, where that is what the device has to give: an APU gives the host's
    /// memory too, and a partition has only its part.
    pub fn video_memory(&self, device: &DeviceSummary) -> Option<u64> {
        let (card, node) = (self.card(device)?, self.node(device)?);
        let is_whole = card.compute_partition.as_deref().is_none_or(|mode| mode == "SPX");
        let is_discrete = node.is_integrated() == Some(false);
        card.vram_total_bytes.filter(|total| is_whole && is_discrete && *total > 0)
    }

    /// KFD's node of a device.
    pub fn node(&self, device: &DeviceSummary) -> Option<&'f KfdNode> {
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
        let runtime = runtime_of(device).or(self.counted_by_the_recorder())?;
        // Several devices on a machine that shows one GPU: it does not show all.
        let devices = self.devices.iter().filter(|device| device.index.is_some()).count();
        let shows_all = devices <= mapping::gpu_count(self.machine, Some(runtime));
        mapping::place(self.machine, runtime, self.variables(), device.index?.into()).filter(|_| shows_all)
    }

    /// Whether the machine has but one GPU that a device could be, so that whoever names none means it.
    pub fn has_one_gpu(&self, device: &DeviceSummary) -> bool {
        !self.machine.cut && mapping::gpu_count(self.machine, runtime_of(device)) == 1
    }

    /// The UUID by which the environment chose a device.
    pub fn chosen_uuid(&self, device: &DeviceSummary) -> Option<String> {
        let (runtime, index) = (runtime_of(device)?, usize::from(device.index?));
        let count = mapping::gpu_count(self.machine, Some(runtime));
        match mapping::chosen(runtime, self.variables(), index, count)? {
            Chosen::Uuid(uuid) => Some(uuid),
            Chosen::Position(_) => None,
        }
    }

    /// Of a program that uses HSA, KFD or the DRM alone the recorder counts the GPUs as HIP would, by KFD's topology.
    fn counted_by_the_recorder(&self) -> Option<Runtime> {
        let is_set = |name: &str| self.environment.get(name).is_some_and(|text| !text.trim().is_empty());
        let is_nvidias = |card: &Card| card.vendor_id == Some(NVIDIA);
        let has_none = self.machine.nvidia_gpus.is_empty() && !self.machine.cards.iter().any(is_nvidias);
        (has_none && !is_set("CUDA_VISIBLE_DEVICES")).then_some(Runtime::Hip)
    }

    fn variables(&self) -> impl Fn(&str) -> Option<String> + 'f {
        let environment = self.environment;
        move |name| environment.get(name).cloned()
    }

    /// Whether a device whose runtime does not tell its place is the machine's only GPU.
    fn is_only(&self, device: &DeviceSummary) -> bool {
        let is_alone = self.devices.iter().all(|other| other.index.is_none() || other.index == device.index);
        is_alone && device.pci_bus_id.is_none() && device.index == Some(0) && self.has_one_gpu(device)
    }
}

fn runtime_of(device: &DeviceSummary) -> Option<Runtime> {
    Runtime::named(device.runtime.as_deref()?)
}

fn is_at(address: Option<&str>, place: PciAddress) -> bool {
    address.and_then(PciAddress::parse).is_some_and(|address| address.is(place))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::card::AMD;

    fn card(place: &str) -> Card {
        Card {
            pci_bus_id: Some(place.into()),
            vendor_id: Some(AMD),
            vram_total_bytes: Some(1 << 30),
            ..Card::default()
        }
    }

    fn node(location_id: u64, gfx_target_version: Option<u64>) -> KfdNode {
        KfdNode { gpu_id: Some(1), location_id: Some(location_id), gfx_target_version, ..KfdNode::default() }
    }

    /// Of a device that no runtime tells of.
    fn video_memory(cards: Vec<Card>, nodes: Vec<KfdNode>) -> Option<u64> {
        let machine = Machine { cards, nodes, ..Machine::default() };
        let device = DeviceSummary { index: Some(0), ..DeviceSummary::default() };
        let (environment, devices) = (BTreeMap::new(), [device]);
        let which = WhichCard { machine: &machine, environment: &environment, devices: &devices };
        which.video_memory(&devices[0])
    }

    #[test]
    fn only_a_card_that_is_surely_meant_gives_its_video_memory() {
        const GFX1100: Option<u64> = Some(110_000);
        let one = || vec![card("0000:03:00.0")];
        assert_eq!(video_memory(one(), vec![node(0x300, GFX1100)]), Some(1 << 30));
        assert_eq!(video_memory(one(), vec![node(0x300, Some(110_501))]), None, "an APU");
        assert_eq!(video_memory(one(), vec![node(0x300, None)]), None, "perhaps an APU");
        let part = Card { compute_partition: Some("CPX".into()), ..card("0000:03:00.0") };
        assert_eq!(video_memory(vec![part], vec![node(0x300, GFX1100)]), None);
        let larger = Card { vram_total_bytes: Some(2 << 30), ..card("0000:83:00.0") };
        let two = || vec![card("0000:03:00.0"), larger.clone()];
        let nodes = vec![node(0x8300, GFX1100), node(0x300, GFX1100)];
        assert_eq!(video_memory(two(), nodes), Some(2 << 30), "KFD's order counts, and not that of the cards");
        assert_eq!(video_memory(two(), vec![]), None, "no order is known");
        let foreign = Card { vendor_id: Some(NVIDIA), ..card("0000:83:00.0") };
        assert_eq!(video_memory(vec![card("0000:03:00.0"), foreign], vec![node(0x300, GFX1100)]), None);
    }
}
