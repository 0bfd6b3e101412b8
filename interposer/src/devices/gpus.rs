//! From the drivers' numbers of a card to the index that the program's runtime gives it.

use std::fs;
use std::path::{Path, PathBuf};

use gpuoom_trace::record::NO_DEVICE;

use super::cache::Cache;
use super::nodes;
use crate::base::config::{self, Config};

/// A card.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Card {
    /// KFD's number, 0 where KFD does not know it.
    gpu_id: u32,
    /// Minor numbers of its nodes below `/dev/dri`.
    minors: [Option<u32>; 2],
    device: u8,
}

static CARDS: Cache<Vec<Card>> = Cache::new();

fn find(is_it: impl Fn(&Card) -> bool) -> u8 {
    let cards = CARDS.get(|| cards(config::get(), |name| std::env::var(name).ok()));
    cards.and_then(|cards| cards.iter().find(|card| is_it(card))).map_or(NO_DEVICE, |card| card.device)
}

/// The device with this number of KFD's; none for numbers that it does not have, such as that of the host.
pub(crate) fn of_gpu_id(gpu_id: u32) -> u8 {
    find(|card| card.gpu_id == gpu_id && gpu_id != 0)
}

/// The device that a node below `/dev/dri` belongs to.
pub(crate) fn of_minor(minor: u32) -> u8 {
    find(|card| card.minors.contains(&Some(minor)))
}

/// KFD's numbers of all GPUs with their index in this process.
pub(crate) fn of_kfd(config: &Config) -> Vec<(u64, u8)> {
    let cards = cards(config, |name| std::env::var(name).ok());
    let known = cards.iter().filter(|card| card.gpu_id != 0);
    known.map(|card| (u64::from(card.gpu_id), card.device)).collect()
}

/// All cards, those of KFD first: their order is the runtime's. Read once; the program's environment then is what its
/// runtime read or will read.
fn cards(config: &Config, variable: impl Fn(&str) -> Option<String>) -> Vec<Card> {
    let mut cards: Vec<Card> = Vec::new();
    for (gpu_id, properties) in gpu_nodes(config) {
        let text = fs::read_to_string(properties).unwrap_or_default();
        let minor = text.lines().find_map(|line| line.strip_prefix("drm_render_minor "));
        let minor = minor.and_then(|value| value.trim().parse().ok());
        cards.push(Card { gpu_id: gpu_id as u32, minors: [minor, None], device: NO_DEVICE });
    }
    let slots: Vec<(u32, String)> =
        nodes::amdgpu_names(config).into_iter().map(|(name, minor)| (minor, slot(config, &name))).collect();
    // Render nodes (from 128 on) are listed after the cards, which then join them by their slot.
    for (minor, slot) in slots.iter().rev() {
        let same = |known: Option<u32>| slots.iter().any(|(other, at)| Some(*other) == known && at == slot);
        match cards.iter_mut().find(|card| card.minors[0] == Some(*minor) || same(card.minors[0])) {
            Some(card) if card.minors[0] != Some(*minor) => card.minors[1] = Some(*minor),
            Some(_) => {}
            None => cards.push(Card { gpu_id: 0, minors: [Some(*minor), None], device: NO_DEVICE }),
        }
    }
    let known = cards.iter().filter(|card| card.gpu_id != 0).count();
    // Without KFD no compute runtime counts: the order of the nodes is as good as any.
    cards[known..].sort_by_key(|card| card.minors[0]);
    let counted = if known == 0 { cards.len() } else { known };
    for (index, card) in visible(counted, variable).into_iter().enumerate() {
        cards[card].device = u8::try_from(index).unwrap_or(NO_DEVICE);
    }
    cards
}

/// The number in a file of one line.
pub(crate) fn number(path: &Path) -> Option<u64> {
    fs::read_to_string(path).ok()?.trim().parse().ok()
}

/// KFD's numbers of the GPUs, each with the path of its properties, in the order of its topology, which is the order in
/// which ROCr counts them (unless the program's environment selects some).
pub(crate) fn gpu_nodes(config: &Config) -> Vec<(u64, PathBuf)> {
    let nodes = config.system_path("/sys/class/kfd/kfd/topology/nodes");
    let Ok(entries) = fs::read_dir(&nodes) else { return Vec::new() };
    let mut numbers: Vec<u32> = entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok()).collect();
    numbers.sort_unstable();
    let directories = numbers.iter().map(|node| nodes.join(node.to_string()));
    let with_ids = directories.filter_map(|node| Some((number(&node.join("gpu_id"))?, node.join("properties"))));
    // The processors are nodes too, with the number 0.
    with_ids.filter(|(gpu_id, _)| *gpu_id != 0).collect()
}

