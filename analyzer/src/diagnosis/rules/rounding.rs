//! B. What rounding to the modelled granule would cost. A model, beside what the addresses show.

use super::{Rule, failure};
use crate::diagnosis::case::{Case, Failure};
use crate::judgement::check::{Basis, Check, Confidence, Holds};
use crate::passes::fragmentation::saturate;
use crate::replay::tracks::survivors::Survivors;
use crate::thresholds::share;
use crate::words::{percent, size};

pub(super) const RULES: &[Rule] =
    &[failure("granularity-waste", granularity_waste), failure("mixed-size-padding", mixed_size_padding)];

/// Reading that would tell what the driver really rounds to.
const DROPS: &str = "free memory before and after single allocations: what the driver really takes for each";

/// What was held at a failure, as it was asked for and rounded.
struct Rounded {
    live: u64,
    blocks: u64,
    padded: u64,
    request: u64,
    padded_request: u64,
    total: u64,
    granule: u64,
    /// Whether the granule is the one that the addresses show, and not the modelled one.
    by_addresses: bool,
}

impl Rounded {
    /// By the modelled granule, or by the smaller one that the addresses show, where the driver counts that one and the blocks could
    /// not have been given by the modelled one.
    fn best(case: &Case<'_>, failure: &Failure<'_>) -> Option<Self> {
        let modelled = Self::of(case, failure)?;
        // What the driver counts may be unknown: then nothing rules that granule out.
        let is_open = |(granule, _, counted): &(u64, u64, Holds)| *granule < modelled.granule && *counted != Holds::No;
        let observed = case.observed_rounding(failure).filter(is_open);
        let Some((granule, added, _)) = observed.filter(|_| failure.thresholds.model_granule().is_none()) else {
            return Some(modelled);
        };
        let padded_request = modelled.request.checked_next_multiple_of(granule)?;
        let padded = modelled.live.saturating_add(added);
        let by_addresses = Rounded { padded, padded_request, granule, by_addresses: true, ..modelled };
        let decides = by_addresses.padded <= by_addresses.total && !by_addresses.fits_rounded();
        Some(if modelled.padded > modelled.total && decides { by_addresses } else { modelled })
    }

    fn of(case: &Case<'_>, failure: &Failure<'_>) -> Option<Self> {
        let held = &failure.oom.held;
        Some(Rounded {
            // Managed memory may lie in RAM: it is left out.
            live: saturate(held.requested_bytes.saturating_sub(failure.oom.held_managed_bytes)),
            blocks: held.blocks.saturating_sub(failure.oom.held_managed_blocks),
            padded: held
                .granules
                .saturating_sub(failure.oom.held_managed_granules)
                .saturating_mul(case.replay.granularity_bytes),
            request: failure.request_bytes().get()?,
            padded_request: failure.report.padded_bytes,
            total: failure.total_bytes().get()?,
            granule: case.replay.granularity_bytes,
            by_addresses: false,
        })
    }

    fn waste(&self) -> u64 {
        self.padded.saturating_sub(self.live)
    }

    fn fits_as_asked(&self) -> bool {
        self.live.saturating_add(self.request) <= self.total
    }

    fn fits_rounded(&self) -> bool {
        self.padded.saturating_add(self.padded_request) <= self.total
    }

    /// Whether everything surely fits when each block is rounded up to this granule.
    fn fits_by(&self, granule: u64) -> bool {
        let most_added = self.blocks.saturating_add(1).saturating_mul(granule.saturating_sub(1));
        self.live.saturating_add(self.request).saturating_add(most_added) <= self.total
    }
}

/// With every block rounded up to the modelled granule the card would overflow.
fn granularity_waste(case: &Case<'_>, failure: &Failure<'_>, check: &mut Check) {
    if !check.applies(failure.is_real_of_device()) {
        return;
    }
    let Some(rounded) = Rounded::best(case, failure) else { return };
    let basis = if rounded.by_addresses { Basis::Estimated } else { Basis::Modelled };
    check.must(rounded.fits_as_asked(), || {
        format!(
            "{} in {} blocks and the {} that were asked for fit into {}",
            size(rounded.live),
            rounded.blocks,
            size(rounded.request),
            size(rounded.total)
        )
    });
    check.must_by(basis, !rounded.fits_rounded(), || {
        let all = rounded.padded.saturating_add(rounded.padded_request);
        format!("rounded up to {} each they need {}", size(rounded.granule), size(all))
    });
    let waste = share(rounded.waste(), rounded.live);
    check.must_by(basis, waste >= case.thresholds.waste_share, || {
        format!("the rounding adds {} of what was asked for ({})", percent(waste), size(rounded.waste()))
    });
    judge_by_driver(failure, &rounded, check);
}

/// The model alone is never more than possible, and addresses show where blocks begin, not what they take: only what the driver
/// counts for the process beyond what it asked for supports it, or refutes it.
fn judge_by_driver(failure: &Failure<'_>, rounded: &Rounded, check: &mut Check) {
    let is_more = rounded.padded > rounded.total;
    check.unless(is_more, || {
        let (granule, padded, total) = (size(rounded.granule), size(rounded.padded), size(rounded.total));
        match is_more {
            true => format!(
                "rounded to {granule} each, the blocks that live would take {padded} of {total}, and yet they were given"
            ),
            false => format!("blocks that live although they would be more than the card if rounded to {granule} each"),
        }
    });
    judge_by_addresses(failure, rounded, check);
    let given = failure.thresholds.model_granule();
    check.note_by(Basis::Given, given.is_some(), || {
        format!("that granule of {} was set by --threshold model-granule", size(rounded.granule))
    });
    let hidden = failure.hidden_bytes();
    let accounts = |hidden: u64| hidden as f64 >= failure.thresholds.explained_share * rounded.waste() as f64;
    match hidden.get() {
        Some(hidden) => {
            let text = || format!("the driver counts {} for this process beyond what it asked for", size(hidden));
            check.decides(accounts(hidden), text, || {
                format!("{}: rounding of {} is not to blame", text(), size(rounded.waste()))
            });
        }
        None => {
            check.at_most(Confidence::Possible);
            check.must(hidden.is(accounts), String::new);
        }
    }
    check.must(Holds::Unknown(DROPS), String::new);
}

