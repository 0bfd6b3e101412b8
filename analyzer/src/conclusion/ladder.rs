//! The ladder: what the surest diagnoses have for fixes, cheapest rung first, and what is often advised and is wrong here.

use gpuoom_trace::outcome::Outcome;
use serde::Serialize;

use super::finding::{Finding, Fix};
use crate::catalogue::entry;
use crate::diagnosis::RuledOut;
use crate::diagnosis::case::Case;
use crate::judgement::check::Confidence;
use crate::judgement::role::Role;
use crate::passes::oom::{self, OomReport};
use crate::software::{EXPANDABLE_ON_ROCM, Platform, Program};

/// Options of PyTorch's allocator that must never be set together.
const NEVER_TOGETHER: [&str; 2] = ["expandable_segments", "max_split_size_mb"];
/// The diagnosis of a refusal by the recorder itself.
const REQUESTED: &str = "requested-refusal";
/// The diagnosis of a refusal by a limit that somebody set.
const CEILING: &str = "process-fraction-cap";
/// The diagnosis of what rises from step to step.
const LEAK: &str = "live-leak";
/// The diagnosis of a request that no empty card holds: a program that then asks for less has done what its fixes say.
const TOO_LARGE: &str = "request-exceeds-device";

/// One rung.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Step {
    /// The diagnosis that it is for.
    pub id: &'static str,
    /// How sure that is.
    pub confidence: Confidence,
    /// What to do.
    #[serde(flatten)]
    pub fix: Fix,
}

/// Something that is often advised and does not help here.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct NotAdvised {
    /// What is advised.
    pub what: &'static str,
    /// Why not here.
    pub why: &'static str,
}

/// What to do.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Ladder {
    /// Cheapest first.
    pub steps: Vec<Step>,
    /// What is not advised.
    pub not_advised: Vec<NotAdvised>,
}

/// The ladder of a run: of what explains its failures or its end, of what the program did with a failure, and of conditions that
/// are certain. What is only possible has no rung.
pub(super) fn climb(case: &Case<'_>, found: &[Finding], ruled_out: &[RuledOut], causes: &[&'static str]) -> Ladder {
    // A shape says what the program was doing there: its fixes are nearer to the point than those of the full card that it ended in.
    let decides = oom::deciding(case.facts.ooms.iter().map(|oom| oom.outcome)).map(|index| index as u64 + 1);
    let is_of_decided = |finding: &Finding| decides.is_some_and(|number| finding.ooms.contains(&number));
    let on_request = decides.and_then(|number| refused_on_request(case, number));
    // A refusal on request, or by a ceiling, says nothing of why memory rose: that stays true of the real card.
    let at_ceiling = || decides.and_then(|number| refused_at_ceiling(case, number, found));
    let refused_before = on_request.or_else(at_ceiling);
    let stands_beside = |finding: &Finding| {
        refused_before
            .is_some_and(|oom| finding.role == Role::Cause && finding.ooms.is_empty() && finding.device == oom.device)
    };
    let telling = |finding: &&Finding| match finding.role {
        // What filled the card may be told as surely as that it is full: each is a place to begin.
        Role::Cause | Role::Shape => {
            let is_done = finding.id == TOO_LARGE && all_made_up_for(case);
            let is_meant = is_of_decided(finding) || causes.contains(&finding.id) || stands_beside(finding);
            is_meant && finding.confidence >= Confidence::Probable && !is_done
        }
        Role::Severity => finding.confidence >= Confidence::Probable,
        Role::Condition | Role::Refutation => {
            finding.confidence == Confidence::Proven && !is_only_of_recovered(finding, case)
        }
    };
    let mut telling: Vec<&Finding> = found.iter().filter(telling).collect();
    // What fills a virtual card fills the real one later; a call that was chosen to fail shows nothing of the kind.
    let filled = on_request.and_then(|oom| oom.injected.as_ref()).is_some_and(|injected| injected.reason == "capacity");
    telling.sort_by_key(|finding| (finding.role != Role::Shape, filled && finding.id == REQUESTED));
    let mut steps: Vec<Step> = Vec::new();
    for finding in telling {
        for fix in &finding.fix {
            if !steps.iter().any(|step| is_same(&step.fix, fix)) {
                steps.push(Step { id: finding.id, confidence: finding.confidence, fix: fix.clone() });
            }
        }
    }
    // The sort is stable: on one rung the more telling diagnosis stays first.
    steps.sort_by_key(|step| step.fix.price());
    if steps.iter().any(|step| step.id == LEAK) {
        put_ceiling_last(&mut steps);
    }
    keep_apart(&mut steps);
    let exceeds = decides.is_some_and(|number| {
        case.failures().any(|failure| failure.report.number == number && case.tensors_exceed(&failure))
    });
    if exceeds {
        steps.retain(|step| !step.fix.command.contains(EXPANDABLE));
    }
    let mut not_advised = not_advised(case, ruled_out, exceeds);
    // What one diagnosis rules out, another may need.
    not_advised.retain(|not| !steps.iter().any(|step| step.fix.command.contains(not.what)));
    Ladder { steps, not_advised }
}

