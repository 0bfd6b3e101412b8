//! Rules over the facts of a run: what holds, what refutes it, and how sure that is.
//!
//! A [`Case`] lends the facts to the rules. Each [`rules::Rule`] is asked about each failure, each device or the run, and says
//! with a [`Check`] what must hold and what refutes it. What comes of that is a [`Judged`]; the words and fixes of the
//! catalogue, the order and the verdict are [`crate::conclusion`]'s. Nothing here reads events or prints.

pub mod case;
mod contradiction;
mod exceeded;
pub mod kills;
pub mod labels;
mod meanwhile;
pub mod on_card;
mod pooled;
pub mod related;
mod rounding;
pub mod rules;
mod since_refusal;
mod tensor_leak;
pub mod torch_sums;
pub mod which_card;

#[cfg(test)]
pub(crate) mod labelled;

use case::{Case, Failure};
use rules::{Ask, Rule};

use crate::catalogue;
use crate::judgement::check::{Check, Confidence, Judgement, Parts};
use crate::judgement::role::Role;
use crate::passes::oom::deciding;

/// What every rule lacks where events are missing: any of them may be the one that refutes it.
const LOST_EVENTS: &str = "the events that this trace lost: record again";
/// What the same rules lack where calls are known to have gone past the recorder.
const BYPASSED: &str = "what the calls that went past the recorder took or gave back (see BYPASSED)";
/// Failures that rules are asked about, beside the one that decides the verdict.
const MOST_FAILURES: usize = 256;

/// What one rule says of one failure, one device or the run.
#[derive(Debug)]
pub struct Judged {
    /// Id in the catalogue.
    pub id: &'static str,
    /// How sure it is.
    pub confidence: Confidence,
    /// What part it plays.
    pub role: Role,
    /// The failures that it is about, by number; empty for the run or a device.
    pub ooms: Vec<u64>,
    /// The one of them whose numbers stand in `parts`.
    pub told_of: Option<u64>,
    /// The device, where it is about one.
    pub device: Option<u8>,
    /// What is missing for the failure to succeed, in bytes, where the trace tells.
    pub shortfall_bytes: Option<u64>,
    /// What holds, what was checked, what is missing.
    pub parts: Parts,
}

/// A diagnosis that was ruled out although its shape was there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RuledOut {
    /// Id in the catalogue.
    pub id: &'static str,
    /// The failures that it would have been about.
    pub ooms: Vec<u64>,
    /// What refutes it.
    pub by: String,
}

/// What all rules say.
#[derive(Debug, Default)]
pub struct Judgements {
    /// Whether no event is missing from the trace.
    events_are_whole: bool,
    /// Whether calls are known to have gone past the recorder.
    is_bypassed: bool,
    /// Number of the failure that decides.
    decides: Option<u64>,
    /// What holds, as the rules were asked.
    pub held: Vec<Judged>,
    /// What was ruled out.
    pub ruled_out: Vec<RuledOut>,
    /// Failures that no rule was asked about, because there are too many.
    pub not_looked_at: u64,
}

/// What a rule is asked about.
#[derive(Clone, Copy, Default)]
struct About {
    oom: Option<u64>,
    device: Option<u8>,
    shortfall_bytes: Option<u64>,
}

