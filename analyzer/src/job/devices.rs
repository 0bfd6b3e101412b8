//! The physical devices of a job, and what its processes held of each together.

use std::collections::{BTreeMap, BTreeSet};

use rustc_hash::FxHashMap;
use serde::Serialize;

use super::{DeviceBytes, Member};
use crate::passes::device::DeviceSummary;
use crate::passes::oom::OomReport;
use crate::replay::timeline::Level;

/// How it is known that several processes mean the same device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum JoinedBy {
    /// Same host and same place on its PCI bus.
    PciBusId,
    /// At least one process did not live long enough to learn the bus id, or its runtime does not tell: same host, same
    /// index, and the same settings of which devices are visible.
    Index,
}

/// What one process held at the job's peak of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Share {
    /// Index of the process.
    pub process: usize,
    /// Bytes asked for and held.
    pub requested_bytes: u64,
    /// The same, each block padded to the granule of its trace.
    pub padded_bytes: u64,
}

/// The moment when the processes together held most of a device.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct JobPeak {
    /// The moment, since the job began.
    pub at_ns: u64,
    /// Sum of what the processes held at that one moment. It is not the sum of their own peaks.
    pub requested_bytes: u64,
    /// The same, each block padded to the granule of its trace.
    pub padded_bytes: u64,
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

/// Variables that choose the devices that a process sees, and by that what its indices mean.
const VISIBILITY: [&str; 5] = [
    "CUDA_VISIBLE_DEVICES",
    "GPU_DEVICE_ORDINAL",
    "HIP_VISIBLE_DEVICES",
    "NVIDIA_VISIBLE_DEVICES",
    "ROCR_VISIBLE_DEVICES",
];

/// A device as a process means it by an index: host, what is visible, index.
type Meant<'a> = (&'a str, Vec<Option<&'a String>>, u8);

/// One physical device.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Key<'a> {
    Bus(&'a str, String),
    Index(Meant<'a>),
}

fn meant<'a>(member: &'a Member, index: u8) -> Meant<'a> {
    let process = &member.summary.facts.process;
    (&process.hostname, VISIBILITY.iter().map(|name| process.environment.get(*name)).collect(), index)
}

fn used(member: &Member) -> impl Iterator<Item = (&DeviceSummary, u8)> {
    let used = |device: &&DeviceSummary| device.account.allocations + device.account.failures > 0;
    member.summary.facts.devices.iter().filter(used).filter_map(|device| Some((device, device.index?)))
}

fn bus_of(device: &DeviceSummary) -> Option<String> {
    device.pci_bus_id.as_deref().map(str::to_ascii_lowercase)
}

/// The bus ids that processes learned for what they mean by an index. A process that ended before it was told one is
/// joined to those that were, if they all were told the same.
fn learned(members: &[Member]) -> BTreeMap<Meant<'_>, BTreeSet<String>> {
    let mut learned: BTreeMap<Meant, BTreeSet<String>> = BTreeMap::new();
    for member in members {
        for (device, index) in used(member) {
            learned.entry(meant(member, index)).or_default().extend(bus_of(device));
        }
    }
    learned
}

/// A process and a device that it used.
type User<'a> = (usize, &'a DeviceSummary);

fn users_of(members: &[Member]) -> Vec<(Key<'_>, Vec<User<'_>>)> {
    let learned = learned(members);
    let mut users: BTreeMap<Key, Vec<User>> = BTreeMap::new();
    for (process, member) in members.iter().enumerate() {
        for (device, index) in used(member) {
            let meant = meant(member, index);
            let only = learned.get(&meant).filter(|buses| buses.len() == 1).and_then(BTreeSet::first).cloned();
            let key = match bus_of(device).or(only) {
                Some(bus) => Key::Bus(&member.summary.facts.process.hostname, bus),
                None => Key::Index(meant),
            };
            users.entry(key).or_default().push((process, device));
        }
    }
    let mut users: Vec<(Key, Vec<User>)> = users.into_iter().collect();
    // As people count them.
    users.sort_by_key(|(key, users)| {
        let host = match key {
            Key::Bus(host, _) | Key::Index((host, ..)) => *host,
        };
        (host, users.iter().map(|(_, device)| device.index).min())
    });
    users
}

/// The devices that any process used, and the number of the one that a process means by an index.
pub(super) fn describe(
    members: &[Member],
    began_ns: &[u64],
) -> (Vec<JobDevice>, impl Fn(usize, Option<u8>) -> Option<usize> + use<>) {
    let users = users_of(members);
    let mut numbers: FxHashMap<(usize, u8), usize> = FxHashMap::default();
    for (number, (_, users)) in users.iter().enumerate() {
        numbers.extend(users.iter().filter_map(|(process, device)| Some(((*process, device.index?), number))));
    }
    let devices = users.iter().map(|(key, users)| describe_one(key, users, members, began_ns)).collect();
    (devices, move |process, index| numbers.get(&(process, index?)).copied())
}

