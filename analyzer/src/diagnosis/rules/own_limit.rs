//! A. A limit that PyTorch's allocator keeps by itself: it raises an error and asks nobody below.

use crate::diagnosis::case::{Case, Failure};
use crate::evidence::torch_message::{Printed, TorchMessage, exceeds_allowed, judge};
use crate::judgement::check::{Check, Confidence, Holds};
use crate::words::size;

const MESSAGE: &str = "PyTorch's message, which names the limit (recorded with the exception, or --log)";
const LIMIT: &str = "the limit, which the recorded message does not name: torch.cuda.set_per_process_memory_fraction or an allocator option";
const BELOW: &str = "the runtime's calls: whether the allocator asked it at all";

/// No refusal came before the error: the allocator compared with its own limit first.
pub(super) fn allocators_own_limit(case: &Case<'_>, failure: &Failure<'_>, check: &mut Check) {
    if !check.applies(failure.is_of_allocator_alone()) {
        return;
    }
    let asked = failure.report.requested_bytes;
    check.must(true, || {
        format!(
            "PyTorch's allocator raised an error for {}, and no call of the runtime was refused before it",
            size(asked)
        )
    });
    // A runtime that is not recorded refuses unseen.
    let is_seen = failure.oom.held.requested_bytes > 0 || failure.oom.most.block_bytes > 0;
    check.must(if is_seen { Holds::Yes } else { Holds::Unknown(BELOW) }, String::new);
    let wanted = failure.own_bytes().saturating_add(asked);
    let would_fit = failure.total_bytes().get().is_none_or(|total| wanted <= total);
    check.part(if would_fit { "an allocator's own limit" } else { "more than the card" });
    match case.message(failure).filter(|message| message.allowed.is_some()) {
        Some(message) => by_message(case, failure, message, check),
        None => {
            check.must(Holds::Unknown(case.unless_told(failure, MESSAGE, LIMIT)), String::new);
            // Where less was free, a refusal that nobody saw would explain it as well.
            if failure.was_enough(failure.free_bytes()) != Holds::Yes {
                check.at_most(Confidence::Possible);
            }
        }
    }
}

fn by_message(case: &Case<'_>, failure: &Failure<'_>, message: &TorchMessage, check: &mut Check) {
    // A request that no card could hold met the limit first, all the same: nobody below was asked.
    let by_numbers = || exceeds_allowed(message, case.thresholds);
    let by_words = judge(message, case.thresholds).findings.first().copied();
    let first = by_words.filter(|first| first.id == "process-fraction-cap").or_else(by_numbers);
    let shown =
        |printed: Option<Printed>| printed.map_or("an unknown amount".to_owned(), |printed| size(printed.bytes));
    check.decides(
        first.is_some(),
        || {
            let (tried, allowed) = (shown(message.tried), shown(message.allowed));
            format!("PyTorch's message: {tried} was asked for, and {allowed} are allowed")
        },
        || format!("PyTorch's message: {} are allowed, and it would not have held more", shown(message.allowed)),
    );
    if !first.is_some_and(|first| first.certain) {
        check.at_most(Confidence::Probable);
    }
    // A log may have the message of another error.
    if case.recorded_message(failure).is_none() {
        check.at_most(Confidence::Probable);
    }
}