/// The failure of that number, where the recorder itself refused it.
fn refused_on_request<'a>(case: &Case<'a>, number: u64) -> Option<&'a OomReport> {
    let mut ooms = case.facts.ooms.iter();
    ooms.find(|oom| oom.number == number && oom.refused_by == Some("injected"))
}

/// The failure of that number, where a ceiling refused it that somebody had set.
fn refused_at_ceiling<'a>(case: &Case<'a>, number: u64, found: &[Finding]) -> Option<&'a OomReport> {
    found.iter().find(|finding| finding.id == CEILING && finding.explains(number))?;
    case.facts.ooms.iter().find(|oom| oom.number == number)
}

/// Whether all that a finding is about was made up for, while another failure was not: then its fixes mend nothing that matters.
fn is_only_of_recovered(finding: &Finding, case: &Case<'_>) -> bool {
    let is_recovered = |oom: &OomReport| oom.outcome == Outcome::Recovered;
    let (of_it, others): (Vec<_>, Vec<_>) = case.facts.ooms.iter().partition(|oom| finding.ooms.contains(&oom.number));
    !of_it.is_empty() && of_it.into_iter().all(is_recovered) && !others.into_iter().all(is_recovered)
}

/// Whether each failure of the run was made up for.
fn all_made_up_for(case: &Case<'_>) -> bool {
    let ooms = &case.facts.ooms;
    ooms.len() as u64 == case.facts.oom_count && ooms.iter().all(|oom| oom.outcome == Outcome::Recovered)
}

/// Whether two diagnoses advise one thing: the same command, whatever each says of it, or where there is none, the same words.
fn is_same(one: &Fix, other: &Fix) -> bool {
    one.command == other.command && (!one.command.is_empty() || one.why == other.why)
}

/// What rises without an end meets any ceiling: a higher one is met later.
fn put_ceiling_last(steps: &mut [Step]) {
    for step in steps.iter_mut().filter(|step| step.id == CEILING) {
        step.fix.only_if = entry::joined(&[&step.fix.only_if, "what rises has an end below the new one"]);
    }
    steps.sort_by_key(|step| step.id == CEILING);
}

/// Of two options that are dangerous together only the first stays.
fn keep_apart(steps: &mut Vec<Step>) {
    let [first, second] = NEVER_TOGETHER.map(|option| steps.iter().position(|step| step.fix.command.contains(option)));
    let Some((first, second)) = first.zip(second) else { return };
    let dropped = if first < second { NEVER_TOGETHER[1] } else { NEVER_TOGETHER[0] };
    steps.retain(|step| !step.fix.command.contains(dropped));
}

fn not_advised(case: &Case<'_>, ruled_out: &[RuledOut], exceeds: bool) -> Vec<NotAdvised> {
    // Where no such option could be set, nobody needs to be told that it does not help.
    if case.facts.ooms.is_empty() {
        return Vec::new();
    }
    let mut list = Vec::new();
    let why = expandable(case, ruled_out).or(exceeds.then_some("the tensors and the request are more than the card"));
    list.extend(why.map(|why| NotAdvised { what: EXPANDABLE, why }));
    if case.versions.platform == Some(Platform::Rocm) && case.variable("HSA_OVERRIDE_GFX_VERSION").is_none() {
        let (what, why) = ("HSA_OVERRIDE_GFX_VERSION", "it changes the instruction set and frees nothing");
        list.push(NotAdvised { what, why });
    }
    list
}

/// Why expandable segments are not the answer, where that is known.
fn expandable(case: &Case<'_>, ruled_out: &[RuledOut]) -> Option<&'static str> {
    let versions = &case.versions;
    if !versions.has(Program::Torch) {
        return Some("an option of PyTorch, which is not in this process");
    }
    if versions.platform == Some(Platform::Rocm) && versions.torch.is_some_and(|torch| torch < EXPANDABLE_ON_ROCM) {
        return Some("this version of PyTorch ignores it on ROCm");
    }
    let is_excluded = ruled_out.iter().any(|out| out.id == "caching-fragmentation");
    is_excluded.then_some("fragmentation of the cache is ruled out")
}

const EXPANDABLE: &str = "expandable_segments";

#[cfg(test)]
mod tests {
    use super::*;

    fn step(command: &str) -> Step {
        let fix = Fix {
            rung: Some(4),
            reboot: false,
            command: command.to_owned(),
            why: String::new(),
            cost: String::new(),
            only_if: String::new(),
            gives_back_bytes: None,
            gives_back_basis: None,
            is_enough: None,
        };
        Step { id: "caching-fragmentation", confidence: Confidence::Proven, fix }
    }

    #[test]
    fn the_dangerous_pair_never_stands_on_one_ladder() {
        let expandable = "PYTORCH_ALLOC_CONF=expandable_segments:True";
        let split = "PYTORCH_HIP_ALLOC_CONF=max_split_size_mb:N";
        for (first, second) in [(expandable, split), (split, expandable)] {
            let mut steps = vec![step(first), step("other"), step(second)];
            keep_apart(&mut steps);
            let left: Vec<&str> = steps.iter().map(|step| step.fix.command.as_str()).collect();
            assert_eq!(left, [first, "other"]);
        }
    }
}
