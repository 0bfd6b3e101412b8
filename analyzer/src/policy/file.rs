//! Policies as files: TOML, a table for each budget.

use std::fmt;

use serde::Serialize;
use thiserror::Error;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::expression::{SCOPES, check, set};
use super::metric::unknown;
use super::{Comparison, Limit, Metric, Quantity, Rule, Scope};
use crate::words;

/// Largest file that is read.
pub const MAX_POLICY_BYTES: u64 = 1 << 20;
/// Most rules in a policy.
const MAX_RULES: usize = 10_000;
/// Keys of the whole file.
const TOP: [&str; 3] = ["baseline", "unjudged", "budget"];
/// Keys of a limit that is a table.
const LIMITS: [&str; 3] = ["max", "min", "max_growth"];

/// A rule that a run must keep, and where it stands.
#[derive(Clone, Debug, PartialEq)]
pub struct Budget {
    /// The rule.
    pub rule: Rule,
    /// What the author calls it.
    pub name: Option<String>,
    /// Line in the file, counted from 1.
    pub line: usize,
}

/// What becomes of a limit that no trace can judge.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Unjudged {
    /// It is said, and the check does not fail.
    #[default]
    Warn,
    /// The check fails.
    Fail,
}

/// All of a file.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Policy {
    /// What becomes of a limit that no trace can judge.
    pub unjudged: Unjudged,
    /// Trace of the base run, as it is written: relative to the file.
    pub baseline: Option<String>,
    /// What a run must keep, in the order of the file.
    pub budgets: Vec<Budget>,
}

/// Why a file is no policy.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub struct PolicyError {
    /// Line, counted from 1.
    pub line: usize,
    /// What is wrong, and what is expected.
    pub reason: String,
}

impl fmt::Display for PolicyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}: {}", self.line, self.reason)
    }
}

/// Reads a policy.
///
/// # Errors
/// The first thing that is wrong, with its line: no TOML, an unknown key, a value that makes no sense.
pub fn parse(text: &str) -> Result<Policy, PolicyError> {
    let reader = Reader::new(text);
    let document = DeTable::parse(text).map_err(|error| {
        let at = error.span().map_or(0, |span| span.start);
        reader.error(at, format!("no TOML: {}", words::shorten(&words::clean(error.message()), 200)))
    })?;
    let mut policy = Policy::default();
    for (key, value) in document.get_ref().iter() {
        match &key.get_ref()[..] {
            "baseline" => policy.baseline = Some(reader.text(value)?.to_owned()),
            "unjudged" => policy.unjudged = reader.unjudged(value)?,
            "budget" => reader.budgets(value, &mut policy.budgets)?,
            other => return Err(reader.error(key.span().start, unknown("key", other, TOP.into_iter()))),
        }
    }
    policy.budgets.sort_by_key(|budget| budget.line);
    if policy.budgets.is_empty() {
        let reason = "the policy limits nothing: write [[budget]] and below it, for example, dropped = 0";
        return Err(PolicyError { line: 1, reason: reason.to_owned() });
    }
    Ok(policy)
}

/// Finds the line of a place in a text.
struct Reader {
    /// Where lines end.
    line_ends: Vec<usize>,
}

impl Reader {
    fn new(text: &str) -> Self {
        Reader { line_ends: text.bytes().enumerate().filter(|(_, byte)| *byte == b'\n').map(|(at, _)| at).collect() }
    }

    fn line(&self, at: usize) -> usize {
        1 + self.line_ends.partition_point(|end| *end < at)
    }

    fn error(&self, at: usize, reason: impl Into<String>) -> PolicyError {
        PolicyError { line: self.line(at), reason: reason.into() }
    }

    fn text<'v>(&self, value: &'v Spanned<DeValue<'_>>) -> Result<&'v str, PolicyError> {
        match value.get_ref() {
            DeValue::String(text) => Ok(text),
            other => Err(self.error(value.span().start, format!("a text in quotes is expected, not {}", sort(other)))),
        }
    }

