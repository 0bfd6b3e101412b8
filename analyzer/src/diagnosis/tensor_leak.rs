//! A leak among the blocks that an allocator above the runtime gave out, by line of the program: what its segments only suggest.

use super::case::{Case, Failure};
use super::since_refusal::AT_REFUSAL;
use crate::judgement::check::{Check, Confidence, Holds};
use crate::passes::rise::Rise;
use crate::passes::shape::run::{GIVEN_BACK_AT_LAST, STEADY, is_it_meant, may_be_meant};
use crate::passes::tensor_growth::{Cut, TensorGrowth};
use crate::passes::trend::Course;
use crate::thresholds::Thresholds;
use crate::words::{clean, count, percent, size};

/// Lines that are named.
const MOST_NAMED: usize = 3;
/// What would tell a step from a cycle.
const LABELS: &str = "labels of the program (gpuoom_mark, NVTX) where a step ends: the layers of one pass, and a cache that fills with a context, rise like this, too";
/// What would tell a cache from a leak, where entries are replaced.
const BOUND: &str = "whether the number of what these lines keep has a bound, as that of a cache: most of it was replaced by newer ones";
/// What would tell a leak by copies from a cache that has an end.
const ITS_END: &str = "whether what becomes larger has an end: a cache that is copied into a larger block each time rises like a list that nobody empties";
/// What would show which line keeps too much.
const WHICH_LINE: &str = "which of several lines keeps too much: what stays comes by many";

impl<'a> Case<'a> {
    /// What blocks of allocators above the runtime hold from step to step, where that is told.
    pub fn tensor_growth(&self, device: Option<u8>) -> Option<&'a TensorGrowth> {
        self.facts.tensor_growth.iter().find(|growth| growth.device == device)
    }

    /// The same up to a failure.
    pub fn tensor_growth_at(&self, failure: &Failure<'_>) -> Option<&'a TensorGrowth> {
        self.facts.tensor_growth_at.get(&((failure.report.number - 1) as usize))
    }
}

/// Whether blocks of the same lines become more step after step. `until_refused`: up to a failure. A run that ends well may have larger
/// blocks in each step, as batches become larger; of one that was refused that is no less of a reason than more of them.
pub(super) fn leak(growth: &TensorGrowth, until_refused: bool, thresholds: &Thresholds, check: &mut Check) {
    if !check.applies(growth.significant) {
        return;
    }
    let (blocks, step, steps) = (growth.blocks(), growth.by.step(), growth.by.steps());
    let bytes = |rate: f64| size(rate.max(0.0) as u64);
    check.must(true, || {
        format!(
            "what {blocks} hold after a {step} rises by {} each time ({})",
            bytes(growth.per_step.bytes),
            growth.range()
        )
    });
    let turns_over = growth.lines_share() < thresholds.dominant_share;
    let are_known = growth.turning_share() >= thresholds.dominant_share;
    let becomes_larger = until_refused && !growth.larger.is_empty();
    check.unless(!are_known && !becomes_larger && growth.replaced_share >= thresholds.dominant_share, || {
        "what rises are blocks in place of others that were given back, and not more of them".to_owned()
    });
    if turns_over {
        check.at_most(Confidence::Possible);
        check.would_settle(if are_known {
            BOUND
        } else if becomes_larger {
            ITS_END
        } else {
            WHICH_LINE
        });
    }
    check.must(true, || {
        let lines = growth.all_lines().take(MOST_NAMED).map(|line| line.told(blocks, step));
        let larger = growth.larger.iter().take(MOST_NAMED).map(|line| line.told(blocks, &growth.stretch_told()));
        lines.chain(larger).collect::<Vec<_>>().join("; ")
    });
    let share = growth.line_share();
    check.note(share < 1.0 && growth.lines.len() == 1, || format!("that is {} of the rise", percent(share)));
    if share < thresholds.dominant_share {
        check.at_most(Confidence::Probable);
        check.would_settle(WHICH_LINE);
    }
    unless_rounds(growth, thresholds, check);
    if growth.by == Cut::Cycles {
        check.only_as_seen();
        check.at_most(Confidence::Possible);
        check.would_settle(LABELS);
    }
    is_it_meant(check);
    if let Some(unsettled) = growth.course.unsettled() {
        check.at_most(Confidence::Possible);
        check.would_settle(unsettled);
    }
    may_be_meant(growth.stood_level, growth.are_pieces, check);
    fits_more_parameters(growth, thresholds, check);
    if growth.is_of_modules(thresholds) {
        check.at_most(Confidence::Possible);
        check.would_settle(MODULES);
    }
    if growth.per_step.low <= 0.0 {
        check.at_most(Confidence::Possible);
        check.would_settle(STEADY);
    }
    if growth.few_points {
        check.at_most(Confidence::Possible);
        check.would_settle(&format!("a longer run: the trend rests on few {steps}"));
    }
    if growth.may_be_a_load(thresholds) {
        check.at_most(Confidence::Possible);
        check.note(true, || {
            let share = percent(growth.kept_share);
            format!("{share} of what these {steps} were given stays, and little was there before: they may be parts of a load")
        });
    }
}

/// Lines that had kept as many before, and gave it all back, may do so again: what they keep now is more, or for longer.
fn unless_rounds(growth: &TensorGrowth, thresholds: &Thresholds, check: &mut Check) {
    let Some(line) = growth.all_lines().find(|line| line.all_gone_blocks > 0) else { return };
    if growth.lines_share_of(|line| line.all_gone_blocks == 0) >= thresholds.dominant_share {
        return;
    }
    check.at_most(Confidence::Possible);
    check.note(true, || {
        format!(
            "all {} {} that {} held after an earlier {}, and all that came there before the oldest of those which live, were given back",
            line.all_gone_blocks,
            growth.blocks(),
            clean(&line.label),
            growth.by.step()
        )
    });
    check.would_settle(GIVEN_BACK_AT_LAST);
}

