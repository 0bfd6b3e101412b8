//! `check --junit FILE`: a suite for each run, a case for each budget.

use std::io::{self, Write};

use quick_junit::{NonSuccessKind, Report, TestCase, TestCaseStatus, TestSuite};

use super::words::{by_whom, culprit, origin, run, sentence};
use crate::policy::{Checked, CheckedRun, Finding, Outcome};

/// What was found as JUnit XML.
pub fn write_junit(out: &mut dyn Write, checked: &Checked) -> io::Result<()> {
    let mut report = Report::new("gpuoom check");
    for checked_run in &checked.runs {
        let mut suite = TestSuite::new(run(&checked_run.run));
        suite.add_test_cases(checked_run.findings.iter().map(|finding| case(checked, checked_run, finding)));
        report.add_test_suite(suite);
    }
    report.serialize(&mut *out).map_err(io::Error::other)
}

fn case(checked: &Checked, of: &CheckedRun, finding: &Finding) -> TestCase {
    let status = match finding.outcome {
        Outcome::Kept => TestCaseStatus::success(),
        Outcome::Exceeded => {
            let mut status = TestCaseStatus::non_success(NonSuccessKind::Failure);
            status.set_message(sentence(&finding.judged)).set_type("budget").set_description(details(checked, finding));
            status
        }
        Outcome::NotJudged => {
            let mut status = TestCaseStatus::skipped();
            status.set_message(sentence(&finding.judged));
            status
        }
    };
    let mut case = TestCase::new(format!("{}: {}", finding.judged.subject, finding.judged.rule), status);
    case.set_classname(of.run.executable.clone());
    case
}

fn details(checked: &Checked, finding: &Finding) -> String {
    let culprits = finding.judged.culprits.iter().map(|who| format!("  {}", culprit(&finding.judged, who)));
    let culprits: Vec<String> = culprits.collect();
    let by = if culprits.is_empty() { "" } else { by_whom(&finding.judged) };
    format!("{}\n{by}\n{}", origin(checked, finding), culprits.join("\n")).trim_end().to_owned()
}