    fn unjudged(&self, value: &Spanned<DeValue<'_>>) -> Result<Unjudged, PolicyError> {
        match self.text(value)? {
            "warn" => Ok(Unjudged::Warn),
            "fail" => Ok(Unjudged::Fail),
            other => {
                let reason = unknown("way to treat what can't be judged", other, ["warn", "fail"].into_iter());
                Err(self.error(value.span().start, reason))
            }
        }
    }

    fn budgets(&self, value: &Spanned<DeValue<'_>>, budgets: &mut Vec<Budget>) -> Result<(), PolicyError> {
        let expected = "budgets are written as [[budget]], in two pairs of brackets, each with its limits below";
        let DeValue::Array(list) = value.get_ref() else { return Err(self.error(value.span().start, expected)) };
        for budget in list.iter() {
            let DeValue::Table(table) = budget.get_ref() else {
                return Err(self.error(budget.span().start, expected));
            };
            self.budget(table, budget.span().start, budgets)?;
        }
        Ok(())
    }

    fn budget(&self, table: &DeTable<'_>, at: usize, budgets: &mut Vec<Budget>) -> Result<(), PolicyError> {
        let (mut scope, mut name, mut limits) = (Scope::default(), None, Vec::new());
        for (key, value) in table.iter() {
            let word = &key.get_ref()[..];
            if word == "name" {
                name = Some(self.text(value)?.to_owned());
            } else if SCOPES.contains(&word) {
                let given = self.scalar(value)?;
                set(&mut scope, word, Some(&given)).map_err(|reason| self.error(value.span().start, reason))?;
            } else {
                let known = Metric::names().chain(SCOPES).chain(["name"]);
                let metric =
                    Metric::named(word).map_err(|_| self.error(key.span().start, unknown("key", word, known)))?;
                limits.push((metric, value));
            }
        }
        if limits.is_empty() {
            return Err(self.error(at, "this budget limits nothing: write, for example, peak = \"12G\""));
        }
        for (metric, value) in limits {
            self.limits(metric, &scope, name.as_ref(), value, budgets)?;
        }
        Ok(())
    }

    /// `peak = "12G"`, `peak = "base + 5%"`, `peak = { max = "12G", max_growth = "5%" }`.
    fn limits(
        &self,
        metric: Metric,
        scope: &Scope,
        name: Option<&String>,
        value: &Spanned<DeValue<'_>>,
        budgets: &mut Vec<Budget>,
    ) -> Result<(), PolicyError> {
        let mut add = |at: usize, comparison, limit| {
            let rule = Rule { metric, scope: scope.clone(), comparison, limit };
            check(&rule).map_err(|reason| self.error(at, reason))?;
            if budgets.len() == MAX_RULES {
                return Err(self.error(at, format!("more than {MAX_RULES} limits in one policy")));
            }
            budgets.push(Budget { rule, name: name.cloned(), line: self.line(at) });
            Ok(())
        };
        let DeValue::Table(table) = value.get_ref() else {
            let at = value.span().start;
            let limit = self.number(metric, value, Quantity::parse)?;
            return add(at, Comparison::AtMost, Limit::Fixed(limit));
        };
        if table.is_empty() {
            return Err(self.error(value.span().start, "no limit is given: write max, min or max_growth"));
        }
        for (key, value) in table.iter() {
            let (comparison, limit) = match &key.get_ref()[..] {
                "max" => (Comparison::AtMost, Limit::Fixed(self.number(metric, value, Quantity::parse)?)),
                "min" => (Comparison::AtLeast, Limit::Fixed(self.number(metric, value, Quantity::parse)?)),
                "max_growth" => {
                    (Comparison::AtMost, Limit::OverBase(self.number(metric, value, Quantity::parse_growth)?))
                }
                other => return Err(self.error(key.span().start, unknown("key", other, LIMITS.into_iter()))),
            };
            add(key.span().start, comparison, limit)?;
        }
        Ok(())
    }

