//! The sentences about budgets.

use crate::passes::profile::Run;
use crate::policy::{Checked, Culprit, Judged, Outcome, Unit, Unjudged, Unused, Verdict, Whose};
use crate::words;

/// A number in its unit.
pub(super) fn amount(unit: Unit, number: f64) -> String {
    let magnitude = number.abs();
    let sign = if number < 0.0 { "-" } else { "" };
    match unit {
        // As far as 64 bits can count; what is more stays there.
        Unit::Bytes | Unit::Rate => format!("{sign}{}", words::size(magnitude.round() as u64)),
        Unit::Count => format!("{sign}{}", words::grouped(magnitude as u64)),
    }
}

/// What is allowed: `at most 12.00 GiB are allowed`.
fn allowed(judged: &Judged) -> String {
    let Some(limit) = judged.limit else { return judged.rule.clone() };
    let limit = amount(judged.unit, limit);
    let words = match judged.comparison {
        "<=" => "at most",
        "<" => "less than",
        ">=" => "at least",
        ">" => "more than",
        "==" => "exactly",
        _ => "anything but",
    };
    let base = judged.base.map(|base| format!(" (the base run has {})", amount(judged.unit, base)));
    format!("{words} {limit} allowed{}", base.unwrap_or_default())
}

/// What was found about a budget, in one sentence.
pub fn sentence(judged: &Judged) -> String {
    let subject = words::clean(&judged.subject);
    let Some(value) = judged.value.filter(|_| judged.verdict != Verdict::NotJudged) else {
        let because = judged.not_judged_because.as_deref().unwrap_or("the trace does not tell");
        return format!("{subject} ({}): {because}", words::clean(&judged.rule));
    };
    let over = judged.limit.filter(|_| judged.verdict == Verdict::False).map(|limit| value - limit);
    let over = over.filter(|over| *over != 0.0).map(|over| {
        let share =
            judged.limit.filter(|limit| *limit > 0.0).map(|limit| format!(" ({})", words::percent(over.abs() / limit)));
        let by = amount(judged.unit, over.abs());
        format!(", {by}{} too {}", share.unwrap_or_default(), if over > 0.0 { "much" } else { "little" })
    });
    format!("{subject} is {}{}: {}", amount(judged.unit, value), over.unwrap_or_default(), allowed(judged))
}

/// A condition that holds, in one sentence.
pub fn condition(judged: &Judged) -> String {
    let value = judged.value.map(|value| amount(judged.unit, value)).unwrap_or_default();
    let base = judged.base.map(|base| format!(", {} in the base run", amount(judged.unit, base))).unwrap_or_default();
    format!("{}: {} is {value}{base}", words::clean(&judged.rule), words::clean(&judged.subject))
}

/// A call site behind a number.
pub(super) fn culprit(judged: &Judged, culprit: &Culprit) -> String {
    let value = amount(judged.unit, culprit.value);
    match culprit.base {
        Some(base) => format!("{}: {value}, was {}", words::clean(&culprit.key), amount(judged.unit, base)),
        None => format!("{}: {value}", words::clean(&culprit.key)),
    }
}

/// What culprits are, for a heading.
pub(super) fn by_whom(judged: &Judged) -> &'static str {
    let has_base = judged.culprits.iter().any(|culprit| culprit.base.is_some());
    match judged.unit {
        Unit::Rate if judged.of_segments => {
            "most live at the end (a segment of PyTorch's counts for the place that needed it first; GROWTH of the report says \
             whether tensors hold more, and which lines)"
        }
        Unit::Rate if judged.of_blocks => "most held at the last step that was judged",
        Unit::Rate => "most live at the end",
        // Who asked the runtime for a segment is not who keeps what lies in it.
        _ if has_base && judged.of_segments => {
            "grew most (a segment of PyTorch's counts for the place that needed it first; \
                                                `tensors` names the lines that hold them)"
        }
        _ if judged.of_segments => {
            "most of it (a segment of PyTorch's counts for the place that needed it first; `tensors` names \
                                    the lines that hold them)"
        }
        _ if has_base => "grew most",
        _ => "most of it",
    }
}

/// Whom a finding is about.
pub(super) fn whose(whose: Whose<'_>) -> String {
    match whose {
        Whose::Run(of) => run(of),
        Whose::Job(processes) => {
            format!("all traces together ({})", words::count(processes as u64, "process", "processes"))
        }
    }
}

/// What an author of a policy is to know of limits that were not judged; empty where there are none.
pub(super) fn about_unjudged(checked: &Checked) -> &'static str {
    match (checked.not_judged(), checked.unjudged) {
        (0, _) => "",
        (_, Unjudged::Fail) => "nothing was compared with these limits, which fails the check (unjudged = \"fail\")",
        (_, Unjudged::Warn) => {
            "nothing was compared with these limits, and the check does not fail for it; with unjudged = \"fail\" at the top of the \
             policy it does"
        }
    }
}

/// A budget that was applied to nothing, in one sentence.
pub(super) fn unused(unused: &Unused) -> String {
    format!("{}: {}", words::clean(&unused.rule), words::clean(&unused.because))
}

/// A run: program, rank, trace.
pub(super) fn run(run: &Run) -> String {
    let rank = words::rank(run.rank);
    let script = run.script.as_ref().map_or(String::new(), |script| format!(" {}", words::clean(script)));
    let program = if run.executable.is_empty() { "unknown program" } else { &run.executable };
    format!("{}{script}{rank} ({})", words::clean(program), words::clean(&run.path))
}

/// Where a budget stands: `the card of our users (policy.toml, line 4)`.
pub(super) fn origin(checked: &Checked, name: Option<&String>, line: usize) -> String {
    let place = format!("{}, line {line}", words::clean(&checked.policy));
    match name {
        Some(name) => format!("{} ({place})", words::clean(name)),
        None => place,
    }
}

/// All in one sentence.
pub(super) fn verdict(checked: &Checked) -> String {
    let count = |outcome| checked.findings(outcome).count() as u64;
    let (kept, exceeded, open) = (count(Outcome::Kept), count(Outcome::Exceeded), checked.not_judged() as u64);
    let mut parts = Vec::new();
    if exceeded > 0 {
        parts.push(format!("{} exceeded", words::count(exceeded, "budget is", "budgets are")));
    }
    if kept > 0 || exceeded == 0 && open == 0 {
        parts.push(match exceeded {
            0 => format!("{} kept", words::count(kept, "budget is", "budgets are")),
            _ => format!("{} kept", words::grouped(kept)),
        });
    }
    if open > 0 {
        let fails = if checked.fails_unjudged() { ", which fails the check" } else { "" };
        parts.push(match parts.is_empty() {
            true => format!("{} NOT JUDGED{fails}", words::count(open, "budget is", "budgets are")),
            false => format!("{} NOT JUDGED{fails}", words::grouped(open)),
        });
    }
    format!("{}.", parts.join(", "))
}
