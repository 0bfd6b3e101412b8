//! What only several traces together settle: a finding of one process that lacks nothing but what the traces of others tell.

use super::finding::Fix;
use super::ladder::Step;
use super::verdict::Verdict;
use super::{Summary, order, relations};
use crate::judgement::check::{Basis, Confidence, Evidence};

/// A reading that others told: which finding lacked it, by a part of its words, and what it says.
pub(crate) struct Told {
    /// The finding.
    pub id: &'static str,
    /// What its missing reading begins with.
    pub lacked: &'static str,
    /// What is known now, as half a sentence.
    pub fact: String,
}

impl Summary {
    /// Whether the failure that decides has no cause yet, and this finding of it is possible and lacks nothing else.
    pub(crate) fn lacks_only(&self, id: &str, lacked: &str) -> Option<&[u64]> {
        let number = self.conclusion.verdict.oom.filter(|_| self.conclusion.verdict.cause.is_none())?;
        let findings = &self.conclusion.findings;
        let found = findings.iter().find(|finding| finding.id == id && finding.ooms.contains(&number))?;
        let lacks_only = !found.missing.is_empty() && found.missing.iter().all(|reading| reading.starts_with(lacked));
        (found.confidence == Confidence::Possible && lacks_only).then_some(&found.ooms)
    }

    /// Makes a finding probable that lacked only this, and draws the conclusion from it.
    pub(crate) fn settle(&mut self, told: Told) {
        let Some(ooms) = self.lacks_only(told.id, told.lacked).map(<[u64]>::to_vec) else { return };
        let conclusion = &mut self.conclusion;
        let Some(found) = conclusion.findings.iter_mut().find(|finding| finding.id == told.id && finding.ooms == ooms)
        else {
            return;
        };
        found.confidence = Confidence::Probable;
        found.missing.clear();
        found.evidence.push(Evidence { text: told.fact, basis: Basis::Measured });
        let found = found.clone();
        // What another finding advises already stands once.
        let known = &conclusion.ladder.steps;
        let is_new = |fix: &&Fix| !known.iter().any(|step| step.fix.why == fix.why && step.fix.command == fix.command);
        let step = |fix: &Fix| Step { id: found.id, confidence: found.confidence, fix: fix.clone() };
        let steps: Vec<Step> = found.fix.iter().filter(is_new).map(step).collect();
        conclusion.ladder.steps.extend(steps);
        conclusion.ladder.steps.sort_by_key(|step| step.fix.rung.unwrap_or(u8::MAX));
        for (oom, cause) in self.facts.ooms.iter().zip(&mut conclusion.causes) {
            if cause.is_none() && ooms.contains(&oom.number) {
                *cause = Some(found.id);
            }
        }
        conclusion.would_settle.clear();
        relations::give_way(&mut conclusion.findings, found.id, &ooms);
        order::sort(&mut conclusion.findings);
        if let Some(number) = conclusion.verdict.oom {
            let of_it = conclusion.excluded.iter().filter(|out| out.ooms.contains(&number)).map(|out| out.id);
            let device = self.facts.ooms.iter().find(|oom| oom.number == number).and_then(|oom| oom.device);
            order::put_first(&mut conclusion.findings, number, device, &of_it.collect::<Vec<_>>());
        }
        conclusion.verdict = Verdict::new(&self.facts, &conclusion.findings, Some(&found), 0);
    }
}
