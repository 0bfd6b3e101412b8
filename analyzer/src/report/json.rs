//! `report --format json`.

use std::io::{self, Write};

use serde::Serialize;

use crate::conclusion::Summary;
use crate::conclusion::finding::{Excluded, Finding};
use crate::conclusion::ladder::Ladder;
use crate::conclusion::verdict::Verdict;
use crate::conclusion::warnings::Warning;
use crate::job::Job;
use crate::passes::facts::Facts;
use crate::passes::oom::OomReport;

/// Name and version of the JSON.
pub const SCHEMA: &str = "gpuoom.report/1";

#[derive(Serialize)]
struct One<'a> {
    schema: &'static str,
    #[serde(flatten)]
    report: Report<'a>,
}

#[derive(Serialize)]
struct Many<'a> {
    schema: &'static str,
    job: &'a Job,
    traces: Vec<Report<'a>>,
}

/// One trace: its facts and what was concluded from them, with each failure's cause beside it.
#[derive(Serialize)]
struct Report<'a> {
    verdict: &'a Verdict,
    #[serde(flatten)]
    facts: &'a Facts,
    ooms: Vec<Oom<'a>>,
    diagnoses: &'a [Finding],
    diagnoses_excluded: &'a [Excluded],
    ladder: &'a Ladder,
    ooms_not_diagnosed: u64,
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    would_settle: &'a [String],
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    warnings: &'a [Warning],
}

#[derive(Serialize)]
struct Oom<'a> {
    #[serde(flatten)]
    oom: &'a OomReport,
    cause: Option<&'static str>,
}

impl<'a> Report<'a> {
    fn new(summary: &'a Summary) -> Self {
        let Summary { facts, conclusion } = summary;
        Report {
            verdict: &conclusion.verdict,
            facts,
            ooms: facts.ooms.iter().zip(&conclusion.causes).map(|(oom, cause)| Oom { oom, cause: *cause }).collect(),
            diagnoses: &conclusion.findings,
            diagnoses_excluded: &conclusion.excluded,
            ladder: &conclusion.ladder,
            ooms_not_diagnosed: conclusion.ooms_not_diagnosed,
            would_settle: &conclusion.would_settle,
            warnings: &conclusion.warnings,
        }
    }
}

/// One object for one trace.
pub fn write_one(out: &mut dyn Write, summary: &Summary) -> io::Result<()> {
    serde_json::to_writer_pretty(&mut *out, &One { schema: SCHEMA, report: Report::new(summary) })?;
    writeln!(out)
}

/// An object with the job and a list for several.
pub fn write_job(out: &mut dyn Write, job: &Job, traces: &[Summary]) -> io::Result<()> {
    let traces = traces.iter().map(Report::new).collect();
    serde_json::to_writer_pretty(&mut *out, &Many { schema: SCHEMA, job, traces })?;
    writeln!(out)
}
