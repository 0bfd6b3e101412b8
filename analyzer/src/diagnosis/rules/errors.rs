//! F. Errors: what became of a failure, and failures that are none of memory.

mod other_threads;
mod own_frees;

use gpuoom_trace::outcome::{Outcome, WORKS_LOOKED_AT};
use gpuoom_trace::record::NO_DEVICE;

use super::{Rule, failure, run};
use crate::diagnosis::case::{Case, Failure};
use crate::evidence::runtime_message::RuntimeSays;
use crate::judgement::check::{Check, Confidence, Holds};
use crate::judgement::role::Role;
use crate::passes::facts::UnderWay;
use crate::passes::oom::{OomReport, PointerUsed};
use crate::replay::End;
use crate::replay::tracks::around::Next;
use crate::replay::tracks::retries::Retry;
use crate::software::{Platform, Version};
use crate::words::{clean, count, moment, percent, signal, size, span};

pub(super) const RULES: &[Rule] = &[
    failure("requested-refusal", requested_refusal),
    failure("dropped-oom-return", dropped_oom_return),
    failure("late-surfacing-oom", late_surfacing_oom),
    run("runtime-internal-abort", runtime_internal_abort),
    failure("library-alloc-failed", library_alloc_failed),
    run("hang-not-oom", hang_not_oom),
];

/// From this version on HIP keeps an error until it is asked for. (ROCm HIP 7.0 changes page)
const STICKY_ROCM: Version = Version { major: 7, minor: 0 };
/// What would show whether a smaller request belongs to the failure.
const SAME_PLACE: &str =
    "the call paths (GPUOOM_STACKS): whether the smaller request after it came from the same place";
const REFUSED_AGAIN: &str =
    "whether the smaller request after it was in its place: it was refused, too, and for another variable";
/// What is said of the outcome where it is refuted that a failure was ignored.
const CALLED_DROPPED: &str = "; its outcome is called dropped because GPU work went on before memory came";
const INSIDE: &str = "the calls below the library, which were not recorded (see the coverage line)";

/// The recorder refused the call on request.
fn requested_refusal(_case: &Case<'_>, failure: &Failure<'_>, check: &mut Check) {
    if !check.applies(failure.is_injected()) {
        return;
    }
    check.must(true, || {
        let injected = failure.report.injected.as_ref();
        let setting = injected.and_then(|injected| injected.setting.as_deref()).unwrap_or("a setting of the recorder");
        format!("{} was refused by {setting} before the runtime was asked", failure.report.call())
    });
}

/// GPU work went on after a failing allocation, and nothing shows that the program had noticed.
fn dropped_oom_return(case: &Case<'_>, failure: &Failure<'_>, check: &mut Check) {
    let oom = failure.oom;
    if !check.applies(oom.outcome == Outcome::Dropped) {
        return;
    }
    let ooms = &case.facts.ooms;
    let has_attempts = ooms.iter().any(|oom| oom.attempt_of == Some(failure.report.number));
    check.must(true, || went_on(failure.report, has_attempts || failure.report.attempt_of.is_some()));
    // Each interface has its own way to tell of a failure.
    check.part(failure.report.layer.unwrap_or("runtime"));
    check.at_most(Confidence::Probable);
    if failure.report.pointer != PointerUsed::NotSeen {
        check.would_settle(
            "whose null it is: a null has no name, and the same may be of another variable; and whether the GPU call failed and the \
             program looked at that",
        );
        return;
    }
    a_null_was_used(failure.report, check);
    own_frees::came_before_the_work(case, failure, check);
    let soon = span(case.thresholds.retry_ns);
    let is_way_out = asks_for_less(case, failure);
    // The outcome stands on the same page.
    let yet = match is_way_out {
        Holds::Yes => CALLED_DROPPED,
        _ => "",
    };
    check.unless(is_way_out, || {
        let part = percent(case.thresholds.fall_back_share);
        format!(
            "the thread asked for less in its place, before that work for at least {part} of it or within {soon} from the same place, \
             which is a way out on purpose{yet}"
        )
    });
    if failure.report.number > 1 {
        check.unless(is_last_of_a_loop(case, failure), || {
            format!("it was itself a smaller attempt, within {soon} of the one before and for the same variable: a loop that looks")
        });
    }
    let is_given_again = case.retry(failure).is_some_and(Retry::is_release_and_success);
    let again = if is_given_again { CALLED_DROPPED } else { "" };
    check.unless(is_given_again, || {
        format!(
            "the same request succeeded within {soon}, after its thread had given memory back, as one does that has noticed{again}"
        )
    });
    if failure.is_called_from_python() {
        check.at_most(Confidence::Possible);
        check.would_settle("whether an exception was raised in Python: those of C++ alone are seen");
    }
    other_threads::may_have_made_up(case, failure, check);
    if failure.is_of_host() {
        let reading = "whether the program fell back to pageable memory, whose allocation is not recorded";
        check.unless(Holds::Unknown(reading), || "the program fell back to memory that is not pinned".into());
    }
}

