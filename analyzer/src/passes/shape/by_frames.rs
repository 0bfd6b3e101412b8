//! Shapes of a training with PyTorch, where functions on the way to the failure name the phase, and the ways of the blocks that came
//! before say which phases had been. Behind an allocator with a cache, neither sizes nor cycles of the runtime's calls would.

use super::beside_training::Beside;
use super::facts::{Facts, Phase};
use super::named::Said;
use super::of_blocks::{OfBlocks, Unfollowed};
use super::training::unless_more_stays;
use super::{MARKS, Shape};
use crate::judgement::check::{Check, Confidence, Holds};
use crate::passes::shape::paths::Thing;
use crate::passes::tensor_growth::BECOMES_LARGER;
use crate::thresholds::share;
use crate::words::{count, percent, size};

/// What frames that nobody looked for leave open.
const FRAMES: &str = "which phases had been before: on some ways to PyTorch's blocks nobody looked for Python's frames";
/// What would tell how often a forward pass had been.
const PASSES: &str =
    "whether a backward pass had been before: no block came from a forward pass that a function of PyTorch names";
/// What would tell the first backward pass over a forward pass from a later one.
const WHICH_PASS: &str = "whether another backward pass over the same forward pass came before it (retain_graph, gradients of gradients, several losses)";
/// What would tell a larger batch from a larger model.
const WHICH_GREW: &str =
    "whether the batch is larger or the model: weights came onto the card after a backward pass had been";
/// What would tell a longer batch from a larger layer.
const WHAT_GREW: &str =
    "whether the batch is longer, or one layer asks for more: what else the step asked for before it";
const OLDER_MODELS: &str =
    "whether what was loaded before is still needed: a list or a dict of older models keeps them";
const ARE_WEIGHTS: &str = "whether what is loaded there are weights: data in buffers of a module, and a model on the card that is converted, take the same way";
const OTHER_BLOCKS: &str = "what the other blocks are for: their lines (WHO HOLDS)";
const WHAT_KEEPS: &str = "whether gradients are wanted there: without torch.no_grad() each pass keeps what a backward pass would need, as long as its result lives";
/// What would tell a batch of an evaluation from what is made of it.
const NO_PASS: &str =
    "what asks for it: no forward pass of a module, but what the evaluation does with its results or inputs";
/// What would tell a larger batch from a model that does something else in an evaluation.
const SAME_BATCH: &str = "the sizes of both batches: before this request few lines of the model that the training went through had got more in the evaluation, or none was seen";
const EARLIER_BATCH: &str =
    "whether what was given by the same way was of an earlier batch, or of other layers of this one";
const RESTART: &str = "a restart: failing again at the same data supports this, and refutes a leak";

/// What a training needs all the time and in a step.
const TRAINING: [Phase; 4] = [Phase::Load, Phase::Forward, Phase::Backward, Phase::Optimizer];

/// What an optimizer's step needs. Of a forward pass nothing need live any more.
const OF_STEP: [Phase; 3] = [Phase::Load, Phase::Backward, Phase::Optimizer];

/// The phase that functions of frameworks name, where PyTorch told of its blocks.
fn named(facts: &Facts) -> Option<(Phase, &OfBlocks)> {
    let told = facts.told.as_ref()?;
    let by_framework = facts.path.first().filter(|named| named.is_frameworks).and_then(|named| match named.thing {
        Thing::Phase(phase) => Some(phase),
        _ => None,
    });
    Some((by_framework.or_else(|| told.evaluates.as_ref().map(|_| Phase::Evaluation))?, told))
}

/// Puts a shape to the test by frames; false where they say nothing of it.
pub(super) fn judge(shape: Shape, facts: &Facts, check: &mut Check) -> bool {
    let Some((phase, told)) = named(facts) else { return is_nothing_of_it(shape, facts, check) };
    match shape {
        Shape::Load => load(phase, told, facts, check),
        Shape::FirstForward => first_forward(phase, told, facts, check),
        Shape::FirstBackward => first_backward(phase, told, facts, check),
        Shape::Optimizer => optimizer(phase, told, facts, check),
        Shape::LongestBatch => longest_batch(phase, told, facts, check),
        Shape::EvalAccumulation => eval_accumulation(phase, told, facts, check),
        Shape::EvalBatch => eval_batch(phase, told, facts, check),
        Shape::KvIncremental => return is_unnamed(facts.says_tokens(), facts, check),
        Shape::LegacyPool | Shape::GatherSpike => return false,
    }
    true
}

