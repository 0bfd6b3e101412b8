//! What else a card may be full of than what the program needs: a leak, what piles up, caches.

use super::after_a_release;
use crate::diagnosis::case::{Case, Failure};
use crate::diagnosis::rules::{leaks, shapes};
use crate::diagnosis::torch_sums::SEGMENT_BYTES;
use crate::judgement::check::{Check, Confidence, Holds};
use crate::passes::rise::Rise;
use crate::passes::shape::run::{DeviceRun, GIVEN_BACK_AT_LAST};
use crate::passes::tensor_growth::TensorGrowth;
use crate::replay::blocks::Owner;
use crate::replay::tracks::retries::Ending;
use crate::software::Program;
use crate::thresholds::share;
use crate::words::{clean, count, percent, size};

/// What would tell a leak from a program that fills the card on purpose.
const IS_IT_MEANT: &str = crate::passes::shape::run::IS_IT_MEANT;

/// The same of what rose and shows no trend.
const STAYED: &str = "whether what came to stay is meant: the code at the place where it comes from";

/// What would tell whether it piles up.
const WHAT_CAME_SINCE: &str =
    "whether what came since the last step piles up: labels where a round of it ends (gpuoom_mark, NVTX, ROCTX)";

/// What would tell a trend.
const MORE_STEPS: &str = "a longer run: what tensors hold rests on few steps, which show no trend";

/// What would tell whether it goes on.
const ANOTHER_STAIR: &str = "whether more comes to stay: what tensors hold rose in stairs, with level stretches between them, and the run \
                             does not show whether another follows";

/// What would tell what came to stay before the program was first refused.
const BEFORE_REFUSAL: &str =
    "whether more stayed from step to step before the first refusal: the steps that can be looked at came after it";

/// A leak, as what would refute a full card.
const LEAK: &str =
    "a leak: blocks that stay become more from step to step, and without them the request would have fitted";

/// Ruled out only where the run had cycles enough to show a leak.
pub(super) fn by_a_leak(case: &Case<'_>, failure: &Failure<'_>, check: &mut Check) {
    let cycles = |run: &DeviceRun| run.cycles.steps().len() >= case.thresholds.least_cycles();
    let growth = case.tensor_growth_at(failure);
    let leaks = case.leaks(failure.oom.device).is_some();
    if leaks || growth.is_some() || case.run_of(failure.oom.device).is_some_and(cycles) {
        let beyond = growth.filter(|growth| growth.is_beyond_its_steps(case.thresholds));
        check.note(beyond.is_some(), || beyond.map_or_else(String::new, TensorGrowth::beyond_told));
        let holds = is_a_leak(case, failure, growth);
        let is_within = matches!(holds, Holds::Unknown(WHAT_CAME_SINCE));
        // What rose within one step was never put to this test.
        if holds != Holds::No || growth.is_none_or(TensorGrowth::has_steps) {
            check.unless(holds, || match holds {
                _ if is_within => {
                    "what piles up within one step, without which the request would have fitted".to_owned()
                }
                Holds::Unknown(STAYED) => "what came to stay, without which the request would have fitted".to_owned(),
                _ => LEAK.to_owned(),
            });
        }
    } else if let Some(steps) = rises_in_few_steps(case, failure) {
        // Too few for a trend, and none of them fell.
        check.at_most(Confidence::Probable);
        check.note(true, || steps);
        check.would_settle(MORE_STEPS);
    }
    // A leak, or a cache that fills: either is more of a reason than the full card that it ends in.
    if leaks::fills_the_card(case, failure) {
        check.at_most(Confidence::Possible);
    }
}

/// Whether a leak filled the card, by the growth of tensors where that is known, or by cycles of the program's own blocks. Never "yes":
/// nobody knows whether what stays is meant to.
fn is_a_leak(case: &Case<'_>, failure: &Failure<'_>, growth: Option<&TensorGrowth>) -> Holds {
    let rise = case.run_of(failure.oom.device).and_then(|run| run.rise.as_ref());
    // What took less than was missing is not why the card is full.
    let rises = growth.map_or_else(|| rise.is_some_and(Rise::is_significant), |growth| growth.significant);
    let leaks = case.leaks(failure.oom.device).is_some();
    let rose = leaks::rose_until_full(case, failure);
    let may_be = !leaks::rises_in_vain(case, failure) && (leaks || rises || rose);
    match growth {
        _ if may_be => Holds::Unknown(IS_IT_MEANT),
        Some(growth) => shown_by_steps(case, growth),
        None => shown_by_cycles(case, failure, rise),
    }
}