/// Whether a null that a failed call left behind was given to a GPU call; without one the program may have looked at the status and
/// done without the block: it makes the same calls as one that never looks.
fn a_null_was_used(oom: &OomReport, check: &mut Check) {
    let Some(left_by) = oom.evidence.iter().find_map(|evidence| evidence.pointer_left_by) else {
        check.at_most(Confidence::Possible);
        check.would_settle(&format!(
            "a use of the null that the failed call left behind: none was seen in the GPU calls of that thread that were looked at \
             ({WORKS_LOOKED_AT} at most; not in what a kernel is given). A look at the status that the call returned leaves no trace",
        ));
        return;
    };
    check.note(true, || {
        let others = match left_by {
            0 => "one that a failed call left behind".to_owned(),
            number => {
                format!("one that {} left behind, this one among them", count(number, "failed call", "failed calls"))
            }
        };
        format!("a GPU call was then given a null pointer: {others}")
    });
    check.would_settle("which of the failed calls that null is from");
}

/// What went on after a failure, before any call that would show that the program had noticed.
fn went_on(oom: &OomReport, has_attempts: bool) -> String {
    let api = oom.name();
    match oom.pointer {
        PointerUsed::NotSeen => {
            let thread = oom.thread;
            let work = work_after(oom);
            format!("after {api} had failed, thread {thread} went on with GPU work{work}, {}", oom.before_what("it"))
        }
        PointerUsed::Likely => format!(
            "after {api} had failed, a GPU call was given a null pointer; the failed call's variable held one at that moment, and nothing \
             else had failed{}",
            if has_attempts { " but what may be attempts to make up for the same" } else { "" }
        ),
        PointerUsed::Perhaps => {
            format!("after {api} had failed, a GPU call was given a null pointer, as that call left one")
        }
    }
}

/// How long after the failure GPU work went on, and by which call.
fn work_after(oom: &OomReport) -> String {
    let work = oom.evidence.iter().find(|evidence| evidence.event == "gpu_work");
    work.map_or_else(String::new, |work| {
        let api = work.api.as_deref().map(clean).unwrap_or_default();
        format!(" {} later ({api})", span(oom.later_ns(work.at_ns)))
    })
}

/// Whether a failure is of an interface that keeps a last error. CUDA's driver and ROCr keep none: each call tells its own.
fn keeps_errors(oom: &OomReport) -> bool {
    oom.layer == Some("runtime")
}

