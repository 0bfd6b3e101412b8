//! `check --format markdown`: a summary of a job, or a comment in a pull request.

use super::words::{about_unjudged, by_whom, culprit, origin, run, sentence, unused, verdict, whose};
use crate::policy::{Checked, Finding, Outcome, Whose};
use crate::report::markdown::page::{Markdown, plain};

/// What was found as Markdown.
pub fn write_markdown(checked: &Checked) -> String {
    let mut page = Markdown::default();
    let state = match (checked.is_kept(), checked.fails_unjudged(), checked.not_judged()) {
        (true, _, 0) => "budgets kept",
        (true, ..) => "budgets kept as far as they were judged",
        (false, true, _) if checked.findings(Outcome::Exceeded).next().is_none() => "budgets not judged",
        (false, ..) => "budgets exceeded",
    };
    page.heading(3, &format!("GPU memory: {state}"));
    page.paragraph(&plain(&verdict(checked)));
    for (of, note) in checked.runs.iter().flat_map(|run| run.notes.iter().map(move |note| (run, note))) {
        let whose = if checked.runs.len() > 1 { format!("{}: ", run(&of.run)) } else { String::new() };
        page.note(&plain(&format!("{whose}{note}")));
    }
    for (of, finding) in checked.findings(Outcome::Exceeded) {
        exceeded(&mut page, checked, of, finding);
    }
    // What nobody can tell is not folded away: it looks like a budget, and is none.
    let mut open = lines(checked, Outcome::NotJudged);
    open.extend(checked.unused.iter().map(|budget| {
        let place = origin(checked, budget.name.as_ref(), budget.line);
        format!("{} <sub>{}</sub>", plain(&unused(budget)), plain(&place))
    }));
    if !open.is_empty() {
        page.paragraph(&format!("**Not judged**: {}", plain(about_unjudged(checked))));
        page.list(false, &open);
    }
    let kept = lines(checked, Outcome::Kept);
    if !kept.is_empty() {
        page.details(&format!("{} kept", kept.len()), |page| page.list(false, &kept));
    }
    page.into_text()
}

fn lines(checked: &Checked, outcome: Outcome) -> Vec<String> {
    let line = |(of, finding): (Whose<'_>, &Finding)| {
        format!("{} <sub>{}</sub>", plain(&sentence(&finding.judged)), plain(&whose(of)))
    };
    checked.findings(outcome).map(line).collect()
}

fn exceeded(page: &mut Markdown, checked: &Checked, of: Whose<'_>, finding: &Finding) {
    page.paragraph(&format!(
        "**{}**  \n<sub>{}; {}</sub>",
        plain(&sentence(&finding.judged)),
        plain(&origin(checked, finding.name.as_ref(), finding.line)),
        plain(&whose(of))
    ));
    if !finding.judged.culprits.is_empty() {
        page.paragraph(&format!("{}:", by_whom(&finding.judged)));
    }
    let culprits: Vec<String> =
        finding.judged.culprits.iter().map(|who| plain(&culprit(&finding.judged, who))).collect();
    page.list(false, &culprits);
}