fn slot(config: &Config, name: &str) -> String {
    let uevent = nodes::uevent(config, name);
    uevent.lines().find_map(|line| line.strip_prefix("PCI_SLOT_NAME=")).unwrap_or_default().to_owned()
}

/// The cards that the program sees, in its order: ROCr selects first, HIP among those. Only plain numbers are followed.
fn visible(count: usize, variable: impl Fn(&str) -> Option<String>) -> Vec<usize> {
    let mut cards: Vec<usize> = (0..count).collect();
    for name in ["ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES"] {
        let Some(text) = variable(name).filter(|text| !text.trim().is_empty()) else { continue };
        let chosen: Result<Vec<usize>, _> = text.split(',').map(|number| number.trim().parse::<usize>()).collect();
        if let Ok(chosen) = chosen {
            // The first number that is none of the cards ends the list.
            cards = chosen.iter().map_while(|index| cards.get(*index).copied()).collect();
        }
    }
    cards
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    fn tree(root: &Path) -> Config {
        for (node, gpu_id, minor) in [(0, 0, 0), (1, 900, 129), (2, 100, 128)] {
            let node = root.join(format!("sys/class/kfd/kfd/topology/nodes/{node}"));
            fs::create_dir_all(&node).unwrap();
            fs::write(node.join("gpu_id"), format!("{gpu_id}\n")).unwrap();
            fs::write(node.join("properties"), format!("cpu_cores_count 0\ndrm_render_minor {minor}\n")).unwrap();
        }
        for (name, slot) in [("card0", "b"), ("card1", "a"), ("renderD128", "b"), ("renderD129", "a")] {
            let device = root.join(format!("sys/class/drm/{name}/device"));
            fs::create_dir_all(&device).unwrap();
            fs::write(device.join("uevent"), format!("DRIVER=amdgpu\nPCI_SLOT_NAME={slot}\n")).unwrap();
        }
        Config { sysroot: root.into(), ..Config::default() }
    }

    fn device(cards: &[Card], is_it: impl Fn(&Card) -> bool) -> u8 {
        cards.iter().find(|card| is_it(card)).map_or(NO_DEVICE, |card| card.device)
    }

    #[test]
    fn topology_and_environment_give_the_index() {
        let directory = tempfile::tempdir().unwrap();
        let config = tree(directory.path());
        let plain = cards(&config, |_| None);
        assert_eq!(plain.len(), 2, "{plain:?}");
        assert_eq!((device(&plain, |c| c.gpu_id == 900), device(&plain, |c| c.gpu_id == 100)), (0, 1));
        let minor = |minor: u32| device(&plain, move |card| card.minors.contains(&Some(minor)));
        assert_eq!((minor(129), minor(1), minor(128), minor(0)), (0, 0, 1, 1));
        let second = cards(&config, |name| (name == "HIP_VISIBLE_DEVICES").then(|| "1".into()));
        assert_eq!((device(&second, |c| c.gpu_id == 900), device(&second, |c| c.gpu_id == 100)), (NO_DEVICE, 0));
    }

    #[test]
    fn a_selection_is_followed_as_far_as_it_is_plain() {
        let with = |rocr: &str, hip: &str| {
            let value = |name: &str| if name.starts_with("ROCR") { rocr.to_owned() } else { hip.to_owned() };
            visible(4, |name| Some(value(name)))
        };
        assert_eq!(with("", ""), [0, 1, 2, 3]);
        assert_eq!(with("2, 0", ""), [2, 0]);
        assert_eq!(with("3,2,1", "2,0"), [1, 3]);
        assert_eq!(with("1,9,2", ""), [1]);
        assert_eq!(with("GPU-abc,1", "1"), [1]);
    }

    #[test]
    fn without_kfd_the_nodes_are_counted() {
        let directory = tempfile::tempdir().unwrap();
        let config = tree(directory.path());
        fs::remove_dir_all(directory.path().join("sys/class/kfd")).unwrap();
        let found = cards(&config, |_| None);
        let minor = |minor: u32| device(&found, move |card| card.minors.contains(&Some(minor)));
        assert_eq!((minor(128), minor(0), minor(129), minor(1)), (0, 0, 1, 1));
    }
}
