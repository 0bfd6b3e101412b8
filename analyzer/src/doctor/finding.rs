//! What a check finds.

use serde::Serialize;

use crate::judgement::check::Confidence;

/// How much it matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Severity {
    /// Something is wrong: a run will have less memory than it could, or fail.
    Problem,
    /// Worth knowing; it need not hurt.
    Notice,
}

/// One thing to do.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Fix {
    /// What it does.
    pub text: String,
    /// What to type, a line each.
    pub commands: Vec<String>,
}

/// What a check found.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// How much it matters.
    pub severity: Severity,
    /// The catalogue's entry about it, where there is one.
    pub id: Option<&'static str>,
    /// What is wrong, as half a sentence.
    pub title: String,
    /// How sure it is.
    pub confidence: Confidence,
    /// What was read, with numbers.
    pub evidence: Vec<String>,
    /// What to do, the best first.
    pub fixes: Vec<Fix>,
}

impl Finding {
    /// Something wrong that was read.
    pub(super) fn problem(id: &'static str, title: impl Into<String>) -> Self {
        Finding {
            severity: Severity::Problem,
            id: Some(id),
            title: title.into(),
            confidence: Confidence::Proven,
            evidence: Vec::new(),
            fixes: Vec::new(),
        }
    }

    /// Something worth knowing that was read.
    pub(super) fn notice(id: &'static str, title: impl Into<String>) -> Self {
        Finding { severity: Severity::Notice, ..Finding::problem(id, title) }
    }

    /// Without an entry in the catalogue.
    pub(super) fn uncatalogued(self) -> Self {
        Finding { id: None, ..self }
    }

    pub(super) fn with_confidence(self, confidence: Confidence) -> Self {
        Finding { confidence, ..self }
    }

    pub(super) fn because(mut self, evidence: impl Into<String>) -> Self {
        self.evidence.push(evidence.into());
        self
    }

    pub(super) fn because_of(mut self, evidence: Option<String>) -> Self {
        self.evidence.extend(evidence);
        self
    }

    pub(super) fn fix(mut self, text: impl Into<String>) -> Self {
        self.fixes.push(Fix { text: text.into(), commands: Vec::new() });
        self
    }

    pub(super) fn type_in(mut self, text: impl Into<String>, commands: Vec<String>) -> Self {
        self.fixes.push(Fix { text: text.into(), commands });
        self
    }
}
