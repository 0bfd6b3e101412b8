//! E. Leaks: what stays from cycle to cycle.

use super::{Rule, device, failure, run, shapes};
use crate::diagnosis::case::{Case, Failure};
use crate::diagnosis::since_refusal::AT_REFUSAL;
use crate::diagnosis::tensor_leak;
use crate::judgement::check::{Check, Confidence, Holds, Judgement};
use crate::passes::callers::CallerRow;
use crate::passes::device::DeviceSummary;
use crate::passes::fragmentation::saturate;
use crate::passes::kept::Kept;
use crate::passes::ledger::DeviceLedger;
use crate::passes::rise::Rise;
use crate::passes::shape::facts::{self as shape_facts, Phase};
use crate::passes::shape::paths::{self, Thing};
use crate::passes::shape::run::{self as shape, DeviceRun};
use crate::passes::shape::tensors::TensorRun;
use crate::passes::stays::Stays;
use crate::passes::tensor_growth::{Cut, TensorGrowth};
use crate::passes::trend::Course;
use crate::replay::tracks::modules::Balance;
use crate::software::Program;
use crate::thresholds::share;
use crate::words::{clean, count, percent, size};

pub(super) const RULES: &[Rule] = &[
    failure("live-leak", live_leak_at_failure),
    device("live-leak", live_leak),
    device("model-swap-residual", model_swap_residual),
    run("module-load-unbalanced", module_load_unbalanced),
];

/// What would tell a leak from a cache that is not full yet.
const LONGER: &str = "a longer run: a cache that is not full yet rises like this, too";

fn run_of<'a>(case: &'a Case<'_>, device: &DeviceSummary) -> Option<&'a DeviceRun> {
    case.runs.iter().find(|run| Some(run.device) == device.index)
}

/// Live bytes rise step after step, in a run in which that made nothing fail.
fn live_leak(case: &Case<'_>, device: &DeviceSummary, check: &mut Check) {
    let made_fail = |failure: &Failure<'_>| {
        let mut check = Check::default();
        live_leak_at_failure(case, failure, &mut check);
        matches!(check.judgement(), Judgement::Found(_))
    };
    if !check.applies(!case.failures().any(|failure| failure.report.device == device.index && made_fail(&failure))) {
        return;
    }
    case.judge_leak(device.index, check);
    // Where nothing failed nothing tells what the program still needs: an optimizer's states, a buffer that is not full, and a list that goes
    // where its function returns rise the same way. Nor do segments tell.
    let has_failed = case.failures().any(|failure| failure.report.device == device.index);
    let tells_tensors = || {
        let by_blocks = case.tensor_growth(device.index).map(|growth| growth.significant);
        by_blocks.unwrap_or_else(|| case.tensors_of(device.index).is_some_and(TensorRun::rises))
    };
    if !has_failed || !tells_tensors() {
        check.at_most(Confidence::Possible);
        check.would_settle(LONGER);
    }
}

/// The same up to a failure, which would not have come without. Where the card has been full since an earlier one, nothing could rise any
/// more: it is judged there.
fn live_leak_at_failure(case: &Case<'_>, failure: &Failure<'_>, check: &mut Check) {
    if !check.applies(shapes::facts(case, failure).is_some()) {
        return;
    }
    // Of an attempt that PyTorch made up for itself, nobody asked what its tensors held.
    let tells_lines = |failure: &Failure<'_>| case.tensor_growth_at(failure).is_some_and(|growth| growth.significant);
    let tells_more = |first: &Failure<'_>| tells_lines(failure) && case.tensor_growth_at(first).is_none();
    let first = case.full_since(failure).filter(|first| !tells_more(first));
    let Some(first) = first else { return live_leak_up_to(case, failure, check) };
    let mut at_first = Check::default();
    live_leak_up_to(case, &first, &mut at_first);
    if !matches!(at_first.judgement(), Judgement::Found(_)) {
        return live_leak_up_to(case, failure, check);
    }
    at_first.note(true, || {
        let never = percent(1.0 - case.thresholds.given_back_share);
        let first = first.report.number;
        format!("since #{first} the program never held less than {never} of what it holds here: these are the figures of #{first}")
    });
    *check = at_first;
}

/// What is known up to a failure, be it the first of its device that was made up for.
fn facts_up_to<'a>(case: &'a Case<'_>, failure: &Failure<'_>) -> Option<&'a shape_facts::Facts> {
    let index = usize::try_from(failure.report.number - 1).ok()?;
    case.shapes.up_to(index).filter(|_| failure.is_real_of_device())
}

