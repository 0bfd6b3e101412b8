//! What allocators above the runtime gave out, and what they hold unused: PyTorch's tensors, blocks of pools, by device.

use std::collections::BTreeMap;

use gpuoom_trace::reader::TraceFile;
use gpuoom_trace::record::{Kind, NO_DEVICE};
use serde::Serialize;

use crate::passes::device::DeviceSummary;
use crate::passes::fragmentation::saturate;
use crate::passes::oom::deciding;
use crate::passes::phase::Phase;
use crate::passes::phase::sites::OfSites;
use crate::replay::Replay;
use crate::replay::blocks::{Moment, NameNumber, OfAllocator, Own, Owner, Room, Row, Rows, Told};
use crate::replay::purpose::Purpose;
use crate::symbols::{Frame, Stacks, file_name};

/// Failures of a device whose tensors are listed, beside the one that decides the verdict.
const MOST_FAILURES: usize = 64;
/// Call sites that are named of a moment; at labels, which may be many, fewer.
const MOST_ROWS: usize = 20;
const FEW_ROWS: usize = 5;
/// Call sites whose names are looked up for one moment, those with most bytes.
const MOST_NAMED: usize = 4096;
/// The frameworks whose allocators need no name.
pub const PYTORCH: &str = "pytorch";
pub(super) const GGML: &str = "ggml";
/// The row that sums up what has none of its own.
const OTHERS: &str = "others";

/// One allocator on one device.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Tensors {
    /// `pytorch`, or the pool's name.
    pub framework: String,
    /// Whose it is: a pool may have any name.
    #[serde(skip)]
    pub owner: Owner,
    /// It told nothing, and only functions on the way to the runtime's calls say what memory is for: what they do not name is missing.
    pub by_call_paths: bool,
    /// The program captured streams: what its graphs keep lies in no block, and counts as unused.
    #[serde(skip)]
    pub has_captured: bool,
    /// What was the case at failures, at the peak, at the end and at labels.
    pub moments: Vec<TensorMoment>,
    /// Its records.
    pub events: u64,
    /// Records after which its own total is another number than the sum of its blocks.
    pub mismatches: u64,
    /// The most that its blocks ever were.
    pub peak_allocated_bytes: u64,
    /// Share of the bytes given out whose call sites have been looked at for frames of Python; null where no Python is in the process.
    pub with_python_share: Option<f64>,
    /// The device's other allocators.
    pub others: Vec<Tensors>,
}

/// An allocator at one moment.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct TensorMoment {
    /// `oom:N`, `peak`, `end` or `mark:LABEL`.
    pub at: String,
    /// When that was.
    pub at_ns: u64,
    /// The sum of its blocks.
    pub allocated_bytes: u64,
    /// What it holds: by its own word, or the memory that its blocks lie in; null where that is not known.
    pub reserved_bytes: Option<u64>,
    /// What of that is in no block; null where its own word and its blocks are not of one mind.
    pub unused_bytes: Option<u64>,
    /// The longest stretch of that, by addresses; null where the memory that its blocks lie in is not what it says it holds.
    pub largest_unused_bytes: Option<u64>,
    /// Stretches.
    pub unused_pieces: Option<u64>,
    /// What of it is whole segments, which could be given back; `None` as above.
    #[serde(skip)]
    pub whole_unused_bytes: Option<u64>,
    /// Who asked for its blocks.
    pub allocated_by: AllocatedBy,
    /// The memory that it holds, by kind: bytes and number. Empty where it is not known which that is.
    #[serde(skip)]
    pub segments: Vec<(Kind, u64, u64)>,
}

/// Who asked for blocks.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct AllocatedBy {
    /// Those with most bytes, the largest first, then all others in one row: they add up to `allocated_bytes`.
    pub rows: Vec<TensorRow>,
    /// The same bytes by the phase that functions on the way to them name; empty where none is named.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub phases: Vec<PhaseRow>,
}

/// Blocks that came in one phase.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct PhaseRow {
    /// Null: no function on the way to them names one.
    pub phase: Option<&'static str>,
    /// Their bytes.
    pub bytes: u64,
    /// Their number.
    pub blocks: u64,
    /// Of the bytes those of whose phase only the name of their thread tells.
    pub by_thread_bytes: u64,
}

