//! What PyTorch's blocks tell of a run up to a failure, by the phases of the ways that they came by.

use rustc_hash::FxHashMap;

use crate::passes::fragmentation::saturate;
use crate::passes::phase::sites::OfSites;
use crate::passes::phase::{Phase, table};
use crate::passes::shape::paths::own_evaluation;
use crate::replay::Replay;
use crate::replay::blocks::{Came, OfAllocator, Owner, Row, Rows};
use crate::replay::failures::Oom;
use crate::thresholds::{Thresholds, share};

/// Blocks that live at the failure and came in one phase.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Live {
    /// The phase; `None`: no function names one.
    pub phase: Option<Phase>,
    /// Their bytes.
    pub bytes: u64,
    /// Their number.
    pub blocks: u64,
}

/// Blocks of one place of the program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OfPlace {
    /// The place, for people.
    pub label: String,
    /// Their bytes.
    pub bytes: u64,
    /// Their number.
    pub blocks: u64,
}

/// Blocks of forward passes that came since the last backward pass and live.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unfollowed {
    /// Backward passes that were over.
    pub backward_passes: u64,
    /// Of each line at least so many times the blocks live that one pass took there, before.
    pub times: u64,
    /// The lines that this is known of.
    pub lines: u64,
    /// Bytes of those blocks.
    pub bytes: u64,
}

/// What is told of PyTorch's blocks at a failure of a device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OfBlocks {
    /// Bytes that PyTorch's allocator was asked for.
    pub requested_bytes: u64,
    /// What lives on the device, by phase.
    pub live: Vec<Live>,
    /// The program's own function on the way to the failure that is called after an evaluation.
    pub evaluates: Option<String>,
    /// Whether the failure lies in a module's forward pass, whatever that belongs to.
    pub is_in_a_pass: bool,
    /// The largest block of a training's forward and backward passes.
    pub largest_in_training: u64,
    /// The place with most blocks of an evaluation.
    pub of_evaluation: Option<OfPlace>,
    /// Equal blocks of one line that no phase names, of which none is gone and which are most of what lives.
    pub pile: Option<OfPlace>,
    /// Blocks of a forward pass that live and came by ways of which none is gone.
    pub kept_of_forward: u64,
    /// Forward passes that no backward pass followed, and of which blocks live.
    pub unfollowed: Option<Unfollowed>,
    /// The function on the way to the failure that makes an optimizer's state.
    pub makes_state: Option<String>,
    /// What came before by the way that failed.
    pub same_way: Vec<Came>,
    /// What came before on any device, with its phase.
    came: Vec<(Option<Phase>, Came)>,
    /// Backward passes that were over.
    backward_passes: u64,
    /// Whether forward passes came that are not of the program's own function for an evaluation, before the last backward pass.
    pub trains_elsewhere: bool,
    /// Whether frames were looked for on each of those ways: else a phase may have been, and nobody saw it.
    pub is_whole: bool,
}

impl OfBlocks {
    /// Of a failure; `None` where PyTorch did not tell of its blocks there, or not everything about them is known.
    pub(super) fn of(replay: &Replay, oom: &Oom, phases: &OfSites<'_>, thresholds: &Thresholds) -> Option<Self> {
        let moment = replay.blocks.moments.at_failure(oom.seq)?;
        let of_torch = |of: &&OfAllocator| replay.blocks.owner(of.allocator) == Some(&Owner::Torch);
        let rows = &moment.of.iter().find(of_torch)?.rows;
        let all = replay.blocks.moments.before_failure(oom.seq)?;
        let error = oom.error.as_ref();
        let site = error.map_or(oom.site, |error| if error.site == 0 { oom.site } else { error.site });
        let stack = phases.stacks().of(site).frames;
        let state = stack.iter().find(|frame| table::makes_state(frame));
        let way = phases.way(site).filter(|_| site != 0);
        let is_same = |came: &&Came| came.site != 0 && way.is_some() && phases.way(came.site) == way;
        let came: Vec<(Option<Phase>, Came)> = all.iter().map(|came| (phases.phase(came.site), *came)).collect();
        let looked = |came: &Came| phases.phase(came.site).is_some() || replay.sites.looked_for_python(came.site);
        let backward_passes = oom.device.and_then(|device| replay.blocks.device(device)).map_or(0, |device| {
            let over = device.steps.backward().0.steps().iter().take_while(|step| step.at <= oom.at);
            over.last().map_or(0, |step| step.number)
        });
        Some(OfBlocks {
            requested_bytes: error.map_or(oom.requested_bytes, |error| error.requested_bytes),
            live: live(rows, phases),
            evaluates: own_evaluation(&stack).and_then(|frame| frame.short()),
            is_in_a_pass: stack.iter().any(|frame| table::phase_of(frame) == Some(Phase::Forward)),
            largest_in_training: largest_in_training(&came, phases),
            of_evaluation: of_evaluation(rows, phases),
            pile: pile(rows, all, phases, thresholds),
            kept_of_forward: kept_of_forward(rows, all, phases),
            unfollowed: unfollowed(rows, &came, backward_passes, phases),
            makes_state: state.and_then(|frame| frame.short()),
            same_way: all.iter().filter(is_same).copied().collect(),
            backward_passes,
            trains_elsewhere: trains_elsewhere(&came, phases),
            is_whole: phases.is_open() && all.iter().all(looked),
            came,
        })
    }

