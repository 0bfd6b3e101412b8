//! Which GPU of a machine a device of the program is: the runtimes count what `*_VISIBLE_DEVICES` leaves of the machine's
//! GPUs, in an order of their own.
//!
//! What a runtime itself tells of its device's place comes before anything here. Sources: ROCm's page on GPU isolation and
//! HIP's on environment variables; the CUDA C++ Programming Guide, "CUDA Environment Variables".

use super::Machine;
use super::card::{Card, NVIDIA};
use super::pci::PciAddress;

/// Whose runtime counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Runtime {
    /// HIP over ROCr: GPUs are counted as KFD's nodes are.
    Hip,
    /// CUDA: the fastest first, unless `CUDA_DEVICE_ORDER=PCI_BUS_ID`.
    Cuda,
}

impl Runtime {
    /// By the name that a trace has.
    pub fn named(name: &str) -> Option<Self> {
        match name {
            "hip" => Some(Runtime::Hip),
            "cuda" => Some(Runtime::Cuda),
            _ => None,
        }
    }
}

/// What an entry of a list of visible devices chooses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Chosen {
    /// A GPU by its position among all that the runtime could see.
    Position(usize),
    /// A GPU, or a slice of one, by its UUID: `GPU-...`, `MIG-...`. It may be cut short.
    Uuid(String),
}

/// What a device index stands for, with `count` GPUs on the machine. `None` where the variables hide it, or where it is not
/// known which of them counts.
pub fn chosen(
    runtime: Runtime,
    variable: impl Fn(&str) -> Option<String>,
    index: usize,
    count: usize,
) -> Option<Chosen> {
    let all: Vec<Chosen> = (0..count).map(Chosen::Position).collect();
    let is_set = |name: &str| variable(name).filter(|text| !text.trim().is_empty());
    let list = match runtime {
        Runtime::Cuda => narrowed(all, is_set("CUDA_VISIBLE_DEVICES").as_deref()),
        Runtime::Hip => {
            let left = narrowed(all, is_set("ROCR_VISIBLE_DEVICES").as_deref());
            let of_hip = is_set("HIP_VISIBLE_DEVICES").or_else(|| is_set("CUDA_VISIBLE_DEVICES"));
            let list = narrowed(left, of_hip.as_deref());
            // The documents say that HIP follows it, too; which of the two comes first, they do not say.
            let ordinals = narrowed(list.clone(), is_set("GPU_DEVICE_ORDINAL").as_deref());
            if ordinals.get(index) != list.get(index) {
                return None;
            }
            list
        }
    };
    list.get(index).cloned()
}

/// What a list leaves: numbers count what there was before, and the first that is none ends it.
fn narrowed(before: Vec<Chosen>, list: Option<&str>) -> Vec<Chosen> {
    let Some(list) = list else { return before };
    let entry = |text: &str| match text.trim() {
        uuid if uuid.starts_with("GPU-") || uuid.starts_with("MIG-") => Some(Chosen::Uuid(uuid.to_owned())),
        number => before.get(number.parse::<usize>().ok()?).cloned(),
    };
    list.split(',').map_while(entry).collect()
}

/// The positions that a recorder follows for the counters of KFD: plain numbers of two variables, and nothing else.
pub fn plain_numbers<'a>(variable: impl Fn(&str) -> Option<&'a str>, count: usize) -> Vec<usize> {
    let mut positions: Vec<usize> = (0..count).collect();
    for name in ["ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES"] {
        let Some(list) = variable(name).filter(|list| !list.trim().is_empty()) else { continue };
        let numbers: Result<Vec<usize>, _> = list.split(',').map(|number| number.trim().parse()).collect();
        if let Ok(numbers) = numbers {
            positions = numbers.iter().map_while(|number| positions.get(*number).copied()).collect();
        }
    }
    positions
}

/// The GPUs that a runtime could see, in the order in which it counts them; `None` where the order is not known.
pub fn counted(
    machine: &Machine,
    runtime: Runtime,
    variable: impl Fn(&str) -> Option<String>,
) -> Option<Vec<PciAddress>> {
    if machine.cut {
        return None;
    }
    match runtime {
        Runtime::Hip => {
            let nodes = machine.nodes.iter().filter(|node| node.is_gpu());
            nodes.map(|node| PciAddress::parse(&node.pci_bus_id()?)).collect()
        }
        Runtime::Cuda => {
            let usable = machine.nvidia_gpus.iter().filter(|gpu| !gpu.is_excluded);
            let mut gpus: Vec<PciAddress> =
                usable.map(|gpu| PciAddress::parse(&gpu.pci_bus_id)).collect::<Option<_>>()?;
            gpus.sort_unstable();
            let by_place = variable("CUDA_DEVICE_ORDER").is_some_and(|order| order.trim() == "PCI_BUS_ID");
            (gpus.len() < 2 || by_place).then_some(gpus)
        }
    }
}

