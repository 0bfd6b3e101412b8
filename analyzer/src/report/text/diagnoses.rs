//! Why memory ran out: the most telling diagnoses, what speaks for them, what was checked, and what would settle them.

use crate::conclusion::Summary;
use crate::conclusion::finding::Finding;
use crate::judgement::role::Role;
use crate::report::page::{Page, Paint};
use crate::words::{clean, count, gpu};

/// Diagnoses that are told in full.
pub(in crate::report) const MOST_TOLD: usize = 3;
/// Ruled-out diagnoses that are named.
pub(in crate::report) const MOST_RULED_OUT: usize = 3;
/// Numbers of failures that are listed.
const MOST_NUMBERS: usize = 4;

pub(super) fn write(page: &mut Page, summary: &Summary) {
    let (background, causes): (Vec<&Finding>, Vec<&Finding>) = summary
        .conclusion
        .findings
        .iter()
        .partition(|finding| matches!(finding.role, Role::Condition | Role::Refutation));
    if summary.conclusion.findings.is_empty() {
        return;
    }
    page.headed("WHY", Paint::Bold, &order(summary));
    for finding in causes.iter().take(MOST_TOLD) {
        tell(page, &about(summary, finding), finding);
    }
    let rest = causes.iter().skip(MOST_TOLD).chain(&background);
    for finding in rest {
        let text = format!("{}{}: {}", clean(&finding.title), about(summary, finding), evidence(finding));
        page.painted("  ", &format!("also {}, {}:", finding.id, finding.confidence.name()), Paint::Plain, &text);
    }
    rule_out(page, summary);
    if summary.conclusion.ooms_not_diagnosed > 0 {
        let more = count(summary.conclusion.ooms_not_diagnosed, "failure was", "failures were");
        page.indented("  ", "  ", &format!("{more} not diagnosed: the first ones and the one that decides are."));
    }
    page.gap();
}

/// What comes first.
fn order(summary: &Summary) -> String {
    let decides = summary.conclusion.verdict.oom.filter(|_| summary.facts.oom_count > 1);
    match decides {
        Some(number) => format!("of failure #{number}, which decides, before others; the most telling first"),
        None => "the most telling first".to_owned(),
    }
}

/// A diagnosis in full; `about` says of what it is.
pub(super) fn tell(page: &mut Page, about: &str, finding: &Finding) {
    let word = format!("{}, {}:", finding.id, finding.confidence.name());
    page.painted("  ", &word, Paint::Bold, &format!("{}{about}", clean(&finding.title)));
    page.indented("      ", "      ", &evidence(finding));
    let (checked, open): (Vec<_>, Vec<_>) = finding.refuters_checked.iter().partition(|refuter| refuter.checked);
    if !checked.is_empty() {
        let texts: Vec<String> = checked.iter().map(|refuter| clean(&refuter.text)).collect();
        page.indented("      ", "      ", &format!("ruled out: {}", texts.join("; ")));
    }
    if !open.is_empty() {
        let texts: Vec<String> = open.iter().map(|refuter| clean(&refuter.text)).collect();
        page.indented("      ", "      ", &format!("not ruled out: {}", texts.join("; ")));
    }
    if !finding.missing.is_empty() {
        let texts: Vec<String> = finding.missing.iter().map(|text| clean(text)).collect();
        page.indented("      ", "      ", &format!("would settle it: {}", texts.join("; ")));
    }
}

/// Which failures it is about, where that is not all there is, and which device, where that is not the one of the failure that decides.
pub(in crate::report) fn about(summary: &Summary, finding: &Finding) -> String {
    let decides = summary.conclusion.verdict.oom;
    let decides = decides.and_then(|number| summary.facts.ooms.iter().find(|oom| oom.number == number));
    let is_elsewhere = summary.facts.devices.len() > 1 && decides.is_some_and(|oom| oom.device != finding.device);
    let place = finding.device.filter(|_| is_elsewhere).map(|device| format!(" ({})", gpu(Some(device))));
    let not_why = summary.conclusion.is_not_why(finding).map(|number| format!(" (not the reason of #{number})"));
    format!("{}{}{}", place.unwrap_or_default(), numbers(&finding.ooms), not_why.unwrap_or_default())
}

/// ` (#1, #2, 3 more)`; empty for none.
pub(in crate::report) fn numbers(ooms: &[u64]) -> String {
    if ooms.is_empty() {
        return String::new();
    }
    let mut numbers: Vec<String> = ooms.iter().take(MOST_NUMBERS).map(|number| format!("#{number}")).collect();
    let more = ooms.len().saturating_sub(MOST_NUMBERS);
    if more > 0 {
        numbers.push(format!("{more} more"));
    }
    format!(" ({})", numbers.join(", "))
}

pub(in crate::report) fn evidence(finding: &Finding) -> String {
    let texts: Vec<String> = finding.evidence.iter().map(|evidence| clean(&evidence.text)).collect();
    // Of several failures the numbers differ.
    let of = finding.evidence_of.filter(|_| finding.ooms.len() > 1);
    let of = of.map_or_else(String::new, |number| format!("of #{number}: "));
    format!("{of}{}", texts.join("; "))
}

fn rule_out(page: &mut Page, summary: &Summary) {
    for excluded in summary.conclusion.excluded.iter().take(MOST_RULED_OUT) {
        // Of one failure it may be ruled out, and hold of another.
        let is_found = summary.conclusion.findings.iter().any(|finding| finding.id == excluded.id);
        let of = match summary.facts.oom_count > 1 || is_found {
            true => numbers(&excluded.ooms),
            false => String::new(),
        };
        page.painted("  ", &format!("not {}{of}:", excluded.id), Paint::Plain, &clean(&excluded.by));
    }
}
