//! What else a card may be full of than what the program needs: a leak, what piles up, caches.

use super::AFTER_A_RELEASE;
use crate::diagnosis::case::{Case, Failure};
use crate::diagnosis::rules::{leaks, shapes};
use crate::judgement::check::{Check, Confidence, Holds};
use crate::passes::rise::Rise;
use crate::passes::shape::run::DeviceRun;
use crate::passes::tensor_growth::TensorGrowth;
use crate::replay::tracks::retries::Ending;
use crate::software::Program;
use crate::thresholds::share;
use crate::words::{clean, count, percent, size};

/// What would tell a leak from a program that fills the card on purpose.
const IS_IT_MEANT: &str = "whether the rise of what stays is meant and has an end, as that of a cache";

/// What would tell whether it piles up.
const WHAT_CAME_SINCE: &str =
    "whether what came since the last step piles up: labels where a round of it ends (gpuoom_mark, NVTX, ROCTX)";

/// Ruled out only where the run had cycles enough to show a leak.
pub(super) fn by_a_leak(case: &Case<'_>, failure: &Failure<'_>, check: &mut Check) {
    let cycles = |run: &DeviceRun| run.cycles.steps().len() >= case.thresholds.least_cycles();
    let leaks = case.leaks(failure.oom.device);
    let growth = case.tensor_growth_at(failure);
    if leaks.is_some() || growth.is_some() || case.run_of(failure.oom.device).is_some_and(cycles) {
        let rises = |run: &DeviceRun| run.rise.as_ref().is_some_and(Rise::is_significant);
        // What took less than was missing is not why the card is full.
        let by_segments = || case.run_of(failure.oom.device).is_some_and(rises);
        let rises = growth.map_or_else(by_segments, |growth| growth.significant);
        let may_be = !leaks::rises_in_vain(case, failure) && (leaks.is_some() || rises);
        let beyond = growth.filter(|growth| growth.is_beyond_its_steps(case.thresholds));
        check.note(beyond.is_some(), || beyond.map_or_else(String::new, TensorGrowth::beyond_told));
        // Segments say nothing of what an allocator with a cache keeps in them.
        let tells_blocks =
            failure.device.is_some_and(|device| device.tensors.as_ref().is_some_and(|all| !all.by_call_paths));
        let is_judged = beyond.is_none() && (growth.is_some() || !tells_blocks);
        let holds = match (may_be, is_judged) {
            (true, _) => Holds::Unknown(IS_IT_MEANT),
            (false, false) => Holds::Unknown(WHAT_CAME_SINCE),
            (false, true) => Holds::No,
        };
        check.unless(holds, || {
            "a leak: blocks that stay become more from step to step, and without them the request would have fitted"
                .to_owned()
        });
    }
    // A leak, or a cache that fills: either is more of a reason than the full card that it ends in.
    if leaks::fills_the_card(case, failure) {
        check.at_most(Confidence::Possible);
    }
}

/// Many equal blocks that one line of the program asked for, of which none was given back: parts of what the program needs look like
/// this, and so does what it forgot.
pub(super) fn by_a_pile(case: &Case<'_>, failure: &Failure<'_>, check: &mut Check) {
    let told = shapes::facts(case, failure).and_then(|facts| facts.told.as_ref());
    let Some(pile) = told.and_then(|told| told.pile.as_ref()) else {
        // Without any part each of them may be meant.
        return check.part("no pile");
    };
    check.at_most(Confidence::Probable);
    check.part("pile");
    check.note(true, || {
        let (blocks, bytes, label) = (count(pile.blocks, "tensor", "tensors"), size(pile.bytes), clean(&pile.label));
        format!("{blocks} of one size by {label}, of which none was given back: {bytes}")
    });
    check.would_settle(
        "whether the program still needs all of these equal tensors: the code at the line that asks for them",
    );
}

/// Where nobody tells what an allocator of the program's own holds unused.
const OWN_POOLS: &str =
    "how much memory an allocator inside the program, if it has one, holds unused (no recorded call tells)";

