//! H. Where in a training or in serving a failure came.

use super::fragmentation::would_be_packed;
use super::llama::Start;
use super::{Rule, failure, leaks, log, model};
use crate::diagnosis::case::{Case, Failure};
use crate::judgement::check::{Basis, Check, Confidence, Holds, Known};
use crate::passes::shape::facts::{Facts, Phase};
use crate::passes::shape::of_blocks::OfBlocks;
use crate::passes::shape::paths::Thing;
use crate::passes::shape::{MARKS, Shape};
use crate::replay::purpose::Purpose;
use crate::software::Program;
use crate::symbols::Frame;
use crate::thresholds::share;
use crate::words::size;

/// What would tell llama.cpp's pool from other buffers.
const POOL: &str =
    "which code asks: a function on the way to the call that names it (--symbols, where names are missing)";

/// What would tell whether an earlier pass that failed is kept.
const KEPT_EXCEPTION: &str = "whether the exception of an earlier error is kept, as in a variable or a list: its traceback keeps the tensors of \
                              the pass that failed (keep str(error) instead)";

pub(super) const RULES: &[Rule] = &[
    failure("oom-model-load", oom_model_load),
    failure("oom-first-forward", oom_first_forward),
    failure("oom-first-backward", oom_first_backward),
    failure("oom-optimizer-step", oom_optimizer_step),
    failure("oom-longest-batch", oom_longest_batch),
    failure("oom-eval-accumulation", oom_eval_accumulation),
    failure("oom-eval-batch", oom_eval_batch),
    failure("fsdp-gather-spike", fsdp_gather_spike),
    failure("kv-cache-prealloc", model::kv_cache_prealloc),
    failure("kv-cache-incremental", kv_cache_incremental),
    failure("legacy-pool-growth", legacy_pool_growth),
];

/// What is known up to a failure of device memory, where it is one that shapes look at.
pub(super) fn facts<'a>(case: &'a Case<'_>, failure: &Failure<'_>) -> Option<&'a Facts> {
    let index = usize::try_from(failure.report.number - 1).ok()?;
    case.shapes.failure(index).filter(|_| failure.is_real_of_device())
}

/// Puts one shape to the test.
fn is(shape: Shape, case: &Case<'_>, failure: &Failure<'_>, check: &mut Check) {
    match facts(case, failure) {
        Some(facts) => {
            shape.judge(facts, check);
            if shape.is_of_a_moment() {
                unless_it_piles_up(case, failure, check);
                if !check.is_over() {
                    unless_an_error_is_kept(case, failure, Confidence::Possible, check);
                }
            }
            unless_in_pieces(shape, case, failure, check);
            its_own_doing(failure, check);
            unless_others_of_the_process(case, failure, check);
        }
        None => _ = check.applies(false),
    }
}

/// Where what lies unused in PyTorch's cache would have held what is blamed, pieces decided as much as the phase. Of a first backward
/// pass and an optimizer's first step what is still to come counts, too.
fn unless_in_pieces(shape: Shape, case: &Case<'_>, failure: &Failure<'_>, check: &mut Check) {
    if ![Shape::Load, Shape::FirstForward, Shape::FirstBackward, Shape::Optimizer].contains(&shape) {
        return;
    }
    let sums = case.torch_sums(failure).filter(|sums| sums.is_certain() && !case.tensors_exceed(failure));
    let Some((sums, asked)) = sums.zip(failure.request_bytes().get()).filter(|_| !check.is_over()) else { return };
    let told = facts(case, failure).and_then(|facts| facts.told.as_ref());
    // Passes that follow each other and keep what they take go on, whatever the pieces hold.
    let go_on = told.and_then(|told| told.unfollowed.as_ref());
    if shape == Shape::FirstForward && go_on.is_some_and(|passes| passes.times >= case.thresholds.least_passes) {
        return;
    }
    let block = if sums.tried.bytes > 0 { sums.tried.bytes.min(asked) } else { asked };
    // Without a reading as much as was refused may have been free.
    let free = failure.free_bytes().get().or(sums.free.map(|free| free.most()));
    let room = sums.unused.most().saturating_add(free.unwrap_or(asked));
    // How many of the parameters are trained, and by which other optimizer, nobody says: more to come is no proof there.
    let to_come = told.and_then(|told| match shape {
        Shape::FirstBackward => Some(told.gradients_to_come_bytes()),
        Shape::Optimizer => Some(told.state_to_come_bytes(case.thresholds.state_factor)),
        _ => None,
    });
    let is_adams = shape == Shape::Optimizer && told.is_some_and(OfBlocks::makes_adams_state);
    if room < to_come.filter(|_| is_adams).unwrap_or(block) {
        return;
    }
    let is_little = share(sums.unused.bytes, sums.reserved_bytes()) < failure.thresholds.few_unused_share;
    let is_enough = room >= to_come.unwrap_or(block) && !is_little;
    check.at_most(if is_enough { Confidence::Possible } else { Confidence::Probable });
    check.note(true, || held_in_pieces(sums.unused.bytes, free));
    would_be_packed(case, failure, check);
}

