//! From what a trace shows to why memory ran out: rules, the order of questions, and what to do.
//!
//! A [`Case`] is everything that is known about a run. Each [`rules::Rule`] is asked about each failure, each device or the
//! run, and says with a [`Check`] what must hold and what refutes it. What holds becomes a [`Finding`] with the words and
//! fixes of the catalogue. Nothing here reads events or prints.

pub mod across;
pub mod case;
pub mod check;
pub mod finding;
mod guesses;
pub mod ladder;
pub mod related;
pub mod remedies;
pub mod rules;
pub mod spelling;
pub mod thresholds;
pub mod torch_sums;
pub mod triage;
pub mod versions;

#[cfg(test)]
mod labelled;

use case::{Case, Failure};
use check::{Check, Confidence, Judgement};
use finding::{Diagnoses, Excluded, Finding, Role};
use rules::{Ask, Rule};

use crate::catalogue;
use crate::passes::oom::deciding;

/// Failures that rules are asked about, beside the one that decides the verdict.
const MOST_FAILURES: usize = 256;
/// The umbrella for "free was reported".
const PHANTOM_FREE: &str = "phantom-free";
/// What the umbrella for "free was reported" resolves to.
const RESOLVES_PHANTOM_FREE: [&str; 15] = [
    "process-fraction-cap",
    "single-alloc-cap",
    "map-count-exhaustion",
    "vmm-fd-exhaustion",
    "free-overreported-graphics",
    "kfd-system-memory-limit",
    "device-cgroup-limit",
    "uma-ttm-limit",
    "bar-visible-limit",
    "ipc-export-pin",
    "async-free-pending",
    "mallocasync-oom",
    "known-bad-version",
    "expandable-with-max-split",
    "apu-reporting-inconsistent",
];

/// Asks all rules.
pub fn diagnose(case: &Case<'_>) -> Diagnoses {
    let looked_at = looked_at(case);
    let failures: Vec<Failure<'_>> =
        case.failures().filter(|failure| looked_at.contains(&failure.report.number)).collect();
    let mut all = Diagnoses { causes: vec![None; case.summary.ooms.len()], ..Diagnoses::default() };
    for rule in rules::all() {
        match rule.ask {
            Ask::Run(ask) => take(&mut all, case, rule, None, None, None, |check| ask(case, check)),
            Ask::Device(ask) => {
                for device in &case.summary.devices {
                    take(&mut all, case, rule, None, device.index, None, |check| ask(case, device, check));
                }
            }
            Ask::Failure(ask) => {
                for failure in &failures {
                    let (number, device) = (Some(failure.report.number), failure.report.device);
                    let missing = failure.shortfall_bytes();
                    take(&mut all, case, rule, number, device, missing, |check| ask(case, failure, check));
                }
            }
        }
    }
    resolve(&mut all);
    guesses::drop_explained(&mut all.found);
    drop_last_resort(&mut all.found);
    triage::sort(&mut all.found);
    name_causes(&mut all);
    all.not_looked_at = case.summary.oom_count.saturating_sub(looked_at.len() as u64);
    all
}

/// The numbers of the failures that rules are asked about.
fn looked_at(case: &Case<'_>) -> Vec<u64> {
    let ooms = &case.summary.ooms;
    let decides = deciding(ooms.iter().map(|oom| oom.outcome)).map(|index| ooms[index].number);
    let first = ooms.iter().take(MOST_FAILURES).map(|oom| oom.number);
    first.chain(decides.filter(|number| *number > MOST_FAILURES as u64)).collect()
}

/// Puts one rule to the test and takes in what it finds.
fn take(
    all: &mut Diagnoses,
    case: &Case<'_>,
    rule: &Rule,
    oom: Option<u64>,
    device: Option<u8>,
    shortfall_bytes: Option<u64>,
    ask: impl FnOnce(&mut Check),
) {
    let mut check = Check::default();
    ask(&mut check);
    let Some(entry) = catalogue::find(rule.id) else { return };
    let (judgement, role) = (check.judgement(), check.role().unwrap_or(rule.role));
    let parts = check.into_parts();
    match judgement {
        Judgement::None => {}
        Judgement::Excluded { by } => {
            let known = all.excluded.iter_mut().find(|known| known.id == rule.id && is_same_reason(&known.by, &by));
            match known {
                Some(known) => known.ooms.extend(oom),
                None => all.excluded.push(Excluded {
                    id: rule.id,
                    title: entry.title.clone(),
                    ooms: oom.into_iter().collect(),
                    by,
                }),
            }
        }
        Judgement::Found(confidence) => {
            let finding = Finding {
                id: rule.id,
                title: if parts.is_guess { entry.title_of_guess().to_owned() } else { entry.title.clone() },
                confidence,
                role,
                ooms: oom.into_iter().collect(),
                device,
                fix: remedies::of(entry, case, &parts, shortfall_bytes),
                evidence: parts.evidence,
                refuters_checked: parts.refuters,
                missing: parts.missing,
                shortfall_bytes,
                modelled: parts.modelled,
                is_guess: parts.is_guess,
                note: entry.note.clone(),
                file: entry.file.clone(),
                sources: entry.sources.clone(),
            };
            join(&mut all.found, finding);
        }
    }
}

