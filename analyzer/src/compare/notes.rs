//! What must be known before two runs are compared: a sentence each.

use std::cmp::Ordering;

use super::names::Agreed;
use crate::passes::profile::{KnownBy, Place, Profile, Run};
use crate::words;

/// Characters of a list of libraries.
const MOST_LISTED: usize = 200;

/// Sentences about what makes the two runs hard to compare.
pub(super) fn notes(base: &Profile, new: &Profile, agreed: &Agreed) -> Vec<String> {
    let both = [("BASE", &base.run), ("NEW", &new.run)];
    let mut notes = Vec::new();
    if base.run.executable != new.run.executable {
        let [was, is] = both.map(|(_, run)| match run.executable.as_str() {
            "" => "unknown".to_owned(),
            name => words::clean(name),
        });
        notes.push(format!("The programs have different names: {was} and {is}."));
    }
    if base.run.granularity_bytes != new.run.granularity_bytes {
        notes.push(format!(
            "Blocks were padded to {} in BASE and to {} in NEW: the padded numbers can't be compared.",
            words::size(base.run.granularity_bytes),
            words::size(new.run.granularity_bytes)
        ));
    }
    // Both were read with the same.
    if !new.run.thresholds_set.is_empty() {
        notes.push(format!("Thresholds set by hand (--threshold): {}.", new.run.thresholds_set.join(", ")));
    }
    notes.extend(versions(&base.run, &new.run));
    notes.extend(both.iter().flat_map(|(name, run)| of_one(name, run)));
    if !base.sites.is_empty() && !new.sites.is_empty() {
        notes.extend(call_sites(&base.run, &new.run));
    }
    notes.extend(symbols(agreed));
    if !base.places.is_empty() && !new.places.is_empty() {
        notes.extend(super::tensors::notes(base, new));
    }
    notes.extend(devices(base, new));
    notes
}

/// What changed below the program: a difference may come from there.
fn versions(base: &Run, new: &Run) -> Option<String> {
    let both = base.software.iter().filter_map(|(name, was)| Some((name, was, new.software.get(name)?)));
    let changed: Vec<String> = both
        .filter(|(_, was, is)| was != is)
        .map(|(name, was, is)| format!("{name} is {} in BASE and {} in NEW", words::clean(was), words::clean(is)))
        .collect();
    (!changed.is_empty()).then(|| format!("Other versions below the program: {}.", changed.join("; ")))
}

/// What one of the traces can't tell.
fn of_one(name: &str, run: &Run) -> Vec<String> {
    let mut notes = Vec::new();
    if run.events_lost > 0 {
        let lost = words::count(run.events_lost, "event", "events");
        notes.push(format!("{name} lost {lost}: its numbers may be too low."));
    }
    if run.damages > 0 {
        notes.push(format!("{name} is damaged: its numbers are of what could be read."));
    }
    if !run.follows_contexts {
        notes.push(format!(
            "{name} (format {}) does not tell which memory went with a CUDA context: what lives at its end may be less.",
            run.format_version
        ));
    }
    if run.ooms_not_listed > 0 {
        let more = words::count(run.ooms_not_listed, "more failure", "more failures");
        notes.push(format!("{name} has {more} than are kept: what became of them is not compared."));
    }
    if run.injected > 0 {
        let refusals = words::count(run.injected, "refusal", "refusals");
        notes.push(format!(
            "{name} has {refusals} that the recorder made on request (GPUOOM_CAPACITY or GPUOOM_INJECT)."
        ));
    }
    notes
}

/// Where one of the traces knows less than the other about its call sites.
fn call_sites(base: &Run, new: &Run) -> Option<String> {
    let (name, run) = match base.sites_known_by.cmp(&new.sites_known_by) {
        Ordering::Less => ("BASE", base),
        Ordering::Greater => ("NEW", new),
        Ordering::Equal => return None,
    };
    let lacks = match run.sites_known_by {
        KnownBy::Function => "does not tell who called: call sites are compared by the function that was called",
        KnownBy::Library => {
            "names no callers (symbols were not found): call sites are compared by function and library"
        }
        _ => "has no call stacks: call sites are compared by the function that made the call",
    };
    Some(format!(
        "{name} (format {}) {lacks}. A recording with this version tells more, if GPUOOM_STACKS is not off.",
        run.format_version
    ))
}

/// Where one of the runs has names that the other lacks.
fn symbols(agreed: &Agreed) -> Vec<String> {
    let of = |is_base: bool, name: &str| {
        let lacking = agreed.lacking.iter().filter(|(of_base, _)| *of_base == is_base);
        let libraries: Vec<String> = lacking.map(|(_, library)| words::clean(library)).collect();
        (!libraries.is_empty()).then(|| {
            let listed = words::shorten(&libraries.join(", "), MOST_LISTED);
            format!(
                "{name} has no symbols of {listed}: call sites in there are compared by library. Keep the files of a build with \
                 its trace, and give their directory with --symbols."
            )
        })
    };
    [of(true, "BASE"), of(false, "NEW")].into_iter().flatten().collect()
}

/// The same index may be another card.
fn devices(base: &Profile, new: &Profile) -> Vec<String> {
    let name = |profile: &Profile, place: Place| {
        profile.places.iter().find(|known| known.place == place).and_then(|known| known.name.clone())
    };
    let both = base.places.iter().filter_map(|known| {
        let (was, is) = (known.name.clone()?, name(new, known.place)?);
        (was != is).then(|| {
            format!(
                "{} is another card: {} in BASE, {} in NEW.",
                known.place.words(),
                words::clean(&was),
                words::clean(&is)
            )
        })
    });
    both.collect()
}