/// What PyTorch's allocator had unused, beside what was free, where that is known.
fn held_in_pieces(unused_bytes: u64, free_bytes: Option<u64>) -> String {
    let with = match free_bytes {
        None => ", and how much was free is not known: together that may be".to_owned(),
        Some(0) => ":".to_owned(),
        Some(free) => format!(", and {} was free:", size(free)),
    };
    format!("PyTorch's allocator held {} unused{with} as much as was asked for, in pieces", size(unused_bytes))
}

/// Where blocks pile up before it, the phase is where memory ran out, and may not be why.
fn unless_it_piles_up(case: &Case<'_>, failure: &Failure<'_>, check: &mut Check) {
    if !check.is_over() && leaks::may_rise_up_to(case, failure) {
        check.at_most(Confidence::Probable);
        check.would_settle("whether the blocks that became more before the failure are needed (see live-leak)");
    }
}

/// Where an error had come before, and perhaps as much as was missing lives of passes that began before it, that error may keep it: its traceback
/// holds the frames of the pass that failed, and they the tensors.
pub(super) fn unless_an_error_is_kept(case: &Case<'_>, failure: &Failure<'_>, at_most: Confidence, check: &mut Check) {
    let told = facts(case, failure).and_then(|facts| facts.told.as_ref());
    // Where nobody knows how much was missing, that may have been all.
    let is_enough = |bytes: u64| failure.shortfall_bytes().is_none_or(|missing| bytes >= missing);
    let since = told.and_then(|told| told.since_an_error);
    let Some((number, bytes)) = since.filter(|(_, bytes)| is_enough(*bytes)) else { return };
    check.at_most(at_most);
    check.part("since an error");
    check.note(true, || {
        format!("{} of forward passes live, at least some of it since before the error #{number}", size(bytes))
    });
    check.would_settle(KEPT_EXCEPTION);
}

/// Memory runs out while weights are uploaded.
fn oom_model_load(case: &Case<'_>, failure: &Failure<'_>, check: &mut Check) {
    let facts = facts(case, failure);
    let llama = loads_as_llama_does(case, facts, Thing::Phase(Phase::Load)) && failure.is_real_of_device();
    match facts {
        // llama.cpp asks for all weights of a device at once, before anything else.
        _ if llama && is_first(case, failure) => {
            check.must(true, || format!("it is the first buffer on the device, {}", size(failure.oom.requested_bytes)));
            if !model::are_weights(case, failure, check) {
                names_the_load(case, failure, facts, check);
            }
            its_own_doing(failure, check);
        }
        Some(facts) if llama && facts.from_beginning => one_of_the_tensors(case, failure, facts, check),
        _ => {
            is(Shape::Load, case, failure, check);
            is_called_so(Phase::Load, case, failure, check);
        }
    }
    if let (Purpose::KvCache | Purpose::Compute, Some(what)) = (failure.report.is_for, failure.report.is_for.what_for())
    {
        check.unless(true, || format!("the request was {what}, as {} says", said_by(failure)));
    }
    check.unless(others_before(case, failure), || {
        format!(
            "{} of the card or more was in use beside the program's blocks when it was first read",
            case.thresholds.much_of_a_card()
        )
    });
}

/// Whether buffers come in the order of llama.cpp. Of ggml alone only a function on the way to the call says what a buffer is.
pub(super) fn loads_as_llama_does(case: &Case<'_>, facts: Option<&Facts>, thing: Thing) -> bool {
    let is_named = || facts.is_some_and(|facts| facts.on_frameworks_path(thing).is_some());
    case.versions.has(Program::LlamaCpp) || case.versions.has(Program::Ggml) && is_named()
}

