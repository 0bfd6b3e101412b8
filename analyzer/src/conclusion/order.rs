//! The order of questions: of two diagnoses that are equally sure, the one whose question comes first is named first.
//!
//! Each entry of the catalogue names the one that is asked right before it ([`Entry::asked_after`]).

use std::cmp::Reverse;
use std::collections::HashMap;
use std::sync::OnceLock;

use super::finding::Finding;
use crate::catalogue;
use crate::catalogue::entry::Entry;
use crate::judgement::role::Role;

/// The place of an id in the order of questions.
pub(super) fn place(id: &str) -> usize {
    static PLACES: OnceLock<HashMap<&'static str, usize>> = OnceLock::new();
    let places = PLACES.get_or_init(|| {
        let ids = in_order(&catalogue::entries().collect::<Vec<_>>());
        ids.into_iter().zip(0..).collect()
    });
    places.get(id).copied().unwrap_or(places.len())
}

/// Ids in the order in which they are asked. Of two entries that name the same one before them, the one that stands first in
/// the catalogue is asked first. Entries that nobody leads to are left out; a test finds them.
fn in_order<'a>(entries: &[&'a Entry]) -> Vec<&'a str> {
    let mut order = Vec::new();
    let mut open: Vec<&Entry> = entries.iter().rev().filter(|entry| entry.asked_after.is_empty()).copied().collect();
    while let Some(entry) = open.pop() {
        order.push(entry.id.as_str());
        open.extend(entries.iter().rev().filter(|next| next.asked_after == entry.id));
    }
    order
}

/// The most telling first: causes before conditions, the surer before the less sure, what was seen before the phases that sizes and times
/// alone suggest, then the order of questions.
pub(super) fn sort(found: &mut [Finding]) {
    found.sort_by_key(|finding| {
        let is_severity = finding.role == Role::Severity;
        let is_guess = finding.is_guess && finding.role == Role::Shape;
        let seems = (is_severity, finding.is_slight, is_guess);
        (is_background(finding), Reverse(finding.confidence), seems, place(finding.id))
    });
}

fn is_background(finding: &Finding) -> bool {
    matches!(finding.role, Role::Condition | Role::Refutation)
}

/// Puts what is about the failure that decides, or about the run, before what is about other failures only: a page tells one story.
/// What is true of the run, and `ruled_out` as the reason of this failure or seen on another `device` than its own, belongs to the others.
pub(super) fn put_first(found: &mut [Finding], decides: u64, device: Option<u8>, ruled_out: &[&str]) {
    found.sort_by_key(|finding| {
        let is_of_another_device = finding.device.is_some() && device.is_some() && finding.device != device;
        let is_elsewhere = finding.ooms.is_empty() && (ruled_out.contains(&finding.id) || is_of_another_device);
        (is_background(finding), is_elsewhere || is_of_others(&finding.ooms, decides))
    });
}

/// Whether these are failures, and the one that decides is none of them.
pub(super) fn is_of_others(ooms: &[u64], decides: u64) -> bool {
    !ooms.is_empty() && !ooms.contains(&decides)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_entry_of_the_catalogue_has_its_place_once() {
        let entries: Vec<&Entry> = catalogue::entries().collect();
        let mut known: Vec<&str> = entries.iter().map(|entry| entry.id.as_str()).collect();
        let mut placed = in_order(&entries);
        known.sort_unstable();
        placed.sort_unstable();
        assert_eq!(known, placed, "an entry is asked after one that is not there, or in a circle");
    }

    /// What is only the end state of another is asked after it: a full card after the leak that filled it, and an umbrella
    /// after all that explains it.
    #[test]
    fn an_umbrella_is_asked_after_what_explains_it() {
        assert!(place("live-leak") < place("true-capacity"));
        let resolving = |umbrella: &str| {
            catalogue::entries().filter(move |entry| entry.resolves.iter().any(|id| id == umbrella)).collect::<Vec<_>>()
        };
        assert!(resolving("phantom-free").len() > 10);
    }

    fn finding(id: &'static str, ooms: &[u64]) -> Finding {
        Finding {
            id,
            title: String::new(),
            confidence: crate::judgement::check::Confidence::Probable,
            role: Role::Cause,
            ooms: ooms.to_vec(),
            evidence_of: None,
            device: None,
            evidence: Vec::new(),
            refuters_checked: Vec::new(),
            missing: Vec::new(),
            fix: Vec::new(),
            shortfall_bytes: None,
            modelled: false,
            is_guess: false,
            is_slight: false,
            note: String::new(),
            file: Vec::new(),
            sources: Vec::new(),
        }
    }

    /// What is true of the run, and ruled out as the reason of the failure that decides, stands behind what explains that.
    #[test]
    fn what_is_ruled_out_as_the_reason_comes_later() {
        let order = |ruled_out: &[&str]| {
            let mut found = [finding("live-leak", &[]), finding("cache-greed", &[1]), finding("true-capacity", &[2])];
            put_first(&mut found, 2, Some(0), ruled_out);
            found.map(|finding| finding.id)
        };
        assert_eq!(order(&[]), ["live-leak", "true-capacity", "cache-greed"]);
        assert_eq!(order(&["live-leak"]), ["true-capacity", "live-leak", "cache-greed"]);
    }

    /// What every cache has between its blocks is named behind what fills the card.
    #[test]
    fn a_small_part_comes_after_what_is_as_sure() {
        let slight = Finding { is_slight: true, ..finding("caching-fragmentation", &[1]) };
        let mut found = [slight, finding("live-leak", &[1])];
        assert!(place("caching-fragmentation") < place("live-leak"));
        sort(&mut found);
        assert_eq!(found.map(|finding| finding.id), ["live-leak", "caching-fragmentation"]);
    }

    /// A phase that sizes and times alone suggest is named behind what was seen and is as sure.
    #[test]
    fn a_guess_comes_after_what_is_as_sure() {
        let mut found = [
            Finding { is_guess: true, role: Role::Shape, ..finding("oom-model-load", &[1]) },
            finding("granularity-waste", &[1]),
        ];
        assert!(place("oom-model-load") < place("granularity-waste"));
        sort(&mut found);
        assert_eq!(found.map(|finding| finding.id), ["granularity-waste", "oom-model-load"]);
    }

    /// What is seen on a card that refused nothing does not explain a failure on another.
    #[test]
    fn what_is_of_another_card_comes_later() {
        let order = |device| {
            let leak = Finding { device: Some(device), ..finding("live-leak", &[]) };
            let mut found = [leak, Finding { device: Some(0), ..finding("true-capacity", &[1]) }];
            put_first(&mut found, 1, Some(0), &[]);
            found.map(|finding| finding.id)
        };
        assert_eq!(order(0), ["live-leak", "true-capacity"]);
        assert_eq!(order(1), ["true-capacity", "live-leak"]);
    }
}
