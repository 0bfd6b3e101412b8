//! D. What stream-ordered pools keep of what was given back to them.

use gpuoom_trace::record::Kind;

use super::{Rule, failure, leaks};
use crate::diagnosis::case::{Case, Failure};
use crate::diagnosis::meanwhile::OTHERS_AT_RETRY;
use crate::diagnosis::on_card::Alone;
use crate::diagnosis::pooled::{KEPT, SETTLED};
use crate::judgement::check::{Basis, Check, Confidence, Holds};
use crate::replay::tracks::pools::Kept;
use crate::replay::tracks::waits::Waited;
use crate::thresholds::share;
use crate::words::{count, size};

pub(super) const RULES: &[Rule] = &[failure("pool-retention", pool_retention)];

/// What would tell whether a pool could have used what it keeps.
const PIECES: &str = "in which pieces each pool keeps what it keeps (ReservedMemCurrent of each pool): a pool may use its own, where a piece fits";

/// A stream-ordered pool keeps memory that the program has freed.
fn pool_retention(case: &Case<'_>, failure: &Failure<'_>, check: &mut Check) {
    let kept = case.kept_by_pools(failure);
    let Some(missing) = failure.shortfall_bytes() else { return };
    let hidden = failure.hidden_bytes();
    // Pieces that did not fit the next request may be more than was ever in use at once: where a threshold holds them, and the
    // driver counts so much, or nobody knows what it counts.
    let may_be_more =
        kept.threshold_bytes > 0 && kept.at_most_bytes >= missing && hidden.is(|bytes| bytes >= missing) != Holds::No;
    let below = failure.kept_below_bytes(Kind::Pool);
    if !check.applies(failure.is_real_of_device() && (kept.untrimmed_bytes > 0 || may_be_more)) {
        return;
    }
    let gave = match kept.untrimmed_bytes >= missing || below >= missing {
        false if may_be_more => Holds::Unknown(KEPT),
        gave => gave.into(),
    };
    let at_most = case.pools_keep_at_most(failure).bytes();
    check.must_by(Basis::Estimated, gave, || {
        let keep = if at_most > kept.untrimmed_bytes {
            format!(" (they keep at most {})", size(at_most))
        } else {
            String::new()
        };
        format!(
            "stream-ordered pools gave at most {} more at once than they give now{keep}, and the request was {}",
            size(kept.untrimmed_bytes),
            failure.short_by(missing)
        )
    });
    had_no_room(failure, check);
    let elsewhere = out_of_reach(case, failure, missing, check);
    // Where nothing that is read leaves room for so much, the pool gave it up: for a larger request, or when it was short of memory.
    let retained = elsewhere.filter(|kept| (missing..=at_most).contains(&kept.retained_bytes));
    let is_below = below >= missing && (failure.oom.kind != Kind::Pool || asked_below(failure));
    match retained {
        None if is_below => {
            check.at_most(Confidence::Probable);
            check.must(true, || format!("below the runtime its pools hold {} more than lives in them", size(below)));
        }
        retained => by_attributes(case, retained, failure, check),
    }
    if retained.is_none() {
        may_be_pending(case, failure, missing, check);
    }
    // So little any pool keeps between its blocks.
    if share(at_most.max(kept.untrimmed_bytes), failure.own_bytes()) < failure.thresholds.few_unused_share {
        check.is_a_small_part();
    }
    emptied(case, failure, missing, check);
    came_by_itself(case, failure, check);
    counted_by_driver(case, failure, missing, check);
    if leaks::fills_the_card(case, failure) {
        // What rises without an end meets any card, whatever a pool keeps of it.
        check.at_most(Confidence::Possible);
    }
    check.part(if case.leaves_caching_to_pools() { "PyTorch's pool" } else { "the program's own pool" });
    match kept.threshold_bytes {
        0 => check.part("no release threshold raised"),
        _ if !case.leaves_caching_to_pools() => check.part("the program raised its pool's release threshold"),
        _ => {}
    }
    check.gives_back(0, kept.bytes.min(hidden.get().unwrap_or(kept.bytes)), Basis::Estimated);
}

/// Whether what pools keep was out of the failing call's reach: it is of another pool, or of none. A pool may use what it keeps
/// itself, and may not: a piece that is too small does not fit. Returns what the pools out of reach keep.
fn out_of_reach(case: &Case<'_>, failure: &Failure<'_>, missing: u64, check: &mut Check) -> Option<Kept> {
    let elsewhere = case.kept_elsewhere(failure);
    let is_enough = elsewhere.filter(|kept| kept.untrimmed_bytes >= missing);
    match failure.oom.kind {
        Kind::Pool if is_enough.is_some() => {
            let bytes = is_enough.map_or(0, |kept| kept.untrimmed_bytes);
            check.must(true, || {
                format!("{} of that was of other pools than the one that {} asked", size(bytes), failure.report.call())
            });
        }
        Kind::Pool if asked_below(failure) => check.must(true, || {
            let call = failure.report.call();
            format!("{call} asked a layer below for it, which refused: no piece that its pool keeps was large enough")
        }),
        Kind::Pool => {
            check.at_most(Confidence::Possible);
            check.must(Holds::Unknown(PIECES), String::new);
        }
        _ => check.must(true, || format!("the call that failed ({}) is outside of the pools", failure.report.call())),
    }
    elsewhere
}

/// Whether the pool asked below for more inside the failing call: then nothing that it keeps was of use.
fn asked_below(failure: &Failure<'_>) -> bool {
    failure.oom.inside.is_some_and(|inside| inside.requested_bytes >= failure.oom.requested_bytes)
}