    fn number(
        &self,
        metric: Metric,
        value: &Spanned<DeValue<'_>>,
        parse: fn(&str, super::Unit) -> Result<Quantity, String>,
    ) -> Result<Quantity, PolicyError> {
        let text = self.scalar(value)?;
        let share = |reason: String| match text.trim().ends_with('%') && !reason.contains("no share") {
            true => format!(
                "'{}' is a share of nothing: write {{ max_growth = \"{}\" }} to compare with a baseline",
                words::clean(&text),
                words::clean(&text)
            ),
            false => reason,
        };
        parse(&text, metric.unit())
            .map_err(|reason| self.error(value.span().start, format!("{}: {}", metric.name(), share(reason))))
    }

    /// A text or a number as it is written.
    fn scalar(&self, value: &Spanned<DeValue<'_>>) -> Result<String, PolicyError> {
        Ok(match value.get_ref() {
            DeValue::String(text) => text.to_string(),
            DeValue::Integer(number) if number.radix() == 10 => number.as_str().to_owned(),
            DeValue::Float(number) => number.as_str().to_owned(),
            DeValue::Boolean(truth) => truth.to_string(),
            other => {
                let reason = format!("a number or a text in quotes is expected, not {}", sort(other));
                return Err(self.error(value.span().start, reason));
            }
        })
    }
}

