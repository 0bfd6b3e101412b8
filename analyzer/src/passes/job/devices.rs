//! The physical devices of a job, and what its processes held of each together.

use std::collections::BTreeMap;

use rustc_hash::FxHashMap;
use serde::Serialize;

use super::{DeviceBytes, Member};
use crate::passes::device::DeviceSummary;

/// How it is known that several processes mean the same device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum JoinedBy {
    /// Same host and same place on its PCI bus.
    PciBusId,
    /// Same host and same index; two processes that each see a selection of the devices may mean different ones.
    Index,
}

/// What one process held at the job's peak of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Share {
    /// Index of the process.
    pub process: usize,
    /// Bytes asked for and held.
    pub requested_bytes: u64,
}

/// The moment when the processes together held most of a device.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct JobPeak {
    /// The moment, since the job began.
    pub at_ns: u64,
    /// Sum of what the processes held at that one moment. It is not the sum of their own peaks.
    pub requested_bytes: u64,
    /// Whether that is the sum at one moment; else several changes fell together and it is the most it can have been.
    pub exact: bool,
    /// Length of the intervals within which changes fell together, 0 where none did.
    pub resolution_ns: u64,
    /// Who held it, most first.
    pub processes: Vec<Share>,
}

/// One physical device.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct JobDevice {
    /// Host name.
    pub hostname: String,
    /// PCI bus id, where it is known.
    pub pci_bus_id: Option<String>,
    /// How the processes' devices were joined.
    pub joined_by: JoinedBy,
    /// The index that all its processes give it; `None` where they differ.
    pub index: Option<u8>,
    /// Name, where the runtime tells it.
    pub name: Option<String>,
    /// Total memory as the runtime reports it.
    pub total_bytes: Option<u64>,
    /// Out-of-memory returns and other refusals of all processes.
    pub failures: u64,
    /// Processes that used it.
    pub users: Vec<usize>,
    /// The moment when they together held most.
    pub peak: JobPeak,
}

/// Host, bus id or nothing, index or nothing.
type Key = (String, Option<String>, Option<u8>);

fn key(member: &Member, device: &DeviceSummary) -> Option<Key> {
    let host = member.summary.process.hostname.clone();
    match &device.pci_bus_id {
        Some(bus) => Some((host, Some(bus.to_ascii_lowercase()), None)),
        None => Some((host, None, Some(device.index?))),
    }
}

/// The devices that any process used, and the number of the one that a process means by an index.
pub(super) fn describe(
    members: &[Member],
    began_ns: &[u64],
) -> (Vec<JobDevice>, impl Fn(usize, Option<u8>) -> Option<usize> + use<>) {
    let mut users: BTreeMap<Key, Vec<(usize, &DeviceSummary)>> = BTreeMap::new();
    for (process, member) in members.iter().enumerate() {
        let used = |device: &&DeviceSummary| device.account.allocations + device.account.failures > 0;
        for device in member.summary.devices.iter().filter(used) {
            if let Some(key) = key(member, device) {
                users.entry(key).or_default().push((process, device));
            }
        }
    }
    let mut numbers: FxHashMap<(usize, u8), usize> = FxHashMap::default();
    for (number, users) in users.values().enumerate() {
        numbers.extend(users.iter().filter_map(|(process, device)| Some(((*process, device.index?), number))));
    }
    let devices = users.into_iter().map(|(key, users)| describe_one(key, &users, members, began_ns)).collect();
    (devices, move |process, index| numbers.get(&(process, index?)).copied())
}

fn describe_one(key: Key, users: &[(usize, &DeviceSummary)], members: &[Member], began_ns: &[u64]) -> JobDevice {
    let (hostname, pci_bus_id, _) = key;
    let first = users.first().and_then(|(_, device)| device.index);
    let mut processes: Vec<usize> = users.iter().map(|(process, _)| *process).collect();
    processes.dedup();
    JobDevice {
        hostname,
        joined_by: if pci_bus_id.is_some() { JoinedBy::PciBusId } else { JoinedBy::Index },
        pci_bus_id,
        index: first.filter(|_| users.iter().all(|(_, device)| device.index == first)),
        name: users.iter().find_map(|(_, device)| device.name.clone()),
        total_bytes: users.iter().filter_map(|(_, device)| device.total_bytes).max(),
        failures: users.iter().map(|(_, device)| device.account.failures).sum(),
        users: processes,
        peak: peak(&contributions(users, members, began_ns)),
    }
}

/// What one process held of a device, on the job's timeline.
struct Contribution<'a> {
    process: usize,
    began_ns: u64,
    lived_ns: u64,
    bytes: &'a DeviceBytes,
}

fn contributions<'a>(
    users: &[(usize, &DeviceSummary)],
    members: &'a [Member],
    began_ns: &[u64],
) -> Vec<Contribution<'a>> {
    let one = |(process, device): &(usize, &DeviceSummary)| {
        let member = &members[*process];
        let bytes = member.bytes.iter().find(|bytes| Some(bytes.device) == device.index)?;
        Some(Contribution { process: *process, began_ns: began_ns[*process], lived_ns: member.lived_ns, bytes })
    };
    users.iter().filter_map(one).collect()
}

impl Contribution<'_> {
    /// The steps on the job's timeline. With a process its memory ends.
    fn steps(&self) -> impl Iterator<Item = (u64, u64)> {
        let alive = self.bytes.steps.iter().take_while(|(at, _)| *at <= self.lived_ns);
        let end = (self.began_ns.saturating_add(self.lived_ns).saturating_add(1), 0);
        alive.map(|(at, bytes)| (self.began_ns.saturating_add(*at), *bytes)).chain([end])
    }

    fn held_at(&self, at_ns: u64) -> u64 {
        self.steps().take_while(|(at, _)| *at <= at_ns).last().map_or(0, |(_, bytes)| bytes)
    }
}

fn peak(contributions: &[Contribution]) -> JobPeak {
    let mut steps: Vec<(u64, usize, u64)> = Vec::new();
    for (index, contribution) in contributions.iter().enumerate() {
        steps.extend(contribution.steps().map(|(at, bytes)| (at, index, bytes)));
    }
    // Stable: the steps of one process at one moment stay in their order, and the last of them counts.
    steps.sort_by_key(|(at, index, _)| (*at, *index));
    let mut held = vec![0u64; contributions.len()];
    let (mut sum, mut most, mut at_ns) = (0u128, 0u128, 0);
    for group in steps.chunk_by(|one, other| one.0 == other.0) {
        for (_, index, bytes) in group {
            sum = sum - u128::from(held[*index]) + u128::from(*bytes);
            held[*index] = *bytes;
        }
        if sum > most {
            (most, at_ns) = (sum, group[0].0);
        }
    }
    let of_process = |one: &Contribution| Share { process: one.process, requested_bytes: one.held_at(at_ns) };
    let mut processes: Vec<Share> = contributions.iter().map(of_process).collect();
    processes.retain(|share| share.requested_bytes > 0);
    processes.sort_by_key(|share| (std::cmp::Reverse(share.requested_bytes), share.process));
    let resolution_ns = contributions.iter().map(|one| one.bytes.resolution_ns).max().unwrap_or(0);
    JobPeak {
        at_ns,
        requested_bytes: u64::try_from(most).unwrap_or(u64::MAX),
        // Of one process alone, the most of an interval is its peak.
        exact: resolution_ns == 0 || contributions.len() == 1,
        resolution_ns,
        processes,
    }
}