fn live_leak_up_to(case: &Case<'_>, failure: &Failure<'_>, check: &mut Check) {
    let device = failure.report.device;
    let Some(facts) = facts_up_to(case, failure) else {
        check.applies(false);
        return;
    };
    let growth = case.tensor_growth_at(failure);
    if let Some(growth) = growth.filter(|growth| growth.significant) {
        return by_lines(case, failure, growth, check);
    }
    if let Some(growth) = growth {
        shape::leak(facts.rise.as_ref(), facts.are_segments, case.thresholds, check);
        let moment = format!("oom:{}", failure.report.number);
        let outside = case.outside_bytes(device, &moment, saturate(failure.oom.held.requested_bytes));
        tensor_leak::unless_flat(growth, (facts.rise.as_ref(), outside), case.thresholds, check);
    } else if case.tensors_of(device).is_some_and(|tensors| tensors.rises() || facts.are_segments) {
        case.judge_leak(device, check);
    } else {
        shape::leak(facts.rise.as_ref(), facts.are_segments, case.thresholds, check);
        case.name_the_path(device, facts.rise.as_ref(), check);
    }
    if let Some(rise) = facts.rise.as_ref().filter(|_| !check.is_over()) {
        took_what_was_missing(failure, rise, facts.stays.as_ref(), check);
        shapes::not_enough(failure, check);
        let stays_bytes = facts.stays.as_ref().map_or(0, |stays| stays.at_most_bytes);
        shapes::decided_by_the_rest(failure, stays_bytes, check);
        unusual_step(failure, facts, check);
        emptied_later(case, failure, check);
    }
}

/// What would show that fewer blocks leave more to others.
const HOLDS_LESS: &str =
    "whether the allocator would hold less without these blocks: it was not the one that was refused";

/// What would show how far a rise goes.
const IN_ONE_PIECE: &str = "a run with expandable segments, which leave fewer pieces between blocks (PYTORCH_ALLOC_CONF=expandable_segments:True): \
                            whether it rises on there";

/// The same where the blocks say which lines keep them.
fn by_lines(case: &Case<'_>, failure: &Failure<'_>, growth: &TensorGrowth, check: &mut Check) {
    tensor_leak::leak(growth, true, failure.thresholds, check);
    // Backward passes are no steps of an evaluation: their rise is over, whatever piles up since.
    let told = shapes::facts(case, failure).and_then(|facts| facts.told.as_ref());
    let evaluation = told.filter(|told| told.is_of_an_evaluation()).and_then(|told| told.of_evaluation.as_ref());
    let fits_without = evaluation.zip(failure.shortfall_bytes()).filter(|(place, missing)| place.bytes >= *missing);
    // A trifle beside what the lines keep is what an evaluation needs.
    let least_bytes = failure.thresholds.dominant_share * growth.came_and_held_bytes().1 as f64;
    let piles_up = fits_without.filter(|(place, _)| place.bytes as f64 >= least_bytes);
    if let Some((place, _)) = piles_up.filter(|_| growth.by == Cut::BackwardPasses) {
        check.at_most(Confidence::Possible);
        check.note(true, || {
            let (bytes, place) = (size(place.bytes), clean(&place.label));
            format!("{bytes} live that came by {place} in an evaluation, or in what is called one")
        });
        check.would_settle("which of the two is not meant to stay: without either the request would have fitted");
    }
    // An allocator keeps what its blocks leave: without them it might hold as much, and nobody else would get it.
    let is_its_own = growth.framework.as_deref() == Some("pytorch") && case.asked_by_another(failure).is_none();
    let gives_back = if is_its_own { Holds::Yes } else { Holds::Unknown(HOLDS_LESS) };
    if !is_its_own {
        check.at_most(Confidence::Possible);
        check.would_settle(HOLDS_LESS);
    }
    // The cache had room for many more steps, in pieces: how far the rise would have gone, nobody saw.
    let sums = case.torch_sums(failure).filter(|sums| is_its_own && sums.is_certain());
    let in_pieces =
        sums.filter(|sums| share(sums.unused.bytes, sums.reserved_bytes()) > failure.thresholds.unused_share);
    let room = in_pieces.map_or(0, |sums| sums.unused.bytes);
    if growth.has_room_in(room, failure.thresholds) {
        check.at_most(Confidence::Possible);
        check.note(true, || format!("{} lay unused, enough for many more steps if it were in one piece", size(room)));
        check.would_settle(IN_ONE_PIECE);
    }
    if growth.is_unusual_step(failure.thresholds) {
        check.at_most(Confidence::Possible);
        check.note(true, || growth.beyond_told());
        check.would_settle("whether a step as large as that would have fitted at the start of the run");
    }
    if !check.is_over() {
        tensor_leak::took_what_was_missing(failure, growth, gives_back, check);
        shapes::not_enough(failure, check);
        shapes::decided_by_the_rest(failure, growth.came_and_held_bytes().1, check);
    }
}