/// Whether the thread's next request came soon and was smaller: before it went on with GPU work, or by the same call path. Another
/// place that asks for a small block later knows nothing of the failure.
fn asks_for_less(case: &Case<'_>, failure: &Failure<'_>) -> Holds {
    let Some(next) = case.around(failure).and_then(|around| around.next) else { return Holds::No };
    let device = failure.report.device.unwrap_or(NO_DEVICE);
    let soon = case.replay.clock.duration_ns(next.at.saturating_sub(failure.oom.at)) <= case.thresholds.retry_ns;
    if !soon || next.device != device || next.requested_bytes >= failure.oom.requested_bytes {
        return Holds::No;
    }
    let work = failure.report.evidence.iter().find(|evidence| evidence.event == "gpu_work");
    // Weights of different sizes are refused one after the other, too, by a program that never looks.
    if !next.succeeded && !next.same_variable {
        return Holds::Unknown(REFUSED_AGAIN);
    }
    let before_work = work.is_none_or(|work| case.replay.clock.at_ns(next.at) < work.at_ns);
    let is_worth = next.requested_bytes as f64 >= case.thresholds.fall_back_share * failure.oom.requested_bytes as f64;
    match (next.site, failure.oom.site) {
        _ if before_work && is_worth => Holds::Yes,
        (0, _) | (_, 0) => Holds::Unknown(SAME_PLACE),
        (next, failed) => (next == failed).into(),
    }
}

/// Whether a failure ends a loop that asks for less each time, into one variable: such a loop looks at what it is told.
fn is_last_of_a_loop(case: &Case<'_>, failure: &Failure<'_>) -> bool {
    let before = &case.facts.ooms[..(failure.report.number - 1) as usize];
    let Some(before) = before.iter().rev().find(|oom| oom.thread == failure.report.thread) else { return false };
    let around = case.replay.tracks.around.failure((before.number - 1) as usize);
    let is_this = |next: &Next| next.at == failure.oom.at && next.same_variable;
    let is_next = around.and_then(|around| around.next).is_some_and(|next| is_this(&next));
    let soon = failure.report.at_ns.saturating_sub(before.at_ns) <= case.thresholds.retry_ns;
    is_next && soon && failure.oom.requested_bytes < before.asked_bytes
}

/// An old error is reported by an innocent call. It is never proven: whether somebody read the error in between, which also
/// clears it, is not recorded once the program goes on.
fn late_surfacing_oom(case: &Case<'_>, failure: &Failure<'_>, check: &mut Check) {
    let earlier = ignored_before(case, failure).filter(|earlier| keeps_errors(earlier) && keeps_errors(failure.report));
    let Some(earlier) = earlier.filter(|_| !failure.is_injected() && !failure.is_of_host()) else {
        check.applies(false);
        return;
    };
    check.at_most(Confidence::Probable);
    check.unless(earlier.error_was_read, || {
        "the thread read the last error in between, which also clears it".to_owned()
    });
    if !earlier.is_watched_on {
        check.at_most(Confidence::Possible);
        check.would_settle(&format!(
            "whether the thread read the last error in between: that is looked for during {WORKS_LOOKED_AT} GPU calls after the failure"
        ));
    }
    check.would_settle("the error that the runtime kept before this call (hipPeekAtLastError, cudaPeekAtLastError)");
    if !failure.oom.unknown_size {
        // An allocation function returns its own status; only what is wrapped around it may hand out an old one.
        check.at_most(Confidence::Possible);
    }
    // Nobody knows how much a library needs for itself: on a card that is nearly full it may be its own refusal.
    let has_room = failure.free_bytes().is(|free| free >= case.thresholds.hidden_bytes);
    if failure.oom.unknown_size && has_room != Holds::Yes {
        check.at_most(Confidence::Possible);
        check.would_settle("how much memory this call needs itself, and that so much was free");
    }
    let versions = &case.versions;
    check.must(errors_stick(case), || match versions.platform {
        Some(Platform::Cuda) => "CUDA keeps an error until the program asks for it".to_owned(),
        _ => "HIP 7.0 and newer keep an error until the program asks for it".to_owned(),
    });
    check.must(true, || {
        let (number, api, thread) = (earlier.number, earlier.name(), earlier.thread);
        format!(
            "this call returns out of memory again; after failure #{number} ({api}) GPU work of thread {thread} went on, {}",
            earlier.before_what("it")
        )
    });
    check.must(nothing_was_short(failure), || match failure.request_bytes().zip(failure.free_bytes()).get() {
        Some((request, free)) => format!("{} was asked for and {} was free", size(request), size(free)),
        None => format!("no allocation failed inside {}", failure.report.call()),
    });
}

