//! What diagnoses say of each other: an umbrella gives way to what explains it, a last resort to everything. Which is which is
//! said in the catalogue ([`Entry::resolves`], [`Entry::last_resort`]).

use super::finding::Finding;
use super::order;
use crate::catalogue;
use crate::catalogue::entry::Entry;
use crate::diagnosis::RuledOut;
use crate::judgement::check::{Basis, Confidence, Evidence};

/// Whether an entry is known to explain another one.
fn resolves(id: &str, umbrella: &str) -> bool {
    catalogue::find(id).is_some_and(|entry| entry.resolves.iter().any(|resolved| resolved == umbrella))
}

/// Entries that others explain, other than last resorts.
fn umbrellas() -> impl Iterator<Item = &'static Entry> {
    let is_resolved = |id: &str| catalogue::entries().any(|entry| entry.resolves.iter().any(|resolved| resolved == id));
    catalogue::entries().filter(move |entry| !entry.last_resort && is_resolved(&entry.id))
}

/// Drops umbrellas where something that explains them is at least probable for the same failures, and last resorts where
/// anything else explains a failure. Of an umbrella that stays it says what was ruled out and what may still explain it.
pub(super) fn apply(found: &mut Vec<Finding>, ruled_out: &[RuledOut]) {
    umbrellas().for_each(|umbrella| resolve(found, ruled_out, &umbrella.id));
    drop_last_resorts(found);
}

fn resolve(found: &mut Vec<Finding>, ruled_out: &[RuledOut], umbrella: &str) {
    let explaining: Vec<(&'static str, Confidence, Vec<u64>)> = found
        .iter()
        .filter(|finding| finding.role.explains() && resolves(finding.id, umbrella))
        .map(|finding| (finding.id, finding.confidence, finding.ooms.clone()))
        .collect();
    let sure = explaining.iter().filter(|(_, confidence, _)| *confidence >= Confidence::Probable);
    let explained: Vec<u64> = sure.flat_map(|(.., ooms)| ooms.clone()).collect();
    for finding in found.iter_mut().filter(|finding| finding.id == umbrella) {
        finding.ooms.retain(|oom| !explained.contains(oom));
        let is_about = |ooms: &[u64]| ooms.iter().any(|oom| finding.ooms.contains(oom));
        let left = explaining.iter().filter(|(.., ooms)| is_about(ooms)).map(|(id, ..)| *id);
        let excluded = ruled_out.iter().filter(|out| is_about(&out.ooms) && resolves(out.id, umbrella));
        let (left, excluded) = (in_order(left), in_order(excluded.map(|excluded| excluded.id)));
        describe_rest(finding, &left, &excluded);
    }
    found.retain(|finding| finding.id != umbrella || !finding.ooms.is_empty());
}

/// Takes failures from the umbrellas of what explains them.
pub(super) fn give_way(found: &mut Vec<Finding>, id: &str, ooms: &[u64]) {
    found.retain_mut(|finding| {
        if !resolves(id, finding.id) || finding.ooms.is_empty() {
            return true;
        }
        finding.ooms.retain(|oom| !ooms.contains(oom));
        !finding.ooms.is_empty()
    });
}

fn in_order(ids: impl Iterator<Item = &'static str>) -> Vec<&'static str> {
    let mut ids: Vec<&str> = ids.collect();
    ids.sort_by_key(|id| order::place(id));
    ids.dedup();
    ids
}

fn describe_rest(finding: &mut Finding, left: &[&str], ruled_out: &[&str]) {
    let ruled_out = match ruled_out {
        [] => String::new(),
        ids => format!(" (ruled out: {})", ids.join(", ")),
    };
    let text = match left {
        [] => format!("none of the known reasons was found{ruled_out}"),
        _ => format!("possible reasons are left: {}{ruled_out}", left.join(", ")),
    };
    finding.evidence.push(Evidence { text, basis: Basis::Measured });
    // An umbrella only says that something is not explained: what nobody read may explain it.
    finding.confidence = finding.confidence.min(Confidence::Probable);
    if finding.missing.is_empty() {
        finding
            .missing
            .push(format!("what refused it: none of the reasons that `explain {}` lists was seen", finding.id));
    }
    // Only what nothing explains is worth somebody else's time.
    if !left.is_empty() {
        finding.file.clear();
    }
}

fn is_last_resort(id: &str) -> bool {
    catalogue::find(id).is_some_and(|entry| entry.last_resort)
}

/// A last resort is named only where nothing else explains the failures: no cause or shape of any confidence but an umbrella,
/// and nothing that is known to resolve it.
fn drop_last_resorts(found: &mut Vec<Finding>) {
    let is_umbrella = |id: &str| umbrellas().any(|umbrella| umbrella.id == id);
    let explained: Vec<&str> = found
        .iter()
        .filter(|last| is_last_resort(last.id))
        .filter(|last| {
            found.iter().any(|other| {
                let explains = other.role.explains() && !is_last_resort(other.id) && !is_umbrella(other.id);
                explains || resolves(other.id, last.id)
            })
        })
        .map(|last| last.id)
        .collect();
    found.retain(|finding| !explained.contains(&finding.id));
}
