//! `check --format text`.

use super::words::{by_whom, culprit, origin, run, sentence, verdict};
use crate::policy::{Checked, CheckedRun, Finding, Outcome};
use crate::report::page::{Page, Paint};
use crate::words;

/// Writes what was found: what is exceeded first.
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
    for (outcome, heading, paint) in
        [(Outcome::NotJudged, "NOT JUDGED", Paint::Bold), (Outcome::Kept, "KEPT", Paint::Bold)]
    {
        list(page, checked, outcome, heading, paint);
    }
    if !checked.unused.is_empty() {
        page.gap();
    }
    for unused in &checked.unused {
        let rule = words::clean(&unused.rule);
        page.indented("  note: ", "        ", &format!("{rule} (line {}): no trace is of such a process", unused.line));
    }
}

fn exceeded(page: &mut Page, checked: &Checked, of: &CheckedRun, finding: &Finding) {
    page.painted("", "EXCEEDED", Paint::Dropped, &sentence(&finding.judged));
    let indent = "  ";
    page.indented(indent, indent, &format!("{}; {}", origin(checked, finding), run(&of.run)));
    if !finding.judged.culprits.is_empty() {
        page.indented(indent, indent, &format!("{}:", by_whom(&finding.judged)));
    }
    for who in &finding.judged.culprits {
        page.indented("    ", "      ", &culprit(&finding.judged, who));
    }
}

fn list(page: &mut Page, checked: &Checked, outcome: Outcome, heading: &str, paint: Paint) {
    let mut findings = checked.findings(outcome).peekable();
    if findings.peek().is_none() {
        return;
    }
    page.gap();
    page.headed(heading, paint, "");
    let several = checked.runs.len() > 1;
    for (of, finding) in findings {
        let whose = if several { format!("; {}", run(&of.run)) } else { String::new() };
        page.indented("  ", "    ", &format!("{}{whose}", sentence(&finding.judged)));
    }
}
