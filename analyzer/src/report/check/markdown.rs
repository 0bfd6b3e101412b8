//! `check --format markdown`: a summary of a job, or a comment in a pull request.

use std::fmt::Write;

use super::words::{by_whom, culprit, origin, run, sentence, verdict};
use crate::policy::{Checked, CheckedRun, Finding, Outcome};
use crate::report::diff::markdown::{code, escape};

/// What was found as Markdown.
pub fn write_markdown(checked: &Checked) -> String {
    let state = if checked.is_kept() { "budgets kept" } else { "budgets exceeded" };
    let mut out = format!("### GPU memory: {state}\n\n{}\n", escape(&verdict(checked)));
    for (of, note) in checked.runs.iter().flat_map(|run| run.notes.iter().map(move |note| (run, note))) {
        let whose = if checked.runs.len() > 1 { format!("{}: ", run(&of.run)) } else { String::new() };
        let _ = write!(out, "\n> **Note:** {}\n", escape(&format!("{whose}{note}")));
    }
    for (of, finding) in checked.findings(Outcome::Exceeded) {
        exceeded(&mut out, checked, of, finding);
    }
    let rest = [(Outcome::NotJudged, "not judged"), (Outcome::Kept, "kept")];
    for (outcome, heading) in rest {
        let findings: Vec<_> = checked.findings(outcome).collect();
        if findings.is_empty() {
            continue;
        }
        let _ = write!(out, "\n<details><summary>{} {heading}</summary>\n\n", findings.len());
        for (of, finding) in findings {
            let _ = writeln!(out, "- {} <sub>{}</sub>", escape(&sentence(&finding.judged)), escape(&run(&of.run)));
        }
        out.push_str("\n</details>\n");
    }
    for unused in &checked.unused {
        let _ = write!(
            out,
            "\n> **Note:** `{}` (line {}): no trace is of such a process.\n",
            code(&unused.rule),
            unused.line
        );
    }
    out
}

fn exceeded(out: &mut String, checked: &Checked, of: &CheckedRun, finding: &Finding) {
    let _ = write!(
        out,
        "\n**{}**  \n<sub>{}; {}</sub>\n",
        escape(&sentence(&finding.judged)),
        escape(&origin(checked, finding)),
        escape(&run(&of.run))
    );
    if !finding.judged.culprits.is_empty() {
        let _ = write!(out, "\n{}:\n\n", by_whom(&finding.judged));
    }
    for who in &finding.judged.culprits {
        let _ = writeln!(out, "- {}", escape(&culprit(&finding.judged, who)));
    }
}