/// The place of the device with this index, by the environment and the machine's files.
pub fn place(
    machine: &Machine,
    runtime: Runtime,
    variable: impl Fn(&str) -> Option<String>,
    index: usize,
) -> Option<PciAddress> {
    let gpus = counted(machine, runtime, &variable)?;
    match chosen(runtime, variable, index, gpus.len())? {
        Chosen::Position(position) => gpus.get(position).copied(),
        Chosen::Uuid(_) => None,
    }
}

/// How many GPUs a machine has that this runtime could use, with or without a card in `/sys/class/drm`; of any vendor, where
/// the runtime is not known.
pub fn gpu_count(machine: &Machine, runtime: Option<Runtime>) -> usize {
    let is_nvidia = |card: &&Card| card.vendor_id == Some(NVIDIA);
    let places = |addresses: &mut dyn Iterator<Item = Option<String>>| -> (Vec<PciAddress>, usize) {
        let all: Vec<Option<PciAddress>> = addresses.map(|address| PciAddress::parse(&address?)).collect();
        let unknown = all.iter().filter(|address| address.is_none()).count();
        (all.into_iter().flatten().collect(), unknown)
    };
    let together = |one: (Vec<PciAddress>, usize), other: (Vec<PciAddress>, usize)| {
        // What has no address may be any of the others, but there are no fewer than either list has.
        let least = (one.0.len() + one.1).max(other.0.len() + other.1);
        let mut known = [one.0, other.0].concat();
        known.sort_unstable();
        known.dedup();
        known.len().max(least)
    };
    let amd = || {
        let cards = places(&mut machine.cards.iter().filter(|card| !is_nvidia(card)).filter(is_no_intel).map(address));
        let nodes = places(&mut machine.nodes.iter().filter(|node| node.is_gpu()).map(|node| node.pci_bus_id()));
        together(cards, nodes)
    };
    let nvidia = || {
        let cards = places(&mut machine.cards.iter().filter(is_nvidia).map(address));
        let gpus = places(&mut machine.nvidia_gpus.iter().map(|gpu| Some(gpu.pci_bus_id.clone())));
        together(cards, gpus)
    };
    match runtime {
        Some(Runtime::Hip) => amd(),
        Some(Runtime::Cuda) => nvidia(),
        None => amd() + nvidia(),
    }
}

fn is_no_intel(card: &&Card) -> bool {
    card.vendor_id != Some(super::card::INTEL)
}

