//! What the machine's files, the kernel's log and the vendors' tools say of the card that a device is. Where it is not known
//! which that is, nothing is said of it.

use super::case::Case;
use crate::evidence::Given;
use crate::evidence::kernel_log::KernelEvent;
use crate::evidence::smi::{self, CardProcess, SmiReport};
use crate::judgement::check::Holds;
use crate::machine::card::Card;
use crate::machine::kfd::KfdNode;
use crate::machine::pci::PciAddress;
use crate::passes::device::DeviceSummary;
use crate::passes::which_card::WhichCard;

/// What is missing where several cards may be meant.
const WHICH_CARD: &str = "which of the machine's cards is meant (its PCI address)";

impl<'a> Case<'a> {
    fn which_card(&self) -> WhichCard<'a> {
        WhichCard { machine: self.machine, environment: self.environment(), devices: &self.facts.devices }
    }

    /// The card of a device.
    pub fn card(&self, device: &DeviceSummary) -> Option<&'a Card> {
        self.which_card().card(device)
    }

    /// KFD's node of a device.
    pub fn node(&self, device: &DeviceSummary) -> Option<&'a KfdNode> {
        self.which_card().node(device)
    }

    /// Where a device is on the bus.
    pub fn place(&self, device: &DeviceSummary) -> Option<PciAddress> {
        self.which_card().place(device)
    }

    /// The card of a device in the output of the vendors' tools.
    pub fn told_of(&self, device: &DeviceSummary) -> Option<&'a smi::Card> {
        let is_it = |file: &Given<SmiReport>, card: &smi::Card| self.is_told_card(device, &file.content, card);
        let mut files = self.evidence.smi.iter();
        files.find_map(|file| file.content.cards.iter().find(|card| is_it(file, card) == Some(true)))
    }

    /// Whether a tool's card is that of a device; `None` where nobody knows.
    fn is_told_card(&self, device: &DeviceSummary, file: &SmiReport, card: &smi::Card) -> Option<bool> {
        let place = self.place_told(file, card.pci_bus_id.as_deref(), card.uuid.as_deref(), card.index);
        // A list of one card, from a machine that has one.
        let is_only = || file.cards.len() == 1 && self.which_card().has_one_gpu(device);
        self.is_same(device, place, card.uuid.as_deref(), is_only)
    }

    /// Whether a process in a tool's list uses the card of a device; `None` where nobody knows.
    pub fn is_told_process(&self, device: &DeviceSummary, file: &SmiReport, process: &CardProcess) -> Option<bool> {
        let place = self.place_told(file, process.pci_bus_id.as_deref(), process.uuid.as_deref(), process.card);
        self.is_same(device, place, process.uuid.as_deref(), || self.which_card().has_one_gpu(device))
    }

    fn is_same(
        &self,
        device: &DeviceSummary,
        place: Option<PciAddress>,
        uuid: Option<&str>,
        is_only: impl FnOnce() -> bool,
    ) -> Option<bool> {
        match (self.place(device), place) {
            (Some(own), Some(place)) => Some(own.is(place)),
            // A list that names another place may be another machine's.
            (_, None) if is_only() => Some(true),
            _ => self.which_card().chosen_uuid(device).zip(uuid).map(|(own, uuid)| uuid.starts_with(&own)),
        }
    }

    /// The place that a tool means by an address, by a UUID, or by a number of its own that it gives an address elsewhere.
    fn place_told(
        &self,
        file: &SmiReport,
        address: Option<&str>,
        uuid: Option<&str>,
        index: Option<u64>,
    ) -> Option<PciAddress> {
        if let Some(address) = address {
            return PciAddress::parse(address);
        }
        let of_tool = self.evidence.smi.iter().filter(|other| other.content.tool() == file.tool());
        let cards = || of_tool.clone().flat_map(|file| &file.content.cards).filter(|card| card.pci_bus_id.is_some());
        let by_uuid = cards().find(|card| uuid.is_some() && card.uuid.as_deref() == uuid);
        let card = by_uuid.or_else(|| cards().find(|card| index.is_some() && card.index == index))?;
        PciAddress::parse(card.pci_bus_id.as_deref()?)
    }

    /// Whether a line of the kernel's log is about a device; `None` where nobody knows.
    pub fn is_logged_of(&self, device: &DeviceSummary, event: &KernelEvent) -> Option<bool> {
        match (self.place(device), event.place) {
            (Some(own), Some(place)) => Some(own.is(place)),
            _ => self.which_card().has_one_gpu(device).then_some(true),
        }
    }

    /// Whether a log of the kernel says this of a device; not known where none was given, or where it names no card and there
    /// are several.
    pub fn kernel_says_of(&self, device: &DeviceSummary, what: impl Fn(&KernelEvent) -> bool) -> Holds {
        let says = |event: &KernelEvent| match self.is_logged_of(device, event) {
            _ if !what(event) => Holds::No,
            Some(is_it) => is_it.into(),
            None => Holds::Unknown(WHICH_CARD),
        };
        match self.kernel_says(|_| true) {
            Holds::Unknown(log) => Holds::Unknown(log),
            _ => self.kernel_events().map(says).fold(Holds::No, Holds::or),
        }
    }
}
