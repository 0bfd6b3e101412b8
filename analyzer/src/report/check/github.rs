//! Annotations of GitHub Actions: workflow commands, a line each, that the runner takes from the output of a step.
//!
//! Source of the escapes: actions/toolkit `packages/core/src/command.ts` (`escapeData`, `escapeProperty`).

use std::io::{self, Write};

use super::words::{by_whom, culprit, run, sentence};
use crate::policy::{Checked, Outcome};
use crate::words;

/// GitHub shows ten errors of a step; the rest would be lost without a word.
const MOST_ERRORS: usize = 10;

/// An error for each budget that is exceeded, a notice for what was not judged.
pub fn write_github(out: &mut dyn Write, checked: &Checked) -> io::Result<()> {
    let exceeded: Vec<_> = checked.findings(Outcome::Exceeded).collect();
    let listed = if exceeded.len() > MOST_ERRORS { MOST_ERRORS - 1 } else { exceeded.len() };
    for (of, finding) in &exceeded[..listed] {
        let title = finding.name.clone().unwrap_or_else(|| format!("GPU memory: {}", finding.judged.rule));
        let culprits = finding.judged.culprits.iter().map(|who| format!("\n  {}", culprit(&finding.judged, who)));
        let culprits: String = culprits.collect();
        let by = if culprits.is_empty() { String::new() } else { format!("\n{}:", by_whom(&finding.judged)) };
        let message = format!("{}; {}{by}{culprits}", sentence(&finding.judged), run(&of.run));
        error(out, &checked.policy, finding.line, &words::clean(&title), &message)?;
    }
    if listed < exceeded.len() {
        let more = words::count((exceeded.len() - listed) as u64, "more budget is", "more budgets are");
        error(out, &checked.policy, 1, "GPU memory", &format!("{more} exceeded: the log has all of them"))?;
    }
    for (_, finding) in checked.findings(Outcome::NotJudged).take(MOST_ERRORS) {
        writeln!(out, "::notice title=GPU memory::not judged: {}", data(&sentence(&finding.judged)))?;
    }
    Ok(())
}

fn error(out: &mut dyn Write, file: &str, line: usize, title: &str, message: &str) -> io::Result<()> {
    writeln!(out, "::error file={},line={line},title={}::{}", property(file), property(title), data(message))
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