/// What steps whose tensors do not rise leave open.
fn shown_by_steps(case: &Case<'_>, growth: &TensorGrowth) -> Holds {
    match growth {
        _ if growth.is_in_stairs(case.thresholds) => Holds::Unknown(ANOTHER_STAIR),
        // Few steps show no trend, whatever they do.
        _ if growth.few_points => Holds::Unknown(MORE_STEPS),
        _ if growth.is_beyond_its_steps(case.thresholds) => Holds::Unknown(WHAT_CAME_SINCE),
        _ if growth.is_beyond_its_rounds(case.thresholds) => Holds::Unknown(GIVEN_BACK_AT_LAST),
        _ => Holds::No,
    }
}

/// What cycles of the program's own blocks leave open where they do not rise.
fn shown_by_cycles(case: &Case<'_>, failure: &Failure<'_>, rise: Option<&Rise>) -> Holds {
    let missing = failure.shortfall_bytes().unwrap_or(0);
    // Segments say nothing of what an allocator with a cache keeps in them.
    let hides_blocks =
        failure.device.is_some_and(|device| device.tensors.as_ref().is_some_and(|all| !all.by_call_paths));
    // Of what came behind the last cycle beyond what any of them took, cycles say nothing.
    let is_beyond = || shapes::facts(case, failure).is_some_and(|facts| facts.cycles.beyond_bytes() >= missing.max(1));
    match rise {
        // A rise in one jump is no trend, and came to stay all the same, as that of a thread that waited for its turn.
        Some(rise) if rise.risen_bytes() > missing => Holds::Unknown(STAYED),
        // What a program does after a refusal, such as smaller work, is not what it did before.
        _ if steps_are_after_a_refusal(case, failure) => Holds::Unknown(BEFORE_REFUSAL),
        _ if hides_blocks || is_beyond() => Holds::Unknown(WHAT_CAME_SINCE),
        _ => Holds::No,
    }
}

/// Whether the steps by which a leak is judged came after an earlier refusal of the same device, but for too few to show a trend.
fn steps_are_after_a_refusal(case: &Case<'_>, failure: &Failure<'_>) -> bool {
    let of_device = case.failures().filter(|other| other.report.device == failure.report.device);
    let Some(refused) = of_device.map(|other| other.oom.at).min() else { return false };
    let rise = case.run_of(failure.oom.device).and_then(|run| run.rise.as_ref());
    rise.is_some_and(|rise| {
        let before = rise.levels.iter().filter(|level| level.at < refused).count();
        before < rise.levels.len() && before < case.thresholds.least_cycles()
    })
}

/// Backward passes behind each of which tensors held more, by more in all than was missing; `None` where there are no two of them, or one
/// fell.
fn rises_in_few_steps(case: &Case<'_>, failure: &Failure<'_>) -> Option<String> {
    let known = case.replay.blocks.device(failure.oom.device?)?;
    let passes = known.steps.backward().0.steps().iter().filter(|step| step.at <= failure.oom.at);
    // What a program sets up once comes before it ends its first step.
    let held: Vec<u64> = passes.skip(1).map(|step| step.bytes).collect();
    let (first, last) = (held.first()?, held.last()?);
    let risen = last.saturating_sub(*first);
    let is_enough = failure.shortfall_bytes().is_some_and(|missing| risen >= missing);
    let rises = held.len() > 1 && held.windows(2).all(|pair| pair[0] < pair[1]);
    (rises && is_enough).then(|| {
        format!("behind each of the last {} backward passes tensors held more, {} in all", held.len(), size(risen))
    })
}

