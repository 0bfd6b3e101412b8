//! What to do next.

use crate::conclusion::Summary;
use crate::conclusion::finding::Finding;
use crate::conclusion::ladder::{Ladder, Step};
use crate::judgement::check::Confidence;
use crate::judgement::role::Role;
use crate::report::page::{Page, Paint};
use crate::words::{clean, size, whole_size};

/// Steps of the ladder that are told; the rest is in the JSON, and `explain` lists it.
pub(in crate::report) const MOST_STEPS: usize = 6;

pub(super) fn write(page: &mut Page, summary: &Summary) {
    let warnings = &summary.conclusion.warnings;
    let ladder = &summary.conclusion.ladder;
    let would_settle = &summary.conclusion.would_settle;
    let whatever = whatever_the_cause(summary);
    if would_settle.is_empty() && warnings.is_empty() && ladder.steps.is_empty() && whatever.is_none() {
        return;
    }
    let only_asks = ladder.steps.is_empty() && !would_settle.is_empty();
    // A cause that decides may have no fixes that are still to be done.
    let order = match (only_asks, summary.conclusion.verdict.cause) {
        (true, _) if whatever.is_some() => "whatever the cause; and what would tell it",
        (true, None) => "no cause is sure enough to act on; what would tell",
        (true, Some(_)) => "each failure was made up for; what would tell more",
        (false, _) => "cheapest first",
    };
    page.headed("WHAT TO DO", Paint::Bold, order);
    if let Some(text) = whatever {
        page.indented("  -  ", "     ", &text);
    }
    for (number, step) in (1..).zip(ladder.steps.iter().take(MOST_STEPS)) {
        page.indented(&format!("  {number:<2} "), "     ", &climb(step));
    }
    climb_on(page, ladder);
    for text in would_settle {
        page.indented("  ?  ", "     ", &format!("{}: {}", to_find_out(summary), clean(text)));
    }
    where_to_report(page, summary);
    for warning in warnings {
        page.indented("  !  ", "     ", &format!("{} is set: {}", clean(&warning.setting), clean(&warning.why)));
    }
    page.gap();
}

/// What follows from a certain fact alone, where no cause is sure.
pub(in crate::report) fn whatever_the_cause(summary: &Summary) -> Option<String> {
    let more = whole_size(summary.conclusion.verdict.too_much_bytes?);
    let may_rise = summary.conclusion.findings.iter().any(|finding| finding.id == "live-leak");
    let card = match may_rise {
        true => {
            format!(". For this request alone a card must have at least {more} more, and what rises may go on")
        }
        false => {
            format!(", or take a larger card: these blocks and the request alone need {more} more than this one has")
        }
    };
    Some(format!("whatever the cause: ask for less at once, free before it what is no longer used{card}"))
}

/// What the readings that would settle it are good for.
pub(in crate::report) fn to_find_out(summary: &Summary) -> &'static str {
    if summary.facts.oom_count > 0 { "to find out why" } else { "to be sure" }
}

pub(in crate::report) fn climb(step: &Step) -> String {
    let fix = &step.fix;
    let command = if fix.command.is_empty() { String::new() } else { format!("{}: ", fix.command) };
    let mut text = format!("{command}{}", fix.why);
    if !fix.only_if.is_empty() {
        text.push_str(&format!(" (if: {})", fix.only_if));
    }
    if let Some(bytes) = fix.gives_back_bytes {
        let enough = match fix.is_enough {
            Some(true) => ": enough",
            Some(false) => ": not enough alone",
            None => "",
        };
        let basis = fix.gives_back_basis.map_or("", |basis| basis.name());
        text.push_str(&format!("; gives back {} ({basis}){enough}", size(bytes)));
    }
    clean(&text)
}

/// Where a defect belongs, and what a report of it must hold; most diagnoses are nobody's defect.
fn where_to_report(page: &mut Page, summary: &Summary) {
    for finding in summary.conclusion.findings.iter().filter(|finding| is_worth_reporting(finding)) {
        for filing in &finding.file {
            let with = filing.needs_in_words().map_or(String::new(), |needs| format!(", with {needs}"));
            let text = format!("to report {}: {}{with}", finding.id, filing.place_in_words());
            page.indented("     ", "     ", &clean(&text));
        }
    }
}

/// Whether it is sure enough for a report, and can be somebody's defect.
pub(in crate::report) fn is_worth_reporting(finding: &Finding) -> bool {
    finding.confidence >= Confidence::Probable && finding.role != Role::Condition
}

/// What of the ladder is not told, and what is not advised.
fn climb_on(page: &mut Page, ladder: &Ladder) {
    if let Some(next) = ladder.steps.get(MOST_STEPS) {
        let more = ladder.steps.len() - MOST_STEPS;
        page.indented("     ", "     ", &format!("and {more} more: gpuoom-analyze explain {}", next.id));
    }
    if !ladder.not_advised.is_empty() {
        let list: Vec<String> = ladder.not_advised.iter().map(|not| format!("{} ({})", not.what, not.why)).collect();
        page.indented("     ", "     ", &format!("not advised here: {}", list.join("; ")));
    }
}