/// Where PyTorch told of its blocks, and no function on the way names the thing, sizes and cycles would only guess at what the ways show not
/// to be there: an image that grows by `torch.cat` is no cache of keys and values.
fn is_nothing_of_it(shape: Shape, facts: &Facts, check: &mut Check) -> bool {
    let phase = match shape {
        Shape::Load => Phase::Load,
        Shape::FirstBackward => Phase::Backward,
        Shape::Optimizer => Phase::Optimizer,
        Shape::EvalAccumulation | Shape::EvalBatch => Phase::Evaluation,
        Shape::KvIncremental => return is_unnamed(facts.says_tokens(), facts, check),
        // What is seen there is worth a word by itself.
        Shape::FirstForward | Shape::LongestBatch | Shape::LegacyPool | Shape::GatherSpike => return false,
    };
    is_unnamed(facts.says(phase), facts, check)
}

fn is_unnamed(said: Option<Said>, facts: &Facts, check: &mut Check) -> bool {
    let is_known = facts.told.as_ref().is_some_and(|told| told.is_whole);
    is_known && said.is_none() && !check.applies(false)
}

/// Whether this is that phase, by the function that says so.
fn is_in(wanted: Phase, phase: Phase, facts: &Facts, check: &mut Check) -> bool {
    if !check.applies(phase == wanted) {
        return false;
    }
    check.must(true, || facts.on_path(Thing::Phase(phase)).unwrap_or_default());
    true
}

/// What PyTorch's blocks were then, by phase.
fn live(told: &OfBlocks, check: &mut Check) {
    let named: Vec<String> = told
        .live
        .iter()
        .filter_map(|live| Some((live.phase?, live)))
        .map(|(phase, live)| format!("{} {}", size(live.bytes), phase.of_it()))
        .collect();
    check.note(!named.is_empty(), || {
        format!("PyTorch's blocks held {} then, including {}", size(told.all_bytes()), named.join(", "))
    });
}

/// What is blamed must be much of what PyTorch holds.
fn is_much(blamed: u64, told: &OfBlocks, facts: &Facts, check: &mut Check) {
    if share(blamed, told.all_bytes()) < facts.thresholds.others_share {
        check.at_most(Confidence::Possible);
        check.would_settle(OTHER_BLOCKS);
    }
}

/// What is blamed must be most of what PyTorch holds, else the phase is where memory ran out, and hardly why.
fn is_most(blamed: u64, told: &OfBlocks, facts: &Facts, check: &mut Check) {
    let all = told.all_bytes().saturating_add(told.requested_bytes);
    if share(blamed.saturating_add(told.requested_bytes), all) < facts.thresholds.dominant_share {
        check.at_most(Confidence::Probable);
        check.would_settle(OTHER_BLOCKS);
    }
}

/// Something that had not been, as far as the ways of all blocks were looked at.
fn not_before(has_been: bool, told: &OfBlocks) -> Holds {
    match has_been {
        true => Holds::Yes,
        false if told.is_whole => Holds::No,
        false => Holds::Unknown(FRAMES),
    }
}

fn load(phase: Phase, told: &OfBlocks, facts: &Facts, check: &mut Check) {
    if is_in(Phase::Load, phase, facts, check) {
        live(told, check);
        is_most(told.live_bytes(&[Phase::Load]), told, facts, check);
        are_weights(told, check);
        let is_later = told.loads_again || told.has_trained();
        let may_be_several = is_later || told.equal_loads >= facts.thresholds.equal_loads;
        check.part(if may_be_several { "older models" } else { "one load" });
        if is_later {
            check.at_most(Confidence::Possible);
            check.note(true, || match told.has_trained() {
                true => "a step of a training had been before it: this is a later load".to_owned(),
                false => {
                    "weights had been loaded and a forward pass had come before it: this is a later load".to_owned()
                }
            });
            check.would_settle(OLDER_MODELS);
        } else if may_be_several {
            check.at_most(Confidence::Probable);
            check.note(true, || {
                format!("each way of the load that brought large blocks brought at least {} equal ones: of several models, or of equal parts of one", told.equal_loads)
            });
            check.would_settle(OLDER_MODELS);
        }
    }
}