/// Many equal blocks that one line of the program asked for, none of them given back since the oldest that lives came: parts of what the
/// program needs look like this, and so does what it forgot.
pub(super) fn by_a_pile(case: &Case<'_>, failure: &Failure<'_>, check: &mut Check) {
    let told = shapes::facts(case, failure).and_then(|facts| facts.told.as_ref());
    let tells_blocks = failure.device.is_some_and(|device| {
        device.tensors.as_ref().is_some_and(|tensors| tensors.owner == Owner::Torch && !tensors.by_call_paths)
    });
    // Of many failures only some are looked at so closely, and where the driver's pools are PyTorch's cache it tells of no block.
    if told.is_none() && (tells_blocks || case.leaves_caching_to_pools()) {
        check.at_most(Confidence::Probable);
        check.would_settle(UNSEEN);
    }
    shapes::unless_an_error_is_kept(case, failure, Confidence::Probable, check);
    if let Some(gradients) = told.and_then(|told| told.gradients_of_many_passes(failure.thresholds)) {
        check.at_most(Confidence::Probable);
        check.part("gradients");
        check.note(true, || {
            format!(
                "{} came in backward passes and live: more than {} times all else that lives, in which the weights are",
                size(gradients),
                failure.thresholds.gradient_factor
            )
        });
        check.would_settle(KEPT_GRADIENTS);
    }
    let Some(pile) = told.and_then(|told| told.pile.as_ref()) else {
        // Without any part each of them may be meant.
        return check.part("no pile");
    };
    check.at_most(Confidence::Probable);
    check.part("pile");
    check.note(true, || {
        let (blocks, bytes, label) = (count(pile.blocks, "tensor", "tensors"), size(pile.bytes), clean(&pile.label));
        format!("{blocks} of one size by {label} live, and none of that place was given back since the oldest of them came: {bytes}")
    });
    check.would_settle(EQUAL);
}

/// What would tell whether anything piles up, where nobody looked.
const UNSEEN: &str =
    "whether one line keeps many tensors that are not needed (WHO HOLDS), which was not looked for at this failure";

/// What would tell whether the gradients of many passes are needed.
const KEPT_GRADIENTS: &str = "whether the gradients of earlier passes are needed, and what keeps them: a list, or p.grad that is taken and not copied to the host";

/// What would tell whether what piles up is needed.
const EQUAL: &str = "whether the program still needs all of its equal tensors: the code at the line that asks for them";

/// Where nobody tells what an allocator of the program's own holds unused.
const OWN_POOLS: &str =
    "how much memory an allocator inside the program, if it has one, holds unused (no recorded call tells)";

/// What the program holds may be cached, and not in use.
pub(super) fn by_caches(case: &Case<'_>, failure: &Failure<'_>, check: &mut Check) {
    if case.kept_by_pools(failure).at_most_bytes > 0 {
        let at_most = case.pools_keep_at_most(failure).bytes();
        let keep_missing = case.pools_keep_missing(failure);
        if keep_missing != Holds::No {
            check.at_most(Confidence::Possible);
        }
        check.unless(keep_missing, || {
            format!("stream-ordered pools could give back what was missing (they keep at most {})", size(at_most))
        });
    }
    // What pools keep because they were told to is not what the program needs.
    let retained = case.kept_elsewhere(failure).map(|kept| kept.retained_bytes);
    if retained.zip(failure.shortfall_bytes()).is_some_and(|(retained, missing)| retained >= missing) {
        check.at_most(Confidence::Possible);
    }
    if case.versions.has(Program::Torch) {
        match would_pack(case, failure) {
            Some((at_most, text)) => {
                check.at_most(at_most);
                check.part(if would_go_on(case, failure) { "in pieces" } else { "in pieces of no use" });
                check.note(true, || text);
            }
            None => {
                let holds_enough = case.torch_holds_enough(failure);
                if matches!(holds_enough, Holds::Unknown(_)) && !has_emptied_its_cache(case, failure) {
                    check.at_most(Confidence::Possible);
                }
                // What one line keeps fills a card of any size: less between its blocks would have put that off.
                let is_put_off = holds_enough == Holds::Yes && leaks::lines_keep_most(case, failure);
                let text = || "PyTorch's allocator held at least the request in unused blocks".to_owned();
                if is_put_off {
                    check.at_most(Confidence::Possible);
                    check.note(true, text);
                } else {
                    check.unless(holds_enough, text);
                }
            }
        }
    } else {
        check.at_most(Confidence::Probable);
        unused_in_own_pools(case, failure, check);
    }
    came_by_itself(case, failure, check);
    let Some(retry) = case.retry(failure) else { return };
    // What was free counts beside what the cache held.
    let missing = failure.shortfall_bytes().map_or(retry.requested_bytes, |missing| missing.min(retry.requested_bytes));
    let had_cached = case.cache_at_refusal(failure).is_none_or(|cached| cached >= missing);
    let by_torch = case.versions.has(Program::Torch) && case.asked_by_torch(failure.oom.site) == Holds::Yes;
    // Before an error PyTorch has given back all that it had cached: what is released after that is the program's.
    let is_cache = by_torch && had_cached && failure.oom.error.is_none();
    if is_cache {
        check.unless(retry.is_release_and_success(), || {
            "PyTorch gave back what it had cached, and the same request succeeded".to_owned()
        });
    } else if retry.ending == Ending::Succeeded && retry.freed_by_all_bytes() > 0 {
        // A cache that was given back, or data: the card was full of one or the other.
        check.at_most(Confidence::Possible);
        check.note(true, || after_a_release(retry));
    }
    check.note(retry.ending == Ending::Failed && retry.freed_in_vain_bytes > 0, || {
        format!("{} were released, and it failed again", size(retry.freed_in_vain_bytes))
    });
}

