//! What PyTorch's blocks tell of a run up to a failure, by the phases of the ways that they came by.

use rustc_hash::FxHashMap;

use crate::passes::fragmentation::saturate;
use crate::passes::phase::sites::OfSites;
use crate::passes::phase::{Phase, Where, table};
use crate::passes::shape::beside_training::Beside;
use crate::passes::shape::paths::own_evaluation;
use crate::replay::Replay;
use crate::replay::blocks::{Came, OfAllocator, Owner, Row, Rows};
use crate::replay::failures::Oom;
use crate::symbols::own::is_own;
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
    /// Of so many at which a pass took memory before: the others keep nothing.
    pub of_lines: u64,
    /// Blocks that a pass took there, before.
    pub blocks_of_a_pass: u64,
    /// Bytes of those that live.
    pub bytes: u64,
}

/// What is told of PyTorch's blocks at a failure of a device.
#[derive(Clone, Debug, PartialEq)]
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
    /// What an evaluation asks the lines of the model for, beside what the training did.
    pub beside_training: Beside,
    /// The place with most blocks of an evaluation.
    pub of_evaluation: Option<OfPlace>,
    /// Ways through a model by each of which several blocks of an evaluation live.
    pub ways_of_evaluation: u64,
    /// Equal blocks of one line that no phase names, of which none is gone and which are most of what lives.
    pub pile: Option<OfPlace>,
    /// An earlier error of PyTorch's in the same thread, by its number, and bytes of forward passes that live by ways of which some came
    /// before it: what a pass took that failed goes with it, unless somebody keeps the exception.
    pub since_an_error: Option<(u64, u64)>,
    /// Blocks of a forward pass that live and came by ways of which none is gone.
    pub kept_of_forward: u64,
    /// Whether one call site outside of all phases gave blocks again and again since the first forward pass, as a line does that makes the
    /// input of each pass.
    pub gets_inputs_again: bool,
    /// Whether weights were loaded, a forward pass came, and more weights were loaded behind it.
    pub loads_again: bool,
    /// How many blocks of its largest size each way of a load brought at least that brought large ones: of several models, or equal parts of
    /// one. 0 where none brought any.
    pub equal_loads: u64,
    /// Forward passes that no backward pass followed, and of which blocks live.
    pub unfollowed: Option<Unfollowed>,
    /// The function on the way to the failure that makes an optimizer's state.
    pub makes_state: Option<String>,
    /// What came before by the way that failed.
    pub same_way: Vec<Came>,
    /// How many passes' worth of blocks came by the same lines of the model since the last backward pass; `None` where nothing tells how
    /// much one takes there.
    pub passes_since: Option<f64>,
    /// The same of the lines by which blocks of an evaluation live, by the line with most.
    pub passes_of_evaluation: Option<f64>,
    /// Whether a block of an evaluation lives that came before the last backward pass: it is of an earlier one.
    pub outlives_a_backward_pass: bool,
    /// Blocks that came in a load and are gone; `None` where several devices were used: what came is known of all of them together.
    pub gone_of_load: Option<u64>,
    /// Whether a forward pass of a model came by the program's own function for an evaluation.
    pub evaluates_a_model: bool,
    /// Whether a function of the program's on the way to the failure is decorated with a context without gradients, and none is called after
    /// an evaluation.
    pub is_only_decorated: bool,
    /// Whether a backward pass or an optimizer's step was called in such a function.
    trains_in_evaluation: bool,
    /// Whether one had come before the last backward pass.
    pub had_evaluated: bool,
    /// What came before on any device, with its phase.
    came: Vec<(Option<Phase>, Came)>,
    /// Backward passes that were over.
    backward_passes: u64,
    /// First gradients of backward passes, of `backward` and of `grad`: one for each pass that was not given its gradients.
    pub begun_backward: u64,
    /// The most blocks of a backward pass of one size that live and came by one way.
    pub equal_gradients: u64,
    /// Whether forward passes came that are not of the program's own function for an evaluation, before the last backward pass.
    pub trains_elsewhere: bool,
    /// Whether the last forward pass before a backward pass came by the program's own function for an evaluation: it is a part of a step.
    /// `None` where no forward pass was seen there.
    pub evaluates_for_backward: Option<bool>,
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
            is_only_decorated: Where::of(&stack, false).is_some_and(|at| at.is_by_decoration())
                && !stack.iter().any(|frame| is_own(frame) && table::is_called_evaluation(frame)),
            is_in_a_pass: stack.iter().any(|frame| table::phase_of(frame) == Some(Phase::Forward)),
            largest_in_training: largest_in_training(&came, phases),
            of_evaluation: of_evaluation(rows, phases),
            ways_of_evaluation: ways_of_evaluation(rows, phases, thresholds),
            pile: pile(rows, all, phases, thresholds),
            since_an_error: since_an_error(replay, oom, rows, phases),
            kept_of_forward: kept_of_forward(rows, all, phases),
            gets_inputs_again: gets_inputs_again(&came, thresholds),
            loads_again: loads_again(&came),
            equal_loads: equal_loads(&came),
            unfollowed: unfollowed(rows, &came, backward_passes, phases, thresholds),
            makes_state: state.and_then(|frame| frame.short()),
            same_way: all.iter().filter(is_same).copied().collect(),
            passes_since: passes_since(site, &came, backward_passes, phases),
            passes_of_evaluation: passes_of_evaluation(rows, &came, backward_passes, phases),
            outlives_a_backward_pass: last_of(Phase::Backward, &came)
                .is_some_and(|last| rows.iter().any(|row| phases.is_of_evaluation(row.site) && row.first < last)),
            gone_of_load: (replay.accounts.devices().count() == 1).then(|| gone_of(Phase::Load, rows, &came, phases)),
            evaluates_a_model: evaluates_a_model(&came, None, phases),
            trains_in_evaluation: came.iter().any(|(phase, came)| {
                matches!(phase, Some(Phase::Backward | Phase::Optimizer)) && phases.is_of_evaluation(came.site)
            }),
            had_evaluated: last_of(Phase::Backward, &came)
                .is_some_and(|last| evaluates_a_model(&came, Some(last), phases)),
            backward_passes,
            begun_backward: begun_backward(&came, phases),
            equal_gradients: equal_gradients(rows, all, phases),
            trains_elsewhere: trains_elsewhere(&came, phases),
            beside_training: Beside::of(&came, last_of(Phase::Backward, &came), phases, thresholds.longer_share),
            evaluates_for_backward: evaluates_for_backward(replay, oom, phases),
            is_whole: phases.is_open() && all.iter().all(looked),
            came,
        })
    }

    /// Whether what came by a function that is called like an evaluation is of one: it runs a model, and is no part of the training's
    /// steps.
    pub fn is_of_an_evaluation(&self) -> bool {
        let is_of_steps = self.trains_in_evaluation || self.evaluates_for_backward == Some(true);
        self.evaluates_a_model && self.trains_elsewhere && !is_of_steps
    }

    /// Bytes that live and came in one of these phases.
    pub fn live_bytes(&self, phases: &[Phase]) -> u64 {
        let of = self.live.iter().filter(|live| live.phase.is_some_and(|phase| phases.contains(&phase)));
        of.fold(0, |sum, live| sum.saturating_add(live.bytes))
    }

    /// What an optimizer's state still needs, at least the request: `factor` is how many times what the gradients take a state takes.
    pub fn state_to_come_bytes(&self, factor: f64) -> u64 {
        let [gradients, state] = [Phase::Backward, Phase::Optimizer].map(|phase| self.live_bytes(&[phase]));
        let all_of_state = (factor * gradients as f64) as u64;
        all_of_state.saturating_sub(state).max(self.requested_bytes)
    }

    /// Whether the function that makes the optimizer's state is Adam's or a relative's of that name: these keep two numbers for each gradient.
    pub fn makes_adams_state(&self) -> bool {
        self.makes_state.as_deref().is_some_and(|function| function.starts_with("Adam"))
    }

    /// What a backward pass still needs for gradients, at least the request: as much as the weights take, if all of them are trained.
    pub fn gradients_to_come_bytes(&self) -> u64 {
        let [weights, gradients] = [Phase::Load, Phase::Backward].map(|phase| self.live_bytes(&[phase]));
        weights.saturating_sub(gradients).max(self.requested_bytes)
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

    /// Whether a model was brought to the card after a backward pass had been: it may be another one.
    pub fn loaded_after_training(&self) -> bool {
        let backward = self.came.iter().filter(|(phase, _)| *phase == Some(Phase::Backward));
        let first = backward.map(|(_, came)| came.first).min();
        last_of(Phase::Load, &self.came).zip(first).is_some_and(|(load, first)| load > first)
    }

    /// Ordinal of the last block before the step that failed, where its beginning is known.
    fn step_began(&self, phase: Phase) -> Option<u64> {
        let last = |phase: Phase| last_of(phase, &self.came);
        match phase {
            Phase::Forward => last(Phase::Optimizer).max(last(Phase::Backward)),
            _ => last(Phase::Optimizer),
        }
    }

    /// The other ways of the step that failed by which its inputs or forward passes had brought blocks before, and how many of them brought
    /// a larger one than ever before: a longer batch makes each of its activations larger.
    pub fn grown_ways(&self, phase: Phase) -> Option<(u64, u64)> {
        let began = self.step_began(phase)?;
        let is_other = |came: &&Came| !self.same_way.iter().any(|same| same.site == came.site);
        let is_of_a_batch = |phase: &Option<Phase>| matches!(phase, None | Some(Phase::Forward | Phase::Data));
        let of_batches = self.came.iter().filter(|(phase, _)| is_of_a_batch(phase)).map(|(_, came)| came);
        let again = of_batches.filter(is_other).filter(|came| came.first <= began && came.last > began);
        Some(again.fold((0, 0), |(all, grown), came| (all + 1, grown + u64::from(came.largest_at > began))))
    }

    /// Bytes that came in backward passes and live, where they are more than the gradients of one pass: those are as many elements as the
    /// weights, which live too, and may be wider by a factor. Activations have gradients as well, but few live at once.
    pub fn gradients_of_many_passes(&self, thresholds: &Thresholds) -> Option<u64> {
        let gradients = self.live_bytes(&[Phase::Backward]);
        let others = self.all_bytes().saturating_sub(gradients);
        let is_more = gradients as f64 > thresholds.gradient_factor * others as f64;
        (is_more && self.equal_gradients >= thresholds.pile_blocks).then_some(gradients)
    }

    /// The largest block that had come by the way that failed before the step that failed, where its beginning is known.
    pub fn largest_before_step(&self, phase: Phase) -> Option<u64> {
        let began = self.step_began(phase)?;
        self.same_way.iter().filter_map(|came| came.largest_until(began)).max()
    }

    /// The largest block that had come by the way that failed.
    pub fn largest_by_same_way(&self) -> u64 {
        self.same_way.iter().map(|came| came.largest_bytes).max().unwrap_or(0)
    }

    /// The largest block that had come by the way that failed before the last backward pass was over.
    pub fn largest_until_backward(&self) -> u64 {
        let last = last_of(Phase::Backward, &self.came);
        let until = |came: &Came| came.largest_until(last?);
        self.same_way.iter().filter_map(until).max().unwrap_or(0)
    }

    fn came_in(&self, phase: Phase) -> impl Iterator<Item = &Came> {
        self.came.iter().filter(move |(known, _)| *known == Some(phase)).map(|(_, came)| came)
    }
}