/// The function that says what the memory of a failed call was for.
fn said_by<'a>(failure: &Failure<'a>) -> &'a str {
    failure.report.purpose_by.as_deref().unwrap_or("a function on the way to the call")
}

/// What says that it is a load: by its place alone it may be another program's first buffer.
fn names_the_load(case: &Case<'_>, failure: &Failure<'_>, facts: Option<&Facts>, check: &mut Check) {
    if failure.report.is_for == Purpose::Weights {
        check.must(true, || format!("the request was for weights, as {} says", said_by(failure)));
        return;
    }
    match facts.and_then(|facts| facts.says(Phase::Load)) {
        Some(said) => said.count(check),
        None if log::says_what_for(case, failure, Purpose::Weights, check) => {}
        None => check.guess(MARKS),
    }
}

/// Old versions of llama.cpp ask for each tensor by itself. What comes behind the weights are caches and compute buffers.
fn one_of_the_tensors(case: &Case<'_>, failure: &Failure<'_>, facts: &Facts, check: &mut Check) {
    let start = Start::of(case, failure, facts);
    if !check.applies(start.is_load_by_tensor() && start.behind.is_empty() && start.asks_for_tensor != Some(false)) {
        return;
    }
    let given = start.weights_bytes();
    check.must(true, || {
        let (asked, tensors) = (size(failure.oom.requested_bytes), start.weights.len());
        let place = match start.asks_for_tensor {
            Some(_) => "in the same place of its code",
            None => "in a place that nobody knows",
        };
        format!("{asked} was asked for {place}, behind {tensors} blocks ({}) from one place", size(given))
    });
    if start.asks_for_tensor.is_none() {
        check.must(Holds::Unknown(model::CALL_SITES), String::new);
        check.at_most(Confidence::Possible);
    }
    if !model::are_tensors(case, failure, given, check) {
        names_the_load(case, failure, Some(facts), check);
    }
    its_own_doing(failure, check);
}

/// Whether nothing large had been given on the device before.
fn is_first(case: &Case<'_>, failure: &Failure<'_>) -> bool {
    let track = failure.report.device.and_then(|device| case.replay.tracks.device(device));
    let none_given = track.is_none_or(|track| track.live.is_empty());
    let facts = facts(case, failure);
    case.around(failure).is_some()
        && (none_given
            || facts.is_some_and(|facts| facts.from_beginning && Start::of(case, failure, facts).weights.is_empty()))
}

/// What would show whether the program's own memory is why a request failed.
const WHOSE: &str = "who holds the rest of the card (KFD's list of processes, nvidia-smi)";

/// What the program does with its memory is a reason where that memory and the request fill the card.
pub(super) fn its_own_doing(failure: &Failure<'_>, check: &mut Check) {
    not_enough(failure, check);
    decided_by_the_rest(failure, 0, check);
}

/// What would show whether PyTorch's part of the program is why a request failed.
const ANOTHER_LIBRARYS: &str = "whether the program needs what it holds beside PyTorch (WHO ALLOCATED)";

/// The same of what the program holds beside PyTorch, where PyTorch's own doing is blamed.
fn unless_others_of_the_process(case: &Case<'_>, failure: &Failure<'_>, check: &mut Check) {
    let sums = case.torch_sums(failure).filter(|sums| sums.is_certain() && sums.allocated.is_some());
    let Some(beside) = sums.map(|sums| failure.own_bytes().saturating_sub(sums.reserved_bytes())) else { return };
    // Not known is not little.
    let is_little = |total| share(beside, total) < failure.thresholds.others_share;
    let is_too_little = failure.shortfall_bytes().is_some_and(|missing| beside < missing);
    if check.is_over() || beside == 0 || is_too_little || failure.total_bytes().get().is_some_and(is_little) {
        return;
    }
    check.at_most(Confidence::Possible);
    check.would_settle(ANOTHER_LIBRARYS);
    check.note(true, || {
        let enough = if failure.shortfall_bytes().is_some() { ", at least as much as was missing" } else { "" };
        format!("{} of the program's own blocks are not PyTorch's{enough}", size(beside))
    });
}