    /// Bytes that live and came in one of these phases.
    pub fn live_bytes(&self, phases: &[Phase]) -> u64 {
        let of = self.live.iter().filter(|live| live.phase.is_some_and(|phase| phases.contains(&phase)));
        of.fold(0, |sum, live| sum.saturating_add(live.bytes))
    }

    /// Blocks that live and came in a phase.
    pub fn live_blocks(&self, phase: Phase) -> u64 {
        self.live.iter().filter(|live| live.phase == Some(phase)).map(|live| live.blocks).sum()
    }

    /// All bytes that live.
    pub fn all_bytes(&self) -> u64 {
        self.live.iter().fold(0, |sum, live| sum.saturating_add(live.bytes))
    }

    /// Whether a block had come in a phase.
    pub fn has_seen(&self, phase: Phase) -> bool {
        self.came_in(phase).next().is_some()
    }

    /// Whether a block of a forward pass had come behind one of a backward pass: that pass was over.
    pub fn has_begun_again(&self) -> bool {
        let first = self.came_in(Phase::Backward).map(|came| came.first).min();
        let last = last_of(Phase::Forward, &self.came);
        first.zip(last).is_some_and(|(backward, forward)| backward < forward)
    }

    /// Whether a training had done a step, or a forward and a backward pass. Who writes the passes by hand has no function that names
    /// them, but one backward pass behind another.
    pub fn has_trained(&self) -> bool {
        self.has_seen(Phase::Optimizer) || self.has_begun_again() || self.backward_passes > 1
    }

    /// Whether a block had come by the way that failed before the last one of a backward pass: in an earlier step.
    pub fn same_way_before_backward(&self) -> bool {
        let last = last_of(Phase::Backward, &self.came);
        self.same_way.iter().any(|came| last.is_some_and(|last| came.first < last))
    }

    /// The largest block that had come by the way that failed before the step that failed, where its beginning is known.
    pub fn largest_before_step(&self, phase: Phase) -> Option<u64> {
        let last = |phase: Phase| last_of(phase, &self.came);
        let began = match phase {
            Phase::Forward => last(Phase::Optimizer).max(last(Phase::Backward)),
            _ => last(Phase::Optimizer),
        };
        let began = began?;
        self.same_way.iter().filter_map(|came| came.largest_until(began)).max()
    }

    /// The largest block that had come by the way that failed.
    pub fn largest_by_same_way(&self) -> u64 {
        self.same_way.iter().map(|came| came.largest_bytes).max().unwrap_or(0)
    }

    fn came_in(&self, phase: Phase) -> impl Iterator<Item = &Came> {
        self.came.iter().filter(move |(known, _)| *known == Some(phase)).map(|(_, came)| came)
    }
}

/// Ordinal of the last block that came in a phase.
fn last_of(wanted: Phase, came: &[(Option<Phase>, Came)]) -> Option<u64> {
    came.iter().filter(|(phase, _)| *phase == Some(wanted)).map(|(_, came)| came.last).max()
}

/// The largest block of forward and backward passes. What the program's own evaluation takes in a forward pass counts until the last
/// backward pass: before it, that function may be one of the training's.
fn largest_in_training(came: &[(Option<Phase>, Came)], phases: &OfSites<'_>) -> u64 {
    let last = last_of(Phase::Backward, came);
    let largest = came.iter().filter_map(|(phase, came)| match phase {
        Some(Phase::Forward) if phases.is_of_evaluation(came.site) => came.largest_until(last?),
        Some(Phase::Forward | Phase::Backward) => Some(came.largest_bytes),
        _ => None,
    });
    largest.max().unwrap_or(0)
}

/// Whether a training has forward passes of its own: else a function that is called like an evaluation's may compute its loss.
fn trains_elsewhere(came: &[(Option<Phase>, Came)], phases: &OfSites<'_>) -> bool {
    let last = last_of(Phase::Backward, came);
    let is_before = |came: &Came| last.is_some_and(|last| came.first < last);
    came.iter()
        .any(|(phase, came)| *phase == Some(Phase::Forward) && is_before(came) && !phases.is_of_evaluation(came.site))
}

/// Sums by phase, the largest first.
fn live(rows: &Rows, phases: &OfSites<'_>) -> Vec<Live> {
    let mut sums: Vec<Live> = Vec::new();
    for Row { site, bytes, blocks, .. } in rows {
        let (phase, bytes) = (phases.phase(*site), saturate(*bytes));
        match sums.iter_mut().find(|known| known.phase == phase) {
            Some(known) => (known.bytes, known.blocks) = (known.bytes.saturating_add(bytes), known.blocks + blocks),
            None => sums.push(Live { phase, bytes, blocks: *blocks }),
        }
    }
    sums.sort_by_key(|live| std::cmp::Reverse(live.bytes));
    sums
}