/// What a value is, in words.
fn sort(value: &DeValue<'_>) -> &'static str {
    match value {
        DeValue::String(_) => "a text",
        DeValue::Integer(_) => "a number",
        DeValue::Float(_) => "a fraction",
        DeValue::Boolean(_) => "true or false",
        DeValue::Datetime(_) => "a date",
        DeValue::Array(_) => "a list",
        DeValue::Table(_) => "a table",
    }
}

#[cfg(test)]
mod tests {
    use gpuoom_trace::record::Kind;

    use super::*;

    fn rules(text: &str) -> Vec<(usize, String)> {
        let policy = parse(text).unwrap();
        policy.budgets.iter().map(|budget| (budget.line, budget.rule.to_string())).collect()
    }

    fn error(text: &str) -> String {
        parse(text).unwrap_err().to_string()
    }

    #[test]
    fn budgets_become_rules() {
        let text = r#"
baseline = "main.trace.bin"

[[budget]]
name = "the card of our users"
peak = { max = "12G", max_growth = "5%" }
dropped = 0

[[budget]]
device = 1
site = "*libtorch*"
peak = "1.5G"
"#;
        assert_eq!(
            rules(text),
            [
                (6, "peak <= 12G".to_owned()),
                (6, "peak <= base + 5%".to_owned()),
                (7, "dropped <= 0".to_owned()),
                (12, "peak[device=1,site=*libtorch*] <= 1536M".to_owned()),
            ]
        );
        let policy = parse(text).unwrap();
        assert_eq!(policy.baseline.as_deref(), Some("main.trace.bin"));
        assert_eq!(policy.budgets[0].name.as_deref(), Some("the card of our users"));
    }

    #[test]
    fn what_cant_be_judged_warns_unless_it_is_to_fail() {
        let of = |text: &str| parse(&format!("{text}\n[[budget]]\njob = true\npeak = 1")).unwrap();
        assert_eq!(of("").unjudged, Unjudged::Warn);
        assert_eq!(of("unjudged = \"warn\"").unjudged, Unjudged::Warn);
        assert_eq!(of("unjudged = \"fail\"").unjudged, Unjudged::Fail);
        assert_eq!(of("").budgets[0].rule.to_string(), "peak[job] <= 1");
    }

    #[test]
    fn what_is_wrong_has_its_line_and_a_next_step() {
        for (text, says) in [
            ("", "line 1: the policy limits nothing"),
            ("[[budget]]\npeek = 1", "line 2: unknown key 'peek': do you mean 'peak'?"),
            ("\n[[budgets]]\npeak = 1", "line 2: unknown key 'budgets': do you mean 'budget'?"),
            ("[budget]\npeak = 1", "line 1: budgets are written as [[budget]]"),
            ("budget = 3", "line 1: budgets are written as [[budget]]"),
            ("[[budget]]\nname = \"x\"", "line 1: this budget limits nothing"),
            ("[[budget]]\npeak = -1", "line 2: peak: invalid size '-1'"),
            ("[[budget]]\npeak = nan", "line 2: peak: invalid size 'nan'"),
            ("[[budget]]\npeak = inf", "line 2: peak: invalid size 'inf'"),
            ("[[budget]]\npeak = 1e400", "line 2: peak: invalid size '1e400'"),
            ("[[budget]]\npeak = \"12 apples\"", "line 2: peak: invalid size '12 apples'"),
            ("[[budget]]\ndropped = \"3M\"", "line 2: dropped: '3M' is no count"),
            ("[[budget]]\ndropped = 0.5", "line 2: dropped: '0.5' is no count"),
            ("[[budget]]\npeak = \"5%\"", "write { max_growth = \"5%\" }"),
            ("[[budget]]\npeak = {}", "line 2: no limit is given"),
            ("[[budget]]\npeak = { most = 1 }", "line 2: unknown key 'most': there are max, min, max_growth"),
            ("[[budget]]\npeak = { max_growth = \"-5%\" }", "line 2: peak: '-5%' is no share"),
            ("[[budget]]\npeak = [1]", "line 2: a number or a text in quotes is expected, not a list"),
            ("[[budget]]\npeak = 1979-05-27", "not a date"),
            ("[[budget]]\npeak = 1\ndevice = -1", "line 3: device is the number of a device"),
            (
                "[[budget]]\npeak = 1\nkind = \"devise\"",
                "line 3: unknown kind of memory 'devise': do you mean 'device'?",
            ),
            ("[[budget]]\npeak = 1\nsite = \"\"", "line 3: an empty pattern"),
            ("[[budget]]\npeak = 1\nmark = \"x\"", "line 2: mark belongs to growth_per_mark"),
            ("[[budget]]\nevents_lost = 0\ndevice = 1", "line 2: events_lost is a number of the whole process"),
            ("[[budget]]\npeak = 1\npeak = 2", "line 3: no TOML: duplicate key"),
            ("[[budget\npeak = 1", "line 1: no TOML"),
            ("baseline = 3", "line 1: a text in quotes is expected, not a number"),
            (
                "unjudged = \"fial\"\n[[budget]]\npeak = 1",
                "line 1: unknown way to treat what can't be judged 'fial': do you mean 'fail'?",
            ),
            ("unjudged = true\n[[budget]]\npeak = 1", "line 1: a text in quotes is expected, not true or false"),
            ("[[budget]]\njob = 3\npeak = 1", "line 2: job stands by itself, or with true or false"),
            ("[[budget]]\njob = true\nsite = \"*\"\npeak = 1", "line 4: a job is of whole processes"),
            ("[[budget]]\njob = true\npinned = 1", "line 3: pinned is known of each process only"),
            ("[[budget]]\njob = true\ngrowth_per_mark = 1", "line 3: growth_per_mark is known of each process only"),
        ] {
            let error = error(text);
            assert!(error.contains(says), "{text:?}: {error}");
        }
    }

    #[test]
    fn hostile_files_end_in_a_sentence() {
        let deep = format!("baseline = {}{}", "[".repeat(100_000), "]".repeat(100_000));
        let dotted = format!("{}a = 1", "a.".repeat(100_000));
        let many = format!("[[budget]]\npeak = 1\n{}", "[[budget]]\npeak = 1\n".repeat(MAX_RULES));
        let long = format!("[[budget]]\n{} = 1", "x".repeat(500_000));
        for text in [deep, dotted, many, long] {
            let error = error(&text);
            assert!(error.len() < 1000, "{error}");
        }
        assert_eq!(error("[[budget]]\n\"pe\\u001b[31mak\" = 1").matches('\u{1b}').count(), 0);
    }

    #[test]
    fn kinds_have_the_names_of_the_report() {
        let policy = parse("[[budget]]\npeak = 1\nkind = \"host-pinned\"").unwrap();
        assert_eq!(policy.budgets[0].rule.scope.kind, Some(Kind::HostPinned));
    }
}
