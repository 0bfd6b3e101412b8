//! What to do next, and where to report it.

use super::page::{Markdown, code, plain};
use crate::passes::advice::advise;
use crate::passes::summary::Summary;
use crate::passes::verdict::Verdict;
use crate::report::text::advice::{MOST_STEPS, climb, describe, is_worth_reporting};

pub(super) fn write(page: &mut Markdown, summary: &Summary, verdict: Verdict, level: usize) {
    let steps = summary.ladder.steps.iter().take(MOST_STEPS);
    let mut items: Vec<String> = advise(summary, verdict).iter().map(|advice| plain(&describe(advice))).collect();
    items.extend(steps.map(|step| plain(&climb(step))));
    let warnings = &summary.warnings;
    let warnings: Vec<String> =
        warnings.iter().map(|warning| format!("{} is set: {}", code(&warning.setting), plain(&warning.why))).collect();
    let places: Vec<String> = summary
        .diagnoses
        .iter()
        .filter(|finding| is_worth_reporting(finding))
        .flat_map(|finding| {
            finding.file.iter().map(|filing| {
                let with =
                    if filing.with.is_empty() { String::new() } else { format!(", with {}", plain(&filing.with)) };
                format!("to report {}: {}{with}", code(finding.id), plain(&filing.place))
            })
        })
        .collect();
    let not_advised: Vec<String> = summary
        .ladder
        .not_advised
        .iter()
        .map(|not| format!("not advised here: {} ({})", plain(not.what), plain(not.why)))
        .collect();
    if items.is_empty() && warnings.is_empty() && places.is_empty() {
        return;
    }
    page.heading(level, "What to do");
    page.list(true, &items);
    page.list(false, &[places, warnings, not_advised].concat());
}