/// What a module moves to the card are its buffers, too, and a model on the card is converted by the same way: no call tells them apart.
fn are_weights(told: &OfBlocks, check: &mut Check) {
    check.at_most(Confidence::Probable);
    check.would_settle(ARE_WEIGHTS);
    if told.gone_of_load != Some(0) {
        check.at_most(Confidence::Possible);
    }
    let gone = told.gone_of_load.filter(|gone| *gone > 0);
    check.note(gone.is_some(), || {
        let gone = gone.map_or_else(String::new, |gone| count(gone, "block", "blocks"));
        format!("{gone} that a load had brought were given back before, as where a model on the card is converted")
    });
}

fn first_forward(phase: Phase, told: &OfBlocks, facts: &Facts, check: &mut Check) {
    if !is_in(Phase::Forward, phase, facts, check) {
        return;
    }
    if let Some(unfollowed) =
        told.unfollowed.as_ref().filter(|unfollowed| unfollowed.times >= facts.thresholds.least_passes)
    {
        return several_forward(unfollowed, told, facts, check);
    }
    // Of an earlier pass by the same ways something would be gone.
    let (kept, live_blocks) = (told.kept_of_forward, told.live_blocks(Phase::Forward));
    let kept_share = share(kept, live_blocks);
    check.must(live_blocks == 0 || kept_share >= facts.thresholds.kept_pass_share, || match live_blocks {
        0 => "no block had come in a forward pass".to_owned(),
        _ => format!(
            "{} of a forward pass live, {kept} of them by ways of which none is gone",
            count(live_blocks, "block", "blocks")
        ),
    });
    // Without gradients nothing need stay of a pass.
    check.must(live_blocks > 0 || !told.has_seen(Phase::Forward), String::new);
    let has_been =
        told.has_seen(Phase::Backward) || told.has_seen(Phase::Optimizer) || told.has_seen(Phase::Evaluation);
    check.unless(not_before(has_been, told), || "a backward pass, a step or an evaluation had been before".to_owned());
    live(told, check);
    is_much(told.live_bytes(&[Phase::Forward]).saturating_add(told.requested_bytes), told, facts, check);
    check.at_most(Confidence::Probable);
    check.would_settle(MARKS);
    // One large input does not fit either, nor do several threads at once, and nothing is kept for a backward pass. Nor is it where pass
    // follows pass and their results are kept.
    check.part("one pass");
    let is_most = live_blocks == 0 || kept_share >= facts.thresholds.dominant_share;
    if !is_most || kept < facts.thresholds.passes_blocks || told.gets_inputs_again || told.loads_again {
        check.at_most(Confidence::Possible);
        check.would_settle(WHAT_KEEPS);
    }
}

/// Passes that no backward pass followed, as in an evaluation that keeps what only a backward pass needs.
fn several_forward(unfollowed: &Unfollowed, told: &OfBlocks, facts: &Facts, check: &mut Check) {
    check.must(true, || {
        format!(
            "since the last of at least {} backward passes forward passes came: in {} of the {} where one pass took memory before, at \
             least {} times the blocks live that it took there, {} in all",
            unfollowed.backward_passes,
            unfollowed.lines,
            count(unfollowed.of_lines, "place", "places"),
            unfollowed.times,
            size(unfollowed.bytes)
        )
    });
    check.part("several passes");
    live(told, check);
    is_much(unfollowed.bytes, told, facts, check);
    check.at_most(Confidence::Probable);
    check.would_settle(WHAT_KEEPS);
    // The only block of a pass is its result, which is kept without gradients, too.
    if unfollowed.blocks_of_a_pass <= 1 {
        check.at_most(Confidence::Possible);
    }
}

fn first_backward(phase: Phase, told: &OfBlocks, facts: &Facts, check: &mut Check) {
    if !is_in(Phase::Backward, phase, facts, check) {
        return;
    }
    check.must(if told.has_seen(Phase::Forward) { Holds::Yes } else { Holds::Unknown(PASSES) }, || {
        "blocks of a forward pass had come before it".to_owned()
    });
    // Where no function names a forward pass, none behind a backward pass would show: autograd.grad makes many of them.
    let has_trained = match told.has_trained() {
        false if !told.has_seen(Phase::Forward) => Holds::Unknown(PASSES),
        has_trained => not_before(has_trained, told),
    };
    if matches!(has_trained, Holds::Unknown(PASSES)) {
        check.at_most(Confidence::Possible);
    }
    check.unless(has_trained, || {
        "a step of an optimizer had been on the GPU, or a forward pass behind an earlier backward pass".to_owned()
    });
    is_the_first(told, facts, check);
    live(told, check);
    is_much(told.live_bytes(&[Phase::Forward, Phase::Backward]), told, facts, check);
    is_most(told.live_bytes(&TRAINING), told, facts, check);
}