/// An earlier failure of the same thread after which GPU work went on before any sign that it was noticed.
fn ignored_before<'a>(case: &Case<'a>, failure: &Failure<'_>) -> Option<&'a OomReport> {
    let before = &case.facts.ooms[..(failure.report.number - 1) as usize];
    let ignored = |oom: &&OomReport| oom.thread == failure.report.thread && oom.outcome == Outcome::Dropped;
    before.iter().rev().find(ignored)
}

fn errors_stick(case: &Case<'_>) -> Holds {
    match (case.versions.platform, case.versions.rocm) {
        (Some(Platform::Cuda), _) => Holds::Yes,
        (_, Some(rocm)) => (rocm >= STICKY_ROCM).into(),
        _ => Holds::Unknown("the version of the runtime"),
    }
}

/// Whether the call that failed needed no memory, or there was enough.
fn nothing_was_short(failure: &Failure<'_>) -> Holds {
    match (failure.oom.unknown_size, failure.oom.inside) {
        (true, Some(_)) => Holds::No,
        (true, None) if failure.oom.saw_below => Holds::Yes,
        (true, None) => Holds::Unknown(INSIDE),
        (false, _) => failure.was_enough(failure.free_bytes()),
    }
}

/// A mathematical library says that an allocation failed.
fn library_alloc_failed(case: &Case<'_>, failure: &Failure<'_>, check: &mut Check) {
    let api = case.replay.apis.get(failure.oom.api);
    if !check.applies(api.is_library() && !failure.is_injected()) {
        return;
    }
    check.must(true, || format!("{} returned status {}: an allocation failed", api.name, failure.oom.status));
    if let Some(inside) = failure.oom.inside {
        // Then it is a matter of memory like any other, and the diagnoses of that size say which.
        check.plays(Role::Condition);
        let below = &case.replay.apis.get(inside.api).name;
        let is_memory = case.replay.apis.get(inside.api).is_out_of_memory(inside.status);
        check.must(is_memory, || format!("inside it {below} asked for {} and failed", size(inside.requested_bytes)));
        return;
    }
    if failure.oom.outcome == Outcome::Recovered {
        // Where the set-up is broken it does not mend itself.
        check.at_most(Confidence::Possible);
        check.would_settle("why a call of the same sort succeeded afterwards");
    }
    let seen = if failure.oom.saw_below { Holds::Yes } else { Holds::Unknown(INSIDE) };
    if seen != Holds::Yes {
        // It may be memory as well, and then this explains nothing.
        check.at_most(Confidence::Possible);
        let free = failure.free_bytes();
        check.note(free.is(|_| true), || format!("{} was free", size(free.get().unwrap_or(0))));
    }
    check.must(seen, || {
        "no allocation failed inside it: rather the set-up (kernels or libraries that are missing, another architecture, an \
         old error) than memory of the GPU"
            .to_owned()
    });
}

/// The process aborts although no call failed.
fn runtime_internal_abort(case: &Case<'_>, check: &mut Check) {
    let is_rocm = case.versions.platform == Some(Platform::Rocm);
    let open = case.facts.ooms.iter().any(|oom| oom.outcome != Outcome::Recovered);
    if !check.applies(is_rocm && case.replay.end == End::Signaled(libc::SIGABRT) && !open) {
        return;
    }
    check.at_most(Confidence::Probable);
    check.must(true, || "the process aborted, and the last recorded allocations had succeeded".to_owned());
    let least = case.least_last_free();
    check.must(least.is(|bytes| bytes <= case.thresholds.abort_free_bytes), || {
        format!("the runtime's last reading was {} free", size(least.get().unwrap_or(0)))
    });
    let says = case.runtime_said(&[RuntimeSays::OutOfResources, RuntimeSays::QueueAborted]);
    check.must(says, || "the runtime said so on standard error".to_owned());
    let says_other = case.runtime_said(&[RuntimeSays::IllegalAddress, RuntimeSays::InvalidCode]);
    check.unless(says_other, || "an illegal address or an invalid instruction set was reported".to_owned());
}

