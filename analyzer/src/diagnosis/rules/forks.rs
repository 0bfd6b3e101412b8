//! F. A process that was forked after its runtime had started.

use super::{Rule, failure};
use crate::diagnosis::case::{Case, Failure};
use crate::judgement::check::{Check, Confidence, Holds};
use crate::words::{clean, size};

pub(super) const RULES: &[Rule] = &[failure("forked-after-init", forked_after_init)];

/// What is missing where records were lost.
const ALL_CALLS: &str = "a trace without lost records: whether any call was given memory";
/// What would settle it.
const STARTED_ANEW: &str = "the same work in a process that is started anew (spawn)";

/// Runtimes don't work in a child that was forked with them: what they refuse there says nothing of the card.
fn forked_after_init(case: &Case<'_>, failure: &Failure<'_>, check: &mut Check) {
    let forked = case.facts.process.forked().filter(|_| !failure.is_injected());
    check.applies(forked.is_some());
    let Some(forked) = forked else { return };
    check.must(true, || format!("the process was {forked}"));
    let devices = case.facts.devices.iter().map(|device| device.account.allocations);
    let given: u64 = devices.chain([case.facts.host.allocations]).sum();
    // A call whose record is missing may have been given memory.
    let works = match given {
        0 if case.trace.is_whole() => Holds::No,
        0 => Holds::Unknown(ALL_CALLS),
        _ => Holds::Yes,
    };
    check.unless(works, || "the runtime gave this process memory: it works here".to_owned());
    check.note(works == Holds::No, || {
        format!("no call of it was given memory; the first that failed is {}", clean(&failure.report.api))
    });
    let numbers = failure.request_bytes().zip(failure.free_bytes());
    check.unless(numbers.is(|(asked, free)| free < asked), || "less was free than was asked for".to_owned());
    let enough = failure.was_enough(failure.free_bytes());
    if let Some((asked, free)) = numbers.get() {
        check.note(enough, || format!("{} was free, and {} asked for", size(free), size(asked)));
    }
    check.at_most(if enough == Holds::Yes { Confidence::Probable } else { Confidence::Possible });
    check.would_settle(STARTED_ANEW);
}
