//! What a report says of a diagnosis.

use serde::Serialize;

use crate::catalogue::entry::{Entry, Filing};
use crate::diagnosis::Judged;
use crate::judgement::check::{Basis, Confidence, Evidence, Refuter};
use crate::judgement::role::Role;

/// One thing to do.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Fix {
    /// Rung of the ladder, 0 the cheapest; `None` where the ladder has none for it.
    pub rung: Option<u8>,
    /// It takes a restart of the machine, so it comes last on its rung.
    #[serde(skip)]
    pub reboot: bool,
    /// What to type; empty where it is a change of code or of habit.
    pub command: String,
    /// What it does.
    pub why: String,
    /// What it costs.
    pub cost: String,
    /// On which versions, where the trace does not tell whether they are these.
    pub only_if: String,
    /// What it gives back, where the trace tells.
    pub gives_back_bytes: Option<u64>,
    /// How that number came about.
    pub gives_back_basis: Option<Basis>,
    /// Whether that is enough for the failure; `None` where one of the numbers is missing.
    pub is_enough: Option<bool>,
}

impl Fix {
    /// What fixes are sorted by, cheapest first.
    pub(super) fn price(&self) -> (u8, bool) {
        (self.rung.unwrap_or(u8::MAX), self.reboot)
    }
}

/// A diagnosis that holds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// Id in the catalogue.
    pub id: &'static str,
    /// What it says, as half a sentence.
    pub title: String,
    /// How sure it is.
    pub confidence: Confidence,
    /// What part it plays.
    pub role: Role,
    /// The failures that it is about, by number; empty for the run or a device.
    pub ooms: Vec<u64>,
    /// The failure whose numbers stand in `evidence`.
    pub evidence_of: Option<u64>,
    /// The device, where it is about one.
    pub device: Option<u8>,
    /// What holds.
    pub evidence: Vec<Evidence>,
    /// What would have refuted it.
    pub refuters_checked: Vec<Refuter>,
    /// The readings, files or runs that would settle it.
    pub missing: Vec<String>,
    /// What to do about it, cheapest first.
    pub fix: Vec<Fix>,
    /// What is missing for the failure to succeed, where the trace tells.
    pub shortfall_bytes: Option<u64>,
    /// Whether a number of the evidence comes from the model of the card.
    pub modelled: bool,
    /// Whether sizes and times alone speak for it, and nothing names what it is about.
    #[serde(skip)]
    pub is_guess: bool,
    /// Whether it is a small part of what happened, behind others that are as sure.
    #[serde(skip)]
    pub is_slight: bool,
    /// What a reader must know besides.
    pub note: String,
    /// Where to report it, and with what; empty: it is no bug.
    pub file: Vec<Filing>,
    /// Where the rule comes from.
    pub sources: Vec<String>,
}

/// A diagnosis that was ruled out although its shape was there.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Excluded {
    /// Id in the catalogue.
    pub id: &'static str,
    /// What it would have said.
    pub title: String,
    /// The failures that it would have been about.
    pub ooms: Vec<u64>,
    /// What refutes it.
    pub by: String,
}

impl Finding {
    /// Whether it is the reason of a failure, surely enough to say so.
    pub(super) fn explains(&self, number: u64) -> bool {
        self.role.explains() && self.confidence >= Confidence::Probable && self.ooms.contains(&number)
    }

    /// A diagnosis with the catalogue's words, and the fixes of it that suit what runs.
    pub(crate) fn new(judged: Judged, entry: &Entry, fix: Vec<Fix>) -> Self {
        let Judged { id, confidence, role, ooms, told_of, device, shortfall_bytes, parts } = judged;
        Finding {
            id,
            title: if parts.is_as_seen { entry.as_seen().to_owned() } else { entry.title.clone() },
            confidence,
            role,
            ooms,
            evidence_of: told_of,
            device,
            fix,
            evidence: parts.evidence,
            refuters_checked: parts.refuters,
            missing: parts.missing,
            shortfall_bytes,
            is_guess: parts.is_guess,
            is_slight: parts.is_slight,
            modelled: parts.modelled,
            note: entry.note.clone(),
            file: entry.file.clone(),
            sources: entry.sources.clone(),
        }
    }
}
