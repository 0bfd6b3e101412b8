//! B. Fragmentation of caches: PyTorch's allocator, and others like it.

use super::{Rule, device, failure};
use crate::diagnosis::case::{Case, Failure};
use crate::diagnosis::torch_sums::{Told, TorchSums, place};
use crate::judgement::check::{Basis, Check, Confidence, Holds, Known};
use crate::judgement::role::Role;
use crate::passes::device::DeviceSummary;
use crate::passes::libraries::{Libraries, is_runtime};
use crate::passes::shape::run::plateau;
use crate::replay::tracks::retries::Ending;
use crate::software::Program;
use crate::thresholds::{Unit, share};
use crate::words::{count, percent, size};

pub(super) const RULES: &[Rule] = &[
    failure("caching-fragmentation", caching_fragmentation),
    failure("cache-greed", cache_greed),
    device("reserved-plateau", reserved_plateau),
];

/// Free memory is trapped in split segments of a caching allocator.
fn caching_fragmentation(case: &Case<'_>, failure: &Failure<'_>, check: &mut Check) {
    if !check.applies(failure.is_real_of_device()) {
        return;
    }
    match case.torch_sums(failure) {
        Some(sums) => by_numbers(&sums, failure, check),
        None => by_shape(case, failure, check),
    }
    check.unless(case.uses_virtual_memory(failure), || {
        "expandable segments are active: physical memory is mapped where it is needed".to_owned()
    });
    check.unless(case.is_caching_off(), || "caching is disabled".to_owned());
    let other = asked_by_another(case, failure);
    check.unless(other.is_some(), || match other {
        Some(library) => format!("{library} asked for it, which gets nothing out of PyTorch's cache"),
        None => "another library than PyTorch asked for it".to_owned(),
    });
}

/// The library that asked, where it is known and none of PyTorch's. Where PyTorch has no library of its own (linked into the
/// program), nobody can tell.
fn asked_by_another(case: &Case<'_>, failure: &Failure<'_>) -> Option<String> {
    const OWN: [&str; 4] = ["libtorch", "libc10", "libcaffe2", "_C"];
    let is_own = |library: &str| OWN.iter().any(|name| library.starts_with(name));
    let libraries = Libraries::new(case.trace, case.replay);
    let library = libraries.of_site(failure.oom.site)?;
    let modules = &case.trace.metadata.modules.modules;
    let has_own = modules.iter().any(|module| is_own(module.path.rsplit('/').next().unwrap_or_default()));
    (has_own && !is_own(library) && !is_runtime(library)).then(|| library.to_owned())
}

/// Another library was refused what PyTorch's cache holds and uses for no tensor: then the cache is the cause.
fn kept_from_another(case: &Case<'_>, failure: &Failure<'_>, check: &mut Check) -> bool {
    let missing = failure.shortfall_bytes().filter(|_| failure.is_real_of_device());
    let asked = missing.zip(asked_by_another(case, failure));
    let Some(((missing, library), sums)) = asked.zip(case.torch_sums(failure)) else { return false };
    if sums.unused.least() < missing {
        return false;
    }
    check.plays(Role::Cause);
    check.at_most(Confidence::Probable);
    check.must(true, || format!("{library} was refused, and {} were missing", size(missing)));
    check.must_by(Basis::Given, true, || {
        format!("{}: its cache held {} that no tensor used", sums.told.by(), size(sums.unused.bytes))
    });
    check.would_settle("a run with torch.cuda.empty_cache() before that library is called");
    check.gives_back(0, sums.unused.least(), Basis::Given);
    true
}

/// With the numbers of PyTorch's message or snapshot.
fn by_numbers(sums: &TorchSums<'_>, failure: &Failure<'_>, check: &mut Check) {
    let (tried, unused) = (sums.tried, sums.unused);
    let of_reserved = share(unused.bytes, sums.reserved_bytes());
    check.must_by(Basis::Given, unused.bytes >= tried.bytes, || {
        let (held, asked) = (size(unused.bytes), size(tried.bytes));
        format!("{}: it held {held} in unused blocks, and {asked} was asked for", sums.told.by())
    });
    if unused.least() < tried.most() || !sums.is_certain() {
        check.at_most(Confidence::Probable);
    }
    check.must_by(
        Basis::Given,
        of_reserved > failure.thresholds.unused_share
            || tried.bytes as f64 <= unused.bytes as f64 * failure.thresholds.request_of_unused_share,
        || format!("that is {} of what it had reserved", percent(of_reserved)),
    );
    let by_torch = Known::new(sums.free.map(|free| free.bytes), "free memory at the failure");
    let free = failure.free_bytes().or(by_torch);
    check
        .must(free.is(|free| free < tried.bytes), || format!("{} was free on the card", size(free.get().unwrap_or(0))));
    check.unless(of_reserved < failure.thresholds.few_unused_share, || {
        format!("the unused blocks are only {} of what it had reserved", percent(of_reserved))
    });
    in_pieces(sums, check);
    check.note_by(Basis::Given, sums.disagreement.is_some(), || sums.disagreement.clone().unwrap_or_default());
    if sums.told == Told::SnapshotLater {
        check.would_settle(
            "a snapshot whose history has the failure (torch.cuda.memory._record_memory_history() at the start), or \
             PyTorch's message (--torch-log)",
        );
    }
}