/// The call site whose blocks are all of one size, all live, and most of what does.
fn pile(rows: &Rows, all: &[Came], phases: &OfSites<'_>, thresholds: &Thresholds) -> Option<OfPlace> {
    let held = rows.iter().fold(0, |sum: u128, row| sum + row.bytes);
    let is_most = |row: &&Row| share(saturate(row.bytes), saturate(held)) >= thresholds.dominant_share;
    let row = rows.iter().filter(is_most).find(|row| row.blocks >= thresholds.pile_blocks)?;
    let came = all.iter().find(|came| came.site == row.site)?;
    let is_equal = u128::from(came.largest_bytes) * u128::from(row.blocks) == row.bytes;
    let known = phases.stacks().call_site(row.site).filter(|_| phases.phase(row.site).is_none())?;
    let label = known.label_with_line().unwrap_or_else(|| known.label.clone());
    (came.blocks == row.blocks && is_equal).then(|| OfPlace { label, bytes: saturate(row.bytes), blocks: row.blocks })
}

/// Blocks of a forward pass that live and came by ways of which none is gone.
fn kept_of_forward(rows: &Rows, all: &[Came], phases: &OfSites<'_>) -> u64 {
    let mut ways: FxHashMap<u64, (u64, u64)> = FxHashMap::default();
    let is_forward = |site: u32| phases.phase(site) == Some(Phase::Forward);
    for came in all.iter().filter(|came| is_forward(came.site)) {
        ways.entry(phases.way(came.site).unwrap_or(0)).or_default().0 += came.blocks;
    }
    for Row { site, blocks, .. } in rows.iter().filter(|row| is_forward(row.site)) {
        ways.entry(phases.way(*site).unwrap_or(0)).or_default().1 += blocks;
    }
    ways.into_values().filter(|(came, live)| came == live).map(|(_, live)| live).sum()
}

/// What forward passes since the last backward pass left, by line, against what a pass takes there. `None` where a line has no more than
/// that: a pass that is longer than those before it has not more of all lines.
fn unfollowed(
    rows: &Rows,
    all: &[(Option<Phase>, Came)],
    backward_passes: u64,
    phases: &OfSites<'_>,
) -> Option<Unfollowed> {
    let last = last_of(Phase::Backward, all).filter(|_| backward_passes > 1)?;
    let line = |site: u32| phases.stacks().call_site(site)?.label_with_line();
    // Of each line: blocks and bytes that live since, and blocks of earlier passes.
    let mut lines: FxHashMap<String, (u64, u64, u64)> = FxHashMap::default();
    let mut live_of: FxHashMap<u32, u64> = FxHashMap::default();
    for row in rows.iter().filter(|row| row.first > last && phases.phase(row.site) == Some(Phase::Forward)) {
        let (live, bytes, _) = lines.entry(line(row.site)?).or_default();
        (*live, *bytes) = (*live + row.blocks, bytes.saturating_add(saturate(row.bytes)));
        *live_of.entry(row.site).or_default() += row.blocks;
    }
    // What comes and goes within the last pass is nothing of an earlier one.
    let forward = all.iter().filter(|(phase, _)| *phase == Some(Phase::Forward)).map(|(_, came)| came);
    for came in forward.filter(|came| came.first < last) {
        if let Some((.., earlier)) = line(came.site).and_then(|line| lines.get_mut(&line)) {
            *earlier += came.blocks.saturating_sub(live_of.get(&came.site).copied().unwrap_or(0));
        }
    }
    // Where nothing had come before, nobody knows how much one pass takes.
    let known = || lines.values().filter(|(.., earlier)| *earlier > 0);
    let times = known().map(|(live, _, earlier)| live.saturating_mul(backward_passes) / earlier);
    Some(Unfollowed {
        backward_passes,
        times: times.min()?,
        lines: known().count() as u64,
        bytes: known().fold(0, |sum, (_, bytes, _)| sum.saturating_add(*bytes)),
    })
}

/// The place with most bytes of blocks that came in an evaluation.
fn of_evaluation(rows: &Rows, phases: &OfSites<'_>) -> Option<OfPlace> {
    let mut places: Vec<OfPlace> = Vec::new();
    for row in rows.iter().filter(|row| phases.is_of_evaluation(row.site)) {
        let known = phases.stacks().call_site(row.site)?;
        let label = known.label_with_line().unwrap_or_else(|| known.label.clone());
        let (bytes, blocks) = (saturate(row.bytes), row.blocks);
        match places.iter_mut().find(|place| place.label == label) {
            Some(place) => (place.bytes, place.blocks) = (place.bytes.saturating_add(bytes), place.blocks + blocks),
            None => places.push(OfPlace { label, bytes, blocks }),
        }
    }
    places.into_iter().max_by_key(|place| place.bytes)
}