/// Where much of the card is in use beside the program's own blocks, and the request would have fitted without that, what the program
/// does explains the failure as little as it does anything else; `own_bytes`: what it is blamed for.
pub(super) fn decided_by_the_rest(failure: &Failure<'_>, own_bytes: u64, check: &mut Check) {
    let rest = failure.decided_by_the_rest();
    if check.is_over() || rest.get().is_some_and(|rest| rest <= own_bytes) {
        return;
    }
    check.at_most(Confidence::Possible);
    check.would_settle(if rest.get().is_some() { WHOSE } else { rest.reading() });
    check.note(rest.get().is_some(), || {
        format!(
            "{} of the card was in use beside the program's own blocks, and without that the request would have fitted",
            size(rest.get().unwrap_or(0))
        )
    });
}

/// Where enough is known to have been free, it is no matter of what the program asks for.
pub(super) fn not_enough(failure: &Failure<'_>, check: &mut Check) {
    if failure.request_bytes().zip(failure.runtime_free_bytes()).get().is_some() {
        check.unless(failure.was_enough(failure.runtime_free_bytes()), || {
            "the runtime reported clearly more free than was asked for".to_owned()
        });
    }
}

/// What was in use beside the program's own blocks when the card was first read, at or before a failure: at least and at most, in bytes.
pub(super) fn in_use_before(case: &Case<'_>, failure: &Failure<'_>) -> Option<(u64, u64)> {
    let first = failure.report.device.and_then(|device| case.replay.tracks.device(device)?.reads.first);
    // A reading of a later failure says nothing of the time before the load.
    let own = failure.oom.read.wholes();
    first.filter(|first| first.at <= failure.oom.at || !own.is_empty()).and_then(|first| {
        let whole = *first.read.wholes().first()?;
        let used = whole.total_bytes - whole.free_bytes;
        // Memory may have come or gone while the card was read: then two numbers bound it.
        let held = (first.least_held_bytes.min(first.held_bytes), first.most_held_bytes.max(first.held_bytes));
        let held = if first.is_disturbed { held } else { (first.held_bytes, first.held_bytes) };
        // A stream-ordered pool may keep what went back to it, and that is nobody else's; nor is what rounding adds to each block.
        let in_pools = first.done.returned_to_pools_bytes;
        let each = failure.device.and_then(|device| device.granularity_observed_bytes).unwrap_or(0);
        let rounding = first.done.given_blocks.saturating_mul(each);
        let least = used.saturating_sub(held.1).saturating_sub(in_pools).saturating_sub(rounding);
        Some((least, used.saturating_sub(held.0)))
    })
}

/// Whether others held much of the card when the program began.
fn others_before(case: &Case<'_>, failure: &Failure<'_>) -> Holds {
    let others = in_use_before(case, failure);
    const READING: &str = "memory in use before the load (sysfs, NVML or the runtime)";
    let both = Known::new(others, READING).zip(failure.total_bytes());
    let is_much = |others, total| share(others, total) >= case.thresholds.others_share;
    match both.get() {
        Some(((least, most), total)) if is_much(least, total) != is_much(most, total) => Holds::Unknown(READING),
        _ => both.is(|((least, _), total)| is_much(least, total)),
    }
}

/// What would tell what a program means by a label.
const MEANT: &str = "what the program means by that label: a framework, facts of the model (--model, --gguf) or a function that names it";

/// A label in a program without a framework names the phase as the program calls it: the model of a game is loaded, too, and a
/// Markov model has a forward pass. Other labels that name a training tell what is meant.
fn is_called_so(phase: Phase, case: &Case<'_>, failure: &Failure<'_>, check: &mut Check) {
    let is_known =
        !case.versions.programs.is_empty() || case.evidence.model.is_some() || case.labels_name_training(failure);
    let said = facts(case, failure).filter(|_| !is_known).and_then(|facts| facts.says(phase));
    let by_label = said.is_some_and(|said| said.is_by_label()) && !case.last_label_names_weights(failure);
    if by_label && !check.is_over() {
        check.only_as_seen();
        check.at_most(Confidence::Possible);
        check.would_settle(MEANT);
    }
}

/// The activations of the first forward pass do not fit.
fn oom_first_forward(case: &Case<'_>, failure: &Failure<'_>, check: &mut Check) {
    is(Shape::FirstForward, case, failure, check);
    is_called_so(Phase::Forward, case, failure, check);
}

/// The gradients do not fit beside every saved activation.
fn oom_first_backward(case: &Case<'_>, failure: &Failure<'_>, check: &mut Check) {
    is(Shape::FirstBackward, case, failure, check);
}