/// Whether two sentences say the same of two failures: they differ in their numbers only.
fn is_same_reason(one: &str, other: &str) -> bool {
    let is_unit = |word: &str| matches!(word, "bytes" | "KiB" | "MiB" | "GiB" | "TiB" | "%" | "ns" | "µs" | "ms" | "s");
    let bare = |word: &&str| {
        let word = word.trim_matches(|c: char| !c.is_alphanumeric() && c != '%');
        !word.starts_with(|c: char| c.is_ascii_digit()) && !is_unit(word)
    };
    one.split_whitespace().filter(bare).eq(other.split_whitespace().filter(bare))
}

/// Takes a finding in; what was found of the same device before covers one more failure, and the surer one's words stay. What
/// is so on a device explains no failure by itself: that stays apart.
fn join(found: &mut Vec<Finding>, finding: Finding) {
    let same = found.iter_mut().find(|known| {
        let both_of_failures = known.ooms.is_empty() == finding.ooms.is_empty();
        known.id == finding.id && known.device == finding.device && both_of_failures
    });
    let Some(known) = same else {
        found.push(finding);
        return;
    };
    let ooms = [std::mem::take(&mut known.ooms), finding.ooms.clone()].concat();
    if finding.confidence > known.confidence {
        *known = finding;
    }
    known.ooms = ooms;
}

/// Drops the umbrella where something that explains it is at least probable for the same failures. Of what remains it says
/// what was ruled out, and what may still explain it: only what nothing explains is to be reported as a bug.
fn resolve(all: &mut Diagnoses) {
    let resolving = |finding: &&Finding| finding.role == Role::Cause && RESOLVES_PHANTOM_FREE.contains(&finding.id);
    let explains = all.found.iter().filter(resolving);
    let explained: Vec<u64> = explains
        .clone()
        .filter(|finding| finding.confidence >= Confidence::Probable)
        .flat_map(|finding| finding.ooms.clone())
        .collect();
    let possible: Vec<(&'static str, Vec<u64>)> = explains.map(|finding| (finding.id, finding.ooms.clone())).collect();
    for finding in all.found.iter_mut().filter(|finding| finding.id == PHANTOM_FREE) {
        finding.ooms.retain(|oom| !explained.contains(oom));
        let is_about = |ooms: &[u64]| ooms.iter().any(|oom| finding.ooms.contains(oom));
        let left = in_order(possible.iter().filter(|(_, ooms)| is_about(ooms)).map(|(id, _)| *id));
        let excluded = all.excluded.iter().filter(|excluded| is_about(&excluded.ooms));
        let ruled_out = in_order(excluded.map(|excluded| excluded.id));
        describe_rest(finding, &left, &ruled_out);
    }
    all.found.retain(|finding| finding.id != PHANTOM_FREE || !finding.ooms.is_empty());
}

/// Those of these ids that can explain free memory, in the order in which they are looked at.
fn in_order(ids: impl Iterator<Item = &'static str> + Clone) -> Vec<&'static str> {
    RESOLVES_PHANTOM_FREE.into_iter().filter(|id| ids.clone().any(|other| other == *id)).collect()
}

fn describe_rest(finding: &mut Finding, left: &[&str], ruled_out: &[&str]) {
    let ruled_out = match ruled_out {
        [] => String::new(),
        ids => format!(" (ruled out: {})", ids.join(", ")),
    };
    let text = match left {
        [] => format!("unexplained: nothing that is known to cause this was found{ruled_out}; report it"),
        _ => format!("possible reasons are left: {}{ruled_out}", left.join(", ")),
    };
    finding.evidence.push(check::Evidence { text, basis: check::Basis::Measured });
    if !left.is_empty() {
        finding.file.clear();
    }
}

/// Hardware is suspected only where nothing else explains the failures: neither a cause or shape of any confidence, nor a
/// card in parts.
fn drop_last_resort(found: &mut Vec<Finding>) {
    const LAST_RESORT: &str = "suspect-hardware";
    let explains = |finding: &Finding| {
        let is_cause = matches!(finding.role, Role::Cause | Role::Shape);
        (is_cause && ![LAST_RESORT, "phantom-free"].contains(&finding.id)) || finding.id == "partition-slice"
    };
    if found.iter().any(explains) {
        found.retain(|finding| finding.id != LAST_RESORT);
    }
}

/// The cause of a failure is the most telling diagnosis about it that is at least probable.
fn name_causes(all: &mut Diagnoses) {
    let causes = all.found.iter().filter(|finding| {
        matches!(finding.role, Role::Cause | Role::Shape) && finding.confidence >= Confidence::Probable
    });
    for finding in causes {
        for number in &finding.ooms {
            let place = all.causes.get_mut((*number - 1) as usize);
            place.map(|cause| cause.get_or_insert(finding.id));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::is_same_reason;

    #[test]
    fn reasons_that_differ_in_numbers_are_one() {
        assert!(is_same_reason(
            "only 1.50 GiB was free (12 % of it), whatever is set",
            "only 300 MiB was free (3 % of it), whatever is set"
        ));
        assert!(!is_same_reason("the next try failed, too", "the request lies between the two readings"));
    }
}