fn address(card: &Card) -> Option<String> {
    card.pci_bus_id.clone()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::card::NvidiaGpu;
    use crate::machine::kfd::KfdNode;

    fn set<'a>(variables: &'a [(&'a str, &'a str)]) -> impl Fn(&str) -> Option<String> + Copy + 'a {
        move |name| variables.iter().find(|(other, _)| *other == name).map(|(_, value)| (*value).to_owned())
    }

    fn positions(runtime: Runtime, variables: &[(&str, &str)]) -> Vec<Option<usize>> {
        let position = |index| match chosen(runtime, set(variables), index, 4)? {
            Chosen::Position(position) => Some(position),
            Chosen::Uuid(_) => None,
        };
        (0..4).map(position).collect()
    }

    #[test]
    fn rocr_selects_first_and_hip_of_what_is_left() {
        let hip = |variables: &[(&str, &str)]| positions(Runtime::Hip, variables);
        assert_eq!(hip(&[]), [Some(0), Some(1), Some(2), Some(3)]);
        assert_eq!(hip(&[("ROCR_VISIBLE_DEVICES", "3,1"), ("HIP_VISIBLE_DEVICES", "1")]), [Some(1), None, None, None]);
        assert_eq!(hip(&[("CUDA_VISIBLE_DEVICES", "2")]), [Some(2), None, None, None], "HIP takes CUDA's name, too");
        assert_eq!(hip(&[("HIP_VISIBLE_DEVICES", "0"), ("CUDA_VISIBLE_DEVICES", "2")]), [Some(0), None, None, None]);
        assert_eq!(
            hip(&[("HIP_VISIBLE_DEVICES", "1,9,0")]),
            [Some(1), None, None, None],
            "a wrong number ends the list"
        );
        assert_eq!(hip(&[("HIP_VISIBLE_DEVICES", " ")])[1], Some(1), "empty is not set");
        assert_eq!(hip(&[("GPU_DEVICE_ORDINAL", "1,0")]), [None; 4], "documents and program disagree");
        assert_eq!(hip(&[("GPU_DEVICE_ORDINAL", "0")]), [Some(0), None, None, None]);
        let by_uuid = chosen(Runtime::Hip, set(&[("ROCR_VISIBLE_DEVICES", "1,GPU-9ab")]), 1, 4);
        assert_eq!(by_uuid, Some(Chosen::Uuid("GPU-9ab".into())));
        let both = [("ROCR_VISIBLE_DEVICES", "GPU-9ab,2"), ("HIP_VISIBLE_DEVICES", "1,0")];
        assert_eq!(hip(&both)[0], Some(2));
    }

    #[test]
    fn cuda_has_lists_of_its_own() {
        let cuda = |variables: &[(&str, &str)]| positions(Runtime::Cuda, variables);
        assert_eq!(cuda(&[("CUDA_VISIBLE_DEVICES", "2, 0"), ("HIP_VISIBLE_DEVICES", "3")])[..2], [Some(2), Some(0)]);
        assert_eq!(cuda(&[("CUDA_VISIBLE_DEVICES", "-1")]), [None; 4]);
        let mig = chosen(Runtime::Cuda, set(&[("CUDA_VISIBLE_DEVICES", "MIG-1/2/0")]), 0, 4);
        assert_eq!(mig, Some(Chosen::Uuid("MIG-1/2/0".into())));
    }

    fn nvidia(places: &[&str]) -> Machine {
        let gpus = places.iter().map(|place| NvidiaGpu { pci_bus_id: (*place).into(), ..NvidiaGpu::default() });
        Machine { nvidia_gpus: gpus.collect(), ..Machine::default() }
    }

    #[test]
    fn cudas_own_order_is_not_known_with_several_cards() {
        let place_of = |machine: &Machine, variables: &[(&str, &str)]| {
            place(machine, Runtime::Cuda, set(variables), 0).map(|place| place.to_string())
        };
        let two = nvidia(&["0000:41:00.0", "0000:01:00.0"]);
        assert_eq!(place_of(&two, &[]), None);
        let ordered = [("CUDA_DEVICE_ORDER", "PCI_BUS_ID"), ("CUDA_VISIBLE_DEVICES", "1")];
        assert_eq!(place_of(&two, &ordered).as_deref(), Some("0000:41:00.0"));
        assert_eq!(place_of(&nvidia(&["0000:41:00.0"]), &[]).as_deref(), Some("0000:41:00.0"));
        assert_eq!(place_of(&nvidia(&["0000:41:00.0"]), &[("CUDA_VISIBLE_DEVICES", "1")]), None, "there is more to it");
        assert_eq!(place_of(&Machine { cut: true, ..nvidia(&["0000:41:00.0"]) }, &[]), None);
    }

    fn node(number: u64, location_id: u64) -> KfdNode {
        KfdNode { number, gpu_id: Some(number * 100), location_id: Some(location_id), ..KfdNode::default() }
    }

    #[test]
    fn hip_counts_as_kfd_does() {
        let machine = Machine { nodes: vec![node(1, 0x8300), node(2, 0x0300)], ..Machine::default() };
        let at = |variables: &[(&str, &str)]| place(&machine, Runtime::Hip, set(variables), 0).unwrap().to_string();
        assert_eq!(at(&[]), "0000:83:00.0");
        assert_eq!(at(&[("HIP_VISIBLE_DEVICES", "1")]), "0000:03:00.0");
    }

    #[test]
    fn a_gpu_without_a_card_counts() {
        let card = |place: &str| Card { pci_bus_id: Some(place.into()), vendor_id: Some(0x1002), ..Card::default() };
        let machine = |cards: Vec<Card>, nodes: Vec<KfdNode>| Machine { cards, nodes, ..Machine::default() };
        let of = |machine: &Machine| gpu_count(machine, Some(Runtime::Hip));
        assert_eq!(of(&machine(vec![card("0000:03:00.0")], vec![node(1, 0x0300)])), 1);
        assert_eq!(of(&machine(vec![card("0000:03:00.0")], vec![node(1, 0x0e00)])), 2, "graphics of the processor");
        assert_eq!(of(&machine(vec![Card::default()], vec![node(1, 0x0e00)])), 1, "a card without a place may be it");
        assert_eq!(of(&nvidia(&["0000:01:00.0"])), 0);
        let mixed = Machine { cards: vec![card("0000:0e:00.0")], ..nvidia(&["0000:01:00.0"]) };
        assert_eq!((gpu_count(&mixed, Some(Runtime::Cuda)), gpu_count(&mixed, None)), (1, 2));
    }
}