/// How sure it can be that a call hangs which does not return: some wait for the GPU's work by design, as long as that takes,
/// and allocations may.
fn surest_of(api: &str) -> Confidence {
    const ADDRESSES: [&str; 3] = ["MemMap", "AddressReserve", "MemSetAccess"];
    const WAITS: [&str; 5] = ["Free", "free", "Unmap", "Unregister", "Synchronize"];
    let is_one = |parts: &[&str]| parts.iter().any(|part| api.contains(part));
    match () {
        () if is_one(&WAITS) => Confidence::Possible,
        () if is_one(&ADDRESSES) => Confidence::Proven,
        () => Confidence::Probable,
    }
}

/// While other threads go on, it is one call that does not return, and no program that hangs.
fn others_went_on(case: &Case<'_>, stuck: &UnderWay, check: &mut Check) {
    let clock = &case.replay.clock;
    let calls = &case.replay.tracks.calls;
    let window = calls.before(calls.count());
    let others = window.calls.iter().rev().filter(|call| call.thread != stuck.thread);
    let last = others.map(|call| (call.thread, clock.at_ns(call.at))).find(|(_, at_ns)| *at_ns > stuck.at_ns);
    let is_recent = |at_ns: u64| case.last_sign_of_life_ns().saturating_sub(at_ns) < case.thresholds.hang_ns;
    let Some((thread, at_ns)) = last.filter(|(_, at_ns)| is_recent(*at_ns)) else { return };
    check.only_as_seen();
    check.at_most(Confidence::Possible);
    check.would_settle("a stack dump of the thread whose call has not returned");
    check.note(true, || {
        format!(
            "that is one call of thread {}; thread {thread} went on and made a call for memory at {}",
            stuck.thread,
            moment(at_ns)
        )
    });
}

/// Nothing failed: the program stands still.
fn hang_not_oom(case: &Case<'_>, check: &mut Check) {
    let facts = case.facts;
    let none_failed = facts.oom_count == 0 && facts.vendor_ooms == 0 && facts.refused_below.is_none();
    if !check.applies(none_failed && !matches!(case.replay.end, End::Exited(_))) {
        return;
    }
    let alive_ns = case.last_sign_of_life_ns();
    let stuck = facts.calls_under_way.iter().min_by_key(|call| call.at_ns);
    let stuck = stuck.filter(|call| alive_ns.saturating_sub(call.at_ns) >= case.thresholds.hang_ns);
    if let Some(call) = stuck {
        check.must(true, || "no call failed".to_owned());
        check.at_most(surest_of(&call.api));
        check.must(true, || {
            let waited = moment(alive_ns.saturating_sub(call.at_ns));
            format!("{} began at {} and had not returned {waited} later", call.api, moment(call.at_ns))
        });
        others_went_on(case, call, check);
        return;
    }
    // Launches and waits are not recorded: silence is what a long step looks like, too.
    let killed = match case.replay.end {
        End::Unknown => true,
        End::Signaled(number) => [libc::SIGKILL, libc::SIGQUIT, libc::SIGABRT].contains(&number),
        End::Exited(_) => false,
    };
    let Some(last_ns) = case.last_call_ns().filter(|_| killed) else {
        check.applies(false);
        return;
    };
    let silent_ns = alive_ns.saturating_sub(last_ns);
    check.must(silent_ns >= case.thresholds.hang_ns, || {
        let end = match case.replay.end {
            End::Signaled(number) => format!(", and was then ended by {}", signal(number)),
            _ => String::new(),
        };
        format!(
            "no call failed, and the program lived on for {} after its last call for memory{end}",
            moment(silent_ns)
        )
    });
    check.at_most(Confidence::Possible);
    check.would_settle("a stack dump of the stuck thread: launches and waits are recorded only after a failure");
}
