//! What to do next, and where to report it.

use super::page::{Markdown, code, plain};
use crate::conclusion::Summary;
use crate::conclusion::finding::Finding;
use crate::report::text::advice::{MOST_STEPS, climb, is_worth_reporting, to_find_out, whatever_the_cause};

pub(super) fn write(page: &mut Markdown, summary: &Summary, level: usize) {
    let conclusion = &summary.conclusion;
    let steps: Vec<String> = conclusion.ladder.steps.iter().take(MOST_STEPS).map(|step| plain(&climb(step))).collect();
    let would_settle = conclusion.would_settle.iter().map(|text| format!("{}: {}", to_find_out(summary), plain(text)));
    let warnings =
        conclusion.warnings.iter().map(|warning| format!("{} is set: {}", code(&warning.setting), plain(&warning.why)));
    let places = conclusion.findings.iter().filter(|finding| is_worth_reporting(finding)).flat_map(places);
    let whatever = whatever_the_cause(summary).map(|text| plain(&text));
    let items: Vec<String> = whatever.into_iter().chain(would_settle).chain(places).chain(warnings).collect();
    if steps.is_empty() && items.is_empty() {
        return;
    }
    page.heading(level, "What to do");
    page.list(true, &steps);
    let not_advised = conclusion.ladder.not_advised.iter();
    let not_advised = not_advised.map(|not| format!("not advised here: {} ({})", plain(not.what), plain(not.why)));
    page.list(false, &items.into_iter().chain(not_advised).collect::<Vec<_>>());
}

fn places(finding: &Finding) -> impl Iterator<Item = String> {
    finding.file.iter().map(|filing| {
        let with = filing.needs_in_words().map_or(String::new(), |needs| format!(", with {}", plain(&needs)));
        format!("to report {}: {}{with}", code(finding.id), plain(&filing.place_in_words()))
    })
}