/// What would tell a model that grows from models that nobody needs.
const MODULES: &str = "whether all modules that are made there are needed: a model that grows rises like this, too";

/// What would show whether a rise of gradients and of an optimizer's state is one of the parameters that are trained.
const TRAINED: &str =
    "how many parameters require a gradient after each step: a training that unfreezes layers rises like this, too";

/// Gradients and an optimizer's state grow with the parameters that are trained. Where nothing else rises, that may be all.
fn fits_more_parameters(growth: &TensorGrowth, thresholds: &Thresholds, check: &mut Check) {
    if !growth.is_of_trained_parameters(thresholds) {
        return;
    }
    check.at_most(Confidence::Possible);
    check.note(true, || {
        let others = growth.rising_bytes.saturating_sub(growth.rising_trained_bytes);
        format!(
            "{} of what rises came in backward passes and in an optimizer's step, and {} elsewhere, as where more parameters that are trained \
             have gradients and state",
            size(growth.rising_trained_bytes),
            size(others)
        )
    });
    check.would_settle(TRAINED);
}

/// Refutes a leak that segments suggest, where the allocator holds what rises and its blocks do not rise. What another library leaks is in
/// none of its segments: `outside_bytes` is what the program's calls hold beside them.
pub(super) fn unless_flat(
    growth: &TensorGrowth,
    (rise, outside_bytes): (Option<&Rise>, Option<u64>),
    thresholds: &Thresholds,
    check: &mut Check,
) {
    let least = rise.map_or(0, |rise| u64::try_from(rise.total_bytes()).unwrap_or(0) / 2);
    let is_inside = outside_bytes.is_some_and(|outside| outside < least);
    // Steps that say nothing of what came since, or that rose in stairs, show no level.
    if is_inside && (growth.is_beyond_its_steps(thresholds) || growth.is_in_stairs(thresholds)) {
        check.at_most(Confidence::Possible);
        check.would_settle(LABELS);
        return;
    }
    if is_inside && growth.is_beyond_its_rounds(thresholds) {
        check.at_most(Confidence::Possible);
        check.would_settle(GIVEN_BACK_AT_LAST);
        return;
    }
    check.unless(is_inside, || {
        let floors = || growth.floors.iter().map(|floor| floor.bytes);
        format!(
            "over {} {} held {} to {} after each, which is no steady rise: the allocator's cache grows, and none of them leaks",
            count(growth.steps, growth.by.step(), growth.by.steps()),
            growth.blocks(),
            size(floors().min().unwrap_or(0)),
            size(floors().max().unwrap_or(0))
        )
    });
}

impl Case<'_> {
    /// What the program's calls held at a moment beside the memory of its allocators above the runtime, where those tell what they hold;
    /// `held_bytes`: what the calls held.
    pub(super) fn outside_bytes(&self, device: Option<u8>, moment: &str, held_bytes: u64) -> Option<u64> {
        let device = self.facts.devices.iter().find(|known| known.index == device)?;
        let tensors = device.tensors.as_ref()?;
        let held = std::iter::once(tensors).chain(&tensors.others).map(|one| one.moment(moment)?.reserved_bytes);
        let held = held.sum::<Option<u64>>()?;
        Some(held_bytes.saturating_sub(held))
    }
}

/// A leak made a request fail only where it took what was missing: the rest, and what the failed step itself took, does not count.
pub(super) fn took_what_was_missing(
    failure: &Failure<'_>,
    growth: &TensorGrowth,
    gives_back: Holds,
    check: &mut Check,
) {
    let Some((request, free)) = failure.request_bytes().zip(failure.free_bytes()).get() else {
        check.must(failure.request_bytes().zip(failure.free_bytes()).is(|_| true), String::new);
        return;
    };
    let missing = request.saturating_sub(failure.moved.free_at_least(free));
    // The allocator rounds up what it asks for: what these blocks took, and no more than all of its own.
    let (came_bytes, held_bytes) = growth.came_and_held_bytes();
    let most = failure.moved.free_at_most(free).saturating_add(held_bytes);
    let fits = match () {
        () if missing <= came_bytes => gives_back,
        () if held_bytes == 0 => Holds::Unknown(WHICH_LINE),
        () if request > most => Holds::No,
        () if failure.moved.is_none() => {
            Holds::Unknown("how much of it had come to stay before the steps that are looked at")
        }
        () => Holds::Unknown(AT_REFUSAL),
    };
    if matches!(fits, Holds::Unknown(_)) {
        check.at_most(Confidence::Possible);
    }
    let came = || match missing {
        0 => "nothing was missing but what rounding and pieces take".to_owned(),
        _ => format!("{} was missing", size(missing)),
    };
    check.decides(
        fits,
        || {
            format!(
                "{}: without the {} that came to stay in these places, the request would have fitted",
                came(),
                size(came_bytes)
            )
        },
        || {
            format!(
                "even without the {} that the lines hold which still rise, the request would not have fitted",
                size(held_bytes)
            )
        },
    );
}

/// Whether it is more of a reason than the full card that it ends in: blocks that become more up to the failure, where the steps are known,
/// or by one line.
pub(super) fn goes_on(growth: &TensorGrowth, thresholds: &Thresholds) -> bool {
    let is_of_lines = match growth.by {
        Cut::Cycles => growth.line_share() >= thresholds.one_path_share,
        _ => growth.turning_share() >= thresholds.dominant_share,
    };
    let may_be_meant = growth.may_be_a_load(thresholds) || growth.is_of_trained_parameters(thresholds);
    growth.course == Course::Rises && is_of_lines && !may_be_meant
}