/// Whether PyTorch asked again in vain: before it does, it gives back each segment of which nothing is used
/// (`CUDACachingAllocator::malloc`), and what it then holds unused lies between its blocks.
fn has_emptied_its_cache(case: &Case<'_>, failure: &Failure<'_>) -> bool {
    let asked_again = case.retry(failure).is_some_and(|retry| retry.ending == Ending::Failed && retry.failed_tries > 1);
    asked_again && case.asked_by_torch(failure.oom.site) == Holds::Yes
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

/// What PyTorch's cache held unused, where that and what was free would have held the request in one piece: the card is full of it as much as
/// of what the program needs. A small part every cache has between its blocks.
fn would_pack(case: &Case<'_>, failure: &Failure<'_>) -> Option<(Confidence, String)> {
    let sums = case.torch_sums(failure).filter(|sums| sums.is_certain())?;
    let free = case.free_for_request(failure).get();
    let asked = case.asked_of_allocator(failure)?;
    let of_reserved = share(sums.unused.bytes, sums.reserved_bytes());
    let are_few = of_reserved < failure.thresholds.few_unused_share;
    // More than a few by themselves are another cause.
    let usable = Case::free_in_pieces(failure, free.unwrap_or(0));
    if sums.unused.most().saturating_add(usable) < asked || !are_few && case.torch_holds_enough(failure) == Holds::Yes {
        return None;
    }
    let (unused, part) = (size(sums.unused.bytes), percent(of_reserved));
    let free = free.map_or_else(String::new, |free| format!(", and {}", case.free_told(failure, free, "")));
    let text = format!(
        "PyTorch's allocator held {unused} unused, {part} of what it had reserved{free}: as much as was asked for, in pieces"
    );
    Some((if are_few { Confidence::Probable } else { Confidence::Possible }, text))
}

/// Whether fewer pieces would have made room for more than a moment: not where one of them would have held the request, which is then of
/// another stream or pool, nor where what tensors hold rises from step to step and would fill that in a few, nor where an optimizer has more
/// of its state to make than that, nor where a page more would be too much.
fn would_go_on(case: &Case<'_>, failure: &Failure<'_>) -> bool {
    let Some(sums) = case.torch_sums(failure) else { return false };
    let is_elsewhere = sums.pieces.is_some_and(|pieces| pieces.largest_bytes >= sums.tried.bytes.max(1));
    let room = sums.unused.bytes.saturating_add(failure.free_bytes().get().unwrap_or(0));
    let grows = case.tensor_growth_at(failure).is_some_and(|growth| {
        growth.takes_each_time(room) || growth.significant && !growth.has_room_in(room, failure.thresholds)
    });
    let told = shapes::facts(case, failure).and_then(|facts| facts.told.as_ref());
    let makes_more_state = told
        .filter(|told| told.makes_state.is_some())
        .is_some_and(|told| told.state_to_come_bytes(failure.thresholds.state_factor) > room);
    // Segments that grow take whole pages, of which the last lies open.
    let is_enough = room >= sums.tried.bytes.saturating_add(SEGMENT_BYTES);
    !is_elsewhere && !grows && !makes_more_state && is_enough
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