/// One place in the program.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct TensorRow {
    /// For people: function, file and line of Python, else function and library; `others` for the rest, and for what came by calls
    /// whose place the trace does not tell.
    pub label: String,
    /// The frame of an installed package or of generated code that asked, where the label begins with the program's line that called it;
    /// else null.
    pub asked_by: Option<Frame>,
    /// Bytes of its blocks.
    pub bytes: u64,
    /// Their number.
    pub blocks: u64,
    /// What other runs and builds call the same place; null where it has no name.
    pub key: Option<String>,
    /// What their pool calls them; null where it does not.
    pub name: Option<String>,
    /// What they are for: `weights`, `kv-cache`, `compute`; null where nobody says.
    pub kind: Option<&'static str>,
    /// The phase that they came in, where functions on all ways to this place name the same one.
    #[serde(serialize_with = "by_name")]
    pub phase: Option<Phase>,
    /// The way that most bytes came by.
    pub stack: Vec<Frame>,
}

fn by_name<S: serde::Serializer>(phase: &Option<Phase>, serializer: S) -> Result<S::Ok, S::Error> {
    phase.map(Phase::name).serialize(serializer)
}

impl Tensors {
    /// A moment by its name, such as a ledger's.
    pub fn moment(&self, name: &str) -> Option<&TensorMoment> {
        self.moments.iter().find(|moment| moment.at == name)
    }
}

impl TensorMoment {
    /// The rows that have places, and what all others sum up to: bytes and number of blocks.
    pub fn named(&self, most: usize) -> (&[TensorRow], (u64, u64)) {
        let rows = &self.allocated_by.rows;
        let is_rest = |row: &TensorRow| row.key.is_none() && row.kind.is_none() && row.name.is_none();
        let places = rows.iter().position(is_rest).unwrap_or(rows.len());
        let (named, rest) = rows.split_at(places.min(most));
        let sum = |of: fn(&TensorRow) -> u64| rest.iter().fold(0u64, |sum, row| sum.saturating_add(of(row)));
        (named, (sum(|row| row.bytes), sum(|row| row.blocks)))
    }
}

/// Says of each device what allocators above the runtime told of it. `is_whole`: no record of the trace is missing.
pub fn add_to(devices: &mut [DeviceSummary], trace: &TraceFile, replay: &Replay, phases: &OfSites<'_>) {
    if !replay.blocks.is_used() {
        return;
    }
    let stacks = phases.stacks();
    let all = All { replay, stacks, phases, is_whole: trace.is_whole(), has_python: has_python(trace) };
    for device in devices {
        device.tensors = all.of_device(device.index.unwrap_or(NO_DEVICE));
    }
}

fn has_python(trace: &TraceFile) -> bool {
    let libraries = trace.metadata.modules.modules.iter().map(|module| file_name(&module.path));
    let executable = file_name(&trace.metadata.process.executable);
    executable.starts_with("python") || libraries.into_iter().any(|name| name.starts_with("libpython"))
}

struct All<'a> {
    replay: &'a Replay,
    stacks: &'a Stacks<'a>,
    phases: &'a OfSites<'a>,
    is_whole: bool,
    has_python: bool,
}

