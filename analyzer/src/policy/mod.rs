//! What a run may take: rules about metrics, and whether a run keeps them. One language for policies (`check`) and for
//! conditions (`diff --fail-on`).

mod check;
mod evaluate;
mod expression;
mod file;
mod glob;
mod growth;
mod job;
mod metric;
mod quantity;
mod tensors;
#[cfg(test)]
mod tests;

use gpuoom_trace::record::Kind;

pub use check::{Checked, CheckedJob, CheckedRun, Finding, Outcome, Unused, Whose, about_nothing, check, is_about};
pub use evaluate::{Culprit, Judged, Sides, Verdict, judge};
pub use expression::parse as parse_expression;
pub use file::{Budget, MAX_POLICY_BYTES, Policy, PolicyError, Unjudged, parse as parse_policy};
pub use glob::Glob;
pub use job::{Jobs, Together};
pub use metric::{Metric, Per, Unit};
pub use quantity::Quantity;

/// How a number is compared with its limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Comparison {
    /// `<=`
    AtMost,
    /// `<`
    Below,
    /// `>=`
    AtLeast,
    /// `>`
    Above,
    /// `==`
    Equal,
    /// `!=`
    NotEqual,
}

/// Signs, the longer ones first: `<` begins `<=`.
const COMPARISONS: [(&str, Comparison); 6] = [
    ("<=", Comparison::AtMost),
    (">=", Comparison::AtLeast),
    ("==", Comparison::Equal),
    ("!=", Comparison::NotEqual),
    ("<", Comparison::Below),
    (">", Comparison::Above),
];

impl Comparison {
    /// Its sign.
    pub fn sign(self) -> &'static str {
        COMPARISONS.iter().find(|(_, known)| *known == self).map_or("", |(sign, _)| sign)
    }

    /// Whether it holds.
    pub fn holds(self, value: f64, limit: f64) -> bool {
        match self {
            Comparison::AtMost => value <= limit,
            Comparison::Below => value < limit,
            Comparison::AtLeast => value >= limit,
            Comparison::Above => value > limit,
            Comparison::Equal => value == limit,
            Comparison::NotEqual => value != limit,
        }
    }
}

/// What a number is compared with.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Limit {
    /// A number.
    Fixed(Quantity),
    /// The base run's number, and so much more.
    OverBase(Quantity),
}

/// What a rule is about; without any, each device or the whole process, as the metric says.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Scope {
    /// One device, by the program's index.
    pub device: Option<u8>,
    /// The host's pinned and registered memory.
    pub host: bool,
    /// One kind of memory.
    pub kind: Option<Kind>,
    /// Call sites whose keys fit, together.
    pub site: Option<Glob>,
    /// Call sites whose keys fit, each by itself.
    pub each_site: Option<Glob>,
    /// Processes whose executable or script fits.
    pub process: Option<Glob>,
    /// The process with this rank.
    pub rank: Option<u32>,
    /// Labels that fit.
    pub mark: Option<Glob>,
    /// All processes together, where several traces are given.
    pub job: bool,
}

impl Scope {
    /// Whether call sites are looked at.
    pub fn is_of_sites(&self) -> bool {
        self.site.is_some() || self.each_site.is_some() || self.kind.is_some()
    }
}

/// A statement about a run, which is true or not.
#[derive(Clone, Debug, PartialEq)]
pub struct Rule {
    /// What is measured.
    pub metric: Metric,
    /// Of what.
    pub scope: Scope,
    /// How it is compared.
    pub comparison: Comparison,
    /// With what.
    pub limit: Limit,
}

impl Rule {
    /// Whether it needs a base run.
    pub fn needs_base(&self) -> bool {
        matches!(self.limit, Limit::OverBase(_))
    }
}

impl std::fmt::Display for Rule {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}{} {} ", self.metric.name(), self.scope, self.comparison.sign())?;
        match self.limit {
            Limit::Fixed(quantity) => write!(f, "{quantity}"),
            Limit::OverBase(quantity) if quantity.is_nothing() => write!(f, "base"),
            Limit::OverBase(quantity) => write!(f, "base + {quantity}"),
        }
    }
}

impl std::fmt::Display for Scope {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let glob = |name: &str, glob: &Option<Glob>| glob.as_ref().map(|glob| format!("{name}={glob}"));
        let parts = [
            self.device.map(|device| format!("device={device}")),
            self.host.then(|| "host".to_owned()),
            self.kind.map(|kind| format!("kind={}", kind.name())),
            glob("site", &self.site),
            glob("each_site", &self.each_site),
            glob("process", &self.process),
            self.rank.map(|rank| format!("rank={rank}")),
            glob("mark", &self.mark),
            self.job.then(|| "job".to_owned()),
        ];
        let parts: Vec<String> = parts.into_iter().flatten().collect();
        if parts.is_empty() { Ok(()) } else { write!(f, "[{}]", parts.join(",")) }
    }
}
