//! Annotations of GitHub Actions: workflow commands, a line each, that the runner takes from the output of a step.
//!
//! Source of the escapes: actions/toolkit `packages/core/src/command.ts` (`escapeData`, `escapeProperty`).

use std::io::{self, Write};

use super::words::{by_whom, culprit, sentence, unused, whose};
use crate::policy::{Checked, Finding, Outcome, Whose};
use crate::words;

/// GitHub shows ten errors and ten warnings of a step; the rest would be lost without a word.
const MOST: usize = 10;

/// One annotation of the policy's line.
struct Annotation {
    line: usize,
    title: String,
    message: String,
}

/// An error for each budget that is exceeded; for what was not judged a warning, or an error where the policy demands that.
pub fn write_github(out: &mut dyn Write, checked: &Checked) -> io::Result<()> {
    let exceeded: Vec<Annotation> =
        checked.findings(Outcome::Exceeded).map(|(of, found)| exceeded(of, found)).collect();
    let open = checked.findings(Outcome::NotJudged).map(|(of, finding)| Annotation {
        line: finding.line,
        title: title(finding.name.as_ref(), "not judged"),
        message: format!("{}; {}", sentence(&finding.judged), whose(of)),
    });
    let unused = checked.unused.iter().map(|budget| Annotation {
        line: budget.line,
        title: title(budget.name.as_ref(), "not judged"),
        message: unused(budget),
    });
    let open: Vec<Annotation> = open.chain(unused).collect();
    let level = if checked.fails_unjudged() { "error" } else { "warning" };
    annotate(out, checked, "error", &exceeded, ("more budget is exceeded", "more budgets are exceeded"))?;
    annotate(out, checked, level, &open, ("more limit was not judged", "more limits were not judged"))
}

fn title(name: Option<&String>, otherwise: &str) -> String {
    name.map_or_else(|| format!("GPU memory: {otherwise}"), |name| words::clean(name))
}

fn exceeded(of: Whose<'_>, finding: &Finding) -> Annotation {
    let culprits = finding.judged.culprits.iter().map(|who| format!("\n  {}", culprit(&finding.judged, who)));
    let culprits: String = culprits.collect();
    let by = if culprits.is_empty() { String::new() } else { format!("\n{}:", by_whom(&finding.judged)) };
    let message = format!("{}; {}{by}{culprits}", sentence(&finding.judged), whose(of));
    Annotation { line: finding.line, title: title(finding.name.as_ref(), &finding.judged.rule), message }
}

/// As many as are shown; the last one counts the rest.
fn annotate(
    out: &mut dyn Write,
    checked: &Checked,
    level: &str,
    all: &[Annotation],
    (one, many): (&str, &str),
) -> io::Result<()> {
    let listed = if all.len() > MOST { MOST - 1 } else { all.len() };
    for Annotation { line, title, message } in &all[..listed] {
        write_one(out, level, &checked.policy, *line, title, message)?;
    }
    if listed < all.len() {
        let more = words::count((all.len() - listed) as u64, one, many);
        write_one(out, level, &checked.policy, 1, "GPU memory", &format!("{more}: the log has all of them"))?;
    }
    Ok(())
}

fn write_one(out: &mut dyn Write, level: &str, file: &str, line: usize, title: &str, message: &str) -> io::Result<()> {
    writeln!(out, "::{level} file={},line={line},title={}::{}", property(file), property(title), data(message))
}

/// A message: what would end the line or begin an escape.
fn data(text: &str) -> String {
    text.replace('%', "%25").replace('\r', "%0D").replace('\n', "%0A")
}

/// A property: also what would end it.
fn property(text: &str) -> String {
    data(text).replace(':', "%3A").replace(',', "%2C")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_in_a_text_is_a_command() {
        assert_eq!(data("50 % of\r\n::error::x"), "50 %25 of%0D%0A::error::x");
        assert_eq!(property("a:b,c%\n"), "a%3Ab%2Cc%25%0A");
    }
}