impl All<'_> {
    fn of_device(&self, device: u8) -> Option<Tensors> {
        let known = self.replay.blocks.device(device)?;
        let moments = self.moments(device);
        let peak = moments.iter().find(|(name, ..)| name == "peak").map(|(_, moment, _)| moment);
        let at_peak = |told: &Told| {
            let of = peak.and_then(|moment| moment.of.iter().find(|one| one.allocator == told.allocator));
            (of.map_or(0, |one| one.state.bytes), told.most_bytes)
        };
        let mut told: Vec<&Told> = known.all().filter(|told| self.replay.blocks.may_be_so(told.allocator)).collect();
        told.sort_by_key(|told| (std::cmp::Reverse(at_peak(told)), told.allocator));
        let mut described = told.into_iter().map(|told| self.describe(told, &moments));
        let first = described.next()?;
        Some(Tensors { others: described.collect(), ..first })
    }

    /// The moments of a device with their names, and how many places of each are named.
    fn moments(&self, device: u8) -> Vec<(String, Moment, usize)> {
        let blocks = &self.replay.blocks;
        let mut moments: Vec<(String, Moment, usize)> = Vec::new();
        for (number, seq) in self.failures(device) {
            moments.extend(
                blocks.moments.at_failure(seq).map(|moment| (format!("oom:{number}"), moment.clone(), MOST_ROWS)),
            );
        }
        moments.extend(blocks.at_peak(device).map(|moment| ("peak".to_owned(), moment, MOST_ROWS)));
        moments.extend(blocks.now(device, self.replay.last_at).map(|moment| ("end".to_owned(), moment, MOST_ROWS)));
        for mark in blocks.moments.marks() {
            let here = mark.devices.iter().filter(|(index, _)| *index == device);
            moments.extend(here.map(|(_, moment)| (format!("mark:{}", mark.label), moment.clone(), FEW_ROWS)));
        }
        moments
    }

    /// Numbers and records of the failures that are listed, in order: the one that decides the verdict, the last, and the first others.
    fn failures(&self, device: u8) -> Vec<(u64, u64)> {
        let here = (1..).zip(&self.replay.failures.listed).filter(|(_, oom)| oom.device.unwrap_or(NO_DEVICE) == device);
        let here: Vec<_> = here.collect();
        let telling = deciding(here.iter().map(|(_, oom)| oom.outcome));
        let is_told = |index: usize| index < MOST_FAILURES || Some(index) == telling || index + 1 == here.len();
        let kept = here.iter().enumerate().filter(|(index, _)| is_told(*index));
        kept.map(|(_, (number, oom))| (*number, oom.seq)).collect()
    }

    fn describe(&self, told: &Told, moments: &[(String, Moment, usize)]) -> Tensors {
        let owner = self.replay.blocks.owner(told.allocator).cloned().unwrap_or(Owner::Torch);
        let moments = moments.iter().filter_map(|(name, moment, most)| {
            let of = moment.of.iter().find(|one| one.allocator == told.allocator)?;
            Some(self.moment(name, moment.at, of, owner == Owner::Torch, *most))
        });
        let share = told.python_bytes as f64 / told.given_bytes.max(1) as f64;
        let has_python = (self.has_python || told.python_bytes > 0) && told.given_bytes > 0;
        Tensors {
            framework: name_of(&owner).to_owned(),
            by_call_paths: false,
            has_captured: self.replay.tracks.captures().is_ok_and(|captures| captures.ended > 0),
            moments: moments.collect(),
            events: told.events,
            mismatches: told.mismatches,
            peak_allocated_bytes: saturate(told.most_bytes),
            with_python_share: has_python.then_some(share),
            others: Vec::new(),
            owner,
        }
    }

    fn moment(&self, name: &str, at: u64, of: &OfAllocator, is_torch: bool, most: usize) -> TensorMoment {
        let allocated_bytes = saturate(of.state.bytes);
        let (held, room) = held(of, is_torch, self.is_whole);
        TensorMoment {
            at: name.to_owned(),
            at_ns: self.replay.clock.at_ns(at),
            allocated_bytes,
            reserved_bytes: held.map(|(reserved, _)| reserved),
            unused_bytes: held.and_then(|(_, unused)| unused),
            largest_unused_bytes: room.map(|room| room.largest_unused_bytes),
            unused_pieces: room.map(|room| room.unused_pieces),
            whole_unused_bytes: room.map(|room| saturate(room.whole_unused_bytes)),
            allocated_by: AllocatedBy {
                rows: self.rows(&of.rows, allocated_bytes, most),
                phases: if is_torch { self.by_phase(&of.rows) } else { Vec::new() },
            },
            segments: room.map(segments).unwrap_or_default(),
        }
    }

    /// The places with most bytes, and a row for the rest, which add up to this sum.
    fn rows(&self, sites: &Rows, sum_bytes: u64, most: usize) -> Vec<TensorRow> {
        let mut sites = sites.clone();
        sites.sort_unstable_by_key(|row| (std::cmp::Reverse((row.bytes, row.blocks)), row.site, row.purpose, row.name));
        let all_blocks = sites.iter().fold(0u64, |sum, row| sum.saturating_add(row.blocks));
        let mut places: BTreeMap<(Purpose, NameNumber, String, Option<String>), Place> = BTreeMap::new();
        for Row { site, purpose, name, bytes, blocks, .. } in sites.into_iter().take(MOST_NAMED) {
            let called = || purpose.words().or_else(|| self.replay.blocks.name(name)).map(str::to_owned);
            let Some((label, key)) = self.name(site).or_else(|| Some((called()?, None))) else {
                continue;
            };
            let place = places.entry((purpose, name, label, key)).or_default();
            place.sites.push(site);
            (place.bytes, place.blocks) = (place.bytes + bytes, place.blocks + blocks);
        }
        let mut places: Vec<_> = places.into_iter().collect();
        // By the call site last, and not by names: these are others in a redacted trace.
        places.sort_by_key(|(_, place)| (std::cmp::Reverse((place.bytes, place.blocks)), place.sites.first().copied()));
        places.truncate(most);
        let (mut left, mut blocks_left) = (sum_bytes, all_blocks);
        let mut rows: Vec<TensorRow> = Vec::new();
        for ((purpose, name, label, _), place) in places {
            let bytes = saturate(place.bytes).min(left);
            (left, blocks_left) = (left - bytes, blocks_left - place.blocks);
            let first = place.sites[0];
            let known = self.stacks.call_site(first);
            let row = TensorRow {
                label: labelled(purpose, label),
                bytes,
                blocks: place.blocks,
                asked_by: known.as_ref().and_then(|known| known.asked_by.clone()),
                key: known.map(|known| known.key.clone()),
                name: self.replay.blocks.name(name).map(str::to_owned),
                kind: purpose.name(),
                phase: self.phase(&place.sites),
                stack: self.stacks.of(first).frames,
            };
            rows.push(row);
        }
        if left > 0 || blocks_left > 0 {
            rows.push(TensorRow { label: OTHERS.to_owned(), bytes: left, blocks: blocks_left, ..TensorRow::default() });
        }
        rows
    }

    /// The phase that all of these name.
    fn phase(&self, sites: &[u32]) -> Option<Phase> {
        let (first, rest) = sites.split_first()?;
        let phase = self.phases.phase(*first);
        phase.filter(|_| rest.iter().all(|site| self.phases.phase(*site) == phase))
    }

    /// Sums by phase, the largest first.
    fn by_phase(&self, sites: &Rows) -> Vec<PhaseRow> {
        let mut sums: BTreeMap<Option<&'static str>, (u128, u64, u128)> = BTreeMap::new();
        for Row { site, bytes, blocks, .. } in sites {
            let by_thread = self.phases.phase_by_thread(*site, &self.replay.thread_names);
            let phase = self.phases.phase(*site).or(by_thread);
            let sum = sums.entry(phase.map(Phase::name)).or_default();
            *sum = (sum.0 + bytes, sum.1 + blocks, sum.2 + if by_thread.is_some() { *bytes } else { 0 });
        }
        if sums.keys().all(Option::is_none) {
            return Vec::new();
        }
        let row = |(phase, (bytes, blocks, by_thread))| PhaseRow {
            phase,
            bytes: saturate(bytes),
            blocks,
            by_thread_bytes: saturate(by_thread),
        };
        let mut rows: Vec<PhaseRow> = sums.into_iter().map(row).collect();
        rows.sort_by_key(|row| std::cmp::Reverse((row.bytes, row.blocks)));
        rows
    }

    /// The name of a place, by which sites are one row: a line of Python is one place, whichever way leads there.
    fn name(&self, site: u32) -> Option<(String, Option<String>)> {
        let known = self.stacks.call_site(site)?;
        match known.label_with_line() {
            Some(line) => Some((line, None)),
            None => Some((known.label.clone(), Some(known.key.clone()))),
        }
    }
}