/// What the program holds may be cached, and not in use.
pub(super) fn by_caches(case: &Case<'_>, failure: &Failure<'_>, check: &mut Check) {
    if case.kept_by_pools(failure).at_most_bytes > 0 {
        let at_most = case.pools_keep_at_most(failure).bytes();
        check.unless(case.pools_keep_missing(failure), || {
            format!("stream-ordered pools could give back what was missing (they keep at most {})", size(at_most))
        });
    }
    if case.versions.has(Program::Torch) {
        match few_unused(case, failure) {
            Some(text) => {
                check.at_most(Confidence::Probable);
                check.note(true, || text);
            }
            None => check.unless(case.torch_holds_enough(failure), || {
                "PyTorch's allocator held at least the request in unused blocks".to_owned()
            }),
        }
    } else {
        check.at_most(Confidence::Probable);
        unused_in_own_pools(case, failure, check);
    }
    came_by_itself(case, failure, check);
    let Some(retry) = case.retry(failure) else { return };
    let had_cached = case.cache_at_refusal(failure).is_none_or(|cached| cached >= retry.requested_bytes);
    let by_torch = case.versions.has(Program::Torch) && case.asked_by_torch(failure.oom.site) == Holds::Yes;
    // Before an error PyTorch has given back all that it had cached: what is released after that is the program's.
    let is_cache = by_torch && had_cached && failure.oom.error.is_none();
    if is_cache {
        check.unless(retry.is_release_and_success(), || {
            "PyTorch gave back what it had cached, and the same request succeeded".to_owned()
        });
    } else if retry.is_release_and_success() {
        // A cache that was given back, or data: the card was full of one or the other.
        check.at_most(Confidence::Possible);
        check.note(true, || AFTER_A_RELEASE.to_owned());
    }
    check.note(retry.ending == Ending::Failed && retry.freed_in_vain_bytes > 0, || {
        format!("{} were released, and it failed again", size(retry.freed_in_vain_bytes))
    });
}

/// What pools of the program's own say that they hold unused. Whether they could give it back nobody says.
fn unused_in_own_pools(case: &Case<'_>, failure: &Failure<'_>, check: &mut Check) {
    let Some(unused) = case.unused_in_own_pools(failure) else { return check.would_settle(OWN_POOLS) };
    let missing =
        failure.request_bytes().zip(failure.free_bytes()).get().map(|(request, free)| request.saturating_sub(free));
    if missing.is_none_or(|missing| unused >= missing) {
        check.at_most(Confidence::Possible);
        check.would_settle("whether the program's own pools could have given back what they hold unused");
    }
    check.note(unused > 0, || {
        format!("pools of the program's own say that at least {} of their memory is in no block", size(unused))
    });
}

/// What PyTorch's cache held unused, where that is no more than what every cache has between its blocks.
fn few_unused(case: &Case<'_>, failure: &Failure<'_>) -> Option<String> {
    let sums = case.torch_sums(failure).filter(|sums| sums.is_certain())?;
    let of_reserved = share(sums.unused.bytes, sums.reserved_bytes());
    let would_hold = case.torch_holds_enough(failure) == Holds::Yes;
    (would_hold && of_reserved < failure.thresholds.few_unused_share).then(|| {
        let (unused, part) = (size(sums.unused.bytes), percent(of_reserved));
        format!("PyTorch's allocator held {unused} unused, {part} of what it had reserved")
    })
}

/// What was not free then and is later, although no call of the program gave anything back, was on its way: the program had not
/// filled the card with it.
fn came_by_itself(case: &Case<'_>, failure: &Failure<'_>, check: &mut Check) {
    let by_itself = case.granted(failure).is_some_and(|(_, done)| !case.gave_back(failure, &done));
    if by_itself {
        check.at_most(Confidence::Possible);
    }
    check.note(by_itself, || "the same request succeeded later, and no call gave anything back in between".to_owned());
}
