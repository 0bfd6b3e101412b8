//! Why: one cause, how sure it is, and the facts that decide it.

use super::{INDENT, fitted, section};
use crate::conclusion::Summary;
use crate::conclusion::finding::Finding;
use crate::conclusion::verdict::Happened;
use crate::report::page::Page;
use crate::report::text::advice::to_find_out;
use crate::words::clean;

/// Facts that are told.
const MOST_FACTS: usize = 2;
/// Lines that the section may have.
const MOST_LINES: usize = 5;

/// A run without a failure needs no reason, but where something explains how it went.
pub(super) fn is_worth_telling(summary: &Summary) -> bool {
    let verdict = &summary.conclusion.verdict;
    matches!(verdict.happened, Happened::OutOfMemory { .. })
        || verdict.cause.is_some()
        || summary.conclusion.perhaps().is_some()
}

pub(super) fn write(page: &mut Page, summary: &Summary) {
    let verdict = &summary.conclusion.verdict;
    let decides = verdict.cause.and_then(|id| deciding(summary, id));
    let parts = match (decides, summary.conclusion.perhaps()) {
        (Some(finding), _) => told(&verdict.why, finding),
        (None, Some(finding)) if verdict.oom.is_none() => {
            told(&format!("Possible: {} ({}).", clean(&finding.title), finding.id), finding)
        }
        (None, _) => not_known(summary),
    };
    section(page, "WHY", &fitted(page.look, INDENT, &parts, " ", MOST_LINES));
}

/// The finding that decides: of its id the one about the failure that decides.
fn deciding<'s>(summary: &'s Summary, id: &str) -> Option<&'s Finding> {
    let number = summary.conclusion.verdict.oom;
    let mut of_id = summary.conclusion.findings.iter().filter(|finding| finding.id == id);
    let is_of_it = |finding: &&Finding| number.is_some_and(|number| finding.ooms.contains(&number));
    of_id.clone().find(is_of_it).or_else(|| of_id.next())
}

fn told(why: &str, finding: &Finding) -> Vec<String> {
    let sentence = why.strip_prefix("Why: ").unwrap_or(why);
    let facts =
        finding.evidence.iter().take(MOST_FACTS).map(|evidence| capital(&format!("{}.", clean(&evidence.text))));
    std::iter::once(capital(sentence)).chain(facts).collect()
}

fn not_known(summary: &Summary) -> Vec<String> {
    let ask = |text: &String| format!("{}: {}.", capital(to_find_out(summary)), clean(text).trim_end_matches('.'));
    let settle = summary.conclusion.would_settle.iter().take(1).map(ask);
    let why = &summary.conclusion.verdict.why;
    let why = match why.strip_prefix("Why is not known.") {
        Some(rest) => format!("Not known.{rest}"),
        None => capital(why.strip_prefix("Why: ").unwrap_or(why)),
    };
    std::iter::once(why).chain(settle).collect()
}

/// With a capital letter, but for a name that begins with a small one (`hipMalloc`).
fn capital(text: &str) -> String {
    let first = text.split(' ').next().unwrap_or_default();
    if first == "gpuoom" || first.chars().skip(1).any(|letter| letter.is_uppercase() || letter == '_') {
        return text.to_owned();
    }
    let mut letters = text.chars();
    letters.next().map_or_else(String::new, |letter| letter.to_uppercase().chain(letters).collect())
}