/// A place with what its blocks are for.
pub(super) fn labelled(purpose: Purpose, place: String) -> String {
    match purpose.words() {
        Some(words) if place != words => format!("{words}, {place}"),
        _ => place,
    }
}

/// What a framework or a pool is called in JSON.
pub fn name_of(owner: &Owner) -> &str {
    match owner {
        Owner::Torch => PYTORCH,
        Owner::Ggml => GGML,
        Owner::Pool(name) => name,
    }
}

/// One place while sums are made.
#[derive(Default)]
struct Place {
    /// The one with most bytes first.
    sites: Vec<u32>,
    bytes: u128,
    blocks: u64,
}

fn segments(room: &Room) -> Vec<(Kind, u64, u64)> {
    room.kinds.iter().map(|(kind, bytes, number)| (*kind, saturate(*bytes), *number)).collect()
}

/// What an allocator holds, and what of that is unused, each where it is known.
type Held = (u64, Option<u64>);

/// What an allocator holds at a moment, and the memory that its blocks lie in where that is all that it holds. `is_whole`: no record is
/// missing.
pub fn held(of: &OfAllocator, is_torch: bool, is_whole: bool) -> (Option<Held>, Option<&Room>) {
    if is_torch {
        return by_own_word(of, is_whole);
    }
    // ggml and a pool have no totals: what it holds is what its blocks lie in, if none of them is missing.
    let room = of.room.as_ref().filter(|_| is_whole);
    (room.map(|room| (saturate(room.bytes), Some(saturate(room.unused_bytes)))), room)
}

/// What the allocator says it holds, what of that is unused if it says the same of its blocks as they do, and the memory that
/// they lie in if it says the same of that. Where records are missing, only what it said in that very record counts.
fn by_own_word(of: &OfAllocator, is_whole: bool) -> (Option<Held>, Option<&Room>) {
    let own = of.state.own.filter(|_| is_whole || of.state.is_said);
    let Some((Own { allocated_bytes, .. }, reserved_bytes)) = own.zip(of.state.reserved_bytes()) else {
        return (None, None);
    };
    let agrees = !of.state.differs();
    let unused = reserved_bytes.checked_sub(allocated_bytes).filter(|_| agrees);
    let room = of.room.as_ref().filter(|room| agrees && room.bytes == u128::from(reserved_bytes));
    (Some((reserved_bytes, unused)), room)
}