/// A queue that is full is refused more, too, and is emptied then: the program goes on and gives back what it had kept.
fn emptied_later(case: &Case<'_>, failure: &Failure<'_>, check: &mut Check) {
    let works = failure.report.evidence.iter().any(|evidence| ["gpu_work", "alloc"].contains(&evidence.event));
    let fell = if works { case.fell_since(failure) } else { None };
    let Some(fell) = fell else { return };
    if share(fell, failure.own_bytes()) >= case.thresholds.emptied_share {
        check.at_most(Confidence::Possible);
        check.note(true, || format!("the program went on, and held {} less later than at the failure", size(fell)));
        check.would_settle(
            "whether what stayed had a bound, as that of a queue: the code at the place where it comes from",
        );
    }
}

/// A step that takes many times as much as any before, and fails for no more than that, needs no leak to fail.
fn unusual_step(failure: &Failure<'_>, facts: &shape_facts::Facts, check: &mut Check) {
    let taken = facts.held_bytes.saturating_sub(facts.cycles.open_from.bytes).saturating_add(facts.requested_bytes);
    // The first may begin with a load.
    let swings = facts.cycles.steps().iter().skip(1).map(|cycle| cycle.peak.bytes.saturating_sub(cycle.from.bytes));
    let Some(most) = swings.max().filter(|most| *most > 0) else { return };
    let missing = failure.shortfall_bytes().unwrap_or(0);
    if taken as f64 >= facts.thresholds.unusual_step_factor * most as f64 && taken.saturating_sub(most) >= missing {
        check.at_most(Confidence::Possible);
        check.note(true, || {
            format!(
                "the step that failed wanted {}, and those before took at most {}: without the difference it would have fitted",
                size(taken),
                size(most)
            )
        });
        check.would_settle("whether a step as large as that would have fitted at the start of the run");
    }
}

/// What would show how much of what the paths hold came step by step.
const BEFORE: &str = "how much of it had come to stay before the steps that are looked at";

/// What would show how much a leak of managed memory took.
const ON_THE_CARD: &str = "how much lay on the card of what stays and may lie in RAM";

/// A leak made a request fail only where it took what was missing: that counts which the call paths brought that still rise, and
/// neither what other paths hold nor what the failed step itself took.
fn took_what_was_missing(failure: &Failure<'_>, rise: &Rise, stays: Option<&Stays>, check: &mut Check) {
    let Some(stays) = stays else {
        check.must(Holds::Unknown(rise.kept_unknown()), String::new);
        return;
    };
    // Each block may take more of the card than was asked for.
    let rounding = stays.at_most_blocks.saturating_mul(failure.thresholds.rocr_block_bytes);
    let most = stays.at_most_bytes.saturating_add(rounding);
    let never = |free: u64, request: u64| request > free.saturating_add(most);
    let in_vain = || {
        format!(
            "even without the {} that the call paths hold which still rise, the request would not have fitted",
            size(stays.at_most_bytes)
        )
    };
    // Where nobody read it, no more was free than the card has beside the program's own blocks.
    let own = failure.own_bytes();
    let beside_own = failure.total_bytes().map(|total| total.saturating_sub(own));
    let Some((request, free)) = failure.request_bytes().zip(failure.free_bytes()).get() else {
        let both = failure.request_bytes().zip(beside_own).get();
        if failure.free_bytes().get().is_none() && both.is_some_and(|(request, free)| never(free, request)) {
            check.unless(true, in_vain);
        } else {
            check.must(failure.request_bytes().zip(failure.free_bytes()).is(|_| true), String::new);
        }
        return;
    };
    // Others, and other threads, may have given memory back since: then more was missing, and never less than this.
    let missing = request.saturating_sub(failure.moved.free_at_least(free));
    let never = |free: u64, request: u64| never(failure.moved.free_at_most(free), request);
    let is_managed = rise.kept.as_ref().is_some_and(|kept| kept.managed_bytes > 0);
    let fits = match () {
        () if is_managed && !never(free, request) => Holds::Unknown(ON_THE_CARD),
        () if missing <= stays.all_along_bytes => Holds::Yes,
        () if never(free, request) => Holds::No,
        () if failure.moved.is_none() => Holds::Unknown(BEFORE),
        () => Holds::Unknown(AT_REFUSAL),
    };
    if matches!(fits, Holds::Unknown(_)) {
        check.at_most(Confidence::Possible);
    }
    check.decides(fits, || without_it(failure, rise, stays, missing), in_vain);
}