/// The addresses may show a smaller granularity than the model. Where everything fits with it, rounding does not explain the failure.
fn judge_by_addresses(failure: &Failure<'_>, rounded: &Rounded, check: &mut Check) {
    // A distance larger than the blocks themselves is where the driver puts them, and no rounding, unless the driver counts it.
    let average = rounded.live.checked_div(rounded.blocks).unwrap_or(0);
    let part = |hidden: u64| share(hidden.min(rounded.waste()), hidden.max(rounded.waste()));
    let is_counted = failure.hidden_bytes().is(|hidden| part(hidden) >= failure.thresholds.explained_share);
    let observed = failure.device.and_then(|device| device.granularity_observed_bytes);
    let observed = observed.filter(|observed| *observed <= average || is_counted == Holds::Yes);
    if observed.is_none_or(|observed| observed < failure.thresholds.granularity_large_bytes) {
        check.at_most(Confidence::Possible);
    }
    let Some(observed) = observed else { return };
    check
        .note_by(Basis::Estimated, true, || format!("the addresses of the blocks are multiples of {}", size(observed)));
    let fits = observed < rounded.granule && rounded.fits_by(observed);
    check.unless(fits, || match fits {
        true => format!(
            "the {} model predicts a failure, and the granularity that the addresses show ({}) does not: rounding is not to blame",
            size(rounded.granule),
            size(observed)
        ),
        false => "addresses that show a smaller granularity, with which everything would fit".to_owned(),
    });
}

/// Blocks of sizes that are close to each other.
struct Family {
    /// Largest size in it, in bytes.
    most: u64,
    bytes: u64,
    waste: u64,
    /// What its largest block leaves of its last granule.
    remainder: u64,
}

/// Two families of sizes cannot use each other's remainders.
fn mixed_size_padding(case: &Case<'_>, failure: &Failure<'_>, check: &mut Check) {
    if !check.applies(failure.is_real_of_device()) {
        return;
    }
    let survivors = case.around(failure).and_then(|around| around.survivors.as_ref());
    let (Some(survivors), Some(rounded)) = (survivors, Rounded::of(case, failure)) else { return };
    let families = families(survivors, rounded.granule, case.thresholds.family_share);
    let waste = share(rounded.waste(), rounded.live);
    if !check.applies(waste >= case.thresholds.waste_share && families.len() >= 2) {
        return;
    }
    check.must_by(Basis::Modelled, true, || {
        format!(
            "rounded up to {} each, the blocks waste {:.0} % of what was asked for",
            size(rounded.granule),
            waste * 100.0
        )
    });
    let wasting: Vec<&Family> = families.iter().filter(|family| family.waste > 0).collect();
    let least = families.iter().map(|family| family.most).min().unwrap_or(0);
    check.must_by(
        Basis::Modelled,
        wasting.len() >= 2 && wasting.iter().all(|family| family.remainder <= least),
        || {
            let sizes: Vec<String> = families.iter().map(|family| size(family.most)).collect();
            format!(
                "{} families of sizes (up to {}) leave remainders that none of them can use",
                families.len(),
                sizes.join(", ")
            )
        },
    );
    let most = wasting.iter().max_by_key(|family| family.waste);
    let part = failure.thresholds.family_waste_share;
    check.must_by(
        Basis::Modelled,
        most.is_some_and(|family| family.waste as f64 >= rounded.waste() as f64 * part),
        || {
            let (family, bytes) = most.map_or((0, 0), |family| (family.most, family.bytes));
            let part = if part == 0.5 { "half".to_owned() } else { percent(part) };
            format!(
                "without the {} in blocks of up to {} at least {part} of the waste would go",
                size(bytes),
                size(family)
            )
        },
    );
    judge_by_driver(failure, &rounded, check);
}

/// The sizes that live, in families, as far as they are listed.
fn families(survivors: &Survivors, granule: u64, family_share: f64) -> Vec<Family> {
    let mut sizes: Vec<(u64, u64)> = match survivors.group_count == survivors.groups.len() {
        true => survivors.groups.iter().map(|group| (group.block_bytes, group.blocks)).collect(),
        false => survivors.covering.clone(),
    };
    sizes.retain(|(bytes, _)| *bytes > 0);
    sizes.sort_unstable();
    let mut families: Vec<Family> = Vec::new();
    for (bytes, blocks) in sizes {
        let remainder = bytes.checked_next_multiple_of(granule).map_or(0, |padded| padded - bytes);
        let (held, waste) = (bytes.saturating_mul(blocks), remainder.saturating_mul(blocks));
        let near = families.last_mut().filter(|family| share(bytes - family.most, bytes) <= family_share);
        match near {
            Some(family) => {
                (family.most, family.remainder) = (bytes, remainder);
                family.bytes = family.bytes.saturating_add(held);
                family.waste = family.waste.saturating_add(waste);
            }
            None => families.push(Family { most: bytes, bytes: held, waste, remainder }),
        }
    }
    families
}
