//! Why memory ran out.

use super::page::{Markdown, code, plain};
use crate::conclusion::Summary;
use crate::conclusion::finding::Finding;
use crate::judgement::role::Role;
use crate::report::text::diagnoses::{MOST_RULED_OUT, MOST_TOLD, about, evidence, numbers};

pub(super) fn write(page: &mut Markdown, summary: &Summary, level: usize) {
    if summary.conclusion.findings.is_empty() {
        return;
    }
    page.heading(level, "Why");
    if let Some(number) = summary.conclusion.verdict.oom.filter(|_| summary.facts.oom_count > 1) {
        page.paragraph(&plain(&format!("What is about failure {number}, which decides, comes first.")));
    }
    let (background, causes): (Vec<&Finding>, Vec<&Finding>) = summary
        .conclusion
        .findings
        .iter()
        .partition(|finding| matches!(finding.role, Role::Condition | Role::Refutation));
    causes.iter().take(MOST_TOLD).for_each(|finding| tell(page, &about(summary, finding), finding));
    let also = causes.iter().skip(MOST_TOLD).chain(&background);
    let mut items: Vec<String> = also
        .map(|finding| {
            let sure = finding.confidence.name();
            let what = format!("{}{}", finding.title, about(summary, finding));
            format!("also {}, {sure}: {}: {}", code(finding.id), plain(&what), plain(&evidence(finding)))
        })
        .collect();
    for excluded in summary.conclusion.excluded.iter().take(MOST_RULED_OUT) {
        let of = if summary.facts.oom_count > 1 { numbers(&excluded.ooms) } else { String::new() };
        items.push(format!("not {}{of}: {}", code(excluded.id), plain(&excluded.by)));
    }
    page.list(false, &items);
}

/// A diagnosis in full; `about` says of what it is.
pub(super) fn tell(page: &mut Markdown, about: &str, finding: &Finding) {
    let head =
        format!("**{}, {}**: {}{}", code(finding.id), finding.confidence.name(), plain(&finding.title), plain(about));
    page.paragraph(&head);
    let mut items: Vec<String> = finding.evidence.iter().map(|evidence| plain(&evidence.text)).collect();
    let (checked, open): (Vec<_>, Vec<_>) = finding.refuters_checked.iter().partition(|refuter| refuter.checked);
    items.extend(checked.iter().map(|refuter| format!("ruled out: {}", plain(&refuter.text))));
    items.extend(open.iter().map(|refuter| format!("not ruled out: {}", plain(&refuter.text))));
    items.extend(finding.missing.iter().map(|missing| format!("would settle it: {}", plain(missing))));
    page.list(false, &items);
}