/// What other processes held of a device when one of them was refused memory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct OthersThen {
    /// Index of the physical device in the job's `devices`.
    pub device: usize,
    /// Bytes asked for and held by all of them.
    pub requested_bytes: u64,
    /// Whether that is what they held at that moment; else the most that it can have been: changes fell together, or managed memory,
    /// whose pages may lie in RAM, is among it.
    pub exact: bool,
    /// Who held it, most first.
    pub processes: Vec<Share>,
}

impl OthersThen {
    /// What was missing at a failure, where the others surely held as much.
    pub fn more_than_missing(&self, oom: &OomReport) -> Option<u64> {
        let free = oom.free_reported_bytes.filter(|_| oom.free_is_of_refusal)?;
        let missing = oom.missing_bytes(free)?;
        (self.exact && self.requested_bytes >= missing).then_some(missing)
    }
}

/// What all processes but one held of a device at a moment of the job; `None` where they held nothing.
pub(super) fn others_then(
    members: &[Member],
    began_ns: &[u64],
    device: usize,
    but: usize,
    at_ns: u64,
) -> Option<OthersThen> {
    let users = users_of(members);
    let (key, users) = users.get(device)?;
    // Processes that only count alike may see other cards by that number.
    if matches!(key, Key::Index(_)) {
        return None;
    }
    let mut contributions = contributions(users, members, began_ns);
    contributions.retain(|one| one.process != but);
    let processes = shares_at(&contributions, at_ns);
    let requested_bytes = processes.iter().fold(0, |sum: u64, share| sum.saturating_add(share.requested_bytes));
    // What of managed memory lies on the card, no call tells.
    let has_managed = |process: usize| {
        let devices = &members[process].summary.facts.devices;
        devices.iter().any(|device| device.account.peak.managed_bytes > 0 || device.account.end.managed_bytes > 0)
    };
    let exact = contributions.iter().all(|one| one.bytes.resolution_ns == 0 && !has_managed(one.process));
    (requested_bytes > 0).then_some(OthersThen { device, requested_bytes, exact, processes })
}

fn describe_one(key: &Key, users: &[User], members: &[Member], began_ns: &[u64]) -> JobDevice {
    let (hostname, pci_bus_id) = match key {
        Key::Bus(host, bus) => (*host, Some(bus.clone())),
        Key::Index((host, ..)) => (*host, None),
    };
    let first = users.first().and_then(|(_, device)| device.index);
    let mut processes: Vec<usize> = users.iter().map(|(process, _)| *process).collect();
    processes.dedup();
    let all_know = users.iter().all(|(_, device)| device.pci_bus_id.is_some());
    JobDevice {
        hostname: hostname.to_owned(),
        joined_by: if all_know { JoinedBy::PciBusId } else { JoinedBy::Index },
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

fn contributions<'a>(users: &[User], members: &'a [Member], began_ns: &[u64]) -> Vec<Contribution<'a>> {
    let one = |(process, device): &User| {
        let member = &members[*process];
        let bytes = member.bytes.iter().find(|bytes| Some(bytes.device) == device.index)?;
        Some(Contribution { process: *process, began_ns: began_ns[*process], lived_ns: member.lived_ns, bytes })
    };
    users.iter().filter_map(one).collect()
}

impl Contribution<'_> {
    /// The steps on the job's timeline. With a process its memory ends.
    fn steps(&self) -> impl Iterator<Item = (u64, Level)> {
        let alive = self.bytes.steps.iter().take_while(|(at, _)| *at <= self.lived_ns);
        let end = (self.began_ns.saturating_add(self.lived_ns).saturating_add(1), Level::default());
        alive.map(|(at, level)| (self.began_ns.saturating_add(*at), *level)).chain([end])
    }

    fn held_at(&self, at_ns: u64) -> Share {
        let level = self.steps().take_while(|(at, _)| *at <= at_ns).last().map_or(Level::default(), |(_, level)| level);
        let padded_bytes = level.granules.saturating_mul(self.bytes.granularity_bytes);
        Share { process: self.process, requested_bytes: level.bytes, padded_bytes }
    }
}

/// Who held something at a moment of the job, most first.
fn shares_at(contributions: &[Contribution], at_ns: u64) -> Vec<Share> {
    let mut shares: Vec<Share> = contributions.iter().map(|one| one.held_at(at_ns)).collect();
    shares.retain(|share| share.requested_bytes > 0);
    shares.sort_by_key(|share| (std::cmp::Reverse(share.requested_bytes), share.process));
    shares
}

fn peak(contributions: &[Contribution]) -> JobPeak {
    let mut steps: Vec<(u64, usize, u64)> = Vec::new();
    for (index, contribution) in contributions.iter().enumerate() {
        steps.extend(contribution.steps().map(|(at, level)| (at, index, level.bytes)));
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
    let processes = shares_at(contributions, at_ns);
    let resolution_ns = contributions.iter().map(|one| one.bytes.resolution_ns).max().unwrap_or(0);
    JobPeak {
        at_ns,
        requested_bytes: u64::try_from(most).unwrap_or(u64::MAX),
        padded_bytes: processes.iter().fold(0, |sum: u64, share| sum.saturating_add(share.padded_bytes)),
        // Of one process alone, the most of an interval is its peak.
        exact: resolution_ns == 0 || contributions.len() == 1,
        resolution_ns,
        processes,
    }
}