/// What only a snapshot of the failure shows: in which pieces the unused memory lay, and for whom.
fn in_pieces(sums: &TorchSums<'_>, check: &mut Check) {
    let Some(moment) = sums.moment else { return };
    check.note_by(Basis::Given, moment.largest_usable_bytes < sums.tried.bytes, || {
        format!("the largest unused block that the request could use had {}", size(moment.largest_usable_bytes))
    });
    let others = sums.unused.least().saturating_sub(moment.usable_bytes);
    check.note_by(Basis::Given, others > 0, || {
        format!("{} of it are in blocks of other streams, pools, or sizes", size(others))
    });
    check.unless(moment.usable_bytes < sums.tried.bytes, || {
        format!(
            "only {} of them were for this stream, pool and size: the rest is no fragment",
            size(moment.usable_bytes)
        )
    });
    check.unless(moment.largest_usable_bytes >= sums.tried.bytes.max(1), || {
        format!("one unused block of {} would have held the request", size(moment.largest_usable_bytes))
    });
    let caller = sums.stack.first();
    check.note_by(Basis::Given, caller.is_some(), || {
        let at = caller.map_or_else(String::new, |frame| place(frame));
        format!("the request came from {at}")
    });
}

/// From the calls alone, which see segments and no tensors: never more than possible.
fn by_shape(case: &Case<'_>, failure: &Failure<'_>, check: &mut Check) {
    check.at_most(Confidence::Possible);
    let Some(retry) = case.retry(failure) else { return };
    let around = case.around(failure);
    let survivors = around.and_then(|around| around.survivors.as_ref());
    let is_segments = case.versions.has(Program::Torch) && retry.freed_bytes > 0;
    if !check.applies(is_segments && retry.ending == Ending::Failed) {
        return;
    }
    check.must(retry.freed_bytes < retry.requested_bytes, || {
        format!(
            "the release of the cache gave back {}, and {} was asked for",
            size(retry.freed_bytes),
            size(retry.requested_bytes)
        )
    });
    let sizes = survivors.map_or(0, |survivors| survivors.covering_sizes as u64);
    check.must(sizes >= case.thresholds.many_sizes, || {
        format!("the segments that stay have {sizes} sizes that hold 80 % of the bytes")
    });
    check.must(
        Holds::Unknown(
            "PyTorch's out-of-memory message (--torch-log), or a memory snapshot of PyTorch (--torch-snapshot)",
        ),
        String::new,
    );
}

/// The allocator's cache, not the model, filled the card: it was released, and the same request succeeded.
fn cache_greed(case: &Case<'_>, failure: &Failure<'_>, check: &mut Check) {
    if kept_from_another(case, failure, check) {
        return;
    }
    let Some(retry) = case.retry(failure) else { return };
    if !check.applies(failure.is_of_device() && retry.freed_bytes > 0 && retry.ending != Ending::NotTried) {
        return;
    }
    check.must(true, || {
        format!(
            "the thread released {} within {} of the failure and asked for {} again",
            size(retry.freed_bytes),
            Unit::Time.shown(case.thresholds.retry_ns as f64),
            size(retry.requested_bytes)
        )
    });
    check.decides(
        retry.ending == Ending::Succeeded,
        || {
            format!(
                "and was given it ({} in all)",
                count(case.replay.tracks.retries.succeeded(), "such retry", "such retries")
            )
        },
        || "the next try failed, too".to_owned(),
    );
    check.must(retry.freed_bytes >= retry.requested_bytes, || "what was released was enough by itself".to_owned());
}

/// Reserved memory rose and then stayed: no leak.
fn reserved_plateau(case: &Case<'_>, device: &DeviceSummary, check: &mut Check) {
    match case.run_of(device.index) {
        Some(run) => plateau(run, check),
        None => _ = check.applies(false),
    }
}