/// Several backward passes may go over one forward pass (`retain_graph`, a penalty on gradients): each begins with a first gradient, unless
/// it was given one.
fn is_the_first(told: &OfBlocks, facts: &Facts, check: &mut Check) {
    check.unless(told.begun_backward >= facts.thresholds.begun_passes, || {
        format!(
            "{} had begun before it",
            count(told.begun_backward.saturating_sub(1), "backward pass", "backward passes")
        )
    });
    check.unless(told.gradients_of_many_passes(&facts.thresholds).is_some(), || {
        let factor = facts.thresholds.gradient_factor;
        format!("more than {factor} times all else that lives came in backward passes: gradients of several")
    });
    if told.begun_backward != 1 {
        check.at_most(Confidence::Possible);
        check.would_settle(WHICH_PASS);
    }
}

fn optimizer(phase: Phase, told: &OfBlocks, facts: &Facts, check: &mut Check) {
    if !is_in(Phase::Optimizer, phase, facts, check) {
        return;
    }
    let state = told.live_bytes(&[Phase::Optimizer]);
    match &told.makes_state {
        Some(function) => {
            check.must(true, || format!("{function} makes the optimizer's state"));
            check.unless(told.same_way_before_backward(), || {
                "state had been made by the same way before the last backward pass: this is of another optimizer, or of parameters \
                 that came later"
                    .to_owned()
            });
        }
        None => {
            let part = share(state, told.all_bytes());
            check.must(part >= facts.thresholds.others_share, || {
                format!("{} of PyTorch's blocks then came in the optimizer's step", percent(part))
            });
            // What lives in the midst of a step may be gone at its end.
            check.at_most(Confidence::Possible);
            check.would_settle("whether that is the optimizer's state: a function that makes it");
        }
    }
    live(told, check);
    is_much(state.saturating_add(told.requested_bytes), told, facts, check);
    is_most(told.live_bytes(&OF_STEP), told, facts, check);
    unless_others_fill(told, facts, check);
}

/// What else lives in a step, as data, kept results or another model, may be the reason: without it the step might have fitted. To each
/// gradient belongs a weight of its size, whoever brought that; a load brings other things, too.
fn unless_others_fill(told: &OfBlocks, facts: &Facts, check: &mut Check) {
    let to_come = told.state_to_come_bytes(facts.thresholds.state_factor);
    let [loaded, gradients] = [Phase::Load, Phase::Backward].map(|phase| told.live_bytes(&[phase]));
    let unnamed = told.all_bytes().saturating_sub(told.live_bytes(&OF_STEP));
    let weights_among = unnamed.min(gradients.saturating_sub(loaded));
    let others = (unnamed - weights_among).saturating_add(loaded.saturating_sub(gradients));
    if others >= to_come {
        check.at_most(Confidence::Possible);
        check.note(true, || {
            format!(
                "{} live that no gradient shows to be weights: without them the step might have fitted",
                size(others)
            )
        });
        check.would_settle(OTHER_BLOCKS);
    } else if unnamed >= to_come {
        check.at_most(Confidence::Probable);
        check.note(true, || {
            format!("{} live that came in no load: as much as the weights that the gradients belong to", size(unnamed))
        });
        check.would_settle(OTHER_BLOCKS);
    }
}