/// That the request would have fitted without what came to stay, by the smaller number that says so.
fn without_it(failure: &Failure<'_>, rise: &Rise, stays: &Stays, missing: u64) -> String {
    let (bytes, when) = match missing <= stays.bytes {
        true => (stays.bytes, format!("over the last {} {}s", stays.steps, rise.by.step())),
        false => (stays.all_along_bytes, "all along the run by the call paths that still rise".to_owned()),
    };
    let missing = match missing {
        0 => "nothing was missing but what rounding and mapping take".to_owned(),
        _ if failure.moved.is_none() && failure.moved.others_were_read => format!("{} was missing", size(missing)),
        // Other processes may have given memory back since the refusal.
        _ if failure.moved.is_none() => format!("{} was missing when the card was read", size(missing)),
        _ => format!("{} was missing at most", size(missing)),
    };
    format!("{missing}: without the {} that came to stay {when}, the request would have fitted", size(bytes))
}

/// Whether a leak, or what rises like one up to the failure, is more of a reason than what the card was full of.
pub(super) fn fills_the_card(case: &Case<'_>, failure: &Failure<'_>) -> bool {
    rises_up_to(case, failure)
        || !rises_in_vain(case, failure) && case.leaks(failure.oom.device) >= Some(Confidence::Probable)
}

/// Whether most of what the program holds are blocks of lines that keep more and more, or equal ones of one line that gives none back: then
/// these fill a card of any size, and what lies unused between them brings the end only nearer.
pub(super) fn lines_keep_most(case: &Case<'_>, failure: &Failure<'_>) -> bool {
    let growth = case.tensor_growth_at(failure).filter(|growth| growth.keeps_more(case.thresholds) != Holds::No);
    let grown = growth.map_or(0, |growth| growth.came_and_held_bytes().1);
    let told = shapes::facts(case, failure).and_then(|facts| facts.told.as_ref());
    let piled = told.and_then(|told| told.pile.as_ref()).map_or(0, |pile| pile.bytes);
    share(grown.max(piled), failure.own_bytes()) >= case.thresholds.dominant_share
}

/// Whether what rises up to a failure is known to have taken less than was missing.
pub(super) fn rises_in_vain(case: &Case<'_>, failure: &Failure<'_>) -> bool {
    matches!(leak_up_to(case, failure), Judgement::Excluded { .. })
}

/// What is judged of a leak up to a failure.
fn leak_up_to(case: &Case<'_>, failure: &Failure<'_>) -> Judgement {
    let mut check = Check::default();
    live_leak_at_failure(case, failure, &mut check);
    check.judgement()
}

/// Whether a leak up to a failure is at least possible.
pub(super) fn may_rise_up_to(case: &Case<'_>, failure: &Failure<'_>) -> bool {
    matches!(leak_up_to(case, failure), Judgement::Found(_))
}

fn is_found_up_to(case: &Case<'_>, failure: &Failure<'_>) -> bool {
    let mut check = Check::default();
    live_leak_up_to(case, failure, &mut check);
    matches!(check.judgement(), Judgement::Found(_))
}

/// Whether a leak is at least possible up to a failure, or up to the one since which the card is full, be that made up for or not.
pub(super) fn rose_until_full(case: &Case<'_>, failure: &Failure<'_>) -> bool {
    may_rise_up_to(case, failure) || is_found_up_to(case, case.full_since(failure).as_ref().unwrap_or(failure))
}

/// Whether blocks of one call path stay, more and more, up to a failure that would not have come without them. What PyTorch's
/// segments do is not meant, nor a rise that slows down or may be a load, nor one by many paths: that is the program as a whole.
pub(super) fn rises_up_to(case: &Case<'_>, failure: &Failure<'_>) -> bool {
    let is_found = rose_until_full(case, failure);
    let first = case.full_since(failure).filter(|first| is_found_up_to(case, first));
    let failure = first.as_ref().unwrap_or(failure);
    if let Some(growth) = case.tensor_growth_at(failure) {
        return is_found && growth.significant && tensor_leak::goes_on(growth, case.thresholds);
    }
    let Some(facts) = facts_up_to(case, failure) else { return false };
    let is_by_one_path = |kept: &Kept| kept.path_share() >= case.thresholds.one_path_share;
    let goes_on = |rise: &Rise| {
        let is_load = rise.may_be_a_load(case.thresholds);
        rise.trend.course == Course::Rises && !is_load && rise.kept.as_ref().is_some_and(is_by_one_path)
    };
    let is_cache = facts.are_segments && case.versions.has(Program::Torch);
    is_found && !is_cache && facts.rise.as_ref().is_some_and(goes_on)
}

