//! What part a diagnosis plays in the story of a run.

use serde::{Deserialize, Serialize};

/// What part a diagnosis plays.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// It explains a failure, or how the run ended.
    Cause,
    /// It says when in the run a failure came.
    Shape,
    /// It makes a failure worse: what the program did with it.
    Severity,
    /// It is there, and explains nothing by itself.
    Condition,
    /// It says what something that looks bad is not.
    Refutation,
}

impl Role {
    /// As it is written.
    pub fn name(self) -> &'static str {
        match self {
            Role::Cause => "cause",
            Role::Shape => "shape",
            Role::Severity => "severity",
            Role::Condition => "condition",
            Role::Refutation => "refutation",
        }
    }

    /// Whether it can be the reason of a failure.
    pub fn explains(self) -> bool {
        matches!(self, Role::Cause | Role::Shape)
    }
}