fn longest_batch(phase: Phase, told: &OfBlocks, facts: &Facts, check: &mut Check) {
    let is_of_batch = [Phase::Forward, Phase::Backward].contains(&phase);
    if !check.applies(is_of_batch && told.has_trained()) || !is_in(phase, phase, facts, check) {
        return;
    }
    let before = told.same_way.iter().map(|came| came.blocks).sum();
    check.must(before >= facts.thresholds.stable_cycles, || {
        format!("{} had come by the same way", count(before, "block", "blocks"))
    });
    let largest = told.largest_before_step(phase);
    let is_longer = |largest: u64| told.requested_bytes as f64 > (1.0 + facts.thresholds.longer_share) * largest as f64;
    check.must(largest.is_some_and(is_longer), || {
        let largest = size(largest.unwrap_or(0));
        format!(
            "{} was asked for, and in the steps before never more than {largest} by that way",
            size(told.requested_bytes)
        )
    });
    unless_more_stays(facts, check);
    if facts.keeps_more_blocks == Some(Holds::Unknown(BECOMES_LARGER)) {
        check.at_most(Confidence::Possible);
    }
    match told.grown_ways(phase) {
        None | Some((0, _)) => {
            check.at_most(Confidence::Possible);
            check.would_settle(WHAT_GREW);
        }
        Some((ways, grown)) => {
            check.unless(grown == 0, || {
                format!(
                    "of {} that brought inputs or activations in this step, none brought a larger one than before",
                    other_ways(ways)
                )
            });
            check.note(grown > 0, || {
                format!("of {} that brought inputs or activations in this step, {grown} brought a larger one than ever before", other_ways(ways))
            });
            // A larger batch makes most activations larger: a few may be those of a branch that is seldom taken.
            if 2 * grown <= ways {
                check.at_most(Confidence::Possible);
                check.would_settle(WHAT_GREW);
            }
        }
    }
    if told.loaded_after_training() {
        check.at_most(Confidence::Possible);
        check.would_settle(WHICH_GREW);
    }
    live(told, check);
    check.at_most(Confidence::Probable);
    check.would_settle(RESTART);
}

fn other_ways(ways: u64) -> String {
    count(ways, "other call path", "other call paths")
}

/// How a function that is called like an evaluation's shows that it is none.
const CALLED_FOR_A_STEP: &str =
    "the last forward pass before the last backward pass came by that function: it is a part of a step";

/// What would tell an evaluation from a part of the loss that is called so.
const NO_BACKWARD: &str = "whether a backward pass goes through what that function computes: the code at that line";

/// Refutes an evaluation by a function's name alone where a backward pass followed it. Without a forward pass there, nothing was tested.
fn unless_for_backward(told: &OfBlocks, check: &mut Check) {
    if let Some(is_for_backward) = told.evaluates_for_backward {
        check.unless(is_for_backward, || CALLED_FOR_A_STEP.to_owned());
    }
}

fn eval_accumulation(phase: Phase, told: &OfBlocks, facts: &Facts, check: &mut Check) {
    // Passes that keep all that a backward pass needs are another matter than results that pile up.
    let keeps_passes =
        told.unfollowed.as_ref().is_some_and(|unfollowed| unfollowed.times >= facts.thresholds.least_passes);
    if !check.applies(told.has_trained() && !keeps_passes) {
        return;
    }
    match &told.evaluates {
        // Other things than models are evaluated, too.
        Some(_) if !told.evaluates_a_model => _ = check.applies(false),
        Some(function) => {
            check.must(true, || format!("the call comes from {function}"));
            check.unless(!told.trains_elsewhere, || {
                "the training has no other forward passes: that function may compute its loss".to_owned()
            });
            unless_for_backward(told, check);
        }
        None if !is_in(Phase::Evaluation, phase, facts, check) => return,
        None => {}
    }
    check.must(piles_up(told, facts), || {
        let place = told.of_evaluation.as_ref();
        let place = place.map(|place| (place.label.clone(), place.blocks, place.bytes)).unwrap_or_default();
        let blocks = count(place.1, "block", "blocks");
        format!(
            "{blocks} ({}) of it live that came by {}, {} of PyTorch's blocks",
            size(place.2),
            place.0,
            percent(share(place.2, told.all_bytes()))
        )
    });
    // Results come by a place or two of the model, and what a backward pass would need by all of them.
    let keeps_activations = told.ways_of_evaluation >= facts.thresholds.passes_blocks;
    check.part(if keeps_activations { "activations" } else { "results" });
    check.note(keeps_activations, || {
        let ways = told.ways_of_evaluation;
        format!("they came by {ways} ways through the model, by each of which several live: what a backward pass would need, more than results")
    });
    live(told, check);
    // The layers of one pass, and what a function keeps of one batch, look the same until a second one comes.
    let several = facts.thresholds.least_passes as f64;
    let of_several = told.outlives_a_backward_pass || told.passes_of_evaluation.is_some_and(|passes| passes >= several);
    check.at_most(if of_several { Confidence::Probable } else { Confidence::Possible });
    check.would_settle("whether they stay from batch to batch: labels of the program (gpuoom_mark)");
}

