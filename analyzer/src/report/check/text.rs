//! `check --format text`.

use super::words::{about_unjudged, by_whom, culprit, origin, run, sentence, unused, verdict, whose};
use crate::policy::{Checked, Finding, Outcome, Whose};
use crate::report::page::{Page, Paint};

/// Writes what was found: what is exceeded first, then what nobody can tell.
pub fn write_text(page: &mut Page, checked: &Checked) {
    page.headed("VERDICT", Paint::Bold, &verdict(checked));
    let several = checked.runs.len() > 1;
    for (of, note) in checked.runs.iter().flat_map(|run| run.notes.iter().map(move |note| (run, note))) {
        let whose = if several { format!("{}: ", run(&of.run)) } else { String::new() };
        page.indented("  note: ", "        ", &format!("{whose}{note}"));
    }
    for (of, finding) in checked.findings(Outcome::Exceeded) {
        page.gap();
        exceeded(page, checked, of, finding);
    }
    if checked.not_judged() > 0 {
        page.gap();
        page.headed("NOT JUDGED", Paint::Dropped, about_unjudged(checked));
        list(page, checked, Outcome::NotJudged);
        for budget in &checked.unused {
            let place = origin(checked, budget.name.as_ref(), budget.line);
            page.indented("  ", "    ", &format!("{}; {place}", unused(budget)));
        }
    }
    if checked.findings(Outcome::Kept).next().is_some() {
        page.gap();
        page.headed("KEPT", Paint::Bold, "");
        list(page, checked, Outcome::Kept);
    }
}

fn exceeded(page: &mut Page, checked: &Checked, of: Whose<'_>, finding: &Finding) {
    page.painted("", "EXCEEDED", Paint::Dropped, &sentence(&finding.judged));
    let indent = "  ";
    let place = origin(checked, finding.name.as_ref(), finding.line);
    page.indented(indent, indent, &format!("{place}; {}", whose(of)));
    if !finding.judged.culprits.is_empty() {
        page.indented(indent, indent, &format!("{}:", by_whom(&finding.judged)));
    }
    for who in &finding.judged.culprits {
        page.indented("    ", "      ", &culprit(&finding.judged, who));
    }
}

fn list(page: &mut Page, checked: &Checked, outcome: Outcome) {
    let several = checked.runs.len() > 1;
    for (of, finding) in checked.findings(outcome) {
        let whose = if several { format!("; {}", whose(of)) } else { String::new() };
        page.indented("  ", "    ", &format!("{}{whose}", sentence(&finding.judged)));
    }
}