/// Whether a number rises up to the end: a cache that fills hardly does where it ends.
fn goes_on(left: [u64; 5]) -> bool {
    let rise = |pair: &[u64]| pair[1].saturating_sub(pair[0]);
    let rises: Vec<u64> = left.windows(2).map(rise).collect();
    let all: u64 = rises.iter().sum();
    rises.iter().all(|rise| *rise > 0) && 2 * rises.len() as u64 * rises[rises.len() - 1] >= all
}

/// Every load and unload of a model leaves memory behind.
fn model_swap_residual(case: &Case<'_>, device: &DeviceSummary, check: &mut Check) {
    let Some(run) = run_of(case, device) else {
        check.applies(false);
        return;
    };
    let named = names_a_model(case, device);
    // Rounds that leave memory behind are a leak; only a name makes a model of them.
    let is_leak = || {
        let mut leak = Check::default();
        live_leak(case, device, &mut leak);
        matches!(leak.judgement(), Judgement::Found(_))
    };
    let labelled = run.labelled_loads as u64 >= case.thresholds.swaps;
    if named.is_none() && !labelled && is_leak() {
        check.applies(false);
        return;
    }
    shape::model_swap(run, named, check);
}

/// The function that loads a model, where most of what lived at the device's peak came from one.
fn names_a_model(case: &Case<'_>, device: &DeviceSummary) -> Option<String> {
    let at_peak = |ledger: &&DeviceLedger| ledger.device == device.index && ledger.moment == "peak";
    let rows = &case.facts.ledger.iter().find(at_peak)?.allocated_by.rows;
    let all = rows.iter().fold(0, |sum: u64, row| sum.saturating_add(row.bytes));
    let of_load = |row: &&CallerRow| {
        let named = paths::named(&row.stack).into_iter();
        named.filter(|named| named.thing == Thing::Phase(Phase::Load)).map(|named| (row.bytes, named.function)).next()
    };
    let loads: Vec<(u64, String)> = rows.iter().filter_map(|row| of_load(&row)).collect();
    let bytes = loads.iter().fold(0, |sum: u64, (bytes, _)| sum.saturating_add(*bytes));
    let (_, function) = loads.into_iter().max_by_key(|(bytes, _)| *bytes)?;
    (share(bytes, all) >= case.thresholds.dominant_share)
        .then(|| format!("{} of what lived at the peak came from {function}", percent(share(bytes, all))))
}

/// Modules are loaded and never unloaded.
fn module_load_unbalanced(case: &Case<'_>, check: &mut Check) {
    let modules = &case.replay.tracks.modules;
    let rises = |balance: &Balance| goes_on(balance.left_over_time(case.replay.last_at));
    let above = modules.above().ok();
    let sorts = [above.map(|above| ("module", above)), Some(("code object", &modules.code))];
    let unbalanced =
        || sorts.into_iter().flatten().filter(|(_, balance)| balance.left() >= case.thresholds.unbalanced_modules);
    let Some((name, balance)) = unbalanced().find(|(_, balance)| rises(balance)).or_else(|| unbalanced().next()) else {
        _ = check.applies(false);
        return;
    };
    // A program may need all of its code, and no call tells how much memory that takes: it explains no failure by itself.
    check.at_most(Confidence::Possible);
    check.would_settle("whether the program still needs this code: a cache of compiled kernels looks like this, too");
    // Libraries load hundreds of code objects when they begin, and that is all: it must go on.
    check.must(rises(balance), || {
        let over_time: Vec<String> = balance.left_over_time(case.replay.last_at).iter().map(u64::to_string).collect();
        format!("the number that is loaded rises over the whole run: {}", over_time.join(", "))
    });
    check.must(true, || {
        let loaded = count(balance.loaded, &format!("{name} was loaded"), &format!("{name}s were loaded"));
        format!("{loaded} and {}", count(balance.unloaded, "was unloaded", "were unloaded"))
    });
    // What the program unloads and HSA keeps is kept by the runtime.
    let by_runtime =
        above.filter(|above| name == "code object" && above.unloaded >= case.thresholds.unbalanced_modules);
    check.note(by_runtime.is_some_and(|above| above.left() < case.thresholds.unbalanced_modules), || {
        let (loads, unloads) = by_runtime.map_or((0, 0), |above| (above.loaded, above.unloaded));
        format!("the program unloaded {unloads} of its {loads} modules: the runtime keeps their code")
    });
}