/// Ordinal of the last block that came in a phase.
fn last_of(wanted: Phase, came: &[(Option<Phase>, Came)]) -> Option<u64> {
    came.iter().filter(|(phase, _)| *phase == Some(wanted)).map(|(_, came)| came.last).max()
}

/// The blocks that `torch.autograd` made as the first gradients of its passes, and not in what the engine runs.
fn begun_backward(came: &[(Option<Phase>, Came)], phases: &OfSites<'_>) -> u64 {
    let of_backward = came.iter().filter(|(phase, _)| *phase == Some(Phase::Backward));
    let begins = |came: &Came| table::begins_a_backward_pass(&phases.stacks().of(came.site).frames);
    of_backward.filter(|(_, came)| begins(came)).map(|(_, came)| came.blocks).sum()
}

/// The most blocks of a backward pass of one size that live and came by one way.
fn equal_gradients(rows: &Rows, all: &[Came], phases: &OfSites<'_>) -> u64 {
    let is_equal = |row: &&Row| {
        let largest = all.iter().find(|came| came.site == row.site).map_or(0, |came| came.largest_bytes);
        u128::from(largest) * u128::from(row.blocks) == row.bytes
    };
    let of_backward = rows.iter().filter(|row| phases.phase(row.site) == Some(Phase::Backward));
    of_backward.filter(is_equal).map(|row| row.blocks).max().unwrap_or(0)
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

/// Whether a forward pass of a model came by the program's own function for an evaluation, before that moment if there is one.
fn evaluates_a_model(came: &[(Option<Phase>, Came)], before: Option<u64>, phases: &OfSites<'_>) -> bool {
    let mut until = came.iter().filter(|(_, came)| before.is_none_or(|before| came.first < before));
    until.any(|(_, came)| phases.is_of_evaluation(came.site) && phases.in_model(came.site).is_some())
}

/// Whether a training has forward passes of its own: else a function that is called like an evaluation's may compute its loss.
fn trains_elsewhere(came: &[(Option<Phase>, Came)], phases: &OfSites<'_>) -> bool {
    let last = last_of(Phase::Backward, came);
    let is_before = |came: &Came| last.is_some_and(|last| came.first < last);
    came.iter()
        .any(|(phase, came)| *phase == Some(Phase::Forward) && is_before(came) && !phases.is_of_evaluation(came.site))
}

/// Whether the last forward pass before the last backward pass came by the program's own function for an evaluation.
fn evaluates_for_backward(replay: &Replay, oom: &Oom, phases: &OfSites<'_>) -> Option<bool> {
    let known = oom.device.and_then(|device| replay.blocks.device(device));
    let mut before = known.into_iter().flat_map(|device| device.steps.before_backward());
    let in_model = before.find(|site| **site != 0 && phases.in_model(**site).is_some())?;
    Some(phases.is_of_evaluation(*in_model))
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

/// The line whose blocks are all of one size, none of them gone since the oldest that lives came, and most of what lives.
fn pile(rows: &Rows, all: &[Came], phases: &OfSites<'_>, thresholds: &Thresholds) -> Option<OfPlace> {
    let held = rows.iter().fold(0, |sum: u128, row| sum + row.bytes);
    let mut lines: Vec<(OfPlace, u64)> = Vec::new();
    // What is moved to the card may be data as well as weights.
    let may_pile_up = |phase: Option<Phase>| phase.is_none_or(|phase| phase == Phase::Load);
    for row in rows.iter().filter(|row| may_pile_up(phases.phase(row.site))) {
        let Some(came) = all.iter().find(|came| came.site == row.site) else { continue };
        let is_equal = u128::from(came.largest_bytes) * u128::from(row.blocks) == row.bytes;
        let Some(known) = phases.stacks().call_site(row.site).filter(|_| is_equal && none_gone_since(row, came)) else {
            continue;
        };
        let label = known.label_with_line().unwrap_or_else(|| known.label.clone());
        let bytes = saturate(row.bytes);
        match lines.iter_mut().find(|(line, each)| line.label == label && *each == came.largest_bytes) {
            Some((line, _)) => (line.bytes, line.blocks) = (line.bytes.saturating_add(bytes), line.blocks + row.blocks),
            None => lines.push((OfPlace { label, bytes, blocks: row.blocks }, came.largest_bytes)),
        }
    }
    let is_pile = |line: &OfPlace| {
        line.blocks >= thresholds.pile_blocks && share(line.bytes, saturate(held)) >= thresholds.dominant_share
    };
    lines.into_iter().map(|(line, _)| line).find(is_pile)
}

/// Whether none of a site's blocks is gone that came since the oldest of those which live.
fn none_gone_since(row: &Row, came: &Came) -> bool {
    let before = u64::from(row.first_nth.saturating_sub(1));
    came.blocks.saturating_sub(before) == row.blocks
}

/// Whether a call site outside of all phases gave a block for each of several passes.
fn gets_inputs_again(came: &[(Option<Phase>, Came)], thresholds: &Thresholds) -> bool {
    let forward = came.iter().filter(|(phase, _)| *phase == Some(Phase::Forward));
    let first = forward.map(|(_, came)| came.first).min();
    let is_of_passes =
        |came: &Came| first.is_some_and(|first| came.last > first) && came.blocks >= thresholds.least_passes;
    came.iter().any(|(phase, came)| phase.is_none() && is_of_passes(came))
}

/// Whether blocks of a load came before and behind one of a forward pass, be that without gradients or not.
fn loads_again(came: &[(Option<Phase>, Came)]) -> bool {
    let of = |wanted: Phase| came.iter().filter(move |(phase, _)| *phase == Some(wanted)).map(|(_, came)| came);
    let loaded = || of(Phase::Load);
    let (first, last) = (loaded().map(|came| came.first).min(), loaded().map(|came| came.last).max());
    let passes = || of(Phase::Forward).chain(of(Phase::Evaluation));
    first.zip(last).is_some_and(|(first, last)| passes().any(|came| first < came.first && came.first < last))
}

/// A model has some large block that no other is equal to, as of an embedding; where models are loaded one behind another, none has.
fn equal_loads(came: &[(Option<Phase>, Came)]) -> u64 {
    let loaded = || came.iter().filter(|(phase, _)| *phase == Some(Phase::Load)).map(|(_, came)| came);
    let largest = loaded().map(|came| came.largest_bytes).max().unwrap_or(0);
    let is_large = |came: &&Came| came.largest_bytes >= largest / 2;
    loaded().filter(is_large).map(|came| came.largest_blocks).min().unwrap_or(0)
}

/// What lives of forward passes since before the last error of the same thread, with the number of that failure.
fn since_an_error(replay: &Replay, oom: &Oom, rows: &Rows, phases: &OfSites<'_>) -> Option<(u64, u64)> {
    // What a thread of autograd's raises, PyTorch raises again in the thread that waits for the backward pass.
    let is_raised_there = |other: &Oom| {
        let of_autograd = other.thread_name.as_deref().and_then(table::phase_of_thread) == Some(Phase::Backward);
        other.thread == oom.thread || of_autograd
    };
    let is_earlier = |other: &Oom| {
        other.ordinal < oom.ordinal && other.error.is_some() && other.device == oom.device && is_raised_there(other)
    };
    let mut listed = replay.failures.listed.iter().enumerate();
    let (index, earlier) = listed.rfind(|(_, other)| is_earlier(other))?;
    let is_older = |row: &&Row| row.first < earlier.position && phases.phase(row.site) == Some(Phase::Forward);
    let bytes = rows.iter().filter(is_older).fold(0, |sum: u64, row| sum.saturating_add(saturate(row.bytes)));
    (bytes > 0).then_some((index as u64 + 1, bytes))
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

/// What is known of one way inside a model, or of those of one line.
#[derive(Clone, Copy, Default)]
struct OfWay {
    /// Blocks that live and came since the last backward pass.
    live: u64,
    bytes: u64,
    /// Blocks of passes before.
    earlier: u64,
    /// Blocks of callers that came first since then.
    since: u64,
}

impl OfWay {
    /// Whether most of what came since stays. What a pass gives back at once tells nothing of how many there were.
    fn keeps(&self, thresholds: &Thresholds) -> bool {
        self.live > 0 && self.live as f64 >= thresholds.dominant_share * self.since as f64
    }

    fn add(&mut self, way: &OfWay) {
        (self.live, self.earlier) = (self.live + way.live, self.earlier + way.earlier);
        self.bytes = self.bytes.saturating_add(way.bytes);
    }
}

/// What forward passes since the last backward pass left, by line of the model, against what a pass takes there. `None` where a line has no
/// more than that: a pass that is longer than those before it has not more of all lines, and results that pile up are of the last ones.
fn unfollowed(
    rows: &Rows,
    all: &[(Option<Phase>, Came)],
    backward_passes: u64,
    phases: &OfSites<'_>,
    thresholds: &Thresholds,
) -> Option<Unfollowed> {
    let last = last_of(Phase::Backward, all).filter(|_| backward_passes > 1)?;
    let mut ways: FxHashMap<u64, (u64, OfWay)> = FxHashMap::default();
    let mut live_of: FxHashMap<u32, u64> = FxHashMap::default();
    for row in rows.iter().filter(|row| row.first > last && phases.phase(row.site) == Some(Phase::Forward)) {
        let place = phases.in_model(row.site)?;
        let (_, way) = ways.entry(place.way).or_insert((place.own_line, OfWay::default()));
        (way.live, way.bytes) = (way.live + row.blocks, way.bytes.saturating_add(saturate(row.bytes)));
        *live_of.entry(row.site).or_default() += row.blocks;
    }
    for (_, came) in all.iter().filter(|(phase, _)| *phase == Some(Phase::Forward)) {
        let Some(place) = phases.in_model(came.site) else { continue };
        let (_, way) = ways.entry(place.way).or_insert((place.own_line, OfWay::default()));
        // What comes and goes within the last pass is nothing of an earlier one. How often an evaluation came nobody knows.
        match came.first < last {
            true if phases.is_of_evaluation(came.site) => {}
            true => way.earlier += came.blocks.saturating_sub(live_of.get(&came.site).copied().unwrap_or(0)),
            false => way.since += came.blocks,
        }
    }
    // Where nothing had come before, or has come since, nobody knows how much one pass takes.
    let known = || ways.values().filter(|(_, way)| way.earlier > 0 && way.live + way.since > 0);
    let mut lines: FxHashMap<u64, OfWay> = known().map(|(line, _)| (*line, OfWay::default())).collect();
    for (line, way) in known().filter(|(_, way)| way.keeps(thresholds)) {
        lines.entry(*line).or_default().add(way);
    }
    // What a last layer gives no backward pass needs: nearly all others keep something. Results are kept by a line or two.
    let kept = || lines.values().filter(|line| line.live > 0);
    let is_most = 2 * kept().count() > lines.len();
    let times = kept().map(|line| line.live.saturating_mul(backward_passes) / line.earlier.max(1));
    Some(Unfollowed {
        backward_passes,
        times: times.min().filter(|_| is_most)?,
        lines: kept().count() as u64,
        of_lines: lines.len() as u64,
        blocks_of_a_pass: lines.values().map(|line| line.earlier).sum::<u64>() / backward_passes,
        bytes: lines.values().fold(0, |sum, line| sum.saturating_add(line.bytes)),
    })
}

/// How many forward passes' worth of blocks came since the last backward pass by the lines of the model that lead to a site.
fn passes_since(site: u32, all: &[(Option<Phase>, Came)], backward_passes: u64, phases: &OfSites<'_>) -> Option<f64> {
    let (lines, last) = (phases.in_model(site)?.lines, last_of(Phase::Backward, all)?);
    let is_same = |came: &&Came| phases.in_model(came.site).is_some_and(|place| place.lines == lines);
    let same = || all.iter().map(|(_, came)| came).filter(is_same);
    let earlier: u64 = same().filter(|came| came.last < last).map(|came| came.blocks).sum();
    let since: u64 = same().filter(|came| came.first > last).map(|came| came.blocks).sum();
    // A way that came before and since tells of no single pass.
    let is_told = earlier > 0 && same().all(|came| came.last < last || came.first > last);
    is_told.then(|| since as f64 * backward_passes as f64 / earlier as f64)
}

/// The same of the lines by which blocks of an evaluation live, by the line with most.
fn passes_of_evaluation(
    rows: &Rows,
    all: &[(Option<Phase>, Came)],
    backward_passes: u64,
    phases: &OfSites<'_>,
) -> Option<f64> {
    let of_evaluation = rows.iter().filter(|row| phases.is_of_evaluation(row.site));
    of_evaluation.filter_map(|row| passes_since(row.site, all, backward_passes, phases)).reduce(f64::max)
}

/// Blocks that came in a phase and are gone.
fn gone_of(wanted: Phase, rows: &Rows, all: &[(Option<Phase>, Came)], phases: &OfSites<'_>) -> u64 {
    let came: u64 = all.iter().filter(|(phase, _)| *phase == Some(wanted)).map(|(_, came)| came.blocks).sum();
    let live: u64 = rows.iter().filter(|row| phases.phase(row.site) == Some(wanted)).map(|row| row.blocks).sum();
    came.saturating_sub(live)
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

/// The ways through a model by each of which so many blocks of an evaluation live that they are of several passes.
fn ways_of_evaluation(rows: &Rows, phases: &OfSites<'_>, thresholds: &Thresholds) -> u64 {
    let mut ways: FxHashMap<u64, u64> = FxHashMap::default();
    for row in rows.iter().filter(|row| phases.is_of_evaluation(row.site)) {
        if let Some(place) = phases.in_model(row.site) {
            *ways.entry(place.way).or_default() += row.blocks;
        }
    }
    ways.into_values().filter(|blocks| *blocks >= thresholds.least_cycles() as u64).count() as u64
}