/// What lets the pool keep it: an attribute that the program set, or nothing that is known.
fn by_attributes(case: &Case<'_>, retained: Option<Kept>, failure: &Failure<'_>, check: &mut Check) {
    if let Some(kept) = retained {
        // A pool gives up what it keeps for a larger request of its own, and where memory is short.
        check.at_most(Confidence::Probable);
        check.would_settle(ATTRIBUTES);
        return check.must(true, || kept_by_threshold(&kept));
    }
    // Sums are all there is, and without what the driver counts they say nothing of what came back at a wait. After a wait a pool
    // without a threshold is meant to be empty: then something else may be what the driver counts.
    let waited = case.around(failure).is_none_or(|around| matches!(around.waited_since_free, Waited::Yes(_)));
    let is_counted = failure.hidden_bytes().get().is_some();
    let most = if is_counted && !waited { Confidence::Probable } else { Confidence::Possible };
    check.at_most(most);
    check.would_settle(ATTRIBUTES);
}

/// What would tell what a pool keeps.
const ATTRIBUTES: &str = "the pool's attributes ReservedMemCurrent and UsedMemCurrent";

/// Without a threshold that holds it, memory whose free the stream had not got to looks the same: the driver counts it, too.
fn may_be_pending(case: &Case<'_>, failure: &Failure<'_>, missing: u64, check: &mut Check) {
    let Some(around) = case.around(failure) else { return };
    let pending = around.pending.bytes.saturating_sub(around.pending.kept_bytes);
    let settled = case.kept_by_pools(failure).bytes.saturating_sub(pending);
    if pending > 0 && settled < missing && !matches!(around.waited_since_free, Waited::Yes(_)) {
        check.at_most(Confidence::Possible);
        check.would_settle(
            "whether the streams had got to what was freed shortly before: a wait between those frees and the failure, or another try \
             after one",
        );
    }
}

/// Beside what the program holds, the card may have no room for what is missing, whoever keeps it.
fn had_no_room(failure: &Failure<'_>, check: &mut Check) {
    // A card with less than what lives on it is larger than it is said to be.
    let is_larger = failure.total_bytes().get().is_some_and(|total| failure.own_bytes() > total);
    let Some(Alone::Exceeds { by_bytes }) = failure.alone().get().filter(|_| !is_larger) else { return };
    check.unless(true, || {
        let by = size(by_bytes);
        format!("the program's own blocks and this request are {by} more than the whole card: no pool could have kept what was missing")
    });
}

/// Whether trims, and pools that were destroyed, left too little.
fn emptied(case: &Case<'_>, failure: &Failure<'_>, missing: u64, check: &mut Check) {
    let kept = case.kept_by_pools(failure);
    let holds = match kept.at_most_bytes < missing {
        true => Holds::Yes,
        // A trim takes what no stream is at work on, in the pieces in which it came.
        false if kept.bytes < missing && kept.trims > 0 => Holds::Unknown(SETTLED),
        false => Holds::No,
    };
    check.unless(holds, || match holds {
        Holds::Yes => format!(
            "the pools keep at most {}: all else that they gave is in use, or went back when they were trimmed or destroyed",
            size(kept.at_most_bytes)
        ),
        Holds::Unknown(_) => {
            let trims = count(kept.trims, "time", "times");
            format!("the pools were trimmed {trims}, which leaves {} in them where it took all", size(kept.bytes))
        }
        Holds::No => "a call emptied the pools before".to_owned(),
    });
}

/// Where the same came from outside of the pools, and nothing else had made room, the pools did not keep it. Without such a try that
/// was not put to the test.
fn came_by_itself(case: &Case<'_>, failure: &Failure<'_>, check: &mut Check) {
    let granted = case.granted(failure);
    let Some((_, done)) = granted.filter(|(next, _)| next.kind != Kind::Pool) else { return };
    if case.gave_back(failure, &done) {
        return;
    }
    let others = match case.unless_others_made_room(failure) {
        None => Holds::Yes,
        Some(_) => Holds::Unknown(OTHERS_AT_RETRY),
    };
    check.unless(others, || match others {
        Holds::Yes => "the same request succeeded later outside of the pools, and no call gave anything back or trimmed a pool in \
                       between: the pools did not keep it"
            .to_owned(),
        _ => "the same request succeeded later, and it was nobody else who made the room".to_owned(),
    });
}

/// Runtimes were seen to ignore the attribute (ROCm/rocm-systems#11690): without what the driver counts it proves nothing.
fn counted_by_driver(case: &Case<'_>, failure: &Failure<'_>, missing: u64, check: &mut Check) {
    let at_most = case.pools_keep_at_most(failure).by_driver_bytes;
    let hidden = failure.hidden_bytes();
    let holds = match at_most.is(|bytes| bytes < missing) {
        Holds::Yes => Holds::No,
        Holds::No if hidden.is(|bytes| bytes >= missing) == Holds::Yes => Holds::Yes,
        _ => Holds::Unknown(at_most.reading()),
    };
    check.decides(
        holds,
        || format!("the driver counts {} for this process beyond what lives", size(hidden.get().unwrap_or(0))),
        || format!("the driver counts only {} for this process beyond what lives", size(at_most.get().unwrap_or(0))),
    );
}

/// What a pool keeps by an attribute that the program set.
fn kept_by_threshold(kept: &Kept) -> String {
    let threshold = match kept.threshold_bytes {
        u64::MAX => "without a limit".to_owned(),
        bytes => format!("to {}", size(bytes)),
    };
    format!(
        "the program raised the pool's release threshold {threshold}: it may keep {} that were given back",
        size(kept.retained_bytes)
    )
}