/// Asks all rules.
pub fn judge(case: &Case<'_>) -> Judgements {
    let looked_at = looked_at(case);
    let failures = case.failures().filter(|failure| looked_at.contains(&failure.report.number));
    let failures: Vec<(Failure<'_>, Option<String>)> =
        failures.map(|failure| (failure, case.contradiction(&failure))).collect();
    let mut all = Judgements {
        events_are_whole: case.facts.are_whole(),
        is_bypassed: case.facts.coverage.bypassed.iter().any(|bypass| bypass.certain),
        decides: number_that_decides(case),
        ..Judgements::default()
    };
    for rule in rules::all() {
        match rule.ask {
            Ask::Run(ask) => all.take(rule, About::default(), |check| ask(case, check)),
            Ask::Device(ask) => {
                for device in &case.facts.devices {
                    let about = About { device: device.index, ..About::default() };
                    all.take(rule, about, |check| ask(case, device, check));
                }
            }
            Ask::Failure(ask) => {
                for (failure, contradiction) in &failures {
                    let about = About {
                        oom: Some(failure.report.number),
                        device: failure.report.device,
                        shortfall_bytes: failure.shortfall_bytes(),
                    };
                    all.take(rule, about, |check| {
                        ask(case, failure, check);
                        doubt(rule, failure, contradiction.as_deref(), check);
                    });
                }
            }
        }
    }
    all.not_looked_at = case.facts.oom_count.saturating_sub(looked_at.len() as u64);
    all
}

/// What rests on readings that contradict each other is not proven.
fn doubt(rule: &Rule, failure: &Failure<'_>, contradiction: Option<&str>, check: &mut Check) {
    let rests = contradiction::rests_on_readings(rule.id, failure);
    let Some(text) = contradiction.filter(|_| rests && !check.is_over()) else { return };
    check.at_most(Confidence::Probable);
    check.note(true, || text.to_owned());
    check.would_settle(contradiction::BOTH_AGAIN);
}

/// The numbers of the failures that rules are asked about.
fn looked_at(case: &Case<'_>) -> Vec<u64> {
    let first = case.facts.ooms.iter().take(MOST_FAILURES).map(|oom| oom.number);
    first.chain(number_that_decides(case).filter(|number| *number > MOST_FAILURES as u64)).collect()
}

fn number_that_decides(case: &Case<'_>) -> Option<u64> {
    let ooms = &case.facts.ooms;
    deciding(ooms.iter().map(|oom| oom.outcome)).map(|index| ooms[index].number)
}

impl Judgements {
    /// Puts one rule to the test and takes in what comes of it.
    fn take(&mut self, rule: &Rule, about: About, ask: impl FnOnce(&mut Check)) {
        let mut check = Check::default();
        ask(&mut check);
        if !self.events_are_whole {
            check.could_be_otherwise(LOST_EVENTS);
        }
        let Some(entry) = catalogue::find(rule.id) else { return };
        if self.is_bypassed && entry.counts_unexplained {
            check.could_be_otherwise(BYPASSED);
        }
        let role = check.role().unwrap_or(entry.role);
        match check.judgement() {
            Judgement::None => {}
            Judgement::Excluded { by } => self.rule_out(rule.id, about.oom, by),
            Judgement::Found(confidence) => self.hold(Judged {
                id: rule.id,
                confidence,
                role,
                ooms: about.oom.into_iter().collect(),
                told_of: about.oom,
                device: about.device,
                shortfall_bytes: about.shortfall_bytes,
                parts: check.into_parts(),
            }),
        }
    }

    fn rule_out(&mut self, id: &'static str, oom: Option<u64>, by: String) {
        match self.ruled_out.iter_mut().find(|known| known.id == id && is_same_reason(&known.by, &by)) {
            Some(known) => known.ooms.extend(oom),
            None => self.ruled_out.push(RuledOut { id, ooms: oom.into_iter().collect(), by }),
        }
    }

    /// What was found of the same device before covers one more failure, if it is as sure of it: what is proven of one failure
    /// and only possible of another are two findings. What is so on a device explains no failure by itself: that stays apart.
    fn hold(&mut self, judged: Judged) {
        let same = self.held.iter_mut().find(|known| {
            let both_of_failures = known.ooms.is_empty() == judged.ooms.is_empty();
            let as_sure = known.confidence == judged.confidence;
            known.id == judged.id && known.device == judged.device && both_of_failures && as_sure
        });
        match same {
            // Of several failures the numbers of the one that decides are told, as in the verdict.
            Some(known) if judged.told_of.is_some() && judged.told_of == self.decides => {
                known.ooms.extend(judged.ooms);
                (known.told_of, known.shortfall_bytes, known.parts) =
                    (judged.told_of, judged.shortfall_bytes, judged.parts);
            }
            Some(known) => known.ooms.extend(judged.ooms),
            None => self.held.push(judged),
        }
    }
}

/// Whether two sentences say the same of two failures: they differ in their numbers only.
fn is_same_reason(one: &str, other: &str) -> bool {
    let is_unit = |word: &str| matches!(word, "bytes" | "KiB" | "MiB" | "GiB" | "TiB" | "%" | "ns" | "µs" | "ms" | "s");
    let bare = |word: &&str| {
        let word = word.trim_matches(|c: char| !c.is_alphanumeric() && c != '%');
        !word.starts_with(|c: char| c.is_ascii_digit()) && !is_unit(word)
    };
    one.split_whitespace().filter(bare).eq(other.split_whitespace().filter(bare))
}

#[cfg(test)]
mod tests {
    use super::{contradiction, is_same_reason};

    #[test]
    fn what_rests_on_readings_is_in_the_catalogue() {
        contradiction::OF_FREE_MEMORY.iter().for_each(|id| assert!(crate::catalogue::find(id).is_some(), "{id}"));
    }

    #[test]
    fn reasons_that_differ_in_numbers_are_one() {
        assert!(is_same_reason(
            "only 1.50 GiB was free (12 % of it), whatever is set",
            "only 300 MiB was free (3 % of it), whatever is set"
        ));
        assert!(!is_same_reason("the next try failed, too", "the request lies between the two readings"));
    }
}