/// What tells how much an optimizer keeps.
const PARAMETERS: &str = "the number of the model's parameters (--model, --model-facts or --gguf)";

/// The optimizer's state does not fit.
fn oom_optimizer_step(case: &Case<'_>, failure: &Failure<'_>, check: &mut Check) {
    is(Shape::Optimizer, case, failure, check);
    // What the frames say needs no size.
    if facts(case, failure).is_some_and(Facts::is_by_frames) {
        return;
    }
    let parameters = case.evidence.model.as_ref().and_then(|model| model.parameters);
    if parameters.is_none() {
        check.at_most(Confidence::Probable);
        check.would_settle(PARAMETERS);
    }
    let Some((parameters, facts)) = parameters.zip(facts(case, failure)).filter(|_| !check.is_over()) else { return };
    // Adam keeps two numbers of four bytes for each parameter.
    let state = parameters.saturating_mul(8);
    let came = facts.held_bytes.saturating_sub(facts.cycles.open_from.bytes);
    let most = state.saturating_add((state as f64 * case.thresholds.optimizer_share) as u64);
    check.unless(came > most, || {
        format!("{} had come, and Adam's state of this model takes {} by its facts", size(came), size(state))
    });
    check.note_by(Basis::Given, came <= most, || {
        format!("Adam's state of this model takes {}, of which {} had come", size(state), size(came))
    });
}

/// One long batch in a run that was stable.
fn oom_longest_batch(case: &Case<'_>, failure: &Failure<'_>, check: &mut Check) {
    is(Shape::LongestBatch, case, failure, check);
}

/// The predictions of an evaluation pile up.
fn oom_eval_accumulation(case: &Case<'_>, failure: &Failure<'_>, check: &mut Check) {
    is(Shape::EvalAccumulation, case, failure, check);
}

/// The evaluation batch is larger than the training batch.
fn oom_eval_batch(case: &Case<'_>, failure: &Failure<'_>, check: &mut Check) {
    is(Shape::EvalBatch, case, failure, check);
}

/// Gathered parameters of several layers live at once.
fn fsdp_gather_spike(case: &Case<'_>, failure: &Failure<'_>, check: &mut Check) {
    is(Shape::GatherSpike, case, failure, check);
    let ranks = case.variable("WORLD_SIZE").and_then(|text| text.trim().parse::<u64>().ok());
    let is_single = match ranks {
        Some(ranks) => Holds::from(ranks == 1),
        None if case.facts.process.rank.is_some_and(|rank| rank > 0) => Holds::No,
        None => Holds::Unknown("how many ranks there are (WORLD_SIZE): give the traces of all"),
    };
    // Any program uses buffers of one size in turn. Without a second rank or a name, there is nothing of FSDP in that.
    if check.is_guess() && is_single != Holds::No {
        _ = check.applies(false);
    }
    let libraries = || case.trace.metadata.modules.modules.iter();
    let communicates = libraries().any(|module| ["librccl", "libnccl"].iter().any(|name| module.path.contains(name)));
    // PyTorch always loads one: it says nothing of a communicator.
    check.must(communicates, || "a library for communication (NCCL, RCCL) is loaded".to_owned());
    check.unless(is_single, || "there is a single rank only (WORLD_SIZE=1), so nothing is gathered".to_owned());
}

/// The cache grows token by token.
fn kv_cache_incremental(case: &Case<'_>, failure: &Failure<'_>, check: &mut Check) {
    is(Shape::KvIncremental, case, failure, check);
}

/// A pool without virtual memory keeps every peak.
fn legacy_pool_growth(case: &Case<'_>, failure: &Failure<'_>, check: &mut Check) {
    is(Shape::LegacyPool, case, failure, check);
    let named = facts(case, failure).and_then(|facts| facts.on_path(Thing::LegacyPool));
    let is_of_ggml = |frame: &Frame| frame.module.as_deref().is_some_and(|name| name.starts_with("libggml"));
    match named {
        Some(text) => check.must(true, || text),
        None if failure.report.stack.iter().any(is_of_ggml) => {
            check.note(true, || "the call comes from ggml's library".to_owned());
            check.at_most(Confidence::Probable);
            check.would_settle(POOL);
        }
        // Any program may ask for buffers that grow a little and keep them.
        None => check.guess(POOL),
    }
}