/// Whether an earlier batch got as much by the way that failed.
fn had_as_much(told: &OfBlocks) -> Holds {
    match told.passes_since {
        _ if told.largest_by_same_way() < told.requested_bytes => Holds::No,
        _ if told.largest_until_backward() >= told.requested_bytes => Holds::Yes,
        Some(passes) => Holds::from(passes >= 1.0),
        None => Holds::Unknown(EARLIER_BATCH),
    }
}

/// Whether many blocks of one line of an evaluation live, which are much of what PyTorch holds.
fn piles_up(told: &OfBlocks, facts: &Facts) -> bool {
    let many = facts.thresholds.least_cycles() as u64;
    let is_much = |bytes: u64| share(bytes, told.all_bytes()) >= facts.thresholds.others_share;
    told.of_evaluation.as_ref().is_some_and(|place| place.blocks >= many && is_much(place.bytes))
}

/// A larger batch makes what most lines of the model get larger. The one that was refused may do something else in an evaluation: another
/// head, or an attention that is written out.
fn is_larger_than_trainings(told: &OfBlocks, check: &mut Check) {
    let Beside { lines, larger } = told.beside_training;
    let both = || count(lines, "line of the model", "lines of the model");
    check.unless(lines > 0 && larger == 0, || {
        format!("of {} that the training went through as well, none got more in the evaluation", both())
    });
    check.note(larger > 0, || {
        format!("of {} that the training went through as well, {larger} got more in the evaluation", both())
    });
    if lines == 0 || 2 * larger <= lines {
        check.at_most(Confidence::Possible);
        check.would_settle(SAME_BATCH);
    }
}

fn eval_batch(phase: Phase, told: &OfBlocks, facts: &Facts, check: &mut Check) {
    // A context that is no decorator has no frame: then the forward pass is of an evaluation by the program's own function.
    let own = told.evaluates.as_ref().filter(|_| [Phase::Forward, Phase::Evaluation].contains(&phase));
    if !check.applies(told.has_trained()) {
        return;
    }
    match own.filter(|_| facts.on_path(Thing::Phase(Phase::Evaluation)).is_none()) {
        Some(function) => {
            check.must(true, || format!("the call comes from {function}"));
            check.unless(!told.trains_elsewhere, || {
                "the training has no other forward passes: that function may be one of its steps".to_owned()
            });
            unless_for_backward(told, check);
            let kept = told.of_evaluation.as_ref().map_or(0, |place| place.blocks);
            if !told.had_evaluated && kept >= facts.thresholds.passes_blocks {
                // It keeps what a backward pass would need, and nobody saw yet that none follows.
                check.at_most(Confidence::Possible);
                check.would_settle(NO_BACKWARD);
            }
        }
        None if !is_in(Phase::Evaluation, phase, facts, check) => return,
        // Labels are made without gradients in a step of a training, too, and so are rollouts.
        None if told.is_only_decorated => {
            check.applies(false);
            return;
        }
        None => {}
    }
    let largest = told.largest_in_training;
    check.must(largest > 0 && told.requested_bytes > largest, || {
        format!("{} was asked for, and in the training never more than {}", size(told.requested_bytes), size(largest))
    });
    is_larger_than_trainings(told, check);
    // The layers of a model have one way where a loop calls them: what the first of them got in this pass shows no earlier batch.
    let had_as_much = had_as_much(told);
    if matches!(had_as_much, Holds::Unknown(_)) {
        check.at_most(Confidence::Possible);
    }
    check.unless(had_as_much, || "as much was given by the same way".to_owned());
    let many = facts.thresholds.least_cycles() as u64;
    let again = told.same_way.iter().map(|came| came.blocks).sum::<u64>() >= many;
    check.unless(!told.is_in_a_pass && (again || piles_up(told, facts)), || {
        "no forward pass of a module asks for it, but another line, which had asked often before or by which much of the evaluation piles up".to_owned()
    });
    // What an evaluation computes of its results is no batch of it.
    if !told.is_in_a_pass {
        check.at_most(Confidence::Possible);
        check.would_settle(NO_PASS);
    }
    live(told, check);
    check.at_most(Confidence::Probable);
}
