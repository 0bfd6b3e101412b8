//! `check --junit FILE`: a suite for each run, a case for each budget.

use std::io::{self, Write};

use quick_junit::{NonSuccessKind, Report, TestCase, TestCaseStatus, TestSuite};

use super::words::{by_whom, culprit, origin, run, sentence, unused, whose};
use crate::policy::{Checked, Finding, Outcome, Unjudged, Whose};

/// What was found as JUnit XML.
pub fn write_junit(out: &mut dyn Write, checked: &Checked) -> io::Result<()> {
    let mut report = Report::new("gpuoom check");
    for checked_run in &checked.runs {
        let mut suite = TestSuite::new(run(&checked_run.run));
        let cases = checked_run.findings.iter();
        suite.add_test_cases(cases.map(|finding| case(checked, &checked_run.run.executable, finding)));
        report.add_test_suite(suite);
    }
    if let Some(job) = &checked.job {
        let mut suite = TestSuite::new(whose(Whose::Job(job.processes)));
        suite.add_test_cases(job.findings.iter().map(|finding| case(checked, "job", finding)));
        report.add_test_suite(suite);
    }
    if !checked.unused.is_empty() {
        let mut suite = TestSuite::new("budgets that were applied to nothing");
        suite.add_test_cases(checked.unused.iter().map(|budget| {
            let status = not_judged(checked, unused(budget), &origin(checked, budget.name.as_ref(), budget.line));
            let mut case = TestCase::new(budget.rule.clone(), status);
            case.set_classname("policy");
            case
        }));
        report.add_test_suite(suite);
    }
    report.serialize(&mut *out).map_err(io::Error::other)
}

fn case(checked: &Checked, class: &str, finding: &Finding) -> TestCase {
    let place = origin(checked, finding.name.as_ref(), finding.line);
    let status = match finding.outcome {
        Outcome::Kept => TestCaseStatus::success(),
        Outcome::Exceeded => {
            let mut status = TestCaseStatus::non_success(NonSuccessKind::Failure);
            status.set_message(sentence(&finding.judged)).set_type("budget").set_description(details(&place, finding));
            status
        }
        Outcome::NotJudged => not_judged(checked, sentence(&finding.judged), &place),
    };
    let mut case = TestCase::new(format!("{}: {}", finding.judged.subject, finding.judged.rule), status);
    case.set_classname(class);
    case
}

/// Skipped, or failed where the policy demands that all be judged.
fn not_judged(checked: &Checked, message: String, place: &str) -> TestCaseStatus {
    let mut status = match checked.unjudged {
        Unjudged::Warn => TestCaseStatus::skipped(),
        Unjudged::Fail => TestCaseStatus::non_success(NonSuccessKind::Failure),
    };
    status.set_message(message).set_type("not judged").set_description(place);
    status
}

fn details(place: &str, finding: &Finding) -> String {
    let culprits = finding.judged.culprits.iter().map(|who| format!("  {}", culprit(&finding.judged, who)));
    let culprits: Vec<String> = culprits.collect();
    let by = if culprits.is_empty() { "" } else { by_whom(&finding.judged) };
    format!("{place}\n{by}\n{}", culprits.join("\n")).trim_end().to_owned()
}
