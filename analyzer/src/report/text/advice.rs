//! What to do next.

use crate::diagnosis::check::Confidence;
use crate::diagnosis::finding::{Finding, Role};
use crate::diagnosis::ladder::{Ladder, Step};
use crate::passes::advice::{Advice, advise};
use crate::passes::summary::Summary;
use crate::passes::verdict::Verdict;
use crate::report::page::{Page, Paint};
use crate::words::{clean, moment, size};

/// Steps of the ladder that are told; the rest is in the JSON, and `explain` lists it.
pub(in crate::report) const MOST_STEPS: usize = 6;

pub(super) fn write(page: &mut Page, summary: &Summary, verdict: Verdict) {
    let advice = advise(summary, verdict);
    let warnings = &summary.warnings;
    let ladder = &summary.ladder;
    if advice.is_empty() && warnings.is_empty() && ladder.steps.is_empty() {
        return;
    }
    page.headed("WHAT TO DO", Paint::Bold, "cheapest first");
    for (number, advice) in (1..).zip(&advice) {
        page.indented(&format!("  {number}  "), "     ", &describe(advice));
    }
    for (number, step) in (advice.len() + 1..).zip(ladder.steps.iter().take(MOST_STEPS)) {
        page.indented(&format!("  {number:<2} "), "     ", &climb(step));
    }
    climb_on(page, ladder);
    where_to_report(page, summary);
    for warning in warnings {
        page.indented("  !  ", "     ", &format!("{} is set: {}", clean(&warning.setting), clean(&warning.why)));
    }
    page.gap();
}

pub(in crate::report) fn climb(step: &Step) -> String {
    let fix = &step.fix;
    let command = if fix.command.is_empty() { String::new() } else { format!("{}: ", fix.command) };
    let mut text = format!("{command}{}", fix.why);
    if !fix.only_if.is_empty() {
        text.push_str(&format!(" (if: {})", fix.only_if));
    }
    if let Some(bytes) = fix.gives_back_bytes {
        let enough = match fix.is_enough {
            Some(true) => ": enough",
            Some(false) => ": not enough alone",
            None => "",
        };
        let basis = fix.gives_back_basis.map_or("", |basis| basis.name());
        text.push_str(&format!("; gives back {} ({basis}){enough}", size(bytes)));
    }
    clean(&text)
}

/// Where a defect belongs, and what a report of it must hold; most diagnoses are nobody's defect.
fn where_to_report(page: &mut Page, summary: &Summary) {
    for finding in summary.diagnoses.iter().filter(|finding| is_worth_reporting(finding)) {
        for filing in &finding.file {
            let with = if filing.with.is_empty() { String::new() } else { format!(", with {}", filing.with) };
            let text = format!("to report {}: {}{with}", finding.id, filing.place);
            page.indented("     ", "     ", &clean(&text));
        }
    }
}

/// Whether it is sure enough for a report, and can be somebody's defect.
pub(in crate::report) fn is_worth_reporting(finding: &Finding) -> bool {
    finding.confidence >= Confidence::Probable && finding.role != Role::Condition
}

/// What of the ladder is not told, and what is not advised.
fn climb_on(page: &mut Page, ladder: &Ladder) {
    if let Some(next) = ladder.steps.get(MOST_STEPS) {
        let more = ladder.steps.len() - MOST_STEPS;
        page.indented("     ", "     ", &format!("and {more} more: gpuoom-analyze explain {}", next.id));
    }
    if !ladder.not_advised.is_empty() {
        let list: Vec<String> = ladder.not_advised.iter().map(|not| format!("{} ({})", not.what, not.why)).collect();
        page.indented("     ", "     ", &format!("not advised here: {}", list.join("; ")));
    }
}

pub(in crate::report) fn describe(advice: &Advice) -> String {
    match advice {
        Advice::CheckResult { api } => {
            format!(
                "check the result of {} where it is called: the program used the GPU further after it had failed",
                clean(api)
            )
        }
        Advice::AskForLess { too_much_bytes } => format!(
            "ask for at least {} less in one piece (a smaller batch, context or model part): freeing memory can't help, the \
             request is larger than the card",
            size(*too_much_bytes)
        ),
        Advice::SetUpEarlier { api } => {
            format!(
                "call {} before the memory is full, or hold less by then: how much it needs is not known",
                clean(api)
            )
        }
        Advice::FreeSome { missing_bytes, largest } => {
            let mut text =
                format!("{} more must be free: hold less at that moment, or ask for less", size(*missing_bytes));
            if !largest.is_empty() {
                let blocks: Vec<String> = largest
                    .iter()
                    .take(3)
                    .map(|block| {
                        format!("{} {} at {}", clean(&block.api), size(block.requested_bytes), moment(block.at_ns))
                    })
                    .collect();
                text.push_str(&format!("; the largest blocks at the peak are {}", blocks.join(", ")));
            }
            text
        }
        Advice::FindOthers { others_bytes, runtime } => {
            let tool = match runtime.as_deref() {
                Some("hip") => "amd-smi process, or fuser -v /dev/kfd /dev/dri/renderD*",
                Some("cuda") => "nvidia-smi",
                _ => "the vendor's process list",
            };
            format!("see who else uses the card ({tool}): {} is not held by this program's blocks", size(*others_bytes))
        }
        Advice::Measure { setting, tells } => format!("record again with {setting}, which {tells}"),
        Advice::PinLess => {
            "pin less host memory, or in smaller pieces: the machine's limits for locked memory apply, not the GPU's"
                .to_owned()
        }
        Advice::StopInjecting => {
            "unset GPUOOM_INJECT and GPUOOM_CAPACITY to see how the program fares without them".to_owned()
        }
        Advice::RecordAgain => {
            "record again: parts of this trace are missing, and they may change the picture".to_owned()
        }
    }
}
